package cuda

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

func TestCaptureExecutesNothing(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		g := x.chain(r, a, a)
		must(t, r.SyncAll())
		if n := x.runs(r, 0); n != 0 || r.Executed() != (device.Executed{}) {
			t.Errorf("%d operators ran during the capture, counted %v", n, r.Executed())
		}
		if got := g.Bounds(); len(got) != 2 || got[0] != a.Bound() || got[1] != a.Bound() {
			t.Errorf("recorded %v", got)
		}
		e, err := g.Instantiate()
		must(t, err, g.Close(), g.Close()) // execs outlive their graph
		// A capture is not bound to the stream it was made on.
		must(t, a.Submit(0), r.Sync(workloads.COMP1), e.Upload(workloads.TRANS), e.Launch(workloads.TRANS, 1), e.Launch(workloads.TRANS, 1),
			e.Launch(workloads.UPDATE, 1), r.SyncAll(), e.Close(), e.Close())
		if n := x.runs(r, 0); n != 7 {
			t.Errorf("ran %d, want 7", n)
		}
		want := device.Executed{}
		want[0][workloads.DeepFwdBwd], want[1][workloads.DeepFwdBwd] = 1, 6
		if r.Executed() != want {
			t.Errorf("counted %v", r.Executed())
		}
		wants(t, e.Launch(workloads.TRANS, 1), nil, "closed")
		_, err = g.Instantiate()
		wants(t, err, nil, "closed")
	})
}

// Each call is refused by name after node "k", spoils the capture, and is what
// EndCapture reports; afterwards the rank is as before and no handle is left.
func TestCaptureRefuses(t *testing.T) {
	x := newRig(t, nil).open()
	place := workloads.Region{Bytes: 4}
	var before, after device.Op
	var inside, real, never device.Event
	var launched device.Exec
	var kept device.Graph
	tests := []struct {
		name     string
		call     func(r device.Rank) error
		sentinel error
		words    []string
	}{
		{"sync", func(r device.Rank) error { return r.Sync(workloads.UPDATE) }, device.ErrCaptureUnsupported, []string{"Sync(UPDATE)"}},
		{"sync all", func(r device.Rank) error { return r.SyncAll() }, device.ErrCaptureUnsupported, []string{"SyncAll"}},
		{"read", func(r device.Rank) error { return r.Read(place, make([]byte, 4)) }, device.ErrCaptureUnsupported, []string{"Read(arena[0:4])"}},
		{"write", func(r device.Rank) error { return r.Write(place, make([]byte, 4)) }, device.ErrCaptureUnsupported, []string{"Write("}},
		{"fill", func(r device.Rank) error { return r.Fill(place, 1) }, device.ErrCaptureUnsupported, []string{"Fill("}},
		{"event", func(r device.Rank) error { _, err := r.NewEvent("fresh"); return err }, device.ErrCaptureUnsupported, []string{"NewEvent(fresh)"}},
		{"prepare", func(r device.Rank) error {
			_, err := r.Prepare(x.bound(workloads.ZeroGrad, "first seen in the capture", 2))
			return err
		}, device.ErrCaptureUnsupported, []string{"prepare ZERO_GRAD/first seen in the capture"}},
		{"event sync", func(device.Rank) error { return inside.Sync() }, device.ErrCaptureEvent, []string{"Event.Sync(inside)"}},
		{"event query", func(device.Rank) error { _, err := inside.Query(); return err }, device.ErrCaptureEvent, []string{"Event.Query(inside)"}},
		{"other event", func(device.Rank) error { return real.Sync() }, device.ErrCaptureUnsupported, []string{"Event.Sync(real)"}},
		{"isolation", func(r device.Rank) error { return r.Wait(workloads.COMP1, real) }, device.ErrCaptureIsolation, []string{"wait for event real behind DEEP_FWD_BWD/k"}},
		{"begin again", func(r device.Rank) error { return r.BeginCapture(workloads.TRANS, device.CaptureThreadLocal) },
			device.ErrCaptureActive, []string{"BeginCapture(TRANS)"}},
		{"end elsewhere", nil, device.ErrCaptureUnmatched, []string{"EndCapture(TRANS)"}},
		{"unjoined", nil, device.ErrCaptureUnjoined, []string{"stream UPDATE", "ZERO_GRAD/after"}},
		{"launch", func(r device.Rank) error { return launched.Launch(workloads.COMP1, 0) }, device.ErrCaptureUnsupported, []string{"Launch(COMP_1)"}},
		{"upload", func(r device.Rank) error { return launched.Upload(workloads.COMP1) }, device.ErrCaptureUnsupported, []string{"Upload(COMP_1)"}},
		{"instantiate", func(r device.Rank) error { _, err := kept.Instantiate(); return err }, device.ErrCaptureUnsupported, []string{"Instantiate"}},
		{"timing", func(r device.Rank) error { return r.(device.Timer).MarkBegin() }, device.ErrCaptureUnsupported, []string{"timing"}},
	}
	x.do(func(r device.Rank) {
		before, after = x.op(r, workloads.DeepFwdBwd, "k", 0), x.op(r, workloads.ZeroGrad, "after", 1)
		inside, real, never = x.event(r, "inside"), x.event(r, "real"), x.event(r, "never")
		must(t, r.Record(workloads.TRANS, real), r.SyncAll())
		kept = x.chain(r, before)
		var err error
		launched, err = kept.Instantiate()
		must(t, err)
	})
	handles, live := map[string]int{}, x.g.Live()
	if x.m != nil {
		handles = x.m.Live()
	}
	for _, tt := range tests {
		x.do(func(r device.Rank) {
			must(t, r.Fill(word(0), 0), r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), before.Submit(0), r.Record(workloads.COMP1, inside),
				r.Wait(workloads.COMP1, never))
			end := workloads.COMP1
			switch {
			case tt.call != nil:
				wants(t, tt.call(r), tt.sentinel, tt.words...)
				wants(t, before.Submit(0), device.ErrCaptureInvalidated, tt.words...)
				wants(t, r.Record(workloads.COMP1, inside), device.ErrCaptureInvalidated)
				wants(t, r.Wait(workloads.TRANS, inside), device.ErrCaptureInvalidated)
			case tt.sentinel == device.ErrCaptureUnjoined:
				must(t, r.Wait(workloads.UPDATE, inside), after.Submit(0))
			default:
				end = workloads.TRANS
			}
			g, err := r.EndCapture(end)
			if g != nil {
				t.Errorf("%s: a graph came out", tt.name)
			}
			wants(t, err, tt.sentinel, tt.words...)
			wants(t, err, device.ErrCaptureInvalidated, "rank 0")
			if tt.name != "prepare" && tt.name != "unjoined" {
				wants(t, err, nil, "DEEP_FWD_BWD/k")
			}
			_, err = r.EndCapture(workloads.COMP1)
			wants(t, err, device.ErrCaptureUnmatched)
			// Clean again: the event is as before the capture, work runs.
			must(t, inside.Sync(), r.Wait(workloads.TRANS, inside), before.Submit(0), r.Record(workloads.COMP1, inside), inside.Sync(), r.SyncAll())
			if n := x.runs(r, 0); n != 1 {
				t.Errorf("%s: k ran %d times", tt.name, n)
			}
			must(t, x.chain(r, before).Close())
		})
		x.idle()
	}
	x.do(func(r device.Rank) {
		if x.m != nil && tests[len(tests)-1].name == "timing" && !maps.Equal(x.m.Live(), handles) {
			t.Errorf("handles were %v, are %v", handles, x.m.Live())
		}
		must(t, launched.Close(), kept.Close())
	})
	live["graphs"], live["execs"] = 0, 0
	if !maps.Equal(x.g.Live(), live) {
		t.Errorf("live were %v, are %v", live, x.g.Live())
	}
}

// An operator whose launch fails is the one named, wherever it stands, whether
// the caller goes on regardless or not and whether the driver gave the capture
// up or not.
func TestCaptureReportsFirstFailure(t *testing.T) {
	for _, f := range []fake.Fault{
		{Call: "cuLaunchKernel", Code: 1},
		{Call: "cuLaunchKernel", Code: 701, Invalidate: true},
		{Call: "cuLaunchKernel", Code: 900},
	} {
		x := fakeRig(t, nil).open()
		x.do(func(r device.Rank) {
			var ops []device.Op
			for i := range 4 {
				ops = append(ops, x.op(r, workloads.DeepFwdBwd, fmt.Sprintf("op%d", i), i))
			}
			handles := x.m.Live()
			for k := range 4 {
				must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal))
				f.Nth = k + 1
				x.m.Fail(f)
				for _, o := range ops {
					o.Submit(0)
				}
				x.m.ClearFaults()
				r.SyncAll()
				_, err := r.EndCapture(workloads.COMP1)
				wants(t, err, driver.Result(f.Code), fmt.Sprintf("submit DEEP_FWD_BWD/op%d", k), "cuLaunchKernel")
				wants(t, err, device.ErrCaptureInvalidated)
				if n := strings.Count(err.Error(), "DEEP_FWD_BWD/op"); n != 1 || strings.Contains(err.Error(), "SyncAll") {
					t.Errorf("more than the first failure: %v", err)
				}
				if !maps.Equal(x.m.Live(), handles) {
					t.Errorf("handles were %v, are %v", handles, x.m.Live())
				}
			}
			must(t, x.chain(r, ops...).Close())
		})
		x.idle()
		must(t, x.g.Close(), x.m.Stop())
	}
}

// Of an operator of several launches the driver may have taken some: the graph
// must not pass for whole.
func TestCaptureFailsWithinAnOperator(t *testing.T) {
	x := fakeRig(t, nil).open()
	x.do(func(r device.Rank) {
		o := x.op(r, workloads.DeepFwdBwd, "two", 0).(*op)
		o.launches, o.marks = append(o.launches, o.launches[0]), append(o.marks, o.marks[0])
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal))
		x.m.Fail(fake.Fault{Call: "cuLaunchKernel", Nth: 2, Code: 1})
		wants(t, o.Submit(0), driver.InvalidValue, "submit DEEP_FWD_BWD/two")
		_, err := r.EndCapture(workloads.COMP1)
		wants(t, err, driver.InvalidValue, "submit DEEP_FWD_BWD/two")
		x.m.ClearFaults()
		g := x.chain(r, o)
		if got := g.Info().Nodes["kernel"]; got != 2 || g.Info().Ops[workloads.DeepFwdBwd] != 1 {
			t.Errorf("%+v", g.Info())
		}
		must(t, g.Close())
	})
}

// Streams that take no part are not captured, and a stream may be forked
// without receiving work.
func TestCaptureLeavesOthersAlone(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a, free := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.ZeroGrad, "free", 1)
		e, idle := x.event(r, "e"), x.event(r, "idle")
		alone := x.chain(r, free)
		replay, err := alone.Instantiate()
		must(t, err, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), r.Record(workloads.COMP1, idle),
			r.Wait(workloads.TRANS, idle), a.Submit(0), free.Submit(0), replay.Launch(workloads.UPDATE, 2), r.Record(workloads.UPDATE, e))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err, r.SyncAll())
		if x.runs(r, 0) != 0 || x.runs(r, 1) != 2 || g.Info().Total() != 1 {
			t.Errorf("the captured one ran %d, the free one %d, the graph has %d nodes", x.runs(r, 0), x.runs(r, 1), g.Info().Total())
		}
		if n := r.Executed(); n[0][workloads.ZeroGrad] != 1 || n[2][workloads.ZeroGrad] != 1 || n[0][workloads.DeepFwdBwd] != 0 {
			t.Errorf("counted %v", n)
		}
		done, err := e.Query() // recorded outside while another stream was captured
		if must(t, err, g.Close(), replay.Close(), alone.Close()); !done {
			t.Error("the event outside is not reached")
		}
	})
}

// A fork and its join become edges, and replays follow them.
func TestCaptureForks(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a, b, c := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.ZeroGrad, "b", 1), x.op(r, workloads.LARSFirstConv, "c", 2)
		out, back, back2 := x.event(r, "out"), x.event(r, "back"), x.event(r, "back2")
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0),
			r.Record(workloads.COMP1, out), r.Wait(workloads.UPDATE, out), b.Submit(0), b.Submit(0), r.Record(workloads.UPDATE, back),
			r.Wait(workloads.COMP2, out), c.Submit(0), r.Record(workloads.COMP2, back2),
			r.Wait(workloads.COMP1, back), r.Wait(workloads.COMP1, back2), a.Submit(0))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err)
		if i := g.Info(); i.Total() != 5 || i.Nodes["kernel"] != 5 || i.Edges != 6 || i.WidestSection != 2 || i.CriticalPath != 4 ||
			i.Ops[workloads.DeepFwdBwd] != 2 || i.Ops[workloads.ZeroGrad] != 2 || i.Ops[workloads.LARSFirstConv] != 1 {
			t.Errorf("%+v", i)
		}
		e, err := g.Instantiate()
		must(t, err)
		for range 3 {
			must(t, e.Launch(workloads.COMP1, 0))
		}
		must(t, r.SyncAll(), e.Close(), g.Close())
		if p, q, s := x.runs(r, 0), x.runs(r, 1), x.runs(r, 2); p != 6 || q != 6 || s != 3 {
			t.Errorf("ran %d, %d, %d times", p, q, s)
		}
	})
}

// What was recorded in a capture is outside it what it was before, also for
// streams.
func TestEventsAfterCapture(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a, b := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.ZeroGrad, "b", 1)
		fresh, used := x.event(r, "fresh"), x.event(r, "used")
		must(t, a.Submit(0), r.Record(workloads.COMP1, used))
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0), r.Record(workloads.COMP1, fresh), r.Record(workloads.COMP1, used))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err, g.Close())
		must(t, fresh.Sync(), used.Sync(), r.Wait(workloads.UPDATE, fresh), r.Wait(workloads.UPDATE, used), b.Submit(0), r.Sync(workloads.UPDATE))
		if x.runs(r, 0) != 1 || x.runs(r, 1) != 1 {
			t.Errorf("ran %d, %d times", x.runs(r, 0), x.runs(r, 1))
		}
		// In another capture it is what its last record outside made it, too.
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), r.Wait(workloads.COMP1, fresh))
		wants(t, r.Wait(workloads.COMP1, used), device.ErrCaptureIsolation, "used")
		_, err = r.EndCapture(workloads.COMP1)
		wants(t, err, device.ErrCaptureIsolation, "used")
	})
	x.idle()
}

func TestCaptureWrongThread(t *testing.T) {
	x := newRig(t, nil).open()
	wants(t, x.r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), device.ErrWrongThread)
	x.do(func(r device.Rank) { must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal)) })
	_, err := x.r.EndCapture(workloads.COMP1)
	wants(t, err, device.ErrWrongThread)
	x.do(func(r device.Rank) {
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err)
		if g.Info().Total() != 0 {
			t.Error("not empty")
		}
		must(t, g.Close())
	})
}

func TestNoSuchStream(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		g := x.chain(r, x.op(r, workloads.DeepFwdBwd, "a", 0))
		launch, err := g.Instantiate()
		must(t, err)
		for _, err := range []error{r.Sync(9), r.Record(9, e), r.Wait(9, e), r.BeginCapture(9, 0), launch.Launch(9, 0), launch.Upload(9)} {
			wants(t, err, nil, "stream number 9")
		}
		must(t, r.BeginCapture(workloads.TRANS, 0))
		_, err = r.EndCapture(9)
		wants(t, err, nil, "stream number 9")
		last, err := r.EndCapture(workloads.TRANS)
		must(t, err, last.Close(), launch.Close(), g.Close())
	})
}

// A thread that polls an event spoils a capture in global mode and is named,
// also if the event is another group's; in thread-local mode it does not
// matter.
func TestPollingThread(t *testing.T) {
	for _, mode := range []device.CaptureMode{device.CaptureThreadLocal, device.CaptureGlobal} {
		for _, foreign := range []bool{false, true} {
			base := newRig(t, nil)
			x := base.open()
			owner := x
			if foreign {
				owner = base.open()
			}
			var polled device.Event
			owner.do(func(r device.Rank) {
				polled = x.event(r, "polled")
				must(t, r.Record(workloads.TRANS, polled), r.SyncAll())
			})
			poll := func() error {
				result := make(chan error)
				go func() {
					_, err := polled.Query()
					for err == nil && mode == device.CaptureThreadLocal {
						var done bool
						if done, err = polled.Query(); done {
							break
						}
					}
					result <- err
				}()
				return <-result
			}
			x.do(func(r device.Rank) {
				a := x.op(r, workloads.DeepFwdBwd, "a", 0)
				must(t, r.BeginCapture(workloads.COMP1, mode), a.Submit(0))
				pollErr := poll()
				g, err := r.EndCapture(workloads.COMP1)
				if mode == device.CaptureThreadLocal {
					must(t, pollErr, err, g.Close())
					return
				}
				wants(t, pollErr, device.ErrCaptureUnsupported, "Event.Query(polled)")
				wants(t, err, device.ErrCaptureInvalidated, "DEEP_FWD_BWD/a", "another thread")
				if !foreign {
					wants(t, err, device.ErrCaptureUnsupported, "Event.Query(polled) from another thread")
				}
				must(t, poll(), a.Submit(0), r.SyncAll())
			})
			x.idle()
			must(t, x.g.Close(), owner.g.Close())
			if x.m != nil {
				must(t, x.m.Stop())
			}
		}
	}
}

// A poller of an event inside a capture learns that it may not, and in
// thread-local mode does no harm.
func TestPollingCapturedEvent(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		for _, mode := range []device.CaptureMode{device.CaptureThreadLocal, device.CaptureGlobal} {
			e := x.event(r, "e")
			must(t, r.BeginCapture(workloads.COMP1, mode), r.Record(workloads.COMP1, e))
			result := make(chan error)
			go func() { _, err := e.Query(); result <- err }()
			wants(t, <-result, device.ErrCaptureEvent, "Event.Query(e)")
			g, err := r.EndCapture(workloads.COMP1)
			if mode == device.CaptureThreadLocal {
				must(t, err, g.Close())
				continue
			}
			wants(t, err, device.ErrCaptureEvent, "Event.Query(e)")
			done, err := e.Query()
			if must(t, err); !done {
				t.Error("an event never recorded outside is not reached")
			}
		}
	})
}

// The collector runs in a loop, and 200 captures with their execs, failed ones
// among them, leave handles and memory as they were.
func TestRecaptures(t *testing.T) {
	x := newRig(t, nil).open()
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	x.do(func(r device.Rank) {
		a, b := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.ZeroGrad, "b", 1)
		out, back := x.event(r, "out"), x.event(r, "back")
		round := func(join bool) {
			must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0), r.Record(workloads.COMP1, out),
				r.Wait(workloads.UPDATE, out), b.Submit(0))
			if !join {
				_, err := r.EndCapture(workloads.COMP1)
				wants(t, err, device.ErrCaptureUnjoined)
				return
			}
			must(t, r.Record(workloads.UPDATE, back), r.Wait(workloads.COMP1, back))
			g, err := r.EndCapture(workloads.COMP1)
			must(t, err)
			e, err := g.Instantiate()
			must(t, err, e.Upload(workloads.COMP1), e.Launch(workloads.COMP1, 0), e.Close(), g.Close())
		}
		for range 3 {
			round(true)
		}
		must(t, r.SyncAll())
		live, handles := x.g.Live(), map[string]int{}
		free, _, err := x.api.MemGetInfo()
		must(t, err)
		if x.m != nil {
			handles = x.m.Live()
		}
		for i := range 200 {
			round(i%4 != 3)
		}
		must(t, r.SyncAll())
		if n := r.Executed()[0]; n[workloads.DeepFwdBwd] != 153 || n[workloads.ZeroGrad] != 153 {
			t.Errorf("executed %v", n)
		}
		if !maps.Equal(x.g.Live(), live) {
			t.Errorf("live were %v, are %v", live, x.g.Live())
		}
		now, _, err := x.api.MemGetInfo()
		must(t, err)
		if now != free {
			t.Errorf("%d bytes were free, %d are", free, now)
		}
		if x.m != nil && !maps.Equal(x.m.Live(), handles) {
			t.Errorf("handles were %v, are %v", handles, x.m.Live())
		}
		if x.m != nil && (x.m.AllocsInCapture() > 0 || len(x.m.LazyInCapture()) > 0) {
			t.Errorf("%d allocations in captures, lazy: %v", x.m.AllocsInCapture(), x.m.LazyInCapture())
		}
	})
}

// An allocation that some library makes on the capturing thread ends the
// capture; the message says after which node.
func TestAllocationInCapture(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0))
		if _, err := x.api.MemAlloc(256); err == nil {
			t.Error("the driver allows it")
		}
		wants(t, a.Submit(0), device.ErrCaptureInvalidated, "submit DEEP_FWD_BWD/a")
		_, err := r.EndCapture(workloads.COMP1)
		wants(t, err, device.ErrCaptureInvalidated, "DEEP_FWD_BWD/a")
	})
	x.idle()
}

// The end may fail by itself; the stream must not be left capturing.
func TestEndFails(t *testing.T) {
	x := fakeRig(t, nil).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		handles := x.m.Live()
		for _, call := range []string{"cuStreamEndCapture", "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphKernelNodeGetParams_v2", "cuFuncGetName",
			"cuFuncGetParamInfo", "cuGraphGetEdges_v2"} {
			must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0), a.Submit(0))
			x.m.Fail(fake.Fault{Call: call, Nth: 1, Code: 304})
			_, err := r.EndCapture(workloads.COMP1)
			x.m.ClearFaults()
			wants(t, err, driver.OperatingSystem, call, "EndCapture(COMP_1)")
			if !maps.Equal(x.m.Live(), handles) {
				t.Errorf("%s: handles were %v, are %v", call, handles, x.m.Live())
			}
			x.idle()
		}
		must(t, x.chain(r, a).Close(), a.Submit(0), r.SyncAll())
	})
}
