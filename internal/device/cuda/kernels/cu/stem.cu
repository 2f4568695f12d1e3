// The first layer's convolution as one that tensor cores like. Images have three
// channels; a convolution of stride S over them is one of stride 1 over blocks of
// S by S pixels, whose 3*S*S values are its channels, padded with zeros to a
// multiple of eight. Blocks that lie in the padding are stored too, so that the
// convolution pads nothing, and weights that fall outside the filter are zeros.
// See Rearrange in plan_stem.go.
#include "common.cuh"

#define STEM_THREADS 256

// Where one axis lies: block b begins at pixel (b+lo)*S.
struct Axis {
    int size, blocks, lo;
};

// stem_blocks: x [n][h][w][3] to blocks [n][hb][wb][C], C = 8 for S 1 and 16 for
// S 2, a thread a block; and, in the blocks of threads behind those, weights
// [k][r][r][3] to [k][rb][rb][C], a thread an element. S 2 needs even widths.
template <int S>
__device__ __forceinline__ void stemImage(const __half *x, __half *to, u32 n, Axis h, Axis w) {
    constexpr int C = S == 1 ? 8 : 16;
    const u32 i = blockIdx.x * STEM_THREADS + threadIdx.x;
    if (i >= n * h.blocks * w.blocks) return;
    const u32 bx = i % w.blocks, by = i / w.blocks % h.blocks, image = i / w.blocks / h.blocks;
    const int px = ((int)bx + w.lo) * S, py = ((int)by + h.lo) * S;
    u32 word[C / 2];
#pragma unroll
    for (int j = 0; j < C / 2; j++) word[j] = 0;
    const bool inside = px >= 0 && px < w.size;
    const __half *from = x + ((size_t)image * h.size * w.size + (size_t)py * w.size + px) * 3;
    if (S == 1) {
        if (inside && py >= 0 && py < h.size) {
            const unsigned short *p = reinterpret_cast<const unsigned short *>(from);
            word[0] = (u32)p[0] | (u32)p[1] << 16;
            word[1] = p[2];
        }
    } else {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (inside && py + r >= 0 && py + r < h.size) { // six halves of a row, at a multiple of four bytes
                const u32 *p = reinterpret_cast<const u32 *>(from + (size_t)r * w.size * 3);
#pragma unroll
                for (int j = 0; j < 3; j++) word[3 * r + j] = p[j];
            }
        }
    }
    uint4 *q = reinterpret_cast<uint4 *>(to + (size_t)i * C);
#pragma unroll
    for (int j = 0; j < C / 8; j++) q[j] = make_uint4(word[4 * j], word[4 * j + 1], word[4 * j + 2], word[4 * j + 3]);
}

// Element (a, b, c) of a filter in blocks is element (y, x, c%3) of the filter.
template <int S>
__device__ __forceinline__ bool stemTap(int a, int b, int c, int lo, int pad, int r, int &y, int &x) {
    y = (a + lo) * S + c / (3 * S) + pad;
    x = (b + lo) * S + c / 3 % S + pad;
    return c < 3 * S * S && y >= 0 && y < r && x >= 0 && x < r;
}
template <int S>
__device__ __forceinline__ void stemBlocks(const __half *x, __half *image, const __half *w, __half *weights, u32 n, Axis ah, Axis aw,
                                           u32 imageBlocks, int k, int r, int rb, int pad) {
    constexpr int C = S == 1 ? 8 : 16;
    dependency_wait();
    if (blockIdx.x < imageBlocks) {
        stemImage<S>(x, image, n, ah, aw);
    } else {
        const int i = (blockIdx.x - imageBlocks) * STEM_THREADS + threadIdx.x;
        if (i < k * rb * rb * C) {
            const int c = i % C, b = i / C % rb, a = i / C / rb % rb, o = i / C / rb / rb;
            int ty, tx;
            const bool in = stemTap<S>(a, b, c, ah.lo, pad, r, ty, tx);
            weights[i] = in ? w[((o * r + ty) * r + tx) * 3 + c % 3] : __float2half_rn(0.f);
        }
    }
    dependency_trigger();
}
#define STEM_BLOCKS(S)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(STEM_THREADS)                                                                    \
        stem_blocks_s##S(const __half *x, __half *image, const __half *w, __half *weights, int n, int height, int width, int hb,   \
                         int wb, int lo, int imageBlocks, int k, int r, int rb, int pad) {                                        \
        stemBlocks<S>(x, image, w, weights, n, Axis{height, hb, lo}, Axis{width, wb, lo}, imageBlocks, k, r, rb, pad);            \
    }
STEM_BLOCKS(1)
STEM_BLOCKS(2)

// stem_filter: the gradient of a filter in blocks [k][rb][rb][C] to that of the
// filter, [k][r][r][3]. A thread an element.
template <int S>
__device__ __forceinline__ void stemFilter(const __half *from, __half *dw, int k, int r, int rb, int pad, int lo) {
    constexpr int C = S == 1 ? 8 : 16;
    dependency_wait();
    const int i = blockIdx.x * STEM_THREADS + threadIdx.x;
    if (i < k * r * r * 3) {
        const int c = i % 3, x = i / 3 % r - pad - lo * S, y = i / 3 / r % r - pad - lo * S, o = i / 3 / r / r; // x and y from block lo on
        dw[i] = from[((o * rb + y / S) * rb + x / S) * C + (y % S * S + x % S) * 3 + c];
    }
    dependency_trigger();
}
#define STEM_FILTER(S)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(STEM_THREADS)                                                                     \
        stem_filter_s##S(const __half *from, __half *dw, int k, int r, int rb, int pad, int lo) {                                  \
        stemFilter<S>(from, dw, k, r, rb, pad, lo);                                                                                \
    }
STEM_FILTER(1)
STEM_FILTER(2)
