// Softmax cross entropy with label smoothing: loss, hits and gradient in one
// launch.
//
// A block takes a row. All sums are FP64 over a fixed tree: a thread adds its
// classes, blockDim apart, in order; a warp by butterfly; the warps in order.
// Row losses go to scratch; the last block to finish adds them: lane l of its
// first warp takes rows l, l+32, ... in order, then butterfly. Time is latency
// and exponentials, not bytes.
#include "common.cuh"

#define LOSS_THREADS 256

__device__ __forceinline__ double warpSum(double v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

// blockSum leaves the sum over the block in every thread.
__device__ __forceinline__ double blockSum(double v, double *buffer) {
    v = warpSum(v);
    const int warps = blockDim.x >> 5;
    if (warps == 1) return v;
    if ((threadIdx.x & 31) == 0) buffer[threadIdx.x >> 5] = v;
    __syncthreads();
    v = buffer[0];
    for (int i = 1; i < warps; i++) v += buffer[i];
    __syncthreads();
    return v;
}
__device__ __forceinline__ float blockMax(float v, float *buffer) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const float w = __shfl_xor_sync(0xffffffffu, v, o);
        if (w > v) v = w;
    }
    const int warps = blockDim.x >> 5;
    if (warps == 1) return v;
    if ((threadIdx.x & 31) == 0) buffer[threadIdx.x >> 5] = v;
    __syncthreads();
    v = buffer[0];
    for (int i = 1; i < warps; i++) {
        if (buffer[i] > v) v = buffer[i];
    }
    __syncthreads();
    return v;
}

// One block a row. rows is [n] of (loss, hit). GRAD also writes dlogits. Returns
// whether this block is the last, with the mean loss and the hits in its first
// warp.
template <typename T, bool GRAD>
__device__ __forceinline__ bool crossEntropy(const T *logits, const int *labels, T *dlogits, double2 *rows, u32 *counters, int n, int k,
                                             double smooth, float scale, float &loss, float &hits) {
    __shared__ double buffer[LOSS_THREADS / 32];
    const int row = blockIdx.x, label = labels[row];
    const T *z = logits + (size_t)row * k;
    T *d = dlogits + (size_t)row * k;
    const double nan = __longlong_as_double(0x7ff8000000000000ll);
    double top = nan, inverse = nan, mine = 0, rowLoss = nan;
    int hit = 0;
    // A label that is no class makes the row's loss and gradient NaN and touches
    // nothing else.
    if (label >= 0 && label < k) {
        float best = __int_as_float(0xff800000); // -Inf; a NaN is never above it
        const float own = scalar(z + label);
        int miss = 0;
        for (int j = threadIdx.x; j < k; j += blockDim.x) {
            const float v = scalar(z + j);
            if (v > best) best = v;
            if (!(v < own) && (j < label || !(v == own))) miss = 1;
        }
        top = blockMax(best, reinterpret_cast<float *>(buffer));
        hit = !__syncthreads_or(miss);
        double sum = 0, total = 0;
        for (int j = threadIdx.x; j < k; j += blockDim.x) {
            const double e = (double)scalar(z + j) - top;
            sum += exp(e);
            total += e;
        }
        sum = blockSum(sum, buffer);
        mine = (double)own - top;
        const double lse = log(sum);
        rowLoss = lse - mine;
        if (smooth != 0) {
            total = blockSum(total, buffer);
            rowLoss = (1 - smooth) * (lse - mine) + smooth * (lse - total / k);
        }
        inverse = 1 / sum;
    }
    if (GRAD) {
        const double factor = (double)scale / n, off = smooth / k;
        for (int j = threadIdx.x; j < k; j += blockDim.x) {
            const double target = j == label ? off + (1 - smooth) : off;
            const float g[1] = {(float)((exp((double)scalar(z + j) - top) * inverse - target) * factor)};
            write<T, 1>(d + j, g);
        }
    }
    dependency_trigger();
    if (threadIdx.x == 0) rows[row] = make_double2(rowLoss, hit);
    if (!arrive(counters, n)) return false;
    if (threadIdx.x < 32) {
        double l = 0, h = 0;
        for (int i = threadIdx.x; i < n; i += 32) {
            const double2 r = __ldcg(rows + i);
            l += r.x;
            h += r.y;
        }
        loss = (float)(warpSum(l) / n);
        hits = (float)warpSum(h);
    }
    return threadIdx.x == 0;
}

#define LOSS(S, T)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(LOSS_THREADS)                                                                \
        loss_##S(const T *logits, const int *labels, const u32 *scalars, float *step, T *dlogits, double2 *rows,              \
                 u32 *counters, int n, int k, float smooth) {                                                                \
        dependency_wait();                                                                                                    \
        float loss, hits;                                                                                                     \
        const float scale = __uint_as_float(scalars[SCALAR_SCALE]);                                                           \
        if (crossEntropy<T, true>(logits, labels, dlogits, rows, counters, n, k, smooth, scale, loss, hits)) {                \
            step[0] = __fadd_rn(step[0], loss);                                                                               \
            step[1] = __fadd_rn(step[1], hits);                                                                               \
        }                                                                                                                     \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(LOSS_THREADS)                                                                \
        loss_eval_##S(const T *logits, const int *labels, float *step, double2 *rows, u32 *counters, int n, int k, int slot) { \
        dependency_wait();                                                                                                    \
        float loss, hits;                                                                                                     \
        if (crossEntropy<T, false>(logits, labels, nullptr, rows, counters, n, k, 0, 0, loss, hits)) {                        \
            step[2 * slot] = loss;                                                                                            \
            step[2 * slot + 1] = hits;                                                                                        \
        }                                                                                                                     \
    }

LOSS(f32, float)
LOSS(f16, __half)
