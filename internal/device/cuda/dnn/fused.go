package dnn

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/workloads"
)

// Pattern names operations that one kernel does together with a convolution.
// All of them are for F16; on an H200 every layer of ResNet-50 behind the stem
// is supported. Plans are bound to the operands listed, inputs first.
type Pattern string

const (
	// ConvStats normalises on the way in and counts on the way out.
	//
	//	inputs:  x [N,H,W,C], scale [C], bias [C], w [K,R,S,C], all F16
	//	outputs: y [N,OH,OW,K] F16, sum [K] F32, square sum [K] F32
	//	y = conv(max(0, x*scale + bias), w); whether the sums take y before or
	//	after it is rounded to F16 is the engine's
	ConvStats Pattern = "conv_stats"
	// BwdFilterNorm recomputes the normalised input.
	//
	//	inputs:  x [N,H,W,C], scale [C], bias [C], dy [N,OH,OW,K], all F16
	//	outputs: dw [K,R,S,C] F16
	//	dw = the filter gradient of conv at max(0, x*scale + bias)
	BwdFilterNorm Pattern = "bwd_filter_norm"
	// BwdDataNorm goes on through the ReLU and begins the batch norm before it.
	//
	//	inputs:  dy [N,OH,OW,K] F16, w [K,R,S,C] F16, x [N,H,W,C] F16 (the batch
	//	         norm's input), mean, invstd, gamma, beta [C] F32
	//	outputs: dz [N,H,W,C] F16 (the gradient at the batch norm's output, behind
	//	         the ReLU's mask), dgamma, dbeta, eqDY, eqX, eqBias [C] F32
	//
	// The batch norm's input gradient is then eqDY*dz + eqX*x + eqBias.
	BwdDataNorm Pattern = "bwd_data_norm"
)

// Fused is a pattern around a convolution.
type Fused struct {
	Pattern  Pattern
	Geometry Geometry
	// Align is the alignment of all operands in bytes; 0 means 16.
	Align int64
}

// FusedCandidates is [Builder.Candidates] for a pattern.
func (b *Builder) FusedCandidates(f Fused) ([]Candidate, error) {
	n, err := f.node()
	if err != nil {
		return nil, err
	}
	return b.candidates(n)
}

// BuildFused is [Builder.Build] for a pattern.
func (b *Builder) BuildFused(f Fused, c Choice) (*Plan, error) {
	n, err := f.node()
	if err != nil {
		return nil, err
	}
	return b.build(n, c)
}

// PickFused is [Builder.Pick] for a pattern.
func (b *Builder) PickFused(f Fused, cands []Candidate, time Timer) (Choice, []Timing, error) {
	n, err := f.node()
	if err != nil {
		return Choice{}, nil, err
	}
	return b.pick(n, cands, time)
}

func (f Fused) node() (*node, error) {
	n := &node{what: string(f.Pattern), geom: f.Geometry, align: f.Align}
	if n.align == 0 {
		n.align = maxAlign
	}
	switch f.Pattern {
	case ConvStats:
		n.args, n.make = 7, convStats
	case BwdFilterNorm:
		n.args, n.make = 5, bwdFilterNorm
	case BwdDataNorm:
		n.args, n.make = 13, bwdDataNorm
	default:
		return nil, fmt.Errorf("pattern %q: %w", f.Pattern, ErrUnsupported)
	}
	if f.Geometry.DType != workloads.F16 {
		return nil, fmt.Errorf("pattern %q in %s: %w", f.Pattern, f.Geometry.DType, ErrUnsupported)
	}
	return n, nil
}

// inner is an FP32 tensor of the input's shape that lives inside the kernel.
func (g *graph) inner(n *node) cudnn.Descriptor {
	c := n.geom
	return g.tensor(tensor{dtype: cudnn.Float, dims: images(c.N, c.H, c.W, c.C), align: n.align, virtual: true})
}

// normalised adds max(0, x*scale + bias) and returns it; x, scale and bias are
// operands 0, 1 and 2.
func (g *graph) normalised(n *node) (out cudnn.Descriptor) {
	c := n.geom
	scale, x := g.vector(n, cudnn.Half, c.C, 1), g.x(n, 0)
	scaled := g.inner(n)
	bias := g.vector(n, cudnn.Half, c.C, 2)
	shifted, relu := g.inner(n), g.inner(n)
	g.pointwise(cudnn.PointwiseMul, x, scale, scaled)
	g.pointwise(cudnn.PointwiseAdd, scaled, bias, shifted)
	g.pointwise(cudnn.PointwiseReLUFwd, shifted, 0, relu)
	return relu
}

func convStats(_ *Builder, g *graph, n *node) {
	c := n.geom
	in := g.normalised(n)
	w, y := g.w(n, 3), g.y(n, 4)
	sum, square := g.vector(n, cudnn.Float, c.K, 5), g.vector(n, cudnn.Float, c.K, 6)
	g.operation(convForward, g.convolution(c), in, w, y)
	d := g.create(cudnn.OperationGenStats)
	set(g, d, cudnn.GenStatsXDesc, cudnn.TypeDescriptor, y)
	set(g, d, cudnn.GenStatsMode, cudnn.TypeGenStatsMode, cudnn.GenStatsSumSqSum)
	// A log of NVIDIA's front end shows type 3 here; Float gives the right sums
	// (seen: 9.14 and 9.19 on an H200).
	set(g, d, cudnn.GenStatsMathPrec, cudnn.TypeDataType, cudnn.Float)
	set(g, d, cudnn.GenStatsSumDesc, cudnn.TypeDescriptor, sum)
	set(g, d, cudnn.GenStatsSqSumDesc, cudnn.TypeDescriptor, square)
	g.ops = append(g.ops, g.finalize(d))
}

func bwdFilterNorm(_ *Builder, g *graph, n *node) {
	in := g.normalised(n)
	dy, dw := g.y(n, 3), g.w(n, 4)
	g.operation(convBwdFilter, g.convolution(n.geom), in, dw, dy)
}

func bwdDataNorm(_ *Builder, g *graph, n *node) {
	c := n.geom
	dy, w, x := g.y(n, 0), g.w(n, 1), g.x(n, 2)
	vec := func(operand int) cudnn.Descriptor { return g.vector(n, cudnn.Float, c.C, operand) }
	mean, invstd, gamma, beta := vec(3), vec(4), vec(5), vec(6)
	dx := g.inner(n)
	centred, hat, scaled, z := g.inner(n), g.inner(n), g.inner(n), g.inner(n)
	dz := g.x(n, 7)
	g.operation(convBwdData, g.convolution(c), dx, w, dy)
	// The batch norm's output again, for the ReLU's mask.
	g.pointwise(cudnn.PointwiseSub, x, mean, centred)
	g.pointwise(cudnn.PointwiseMul, centred, invstd, hat)
	g.pointwise(cudnn.PointwiseMul, hat, gamma, scaled)
	g.pointwise(cudnn.PointwiseAdd, scaled, beta, z)
	p := g.pointwiseKind(cudnn.PointwiseReLUBwd)
	d := g.create(cudnn.OperationPointwise)
	set(g, d, cudnn.OperationPointwisePWDesc, cudnn.TypeDescriptor, p)
	set(g, d, cudnn.OperationPointwiseXDesc, cudnn.TypeDescriptor, z)
	set(g, d, cudnn.OperationPointwiseDYDesc, cudnn.TypeDescriptor, dx)
	set(g, d, cudnn.OperationPointwiseDXDesc, cudnn.TypeDescriptor, dz)
	set(g, d, cudnn.OperationPointwiseAlpha1, cudnn.TypeFloat, float32(1))
	set(g, d, cudnn.OperationPointwiseAlpha2, cudnn.TypeFloat, float32(1))
	g.ops = append(g.ops, g.finalize(d))
	bn := g.create(cudnn.OperationBNBwdWeights)
	set(g, bn, cudnn.BNBwdWeightsMathPrec, cudnn.TypeDataType, cudnn.Float)
	for _, r := range []struct {
		a cudnn.Attribute
		d cudnn.Descriptor
	}{
		{cudnn.BNBwdWeightsXDesc, x},
		{cudnn.BNBwdWeightsMeanDesc, mean},
		{cudnn.BNBwdWeightsInvStdDesc, invstd},
		{cudnn.BNBwdWeightsBNScaleDesc, gamma},
		{cudnn.BNBwdWeightsDYDesc, dz},
		{cudnn.BNBwdWeightsDBNScaleDesc, vec(8)},
		{cudnn.BNBwdWeightsDBNBiasDesc, vec(9)},
		{cudnn.BNBwdWeightsEqDYScaleDesc, vec(10)},
		{cudnn.BNBwdWeightsEqXScaleDesc, vec(11)},
		{cudnn.BNBwdWeightsEqBias, vec(12)},
	} {
		set(g, bn, r.a, cudnn.TypeDescriptor, r.d)
	}
	g.ops = append(g.ops, g.finalize(bn))
}
