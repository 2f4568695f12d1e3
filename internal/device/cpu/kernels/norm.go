package kernels

import (
	"math"
	"slices"

	"github.com/tech-renaissance/trbench/workloads"
)

// normPlan cuts a batch norm into chunks of whole pixels. A chunk lies in one
// group. Sums are float64, per chunk and channel, and are added in chunk order.
type normPlan struct {
	rows     int // pixels of a group
	c        int
	groups   int
	perGroup int // chunks of a group
	layout   layout
	part     piece // [groups*perGroup][2][c]
	coef     piece // [groups][3][c] float32 that the elementwise pass needs
}

func (c *compiler) planNorm(x *workloads.Operand) (p normPlan) {
	if !c.rank(x, 4) {
		return p
	}
	p.groups = c.b.Attr.Groups
	if p.groups < 1 || x.Shape[0]%p.groups != 0 {
		c.reject("%d groups do not divide a batch of %d", p.groups, x.Shape[0])
		return p
	}
	p.c = x.Shape[3]
	p.rows = x.Shape[0] / p.groups * x.Shape[1] * x.Shape[2]
	p.perGroup = min(max(1, units/p.groups), ceilDiv(p.rows*p.c, blockLen))
	p.part = p.layout.f64(p.groups * p.perGroup * 2 * p.c)
	p.coef = p.layout.f32(p.groups * 3 * p.c)
	return p
}

func (p *normPlan) chunks() int { return p.groups * p.perGroup }

// span is the elements of a chunk and the group it lies in.
func (p *normPlan) span(chunk int) (group, lo, hi int) {
	group = chunk / p.perGroup
	i := chunk % p.perGroup
	base := group * p.rows
	return group, (base + p.rows*i/p.perGroup) * p.c, (base + p.rows*(i+1)/p.perGroup) * p.c
}

// sums returns a chunk's two rows of partial sums.
func (p *normPlan) sums(part []float64, chunk int) (a, b []float64) {
	s := part[chunk*2*p.c : (chunk+1)*2*p.c]
	return s[:p.c], s[p.c:]
}

// coefs returns a group's three rows of coefficients.
func (p *normPlan) coefs(coef []float32, group int) (a, b, d []float32) {
	s := coef[group*3*p.c : (group+1)*3*p.c]
	return s[:p.c], s[p.c : 2*p.c], s[2*p.c:]
}

// next cuts a chunk into blocks: the block that begins at element at ends at
// end and consists of rows of m elements, channels c0 on. A block holds whole
// pixels unless one pixel alone is larger than a block.
func (p *normPlan) next(at, hi int) (end, c0, m int) {
	if p.c <= blockLen {
		return min(at+blockLen/p.c*p.c, hi), 0, p.c
	}
	c0 = at % p.c
	m = min(blockLen, p.c-c0)
	return at + m, c0, m
}

func batchNormScratch(b *workloads.Bound) layout {
	c := &compiler{b: b}
	return c.planNorm(&b.In[0]).layout
}

func batchNormBwdScratch(b *workloads.Bound) layout { return batchNormScratch(b) }

// batchNorm is a compiled OpBatchNorm.
type batchNorm struct {
	normPlan
	x, y, z                              vec
	gamma, beta                          []float32
	mean, invstd, statMean, statVariance []float32
	mask                                 bits
	add, relu, unbiased                  bool
	eps                                  float64
	parts                                []float64
	coefficients                         []float32
}

func buildBatchNorm(c *compiler) func() {
	a := &c.b.Attr
	n := &batchNorm{normPlan: c.planNorm(c.in(0)), add: a.Add, relu: a.ReLU, unbiased: a.Unbiased, eps: float64(a.Eps)}
	if c.err != nil {
		return nil
	}
	n.x, n.gamma, n.beta = c.real(c.in(0)), c.f32(c.in(1)), c.f32(c.in(2))
	n.y, n.mean, n.invstd = c.real(c.out(0)), c.f32(c.out(1)), c.f32(c.out(2))
	n.statMean, n.statVariance = c.f32(c.out(3)), c.f32(c.out(4))
	c.shape(c.out(0), c.in(0).Shape...)
	if a.Add {
		n.z = c.real(c.in(3))
		c.shape(c.in(3), c.in(0).Shape...)
	}
	if a.Mask {
		n.mask = c.bits(c.out(5), c.out(0))
	}
	c.elems(c.in(1), n.c)
	c.elems(c.in(2), n.c)
	c.elems(c.out(1), n.groups*n.c)
	c.elems(c.out(2), n.groups*n.c)
	c.elems(c.out(3), n.c)
	c.elems(c.out(4), n.c)
	scratch := c.scratch(n.layout)
	if c.err != nil {
		return nil
	}
	n.parts, n.coefficients = n.part.f64(scratch), n.coef.f32(scratch)
	pool, measure, apply := c.pool, n.measure, n.apply
	return func() {
		n.shift()
		pool.Run(n.chunks(), measure)
		n.finish()
		pool.Run(n.chunks(), apply)
	}
}

// shift picks what is subtracted before squaring, so that the variance does not
// lose its digits to a mean far from 0: the group's first value, unless that is
// Inf or NaN, which would turn an infinite mean into NaN.
func (n *batchNorm) shift() {
	var buf block
	for g := range n.groups {
		_, _, shift := n.coefs(n.coefficients, g)
		base := g * n.rows * n.c
		for at := base; at < base+n.c; {
			end, c0, m := n.next(at, base+n.c)
			s := shift[c0 : c0+m]
			copy(s, n.x.read(at, end, &buf))
			for i, v := range s {
				if v-v != 0 {
					s[i] = 0
				}
			}
			at = end
		}
	}
}

func (n *batchNorm) measure(chunk int) {
	group, lo, hi := n.span(chunk)
	sum, square := n.sums(n.parts, chunk)
	clear(sum)
	clear(square)
	_, _, shift := n.coefs(n.coefficients, group)
	var buf block
	for at := lo; at < hi; {
		end, c0, m := n.next(at, hi)
		addSquares(sum[c0:c0+m], square[c0:c0+m], shift[c0:c0+m], n.x.read(at, end, &buf))
		at = end
	}
}

// addSquares adds x - shift and its square to the sums; x holds rows of
// len(shift) elements.
func addSquares(sum, square []float64, shift, x []float32) {
	m := len(shift)
	sum, square = sum[:m], square[:m]
	for ; len(x) >= m; x = x[m:] {
		for i, v := range x[:m] {
			d := float64(v) - float64(shift[i])
			sum[i] += d
			square[i] += float64(d * d)
		}
	}
}

// finish adds the chunks' sums and leaves, for each group, the mean, the factor
// gamma*invstd and beta as coefficients.
func (n *batchNorm) finish() {
	clear(n.statMean)
	clear(n.statVariance)
	count := float64(n.rows)
	unbias := 1.0
	if n.unbiased {
		unbias = count / max(count-1, 1)
	}
	for c := range n.c {
		var means, variances float64
		for g := range n.groups {
			mean, variance := n.moments(g, c)
			invstd := float32(1 / math.Sqrt(variance+n.eps))
			n.mean[g*n.c+c], n.invstd[g*n.c+c] = float32(mean), invstd
			shift, factor, offset := n.coefs(n.coefficients, g)
			shift[c], factor[c], offset[c] = float32(mean), n.gamma[c]*invstd, n.beta[c]
			means += mean
			variances += variance
		}
		n.statMean[c] = float32(means / float64(n.groups))
		n.statVariance[c] = float32(variances * unbias / float64(n.groups))
	}
}

// moments returns the mean and the biased variance of a group's channel.
func (n *batchNorm) moments(g, c int) (mean, variance float64) {
	var sum, square float64
	for i := g * n.perGroup; i < (g+1)*n.perGroup; i++ {
		a, b := n.sums(n.parts, i)
		sum += a[c]
		square += b[c]
	}
	count := float64(n.rows)
	_, _, shift := n.coefs(n.coefficients, g)
	d := sum / count
	variance = square/count - float64(d*d)
	if variance < 0 { // rounding alone; NaN stays
		variance = 0
	}
	return float64(shift[c]) + d, variance
}

func (n *batchNorm) apply(chunk int) {
	group, lo, hi := n.span(chunk)
	mean, factor, offset := n.coefs(n.coefficients, group)
	var bx, by, bz block
	for at := lo; at < hi; {
		end, c0, m := n.next(at, hi)
		x, y := n.x.read(at, end, &bx), n.y.place(at, end, &by)
		normalise(y, x, mean[c0:c0+m], factor[c0:c0+m], offset[c0:c0+m])
		if n.add {
			addTo(y, n.z.read(at, end, &bz))
		}
		if n.relu {
			rectify(y, y)
		}
		n.y.commit(at, y)
		if n.mask.run > 0 {
			// What rounds to 0 is not above it.
			n.mask.set(at, n.y.read(at, end, &by))
		}
		at = end
	}
}

// normalise computes y = (x-mean)*factor + offset on rows of len(mean).
func normalise(y, x, mean, factor, offset []float32) {
	m := len(mean)
	factor, offset = factor[:m], offset[:m]
	for ; len(x) >= m; x, y = x[m:], y[m:] {
		out := y[:m]
		for i, v := range x[:m] {
			out[i] = float32((v-mean[i])*factor[i]) + offset[i]
		}
	}
}

// bits is a mask as [workloads.MaskRun] lays it out.
type bits struct {
	b   []byte
	run int // elements a byte; 0 if there is no mask
}

// bits returns the mask of an operand's elements.
func (c *compiler) bits(mask, of *workloads.Operand) bits {
	ch := of.Shape[len(of.Shape)-1]
	m := bits{c.u8(mask), workloads.MaskRun(of.DType, ch)}
	shape := slices.Clone(of.Shape)
	shape[len(shape)-1] = ch / m.run
	c.shape(mask, shape...)
	return m
}

// set notes which elements from lo on, a whole number of runs, are above 0.
func (m bits) set(lo int, y []float32) {
	for i := 0; i < len(y); i += m.run {
		b := byte(0)
		for j, v := range y[i : i+m.run] {
			if v > 0 {
				b |= 1 << j
			}
		}
		m.b[(lo+i)/m.run] = b
	}
}

// keep is dy where the mask is on, else 0.
func (m bits) keep(lo int, dx, dy []float32) {
	for i, d := range dy {
		if at := lo + i; m.b[at/m.run]>>(at%m.run)&1 == 0 {
			d = 0
		}
		dx[i] = d
	}
}

// batchNormBwd is a compiled OpBatchNormBwd. With xhat = (x-mean)*invstd and g
// the incoming gradient, masked if there is a ReLU,
//
//	dbeta = sum g, dgamma = sum g*xhat,
//	dx = gamma*invstd * (g - dbeta/n - xhat*dgamma/n),
//
// the sums in dx over one group.
type batchNormBwd struct {
	normPlan
	x, dy, dy2, dx, dz  vec
	y                   vec  // with a ReLU, unless there is a mask
	mask                bits // of y
	gamma, mean, invstd []float32
	dgamma, dbeta       []float32
	relu, add, sum      bool
	parts               []float64
	coefficients        []float32
}

func buildBatchNormBwd(c *compiler) func() {
	a := &c.b.Attr
	n := &batchNormBwd{normPlan: c.planNorm(c.in(0)), relu: a.ReLU, add: a.Add, sum: a.Sum}
	if c.err != nil {
		return nil
	}
	shape := c.in(0).Shape
	n.x, n.dy = c.real(c.in(0)), c.real(c.in(1))
	n.gamma, n.mean, n.invstd = c.f32(c.in(2)), c.f32(c.in(3)), c.f32(c.in(4))
	n.dx, n.dgamma, n.dbeta = c.real(c.out(0)), c.f32(c.out(1)), c.f32(c.out(2))
	c.shape(c.in(1), shape...)
	c.shape(c.out(0), shape...)
	if a.Mask && !a.ReLU {
		c.reject("a mask without a ReLU")
		return nil
	}
	next := 5
	if a.ReLU {
		if a.Mask {
			n.mask = c.bits(c.in(next), c.in(0))
		} else {
			n.y = c.real(c.in(next))
			c.shape(c.in(next), shape...)
		}
		next++
	}
	if a.Sum {
		n.dy2 = c.real(c.in(next))
		c.shape(c.in(next), shape...)
	}
	if a.Add {
		n.dz = c.real(c.out(3))
		c.shape(c.out(3), shape...)
	}
	c.elems(c.in(2), n.c)
	c.elems(c.in(3), n.groups*n.c)
	c.elems(c.in(4), n.groups*n.c)
	c.elems(c.out(1), n.c)
	c.elems(c.out(2), n.c)
	scratch := c.scratch(n.layout)
	if c.err != nil {
		return nil
	}
	n.parts, n.coefficients = n.part.f64(scratch), n.coef.f32(scratch)
	pool, measure, apply := c.pool, n.measure, n.apply
	return func() {
		pool.Run(n.chunks(), measure)
		n.finish()
		pool.Run(n.chunks(), apply)
	}
}

// gradient returns elements at..end of the incoming gradient.
func (n *batchNormBwd) gradient(at, end int, g, buf *block) []float32 {
	dy := n.dy.read(at, end, g)
	own := g[:end-at]
	if n.sum {
		for i, v := range n.dy2.read(at, end, buf) {
			own[i] = dy[i] + v
		}
		n.dy.round(own)
		dy = own
	}
	switch {
	case !n.relu:
		return dy
	case n.mask.run > 0:
		n.mask.keep(at, own, dy)
	default:
		mask(own, n.y.read(at, end, buf), dy)
	}
	return own
}

func (n *batchNormBwd) measure(chunk int) {
	group, lo, hi := n.span(chunk)
	sum, product := n.sums(n.parts, chunk)
	clear(sum)
	clear(product)
	mean := n.mean[group*n.c : (group+1)*n.c]
	var bx, bg, by block
	for at := lo; at < hi; {
		end, c0, m := n.next(at, hi)
		addProducts(sum[c0:c0+m], product[c0:c0+m], mean[c0:c0+m], n.gradient(at, end, &bg, &by), n.x.read(at, end, &bx))
		at = end
	}
}

// addProducts adds g and g*(x-mean) to the sums.
func addProducts(sum, product []float64, mean, g, x []float32) {
	m := len(mean)
	sum, product = sum[:m], product[:m]
	for ; len(x) >= m; x, g = x[m:], g[m:] {
		row := g[:m]
		for i, v := range x[:m] {
			d := float64(row[i])
			sum[i] += d
			product[i] += float64(d * float64(v-mean[i]))
		}
	}
}

// finish adds the sums and leaves, for each group, the coefficients a, b and d
// of dx = a*g + b*(x-mean) + d.
func (n *batchNormBwd) finish() {
	count := float64(n.rows)
	for c := range n.c {
		var dgamma, dbeta float64
		for g := range n.groups {
			var sum, product float64
			for i := g * n.perGroup; i < (g+1)*n.perGroup; i++ {
				s, p := n.sums(n.parts, i)
				sum += s[c]
				product += p[c]
			}
			invstd := float64(n.invstd[g*n.c+c])
			product *= invstd
			dgamma += product
			dbeta += sum
			f := float64(n.gamma[c]) * invstd
			ca, cb, cd := n.coefs(n.coefficients, g)
			ca[c], cb[c], cd[c] = float32(f), float32(-f*invstd*product/count), float32(-f*sum/count)
		}
		n.dgamma[c], n.dbeta[c] = float32(dgamma), float32(dbeta)
	}
}

func (n *batchNormBwd) apply(chunk int) {
	group, lo, hi := n.span(chunk)
	mean := n.mean[group*n.c : (group+1)*n.c]
	ca, cb, cd := n.coefs(n.coefficients, group)
	var bx, bg, by, bd block
	for at := lo; at < hi; {
		end, c0, m := n.next(at, hi)
		g, x, dx := n.gradient(at, end, &bg, &by), n.x.read(at, end, &bx), n.dx.place(at, end, &bd)
		inputGradient(dx, g, x, mean[c0:c0+m], ca[c0:c0+m], cb[c0:c0+m], cd[c0:c0+m])
		n.dx.commit(at, dx)
		if n.add {
			n.dz.store(at, g)
		}
		at = end
	}
}

func inputGradient(dx, g, x, mean, a, b, d []float32) {
	m := len(mean)
	a, b, d = a[:m], b[:m], d[:m]
	for ; len(x) >= m; x, g, dx = x[m:], g[m:], dx[m:] {
		out, row := dx[:m], g[:m]
		for i, v := range x[:m] {
			out[i] = float32(a[i]*row[i]) + float32(b[i]*(v-mean[i])) + d[i]
		}
	}
}
