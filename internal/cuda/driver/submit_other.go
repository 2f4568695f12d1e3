//go:build !(linux && amd64)

package driver

import "github.com/ebitengine/purego"

// submit makes the call l describes.
func submit(l *Launch) Result {
	r, _, _ := purego.SyscallN(l.addr, l.args[:l.n]...)
	return Result(r)
}
