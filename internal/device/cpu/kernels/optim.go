package kernels

import (
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// update is OpSGD or OpLARS, compiled. lr and the ratios are set before the
// elements are spread over the pool.
type update struct {
	w, g, v         []float32
	scalars         []byte
	decay, momentum float32
	nesterov        bool
	trust           float32
	lr              float32
	spans           []workloads.Span
	ratios          []float32 // of each span
	partial         []float64 // norms of w and g by chunk of a span
}

func (c *compiler) update() *update {
	a := &c.b.Attr
	u := &update{
		w: c.f32(c.in(0)), g: c.f32(c.in(1)), v: c.f32(c.in(2)), scalars: c.scalars(c.in(3)),
		decay: a.Decay, momentum: a.Momentum, nesterov: a.Nesterov, trust: a.Trust,
	}
	n := c.in(0).Shape.Elems()
	c.elems(c.in(1), n)
	c.elems(c.in(2), n)
	c.inPlace(c.in(0), c.out(0))
	c.inPlace(c.in(2), c.out(1))
	return u
}

// begin reads the scalars and says whether to go on.
func (u *update) begin() bool {
	s := workloads.DecodeScalars(u.scalars)
	u.lr = s.LR
	return s.Skip == 0
}

func buildSGD(c *compiler) func() {
	u := c.update()
	run := c.spread(len(u.w), func(lo, hi int) { u.apply(lo, hi, 1) })
	return func() {
		if u.begin() {
			run()
		}
	}
}

// apply updates elements lo..hi. Products are rounded before they are added,
// and times 1 is exact, so SGD is LARS with ratio 1.
func (u *update) apply(lo, hi int, ratio float32) {
	w := u.w[lo:hi]
	g, v := u.g[lo:hi], u.v[lo:hi]
	v, g = v[:len(w)], g[:len(w)]
	for i, x := range w {
		d := ratio * (g[i] + float32(u.decay*x))
		m := float32(u.momentum*v[i]) + d
		v[i] = m
		if u.nesterov {
			m = d + float32(u.momentum*m)
		}
		w[i] = x - float32(u.lr*m)
	}
}

// larsChunk is a chunk of one span.
type larsChunk struct{ span, lo, hi int }

func buildLARS(c *compiler) func() {
	u := c.update()
	u.spans = c.b.Attr.Spans
	var chunks []larsChunk
	for i, s := range u.spans {
		if s.Off < 0 || s.Len < 0 || s.Off+s.Len > len(u.w) {
			c.fail(c.in(0), "span %d: %d elements at %d of %d", i, s.Len, s.Off, len(u.w))
			return nil
		}
		for lo := s.Off; lo < s.Off+s.Len; lo += chunkLen {
			chunks = append(chunks, larsChunk{i, lo, min(lo+chunkLen, s.Off+s.Len)})
		}
	}
	u.ratios = make([]float32, len(u.spans))
	u.partial = make([]float64, 2*len(chunks))
	measure := func(i int) {
		k := chunks[i]
		u.partial[2*i], u.partial[2*i+1] = squares(u.w[k.lo:k.hi]), squares(u.g[k.lo:k.hi])
	}
	apply := func(i int) {
		k := chunks[i]
		u.apply(k.lo, k.hi, u.ratios[k.span])
	}
	pool := c.pool
	return func() {
		if !u.begin() {
			return
		}
		pool.Run(len(chunks), measure)
		u.trustRatios(chunks)
		pool.Run(len(chunks), apply)
	}
}

// trustRatios adds each span's squares in chunk order and sets its ratio.
func (u *update) trustRatios(chunks []larsChunk) {
	at := 0
	for i := range u.spans {
		var ww, gg float64
		for ; at < len(chunks) && chunks[at].span == i; at++ {
			ww += u.partial[2*at]
			gg += u.partial[2*at+1]
		}
		w, g := math.Sqrt(ww), math.Sqrt(gg)
		u.ratios[i] = 1
		if w > 0 && g > 0 {
			u.ratios[i] = float32(float64(u.trust) * w / (g + float64(float64(u.decay)*w)))
		}
	}
}

func squares(x []float32) float64 {
	var sum float64
	for _, v := range x {
		d := float64(v)
		sum += float64(d * d)
	}
	return sum
}
