package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tech-renaissance/trbench/workloads"
)

// allCases are small instances of every operator, with references. Backward
// operators are compared with central differences of the forward reference.
func allCases() []opCase {
	rng := rand.New(rand.NewPCG(7, 11))
	var all []opCase
	for _, f := range []func(*rand.Rand) []opCase{convCases, fcCases, normCases, pointCases, poolCases, lossCases, rangeCases, optimCases} {
		all = append(all, f(rng)...)
	}
	return all
}

func convCases(rng *rand.Rand) (all []opCase) {
	for _, g := range []geom{
		{n: 2, h: 5, w: 5, c: 3, k: 4, r: 3, s: 3, stride: 1, pad: 1},
		{n: 2, h: 6, w: 6, c: 16, k: 5, r: 3, s: 3, stride: 2, pad: 1},
		{n: 3, h: 5, w: 5, c: 4, k: 8, r: 1, s: 1, stride: 1, pad: 0},
		{n: 2, h: 5, w: 5, c: 4, k: 6, r: 1, s: 1, stride: 2, pad: 0},
		{n: 2, h: 9, w: 9, c: 3, k: 2, r: 7, s: 7, stride: 2, pad: 3},
		{n: 1, h: 7, w: 6, c: 2, k: 3, r: 3, s: 2, stride: 3, pad: 0},
		{n: 2, h: 4, w: 4, c: 2, k: 3, r: 1, s: 1, stride: 1, pad: 1},
		{n: 1, h: 1, w: 1, c: 20, k: 3, r: 3, s: 3, stride: 2, pad: 1},
		{n: 3, h: 2, w: 2, c: 70, k: 2, r: 2, s: 2, stride: 1, pad: 0},
		// More than one block, tile and call in each direction.
		{n: 5, h: 16, w: 17, c: 40, k: 5, r: 3, s: 3, stride: 1, pad: 1},
		{n: 3, h: 31, w: 33, c: 3, k: 66, r: 5, s: 5, stride: 2, pad: 2},
		{n: 9, h: 12, w: 12, c: 200, k: 9, r: 1, s: 1, stride: 1, pad: 0},
		{n: 1, h: 3, w: 700, c: 8, k: 7, r: 3, s: 3, stride: 3, pad: 1},
	} {
		g.oh, g.ow = (g.h+2*g.pad-g.r)/g.stride+1, (g.w+2*g.pad-g.s)/g.stride+1
		all = append(all, convCase3(rng, g)...)
	}
	return all
}

// convCase3 is a geometry's forward, data gradient and filter gradient.
func convCase3(rng *rand.Rand, g geom) []opCase {
	name := fmt.Sprintf("%dx%dx%dx%d_k%d_%dx%d_s%d_p%d", g.n, g.h, g.w, g.c, g.k, g.r, g.s, g.stride, g.pad)
	attr := workloads.Attr{R: g.r, S: g.s, Stride: g.stride, Pad: g.pad}
	x, w := act("x", rng, g.n, g.h, g.w, g.c), act("w", rng, g.k, g.r, g.s, g.c)
	dy := act("dy", rng, g.n, g.oh, g.ow, g.k)
	large := g.outPixels()*g.k*g.taps() > 100e3
	return []opCase{
		{
			name: "conv_" + name, op: workloads.OpConv, attr: attr, in: []spec{x, w}, tol: 1e-4,
			out:  []spec{outAct("y", g.n, g.oh, g.ow, g.k)},
			want: func(in [][]float64) [][]float64 { return [][]float64{refConv(in[0], in[1], g)} },
		}, {
			name: "conv_bwd_data_" + name, op: workloads.OpConvBwdData, attr: attr, in: []spec{dy, w}, tol: 1e-4,
			out: []spec{outAct("dx", g.n, g.h, g.w, g.c)},
			want: func(in [][]float64) [][]float64 {
				if dx, _ := refConvGrads(x.values, in[1], in[0], g); large {
					return [][]float64{dx}
				}
				return [][]float64{slope(x.values, func(p []float64) float64 { return dot(refConv(p, in[1], g), in[0]) })}
			},
		}, {
			name: "conv_bwd_filter_" + name, op: workloads.OpConvBwdFilter, attr: attr, in: []spec{x, dy}, tol: 1e-4,
			out: []spec{outAct("dw", g.k, g.r, g.s, g.c)},
			want: func(in [][]float64) [][]float64 {
				if _, dw := refConvGrads(in[0], w.values, in[1], g); large {
					return [][]float64{dw}
				}
				return [][]float64{slope(w.values, func(p []float64) float64 { return dot(refConv(in[0], p, g), in[1]) })}
			},
		},
	}
}

func fcCases(rng *rand.Rand) (all []opCase) {
	for _, d := range [][3]int{{3, 8, 5}, {1, 5, 2}, {20, 64, 10}} {
		n, c, k := d[0], d[1], d[2]
		g := geom{n: n, h: 1, w: 1, c: c, k: k, r: 1, s: 1, stride: 1, oh: 1, ow: 1}
		name := fmt.Sprintf("%dx%d_k%d", n, c, k)
		x, w, b, dy := act("x", rng, n, c), act("w", rng, k, c), f32("b", rng, k), act("dy", rng, n, k)
		forward := func(x, w, b []float64) []float64 {
			y := refConv(x, w, g)
			for i := range y {
				y[i] += b[i%k]
			}
			return y
		}
		all = append(all, opCase{
			name: "fc_" + name, op: workloads.OpFC, in: []spec{x, w, b}, out: []spec{outAct("y", n, k)}, tol: 1e-4,
			want: func(in [][]float64) [][]float64 { return [][]float64{forward(in[0], in[1], in[2])} },
		}, opCase{
			name: "fc_bwd_data_" + name, op: workloads.OpFCBwdData, in: []spec{dy, w}, out: []spec{outAct("dx", n, c)}, tol: 1e-4,
			want: func(in [][]float64) [][]float64 {
				return [][]float64{slope(x.values, func(p []float64) float64 { return dot(forward(p, in[1], b.values), in[0]) })}
			},
		}, opCase{
			name: "fc_bwd_filter_" + name, op: workloads.OpFCBwdFilter, in: []spec{x, dy}, tol: 1e-4,
			out: []spec{outAct("dw", k, c), outF32("db", k)},
			want: func(in [][]float64) [][]float64 {
				return [][]float64{
					slope(w.values, func(p []float64) float64 { return dot(forward(in[0], p, b.values), in[1]) }),
					slope(b.values, func(p []float64) float64 { return dot(forward(in[0], w.values, p), in[1]) }),
				}
			},
		})
	}
	return all
}

func normCases(rng *rand.Rand) (all []opCase) {
	for _, d := range []struct {
		name                string
		n, s, c, groups     int
		relu, add, unbiased bool
		spread, offset      float64
	}{
		{name: "plain", n: 2, s: 3, c: 4, groups: 1, spread: 1},
		{name: "unbiased", n: 2, s: 3, c: 4, groups: 1, unbiased: true, spread: 1},
		{name: "relu", n: 2, s: 3, c: 4, groups: 1, relu: true, spread: 1},
		{name: "add", n: 2, s: 3, c: 4, groups: 1, add: true, spread: 1},
		{name: "relu_add_groups", n: 4, s: 3, c: 3, groups: 2, relu: true, add: true, unbiased: true, spread: 1},
		{name: "tiny_variance", n: 4, s: 3, c: 3, groups: 1, spread: 0.01, offset: 0.5},
		{name: "one_value", n: 1, s: 1, c: 3, groups: 1, unbiased: true, spread: 1},
		{name: "many_chunks", n: 2, s: 16, c: 12, groups: 1, relu: true, add: true, spread: 1},
		{name: "wide", n: 2, s: 1, c: 1500, groups: 2, relu: true, spread: 1},
	} {
		a := workloads.Attr{Groups: d.groups, ReLU: d.relu, Add: d.add, Unbiased: d.unbiased, Eps: 1e-5}
		x, z, dy := act("x", rng, d.n, d.s, d.s, d.c), act("z", rng, d.n, d.s, d.s, d.c), act("dy", rng, d.n, d.s, d.s, d.c)
		for i := range x.values {
			x.values[i] = float64(fromF16(workloads.ToHalf(float32(x.values[i]*d.spread + d.offset))))
		}
		gamma, beta := f32("gamma", rng, d.c), f32("beta", rng, d.c)
		shape := []int{d.n, d.s, d.s, d.c}
		forward := opCase{
			name: "batch_norm_" + d.name, op: workloads.OpBatchNorm, attr: a, in: []spec{x, gamma, beta}, tol: 1e-4,
			out: []spec{outAct("y", shape...), outF32("mean", d.groups*d.c), outF32("invstd", d.groups*d.c), outF32("stat_mean", d.c), outF32("stat_var", d.c)},
			want: func(in [][]float64) [][]float64 {
				return refNorm(in[0], in[1], in[2], z.values, d.c, a)
			},
		}
		if d.add {
			forward.in = append(forward.in, z)
		}
		all = append(all, forward, normBwdCase(forward, x, gamma, beta, z, dy, a))
	}
	return all
}

func normBwdCase(f opCase, x, gamma, beta, z, dy spec, a workloads.Attr) opCase {
	c := len(gamma.values)
	saved := refNorm(x.values, gamma.values, beta.values, z.values, c, a)
	b := opCase{
		name: "batch_norm_bwd" + f.name[len("batch_norm"):], op: workloads.OpBatchNormBwd, attr: a, tol: 1e-3,
		in:  []spec{x, dy, gamma, {"mean", workloads.F32, f.out[1].shape, saved[1]}, {"invstd", workloads.F32, f.out[2].shape, saved[2]}},
		out: []spec{outAct("dx", x.shape...), outF32("dgamma", c), outF32("dbeta", c)},
	}
	if a.ReLU {
		b.in = append(b.in, spec{"y", activation, x.shape, saved[0]})
	}
	if a.Add {
		b.out = append(b.out, outAct("dz", x.shape...))
	}
	loss := func(x, gamma, beta, z, dy []float64) float64 { return dot(refNorm(x, gamma, beta, z, c, a)[0], dy) }
	b.want = func(in [][]float64) [][]float64 {
		if len(x.values) > 2000 { // central differences would take minutes
			return [][]float64{nil, nil, nil}
		}
		want := [][]float64{nil,
			slope(gamma.values, func(p []float64) float64 { return loss(x.values, p, beta.values, z.values, in[1]) }),
			slope(beta.values, func(p []float64) float64 { return loss(x.values, gamma.values, p, z.values, in[1]) }),
		}
		want[0] = slope(x.values, func(p []float64) float64 { return loss(p, gamma.values, beta.values, z.values, in[1]) })
		if a.Add {
			want = append(want, slope(z.values, func(p []float64) float64 { return loss(x.values, gamma.values, beta.values, p, in[1]) }))
		}
		return want
	}
	return b
}

func pointCases(rng *rand.Rand) (all []opCase) {
	relu := func(x []float64) []float64 {
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = math.Max(v, 0)
		}
		return y
	}
	for _, n := range []int{7, 40000} {
		x, y, dy := act("x", rng, n), act("y", rng, n), act("dy", rng, n)
		all = append(all, opCase{
			name: fmt.Sprintf("relu_%d", n), op: workloads.OpReLU, in: []spec{x}, out: []spec{outAct("y", n)},
			want: func(in [][]float64) [][]float64 { return [][]float64{relu(in[0])} },
		}, opCase{
			name: fmt.Sprintf("relu_bwd_%d", n), op: workloads.OpReLUBwd, in: []spec{y, dy}, out: []spec{outAct("dx", n)}, tol: 1e-6,
			want: func(in [][]float64) [][]float64 {
				if n > 100 {
					d := append([]float64(nil), in[1]...)
					for i, v := range in[0] {
						if !(v > 0) {
							d[i] = 0
						}
					}
					return [][]float64{d}
				}
				return [][]float64{slope(in[0], func(p []float64) float64 { return dot(relu(p), in[1]) })}
			},
		}, opCase{
			name: fmt.Sprintf("add_%d", n), op: workloads.OpAdd, in: []spec{x, y}, out: []spec{outAct("sum", n)}, tol: 1e-6,
			want: func(in [][]float64) [][]float64 {
				s := append([]float64(nil), in[0]...)
				for i, v := range in[1] {
					s[i] += v
				}
				return [][]float64{s}
			},
		})
	}
	for _, a := range []workloads.Attr{{}, {ReLU: true}, {Add: true}, {ReLU: true, Add: true}} {
		x, z := act("x", rng, 3, 5, 5, 31), act("z", rng, 3, 5, 5, 31)
		c := opCase{
			name: fmt.Sprintf("affine_relu=%t_add=%t", a.ReLU, a.Add), op: workloads.OpAffine, attr: a, tol: 1e-6,
			in: []spec{x, f32("scale", rng, 31), f32("bias", rng, 31)}, out: []spec{outAct("y", 3, 5, 5, 31)},
			want: func(in [][]float64) [][]float64 {
				y := make([]float64, len(in[0]))
				for i, v := range in[0] {
					y[i] = v*in[1][i%31] + in[2][i%31]
					if a.Add {
						y[i] += in[3][i]
					}
					if a.ReLU {
						y[i] = math.Max(y[i], 0)
					}
				}
				return [][]float64{y}
			},
		}
		if a.Add {
			c.in = append(c.in, z)
		}
		all = append(all, c)
	}
	return all
}

func poolCases(rng *rand.Rand) (all []opCase) {
	for _, p := range []maxPool{
		{n: 2, h: 6, w: 6, c: 3, r: 3, stride: 2, pad: 1},
		{n: 1, h: 5, w: 4, c: 2, r: 2, stride: 2, pad: 0},
		{n: 2, h: 4, w: 4, c: 5, r: 3, stride: 1, pad: 1},
		{n: 1, h: 3, w: 3, c: 1100, r: 3, stride: 2, pad: 1},
	} {
		p.oh, p.ow = (p.h+2*p.pad-p.r)/p.stride+1, (p.w+2*p.pad-p.r)/p.stride+1
		name := fmt.Sprintf("%dx%dx%dx%d_r%d_s%d_p%d", p.n, p.h, p.w, p.c, p.r, p.stride, p.pad)
		a := workloads.Attr{R: p.r, Stride: p.stride, Pad: p.pad}
		x, dy := act("x", rng, p.n, p.h, p.w, p.c), act("dy", rng, p.n, p.oh, p.ow, p.c)
		if p.c < 100 {
			for i, k := range rng.Perm(len(x.values)) { // no ties, for the differences
				x.values[i] = float64(k) / 64
			}
		}
		_, index := refMaxPool(x.values, p)
		all = append(all, opCase{
			name: "max_pool_" + name, op: workloads.OpMaxPool, attr: a, in: []spec{x},
			out: []spec{outAct("y", p.n, p.oh, p.ow, p.c), {"index", workloads.U8, workloads.Shape{p.n, p.oh, p.ow, p.c}, nil}},
			want: func(in [][]float64) [][]float64 {
				y, index := refMaxPool(in[0], p)
				return [][]float64{y, index}
			},
		}, opCase{
			name: "max_pool_bwd_" + name, op: workloads.OpMaxPoolBwd, attr: a, tol: 1e-5,
			in:  []spec{dy, {"index", workloads.U8, dy.shape, index}},
			out: []spec{outAct("dx", p.n, p.h, p.w, p.c)},
			want: func(in [][]float64) [][]float64 {
				if p.c > 100 {
					return [][]float64{nil}
				}
				return [][]float64{slope(x.values, func(q []float64) float64 {
					y, _ := refMaxPool(q, p)
					return dot(y, in[0])
				})}
			},
		})
	}
	for _, d := range [][3]int{{2, 3, 5}, {1, 1, 4}, {2, 2, 1100}} {
		n, s, c := d[0], d[1], d[2]
		x, dy := act("x", rng, n, s, s, c), act("dy", rng, n, c)
		all = append(all, opCase{
			name: fmt.Sprintf("avg_pool_%dx%dx%d", n, s, c), op: workloads.OpAvgPool, in: []spec{x}, out: []spec{outAct("y", n, c)}, tol: 1e-5,
			want: func(in [][]float64) [][]float64 { return [][]float64{refAvgPool(in[0], n, s*s, c)} },
		}, opCase{
			name: fmt.Sprintf("avg_pool_bwd_%dx%dx%d", n, s, c), op: workloads.OpAvgPoolBwd, in: []spec{dy}, out: []spec{outAct("dx", n, s, s, c)}, tol: 1e-5,
			want: func(in [][]float64) [][]float64 {
				if c > 100 {
					return [][]float64{nil}
				}
				return [][]float64{slope(x.values, func(q []float64) float64 { return dot(refAvgPool(q, n, s*s, c), in[0]) })}
			},
		})
	}
	return all
}

func lossCases(rng *rand.Rand) (all []opCase) {
	for _, d := range []struct {
		n, k      int
		smoothing float32
	}{{4, 5, 0}, {4, 5, 0.1}, {1, 2, 0.25}, {6, 1100, 0.1}} {
		z := act("logits", rng, d.n, d.k)
		labels := spec{"labels", workloads.I32, workloads.Shape{d.n}, nil}
		for i := range d.n {
			labels.values = append(labels.values, float64(i%d.k))
		}
		z.values[0] = 5 // at least one hit
		scale := 8.0
		step := spec{"step", workloads.F32, workloads.Shape{workloads.StepWords}, []float64{0.5, 2, 3, 4}}
		all = append(all, opCase{
			name: fmt.Sprintf("loss_%dx%d_s%v", d.n, d.k, d.smoothing), op: workloads.OpLoss, attr: workloads.Attr{Smoothing: d.smoothing}, tol: 1e-5,
			in:  []spec{z, labels, scalarSpec(workloads.Scalars{Scale: float32(scale)}), step},
			out: []spec{outAct("dlogits", d.n, d.k), outF32("step", workloads.StepWords)}, same: []int{0, 4},
			want: func(in [][]float64) [][]float64 {
				losses, hits := refLoss(in[0], in[1], d.k, float64(d.smoothing))
				want := [][]float64{nil, {0.5 + mean(losses), 2 + hits, 3, 4}}
				if d.k < 100 {
					want[0] = slope(in[0], func(p []float64) float64 {
						losses, _ := refLoss(p, in[1], d.k, float64(d.smoothing))
						return scale * mean(losses)
					})
				}
				return want
			},
		})
		for slot := range 2 {
			all = append(all, opCase{
				name: fmt.Sprintf("loss_eval_%dx%d_s%v_slot%d", d.n, d.k, d.smoothing, slot), op: workloads.OpLossEval, attr: workloads.Attr{Slot: slot}, tol: 1e-5,
				in: []spec{z, labels}, out: []spec{outF32("step", workloads.StepWords)},
				want: func(in [][]float64) [][]float64 {
					losses, hits := refLoss(in[0], in[1], d.k, 0)
					want := fill(workloads.StepWords, math.NaN())
					want[2*slot], want[2*slot+1] = mean(losses), hits
					return [][]float64{want}
				},
			})
		}
	}
	return all
}
