// Batch norm on halves with masks and sums; see norm.cuh.
#include "norm.cuh"

NORM_LEAN(f16x8, __half, 8)
NORM_LEAN_ONE(f16x8, __half, 8)
