// Convolution and fully connected layers on halves.
#include "conv.cuh"

CONV(f16x4, __half, true)
CONV(f16x1, __half, false)
SPLIT_SUM(f16, __half)
