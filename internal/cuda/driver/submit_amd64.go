//go:build linux

package driver

import (
	"unsafe"

	_ "github.com/ebitengine/purego" // readies the runtime for C without cgo
)

// trbenchSubmit finds the arguments there.
var _ = [1]struct{}{}[unsafe.Offsetof(Launch{}.args)-16]

// submitAt is the address of trbenchSubmit.
var submitAt uintptr

// cgocall runs a C function on the system stack, as a cgo call does: the
// scheduler knows that the thread is away, callbacks may come back, and the
// function may block. Source: runtime.cgocall, which purego uses too.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// submit makes the call l describes. purego.SyscallN takes up to 32 arguments
// and floats through a pool, and copies them three times; all that a launch
// needs lies in l already.
func submit(l *Launch) Result { return Result(cgocall(submitAt, unsafe.Pointer(l))) }
