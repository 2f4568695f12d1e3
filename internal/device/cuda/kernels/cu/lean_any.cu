// Batch norm with masks and sums for any number of channels; see norm.cuh.
#include "norm.cuh"

NORM_LEAN(f32x1, float, 1)
NORM_LEAN(f16x1, __half, 1)
