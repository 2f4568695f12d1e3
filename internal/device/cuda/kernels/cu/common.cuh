// Loads, stores and small helpers that every kernel file uses.
//
// Arithmetic is FP32. Halves are widened exactly on load and rounded to
// nearest, ties to even, on store. Memory moves in units of 16 bytes wherever
// the planner could prove alignment (V = 4 floats or 8 halves) and element by
// element (V = 1) elsewhere.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uint8_t u8;

// Programmatic dependent launch (sm_90). wait() stands before the first access
// to global memory of every kernel: without the launch attribute it does
// nothing, with it it waits until the kernels before have ended and their
// writes are visible. trigger() lets the next kernel of the stream take its
// place on the chip; it is called when a block has issued its last loads, so
// that a successor never competes with a kernel that still fills the chip.
// Correctness never depends on where trigger() stands.
__device__ __forceinline__ void dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void dependency_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Raw<T, V> is V elements as they lie in memory.
template <typename T, int V> struct Raw;
template <> struct Raw<float, 4> { uint4 v; };
template <> struct Raw<float, 1> { float v; };
template <> struct Raw<__half, 8> { uint4 v; };
template <> struct Raw<__half, 4> { uint2 v; };
template <> struct Raw<__half, 1> { __half v; };

template <typename T, int V>
__device__ __forceinline__ Raw<T, V> load(const T *p) {
    return *reinterpret_cast<const Raw<T, V> *>(p);
}
template <typename T, int V>
__device__ __forceinline__ void store(T *p, Raw<T, V> r) {
    *reinterpret_cast<Raw<T, V> *>(p) = r;
}

__device__ __forceinline__ void unpack(const Raw<float, 4> &r, float (&f)[4]) {
    f[0] = __uint_as_float(r.v.x);
    f[1] = __uint_as_float(r.v.y);
    f[2] = __uint_as_float(r.v.z);
    f[3] = __uint_as_float(r.v.w);
}
__device__ __forceinline__ void unpack(const Raw<float, 1> &r, float (&f)[1]) { f[0] = r.v; }
__device__ __forceinline__ void unpack(const Raw<__half, 1> &r, float (&f)[1]) { f[0] = __half2float(r.v); }
__device__ __forceinline__ void widen(u32 w, float &a, float &b) {
    __half2 h = *reinterpret_cast<__half2 *>(&w);
    a = __low2float(h);
    b = __high2float(h);
}
__device__ __forceinline__ u32 narrow(float a, float b) {
    __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<u32 *>(&h);
}
__device__ __forceinline__ void unpack(const Raw<__half, 8> &r, float (&f)[8]) {
    widen(r.v.x, f[0], f[1]);
    widen(r.v.y, f[2], f[3]);
    widen(r.v.z, f[4], f[5]);
    widen(r.v.w, f[6], f[7]);
}
__device__ __forceinline__ void unpack(const Raw<__half, 4> &r, float (&f)[4]) {
    widen(r.v.x, f[0], f[1]);
    widen(r.v.y, f[2], f[3]);
}

__device__ __forceinline__ void pack(Raw<float, 4> &r, const float (&f)[4]) {
    r.v = make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
}
__device__ __forceinline__ void pack(Raw<float, 1> &r, const float (&f)[1]) { r.v = f[0]; }
__device__ __forceinline__ void pack(Raw<__half, 1> &r, const float (&f)[1]) { r.v = __float2half_rn(f[0]); }
__device__ __forceinline__ void pack(Raw<__half, 8> &r, const float (&f)[8]) {
    r.v = make_uint4(narrow(f[0], f[1]), narrow(f[2], f[3]), narrow(f[4], f[5]), narrow(f[6], f[7]));
}
__device__ __forceinline__ void pack(Raw<__half, 4> &r, const float (&f)[4]) {
    r.v = make_uint2(narrow(f[0], f[1]), narrow(f[2], f[3]));
}

template <typename T, int V>
__device__ __forceinline__ void read(const T *p, float (&f)[V]) {
    unpack(load<T, V>(p), f);
}
template <typename T, int V>
__device__ __forceinline__ void write(T *p, const float (&f)[V]) {
    Raw<T, V> r;
    pack(r, f);
    store<T, V>(p, r);
}
__device__ __forceinline__ float scalar(const float *p) { return *p; }
__device__ __forceinline__ float scalar(const __half *p) { return __half2float(*p); }

// V floats at p, 16 bytes at a time where V allows.
template <int V>
__device__ __forceinline__ void readFloats(const float *p, float (&f)[V]) {
    if (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 q = *reinterpret_cast<const float4 *>(p + i);
            f[i] = q.x, f[i + 1] = q.y, f[i + 2] = q.z, f[i + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) f[i] = p[i];
    }
}

// max(0, v); NaN stays NaN, -0 becomes 0.
__device__ __forceinline__ float rectified(float v) { return v <= 0.f ? 0.f : v; }

// addOrdered adds to a counter. What this block wrote before its last barrier is
// visible to whoever sees the new count, and the other way round.
__device__ __forceinline__ u32 addOrdered(u32 *counter, u32 v) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(counter), "r"(v) : "memory");
    return old;
}

// arrive counts a block as done and says, to all of its threads, whether it was
// the last of n. Everything the blocks wrote before is then visible to the last
// one (which reads it past the first-level cache), and it puts the counter back
// to 0 for the next kernel of the stream. Integers only: which block is last
// does not touch any result. One thread orders for its block; a fence by every
// thread cost more.
__device__ __forceinline__ bool arrive(u32 *counter, u32 n) {
    __shared__ bool last;
    __syncthreads();
    if (n == 1) return true;
    if (threadIdx.x == 0) {
        last = addOrdered(counter, 1u) == n - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

// Words of the scalars tensor (workloads/scalars.go).
enum {
    SCALAR_LR,
    SCALAR_SCALE,
    SCALAR_NON_FINITE,
    SCALAR_SKIP,
    SCALAR_STEP,
    SCALAR_GROWTH,
    SCALAR_SKIPPED,
    SCALAR_CONSECUTIVE,
    SCALAR_STOP,
    SCALAR_FAULT,
};
