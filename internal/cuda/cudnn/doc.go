// Package cudnn is the backend API of cuDNN 9 from Go, without cgo: thin, one
// method a call, under the call's own name.
//
// Package internal/device/cuda/dnn builds plans with it; [Execution] is what
// remains of a plan on the launch path: a call whose arguments are laid out
// once and that allocates nothing. [Open] finds the library and its parts, [New]
// takes a table of functions instead, as tests do.
//
// cuDNN works in the context that is current on the calling OS thread; with the
// device's primary context it shares memory and streams with everything else
// here. A goroutine that calls this package has locked its thread and set the
// context. A handle, and descriptors made for it, are used by one thread at a
// time.
//
// The package keeps one rule: it adds no policy. It returns the library's
// status as it came and neither retries nor chooses.
package cudnn
