package kernels

import "github.com/tech-renaissance/trbench/workloads"

// Shapes of conv.cu.
const (
	convThreads = 256
	convTile    = 64
	convDepth   = 16
	// convBlocks is how many tiles fill the chip; below that the summed
	// dimension is split.
	convBlocks = 2 * 132
	// convRun is the longest sum of one part, so that FP32 keeps its digits.
	convRun = 16384
	// convScratch bounds the memory of the parts of one operator.
	convScratch = 64 << 20
)

// geom is a convolution's geometry. A fully connected layer is one on images of
// a single pixel.
type geom struct {
	n, h, w, c  int
	k, r, s     int
	stride, pad int
	oh, ow      int
}

// geometry checks the three tensors against each other and the attributes.
func (p *planner) geometry(x, w, y *workloads.Operand) (g geom) {
	switch p.b.Op {
	case workloads.OpFC, workloads.OpFCBwdData, workloads.OpFCBwdFilter:
		if p.rank(x, 2) && p.rank(w, 2) && p.rank(y, 2) {
			g = geom{n: x.Shape[0], h: 1, w: 1, c: x.Shape[1], k: w.Shape[0], r: 1, s: 1, stride: 1, oh: 1, ow: 1}
			p.shape(w, g.k, g.c)
			p.shape(y, g.n, g.k)
		}
		return g
	}
	if !p.rank(x, 4) || !p.rank(w, 4) || !p.rank(y, 4) {
		return g
	}
	a := &p.b.Attr
	g = geom{n: x.Shape[0], h: x.Shape[1], w: x.Shape[2], c: x.Shape[3], k: w.Shape[0], r: a.R, s: a.S, stride: a.Stride, pad: a.Pad}
	if g.stride < 1 || g.pad < 0 || g.r < 1 || g.s < 1 {
		p.reject("window %dx%d, stride %d, pad %d", g.r, g.s, g.stride, g.pad)
		return g
	}
	if g.h+2*g.pad < g.r || g.w+2*g.pad < g.s {
		p.fail(x, "shape %v is smaller than the %dx%d window", x.Shape, g.r, g.s)
		return g
	}
	g.oh, g.ow = (g.h+2*g.pad-g.r)/g.stride+1, (g.w+2*g.pad-g.s)/g.stride+1
	p.shape(w, g.k, g.r, g.s, g.c)
	p.shape(y, g.n, g.oh, g.ow, g.k)
	return g
}

// product plans a matrix product of rows by cols results, summed over depth.
// operands are the kernel's first parameters up to the result, which the parts'
// memory and the geometry follow.
func (p *planner) product(kernel string, g geom, rows, cols, depth int, bias Param, result *workloads.Operand, operands ...Param) {
	bx, by := ceilDiv(rows, convTile), ceilDiv(cols, convTile)
	splits := max(1, min(convBlocks/(bx*by), depth/(4*convDepth)), ceilDiv(depth, convRun))
	splits = max(1, min(splits, convScratch/4/(rows*cols)))
	part := ceilDiv(ceilDiv(depth, splits), convDepth) * convDepth
	splits = ceilDiv(depth, part)
	partial, target := null(), bias
	if splits > 1 {
		partial, target = write(p.take(int64(splits)*int64(rows)*int64(cols)*4)), null()
	}
	params := operands
	if p.b.Op == workloads.OpConv || p.b.Op == workloads.OpFC {
		params = append(params, target)
	}
	params = append(params, write(result.Region), partial)
	for _, v := range []int{g.n, g.h, g.w, g.c, g.k, g.r, g.s, g.stride, g.pad, g.oh, g.ow, part} {
		params = append(params, i32(v))
	}
	p.add(grid(kernel, convThreads, [3]int{bx, by, splits}, params...))
	if splits > 1 {
		n := rows * cols
		partial.Writes = false
		p.add(grid("split_sum_"+result.DType.String(), convThreads, [3]int{min(ceilDiv(n, convThreads), 8*132), 1, 1},
			partial, bias, write(result.Region), i64(int64(n)), i32(splits), i32(cols)))
	}
}

// convSuffix picks vector loads of four elements where the counts and addresses
// allow them.
func (p *planner) convSuffix(name string, counts []int, operands ...*workloads.Operand) string {
	name += p.real(operands...)
	wide := p.aligned(4*operands[0].DType.Bytes(), operands...)
	for _, n := range counts {
		wide = wide && n%4 == 0
	}
	if wide {
		return name + "x4"
	}
	return name + "x1"
}

func (p *planner) conv() {
	in, bias := 2, null()
	if p.b.Op == workloads.OpFC {
		in = 3
	}
	if !p.arity(in, 1) {
		return
	}
	x, w, y := p.in(0), p.in(1), p.outs(0)
	g := p.geometry(x, w, y)
	if p.err != nil {
		return
	}
	if p.b.Op == workloads.OpFC {
		p.typed(workloads.F32, p.in(2))
		p.elems(g.k, p.in(2))
		bias = read(p.in(2).Region)
	}
	kernel := p.convSuffix("conv_", []int{g.c}, x, w, y)
	p.product(kernel, g, g.n*g.oh*g.ow, g.k, g.r*g.s*g.c, bias, y, read(x.Region), read(w.Region))
}

func (p *planner) convBwdData() {
	if !p.arity(2, 1) {
		return
	}
	dy, w, dx := p.in(0), p.in(1), p.outs(0)
	g := p.geometry(dx, w, dy)
	if p.err != nil {
		return
	}
	kernel := p.convSuffix("conv_bwd_data_", []int{g.c, g.k}, dy, w, dx)
	p.product(kernel, g, g.n*g.h*g.w, g.c, g.r*g.s*g.k, null(), dx, read(dy.Region), read(w.Region))
}

func (p *planner) convBwdFilter() {
	out := 1
	if p.b.Op == workloads.OpFCBwdFilter {
		out = 2
	}
	if !p.arity(2, out) {
		return
	}
	x, dy, dw := p.in(0), p.in(1), p.outs(0)
	g := p.geometry(x, dw, dy)
	if p.err != nil {
		return
	}
	kernel := p.convSuffix("conv_bwd_filter_", []int{g.c, g.k}, x, dy, dw)
	p.product(kernel, g, g.k, g.r*g.s*g.c, g.n*g.oh*g.ow, null(), dw, read(x.Region), read(dy.Region))
	if out == 2 {
		p.typed(workloads.F32, p.outs(1))
		p.elems(g.k, p.outs(1))
		p.add(ColumnSums(dy.DType, dy.Region, p.outs(1).Region, g.n, g.k))
	}
}

// ColumnSums is the launch that adds the n rows of dy [n,k], of type F32 or F16,
// into db (F32 [k]): the gradient of a fully connected layer's bias, for use
// beside a library's matrix product.
func ColumnSums(d workloads.DType, dy, db workloads.Region, n, k int) Launch {
	return grid("column_sums_"+d.String(), convThreads, [3]int{ceilDiv(k, 32), 1, 1}, read(dy), write(db), i32(n), i32(k))
}
