package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"

	"github.com/tech-renaissance/trbench/workloads"
)

// TestReferenceGradients holds the loops for large cases against differences.
func TestReferenceGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	g := geom{n: 2, h: 5, w: 6, c: 2, k: 3, r: 3, s: 2, stride: 2, pad: 1, oh: 3, ow: 4}
	x, w, dy := random(rng, g.inPixels()*g.c), random(rng, g.k*g.taps()), random(rng, g.outPixels()*g.k)
	dx, dw := refConvGrads(x, w, dy, g)
	compare(t, "dx", dx, slope(x, func(p []float64) float64 { return dot(refConv(p, w, g), dy) }), 1e-6)
	compare(t, "dw", dw, slope(w, func(p []float64) float64 { return dot(refConv(x, p, g), dy) }), 1e-6)
}

func TestFromF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := fromF16(h), float16.Frombits(h).Float32()
		if got != want && !(got != got && want != want) || math.Signbit(float64(got)) != math.Signbit(float64(want)) {
			t.Fatalf("%#04x: %v, want %v", h, got, want)
		}
		if back := workloads.ToHalf(got); back != h && got == got {
			t.Fatalf("%#04x came back as %#04x", h, back)
		}
	}
}

func TestToF16(t *testing.T) {
	check := func(f float32) {
		got, want := workloads.ToHalf(f), float16.Fromfloat32(f).Bits()
		if f != f {
			if v := fromF16(got); v == v {
				t.Fatalf("NaN %#08x became %#04x", math.Float32bits(f), got)
			}
			return
		}
		if got != want {
			t.Fatalf("%v (%#08x): %#04x, want %#04x", f, math.Float32bits(f), got, want)
		}
	}
	// Every half, the midpoint to the next one, and the neighbours of both.
	for i := range 1 << 16 {
		a := fromF16(uint16(i))
		b := fromF16(uint16(i + 1))
		for _, f := range []float32{a, float32((float64(a) + float64(b)) / 2)} {
			check(f)
			check(math.Nextafter32(f, float32(math.Inf(1))))
			check(math.Nextafter32(f, float32(math.Inf(-1))))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1 << 20 {
		check(math.Float32frombits(rng.Uint32()))
	}
	for _, f := range []float32{0, float32(math.Copysign(0, -1)), 65504, 65519.996, 65520, 65536, math.MaxFloat32, 0x1p-24, 0x1p-25, 0x1.000002p-25, math.SmallestNonzeroFloat32} {
		check(f)
		check(-f)
	}
}

// TestNonFinite puts Inf and NaN into one operand while the other is 0: the
// product is NaN, as on a GPU, and stays away from results it does not feed.
func TestNonFinite(t *testing.T) {
	pool := newPool(t, 2)
	rng := rand.New(rand.NewPCG(3, 4))
	cases := convCases(rng)
	cases = append(cases, fcCases(rng)...)
	for _, c := range cases {
		for which := range 2 {
			for _, v := range []float64{math.Inf(1), math.NaN()} {
				for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
					t.Run(fmt.Sprintf("%s/%s_%v_%s", c.name, c.in[which].name, v, d), func(t *testing.T) {
						c := c
						c.in = append([]spec(nil), c.in...)
						one := fill(len(c.in[which].values), 1)
						// A pixel in the middle, or one filter's tap there, is seen
						// by some result.
						one[len(one)/2] = v
						c.in[which].values = one
						c.in[1-which].values = fill(len(c.in[1-which].values), 0)
						r := newRig(c, d)
						r.compile(t, pool)()
						got := r.get(&r.bound.Out[0])
						want := seen(c, which)
						for i := range got {
							if want[i] && !math.IsNaN(got[i]) {
								t.Fatalf("element %d is %v, want NaN", i, got[i])
							}
						}
						if c.in[which].name != "w" && everything(got) && len(got) > 100 {
							t.Fatal("every element is NaN")
						}
					})
				}
			}
		}
	}
}

func everything(v []float64) bool {
	for _, x := range v {
		if !math.IsNaN(x) {
			return false
		}
	}
	return true
}

// seen says which results have the odd value of operand which in their sum. It
// computes the operator's reference with 0 everywhere but there, and 1 in the
// other operand.
func seen(c opCase, which int) []bool {
	in := make([][]float64, len(c.in))
	for i := range in {
		in[i] = fill(len(c.in[i].values), 0)
	}
	in[which][len(in[which])/2] = 1
	in[1-which] = fill(len(in[1-which]), 1)
	s := make([]bool, c.out[0].shape.Elems())
	for i, v := range c.want(in)[0] {
		s[i] = math.Abs(v) > 0.5
	}
	return s
}

// TestFused: the fused batch norm gives the bits of the separate operators.
func TestFused(t *testing.T) {
	pool := newPool(t, 2)
	for _, c := range normCases(rand.New(rand.NewPCG(5, 6))) {
		if c.op != workloads.OpBatchNorm || !c.attr.ReLU && !c.attr.Add {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			fused := newRig(c, workloads.F32)
			fused.compile(t, pool)()
			plain := c
			plain.attr.ReLU, plain.attr.Add = false, false
			plain.in = c.in[:3]
			r := newRig(plain, workloads.F32)
			r.compile(t, pool)()
			y := r.get(&r.bound.Out[0])
			shape := c.in[0].shape
			step := func(op workloads.Op, in ...spec) {
				s := newRig(opCase{name: "step", op: op, in: in, out: []spec{outF32("y", shape...)}}, workloads.F32)
				s.compile(t, pool)()
				y = s.get(&s.bound.Out[0])
			}
			if c.attr.Add {
				step(workloads.OpAdd, spec{"y", workloads.F32, shape, y}, c.in[3])
			}
			if c.attr.ReLU {
				step(workloads.OpReLU, spec{"y", workloads.F32, shape, y})
			}
			compare(t, "y", fused.get(&fused.bound.Out[0]), y, 0)
		})
	}
}

// TestNormPrecision: variances of 1e-8 beside means of 1, and Inf in the data.
func TestNormPrecision(t *testing.T) {
	pool := newPool(t, 2)
	rng := rand.New(rand.NewPCG(8, 9))
	a := workloads.Attr{Groups: 1, Eps: 1e-12}
	x := spec{"x", workloads.F32, workloads.Shape{4, 8, 8, 3}, random(rng, 4*8*8*3)}
	for i, v := range x.values {
		x.values[i] = float64(float32(1 + 1e-4*v))
	}
	gamma, beta := spec{"gamma", workloads.F32, workloads.Shape{3}, fill(3, 1)}, spec{"beta", workloads.F32, workloads.Shape{3}, fill(3, 0)}
	c := opCase{name: "precise", op: workloads.OpBatchNorm, attr: a, in: []spec{x, gamma, beta},
		out: []spec{outF32("y", x.shape...), outF32("mean", 3), outF32("invstd", 3), outF32("stat_mean", 3), outF32("stat_var", 3)}}
	r := newRig(c, workloads.F32)
	r.compile(t, pool)()
	want := refNorm(x.values, gamma.values, beta.values, nil, 3, a)
	for i := range 3 {
		if got, v := r.get(&r.bound.Out[4])[i], want[4][i]; math.Abs(got-v) > 1e-6*v {
			t.Errorf("variance %v, want %v", got, v)
		}
		if got, v := r.get(&r.bound.Out[2])[i], want[2][i]; math.Abs(got-v) > 1e-6*v {
			t.Errorf("invstd %v, want %v", got, v)
		}
	}
	x.values[4] = math.Inf(1)
	c.in[0] = x
	r = newRig(c, workloads.F32)
	r.compile(t, pool)()
	if m := r.get(&r.bound.Out[1]); !math.IsInf(m[1], 1) || math.IsNaN(m[0]) {
		t.Errorf("means %v, want Inf in the second channel only", m)
	}
	for i, v := range r.get(&r.bound.Out[0]) {
		if math.IsNaN(v) != (i%3 == 1) {
			t.Fatalf("y[%d] = %v", i, v)
		}
	}
}

func TestNaNRules(t *testing.T) {
	pool := newPool(t, 1)
	nan, inf := math.NaN(), math.Inf(1)
	vector := func(name string, v ...float64) spec { return spec{name, activation, workloads.Shape{len(v)}, v} }
	image := func(v ...float64) spec { return spec{"x", activation, workloads.Shape{1, 2, 2, 1}, v} }
	index := spec{"index", workloads.U8, workloads.Shape{1, 1, 1, 1}, nil}
	pool2 := func(name string, x spec, y, at float64) opCase {
		return opCase{name: name, op: workloads.OpMaxPool, attr: workloads.Attr{R: 2, Stride: 2}, in: []spec{x},
			out:  []spec{outAct("y", 1, 1, 1, 1), index},
			want: func([][]float64) [][]float64 { return [][]float64{{y}, {at}} }}
	}
	for _, c := range []opCase{
		{name: "relu", op: workloads.OpReLU, in: []spec{vector("x", nan, -inf, inf, math.Copysign(0, -1))}, out: []spec{outAct("y", 4)},
			want: func([][]float64) [][]float64 { return [][]float64{{nan, 0, inf, 0}} }},
		{name: "relu_bwd", op: workloads.OpReLUBwd, in: []spec{
			vector("y", nan, -nan, inf, -inf, 0, math.Copysign(0, -1), 1, 0x1p-24), vector("dy", 1, 1, 1, nan, inf, 1, nan, 1)}, out: []spec{outAct("dx", 8)},
			want: func([][]float64) [][]float64 { return [][]float64{{0, 0, 1, 0, 0, 0, nan, 1}} }},
		{name: "affine_relu", op: workloads.OpAffine, attr: workloads.Attr{ReLU: true}, out: []spec{outAct("y", 1)},
			in:   []spec{vector("x", nan), {"scale", workloads.F32, workloads.Shape{1}, []float64{1}}, {"bias", workloads.F32, workloads.Shape{1}, []float64{1}}},
			want: func([][]float64) [][]float64 { return [][]float64{{nan}} }},
		pool2("max_pool_first_of_equals", image(1, 3, 3, 2), 3, 1),
		pool2("max_pool_nan_wins", image(1, inf, nan, 2), nan, 2),
		pool2("max_pool_first_nan", image(1, nan, nan, 2), nan, 1),
		pool2("max_pool_minus_inf", image(-inf, -inf, -inf, -inf), -inf, 0),
	} {
		for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
			t.Run(fmt.Sprintf("%s/%s", c.name, d), func(t *testing.T) {
				r := newRig(c, d)
				r.compile(t, pool)()
				for i, want := range c.want(nil) {
					compare(t, c.out[i].name, r.get(&r.bound.Out[i]), want, 0)
				}
			})
		}
	}
	// Padding is no candidate, not even where the image is -Inf.
	c := opCase{name: "padding", op: workloads.OpMaxPool, attr: workloads.Attr{R: 3, Stride: 2, Pad: 1}, in: []spec{image(-inf, -inf, -inf, -inf)}, out: []spec{outAct("y", 1, 1, 1, 1), index}}
	r := newRig(c, workloads.F32)
	r.compile(t, pool)()
	compare(t, "index", r.get(&r.bound.Out[1]), []float64{4}, 0)
}

// TestBadLabel: the loss is NaN and nothing else is touched.
func TestBadLabel(t *testing.T) {
	pool := newPool(t, 2)
	c := lossCases(rand.New(rand.NewPCG(1, 2)))[0]
	for _, label := range []float64{-1, 5, math.MaxInt32, math.MinInt32} {
		for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
			c.in[1].values = []float64{0, label, 2, 3}
			r := newRig(c, d)
			r.compile(t, pool)()
			r.checkRegions(t)
			step := r.get(&r.bound.Out[1])
			if !math.IsNaN(step[workloads.StepLoss]) || math.IsNaN(step[workloads.StepHits]) || step[2] != 3 || step[3] != 4 {
				t.Errorf("label %v: step %v", label, step)
			}
			for i, v := range r.get(&r.bound.Out[0]) {
				if math.IsNaN(v) != (i/5 == 1) {
					t.Fatalf("label %v: dlogits[%d] = %v", label, i, v)
				}
			}
		}
	}
}

func TestHits(t *testing.T) {
	pool := newPool(t, 1)
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		row   []float64
		label float64
		want  float64
	}{
		{"largest", []float64{1, 3, 2}, 1, 1}, {"not largest", []float64{1, 3, 2}, 2, 0},
		{"first of equals", []float64{3, 3, 2}, 0, 1}, {"second of equals", []float64{3, 3, 2}, 1, 0},
		{"nan elsewhere", []float64{3, nan, 2}, 0, 0}, {"nan itself", []float64{nan, 1, 2}, 0, 0},
	} {
		r := newRig(opCase{name: "hits", op: workloads.OpLossEval,
			in:  []spec{{"logits", workloads.F32, workloads.Shape{1, 3}, c.row}, {"labels", workloads.I32, workloads.Shape{1}, []float64{c.label}}},
			out: []spec{outF32("step", workloads.StepWords)}}, workloads.F32)
		r.compile(t, pool)()
		if got := r.get(&r.bound.Out[0])[1]; got != c.want {
			t.Errorf("%s: %v hits, want %v", c.name, got, c.want)
		}
	}
}

// TestAddsOnto covers the outputs that operators add to without an input of
// the same memory.
func TestAddsOnto(t *testing.T) {
	pool := newPool(t, 1)
	r := newRig(opCase{name: "accum", op: workloads.OpAccum, attr: workloads.Attr{Slots: 2, Count: 4},
		in:  []spec{{"step", workloads.F32, workloads.Shape{4}, []float64{0.5, 3, 0.25, 2}}},
		out: []spec{outF32("metrics", 6)}}, workloads.F32)
	f := r.compile(t, pool)
	r.set(&r.bound.Out[0], []float64{1, 2, 3, 4, 5, 6})
	f()
	compare(t, "metrics", r.get(&r.bound.Out[0]), []float64{3, 5, 7, 5, 7, 10}, 0)
	for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
		r := newRig(opCase{name: "inject", op: workloads.OpInject, in: []spec{scalarSpec(workloads.Scalars{Fault: 3})}, out: []spec{outAct("g", 3)}}, d)
		f := r.compile(t, pool)
		r.set(&r.bound.Out[0], []float64{1, 2, 4})
		f()
		compare(t, "g", r.get(&r.bound.Out[0]), []float64{4, 2, 4}, 0)
	}
}
