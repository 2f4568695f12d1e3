package worker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// goldenTiny is golden-tiny's forward pass for inference, one image at a time in
// float64 and with nothing of this project's but the weights: written down here
// on its own, so that it can tell what the sub-graphs leave out.
type goldenTiny struct {
	get   func(name string) []float64 // a weight, as inference reads it
	norm  func(name string) []float64 // batch norm's vectors and the bias, not rounded
	round func(float64) float64       // what storing an activation does
}

// image is one of channels-last values.
type image struct {
	side, c int
	v       []float64
}

func (g goldenTiny) rounded(x image) image {
	for i := range x.v {
		x.v[i] = g.round(x.v[i])
	}
	return x
}

func (g goldenTiny) conv(x image, name string, out, kernel, stride int) image {
	w, pad := g.get(name+".weight"), kernel/2
	y := image{side: x.side / stride, c: out}
	y.v = make([]float64, y.side*y.side*out)
	for row := range y.side {
		for col := range y.side {
			for k := range out {
				sum := 0.0
				for r := range kernel {
					for s := range kernel {
						i, j := row*stride+r-pad, col*stride+s-pad
						if i < 0 || j < 0 || i >= x.side || j >= x.side {
							continue
						}
						for c := range x.c {
							sum += x.v[(i*x.side+j)*x.c+c] * w[((k*kernel+r)*kernel+s)*x.c+c]
						}
					}
				}
				y.v[(row*y.side+col)*out+k] = sum
			}
		}
	}
	return g.rounded(y)
}

// unit is a convolution, its batch norm by running statistics, then z added, if
// there is one, and ReLU, if wanted. They are stored together.
func (g goldenTiny) unit(x image, conv, bn string, out, kernel, stride int, relu bool, z *image) image {
	y := g.conv(x, conv, out, kernel, stride)
	gamma, beta := g.norm(bn+".gamma"), g.norm(bn+".beta")
	mean, variance := g.norm(bn+".running_mean"), g.norm(bn+".running_var")
	for i := range y.v {
		c := i % out
		y.v[i] = gamma[c]*(y.v[i]-mean[c])/math.Sqrt(variance[c]+1e-5) + beta[c]
		if z != nil {
			y.v[i] += z.v[i]
		}
		if relu {
			y.v[i] = max(y.v[i], 0)
		}
	}
	return g.rounded(y)
}

func (g goldenTiny) logits(x image) []float64 {
	x = g.unit(x, "stem.conv", "stem.bn", 8, 3, 1, true, nil)

	h := g.unit(x, "layer1.0.conv1", "layer1.0.bn1", 8, 3, 1, true, nil)
	x = g.unit(h, "layer1.0.conv2", "layer1.0.bn2", 8, 3, 1, true, &x)

	h = g.unit(x, "layer2.0.conv1", "layer2.0.bn1", 16, 3, 2, true, nil)
	z := g.unit(x, "layer2.0.down.conv", "layer2.0.down.bn", 16, 1, 2, false, nil)
	x = g.unit(h, "layer2.0.conv2", "layer2.0.bn2", 16, 3, 1, true, &z)

	h = g.unit(x, "layer3.0.conv1", "layer3.0.bn1", 8, 1, 1, true, nil)
	h = g.unit(h, "layer3.0.conv2", "layer3.0.bn2", 8, 3, 2, true, nil)
	z = g.unit(x, "layer3.0.down.conv", "layer3.0.down.bn", 32, 1, 2, false, nil)
	x = g.unit(h, "layer3.0.conv3", "layer3.0.bn3", 32, 1, 1, true, &z)

	pooled := make([]float64, x.c)
	for i, v := range x.v {
		pooled[i%x.c] += v / float64(x.side*x.side)
	}
	w, bias := g.get("fc.weight"), g.norm("fc.bias")
	out := make([]float64, len(bias))
	for k := range out {
		sum := bias[k]
		for c := range pooled {
			sum += g.round(pooled[c]) * w[k*x.c+c]
		}
		out[k] = g.round(sum)
	}
	return out
}

// verdict is what the metrics should say of some images. Of hits that rounding
// could decide there is an upper and a lower number.
type verdict struct {
	loss             float64
	sure, maybe, all int
}

// judge runs a batch of raw images.
func (g goldenTiny) judge(v *verdict, side int, images, labels []byte, n int) {
	mean, std := [3]float64{.4914, .4822, .4465}, [3]float64{.2470, .2435, .2616}
	for i := range n {
		x := image{side, 3, make([]float64, side*side*3)}
		for k := range x.v {
			x.v[k] = (float64(images[i*len(x.v)+k])/255 - mean[k%3]) / std[k%3]
		}
		logits := g.logits(g.rounded(x))
		label := int(binary.LittleEndian.Uint32(labels[4*i:]))
		sum, best := 0.0, math.Inf(-1)
		for k, l := range logits {
			sum += math.Exp(l - logits[label])
			if k != label {
				best = max(best, l)
			}
		}
		v.loss += math.Log(sum)
		v.all++
		switch margin := logits[label] - best; {
		case margin > 0.02:
			v.sure++
		case margin > -0.02:
			v.maybe++
		}
	}
}

// toHalf rounds to the nearest number that has 11 bits, or is a multiple of 2^-24.
func toHalf(x float64) float64 {
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-11, -24))
	return math.RoundToEven(x/unit) * unit
}

func TestInferenceIsTheReferences(t *testing.T) {
	for _, c := range []struct {
		precision workloads.Precision
		lowering  workloads.Lowering
		tolerance float64
	}{
		{workloads.FP32, workloads.Fused, 1e-4},
		{workloads.FP32, workloads.Plain, 1e-4},
		{workloads.AMP, workloads.Fused, 1e-3},
	} {
		t.Run(fmt.Sprintf("%s/fused=%v", c.precision, c.lowering.FusedNorm), func(t *testing.T) {
			hyper := workloads.DefaultHyper(workloads.SGD)
			hyper.LearningRates, hyper.EMADecay = []float32{0.5}, 0.5
			spec := workloads.Spec{Model: "golden-tiny", Batch: 4, Precision: c.precision, EMA: true, Smoothing: 0.1,
				LastTrainBatch: 1, LastValBatch: 3, Hyper: hyper}
			src := data.NewLearnable(5, 10)
			s := open(t, spec, cpu.Options{Lowering: &c.lowering}, Options{Source: src, Timed: workloads.FinalFull,
				Variants: []workloads.Variant{workloads.FinalFull, workloads.FinalLast, workloads.ValFull, workloads.ValLast}})
			x := executor(t, s, key("eager/event/device"))
			must(t, x.Run(Epoch(workloads.FinalFull, 3, true)...), x.Wait())
			first := 0
			for _, full := range []int{3, 2} { // the last batch in half B, then in half A
				must(t, x.Run(Validation(full, true)...), x.Wait())
				st := state(t, s)
				got := floats(t, st, "metrics")
				var loss [2]float64
				for slot, prefix := range []string{"", "ema:"} {
					var want verdict
					g := reference(t, st, c.precision, prefix)
					for i := range full + 1 {
						n := spec.Batch
						if i == full {
							n = spec.LastValBatch
						}
						images, labels := make([]byte, spec.Batch*16*16*3), make([]byte, spec.Batch*4)
						src.Fill(data.Val, 0, 1, first+i, spec.Batch, 16, images, labels)
						g.judge(&want, 16, images, labels, n)
					}
					loss[slot] = want.loss
					m := got[slot*workloads.MetricWords:]
					if d := math.Abs(float64(m[workloads.MetricLoss])/want.loss - 1); !(d < c.tolerance) {
						t.Errorf("%d+1 batches, %q weights: loss %v, the reference's is %v (%.2g)", full, prefix, m[workloads.MetricLoss], want.loss, d)
					}
					if h := int(m[workloads.MetricHits]); h < want.sure || h > want.sure+want.maybe {
						t.Errorf("%d+1 batches, %q weights: %d hits, the reference has %d to %d", full, prefix, h, want.sure, want.sure+want.maybe)
					}
					if want.maybe > 2 {
						t.Errorf("%d of %d hits are too close to say", want.maybe, want.all)
					}
					if n := float32(full*spec.Batch + spec.LastValBatch); m[workloads.MetricCount] != n || want.all != int(n) {
						t.Errorf("%d+1 batches, %q weights: %v images, want %v", full, prefix, m[workloads.MetricCount], n)
					}
				}
				if d := math.Abs(loss[0]/loss[1] - 1); d < 0.05 {
					t.Errorf("weights and averages have losses %v and %v: too close to be told apart", loss[0], loss[1])
				}
				first += full + 1
			}
		})
	}
}

// reference reads the weights out of a state: the FP32 ones, rounded here, not
// the half copies, which may be stale.
func reference(t testing.TB, st *State, p workloads.Precision, prefix string) goldenTiny {
	t.Helper()
	round := func(x float64) float64 { return x }
	if p == workloads.AMP {
		round = toHalf
	}
	known := map[string][]float64{}
	read := func(name string, round func(float64) float64) []float64 {
		v, ok := known[name]
		if ok {
			return v
		}
		for _, x := range floats(t, st, name) {
			v = append(v, round(float64(x)))
		}
		known[name] = v
		return v
	}
	return goldenTiny{
		get: func(name string) []float64 { return read(prefix+name, round) },
		norm: func(name string) []float64 {
			if _, running := st.w.Lookup(prefix + name); running {
				name = prefix + name // running statistics exist once
			}
			return read(name, func(x float64) float64 { return x })
		},
		round: round,
	}
}

// A training epoch's metrics are the sum of its steps', each weighed by its
// images, the partial last one included.
func TestTrainingMetricsAreTheStepsSum(t *testing.T) {
	spec := workloads.Spec{Model: "golden-tiny", Batch: 4, EMA: true, LastTrainBatch: 3, LastValBatch: 1}
	spec.Hyper = workloads.DefaultHyper(workloads.SGD)
	s := open(t, spec, cpu.Options{}, Options{Timed: workloads.FinalFull, Source: data.NewLearnable(5, 10),
		Variants: []workloads.Variant{workloads.FinalFull, workloads.FinalLast}})
	for _, k := range eachMode() {
		x := executor(t, s, k)
		must(t, s.Restore(), x.Run(Epoch(workloads.FinalFull, 3, true)...), x.Wait())
		got := floats(t, state(t, s), "metrics")

		must(t, s.Restore())
		var want [workloads.MetricWords]float64
		losses := map[float32]bool{}
		for _, seg := range Epoch(workloads.FinalFull, 3, true) {
			must(t, x.Run(seg), x.Wait())
			if seg.Phase != workloads.TrainStep {
				continue
			}
			step, n := floats(t, state(t, s), "step"), float64(spec.Batch)
			if seg.Variant.Last() {
				n = float64(spec.LastTrainBatch)
			}
			losses[step[workloads.StepLoss]] = true
			want[workloads.MetricLoss] += float64(step[workloads.StepLoss]) * n
			want[workloads.MetricHits] += float64(step[workloads.StepHits])
			want[workloads.MetricCount] += n
		}
		for i, name := range []string{workloads.MetricLoss: "loss", workloads.MetricHits: "hits", workloads.MetricCount: "count"} {
			if d := math.Abs(float64(got[i]) - want[i]); d > 1e-5*want[i] {
				t.Errorf("%s: %s is %v, the steps sum up to %v", k, name, got[i], want[i])
			}
		}
		if want[workloads.MetricCount] != 15 || len(losses) != 4 || want[workloads.MetricHits] == 0 {
			t.Errorf("%s: %v with losses %v shows nothing", k, want, losses)
		}
	}
}

// At the end of an epoch and of a validation every rank has the sum of all
// ranks' metrics, main and averaged.
func TestMetricsAreSummedOverRanks(t *testing.T) {
	spec := tinySpec()
	spec.Ranks = 2
	s := open(t, spec, cpu.Options{}, Options{Variants: workloads.AllVariants(), Timed: workloads.FinalFull})
	x := executor(t, s, key("eager/event/device"))
	for _, script := range [][]workloads.Segment{Epoch(workloads.FinalFull, 2, true), Validation(2, true)} {
		end := len(script) - 1
		must(t, x.Run(script[:end]...), x.Wait())
		st := state(t, s)
		a, b := decode(st.Tensor(0, "metrics")), decode(st.Tensor(1, "metrics"))
		if slices.Equal(a, b) {
			t.Errorf("before %s both ranks have %v", script[end].Phase, a)
		}
		if script[end].Phase == workloads.ValEnd && (a[workloads.MetricWords+workloads.MetricCount] != 5 || a[workloads.MetricWords] <= 0) {
			t.Errorf("the averages' metrics are %v", a[workloads.MetricWords:])
		}
		must(t, x.Run(script[end]), x.Wait())
		st = state(t, s)
		for rank := range spec.Ranks {
			for i, got := range decode(st.Tensor(rank, "metrics")) {
				if got != a[i]+b[i] {
					t.Errorf("%s, rank %d: word %d is %v, want %v + %v", script[end].Phase, rank, i, got, a[i], b[i])
				}
			}
		}
	}
}
