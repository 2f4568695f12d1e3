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
	p.xPitch, p.yPitch = roundUp(g.inPixels(), 16), roundUp(g.outPixels(), 16)
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
	turnX, nx := turnRows(p.x, p.xPitch, xv, g.inPixels(), g.c)
	turnY, ny := turnRows(p.y, p.yPitch, dyv, g.outPixels(), g.k)
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

// turnRows makes a function that turns src, rows of c elements, into c rows of
// pitch elements, and says into how many chunks it is cut.
func turnRows(dst []float32, pitch int, src vec, rows, c int) (func(i int), int) {
	perChunk := roundUp(max(64, ceilDiv(rows, 2*units)), 16)
	return func(i int) {
		for r := i * perChunk; r < min(rows, (i+1)*perChunk); r += 16 {
			// 16 source rows fill whole cache lines of each target row.
			turnBlock(dst, pitch, src, r, min(rows, r+16), c)
		}
	}, ceilDiv(rows, perChunk)
}

func turnBlock(dst []float32, pitch int, src vec, r0, r1, c int) {
	if src.f32 != nil && r1-r0 == 16 {
		s := src.f32[r0*c : r1*c]
		for j := range c {
			d := (*[16]float32)(dst[j*pitch+r0:])
			for i, at := 0, j; i < 16; i, at = i+1, at+c {
				d[i] = s[at]
			}
		}
		return
	}
	for j := range c {
		d := dst[j*pitch+r0 : j*pitch+r1]
		for i := range d {
			if src.f32 != nil {
				d[i] = src.f32[(r0+i)*c+j]
			} else {
				d[i] = fromF16(src.f16[(r0+i)*c+j])
			}
		}
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

// gather fills row q-q0 of dst with what tap q sees from pixels p0..p1.
func (p *filterPlan) gather(dst []float32, pitch, q0, q1, p0, p1 int) {
	g := p.g
	for q := q0; q < q1; q++ {
		c, s, r := q%g.c, q/g.c%g.s, q/(g.c*g.s)
		plane := p.x[c*p.xPitch : (c+1)*p.xPitch]
		row := dst[(q-q0)*pitch : (q-q0)*pitch+p1-p0]
		j := p0 % g.ow
		line := p0 / g.ow // image and row together
		for len(row) > 0 {
			n := min(g.ow-j, len(row))
			y := line%g.oh*g.stride - g.pad + r
			if y < 0 || y >= g.h {
				clear(row[:n])
			} else {
				img := line / g.oh
				gatherLine(row[:n], plane[(img*g.h+y)*g.w:(img*g.h+y+1)*g.w], j*g.stride-g.pad+s, g.stride)
			}
			row = row[n:]
			j = 0
			line++
		}
	}
}

// gatherLine reads every stride-th element of src from x on, 0 outside.
func gatherLine(dst, src []float32, x, stride int) {
	if stride == 1 {
		lo := min(max(0, -x), len(dst))
		hi := max(lo, min(len(dst), len(src)-x))
		clear(dst[:lo])
		copy(dst[lo:hi], src[x+lo:])
		clear(dst[hi:])
		return
	}
	for i := range dst {
		dst[i] = 0
		if uint(x) < uint(len(src)) {
			dst[i] = src[x]
		}
		x += stride
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
