// Batch norm for any number of channels, element by element.
#include "norm.cuh"

NORM(f32x1, float, 1)
NORM(f16x1, __half, 1)
