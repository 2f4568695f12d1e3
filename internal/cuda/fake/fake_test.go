package fake_test

import (
	"errors"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/dl"
)

const ptx = ".version 7.0\n.target sm_60\n.visible .entry inc(.param .u64 p)\n{ ret; }\n.entry inc4(\n.param .u64 p)\n{ ret; }\n.visible .entry unknown()\n{ ret; }\n"

// rig is a machine with one context, driven through the binding.
type rig struct {
	*driver.API
	t    *testing.T
	m    *fake.Machine
	mem  *driver.Memory
	mod  driver.Module
	inc  driver.Function
	word driver.DevicePtr
}

func newRig(t *testing.T, m *fake.Machine) *rig {
	t.Helper()
	m.Register("inc", fake.Params(fake.Ptr), func(a fake.Args, _, _ [3]uint32) { fake.View[uint32](a, a.Ptr(0), 1)[0]++ })
	m.Register("inc4", fake.Params(fake.Ptr), func(a fake.Args, _, _ [3]uint32) {
		for i := range fake.View[uint32](a, a.Ptr(0), 4) {
			fake.View[uint32](a, a.Ptr(0), 4)[i]++
		}
	})
	r := &rig{t: t, m: m, mem: driver.NewMemory()}
	lib, err := m.Start()
	r.ok(err)
	t.Cleanup(func() { m.Stop(); r.mem.Close() })
	r.API, err = driver.New(lib)
	r.ok(err)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c, err := r.DevicePrimaryCtxRetain(0)
	r.ok(err)
	r.ok(r.CtxSetCurrent(c))
	r.mod, err = r.ModuleLoadData([]byte(ptx))
	r.ok(err)
	r.inc, err = r.ModuleGetFunction(r.mod, "inc")
	r.ok(err)
	r.word, err = r.MemAlloc(1024)
	r.ok(err)
	r.ok(r.MemsetD8(r.word, 0, 1024))
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stream(flags driver.StreamFlags) driver.Stream {
	r.t.Helper()
	s, err := r.StreamCreate(flags)
	r.ok(err)
	return s
}

func (r *rig) launch(f driver.Function, p driver.DevicePtr, s driver.Stream) error {
	l, err := r.PrepareKernel(r.mem, driver.KernelSpec{Func: f, Name: "inc", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Stream: s, Args: new(driver.Args).Ptr(p)})
	if err != nil {
		return err
	}
	return r.LaunchError(l, r.Submit(l))
}

func (r *rig) value() byte {
	r.t.Helper()
	b := make([]byte, 1)
	r.ok(r.MemcpyDtoH(b, r.word))
	return b[0]
}

func TestOneMachineAtATime(t *testing.T) {
	a, b := fake.H200(1), fake.Laptop()
	if _, err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Start(); err == nil {
		t.Error("two machines run")
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := a.Start(); err == nil {
		t.Error("a machine started twice")
	}
	lib, err := b.Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lib.Lookup("cuNever"); !errors.Is(err, dl.ErrNoSymbol) {
		t.Error(err)
	}
	b.Stop()
}

func TestSymbolsByVersion(t *testing.T) {
	for _, c := range []struct {
		m    *fake.Machine
		want map[string]bool
	}{
		{fake.H200(1), map[string]bool{"cuEventElapsedTime_v2": true, "cuFuncLoad": true, "cuGraphGetEdges_v2": true}},
		{fake.RTX4090(1), map[string]bool{"cuEventElapsedTime_v2": false, "cuFuncLoad": true, "cuGraphGetEdges_v2": true}},
		{fake.A100(1), map[string]bool{"cuFuncLoad": false, "cuGraphGetEdges_v2": false, "cuGraphGetEdges": true}},
	} {
		lib, err := c.m.Start()
		if err != nil {
			t.Fatal(err)
		}
		for s, want := range c.want {
			if _, err := lib.Lookup(s); (err == nil) != want {
				t.Errorf("%s: %s: %v", c.m.Name, s, err)
			}
		}
		c.m.Stop()
	}
}

func TestLeaks(t *testing.T) {
	r := newRig(t, fake.H200(1))
	s := r.stream(driver.StreamNonBlocking)
	e, err := r.EventCreate(0)
	r.ok(err)
	pin, err := r.MemHostAlloc(64, 0)
	r.ok(err)
	g, err := r.GraphCreate()
	r.ok(err)
	x, err := r.GraphInstantiate(g, 0)
	r.ok(err)
	want := map[string]int{"context": 1, "module": 1, "memory": 1, "stream": 1, "event": 1, "pinned": 1, "graph": 1, "exec": 1}
	if got := r.m.Live(); !reflect.DeepEqual(got, want) {
		t.Errorf("live %v, want %v", got, want)
	}
	r.ok(r.GraphExecDestroy(x))
	r.ok(r.GraphDestroy(g))
	r.ok(r.MemFreeHost(pin))
	r.ok(r.EventDestroy(e))
	r.ok(r.StreamDestroy(s))
	for what, err := range map[string]error{"stream": r.StreamDestroy(s), "event": r.EventDestroy(e), "graph": r.GraphDestroy(g),
		"exec": r.GraphExecDestroy(x)} {
		if !errors.Is(err, driver.InvalidHandle) {
			t.Errorf("a %s destroyed twice: %v", what, err)
		}
	}
	if err := r.MemFree(r.word + 8); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("a free inside an allocation: %v", err)
	}
	if err := r.m.Stop(); err == nil || err.Error() != "fake driver: not given back: 1 context, 1 memory, 1 module" {
		t.Errorf("leaks: %v", err)
	}
}

func TestMemoryIsGarbageAndBounded(t *testing.T) {
	r := newRig(t, fake.H200(1))
	p, err := r.MemAlloc(100)
	r.ok(err)
	b := make([]byte, 100)
	r.ok(r.MemcpyDtoH(b, p))
	for _, v := range b {
		if v != 0xCD {
			t.Fatalf("fresh memory holds %#x", v)
		}
	}
	for name, err := range map[string]error{
		"one byte too many":  r.MemsetD8(p, 0, 101),
		"below":              r.MemsetD8(p-1, 0, 2),
		"a copy past":        r.MemcpyHtoD(p+50, make([]byte, 51)),
		"an unaligned fill":  r.MemsetD32Async(p+1, 0, 1, 0),
		"an address of none": r.MemsetD8(16, 0, 1),
	} {
		if !errors.Is(err, driver.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A kernel that leaves its buffer fails like one.
	inc4, err := r.ModuleGetFunction(r.mod, "inc4")
	r.ok(err)
	r.ok(r.launch(inc4, p+96, 0))
	if err := r.CtxSynchronize(); !errors.Is(err, driver.IllegalAddress) {
		t.Errorf("a kernel past its buffer: %v", err)
	}
	if rep := r.m.Reports(); len(rep) != 1 || !strings.Contains(rep[0], "inc4: 16 bytes") {
		t.Errorf("reports %q", rep)
	}
}

func TestKernelPanicIsALaunchFailure(t *testing.T) {
	m := fake.H200(1)
	m.Register("unknown", nil, func(fake.Args, [3]uint32, [3]uint32) { panic("oops") })
	r := newRig(t, m)
	f, err := r.ModuleGetFunction(r.mod, "unknown")
	r.ok(err)
	l, err := r.PrepareKernel(r.mem, driver.KernelSpec{Func: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}})
	r.ok(err)
	r.Submit(l)
	if err := r.m.Stop(); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("a failure that nobody asked for: %v", err)
	}
}

func TestMisaligned(t *testing.T) {
	r := newRig(t, fake.H200(1))
	r.ok(r.launch(r.inc, r.word+2, 0))
	if err := r.CtxSynchronize(); !errors.Is(err, driver.MisalignedAddress) {
		t.Errorf("%v", err)
	}
}

func TestOutOfMemory(t *testing.T) {
	m := fake.H200(1)
	m.GPUs[0].Memory = 512<<20 + 96<<10
	r := newRig(t, m)
	p, err := r.MemAlloc(64 << 10)
	r.ok(err)
	if _, err := r.MemAlloc(64 << 10); !errors.Is(err, driver.OutOfMemory) {
		t.Errorf("%v", err)
	}
	r.ok(r.MemFree(p))
	_, err = r.MemAlloc(64 << 10)
	r.ok(err)
}

func TestExecMemoryComesBackLate(t *testing.T) {
	r := newRig(t, fake.H200(1))
	free := func() uint64 { f, _, err := r.MemGetInfo(); r.ok(err); return f }
	g, err := r.GraphCreate()
	r.ok(err)
	f0 := free()
	x, err := r.GraphInstantiate(g, 0)
	r.ok(err)
	f1 := free()
	r.ok(r.GraphExecDestroy(x))
	f2 := free()
	r.ok(r.DeviceGraphMemTrim(0))
	f3 := free()
	if !(f1 < f0 && f2 == f1 && f3 == f0) {
		t.Errorf("free: %d, with an exec %d, destroyed %d, trimmed %d", f0, f1, f2, f3)
	}
}

func TestLazyLoadingInCapture(t *testing.T) {
	r := newRig(t, fake.H200(1))
	s := r.stream(driver.StreamNonBlocking)
	inc4, err := r.ModuleGetFunction(r.mod, "inc4")
	r.ok(err)
	r.ok(r.FuncLoad(r.inc))
	r.ok(r.StreamBeginCapture(s, driver.CaptureThreadLocal))
	r.ok(r.launch(r.inc, r.word, s))
	r.ok(r.launch(inc4, r.word, s))
	_, err = r.StreamEndCapture(s)
	r.ok(err)
	if got := r.m.LazyInCapture(); !reflect.DeepEqual(got, []string{"inc4"}) {
		t.Errorf("loaded inside the capture: %v", got)
	}
	if r.m.AllocsInCapture() != 0 {
		t.Error("allocations in capture")
	}
	r.ok(r.StreamBeginCapture(s, driver.CaptureRelaxed))
	_, err = r.MemAlloc(16)
	r.ok(err)
	r.StreamEndCapture(s)
	if n := r.m.AllocsInCapture(); n != 1 {
		t.Errorf("%d allocations in capture", n)
	}
}

func TestModuleNames(t *testing.T) {
	r := newRig(t, fake.H200(1))
	if _, err := r.ModuleGetFunction(r.mod, "unknown"); !errors.Is(err, driver.NotFound) {
		t.Errorf("a kernel that nobody registered: %v", err)
	}
	if got := r.m.Unregistered(); !reflect.DeepEqual(got, []string{"unknown"}) {
		t.Errorf("unregistered: %v", got)
	}
	r.m.Register("elsewhere", nil, nil)
	if _, err := r.ModuleGetFunction(r.mod, "elsewhere"); !errors.Is(err, driver.NotFound) {
		t.Errorf("a kernel that the PTX lacks: %v", err)
	}
}

// TestLegacyStream orders blocking streams around the default one, and no
// others.
func TestLegacyStream(t *testing.T) {
	r := newRig(t, fake.H200(1))
	blocking, free := r.stream(driver.StreamDefault), r.stream(driver.StreamNonBlocking)
	release := r.m.Hold(uintptr(blocking))
	r.ok(r.launch(r.inc, r.word, blocking))
	r.ok(r.launch(r.inc, r.word, 0)) // waits for it
	other := r.stream(driver.StreamDefault)
	r.ok(r.launch(r.inc, r.word, other)) // waits for the default stream
	r.ok(r.launch(r.inc, r.word+512, free))
	r.ok(r.StreamSynchronize(free))
	if ok, _ := r.StreamQuery(other); ok {
		t.Error("a blocking stream overtook the default one")
	}
	release()
	r.ok(r.CtxSynchronize())
	if v := r.value(); v != 3 {
		t.Errorf("value %d", v)
	}
}

func TestPageableCopies(t *testing.T) {
	r := newRig(t, fake.H200(1))
	s := r.stream(driver.StreamNonBlocking)
	r.m.Delay(uintptr(s), time.Millisecond)
	pin, err := r.MemHostAlloc(4, 0)
	r.ok(err)
	b := pin.Bytes(4)
	b[0] = 9
	r.ok(r.MemcpyHtoDAsync(r.word, pin.Addr(), 1, s))
	r.ok(r.StreamSynchronize(s))
	if v := r.value(); v != 9 {
		t.Errorf("value %d", v)
	}
	// In a capture only pinned memory is taken.
	heap := make([]byte, 4)
	r.ok(r.StreamBeginCapture(s, driver.CaptureRelaxed))
	l, err := r.PrepareMemcpyHtoD(r.word, heapAddr(heap), 4, s)
	r.ok(err)
	if err := r.LaunchError(l, r.Submit(l)); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("a captured copy from the heap: %v", err)
	}
	r.StreamEndCapture(s)
	runtime.KeepAlive(heap)
}

// TestReplaysFollowEachOther launches one exec on two streams.
func TestReplaysFollowEachOther(t *testing.T) {
	r := newRig(t, fake.H200(1))
	s, o := r.stream(driver.StreamNonBlocking), r.stream(driver.StreamNonBlocking)
	r.ok(r.StreamBeginCapture(s, driver.CaptureThreadLocal))
	r.ok(r.launch(r.inc, r.word, s))
	g, err := r.StreamEndCapture(s)
	r.ok(err)
	x, err := r.GraphInstantiate(g, 0)
	r.ok(err)
	for range 50 {
		r.ok(r.GraphLaunch(x, s))
		r.ok(r.GraphLaunch(x, o))
	}
	r.ok(r.CtxSynchronize())
	if v := r.value(); v != 100 {
		t.Errorf("value %d", v)
	}
}

// TestExternalEvent times a part of a graph.
func TestExternalEvent(t *testing.T) {
	r := newRig(t, fake.H200(1))
	s := r.stream(driver.StreamNonBlocking)
	a, _ := r.EventCreate(0)
	b, _ := r.EventCreate(0)
	r.ok(r.StreamBeginCapture(s, driver.CaptureThreadLocal))
	r.ok(r.EventRecordWithFlags(a, s, driver.EventRecordExternal))
	r.ok(r.launch(r.inc, r.word, s))
	r.ok(r.EventRecordWithFlags(b, s, driver.EventRecordExternal))
	g, err := r.StreamEndCapture(s)
	r.ok(err)
	x, err := r.GraphInstantiate(g, 0)
	r.ok(err)
	r.ok(r.GraphLaunch(x, s))
	r.ok(r.EventSynchronize(b))
	if ms, err := r.EventElapsedMs(a, b); err != nil || ms < 0 {
		t.Errorf("%v ms, %v", ms, err)
	}
	r.ok(r.StreamSynchronize(s))
}

// racyWays are programs with a join, and the same without. TestRaces runs each
// in a process of its own.
var racyWays = map[string]func(r *rig, joined bool){
	"two streams": func(r *rig, joined bool) {
		s, o := r.stream(driver.StreamNonBlocking), r.stream(driver.StreamNonBlocking)
		e, err := r.EventCreate(driver.EventDisableTiming)
		r.ok(err)
		r.ok(r.launch(r.inc, r.word, s))
		r.ok(r.EventRecord(e, s))
		time.Sleep(10 * time.Millisecond) // the first is done; only an edge is missing
		if joined {
			r.ok(r.StreamWaitEvent(o, e, 0))
		}
		r.ok(r.launch(r.inc, r.word, o))
		r.ok(r.CtxSynchronize())
	},
	"a stream and the host": func(r *rig, joined bool) {
		s := r.stream(driver.StreamNonBlocking)
		pin, err := r.MemHostAlloc(64, 0)
		r.ok(err)
		b := pin.Bytes(64)
		clear(b)
		r.ok(r.MemcpyHtoDAsync(r.word, pin.Addr(), 64, s))
		time.Sleep(10 * time.Millisecond)
		if joined {
			r.ok(r.StreamSynchronize(s))
		}
		// Other calls do not order the host after the stream.
		r.ok(r.launch(r.inc, r.word+512, s))
		r.DeviceGetCount()
		b[0] = 1
		r.ok(r.StreamSynchronize(s))
	},
	"two branches of a graph": func(r *rig, joined bool) {
		spec := driver.KernelSpec{Func: r.inc, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: new(driver.Args).Ptr(r.word)}
		g, err := r.GraphCreate()
		r.ok(err)
		a, err := r.GraphAddKernelNode(g, nil, spec)
		r.ok(err)
		b, err := r.GraphAddKernelNode(g, nil, spec)
		r.ok(err)
		if joined {
			r.ok(r.GraphAddDependencies(g, []driver.GraphNode{a}, []driver.GraphNode{b}))
		}
		x, err := r.GraphInstantiate(g, 0)
		r.ok(err)
		r.ok(r.GraphLaunch(x, 0))
		r.ok(r.CtxSynchronize())
	},
}

const racyEnv = "TRBENCH_FAKE_RACY"

func TestRaces(t *testing.T) {
	if !raceEnabled {
		t.Skip("wants -race")
	}
	if way, joined, ok := strings.Cut(os.Getenv(racyEnv), "/"); ok {
		racyWays[way](newRig(t, fake.H200(1)), joined == "true")
		return
	}
	for name := range racyWays {
		for _, joined := range []string{"true", "false"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRaces$", "-test.count=1")
			cmd.Env = append(os.Environ(), racyEnv+"="+name+"/"+joined)
			out, err := cmd.CombinedOutput()
			if seen := strings.Contains(string(out), "DATA RACE"); seen == (joined == "true") {
				t.Errorf("%s, joined %s: race seen %v (%v)\n%s", name, joined, seen, err, out)
			}
		}
	}
}

func TestParseParams(t *testing.T) {
	got, err := fake.ParseParams(" u64 f32  u32 b12 ")
	want := []fake.Param{{Kind: fake.U64}, {Kind: fake.U32}, {Kind: fake.U32}, {Kind: fake.Struct, Size: 12, Align: 4}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"u64 b", "b0", "b4x", "u16", "-"} {
		if _, err := fake.ParseParams(bad); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}
