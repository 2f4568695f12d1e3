package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// base is the true step time of eager; graph takes four fifths of it.
const base = 100 * time.Millisecond

func truth(k results.ConfigurationKey) float64 {
	if k.Mode == "eager" {
		return 1
	}
	return 0.8
}

// steady is a world with a little noise in every block, where extra changes
// what it wants to.
func steady(extra func(moment) float64) *synthetic {
	return &synthetic{clock: &fakeClock{}, step: func(m moment) time.Duration {
		kind := uint64(len(m.key.String()))
		f := noise(0.001, kind, uint64(m.process), uint64(m.block+5), uint64(m.step))
		if extra != nil {
			f *= extra(m)
		}
		return time.Duration(float64(base) * truth(m.key) * f)
	}}
}

func runPlan(t *testing.T, w *synthetic, p Plan) *results.Record {
	t.Helper()
	r := &results.Record{}
	run := Run{Plan: p, Record: r, Replicate: w.replicate, Clock: w.clock}
	if err := run.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func codes(c results.Cell) []string {
	var out []string
	for _, w := range c.Warnings {
		out = append(out, w.Code)
	}
	return out
}

// A row never contradicts itself: images per second are the images of a step
// over its time, in the figure, its interval and each process, also where
// blocks and processes are even in number.
func TestRateFollowsStepTime(t *testing.T) {
	for _, processes := range []int{1, 2, 3, 8} {
		w := steady(func(m moment) float64 { return 1 + 0.5*float64(m.block&1) + 0.3*float64(m.process&1) })
		cell := runPlan(t, w, syntheticPlan(processes, 2, configurationKey("eager", "event"))).Cells[0]
		rate, step := cell.Configurations[0].Metric(results.ImagesPerS), cell.Configurations[0].Metric(results.StepTimeNs)
		at := func(ns float64) float64 { return float64(cell.Key.Batch*cell.Key.GPUs) * 1e9 / ns }
		if rate.Value != at(step.Value) || rate.Summary.Median != rate.Value || rate.N != 2*processes {
			t.Errorf("%d processes: %v images/s of steps of %v ns", processes, rate.Value, step.Value)
		}
		for i, v := range step.Summary.Processes {
			if rate.Summary.Processes[i] != at(v) {
				t.Errorf("process %d of %d: %v images/s of steps of %v ns", i, processes, rate.Summary.Processes[i], v)
			}
		}
		if i := step.Summary.Interval; i != nil && (rate.Summary.Interval.Low != at(i.High) || rate.Summary.Interval.High != at(i.Low)) {
			t.Errorf("%d processes: interval %+v of %+v", processes, rate.Summary.Interval, i)
		}
	}
}

// Worlds with a known truth: the figures come out right, the interval has the
// ratio in it, and the doubt is named.
func TestKnownTruth(t *testing.T) {
	pair := []results.ConfigurationKey{configurationKey("eager", "event"), configurationKey("graph", "event")}
	for _, c := range []struct {
		name      string
		processes int
		blocks    int
		extra     func(moment) float64
		codes     []string
		off       float64 // how far medians may be from the truth
	}{
		{"steady", 3, 8, nil, nil, 0.002},
		{"drift", 3, 8, func(m moment) float64 { return 1 + 0.01*float64(max(m.block, 0)) }, []string{"drift"}, 0.06},
		{"slow first block", 3, 8, func(m moment) float64 {
			if m.block == 0 {
				return 1.09
			}
			return 1
		}, []string{"slow_first_block"}, 0.002},
		{"bimodal blocks", 3, 12, func(m moment) float64 { return 1 + 0.08*float64(m.block>>1&1) }, []string{"bimodal"}, 0.06},
		{"bimodal processes", 8, 4, func(m moment) float64 { return 1 + 0.04*float64(m.process&1) }, []string{"bimodal"}, 0.03},
		{"an outlier", 3, 8, func(m moment) float64 {
			if m.block == 3 && m.process == 1 {
				return 3
			}
			return 1
		}, []string{"outliers"}, 0.002},
		{"processes differ", 3, 4, func(m moment) float64 { return 1 + 0.05*float64(m.process) }, []string{"processes_differ"}, 0.06},
		{"two processes", 2, 4, nil, []string{"few_processes"}, 0.002},
		{"two blocks", 3, 2, nil, []string{"few_blocks"}, 0.002},
		{"endless warm-up", 3, 4, func(m moment) float64 {
			if m.block < 0 {
				return 1 + 0.01*float64(m.step)
			}
			return 1
		}, []string{"warmup_cap"}, 0.002},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell := runPlan(t, steady(c.extra), syntheticPlan(c.processes, c.blocks, pair...)).Cells[0]
			if got := codes(cell); !slices.Equal(got, c.codes) {
				t.Errorf("doubts %v, want %v: %+v", got, c.codes, cell.Warnings)
			}
			for _, x := range cell.Configurations {
				want := float64(base) * truth(x.Key)
				for _, name := range []string{results.StepTimeNs, results.LatencyNs} {
					if m := x.Metric(name); !near(m.Value/want, 1, c.off) {
						t.Errorf("%s: %s is %v, want %v", x.Key, name, m.Value, want)
					}
				}
				if m := x.Metric(results.SubmitTimeNs); !near(m.Value/(want*0.075), 1, c.off) {
					t.Errorf("%s: submit time %v", x.Key, m.Value)
				}
				if m := x.Metric(results.LaunchCostNs); !near(m.Value/(want*0.0075), 1, c.off) {
					t.Errorf("%s: launch cost %v", x.Key, m.Value)
				}
				if m := x.Metric(results.CPUTimeNs); !near(m.Value/(want*0.2), 1, c.off) {
					t.Errorf("%s: CPU time %v", x.Key, m.Value)
				}
				if m := x.Metric(results.PrepareNs); m.Value != 30 || x.Metric(results.CaptureNs).Value != 22 || len(x.Prepare[1].Processes) != c.processes {
					t.Errorf("%s: prepare %+v %+v", x.Key, m, x.Prepare)
				}
			}
			r := cell.Headline.Ratio
			if r == nil || !near(r.Value, 1.25, 0.003) || !(r.Interval.Low < 1.2512 && r.Interval.High > 1.2488) {
				t.Fatalf("headline %+v", cell.Headline)
			}
			if (r.Bootstrap != nil) != (c.processes >= BootstrapFrom) || len(r.Logs) != c.processes {
				t.Errorf("ratio %+v", r)
			}
		})
	}
}

// A step time that settles is waited for, and no longer.
func TestWarmUpFollowsTheSteps(t *testing.T) {
	pair := []results.ConfigurationKey{configurationKey("eager", "event"), configurationKey("graph", "event")}
	for _, c := range []struct {
		name        string
		scale       float64 // of the decay, in steps
		least, most int
	}{{"at once", 0.01, 8, 12}, {"slowly", 5, 16, 40}} {
		t.Run(c.name, func(t *testing.T) {
			w := steady(func(m moment) float64 { return 1 + 0.5*math.Exp(-float64(m.step)/c.scale) })
			for _, x := range runPlan(t, w, syntheticPlan(3, 4, pair...)).Cells[0].Configurations {
				for _, u := range x.Warmup {
					if u.Steps < c.least || u.Steps > c.most || u.Capped {
						t.Errorf("%s: %+v", x.Key, u)
					}
				}
				if len(x.Warmup) != 3 || x.Warmup[2].Process != 2 {
					t.Errorf("%s: %+v", x.Key, x.Warmup)
				}
			}
		})
	}
	t.Run("fixed", func(t *testing.T) {
		p := syntheticPlan(3, 8, pair...)
		p.Warmup = new(2)
		w := steady(func(m moment) float64 {
			if m.block == 0 {
				return 1.09
			}
			return 1
		})
		cell := runPlan(t, w, p).Cells[0]
		if x := cell.Configurations[0].Warmup[0]; x.Steps != 2 || x.Capped {
			t.Errorf("%+v", x)
		}
		// The advice fits the flags.
		if len(cell.Warnings) != 1 || !strings.Contains(cell.Warnings[0].Text, "--warmup=2 was too short") {
			t.Errorf("%+v", cell.Warnings)
		}
	})
}

func TestEventsAndOverhead(t *testing.T) {
	p := syntheticPlan(3, 4, configurationKey("eager", "event"), configurationKey("graph", "event"))
	w := steady(nil)
	w.events = func(d time.Duration) time.Duration { return d * 95 / 100 }
	w.overhead = 7 * time.Microsecond
	cell := runPlan(t, w, p).Cells[0]
	if got := codes(cell); !slices.Equal(got, []string{"clocks_disagree"}) {
		t.Errorf("doubts %v", cell.Warnings)
	}
	x := cell.Configurations[0]
	if m := x.Metric(results.StepTimeEventsNs); m == nil || m.Clock != results.EventClock || m.N != 12 {
		t.Errorf("%+v", m)
	}
	if m := x.Metric(results.LaunchOverheadNs); m == nil || m.Value != 7000 || len(x.Absent) != 0 {
		t.Errorf("%+v, absent %+v", m, x.Absent)
	}
	w = steady(nil)
	w.events, w.why = func(d time.Duration) time.Duration { return d }, "joins are on the host"
	x = runPlan(t, w, p).Cells[0].Configurations[0]
	if x.Metric(results.LaunchOverheadNs) != nil || len(x.Absent) != 1 || x.Absent[0].Why != w.why {
		t.Errorf("absent %+v", x.Absent)
	}
}

func TestClocksThatDoNotAddUp(t *testing.T) {
	p := syntheticPlan(3, 4, configurationKey("eager", "event"), configurationKey("graph", "event"))
	for _, c := range []struct {
		step, outer time.Duration
		from        int
		want        string
	}{
		{base, 0, 0, ""},
		{base, base / 10 / 100, 0, ""},
		{base, base / 10 / 20, 0, "eager/event/device misses 4.8 % of what a clock around a submission saw in 3 of 3 processes, " +
			"graph/event/device misses 5.9 % of what a clock around a submission saw in 3 of 3 processes; do not read"},
		{base, base / 10 / 20, 2, "eager/event/device misses 4.8 % of what a clock around a submission saw in 1 of 3 processes, "},
		// The clock around saw 95 of 100: the parts are 5/95 more.
		{base, -base / 10 / 20, 0, "eager/event/device misses -5.3 % of what"},
		// 15 and 21 % of a microsecond: the first is what caches take.
		{10 * time.Microsecond, 180, 0, ""},
		{10 * time.Microsecond, 270, 0, "eager/event/device misses 21."},
	} {
		w := &synthetic{clock: &fakeClock{}, step: func(m moment) time.Duration { return time.Duration(float64(c.step) * truth(m.key)) }}
		w.outer, w.outerFrom = c.outer, c.from
		cell := runPlan(t, w, p).Cells[0]
		if got := codes(cell); (c.want == "") != (len(got) == 0) || len(got) > 1 || len(got) == 1 && !strings.HasPrefix(cell.Warnings[0].Text, c.want) {
			t.Errorf("outer %v more: %+v, want %q", c.outer, cell.Warnings, c.want)
		}
		if m := cell.Configurations[0].Metric(results.OuterTimeNs); m == nil || m.N != 24 || c.outer == 0 && m.Value != float64(base/10) {
			t.Errorf("outer time %+v", m)
		}
	}
}

// What several processes warn of in the same words is said once, and counted;
// the same kind of doubt about another configuration is another doubt.
func TestWarningsAreMerged(t *testing.T) {
	of := func(kernels int64, warnings ...string) *results.Cell {
		c := &results.Cell{}
		for _, k := range modes("eager", "graph") {
			c.Configurations = append(c.Configurations, results.Configuration{Key: k, Counts: results.Counts{Kernels: results.Count(kernels)}})
		}
		for _, w := range warnings {
			c.Warnings = append(c.Warnings, results.Warning{Code: "odd", Text: w})
		}
		return c
	}
	var c results.Cell
	Merge(&c, of(1, "eager is odd"), results.Process{Index: 0})
	Merge(&c, of(2, "eager is odd", "graph is odd"), results.Process{Index: 1})
	Merge(&c, of(3, "graph is odd"), results.Process{Index: 2})
	var got []string
	for _, w := range c.Warnings {
		got = append(got, fmt.Sprintf("%s %.14s %d", w.Code, w.Text, w.Processes))
	}
	slices.Sort(got)
	want := []string{"counts_differ eager/event/de 2", "counts_differ graph/event/de 2", "odd eager is odd 2", "odd graph is odd 2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSplit(t *testing.T) {
	corners := map[string]float64{"eager/host": 2, "eager/event": 1.6, "graph/host": 1.2, "graph/event": 1.1, "step/inside": 1}
	world := func() *synthetic {
		return &synthetic{clock: &fakeClock{}, step: func(m moment) time.Duration {
			return time.Duration(float64(base) * corners[m.key.Mode+"/"+m.key.Sync])
		}}
	}
	all := []results.ConfigurationKey{configurationKey("eager", "event"), configurationKey("eager", "host"), configurationKey("graph", "event"), configurationKey("graph", "host")}
	for _, c := range []struct {
		keys                 []results.ConfigurationKey
		best                 string
		total, joins, launch float64
		interaction          float64 // fewer joins when captured over fewer joins when eager
	}{
		{all, "graph/event/device", 2 / 1.1, math.Sqrt(2 / 1.6 * 1.2 / 1.1), math.Sqrt(2 / 1.2 * 1.6 / 1.1), (1.2 / 1.1) / (2 / 1.6)},
		{append(slices.Clone(all), configurationKey("step", "inside")), "step/inside/device", 2, math.Sqrt(2 / 1.6 * 1.2), math.Sqrt(2 / 1.2 * 1.6), 1.2 / (2 / 1.6)},
	} {
		h := runPlan(t, world(), syntheticPlan(3, 4, c.keys...)).Cells[0].Headline
		if h.Ratio == nil || h.Ratio.Other.String() != c.best || h.Split == nil {
			t.Fatalf("%s: %+v", c.best, h)
		}
		s := h.Split
		if !near(s.Total.Value, c.total, 1e-6) || !near(s.Joins.Value, c.joins, 1e-6) || !near(s.Launches.Value, c.launch, 1e-6) {
			t.Errorf("%s: total %v, joins %v, launches %v", c.best, s.Total.Value, s.Joins.Value, s.Launches.Value)
		}
		if want := c.interaction; !near(s.Interaction.Value, want, 1e-6) {
			t.Errorf("%s: interaction %v, want %v", c.best, s.Interaction.Value, want)
		}
		if !near(s.Joins.Value*s.Launches.Value, s.Total.Value, 1e-9) {
			t.Error("the parts are not the whole")
		}
	}
	h := runPlan(t, world(), syntheticPlan(3, 4, all[:3]...)).Cells[0].Headline
	if h.Ratio == nil || h.Split != nil || !strings.Contains(h.SplitWithheld, "graph/host/device was not run") {
		t.Errorf("a corner is missing: %+v", h)
	}
}

func TestHeadlineIsWithheld(t *testing.T) {
	eager, graph := configurationKey("eager", "event"), configurationKey("graph", "event")
	for _, c := range []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{"CPU", func(p *Plan) { p.Cells[0].Device = "cpu" }, "a CPU record shows the method"},
		{"no captured mode", func(p *Plan) { p.Configurations = p.Configurations[:1] }, "no captured mode"},
		{"no eager", func(p *Plan) { p.Configurations = p.Configurations[1:] }, "eager/event/device was not run"},
		{"one process", func(p *Plan) { p.Processes = 1 }, "one process"},
	} {
		p := syntheticPlan(3, 4, eager, graph)
		c.change(&p)
		h := runPlan(t, steady(nil), p).Cells[0].Headline
		if h.Ratio != nil || !strings.Contains(h.Withheld, c.want) {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

func TestDispatchIsComparedWithCaptured(t *testing.T) {
	slow := configurationKey("eager", "event")
	slow.DispatchNs = 5000
	cell := runPlan(t, steady(nil), syntheticPlan(3, 4, configurationKey("eager", "event"), slow, configurationKey("graph", "event"))).Cells[0]
	found := false
	for _, r := range cell.Ratios {
		found = found || r.Base == slow && r.Other.Mode == "graph" && r.Metric == results.StepTimeNs
	}
	if !found || cell.Headline.Ratio.Base.DispatchNs != 0 {
		t.Errorf("ratios %+v", cell.Ratios)
	}
}

// Two launchers are two eager rows: the project's own is the one that others
// are compared with, in whatever order they ran, and a split is of one launcher.
func TestSecondLauncher(t *testing.T) {
	other := func(mode, sync string) results.ConfigurationKey {
		k := configurationKey(mode, sync)
		k.Launcher = "gorgonia"
		return k
	}
	times := map[string]float64{
		"eager/event/device": 1.6, "eager/host/device": 2, "graph/event/device": 1, "graph/host/device": 1.25,
		"eager/event/device/gorgonia": 3.2, "eager/host/device/gorgonia": 5,
	}
	run := func(keys ...results.ConfigurationKey) *results.Cell {
		w := &synthetic{clock: &fakeClock{}, step: func(m moment) time.Duration {
			return time.Duration(float64(base) * times[m.key.String()])
		}}
		return &runPlan(t, w, syntheticPlan(3, 4, keys...)).Cells[0]
	}
	captured := []results.ConfigurationKey{configurationKey("graph", "event"), configurationKey("graph", "host")}
	own := []results.ConfigurationKey{configurationKey("eager", "event"), configurationKey("eager", "host")}
	second := []results.ConfigurationKey{other("eager", "event"), other("eager", "host")}
	for name, c := range map[string]struct {
		keys         []results.ConfigurationKey
		base         string
		ratio, total float64
	}{
		"both":         {slices.Concat(second, own, captured), "eager/event/device", 1.6, 2},
		"second alone": {slices.Concat(second, captured), "eager/event/device/gorgonia", 3.2, 5},
	} {
		cell := run(c.keys...)
		h := cell.Headline
		if h.Ratio == nil || h.Split == nil || h.Ratio.Base.String() != c.base || !near(h.Ratio.Value, c.ratio, 1e-6) || !near(h.Split.Total.Value, c.total, 1e-6) {
			t.Errorf("%s: %+v", name, h)
		}
		n := 0
		for _, r := range cell.Ratios {
			if r.Metric == results.StepTimeNs && r.Base == own[0] && r.Other == second[0] && near(r.Value, .5, 1e-6) {
				n++
			}
		}
		if (n == 1) != (name == "both") {
			t.Errorf("%s: launchers are compared %d times", name, n)
		}
	}
	h := run(slices.Concat(second, own[:1], captured)...).Headline
	if h.Split != nil || !strings.Contains(h.SplitWithheld, "eager/host/device was not run") {
		t.Errorf("a split over two launchers: %+v", h)
	}
}

// A budget leaves out blocks, never replicates, and says so.
func TestBudget(t *testing.T) {
	p := syntheticPlan(3, 20, configurationKey("eager", "event"), configurationKey("graph", "event"))
	whole := runPlan(t, steady(nil), p)
	all := int64(0)
	for _, q := range whole.Cells[0].Processes {
		all += q.Ns
	}
	for _, share := range []float64{0.5, 0.01} {
		p.BudgetNs = int64(share * float64(all))
		record := runPlan(t, steady(nil), p)
		cell := record.Cells[0]
		took := int64(0)
		for _, q := range cell.Processes {
			took += q.Ns
			if q.Blocks < LeastBlocks || q.Blocks >= 20 || q.Blocks%2 != 0 {
				t.Errorf("budget %v: %d blocks", share, q.Blocks)
			}
		}
		if len(cell.Processes) != 3 || !slices.Contains(codes(cell), "budget") {
			t.Errorf("budget %v: %d processes, doubts %v", share, len(cell.Processes), codes(cell))
		}
		if share > 0.1 && float64(took) > 1.02*float64(p.BudgetNs) {
			t.Errorf("budget %v was overrun: %v of %v", share, took, p.BudgetNs)
		}
		// The least plan may take longer, and the record says by how much;
		// what it leaves out is never warm-up.
		want := ""
		if over := float64(took - p.BudgetNs); over > 0.05*float64(p.BudgetNs) {
			want = fmt.Sprintf("%.1f s longer than --budget=%v:", over/1e9, time.Duration(p.BudgetNs))
		}
		if n := len(record.Warnings); (want == "") != (share == 0.5) || (want == "") != (n == 0) || n == 1 && !strings.Contains(record.Warnings[0].Text, want) {
			t.Errorf("budget %v: %+v, want %q", share, record.Warnings, want)
		}
		for i, x := range cell.Configurations {
			for j, u := range x.Warmup {
				if u != whole.Cells[0].Configurations[i].Warmup[j] && j == 0 || u.Steps < warmWindow {
					t.Errorf("budget %v: %s was warmed up for %+v", share, x.Key, u)
				}
			}
		}
	}
}

// The budget is of the whole run: one that is resumed has what is left.
func TestBudgetGoesOn(t *testing.T) {
	p := syntheticPlan(3, 20, configurationKey("eager", "event"))
	p.BudgetNs = int64(20 * time.Second)
	r := &results.Record{}
	w := steady(nil)
	ctx, cancel := context.WithCancel(t.Context())
	run := Run{Plan: p, Record: r, Clock: w.clock, Replicate: w.replicate, Store: func(*results.Record) error { cancel(); return nil }}
	if err := run.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first := time.Duration(r.Cells[0].Processes[0].Ns)
	w.clock.now += time.Hour // nobody was waiting
	var shares []time.Duration
	again := Run{Plan: p, Record: r, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
		shares = append(shares, req.Time)
		return w.replicate(ctx, req)
	}}
	if err := again.Do(t.Context()); err != nil || len(r.Warnings) != 0 {
		t.Fatal(err, r.Warnings)
	}
	if len(shares) != 2 || shares[0] != (20*time.Second-first)/2 {
		t.Errorf("%v after %v of 20 s", shares, first)
	}
}

// Short steps are warmed up for a least time as well, and for longer than the
// cap's number of steps before they are given up.
func TestWarmUpOfShortSteps(t *testing.T) {
	for _, c := range []struct {
		name        string
		step        func(moment) time.Duration
		least, most time.Duration
		capped      bool
	}{
		{"steady", func(moment) time.Duration { return 4 * time.Microsecond }, 50 * time.Millisecond, 51 * time.Millisecond, false},
		// Slower by two millionths of its first time with each step.
		{"drifting", func(m moment) time.Duration {
			return 4*time.Microsecond + time.Duration(m.step)*8/1000
		}, 400 * time.Millisecond, 405 * time.Millisecond, true},
		{"no time at all", func(moment) time.Duration { return 0 }, 0, 0, false},
	} {
		w := &synthetic{clock: &fakeClock{}, step: c.step}
		s := &syntheticSession{world: w, made: map[results.ConfigurationKey]Executor{}}
		p := Schedule{Steps: 1, Blocks: 1, WarmupCap: WarmupCap, Clock: w.clock}
		var began, ended time.Duration
		got, err := Measure(t.Context(), s, []results.ConfigurationKey{configurationKey("eager", "event")}, p, func(e Event) {
			if strings.HasPrefix(e.Phase, "warm up") {
				began = w.clock.now
			} else if ended == 0 {
				ended = w.clock.now
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if u := got.Configurations[0].Warmup[0]; ended-began < c.least || ended-began > c.most || u.Capped != c.capped || u.Steps < warmWindow {
			t.Errorf("%s: %v, %+v", c.name, ended-began, u)
		}
	}
}

// A cap below a window does not mean a trend: none was measured.
func TestCapClaimsNoTrend(t *testing.T) {
	p := syntheticPlan(3, 4, configurationKey("eager", "event"))
	p.WarmupCap = 1
	cell := runPlan(t, steady(nil), p).Cells[0]
	if u := cell.Configurations[0].Warmup[0]; u.Steps != warmWindow || u.Capped || len(cell.Warnings) > 0 {
		t.Errorf("%+v, %+v", u, cell.Warnings)
	}
	// Falling at the last question, after 8 steps, and flat over the 8 before
	// the cap: what ended in between claims no trend either.
	p.WarmupCap = 11
	cell = runPlan(t, steady(func(m moment) float64 { return max(1, 1.5-0.1*float64(m.step)) }), p).Cells[0]
	if u := cell.Configurations[0].Warmup[0]; u.Steps != 11 || u.Capped {
		t.Errorf("%+v", u)
	}
}

// What is finished is neither lost nor repeated, wherever a run is interrupted.
func TestResume(t *testing.T) {
	p := syntheticPlan(3, 2, configurationKey("eager", "event"), configurationKey("graph", "event"))
	second := p.Cells[0]
	second.Batch = 8
	p.Cells = append(p.Cells, second)
	want := runPlan(t, steady(nil), p)
	for stop := range 6 {
		r := &results.Record{}
		w := steady(nil)
		ran := map[string]int{}
		ctx, cancel := context.WithCancel(t.Context())
		run := Run{Plan: p, Record: r, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
			if len(ran) == stop {
				cancel()
				return Replicate{}, errors.New("killed")
			}
			ran[fmt.Sprint(req.Cell.Batch, req.Process)]++
			return w.replicate(ctx, req)
		}}
		if err := run.Do(ctx); !errors.Is(err, context.Canceled) || r.Status != results.Incomplete {
			t.Fatalf("stopped before %d: %v, %s", stop, err, r.Status)
		}
		again := Run{Plan: Plan(*r.Plan), Record: r, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
			ran[fmt.Sprint(req.Cell.Batch, req.Process)]++
			return w.replicate(ctx, req)
		}}
		if err := again.Do(t.Context()); err != nil || r.Status != results.Complete {
			t.Fatal(err)
		}
		for k, n := range ran {
			if n != 1 {
				t.Errorf("stopped before %d: replicate %s ran %d times", stop, k, n)
			}
		}
		if len(ran) != 6 {
			t.Errorf("stopped before %d: %d replicates ran", stop, len(ran))
		}
		for i := range want.Cells {
			a, b := want.Cells[i].Configurations[0].Metric(results.StepTimeNs), r.Cells[i].Configurations[0].Metric(results.StepTimeNs)
			if !slices.Equal(a.Samples, b.Samples) || a.Summary.Median != b.Summary.Median {
				t.Errorf("stopped before %d: the samples differ from an uninterrupted run's", stop)
			}
		}
	}
}

func TestFailedReplicate(t *testing.T) {
	p := syntheticPlan(3, 2, configurationKey("eager", "event"), configurationKey("graph", "event"))
	second := p.Cells[0]
	second.Batch = 8
	p.Cells = append(p.Cells, second)
	w := steady(nil)
	r := &results.Record{}
	broken := true
	stored := 0
	run := Run{Plan: p, Record: r, Clock: w.clock, Store: func(*results.Record) error { stored++; return nil },
		Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
			if broken && req.Cell.Batch == 4 && req.Process == 1 {
				return Replicate{PID: 9}, &DeathError{State: "signal: killed", Stderr: "out of memory"}
			}
			return w.replicate(ctx, req)
		}}
	var failed *FailedError
	if err := run.Do(t.Context()); !errors.As(err, &failed) || failed.Failed != 1 || failed.Cells != 2 {
		t.Fatal(err)
	}
	c := r.Cells[0]
	if c.Status != results.Failed || !strings.HasSuffix(c.Failure, "out of memory") || len(c.Processes) != 2 || c.Processes[1].PID != 9 {
		t.Errorf("%s %q %+v", c.Status, c.Failure, c.Processes)
	}
	if c.Configurations[0].Metric(results.StepTimeNs).N != 2 || c.Headline.Withheld != "the cell failed" {
		t.Errorf("the finished process is lost: %+v", c.Headline)
	}
	if r.Cells[1].Status != results.Done || len(r.Cells[1].Processes) != 3 || stored != 6 {
		t.Errorf("the other cell: %+v, stored %d times", r.Cells[1].Processes, stored)
	}
	broken = false
	if err := run.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := r.Cells[0]; c.Status != results.Done || c.Failure != "" || len(c.Processes) != 3 || c.Headline.Ratio == nil {
		t.Errorf("after another try: %+v", c.Processes)
	}
}

func TestDisagreementEndsTheRun(t *testing.T) {
	p := syntheticPlan(3, 2, configurationKey("eager", "event"))
	run := Run{Plan: p, Record: &results.Record{}, Replicate: func(context.Context, CellRequest) (Replicate, error) {
		return Replicate{}, &DisagreementError{Tensor: "params"}
	}}
	var d *DisagreementError
	if err := run.Do(t.Context()); !errors.As(err, &d) || len(run.Record.Cells) != 0 {
		t.Errorf("%v, %+v", err, run.Record.Cells)
	}
}

func TestProgressEnds(t *testing.T) {
	p := syntheticPlan(3, 4, configurationKey("eager", "event"), configurationKey("graph", "event"))
	w := steady(nil)
	last, done := 0.0, 0
	run := Run{Plan: p, Record: &results.Record{}, Replicate: w.replicate, Clock: w.clock, Watch: func(q Progress) {
		if q.Done < last {
			t.Errorf("progress went back from %v to %v at %s", last, q.Done, q.Phase)
		}
		last = q.Done
		if q.CellDone {
			done++
			if len(q.Estimates) != 2 || !near(q.Estimates[0].StepNs/float64(base), 1, 0.01) {
				t.Errorf("estimates %+v", q.Estimates)
			}
		}
	}}
	if err := run.Do(t.Context()); err != nil || last != 1 || done != 1 {
		t.Errorf("%v; ended at %v, %d cells", err, last, done)
	}
}

// The estimates of a resumed run are of the cell they stand beside: from the
// record where it was finished before, and of all its blocks where it goes on.
func TestProgressAfterResume(t *testing.T) {
	r := interrupted(t, nil)
	w := &synthetic{clock: &fakeClock{}, step: func(moment) time.Duration { return 7 * time.Millisecond }}
	type end struct {
		eager, graph float64 // ms
		kept         bool
	}
	var got []end
	var blocks []int
	run := Run{Plan: Plan(*r.Plan), Record: r, Clock: w.clock, Replicate: w.replicate, Watch: func(q Progress) {
		if !q.CellDone {
			if q.Kept {
				t.Error("kept while it runs")
			}
			blocks = append(blocks, q.Estimates[0].Blocks)
			return
		}
		if len(q.Estimates) != 2 {
			t.Fatalf("%+v", q)
		}
		got = append(got, end{math.Round(q.Estimates[0].StepNs / 1e6), math.Round(q.Estimates[1].StepNs / 1e6), q.Kept})
	}}
	// The record's steps are 100 and 80 ms in both cells; the first cell is made
	// to differ. The second has four blocks and gets two of 7 ms.
	for i, s := range r.Cells[0].Configurations[0].Metric(results.StepTimeNs).Samples {
		r.Cells[0].Configurations[0].Metric(results.StepTimeNs).Samples[i].Value = 2 * s.Value
	}
	if err := run.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []end{{200, 80, true}, {100, 80, false}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if slices.Min(blocks) != 4 || slices.Max(blocks) != 6 {
		t.Errorf("blocks %v", blocks)
	}
	// What a replicate measured that then failed is no estimate of the cell.
	p := syntheticPlan(1, 2, configurationKey("eager", "event"))
	failed := 0
	run = Run{Plan: p, Record: &results.Record{}, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
		_, err := w.replicate(ctx, req)
		return Replicate{}, errors.Join(err, errors.New("died after all"))
	}, Watch: func(q Progress) {
		if q.CellDone {
			failed += 1 + len(q.Estimates)
			if q.Kept {
				t.Error("a failed cell is kept")
			}
		}
	}}
	if err := run.Do(t.Context()); err == nil || failed != 1 {
		t.Errorf("%v, %d", err, failed)
	}
}

// No loop is as long as a number that nobody checked.
func TestHugeNumbersTakeNoTime(t *testing.T) {
	p := syntheticPlan(2_000_000_000, 4, configurationKey("eager", "event"))
	r := &results.Record{Cells: []results.Cell{{Key: p.Cells[0], Processes: []results.Process{{Index: 1_999_999_999, Status: results.Done}}}}}
	w := newWatcher(&Run{Plan: p, Record: r})
	if w.total/w.before != 2_000_000_000 {
		t.Errorf("%v of %v", w.before, w.total)
	}
	x := results.Configuration{Metrics: []results.Metric{results.NewMetric(results.StepTimeNs, []results.Sample{{Process: 1_999_999_999, Value: 1}})}}
	if logs := logRatios(results.StepTimeNs, &x, &x); len(logs) != 1 || logs[0] != 0 {
		t.Errorf("%v", logs)
	}
}
