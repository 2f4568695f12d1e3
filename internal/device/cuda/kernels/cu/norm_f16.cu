// Batch norm on halves, eight at a time. A module of its own: a run loads, and
// the driver compiles, only the types it uses.
#include "norm.cuh"

NORM(f16x8, __half, 8)
NORM_ONE(f16x8, __half, 8)
