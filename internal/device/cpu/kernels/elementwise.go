package kernels

import "math"

// rectify computes y = max(0, x). The built-in max returns NaN for NaN.
func rectify(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] = max(v, 0)
	}
}

// mask computes dx = dy where y > 0, else 0. It works on bits: signs are as good
// as random, and a branch would be mispredicted every other time.
func mask(dx, y, dy []float32) {
	const inf = 0x7f800000
	y, dx = y[:len(dy)], dx[:len(dy)]
	for i, d := range dy {
		b := int32(math.Float32bits(y[i]))
		// Above 0 and not NaN: the sign bits of -b, of b's complement and of the
		// distance to Inf say so. The complement settles -0, whose bits are
		// their own negative.
		keep := (-b & ^b & ^(inf - b)) >> 31
		dx[i] = math.Float32frombits(math.Float32bits(d) & uint32(keep))
	}
}

func addTo(y, z []float32) {
	z = z[:len(y)]
	for i := range y {
		y[i] += z[i]
	}
}

// sameElems checks that operands have as many elements as the first input.
func (c *compiler) sameElems() int {
	n := c.in(0).Shape.Elems()
	for i := range c.b.In {
		c.elems(c.in(i), n)
	}
	for i := range c.b.Out {
		c.elems(c.out(i), n)
	}
	return n
}

func buildReLU(c *compiler) func() {
	n := c.sameElems()
	x, y := c.real(c.in(0)), c.real(c.out(0))
	return c.spread(n, func(lo, hi int) {
		var bx, by block
		d := y.place(lo, hi, &by)
		rectify(d, x.read(lo, hi, &bx))
		y.commit(lo, d)
	})
}

func buildReLUBwd(c *compiler) func() {
	n := c.sameElems()
	y, dy, dx := c.real(c.in(0)), c.real(c.in(1)), c.real(c.out(0))
	return c.spread(n, func(lo, hi int) {
		var by, bdy, bdx block
		d := dx.place(lo, hi, &bdx)
		mask(d, y.read(lo, hi, &by), dy.read(lo, hi, &bdy))
		dx.commit(lo, d)
	})
}

func buildAdd(c *compiler) func() {
	n := c.sameElems()
	a, b, y := c.real(c.in(0)), c.real(c.in(1)), c.real(c.out(0))
	return c.spread(n, func(lo, hi int) {
		var ba, bb, by block
		d, p, q := y.place(lo, hi, &by), a.read(lo, hi, &ba), b.read(lo, hi, &bb)
		for i := range d {
			d[i] = p[i] + q[i]
		}
		y.commit(lo, d)
	})
}

func buildAffine(c *compiler) func() {
	if len(c.in(0).Shape) == 0 {
		c.fail(c.in(0), "has no channels")
		return nil
	}
	a := &c.b.Attr
	x, scale, bias, y := c.real(c.in(0)), c.f32(c.in(1)), c.f32(c.in(2)), c.real(c.out(0))
	n := c.in(0).Shape.Elems()
	channels := c.in(0).Shape[len(c.in(0).Shape)-1]
	c.elems(c.in(1), channels)
	c.elems(c.in(2), channels)
	c.elems(c.out(0), n)
	var z vec
	if a.Add {
		z = c.real(c.in(3))
		c.elems(c.in(3), n)
	}
	add, relu := a.Add, a.ReLU
	return c.spread(n, func(lo, hi int) {
		var bx, by, bz block
		d, s := y.place(lo, hi, &by), x.read(lo, hi, &bx)
		ch := lo % channels
		for i := 0; i < len(d); {
			m := min(channels-ch, len(d)-i)
			scaleRow(d[i:i+m], s[i:i+m], scale[ch:ch+m], bias[ch:ch+m])
			i, ch = i+m, 0
		}
		if add {
			addTo(d, z.read(lo, hi, &bz))
		}
		if relu {
			rectify(d, d)
		}
		y.commit(lo, d)
	})
}

func scaleRow(y, x, scale, bias []float32) {
	x, scale, bias = x[:len(y)], scale[:len(y)], bias[:len(y)]
	for i := range y {
		y[i] = float32(x[i]*scale[i]) + bias[i]
	}
}
