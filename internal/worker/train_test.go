package worker

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// floats decodes a tensor of rank 0.
func floats(t testing.TB, st *State, name string) []float64 {
	t.Helper()
	raw := st.Tensor(0, name)
	if raw == nil {
		t.Fatalf("no tensor %s", name)
	}
	out := make([]float64, len(raw)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i*4:])))
	}
	return out
}

// relative is the relative error by L2 norm.
func relative(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d) / max(math.Sqrt(n), 1e-6*math.Sqrt(float64(len(b))))
}

// R ranks at batch b train as one rank at R*b whose batch norm works on R
// groups of b; without batch norm, as one rank at R*b.
func TestRanksEqualOneRank(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		for _, norm := range []bool{true, false} {
			t.Run(fmt.Sprintf("ranks=%d/norm=%v", ranks, norm), func(t *testing.T) {
				spec := workloads.Spec{Model: "golden-tiny", Batch: 4, Ranks: ranks, Optimizer: workloads.Nesterov, EMA: true, Smoothing: 0.1, NoBatchNorm: !norm}
				spec.Hyper = workloads.DefaultHyper(spec.Optimizer)
				spec.Hyper.LearningRates = []float32{0.05, 0.02, 0.01}
				one := spec
				one.Batch, one.Ranks = spec.Batch*ranks, 1
				if norm {
					one.BatchNormGroups = ranks
				}
				var st [2]*State
				for i, sp := range []workloads.Spec{spec, one} {
					s := open(t, sp, cpu.Options{}, Options{})
					x := executor(t, s, key("eager/event/device"))
					must(t, x.Begin(), x.Submit(3), x.Wait())
					st[i] = state(t, s)
				}
				w := st[0].w
				names := []string{"params", "momentum", "ema", "grads", "step"}
				if norm {
					names = append(names, "running")
				}
				for _, name := range names {
					a, b := floats(t, st[0], name), floats(t, st[1], name)
					if name == "step" { // a rank's loss is of its own images
						continue
					}
					if d := relative(a, b); !(d < 1e-4) {
						t.Errorf("%s of %d ranks is %.2g from one rank's", name, ranks, d)
					}
				}
				if d := relative(floats(t, st[0], "params"), initial(t, w)); d < 1e-3 {
					t.Errorf("the weights moved by %.2g only", d)
				}
			})
		}
	}
}

// initial are the weights before training.
func initial(t testing.TB, w *workloads.Workload) []float64 {
	t.Helper()
	params := w.Tensor(w.Known.Params).Region
	mem := make([]byte, params.Bytes)
	must(t, w.Init(7, func(r workloads.Region, b []byte) error {
		if params.Overlaps(r) {
			copy(mem[r.Off-params.Off:], b)
		}
		return nil
	}))
	out := make([]float64, len(mem)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(mem[i*4:])))
	}
	return out
}

// Every mode learns: resnet20-cifar on the learnable classes reaches 90 %.
func TestLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a network; -short leaves it out")
	}
	for _, p := range []workloads.Precision{workloads.FP32, workloads.AMP} {
		hyper := workloads.DefaultHyper(workloads.Nesterov)
		hyper.LearningRates = workloads.CosineRates(0.1, 10, 60)
		hyper.EMADecay = 0.9
		spec := workloads.Spec{Model: "resnet20-cifar", Batch: 16, Precision: p, Optimizer: workloads.Nesterov, EMA: true,
			FinalResolution: 8, LastTrainBatch: 9, LastValBatch: 5, Hyper: hyper}
		dev := cpu.New(cpu.Options{})
		w, err := workloads.New(spec, dev.Target())
		must(t, err)
		s, err := Open(dev, w, Options{
			Variants: []workloads.Variant{workloads.FinalFull, workloads.FinalLast, workloads.ValFull, workloads.ValLast},
			Timed:    workloads.FinalFull, Seed: 7, Source: data.NewLearnable(5, w.Classes()),
		})
		must(t, err)
		var want *State
		for _, k := range []results.ConfigurationKey{key("eager/event/device"), key("graph/event/device"), key("step/inside/device")} {
			x := executor(t, s, k)
			must(t, s.Restore())
			for range 2 {
				must(t, x.Run(Epoch(workloads.FinalFull, 29, true)...))
			}
			must(t, x.Run(Validation(12, true)...), x.Wait())
			st := state(t, s)
			m := floats(t, st, "metrics")
			for slot, name := range []string{"weights", "averages"} {
				m := m[slot*workloads.MetricWords:]
				count, hits := m[workloads.MetricCount], m[workloads.MetricHits]
				if count != 12*16+5 {
					t.Errorf("%s %s: validated on %v images, want %d", p, k, count, 12*16+5)
				}
				t.Logf("%s %s, %s: %.1f %% of %v images, loss %.3f", p, k, name, 100*hits/count, count, m[workloads.MetricLoss]/count)
				if hits/count < 0.9 {
					t.Errorf("%s %s: the %s are right on %.1f %% of the images, want 90", p, k, name, 100*hits/count)
				}
			}
			if want == nil {
				want = st
			}
			equal(t, fmt.Sprintf("%s %s", p, k), st, want)
		}
		must(t, s.Close())
	}
}
