package cuda

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
)

// Submitter submits launches of the project's own kernels by another way than
// package driver: a second launcher to compare with. Its methods are called on a
// rank's thread, and so are the functions they return, with the rank's context
// current. Those functions may allocate; whatever they wait for is part of what
// is compared.
type Submitter interface {
	// Name is the word after --launcher.
	Name() string
	// Kernel lays out a kernel launch.
	Kernel(spec driver.KernelSpec) (submit func() error, err error)
	// CopyIn lays out a copy of n bytes from pinned memory.
	CopyIn(dst driver.DevicePtr, src uintptr, n int, s driver.Stream) (submit func() error, err error)
}

// bindingName is the launcher that every group has.
const bindingName = "purego"

var _ device.Launchers = (*Group)(nil)

// Launchers lists who can submit this group's operators, the driver's binding
// first.
func (g *Group) Launchers() []string {
	names := []string{bindingName}
	if s := g.dev.opts.Submitter; s != nil {
		names = append(names, s.Name())
	}
	return names
}

// UseLauncher chooses who submits operators from now on. Joins, replays and
// whatever is submitted into a capture stay with the driver's binding, since
// they are what the comparison is made in. It must not be called on a rank's
// thread.
func (g *Group) UseLauncher(name string) error {
	others := false
	switch s := g.dev.opts.Submitter; {
	case name == bindingName:
	case s != nil && name == s.Name():
		others = true
	default:
		return fmt.Errorf("cuda: there is no launcher %q; there are %v", name, g.Launchers())
	}
	return g.Each(func(r device.Rank) error {
		r.(*rank).others = others
		return nil
	})
}

// layKernel lays out a kernel for both launchers.
func (r *rank) layKernel(spec driver.KernelSpec) (l *driver.Launch, other func() error, err error) {
	if l, err = r.api.PrepareKernel(r.mem, spec); err != nil {
		return nil, nil, err
	}
	if s := r.g.dev.opts.Submitter; s != nil {
		if other, err = s.Kernel(spec); err != nil {
			return nil, nil, fmt.Errorf("launcher %s: %w", s.Name(), err)
		}
	}
	return l, other, nil
}

// layCopyIn lays out a copy likewise.
func (r *rank) layCopyIn(dst driver.DevicePtr, src uintptr, n int, stream driver.Stream) (l *driver.Launch, other func() error, err error) {
	if l, err = r.api.PrepareMemcpyHtoD(dst, src, n, stream); err != nil {
		return nil, nil, err
	}
	if s := r.g.dev.opts.Submitter; s != nil {
		if other, err = s.CopyIn(dst, src, n, stream); err != nil {
			return nil, nil, fmt.Errorf("launcher %s: %w", s.Name(), err)
		}
	}
	return l, other, nil
}
