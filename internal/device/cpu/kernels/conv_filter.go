package kernels

import "github.com/tech-renaissance/trbench/workloads"

// filterPlan is the filter gradient: for filter k and tap q = (r, s, c) the sum
// over output pixels p of dy[p, k] * x[the pixel that tap q sees from p, c].
// Pixels are the summed dimension, so both images are first turned into planes,
// one row a channel. Then tiles of taps are gathered from the planes row by row
// and multiplied.
//
// Work is cut into tiles of taps, which share nothing, and, if those are too
// few, into chunks of pixels, which sum into parts of their own; the parts are
// added in chunk order at the end.
type filterPlan struct {
	g              geom
	tileTaps       int
	tiles          int
	pixelChunks    int
	xPitch, yPitch int
	// A line of an x plane holds the columns in the order of their phase, the
	// column modulo the stride: what one tap sees then lies side by side.
	phaseWidth, lineWidth int
	parts          bool // sums go to scratch and not straight to dw

	layout           layout
	px, py, col, sum piece

	x, y, cols, sums []float32
}

// pixelBlock is the number of pixels of one product: long enough for the dot
// product to run at full speed, short enough for a tile of taps to stay in the
// second-level cache.
const pixelBlock = 512

func planBwdFilter(g geom, dwType workloads.DType) *filterPlan {
	const maxTaps = 192 // with 64 filters the most that gonum multiplies serially
	p := &filterPlan{g: g}
	p.tiles = ceilDiv(g.taps(), maxTaps)
	p.tileTaps = ceilDiv(g.taps(), p.tiles)
	p.pixelChunks = min(ceilDiv(units, p.tiles), ceilDiv(g.outPixels(), 128))
	p.phaseWidth = ceilDiv(g.w, g.stride)
	p.lineWidth = p.phaseWidth * g.stride
	p.xPitch, p.yPitch = planePitch(g.n*g.h*p.lineWidth), planePitch(g.outPixels())
	p.parts = p.pixelChunks > 1 || dwType == workloads.F16
	p.px = p.layout.f32(g.c * p.xPitch)
	p.py = p.layout.f32(g.k * p.yPitch)
	if !g.pointwise() {
		p.col = p.layout.f32(p.tiles * p.pixelChunks * p.tileTaps * pixelBlock)
	}
	if p.parts {
		p.sum = p.layout.f32(p.pixelChunks * g.k * g.taps())
	}
	return p
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
	if p.parts {
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
	add := func() {}
	if p.parts {
		add = c.addParts(dwv, p.sums, p.pixelChunks)
	}
	pool, run, n := c.pool, p.run, p.tiles*p.pixelChunks
	return func() {
		pool.Run(nx+ny, turn)
		pool.Run(n, run)
		add()
		if db != nil {
			sumRows(db, p.y, p.yPitch, g.n)
		}
	}
}

// planePitch keeps planes on 16 bytes, and apart from multiples of the page
// size, at which the elements of one pixel would all fall into few cache lines.
func planePitch(n int) int { return roundUp(n, 32) + 16 }

// turnX makes a function that turns x into planes, and says into how many
// chunks it is cut.
func (p *filterPlan) turnX(x vec) (func(i int), int) {
	g := p.g
	if g.stride == 1 {
		return turnPixels(p.x, p.xPitch, x, g.inPixels(), g.c)
	}
	return func(line int) {
		for phase := range min(g.stride, g.w) {
			from := (line*g.w + phase) * g.c
			n := (g.w - phase + g.stride - 1) / g.stride
			transpose(p.x[line*p.lineWidth+phase*p.phaseWidth:], p.xPitch, x, from, g.stride*g.c, n, g.c)
		}
	}, g.n * g.h
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

// run computes one tile of taps over one chunk of pixels.
func (p *filterPlan) run(unit int) {
	g := p.g
	tile, chunk := unit/p.pixelChunks, unit%p.pixelChunks
	q0 := tile * p.tileTaps
	q1 := min(q0+p.tileTaps, g.taps())
	blocks := ceilDiv(g.outPixels(), 16)
	lo := blocks * chunk / p.pixelChunks * 16
	hi := min(blocks*(chunk+1)/p.pixelChunks*16, g.outPixels())
	sums := p.sums
	if p.parts {
		sums = sums[chunk*g.k*g.taps() : (chunk+1)*g.k*g.taps()]
	}
	for at := lo; at < hi; at += pixelBlock {
		end := min(at+pixelBlock, hi)
		b, ldb := []float32(nil), 0
		if g.pointwise() {
			b, ldb = p.x[q0*p.xPitch+at:], p.xPitch
		} else {
			size := p.tileTaps * pixelBlock
			b, ldb = p.cols[unit*size:(unit+1)*size], roundUp(end-at, 4)
			p.gather(b, ldb, q0, q1, at, end)
		}
		// Filters in the outer loop: a call takes 64 of them and the whole tile.
		for k := 0; k < g.k; k += gemmCols {
			a := p.y[k*p.yPitch+at:]
			gemmTile(min(gemmCols, g.k-k), q1-q0, end-at, a, p.yPitch, b, ldb, at > lo, sums[k*g.taps()+q0:], g.taps())
		}
	}
}

// gather fills row q-q0 of dst with what tap q sees from pixels p0..p1. Taps
// that differ in the channel only read the same lines of their planes.
func (p *filterPlan) gather(dst []float32, pitch, q0, q1, p0, p1 int) {
	c := p.g.c
	for q := q0; q < q1; {
		last := min((q/c+1)*c, q1)
		p.gatherTap(dst[(q-q0)*pitch:], pitch, q/c, q%c, last-q, p0, p1)
		q = last
	}
}

// gatherTap fills n rows with what tap (r, s) = rs sees in channels c0 on.
func (p *filterPlan) gatherTap(dst []float32, pitch, rs, c0, n, p0, p1 int) {
	g := p.g
	// The tap sees pixels of one column phase only, which lie side by side.
	ahead := rs%g.s - g.pad
	shift := floorDiv(ahead, g.stride)
	phase := ahead - shift*g.stride
	width := (g.w - phase + g.stride - 1) / g.stride // pixels of that phase
	line, j := p0/g.ow, p0%g.ow                      // image and row together
	for p0 < p1 {
		m := min(g.ow-j, p1-p0)
		y := line%g.oh*g.stride - g.pad + rs/g.s
		row := (line/g.oh*g.h+y)*p.lineWidth + phase*p.phaseWidth
		// Of elements 0..m those from lo to hi lie inside the image.
		lo := min(max(0, -shift-j), m)
		hi := max(lo, min(m, width-shift-j))
		if y < 0 || y >= g.h {
			lo, hi = m, m
		}
		from := c0*p.xPitch + row + shift + j
		for k := range n {
			d := dst[k*pitch : k*pitch+m]
			clear(d[:lo])
			if lo < hi {
				copy(d[lo:hi], p.x[from+lo:])
			}
			clear(d[hi:])
			from += p.xPitch
		}
		dst = dst[m:]
		p0 += m
		j = 0
		line++
	}
}

// addParts makes a function that adds the parts in order and stores the sum.
func (c *compiler) addParts(dst vec, parts []float32, n int) func() {
	size := dst.len()
	return c.spread(size, func(lo, hi int) {
		var buf block
		d := dst.place(lo, hi, &buf)
		copy(d, parts[lo:hi])
		for i := 1; i < n; i++ {
			for j, v := range parts[i*size+lo : i*size+hi] {
				d[j] += v
			}
		}
		dst.commit(lo, d)
	})
}
