package cuda

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/worker"
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

// everyWay are all configurations.
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

func tinySpec() workloads.Spec {
	return workloads.Spec{Model: "golden-tiny", Batch: 2, Ranks: 1, Precision: workloads.AMP, Optimizer: workloads.SGD,
		EMA: true, BeginResolution: 8, FinalResolution: 16, LastTrainBatch: 1, LastValBatch: 1}
}

func session(t testing.TB, d device.Device, w *workloads.Workload, o worker.Options) *worker.Session {
	t.Helper()
	if o.Variants == nil {
		o.Variants = workloads.AllVariants()
	}
	if o.Feeder == nil {
		o.Source = data.NewRandom(3, w.Classes())
	}
	o.Timed, o.Seed = workloads.FinalFull, 7
	s, err := worker.Open(d, w, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !t.Failed() {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func state(t testing.TB, s *worker.Session) *worker.State {
	t.Helper()
	st, err := s.State()
	must(t, err)
	return st
}

// The arithmetic is the CPU device's on both sides, so what remains is the
// device's own: addresses, streams, joins, captures, counts. All nine
// configurations must leave the CPU device's bits behind.
func TestTrainsAsTheCPU(t *testing.T) {
	for _, c := range []struct {
		name   string
		race   bool // also under the race detector, and also not fused
		change func(*workloads.Spec)
	}{
		{"AMP SGD EMA", true, func(s *workloads.Spec) {}},
		{"AMP LARS EMA smoothing", false, func(s *workloads.Spec) { s.Optimizer, s.Smoothing = workloads.LARS, 0.1 }},
		{"FP32 SGD", false, func(s *workloads.Spec) { s.Precision, s.EMA = workloads.FP32, false }},
		{"FP32 LARS EMA", true, func(s *workloads.Spec) { s.Precision, s.Optimizer = workloads.FP32, workloads.LARS }},
		{"FP32 Nesterov frozen stem", false, func(s *workloads.Spec) {
			s.Precision, s.Optimizer, s.EMA, s.FreezeStem = workloads.FP32, workloads.Nesterov, false, true
		}},
		{"AMP frozen stem", false, func(s *workloads.Spec) { s.FreezeStem = true }},
	} {
		for _, lowering := range []workloads.Lowering{workloads.Fused, workloads.Plain} {
			if lowering == workloads.Plain && !c.race {
				continue
			}
			t.Run(fmt.Sprintf("%s/fused=%v", c.name, lowering == workloads.Fused), func(t *testing.T) {
				if raceDetector && !c.race {
					t.Skip("the others show the same races")
				}
				x := fakeRig(t, nil)
				spec := tinySpec()
				c.change(&spec)
				// With programmatic dependent launch as well.
				dev := x.device(Options{Lowering: &lowering, Tuning: Tuning{Dependent: spec.Precision == workloads.FP32}})
				w, err := workloads.New(spec, dev.Target())
				must(t, err)
				ref := session(t, cpu.New(cpu.Options{Lowering: &lowering}), w, worker.Options{})
				s := session(t, dev, w, worker.Options{})
				begin := state(t, s)
				if d := begin.Diff(state(t, ref)); d != nil {
					t.Fatalf("the weights differ before training: %+v", d)
				}
				v, err := s.Check(context.Background(), everyWay(), 2)
				must(t, err)
				if !v.Equal || len(v.Modes) != 9 {
					t.Errorf("evidence %+v", v)
				}
				run := func(s *worker.Session, k results.ConfigurationKey) *worker.State {
					e, err := s.Executor(k)
					must(t, err, s.Restore(), e.Rehearse(3))
					return state(t, s)
				}
				want := run(ref, key("eager/event/device"))
				if want.Diff(begin) == nil {
					t.Error("nothing was trained")
				}
				for _, k := range everyWay() {
					if d := run(s, k).Diff(want); d != nil {
						t.Errorf("%s: tensor %s, element %d: %s", k, d.Tensor, d.Index, d.Detail)
					}
				}
				if lazy := x.m.LazyInCapture(); len(lazy) > 0 {
					t.Errorf("first used in a capture: %v", lazy)
				}
				if n := x.m.AllocsInCapture(); n > 0 {
					t.Errorf("%d allocations inside captures", n)
				}
			})
		}
	}
}

// What the device counts of a step is what the CPU device counts, which counts
// at execution.
func TestExecutedAsTheCPU(t *testing.T) {
	x := fakeRig(t, nil)
	dev := x.device(Options{})
	w, err := workloads.New(tinySpec(), dev.Target())
	must(t, err)
	var all []device.Executed
	for _, d := range []device.Device{cpu.New(cpu.Options{}), dev} {
		s := session(t, d, w, worker.Options{})
		for _, k := range []string{"eager/event/device", "graph/host/host", "step/inside/device"} {
			e, err := s.Executor(key(k))
			must(t, err, s.Restore())
			r := s.Group().Rank(0)
			must(t, r.Do(func() error { r.ResetExecuted(); return nil }))
			must(t, e.Begin(), e.Submit(5), e.Wait())
			must(t, r.Do(func() error { all = append(all, r.Executed()); return nil }))
		}
	}
	for i, k := range []string{"eager", "graph", "step"} {
		if all[i] != all[i+3] || all[i] == (device.Executed{}) {
			t.Errorf("%s: executed %v, on the CPU %v", k, all[i+3], all[i])
		}
	}
	if slices.Contains(all, device.Executed{}) {
		t.Error("a run executed nothing")
	}
}
