package cuda

import (
	"errors"
	"strings"
	"testing"
	"time"

	harness "github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/workloads"
)

// traced is a rig with a profiler beside its machine.
func traced(t *testing.T, change func(*fake.Profiler)) (*rig, *fake.Profiler, func() (*cupti.API, error)) {
	t.Helper()
	x := fakeRig(t, nil)
	p := x.m.CUPTI()
	change(p)
	lib, err := p.Start(x.m)
	must(t, err)
	t.Cleanup(p.Stop)
	opened := false
	return x, p, func() (*cupti.API, error) {
		if opened {
			t.Error("CUPTI was opened twice")
		}
		opened = true
		return cupti.New(lib, 13000)
	}
}

// runTraced is a replicate with a traced pass.
func runTraced(t *testing.T, change func(*fake.Profiler), ways ...string) *results.Cell {
	t.Helper()
	x, _, open := traced(t, change)
	dev := x.device(Options{CUPTI: open})
	var keys []results.ConfigurationKey
	for _, w := range ways {
		keys = append(keys, key(w))
	}
	one := 1
	cell := results.DefaultCellKey()
	cell.Workload, cell.Batch, cell.Device, cell.Kernels = "golden-tiny", 2, "cuda", "builtin"
	c, err := worker.RunCell(t.Context(), dev, harness.CellRequest{Cell: cell, Configurations: keys, Steps: 2, Blocks: 1, Single: 1, Warmup: &one, WarmupCap: 2,
		Seed: 1, Quick: true, TraceSteps: 2})
	must(t, err)
	return c
}

// ofTimes says that a trace failed by times alone, which on a machine that is
// none mean nothing: there a kernel's length on record has no relation to what a
// chain takes without.
func ofTimes(failed string) bool {
	return failed == "" || strings.Contains(failed, "idle time would be negative")
}

func TestTracedRun(t *testing.T) {
	ways := []string{"eager/event/device", "graph/event/device", "step/inside/device", "graph/host/host"}
	c := runTraced(t, func(*fake.Profiler) {}, ways...)
	for i := range c.Configurations {
		x := &c.Configurations[i]
		r := x.Trace
		if r == nil || !ofTimes(r.Failed) {
			t.Fatalf("%s: %+v", x.Key, r)
		}
		k := r.Kernels
		if k.From != results.FromGraphNodes || k.Expected == nil || k.Recorded != *k.Expected || k.Recorded != *x.Counts.Kernels || k.Recorded < 20 {
			t.Errorf("%s: kernels %+v", x.Key, k)
		}
		launches := r.Metric(results.TraceLaunches)
		want := float64(*x.Counts.Launches.Host)
		if x.Key.Control == "host" {
			want += 2 // it reads and writes the scalars, which are copies
		}
		if launches == nil || launches.Value != want {
			t.Errorf("%s: %+v launches on record, and the step makes %v", x.Key, launches, want)
		}
		for j, busy := range r.Metric(results.BusyNs).Samples {
			at := func(name string) float64 { return r.Metric(name).Samples[j].Value }
			if at(results.TracedStepNs) != busy.Value+at(results.IdleNs) ||
				at(results.IdleNs) != at(results.HostLateNs)+at(results.InAPINs)+at(results.AfterAPINs)+at(results.UnlinkedNs) {
				t.Errorf("%s, sample %d does not add up", x.Key, j)
			}
		}
		if n := len(r.Metric(results.BusyNs).Samples); n != 2 || r.Steps != 2 || len(r.Calibrations) != 1 || r.Calibrations[0].Kernels == 0 {
			t.Errorf("%s: %d samples, %+v", x.Key, n, r.Calibrations)
		}
		layers := map[string]bool{}
		for _, l := range r.Launches {
			layers[l.Layer] = true
			if l.Count < 1 || l.MedianNs > l.P99Ns || len(l.Processes) != 1 {
				t.Errorf("%s: %+v", x.Key, l)
			}
		}
		if !layers[results.LayerLanguage] || !layers[results.LayerDriver] || layers[results.LayerLibrary] {
			t.Errorf("%s: layers %v", x.Key, layers)
		}
	}
}

// What a profiler may get wrong fails the trace by name, and leaves what was
// timed as it is.
func TestTraceFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fake.Profiler)
		want   string
	}{
		// The calibration's 16 replays of 300 kernels and 201 launches come first.
		"no times": {func(p *fake.Profiler) { p.Untimed = 16*300 + 201 + 20 }, "1 pieces of device work have no times on record"},
		"graphs are hidden": {func(p *fake.Profiler) { p.Graphless = true },
			"calibrate recording on GPU 0: of 16 replays of a graph of 300 kernels, CUPTI recorded 0 node by node (0 kernels in all)"},
		"another subscriber": {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityEnable": 39} }, "another profiler holds CUPTI"},
		"privileges":         {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityEnable 10": 35} }, "NVreg_RestrictProfilingToAdminUsers=0"},
		"no flush":           {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityFlushAll": 999} }, "cuptiActivityFlushAll"},
	} {
		t.Run(name, func(t *testing.T) {
			c2 := runTraced(t, c.change, "eager/event/device", "step/inside/device")
			if r := c2.Configurations[0].Trace; r == nil || !strings.Contains(r.Failed, c.want) || strings.Contains(r.Failed, "\n") {
				t.Errorf("%+v, want %q", r, c.want)
			}
			for _, x := range c2.Configurations {
				if m := x.Metric(results.StepTimeNs); m == nil || m.N != 1 {
					t.Errorf("%s: %+v", x.Key, m)
				}
			}
		})
	}
}

// A profiler that lengthens each kernel by an hour is found out.
func TestTraceCorrects(t *testing.T) {
	c := runTraced(t, func(p *fake.Profiler) { p.Lengthen = time.Hour }, "eager/event/device")
	r := c.Configurations[0].Trace
	if len(r.Calibrations) != 1 {
		t.Fatalf("%+v", r)
	}
	if by := time.Duration(r.Calibrations[0].ByNs); by < 59*time.Minute || by > 61*time.Minute {
		t.Errorf("lengthened by %v", by)
	}
	low, mid, high := r.Metric(results.CorrectedLowNs), r.Metric(results.CorrectedBusyNs), r.Metric(results.CorrectedHighNs)
	if low == nil || mid == nil || high == nil || low.Value > mid.Value || mid.Value > high.Value {
		t.Errorf("%+v, %+v, %+v", low, mid, high)
	}
}

// A profiler that slows calls down is shown beside them.
func TestTraceInflation(t *testing.T) {
	c := runTraced(t, func(p *fake.Profiler) { p.Slow = 3 * time.Millisecond }, "eager/event/device")
	r := c.Configurations[0].Trace
	found := false
	for _, l := range r.Launches {
		if l.Layer == results.LayerDriver && l.Call == "cuLaunchKernel" {
			found = true
			if l.Inflation == nil || *l.Inflation < 2 || l.MedianNs < (3*time.Millisecond).Nanoseconds() {
				t.Errorf("%+v", l)
			}
		}
	}
	if !found {
		t.Errorf("%+v", r.Launches)
	}
}

// Streams, threads and devices have the names that everything else calls them.
func TestTraceNames(t *testing.T) {
	x, _, open := traced(t, func(*fake.Profiler) {})
	d, err := New(Options{Driver: x.api, CUPTI: open})
	must(t, err)
	dg, err := d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: benchArena, PinnedBytes: benchPinned})
	must(t, err)
	g := dg.(*Group)
	b := &bench{rig: x, g: g, r: g.ranks[0]}
	t.Cleanup(func() { must(t, g.Close()) })
	if _, err := g.Recorded(); err == nil {
		t.Error("something was recorded before anything was")
	}
	must(t, g.Trace(true))
	if err := g.Trace(true); err == nil {
		t.Error("two recordings at once")
	}
	if _, err := g.Recorded(); err == nil {
		t.Error("read while it goes on")
	}
	if _, err := g.CalibrateTrace(); err == nil {
		t.Error("calibrated while something is recorded")
	}
	begin := g.TraceNow()
	b.do(func(r device.Rank) {
		o := b.op(r, workloads.DeepFwdBwd, "a", 0)
		must(t, o.Submit(0), b.copyIn(r, workloads.TransferA, 1).Submit(0), r.SyncAll())
	})
	end := g.TraceNow()
	must(t, g.Trace(false), g.Trace(false))
	rec, err := g.Recorded()
	must(t, err)
	i := timeline.NewIndex(rec)
	if len(rec.Devices) != 1 || rec.Devices[0].ID != "0" || rec.Devices[0].Name != "GPU 0 (rank 0)" || rec.Format != timeline.FormatCUPTI {
		t.Errorf("devices %+v of %s", rec.Devices, rec.Format)
	}
	seen := map[string]bool{}
	for k, o := range rec.Ops {
		seen[rec.Streams[o.Stream].Name+" "+map[timeline.Kind]string{timeline.Kernel: "kernel", timeline.Copy: "copy", timeline.Fill: "fill"}[o.Kind]] = true
		c := i.Launch[k]
		if c == timeline.None || rec.Threads[rec.Calls[c].Thread].Name != device.TraceThread(0) || o.StartNs < begin || o.EndNs > end {
			t.Errorf("%+v launched by %d, between %d and %d", o, c, begin, end)
		}
	}
	if !seen["COMP_1 kernel"] || !seen["TRANS copy"] {
		t.Errorf("%v", seen)
	}
}

// A device without CUPTI says so.
func TestTraceNeedsCUPTI(t *testing.T) {
	x := fakeRig(t, nil)
	b := x.open()
	if err := b.g.Trace(true); err == nil || !strings.Contains(err.Error(), "without CUPTI") {
		t.Error(err)
	}
	d, err := New(Options{Driver: x.api, CUPTI: func() (*cupti.API, error) { return nil, errors.New("no library") }})
	must(t, err)
	g, err := d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: 64, PinnedBytes: 64})
	must(t, err)
	if err := g.(device.Tracer).Trace(true); err == nil || err.Error() != "no library" {
		t.Error(err)
	}
	must(t, g.Close())
}
