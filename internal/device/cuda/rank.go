package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/dnn"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// rank implements [device.Rank]: one GPU. Its fields belong to its thread,
// unless they say otherwise.
type rank struct {
	id     int
	g      *Group
	api    *driver.API
	thread *device.Thread

	dev      driver.Device
	ctx      driver.Context
	modules  []driver.Module
	kernel   map[string]driver.Function
	streams  [workloads.NumStreams]driver.Stream
	syncs    [workloads.NumStreams]*driver.Launch
	arena    driver.DevicePtr
	counters driver.DevicePtr
	pinned   driver.Host
	mem      *driver.Memory // kernel parameters
	attrs    []driver.LaunchAttr
	others   bool // operators are submitted by Options.Submitter

	builder *dnn.Builder
	built   map[string]*dnn.Plan
	states  [workloads.NumStreams]*dnn.Stream

	timer    *timer
	ops      []*op
	events   []*event
	cap      *capture
	executed device.Executed
	last     [workloads.NumStreams]*workloads.Bound
}

func newRank(g *Group, id int) *rank {
	r := &rank{id: id, g: g, api: g.dev.api, kernel: map[string]driver.Function{}, built: map[string]*dnn.Plan{}}
	r.thread = device.NewThread(func() error {
		if r.ctx == 0 {
			return nil
		}
		return r.api.CtxSetCurrent(r.ctx) // another OS thread has taken over
	})
	return r
}

// allocate makes everything a rank has. What it made before a failure is
// given back by release.
func (r *rank) allocate() (err error) {
	if r.dev, err = r.api.DeviceGet(r.id); err != nil {
		return err
	}
	if r.ctx, err = r.api.DevicePrimaryCtxRetain(r.dev); err != nil {
		return err
	}
	if err := r.api.CtxSetCurrent(r.ctx); err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return err
	}
	for s := range r.streams {
		if r.streams[s], err = r.api.StreamCreate(driver.StreamNonBlocking); err != nil {
			return err
		}
		if r.syncs[s], err = r.api.PrepareStreamSynchronize(r.streams[s]); err != nil {
			return err
		}
	}
	r.mem = driver.NewMemory()
	w := r.g.w
	if r.arena, err = r.api.MemAlloc(int(w.ArenaBytes)); err != nil {
		return fmt.Errorf("the arena of %d bytes: %w", w.ArenaBytes, err)
	}
	// All ones is a NaN in FP32 and in FP16.
	if err := r.api.MemsetD8(r.arena, 0xff, int(w.ArenaBytes)); err != nil {
		return err
	}
	n := int(workloads.NumStreams) * kernels.CounterWords * 4
	if r.counters, err = r.api.MemAlloc(n); err != nil {
		return err
	}
	if err := r.api.MemsetD8(r.counters, 0, n); err != nil {
		return err
	}
	if r.pinned, err = r.api.MemHostAlloc(int(max(w.PinnedBytes, 1)), driver.HostDefault); err != nil {
		return fmt.Errorf("pinned memory of %d bytes: %w", w.PinnedBytes, err)
	}
	clear(r.Pinned())
	if d := r.g.dev; len(d.plans) > 0 {
		if r.builder, err = dnn.New(d.opts.CuDNN, d.opts.CuBLAS); err != nil {
			return err
		}
	}
	return r.api.CtxSynchronize()
}

// load compiles the modules and loads every kernel, so that no launch in a
// capture is the first.
func (r *rank) load() error {
	major, err := r.api.DeviceGetAttribute(r.dev, driver.DeviceComputeCapabilityMajor)
	if err != nil {
		return err
	}
	minor, err := r.api.DeviceGetAttribute(r.dev, driver.DeviceComputeCapabilityMinor)
	if err != nil {
		return err
	}
	modules, err := kernels.Modules(major, minor)
	if err != nil {
		return err
	}
	handles := map[string]driver.Module{}
	for _, m := range modules {
		h, err := r.api.ModuleLoadData(append(slices.Clone(m.PTX), 0))
		if err != nil {
			return fmt.Errorf("load module %s: %w", m.Name, err)
		}
		r.modules = append(r.modules, h)
		handles[m.Name] = h
	}
	for _, k := range kernels.Kernels() {
		f, err := r.api.ModuleGetFunction(handles[k.Module], k.Name)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		// Drivers without the call load a kernel in the warm-up before capture.
		if err := r.api.FuncLoad(f); err != nil && !errors.Is(err, driver.NotSupported) {
			return fmt.Errorf("load kernel %s: %w", k.Name, err)
		}
		r.kernel[k.Name] = f
	}
	if r.g.dev.opts.Dependent && major >= 9 {
		r.attrs = []driver.LaunchAttr{driver.ProgrammaticSerialization()}
	}
	return nil
}

// release gives everything back, last made first.
func (r *rank) release() error {
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	if r.ctx == 0 {
		return nil
	}
	r.dropCapture()
	try(r.SyncAll())
	for _, o := range r.ops {
		try(o.close())
	}
	for _, p := range r.built {
		try(p.Close())
	}
	for _, s := range r.states {
		if s != nil {
			try(s.Close())
		}
	}
	if r.builder != nil {
		try(r.builder.Close())
	}
	if r.timer != nil {
		try(r.timer.close(r.api))
	}
	for _, e := range r.events {
		try(r.api.EventDestroy(e.h))
	}
	if r.pinned.Addr() != 0 {
		try(r.api.MemFreeHost(r.pinned))
	}
	for _, p := range []driver.DevicePtr{r.arena, r.counters} {
		if p != 0 {
			try(r.api.MemFree(p))
		}
	}
	for _, s := range r.streams {
		if s != 0 {
			try(r.api.StreamDestroy(s))
		}
	}
	for _, m := range r.modules {
		try(r.api.ModuleUnload(m))
	}
	if r.mem != nil {
		try(r.mem.Close())
	}
	try(r.api.CtxSetCurrent(0))
	try(r.api.DevicePrimaryCtxRelease(r.dev))
	r.ctx = 0
	r.g.live.ops.Add(-int64(len(r.ops)))
	r.g.live.events.Add(-int64(len(r.events)))
	return errors.Join(errs...)
}

func (r *rank) ID() int { return r.id }

// Do runs f on the rank's thread and waits; on that thread it calls f.
func (r *rank) Do(f func() error) error { return r.thread.Do(f) }

// Pinned is the rank's pinned memory.
func (r *rank) Pinned() []byte { return r.pinned.Bytes(int(r.g.w.PinnedBytes)) }

// Executed counts operators by (variant, sub-graph). A GPU does not count them
// by itself: these are the operators submitted, alone or in graphs, whose
// graphs were read back from the driver node by node; the caller has
// synchronised without a failure.
func (r *rank) Executed() device.Executed { return r.executed }

// ResetExecuted sets the counts to zero.
func (r *rank) ResetExecuted() { r.executed = device.Executed{} }

// LastOp names the operator that each stream was given last.
func (r *rank) LastOp() map[workloads.Stream]string {
	out := map[workloads.Stream]string{}
	for s, b := range r.last {
		if b != nil {
			out[workloads.Stream(s)] = nodeName(b)
		}
	}
	return out
}

func nodeName(b *workloads.Bound) string { return b.SubGraph.String() + "/" + b.Name }

// check refuses a region that is not inside its space.
func (r *rank) check(x workloads.Region) error {
	size := r.g.w.ArenaBytes
	if x.Space == workloads.Pinned {
		size = r.g.w.PinnedBytes
	}
	if x.Space > workloads.Pinned || x.Off < 0 || x.Bytes < 0 || x.Bytes > size || x.Off > size-x.Bytes {
		return fmt.Errorf("%v lies outside the %d bytes of %s memory", x, size, x.Space)
	}
	return nil
}

// address is where a region lies.
func (r *rank) address(x workloads.Region) uint64 {
	if x.Space == workloads.Pinned {
		return uint64(r.pinned.Addr()) + uint64(x.Off)
	}
	return uint64(r.arena) + uint64(x.Off)
}

// refuse is the error of a call that a capture does not allow, and spoils the
// capture.
func (r *rank) refuse(call string) error {
	if r.cap == nil {
		return nil
	}
	return r.cap.fail(fmt.Errorf("rank %d: %s: %w", r.id, call, device.ErrCaptureUnsupported))
}

func (r *rank) access(call string, x workloads.Region, n int) error {
	if err := r.refuse(fmt.Sprintf("%s(%v)", call, x)); err != nil {
		return err
	}
	if err := r.check(x); err != nil {
		return fmt.Errorf("rank %d: %s: %w", r.id, call, err)
	}
	if int64(n) != x.Bytes {
		return fmt.Errorf("rank %d: %s: %v and %d bytes of host memory differ in length", r.id, call, x, n)
	}
	return nil
}

// Read copies a region to dst.
func (r *rank) Read(x workloads.Region, dst []byte) error {
	if err := r.access("Read", x, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	if x.Space == workloads.Pinned {
		copy(dst, r.Pinned()[x.Off:])
		return nil
	}
	return r.api.MemcpyDtoH(dst, driver.DevicePtr(r.address(x)))
}

// Write copies src to a region.
func (r *rank) Write(x workloads.Region, src []byte) error {
	if err := r.access("Write", x, len(src)); err != nil || len(src) == 0 {
		return err
	}
	if x.Space == workloads.Pinned {
		copy(r.Pinned()[x.Off:], src)
		return nil
	}
	if err := r.api.MemcpyHtoD(driver.DevicePtr(r.address(x)), src); err != nil {
		return err
	}
	// A copy from pageable memory may return before its last bytes are in
	// device memory, and non-blocking streams do not wait for it.
	return r.api.CtxSynchronize()
}

// Fill writes one byte all over a region.
func (r *rank) Fill(x workloads.Region, b byte) error {
	if err := r.access("Fill", x, int(x.Bytes)); err != nil || x.Bytes == 0 {
		return err
	}
	if x.Space == workloads.Pinned {
		p := r.Pinned()[x.Off:x.End()]
		for i := range p {
			p[i] = b
		}
		return nil
	}
	if err := r.api.MemsetD8(driver.DevicePtr(r.address(x)), b, int(x.Bytes)); err != nil {
		return err
	}
	return r.api.CtxSynchronize()
}

// Sync blocks until the stream is idle.
func (r *rank) Sync(s workloads.Stream) error {
	if err := r.refuse("Sync(" + s.String() + ")"); err != nil {
		return err
	}
	if s >= workloads.NumStreams {
		return fmt.Errorf("rank %d: stream number %d is not a device stream", r.id, s)
	}
	l := r.syncs[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.failed("synchronise", s, r.last[s], r.api.LaunchError(l, code))
	}
	return nil
}

// SyncAll is Sync on every stream. A failure of a kernel makes the whole
// context fail, so the first one found is it.
func (r *rank) SyncAll() error {
	for s := range workloads.NumStreams {
		if r.syncs[s] == nil {
			continue
		}
		if err := r.Sync(s); err != nil {
			return err
		}
	}
	return nil
}

// failed names the place of a failure. The GPU reports a kernel's failure at a
// later call, so for a synchronisation the node is the last one submitted to
// the stream: the failing one or a later one.
func (r *rank) failed(call string, s workloads.Stream, b *workloads.Bound, err error) error {
	node := "nothing submitted"
	if b != nil {
		node = nodeName(b)
		if call == "synchronise" {
			node = "up to " + node
		}
	}
	return &device.OpError{Rank: r.id, Stream: s, Call: call, Node: node, Err: rule(err)}
}

// rule adds the sentinel of a capture rule to the driver's error.
func rule(err error) error {
	for code, sentinel := range map[driver.Result]error{
		driver.StreamCaptureUnsupported: device.ErrCaptureUnsupported, driver.StreamCaptureInvalidated: device.ErrCaptureInvalidated,
		driver.StreamCaptureUnmatched: device.ErrCaptureUnmatched, driver.StreamCaptureUnjoined: device.ErrCaptureUnjoined,
		driver.StreamCaptureIsolation: device.ErrCaptureIsolation, driver.StreamCaptureImplicit: device.ErrCaptureUnsupported,
		driver.CapturedEvent: device.ErrCaptureEvent, driver.StreamCaptureWrongThread: device.ErrWrongThread,
		driver.StreamCaptureMerge: device.ErrCaptureActive,
	} {
		if errors.Is(err, code) {
			return fmt.Errorf("%w: %w", sentinel, err)
		}
	}
	return err
}
