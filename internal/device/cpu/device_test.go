package cpu

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// bench is a group whose operators are functions of the test.
type bench struct {
	t  *testing.T
	g  *Group
	mu sync.Mutex
	fn map[*workloads.Bound]func(*memory)
}

const testArena = 4096

func open(t *testing.T, ranks int, opts Options) *bench {
	t.Helper()
	x := &bench{t: t, fn: map[*workloads.Bound]func(*memory){}}
	d := New(opts)
	d.compile = func(b *workloads.Bound, mem *memory, st *stream) (func(), error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		f, ok := x.fn[b]
		if !ok {
			return nil, errors.New("unknown to the test")
		}
		return func() { f(mem) }, nil
	}
	w := &workloads.Workload{Spec: workloads.Spec{Ranks: ranks}, ArenaBytes: testArena, PinnedBytes: 1024}
	g, err := d.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	x.g = g.(*Group)
	t.Cleanup(func() { x.g.Close() })
	return x
}

// bound makes a node of the sub-graph that runs f.
func (x *bench) bound(id workloads.SubGraph, name string, f func(*memory)) *workloads.Bound {
	b := &workloads.Bound{Node: &workloads.Node{Name: name, Op: workloads.OpChain}, SubGraph: id}
	x.mu.Lock()
	x.fn[b] = f
	x.mu.Unlock()
	return b
}

// op prepares such a node; it is called on the rank's thread.
func (x *bench) op(r device.Rank, id workloads.SubGraph, name string, f func(*memory)) device.Op {
	x.t.Helper()
	o, err := r.Prepare(x.bound(id, name, f))
	must(x.t, err)
	return o
}

func (x *bench) event(r device.Rank, name string) device.Event {
	x.t.Helper()
	e, err := r.NewEvent(name)
	must(x.t, err)
	return e
}

// do runs f on rank 0.
func (x *bench) do(f func(r device.Rank)) {
	x.t.Helper()
	must(x.t, x.g.Rank(0).Do(func() error { f(x.g.Rank(0)); return nil }))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wants checks that err wraps the sentinel (if any) and mentions the words.
func wants(t *testing.T, err, sentinel error, words ...string) {
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

func nothing(*memory) {}

// gate is an operator that waits until the test lets it go.
type gate struct{ entered, leave chan bool }

func newGate() gate { return gate{make(chan bool, 1), make(chan bool)} }

func (g gate) run(*memory) {
	g.entered <- true
	<-g.leave
}

// settles waits for goroutines that have been told to end.
func settles(t *testing.T, limit int) {
	t.Helper()
	var n int
	for range 200 {
		if n = runtime.NumGoroutine(); n <= limit {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, want at most %d\n%s", n, limit, buf[:runtime.Stack(buf, true)])
}

func TestOpenRefuses(t *testing.T) {
	for _, ranks := range []int{-1, 0, MaxRanks + 1} {
		_, err := New(Options{}).Open(&workloads.Workload{Spec: workloads.Spec{Ranks: ranks}})
		wants(t, err, nil, fmt.Sprint(ranks))
	}
}

func TestTarget(t *testing.T) {
	if got := New(Options{}).Target().Lowering; got != workloads.Fused {
		t.Errorf("default lowering %+v", got)
	}
	if got := New(Options{Lowering: &workloads.Plain}).Target().Lowering; got != workloads.Plain {
		t.Errorf("plain lowering %+v", got)
	}
}

func TestMemory(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		if v := floats(r.(*rank).mem.arena)[7]; !math.IsNaN(float64(v)) {
			t.Errorf("fresh arena holds %v", v)
		}
		if h := uint16(r.(*rank).mem.arena[0]) | uint16(r.(*rank).mem.arena[1])<<8; h&0x7c00 != 0x7c00 || h&0x3ff == 0 {
			t.Errorf("fresh arena holds the half %#x, not a NaN", h)
		}
		for _, b := range r.Pinned() {
			if b != 0 {
				t.Fatal("fresh pinned memory is not zero")
			}
		}
		in := workloads.Region{Off: 256, Bytes: 4}
		must(t, r.Write(in, []byte{1, 2, 3, 4}))
		got := make([]byte, 4)
		must(t, r.Read(in, got))
		if string(got) != "\x01\x02\x03\x04" {
			t.Errorf("read back %v", got)
		}
		r.Pinned()[9] = 7
		must(t, r.Read(workloads.Region{Space: workloads.Pinned, Off: 9, Bytes: 1}, got[:1]))
		if got[0] != 7 {
			t.Errorf("pinned reads %d", got[0])
		}
		wants(t, r.Read(in, got[:3]), nil, "Read", "3 bytes")
		wants(t, r.Write(workloads.Region{Off: testArena - 2, Bytes: 4}, got), nil, "Write", "outside")
		wants(t, r.Write(workloads.Region{Off: -4, Bytes: 4}, got), nil, "outside")
	})
}

func TestThreads(t *testing.T) {
	x := open(t, 3, Options{})
	must(t, x.g.Each(func(r device.Rank) error {
		for i := range 3 {
			if here := x.g.Rank(i).(*rank).here(); here != (i == r.ID()) {
				t.Errorf("on rank %d's thread, rank %d says here: %v", r.ID(), i, here)
			}
		}
		return r.Do(func() error { return nil }) // nested
	}))
	if x.g.Rank(0).(*rank).here() {
		t.Error("the test runs on a rank's thread")
	}
	err := x.g.Each(func(r device.Rank) error {
		switch r.ID() {
		case 0:
			return errors.New("apples")
		case 1:
			panic("pears")
		}
		runtime.Goexit()
		return nil
	})
	wants(t, err, nil, "rank 0: apples", "rank 1: ", "panic: pears", "rank 2: ", "Goexit")
	must(t, x.g.Each(func(device.Rank) error { return nil }))
}

func TestPrepareAudits(t *testing.T) {
	at := func(off, n int64) workloads.Region { return workloads.Region{Off: off, Bytes: n} }
	tests := []struct {
		name string
		edit func(*workloads.Bound)
		want []string // nothing: legal
	}{
		{"inside", func(b *workloads.Bound) {
			b.In = []workloads.Operand{{Name: "x", Region: at(0, testArena)}}
			b.Writes = []workloads.Region{{Space: workloads.Pinned, Off: 1024, Bytes: 0}}
		}, nil},
		{"in", func(b *workloads.Bound) { b.In = []workloads.Operand{{}, {Name: "w", Region: at(testArena, 1)}} }, []string{"operand w (in 1)", "outside"}},
		{"out", func(b *workloads.Bound) { b.Out = []workloads.Operand{{Name: "y", Region: at(1, testArena)}} }, []string{"operand y (out 0)"}},
		{"wrap", func(b *workloads.Bound) { b.Out = []workloads.Operand{{Name: "y", Region: at(math.MaxInt64, 8)}} }, []string{"operand y"}},
		{"pinned", func(b *workloads.Bound) {
			b.In = []workloads.Operand{{Name: "p", Region: workloads.Region{Space: workloads.Pinned, Off: 1000, Bytes: 25}}}
		}, []string{"operand p", "pinned"}},
		{"space", func(b *workloads.Bound) { b.Reads = []workloads.Region{{Space: 9}} }, []string{"read 0", "space 9"}},
		{"scratch", func(b *workloads.Bound) { b.Scratch = at(-1, 4) }, []string{"scratch"}},
		{"write", func(b *workloads.Bound) { b.Writes = []workloads.Region{at(0, 4), at(0, -4)} }, []string{"write 1"}},
	}
	x := open(t, 1, Options{})
	for sealed := range 2 {
		x.do(func(r device.Rank) {
			for _, tt := range tests {
				b := x.bound(workloads.DeepFwdBwd, tt.name, nothing)
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
		})
		x.g.Seal()
	}
}

func TestPrepareUnknownKernel(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		b := x.bound(workloads.ZeroGrad, "odd", nothing)
		delete(x.fn, b)
		_, err := r.Prepare(b)
		wants(t, err, nil, "ZERO_GRAD/odd", "unknown to the test")
		if n := x.g.Live()["ops"]; n != 0 {
			t.Errorf("%d operators live", n)
		}
	})
}

func TestCloseReleasesAll(t *testing.T) {
	before := runtime.NumGoroutine()
	x := open(t, 2, Options{})
	must(t, x.g.Each(func(r device.Rank) error {
		a := x.op(r, workloads.DeepFwdBwd, "a", nothing)
		b := x.op(r, workloads.ZeroGrad, "b", nothing)
		graph := x.fork(r, a, b)
		exec, err := graph.Instantiate()
		must(t, err, exec.Launch(workloads.COMP1, 0))
		return nil
	}))
	x.do(func(r device.Rank) { must(t, r.BeginCapture(workloads.TRANS, device.CaptureGlobal)) }) // left open
	must(t, x.g.Close(), x.g.Close())
	for k, n := range x.g.Live() {
		if n != 0 {
			t.Errorf("%d %s live after Close", n, k)
		}
	}
	wants(t, x.g.Rank(0).Do(func() error { return nil }), device.ErrClosed)
	wants(t, x.g.Each(func(device.Rank) error { return nil }), device.ErrClosed, "rank 1")
	if n := x.g.dev.strict.Load(); n != 0 {
		t.Errorf("%d captures still watched", n)
	}
	settles(t, before)
}

func TestCloseReturnsFailure(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		must(t, x.op(r, workloads.ZeroGrad, "bad", func(*memory) { panic("late") }).Submit(0))
	})
	wants(t, x.g.Close(), nil, "ZERO_GRAD/bad", "late")
	must(t, x.g.Close())
}
