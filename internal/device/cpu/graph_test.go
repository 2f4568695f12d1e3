package cpu

import (
	"fmt"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

func TestGraphInfo(t *testing.T) {
	x := open(t, 2, Options{})
	x.do(func(r device.Rank) {
		var ops []device.Op
		for s, op := range map[workloads.Stream]workloads.Op{workloads.TRANS: workloads.OpCopyIn, workloads.COMP1: workloads.OpConv, workloads.UPDATE: workloads.OpZero} {
			b := x.bound(lanes[s], s.String(), nothing)
			b.Op = op
			o, err := r.Prepare(b)
			must(t, err)
			ops = append(ops, o)
		}
		reduce := sumOp(t, r, workloads.DeepComm, 0, 4, false)
		fork := x.event(r, "fork")
		must(t, r.BeginCapture(workloads.COMP2, device.CaptureThreadLocal), r.Record(workloads.COMP2, fork))
		for _, o := range ops { // three roots
			s := o.(*op).stream.id
			back := device.Event(newEvent(r.(*rank), "back"))
			must(t, r.Wait(s, fork), o.Submit(0), r.Record(s, back), r.Wait(workloads.COMP2, back))
			if s == workloads.UPDATE {
				must(t, reduce.Submit(0), r.Record(s, back), r.Wait(workloads.COMP2, back))
			}
		}
		// Waits for the zero and the reduction both: the first edge is implied
		// by the second, and kept, as it was asked for.
		must(t, x.opInside(r, "last").Submit(0))
		g, err := r.EndCapture(workloads.COMP2)
		must(t, err)
		i := g.Info()
		if got := fmt.Sprint(i.Nodes, i.Total(), i.Edges, i.WidestSection, i.CriticalPath); got != "map[collective:1 kernel:2 memcpy:1 memset:1] 5 5 3 3" {
			t.Errorf("graph is %s", got)
		}
		if i.Ops[workloads.DeepComm] != 1 || i.Ops[workloads.ZeroGrad] != 1 {
			t.Errorf("by sub-graph: %v", i.Ops)
		}
		must(t, g.Close())
	})
}

// opInside fabricates an operator on COMP_2 without Prepare.
func (x *bench) opInside(r device.Rank, name string) device.Op {
	b := x.bound(workloads.LARSFirstConv, name, nothing)
	rk := r.(*rank)
	return &op{b: b, rank: rk, stream: rk.streams[workloads.COMP2], run: func() {}, last: &rk.last[workloads.COMP2]}
}

func TestReplayEqualsEager(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		var v [4]int
		head := x.op(r, workloads.DeepFwdBwd, "head", func(*memory) { v[0]++ })
		side := x.op(r, workloads.ZeroGrad, "side", func(*memory) { v[1] += v[0] })
		tail := x.op(r, workloads.DeepFwdBwd, "tail", func(*memory) { v[2] += v[1] })
		g := x.fork(r, head, side, tail)
		exec, err := g.Instantiate()
		must(t, err, g.Close(), exec.Upload(workloads.COMP3)) // the exec outlives its graph
		_, err = g.Instantiate()
		wants(t, err, nil, "closed")
		for range 3 {
			must(t, exec.Launch(workloads.COMP3, workloads.BeginLast))
		}
		must(t, exec.Launch(workloads.TRANS, workloads.FinalFull), r.Sync(workloads.TRANS)) // after those on COMP_3
		if fmt.Sprint(v) != "[4 10 20 0]" {
			t.Errorf("replayed to %v", v)
		}
		n := r.Executed()
		if n[workloads.BeginLast][workloads.DeepFwdBwd] != 6 || n[workloads.BeginLast][workloads.ZeroGrad] != 3 ||
			n[workloads.FinalFull][workloads.DeepFwdBwd] != 2 || n[workloads.FinalFull][workloads.ZeroGrad] != 1 {
			t.Errorf("counts %v", n)
		}
		if last := r.LastOp(); last[workloads.COMP1] != "DEEP_FWD_BWD/tail" || last[workloads.UPDATE] != "ZERO_GRAD/side" {
			t.Errorf("last operators %v", last)
		}
		if info := exec.Info(); info.Total() != 3 || info.WidestSection != 1 || info.CriticalPath != 3 {
			t.Errorf("exec is %+v", info)
		}
		must(t, exec.Close(), exec.Close())
		wants(t, exec.Launch(workloads.COMP1, 0), nil, "closed")
	})
}

// The branches of a fork run at the same time: each waits for the other.
func TestForkIsConcurrent(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		a, b := make(chan bool), make(chan bool)
		root := x.op(r, workloads.DeepFwdBwd, "root", nothing)
		left := x.op(r, workloads.DeepFwdBwd, "left", func(*memory) { a <- true; <-b })
		right := x.op(r, workloads.ZeroGrad, "right", func(*memory) { <-a; b <- true })
		out, back := x.event(r, "out"), x.event(r, "back")
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), root.Submit(0), r.Record(workloads.COMP1, out),
			left.Submit(0), r.Wait(workloads.UPDATE, out), right.Submit(0), r.Record(workloads.UPDATE, back), r.Wait(workloads.COMP1, back))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err)
		if i := g.Info(); i.WidestSection != 2 || i.CriticalPath != 2 || i.Edges != 2 {
			t.Errorf("fork is %+v", i)
		}
		exec, err := g.Instantiate()
		must(t, err)
		for range 20 {
			must(t, exec.Launch(workloads.COMP1, 0))
		}
		must(t, r.SyncAll(), exec.Close(), g.Close())
	})
}

func TestReplayOrdersAgainstStream(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		n, seen := 0, 0
		set := x.op(r, workloads.DeepFwdBwd, "set", func(*memory) { n = 10 })
		side := x.op(r, workloads.ZeroGrad, "side", func(*memory) { n++ })
		head := x.op(r, workloads.DeepFwdBwd, "head", nothing)
		read := x.op(r, workloads.DeepFwdBwd, "read", func(*memory) { seen = n })
		g := x.fork(r, head, side)
		exec, err := g.Instantiate()
		must(t, err, set.Submit(0), exec.Launch(workloads.COMP1, 0), read.Submit(0), r.Sync(workloads.COMP1))
		if seen != 11 {
			t.Errorf("read %d after the replay", seen)
		}
	})
}

func TestReplayFailure(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		fail, ran := true, 0
		head := x.op(r, workloads.DeepFwdBwd, "head", nothing)
		side := x.op(r, workloads.ZeroGrad, "side", func(*memory) {
			if fail {
				panic("once")
			}
		})
		tail := x.op(r, workloads.DeepFwdBwd, "tail", func(*memory) { ran++ })
		g := x.fork(r, head, side, tail)
		exec, err := g.Instantiate()
		must(t, err, exec.Launch(workloads.COMP1, 0), exec.Launch(workloads.COMP1, 0))
		wants(t, r.Sync(workloads.COMP1), nil, "rank 0, stream UPDATE: execute ZERO_GRAD/side", "3 operators")
		fail = false
		must(t, exec.Launch(workloads.COMP1, 0), r.SyncAll())
		if n := r.Executed()[0]; n[workloads.ZeroGrad] != 1 || n[workloads.DeepFwdBwd] != 4 || ran != 2 {
			t.Errorf("counted %d and %d, tail ran %d", n[workloads.ZeroGrad], n[workloads.DeepFwdBwd], ran)
		}
		must(t, exec.Close(), g.Close())
	})
}

func TestExecCloseWaits(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		gt := newGate()
		ran := false
		g := x.chain(r, x.op(r, workloads.DeepFwdBwd, "slow", gt.run), x.op(r, workloads.DeepFwdBwd, "end", func(*memory) { ran = true }))
		exec, err := g.Instantiate()
		must(t, err, exec.Launch(workloads.COMP1, 0))
		go func() { <-gt.entered; gt.leave <- true }()
		must(t, exec.Close())
		if !ran {
			t.Error("closed under a launch")
		}
	})
}

func TestEmptyGraph(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err)
		exec, err := g.Instantiate()
		must(t, err, exec.Launch(workloads.COMP1, 0), r.SyncAll(), exec.Close(), g.Close())
	})
}
