package kernels

import (
	"github.com/tech-renaissance/trbench/workloads"
)

// geom is the geometry of a convolution. A fully connected layer is one on
// images of a single pixel.
type geom struct {
	n, h, w, c     int // input
	k, r, s        int // filters
	stride, pad    int
	oh, ow         int // output image
	fullyConnected bool
}

func (g geom) taps() int      { return g.r * g.s * g.c } // length of one filter
func (g geom) outPixels() int { return g.n * g.oh * g.ow }
func (g geom) inPixels() int  { return g.n * g.h * g.w }

// pointwise says that the output pixel p sees the input pixel p and no other.
func (g geom) pointwise() bool { return g.r == 1 && g.s == 1 && g.stride == 1 && g.pad == 0 }

// convGeom checks the three tensors of a convolution or fully connected layer
// against each other and the attributes.
func (c *compiler) convGeom(x, w, y *workloads.Operand) (g geom) {
	fc := c.b.Op == workloads.OpFC || c.b.Op == workloads.OpFCBwdData || c.b.Op == workloads.OpFCBwdFilter
	if fc {
		if c.rank(x, 2) && c.rank(w, 2) && c.rank(y, 2) {
			g = geom{n: x.Shape[0], h: 1, w: 1, c: x.Shape[1], k: w.Shape[0], r: 1, s: 1, stride: 1, oh: 1, ow: 1, fullyConnected: true}
			c.shape(w, g.k, g.c)
			c.shape(y, g.n, g.k)
		}
		return g
	}
	if !c.rank(x, 4) || !c.rank(w, 4) || !c.rank(y, 4) {
		return g
	}
	a := &c.b.Attr
	g = geom{
		n: x.Shape[0], h: x.Shape[1], w: x.Shape[2], c: x.Shape[3],
		k: w.Shape[0], r: a.R, s: a.S, stride: a.Stride, pad: a.Pad,
	}
	if g.stride < 1 || g.pad < 0 {
		c.reject("stride %d, pad %d", g.stride, g.pad)
		return g
	}
	if g.h+2*g.pad < g.r || g.w+2*g.pad < g.s {
		c.fail(x, "shape %v is smaller than the %dx%d window", x.Shape, g.r, g.s)
		return g
	}
	g.oh = (g.h+2*g.pad-g.r)/g.stride + 1
	g.ow = (g.w+2*g.pad-g.s)/g.stride + 1
	c.shape(w, g.k, g.r, g.s, g.c)
	c.shape(y, g.n, g.oh, g.ow, g.k)
	return g
}

// window walks a grid of positions over channels-last images. At position
// (i, j) it sees the th×tw pixels from row i*step+top, column j*step+left on.
// Pixels outside the image are 0.
type window struct {
	n, h, w, c int // images
	gh, gw     int // grid
	th, tw     int
	step       int
	top, left  int
}

func (w *window) taps() int      { return w.th * w.tw * w.c }
func (w *window) positions() int { return w.n * w.gh * w.gw }

// direct says that position p sees pixel p and no other, so that the images
// themselves are the matrix of windows.
func (w *window) direct() bool {
	return w.th == 1 && w.tw == 1 && w.step == 1 && w.top == 0 && w.left == 0 && w.gh == w.h && w.gw == w.w
}

// gather copies the windows of positions p0..p1 into the rows of dst; the rest
// of a row, up to pitch, becomes 0.
func (w *window) gather(dst []float32, pitch int, src []float32, p0, p1 int) {
	taps := w.taps()
	j := p0 % w.gw
	i := p0 / w.gw % w.gh
	img := p0 / (w.gw * w.gh)
	for p := p0; p < p1; p++ {
		row := dst[:pitch]
		dst = dst[pitch:]
		w.one(row, src[img*w.h*w.w*w.c:(img+1)*w.h*w.w*w.c], i*w.step+w.top, j*w.step+w.left)
		clear(row[taps:])
		if j++; j == w.gw {
			j = 0
			if i++; i == w.gh {
				i = 0
				img++
			}
		}
	}
}

// one copies the window whose first pixel is (y, x), which may lie outside.
func (w *window) one(dst, img []float32, y, x int) {
	span := w.tw * w.c
	// Columns lo..hi of the window lie inside the image.
	lo, hi := max(0, -x), min(w.tw, w.w-x)
	for t := range w.th {
		row := dst[t*span : (t+1)*span]
		if y+t < 0 || y+t >= w.h || lo >= hi {
			clear(row)
			continue
		}
		if hi-lo != w.tw {
			clear(row[:lo*w.c])
			clear(row[hi*w.c:])
			row = row[lo*w.c : hi*w.c]
		}
		copy(row, img[((y+t)*w.w+x+lo)*w.c:])
	}
}

// windowProduct multiplies the windows of a grid with filters: position p,
// filter f gives sum(window p * filter f). Forward and data gradient are made
// of it.
type windowProduct struct {
	window
	filters int
	pitch   int // elements between rows of the filters, at least the taps
	// The product for grid position (i, j) goes to pixel (i*dstStep+dstTop,
	// j*dstStep+dstLeft) of a dstH×dstW image.
	dstH, dstW, dstStep, dstTop, dstLeft int

	rows   int // positions of one block
	chunks int

	src, weights []float32
	dst          vec
	bias         []float32 // nil for none
	cols, outs   []float32 // scratch of all chunks
}

// units is into how many chunks one operator is cut, at most. It must not
// depend on the number of threads.
const units = 8

// plan picks block and chunks from the shape. A block of windows should stay in
// the second-level cache together with the filters that meet it.
func (p *windowProduct) plan(maxChunks int) {
	const cacheFloats = 64 << 10
	p.rows = min(max(cacheFloats/max(p.pitch, 1), 16), gemmRows) &^ 3
	p.chunks = max(1, min(maxChunks, ceilDiv(p.positions(), 16)))
	p.rows = min(p.rows, ceilDiv(p.positions(), p.chunks))
}

// contiguous says that position p is pixel p of the result.
func (p *windowProduct) contiguous() bool { return p.dstStep == 1 && p.gh == p.dstH && p.gw == p.dstW }

func (p *windowProduct) colFloats() int {
	if p.direct() {
		return 0
	}
	return roundUp(p.rows*p.pitch, 16)
}

func (p *windowProduct) outFloats() int { return roundUp(p.rows*p.filters, 16) }

// run computes one chunk.
func (p *windowProduct) run(chunk int) {
	n := p.positions()
	lo, hi := n*chunk/p.chunks, n*(chunk+1)/p.chunks
	taps := p.taps()
	if taps == 0 {
		p.zero(lo, hi)
		return
	}
	col := p.cols[chunk*p.colFloats() : (chunk+1)*p.colFloats()]
	out := p.outs[chunk*p.outFloats() : (chunk+1)*p.outFloats()]
	for q := lo; q < hi; q += p.rows {
		end := min(q+p.rows, hi)
		a, k := col, p.pitch
		if p.direct() {
			a, k = p.src[q*taps:], taps
		} else {
			p.gather(col, p.pitch, p.src, q, end)
		}
		c := out
		if p.dst.f32 != nil && p.contiguous() {
			c = p.dst.f32[q*p.filters:]
		}
		gemmNT(end-q, p.filters, k, a, k, p.weights, p.pitch, false, c, p.filters)
		p.finish(c, q, end)
	}
}

// finish adds the bias and stores positions q..end from c, unless c is where
// they belong.
func (p *windowProduct) finish(c []float32, q, end int) {
	for i := 0; p.bias != nil && i < end-q; i++ {
		row := c[i*p.filters : (i+1)*p.filters]
		for j, b := range p.bias {
			row[j] += b
		}
	}
	switch {
	case p.contiguous() && p.dst.f32 != nil:
	case p.contiguous():
		p.dst.store(q*p.filters, c[:(end-q)*p.filters])
	default:
		for i := q; i < end; i++ {
			p.dst.store(p.pixel(i)*p.filters, c[(i-q)*p.filters:(i-q+1)*p.filters])
		}
	}
}

// pixel is where grid position q lies in the result.
func (p *windowProduct) pixel(q int) int {
	j, i, img := q%p.gw, q/p.gw%p.gh, q/(p.gw*p.gh)
	return (img*p.dstH+i*p.dstStep+p.dstTop)*p.dstW + j*p.dstStep + p.dstLeft
}

// zero stores zeros at grid positions lo..hi: pixels that no filter tap reaches.
func (p *windowProduct) zero(lo, hi int) {
	for q := lo; q < hi; q++ {
		at := p.pixel(q) * p.filters
		if p.dst.f32 != nil {
			clear(p.dst.f32[at : at+p.filters])
		} else {
			clear(p.dst.f16[at : at+p.filters])
		}
	}
}

// forwardPlan is a forward convolution's product and scratch.
type forwardPlan struct {
	windowProduct
	g            geom
	decodeX      bool
	repack       bool // filters are decoded, or their rows padded, in scratch
	layout       layout
	x, w, co, ou piece
}

// rowPitch pads rows to whole steps of the dot product's main loop, which takes
// 16 elements; a remainder costs as much as the whole of a short row. Rows that
// start on 16 bytes are left as they are unless they are padded anyway.
func rowPitch(taps int) int {
	if taps%4 == 0 && (taps%16 == 0 || taps > 64) {
		return taps
	}
	return roundUp(taps, 16)
}

func planForward(g geom, xType, wType workloads.DType) *forwardPlan {
	p := &forwardPlan{g: g}
	p.window = window{n: g.n, h: g.h, w: g.w, c: g.c, gh: g.oh, gw: g.ow, th: g.r, tw: g.s, step: g.stride, top: -g.pad, left: -g.pad}
	p.filters = g.k
	p.pitch = rowPitch(g.taps())
	if p.direct() {
		p.pitch = g.c
	}
	p.dstH, p.dstW, p.dstStep = g.oh, g.ow, 1
	p.plan(units)
	p.decodeX = xType == workloads.F16
	p.repack = wType == workloads.F16 || p.pitch != g.taps()
	if p.decodeX {
		p.x = p.layout.f32(g.inPixels() * g.c)
	}
	if p.repack {
		p.w = p.layout.f32(g.k * p.pitch)
	}
	p.co = p.layout.f32(p.chunks * p.colFloats())
	p.ou = p.layout.f32(p.chunks * p.outFloats())
	return p
}

func convScratch(b *workloads.Bound) layout {
	c := &compiler{b: b}
	g := c.convGeom(&b.In[0], &b.In[1], &b.Out[0])
	if c.err != nil {
		return layout{}
	}
	return planForward(g, b.In[0].DType, b.In[1].DType).layout
}

func buildConv(c *compiler) func() {
	x, w, y := c.in(0), c.in(1), c.out(0)
	g := c.convGeom(x, w, y)
	xv, wv, yv := c.real(x), c.real(w), c.real(y)
	var bias []float32
	if g.fullyConnected {
		bias = c.f32(c.in(2))
		c.shape(c.in(2), g.k)
	}
	if c.err != nil {
		return nil
	}
	p := planForward(g, x.DType, w.DType)
	scratch := c.scratch(p.layout)
	if c.err != nil {
		return nil
	}
	p.src, p.weights, p.dst, p.bias = xv.f32, wv.f32, yv, bias
	p.cols, p.outs = p.co.f32(scratch), p.ou.f32(scratch)
	var before []func()
	if p.decodeX {
		p.src = p.x.f32(scratch)
		before = append(before, c.decodeInto(p.src, xv))
	}
	if p.repack {
		p.weights = p.w.f32(scratch)
		before = append(before, c.padRows(p.weights, p.pitch, wv, g.taps()))
	}
	pool, run, chunks := c.pool, p.run, p.chunks
	return func() {
		for _, f := range before {
			f()
		}
		pool.Run(chunks, run)
	}
}

// decodeInto makes a function that decodes all of an F16 operand.
func (c *compiler) decodeInto(dst []float32, src vec) func() {
	return c.spread(len(dst), func(lo, hi int) { decode(dst[lo:hi], src.f16[lo:hi]) })
}

// padRows makes a function that copies the rows of src, each of n elements, to
// rows of pitch elements with zeros at the end.
func (c *compiler) padRows(dst []float32, pitch int, src vec, n int) func() {
	rows := len(dst) / pitch
	perChunk := max(1, chunkLen/pitch)
	chunks := ceilDiv(rows, perChunk)
	run := func(i int) {
		for r := i * perChunk; r < min(rows, (i+1)*perChunk); r++ {
			row := dst[r*pitch : (r+1)*pitch]
			if src.f32 != nil {
				copy(row, src.f32[r*n:(r+1)*n])
			} else {
				decode(row, src.f16[r*n:(r+1)*n])
			}
			clear(row[n:])
		}
	}
	pool := c.pool
	return func() { pool.Run(chunks, run) }
}
