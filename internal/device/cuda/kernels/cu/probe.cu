// Kernels that no training step holds: what launch overhead is measured with.
#include "common.cuh"

// empty does nothing: a launch and no work.
extern "C" __global__ void empty() { dependency_wait(); }

// gate holds the stream until the host stores a value other than 0 in *flag
// (pinned memory), at most timeoutNs by the chip's clock, so that a host that
// dies cannot leave the stream blocked. *state becomes 1 if the flag opened it
// and 2 after a timeout. One thread.
extern "C" __global__ void gate(const volatile u32 *flag, volatile u32 *state, u64 timeoutNs) {
    dependency_wait();
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    u32 how = 1;
    while (*flag == 0) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > timeoutNs) {
            how = 2;
            break;
        }
        __nanosleep(100);
    }
    *state = how;
    __threadfence_system();
}

// burn keeps every block busy for a number of clock cycles of its
// multiprocessor, without touching memory.
extern "C" __global__ void burn(u64 cycles) {
    dependency_wait();
    const long long begin = clock64();
    while ((u64)(clock64() - begin) < cycles) {
    }
}
