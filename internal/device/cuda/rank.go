package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

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
	// libraries notes calls of libraries while something is recorded; else nil.
	libraries *libraryTrace

	builder *dnn.Builder
	built   map[string]*dnn.Plan
	states  [workloads.NumStreams]*dnn.Stream
	beside  [workloads.NumStreams]*dnn.Stream

	timer     *timer
	ops       []*op
	events    []*event
	graphs    map[*graph]bool
	execs     map[*exec]bool
	cap       *capture                // the capture in progress
	capturing atomic.Pointer[capture] // the same, for other threads
	executed  device.Executed
	// told is the code of a kernel's failure that a call has returned. The
	// context repeats it for ever; nobody needs to hear it twice from Close.
	told driver.Result

	// last is what each stream was given last. Any thread may read it.
	last [workloads.NumStreams]atomic.Pointer[workloads.Bound]
}

func newRank(g *Group, id int) *rank {
	r := &rank{id: id, g: g, api: g.dev.api, kernel: map[string]driver.Function{}, built: map[string]*dnn.Plan{},
		graphs: map[*graph]bool{}, execs: map[*exec]bool{}}
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
	bytes := int(max(w.ArenaBytes, 1))
	if r.arena, err = r.api.MemAlloc(bytes); err != nil {
		return fmt.Errorf("the arena of %d bytes: %w", bytes, err)
	}
	if !r.g.dev.opts.Unfilled {
		// All ones is a NaN in FP32 and in FP16.
		if err := r.api.MemsetD8(r.arena, 0xff, bytes); err != nil {
			return err
		}
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
	if r.g.tuning.OneKernelNorm {
		if err := r.holdsOneKernel(); err != nil {
			return err
		}
	}
	if r.g.tuning.Dependent && major >= 9 {
		r.attrs = []driver.LaunchAttr{driver.ProgrammaticSerialization()}
	}
	return nil
}

// holdsOneKernel refuses a GPU that cannot hold all blocks of a kernel whose
// blocks wait for each other: it would wait for ever.
func (r *rank) holdsOneKernel() error {
	sm, err := r.api.DeviceGetAttribute(r.dev, driver.DeviceMultiprocessorCount)
	if err != nil {
		return err
	}
	names, threads := kernels.OneKernelNames()
	for _, name := range names {
		n, err := r.api.OccupancyMaxActiveBlocks(r.kernel[name], threads, 0)
		if err != nil {
			return fmt.Errorf("occupancy of kernel %s: %w", name, err)
		}
		if n*sm < kernels.OneKernelBlocks {
			return fmt.Errorf("kernel %s needs %d blocks at once; %d multiprocessors hold %d each", name, kernels.OneKernelBlocks, sm, n)
		}
	}
	return nil
}

// release gives everything back, last made first, whatever fails on the way.
func (r *rank) release() error {
	var errs []error
	if r.ctx == 0 {
		return nil
	}
	try := func(err error) {
		if err != nil && (r.told == driver.Success || code(err) != r.told) {
			errs = append(errs, err)
		}
	}
	try(r.dropCapture())
	if r.timer != nil {
		r.timer.open()
	}
	told := r.told != driver.Success
	if err := r.SyncAll(); err != nil && !told {
		errs = append(errs, err)
	}
	try(r.closeGraphs())
	for _, o := range r.ops {
		try(o.close())
	}
	for _, p := range r.built {
		try(p.Close())
	}
	for _, s := range slices.Concat(r.states[:], r.beside[:]) {
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
		try(e.close())
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

// LastOp names the operator that each stream was given last. It may be called
// on any thread.
func (r *rank) LastOp() map[workloads.Stream]string {
	out := map[workloads.Stream]string{}
	for s := range r.last {
		if b := r.last[s].Load(); b != nil {
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
	return r.cap.fail(r.cap.refuse(call, device.ErrCaptureUnsupported))
}

// known refuses a stream that the rank does not have.
func (r *rank) known(s workloads.Stream) error {
	if s >= workloads.NumStreams {
		return fmt.Errorf("rank %d: stream number %d is not a device stream", r.id, s)
	}
	return nil
}

func (r *rank) access(call string, x workloads.Region, n int) error {
	if r.cap != nil {
		return r.refuse(fmt.Sprintf("%s(%v)", call, x))
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
	return r.named("Read", x, r.api.MemcpyDtoH(dst, driver.DevicePtr(r.address(x))))
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
		return r.named("Write", x, err)
	}
	// A copy from pageable memory may return before its last bytes are in
	// device memory, and non-blocking streams do not wait for it.
	return r.named("Write", x, r.api.StreamSynchronize(legacy))
}

// legacy is the stream of the synchronous calls. Waiting for it leaves the
// rank's own streams, which do not synchronise with it, alone.
const legacy driver.Stream = 0

// named says what was being done to a region.
func (r *rank) named(call string, x workloads.Region, err error) error {
	if err == nil {
		return nil
	}
	r.note(err)
	return fmt.Errorf("rank %d: %s(%v): %w", r.id, call, x, rule(err))
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
		return r.named("Fill", x, err)
	}
	return r.named("Fill", x, r.api.StreamSynchronize(legacy))
}

// Sync blocks until the stream is idle.
func (r *rank) Sync(s workloads.Stream) error {
	if err := r.known(s); err != nil {
		return err
	}
	if r.cap != nil {
		return r.refuse("Sync(" + s.String() + ")")
	}
	return r.sync(s)
}

func (r *rank) sync(s workloads.Stream) error {
	l := r.syncs[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.failed(synchronise, s, r.last[s].Load(), r.api.LaunchError(l, code))
	}
	return nil
}

// SyncAll is Sync on every stream. A failure of a kernel makes the whole
// context fail, so the first one found is it.
func (r *rank) SyncAll() error {
	if r.cap != nil {
		return r.refuse("SyncAll")
	}
	for s := range workloads.NumStreams {
		if r.syncs[s] == nil {
			continue // the rank was not made to the end
		}
		if err := r.sync(s); err != nil {
			return err
		}
	}
	return nil
}

const synchronise = "synchronise"

// failed names the place of a failure. The GPU reports a kernel's failure at a
// later call, on any stream of the context, and does not say whose it was: then
// the node is the last one submitted to the stream, the failing one or a later
// one, and the other streams' last nodes stand beside it.
func (r *rank) failed(call string, s workloads.Stream, b *workloads.Bound, err error) error {
	node := "nothing submitted"
	if b != nil {
		node = nodeName(b)
	}
	late := sticky(code(err))
	if b != nil && (late || call == synchronise) {
		node = "up to " + node
	}
	if late {
		for o := range workloads.NumStreams {
			if last := r.last[o].Load(); o != s && last != nil {
				node += fmt.Sprintf(", or on %s up to %s", o, nodeName(last))
			}
		}
	}
	r.note(err)
	return &device.OpError{Rank: r.id, Stream: s, Call: call, Node: node, Err: rule(err)}
}

// note remembers that a kernel's failure was told.
func (r *rank) note(err error) {
	if c := code(err); sticky(c) {
		r.told = c
	}
}

// code is the driver's code of an error, [driver.Success] for another error.
func code(err error) driver.Result {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return driver.Success
}

// sticky says whether a code is a failure of work that ran, which a context
// returns from every call from then on.
func sticky(c driver.Result) bool {
	switch c {
	case driver.ECCUncorrectable, driver.NVLinkUncorrectable, driver.IllegalAddress, driver.LaunchTimeout, driver.Assert,
		driver.HardwareStackError, driver.IllegalInstruction, driver.MisalignedAddress, driver.InvalidAddressSpace,
		driver.InvalidPC, driver.LaunchFailed:
		return true
	}
	return false
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
