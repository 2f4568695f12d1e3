package cuda

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	cpukernels "github.com/tech-renaissance/trbench/internal/device/cpu/kernels"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// rig is a fake machine on which every kernel of package kernels exists. What
// an operator computes is computed by the CPU device's function for it, in the
// operator's first launch; its other launches do nothing. With TRBENCH_GPU set
// it is the machine's GPU instead, and m is nil.
type rig struct {
	t   testing.TB
	m   *fake.Machine
	api *driver.API
	// jobs are what launches do, by mark. The map is replaced, never changed:
	// a lock would order streams that the driver does not.
	jobs atomic.Pointer[map[string]*job]
	pool *cpukernels.Pool
}

// job is an operator; rest says that the launch is none of its first.
type job struct {
	r    *rank
	b    *workloads.Bound
	rest bool
	run  func() // compiled by the first run
}

func onGPU() bool { return os.Getenv("TRBENCH_GPU") != "" }

// newRig starts the machine, an H200 if m is nil. Its end checks that all was
// given back.
func newRig(t testing.TB, m *fake.Machine) *rig {
	t.Helper()
	x := &rig{t: t, m: m, pool: cpukernels.NewPool(1)}
	t.Cleanup(x.pool.Close)
	x.jobs.Store(&map[string]*job{})
	var err error
	if onGPU() && m == nil {
		x.api, err = driver.Open(driver.Options{})
		must(t, err)
		return x
	}
	if m == nil {
		x.m = fake.H200(1)
	}
	for _, k := range kernels.Kernels() {
		f := x.kernel
		switch k.Name {
		case kernels.GateKernel:
			f = gate
		case kernels.Empty, kernels.BurnKernel:
			f = func(fake.Args, [3]uint32, [3]uint32) {}
		}
		ps, err := fake.ParseParams(k.Params)
		must(t, err)
		x.m.Register(k.Name, ps, f)
	}
	lib, err := x.m.Start()
	must(t, err)
	t.Cleanup(func() {
		if err := x.m.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
		if names := x.m.Unregistered(); len(names) > 0 {
			t.Errorf("kernels nobody registered: %v", names)
		}
	})
	x.api, err = driver.New(lib)
	must(t, err)
	return x
}

// fakeRig is newRig for a test that breaks or watches the machine.
func fakeRig(t testing.TB, m *fake.Machine) *rig {
	t.Helper()
	if onGPU() {
		t.Skip("needs the fake driver")
	}
	return newRig(t, m)
}

// gate is the gate kernel.
func gate(a fake.Args, _, _ [3]uint32) {
	flag, state := fake.View[uint32](a, a.Ptr(0), 1), fake.View[uint32](a, a.Ptr(1), 1)
	how := uint32(kernels.GateOpened)
	for begin := time.Now(); atomic.LoadUint32(&flag[0]) == 0; time.Sleep(20 * time.Microsecond) {
		if time.Since(begin) > time.Duration(a.U64(2)) {
			how = kernels.GateTimedOut
			break
		}
	}
	atomic.StoreUint32(&state[0], how)
}

// kernel is every other kernel.
func (x *rig) kernel(a fake.Args, grid, block [3]uint32) {
	mark := markKernel(a.Kernel(), grid, block, uint32(a.Shared()))
	for i := range a.Len() {
		mark = append(mark, a.Bytes(i)...)
	}
	j := (*x.jobs.Load())[string(mark)]
	switch {
	case j == nil && a.Kernel() == "zero_1": // in the place of a fill: no operator's
		clear(a.Mem(a.Ptr(0), int(a.U64(1))))
		return
	case j == nil && a.Kernel() == "copy_bytes": // in the place of a copy
		copy(a.Mem(a.Ptr(1), int(a.U64(2))), a.Mem(a.Ptr(0), int(a.U64(2))))
		return
	case j == nil:
		a.Fail(719, "kernel %s was launched with parameters of no operator", a.Kernel())
	case j.rest:
		return
	case j.run == nil:
		f, err := cpukernels.Compile(j.b, view{a, j.r}, x.pool)
		if err != nil {
			a.Fail(719, "%v", err)
		}
		j.run = f
	}
	j.run()
}

// view is a rank's memory as a kernel sees it.
type view struct {
	a fake.Args
	r *rank
}

func (v view) Bytes(x workloads.Region) []byte { return v.a.Mem(v.r.address(x), int(x.Bytes)) }

// know tells the machine's kernels of an operator's launches.
func (x *rig) know(r *rank, bounds ...*workloads.Bound) {
	x.t.Helper()
	if x.m == nil {
		return
	}
	jobs := maps.Clone(*x.jobs.Load())
	for _, b := range bounds {
		plan, err := r.g.tuning.kernels().Plan(b)
		must(x.t, err)
		for i := range plan {
			if plan[i].Kind == kernels.KindCopyIn {
				continue
			}
			mark := r.mark(&plan[i], b.SubGraph.Info().Stream)
			// Another group may have lain at the same addresses.
			if old := jobs[mark]; old != nil && old.r == r && old.rest != (i > 0) {
				x.t.Fatalf("%s and %s share a launch that is the first of one alone", nodeName(old.b), nodeName(b))
			}
			jobs[mark] = &job{r: r, b: b, rest: i > 0}
		}
	}
	x.jobs.Store(&jobs)
}

// device is the device of the rig for whole workloads: its scratch serves the
// CPU's functions too, and its kernels know all operators.
func (x *rig) device(o Options) *rigged {
	x.t.Helper()
	o.Driver = x.api
	d, err := New(o)
	must(x.t, err)
	return &rigged{d, x}
}

type rigged struct {
	*Device
	x *rig
}

func (d *rigged) Target() workloads.Target {
	t := d.Device.Target()
	own := t.ScratchBytes
	t.ScratchBytes = func(b *workloads.Bound) int64 { return max(own(b), cpukernels.ScratchBytes(b)) }
	return t
}

func (d *rigged) Open(w *workloads.Workload) (device.Group, error) {
	g, err := d.Device.Open(w)
	if err != nil {
		return nil, err
	}
	var all []*workloads.Bound
	seen := map[*workloads.Node]map[workloads.Variant]bool{}
	for v := range workloads.NumVariants {
		for id := range workloads.NumSubGraphs {
			for _, c := range []workloads.Control{workloads.ControlDevice, workloads.ControlHost} {
				for _, b := range w.Bounds(id, v, c) {
					if seen[b.Node] == nil {
						seen[b.Node] = map[workloads.Variant]bool{}
					}
					if !seen[b.Node][v] {
						seen[b.Node][v] = true
						all = append(all, b)
					}
				}
			}
		}
	}
	for _, r := range g.(*Group).ranks {
		d.x.know(r, all...)
	}
	return g, nil
}

// bench is a group of one rank whose operators the test makes.
type bench struct {
	*rig
	g *Group
	r *rank
}

const (
	benchArena  = 1 << 16
	benchPinned = 4096
)

// open opens a small group on a rig.
func (x *rig) open() *bench {
	x.t.Helper()
	g, err := x.try()
	must(x.t, err)
	b := &bench{x, g, g.ranks[0]}
	x.t.Cleanup(func() {
		if err := g.Close(); err != nil && !x.t.Failed() {
			x.t.Errorf("close: %v", err)
		}
	})
	return b
}

func (x *rig) try() (*Group, error) {
	d, err := New(Options{Driver: x.api})
	if err != nil {
		return nil, err
	}
	g, err := d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: benchArena, PinnedBytes: benchPinned})
	if err != nil {
		return nil, err
	}
	return g.(*Group), nil
}

// do runs f on the rank's thread.
func (x *bench) do(f func(r device.Rank)) {
	x.t.Helper()
	must(x.t, x.r.Do(func() error { f(x.r); return nil }))
}

// word is a region of 256 bytes, by number.
func word(i int) workloads.Region { return workloads.Region{Off: int64(i) * 256, Bytes: 256} }

// bound is an operator that counts: it makes each x of the i-th region x/2+1.
// From 0 the values after its runs are 1, 1.5, 1.75 and so on.
func (x *bench) bound(id workloads.SubGraph, name string, i int) *workloads.Bound {
	o := workloads.Operand{Name: "x", DType: workloads.F32, Shape: workloads.Shape{64}, Region: word(i)}
	b := &workloads.Bound{Node: &workloads.Node{Name: name, Op: workloads.OpChain}, SubGraph: id,
		In: []workloads.Operand{o}, Out: []workloads.Operand{o}, Reads: []workloads.Region{o.Region}, Writes: []workloads.Region{o.Region}}
	x.know(x.r, b)
	return b
}

// op prepares such an operator and sets its region to 0.
func (x *bench) op(r device.Rank, id workloads.SubGraph, name string, i int) device.Op {
	x.t.Helper()
	o, err := r.Prepare(x.bound(id, name, i))
	must(x.t, err, r.Fill(word(i), 0))
	return o
}

// runs is how often the operator on the i-th region ran; -1 if the values are
// of no such number.
func (x *bench) runs(r device.Rank, i int) int {
	x.t.Helper()
	b := make([]byte, word(i).Bytes)
	must(x.t, r.Read(word(i), b))
	v := math.Float32frombits(binary.LittleEndian.Uint32(b))
	for n, w := 0, float32(0); n < 24; n, w = n+1, w/2+1 {
		if v == w {
			return n
		}
	}
	return -1
}

// copyIn prepares a transfer of the pinned half to the i-th region.
func (x *bench) copyIn(r device.Rank, id workloads.SubGraph, i int) device.Op {
	x.t.Helper()
	from := workloads.Region{Space: workloads.Pinned, Off: 512, Bytes: 256}
	o, err := r.Prepare(&workloads.Bound{Node: &workloads.Node{Name: "copy", Op: workloads.OpCopyIn}, SubGraph: id,
		In:  []workloads.Operand{{Name: "src", DType: workloads.U8, Shape: workloads.Shape{256}, Region: from}},
		Out: []workloads.Operand{{Name: "dst", DType: workloads.U8, Shape: workloads.Shape{256}, Region: word(i)}}})
	must(x.t, err)
	return o
}

func (x *bench) event(r device.Rank, name string) device.Event {
	x.t.Helper()
	e, err := r.NewEvent(name)
	must(x.t, err)
	return e
}

// chain captures operators of one stream.
func (x *bench) chain(r device.Rank, ops ...device.Op) device.Graph {
	x.t.Helper()
	s := ops[0].(*op).stream
	must(x.t, r.BeginCapture(s, device.CaptureThreadLocal))
	for _, o := range ops {
		must(x.t, o.Submit(0))
	}
	g, err := r.EndCapture(s)
	must(x.t, err)
	return g
}

// idle checks that no stream of the rank is capturing.
func (x *bench) idle() {
	x.t.Helper()
	x.do(func(device.Rank) {
		for s, h := range x.r.streams {
			st, err := x.api.StreamIsCapturing(h)
			must(x.t, err)
			if st != driver.CaptureNone {
				x.t.Errorf("stream %s is left capturing", workloads.Stream(s))
			}
		}
	})
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wants checks that err wraps the sentinel (if any) and mentions the words.
func wants(t testing.TB, err, sentinel error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	if sentinel != nil && !errors.Is(err, sentinel) {
		t.Errorf("error %q is not %q", err, sentinel)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}
