package bench

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// What a replicate's wall time goes to is added up by phase; nothing is left out
// and nothing counted twice.
func TestPhasesOfAReplicate(t *testing.T) {
	w := steady(nil)
	w.events = func(d time.Duration) time.Duration { return d }
	pass := func(d time.Duration) { w.clock.now += d }
	p := syntheticPlan(2, 4, configurationKey("eager", "event"), configurationKey("graph", "event"))
	r := &results.Record{Seed: p.Seed}
	run := Run{Plan: p, Record: r, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
		pass(5 * time.Second) // the process starts
		cell, err := phased(func(ctx context.Context, req CellRequest) (*results.Cell, error) {
			pass(3 * time.Second)
			req.Phases.Begin(results.PhaseBuild)
			pass(2 * time.Second)
			req.Phases.Begin(results.PhaseOpenDevice) // goes on
			pass(1 * time.Second)
			got, err := w.replicate(ctx, req)
			req.Phases.Begin(results.PhaseClose)
			pass(7 * time.Second)
			return got.Cell, err
		}, w.clock)(ctx, req)
		pass(11 * time.Second) // and ends
		return Replicate{Cell: cell, PID: 1}, err
	}}
	if err := run.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, process := range r.Cells[0].Processes {
		ns, sum := map[string]int64{}, int64(0)
		var order []string
		for _, phase := range process.Phases {
			if _, ok := ns[phase.Phase]; ok {
				t.Errorf("%s is there twice", phase.Phase)
			}
			ns[phase.Phase], sum, order = phase.Ns, sum+phase.Ns, append(order, phase.Phase)
		}
		const want = "start open_device build warm_up restore blocks single_steps launch_overhead close end"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("phases %s, want %s", got, want)
		}
		if sum != process.Ns || process.Ns == 0 {
			t.Errorf("phases sum up to %d, and the process took %d", sum, process.Ns)
		}
		var blocks, single float64
		for i := range r.Cells[0].Configurations {
			c := &r.Cells[0].Configurations[i]
			for _, s := range c.Metric(results.StepTimeNs).Samples {
				if s.Process == process.Index {
					blocks += s.Value * float64(p.Steps)
				}
			}
			for _, s := range c.Metric(results.LatencyNs).Samples {
				if s.Process == process.Index {
					single += s.Value
				}
			}
		}
		for name, want := range map[string]float64{
			results.PhaseStart: 5e9, results.PhaseOpenDevice: 4e9, results.PhaseBuild: 2e9, results.PhaseClose: 7e9, results.PhaseEnd: 11e9,
			results.PhaseBlocks: blocks, results.PhaseSingleSteps: single,
		} {
			if got := float64(ns[name]); got < want*0.9999 || got > want*1.0001 || want == 0 { // step times are means
				t.Errorf("%s took %v ns, want %v", name, got, want)
			}
		}
	}
}

// A phase that runs again makes nothing, and without phases nothing happens.
func TestPhasesMakeNothing(t *testing.T) {
	clock := &fakeClock{}
	p := NewPhases(clock)
	p.Begin(results.PhaseRestore)
	p.Begin(results.PhaseBlocks)
	if n := testing.AllocsPerRun(100, func() { p.Begin(results.PhaseRestore); p.Begin(results.PhaseBlocks) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var none *Phases
	none.Begin(results.PhaseBlocks)
	if none.End() != nil {
		t.Error("no phases have some")
	}
	// An event that took longer to arrive than the end takes makes no negative time.
	got := aroundPhases([]results.ProcessPhase{{Phase: "build", Ns: 90}}, 20, 100)
	if want := []results.ProcessPhase{{Phase: "start", Ns: 20}, {Phase: "build", Ns: 90}, {Phase: "end", Ns: 0}}; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if aroundPhases(nil, 1, 2) != nil { // a process that says nothing has no start and end either
		t.Error("phases without a process's own")
	}
}

// The phases reach the parent with the cell, also through a pipe.
func TestServeTellsPhases(t *testing.T) {
	var out strings.Builder
	err := Serve(t.Context(), strings.NewReader(`{"cell":{"device":"cpu"},"process":3}`), &out, func(_ context.Context, req CellRequest) (*results.Cell, error) {
		req.Phases.Begin(results.PhaseBuild)
		return &results.Cell{}, nil
	})
	if err != nil && !strings.Contains(err.Error(), "parent") {
		t.Fatal(err)
	}
	var events []Event
	a, err := listen(strings.NewReader(out.String()), CellRequest{Events: func(e Event) { events = append(events, e) }})
	if err != nil || a.cell == nil || len(a.cell.Processes) != 1 {
		t.Fatalf("%v, %+v of %s", err, a, out.String())
	}
	got := map[string]bool{}
	for _, p := range a.cell.Processes[0].Phases {
		got[p.Phase] = true
	}
	if a.cell.Processes[0].Index != 3 || !maps.Equal(got, map[string]bool{"open_device": true, "build": true}) {
		t.Errorf("%+v", a.cell.Processes[0])
	}
	if len(events) == 0 || events[0].Phase != "open device cpu" {
		t.Errorf("events %+v", events)
	}
}
