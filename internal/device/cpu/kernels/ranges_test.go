package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tech-renaissance/trbench/workloads"
)

func bytesSpec(name string, rng *rand.Rand, n int) spec {
	s := spec{name, workloads.U8, workloads.Shape{n}, make([]float64, n)}
	for i := range s.values {
		s.values[i] = float64(rng.IntN(255))
	}
	return s
}

func rangeCases(rng *rand.Rand) (all []opCase) {
	const long = 3*chunkLen + 77
	identity := func(in [][]float64) [][]float64 { return [][]float64{in[0]} }
	labels := spec{"labels", workloads.I32, workloads.Shape{3}, []float64{4, 0, 9}}
	all = append(all,
		opCase{name: "copy_labels", op: workloads.OpCopyLabels, in: []spec{labels}, out: []spec{{"fixed", workloads.I32, workloads.Shape{3}, nil}}, want: identity},
		opCase{name: "copy_in", op: workloads.OpCopyIn, in: []spec{bytesSpec("pinned", rng, 9*chunkLen)}, out: []spec{{"raw", workloads.U8, workloads.Shape{9 * chunkLen}, nil}}, want: identity},
		opCase{ // on poison it must leave NaN; TestAddsOnto has the values
			name: "inject", op: workloads.OpInject, in: []spec{scalarSpec(workloads.Scalars{Fault: 3})}, out: []spec{outAct("g", 5)},
			want: func([][]float64) [][]float64 { return [][]float64{fill(5, math.NaN())} },
		},
		opCase{
			name: "zero", op: workloads.OpZero, out: []spec{outF32("a", 9), outAct("b", 33333), {"c", workloads.U8, workloads.Shape{3}, nil}},
			want: func([][]float64) [][]float64 { return [][]float64{fill(9, 0), fill(33333, 0), fill(3, 0)} },
		},
		opCase{
			name: "chain", op: workloads.OpChain, in: []spec{f32("a", rng, long)}, out: []spec{outF32("b", long)}, tol: 1e-6,
			want: func(in [][]float64) [][]float64 {
				b := make([]float64, long)
				for i, v := range in[0] {
					b[i] = v/2 + 1
				}
				return [][]float64{b}
			},
		},
	)
	for _, n := range []int{9, 3*chunkLen + 3} {
		mean, invstd := [3]float32{0.5, 0.25, 0.125}, [3]float32{4, 2, 3}
		all = append(all, opCase{
			name: fmt.Sprintf("normalize_%d", n), op: workloads.OpNormalize, attr: workloads.Attr{Mean: mean, InvStd: invstd}, tol: 1e-6,
			in: []spec{bytesSpec("raw", rng, n)}, out: []spec{outAct("x", n)},
			want: func(in [][]float64) [][]float64 {
				x := make([]float64, n)
				for i, u := range in[0] {
					x[i] = (u/255 - float64(mean[i%3])) * float64(invstd[i%3])
				}
				return [][]float64{x}
			},
		})
	}
	all = append(all, finiteCases(rng, long)...)
	all = append(all, statCases(rng, long)...)
	return append(all, controlCases()...)
}

func finiteCases(rng *rand.Rand, n int) (all []opCase) {
	for _, d := range []struct {
		name  string
		value float64
		found float64
	}{{"finite", math.MaxFloat32, 0}, {"inf", math.Inf(1), 1}, {"minus_inf", math.Inf(-1), 1}, {"nan", math.NaN(), 1}} {
		g := f32("g", rng, n)
		g.values[n-2] = d.value
		all = append(all, opCase{
			name: "finite_check_" + d.name, op: workloads.OpFiniteCheck, in: []spec{g},
			out: []spec{{"scalars", workloads.I32, workloads.Shape{workloads.ScalarWords}, nil}},
			want: func([][]float64) [][]float64 {
				want := fill(workloads.ScalarWords, -1) // the poison
				want[workloads.ScalarNonFinite] = d.found
				return [][]float64{want}
			},
		})
	}
	return all
}

func statCases(rng *rand.Rand, n int) []opCase {
	blendOf := func(a, b float64, y, x []float64) []float64 {
		z := make([]float64, len(y))
		for i := range z {
			z[i] = a*y[i] + b*x[i]
		}
		return z
	}
	params, running := f32("params", rng, 12), f32("running", rng, 12)
	for i := range running.values {
		running.values[i] = math.Abs(running.values[i])
	}
	norms := []workloads.NormSpan{
		{Gamma: 0, Beta: 2, Mean: 4, Var: 6, Scale: 8, Bias: 0, C: 2},
		{Gamma: 4, Beta: 8, Mean: 0, Var: 8, Scale: 2, Bias: 5, C: 3},
		{Gamma: 7, Beta: 11, Mean: 3, Var: 11, Scale: 10, Bias: 11, C: 1},
	}
	all := []opCase{
		{
			name: "update_stats", op: workloads.OpUpdateStats, attr: workloads.Attr{Momentum: 0.25}, tol: 1e-6,
			in: []spec{f32("stats", rng, n), f32("running", rng, n)}, out: []spec{outF32("running", n)}, same: []int{2},
			want: func(in [][]float64) [][]float64 { return [][]float64{blendOf(0.75, 0.25, in[1], in[0])} },
		}, {
			name: "unscale", op: workloads.OpUnscale, tol: 1e-6, in: []spec{f32("g", rng, n), scalarSpec(workloads.Scalars{Scale: 1024})},
			out: []spec{outF32("g", n)}, same: []int{1},
			want: func(in [][]float64) [][]float64 {
				return [][]float64{blendOf(1.0/1024, 0, in[0], in[0])}
			},
		}, {
			name: "bn_infer", op: workloads.OpBNInfer, attr: workloads.Attr{Eps: 1e-3, Norms: norms}, tol: 1e-5,
			in: []spec{params, running}, out: []spec{outF32("inf", 12)},
			want: func(in [][]float64) [][]float64 {
				inf := fill(12, math.NaN())
				for _, k := range norms {
					for i := range k.C {
						s := in[0][k.Gamma+i] / math.Sqrt(in[1][k.Var+i]+1e-3)
						inf[k.Scale+i], inf[k.Bias+i] = s, in[0][k.Beta+i]-in[1][k.Mean+i]*s
					}
				}
				return [][]float64{inf}
			},
		}, {
			// As with inject.
			name: "accum", op: workloads.OpAccum, attr: workloads.Attr{Slots: 2, Count: 4},
			in: []spec{f32("step", rng, 4)}, out: []spec{outF32("metrics", 6)},
			want: func([][]float64) [][]float64 { return [][]float64{fill(6, math.NaN())} },
		},
	}
	for _, skip := range []int32{0, 1} {
		all = append(all, opCase{
			name: fmt.Sprintf("ema_skip%d", skip), op: workloads.OpEMA, attr: workloads.Attr{Decay: 0.75}, tol: 1e-6,
			in:  []spec{f32("w", rng, n), f32("ema", rng, n), scalarSpec(workloads.Scalars{Skip: skip})},
			out: []spec{outF32("ema", n)}, same: []int{2},
			want: func(in [][]float64) [][]float64 {
				if skip != 0 {
					return [][]float64{in[1]}
				}
				return [][]float64{blendOf(0.75, 0.25, in[1], in[0])}
			},
		})
	}
	// A cast's two types are the activation type, F16 where it is run, and the other.
	half := act("src", rng, n)
	all = append(all,
		opCase{name: "cast_to_f32", op: workloads.OpCast, in: []spec{{"src", workloads.F16, half.shape, half.values}}, out: []spec{outF32("dst", n)},
			want: func(in [][]float64) [][]float64 { return [][]float64{in[0]} }},
		opCase{name: "cast_to_f16", op: workloads.OpCast, in: []spec{f32("src", rng, n)}, out: []spec{{"dst", workloads.F16, half.shape, nil}},
			want: func(in [][]float64) [][]float64 {
				d := make([]float64, n)
				for i, v := range in[0] {
					d[i] = float64(fromF16(workloads.ToHalf(float32(v))))
				}
				return [][]float64{d}
			}})
	return all
}

// controlCases step through every branch of the rule; the reference is the
// rule itself, so what is tested is that all words arrive.
func controlCases() (all []opCase) {
	rule := workloads.ControlRule{Dynamic: true, GrowthInterval: 3, StopAfter: 2, Rates: 3}
	static := rule
	static.Dynamic = false
	for i, d := range []struct {
		s workloads.Scalars
		r workloads.ControlRule
	}{
		{workloads.Scalars{Scale: 256, Fault: 2.5}, rule},
		{workloads.Scalars{Scale: 256, Growth: 2, Step: 9, LR: 7}, rule},
		{workloads.Scalars{Scale: 256, NonFinite: 1, Step: 1, Growth: 2, Skipped: 4}, rule},
		{workloads.Scalars{Scale: 256, NonFinite: 1, Consecutive: 1, Skip: 1, Skipped: 1}, rule},
		{workloads.Scalars{Scale: 256, Stop: 1, Consecutive: 3}, rule},
		{workloads.Scalars{Scale: workloads.MinScale, NonFinite: 1}, rule},
		{workloads.Scalars{Scale: workloads.MaxScale, Growth: 2}, rule},
		{workloads.Scalars{Scale: 1, NonFinite: 1}, static},
		{workloads.Scalars{Scale: 1, Growth: 9, Skip: 1, Consecutive: 1}, static},
	} {
		table := []float64{0.125, 0.25, 0.5, 99}
		next := d.s
		next.Advance(d.r, []float32{0.125, 0.25, 0.5, 99})
		all = append(all, opCase{
			name: fmt.Sprintf("control_%d", i), op: workloads.OpControl, attr: workloads.Attr{Control: d.r},
			in:  []spec{{"table", workloads.F32, workloads.Shape{4}, table}, scalarSpec(d.s)},
			out: []spec{{"scalars", workloads.I32, workloads.Shape{workloads.ScalarWords}, nil}}, same: []int{2},
			want: func([][]float64) [][]float64 { return [][]float64{scalarSpec(next).values} },
		})
	}
	return all
}

func optimCases(rng *rand.Rand) (all []opCase) {
	const n = chunkLen + 1000
	spans := []workloads.Span{{Off: 0, Len: 400}, {Off: 500, Len: chunkLen}, {Off: chunkLen + 600, Len: 300}}
	for _, op := range []workloads.Op{workloads.OpSGD, workloads.OpLARS} {
		for _, nesterov := range []bool{false, true} {
			for _, skip := range []int32{0, 1} {
				a := workloads.Attr{Momentum: 0.9, Decay: 0.01, Nesterov: nesterov, Trust: 0.02}
				if op == workloads.OpLARS {
					a.Spans = spans
				}
				s := workloads.Scalars{LR: 0.1, Skip: skip}
				w, g := f32("w", rng, n), f32("g", rng, n)
				copy(g.values[chunkLen+600:chunkLen+900], make([]float64, 300)) // a norm of 0
				all = append(all, opCase{
					name: fmt.Sprintf("%s_nesterov=%t_skip%d", op, nesterov, skip), op: op, attr: a, tol: 1e-5,
					in:  []spec{w, g, f32("v", rng, n), scalarSpec(s)},
					out: []spec{outF32("w", n), outF32("v", n)}, same: []int{1, 3},
					want: func(in [][]float64) [][]float64 { return refUpdate(in, a, op, float64(s.LR), skip != 0) },
				})
			}
		}
	}
	return all
}

func refUpdate(in [][]float64, a workloads.Attr, op workloads.Op, lr float64, skip bool) [][]float64 {
	w, g, v := append([]float64(nil), in[0]...), in[1], append([]float64(nil), in[2]...)
	if skip {
		return [][]float64{w, v}
	}
	spans := a.Spans
	if op == workloads.OpSGD {
		spans = []workloads.Span{{Off: 0, Len: len(w)}}
	}
	decay, momentum := float64(a.Decay), float64(a.Momentum)
	for _, s := range spans {
		ratio := 1.0
		wn := math.Sqrt(dot(w[s.Off:s.Off+s.Len], w[s.Off:s.Off+s.Len]))
		gn := math.Sqrt(dot(g[s.Off:s.Off+s.Len], g[s.Off:s.Off+s.Len]))
		if op == workloads.OpLARS && wn > 0 && gn > 0 {
			ratio = float64(a.Trust) * wn / (gn + decay*wn)
		}
		for i := s.Off; i < s.Off+s.Len; i++ {
			d := ratio * (g[i] + decay*w[i])
			v[i] = momentum*v[i] + d
			if a.Nesterov {
				w[i] -= lr * (d + momentum*v[i])
			} else {
				w[i] -= lr * v[i]
			}
		}
	}
	return [][]float64{w, v}
}
