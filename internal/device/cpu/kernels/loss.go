package kernels

import (
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// crossEntropy is OpLoss or OpLossEval, compiled. A row's loss and hit go to
// scratch; they are summed in row order.
type crossEntropy struct {
	n, k      int
	logits    vec
	labels    []int32
	smoothing float64
	dlogits   vec    // empty in evaluation
	scalars   []byte // nil in evaluation
	losses    []float64
	hits      []float64
}

func lossScratch(b *workloads.Bound) layout {
	var l layout
	if len(b.In[0].Shape) > 0 {
		l.f64(2 * b.In[0].Shape[0])
	}
	return l
}

func (l *crossEntropy) operands(c *compiler) {
	if !c.rank(c.in(0), 2) {
		return
	}
	l.n, l.k = c.in(0).Shape[0], c.in(0).Shape[1]
	l.logits, l.labels = c.real(c.in(0)), c.i32(c.in(1))
	c.elems(c.in(1), l.n)
	var lay layout
	p := lay.f64(2 * l.n)
	if scratch := c.scratch(lay); c.err == nil {
		both := p.f64(scratch)
		l.losses, l.hits = both[:l.n], both[l.n:]
	}
}

func buildLoss(c *compiler) func() {
	l := &crossEntropy{smoothing: float64(c.b.Attr.Smoothing)}
	l.operands(c)
	l.scalars = c.scalars(c.in(2))
	stepIn, step := c.f32(c.in(3)), c.f32(c.out(1))
	l.dlogits = c.real(c.out(0))
	c.shape(c.out(0), c.in(0).Shape...)
	c.elems(c.in(3), workloads.StepWords)
	c.elems(c.out(1), workloads.StepWords)
	c.inPlace(c.in(3), c.out(1))
	if c.err != nil {
		return nil
	}
	rows := c.lines(l.n, 8*l.k, l.row)
	return func() {
		rows()
		loss, hits := l.sum()
		step[workloads.StepLoss] = stepIn[workloads.StepLoss] + loss
		step[workloads.StepHits] = stepIn[workloads.StepHits] + hits
	}
}

func buildLossEval(c *compiler) func() {
	l := &crossEntropy{}
	l.operands(c)
	step := c.f32(c.out(0))
	slot := c.b.Attr.Slot
	if c.elems(c.out(0), workloads.StepWords); slot < 0 || 2*slot+1 >= workloads.StepWords {
		c.reject("slot %d", slot)
	}
	if c.err != nil {
		return nil
	}
	rows := c.lines(l.n, 8*l.k, l.row)
	return func() {
		rows()
		step[2*slot], step[2*slot+1] = l.sum()
	}
}

// sum returns the mean loss and the hits of all rows.
func (l *crossEntropy) sum() (loss, hits float32) {
	var sum, count float64
	for i, v := range l.losses {
		sum += v
		count += l.hits[i]
	}
	return float32(sum / float64(l.n)), float32(count)
}

// row computes one row. A label that is no class makes the row's loss and
// gradient NaN, so that the step fails where one looks, and touches nothing
// else.
func (l *crossEntropy) row(i int) {
	label := int(l.labels[i])
	if label < 0 || label >= l.k {
		l.losses[i], l.hits[i] = math.NaN(), 0
		l.gradient(i, 0, math.NaN(), 0, math.NaN())
		return
	}
	top := l.maximum(i)
	var buf block
	var sum, total float64 // of exp(z - top) and of z - top
	for lo := 0; lo < l.k; lo += blockLen {
		for _, z := range l.block(i, lo, &buf) {
			d := float64(z) - top
			sum += math.Exp(d)
			total += d
		}
	}
	at := i*l.k + label
	mine := float64(l.logits.read(at, at+1, &buf)[0]) - top
	lse := math.Log(sum)
	smooth := l.smoothing
	l.losses[i] = lse - mine
	if smooth != 0 {
		l.losses[i] = float64((1-smooth)*(lse-mine)) + float64(smooth*(lse-total/float64(l.k)))
	}
	l.hits[i] = l.hit(i, label)
	l.gradient(i, label, top, smooth, 1/sum)
}

// block returns the row's elements from lo on, at most blockLen.
func (l *crossEntropy) block(i, lo int, buf *block) []float32 {
	return l.logits.read(i*l.k+lo, i*l.k+min(lo+blockLen, l.k), buf)
}

func (l *crossEntropy) maximum(i int) float64 {
	var buf block
	top := math.Inf(-1)
	for lo := 0; lo < l.k; lo += blockLen {
		for _, z := range l.block(i, lo, &buf) {
			if v := float64(z); v > top {
				top = v
			}
		}
	}
	return top
}

// hit is 1 if the label's logit is the first maximum. A NaN in the row makes it
// a miss: nothing is larger than NaN.
func (l *crossEntropy) hit(i, label int) float64 {
	var buf block
	at := i*l.k + label
	mine := l.logits.read(at, at+1, &buf)[0]
	for lo := 0; lo < l.k; lo += blockLen {
		for j, z := range l.block(i, lo, &buf) {
			if !(z < mine) && (lo+j < label || !(z == mine)) {
				return 0
			}
		}
	}
	return 1
}

// gradient writes (p - target) * scale/n with p = exp(z - top) * inverse.
func (l *crossEntropy) gradient(i, label int, top, smooth, inverse float64) {
	if l.scalars == nil {
		return
	}
	factor := float64(workloads.DecodeScalars(l.scalars).Scale) / float64(l.n)
	off := smooth / float64(l.k)
	var bz, bd block
	for lo := 0; lo < l.k; lo += blockLen {
		z := l.block(i, lo, &bz)
		d := l.dlogits.place(i*l.k+lo, i*l.k+lo+len(z), &bd)
		for j, v := range z {
			target := off
			if lo+j == label {
				target += 1 - smooth
			}
			d[j] = float32((float64(math.Exp(float64(v)-top)*inverse) - target) * factor)
		}
		l.dlogits.commit(i*l.k+lo, d)
	}
}
