// Batch norm on floats, four at a time.
#include "norm.cuh"

NORM(f32x4, float, 4)
NORM_ONE(f32x4, float, 4)
