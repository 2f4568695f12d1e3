//go:build gorgonia

package gorgonia

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device/cuda"
)

// New returns the launcher. It makes no context: each launch finds the one that
// the rank's thread has.
func New() (cuda.Submitter, error) { return launcher{}, nil }

type launcher struct{}

// Name is [Name].
func (launcher) Name() string { return Name }

// The library's handles are structures of one driver handle, which is private:
// these fail to compile if that changes.
var (
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Function{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Stream{})]byte{}
)

func function(h driver.Function) cu.Function { return *(*cu.Function)(unsafe.Pointer(&h)) }

func stream(h driver.Stream) cu.Stream { return *(*cu.Stream)(unsafe.Pointer(&h)) }

// Kernel lays out a launch as far as the library lets its user: the slice of
// addresses of the argument values. The rest is done by each call.
func (launcher) Kernel(spec driver.KernelSpec) (func() error, error) {
	if len(spec.Attrs) > 0 {
		return nil, fmt.Errorf("kernel %s: gorgonia.org/cu has no launch attributes", spec.Name)
	}
	values, err := words(spec.Args)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", spec.Name, err)
	}
	params := make([]unsafe.Pointer, len(values))
	for i := range values {
		params[i] = unsafe.Pointer(&values[i])
	}
	fn, s, g, b := function(spec.Func), stream(spec.Stream), spec.Grid, spec.Block
	gx, gy, gz, bx, by, bz, shared := int(g[0]), int(g[1]), int(g[2]), int(b[0]), int(b[1]), int(b[2]), int(spec.Shared)
	name := spec.Name
	return func() error {
		if err := fn.Launch(gx, gy, gz, bx, by, bz, shared, s, params); err != nil {
			return fmt.Errorf("gorgonia.org/cu: launch kernel %s: %w", name, err)
		}
		return nil
	}, nil
}

// CopyIn lays out a copy from pinned memory, which lies outside the Go heap.
func (launcher) CopyIn(dst driver.DevicePtr, src uintptr, n int, to driver.Stream) (func() error, error) {
	from, s := *(*unsafe.Pointer)(unsafe.Pointer(&src)), stream(to)
	return func() error {
		if err := cu.MemcpyHtoDAsync(cu.DevicePtr(dst), from, int64(n), s); err != nil {
			return fmt.Errorf("gorgonia.org/cu: copy %d bytes in: %w", n, err)
		}
		return nil
	}, nil
}
