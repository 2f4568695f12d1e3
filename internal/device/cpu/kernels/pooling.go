package kernels

import "github.com/tech-renaissance/trbench/workloads"

// maxPool is OpMaxPool or its gradient, compiled. Both go through the written
// image a pixel at a time, all channels of it at once, so each element is
// written by one chunk.
type maxPool struct {
	n, h, w, c     int
	r, stride, pad int
	oh, ow         int
	in, out        vec // of the direction at hand
	index          []byte
}

// geometry fills in everything but the memory. x is the large image, y the
// small one.
func (p *maxPool) geometry(c *compiler, x, y, index *workloads.Operand) {
	if !c.rank(x, 4) || !c.rank(y, 4) {
		return
	}
	a := &c.b.Attr
	p.n, p.h, p.w, p.c = x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
	p.r, p.stride, p.pad = a.R, a.Stride, a.Pad
	// An index must fit a byte, and a window that lies in the padding as a
	// whole would have no maximum.
	if p.r < 1 || p.r > 16 || p.stride < 1 || p.pad < 0 || 2*p.pad > p.r || p.h+2*p.pad < p.r || p.w+2*p.pad < p.r {
		c.reject("window %d, stride %d, pad %d on %v", p.r, p.stride, p.pad, x.Shape)
		return
	}
	p.oh, p.ow = (p.h+2*p.pad-p.r)/p.stride+1, (p.w+2*p.pad-p.r)/p.stride+1
	c.shape(y, p.n, p.oh, p.ow, p.c)
	c.shape(index, y.Shape...)
}

// lines makes a function that runs f on each of n image lines, in chunks of
// about chunkLen elements.
func (c *compiler) lines(n, elems int, f func(line int)) func() {
	perChunk := max(1, chunkLen/max(1, elems))
	chunk := func(i int) {
		for l := i * perChunk; l < min(n, (i+1)*perChunk); l++ {
			f(l)
		}
	}
	pool, chunks := c.pool, ceilDiv(n, perChunk)
	return func() { pool.Run(chunks, chunk) }
}

func buildMaxPool(c *compiler) func() {
	p := &maxPool{}
	p.geometry(c, c.in(0), c.out(0), c.out(1))
	p.in, p.out, p.index = c.real(c.in(0)), c.real(c.out(0)), c.u8(c.out(1))
	if c.err != nil {
		return nil
	}
	return c.lines(p.n*p.oh, p.ow*p.c, p.forwardLine)
}

func (p *maxPool) forwardLine(line int) {
	img, i := line/p.oh, line%p.oh
	var bx, by block
	for j := range p.ow {
		at := (line*p.ow + j) * p.c
		for c0 := 0; c0 < p.c; c0 += blockLen {
			c1 := min(c0+blockLen, p.c)
			best := p.out.place(at+c0, at+c1, &by)
			index := p.index[at+c0 : at+c1]
			p.window(best, index, img, i, j, c0, &bx)
			p.out.commit(at+c0, best)
		}
	}
}

// window finds the maxima of one window. The first pixel inside the image is
// the first candidate, so the padding never wins, not even against -Inf.
func (p *maxPool) window(best []float32, index []byte, img, i, j, c0 int, buf *block) {
	first := true
	for r := range p.r {
		y := i*p.stride - p.pad + r
		if y < 0 || y >= p.h {
			continue
		}
		for s := range p.r {
			x := j*p.stride - p.pad + s
			if x < 0 || x >= p.w {
				continue
			}
			from := ((img*p.h+y)*p.w+x)*p.c + c0
			v := p.in.read(from, from+len(best), buf)
			code := byte(r*p.r + s)
			if first {
				copy(best, v)
				for k := range index {
					index[k] = code
				}
				first = false
				continue
			}
			improve(best, index, v, code)
		}
	}
}

// improve takes v where it is larger, or where it is NaN and best is not.
func improve(best []float32, index []byte, v []float32, code byte) {
	v, index = v[:len(best)], index[:len(best)]
	for k, b := range best {
		if x := v[k]; x > b || (x != x && b == b) {
			best[k], index[k] = x, code
		}
	}
}

func buildMaxPoolBwd(c *compiler) func() {
	p := &maxPool{}
	p.geometry(c, c.out(0), c.in(0), c.in(1))
	p.in, p.out, p.index = c.real(c.in(0)), c.real(c.out(0)), c.u8(c.in(1))
	if c.err != nil {
		return nil
	}
	return c.lines(p.n*p.h, p.w*p.c, p.backwardLine)
}

func (p *maxPool) backwardLine(line int) {
	img, y := line/p.h, line%p.h
	var bdy, bdx block
	for x := range p.w {
		at := (line*p.w + x) * p.c
		for c0 := 0; c0 < p.c; c0 += blockLen {
			c1 := min(c0+blockLen, p.c)
			dx := p.out.place(at+c0, at+c1, &bdx)
			clear(dx)
			p.collect(dx, img, y, x, c0, &bdy)
			p.out.commit(at+c0, dx)
		}
	}
}

// reach is the range of windows, in one direction, that hold pixel at.
func (p *maxPool) reach(at, n int) (lo, hi int) {
	return max(0, floorDiv(at+p.pad-p.r, p.stride)+1), min(n, (at+p.pad)/p.stride+1)
}

// collect adds the gradients of the windows whose maximum this pixel was, in
// row-major order of the windows.
func (p *maxPool) collect(dx []float32, img, y, x, c0 int, buf *block) {
	i0, i1 := p.reach(y, p.oh)
	j0, j1 := p.reach(x, p.ow)
	for i := i0; i < i1; i++ {
		for j := j0; j < j1; j++ {
			code := byte((y+p.pad-i*p.stride)*p.r + x + p.pad - j*p.stride)
			from := ((img*p.oh+i)*p.ow+j)*p.c + c0
			dy, index := p.in.read(from, from+len(dx), buf), p.index[from:from+len(dx)]
			for k, got := range index {
				if got == code {
					dx[k] += dy[k]
				}
			}
		}
	}
}

// avgPool checks the shapes of an average pool and returns images, pixels of
// one and channels.
func (c *compiler) avgPool(x, y *workloads.Operand) (n, pixels, channels int) {
	if !c.rank(x, 4) || !c.rank(y, 2) {
		return 0, 0, 0
	}
	c.shape(y, x.Shape[0], x.Shape[3])
	return x.Shape[0], x.Shape[1] * x.Shape[2], x.Shape[3]
}

func buildAvgPool(c *compiler) func() {
	n, pixels, channels := c.avgPool(c.in(0), c.out(0))
	x, y := c.real(c.in(0)), c.real(c.out(0))
	if c.err != nil {
		return nil
	}
	return c.lines(n, pixels*channels, func(img int) {
		var bx, by block
		for c0 := 0; c0 < channels; c0 += blockLen {
			m := min(blockLen, channels-c0)
			at := img*channels + c0
			sum := y.place(at, at+m, &by)
			clear(sum)
			for p := range pixels {
				from := (img*pixels+p)*channels + c0
				addTo(sum, x.read(from, from+m, &bx))
			}
			for i := range sum {
				sum[i] /= float32(pixels)
			}
			y.commit(at, sum)
		}
	})
}

func buildAvgPoolBwd(c *compiler) func() {
	n, pixels, channels := c.avgPool(c.out(0), c.in(0))
	dy, dx := c.real(c.in(0)), c.real(c.out(0))
	if c.err != nil {
		return nil
	}
	return c.lines(n, pixels*channels, func(img int) {
		var bdy, share block
		for c0 := 0; c0 < channels; c0 += blockLen {
			m := min(blockLen, channels-c0)
			at := img*channels + c0
			for i, v := range dy.read(at, at+m, &bdy) {
				share[i] = v / float32(pixels)
			}
			for p := range pixels {
				dx.store((img*pixels+p)*channels+c0, share[:m])
			}
		}
	})
}
