package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// chain captures operators of one stream.
func (x *bench) chain(r device.Rank, ops ...device.Op) device.Graph {
	x.t.Helper()
	s := ops[0].(*op).stream.id
	must(x.t, r.BeginCapture(s, device.CaptureThreadLocal))
	for _, o := range ops {
		must(x.t, o.Submit(0))
	}
	g, err := r.EndCapture(s)
	must(x.t, err)
	return g
}

// fork captures head, then side on its own stream, then the tail after both.
func (x *bench) fork(r device.Rank, head, side device.Op, tail ...device.Op) device.Graph {
	x.t.Helper()
	out, back := x.event(r, "out"), x.event(r, "back")
	s, d := head.(*op).stream.id, side.(*op).stream.id
	must(x.t, r.BeginCapture(s, device.CaptureThreadLocal), head.Submit(0), r.Record(s, out), r.Wait(d, out), side.Submit(0),
		r.Record(d, back), r.Wait(s, back))
	for _, o := range tail {
		must(x.t, o.Submit(0))
	}
	g, err := r.EndCapture(s)
	must(x.t, err)
	return g
}

func TestCaptureExecutesNothing(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		ran := 0
		a := x.op(r, workloads.DeepFwdBwd, "a", func(*memory) { ran++ })
		g := x.chain(r, a, a)
		must(t, r.SyncAll())
		if ran != 0 || r.Executed() != (device.Executed{}) {
			t.Errorf("%d operators ran during the capture", ran)
		}
		if got := g.Bounds(); len(got) != 2 || got[0] != a.Bound() || got[1] != a.Bound() {
			t.Errorf("recorded %v", got)
		}
		must(t, a.Submit(0), r.SyncAll(), g.Close(), g.Close())
		if ran != 1 {
			t.Errorf("ran %d after the capture, want 1", ran)
		}
	})
}

// Each call is refused by name after node "k", spoils the capture, and is what
// EndCapture reports; afterwards the rank is as before.
func TestCaptureRefuses(t *testing.T) {
	x := open(t, 1, Options{})
	outside := workloads.Region{Bytes: 4}
	var before, after device.Op
	var inside, real, never device.Event
	tests := []struct {
		name     string
		call     func(r device.Rank) error
		sentinel error
		words    []string
	}{
		{"sync", func(r device.Rank) error { return r.Sync(workloads.UPDATE) }, device.ErrCaptureUnsupported, []string{"Sync(UPDATE)"}},
		{"sync all", func(r device.Rank) error { return r.SyncAll() }, device.ErrCaptureUnsupported, []string{"SyncAll"}},
		{"fill", func(r device.Rank) error { return r.Fill(outside, 1) }, device.ErrCaptureUnsupported, []string{"Fill(arena[0:4])"}},
		{"read", func(r device.Rank) error { return r.Read(outside, make([]byte, 4)) }, device.ErrCaptureUnsupported, []string{"Read(arena[0:4])"}},
		{"write", func(r device.Rank) error { return r.Write(outside, make([]byte, 4)) }, device.ErrCaptureUnsupported, []string{"Write("}},
		{"event", func(r device.Rank) error { _, err := r.NewEvent("fresh"); return err }, device.ErrCaptureUnsupported, []string{"NewEvent(fresh)"}},
		{"prepare", func(r device.Rank) error {
			_, err := r.Prepare(x.bound(workloads.ZeroGrad, "first seen in the capture", nothing))
			return err
		}, device.ErrCaptureUnsupported, []string{"prepare ZERO_GRAD/first seen in the capture"}},
		{"event sync", func(device.Rank) error { return inside.Sync() }, device.ErrCaptureEvent, []string{"Event.Sync(inside)"}},
		{"event query", func(device.Rank) error { _, err := inside.Query(); return err }, device.ErrCaptureEvent, []string{"Event.Query(inside)"}},
		{"other event", func(device.Rank) error { return real.Sync() }, device.ErrCaptureUnsupported, []string{"Event.Sync(real)"}},
		{"isolation", func(r device.Rank) error { return r.Wait(workloads.COMP1, real) }, device.ErrCaptureIsolation, []string{"Wait(COMP_1, real)"}},
		{"begin again", func(r device.Rank) error { return r.BeginCapture(workloads.TRANS, device.CaptureThreadLocal) },
			device.ErrCaptureActive, []string{"BeginCapture(TRANS)"}},
		{"end elsewhere", nil, device.ErrCaptureUnmatched, []string{"EndCapture(TRANS)"}},
		{"unjoined", nil, device.ErrCaptureUnjoined, []string{"stream UPDATE", "ZERO_GRAD/after"}},
		{"launch", func(r device.Rank) error {
			return (&exec{rank: r.(*rank)}).Launch(workloads.COMP1, 0)
		}, device.ErrCaptureUnsupported, []string{"Launch(COMP_1)"}},
		{"instantiate", func(r device.Rank) error {
			_, err := (&graph{rank: r.(*rank)}).Instantiate()
			return err
		}, device.ErrCaptureUnsupported, []string{"Instantiate"}},
	}
	x.do(func(r device.Rank) {
		before = x.op(r, workloads.DeepFwdBwd, "k", nothing)
		after = x.op(r, workloads.ZeroGrad, "after", nothing)
		inside, real, never = x.event(r, "inside"), x.event(r, "real"), x.event(r, "never")
		must(t, r.Record(workloads.TRANS, real), r.SyncAll())
	})
	for _, tt := range tests {
		x.do(func(r device.Rank) {
			must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), before.Submit(0), r.Record(workloads.COMP1, inside),
				r.Wait(workloads.COMP1, never))
			end := workloads.COMP1
			switch {
			case tt.call != nil:
				wants(t, tt.call(r), tt.sentinel, tt.words...)
				wants(t, before.Submit(0), device.ErrCaptureInvalidated, tt.words...)
				wants(t, r.Record(workloads.COMP1, inside), device.ErrCaptureInvalidated)
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
			must(t, x.chain(r, before).Close())
		})
	}
	if n := x.g.Live(); n["graphs"] != 0 || n["execs"] != 0 {
		t.Errorf("left behind: %v", n)
	}
}

func TestCaptureReportsFirstFailure(t *testing.T) {
	for k := range 4 {
		boom := errors.New("boom")
		var calls []string
		x := open(t, 1, Options{SubmitHook: func(_ int, b *workloads.Bound) error {
			calls = append(calls, b.Name)
			if len(calls) >= k+1 {
				return boom
			}
			return nil
		}})
		x.do(func(r device.Rank) {
			var ops []device.Op
			for i := range 4 {
				ops = append(ops, x.op(r, workloads.DeepFwdBwd, fmt.Sprintf("op%d", i), nothing))
			}
			must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal))
			for _, o := range ops {
				o.Submit(0) // a caller that goes on regardless
			}
			r.SyncAll()
			_, err := r.EndCapture(workloads.COMP1)
			wants(t, err, boom, fmt.Sprintf("submit DEEP_FWD_BWD/op%d", k))
			if n := strings.Count(err.Error(), "DEEP_FWD_BWD/op"); n != 1 || strings.Contains(err.Error(), "SyncAll") {
				t.Errorf("more than the first failure: %v", err)
			}
		})
	}
}

// Streams that take no part are not captured, and a stream may be forked
// without receiving work.
func TestCaptureLeavesOthersAlone(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		ran := 0
		a := x.op(r, workloads.DeepFwdBwd, "a", nothing)
		free := x.op(r, workloads.ZeroGrad, "free", func(*memory) { ran++ })
		e, idle := x.event(r, "e"), x.event(r, "idle")
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), r.Record(workloads.COMP1, idle),
			r.Wait(workloads.TRANS, idle), a.Submit(0), free.Submit(0), r.Record(workloads.UPDATE, e))
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err, r.SyncAll())
		if ran != 1 || g.Info().Total() != 1 {
			t.Errorf("the free stream ran %d, the graph has %d nodes", ran, g.Info().Total())
		}
		must(t, g.Close())
	})
}

func TestCaptureWrongThread(t *testing.T) {
	x := open(t, 1, Options{})
	r := x.g.Rank(0)
	wants(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), device.ErrWrongThread)
	x.do(func(r device.Rank) { must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal)) })
	_, err := r.EndCapture(workloads.COMP1)
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

// A thread that polls an event spoils a capture in global mode and is named;
// in thread-local mode it does not matter.
func TestPollingThread(t *testing.T) {
	for _, mode := range []device.CaptureMode{device.CaptureThreadLocal, device.CaptureGlobal} {
		x := open(t, 2, Options{})
		var polled device.Event
		must(t, x.g.Rank(1).Do(func() error { polled = x.event(x.g.Rank(1), "polled"); return nil }))
		poll := func() error {
			result := make(chan error)
			go func() { _, err := polled.Query(); result <- err }()
			return <-result
		}
		x.do(func(r device.Rank) {
			a := x.op(r, workloads.DeepFwdBwd, "a", nothing)
			must(t, r.BeginCapture(workloads.COMP1, mode), a.Submit(0))
			pollErr := poll()
			readErr := x.g.Rank(1).Do(func() error { return x.g.Rank(1).Sync(workloads.TRANS) })
			g, err := r.EndCapture(workloads.COMP1)
			if mode == device.CaptureThreadLocal {
				must(t, pollErr, readErr, err, g.Close())
				return
			}
			wants(t, pollErr, device.ErrCaptureUnsupported, "Event.Query(polled)")
			wants(t, readErr, device.ErrCaptureUnsupported, "Sync(TRANS) on rank 1")
			wants(t, err, device.ErrCaptureInvalidated, "Event.Query(polled) from another thread", "DEEP_FWD_BWD/a")
			if strings.Contains(err.Error(), "Sync(TRANS)") {
				t.Errorf("names more than the first call: %v", err)
			}
			must(t, poll())
		})
	}
}

// A poller of an event inside a capture learns that it may not, and in
// thread-local mode does no harm.
func TestPollingCapturedEvent(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), r.Record(workloads.COMP1, e))
		result := make(chan error)
		go func() { _, err := e.Query(); result <- err }()
		wants(t, <-result, device.ErrCaptureEvent, "Event.Query(e)")
		g, err := r.EndCapture(workloads.COMP1)
		must(t, err, g.Close())
	})
}

func TestRecaptures(t *testing.T) {
	x := open(t, 1, Options{})
	stop, stopped := make(chan bool), make(chan bool)
	go func() { // nothing the collector does may disturb a capture
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
	x.do(func(r device.Rank) {
		n := 0
		a := x.op(r, workloads.DeepFwdBwd, "a", func(*memory) { n++ })
		b := x.op(r, workloads.ZeroGrad, "b", nothing)
		fork := func(bool) device.Graph { return x.fork(r, a, b) }
		fork(true).Close()
		goroutines := runtime.NumGoroutine()
		out, back := x.event(r, "out"), x.event(r, "back")
		live := fmt.Sprint(x.g.Live())
		for i := range 200 {
			must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0), r.Record(workloads.COMP1, out),
				r.Wait(workloads.UPDATE, out), b.Submit(0))
			if i%4 == 3 { // an unjoined one, now and then
				_, err := r.EndCapture(workloads.COMP1)
				wants(t, err, device.ErrCaptureUnjoined)
				continue
			}
			must(t, r.Record(workloads.UPDATE, back), r.Wait(workloads.COMP1, back))
			g, err := r.EndCapture(workloads.COMP1)
			must(t, err)
			exec, err := g.Instantiate()
			must(t, err, exec.Launch(workloads.COMP1, 0), exec.Close(), g.Close())
		}
		must(t, r.SyncAll())
		if n != 150 {
			t.Errorf("replayed %d times", n)
		}
		if now := fmt.Sprint(x.g.Live()); now != live {
			t.Errorf("handles were %s, are %s", live, now)
		}
		settles(t, goroutines)
	})
	close(stop)
	<-stopped
}
