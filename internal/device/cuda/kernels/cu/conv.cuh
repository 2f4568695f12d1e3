// Convolution and fully connected layers: plain, correct, and for machines that
// have only a driver. No matrix units, so FP32 is IEEE FP32 (fused multiply-add
// is allowed here: it rounds once, as IEEE 754 defines it). F16 operands are
// widened exactly and accumulated in FP32.
//
// Each is a matrix product whose operands are gathered on the way to shared
// memory. A block of 256 threads makes a 64x64 tile, 16 of the summed dimension
// at a time, double buffered; a thread holds 4x4 results. The summed dimension
// is walked in order; where the tiles alone do not fill the chip it is cut into
// gridDim.z equal parts whose FP32 partial results split_sum adds in order.
// Padding is a 0 that is multiplied like any other element.
#pragma once
#include "common.cuh"

#define CONV_THREADS 256
#define TILE 64
#define DEPTH 16
#define PITCH (TILE + 4)

struct Geometry {
    int n, h, w, c;    // input
    int k, r, s;       // filters
    int stride, pad;
    int oh, ow;        // output image
    int part;          // of the summed dimension that one gridDim.z takes, a multiple of DEPTH
};

// Tap walks (row, column, channel) of a window in memory order of the filters.
struct Tap {
    int r, s, c;
    __device__ Tap(int at, int ss, int cs) : r(at / (ss * cs)), s(at / cs % ss), c(at % cs) {}
    __device__ void advance(int by, int ss, int cs) {
        c += by;
        while (c >= cs) {
            c -= cs;
            if (++s == ss) s = 0, r++;
        }
    }
};

struct Accumulator {
    float v[4][4];
    __device__ Accumulator() {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) v[i][j] = 0.f;
    }
};

// product runs the main loop. fetchA and fetchB load a thread's four elements of
// the next slice into registers, placeA and placeB put them into the tile, which
// lies [DEPTH][PITCH] with rows of A and columns of B along PITCH.
template <typename FA, typename FB, typename PA, typename PB>
__device__ __forceinline__ void product(Accumulator &acc, float (*a)[DEPTH][PITCH], float (*b)[DEPTH][PITCH], int slices, FA fetchA,
                                        FB fetchB, PA placeA, PB placeB) {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float ra[4], rb[4];
    if (slices <= 0) return;
    fetchA(ra);
    fetchB(rb);
    placeA(a[0], ra);
    placeB(b[0], rb);
    __syncthreads();
    for (int t = 0; t < slices; t++) {
        const int now = t & 1;
        if (t + 1 < slices) fetchA(ra), fetchB(rb);
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const float4 x = *reinterpret_cast<const float4 *>(&a[now][d][ty * 4]);
            const float4 y = *reinterpret_cast<const float4 *>(&b[now][d][tx * 4]);
            const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc.v[i][j] = __fmaf_rn(xs[i], ys[j], acc.v[i][j]);
        }
        if (t + 1 < slices) placeA(a[1 - now], ra), placeB(b[1 - now], rb);
        __syncthreads();
    }
}

// finish stores a tile of rows by cols results: to y with the bias, or as this
// part's FP32 partial result.
template <typename T>
__device__ __forceinline__ void finish(const Accumulator &acc, T *y, float *partial, const float *bias, int rows, int cols) {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = blockIdx.x * TILE + ty * 4 + i;
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int col = blockIdx.y * TILE + tx * 4 + j;
            if (col >= cols) continue;
            const size_t to = (size_t)row * cols + col;
            if (partial != nullptr) {
                partial[(size_t)blockIdx.z * rows * cols + to] = acc.v[i][j];
            } else {
                const float f[1] = {bias != nullptr ? __fadd_rn(acc.v[i][j], bias[col]) : acc.v[i][j]};
                write<T, 1>(y + to, f);
            }
        }
    }
}

// four reads four elements that lie side by side, or 0 outside.
template <typename T>
__device__ __forceinline__ void four(const T *p, bool inside, float (&f)[4]) {
    if (inside) {
        unpack(load<T, 4>(p), f);
    } else {
        f[0] = f[1] = f[2] = f[3] = 0.f;
    }
}

// y[pixel][k] = sum over taps of x * w[k]. Rows are output pixels, columns
// filters. VEC: c is a multiple of 4 and the operands are aligned to 4 elements.
template <typename T, bool VEC>
__device__ __forceinline__ void convForward(const T *x, const T *w, const float *bias, T *y, float *partial, const Geometry &g) {
    __shared__ __align__(16) float a[2][DEPTH][PITCH], b[2][DEPTH][PITCH];
    dependency_wait();
    const int rows = g.n * g.oh * g.ow, taps = g.r * g.s * g.c;
    const int line = threadIdx.x / 4, quad = threadIdx.x % 4 * 4;
    const int begin = blockIdx.z * g.part, end = min(taps, begin + g.part);
    const int row = blockIdx.x * TILE + line, filter = blockIdx.y * TILE + line;
    const int ox = row % g.ow, oy = row / g.ow % g.oh, image = row / (g.ow * g.oh);
    const int y0 = oy * g.stride - g.pad, x0 = ox * g.stride - g.pad;
    const T *px = x + (size_t)image * g.h * g.w * g.c;
    const T *pw = w + (size_t)filter * taps;
    Tap tap(begin + quad, g.s, g.c);
    int ta = begin + quad, tb = begin + quad;
    Accumulator acc;
    auto fetchA = [&](float (&f)[4]) {
        Tap t = tap;
#pragma unroll
        for (int j = 0; j < (VEC ? 1 : 4); j++) {
            const int r = y0 + t.r, s = x0 + t.s;
            const bool inside = row < rows && ta + j < end && r >= 0 && r < g.h && s >= 0 && s < g.w;
            const T *p = px + ((size_t)r * g.w + s) * g.c + t.c;
            if (VEC) {
                four<T>(p, inside, f);
            } else {
                f[j] = inside ? scalar(p) : 0.f;
                t.advance(1, g.s, g.c);
            }
        }
        tap.advance(DEPTH, g.s, g.c);
        ta += DEPTH;
    };
    auto fetchB = [&](float (&f)[4]) {
        if (VEC) {
            four<T>(pw + tb, filter < g.k && tb < end, f);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) f[j] = filter < g.k && tb + j < end ? scalar(pw + tb + j) : 0.f;
        }
        tb += DEPTH;
    };
    auto place = [&](float (*m)[PITCH], const float (&f)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) m[quad + j][line] = f[j];
    };
    product(acc, a, b, (end - begin + DEPTH - 1) / DEPTH, fetchA, fetchB, place, place);
    finish<T>(acc, y, partial, bias, rows, g.k);
}

// dx[pixel][c] = sum over (r, s, k) of dy * w. Rows are input pixels, columns
// channels. VEC: c and k are multiples of 4.
template <typename T, bool VEC>
__device__ __forceinline__ void convBwdData(const T *dy, const T *w, T *dx, float *partial, const Geometry &g) {
    __shared__ __align__(16) float a[2][DEPTH][PITCH], b[2][DEPTH][PITCH];
    dependency_wait();
    const int rows = g.n * g.h * g.w, taps = g.r * g.s * g.k;
    const int begin = blockIdx.z * g.part, end = min(taps, begin + g.part);
    // A, like forward: a line's pixel, four filters side by side.
    const int line = threadIdx.x / 4, quad = threadIdx.x % 4 * 4;
    const int row = blockIdx.x * TILE + line;
    const int ix = row % g.w + g.pad, iy = row / g.w % g.h + g.pad, image = row / (g.w * g.h);
    const T *pd = dy + (size_t)image * g.oh * g.ow * g.k;
    Tap tapA(begin + quad, g.s, g.k);
    int ta = begin + quad;
    // B: one tap, four channels side by side.
    const int depth = threadIdx.x / 16, side = threadIdx.x % 16 * 4;
    const int channel = blockIdx.y * TILE + side;
    Tap tapB(begin + depth, g.s, g.k);
    int tb = begin + depth;
    Accumulator acc;
    auto fetchA = [&](float (&f)[4]) {
        Tap t = tapA;
#pragma unroll
        for (int j = 0; j < (VEC ? 1 : 4); j++) {
            const int r = iy - t.r, s = ix - t.s;
            const int i = r / g.stride, o = s / g.stride;
            const bool inside = row < rows && ta + j < end && r >= 0 && s >= 0 && i * g.stride == r && o * g.stride == s && i < g.oh && o < g.ow;
            const T *p = pd + ((size_t)i * g.ow + o) * g.k + t.c;
            if (VEC) {
                four<T>(p, inside, f);
            } else {
                f[j] = inside ? scalar(p) : 0.f;
                t.advance(1, g.s, g.k);
            }
        }
        tapA.advance(DEPTH, g.s, g.k);
        ta += DEPTH;
    };
    auto fetchB = [&](float (&f)[4]) {
        const T *p = w + (((size_t)tapB.c * g.r + tapB.r) * g.s + tapB.s) * g.c + channel;
        if (VEC) {
            four<T>(p, tb < end && channel < g.c, f);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) f[j] = tb < end && channel + j < g.c ? scalar(p + j) : 0.f;
        }
        tapB.advance(DEPTH, g.s, g.k);
        tb += DEPTH;
    };
    auto placeA = [&](float (*m)[PITCH], const float (&f)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) m[quad + j][line] = f[j];
    };
    auto placeB = [&](float (*m)[PITCH], const float (&f)[4]) { *reinterpret_cast<float4 *>(&m[depth][side]) = make_float4(f[0], f[1], f[2], f[3]); };
    product(acc, a, b, (end - begin + DEPTH - 1) / DEPTH, fetchA, fetchB, placeA, placeB);
    finish<T>(acc, dx, partial, nullptr, rows, g.c);
}

// dw[k][r][s][c] = sum over output pixels of dy[k] * x. Rows are filters, columns
// taps. VEC: c and k are multiples of 4.
template <typename T, bool VEC>
__device__ __forceinline__ void convBwdFilter(const T *x, const T *dy, T *dw, float *partial, const Geometry &g) {
    __shared__ __align__(16) float a[2][DEPTH][PITCH], b[2][DEPTH][PITCH];
    dependency_wait();
    const int pixels = g.n * g.oh * g.ow, taps = g.r * g.s * g.c;
    const int begin = blockIdx.z * g.part, end = min(pixels, begin + g.part);
    const int depth = threadIdx.x / 16, side = threadIdx.x % 16 * 4;
    const int filter = blockIdx.x * TILE + side, column = blockIdx.y * TILE + side;
    int pa = begin + depth, pb = begin + depth;
    int ox = pb % g.ow, oy = pb / g.ow % g.oh, image = pb / (g.ow * g.oh);
    const Tap tap(column, g.s, g.c);
    Accumulator acc;
    auto fetchA = [&](float (&f)[4]) {
        const T *p = dy + (size_t)pa * g.k + filter;
        if (VEC) {
            four<T>(p, pa < end && filter < g.k, f);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) f[j] = pa < end && filter + j < g.k ? scalar(p + j) : 0.f;
        }
        pa += DEPTH;
    };
    auto fetchB = [&](float (&f)[4]) {
        Tap t = tap;
#pragma unroll
        for (int j = 0; j < (VEC ? 1 : 4); j++) {
            const int r = oy * g.stride - g.pad + t.r, s = ox * g.stride - g.pad + t.s;
            const bool inside = pb < end && column + j < taps && r >= 0 && r < g.h && s >= 0 && s < g.w;
            const T *p = x + (((size_t)image * g.h + r) * g.w + s) * g.c + t.c;
            if (VEC) {
                four<T>(p, inside, f);
            } else {
                f[j] = inside ? scalar(p) : 0.f;
                t.advance(1, g.s, g.c);
            }
        }
        pb += DEPTH;
        ox += DEPTH;
        while (ox >= g.ow) {
            ox -= g.ow;
            if (++oy == g.oh) oy = 0, image++;
        }
    };
    auto place = [&](float (*m)[PITCH], const float (&f)[4]) { *reinterpret_cast<float4 *>(&m[depth][side]) = make_float4(f[0], f[1], f[2], f[3]); };
    product(acc, a, b, (end - begin + DEPTH - 1) / DEPTH, fetchA, fetchB, place, place);
    finish<T>(acc, dw, partial, nullptr, g.k, taps);
}

#define GEOMETRY_PARAMS int n, int h, int w, int c, int k, int r, int s, int stride, int pad, int oh, int ow, int part
#define GEOMETRY Geometry{n, h, w, c, k, r, s, stride, pad, oh, ow, part}
#define CONV(S, T, VEC)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                                            \
        conv_##S(const T *x, const T *weights, const float *bias, T *y, float *partial, GEOMETRY_PARAMS) {                \
        convForward<T, VEC>(x, weights, bias, y, partial, GEOMETRY);                                                      \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                                            \
        conv_bwd_data_##S(const T *dy, const T *weights, T *dx, float *partial, GEOMETRY_PARAMS) {                        \
        convBwdData<T, VEC>(dy, weights, dx, partial, GEOMETRY);                                                          \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                                            \
        conv_bwd_filter_##S(const T *x, const T *dy, T *dw, float *partial, GEOMETRY_PARAMS) {                 \
        convBwdFilter<T, VEC>(x, dy, dw, partial, GEOMETRY);                                                          \
    }

// split_sum adds the parts of a split product in order, adds the bias of the
// column and stores. Bytes: 4*parts read an element.
template <typename T>
__device__ __forceinline__ void splitSum(const float *partial, const float *bias, T *y, int parts, u64 n, int cols) {
    dependency_wait();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        float sum = partial[i];
#pragma unroll 8
        for (int p = 1; p < parts; p++) sum = __fadd_rn(sum, partial[(u64)p * n + i]);
        if (bias != nullptr) sum = __fadd_rn(sum, bias[i % cols]);
        const float f[1] = {sum};
        write<T, 1>(y + i, f);
    }
}
#define SPLIT_SUM(S, T)                                                                                \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                        \
        split_sum_##S(const float *partial, const float *bias, T *y, u64 n, int parts, int cols) {    \
        splitSum<T>(partial, bias, y, parts, n, cols);                                                \
    }
