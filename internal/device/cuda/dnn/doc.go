// Package dnn gives convolutions and fully connected layers to cuDNN and
// cuBLASLt. For a bound node it lists what the libraries offer
// ([Builder.Candidates]), rebuilds an offer exactly ([Builder.Build]), and binds
// it to addresses ([Plan.Bind]); package cuda prepares operators with it and
// submits each [Exec] eagerly or into a capture.
//
// A [Choice] is data: made once by measurement ([Builder.Pick]) or by
// heuristics ([Builder.First]) in one process, written as JSON, and rebuilt in
// others under the same library version, so that all of a run's processes
// execute the same kernels.
//
// The package keeps one rule: what it offers gives the same bits every time and
// accumulates in FP32. Engines with the notes nondeterministic or
// reduced_precision_reduction and Winograd and FFT engines are left out, for
// FP32 also those that use tensor cores or convert their inputs (TF32).
// What remains unsupported is [ErrUnsupported]; the caller has kernels of its own.
package dnn
