// Batch norm on floats with masks and sums; see norm.cuh.
#include "norm.cuh"

NORM_LEAN(f32x4, float, 4)
NORM_LEAN_ONE(f32x4, float, 4)
