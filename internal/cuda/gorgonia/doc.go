// Package gorgonia launches the project's own kernels through gorgonia.org/cu,
// the Go ecosystem's known way to launch, as a second eager launcher to compare
// with (--launcher=gorgonia).
//
// It stands above package internal/device/cuda, whose Submitter it is: the same
// kernels, grids, streams and parameters as the driver's binding submits, made
// by the other library. Joins, graphs and memory stay with the binding.
//
// It needs the build tag gorgonia, cgo, cuda.h and a libcuda to link:
//
//	CGO_ENABLED=1 go build -tags gorgonia ./cmd/trbench
//
// A machine with a toolkit but without a driver links with the toolkit's stub:
// CGO_LDFLAGS=-L/usr/local/cuda/lib64/stubs. Such a binary needs libcuda.so.1
// beside the C library, or the loader does not start it. gorgonia.org/cu also
// ends the process at its start where cuInit fails, whatever the command; that
// is prevented here, at the link (init.go), so that a binary with the tag says
// what is missing as one without it does. That, and that the library cannot
// capture, instantiate or launch graphs, is why it is not the ground of this
// project. It also lays out every launch anew, in memory that it
// allocates and frees twice in C, and passes 8 bytes a parameter; a structure
// passes only as the last parameter, cut into words ([words]).
//
// The package keeps one rule: without the tag it imports nothing of
// gorgonia.org/cu.
package gorgonia

// Name is the word after --launcher.
const Name = "gorgonia"
