package kernels

import "github.com/tech-renaissance/trbench/workloads"

const poolThreads = 256

// pointwise plans an elementwise operator on n inputs of one type.
func (p *planner) pointwise(name string, n int) {
	if !p.arity(n, 1) {
		return
	}
	operands := []*workloads.Operand{p.outs(0)}
	params := []Param{}
	for i := range n {
		operands = append(operands, p.in(i))
		params = append(params, read(p.in(i).Region))
	}
	suffix := p.real(operands...)
	elems := p.in(0).Shape.Elems()
	p.elems(elems, operands...)
	wide := int(16 / p.outs(0).DType.Bytes())
	v := 1
	if p.aligned(16, operands...) {
		v = wide
	}
	params = append(params, write(p.outs(0).Region), i64(int64(elems)))
	p.add(rangeLaunch(name+"_"+suffix+"x"+string(rune('0'+v)), elems, v, 4, params...))
}

// window checks a max-pool's tensors: x is the large image, y the small one.
func (p *planner) window(x, y, index *workloads.Operand) (params []Param, ok bool) {
	if !p.rank(x, 4) || !p.rank(y, 4) {
		return nil, false
	}
	a := &p.b.Attr
	h, w, c := x.Shape[1], x.Shape[2], x.Shape[3]
	// An index must fit a byte, and a window that lies in the padding as a whole
	// would have no maximum.
	if a.R < 1 || a.R > 16 || a.Stride < 1 || a.Pad < 0 || 2*a.Pad > a.R || h+2*a.Pad < a.R || w+2*a.Pad < a.R {
		p.reject("window %d, stride %d, pad %d on %v", a.R, a.Stride, a.Pad, x.Shape)
		return nil, false
	}
	oh, ow := (h+2*a.Pad-a.R)/a.Stride+1, (w+2*a.Pad-a.R)/a.Stride+1
	p.shape(y, x.Shape[0], oh, ow, c)
	p.shape(index, y.Shape...)
	p.typed(workloads.U8, index)
	for _, v := range []int{h, w, c, oh, ow, a.R, a.Stride, a.Pad} {
		params = append(params, i32(v))
	}
	return params, p.err == nil
}

// patches plans blocks of pool.cu over the h by w pixels (or cells of them) of
// images o.
func (p *planner) patches(name string, o *workloads.Operand, h, w int, operands []*workloads.Operand, params ...Param) {
	v, suffix := p.vector(o, operands)
	n, c := o.Shape[0], o.Shape[3]
	txLog := 0
	for txLog < 3 && v<<txLog < c {
		txLog++
	}
	blocks := n * ceilDiv(h, poolThreads>>(txLog+3)) * ceilDiv(w, 8) * ceilDiv(c, v<<txLog)
	p.add(grid(name+suffix, poolThreads, [3]int{blocks, 1, 1}, append(params, i32(txLog))...))
}

// vector picks the width of accesses to channels.
func (p *planner) vector(o *workloads.Operand, operands []*workloads.Operand) (v int, suffix string) {
	suffix = p.real(o)
	v = int(16 / o.DType.Bytes())
	if o.Shape[len(o.Shape)-1]%v != 0 || !p.aligned(16, operands...) {
		v = 1
	}
	return v, suffix + "x" + string(rune('0'+v))
}

func (p *planner) maxPool() {
	if !p.arity(1, 2) {
		return
	}
	x, y, index := p.in(0), p.outs(0), p.outs(1)
	geometry, ok := p.window(x, y, index)
	if p.real(x, y); !ok || p.err != nil {
		return
	}
	params := append([]Param{read(x.Region), write(y.Region), write(index.Region)}, geometry...)
	operands, name := []*workloads.Operand{x, y, index}, "max_pool_"
	if v, _ := p.vector(y, operands); v > 1 && p.b.Attr.R == 3 {
		name += "3x3_"
	}
	p.patches(name, y, y.Shape[1], y.Shape[2], operands, params...)
}

func (p *planner) maxPoolBwd() {
	if !p.arity(2, 1) {
		return
	}
	dy, index, dx := p.in(0), p.in(1), p.outs(0)
	geometry, ok := p.window(dx, dy, index)
	if p.real(dx, dy); !ok || p.err != nil {
		return
	}
	params := append([]Param{read(dy.Region), read(index.Region), write(dx.Region)}, geometry...)
	operands, name := []*workloads.Operand{dx, dy, index}, "max_pool_bwd_"
	height, width := dx.Shape[1], dx.Shape[2]
	if a := p.b.Attr; a.R == 3 && a.Stride == 2 && a.Pad == 1 {
		if v, _ := p.vector(dx, operands); v > 1 {
			// A thread owns two by two pixels.
			name, height, width = name+"3x3_", ceilDiv(height, 2), ceilDiv(width, 2)
		}
	}
	p.patches(name, dx, height, width, operands, params...)
}

// average checks an average pool: x is the images, y the vectors.
func (p *planner) average(x, y *workloads.Operand) (n, pixels, c int, ok bool) {
	if !p.rank(x, 4) || !p.rank(y, 2) {
		return 0, 0, 0, false
	}
	p.real(x, y)
	p.shape(y, x.Shape[0], x.Shape[3])
	return x.Shape[0], x.Shape[1] * x.Shape[2], x.Shape[3], p.err == nil
}

func (p *planner) avgPool() {
	if !p.arity(1, 1) {
		return
	}
	x, y := p.in(0), p.outs(0)
	n, pixels, c, ok := p.average(x, y)
	if !ok {
		return
	}
	v, suffix := p.vector(x, []*workloads.Operand{x, y})
	if v == 8 && n*c/v < 256*132 {
		v, suffix = 4, "f16x4"
	}
	// Small blocks spread the few threads over the chip.
	const threads = 64
	p.add(grid("avg_pool_"+suffix, threads, [3]int{ceilDiv(n*c/v, threads), 1, 1}, read(x.Region), write(y.Region), i32(n), i32(pixels), i32(c)))
}

func (p *planner) avgPoolBwd() {
	if !p.arity(1, 1) {
		return
	}
	dy, dx := p.in(0), p.outs(0)
	n, pixels, c, ok := p.average(dx, dy)
	if !ok {
		return
	}
	v, suffix := p.vector(dx, []*workloads.Operand{dx, dy})
	p.add(grid("avg_pool_bwd_"+suffix, poolThreads, [3]int{ceilDiv(8*(n*c/v), poolThreads), 1, 1}, read(dy.Region), write(dx.Region), i32(n), i32(pixels), i32(c)))
}

// crossEntropy checks what the two losses share and returns the rows' scratch.
func (p *planner) crossEntropy() (suffix string, n, k, threads int, rows workloads.Region) {
	logits, labels := p.in(0), p.in(1)
	if !p.rank(logits, 2) {
		return
	}
	n, k = logits.Shape[0], logits.Shape[1]
	suffix = p.real(logits)
	p.typed(workloads.I32, labels)
	p.elems(n, labels)
	threads = 32
	for threads < 256 && threads*2 <= k {
		threads *= 2
	}
	return suffix, n, k, threads, p.take(int64(n) * 16)
}

func (p *planner) loss() {
	if !p.arity(4, 2) {
		return
	}
	suffix, n, k, threads, rows := p.crossEntropy()
	logits, scalars, step, dlogits := p.in(0), p.in(2), p.in(3), p.outs(0)
	p.scalars(scalars)
	p.typed(workloads.F32, step)
	p.elems(workloads.StepWords, step)
	p.inPlace(step, p.outs(1))
	p.real(logits, dlogits)
	if p.shape(dlogits, logits.Shape...); p.err != nil {
		return
	}
	p.add(grid("loss_"+suffix, threads, [3]int{n, 1, 1}, read(logits.Region), read(p.in(1).Region), read(scalars.Region), write(step.Region),
		write(dlogits.Region), write(rows), counter(0), i32(n), i32(k), f32(p.b.Attr.Smoothing)))
}

func (p *planner) lossEval() {
	if !p.arity(2, 1) {
		return
	}
	suffix, n, k, threads, rows := p.crossEntropy()
	step, slot := p.outs(0), p.b.Attr.Slot
	p.typed(workloads.F32, step)
	p.elems(workloads.StepWords, step)
	if slot < 0 || 2*slot+1 >= workloads.StepWords {
		p.reject("slot %d", slot)
	}
	if p.err != nil {
		return
	}
	p.add(grid("loss_eval_"+suffix, threads, [3]int{n, 1, 1}, read(p.in(0).Region), read(p.in(1).Region), write(step.Region), write(rows),
		counter(0), i32(n), i32(k), i32(slot)))
}
