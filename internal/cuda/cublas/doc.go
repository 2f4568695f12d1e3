// Package cublas is cuBLASLt's matrix product from Go, without cgo, for dense
// row-major matrices.
//
// Package internal/device/cuda/dnn uses it for fully connected layers. A
// [Problem] is what is to be multiplied, [Library.Algorithms] what cuBLASLt
// proposes for it, and an [Execution] one product on fixed pointers, made once
// and submitted without allocation. An [Algorithm] can be stored and used
// again under the same library version.
//
// Threads and contexts are as for cuDNN: the calling OS thread has the device's
// primary context current. A handle has no stream; each submission names one.
//
// The package keeps one rule: the bits of a product depend on operands,
// problem and algorithm alone. Algorithms that reduce in place or in the
// output's type are not offered, nor, for FP32, those on tensor cores.
package cublas
