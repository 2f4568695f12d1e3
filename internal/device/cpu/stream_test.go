package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// One sub-graph for each stream.
var lanes = [workloads.NumStreams]workloads.SubGraph{
	workloads.TRANS: workloads.TransferA, workloads.COMP1: workloads.DeepFwdBwd, workloads.COMP2: workloads.LARSFirstConv,
	workloads.COMP3: workloads.LARSDeepConv, workloads.UPDATE: workloads.ZeroGrad,
}

func TestStreamOrderAndCounts(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		var got []int
		var ops []device.Op
		for i := range 3 {
			ops = append(ops, x.op(r, workloads.DeepFwdBwd, fmt.Sprint(i), func(*memory) { got = append(got, i) }))
		}
		for range 2 {
			for _, o := range ops {
				must(t, o.Submit(workloads.FinalLast))
			}
		}
		must(t, r.Sync(workloads.COMP1))
		if fmt.Sprint(got) != "[0 1 2 0 1 2]" {
			t.Errorf("ran %v", got)
		}
		if n := r.Executed()[workloads.FinalLast][workloads.DeepFwdBwd]; n != 6 {
			t.Errorf("counted %d", n)
		}
		if last := r.LastOp(); len(last) != 1 || last[workloads.COMP1] != "DEEP_FWD_BWD/2" {
			t.Errorf("last operators %v", last)
		}
		r.ResetExecuted()
		if r.Executed() != (device.Executed{}) {
			t.Error("counts survive a reset")
		}
		wants(t, r.Sync(workloads.HOST), nil, "not a device stream")
		wants(t, r.Record(workloads.HOST, x.event(r, "e")), nil, "not a device stream")
	})
}

func TestEventOrdersStreams(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		g := newGate()
		value, seen := 0, -1
		slow := x.op(r, workloads.DeepFwdBwd, "slow", g.run)
		write := x.op(r, workloads.DeepFwdBwd, "write", func(*memory) { value = 42 })
		read := x.op(r, workloads.ZeroGrad, "read", func(*memory) { seen = value })
		e := x.event(r, "e")
		must(t, slow.Submit(0), write.Submit(0), r.Record(workloads.COMP1, e), r.Wait(workloads.UPDATE, e), read.Submit(0))
		<-g.entered
		if done, err := e.Query(); done || err != nil {
			t.Errorf("Query says %v, %v before the point", done, err)
		}
		g.leave <- true
		must(t, r.Sync(workloads.UPDATE))
		if seen != 42 {
			t.Errorf("read %d", seen)
		}
		if done, err := e.Query(); !done || err != nil {
			t.Errorf("Query says %v, %v after it", done, err)
		}
		must(t, r.SyncAll())
	})
}

// A wait is for the record that was last when it was called: recording again,
// on another stream, neither shortens nor lengthens it.
func TestEventReuse(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		first, second := newGate(), newGate()
		e := x.event(r, "e")
		var ran atomic.Bool
		must(t,
			x.op(r, workloads.DeepFwdBwd, "first", first.run).Submit(0), r.Record(workloads.COMP1, e),
			r.Wait(workloads.TRANS, e), x.op(r, workloads.TransferA, "after", func(*memory) { ran.Store(true) }).Submit(0),
			r.Record(workloads.COMP2, e)) // reached at once; must not free TRANS
		must(t, e.Sync())
		<-first.entered
		time.Sleep(5 * time.Millisecond)
		if ran.Load() {
			t.Error("a later record freed an earlier wait")
		}
		must(t, x.op(r, workloads.ZeroGrad, "second", second.run).Submit(0), r.Record(workloads.UPDATE, e))
		first.leave <- true
		must(t, r.Sync(workloads.TRANS)) // not held by the record on UPDATE
		if done, _ := e.Query(); done {
			t.Error("the last record counts as reached")
		}
		second.leave <- true
		must(t, e.Sync(), r.SyncAll())
	})
}

func TestEventWithoutRecord(t *testing.T) {
	x := open(t, 2, Options{})
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		must(t, r.Wait(workloads.COMP1, e), e.Sync(), r.SyncAll())
		if done, err := e.Query(); !done || err != nil {
			t.Errorf("Query says %v, %v", done, err)
		}
	})
	var theirs device.Event
	must(t, x.g.Rank(1).Do(func() error { theirs = x.event(x.g.Rank(1), "theirs"); return nil }))
	x.do(func(r device.Rank) {
		wants(t, r.Record(workloads.COMP1, theirs), nil, "not of this rank")
		wants(t, r.Wait(workloads.COMP1, theirs), nil, "not of this rank")
	})
}

func TestFailureSticksToStream(t *testing.T) {
	cause := errors.New("cause")
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		ran := 0
		ok := x.op(r, workloads.DeepFwdBwd, "ok", func(*memory) { ran++ })
		bad := x.op(r, workloads.DeepFwdBwd, "bad", func(*memory) { panic(cause) })
		other := 0
		elsewhere := x.op(r, workloads.ZeroGrad, "elsewhere", func(*memory) { other++ })
		e := x.event(r, "e")
		must(t, ok.Submit(0), bad.Submit(0), ok.Submit(0), ok.Submit(0), bad.Submit(0), r.Record(workloads.COMP1, e),
			r.Wait(workloads.UPDATE, e), elsewhere.Submit(0))
		must(t, r.Sync(workloads.UPDATE), e.Sync())
		err := r.Sync(workloads.COMP1)
		wants(t, err, cause, "rank 0", "COMP_1", "execute DEEP_FWD_BWD/bad", "panic: cause", "3 operators", "skipped")
		var oe *device.OpError
		if !errors.As(err, &oe) || oe.Node != "DEEP_FWD_BWD/bad" || oe.Call != "execute" || oe.Stream != workloads.COMP1 {
			t.Errorf("typed as %+v", oe)
		}
		if ran != 1 || other != 1 {
			t.Errorf("ran %d and %d operators, want 1 and 1", ran, other)
		}
		must(t, ok.Submit(0), r.Sync(workloads.COMP1), r.SyncAll())
		if n := r.Executed()[0][workloads.DeepFwdBwd]; ran != 2 || n != 2 {
			t.Errorf("ran %d, counted %d after Sync", ran, n)
		}
	})
}

func TestSyncAllReturnsFirstInTime(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		must(t, x.op(r, workloads.ZeroGrad, "first", func(*memory) { panic("one") }).Submit(0), r.Record(workloads.UPDATE, e),
			r.Wait(workloads.TRANS, e), x.op(r, workloads.TransferA, "second", func(*memory) { panic("two") }).Submit(0))
		wants(t, r.SyncAll(), nil, "ZERO_GRAD/first")
		must(t, r.SyncAll())
	})
}

func TestHooks(t *testing.T) {
	boom := errors.New("boom")
	var submitted, executed atomic.Int32
	x := open(t, 1, Options{
		Hook: func(rank int, b *workloads.Bound) error {
			if executed.Add(1); b.Name == "late" {
				return boom
			}
			return nil
		},
		SubmitHook: func(rank int, b *workloads.Bound) error {
			if submitted.Add(1); b.Name == "early" {
				return boom
			}
			return nil
		},
	})
	x.do(func(r device.Rank) {
		must(t, x.op(r, workloads.ZeroGrad, "late", nothing).Submit(0))
		wants(t, r.Sync(workloads.UPDATE), boom, "execute ZERO_GRAD/late")
		wants(t, x.op(r, workloads.ZeroGrad, "early", nothing).Submit(0), boom, "submit ZERO_GRAD/early")
		must(t, r.SyncAll())
		if submitted.Load() != 2 || executed.Load() != 1 {
			t.Errorf("%d submitted, %d executed", submitted.Load(), executed.Load())
		}
	})
}

// The host may overwrite a pinned buffer once the event behind the transfer
// that read it is reached, however slow the consumer.
func TestPinnedBufferReuse(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		var got [20]byte
		n := 0
		copyIn := x.op(r, workloads.TransferA, "copy", func(m *memory) {
			time.Sleep(time.Millisecond)
			got[n] = m.pinned[0]
			n++
		})
		consumed := x.event(r, "consumed")
		for i := range got {
			must(t, consumed.Sync())
			r.Pinned()[0] = byte(i + 1)
			must(t, copyIn.Submit(0), r.Record(workloads.TRANS, consumed))
		}
		must(t, r.SyncAll())
		for i, b := range got {
			if int(b) != i+1 {
				t.Fatalf("batches seen: %v", got)
			}
		}
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", nothing)
		b := x.op(r, workloads.ZeroGrad, "b", nothing)
		e := x.event(r, "e")
		graph := x.fork(r, a, b)
		exec, err := graph.Instantiate()
		must(t, err)
		tests := []struct {
			name string
			f    func() error
		}{
			{"submit", func() error { return a.Submit(0) }},
			{"record and wait", func() error {
				return errors.Join(r.Record(workloads.COMP1, e), r.Wait(workloads.UPDATE, e), e.Sync())
			}},
			{"launch", func() error { return errors.Join(exec.Launch(workloads.COMP1, 0), exec.Launch(workloads.UPDATE, 0)) }},
			{"sync", r.SyncAll},
		}
		for _, tt := range tests {
			if n := testing.AllocsPerRun(200, func() { must(t, tt.f()) }); n >= 1 {
				t.Errorf("%s: %v allocations", tt.name, n)
			}
			must(t, r.SyncAll())
		}
		must(t, exec.Close(), graph.Close())
	})
}
