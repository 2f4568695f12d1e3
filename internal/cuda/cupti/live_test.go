package cupti_test

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/timeline"
)

// The tests of this file run on the fake driver and its profiler, and with
// TRBENCH_TEST_GPU=1 on the machine's GPU and CUPTI (TRBENCH_CUPTI, if it is
// set, says where).

// spinPTX holds a kernel that runs for ns nanoseconds of the GPU's own timer and
// writes when it began and ended, and one that does nothing.
const spinPTX = `
.version 7.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 stamps, .param .u64 ns)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<8>;
	mov.u64 %rd1, %globaltimer;
	ld.param.u64 %rd2, [stamps];
	ld.param.u64 %rd3, [ns];
	cvta.to.global.u64 %rd4, %rd2;
	st.global.u64 [%rd4], %rd1;
LOOP:
	mov.u64 %rd5, %globaltimer;
	sub.u64 %rd6, %rd5, %rd1;
	setp.lt.u64 %p1, %rd6, %rd3;
	@%p1 bra LOOP;
	st.global.u64 [%rd4+8], %rd5;
	ret;
}
.visible .entry nothing()
{
	ret;
}
`

// register makes the fake driver's kernels. A spin of ns nanoseconds sleeps for
// it.
func register(m *fake.Machine) {
	m.Register("spin", fake.Params(fake.Ptr, fake.U64), func(a fake.Args, _, _ [3]uint32) {
		st, begin := fake.View[uint64](a, a.Ptr(0), 2), time.Now()
		st[0] = uint64(begin.UnixNano())
		time.Sleep(time.Duration(a.U64(1)))
		st[1] = st[0] + uint64(time.Since(begin))
	})
	m.Register("nothing", nil, func(fake.Args, [3]uint32, [3]uint32) {})
}

// gpu is a driver with a context on the test's locked thread, and CUPTI.
type gpu struct {
	*driver.API
	t             *testing.T
	m             *fake.Machine  // nil on a GPU
	p             *fake.Profiler // nil on a GPU
	cupti         *cupti.API
	ctx           driver.Context
	spin, nothing driver.Function
	stream        driver.Stream
	mem           *driver.Memory
	words         driver.DevicePtr
}

const wordBytes = 1 << 20

func onGPU() bool { return os.Getenv("TRBENCH_TEST_GPU") != "" }

// real skips what only a GPU can answer.
func real(t *testing.T) {
	t.Helper()
	if !onGPU() {
		t.Skip("needs a GPU: TRBENCH_TEST_GPU=1")
	}
}

// newGPU makes the rig. The profiler may be changed before, where it is a fake
// one.
func newGPU(t *testing.T, change ...func(*fake.Profiler)) *gpu {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	g := &gpu{t: t, mem: driver.NewMemory()}
	var err error
	if onGPU() {
		if len(change) > 0 {
			t.Skip("asks the fake driver alone")
		}
		if g.API, err = driver.Open(driver.Options{}); err != nil {
			t.Fatal(err)
		}
		if g.cupti, err = cupti.Open(cupti.Options{Path: os.Getenv("TRBENCH_CUPTI"), Driver: int(g.Version())}); err != nil {
			t.Fatal(err)
		}
	} else {
		g.m = fake.H200(1)
		register(g.m)
		r := must(g.m.Start())(t)
		t.Cleanup(func() { g.ok(g.m.Stop()) })
		g.p = g.m.CUPTI()
		for _, f := range change {
			f(g.p)
		}
		lib := must(g.p.Start(g.m))(t)
		t.Cleanup(g.p.Stop)
		if g.API, err = driver.New(r); err != nil {
			t.Fatal(err)
		}
		if g.cupti, err = cupti.New(lib, int(g.Version())); err != nil {
			t.Fatal(err)
		}
	}
	d := must(g.DeviceGet(0))(t)
	g.ctx = must(g.DevicePrimaryCtxRetain(d))(t)
	g.ok(g.CtxSetCurrent(g.ctx))
	mod := must(g.ModuleLoadData(append([]byte(spinPTX), 0)))(t)
	g.spin = must(g.ModuleGetFunction(mod, "spin"))(t)
	g.nothing = must(g.ModuleGetFunction(mod, "nothing"))(t)
	g.stream = must(g.StreamCreate(driver.StreamNonBlocking))(t)
	g.words = must(g.MemAlloc(wordBytes))(t)
	g.ok(g.MemsetD8(g.words, 0, wordBytes))
	g.launch(g.one(g.spin, 0, 1000), g.one(g.nothing, 0, 0))
	g.ok(g.CtxSynchronize())
	t.Cleanup(func() {
		g.ok(g.CtxSynchronize())
		g.ok(g.MemFree(g.words))
		g.ok(g.StreamDestroy(g.stream))
		g.ok(g.ModuleUnload(mod))
		g.ok(g.CtxSetCurrent(0))
		g.ok(g.DevicePrimaryCtxRelease(d))
		g.ok(g.mem.Close())
	})
	return g
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (g *gpu) ok(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Error(err)
	}
}

// one is a launch of one thread; a spin writes its stamps to pair i of the
// words.
func (g *gpu) one(f driver.Function, i int, ns uint64) *driver.Launch {
	g.t.Helper()
	spec := driver.KernelSpec{Func: f, Name: "test", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Stream: g.stream}
	if f == g.spin {
		spec.Args = (&driver.Args{}).Ptr(g.words + driver.DevicePtr(16*i)).U64(ns)
	}
	return must(g.PrepareKernel(g.mem, spec))(g.t)
}

func (g *gpu) launch(ls ...*driver.Launch) {
	g.t.Helper()
	for _, l := range ls {
		if r := g.Submit(l); r != driver.Success {
			g.t.Fatal(g.LaunchError(l, r))
		}
	}
}

func (g *gpu) start(c cupti.Config) *cupti.Tracer {
	g.t.Helper()
	tr := must(g.cupti.Start(c))(g.t)
	g.t.Cleanup(func() { g.ok(tr.Stop()) })
	return tr
}

// drain waits for the GPU and reads everything.
func (g *gpu) drain(tr *cupti.Tracer) *cupti.Records {
	g.t.Helper()
	g.ok(g.CtxSynchronize())
	r := &cupti.Records{}
	g.ok(tr.Drain(r))
	if rep := r.Report; rep.LostBytes != 0 || rep.LostRecords != 0 || rep.Dropped != 0 || rep.Refused != 0 || rep.Untimed != 0 || rep.Unreturned != 0 || len(rep.Unread) > 0 {
		g.t.Errorf("report: %+v", rep)
	}
	if len(r.Report.Sizes) > 0 {
		g.t.Errorf("the library's records have other sizes than the table of CUDA %d: %v", g.cupti.Layout().CUDA, r.Report.Sizes)
	}
	return r
}

// capture makes a graph of what f submits and instantiates it.
func (g *gpu) capture(f func()) *driver.Launch {
	g.t.Helper()
	g.ok(g.StreamBeginCapture(g.stream, driver.CaptureThreadLocal))
	f()
	graph := must(g.StreamEndCapture(g.stream))(g.t)
	x := must(g.GraphInstantiate(graph, 0))(g.t)
	g.ok(g.GraphDestroy(graph))
	g.t.Cleanup(func() { g.ok(g.GraphExecDestroy(x)) })
	return must(g.PrepareGraphLaunch(x, g.stream))(g.t)
}

// stamps reads n pairs.
func (g *gpu) stamps(n int) [][2]uint64 {
	b := make([]byte, 16*n)
	g.ok(g.MemcpyDtoH(b, g.words))
	out := make([][2]uint64, n)
	for i := range out {
		out[i] = [2]uint64{le64(b[16*i:]), le64(b[16*i+8:])}
	}
	return out
}

func le64(b []byte) uint64 {
	var v uint64
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// row prints a line that the script takes out of the log.
func (g *gpu) row(format string, args ...any) { g.t.Logf("TABLE "+format, args...) }

// TestLiveFields checks every field of live records whose value is known.
func TestLiveFields(t *testing.T) {
	g := newGPU(t)
	g.row("cupti %s version %d layout of CUDA %d, driver %s", g.cupti.Path(), g.cupti.Version(), g.cupti.Layout().CUDA, g.Version())
	tr := g.start(cupti.Config{})
	from := must(g.cupti.TimestampNs())(t)
	l := must(g.PrepareKernel(g.mem, driver.KernelSpec{Func: g.spin, Name: "spin", Grid: [3]uint32{3, 2, 1}, Block: [3]uint32{32, 2, 4}, Shared: 1024,
		Stream: g.stream, Args: (&driver.Args{}).Ptr(g.words).U64(50_000)}))(t)
	g.launch(l)
	host := must(g.MemHostAlloc(4096, driver.HostDefault))(t)
	defer func() { g.ok(g.MemFreeHost(host)) }()
	g.ok(g.MemcpyHtoDAsync(g.words, host.Addr(), 4000, g.stream))
	g.ok(g.MemcpyDtoHAsync(host.Addr(), g.words, 3000, g.stream))
	g.ok(g.MemsetD32Async(g.words, 0x01020304, 500, g.stream))
	g.ok(g.StreamSynchronize(g.stream))
	r := g.drain(tr)
	to := must(g.cupti.TimestampNs())(t)
	if len(r.Kernels) != 1 || len(r.Copies) != 2 || len(r.Fills) != 1 {
		t.Fatalf("%d kernels, %d copies, %d fills", len(r.Kernels), len(r.Copies), len(r.Fills))
	}
	stream := must(g.cupti.StreamID(uintptr(g.ctx), uintptr(g.stream)))(t)
	call := map[uint32]cupti.Call{}
	for _, c := range r.Calls {
		if c.Runtime {
			t.Errorf("a call of the runtime: %+v", c)
		}
		call[c.Correlation] = c
		if c.StartNs < from || c.EndNs > to || c.StartNs > c.EndNs {
			t.Errorf("%s at %d to %d is not within %d to %d", g.cupti.CallName(c), c.StartNs, c.EndNs, from, to)
		}
		if int(c.Process) != os.Getpid() || int(c.Thread) != gettid() {
			t.Errorf("%s: process %d, thread %d; they are %d, %d", g.cupti.CallName(c), c.Process, c.Thread, os.Getpid(), gettid())
		}
	}
	launched := func(what string, correlation uint32, name string, start, end int64, device, s uint32) {
		c, ok := call[correlation]
		if got := g.cupti.CallName(c); !ok || !strings.HasPrefix(got, name) || start < c.StartNs || end < start || end > to {
			t.Errorf("%s: correlation %d is %s at %d; ran %d to %d, until %d", what, correlation, got, c.StartNs, start, end, to)
		}
		if device != 0 || s != stream {
			t.Errorf("%s: device %d, stream %d, want 0, %d", what, device, s, stream)
		}
	}
	k := r.Kernels[0]
	launched("kernel", k.Correlation, "cuLaunchKernel", k.StartNs, k.EndNs, k.Device, k.Stream)
	if k.Name != "spin" || k.Grid != [3]uint32{3, 2, 1} || k.Block != [3]uint32{32, 2, 4} || k.Dynamic != 1024 || k.Static != 0 || k.Graph != 0 || k.Node != 0 {
		t.Errorf("kernel %+v", k)
	}
	if d := k.EndNs - k.StartNs; d < 50_000 || onGPU() && d > 80_000 {
		t.Errorf("a spin of 50 us took %d ns", d)
	}
	slices.SortFunc(r.Copies, func(a, b cupti.Copy) int { return cmp.Compare(a.StartNs, b.StartNs) })
	for i, want := range []struct {
		kind  uint8
		bytes uint64
		name  string
	}{{1, 4000, "cuMemcpyHtoDAsync"}, {2, 3000, "cuMemcpyDtoHAsync"}} {
		c := r.Copies[i]
		launched("copy", c.Correlation, want.name, c.StartNs, c.EndNs, c.Device, c.Stream)
		if c.Kind != want.kind || c.Bytes != want.bytes || c.Graph != 0 || c.Node != 0 {
			t.Errorf("copy %+v", c)
		}
	}
	f := r.Fills[0]
	launched("fill", f.Correlation, "cuMemsetD32Async", f.StartNs, f.EndNs, f.Device, f.Stream)
	if f.Bytes != 2000 || f.Value != 0x01020304 || f.Graph != 0 || f.Node != 0 {
		t.Errorf("fill %+v", f)
	}
	var syncs []cupti.SyncType
	for _, s := range r.Syncs {
		syncs = append(syncs, s.Type)
		if s.Type == cupti.SyncStream && s.Stream != stream {
			t.Errorf("sync %+v", s)
		}
		if c, ok := call[s.Correlation]; !ok || s.StartNs < c.StartNs || s.EndNs > c.EndNs {
			t.Errorf("sync %+v of %+v", s, c)
		}
	}
	if !slices.Contains(syncs, cupti.SyncStream) || !slices.Contains(syncs, cupti.SyncContext) {
		t.Errorf("waits: %v", syncs)
	}
	seen := map[string]int64{}
	for _, o := range r.Overheads {
		if o.EndNs < o.StartNs || o.StartNs <= 0 {
			t.Errorf("overhead %+v", o)
		}
		seen[cupti.OverheadName(o.Kind)] += o.EndNs - o.StartNs
	}
	g.row("records %d, bytes %d; overhead ns %v; syncs %v", r.Report.Records, r.Report.Bytes, seen, syncs)
}

// TestSpin compares busy and idle time with what the kernels themselves
// read from the GPU's timer.
func TestSpin(t *testing.T) {
	g := newGPU(t)
	const n, long = 40, 1_000_000
	var ls []*driver.Launch
	for i := range n {
		ls = append(ls, g.one(g.spin, i, long))
	}
	tr := g.start(cupti.Config{})
	for i, l := range ls {
		g.launch(l)
		g.ok(g.StreamSynchronize(g.stream))
		time.Sleep(time.Duration(i%5) * 500 * time.Microsecond)
	}
	r := g.drain(tr)
	if len(r.Kernels) != n {
		t.Fatalf("%d kernels, want %d", len(r.Kernels), n)
	}
	slices.SortFunc(r.Kernels, func(a, b cupti.Kernel) int { return cmp.Compare(a.StartNs, b.StartNs) })
	var busy, idle, trueBusy, trueIdle float64
	var worst float64
	st := g.stamps(n)
	for i, k := range r.Kernels {
		if d, least := k.EndNs-k.StartNs, int64(st[i][1]-st[i][0]); d < least && !onGPU() {
			t.Errorf("kernel %d lasts %d ns, its own stamps are %d apart", i, d, least)
		}
		d, want := float64(k.EndNs-k.StartNs), float64(st[i][1]-st[i][0])
		busy, trueBusy = busy+d, trueBusy+want
		if e := d/want - 1; e > worst || -e > worst {
			worst = max(e, -e)
		}
		if i > 0 {
			idle += float64(k.StartNs - r.Kernels[i-1].EndNs)
			trueIdle += float64(st[i][0] - st[i-1][1])
		}
	}
	g.row("spin     %d kernels: busy %.0f by their own stamps, %.0f traced (%+.3f %%); idle %.0f, %.0f (%+.3f %%); worst kernel %.3f %%", n,
		trueBusy, busy, 100*(busy/trueBusy-1), trueIdle, idle, 100*(idle/trueIdle-1), 100*worst)
	if !onGPU() {
		return // a busy machine makes its own gaps
	}
	if e := busy/trueBusy - 1; e < -0.01 || e > 0.01 {
		t.Errorf("busy is off by %.2f %%", 100*e)
	}
	if e := idle/trueIdle - 1; e < -0.01 || e > 0.01 {
		t.Errorf("idle is off by %.2f %%", 100*e)
	}
}

// TestGraph replays graphs that were instantiated before the recording
// began, and while it ran.
func TestGraph(t *testing.T) {
	g := newGPU(t)
	const kernels, replays = 100, 3
	body := func() {
		for range kernels {
			g.launch(g.one(g.nothing, 0, 0))
		}
		g.ok(g.MemsetD32Async(g.words+4096, 7, 100, g.stream))
		g.ok(g.MemcpyDtoDAsync(g.words+8192, g.words+4096, 400, g.stream))
	}
	before := g.capture(body)
	g.launch(before)
	g.ok(g.CtxSynchronize())
	tr := g.start(cupti.Config{})
	during := g.capture(body)
	g.drain(tr)
	for _, c := range []struct {
		name string
		l    *driver.Launch
	}{{"before", before}, {"during", during}} {
		for range replays {
			g.launch(c.l)
		}
		r := g.drain(tr)
		var launches []uint32
		for _, x := range r.Calls {
			if g.cupti.CallName(x) == "cuGraphLaunch" {
				launches = append(launches, x.Correlation)
			}
		}
		per, nodes, graphs := map[uint32]int{}, map[uint64]int{}, map[uint32]int{}
		for _, k := range r.Kernels {
			per[k.Correlation]++
			nodes[k.Node]++
			graphs[k.Graph]++
		}
		g.row("graph instantiated %s: %d launches %v, %d kernels, %d copies, %d fills, by correlation %v, %d node ids, graphs %v", c.name, len(launches), launches,
			len(r.Kernels), len(r.Copies), len(r.Fills), per, len(nodes), graphs)
		// A GPU runs the copy within its memory as a kernel, and records it as one, in a
		// graph that was instantiated before the recording began.
		kernels, copies := kernels, replays
		if onGPU() && c.l == before && len(r.Copies) == 0 {
			kernels, copies = kernels+1, 0
		}
		if len(launches) != replays || len(r.Kernels) != replays*kernels || len(r.Copies) != copies || len(r.Fills) != replays {
			t.Errorf("%s: %d launches, %d kernels, %d copies, %d fills", c.name, len(launches), len(r.Kernels), len(r.Copies), len(r.Fills))
		}
		for _, l := range launches {
			if per[l] != kernels {
				t.Errorf("%s: launch %d has %d kernels, the graph has %d", c.name, l, per[l], kernels)
			}
		}
		if len(nodes) != kernels || nodes[0] != 0 || len(graphs) != 1 || graphs[0] != 0 {
			t.Errorf("%s: %d node ids (%d without), graphs %v", c.name, len(nodes), nodes[0], graphs)
		}
		for _, f := range r.Fills {
			if f.Graph == 0 || f.Node == 0 || f.Bytes != 400 {
				t.Errorf("%s: fill %+v", c.name, f)
			}
		}
		for _, f := range r.Copies {
			if f.Graph == 0 || f.Node == 0 || f.Bytes != 400 || f.Kind != 8 {
				t.Errorf("%s: copy %+v", c.name, f)
			}
		}
	}
}

// TestGraphTrace records replays as a whole.
func TestGraphTrace(t *testing.T) {
	g := newGPU(t)
	l := g.capture(func() {
		for i := range 10 {
			g.launch(g.one(g.spin, i, 20_000))
		}
	})
	tr := g.start(cupti.Config{Kinds: append(cupti.DefaultKinds(), cupti.KindGraphTrace)})
	g.launch(l)
	r := g.drain(tr)
	g.row("graph trace: %d envelopes, %d kernels", len(r.GraphTraces), len(r.Kernels))
	if len(r.GraphTraces) != 1 || len(r.Kernels) != 0 {
		t.Fatalf("%d envelopes, %d kernels", len(r.GraphTraces), len(r.Kernels))
	}
	e := r.GraphTraces[0]
	if d := e.EndNs - e.StartNs; d < 200_000 || onGPU() && d > 300_000 || e.Device != 0 || e.Graph == 0 {
		t.Errorf("%+v lasts %d ns", e, e.EndNs-e.StartNs)
	}
}

// TestGPUDistortion prints what recording does to what is recorded, and
// whether it ends with it.
func TestGPUDistortion(t *testing.T) {
	real(t)
	g := newGPU(t)
	chains := []int{1, 100, 1000}
	var graphs []*driver.Launch
	for _, n := range chains {
		graphs = append(graphs, g.capture(func() {
			l := g.one(g.nothing, 0, 0)
			for range n {
				g.launch(l)
			}
		}))
	}
	kernel := g.one(g.nothing, 0, 0)
	begin, end := must(g.EventCreate(driver.EventDefault))(t), must(g.EventCreate(driver.EventDefault))(t)
	defer func() { g.ok(g.EventDestroy(begin)); g.ok(g.EventDestroy(end)) }()
	// submit is the median host time of a submission to a drained device, span
	// the median time between events around it.
	measure := func(l *driver.Launch) (submit, span float64) {
		const times = 21
		var a, b []float64
		for range times {
			g.launch(g.one(g.spin, 0, 2_000_000))
			g.ok(g.EventRecord(begin, g.stream))
			t0 := time.Now()
			g.launch(l)
			a = append(a, float64(time.Since(t0)))
			g.ok(g.EventRecord(end, g.stream))
			g.ok(g.CtxSynchronize())
			b = append(b, 1e6*float64(must(g.EventElapsedMs(begin, end))(t)))
		}
		slices.Sort(a)
		slices.Sort(b)
		return a[times/2], b[times/2]
	}
	all := func(when string) {
		line := ""
		s, d := measure(kernel)
		line += fmt.Sprintf(" | kernel %7.0f %7.0f", s, d)
		for i, n := range chains {
			s, d := measure(graphs[i])
			line += fmt.Sprintf(" | graph %d %7.0f %8.0f", n, s, d)
		}
		g.row("%-28s submit ns, span ns%s", when, line)
	}
	for round := range 2 {
		all(fmt.Sprintf("never traced, or after (%d)", round))
		tr := must(g.cupti.Start(cupti.Config{}))(t)
		all("everything")
		r := g.drain(tr)
		var lengths []float64
		for _, k := range r.Kernels {
			if k.Name == "nothing" && k.Graph != 0 {
				lengths = append(lengths, float64(k.EndNs-k.StartNs))
			}
		}
		slices.Sort(lengths)
		if n := len(lengths); n > 0 {
			g.row("  kernel records in graphs: %d, median %.0f ns, 1%% %.0f, 99%% %.0f", n, lengths[n/2], lengths[n/100], lengths[n*99/100])
		}
		g.ok(tr.Stop())
		tr = must(g.cupti.Start(cupti.Config{Kinds: []cupti.Kind{cupti.KindKernel}}))(t)
		all("kernels alone")
		g.ok(tr.Stop())
		tr = must(g.cupti.Start(cupti.Config{Kinds: []cupti.Kind{cupti.KindDriver}}))(t)
		all("calls alone")
		g.ok(tr.Stop())
	}
	all("after all")
}

// TestFewBuffers counts what CUPTI drops for want of a buffer.
func TestFewBuffers(t *testing.T) {
	g := newGPU(t)
	tr := g.start(cupti.Config{Kinds: []cupti.Kind{cupti.KindKernel}, Buffers: 2, BufferBytes: 64 << 10})
	const n = 5000
	l := g.one(g.nothing, 0, 0)
	for range n {
		g.launch(l)
	}
	g.ok(g.CtxSynchronize())
	r := &cupti.Records{}
	g.ok(tr.Drain(r))
	g.row("two buffers of 64 KiB: %d kernels of %d, dropped %d, refused %d", len(r.Kernels), n, r.Report.Dropped, r.Report.Refused)
	if got := int64(len(r.Kernels)) + r.Report.Dropped; got != n {
		t.Errorf("%d kernels recorded and %d dropped, %d ran", len(r.Kernels), r.Report.Dropped, n)
	}
	if r.Report.Refused == 0 {
		t.Error("no buffer was refused")
	}
}

// TestTwice refuses a second recording, and allows one after the other.
func TestTwice(t *testing.T) {
	g := newGPU(t)
	for range 3 {
		tr := must(g.cupti.Start(cupti.Config{}))(t)
		if _, err := g.cupti.Start(cupti.Config{}); err == nil || !strings.Contains(err.Error(), "records already") {
			t.Errorf("a second recording: %v", err)
		}
		g.launch(g.one(g.nothing, 0, 0))
		if r := g.drain(tr); len(r.Kernels) != 1 {
			t.Errorf("%d kernels", len(r.Kernels))
		}
		g.ok(tr.Stop())
		g.ok(tr.Stop())
	}
}

// TestGPULaunch prints the stages of a launch on an idle stream: the call from
// outside, its record, from the record's end to the kernel's begin, and the
// kernel; and what starting and stopping takes.
func TestGPULaunch(t *testing.T) {
	real(t)
	g := newGPU(t)
	const times = 300
	l, graph := g.one(g.nothing, 0, 0), g.capture(func() { g.launch(g.one(g.nothing, 0, 0)) })
	nop := must(g.PrepareNop(g.mem))(t)
	outside := func(l *driver.Launch) []float64 {
		var all []float64
		for range times {
			begin := time.Now()
			g.launch(l)
			all = append(all, float64(time.Since(begin)))
			g.ok(g.CtxSynchronize())
		}
		return all
	}
	quantiles := func(all []float64) string {
		if len(all) == 0 {
			return "none"
		}
		slices.Sort(all)
		return fmt.Sprintf("n %d median %.0f p99 %.0f", len(all), all[len(all)/2], all[len(all)*99/100])
	}
	for range 2 {
		for _, c := range []struct {
			name string
			l    *driver.Launch
		}{{"nop", nop}, {"kernel", l}, {"graph", graph}} {
			g.row("launch untraced %-6s outside ns: %s", c.name, quantiles(outside(c.l)))
		}
		begin := time.Now()
		tr := must(g.cupti.Start(cupti.Config{}))(t)
		started := time.Since(begin)
		for _, c := range []struct {
			name string
			l    *driver.Launch
			call string
		}{{"nop", nop, ""}, {"kernel", l, "cuLaunchKernel"}, {"graph", graph, "cuGraphLaunch"}} {
			from := outside(c.l)
			r := g.drain(tr)
			calls := map[uint32]cupti.Call{}
			var record, hardware, kernel []float64
			for _, x := range r.Calls {
				if g.cupti.CallName(x) == c.call {
					calls[x.Correlation] = x
					record = append(record, float64(x.EndNs-x.StartNs))
				}
			}
			for _, k := range r.Kernels {
				if x, ok := calls[k.Correlation]; ok {
					hardware = append(hardware, float64(k.StartNs-x.EndNs))
					kernel = append(kernel, float64(k.EndNs-k.StartNs))
				}
			}
			g.row("launch traced   %-6s outside ns: %s; record: %s; record end to kernel: %s; kernel: %s", c.name,
				quantiles(from), quantiles(record), quantiles(hardware), quantiles(kernel))
		}
		begin = time.Now()
		g.ok(tr.Stop())
		g.row("start took %v, stop %v", started.Round(time.Microsecond), time.Since(begin).Round(time.Microsecond))
	}
}

// TestGPUMarkers sends ranges of this project's NVTX client to CUPTI itself, as
// NVTX_INJECTION64_PATH does. A client takes one tool for the life of its
// process, so this test wants one of its own.
func TestGPUMarkers(t *testing.T) {
	real(t)
	g := newGPU(t)
	c, err := nvtx.Open(g.cupti.Path(), "trbench")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tr := g.start(cupti.Config{})
	step, graph := c.Range("step", nvtx.Look{}), c.Range("DEEP_FWD_BWD", nvtx.Look{})
	span := c.Start("cell", nvtx.Look{})
	for i := range 3 {
		step.PushInt(int64(i))
		graph.Push()
		g.launch(g.one(g.spin, 0, 20_000))
		graph.Pop()
		g.ok(g.StreamSynchronize(g.stream))
		step.Pop()
	}
	span.End()
	step.Mark()
	r := g.drain(tr)
	x := r.Timeline(cupti.Naming{Call: g.cupti.CallName})
	count := map[string]int{}
	for _, n := range x.Ranges {
		if n.Class != timeline.RangeUser {
			continue
		}
		name := x.Text(n.Name)
		count[name]++
		if x.Text(n.Domain) != "trbench" || n.EndNs < n.StartNs {
			t.Errorf("%s@%s from %d to %d", name, x.Text(n.Domain), n.StartNs, n.EndNs)
		}
		// Inside a step lies the range pushed in it, and a launch.
		if name != "step" || n.EndNs == n.StartNs {
			continue
		}
		inside := 0
		for _, o := range x.Calls {
			if o.Class == timeline.CallLaunch && o.StartNs >= n.StartNs && o.EndNs <= n.EndNs {
				inside++
			}
		}
		for _, o := range x.Ranges {
			if x.Text(o.Name) == "DEEP_FWD_BWD" && o.StartNs >= n.StartNs && o.EndNs <= n.EndNs {
				inside++
			}
		}
		if inside != 2 {
			t.Errorf("a step holds %d of a launch and a range", inside)
		}
	}
	var payloads []uint64
	for _, d := range r.MarkerData {
		payloads = append(payloads, d.Payload)
	}
	g.row("markers: %d records, ranges %v, payloads %v, lost %d", len(r.Markers), count, payloads, x.Read.LostEvents)
	if count["step"] != 4 || count["DEEP_FWD_BWD"] != 3 || count["cell"] != 1 {
		t.Errorf("ranges %v", count)
	}
}
