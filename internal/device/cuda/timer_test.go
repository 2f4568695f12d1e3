package cuda

import (
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// A hold holds every stream; the release opens it, also when the next hold
// follows at once.
func TestHold(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		timed := r.(device.Timer)
		ops := []device.Op{x.op(r, workloads.TransferA, "trans", 0), x.op(r, workloads.DeepFwdBwd, "comp1", 1), x.op(r, workloads.LARSFirstConv, "comp2", 2),
			x.op(r, workloads.LARSDeepConv, "comp3", 3), x.op(r, workloads.ZeroGrad, "update", 4)}
		ends := make([]device.Event, len(ops))
		for i, o := range ops {
			ends[i] = x.event(r, o.Bound().Name)
		}
		for round := range 5 {
			must(t, timed.Hold())
			for i, o := range ops {
				must(t, o.Submit(0), r.Record(o.Bound().SubGraph.Info().Stream, ends[i]))
			}
			time.Sleep(5 * time.Millisecond)
			for i, e := range ends {
				if done, err := e.Query(); err != nil || done {
					t.Errorf("round %d: %s ran while held: %v, %v", round, ops[i].Bound().Name, done, err)
				}
			}
			expired, err := timed.Release()
			if must(t, err); expired {
				t.Error("expired")
			}
			if round%2 == 0 {
				must(t, r.SyncAll()) // else the next hold follows at once
			}
		}
		must(t, r.SyncAll())
		for i := range ops {
			if n := x.runs(r, i); n != 5 {
				t.Errorf("operator %d ran %d times", i, n)
			}
		}
	})
}

// A hold that nobody releases opens by itself, and the release says so.
func TestHoldExpires(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the gate's timeout")
	}
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		timed := r.(device.Timer)
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		begin := time.Now()
		must(t, timed.Hold(), a.Submit(0), r.SyncAll())
		if d := time.Since(begin); d < kernels.GateTimeout*9/10 {
			t.Errorf("opened after %v", d)
		}
		expired, err := timed.Release()
		if must(t, err); !expired {
			t.Error("it did not say so")
		}
		must(t, timed.Hold())
		expired, err = timed.Release()
		if must(t, err, r.SyncAll()); expired {
			t.Error("the next one has expired as well")
		}
	})
}

// The marks stand around what is submitted between them, on all streams.
func TestMarks(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		timed := r.(device.Timer)
		if _, err := timed.Between(); err == nil {
			t.Error("a time between marks that nobody made")
		}
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		must(t, timed.MarkBegin(), timed.MarkEnd(), r.SyncAll())
		empty, err := timed.Between()
		if must(t, err); empty < 0 || empty > time.Second {
			t.Errorf("nothing took %v", empty)
		}
		must(t, timed.MarkBegin(), a.Submit(0))
		const wait = 20 * time.Millisecond
		if x.m != nil { // on another stream than the marks'
			x.m.Delay(uintptr(x.r.streams[workloads.UPDATE]), wait)
		} else {
			must(t, timed.Hold())
			time.Sleep(wait)
			_, err := timed.Release()
			must(t, err)
		}
		must(t, timed.MarkEnd())
		if _, err := timed.Between(); err == nil {
			t.Log("the marks were reached at once")
		}
		must(t, r.SyncAll())
		d, err := timed.Between()
		if must(t, err); d < wait*9/10 || d > 5*time.Second {
			t.Errorf("%v of waiting took %v", wait, d)
		}
	})
}

// A timer that cannot be made leaves nothing, and is made at the next use.
func TestTimerIsMadeWholeOrNot(t *testing.T) {
	x := fakeRig(t, nil).open()
	x.do(func(r device.Rank) {
		events := x.m.Live()["event"]
		for _, f := range []fake.Fault{{Call: "cuEventCreate", Nth: 4, Code: 2}, {Call: "cuMemHostAlloc", Code: 2}, {Call: "cuMemHostGetDevicePointer_v2", Code: 1}} {
			x.m.Fail(f)
			err := r.(device.Timer).Hold()
			x.m.ClearFaults()
			wants(t, err, nil, "rank 0", "timer", f.Call)
			if n := x.m.Live(); n["event"] != events || n["pinned"] != 1 {
				t.Errorf("%s: left %v", f.Call, n)
			}
		}
		must(t, r.(device.Timer).MarkBegin(), r.(device.Timer).MarkEnd(), r.SyncAll())
	})
}
