package kernels

import "github.com/tech-renaissance/trbench/workloads"

// dataPlan is the data gradient of a convolution. An input pixel (y, x) meets
// the output pixels whose windows hold it. With stride t, which filter taps
// those are depends on (y+pad)%t and (x+pad)%t only, so the input falls into
// t*t phases, and in each the gradient is a plain stride-1 convolution of dy
// with some of the taps, in reverse order. Every tap belongs to one phase: no
// multiplication is wasted and nothing is scattered. A phase without taps is 0.
type dataPlan struct {
	g      geom
	phases []phase
	units  int
	decode bool
	layout layout
	dy     piece
}

type phase struct {
	windowProduct
	r0, s0    int // the phase's first tap in each direction
	w, co, ou piece
	first     int // its first unit
}

func planBwdData(g geom, dyType workloads.DType) *dataPlan {
	p := &dataPlan{g: g, decode: dyType == workloads.F16}
	if p.decode {
		p.dy = p.layout.f32(g.outPixels() * g.k)
	}
	rows, cols := min(g.stride, g.h), min(g.stride, g.w)
	for i := range rows {
		for j := range cols {
			p.phases = append(p.phases, p.phase(i, j, max(1, units/(rows*cols))))
		}
	}
	for i := range p.phases {
		f := &p.phases[i]
		f.first = p.units
		p.units += f.chunks
	}
	return p
}

// alongPhase describes one direction of a phase: its first tap, the number of
// its taps, and the dy index that the first pixel's window begins at.
func alongPhase(at, pad, taps, stride int) (first, n, begin int) {
	first = (at + pad) % stride
	if first < taps {
		n = ceilDiv(taps-first, stride)
	}
	return first, n, (at+pad-first)/stride - n + 1
}

func (p *dataPlan) phase(i, j, maxChunks int) phase {
	g := p.g
	var f phase
	var th, tw, top, left int
	f.r0, th, top = alongPhase(i, g.pad, g.r, g.stride)
	f.s0, tw, left = alongPhase(j, g.pad, g.s, g.stride)
	f.window = window{
		n: g.n, h: g.oh, w: g.ow, c: g.k,
		gh: ceilDiv(g.h-i, g.stride), gw: ceilDiv(g.w-j, g.stride),
		th: th, tw: tw, step: 1, top: top, left: left,
	}
	f.filters = g.c
	f.dstH, f.dstW, f.dstStep, f.dstTop, f.dstLeft = g.h, g.w, g.stride, i, j
	if f.taps() == 0 {
		f.th, f.tw = 0, 0
	}
	f.pitch = rowPitch(f.taps())
	if f.direct() {
		f.pitch = g.k
	}
	f.plan(maxChunks)
	f.w = p.layout.f32(g.c * f.pitch)
	f.co = p.layout.f32(f.chunks * f.colFloats())
	f.ou = p.layout.f32(f.chunks * f.outFloats())
	return f
}

func bwdDataScratch(b *workloads.Bound) layout {
	c := &compiler{b: b}
	g := c.convGeom(&b.Out[0], &b.In[1], &b.In[0])
	if c.err != nil {
		return layout{}
	}
	return planBwdData(g, b.In[0].DType).layout
}

func buildBwdData(c *compiler) func() {
	dy, w, dx := c.in(0), c.in(1), c.out(0)
	g := c.convGeom(dx, w, dy)
	dyv, wv, dxv := c.real(dy), c.real(w), c.real(dx)
	if c.err != nil {
		return nil
	}
	p := planBwdData(g, dy.DType)
	scratch := c.scratch(p.layout)
	if c.err != nil {
		return nil
	}
	src := dyv.f32
	var before []func()
	if p.decode {
		src = p.dy.f32(scratch)
		before = append(before, c.decodeInto(src, dyv))
	}
	for i := range p.phases {
		f := &p.phases[i]
		f.src, f.dst = src, dxv
		f.weights, f.cols, f.outs = f.w.f32(scratch), f.co.f32(scratch), f.ou.f32(scratch)
	}
	// Filters are turned in groups of channels: each chunk writes rows of its
	// own and reads a few whole cache lines of each tap.
	const group = 64
	groups := ceilDiv(g.c, group)
	turn := func(i int) {
		for k := range p.phases {
			p.phases[k].turn(wv, g, i*group, min(g.c, (i+1)*group))
		}
	}
	run := func(i int) {
		k := len(p.phases) - 1
		for p.phases[k].first > i {
			k--
		}
		p.phases[k].run(i - p.phases[k].first)
	}
	pool := c.pool
	return func() {
		for _, f := range before {
			f()
		}
		pool.Run(groups, turn)
		pool.Run(p.units, run)
	}
}

// turn writes the phase's filters for channels c0..c1: one row a channel,
// holding the taps in reverse order and, for each, all k.
func (f *phase) turn(w vec, g geom, c0, c1 int) {
	if f.taps() == 0 {
		return
	}
	for c := c0; c < c1; c++ {
		clear(f.weights[c*f.pitch+f.taps() : (c+1)*f.pitch])
	}
	for i := range f.th {
		for j := range f.tw {
			r := f.r0 + g.stride*(f.th-1-i)
			s := f.s0 + g.stride*(f.tw-1-j)
			to := f.weights[c0*f.pitch+(i*f.tw+j)*g.k:]
			transpose(to, f.pitch, w, (r*g.s+s)*g.c+c0, g.taps(), g.k, c1-c0)
		}
	}
}
