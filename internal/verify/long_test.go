package verify_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/tech-renaissance/trbench/capture"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/devicetest"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// modes are eager, graph and step with the device in control.
func modes() []results.ConfigurationKey {
	var out []results.ConfigurationKey
	for _, k := range configurations() {
		if k.Sync != "host" && k.Control == "device" {
			out = append(out, k)
		}
	}
	return out
}

// submit trains so many steps from the snapshot, a hundred at a time, and waits.
func submit(t *testing.T, s *worker.Session, x *worker.Executor, steps int) {
	t.Helper()
	err := s.Restore()
	if err == nil {
		err = x.Begin()
	}
	for left := steps; err == nil && left > 0; left -= 100 {
		err = x.Submit(min(left, 100))
	}
	if err == nil {
		err = x.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// One step of every mode, alike bit for bit, and nothing else: what
// scripts/gpu-test.sh sanitize runs, where each call takes long.
func TestOneStep(t *testing.T) {
	for _, d := range devicetest.All() {
		t.Run(d.Name, func(t *testing.T) {
			spec := workloads.Spec{Model: "golden-tiny", Batch: 2, Precision: workloads.AMP, Optimizer: workloads.Nesterov, EMA: true, Smoothing: 0.1}
			s := session(t, d.New(t, workloads.Fused), spec, 11, workloads.FinalFull)
			var want *worker.State
			for _, k := range modes() {
				x, err := s.Executor(k)
				if err != nil {
					t.Fatal(err)
				}
				submit(t, s, x, 1)
				st, err := s.State()
				if err != nil {
					t.Fatal(err)
				}
				if sc, err := s.Scalars(0); err != nil || sc.Step+sc.Skipped != 1 {
					t.Errorf("%s: scalars %+v after one step, %v", k, sc, err)
				}
				if want == nil {
					want = st
				}
				if diff := st.Diff(want); diff != nil {
					t.Errorf("%s: tensor %s, element %d: %s", k, diff.Tensor, diff.Index, diff.Detail)
				}
			}
		})
	}
}

// A GPU learns the learnable classes in every mode; what the CPU device learns
// is tested with the worker.
func TestLearnsOnGPU(t *testing.T) {
	if !devicetest.GPU() {
		t.Skip("needs a GPU: TRBENCH_GPU=1")
	}
	for _, d := range devicetest.All() {
		for _, p := range []workloads.Precision{workloads.FP32, workloads.AMP} {
			t.Run(fmt.Sprintf("%s/%s", d.Name, p), func(t *testing.T) {
				learns(t, d.New(t, workloads.Fused), workloads.Spec{Model: "resnet20-cifar", Batch: 64, Precision: p}, 40, 95)
			})
		}
	}
}

// learns trains two epochs of so many full steps, and one with a smaller batch,
// in every mode, and holds the share of validation images that are right to a
// percentage, and the modes to the same bits.
func learns(t *testing.T, dev device.Device, spec workloads.Spec, steps int, percent float32) {
	t.Helper()
	hyper := workloads.DefaultHyper(workloads.Nesterov)
	hyper.LearningRates = workloads.CosineRates(0.1, steps/3, 2*steps+2)
	hyper.EMADecay = 0.9
	spec.Optimizer, spec.EMA, spec.Hyper = workloads.Nesterov, true, hyper
	spec.LastTrainBatch, spec.LastValBatch = spec.Batch/2+1, spec.Batch/3
	w, err := device.NewWorkload(dev, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := worker.Open(dev, w, worker.Options{
		Variants: []workloads.Variant{workloads.FinalFull, workloads.FinalLast, workloads.ValFull, workloads.ValLast},
		Timed:    workloads.FinalFull, Seed: 7, Source: data.NewLearnable(5, w.Classes()),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const validated = 12
	var want *worker.State
	for _, k := range modes() {
		x, err := s.Executor(k)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Restore(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := x.Run(worker.Epoch(workloads.FinalFull, steps, true)...); err != nil {
				t.Fatalf("%s: %v", k, err)
			}
		}
		if err := x.Run(worker.Validation(validated, true)...); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		if err := x.Wait(); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		st, err := s.State()
		if err != nil {
			t.Fatal(err)
		}
		m := floats(st.Tensor(0, "metrics"))
		for slot, name := range []string{"weights", "averages"} {
			m := m[slot*workloads.MetricWords:]
			count, hits := m[workloads.MetricCount], m[workloads.MetricHits]
			t.Logf("%s, %s: %.1f %% of %v images, loss %.3f", k, name, 100*hits/count, count, m[workloads.MetricLoss]/count)
			if n := validated*spec.Batch + spec.LastValBatch; int(count) != n {
				t.Errorf("%s, %s: validated on %v images, want %d", k, name, count, n)
			}
			if !(100*hits/count >= percent) {
				t.Errorf("%s: the %s are right on %.1f %% of the images, want %v", k, name, 100*hits/count, percent)
			}
		}
		if want == nil {
			want = st
			continue
		}
		if diff := st.Diff(want); diff != nil {
			t.Errorf("%s: tensor %s, element %d: %s", k, diff.Tensor, diff.Index, diff.Detail)
		}
	}
}

// 2,000 steps of every mode and 100 captures of whole training steps leave
// handles and, on a GPU, free memory as they were.
func TestMemoryIsFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 steps")
	}
	spec, captures := workloads.Spec{Model: "golden-tiny", Batch: 1, FinalResolution: 8}, 20
	if devicetest.GPU() {
		spec, captures = workloads.Spec{Model: "resnet18-cifar", Batch: 16, Precision: workloads.AMP}, 100
	}
	for _, d := range devicetest.All() {
		t.Run(d.Name, func(t *testing.T) {
			s := session(t, d.New(t, workloads.Fused), spec, 11, workloads.FinalFull)
			var executors []*worker.Executor
			for _, k := range modes() {
				x, err := s.Executor(k)
				if err != nil {
					t.Fatal(err)
				}
				executors = append(executors, x)
			}
			tables, feeders := []*walk.Table{s.Table()}, []walk.Feeder{func(workloads.Variant, workloads.Half, int64, []byte) error { return nil }}
			recapture := func(mode capture.Mode) {
				set, err := capture.Prepare(s.Group(), s.Workload(), tables, capture.Config{Mode: mode, Feeders: feeders})
				if err != nil {
					t.Fatal(err)
				}
				if err := set.Close(); err != nil {
					t.Fatal(err)
				}
			}
			steps := func(n int) {
				for i, x := range executors {
					submit(t, s, x, n)
					sc, err := s.Scalars(0)
					if err != nil {
						t.Fatal(err)
					}
					if int(sc.Step+sc.Skipped) != n {
						t.Errorf("%s: %d steps and %d skipped after %d", modes()[i], sc.Step, sc.Skipped, n)
					}
				}
			}
			// What drivers make once is made before anything is counted.
			steps(100)
			recapture(capture.Graph)
			recapture(capture.Step)
			live, free := held(t, s.Group())
			steps(2000)
			for i := range captures {
				recapture(capture.Mode(i % 2))
			}
			nowLive, nowFree := held(t, s.Group())
			t.Logf("free before %v, after %v bytes; live %v", free, nowFree, nowLive)
			if !maps.Equal(live, nowLive) {
				t.Errorf("live were %v, are %v", live, nowLive)
			}
			if fmt.Sprint(free) != fmt.Sprint(nowFree) {
				t.Errorf("%v bytes were free, %v are", free, nowFree)
			}
		})
	}
}

// held are a group's live handles and, of a GPU, each rank's free memory.
func held(t *testing.T, g device.Group) (live map[string]int, free []uint64) {
	t.Helper()
	live = g.(interface{ Live() map[string]int }).Live()
	if m, ok := g.(interface {
		Memory() (free, total []uint64, err error)
	}); ok {
		var err error
		if free, _, err = m.Memory(); err != nil {
			t.Fatal(err)
		}
	}
	return live, free
}
