// Package driver is libcuda from Go, without cgo: thin, one method a driver
// call, under the call's own name without the prefix.
//
// It is what package internal/device/cuda is built on. [Open] finds the library
// (or [New] takes a table of functions, as the fake driver offers), resolves
// versioned symbols newest first, initialises the driver and checks its
// version; what is missing is an [*Unavailable] that says what to install.
//
// Calls on the launch path do not pass through the methods: a [Launch] holds
// a call's arguments, laid out once, and [API.Submit] makes the call without
// allocating.
//
// Threads: the driver's current context belongs to the OS thread, so a
// goroutine that calls anything here locks its thread first, and sets the
// context on it. Methods may be called on any thread that has done so unless
// they say otherwise.
//
// Memory: what the driver reads after a call returns (nothing, in the calls
// bound here) or follows pointers into (kernel parameters, launch attributes,
// JIT options) lives in [Memory], outside the Go heap: it does not move, the
// collector does not see it, and it never holds a Go pointer. Out-parameters
// are Go variables that live across the call only.
//
// The package keeps one rule: it adds no policy. It never retries, never falls
// back from one call to another with different semantics, and returns the
// driver's code as it came.
package driver
