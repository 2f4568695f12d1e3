package golden_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/devicetest"
	"github.com/tech-renaissance/trbench/internal/golden"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// train runs a golden case for its five steps and calls check after each.
func train(t *testing.T, d devicetest.Kind, g *golden.Golden, spec workloads.Spec, l workloads.Lowering, k results.ConfigurationKey, check func(step int, get func(kind, name string) []float32)) {
	t.Helper()
	dev := d.New(t, l)
	w, err := device.NewWorkload(dev, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := worker.Open(dev, w, worker.Options{
		Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull,
		Feeder: func(int) walk.Feeder {
			return func(_ workloads.Variant, _ workloads.Half, index int64, dst []byte) error {
				i := int(index) % len(g.Images)
				copy(dst, g.Images[i])
				for j, l := range g.Labels[i] {
					binary.LittleEndian.PutUint32(dst[w.Known.LabelsOffset+int64(j)*4:], uint32(l))
				}
				return nil
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin(t, s, g)
	x, err := s.Executor(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Begin(); err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= g.Net.Steps; step++ {
		if err := x.Submit(1); err != nil {
			t.Fatal(err)
		}
		if err := x.Wait(); err != nil {
			t.Fatal(err)
		}
		st, err := s.State()
		if err != nil {
			t.Fatal(err)
		}
		check(step, reader(st))
	}
}

// begin writes the golden initial weights over the session's own and makes
// them the snapshot.
func begin(t *testing.T, s *worker.Session, g *golden.Golden) {
	t.Helper()
	w := s.Workload()
	err := s.Group().Each(func(r device.Rank) error {
		for _, p := range g.Initial {
			for _, prefix := range []string{"", "ema:", "half:"} {
				tensor, ok := w.Lookup(prefix + p.Name)
				if !ok {
					continue
				}
				var data []byte
				for _, v := range p.Data {
					if tensor.DType == workloads.F16 {
						data = binary.LittleEndian.AppendUint16(data, workloads.ToHalf(v))
					} else {
						data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
					}
				}
				if int64(len(data)) != tensor.Region.Bytes {
					return fmt.Errorf("%s has %d bytes, the golden one %d", tensor.Name, tensor.Region.Bytes, len(data))
				}
				if err := r.Write(tensor.Region, data); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
}

func reader(st *worker.State) func(kind, name string) []float32 {
	return func(kind, name string) []float32 {
		tensor := map[string]string{
			golden.Grad: "grad:" + name, golden.Weight: name, golden.Momentum: "momentum:" + name,
			golden.EMA: "ema:" + name, golden.Running: name, golden.Loss: "step",
		}[kind]
		raw := st.Tensor(0, tensor)
		if raw == nil {
			return nil
		}
		if kind == golden.Loss {
			raw = raw[workloads.StepLoss*4:][:4]
		}
		out := make([]float32, len(raw)/4)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[i*4:]))
		}
		return out
	}
}

func load(t *testing.T) *golden.Golden {
	t.Helper()
	g, err := golden.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func key(mode, sync string) results.ConfigurationKey {
	k := results.DefaultConfigurationKey()
	k.Mode, k.Sync = mode, sync
	return k
}

// Every device trains as PyTorch does, in each lowering and mode.
func TestAgainstPyTorch(t *testing.T) {
	g := load(t)
	for _, d := range devicetest.All() {
		t.Run(d.Name, func(t *testing.T) { againstPyTorch(t, d, g) })
	}
}

func againstPyTorch(t *testing.T, d devicetest.Kind, g *golden.Golden) {
	for i := range g.Cases {
		c := &g.Cases[i]
		lean := workloads.Fused
		lean.FusedJoin, lean.NormMask = true, true
		for name, l := range map[string]workloads.Lowering{"plain": workloads.Plain, "fused": workloads.Fused, "lean": lean} {
			for _, k := range []results.ConfigurationKey{key("eager", "event"), key("step", "inside")} {
				t.Run(c.Name+"/"+name+"/"+k.Mode, func(t *testing.T) {
					compared := 0
					train(t, d, g, g.Spec(c), l, k, func(step int, get func(kind, name string) []float32) {
						if step != 1 && step != g.Net.Steps {
							return
						}
						all := golden.Measure(c, step, get)
						compared += len(all)
						t.Logf("step %d: %d tensors, worst %v", step, len(all), all[0])
						for _, m := range golden.Compare(c, step, get) {
							t.Error(m)
						}
					})
					if compared < 100 {
						t.Errorf("only %d tensors compared", compared)
					}
				})
			}
		}
	}
}

// The net is one on which mistakes in batch norm show: its first variances are
// small beside any epsilon that is wrong, and one batch norm works on few
// values, so that n and n-1 differ.
func TestTheNetIsSensitive(t *testing.T) {
	g := load(t)
	c := g.Case("nesterov-fp32")
	train(t, devicetest.All()[0], g, g.Spec(c), workloads.Fused, key("eager", "event"), func(step int, get func(kind, name string) []float32) {
		if step > 1 {
			return
		}
		first := get(golden.Running, "stem.bn.stat_var") // of this step's batch
		if len(first) == 0 {
			t.Fatal("no variances")
		}
		for ch, v := range first {
			if !(v > 0 && v < 0.05) {
				t.Errorf("variance %v of channel %d after the stem, want below 0.05", v, ch)
			}
		}
		t.Logf("variances %v", first)
	})
	w, err := workloads.New(g.Spec(c), workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		t.Fatal(err)
	}
	least, where := math.MaxInt, ""
	for _, b := range w.Bounds(workloads.DeepFwdBwd, workloads.FinalFull, workloads.ControlDevice) {
		if b.Op == workloads.OpBatchNorm {
			x := b.In[0].Shape
			if n := x[0] * x[1] * x[2]; n < least {
				least, where = n, b.Name
			}
		}
	}
	if least > 256 {
		t.Errorf("no batch norm works on at most 256 values a channel; %s has the fewest, %d", where, least)
	}
	t.Logf("%s works on %d values a channel", where, least)
}

// Every one of these mistakes makes the comparison fail.
func TestMistakesAreSeen(t *testing.T) {
	g := load(t)
	for _, m := range []struct {
		name string
		edit func(*workloads.Spec)
		only string // part of the case's name
	}{
		{"epsilon x 10", func(s *workloads.Spec) { s.Hyper.BNEpsilon *= 10 }, ""},
		{"momentum 0.89", func(s *workloads.Spec) { s.Hyper.Momentum = 0.89 }, ""},
		{"no Nesterov", func(s *workloads.Spec) { s.Optimizer = workloads.SGD }, "nesterov"},
		{"decay on batch norm", func(s *workloads.Spec) { s.Hyper.DecayBatchNorm = true }, ""},
		{"no smoothing", func(s *workloads.Spec) { s.Smoothing = 0 }, ""},
		{"biased running variance", func(s *workloads.Spec) { s.Hyper.UnbiasedVariance = false }, ""},
	} {
		for i := range g.Cases {
			c := &g.Cases[i]
			if c.Precision != workloads.FP32 || !strings.Contains(c.Name, m.only) {
				continue
			}
			t.Run(m.name+"/"+c.Name, func(t *testing.T) {
				spec := g.Spec(c)
				m.edit(&spec)
				seen := 0
				train(t, devicetest.All()[0], g, spec, workloads.Fused, key("eager", "event"), func(step int, get func(kind, name string) []float32) {
					if step == 1 || step == g.Net.Steps {
						seen += len(golden.Compare(c, step, get))
					}
				})
				if seen == 0 {
					t.Error("goes unnoticed")
				}
			})
		}
	}
}
