package kernels

import "github.com/tech-renaissance/trbench/workloads"

// filterPlan is the filter gradient: for filter k and tap q = (r, s, c) the sum
// over output pixels p of dy[p, k] * x[the pixel that tap q sees from p, c].
// Pixels are the summed dimension, so both images are first turned into planes,
// one row a channel. Then tiles of taps are gathered from the planes row by row
// and multiplied.
//
// Work is cut into tiles of taps. They share nothing, and every sum stays in one
// piece. Rejected: chunks of images with sums of their own. They need memory and
// a second pass, and where the images are small their dot products are short.
type filterPlan struct {
	g              geom
	tileTaps       int
	tiles          int
	xPitch, yPitch int
	// A line of an x plane holds the columns in the order of their phase, the
	// column modulo the stride, each phase between zeros: what a tap sees from a
	// line of output pixels is then one piece, inside the image or not.
	phaseWidth, lineWidth int
	before                int  // zeros before a phase
	block                 int  // pixels of one product: whole lines
	encode                bool // dw is F16: sums go to scratch first

	layout           layout
	px, py, col, sum piece

	x, y, cols, sums []float32
}

func planBwdFilter(g geom, dwType workloads.DType) *filterPlan {
	const maxTaps = 192 // with 64 filters the most that gonum multiplies serially
	p := &filterPlan{g: g, encode: dwType == workloads.F16}
	p.tiles = max(ceilDiv(g.taps(), maxTaps), min(units, g.taps()))
	p.tileTaps = ceilDiv(g.taps(), p.tiles)
	if p.tileTaps > g.c { // whole pixels
		p.tileTaps = p.tileTaps / g.c * g.c
	}
	p.tiles = ceilDiv(g.taps(), p.tileTaps)
	p.before = -floorDiv(-g.pad, g.stride)
	p.phaseWidth = p.before + max(ceilDiv(g.w, g.stride), floorDiv(g.s-1-g.pad, g.stride)+g.ow)
	p.lineWidth = p.phaseWidth * g.stride
	p.xPitch, p.yPitch = planePitch(g.n*g.h*p.lineWidth), planePitch(g.outPixels())
	p.block = blockPixels(p.tileTaps, g.ow)
	p.px = p.layout.f32(g.c * p.xPitch)
	p.py = p.layout.f32(g.k * p.yPitch)
	if !g.pointwise() {
		p.col = p.layout.f32(p.tiles * p.tileTaps * planePitch(p.block))
	}
	if p.encode {
		p.sum = p.layout.f32(g.k * g.taps())
	}
	return p
}

// blockPixels picks the length of the dot products: long enough for full speed,
// short enough for a tile of taps to stay in the second-level cache. It is a
// whole number of lines.
func blockPixels(tileTaps, line int) int {
	const cacheFloats = 32 << 10
	n := min(max(cacheFloats/tileTaps, 512), 2048)
	return max(1, n/line) * line
}

func bwdFilterScratch(b *workloads.Bound) layout {
	c := &compiler{b: b}
	g := c.convGeom(&b.In[0], &b.Out[0], &b.In[1])
	if c.err != nil {
		return layout{}
	}
	return planBwdFilter(g, b.Out[0].DType).layout
}

func buildBwdFilter(c *compiler) func() {
	x, dy, dw := c.in(0), c.in(1), c.out(0)
	g := c.convGeom(x, dw, dy)
	xv, dyv, dwv := c.real(x), c.real(dy), c.real(dw)
	var db []float32
	if g.fullyConnected {
		db = c.f32(c.out(1))
		c.shape(c.out(1), g.k)
	}
	if c.err != nil {
		return nil
	}
	p := planBwdFilter(g, dw.DType)
	scratch := c.scratch(p.layout)
	if c.err != nil {
		return nil
	}
	p.x, p.y = p.px.f32(scratch), p.py.f32(scratch)
	if !g.pointwise() {
		p.cols = p.col.f32(scratch)
	}
	p.sums = dwv.f32
	if p.encode {
		p.sums = p.sum.f32(scratch)
	}
	turnX, nx := p.turnX(xv)
	turnY, ny := p.turnY(dyv)
	turn := func(i int) {
		if i < nx {
			turnX(i)
		} else {
			turnY(i - nx)
		}
	}
	finish := func() {}
	if p.encode {
		finish = c.spread(len(p.sums), func(lo, hi int) { encode(dwv.f16[lo:hi], p.sums[lo:hi]) })
	}
	pool, run, n := c.pool, p.run, p.tiles
	return func() {
		pool.Run(nx+ny, turn)
		pool.Run(n, run)
		finish()
		if db != nil {
			sumRows(db, p.y, p.yPitch, g.n)
		}
	}
}

// planePitch keeps planes, and the rows of a tile, on 16 bytes, and apart from multiples of the page
// size, at which the elements of one pixel would all fall into few cache lines.
func planePitch(n int) int { return roundUp(n, 32) + 16 }

// turnX makes a function that turns x into planes, and says into how many
// chunks it is cut.
func (p *filterPlan) turnX(x vec) (func(i int), int) {
	g := p.g
	if g.pointwise() {
		return turnPixels(p.x, p.xPitch, x, g.inPixels(), g.c)
	}
	perChunk := max(1, chunkLen/4/(g.w*g.c))
	return func(i int) {
		for line := i * perChunk; line < min(g.n*g.h, (i+1)*perChunk); line++ {
			if (line%g.h+g.pad)%g.stride >= g.r {
				continue // no tap sees this line
			}
			for s := range min(g.stride, g.s) {
				p.turnPhase(x, line, floorMod(s-g.pad, g.stride))
			}
		}
	}, ceilDiv(g.n*g.h, perChunk)
}

// turnPhase turns the pixels of one line and phase, and sets the zeros.
func (p *filterPlan) turnPhase(x vec, line, phase int) {
	g := p.g
	n := max(0, (g.w-phase+g.stride-1)/g.stride)
	dst := p.x[line*p.lineWidth+phase*p.phaseWidth:]
	transpose(dst[p.before:], p.xPitch, x, (line*g.w+min(phase, g.w-1))*g.c, g.stride*g.c, n, g.c)
	for c := range g.c {
		row := dst[c*p.xPitch : c*p.xPitch+p.phaseWidth]
		for i := range p.before {
			row[i] = 0
		}
		for i := p.before + n; i < p.phaseWidth; i++ {
			row[i] = 0
		}
	}
}

func (p *filterPlan) turnY(dy vec) (func(i int), int) {
	return turnPixels(p.y, p.yPitch, dy, p.g.outPixels(), p.g.k)
}

// turnPixels makes a function that turns n pixels of c channels into planes.
func turnPixels(dst []float32, pitch int, src vec, n, c int) (func(i int), int) {
	perChunk := roundUp(max(64, ceilDiv(n, 2*units)), 16)
	return func(i int) {
		lo := i * perChunk
		transpose(dst[lo:], pitch, src, lo*c, c, min(n-lo, perChunk), c)
	}, ceilDiv(n, perChunk)
}

// sumRows is the bias gradient: the sum of each row of planes, in image order.
func sumRows(db, y []float32, pitch, n int) {
	for k := range db {
		var sum float32
		for _, v := range y[k*pitch : k*pitch+n] {
			sum += v
		}
		db[k] = sum
	}
}

// run computes one tile of taps, a block of pixels at a time.
func (p *filterPlan) run(tile int) {
	g := p.g
	q0 := tile * p.tileTaps
	q1 := min(q0+p.tileTaps, g.taps())
	pixels := g.outPixels()
	for at := 0; at < pixels; at += p.block {
		end := min(at+p.block, pixels)
		b, ldb := []float32(nil), 0
		if g.pointwise() {
			b, ldb = p.x[q0*p.xPitch+at:], p.xPitch
		} else {
			size := p.tileTaps * planePitch(p.block)
			b, ldb = p.cols[tile*size:(tile+1)*size], planePitch(end-at)
			p.gather(b, ldb, q0, q1, at/g.ow, end/g.ow)
		}
		// Filters in the outer loop: a call takes 64 of them and the whole tile.
		for k := 0; k < g.k; k += gemmCols {
			a := p.y[k*p.yPitch+at:]
			gemmTile(min(gemmCols, g.k-k), q1-q0, end-at, a, p.yPitch, b, ldb, at > 0, p.sums[k*g.taps()+q0:], g.taps())
		}
	}
}

// gather fills row q-q0 of dst with what tap q sees from output lines l0..l1,
// image and row together. Taps that differ in the channel only read the same
// lines of their planes.
func (p *filterPlan) gather(dst []float32, pitch, q0, q1, l0, l1 int) {
	c := p.g.c
	for q := q0; q < q1; {
		last := min((q/c+1)*c, q1)
		p.gatherTap(dst[(q-q0)*pitch:], pitch, q/c, q%c, last-q, l0, l1)
		q = last
	}
}

// gatherTap fills n rows with what tap (r, s) = rs sees in channels c0 on.
func (p *filterPlan) gatherTap(dst []float32, pitch, rs, c0, n, l0, l1 int) {
	g := p.g
	ahead := rs%g.s - g.pad
	column := floorMod(ahead, g.stride)*p.phaseWidth + p.before + floorDiv(ahead, g.stride)
	for line := l0; line < l1; line++ {
		y := line%g.oh*g.stride - g.pad + rs/g.s
		d := dst[(line-l0)*g.ow:]
		if y < 0 || y >= g.h {
			for k := range n {
				clear(d[k*pitch : k*pitch+g.ow])
			}
			continue
		}
		from := c0*p.xPitch + (line/g.oh*g.h+y)*p.lineWidth + column
		for k := range n {
			copy(d[k*pitch:k*pitch+g.ow], p.x[from:from+g.ow])
			from += p.xPitch
		}
	}
}
