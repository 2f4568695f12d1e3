package worker

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/golden"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// decode is a little-endian F32 tensor's values.
func decode(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[i*4:]))
	}
	return out
}

// floats decodes a tensor of rank 0.
func floats(t testing.TB, st *State, name string) []float32 {
	t.Helper()
	raw := st.Tensor(0, name)
	if raw == nil {
		t.Fatalf("no tensor %s", name)
	}
	return decode(raw)
}

// R ranks at batch b train as one rank at R*b whose batch norm works on R
// groups of b; without batch norm, as one rank at R*b.
func TestRanksEqualOneRank(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		for _, norm := range []bool{true, false} {
			t.Run(fmt.Sprintf("ranks=%d/norm=%v", ranks, norm), func(t *testing.T) {
				if raceDetector && ranks > 2 {
					t.Skip("2 ranks show the same races")
				}
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
					// With some data (seed 3, on 4 ranks) a sum that is nearly 0 rounds to either
					// side of a ReLU, and gradients then differ by 4e-4.
					s := open(t, sp, cpu.Options{}, Options{Source: data.NewRandom(4, 10)})
					x := executor(t, s, key("eager/event/device"))
					// The end of the epoch sums the metrics over ranks.
					must(t, x.Run(Epoch(workloads.FinalFull, 3, false)...), x.Wait())
					st[i] = state(t, s)
					if d := st[i].DiffRanks(true); d != nil {
						t.Errorf("rank %d differs from rank 0: %+v", d.Rank, d)
					}
				}
				w := st[0].w
				names := []string{"params", "momentum", "ema", "grads", "metrics"} // "step" is of a rank's own images
				if norm {
					names = append(names, "running")
				}
				for _, name := range names {
					a, b := floats(t, st[0], name), floats(t, st[1], name)
					if d := golden.Distance(a, b); !(d < 1e-4) {
						t.Errorf("%s of %d ranks is %.2g from one rank's", name, ranks, d)
					}
				}
				a, b := floats(t, st[0], "metrics"), floats(t, st[1], "metrics")
				if images := float32(3 * spec.Batch * ranks); a[workloads.MetricCount] != images || b[workloads.MetricCount] != images ||
					a[workloads.MetricHits] != b[workloads.MetricHits] || a[workloads.MetricLoss] <= 0 {
					t.Errorf("metrics %v and %v of %v images", a, b, images)
				}
				if d := golden.Distance(floats(t, st[0], "params"), initial(t, w)); d < 1e-3 {
					t.Errorf("the weights moved by %.2g only", d)
				}
			})
		}
	}
}

// initial are the weights before training.
func initial(t testing.TB, w *workloads.Workload) []float32 {
	t.Helper()
	params := w.Tensor(w.Known.Params).Region
	mem := make([]byte, params.Bytes)
	must(t, w.Init(7, func(r workloads.Region, b []byte) error {
		if params.Overlaps(r) {
			copy(mem[r.Off-params.Off:], b)
		}
		return nil
	}))
	return decode(mem)
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
		ways := eachMode()
		if p == workloads.FP32 { // once, as they train alike
			ways = append(ways, key("graph/host/host"))
		}
		for _, k := range ways {
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
