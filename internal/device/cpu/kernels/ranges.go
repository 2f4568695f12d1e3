package kernels

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/workloads"
)

func buildCopy(c *compiler) func() {
	src, dst := c.bytes(c.in(0)), c.bytes(c.out(0))
	if len(src) != len(dst) {
		c.fail(c.out(0), "has %d bytes, the source %d", len(dst), len(src))
		return nil
	}
	return c.spreadBytes(len(dst), func(lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
}

// spreadBytes is spread for code that handles a whole chunk at a time.
func (c *compiler) spreadBytes(n int, f func(lo, hi int)) func() {
	const size = 8 * chunkLen
	pool, chunks := c.pool, ceilDiv(n, size)
	chunk := func(i int) { f(i*size, min(n, (i+1)*size)) }
	return func() { pool.Run(chunks, chunk) }
}

func buildZero(c *compiler) func() {
	var all []func()
	for i := range c.b.Out {
		dst := c.bytes(c.out(i))
		all = append(all, c.spreadBytes(len(dst), func(lo, hi int) { clear(dst[lo:hi]) }))
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

func buildCast(c *compiler) func() {
	src, dst := c.in(0), c.out(0)
	n := c.sameElems()
	s, d := c.real(src), c.real(dst)
	if src.DType == dst.DType {
		c.fail(dst, "is %s like the source", dst.DType)
		return nil
	}
	return c.spread(n, func(lo, hi int) {
		if d.f32 != nil {
			decode(d.f32[lo:hi], s.f16[lo:hi])
		} else {
			encode(d.f16[lo:hi], s.f32[lo:hi])
		}
	})
}

func buildInject(c *compiler) func() {
	scalars, g := c.scalars(c.in(0)), c.real(c.out(0))
	if g.len() == 0 {
		c.fail(c.out(0), "is empty")
		return nil
	}
	return func() {
		var buf block
		v := g.read(0, 1, &buf)[0] + workloads.DecodeScalars(scalars).Fault
		buf[0] = v
		g.store(0, buf[:1])
	}
}

// buildNormalize makes tables of the 256 results of each channel: an element
// costs a look-up, and F16 is rounded once, here.
func buildNormalize(c *compiler) func() {
	src, dst := c.u8(c.in(0)), c.real(c.out(0))
	n := c.sameElems()
	var wide [3][256]float32
	var half [3][256]uint16
	for ch := range wide {
		for u := range wide[ch] {
			v := (float32(u)/255 - c.b.Attr.Mean[ch]) * c.b.Attr.InvStd[ch]
			wide[ch][u], half[ch][u] = v, workloads.ToHalf(v)
		}
	}
	return c.spread(n, func(lo, hi int) {
		ch := lo % 3
		for i := lo; i < hi; i++ {
			if dst.f32 != nil {
				dst.f32[i] = wide[ch][src[i]]
			} else {
				dst.f16[i] = half[ch][src[i]]
			}
			if ch++; ch == 3 {
				ch = 0
			}
		}
	})
}

func buildFiniteCheck(c *compiler) func() {
	g, scalars := c.f32(c.in(0)), c.scalars(c.out(0))
	var found atomic.Bool // an or: the order of chunks does not matter
	scan := c.spread(len(g), func(lo, hi int) {
		var bad uint32
		for _, v := range g[lo:hi] {
			// The exponent of Inf and NaN is all ones; one more is a carry.
			bad |= math.Float32bits(v)&0x7f800000 + 0x00800000
		}
		if bad&0x80000000 != 0 {
			found.Store(true)
		}
	})
	return func() {
		found.Store(false)
		scan()
		var word uint32
		if found.Load() {
			word = 1
		}
		binary.LittleEndian.PutUint32(scalars[4*workloads.ScalarNonFinite:], word)
	}
}

func buildUnscale(c *compiler) func() {
	g, scalars := c.f32(c.in(0)), c.scalars(c.in(1))
	c.inPlace(c.in(0), c.out(0))
	var inverse float32
	run := c.spread(len(g), func(lo, hi int) {
		for i, v := range g[lo:hi] {
			g[lo+i] = v * inverse
		}
	})
	return func() {
		inverse = 1 / workloads.DecodeScalars(scalars).Scale
		run()
	}
}

func buildUpdateStats(c *compiler) func() {
	n := c.sameElems()
	stats, running := c.f32(c.in(0)), c.f32(c.in(1))
	c.inPlace(c.in(1), c.out(0))
	m := c.b.Attr.Momentum
	return c.spread(n, func(lo, hi int) { blend(running[lo:hi], stats[lo:hi], 1-m, m) })
}

// blend computes y = a*y + b*x.
func blend(y, x []float32, a, b float32) {
	x = x[:len(y)]
	for i, v := range y {
		y[i] = float32(a*v) + float32(b*x[i])
	}
}

func buildEMA(c *compiler) func() {
	w, ema, scalars := c.f32(c.in(0)), c.f32(c.in(1)), c.scalars(c.in(2))
	c.elems(c.in(1), c.in(0).Shape.Elems())
	c.inPlace(c.in(1), c.out(0))
	d := c.b.Attr.Decay
	run := c.spread(len(w), func(lo, hi int) { blend(ema[lo:hi], w[lo:hi], d, 1-d) })
	return func() {
		if workloads.DecodeScalars(scalars).Skip == 0 {
			run()
		}
	}
}

func buildBNInfer(c *compiler) func() {
	params, running, inf := c.f32(c.in(0)), c.f32(c.in(1)), c.f32(c.out(0))
	norms := append([]workloads.NormSpan(nil), c.b.Attr.Norms...)
	for i, n := range norms {
		for _, v := range []struct {
			o        *workloads.Operand
			off, all int
		}{
			{c.in(0), n.Gamma, len(params)}, {c.in(0), n.Beta, len(params)},
			{c.in(1), n.Mean, len(running)}, {c.in(1), n.Var, len(running)},
			{c.out(0), n.Scale, len(inf)}, {c.out(0), n.Bias, len(inf)},
		} {
			if v.off < 0 || n.C < 0 || v.off+n.C > v.all {
				c.fail(v.o, "norm %d: %d elements at %d of %d", i, n.C, v.off, v.all)
			}
		}
	}
	eps := float64(c.b.Attr.Eps)
	return func() {
		for _, n := range norms {
			for i := range n.C {
				invstd := float32(1 / math.Sqrt(float64(running[n.Var+i])+eps))
				scale := params[n.Gamma+i] * invstd
				inf[n.Scale+i] = scale
				inf[n.Bias+i] = params[n.Beta+i] - float32(running[n.Mean+i]*scale)
			}
		}
	}
}

func buildAccum(c *compiler) func() {
	step, metrics := c.f32(c.in(0)), c.f32(c.out(0))
	slots, count := c.b.Attr.Slots, c.b.Attr.Count
	if slots < 0 || 2*slots > len(step) {
		c.fail(c.in(0), "%d elements do not hold %d slots", len(step), slots)
	}
	if slots*workloads.MetricWords > len(metrics) {
		c.fail(c.out(0), "%d elements do not hold %d slots", len(metrics), slots)
	}
	return func() {
		for s := range slots {
			m := metrics[s*workloads.MetricWords:]
			m[workloads.MetricLoss] += float32(step[2*s] * count)
			m[workloads.MetricHits] += step[2*s+1]
			m[workloads.MetricCount] += count
		}
	}
}

func buildChain(c *compiler) func() {
	n := c.sameElems()
	a, b := c.f32(c.in(0)), c.f32(c.out(0))
	return c.spread(n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			b[i] = float32(a[i]*0.5) + 1
		}
	})
}
