// Convolution and fully connected layers on floats.
#include "conv.cuh"

CONV(f32x4, float, true)
CONV(f32x1, float, false)
SPLIT_SUM(f32, float)
