// Pooling on channels-last images.
//
// Max-pool: a thread owns V channels of one output pixel (forward) or input
// pixel (backward), so every element is written once and by one thread, and
// nothing needs an atomic. Blocks cover a patch of 8 pixels across and 4 or more
// down with up to 8 channel vectors, so that the overlap of the windows comes
// from the first-level cache. Bytes for F16, 3x3 stride 2, an output element:
// 8 + 2 + 1 forward, 2 + 1 + 8 backward.
//
// Average pool: a thread owns V channels of an image and adds the pixels in
// order, as the CPU device does; 2 bytes an input element.
#include "common.cuh"

#define POOL_THREADS 256

// Geometry of a max-pool; large is h by w, small oh by ow.
struct Window {
    int h, w, c, oh, ow, r, stride, pad;
};

// Patch places a thread: image n, pixel (i, j) of a height by width grid, first
// channel c0. txLog channel vectors, 8 columns and the rest rows make a block.
template <int V>
struct Patch {
    int n, i, j, c0;
    bool inside;
    __device__ Patch(int height, int width, int c, int txLog) {
        const int tx = threadIdx.x & ((1 << txLog) - 1);
        const int px = (threadIdx.x >> txLog) & 7, py = threadIdx.x >> (txLog + 3);
        const int down = (POOL_THREADS >> (txLog + 3));
        const int cs = (c + (V << txLog) - 1) / (V << txLog), ws = (width + 7) / 8, hs = (height + down - 1) / down;
        u32 b = blockIdx.x;
        c0 = ((b % cs << txLog) + tx) * V;
        b /= cs;
        j = (b % ws) * 8 + px;
        b /= ws;
        i = (b % hs) * down + py;
        n = b / hs;
        inside = c0 < c && j < width && i < height;
    }
};

template <typename T, int V>
__device__ __forceinline__ void maxPool(const T *x, T *y, u8 *index, const Window &g, int txLog) {
    dependency_wait();
    const Patch<V> at(g.oh, g.ow, g.c, txLog);
    if (!at.inside) return;
    const int y0 = at.i * g.stride - g.pad, x0 = at.j * g.stride - g.pad;
    const T *image = x + (size_t)at.n * g.h * g.w * g.c + at.c0;
    float best[V];
    u32 code[V];
    bool first = true;
    for (int r = 0; r < g.r; r++) {
        const int row = y0 + r;
        if (row < 0 || row >= g.h) continue;
#pragma unroll 3
        for (int s = 0; s < g.r; s++) {
            const int col = x0 + s;
            if (col < 0 || col >= g.w) continue;
            float v[V];
            read<T, V>(image + ((size_t)row * g.w + col) * g.c, v);
            const u32 here = r * g.r + s;
#pragma unroll
            for (int j = 0; j < V; j++) {
                // Larger, or NaN where there was a number; the padding never wins.
                if (first || (!(v[j] <= best[j]) && best[j] == best[j])) best[j] = v[j], code[j] = here;
            }
            first = false;
        }
    }
    const size_t to = (((size_t)at.n * g.oh + at.i) * g.ow + at.j) * g.c + at.c0;
    write<T, V>(y + to, best);
    if (V == 8) {
        *reinterpret_cast<uint2 *>(index + to) = make_uint2(code[0] | code[1 % V] << 8 | code[2 % V] << 16 | code[3 % V] << 24,
                                                            code[4 % V] | code[5 % V] << 8 | code[6 % V] << 16 | code[7 % V] << 24);
    } else if (V == 4) {
        *reinterpret_cast<u32 *>(index + to) = code[0] | code[1 % V] << 8 | code[2 % V] << 16 | code[3 % V] << 24;
    } else {
        for (int j = 0; j < V; j++) index[to + j] = (u8)code[j];
    }
    dependency_trigger();
}

// The windows whose maximum a pixel was, in row-major order; FP32 sum.
template <typename T, int V>
__device__ __forceinline__ void maxPoolBwd(const T *dy, const u8 *index, T *dx, const Window &g, int txLog) {
    dependency_wait();
    const Patch<V> at(g.h, g.w, g.c, txLog);
    if (!at.inside) return;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    const int py = at.i + g.pad, px = at.j + g.pad;
    const int i0 = py < g.r ? 0 : (py - g.r) / g.stride + 1, i1 = min(g.oh, py / g.stride + 1);
    const int j0 = px < g.r ? 0 : (px - g.r) / g.stride + 1, j1 = min(g.ow, px / g.stride + 1);
    for (int i = i0; i < i1; i++) {
#pragma unroll 2
        for (int j = j0; j < j1; j++) {
            const u32 code = (py - i * g.stride) * g.r + (px - j * g.stride);
            const size_t from = (((size_t)at.n * g.oh + i) * g.ow + j) * g.c + at.c0;
            float d[V];
            u32 got[(V + 3) / 4];
            read<T, V>(dy + from, d);
            if (V == 8) {
                const uint2 q = *reinterpret_cast<const uint2 *>(index + from);
                got[0] = q.x, got[(V + 3) / 4 - 1] = q.y;
            } else if (V == 4) {
                got[0] = *reinterpret_cast<const u32 *>(index + from);
            } else {
                got[0] = index[from];
            }
#pragma unroll
            for (int k = 0; k < V; k++) {
                if ((got[k / 4] >> (8 * (k % 4)) & 255) == code) sum[k] = __fadd_rn(sum[k], d[k]);
            }
        }
    }
    write<T, V>(dx + (((size_t)at.n * g.h + at.i) * g.w + at.j) * g.c + at.c0, sum);
    dependency_trigger();
}

// Average of each image's pixels. One thread a vector of channels.
template <typename T, int V>
__device__ __forceinline__ void avgPool(const T *x, T *y, int images, int pixels, int c) {
    constexpr int U = 8;
    dependency_wait();
    const int vectors = c / V;
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= images * vectors) return;
    const int n = id / vectors, c0 = (id % vectors) * V;
    const T *p = x + (size_t)n * pixels * c + c0;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    int k = 0;
    for (; k + U <= pixels; k += U) {
        Raw<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) raw[u] = load<T, V>(p + (size_t)(k + u) * c);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float f[V];
            unpack(raw[u], f);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] = __fadd_rn(sum[j], f[j]);
        }
    }
    for (; k < pixels; k++) {
        float f[V];
        read<T, V>(p + (size_t)k * c, f);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = __fadd_rn(sum[j], f[j]);
    }
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = __fdiv_rn(sum[j], (float)pixels);
    write<T, V>(y + (size_t)n * c + c0, sum);
    dependency_trigger();
}

// Its gradient: eight threads share an image and vector.
template <typename T, int V>
__device__ __forceinline__ void avgPoolBwd(const T *dy, T *dx, int images, int pixels, int c) {
    dependency_wait();
    const int vectors = c / V;
    const int per = (pixels + 7) / 8; // eight threads share an image's pixels
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= images * vectors * 8) return;
    const int v = id % vectors, part = id / vectors % 8, n = id / vectors / 8;
    float share[V];
    read<T, V>(dy + (size_t)n * c + v * V, share);
#pragma unroll
    for (int j = 0; j < V; j++) share[j] = __fdiv_rn(share[j], (float)pixels);
    for (int k = part * per; k < min(pixels, (part + 1) * per); k++) write<T, V>(dx + ((size_t)n * pixels + k) * c + v * V, share);
    dependency_trigger();
}

#define POOL(S, T, V)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(POOL_THREADS)                                                                     \
        max_pool_##S(const T *x, T *y, u8 *index, int h, int w, int c, int oh, int ow, int r, int stride, int pad, int txLog) {    \
        maxPool<T, V>(x, y, index, Window{h, w, c, oh, ow, r, stride, pad}, txLog);                                                \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(POOL_THREADS)                                                                     \
        max_pool_bwd_##S(const T *dy, const u8 *index, T *dx, int h, int w, int c, int oh, int ow, int r, int stride, int pad,     \
                         int txLog) {                                                                                             \
        maxPoolBwd<T, V>(dy, index, dx, Window{h, w, c, oh, ow, r, stride, pad}, txLog);                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(POOL_THREADS) avg_pool_##S(const T *x, T *y, int images, int pixels, int c) {     \
        avgPool<T, V>(x, y, images, pixels, c);                                                                                    \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(POOL_THREADS)                                                                     \
        avg_pool_bwd_##S(const T *dy, T *dx, int images, int pixels, int c) {                                                      \
        avgPoolBwd<T, V>(dy, dx, images, pixels, c);                                                                               \
    }

POOL(f32x4, float, 4)
POOL(f32x1, float, 1)
POOL(f16x8, __half, 8)
POOL(f16x1, __half, 1)

// Narrower vectors, hence more threads, for few images.
extern "C" __global__ void __launch_bounds__(POOL_THREADS) avg_pool_f16x4(const __half *x, __half *y, int images, int pixels, int c) {
    avgPool<__half, 4>(x, y, images, pixels, c);
}
