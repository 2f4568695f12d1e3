// Batch norm on channels-last activations, seen as a matrix of rows (pixels)
// by c channels, and the per-channel affine of inference.
//
// Forward is two kernels. bn_stats reads x once and leaves mean and inverse
// deviation; bn_apply reads x (and z) once and writes y. Bytes for F16: 2 + 4 a
// element (6 with z's read). Backward is two kernels. bn_bwd_sums reads x, dy
// (and y for the ReLU mask); bn_bwd_apply reads x and the masked gradient and
// writes dx. So that y is not read twice the first pass leaves the mask: in dz
// where the operator returns it anyway, otherwise as one bit an element in
// scratch. Bytes for F16: 6 + 6.25 an element, or 8 + 6 with dz.
//
// With a mask from forward (workloads.Lowering.NormMask) backward never reads y:
// 4.1 + 6.1 bytes an element, or 6.1 + 6 with dz. With the sum of two gradients
// (FusedJoin) the first pass reads 2 more and leaves the masked sum in dz, where
// an operator of its own would have read 4 and written 2.
//
// Small tensors take one kernel each way instead; see below.
//
// Second passes walk from the end to the front: what the first pass read last
// is still in the second-level cache.
//
// The tree of a sum, fixed by rows and c alone (the grid is planned from
// them): a thread adds rows with a fixed stride in order, FP32; lanes of a warp
// that hold the same channel by butterfly; warps of a block in order; blocks in
// FP64 as totals says. Sums of x and its square are taken of x - x[0], so that a mean far from 0 costs no
// digits.
#pragma once
#include "common.cuh"

#define STATS_THREADS 512
#define APPLY_THREADS 256
// What blockSums and totals need: 16 warps of 32 lanes and 2*V sums, or 16 KB.
#define BUFFER_FLOATS(V) (16 * 32 * 2 * (V) < 4096 ? 4096 : 16 * 32 * 2 * (V))

// Column tells a thread which channels are its own. A block holds tx = 1<<txLog
// vectors of V channels side by side and blockDim/tx rows.
template <int V>
struct Column {
    int tx, ty, rows; // lane among the channels, row in the block, rows of a block
    int c0;           // first channel
    bool inside;
    __device__ Column(int txLog, int c) {
        tx = threadIdx.x & ((1 << txLog) - 1);
        ty = threadIdx.x >> txLog;
        rows = blockDim.x >> txLog;
        c0 = ((blockIdx.x << txLog) + tx) * V;
        inside = c0 < c;
    }
};

// blockSums adds a and b over the rows of a block and stores one partial sum a
// channel: partial[blockIdx.y][2][c]. buffer has 16*32*2*V floats.
template <int V>
__device__ __forceinline__ void blockSums(float (&a)[V], float (&b)[V], int txLog, int c, float *partial, float *buffer) {
#pragma unroll 1
    for (int o = 16; o >= (1 << txLog); o >>= 1) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            a[j] += __shfl_xor_sync(0xffffffffu, a[j], o);
            b[j] += __shfl_xor_sync(0xffffffffu, b[j], o);
        }
    }
    const int lanes = 1 << txLog; // of a warp that hold different channels
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int warps = STATS_THREADS / 32;
    if (lane < lanes) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            buffer[(j * warps + warp) * 32 + lane] = a[j];
            buffer[((V + j) * warps + warp) * 32 + lane] = b[j];
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int t = threadIdx.x; t < 2 * V * lanes; t += STATS_THREADS) {
        const int lx = t & (lanes - 1), j = t >> txLog;
        float sum = 0.f;
#pragma unroll
        for (int w = 0; w < warps; w++) sum += buffer[(j * warps + w) * 32 + lx];
        const int channel = ((blockIdx.x << txLog) + lx) * V + (j % V);
        if (channel < c) partial[((size_t)blockIdx.y * 2 + j / V) * c + channel] = sum;
    }
}

// totals adds the partial sums of all blocks, in FP64: channel first+i of the
// tile ends up in a and b of thread i; the others get nothing of use. tile is a
// power of two, at most 64. buffer has 16 KB.
//
// A thread takes four channels (one if they are not a multiple of four) of every
// 512/(tile/4)-th block, in order; then lanes of a warp by butterfly; then the
// 16 warps in order. One block does this while the chip waits, so it is wide
// loads and many of them: with one channel a thread and tiles of 256 channels it
// took 25 us at the end of a 30 us kernel.
template <int V>
__device__ __forceinline__ void totals(const float *partial, int parts, int tile, int first, int c, double &a, double &b, void *buffer) {
    constexpr int W = V % 4 == 0 ? 4 : 1;
    const int lanes = tile / W; // threads side by side, a power of two up to 32
    const int lane = threadIdx.x & (lanes - 1), run = threadIdx.x / lanes, runs = STATS_THREADS / lanes;
    const int channel = first + lane * W;
    double s[W], t[W];
#pragma unroll
    for (int j = 0; j < W; j++) s[j] = t[j] = 0;
    if (channel < c) {
        const float *p = partial + (size_t)run * 2 * c + channel;
        const size_t step = (size_t)runs * 2 * c;
#pragma unroll 4
        for (int k = run; k < parts; k += runs, p += step) {
            float f[W], g[W];
            if (W == 4) {
                const float4 u = __ldcg(reinterpret_cast<const float4 *>(p)), v = __ldcg(reinterpret_cast<const float4 *>(p + c));
                f[0] = u.x, f[1 % W] = u.y, f[2 % W] = u.z, f[3 % W] = u.w;
                g[0] = v.x, g[1 % W] = v.y, g[2 % W] = v.z, g[3 % W] = v.w;
            } else {
                f[0] = __ldcg(p), g[0] = __ldcg(p + c);
            }
#pragma unroll
            for (int j = 0; j < W; j++) s[j] += (double)f[j], t[j] += (double)g[j];
        }
    }
#pragma unroll 1
    for (int o = 16; o >= lanes; o >>= 1) {
#pragma unroll
        for (int j = 0; j < W; j++) {
            s[j] += __shfl_xor_sync(0xffffffffu, s[j], o);
            t[j] += __shfl_xor_sync(0xffffffffu, t[j], o);
        }
    }
    double2 *sums = reinterpret_cast<double2 *>(buffer); // [warp][tile]
    const int warp = threadIdx.x >> 5;
    if ((threadIdx.x & 31) < lanes) {
#pragma unroll
        for (int j = 0; j < W; j++) sums[warp * tile + lane * W + j] = make_double2(s[j], t[j]);
    }
    __syncthreads();
    a = b = 0;
    if (threadIdx.x < tile) {
#pragma unroll
        for (int w = 0; w < STATS_THREADS / 32; w++) {
            const double2 q = sums[w * tile + threadIdx.x];
            a += q.x;
            b += q.y;
        }
    }
}

// What is subtracted before squaring: the first row, unless it is Inf or NaN,
// which would turn an infinite mean into NaN.
__device__ __forceinline__ float finiteOr0(float v) { return __fsub_rn(v, v) == 0.f ? v : 0.f; }

struct Moments {
    float mean, invstd, variance; // variance as the running one takes it
};

// moments turns the sums of d = x - shift and of d*d over n elements into what
// the operator returns.
__device__ __forceinline__ Moments moments(double sum, double square, double shift, double n, double eps, bool unbiased) {
    const double d = sum / n;
    double variance = square / n - d * d;
    if (variance < 0) variance = 0; // rounding alone; NaN stays
    Moments m;
    m.mean = (float)(shift + d);
    m.invstd = (float)(1.0 / sqrt(variance + eps));
    m.variance = (float)(unbiased ? variance * (n / fmax(n - 1, 1.0)) : variance);
    return m;
}

// addRow adds a row to the sums of x - shift and of its square.
template <int V>
__device__ __forceinline__ void addSquares(float (&s)[V], float (&q)[V], const float (&f)[V], const float (&shift)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) {
        const float d = __fsub_rn(f[j], shift[j]);
        s[j] += d;
        q[j] = __fmaf_rn(d, d, q[j]);
    }
}

// Grid (channel tiles, parts). One counter a channel tile.
template <typename T, int V>
__device__ __forceinline__ void bnStats(const T *x, float *mean, float *invstd, float *statMean, float *statVar, float *partial,
                                        u32 *counters, int rows, int c, int txLog, float eps, int unbiased) {
    constexpr int U = 4; // loads in flight
    __shared__ __align__(16) float buffer[BUFFER_FLOATS(V)];
    dependency_wait();
    const Column<V> at(txLog, c);
    float s[V], q[V], shift[V];
#pragma unroll
    for (int j = 0; j < V; j++) s[j] = q[j] = shift[j] = 0.f;
    if (at.inside) {
        read<T, V>(x + at.c0, shift);
#pragma unroll
        for (int j = 0; j < V; j++) shift[j] = finiteOr0(shift[j]);
        const int step = gridDim.y * at.rows;
        int r = blockIdx.y * at.rows + at.ty;
        const T *p = x + (size_t)r * c + at.c0;
        const size_t stride = (size_t)step * c;
        for (; r + (U - 1) * step < rows; r += U * step, p += U * stride) {
            Raw<T, V> raw[U];
#pragma unroll
            for (int u = 0; u < U; u++) raw[u] = load<T, V>(p + u * stride);
#pragma unroll
            for (int u = 0; u < U; u++) {
                float f[V];
                unpack(raw[u], f);
                addSquares<V>(s, q, f, shift);
            }
        }
#pragma unroll 1
        for (; r < rows; r += step, p += stride) {
            float f[V];
            read<T, V>(p, f);
            addSquares<V>(s, q, f, shift);
        }
    }
    dependency_trigger();
    blockSums<V>(s, q, txLog, c, partial, buffer);
    if (!arrive(&counters[blockIdx.x], gridDim.y)) return;
    const int tile = V << txLog, first = blockIdx.x * tile;
    const int channel = first + threadIdx.x;
    const bool mine = threadIdx.x < tile && channel < c;
    const float x0 = mine ? finiteOr0(scalar(x + channel)) : 0.f;
    double sum, square;
    totals<V>(partial, gridDim.y, tile, first, c, sum, square, buffer);
    if (mine) {
        const Moments m = moments(sum, square, x0, rows, eps, unbiased);
        mean[channel] = m.mean;
        invstd[channel] = m.invstd;
        statMean[channel] = m.mean;
        statVar[channel] = m.variance;
    }
}

// One element of the forward pass, rounded after each operation as the CPU
// device rounds.
__device__ __forceinline__ float normalised(float x, float mean, float factor, float offset) {
    return __fadd_rn(__fmul_rn(__fsub_rn(x, mean), factor), offset);
}

// writeMasked stores a and returns its bits of the mask: what rounds to 0 is not
// above it.
template <typename T, int V>
__device__ __forceinline__ u8 writeMasked(T *p, const float (&a)[V]) {
    Raw<T, V> r;
    float f[V];
    pack(r, a);
    store<T, V>(p, r);
    unpack(r, f);
    u32 bits = 0;
#pragma unroll
    for (int j = 0; j < V; j++) bits |= (u32)(f[j] > 0.f) << j;
    return (u8)bits;
}

// Grid (channel tiles, blocks of rows), last rows first. floor is 0 with a ReLU
// and -Inf without. MASK leaves the mask of y.
template <typename T, int V, bool ADD, bool AFFINE, bool MASK = false>
__device__ __forceinline__ void applyRows(const T *x, const T *z, const float *mean, const float *invstd, const float *gamma,
                                          const float *beta, T *y, int rows, int c, int txLog, float floor, u8 *mask = nullptr) {
    constexpr int U = 4;
    const Column<V> at(txLog, c);
    if (!at.inside) return;
    const int step = gridDim.y * at.rows;
    // The last of this thread's rows, and how many there are.
    const int r0 = blockIdx.y * at.rows + at.ty;
    int n = r0 < rows ? (rows - 1 - r0) / step + 1 : 0;
    if (n == 0) return;
    const size_t stride = (size_t)step * c;
    size_t e = ((size_t)r0 + (size_t)(n - 1) * step) * c + at.c0;
    float m[V], f[V], o[V];
    if (AFFINE) {
        readFloats<V>(gamma + at.c0, f);
        readFloats<V>(beta + at.c0, o);
#pragma unroll
        for (int j = 0; j < V; j++) m[j] = 0.f;
    } else {
        float i[V];
        readFloats<V>(mean + at.c0, m);
        readFloats<V>(invstd + at.c0, i);
        readFloats<V>(gamma + at.c0, f);
        readFloats<V>(beta + at.c0, o);
#pragma unroll
        for (int j = 0; j < V; j++) f[j] = __fmul_rn(f[j], i[j]);
    }
    auto one = [&](const Raw<T, V> &rx, const Raw<T, V> &rz, size_t to) {
        float a[V];
        unpack(rx, a);
#pragma unroll
        for (int j = 0; j < V; j++) {
            a[j] = AFFINE ? __fadd_rn(__fmul_rn(a[j], f[j]), o[j]) : normalised(a[j], m[j], f[j], o[j]);
        }
        if (ADD) {
            float b[V];
            unpack(rz, b);
#pragma unroll
            for (int j = 0; j < V; j++) a[j] = __fadd_rn(a[j], b[j]);
        }
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = a[j] <= floor ? floor : a[j];
        if (MASK) {
            mask[to / V] = writeMasked<T, V>(y + to, a);
        } else {
            write<T, V>(y + to, a);
        }
    };
    for (; n >= U; n -= U, e -= U * stride) {
        Raw<T, V> rx[U], rz[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            rx[u] = load<T, V>(x + e - u * stride);
            if (ADD) rz[u] = load<T, V>(z + e - u * stride);
        }
#pragma unroll
        for (int u = 0; u < U; u++) one(rx[u], rz[u], e - u * stride);
    }
#pragma unroll 1
    for (; n > 0; n--, e -= stride) {
        Raw<T, V> rx = load<T, V>(x + e), rz;
        if (ADD) rz = load<T, V>(z + e);
        one(rx, rz, e);
    }
}

// addGradients adds a row to the sums of g and of g*(x-mean).
template <int V>
__device__ __forceinline__ void addGradients(float (&s)[V], float (&p)[V], const float (&g)[V], const float (&x)[V], const float (&mean)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) {
        s[j] += g[j];
        p[j] = __fmaf_rn(g[j], __fsub_rn(x[j], mean[j]), p[j]);
    }
}

// Where a gradient is let through: everywhere, where y is above 0, or where the
// mask that forward left says so.
enum On { EVERYWHERE, BY_Y, BY_MASK };

// addRounded is g + h as an operator of its own would have stored it.
template <typename T, int V>
__device__ __forceinline__ void addRounded(float (&g)[V], const Raw<T, V> &other) {
    float h[V];
    unpack(other, h);
#pragma unroll
    for (int j = 0; j < V; j++) h[j] = __fadd_rn(g[j], h[j]);
    Raw<T, V> r;
    pack(r, h);
    unpack(r, g);
}

// Grid (channel tiles, parts). ON masks dy; with DZ the masked gradient
// is written (and is what the second pass reads), else, BY_Y, one byte of V bits
// a vector. SUM takes dy + dy2 for dy. coef is [3][c]:
// dx = coef0*g + coef1*(x-mean) + coef2.
template <typename T, int V, On ON, bool DZ, bool SUM = false>
__device__ __forceinline__ void bnBwdSums(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,
                                          float *dgamma, float *dbeta, T *dz, u8 *mask, float *coef, float *partial, u32 *counters,
                                          int rows, int c, int txLog, const u8 *on = nullptr, const T *dy2 = nullptr) {
    constexpr int U = 2;
    __shared__ __align__(16) float buffer[BUFFER_FLOATS(V)];
    dependency_wait();
    const Column<V> at(txLog, c);
    float s[V], p[V], m[V];
#pragma unroll
    for (int j = 0; j < V; j++) s[j] = p[j] = m[j] = 0.f;
    if (at.inside) {
        readFloats<V>(mean + at.c0, m);
        const int step = gridDim.y * at.rows;
        int r = blockIdx.y * at.rows + at.ty;
        size_t e = (size_t)r * c + at.c0;
        const size_t stride = (size_t)step * c;
        auto one = [&](const Raw<T, V> &rx, const Raw<T, V> &rg, const Raw<T, V> &ry, const Raw<T, V> &r2, u32 through, size_t to) {
            float f[V], g[V];
            unpack(rx, f);
            unpack(rg, g);
            if (SUM) addRounded<T, V>(g, r2);
            if (ON == BY_MASK) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (!(through >> j & 1)) g[j] = 0.f;
                }
            }
            if (ON == BY_Y) {
                float h[V];
                unpack(ry, h);
                u32 bits = 0;
#pragma unroll
                for (int j = 0; j < V; j++) {
                    const bool on = h[j] > 0.f;
                    if (!on) g[j] = 0.f;
                    if (!DZ) bits |= (u32)on << j;
                }
                if (!DZ) mask[to / V] = (u8)bits;
            }
            if (DZ) write<T, V>(dz + to, g);
            addGradients<V>(s, p, g, f, m);
        };
        for (; r + (U - 1) * step < rows; r += U * step, e += U * stride) {
            Raw<T, V> rx[U], rg[U], ry[U], r2[U];
            u32 through[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                rx[u] = load<T, V>(x + e + u * stride);
                rg[u] = load<T, V>(dy + e + u * stride);
                if (ON == BY_Y) ry[u] = load<T, V>(y + e + u * stride);
                through[u] = ON == BY_MASK ? on[(e + u * stride) / V] : 0;
                if (SUM) r2[u] = load<T, V>(dy2 + e + u * stride);
            }
#pragma unroll
            for (int u = 0; u < U; u++) one(rx[u], rg[u], ry[u], r2[u], through[u], e + u * stride);
        }
#pragma unroll 1
        for (; r < rows; r += step, e += stride) {
            Raw<T, V> rx = load<T, V>(x + e), rg = load<T, V>(dy + e), ry, r2;
            if (ON == BY_Y) ry = load<T, V>(y + e);
            if (SUM) r2 = load<T, V>(dy2 + e);
            one(rx, rg, ry, r2, ON == BY_MASK ? on[e / V] : 0, e);
        }
    }
    dependency_trigger();
    blockSums<V>(s, p, txLog, c, partial, buffer);
    if (!arrive(&counters[blockIdx.x], gridDim.y)) return;
    const int tile = V << txLog, first = blockIdx.x * tile;
    const int channel = first + threadIdx.x;
    const bool mine = threadIdx.x < tile && channel < c;
    const double i = mine ? invstd[channel] : 0.f, weight = mine ? gamma[channel] : 0.f;
    double sum, product;
    totals<V>(partial, gridDim.y, tile, first, c, sum, product, buffer);
    if (mine) {
        const double f = weight * i, n = rows;
        product *= i;
        dgamma[channel] = (float)product;
        dbeta[channel] = (float)sum;
        coef[channel] = (float)f;
        coef[c + channel] = (float)(-f * i * product / n);
        coef[2 * c + channel] = (float)(-f * sum / n);
    }
}

// Grid (channel tiles, blocks of rows), last rows first.
template <typename T, int V, bool MASK>
__device__ __forceinline__ void bnBwdApply(const T *x, const T *g, const u8 *mask, const float *mean, const float *coef, T *dx, int rows, int c, int txLog) {
    constexpr int U = 2;
    dependency_wait();
    const Column<V> at(txLog, c);
    if (!at.inside) return;
    const int step = gridDim.y * at.rows;
    const int r0 = blockIdx.y * at.rows + at.ty;
    int n = r0 < rows ? (rows - 1 - r0) / step + 1 : 0;
    if (n == 0) return;
    const size_t stride = (size_t)step * c;
    size_t e = ((size_t)r0 + (size_t)(n - 1) * step) * c + at.c0;
    float m[V], k0[V], k1[V], k2[V];
    readFloats<V>(mean + at.c0, m);
    readFloats<V>(coef + at.c0, k0);
    readFloats<V>(coef + c + at.c0, k1);
    readFloats<V>(coef + 2 * c + at.c0, k2);
    auto one = [&](const Raw<T, V> &rx, const Raw<T, V> &rg, u32 bits, size_t to) {
        float a[V], b[V];
        unpack(rx, a);
        unpack(rg, b);
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (MASK && !(bits >> j & 1)) b[j] = 0.f;
            a[j] = __fadd_rn(__fadd_rn(__fmul_rn(k0[j], b[j]), __fmul_rn(k1[j], __fsub_rn(a[j], m[j]))), k2[j]);
        }
        write<T, V>(dx + to, a);
    };
    for (; n >= U; n -= U, e -= U * stride) {
        Raw<T, V> rx[U], rg[U];
        u32 bits[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            rx[u] = load<T, V>(x + e - u * stride);
            rg[u] = load<T, V>(g + e - u * stride);
            bits[u] = MASK ? mask[(e - u * stride) / V] : 0;
        }
#pragma unroll
        for (int u = 0; u < U; u++) one(rx[u], rg[u], bits[u], e - u * stride);
    }
#pragma unroll 1
    for (; n > 0; n--, e -= stride) {
        one(load<T, V>(x + e), load<T, V>(g + e), MASK ? mask[e / V] : 0, e);
    }
    dependency_trigger();
}

// Small tensors: a batch norm in one launch. Each thread keeps its rows (at most
// ONE_ROWS of them) in registers while all blocks of a channel tile meet at a
// barrier, so x is read once: 2 + 2 bytes an element forward for F16, 6 + 2
// backward. The barrier needs all blocks on the chip at once; the planner
// launches no more than the device said it holds. Whatever else runs ends by
// itself and makes room, so the wait ends too.
#define ONE_ROWS 8

// meet waits until all n blocks of a tile are here, with all they wrote visible.
// leave, once a block has met and needs nothing more, puts the two counters back
// to 0 when it is the last; nobody waits for it.
__device__ __forceinline__ void meet(u32 *counters, u32 n) {
    __syncthreads();
    if (n == 1) return;
    if (threadIdx.x == 0) {
        addOrdered(&counters[0], 1u);
        u32 here;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(counters) : "memory");
        } while (here < n);
    }
    __syncthreads();
}
__device__ __forceinline__ void leave(u32 *counters, u32 n) {
    if (n > 1 && threadIdx.x == 0 && atomicAdd(&counters[1], 1u) == n - 1) {
        counters[0] = 0;
        counters[1] = 0;
    }
}

// Rows of one thread: u*rows of a block apart, from the block's part of them on.
template <int V>
struct Held {
    Column<V> at;
    int r0, step, n;  // first row, distance, count
    size_t e, stride; // the same in elements
    __device__ Held(int rows, int c, int txLog, int each) : at(txLog, c) {
        step = at.rows;
        r0 = blockIdx.y * at.rows * each + at.ty;
        n = at.inside && r0 < rows ? min(each, (rows - 1 - r0) / step + 1) : 0;
        e = (size_t)r0 * c + at.c0;
        stride = (size_t)step * c;
    }
};

// Grid (channel tiles, parts); each is the rows a thread keeps at most.
template <typename T, int V, bool ADD, bool MASK = false>
__device__ __forceinline__ void bnOne(const T *x, const T *z, const float *gamma, const float *beta, T *y, float *mean, float *invstd,
                                      float *statMean, float *statVar, float *partial, u32 *counters, int rows, int c, int txLog, int each,
                                      float eps, int unbiased, float floor, u8 *mask = nullptr) {
    __shared__ __align__(16) float buffer[BUFFER_FLOATS(V)];
    __shared__ __align__(16) float coef[3][32 * V];
    dependency_wait();
    const Held<V> h(rows, c, txLog, each);
    Raw<T, V> rx[ONE_ROWS], rz[ONE_ROWS];
    float s[V], q[V], shift[V];
#pragma unroll
    for (int j = 0; j < V; j++) s[j] = q[j] = shift[j] = 0.f;
#pragma unroll
    for (int u = 0; u < ONE_ROWS; u++) {
        if (u < h.n) rx[u] = load<T, V>(x + h.e + u * h.stride);
    }
    if (h.at.inside) {
        read<T, V>(x + h.at.c0, shift);
#pragma unroll
        for (int j = 0; j < V; j++) shift[j] = finiteOr0(shift[j]);
    }
#pragma unroll
    for (int u = 0; u < ONE_ROWS; u++) {
        if (u >= h.n) continue;
        float f[V];
        unpack(rx[u], f);
        addSquares<V>(s, q, f, shift);
    }
    blockSums<V>(s, q, txLog, c, partial, buffer);
    if (ADD) {
#pragma unroll
        for (int u = 0; u < ONE_ROWS; u++) {
            if (u < h.n) rz[u] = load<T, V>(z + h.e + u * h.stride);
        }
    }
    const int tile = V << txLog, first = blockIdx.x * tile;
    const int channel = first + threadIdx.x;
    const bool mine = threadIdx.x < tile && channel < c;
    const float x0 = mine ? finiteOr0(scalar(x + channel)) : 0.f, weight = mine ? gamma[channel] : 0.f, offset = mine ? beta[channel] : 0.f;
    meet(&counters[2 * blockIdx.x], gridDim.y);
    dependency_trigger();
    double sum, square;
    totals<V>(partial, gridDim.y, tile, first, c, sum, square, buffer);
    if (mine) {
        const Moments m = moments(sum, square, x0, rows, eps, unbiased);
        coef[0][threadIdx.x] = m.mean;
        coef[1][threadIdx.x] = __fmul_rn(weight, m.invstd);
        coef[2][threadIdx.x] = offset;
        if (blockIdx.y == 0) {
            mean[channel] = m.mean;
            invstd[channel] = m.invstd;
            statMean[channel] = m.mean;
            statVar[channel] = m.variance;
        }
    }
    __syncthreads();
    float m[V], f[V], o[V];
    readFloats<V>(coef[0] + h.at.tx * V, m);
    readFloats<V>(coef[1] + h.at.tx * V, f);
    readFloats<V>(coef[2] + h.at.tx * V, o);
#pragma unroll
    for (int u = 0; u < ONE_ROWS; u++) {
        if (u >= h.n) continue;
        float a[V];
        unpack(rx[u], a);
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = normalised(a[j], m[j], f[j], o[j]);
        if (ADD) {
            float b[V];
            unpack(rz[u], b);
#pragma unroll
            for (int j = 0; j < V; j++) a[j] = __fadd_rn(a[j], b[j]);
        }
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = a[j] <= floor ? floor : a[j];
        const size_t to = h.e + u * h.stride;
        if (MASK) {
            mask[to / V] = writeMasked<T, V>(y + to, a);
        } else {
            write<T, V>(y + to, a);
        }
    }
    leave(&counters[2 * blockIdx.x], gridDim.y);
}

// With SUM dz may be absent.
template <typename T, int V, On ON, bool DZ, bool SUM = false>
__device__ __forceinline__ void bnBwdOne(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,
                                         T *dx, float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c,
                                         int txLog, int each, const u8 *mask = nullptr, const T *dy2 = nullptr) {
    __shared__ __align__(16) float buffer[BUFFER_FLOATS(V)];
    __shared__ __align__(16) float coef[3][32 * V];
    dependency_wait();
    const Held<V> h(rows, c, txLog, each);
    Raw<T, V> rx[ONE_ROWS], rg[ONE_ROWS];
    float s[V], p[V], m[V];
#pragma unroll
    for (int j = 0; j < V; j++) s[j] = p[j] = m[j] = 0.f;
    if (h.at.inside) readFloats<V>(mean + h.at.c0, m);
#pragma unroll
    for (int half = 0; half < ONE_ROWS; half += ONE_ROWS / 2) {
        Raw<T, V> ry[ONE_ROWS / 2], r2[ONE_ROWS / 2];
        u32 through[ONE_ROWS / 2];
#pragma unroll
        for (int k = 0; k < ONE_ROWS / 2; k++) {
            const int u = half + k;
            if (u >= h.n) continue;
            rx[u] = load<T, V>(x + h.e + u * h.stride);
            rg[u] = load<T, V>(dy + h.e + u * h.stride);
            if (ON == BY_Y) ry[k] = load<T, V>(y + h.e + u * h.stride);
            if (ON == BY_MASK) through[k] = mask[(h.e + u * h.stride) / V];
            if (SUM) r2[k] = load<T, V>(dy2 + h.e + u * h.stride);
        }
#pragma unroll
        for (int k = 0; k < ONE_ROWS / 2; k++) {
            const int u = half + k;
            if (u >= h.n) continue;
            float f[V], g[V];
            unpack(rx[u], f);
            unpack(rg[u], g);
            if (SUM) addRounded<T, V>(g, r2[k]);
            if (ON == BY_MASK) {
#pragma unroll
                for (int j = 0; j < V; j++) g[j] = through[k] >> j & 1 ? g[j] : 0.f;
                pack(rg[u], g);
            }
            if (ON == BY_Y) {
                float on[V];
                unpack(ry[k], on);
#pragma unroll
                for (int j = 0; j < V; j++) g[j] = on[j] > 0.f ? g[j] : 0.f;
                pack(rg[u], g);
            }
            if (DZ && (!SUM || dz != nullptr)) store<T, V>(dz + h.e + u * h.stride, rg[u]);
            addGradients<V>(s, p, g, f, m);
        }
    }
    blockSums<V>(s, p, txLog, c, partial, buffer);
    const int tile = V << txLog, first = blockIdx.x * tile;
    const int channel = first + threadIdx.x;
    const bool mine = threadIdx.x < tile && channel < c;
    const double i = mine ? invstd[channel] : 0.f, weight = mine ? gamma[channel] : 0.f;
    meet(&counters[2 * blockIdx.x], gridDim.y);
    dependency_trigger();
    double sum, product;
    totals<V>(partial, gridDim.y, tile, first, c, sum, product, buffer);
    if (mine) {
        const double f = weight * i, n = rows;
        product *= i;
        coef[0][threadIdx.x] = (float)f;
        coef[1][threadIdx.x] = (float)(-f * i * product / n);
        coef[2][threadIdx.x] = (float)(-f * sum / n);
        if (blockIdx.y == 0) {
            dgamma[channel] = (float)product;
            dbeta[channel] = (float)sum;
        }
    }
    __syncthreads();
    float k0[V], k1[V], k2[V];
    readFloats<V>(coef[0] + h.at.tx * V, k0);
    readFloats<V>(coef[1] + h.at.tx * V, k1);
    readFloats<V>(coef[2] + h.at.tx * V, k2);
#pragma unroll
    for (int u = 0; u < ONE_ROWS; u++) {
        if (u >= h.n) continue;
        float a[V], b[V];
        unpack(rx[u], a);
        unpack(rg[u], b);
#pragma unroll
        for (int j = 0; j < V; j++) {
            a[j] = __fadd_rn(__fadd_rn(__fmul_rn(k0[j], b[j]), __fmul_rn(k1[j], __fsub_rn(a[j], m[j]))), k2[j]);
        }
        write<T, V>(dx + h.e + u * h.stride, a);
    }
    leave(&counters[2 * blockIdx.x], gridDim.y);
}

#define NORM_ONE(S, T, V)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_one_##S(const T *x, const float *gamma, const float *beta, T *y, float *mean, float *invstd, float *statMean,           \
                   float *statVar, float *partial, u32 *counters, int rows, int c, int txLog, int each, float eps, int unbiased,   \
                   float floor) {                                                                                                 \
        bnOne<T, V, false>(x, nullptr, gamma, beta, y, mean, invstd, statMean, statVar, partial, counters, rows, c, txLog, each,   \
                           eps, unbiased, floor);                                                                                 \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_one_add_##S(const T *x, const T *z, const float *gamma, const float *beta, T *y, float *mean, float *invstd,            \
                       float *statMean, float *statVar, float *partial, u32 *counters, int rows, int c, int txLog, int each,       \
                       float eps, int unbiased, float floor) {                                                                    \
        bnOne<T, V, true>(x, z, gamma, beta, y, mean, invstd, statMean, statVar, partial, counters, rows, c, txLog, each, eps,     \
                          unbiased, floor);                                                                                       \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_##S(const T *x, const T *dy, const float *gamma, const float *mean, const float *invstd, T *dx, float *dgamma,  \
                       float *dbeta, float *partial, u32 *counters, int rows, int c, int txLog, int each) {                       \
        bnBwdOne<T, V, EVERYWHERE, false>(x, dy, nullptr, gamma, mean, invstd, dx, dgamma, dbeta, nullptr, partial, counters, rows, c,\
                                     txLog, each);                                                                                \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_relu_##S(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,       \
                            T *dx, float *dgamma, float *dbeta, float *partial, u32 *counters, int rows, int c, int txLog,         \
                            int each) {                                                                                           \
        bnBwdOne<T, V, BY_Y, false>(x, dy, y, gamma, mean, invstd, dx, dgamma, dbeta, nullptr, partial, counters, rows, c, txLog,  \
                                    each);                                                                                        \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_add_##S(const T *x, const T *dy, const float *gamma, const float *mean, const float *invstd, T *dx,             \
                           float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c, int txLog,          \
                           int each) {                                                                                            \
        bnBwdOne<T, V, EVERYWHERE, true>(x, dy, nullptr, gamma, mean, invstd, dx, dgamma, dbeta, dz, partial, counters, rows, c,   \
                                    txLog, each);                                                                                 \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_relu_add_##S(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,   \
                                T *dx, float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c,         \
                                int txLog, int each) {                                                                            \
        bnBwdOne<T, V, BY_Y, true>(x, dy, y, gamma, mean, invstd, dx, dgamma, dbeta, dz, partial, counters, rows, c, txLog, each); \
    }

#define NORM(S, T, V)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_stats_##S(const T *x, float *mean, float *invstd, float *statMean, float *statVar, float *partial, u32 *counters,       \
                     int rows, int c, int txLog, float eps, int unbiased) {                                                       \
        bnStats<T, V>(x, mean, invstd, statMean, statVar, partial, counters, rows, c, txLog, eps, unbiased);                         \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4)                                                                 \
        bn_apply_##S(const T *x, const float *mean, const float *invstd, const float *gamma, const float *beta, T *y, int rows,    \
                     int c, int txLog, float floor) {                                                                             \
        dependency_wait();                                                                                                         \
        applyRows<T, V, false, false>(x, nullptr, mean, invstd, gamma, beta, y, rows, c, txLog, floor);                            \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3)                                                                 \
        bn_apply_add_##S(const T *x, const T *z, const float *mean, const float *invstd, const float *gamma, const float *beta,    \
                         T *y, int rows, int c, int txLog, float floor) {                                                         \
        dependency_wait();                                                                                                         \
        applyRows<T, V, true, false>(x, z, mean, invstd, gamma, beta, y, rows, c, txLog, floor);                                   \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4)                                                                 \
        affine_##S(const T *x, const float *scale, const float *bias, T *y, int rows, int c, int txLog, float floor) {             \
        dependency_wait();                                                                                                         \
        applyRows<T, V, false, true>(x, nullptr, nullptr, nullptr, scale, bias, y, rows, c, txLog, floor);                         \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3)                                                                 \
        affine_add_##S(const T *x, const T *z, const float *scale, const float *bias, T *y, int rows, int c, int txLog,            \
                       float floor) {                                                                                             \
        dependency_wait();                                                                                                         \
        applyRows<T, V, true, true>(x, z, nullptr, nullptr, scale, bias, y, rows, c, txLog, floor);                                \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_##S(const T *x, const T *dy, const float *gamma, const float *mean, const float *invstd, float *dgamma,        \
                        float *dbeta, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {                    \
        bnBwdSums<T, V, EVERYWHERE, false>(x, dy, nullptr, gamma, mean, invstd, dgamma, dbeta, nullptr, nullptr, coef, partial,    \
                                      counters, rows, c, txLog);                                                                  \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_relu_##S(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,      \
                             float *dgamma, float *dbeta, u8 *mask, float *coef, float *partial, u32 *counters, int rows, int c,   \
                             int txLog) {                                                                                         \
        bnBwdSums<T, V, BY_Y, false>(x, dy, y, gamma, mean, invstd, dgamma, dbeta, nullptr, mask, coef, partial, counters, rows,   \
                                     c, txLog);                                                                                   \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_add_##S(const T *x, const T *dy, const float *gamma, const float *mean, const float *invstd, float *dgamma,    \
                            float *dbeta, T *dz, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {         \
        bnBwdSums<T, V, EVERYWHERE, true>(x, dy, nullptr, gamma, mean, invstd, dgamma, dbeta, dz, nullptr, coef, partial, counters,\
                                     rows, c, txLog);                                                                             \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_relu_add_##S(const T *x, const T *dy, const T *y, const float *gamma, const float *mean, const float *invstd,  \
                                 float *dgamma, float *dbeta, T *dz, float *coef, float *partial, u32 *counters, int rows, int c,  \
                                 int txLog) {                                                                                     \
        bnBwdSums<T, V, BY_Y, true>(x, dy, y, gamma, mean, invstd, dgamma, dbeta, dz, nullptr, coef, partial, counters, rows, c,   \
                                    txLog);                                                                                       \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3)                                                                 \
        bn_bwd_apply_##S(const T *x, const T *g, const float *mean, const float *coef, T *dx, int rows, int c, int txLog) {        \
        bnBwdApply<T, V, false>(x, g, nullptr, mean, coef, dx, rows, c, txLog);                                                    \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3)                                                                 \
        bn_bwd_apply_mask_##S(const T *x, const T *g, const u8 *mask, const float *mean, const float *coef, T *dx, int rows,       \
                              int c, int txLog) {                                                                                 \
        bnBwdApply<T, V, true>(x, g, mask, mean, coef, dx, rows, c, txLog);                                                        \
    }

// With a mask that forward leaves, and with the sum of two gradients.
#define NORM_LEAN(S, T, V)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4)                                                                 \
        bn_apply_mask_##S(const T *x, const float *mean, const float *invstd, const float *gamma, const float *beta,               \
            T *y, u8 *mask, int rows, int c, int txLog, float floor) {                                                             \
        dependency_wait();                                                                                                         \
        applyRows<T, V, false, false, true>(x, nullptr, mean, invstd, gamma, beta, y, rows, c, txLog, floor, mask);                \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3)                                                                 \
        bn_apply_add_mask_##S(const T *x, const T *z, const float *mean, const float *invstd, const float *gamma, const float *beta,\
            T *y, u8 *mask, int rows, int c, int txLog, float floor) {                                                             \
        dependency_wait();                                                                                                         \
        applyRows<T, V, true, false, true>(x, z, mean, invstd, gamma, beta, y, rows, c, txLog, floor, mask);                       \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_mask_##S(const T *x, const T *dy, const u8 *mask, const float *gamma, const float *mean, const float *invstd,  \
            float *dgamma, float *dbeta, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {                 \
        bnBwdSums<T, V, BY_MASK, false, false>(x, dy, nullptr, gamma, mean, invstd, dgamma, dbeta, nullptr, nullptr, coef, partial, counters,\
            rows, c, txLog, mask, nullptr);                                                                                        \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_mask_add_##S(const T *x, const T *dy, const u8 *mask, const float *gamma, const float *mean, const float *invstd,\
            float *dgamma, float *dbeta, T *dz, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {          \
        bnBwdSums<T, V, BY_MASK, true, false>(x, dy, nullptr, gamma, mean, invstd, dgamma, dbeta, dz, nullptr, coef, partial, counters,\
            rows, c, txLog, mask, nullptr);                                                                                        \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_mask_sum_add_##S(const T *x, const T *dy, const u8 *mask, const T *dy2, const float *gamma, const float *mean, const float *invstd,\
            float *dgamma, float *dbeta, T *dz, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {          \
        bnBwdSums<T, V, BY_MASK, true, true>(x, dy, nullptr, gamma, mean, invstd, dgamma, dbeta, dz, nullptr, coef, partial, counters,\
            rows, c, txLog, mask, dy2);                                                                                            \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2)                                                                 \
        bn_bwd_sums_relu_sum_add_##S(const T *x, const T *dy, const T *y, const T *dy2, const float *gamma, const float *mean, const float *invstd,\
            float *dgamma, float *dbeta, T *dz, float *coef, float *partial, u32 *counters, int rows, int c, int txLog) {          \
        bnBwdSums<T, V, BY_Y, true, true>(x, dy, y, gamma, mean, invstd, dgamma, dbeta, dz, nullptr, coef, partial, counters,      \
            rows, c, txLog, nullptr, dy2);                                                                                         \
    }

#define NORM_LEAN_ONE(S, T, V)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_one_mask_##S(const T *x, const float *gamma, const float *beta, T *y, float *mean, float *invstd, float *statMean,      \
            float *statVar, u8 *mask, float *partial, u32 *counters, int rows, int c, int txLog, int each, float eps, int unbiased,\
            float floor) {                                                                                                         \
        bnOne<T, V, false, true>(x, nullptr, gamma, beta, y, mean, invstd, statMean, statVar, partial, counters, rows, c, txLog, each,\
            eps, unbiased, floor, mask);                                                                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_one_add_mask_##S(const T *x, const T *z, const float *gamma, const float *beta, T *y, float *mean, float *invstd, float *statMean,\
            float *statVar, u8 *mask, float *partial, u32 *counters, int rows, int c, int txLog, int each, float eps, int unbiased,\
            float floor) {                                                                                                         \
        bnOne<T, V, true, true>(x, z, gamma, beta, y, mean, invstd, statMean, statVar, partial, counters, rows, c, txLog, each,    \
            eps, unbiased, floor, mask);                                                                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_mask_##S(const T *x, const T *dy, const u8 *mask, const float *gamma, const float *mean, const float *invstd,   \
            T *dx, float *dgamma, float *dbeta, float *partial, u32 *counters, int rows, int c, int txLog, int each) {             \
        bnBwdOne<T, V, BY_MASK, false, false>(x, dy, nullptr, gamma, mean, invstd, dx, dgamma, dbeta, nullptr, partial, counters, rows, c,\
            txLog, each, mask, nullptr);                                                                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_mask_add_##S(const T *x, const T *dy, const u8 *mask, const float *gamma, const float *mean, const float *invstd,\
            T *dx, float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c, int txLog, int each) {      \
        bnBwdOne<T, V, BY_MASK, true, false>(x, dy, nullptr, gamma, mean, invstd, dx, dgamma, dbeta, dz, partial, counters, rows, c,\
            txLog, each, mask, nullptr);                                                                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_mask_sum_add_##S(const T *x, const T *dy, const u8 *mask, const T *dy2, const float *gamma, const float *mean, const float *invstd,\
            T *dx, float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c, int txLog, int each) {      \
        bnBwdOne<T, V, BY_MASK, true, true>(x, dy, nullptr, gamma, mean, invstd, dx, dgamma, dbeta, dz, partial, counters, rows, c,\
            txLog, each, mask, dy2);                                                                                               \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(STATS_THREADS, 1)                                                                 \
        bn_bwd_one_relu_sum_add_##S(const T *x, const T *dy, const T *y, const T *dy2, const float *gamma, const float *mean, const float *invstd,\
            T *dx, float *dgamma, float *dbeta, T *dz, float *partial, u32 *counters, int rows, int c, int txLog, int each) {      \
        bnBwdOne<T, V, BY_Y, true, true>(x, dy, y, gamma, mean, invstd, dx, dgamma, dbeta, dz, partial, counters, rows, c,         \
            txLog, each, nullptr, dy2);                                                                                            \
    }
