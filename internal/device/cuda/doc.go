// Package cuda is an NVIDIA GPU as a [device.Device].
//
// It stands behind the seam of package device: a rank is a GPU with one
// arena, pinned halves, five non-blocking streams and one locked OS thread
// whose current context is the GPU's primary one. Operators run the project's
// own kernels (package kernels) or, where chosen, plans of cuDNN and cuBLAS
// (package dnn); both are laid out when they are prepared and then submitted
// without allocation. A capture is the driver's own, and after it every node
// of the graph is read back and audited.
//
// The package keeps one rule: it never falls back. What cannot be captured,
// audited or chosen as asked is an error that names the call and the node.
package cuda
