package bench

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// fakeSession keeps a counter as its only state and writes down what happens.
type fakeSession struct {
	value, kept int
	log         []string
	executors   map[results.ConfigurationKey]*fakeExecutor
	broken      string // the mode whose steps count double
	failing     string // the mode whose steps fail
	forgetful   bool   // restoring does nothing
}

type fakeExecutor struct {
	s   *fakeSession
	key results.ConfigurationKey
}

type fakeState int

func (s *fakeSession) Executor(k results.ConfigurationKey) (Executor, error) {
	if s.executors == nil {
		s.executors = map[results.ConfigurationKey]*fakeExecutor{}
	}
	if s.executors[k] == nil {
		s.log = append(s.log, "prepare "+k.Mode)
		s.executors[k] = &fakeExecutor{s: s, key: k}
	}
	return s.executors[k], nil
}

func (s *fakeSession) Snapshot() error { s.kept = s.value; return nil }
func (s *fakeSession) Restore() error {
	if !s.forgetful {
		s.value = s.kept
	}
	s.log = append(s.log, "restore")
	return nil
}

func (x *fakeExecutor) Begin() error { return nil }
func (x *fakeExecutor) Submit(n int) error {
	if x.s.failing == x.key.Mode {
		return errors.New("node conv1: no")
	}
	x.s.log = append(x.s.log, fmt.Sprintf("%s %d", x.key.Mode, n))
	x.s.value += n
	if x.s.broken == x.key.Mode {
		x.s.value += n
	}
	return nil
}
func (x *fakeExecutor) Wait() error            { return nil }
func (x *fakeExecutor) Rehearse(n int) error   { return x.Submit(n) }
func (x *fakeExecutor) State() (State, error)  { return fakeState(x.s.value), nil }
func (x *fakeExecutor) Clocks() []Clocks       { return []Clocks{{1, 2, 3, 8, 2}, {4, 5, 6, 17, 2}} }
func (x *fakeExecutor) Counts() results.Counts { return results.Counts{Kernels: results.Count(7)} }
func (x *fakeExecutor) Costs() []results.Phase {
	return []results.Phase{{Phase: "capture", Ns: 9, Memory: []results.PhaseMemory{{BeforeBytes: 5, AfterBytes: 6}}}}
}
func (x *fakeExecutor) Captures() results.Captures { return results.Captures{Captures: 1} }

func (s fakeState) Tensors() int { return 1 }
func (s fakeState) Bytes() int64 { return 8 }
func (s fakeState) Diff(r State) *Difference {
	if s == r.(fakeState) {
		return nil
	}
	return &Difference{Tensor: "counter", Detail: fmt.Sprintf("%d, not %d", s, r)}
}

func modes(names ...string) []results.ConfigurationKey {
	var out []results.ConfigurationKey
	for _, n := range names {
		k := results.DefaultConfigurationKey()
		k.Mode = n
		out = append(out, k)
	}
	return out
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, broken, want string }{
		{"equal", "", ""},
		{"one mode differs", "step", "tensor counter, element 0: 8, not 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &fakeSession{broken: c.broken}
			keys := modes("graph", "step")
			v, err := Check(context.Background(), s, modes("eager")[0], keys, 4)
			if c.want == "" {
				if err != nil || !v.Equal || len(v.Modes) != 3 || v.Steps != 4 || v.Bytes != 8 {
					t.Fatalf("got %+v, %v", v, err)
				}
				if s.value != 0 {
					t.Errorf("the check left the session at %d", s.value)
				}
				return
			}
			var d *DisagreementError
			if !errors.As(err, &d) || d.Other.Mode != "step" || v.Equal || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %+v, %v", v, err)
			}
		})
	}
}

// A configuration with nothing to be compared with is compared with itself.
func TestCheckAlone(t *testing.T) {
	eager := modes("eager")
	s := &fakeSession{}
	v, err := Check(t.Context(), s, eager[0], eager, 4)
	if err != nil || !v.Equal || !slices.Equal(v.Modes, []string{"eager/event/device", "eager/event/device"}) {
		t.Errorf("got %+v, %v", v, err)
	}
	if want := []string{"prepare eager", "restore", "eager 4", "restore", "eager 4", "restore"}; !slices.Equal(s.log, want) {
		t.Errorf("ran %v, want %v", s.log, want)
	}
	s = &fakeSession{forgetful: true}
	_, err = Check(t.Context(), s, eager[0], eager, 4)
	if err == nil || !strings.HasPrefix(err.Error(), "eager/event/device does not repeat itself on ") {
		t.Errorf("got %v", err)
	}
	// Dispatch is a difference, and named.
	slow := eager[0]
	slow.DispatchNs = 5
	v, err = Check(t.Context(), &fakeSession{}, eager[0], []results.ConfigurationKey{eager[0], slow}, 4)
	if err != nil || !slices.Equal(v.Modes, []string{"eager/event/device", "eager/event/device with 5 ns of dispatch"}) {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestMeasurePhasesInOrder(t *testing.T) {
	s := &fakeSession{}
	p := Schedule{Steps: 5, Blocks: 2, Warmup: new(3), Single: 2, Order: 1, Images: 8, Process: 4}
	got, err := Measure(context.Background(), s, modes("eager", "graph"), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := []string{"eager", "graph"}
	if Order(2, 2, 1)[0][0] == 1 {
		slices.Reverse(first)
	}
	want := []string{"prepare eager", "prepare graph", "restore", "eager 3", "restore", "graph 3"}
	for _, m := range []string{first[0], first[1], first[1], first[0]} {
		want = append(want, "restore", m+" 5", m+" 1", m+" 1")
	}
	want = append(want, "restore")
	if !reflect.DeepEqual(s.log, want) {
		t.Errorf("order\n%v, want\n%v", s.log, want)
	}
	for _, c := range got.Configurations {
		for name, n := range map[string]int{results.StepTimeNs: 2, results.ImagesPerS: 2, results.LatencyNs: 4,
			results.SubmitTimeNs: 8, results.SyncWaitNs: 8, results.HostTimeNs: 8, results.OuterTimeNs: 8} {
			m := c.Metric(name)
			if m == nil || m.N != n {
				t.Errorf("%s: %s has %+v, want %d samples", c.Key, name, m, n)
			}
		}
		if m := c.Metric(results.SubmitTimeNs); m.Samples[1].Rank != 1 || m.Samples[1].Value != 4 {
			t.Errorf("sample of rank 1: %+v", m.Samples[1])
		}
		if m := c.Metric(results.OuterTimeNs); m.Samples[0].Value != 6 || m.Samples[1].Value != 15 {
			t.Errorf("outer time: %+v", m.Samples[:2])
		}
		if m := c.Prepare[0].Memory; len(m) != 1 || m[0] != (results.PhaseMemory{Process: 4, BeforeBytes: 5, AfterBytes: 6}) {
			t.Errorf("%s: memory %+v", c.Key, m)
		}
		if c.Prepare[0].Ns != 9 || *c.Counts.Kernels != 7 || c.Captures.Captures != 1 {
			t.Errorf("%+v", c)
		}
	}
}

// The machine is read once, with steps running, after all that is timed: what
// they take is in no sample.
func TestReadUnderLoad(t *testing.T) {
	s := &fakeSession{}
	p := Schedule{Steps: 5, Blocks: 2, Warmup: new(3), Order: 1, Images: 8}
	if _, err := Measure(t.Context(), s, modes("eager", "graph"), p, nil); err != nil {
		t.Fatal(err)
	}
	timed := len(s.log) - 1 // without the last restore
	s = &fakeSession{}
	reads := 0
	p.Machine = func() []results.Reading {
		reads++
		return []results.Reading{{Name: "gpu.sm_clock_hz", Value: 1}}
	}
	got, err := Measure(t.Context(), s, modes("eager", "graph"), p, nil)
	if err != nil || reads != 1 || len(got.Readings) != 1 || got.Configurations[0].Metric(results.StepTimeNs).N != 2 {
		t.Fatalf("%v, %d reads, %+v", err, reads, got)
	}
	load := s.log[timed:]
	if load[0] != "restore" || load[len(load)-1] != "restore" {
		t.Errorf("%v", load[:1])
	}
	most := false
	for _, what := range load[1 : len(load)-1] {
		if !strings.HasPrefix(what, "graph ") {
			t.Fatalf("the load has %q", what)
		}
		most = most || what == "graph 5"
	}
	if !most {
		t.Error("short steps were not run several at once")
	}
	// A step that fails ends it, and a machine that is read for long does not.
	ctx, cancel := context.WithCancel(t.Context())
	p.Machine = func() []results.Reading { cancel(); <-ctx.Done(); return nil }
	if _, err := Measure(ctx, &fakeSession{}, modes("eager"), p, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// gcSession notes whether the collector is on wherever something is timed.
type gcSession struct {
	fakeSession
	on []string
}

type gcExecutor struct {
	fakeExecutor
	g *gcSession
}

func (g *gcSession) note(where string) {
	old := debug.SetGCPercent(-1)
	debug.SetGCPercent(old)
	if old != -1 {
		g.on = append(g.on, where)
	}
}

func (g *gcSession) Executor(k results.ConfigurationKey) (Executor, error) {
	return &gcExecutor{fakeExecutor{s: &g.fakeSession, key: k}, g}, nil
}

func (x *gcExecutor) Submit(n int) error                { x.g.note("submit"); return x.fakeExecutor.Submit(n) }
func (x *gcExecutor) Wait() error                       { x.g.note("wait"); return nil }
func (x *gcExecutor) MarkBegin() error                  { x.g.note("mark"); return nil }
func (x *gcExecutor) MarkEnd() error                    { x.g.note("mark"); return nil }
func (x *gcExecutor) EventTime() (time.Duration, error) { return 1, nil }
func (x *gcExecutor) LaunchOverhead(int) (time.Duration, string, error) {
	x.g.note("overhead")
	return 1, "", nil
}

// The collector is off in all that is timed, launch overhead included, and on
// again afterwards, also after a failure.
func TestNoCollectionWhileTiming(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for _, failing := range []string{"", "eager"} {
		g := &gcSession{fakeSession: fakeSession{failing: failing}}
		_, err := Measure(t.Context(), g, modes("eager"), Schedule{Steps: 2, Blocks: 2, Single: 2, Warmup: new(0)}, nil)
		if (err != nil) != (failing != "") || len(g.on) > 0 {
			t.Errorf("failing %q: on during %v, %v", failing, g.on, err)
		}
		if now := debug.SetGCPercent(100); now != 100 {
			t.Errorf("failing %q: left at %d", failing, now)
		}
	}
}

func TestMeasureStops(t *testing.T) {
	t.Run("a failing step", func(t *testing.T) {
		s := &fakeSession{failing: "graph"}
		got, err := Measure(context.Background(), s, modes("eager", "graph"), Schedule{Steps: 1, Blocks: 1, WarmupCap: 8}, nil)
		if got != nil || err == nil || !strings.Contains(err.Error(), "node conv1") {
			t.Fatalf("got %v, %v", got, err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		s := &fakeSession{}
		blocks := 0
		_, err := Measure(ctx, s, modes("eager"), Schedule{Steps: 1, Blocks: 9, Warmup: new(0)}, func(Event) {
			if blocks++; blocks == 3 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestOrder(t *testing.T) {
	got := Order(4, 6, 3)
	for b := range got {
		sorted := slices.Sorted(slices.Values(got[b]))
		if !slices.Equal(sorted, []int{0, 1, 2, 3}) {
			t.Errorf("block %d: %v", b, got[b])
		}
		if b%2 == 1 {
			back := slices.Clone(got[b])
			slices.Reverse(back)
			if !slices.Equal(back, got[b-1]) {
				t.Errorf("block %d is %v after %v", b, got[b], got[b-1])
			}
		}
	}
	if !reflect.DeepEqual(got, Order(4, 6, 3)) {
		t.Error("the same seed gave another order")
	}
}

// The GPU is read after each block, never inside one.
func TestReadAfterBlocks(t *testing.T) {
	s := &fakeSession{}
	n := 0.0
	p := Schedule{Steps: 5, Blocks: 2, Warmup: new(0), Single: 1, Order: 1, AfterBlock: func() []results.Reading {
		s.log = append(s.log, "read")
		n++
		return []results.Reading{{Name: "gpu.sm_clock_hz", Unit: "Hz", Value: n, N: 1}}
	}}
	got, err := Measure(t.Context(), s, modes("eager"), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	block := []string{"restore", "eager 5", "eager 1", "read"}
	if want := slices.Concat(block, block, []string{"restore"}); !slices.Equal(s.log[len(s.log)-len(want):], want) {
		t.Errorf("%q", s.log)
	}
	want := []results.Spread{{Name: "gpu.sm_clock_hz", Unit: "Hz", Min: 1, Median: 1.5, Max: 2, N: 2, Processes: []float64{1.5}}}
	if c := got.Configurations[0]; !reflect.DeepEqual(c.Machine, want) {
		t.Errorf("%+v, want %+v", c.Machine, want)
	}
	all := &results.Cell{}
	for process := range 3 {
		more := results.Configuration{Key: modes("eager")[0], Machine: []results.Spread{
			{Name: "gpu.sm_clock_hz", Min: 1 - float64(process), Median: 2 + float64(process), Max: 9, N: 4, Processes: []float64{2 + float64(process)}}}}
		Merge(all, &results.Cell{Configurations: []results.Configuration{more}}, results.Process{Index: process})
	}
	want = []results.Spread{{Name: "gpu.sm_clock_hz", Min: -1, Median: 3, Max: 9, N: 12, Processes: []float64{2, 3, 4}}}
	if c := all.Configurations[0]; !reflect.DeepEqual(c.Machine, want) {
		t.Errorf("%+v, want %+v", c.Machine, want)
	}
}

// skippingExecutor is one whose steps all skip in one mode, as far as the
// session's last restore.
type skippingExecutor struct{ *fakeExecutor }

func (x skippingExecutor) Skipped() (int64, error) {
	if x.key.Mode != "graph" {
		return 0, nil
	}
	return int64(x.s.value - x.s.kept), nil
}

type skippingSession struct{ fakeSession }

func (s *skippingSession) Executor(k results.ConfigurationKey) (Executor, error) {
	x, err := s.fakeSession.Executor(k)
	return skippingExecutor{x.(*fakeExecutor)}, err
}

// Timed steps that changed no weights are counted, those of the warm-up are not.
func TestSkippedStepsAreCounted(t *testing.T) {
	keys := []results.ConfigurationKey{{Mode: "eager"}, {Mode: "graph"}}
	warmup := 7
	m, err := Measure(context.Background(), &skippingSession{}, keys, Schedule{Steps: 5, Blocks: 4, Single: 3, Warmup: &warmup}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{0, 4 * (5 + 3)}; !slices.Equal(m.Skipped, want) {
		t.Errorf("skipped %v, want %v", m.Skipped, want)
	}
}
