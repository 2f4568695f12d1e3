package cuda

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	harness "github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
)

// tracedUntil is a replicate with a traced pass; at is called whenever that says
// what it does next.
func tracedUntil(t *testing.T, ctx context.Context, at func(m *fake.Machine, phase string), ways ...string) (*results.Cell, *fake.Machine, error) {
	t.Helper()
	x, _, open := traced(t, func(*fake.Profiler) {})
	dev := x.device(Options{CUPTI: open})
	req := harness.CellRequest{Cell: results.DefaultCellKey(), Steps: 2, Blocks: 1, Single: 1, Warmup: new(1), WarmupCap: 2, Seed: 1, Quick: true, TraceSteps: 2}
	req.Cell.Workload, req.Cell.Batch, req.Cell.Device, req.Cell.Kernels = "golden-tiny", 2, "cuda", "builtin"
	for _, w := range ways {
		req.Configurations = append(req.Configurations, key(w))
	}
	req.Events = func(e harness.Event) {
		if strings.Contains(e.Phase, "trace ") {
			at(x.m, e.Phase)
		}
	}
	c, err := worker.RunCell(ctx, dev, req)
	return c, x.m, err
}

// What fails in the traced pass fails that of its configurations, and takes nothing
// away that was timed.
func TestTracedPassFails(t *testing.T) {
	const beside, recorded = "time beside trace step/inside/device", "trace step/inside/device"
	for name, c := range map[string]struct {
		phase string
		fault fake.Fault
	}{
		"beside: a launch":              {beside, fake.Fault{Call: "cuGraphLaunch", Nth: 1, Code: 304}},
		"beside: the last launch":       {beside, fake.Fault{Call: "cuGraphLaunch", Nth: 3, Code: 304}},
		"beside: a wait":                {beside, fake.Fault{Call: "cuStreamSynchronize", Nth: 1, Code: 304}},
		"beside: what restores":         {beside, fake.Fault{Call: "cuMemcpyHtoD_v2", Nth: 1, Code: 304}},
		"beside: all launches":          {beside, fake.Fault{Call: "cuGraphLaunch", Code: 700}},
		"beside: a kernel":              {beside, fake.Fault{Kernel: "control", Code: 700}},
		"recorded: a kernel":            {recorded, fake.Fault{Kernel: "control", Code: 700}},
		"recorded: a launch":            {recorded, fake.Fault{Call: "cuGraphLaunch", Nth: 1, Code: 304}},
		"recorded: the last launch":     {recorded, fake.Fault{Call: "cuGraphLaunch", Nth: 8, Code: 304}},
		"recorded: a wait":              {recorded, fake.Fault{Call: "cuStreamSynchronize", Nth: 1, Code: 304}},
		"recorded: a calibrating event": {"trace eager/event/device", fake.Fault{Call: "cuEventElapsedTime_v2", Nth: 1, Code: 304}},
	} {
		t.Run(name, func(t *testing.T) {
			done := false
			cell, m, err := tracedUntil(t, t.Context(), func(m *fake.Machine, phase string) {
				if phase == c.phase && !done {
					done = true
					m.Fail(c.fault)
				}
			}, "eager/event/device", "step/inside/device")
			if err != nil || !done {
				t.Fatalf("what was timed is lost (%v): %v", done, err)
			}
			failed := false
			for _, x := range cell.Configurations {
				if m := x.Metric(results.StepTimeNs); m == nil || m.N != 1 || x.Trace == nil || strings.Contains(x.Trace.Failed, "\n") {
					t.Errorf("%s: %+v, %+v", x.Key, m, x.Trace)
				}
				failed = failed || !ofTimes(x.Trace.Failed)
				t.Log(x.Key, x.Trace.Failed)
			}
			if !failed {
				t.Error("no trace failed")
			}
			if got := m.Live(); !maps.Equal(got, map[string]int{}) {
				t.Errorf("left %v", got)
			}
		})
	}
}

// A run that is interrupted at any moment of the traced pass ends as such, and
// leaves nothing on the device.
func TestTracedPassInterrupted(t *testing.T) {
	for _, when := range []string{"time beside trace eager/event/device", "time beside trace step/inside/device", "trace eager/event/device", "trace step/inside/device"} {
		t.Run(when, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cell, m, err := tracedUntil(t, ctx, func(_ *fake.Machine, phase string) {
				if phase == when {
					cancel()
				}
			}, "eager/event/device", "step/inside/device")
			if cell != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, %v", when, cell, err)
			}
			if got := m.Live(); !maps.Equal(got, map[string]int{}) {
				t.Errorf("%s: left %v", when, got)
			}
		})
	}
}
