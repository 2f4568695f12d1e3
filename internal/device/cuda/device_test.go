package cuda

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

func TestMemory(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		got := make([]byte, 8)
		must(t, r.Read(workloads.Region{Off: benchArena - 8, Bytes: 8}, got))
		if v := math.Float32frombits(uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24); !math.IsNaN(float64(v)) {
			t.Errorf("fresh arena holds %v", v)
		}
		if len(r.Pinned()) != benchPinned || !bytes.Equal(r.Pinned(), make([]byte, benchPinned)) {
			t.Error("fresh pinned memory is not zero")
		}
		in := workloads.Region{Off: 256, Bytes: 4}
		must(t, r.Write(in, []byte{1, 2, 3, 4}), r.Read(in, got[:4]))
		if !bytes.Equal(got[:4], []byte{1, 2, 3, 4}) {
			t.Errorf("read back %v", got)
		}
		must(t, r.Fill(in, 9), r.Read(in, got[:4]))
		if !bytes.Equal(got[:4], []byte{9, 9, 9, 9}) {
			t.Errorf("filled %v", got)
		}
		p := workloads.Region{Space: workloads.Pinned, Off: 9, Bytes: 1}
		r.Pinned()[9] = 7
		if must(t, r.Read(p, got[:1])); got[0] != 7 {
			t.Errorf("pinned reads %d", got[0])
		}
		must(t, r.Write(p, []byte{8}), r.Fill(workloads.Region{Space: workloads.Pinned, Off: 10, Bytes: 2}, 5))
		if !bytes.Equal(r.Pinned()[9:12], []byte{8, 5, 5}) {
			t.Errorf("pinned holds %v", r.Pinned()[9:12])
		}
		wants(t, r.Read(in, got[:3]), nil, "Read", "3 bytes")
		wants(t, r.Write(workloads.Region{Off: benchArena - 2, Bytes: 4}, got[:4]), nil, "Write", "outside")
		wants(t, r.Write(workloads.Region{Off: -4, Bytes: 4}, got[:4]), nil, "outside")
		wants(t, r.Fill(workloads.Region{Space: 9, Bytes: 4}, 0), nil)
		must(t, r.Read(workloads.Region{Off: benchArena}, nil), r.Fill(workloads.Region{}, 1))
	})
}

// Writing waits for nothing but what was written: a stream that is held does
// not hold it.
func TestWriteWaitsForNoStream(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		must(t, r.(device.Timer).Hold(), a.Submit(0), r.Fill(word(1), 3), r.Write(word(2), make([]byte, 256)))
		if n := x.runs(r, 0); n != 0 {
			t.Errorf("the held operator ran %d times", n)
		}
		expired, err := r.(device.Timer).Release()
		if must(t, err, r.SyncAll()); expired || x.runs(r, 0) != 1 {
			t.Errorf("expired: %v; ran %d times", expired, x.runs(r, 0))
		}
	})
}

func TestPrepareAudits(t *testing.T) {
	x := newRig(t, nil).open()
	at := func(off, n int64) workloads.Region { return workloads.Region{Off: off, Bytes: n} }
	tests := []struct {
		name string
		edit func(*workloads.Bound)
		want []string // nothing: legal
	}{
		{"inside", func(b *workloads.Bound) { b.Writes = append(b.Writes, at(benchArena, 0)) }, nil},
		{"in", func(b *workloads.Bound) { b.In[0].Name, b.In[0].Region = "w", at(benchArena, 256) }, []string{"operand w", "outside"}},
		{"out", func(b *workloads.Bound) { b.Out[0].Name, b.Out[0].Region = "y", at(benchArena-252, 256) }, []string{"operand y"}},
		{"wrap", func(b *workloads.Bound) { b.Out[0].Name, b.Out[0].Region = "y", at(math.MaxInt64-3, 256) }, []string{"operand y"}},
		{"pinned", func(b *workloads.Bound) {
			b.In[0].Region = workloads.Region{Space: workloads.Pinned, Off: benchPinned - 255, Bytes: 256}
		}, []string{"operand x", "pinned"}},
		{"space", func(b *workloads.Bound) { b.Reads = []workloads.Region{{Space: 9}} }, []string{"lies outside"}},
		{"scratch", func(b *workloads.Bound) { b.Scratch = at(-1, 4) }, []string{"scratch"}},
		{"write", func(b *workloads.Bound) { b.Writes = []workloads.Region{at(0, 4), at(0, -4)} }, []string{"outside"}},
		{"no kernel", func(b *workloads.Bound) { b.Node.Op = 250 }, []string{"no kernel"}},
		{"collective", func(b *workloads.Bound) { b.Node.Op = workloads.OpAllReduce }, []string{"NCCL"}},
	}
	for sealed := range 2 {
		x.do(func(r device.Rank) {
			before := x.g.Live()["ops"]
			for _, tt := range tests {
				b := x.bound(workloads.DeepFwdBwd, tt.name, 0)
				b.In, b.Out = slices.Clone(b.In), slices.Clone(b.Out)
				tt.edit(b)
				_, err := r.Prepare(b)
				if tt.want == nil {
					must(t, err)
					continue
				}
				wants(t, err, nil, append(tt.want, "rank 0", "COMP_1", "prepare", "DEEP_FWD_BWD/"+tt.name)...)
				if errors.Is(err, device.ErrSealed) != (sealed == 1) {
					t.Errorf("%s, sealed %d: %v", tt.name, sealed, err)
				}
			}
			if n := x.g.Live()["ops"] - before; n != 1 {
				t.Errorf("%d operators became live", n)
			}
		})
		x.g.Seal()
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		gpus int
		spec workloads.Spec
		want string
	}{
		{1, workloads.Spec{Ranks: 0}, "0 ranks"},
		{1, workloads.Spec{Ranks: 2}, "2 ranks on 1 GPUs"},
		{2, workloads.Spec{Ranks: 2}, "does not drive NCCL"},
		{1, workloads.Spec{Ranks: 1, BatchNormGroups: 2}, "batch norm on 2 groups"},
	} {
		x := fakeRig(t, fake.H200(c.gpus))
		d, err := New(Options{Driver: x.api})
		must(t, err)
		_, err = d.Open(&workloads.Workload{Spec: c.spec, ArenaBytes: 256})
		wants(t, err, nil, c.want)
		must(t, x.m.Stop())
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a device without a driver")
	}
	old := fake.H200(1)
	old.GPUs[0].Major = 7
	x := fakeRig(t, old)
	_, err := x.try()
	wants(t, err, nil, "open GPU 0", "compute capability 7.0")
	if n := x.m.Live(); len(n) != 0 {
		t.Errorf("left: %v", n)
	}
}

// An arena that does not fit leaves nothing behind, and a smaller one is then
// opened.
func TestArenaOutOfMemory(t *testing.T) {
	x := newRig(t, nil)
	d, err := New(Options{Driver: x.api})
	must(t, err)
	goroutines := runtime.NumGoroutine()
	_, err = d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: 1 << 50})
	wants(t, err, driver.OutOfMemory, "open GPU 0", "the arena of 1125899906842624 bytes")
	if x.m != nil && len(x.m.Live()) != 0 {
		t.Errorf("left: %v", x.m.Live())
	}
	settles(t, goroutines)
	must(t, x.open().g.Close())
}

// On each thread the context is that of its GPU, whichever others there are, and
// what it allocates lies there; so it is after a closure took the thread down.
func TestSecondGPU(t *testing.T) {
	x := fakeRig(t, fake.H200(2))
	d, err := New(Options{Driver: x.api})
	must(t, err)
	g := &Group{dev: d, w: &workloads.Workload{Spec: workloads.Spec{Ranks: 2}, ArenaBytes: benchArena, PinnedBytes: benchPinned}}
	t.Cleanup(func() { must(t, g.Close()) })
	for i := range 2 {
		g.ranks = append(g.ranks, newRank(g, i))
		must(t, g.ranks[i].thread.Do(g.ranks[i].allocate))
	}
	for round := range 2 {
		must(t, g.Each(func(r device.Rank) error {
			dev, err := x.api.CtxGetDevice()
			if err == nil && int(dev) != r.ID() {
				t.Errorf("rank %d runs on GPU %d", r.ID(), dev)
			}
			return err
		}))
		b := &bench{x, g, g.ranks[1]}
		b.do(func(r device.Rank) {
			a := b.op(r, workloads.DeepFwdBwd, "a", 0)
			graph := b.chain(r, a, a)
			e, err := graph.Instantiate()
			must(t, err, a.Submit(0), r.SyncAll(), e.Launch(workloads.UPDATE, 0), r.SyncAll(), e.Close(), graph.Close())
			if n := b.runs(r, 0); n != 3 {
				t.Errorf("ran %d times", n)
			}
		})
		b.idle()
		if round == 0 {
			if err := g.ranks[1].Do(func() error { runtime.Goexit(); return nil }); err == nil {
				t.Error("the thread did not end")
			}
		}
	}
	free, total, err := g.Memory()
	if must(t, err); total[0] != total[1] || free[0] >= total[0] || free[1] >= total[1] || free[1] == 0 {
		t.Errorf("free %v of %v", free, total)
	}
}

// A kernel that fails is reported by the next Sync with the operator up to
// which the failure may lie; then every call fails, and Close, which has
// nothing new to say, gives everything back.
func TestAsynchronousFailure(t *testing.T) {
	for _, replay := range []bool{false, true} {
		x := fakeRig(t, nil).open()
		x.do(func(r device.Rank) {
			a, b, c := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.DeepFwdBwd, "b", 1), x.op(r, workloads.ZeroGrad, "c", 2)
			g := x.chain(r, a, b)
			e, err := g.Instantiate()
			done := x.event(r, "done")
			must(t, err, c.Submit(0), r.SyncAll())
			x.m.Fail(fake.Fault{Kernel: "chain_x4", Nth: 2, Code: 719})
			if replay {
				must(t, e.Launch(workloads.COMP1, 0))
			} else {
				must(t, a.Submit(0), b.Submit(0))
			}
			must(t, r.Record(workloads.COMP1, done), done.Sync()) // an event tells of no failure
			err = r.Sync(workloads.TRANS)
			var oe *device.OpError
			if wants(t, err, driver.LaunchFailed, "up to DEEP_FWD_BWD/b", "COMP_1", "ZERO_GRAD/c"); !errors.As(err, &oe) || oe.Call != "synchronise" {
				t.Errorf("%#v", err)
			}
			for _, err := range []error{r.SyncAll(), a.Submit(0), e.Launch(workloads.COMP1, 0), r.Read(word(0), make([]byte, 256)),
				r.Write(word(0), make([]byte, 256)), r.Fill(word(0), 0), r.Record(workloads.COMP1, done), r.BeginCapture(workloads.COMP1, 0)} {
				wants(t, err, driver.LaunchFailed, "rank 0")
			}
			ok, err := done.Query()
			if must(t, err, done.Sync()); !ok {
				t.Error("the event of a broken context is never reached")
			}
			if !slices.Equal(x.m.Reports(), []string{"chain_x4: injected"}) {
				t.Errorf("the machine says %v", x.m.Reports())
			}
		})
		must(t, x.g.Close())
		if n := x.m.Live(); len(n) != 0 {
			t.Errorf("left: %v", n)
		}
		must(t, x.m.Stop())
	}
}

// What nobody collected is Close's to report, once.
func TestCloseReturnsFailure(t *testing.T) {
	x := fakeRig(t, nil).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		x.m.Fail(fake.Fault{Kernel: "chain_x4", Nth: 1, Code: 700})
		must(t, a.Submit(0))
	})
	err := x.g.Close()
	wants(t, err, driver.IllegalAddress, "up to DEEP_FWD_BWD/a")
	if n := strings.Count(err.Error(), "ILLEGAL_ADDRESS"); n != 1 {
		t.Errorf("said %d times: %v", n, err)
	}
	must(t, x.g.Close())
	if n := x.m.Live(); len(n) != 0 {
		t.Errorf("left: %v", n)
	}
}

// Close gives back what its callers did not: graphs, execs, a capture, a hold.
func TestCloseReleasesAll(t *testing.T) {
	x := newRig(t, nil)
	goroutines := runtime.NumGoroutine()
	b := x.open()
	var g device.Graph
	var e device.Exec
	b.do(func(r device.Rank) {
		a := b.op(r, workloads.DeepFwdBwd, "a", 0)
		g = b.chain(r, a)
		var err error
		e, err = g.Instantiate()
		b.event(r, "e")
		must(t, err, e.Launch(workloads.COMP1, 0), r.(device.Timer).Hold(), a.Submit(0), r.BeginCapture(workloads.TRANS, device.CaptureGlobal))
	})
	must(t, b.g.Close(), b.g.Close(), e.Close(), g.Close())
	for k, n := range b.g.Live() {
		if n != 0 {
			t.Errorf("%d %s live after Close", n, k)
		}
	}
	if x.m != nil && len(x.m.Live()) != 0 {
		t.Errorf("left: %v", x.m.Live())
	}
	wants(t, b.g.Rank(0).Do(func() error { return nil }), device.ErrClosed)
	wants(t, b.g.Each(func(device.Rank) error { return nil }), device.ErrClosed, "rank 0")
	b.g.Rank(0).LastOp()
	settles(t, goroutines+1) // the machine's legacy stream is made at its first use
}

// settles waits for goroutines that have been told to end.
func settles(t *testing.T, limit int) {
	t.Helper()
	n := 0
	for range 200 {
		if n = runtime.NumGoroutine(); n <= limit {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, want at most %d", n, limit)
}

// LastOp is read by a watcher while the rank submits.
func TestLastOpFromElsewhere(t *testing.T) {
	x := newRig(t, nil).open()
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				x.r.LastOp()
			}
		}
	}()
	x.do(func(r device.Rank) {
		a, b := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.ZeroGrad, "b", 1)
		for range 50 {
			must(t, a.Submit(0), b.Submit(0))
		}
		must(t, r.SyncAll())
	})
	close(stop)
	<-stopped
	if got := x.r.LastOp(); got[workloads.COMP1] != "DEEP_FWD_BWD/a" || got[workloads.UPDATE] != "ZERO_GRAD/b" || len(got) != 2 {
		t.Errorf("last: %v", got)
	}
}

// life is a group from Open to Close with one of everything in between. It
// stops at the first failure.
func (x *rig) life() (err error) {
	g, err := x.try()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	b := &bench{x, g, g.ranks[0]}
	return g.Rank(0).Do(func() error {
		r := b.r
		var o, c device.Op
		var e device.Event
		var graph device.Graph
		var replay device.Exec
		timed := device.Timer(r)
		for _, step := range []func() error{
			func() (err error) { o, err = r.Prepare(b.bound(workloads.DeepFwdBwd, "a", 0)); return err },
			func() (err error) { c, err = r.Prepare(b.bound(workloads.ZeroGrad, "b", 1)); return err },
			func() (err error) { e, err = r.NewEvent("e"); return err },
			func() error { return r.Fill(word(0), 0) },
			func() error { return r.Write(word(1), make([]byte, 256)) },
			timed.MarkBegin,
			func() error { return o.Submit(0) },
			func() error { return r.Record(workloads.COMP1, e) },
			func() error { return r.Wait(workloads.UPDATE, e) },
			func() error { return c.Submit(0) },
			timed.MarkEnd,
			r.SyncAll,
			func() error { return e.Sync() },
			func() error { return r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal) },
			func() error { return o.Submit(0) },
			func() error { return r.Record(workloads.COMP1, e) },
			func() error { return r.Wait(workloads.UPDATE, e) },
			func() error { return c.Submit(0) },
			func() error { return r.Record(workloads.UPDATE, e) },
			func() error { return r.Wait(workloads.COMP1, e) },
			func() (err error) { graph, err = r.EndCapture(workloads.COMP1); return err },
			func() (err error) { replay, err = graph.Instantiate(); return err },
			func() error { return replay.Upload(workloads.COMP1) },
			func() error { return replay.Launch(workloads.COMP1, 0) },
			func() error { return r.Sync(workloads.COMP1) },
			func() error { return r.Read(word(0), make([]byte, 256)) },
			func() error { return replay.Close() },
			func() error { return graph.Close() },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// destroyers give something back: if one fails, that one thing is lost.
var destroyers = map[string]string{
	"cuStreamDestroy_v2": "stream", "cuEventDestroy_v2": "event", "cuModuleUnload": "module", "cuGraphDestroy": "graph", "cuGraphExecDestroy": "exec",
	"cuMemFree_v2": "memory", "cuMemFreeHost": "pinned", "cuDevicePrimaryCtxRelease_v2": "context",
}

// Each call of a life fails once, the first, the middle and the last of its
// kind: the error names it, and everything else is given back.
func TestEveryCallFails(t *testing.T) {
	clean := fakeRig(t, nil)
	calls := map[string]int{}
	count := func(m *fake.Machine) map[string]int {
		n := map[string]int{}
		for _, symbol := range []string{"cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuDeviceGetAttribute",
			"cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncLoad", "cuStreamCreate", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemHostAlloc",
			"cuMemHostGetDevicePointer_v2", "cuCtxSynchronize", "cuEventCreate", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuStreamSynchronize",
			"cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel", "cuEventSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
			"cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphKernelNodeGetParams_v2", "cuFuncGetName", "cuFuncGetParamInfo", "cuGraphGetEdges_v2",
			"cuGraphInstantiateWithParams", "cuGraphUpload", "cuGraphLaunch", "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuModuleUnload",
			"cuGraphDestroy", "cuGraphExecDestroy", "cuMemFree_v2", "cuMemFreeHost", "cuDevicePrimaryCtxRelease_v2"} {
			n[symbol] = m.Calls(symbol)
		}
		return n
	}
	before := count(clean.m)
	must(t, clean.life())
	for symbol, n := range count(clean.m) {
		if calls[symbol] = n - before[symbol]; calls[symbol] == 0 {
			t.Errorf("a life makes no call %s", symbol)
		}
	}
	must(t, clean.m.Stop())
	for symbol, n := range calls {
		for _, nth := range slices.Compact([]int{1, (n + 1) / 2, n}) {
			if raceDetector && nth != (n+1)/2 {
				continue
			}
			x := fakeRig(t, nil)
			x.m.Fail(fake.Fault{Call: symbol, Nth: nth, Code: 304})
			err := x.life()
			if !errors.Is(err, driver.OperatingSystem) || !strings.Contains(err.Error(), symbol) {
				t.Errorf("%s %d of %d: %v", symbol, nth, n, err)
			}
			want := map[string]int{}
			if kind := destroyers[symbol]; kind != "" {
				want[kind] = 1
			}
			if got := x.m.Live(); !maps.Equal(got, want) {
				t.Errorf("%s %d of %d: left %v, want %v", symbol, nth, n, got, want)
			}
			// The machine is as good as new.
			x.m.ClearFaults()
			must(t, x.life())
			_ = x.m.Stop() // what a destroyer lost was looked at above
		}
	}
}
