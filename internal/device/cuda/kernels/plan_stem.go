package kernels

import (
	"slices"

	"github.com/tech-renaissance/trbench/workloads"
)

const stemThreads = 256

// Rearranged is a convolution over images of three channels as one of stride 1
// over blocks of pixels, which a library's tensor-core kernels do several times
// faster: Bound is what the library computes, between the launches.
type Rearranged struct {
	Bound         *workloads.Bound
	Before, After []Launch
	scratch       int64
}

// Scratch is what the rearranged operands take at the front of the node's
// scratch, in bytes; the library's workspace comes behind it. nil takes none.
func (r *Rearranged) Scratch() int64 {
	if r == nil {
		return 0
	}
	return r.scratch
}

// blocked is the geometry of such a convolution: an image of blocks of stride by
// stride pixels, the first block at pixel lo*stride, and c channels a block.
type blocked struct {
	n, h, w, k, r, stride, pad int
	lo, hb, wb, rb, c          int
}

// Rearrange returns a node's rearranged form; nil if it is no convolution or
// filter gradient over three channels of halves, or has another shape than the
// kernels take. Scratch is where b says; offsets need not be known yet.
func Rearrange(b *workloads.Bound) *Rearranged {
	filter := b.Op == workloads.OpConvBwdFilter
	if !filter && b.Op != workloads.OpConv || len(b.In) != 2 || len(b.Out) != 1 {
		return nil
	}
	x, w, y := &b.In[0], &b.In[1], &b.Out[0]
	if filter {
		w, y = y, w
	}
	for _, o := range []*workloads.Operand{x, w, y} {
		if o.DType != workloads.F16 || len(o.Shape) != 4 || o.Region.Off%4 != 0 || o.Shape.Elems() == 0 || o.Shape.Elems() > 1<<30 {
			return nil
		}
	}
	g, ok := blocks(b.Attr, x.Shape, w.Shape, y.Shape)
	if !ok {
		return nil
	}
	p := &planner{b: b}
	place := func(o *workloads.Operand, shape ...int) workloads.Operand {
		s := workloads.Shape(shape)
		return workloads.Operand{Tensor: workloads.NoTensor, Name: o.Name + " in blocks", DType: o.DType, Shape: s,
			Region: p.take(int64(s.Elems()) * o.DType.Bytes())}
	}
	image, weights := place(x, g.n, g.hb, g.wb, g.c), place(w, g.k, g.rb, g.rb, g.c)
	node := *b.Node
	node.Attr = workloads.Attr{R: g.rb, S: g.rb, Stride: 1}
	out := *b
	out.Node = &node
	r := &Rearranged{Bound: &out, scratch: p.scratch}
	if filter {
		out.In, out.Out = []workloads.Operand{image, *y}, []workloads.Operand{weights}
		r.Before = []Launch{g.image(x.Region, image.Region, null(), null(), 0)}
		r.After = []Launch{g.filter(weights.Region, w.Region)}
	} else {
		out.In, out.Out = []workloads.Operand{image, weights}, []workloads.Operand{*y}
		r.Before = []Launch{g.image(x.Region, image.Region, read(w.Region), write(weights.Region), weights.Shape.Elems())}
	}
	for _, l := range slices.Concat(r.Before, r.After) {
		if l.check() != nil {
			return nil
		}
	}
	return r
}

// blocks works out the geometry for images x, filters w and results y.
func blocks(a workloads.Attr, x, w, y workloads.Shape) (g blocked, ok bool) {
	g = blocked{n: x[0], h: x[1], w: x[2], k: w[0], r: a.R, stride: a.Stride, pad: a.Pad}
	if x[3] != 3 || a.R != a.S || a.R < 1 || a.Pad < 0 || a.Stride != 1 && a.Stride != 2 || g.w%g.stride != 0 || w[1] != a.R || w[2] != a.R {
		return g, false
	}
	// An output pixel o takes pixels o*stride-pad to o*stride-pad+r-1: blocks
	// o+lo to o+lo+rb-1.
	g.lo = -ceilDiv(a.Pad, g.stride)
	last := a.R - 1 - a.Pad
	if last < 0 {
		return g, false
	}
	g.rb = last/g.stride - g.lo + 1
	g.hb, g.wb = y[1]-1+g.rb, y[2]-1+g.rb
	g.c = ceilDiv(3*g.stride*g.stride, 8) * 8
	return g, true
}

func (g blocked) suffix() string { return map[int]string{1: "_s1", 2: "_s2"}[g.stride] }

// image rearranges an image and, unless elems is 0, weights of that many.
func (g blocked) image(x, to workloads.Region, w, weights Param, elems int) Launch {
	n := ceilDiv(g.n*g.hb*g.wb, stemThreads)
	return grid("stem_blocks"+g.suffix(), stemThreads, [3]int{n + ceilDiv(elems, stemThreads), 1, 1}, read(x), write(to), w, weights,
		i32(g.n), i32(g.h), i32(g.w), i32(g.hb), i32(g.wb), i32(g.lo), i32(n), i32(g.k), i32(g.r), i32(g.rb), i32(g.pad))
}

// filter brings a filter gradient back to the filter's own shape.
func (g blocked) filter(from, dw workloads.Region) Launch {
	return grid("stem_filter"+g.suffix(), stemThreads, [3]int{ceilDiv(g.k*g.r*g.r*3, stemThreads), 1, 1}, read(from), write(dw),
		i32(g.k), i32(g.r), i32(g.rb), i32(g.pad), i32(g.lo))
}
