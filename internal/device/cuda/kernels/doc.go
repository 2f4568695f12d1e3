// Package kernels is the project's own GPU kernels: CUDA C++ sources, the PTX
// made from them and embedded here, and the planning that turns a bound
// operator into kernel launches.
//
// It stands below package cuda, which loads the modules, resolves the regions
// of a [Launch] to addresses once, when an operator is prepared, and submits
// the packed parameter blocks. This package talks to no driver, so that every
// plan is tested where there is no GPU.
//
// It keeps one rule: results are the same bits every time. Sums run over trees
// that depend on shapes and on nothing else; only integers are updated
// atomically. Arithmetic is IEEE FP32 (no TF32, no approximate division or
// root, denormals kept); all files but convolution are compiled
// without contraction, so that elementwise results and updates have the bits of
// the CPU device. Convolution uses fused multiply-add, which IEEE 754 defines
// too.
//
// Two texts are embedded for each source file: one for compute capability 8.0
// that any driver from 520 on accepts, and one for 9.0 in which every kernel
// waits for its predecessor before it touches memory, so that it may be
// launched with the attribute of programmatic dependent launch. Without the
// attribute the two do the same.
//
// The driver compiles PTX when a module is loaded, which takes seconds the first
// time; modules are therefore cut so that a run loads only what it uses.
//
// check.py holds every kernel against PyTorch in double precision on a GPU and
// times them; check-h200.txt is what it printed on an H200.
//
// Launches an operator takes:
//
//	convolution, fully connected        1, or 2 when the summed dimension is split;
//	                                    1 or 2 around a library's, see Rearrange
//	fully connected filter gradient     2 or 3 (bias gradient apart)
//	batch norm, forward and backward    2 each; small ones 1 with Options.OneKernelNorm
//	LARS                                2 a group of 96 tensors
//	zero                                1 for up to 3 ranges
//	copy in                             1 copy from pinned memory
//	all others                          1
package kernels
