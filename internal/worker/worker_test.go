package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/capture"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// key makes a configuration: "graph/event/device".
func key(s string) results.ConfigurationKey {
	part := strings.Split(s, "/")
	k := results.DefaultConfigurationKey()
	k.Mode, k.Sync, k.Control = part[0], part[1], part[2]
	return k
}

// everyWay are all configurations a CPU can run.
func everyWay() []results.ConfigurationKey {
	var out []results.ConfigurationKey
	for _, s := range []string{
		"eager/event/device", "eager/host/device", "eager/event/host", "eager/host/host",
		"graph/event/device", "graph/host/device", "graph/event/host", "graph/host/host",
		"step/inside/device",
	} {
		out = append(out, key(s))
	}
	return out
}

// captured are one configuration of each mode.
func eachMode() []results.ConfigurationKey {
	return []results.ConfigurationKey{key("eager/event/device"), key("graph/event/device"), key("step/inside/device")}
}

func tinySpec() workloads.Spec {
	return workloads.Spec{Model: "golden-tiny", Batch: 2, Ranks: 1, Precision: workloads.AMP, Optimizer: workloads.SGD,
		EMA: true, BeginResolution: 8, FinalResolution: 16, LastTrainBatch: 1, LastValBatch: 1}
}

func open(t testing.TB, spec workloads.Spec, dev cpu.Options, o Options) *Session {
	t.Helper()
	d := cpu.New(dev)
	w, err := workloads.New(spec, d.Target())
	if err != nil {
		t.Fatal(err)
	}
	if o.Variants == nil {
		o.Variants, o.Timed = []workloads.Variant{workloads.FinalFull}, workloads.FinalFull
	}
	if o.Seed == 0 {
		o.Seed = 7
	}
	if o.Source == nil {
		o.Source = data.NewRandom(3, w.Classes())
	}
	s, err := Open(d, w, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func executor(t testing.TB, s *Session, k results.ConfigurationKey) *Executor {
	t.Helper()
	x, err := s.Executor(k)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func state(t testing.TB, s *Session) *State {
	t.Helper()
	st, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func equal(t testing.TB, what string, got, want *State) {
	t.Helper()
	if d := got.Diff(want); d != nil {
		t.Errorf("%s: rank %d, tensor %s, element %d: %s", what, d.Rank, d.Tensor, d.Index, d.Detail)
	}
}

func TestEveryWayLeavesTheSameBits(t *testing.T) {
	for _, c := range []struct {
		name   string
		race   bool
		change func(*workloads.Spec)
	}{
		{"AMP SGD EMA", false, func(s *workloads.Spec) {}},
		{"AMP LARS EMA smoothing", false, func(s *workloads.Spec) { s.Optimizer, s.Smoothing = workloads.LARS, 0.1 }},
		{"FP32 Nesterov", true, func(s *workloads.Spec) { s.Precision, s.Optimizer, s.EMA = workloads.FP32, workloads.Nesterov, false }},
		{"frozen stem", false, func(s *workloads.Spec) { s.FreezeStem = true }},
		{"2 ranks AMP LARS EMA", true, func(s *workloads.Spec) { s.Ranks, s.Optimizer = 2, workloads.LARS }},
		{"2 ranks FP32 SGD", false, func(s *workloads.Spec) { s.Ranks, s.Precision, s.EMA = 2, workloads.FP32, false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && !c.race {
				t.Skip("the others show the same races")
			}
			spec := tinySpec()
			c.change(&spec)
			s := open(t, spec, cpu.Options{}, Options{Variants: workloads.AllVariants(), Timed: workloads.FinalFull})
			before := state(t, s)
			v, err := s.Check(context.Background(), everyWay(), 2)
			must(t, err)
			if !v.Equal || len(v.Modes) != 9 || v.Tensors == 0 || v.Bytes == 0 {
				t.Errorf("evidence %+v", v)
			}
			equal(t, "the check left the session changed", state(t, s), before)
			x := executor(t, s, key("eager/event/device"))
			must(t, x.Rehearse(2))
			if state(t, s).Diff(before) == nil {
				t.Error("the script trained nothing")
			}
		})
	}
}

func TestLoweringsAgreeOnEveryWay(t *testing.T) {
	plain := workloads.Plain
	s := open(t, tinySpec(), cpu.Options{Lowering: &plain}, Options{Variants: workloads.AllVariants(), Timed: workloads.FinalFull})
	_, err := s.Check(context.Background(), eachMode(), 2)
	must(t, err)
}

// Sums and masks inside the batch norms' backward pass change no bit.
func TestLeanLoweringIsTheFusedOne(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*workloads.Spec)
	}{
		{"AMP", func(s *workloads.Spec) {}},
		{"FP32", func(s *workloads.Spec) { s.Precision = workloads.FP32 }},
		{"frozen stem", func(s *workloads.Spec) { s.FreezeStem = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := tinySpec()
			c.change(&spec)
			want, launches := map[string]string{}, 0 // tensors have other numbers in each lowering
			for _, join := range []bool{false, true} {
				for _, mask := range []bool{false, true} {
					l := workloads.Fused
					l.FusedJoin, l.NormMask = join, mask
					s := open(t, spec, cpu.Options{Lowering: &l}, Options{})
					x := executor(t, s, key("eager/event/device"))
					must(t, s.Restore(), x.Rehearse(3))
					n, st, first := len(s.w.Nodes(workloads.DeepFwdBwd)), state(t, s), len(want) == 0
					for _, id := range s.w.State() {
						name := s.w.Tensor(id).Name
						if got := string(st.Tensor(0, name)); first {
							want[name], launches = got, n
						} else if got != want[name] {
							t.Errorf("join=%v mask=%v: %s differs", join, mask, name)
						}
					}
					if join != (n < launches) {
						t.Errorf("join=%v: %d nodes, %d with sums of their own", join, n, launches)
					}
				}
			}
		})
	}
}

func TestPreparingChangesNothing(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		spec := tinySpec()
		spec.Ranks = ranks
		s := open(t, spec, cpu.Options{}, Options{Variants: workloads.AllVariants(), Timed: workloads.FinalFull})
		before := state(t, s)
		pinned := string(s.group.Rank(0).Pinned())
		for _, k := range everyWay() {
			executor(t, s, k)
			equal(t, fmt.Sprintf("%d ranks, after preparing %s", ranks, k), state(t, s), before)
		}
		if pinned != string(s.group.Rank(0).Pinned()) {
			t.Error("the pinned halves changed")
		}
	}
}

func TestStepsCountAndRanksAgree(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		spec := tinySpec()
		spec.Ranks = ranks
		s := open(t, spec, cpu.Options{}, Options{})
		for _, k := range eachMode() {
			t.Run(fmt.Sprintf("%d ranks %s", ranks, k.Mode), func(t *testing.T) {
				x := executor(t, s, k)
				const n = 5
				must(t, s.Restore(), x.Begin(), x.Submit(n), x.Wait())
				for rank := range ranks {
					sc, err := s.Scalars(rank)
					must(t, err)
					if sc.Step != n {
						t.Errorf("rank %d: %d steps counted after %d", rank, sc.Step, n)
					}
				}
				if d := state(t, s).DiffRanks(false); d != nil {
					t.Errorf("rank %d differs from rank 0: %+v", d.Rank, d)
				}
			})
		}
	}
}

// A value frozen into a kernel's arguments would make these runs differ: the
// rates are read afresh in each step.
func TestLearningRateMoves(t *testing.T) {
	final := func(rates []float32) *State {
		spec := tinySpec()
		spec.Hyper = workloads.DefaultHyper(workloads.SGD)
		spec.Hyper.LearningRates = rates
		s := open(t, spec, cpu.Options{}, Options{})
		_, err := s.Check(context.Background(), everyWay(), 4)
		must(t, err)
		x := executor(t, s, key("step/inside/device"))
		must(t, s.Restore(), x.Begin(), x.Submit(4), x.Wait())
		sc, err := s.Scalars(0)
		must(t, err)
		if want := rates[min(3, len(rates)-1)]; sc.LR != want {
			t.Errorf("learning rate %v after 4 steps, want %v", sc.LR, want)
		}
		return state(t, s)
	}
	moved, frozen := final([]float32{0.1, 0.1, 0.01}), final([]float32{0.1})
	if string(moved.Tensor(0, "params")) == string(frozen.Tensor(0, "params")) && moved.Tensor(0, "params") != nil {
		t.Error("the schedule made no difference")
	}
}

func TestInjectedInf(t *testing.T) {
	spec := tinySpec()
	spec.Inject = true
	for _, ranks := range []int{1, 2} {
		spec.Ranks = ranks
		s := open(t, spec, cpu.Options{}, Options{})
		weights := func() string {
			st := state(t, s)
			params, ema := s.w.Tensor(s.w.Known.Params).Name, s.w.Tensor(s.w.Known.EMA).Name
			return string(st.Tensor(0, params)) + string(st.Tensor(0, ema))
		}
		var want *State
		for _, k := range everyWay() {
			x := executor(t, s, k)
			must(t, s.Restore(), x.Begin(), x.Submit(1), x.Wait())
			scale, before := s.w.Spec.Hyper.InitialScale, weights()

			must(t, s.WriteScalar(workloads.ScalarFault, math.Float32bits(float32(math.Inf(1)))))
			must(t, x.Submit(1), x.Wait())
			sc, err := s.Scalars(ranks - 1)
			must(t, err)
			if sc.Scale != scale/2 || sc.Skipped != 1 || sc.Skip != 1 || sc.Step != 2 {
				t.Errorf("%d ranks %s: after the Inf %+v", ranks, k, sc)
			}
			if weights() != before {
				t.Errorf("%d ranks %s: the skipped step moved weights", ranks, k)
			}
			if n, err := x.Skipped(); err != nil || n != 1 {
				t.Errorf("%d ranks %s: %d steps skipped, %v", ranks, k, n, err)
			}

			must(t, s.WriteScalar(workloads.ScalarFault, 0))
			must(t, x.Submit(1), x.Wait())
			if sc, err = s.Scalars(0); err != nil || sc.Scale != scale/2 || sc.Skip != 0 || sc.Skipped != 1 {
				t.Errorf("%d ranks %s: after the next step %+v, %v", ranks, k, sc, err)
			}
			if weights() == before {
				t.Errorf("%d ranks %s: the next step trained nothing", ranks, k)
			}
			if want == nil {
				want = state(t, s)
			}
			equal(t, fmt.Sprintf("%d ranks %s", ranks, k), state(t, s), want)
		}
	}
}

// A capture that breaks on one rank names the node, leaves nothing open on any
// rank, and gives no row.
func TestBrokenCapture(t *testing.T) {
	for _, c := range []struct {
		mode, node string
		rank       int
	}{
		{"graph", "DEEP_FWD_BWD/", 0}, {"graph", "UPDATE_STATS/", 1}, {"graph", "DEEP_COMM/", 1},
		{"step", "DEEP_FWD_BWD/", 1}, {"step", "OPTIMIZER/", 0},
	} {
		t.Run(fmt.Sprintf("%s %s rank %d", c.mode, c.node, c.rank), func(t *testing.T) {
			spec := tinySpec()
			spec.Ranks = 2
			// Of a node's submissions on the rank, the one of this number fails.
			var failAt atomic.Int64
			var name atomic.Pointer[string]
			var mu sync.Mutex
			seen := map[*workloads.Bound]int64{}
			hook := func(rank int, b *workloads.Bound) error {
				full := b.SubGraph.String() + "/" + b.Name
				if failAt.Load() == 0 || rank != c.rank || !strings.HasPrefix(full, c.node) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				if seen[b]++; seen[b] < failAt.Load() {
					return nil
				}
				name.CompareAndSwap(nil, &full)
				return errors.New("no such kernel")
			}
			s := open(t, spec, cpu.Options{SubmitHook: hook}, Options{})
			before := state(t, s)
			failAt.Store(2) // the first warms up, the second is captured
			k := key("graph/event/device")
			if c.mode == "step" {
				k = key("step/inside/device")
			}
			_, err := s.Executor(k)
			if err == nil || name.Load() == nil || !strings.Contains(err.Error(), *name.Load()) ||
				!strings.Contains(err.Error(), fmt.Sprintf("rank %d", c.rank)) || !strings.Contains(err.Error(), "no such kernel") {
				t.Fatalf("got %v", err)
			}
			failAt.Store(0)
			live := s.group.(*cpu.Group).Live()
			if live["graphs"] != 0 || live["execs"] != 0 {
				t.Errorf("left open: %v", live)
			}
			equal(t, "the failed capture changed memory", state(t, s), before)
			// Nothing is left capturing: the streams run.
			x := executor(t, s, key("eager/event/device"))
			must(t, x.Begin(), x.Submit(1), x.Wait())

			failAt.Store(VerifySteps + 2) // the reference's steps come first
			cell, err := RunCell(context.Background(), cpu.New(cpu.Options{SubmitHook: hook}), request(2, k))
			if cell != nil || err == nil || !strings.Contains(err.Error(), "no such kernel") || !strings.Contains(err.Error(), "capture: phase") {
				t.Errorf("a broken capture gave the row %+v, %v", cell, err)
			}
		})
	}
}

// A mode that computes something else is found before anything is timed.
func TestDisagreementIsFound(t *testing.T) {
	// The hook changes the source data by the number of transfers executed,
	// which differs from one configuration to the next.
	calls := 0
	s := open(t, tinySpec(), cpu.Options{}, Options{Feeder: func(int) walk.Feeder {
		return func(v workloads.Variant, h workloads.Half, index int64, dst []byte) error {
			calls++
			clear(dst)
			dst[0] = byte(calls)
			return nil
		}
	}, Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull})
	_, err := s.Check(context.Background(), eachMode(), 2)
	var d *bench.DisagreementError
	if !errors.As(err, &d) || d.Other.Mode != "graph" || d.Tensor == "" || d.Detail == "" {
		t.Fatalf("got %v", err)
	}
}

// The host must not fill a half that the device still reads.
func TestSlowConsumer(t *testing.T) {
	var slow atomic.Bool
	dev := cpu.Options{Hook: func(_ int, b *workloads.Bound) error {
		if slow.Load() && b.Op == workloads.OpCopyIn {
			time.Sleep(3 * time.Millisecond)
		}
		return nil
	}}
	s := open(t, tinySpec(), dev, Options{})
	for _, k := range eachMode() {
		x := executor(t, s, k)
		must(t, s.Restore(), x.Begin(), x.Submit(6), x.Wait())
		want := state(t, s)
		slow.Store(true)
		must(t, s.Restore(), x.Begin(), x.Submit(6), x.Wait())
		slow.Store(false)
		equal(t, k.String()+" with a slow consumer", state(t, s), want)
	}
}

// With a rank stopped the others end, saying who is missing.
func TestStoppedRank(t *testing.T) {
	for _, k := range eachMode() {
		t.Run(k.Mode, func(t *testing.T) {
			t.Parallel() // mostly waiting
			spec := tinySpec()
			spec.Ranks = 2
			var stop atomic.Bool
			release := make(chan bool)
			dev := cpu.Options{CollectiveTimeout: time.Second, Hook: func(rank int, b *workloads.Bound) error {
				if rank == 1 && b.SubGraph == workloads.DeepFwdBwd && stop.CompareAndSwap(true, false) {
					<-release
				}
				return nil
			}}
			s := open(t, spec, dev, Options{})
			x := executor(t, s, k)
			must(t, x.Begin())
			stop.Store(true)
			time.AfterFunc(2500*time.Millisecond, func() { close(release) })
			err := errors.Join(x.Submit(2), x.Wait())
			if err == nil || !strings.Contains(err.Error(), "did not arrive: rank 1") || !strings.Contains(err.Error(), "DEEP_FWD_BWD/") {
				t.Errorf("got %v", err)
			}
			// Once all are idle the session can be used again.
			must(t, s.Restore(), x.Begin(), x.Submit(1), x.Wait())
		})
	}
}

// A single stopped rank has nobody to time out: the session gives up.
func TestStall(t *testing.T) {
	var stop atomic.Bool
	release := make(chan bool)
	dev := cpu.Options{Hook: func(rank int, b *workloads.Bound) error {
		if b.SubGraph == workloads.DeepFwdBwd && stop.Load() {
			<-release
		}
		return nil
	}}
	d := cpu.New(dev)
	w, err := workloads.New(tinySpec(), d.Target())
	must(t, err)
	s, err := Open(d, w, Options{Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull,
		Source: data.NewRandom(1, w.Classes()), StallAfter: 100 * time.Millisecond})
	must(t, err)
	x := executor(t, s, key("eager/event/device"))
	must(t, x.Begin())
	stop.Store(true)
	err = errors.Join(x.Submit(1), x.Wait())
	var stall *StallError
	if !errors.As(err, &stall) || !strings.Contains(err.Error(), "DEEP_FWD_BWD/") {
		t.Errorf("got %v", err)
	}
	if err := x.Submit(1); !errors.As(err, &stall) {
		t.Errorf("a stuck session took work: %v", err)
	}
	must(t, s.Close())
	stop.Store(false)
	close(release) // the session then closes itself
	for range 500 {
		if err := s.group.Rank(0).Do(func() error { return nil }); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the stuck session did not close")
}

// Cancelling does not wait for a step that takes long.
func TestCancelDuringALongStep(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var slow atomic.Bool
	release := make(chan bool)
	defer close(release)
	dev := cpu.New(cpu.Options{Hook: func(_ int, b *workloads.Bound) error {
		if slow.Load() && b.SubGraph == workloads.DeepFwdBwd {
			cancel()
			<-release
		}
		return nil
	}})
	req := request(1, key("eager/event/device"))
	req.Events = func(e bench.Event) { slow.Store(strings.HasPrefix(e.Phase, "block")) }
	begin := time.Now()
	cell, err := RunCell(ctx, dev, req)
	if cell != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", cell, err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestRecapturesAreFlat(t *testing.T) {
	spec := tinySpec()
	s := open(t, spec, cpu.Options{}, Options{})
	x := executor(t, s, key("graph/event/device"))
	must(t, x.Begin())
	once := func(mode capture.Mode) {
		set, err := capture.Prepare(s.group, s.w, s.tables, capture.Config{Mode: mode, Feeders: s.feeders})
		must(t, err)
		must(t, set.Close())
	}
	n := 200
	if testing.Short() {
		n = 20
	}
	once(capture.Graph)
	once(capture.Step)
	live, goroutines := s.group.(*cpu.Group).Live(), runtime.NumGoroutine()
	for i := range n {
		once(capture.Mode(i % 2))
	}
	if got := s.group.(*cpu.Group).Live(); fmt.Sprint(got) != fmt.Sprint(live) {
		t.Errorf("after %d recaptures %v, before %v", n, got, live)
	}
	for range 50 { // goroutines of closed graphs end by themselves
		if runtime.NumGoroutine() <= goroutines {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if g := runtime.NumGoroutine(); g > goroutines {
		t.Errorf("%d goroutines after %d recaptures, %d before", g, n, goroutines)
	}
}

func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 steps")
	}
	spec := tinySpec()
	s := open(t, spec, cpu.Options{}, Options{})
	var want *State
	for _, k := range eachMode() {
		x := executor(t, s, k)
		must(t, s.Restore(), x.Begin())
		const n = 2000
		for range n / 100 {
			must(t, x.Submit(100))
		}
		must(t, x.Wait())
		sc, err := s.Scalars(0)
		must(t, err)
		if sc.Step != n {
			t.Errorf("%s: %d steps after %d", k, sc.Step, n)
		}
		if want == nil {
			want = state(t, s)
		}
		equal(t, k.String()+" after the soak", state(t, s), want)
	}
}

func TestCountsOfAStep(t *testing.T) {
	s := open(t, tinySpec(), cpu.Options{}, Options{})
	seg := workloads.Segment{Phase: workloads.TrainStep, Variant: workloads.FinalFull}
	ops, runs := int64(0), int64(0)
	for _, a := range s.w.Schedule(seg) {
		if a.Kind == workloads.ActRun {
			ops += int64(len(s.w.Bounds(a.SubGraph, seg.Variant, workloads.ControlDevice)))
			runs++
		}
	}
	for _, c := range []struct {
		key         string
		host, graph int64
	}{{"eager/event/device", ops, 0}, {"graph/event/device", runs, runs}, {"step/inside/device", 1, 1}} {
		x := executor(t, s, key(c.key))
		must(t, s.Restore(), x.Begin())
		x.Clocks()
		must(t, x.Submit(4))
		clocks := x.Clocks()
		must(t, x.Wait())
		if clocks[0].Submit <= 0 || clocks[0].Host <= 0 {
			t.Errorf("%s: clocks %+v", c.key, clocks)
		}
		got := x.Counts()
		l := got.Launches
		if *l.Host != c.host || *l.Graph != c.graph || *l.Copy != 1 || *l.Sync != 0 {
			t.Errorf("%s: host %d, graph %d, copy %d, sync %d; want %d, %d, 1, 0", c.key, *l.Host, *l.Graph, *l.Copy, *l.Sync, c.host, c.graph)
		}
		if c.graph > 0 {
			sum := int64(0)
			for _, n := range got.GraphNodes {
				sum += n
			}
			if sum != ops || *got.Kernels != got.GraphNodes["kernel"] {
				t.Errorf("%s: nodes %v, want %d", c.key, got.GraphNodes, ops)
			}
		} else if got.Kernels != nil {
			t.Errorf("%s: kernels known before anything was captured", c.key)
		}
	}
	c := executor(t, s, key("graph/event/device")).Captures()
	if c.Captures == 0 || c.Replays != c.Captures+5*runs-runs+beginRuns(s) || c.Recaptures != 0 {
		t.Errorf("captures %+v, a step has %d", c, runs)
	}
	// With host joins the same step blocks.
	x := executor(t, s, key("graph/host/host"))
	must(t, s.Restore(), x.Begin())
	x.Clocks()
	must(t, x.Submit(2))
	x.Clocks()
	must(t, x.Wait())
	if l := x.Counts().Launches; *l.Sync == 0 || *l.Graph != runs {
		t.Errorf("host joins: sync %d, graph %d", *l.Sync, *l.Graph)
	}
}

// Counts are of all that a timed step submits, whatever the variant: what is
// launched one by one, what the graphs hold, and what is copied agree.
func TestCountsBalance(t *testing.T) {
	for v := range workloads.NumVariants {
		spec := tinySpec()
		spec.LastTrainBatch, spec.LastValBatch = 1, 1
		s := open(t, spec, cpu.Options{}, Options{Variants: []workloads.Variant{v}, Timed: v})
		counts := map[string]results.Counts{}
		for _, k := range eachMode() {
			x := executor(t, s, k)
			must(t, s.Restore(), x.Begin(), x.Submit(1)) // the first of a validation differs
			x.Clocks()
			before := x.Captures()
			must(t, x.Submit(1))
			after := x.Captures()
			if x.Captures() != after || after.Replays == before.Replays && k.Mode != "eager" {
				t.Errorf("variant %d, %s: captures %+v after %+v", v, k, after, before)
			}
			x.Clocks()
			must(t, x.Wait())
			counts[k.Mode] = x.Counts()
			if got := after.Replays - before.Replays; k.Mode != "eager" && got != *counts[k.Mode].Launches.Graph {
				t.Errorf("variant %d, %s: %d replays, %d graphs launched", v, k, got, *counts[k.Mode].Launches.Graph)
			}
		}
		eager := counts["eager"].Launches
		for _, mode := range []string{"graph", "step"} {
			nodes := counts[mode].GraphNodes
			sum := int64(0)
			for _, n := range nodes {
				sum += n
			}
			if sum != *eager.Host || nodes["memcpy"] != *counts[mode].Launches.Copy || *eager.Copy != *counts[mode].Launches.Copy {
				t.Errorf("variant %d, %s: nodes %v, copies %d; eager launches %d, copies %d", v, mode, nodes, *counts[mode].Launches.Copy, *eager.Host, *eager.Copy)
			}
		}
		if got, want := *counts["step"].Launches.Graph, int64(len(StepSegments(v))); got != want {
			t.Errorf("variant %d: mode step launches %d graphs, want %d", v, got, want)
		}
	}
}

// A step on a last batch is more than a step, and the record says so.
func TestLastBatchIsSaid(t *testing.T) {
	for v, want := range map[int]bool{1: true, 2: false, 3: true, 5: false} {
		req := request(2, key("eager/event/device"))
		req.Cell.Variant = v
		cell, err := RunCell(context.Background(), cpu.New(cpu.Options{}), req)
		must(t, err)
		got := slices.ContainsFunc(cell.Warnings, func(w results.Warning) bool { return w.Code == "step_begins_epoch" })
		if got != want {
			t.Errorf("variant %d: %+v", v, cell.Warnings)
		}
		if !slices.Equal(cell.Verify.Modes, []string{"eager/event/device", "eager/event/device"}) {
			t.Errorf("one mode was compared by %v", cell.Verify.Modes)
		}
	}
}

func beginRuns(s *Session) int64 {
	n := int64(0)
	for _, a := range s.w.Schedule(workloads.Segment{Phase: workloads.EpochBegin, Variant: workloads.FinalFull}) {
		if a.Kind == workloads.ActRun {
			n++
		}
	}
	return n
}

// Eager's kernels are those of the captured configuration with its own control,
// in whatever order they were prepared: host control has one kernel less.
func TestKernelsByControl(t *testing.T) {
	spec := tinySpec()
	spec.Precision, spec.EMA = workloads.FP32, false
	for _, order := range []string{"graph/event/device graph/event/host", "graph/event/host graph/event/device", "step/inside/device graph/host/host"} {
		s := open(t, spec, cpu.Options{}, Options{})
		for _, k := range strings.Fields(order) {
			executor(t, s, key(k))
		}
		for k, want := range map[string]int64{"eager/event/device": 67, "eager/host/device": 67, "eager/event/host": 66, "graph/event/host": 66} {
			if got := executor(t, s, key(k)).Counts().Kernels; got == nil || *got != want {
				t.Errorf("%s after %s: %v kernels, want %d", k, order, got, want)
			}
		}
	}
	s := open(t, spec, cpu.Options{}, Options{})
	executor(t, s, key("graph/event/device"))
	if got := executor(t, s, key("eager/event/host")).Counts().Kernels; got != nil {
		t.Errorf("%d kernels with host control, though only device control was captured", *got)
	}
}

// The path of a step allocates nothing on the host side of any mode.
func TestStepAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	s := open(t, tinySpec(), cpu.Options{Workers: 1}, Options{Feeder: func(int) walk.Feeder {
		return func(workloads.Variant, workloads.Half, int64, []byte) error { return nil }
	}})
	for _, k := range []string{
		"eager/event/device", "eager/host/device", "eager/event/host", "graph/event/device", "graph/host/host", "step/inside/device",
	} {
		x := executor(t, s, key(k))
		must(t, s.Restore(), x.Begin())
		err := s.group.Rank(0).Do(func() error {
			r := x.runners[0]
			var failed error
			n := testing.AllocsPerRun(20, func() {
				seg := workloads.Segment{Phase: workloads.TrainStep, Half: r.Position().Half, Variant: workloads.FinalFull}
				if err := errors.Join(r.Run(seg), r.Drain()); err != nil {
					failed = err
				}
			})
			if n > 0 {
				t.Errorf("%s: %v allocations a step", k, n)
			}
			return failed
		})
		must(t, err)
	}
}

func TestStepGraphShape(t *testing.T) {
	spec := tinySpec()
	spec.Ranks, spec.Optimizer = 2, workloads.LARS
	s := open(t, spec, cpu.Options{}, Options{})
	x := executor(t, s, key("step/inside/device"))
	info := x.set.Info(workloads.Segment{Phase: workloads.TrainStep, Variant: workloads.FinalFull})
	if info.WidestSection < 2 || info.WidestSection > int(workloads.NumStreams) {
		t.Errorf("width %d with %d streams", info.WidestSection, workloads.NumStreams)
	}
	if info.CriticalPath >= info.Total() || info.CriticalPath == 0 {
		t.Errorf("critical path %d of %d nodes", info.CriticalPath, info.Total())
	}
	// What is on record of it is the same, and so is each sub-graph's.
	must(t, x.Submit(1), x.Wait())
	got := x.Counts().Graphs
	if len(got) != 1 || got[0].Name != "train_step A final/full" || got[0].Total() != int64(info.Total()) || got[0].Edges != info.Edges ||
		got[0].WidestSection != info.WidestSection || got[0].CriticalPath != info.CriticalPath {
		t.Errorf("on record is %+v, the graph is %+v", got, info)
	}
	var names []string
	for _, g := range executor(t, s, key("graph/event/device")).Counts().Graphs {
		name, variant, _ := strings.Cut(g.Name, " ")
		names = append(names, name)
		if variant != "(final/full)" || g.CriticalPath > int(g.Total()) || g.WidestSection > g.CriticalPath && g.Total() > 1 || g.Edges < g.CriticalPath-1 {
			t.Errorf("%+v", g)
		}
	}
	if len(names) < 15 || names[0] != "ZERO_GRAD" || !slices.Contains(names, "DEEP_FWD_BWD") || slices.Contains(names, "TRANSFER_A") {
		t.Errorf("a step on A launches %v", names)
	}
}

func TestValidationVariantIsTimed(t *testing.T) {
	s := open(t, tinySpec(), cpu.Options{}, Options{Variants: []workloads.Variant{workloads.ValFull}, Timed: workloads.ValFull})
	_, err := s.Check(context.Background(), everyWay(), 3)
	must(t, err)
}

func request(ranks int, keys ...results.ConfigurationKey) bench.CellRequest {
	c := results.DefaultCellKey()
	c.Workload, c.Batch, c.GPUs, c.Precision, c.EMA = "golden-tiny", 2, ranks, "amp", true
	return bench.CellRequest{Cell: c, Configurations: keys, Steps: 3, Single: 1, Warmup: new(1), Blocks: 2, Seed: 5,
		Data: data.Options{Kind: data.Random, Seed: 5}}
}

func TestRunCell(t *testing.T) {
	for _, variant := range []int{2, 3, 4, 5} {
		t.Run(fmt.Sprint("variant ", variant), func(t *testing.T) {
			if raceDetector && variant != 3 {
				t.Skip("variant 3 prepares all, and takes long enough")
			}
			req := request(2, eachMode()...)
			req.Cell.Variant = variant
			req.PrepareAll = variant == 3
			var said []string
			req.Events = func(e bench.Event) { said = append(said, e.Phase) }
			cell, err := RunCell(context.Background(), cpu.New(cpu.Options{}), req)
			must(t, err)
			if !cell.Verify.Equal || len(cell.Verify.Modes) != 3 || len(said) < 6 {
				t.Errorf("verify %+v, said %v", cell.Verify, said)
			}
			if cell.Atlas.Filled != cell.Atlas.Captured+cell.Atlas.Reused || cell.Atlas.Captured == 0 ||
				cell.ExecutionTable.Entries != 2*6*33 || cell.Memory.ArenaBytes == 0 {
				t.Errorf("%+v %+v %+v", cell.Atlas, cell.ExecutionTable, cell.Memory)
			}
			for _, c := range cell.Configurations {
				for _, d := range results.Definitions() {
					m := c.Metric(d.Name)
					if notHere(c.Key.Mode, d) {
						if m != nil {
							t.Errorf("%s: %s is %+v", c.Key, d.Name, m)
						}
						continue
					}
					if m == nil || m.N == 0 || m.Value < 0 || m.Value == 0 && d.Name != results.SyncWaitNs {
						t.Errorf("%s: %s is %+v", c.Key, d.Name, m)
					}
				}
				if c.Counts.Launches.Host == nil || c.Counts.Kernels == nil || len(c.Prepare) == 0 {
					t.Errorf("%s: %+v %+v", c.Key, c.Counts, c.Prepare)
				}
				graphs := map[string]int64{}
				for _, g := range c.Counts.Graphs {
					for kind, n := range g.Nodes {
						graphs[kind] += n
					}
				}
				if c.Key.Mode != "eager" && !maps.Equal(graphs, c.Counts.GraphNodes) || c.Key.Mode == "eager" && c.Counts.Graphs != nil {
					t.Errorf("%s: graphs %+v, nodes %v", c.Key, c.Counts.Graphs, c.Counts.GraphNodes)
				}
				for _, p := range c.Prepare { // a CPU's memory is no device's
					if p.Memory != nil {
						t.Errorf("%s: memory of %s is %v", c.Key, p.Phase, p.Memory)
					}
				}
				if (c.Key.Mode == "eager") != (c.Captures.Captures == 0) {
					t.Errorf("%s: %+v", c.Key, c.Captures)
				}
			}
		})
	}
}

// notHere says which metrics the CPU device has no figure for: those of events,
// and those of captures where nothing is captured.
func notHere(mode string, d results.Definition) bool {
	switch d.Name {
	case results.CaptureNs, results.InstantiateNs, results.UploadNs, results.FirstReplayNs:
		return mode == "eager"
	}
	return d.Clock == results.EventClock
}

func TestRunCellIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	req := request(1, eachMode()...)
	req.Events = func(e bench.Event) {
		if strings.HasPrefix(e.Phase, "block 1") {
			cancel()
		}
	}
	cell, err := RunCell(ctx, cpu.New(cpu.Options{}), req)
	if cell != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", cell, err)
	}
}

func TestRefusedConfigurations(t *testing.T) {
	s := open(t, tinySpec(), cpu.Options{}, Options{})
	for _, c := range []struct{ key, want string }{
		{"loop/event/device", "unknown mode; known: eager, graph, step"},
		{"eager/inside/device", "mode step joins inside its graph"},
		{"step/event/device", "mode step joins inside its graph"},
		{"step/inside/host", "device control only"},
		{"graph/never/device", "unknown sync"},
		{"graph/event/nobody", "unknown control"},
	} {
		if _, err := s.Executor(key(c.key)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.key, err, c.want)
		}
	}
}

func TestScriptCoversWhatIsPrepared(t *testing.T) {
	count := func(variants []workloads.Variant) string {
		var out []string
		for _, seg := range Script(variants, 2) {
			out = append(out, walk.SegmentName(seg))
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		variants []workloads.Variant
		want     string
	}{
		{[]workloads.Variant{2}, "epoch_begin A final/full, train_step A final/full, train_step B final/full, epoch_end B final/full, simple A final/full"},
		{[]workloads.Variant{0, 1}, "epoch_begin A begin/full, train_step A begin/full, train_step B begin/full, train_step A begin/last, epoch_end A begin/full, simple A begin/full"},
		{[]workloads.Variant{3}, "epoch_begin A final/last, train_step A final/last, epoch_end A final/last, epoch_begin A final/last, train_step A final/last, epoch_end A final/last, simple A final/last"},
		{[]workloads.Variant{4, 5}, "val_begin A val/full, val_batch A val/full (first), val_batch B val/full, val_batch A val/last, val_end A val/full, simple A val/full"},
	} {
		if got := count(c.variants); got != c.want {
			t.Errorf("%v:\n%s, want\n%s", c.variants, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	f := func(x float32) []byte {
		b := math.Float32bits(x)
		return []byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
	}
	for _, c := range []struct {
		d         workloads.DType
		got, want []byte
		text      string
	}{
		{workloads.F32, f(1), f(math.Nextafter32(1, 2)), "1, not 1.0000001 (1 ulp)"},
		{workloads.F32, f(float32(math.Copysign(0, -1))), f(0), "-0, not 0 (zeros of different sign)"},
		{workloads.F16, []byte{0, 0x3c}, []byte{2, 0x3c}, "bits 0x3c00, not 0x3c02 (2 ulp)"},
		{workloads.I32, []byte{1, 0, 0, 0}, []byte{255, 255, 255, 255}, "1, not -1"},
		{workloads.U8, []byte{3}, []byte{4}, "3, not 4"},
	} {
		if got := distance(c.d, c.got, c.want); got != c.text {
			t.Errorf("%s: %q, want %q", c.d, got, c.text)
		}
	}
}

var _ device.Group = (*cpu.Group)(nil)
