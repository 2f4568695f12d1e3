package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

// stemNode is a forward convolution, or a filter gradient, at the beginning of
// an arena.
func stemNode(filter bool, d workloads.DType, n, h, w, c, k, r, stride, pad int) *workloads.Bound {
	oh, ow := (h+2*pad-r)/stride+1, (w+2*pad-r)/stride+1
	p := &builder{}
	x, f, y := p.place("x", d, n, h, w, c), p.place("w", d, k, r, r, c), p.place("y", d, n, oh, ow, k)
	a := workloads.Attr{R: r, S: r, Stride: stride, Pad: pad}
	b := bound(workloads.OpConv, a, []workloads.Operand{x, f}, []workloads.Operand{y})
	if filter {
		b = bound(workloads.OpConvBwdFilter, a, []workloads.Operand{x, y}, []workloads.Operand{f})
	}
	b.Scratch = workloads.Region{Off: p.end, Bytes: 1 << 40}
	b.Writes = append(b.Writes, b.Scratch)
	return b
}

// TestRearranged: a convolution over blocks, built by their definition, is the
// convolution. All values are small integers, so sums are exact.
func TestRearranged(t *testing.T) {
	for _, c := range []struct {
		n, h, w, k, r, stride, pad int
		blocks                     workloads.Shape // of images
		rb                         int
	}{
		{2, 32, 32, 4, 7, 2, 3, workloads.Shape{2, 19, 19, 16}, 4},
		{1, 9, 12, 3, 7, 2, 3, workloads.Shape{1, 8, 9, 16}, 4},
		{2, 8, 8, 5, 3, 1, 1, workloads.Shape{2, 10, 10, 8}, 3},
		{1, 8, 10, 2, 5, 2, 2, workloads.Shape{1, 6, 7, 16}, 3},
		{1, 6, 6, 2, 2, 2, 0, workloads.Shape{1, 3, 3, 16}, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			b := stemNode(false, workloads.F16, c.n, c.h, c.w, 3, c.k, c.r, c.stride, c.pad)
			re := Rearrange(b)
			if re == nil {
				t.Fatal("not rearranged")
			}
			image, weights, y := re.Bound.In[0], re.Bound.In[1], re.Bound.Out[0]
			if image.Shape.Elems() != c.blocks.Elems() || image.Shape[1] != c.blocks[1] || image.Shape[3] != c.blocks[3] || weights.Shape[1] != c.rb {
				t.Fatalf("images %v and weights %v, want %v and %d rows", image.Shape, weights.Shape, c.blocks, c.rb)
			}
			if a := re.Bound.Attr; a.R != c.rb || a.S != c.rb || a.Stride != 1 || a.Pad != 0 || b.Attr.R != c.r {
				t.Errorf("attributes %+v, the node's %+v", a, b.Attr)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			x, w := make([]int, c.n*c.h*c.w*3), make([]int, c.k*c.r*c.r*3)
			for _, v := range [][]int{x, w} {
				for i := range v {
					v[i] = rng.IntN(19) - 9
				}
			}
			// One axis: the block and place in it of pixel p, and of tap r, both
			// counted from the first block, which holds pixel -pad.
			s := c.stride
			first := (c.pad + s - 1) / s * s // pixels before pixel 0
			at := func(p, q, ch int) (row, col, channel int) {
				p, q = p+first, q+first
				return p / s, q / s, (p%s*s+q%s)*3 + ch
			}
			xb, wb := make([]int, image.Shape.Elems()), make([]int, weights.Shape.Elems())
			place := func(to []int, shape workloads.Shape, n, p, q, ch, v int) {
				row, col, channel := at(p, q, ch)
				if row < shape[1] && col < shape[2] {
					to[((n*shape[1]+row)*shape[2]+col)*shape[3]+channel] = v
				}
			}
			for i := range x {
				place(xb, image.Shape, i/3/c.w/c.h, i/3/c.w%c.h, i/3%c.w, i%3, x[i])
			}
			for i := range w {
				place(wb, weights.Shape, i/3/c.r/c.r, i/3/c.r%c.r-c.pad, i/3%c.r-c.pad, i%3, w[i])
			}
			plain := convolve(x, w, b.In[0].Shape, b.In[1].Shape, b.Out[0].Shape, c.stride, c.pad)
			blocks := convolve(xb, wb, image.Shape, weights.Shape, y.Shape, 1, 0)
			for i := range plain {
				if plain[i] != blocks[i] {
					t.Fatalf("element %d is %d, want %d", i, blocks[i], plain[i])
				}
			}
		})
	}
}

func convolve(x, w []int, xs, ws, ys workloads.Shape, stride, pad int) []int {
	y := make([]int, ys.Elems())
	for i := range y {
		k, q, p, n := i%ys[3], i/ys[3]%ys[2], i/ys[3]/ys[2]%ys[1], i/ys[3]/ys[2]/ys[1]
		for a := range ws[1] {
			for b := range ws[2] {
				row, col := p*stride-pad+a, q*stride-pad+b
				if row < 0 || row >= xs[1] || col < 0 || col >= xs[2] {
					continue
				}
				for c := range ws[3] {
					y[i] += x[((n*xs[1]+row)*xs[2]+col)*xs[3]+c] * w[((k*ws[1]+a)*ws[2]+b)*ws[3]+c]
				}
			}
		}
	}
	return y
}

// The launches touch what the node has and their own scratch, which lies in
// front of the library's.
func TestRearrangedLaunches(t *testing.T) {
	for _, filter := range []bool{false, true} {
		b := stemNode(filter, workloads.F16, 64, 224, 224, 3, 64, 7, 2, 3)
		re := Rearrange(b)
		if want := int64(64*115*115*16*2 + 64*4*4*16*2); re.Scratch() != want {
			t.Errorf("%d bytes of scratch, want %d", re.Scratch(), want)
		}
		own := workloads.Region{Off: b.Scratch.Off, Bytes: re.Scratch()}
		moved := map[workloads.Region]bool{}
		for _, l := range append(re.Before, re.After...) {
			checkLayout(t, &l)
			for _, p := range l.Params {
				if p.Kind != Pointer {
					continue
				}
				moved[p.Region] = true
				if !inside(p.Region, append([]workloads.Region{own}, b.Reads...)) && !(p.Writes && p.Region == b.Out[0].Region) {
					t.Errorf("%s touches %v", l.Kernel, p.Region)
				}
				if p.Writes && inside(p.Region, b.Reads) {
					t.Errorf("%s writes what the node reads", l.Kernel)
				}
			}
		}
		// Operands of the library's node that the node has not are made before
		// it or used after it.
		for i, o := range append(re.Bound.In, re.Bound.Out...) {
			if inside(o.Region, []workloads.Region{own}) && !moved[o.Region] {
				t.Errorf("operand %d is nobody's", i)
			}
		}
		if len(re.Before) != 1 || len(re.After) != map[bool]int{false: 0, true: 1}[filter] {
			t.Errorf("%d launches before, %d after", len(re.Before), len(re.After))
		}
	}
}

// Of a model's nodes the stem's alone are rearranged.
func TestRearrangesTheStemAlone(t *testing.T) {
	for model, want := range map[string]int{"resnet50": 6, "resnet18-cifar": 6} { // two halves: forward, backward, inference
		for _, p := range []workloads.Precision{workloads.AMP, workloads.FP32} {
			w, err := workloads.New(workloads.Spec{Model: model, Batch: 2, Precision: p}, workloads.Target{Lowering: workloads.Fused})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for g := range workloads.NumSubGraphs {
				for v := range workloads.NumVariants {
					if !w.Slot(g, v).Captured() || v != workloads.FinalFull && v != workloads.BeginFull && v != workloads.ValFull {
						continue
					}
					for _, b := range w.Bounds(g, v, workloads.ControlDevice) {
						if Rearrange(b) == nil {
							continue
						}
						if n++; b.In[0].Shape[3] != 3 {
							t.Errorf("%s is rearranged", b.Name)
						}
					}
				}
			}
			if p == workloads.FP32 {
				want = 0
			}
			if n != want {
				t.Errorf("%s %s: %d nodes, want %d", model, p, n, want)
			}
		}
	}
	for name, b := range map[string]*workloads.Bound{
		"floats":       stemNode(false, workloads.F32, 1, 8, 8, 3, 4, 3, 1, 1),
		"channels":     stemNode(false, workloads.F16, 1, 8, 8, 4, 4, 3, 1, 1),
		"stride":       stemNode(false, workloads.F16, 1, 9, 9, 3, 4, 3, 3, 1),
		"odd width":    stemNode(true, workloads.F16, 1, 8, 9, 3, 4, 3, 2, 1),
		"much padding": stemNode(false, workloads.F16, 1, 8, 8, 3, 4, 3, 1, 3),
	} {
		if Rearrange(b) != nil {
			t.Errorf("%s: rearranged", name)
		}
	}
	var none *Rearranged
	if none.Scratch() != 0 {
		t.Error("a node as it is takes scratch")
	}
}
