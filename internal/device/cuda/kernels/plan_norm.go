package kernels

import (
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/workloads"
)

// Launch shapes of norm.cu. They depend on no device, so that results do not:
// they are made for 132 multiprocessors, and run on fewer in more waves.
const (
	statsThreads = 512
	applyThreads = 256
	statsBlocks  = 2 * 132 // at once, by the kernels' launch bounds
	perThread    = 4       // rows a thread should get at least, to pay for a block
)

// columns is how a matrix of rows by c channels is cut: a block covers 1<<txLog
// vectors of v channels.
type columns struct {
	suffix   string // of the kernel's name
	rows, c  int
	v, txLog int
	tiles    int // of channels
}

// columns picks the widest access that the channels allow. Vectors
// are operands of C floats each.
func (p *planner) columns(suffix string, images []*workloads.Operand, vectors []*workloads.Operand) columns {
	x := images[0]
	c := x.Shape[len(x.Shape)-1]
	k := columns{c: c, rows: x.Shape.Elems() / c, v: 1, suffix: suffix + "x1"}
	wide := int(16 / x.DType.Bytes())
	if c%wide == 0 {
		// Scratch depends on the width, and is sized before offsets are known.
		if !p.aligned(16, images...) || !p.aligned(16, vectors...) {
			p.reject("operands are not aligned to 16 bytes")
		}
		k.v = wide
		k.suffix = suffix + map[int]string{4: "x4", 8: "x8"}[wide]
	}
	// A pass that ends in sums has tiles of 128 bytes a row, so that many blocks
	// share the adding up.
	narrow := 3
	if k.v == 1 {
		narrow = 5
	}
	k = k.tiled(narrow)
	if k.tiles > CounterWords {
		p.fail(x, "%d channels, at most %d", c, CounterWords*k.v<<k.txLog)
	}
	return k
}

// tiled is k with tiles of at most 1<<limit vectors.
func (k columns) tiled(limit int) columns {
	k.txLog = 0
	for k.txLog < limit && k.v<<k.txLog < k.c {
		k.txLog++
	}
	k.tiles = ceilDiv(k.c, k.v<<k.txLog)
	return k
}

// parts is the number of blocks that share a channel tile's rows.
func (k columns) parts(threads, atOnce int) int {
	return min(max(1, atOnce/k.tiles), ceilDiv(ceilDiv(k.rows, threads>>k.txLog), perThread))
}

// OneKernelBlocks is the largest grid of the kernels that wait inside.
const OneKernelBlocks = 132

// oneRows is the rows that a thread of such a kernel keeps in registers.
const oneRows = 8

// OneKernelNames lists the kernels whose blocks wait for each other, and the
// threads of their blocks.
func OneKernelNames() (names []string, threads int) {
	for _, k := range table {
		if strings.HasPrefix(k.Name, "bn_one_") || strings.HasPrefix(k.Name, "bn_bwd_one_") {
			names = append(names, k.Name)
		}
	}
	return names, statsThreads
}

// one is the grid of a norm in one kernel and the rows each thread keeps; ok is
// false if the tensor is too large or the device does not offer it.
func (p *planner) one(k columns) (parts, each int, ok bool) {
	if !p.OneKernelNorm || k.v == 1 || k.tiles > min(OneKernelBlocks, CounterWords/2) {
		return 0, 0, false
	}
	steps := ceilDiv(k.rows, statsThreads>>k.txLog)
	each = ceilDiv(steps, min(OneKernelBlocks/k.tiles, ceilDiv(steps, perThread)))
	return ceilDiv(steps, each), each, each <= oneRows
}

func (k columns) grid(parts int) [3]int { return [3]int{k.tiles, parts, 1} }

// oneGroup refuses what only the CPU device does.
func (p *planner) oneGroup() {
	if p.b.Attr.Groups != 1 {
		p.reject("%d groups; on this device batch norm works on the whole batch", p.b.Attr.Groups)
	}
}

// floor is what results are clamped to from below.
func floor(relu bool) Param {
	if relu {
		return f32(0)
	}
	return f32(float32(math.Inf(-1)))
}

func (p *planner) batchNorm() {
	a := &p.b.Attr
	in := 3
	if a.Add {
		in = 4
	}
	out := 5
	if a.Mask {
		out = 6
	}
	if !p.arity(in, out) || !p.rank(p.in(0), 4) {
		return
	}
	x, gamma, beta, y, mean, invstd, statMean, statVar := p.in(0), p.in(1), p.in(2), p.outs(0), p.outs(1), p.outs(2), p.outs(3), p.outs(4)
	images := []*workloads.Operand{x, y}
	if a.Add {
		images = append(images, p.in(3))
	}
	vectors := []*workloads.Operand{gamma, beta, mean, invstd, statMean, statVar}
	suffix := p.normOperands(images, vectors)
	if p.oneGroup(); p.err != nil {
		return
	}
	k := p.columns(suffix, images, vectors)
	var mask []Param
	if a.Mask {
		mask = []Param{write(p.mask(p.outs(5), k))}
	}
	if parts, each, ok := p.one(k); ok {
		name, params := "bn_one_", []Param{read(x.Region)}
		if a.Add {
			name += "add_"
			params = append(params, read(p.in(3).Region))
		}
		if a.Mask {
			name += "mask_"
		}
		params = append(params, read(gamma.Region), read(beta.Region), write(y.Region), write(mean.Region), write(invstd.Region), write(statMean.Region),
			write(statVar.Region))
		params = append(append(params, mask...), write(p.take(int64(parts)*int64(k.c)*8)), counter(0), i32(k.rows), i32(k.c), i32(k.txLog), i32(each),
			f32(a.Eps), truth(a.Unbiased), floor(a.ReLU))
		p.add(grid(name+k.suffix, statsThreads, k.grid(parts), params...))
		return
	}
	parts := k.parts(statsThreads, statsBlocks)
	partial := p.take(int64(parts) * int64(k.c) * 8)
	p.add(grid("bn_stats_"+k.suffix, statsThreads, k.grid(parts), read(x.Region), write(mean.Region), write(invstd.Region), write(statMean.Region),
		write(statVar.Region), write(partial), counter(0), i32(k.rows), i32(k.c), i32(k.txLog), f32(a.Eps), truth(a.Unbiased)))
	coefficients := []Param{read(mean.Region), read(invstd.Region), read(gamma.Region), read(beta.Region)}
	p.apply("bn_apply_", k, x, y, coefficients, mask...)
}

// mask checks a mask of an image that is cut as k says, and returns its region.
func (p *planner) mask(o *workloads.Operand, k columns) workloads.Region {
	p.typed(workloads.U8, o)
	shape := slices.Clone(p.in(0).Shape)
	shape[len(shape)-1] /= k.v
	p.shape(o, shape...)
	return o.Region
}

// normOperands checks images of one shape and type and vectors of C floats.
func (p *planner) normOperands(images, vectors []*workloads.Operand) string {
	suffix := p.real(images...)
	for _, o := range images {
		p.shape(o, p.in(0).Shape...)
	}
	p.typed(workloads.F32, vectors...)
	p.elems(p.in(0).Shape[len(p.in(0).Shape)-1], vectors...)
	return suffix
}

// apply is the elementwise pass of batch norm and affine.
func (p *planner) apply(name string, k columns, x, y *workloads.Operand, coefficients []Param, mask ...Param) {
	a := &p.b.Attr
	k = k.tiled(5)
	params := []Param{read(x.Region)}
	blocks := 4 * 132 // at once
	if a.Add {
		name += "add_"
		params = append(params, read(p.in(3).Region))
		blocks = 3 * 132
	}
	if len(mask) > 0 {
		name += "mask_"
	}
	params = append(params, coefficients...)
	params = append(append(params, write(y.Region)), mask...)
	params = append(params, i32(k.rows), i32(k.c), i32(k.txLog), floor(a.ReLU))
	p.add(grid(name+k.suffix, applyThreads, k.grid(k.parts(applyThreads, blocks)), params...))
}

func (p *planner) affine() {
	a := &p.b.Attr
	in := 3
	if a.Add {
		in = 4
	}
	if !p.arity(in, 1) || len(p.in(0).Shape) == 0 || !p.rank(p.in(0), len(p.in(0).Shape)) {
		p.reject("input without channels")
		return
	}
	x, y := p.in(0), p.outs(0)
	images := []*workloads.Operand{x, y}
	if a.Add {
		images = append(images, p.in(3))
	}
	vectors := []*workloads.Operand{p.in(1), p.in(2)}
	suffix := p.normOperands(images, vectors)
	if p.err != nil {
		return
	}
	p.apply("affine_", p.columns(suffix, images, vectors), x, y, []Param{read(p.in(1).Region), read(p.in(2).Region)})
}

func (p *planner) batchNormBwd() {
	a := &p.b.Attr
	in, out := 5, 3
	if a.ReLU {
		in++
	}
	if a.Sum {
		in++
	}
	if a.Add {
		out++
	}
	if !a.ReLU && (a.Mask || a.Sum) {
		p.reject("a mask or a sum without a ReLU")
		return
	}
	if !p.arity(in, out) || !p.rank(p.in(0), 4) {
		return
	}
	x, dy, gamma, mean, invstd := p.in(0), p.in(1), p.in(2), p.in(3), p.in(4)
	dx, dgamma, dbeta := p.outs(0), p.outs(1), p.outs(2)
	images := []*workloads.Operand{x, dy, dx}
	if a.ReLU && !a.Mask {
		images = append(images, p.in(5))
	}
	if a.Sum {
		images = append(images, p.in(6))
	}
	if a.Add {
		images = append(images, p.outs(3))
	}
	vectors := []*workloads.Operand{gamma, mean, invstd, dgamma, dbeta}
	suffix := p.normOperands(images, vectors)
	if p.oneGroup(); p.err != nil {
		return
	}
	k := p.columns(suffix, images, vectors)
	if a.Mask {
		p.mask(p.in(5), k)
	}
	// The gradient as both passes' kernels take it.
	masked, incoming := "", []Param{read(x.Region), read(dy.Region)}
	if a.ReLU {
		masked = "relu_"
		if a.Mask {
			masked = "mask_"
		}
		incoming = append(incoming, read(p.in(5).Region))
	}
	if a.Sum {
		masked += "sum_"
		incoming = append(incoming, read(p.in(6).Region))
	}
	if parts, each, ok := p.one(k); ok {
		name, params := "bn_bwd_one_"+masked, incoming
		params = append(params, read(gamma.Region), read(mean.Region), read(invstd.Region), write(dx.Region), write(dgamma.Region), write(dbeta.Region))
		switch {
		case a.Add:
			name += "add_"
			params = append(params, write(p.outs(3).Region))
		case a.Sum: // the kernel keeps the sum in registers
			name += "add_"
			params = append(params, null())
		}
		params = append(params, write(p.take(int64(parts)*int64(k.c)*8)), counter(0), i32(k.rows), i32(k.c), i32(k.txLog), i32(each))
		p.add(grid(name+k.suffix, statsThreads, k.grid(parts), params...))
		return
	}
	parts := k.parts(statsThreads, statsBlocks)
	partial, coef := p.take(int64(parts)*int64(k.c)*8), p.take(int64(k.c)*12)

	sums, apply := "bn_bwd_sums_"+masked, "bn_bwd_apply_"
	first := append(incoming, read(gamma.Region), read(mean.Region), read(invstd.Region), write(dgamma.Region), write(dbeta.Region))
	// The gradient that the second pass reads, and the mask if it is not masked yet.
	gradient := []Param{read(dy.Region)}
	switch {
	case a.Add || a.Sum:
		sums += "add_"
		dz := workloads.Region{}
		if a.Add {
			dz = p.outs(3).Region
		} else {
			dz = p.take(dy.Region.Bytes)
		}
		first = append(first, write(dz))
		gradient = []Param{read(dz)}
	case a.Mask:
		gradient = append(gradient, read(p.in(5).Region))
		apply += "mask_"
	case a.ReLU:
		mask := p.take(int64(k.rows) * int64(k.c) / int64(k.v))
		first = append(first, write(mask))
		gradient = append(gradient, read(mask))
		apply += "mask_"
	}
	first = append(first, write(coef), write(partial), counter(0), i32(k.rows), i32(k.c), i32(k.txLog))
	p.add(grid(sums+k.suffix, statsThreads, k.grid(parts), first...))
	second := append([]Param{read(x.Region)}, gradient...)
	k = k.tiled(5)
	second = append(second, read(mean.Region), read(coef), write(dx.Region), i32(k.rows), i32(k.c), i32(k.txLog))
	p.add(grid(apply+k.suffix, applyThreads, k.grid(k.parts(applyThreads, 3*132)), second...))
}

// maxNorms is the length of norm.cu's structure of norms.
const maxNorms = 96

func (p *planner) bnInfer() {
	if !p.arity(2, 1) {
		return
	}
	params, running, inf := p.in(0), p.in(1), p.outs(0)
	p.typed(workloads.F32, params, running, inf)
	for i, n := range p.b.Attr.Norms {
		for _, v := range []struct {
			o   *workloads.Operand
			off int
		}{{params, n.Gamma}, {params, n.Beta}, {running, n.Mean}, {running, n.Var}, {inf, n.Scale}, {inf, n.Bias}} {
			if v.off < 0 || n.C < 0 || v.off+n.C > v.o.Shape.Elems() {
				p.fail(v.o, "norm %d: %d elements at %d of %d", i, n.C, v.off, v.o.Shape.Elems())
			}
		}
	}
	for rest := p.b.Attr.Norms; len(rest) > 0 && p.err == nil; {
		part := rest[:min(len(rest), maxNorms)]
		rest = rest[len(part):]
		var gamma, beta, mean, variance, scale, bias, c [maxNorms]int32
		for i, n := range part {
			gamma[i], beta[i], mean[i], variance[i] = int32(n.Gamma), int32(n.Beta), int32(n.Mean), int32(n.Var)
			scale[i], bias[i], c[i] = int32(n.Scale), int32(n.Bias), int32(n.C)
		}
		spans := words([]int32{int32(len(part))}, gamma[:], beta[:], mean[:], variance[:], scale[:], bias[:], c[:])
		p.add(grid("bn_infer", 256, [3]int{len(part), 1, 1}, read(params.Region), read(running.Region), write(inf.Region), f32(p.b.Attr.Eps), spans))
	}
}
