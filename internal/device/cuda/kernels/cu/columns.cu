// Bias gradients, for the project's own and for a library's matrix products.
#include "common.cuh"

// column_sums: the gradient of a bias, the sum of each column of dy [n][k]. 32
// columns a block; eight threads a column add rows t, t+8, ... in order, then
// the eight in order.
template <typename T>
__device__ __forceinline__ void columnSums(const T *dy, float *db, int n, int k) {
    __shared__ float buffer[8][32];
    dependency_wait();
    const int lane = threadIdx.x % 32, t = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.f;
    if (column < k) {
#pragma unroll 8
        for (int r = t; r < n; r += 8) sum = __fadd_rn(sum, scalar(dy + (size_t)r * k + column));
    }
    buffer[t][lane] = sum;
    __syncthreads();
    if (t == 0 && column < k) {
        for (int i = 1; i < 8; i++) sum = __fadd_rn(sum, buffer[i][lane]);
        db[column] = sum;
    }
}
extern "C" __global__ void __launch_bounds__(256) column_sums_f32(const float *dy, float *db, int n, int k) { columnSums<float>(dy, db, n, k); }
extern "C" __global__ void __launch_bounds__(256) column_sums_f16(const __half *dy, float *db, int n, int k) { columnSums<__half>(dy, db, n, k); }
