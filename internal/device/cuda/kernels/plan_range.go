package kernels

import (
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// Shapes of ranges.cu.
const (
	rangeThreads = 256
	zeroUnits    = 2048 // 16-byte units a block clears
	maxSpans     = 96
	// pullBlocks read pinned memory over the bus: 32 of 256 threads ask for
	// 128 KiB at once, which covers 2 us of latency at 64 GB/s, and leave the
	// other multiprocessors to whatever runs beside.
	pullBlocks = 32
	larsChunk  = 8192
)

// rangeLaunch covers n elements with vectors of v, unroll of them a thread.
func rangeLaunch(kernel string, n, v, unroll int, params ...Param) Launch {
	return grid(kernel, rangeThreads, [3]int{max(1, ceilDiv(n/v, rangeThreads*unroll)), 1, 1}, params...)
}

// width is 4 if FP32 operands may be accessed four at a time, else 1, and the
// suffix of the kernel's name.
func (p *planner) width(operands ...*workloads.Operand) (v int, suffix string) {
	v = 1
	if p.aligned(16, operands...) {
		v = 4
	}
	return v, fmt.Sprintf("_x%d", v)
}

func (p *planner) copyBytes() {
	if !p.arity(1, 1) {
		return
	}
	src, dst := p.in(0), p.outs(0)
	if src.Region.Bytes != dst.Region.Bytes {
		p.fail(dst, "has %d bytes, the source %d", dst.Region.Bytes, src.Region.Bytes)
	}
	p.add(CopyBytes(dst.Region, src.Region))
}

// CopyBytes is the launch that copies a region of the arena or of pinned memory
// into one of the same size in the arena.
func CopyBytes(dst, src workloads.Region) Launch {
	wide := src.Off%16 == 0 && dst.Off%16 == 0
	units := int(dst.Bytes)
	if wide {
		units = ceilDiv(units, 16)
	}
	most := 16 * 132
	if src.Space == workloads.Pinned {
		most = pullBlocks
	}
	return grid("copy_bytes", rangeThreads, [3]int{max(1, min(ceilDiv(units, rangeThreads), most)), 1, 1},
		read(src), write(dst), i64(dst.Bytes), truth(wide))
}

func (p *planner) copyIn() {
	if !p.arity(1, 1) {
		return
	}
	src, dst := p.in(0), p.outs(0)
	if src.Region.Bytes != dst.Region.Bytes {
		p.fail(dst, "has %d bytes, the source %d", dst.Region.Bytes, src.Region.Bytes)
	}
	if src.Region.Space != workloads.Pinned || dst.Region.Space != workloads.Arena {
		p.reject("copies from %s to %s memory", src.Region.Space, dst.Region.Space)
	}
	p.add(Launch{Kind: KindCopyIn, Src: src.Region, Dst: dst.Region})
}

// Zero is the launch that clears a region, which begins at a multiple of 16
// bytes.
func Zero(r workloads.Region) Launch {
	return grid("zero_1", rangeThreads, [3]int{zeroBlocks(r), 1, 1}, write(r), i64(r.Bytes))
}

// zeroBlocks is how many blocks clear a region.
func zeroBlocks(r workloads.Region) int { return max(1, ceilDiv(int(r.Bytes/16), zeroUnits)) }

func (p *planner) zero() {
	if !p.arity(0, len(p.b.Out)) {
		return
	}
	var ranges []workloads.Region
	for i := range p.b.Out {
		if r := p.b.Out[i].Region; r.Bytes > 0 {
			ranges = append(ranges, r)
		}
		if !p.aligned(16, &p.b.Out[i]) {
			p.fail(&p.b.Out[i], "is not aligned to 16 bytes")
		}
	}
	blocks := zeroBlocks
	for len(ranges) > 0 && p.err == nil {
		if len(ranges) == 1 {
			p.add(Zero(ranges[0]))
			return
		}
		part := ranges[:min(len(ranges), 3)]
		ranges = ranges[len(part):]
		end0 := blocks(part[0])
		end1 := end0 + blocks(part[1])
		total, third, bytes := end1, null(), int64(0)
		if len(part) == 3 {
			total, third, bytes = end1+blocks(part[2]), write(part[2]), part[2].Bytes
		}
		p.add(grid("zero_3", rangeThreads, [3]int{total, 1, 1}, write(part[0]), write(part[1]), third,
			i64(part[0].Bytes), i64(part[1].Bytes), i64(bytes), i32(end0), i32(end1)))
	}
}

func (p *planner) cast() {
	if !p.arity(1, 1) {
		return
	}
	src, dst := p.in(0), p.outs(0)
	n := src.Shape.Elems()
	p.elems(n, dst)
	var name string
	switch {
	case src.DType == workloads.F16 && dst.DType == workloads.F32:
		name = "cast_f16_f32"
	case src.DType == workloads.F32 && dst.DType == workloads.F16:
		name = "cast_f32_f16"
	default:
		p.reject("from %s to %s", src.DType, dst.DType)
		return
	}
	v, suffix := p.width(src, dst)
	p.add(rangeLaunch(name+suffix, n, v, 4, read(src.Region), write(dst.Region), i64(int64(n))))
}

func (p *planner) chain() {
	if !p.arity(1, 1) {
		return
	}
	a, b := p.in(0), p.outs(0)
	p.typed(workloads.F32, a, b)
	n := a.Shape.Elems()
	p.elems(n, b)
	v, suffix := p.width(a, b)
	p.add(rangeLaunch("chain"+suffix, n, v, 1, read(a.Region), write(b.Region), i64(int64(n))))
}

func (p *planner) normalize() {
	if !p.arity(1, 1) {
		return
	}
	src, dst := p.in(0), p.outs(0)
	p.typed(workloads.U8, src)
	suffix := p.real(dst)
	n := src.Shape.Elems()
	p.elems(n, dst)
	a := &p.b.Attr
	params := []Param{read(src.Region), write(dst.Region), i64(int64(n)), truth(p.aligned(16, src, dst))}
	for _, v := range [2][3]float32{a.Mean, a.InvStd} {
		params = append(params, f32(v[0]), f32(v[1]), f32(v[2]))
	}
	p.add(rangeLaunch("normalize_"+suffix, n, 16, 1, params...))
}

func (p *planner) finiteCheck() {
	if !p.arity(1, 1) {
		return
	}
	g, scalars := p.in(0), p.outs(0)
	p.typed(workloads.F32, g)
	p.scalars(scalars)
	n := g.Shape.Elems()
	v, suffix := p.width(g)
	l := rangeLaunch("finite_check"+suffix, n, v, 8, read(g.Region), write(scalars.Region), counter(0), i64(int64(n)))
	l.Grid[0] = min(l.Grid[0], 8*132) // a block costs an atomic
	p.add(l)
}

func (p *planner) unscale() {
	if !p.arity(2, 1) {
		return
	}
	g, scalars := p.in(0), p.in(1)
	p.typed(workloads.F32, g)
	p.scalars(scalars)
	p.inPlace(g, p.outs(0))
	n := g.Shape.Elems()
	v, suffix := p.width(g)
	p.add(rangeLaunch("unscale"+suffix, n, v, 4, write(g.Region), read(scalars.Region), i64(int64(n))))
}

func (p *planner) control() {
	if !p.arity(2, 1) {
		return
	}
	table, scalars := p.in(0), p.in(1)
	p.typed(workloads.F32, table)
	p.scalars(scalars)
	p.inPlace(scalars, p.outs(0))
	r := p.b.Attr.Control
	if r.Rates < 1 || r.Rates > table.Shape.Elems() {
		p.fail(table, "has %d learning rates, the rule uses %d", table.Shape.Elems(), r.Rates)
	}
	p.add(grid("control", 1, [3]int{1, 1, 1}, read(table.Region), write(scalars.Region), truth(r.Dynamic), i32(int(r.GrowthInterval)), i32(int(r.StopAfter)), i32(r.Rates)))
}

func (p *planner) updateStats() {
	if !p.arity(2, 1) {
		return
	}
	stats, running, m := p.in(0), p.in(1), p.b.Attr.Momentum
	p.typed(workloads.F32, stats, running)
	p.inPlace(running, p.outs(0))
	n := stats.Shape.Elems()
	p.elems(n, running)
	v, suffix := p.width(stats, running)
	p.add(rangeLaunch("update_stats"+suffix, n, v, 4, read(stats.Region), write(running.Region), f32(1-m), f32(m), i64(int64(n))))
}

func (p *planner) ema() {
	if !p.arity(3, 1) {
		return
	}
	w, ema, scalars, d := p.in(0), p.in(1), p.in(2), p.b.Attr.Decay
	p.typed(workloads.F32, w, ema)
	p.scalars(scalars)
	p.inPlace(ema, p.outs(0))
	n := w.Shape.Elems()
	p.elems(n, ema)
	v, suffix := p.width(w, ema)
	p.add(rangeLaunch("ema"+suffix, n, v, 4, read(w.Region), write(ema.Region), read(scalars.Region), f32(d), f32(1-d), i64(int64(n))))
}

// update checks the operands of SGD and LARS.
func (p *planner) update() (w, g, v, scalars *workloads.Operand, ok bool) {
	if !p.arity(4, 2) {
		return nil, nil, nil, nil, false
	}
	w, g, v, scalars = p.in(0), p.in(1), p.in(2), p.in(3)
	p.typed(workloads.F32, w, g, v)
	p.scalars(scalars)
	p.elems(w.Shape.Elems(), g, v)
	p.inPlace(w, p.outs(0))
	p.inPlace(v, p.outs(1))
	return w, g, v, scalars, p.err == nil
}

func (p *planner) sgd() {
	w, g, v, scalars, ok := p.update()
	if !ok {
		return
	}
	a := &p.b.Attr
	n := w.Shape.Elems()
	width, suffix := p.width(w, g, v)
	p.add(rangeLaunch("sgd"+suffix, n, width, 2, write(w.Region), read(g.Region), write(v.Region), read(scalars.Region),
		f32(a.Decay), f32(a.Momentum), truth(a.Nesterov), i64(int64(n))))
}

func (p *planner) lars() {
	w, g, v, scalars, ok := p.update()
	if !ok {
		return
	}
	a := &p.b.Attr
	wide := p.aligned(16, w, g, v)
	for i, s := range a.Spans {
		if s.Off < 0 || s.Len < 0 || s.Off+s.Len > w.Shape.Elems() {
			p.fail(w, "span %d: %d elements at %d of %d", i, s.Len, s.Off, w.Shape.Elems())
			return
		}
		wide = wide && s.Off%4 == 0
	}
	suffix := "_x1"
	if wide {
		suffix = "_x4"
	}
	for rest := a.Spans; len(rest) > 0; {
		part := rest[:min(len(rest), maxSpans)]
		rest = rest[len(part):]
		var off, length [maxSpans]int32
		var first [maxSpans + 1]int32
		count := 0
		for i, s := range part {
			// An empty tensor still gets a block, so that no two begin at one.
			off[i], length[i], first[i] = int32(s.Off), int32(s.Len), int32(count)
			count += max(1, ceilDiv(s.Len, larsChunk))
		}
		first[len(part)] = int32(count)
		spans := words([]int32{int32(len(part))}, off[:], length[:], first[:])
		partial, ratios := p.take(int64(count)*16), p.take(int64(len(part))*4)
		p.add(grid("lars_norms"+suffix, rangeThreads, [3]int{count, 1, 1}, read(w.Region), read(g.Region), read(scalars.Region), write(partial),
			write(ratios), counter(0), f32(a.Decay), f32(a.Trust), spans))
		p.add(grid("lars_update"+suffix, rangeThreads, [3]int{count, 1, 1}, write(w.Region), read(g.Region), write(v.Region), read(scalars.Region),
			read(ratios), f32(a.Decay), f32(a.Momentum), truth(a.Nesterov), spans))
	}
}

func (p *planner) inject() {
	if !p.arity(1, 1) {
		return
	}
	scalars, g := p.in(0), p.outs(0)
	p.scalars(scalars)
	if g.Shape.Elems() == 0 {
		p.fail(g, "is empty")
	}
	p.add(grid("inject_"+p.real(g), 1, [3]int{1, 1, 1}, read(scalars.Region), write(g.Region)))
}

func (p *planner) accum() {
	if !p.arity(1, 1) {
		return
	}
	step, metrics, slots := p.in(0), p.outs(0), p.b.Attr.Slots
	p.typed(workloads.F32, step, metrics)
	if slots < 0 || 2*slots > step.Shape.Elems() {
		p.fail(step, "%d elements do not hold %d slots", step.Shape.Elems(), slots)
	}
	if slots*workloads.MetricWords > metrics.Shape.Elems() {
		p.fail(metrics, "%d elements do not hold %d slots", metrics.Shape.Elems(), slots)
	}
	p.add(grid("accum", 1, [3]int{1, 1, 1}, read(step.Region), write(metrics.Region), f32(p.b.Attr.Count), i32(slots)))
}
