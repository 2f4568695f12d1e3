package dnn

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/workloads"
)

// Geometry is a convolution: images N,H,W,C, filters K,R,S,C, results
// N,OH,OW,K, all dense and channels last.
type Geometry struct {
	N, H, W, C  int
	K, R, S     int
	Stride, Pad int
	OH, OW      int
	DType       workloads.DType // of all three tensors
}

// Flops counts multiplications and additions of one pass.
func (g Geometry) Flops() float64 {
	return 2 * float64(g.N) * float64(g.OH) * float64(g.OW) * float64(g.K) * float64(g.R) * float64(g.S) * float64(g.C)
}

// Bytes counts images, filters and results once.
func (g Geometry) Bytes() int64 {
	return g.DType.Bytes() * (int64(g.N)*int64(g.H)*int64(g.W)*int64(g.C) +
		int64(g.K)*int64(g.R)*int64(g.S)*int64(g.C) + int64(g.N)*int64(g.OH)*int64(g.OW)*int64(g.K))
}

func (g Geometry) String() string {
	return fmt.Sprintf("%dx%dx%dx%d k%d %dx%d/%d p%d %s", g.N, g.H, g.W, g.C, g.K, g.R, g.S, g.Stride, g.Pad, g.DType)
}

func (g Geometry) dataType() cudnn.DataType {
	if g.DType == workloads.F16 {
		return cudnn.Half
	}
	return cudnn.Float
}

// maxAlign is the alignment that plans are made for where the operands have
// it; tensors have [workloads.Alignment].
const maxAlign = 16

// alignment is the largest power of two up to most that divides the offset of
// every operand.
func alignment(most int64, ops ...[]workloads.Operand) int64 {
	a := most
	for _, list := range ops {
		for _, o := range list {
			for o.Region.Off%a != 0 {
				a /= 2
			}
		}
	}
	return a
}

// node is what plans are made of: a bound node as this package sees it, or a
// fused pattern.
type node struct {
	b     *workloads.Bound // nil for a pattern
	what  string           // operator and name, for messages
	geom  Geometry         // a fully connected layer is a convolution of one pixel
	mul   *cublas.Problem  // fully connected layers
	align int64
	args  int                                 // operands, inputs and outputs
	skip  []int                               // outputs that plans leave out
	make  func(b *Builder, g *graph, n *node) // adds the operations to a graph
}

// Key identifies what a choice depends on besides the library: nodes of one
// key can share a choice and a plan. It fails on a node that is not this
// package's.
func Key(b *workloads.Bound) (string, error) {
	n, err := look(b)
	if err != nil {
		return "", err
	}
	return n.key(), nil
}

func (n *node) key() string {
	a := n.align
	if n.mul != nil {
		a = int64(n.mul.Align)
	}
	return fmt.Sprintf("%s %s a%d", n.b.Op, n.geom, a)
}

// look reads a node's shapes. Operators that the package does not do give
// ErrUnsupported; operands that do not fit each other another error.
func look(b *workloads.Bound) (*node, error) {
	n := &node{
		b: b, what: fmt.Sprintf("%s %s", b.Op, b.Name), align: alignment(maxAlign, b.In, b.Out),
		args: len(b.In) + len(b.Out), make: plain,
	}
	if b.Op == workloads.OpFCBwdFilter {
		n.skip = []int{1}
	}
	fail := func(format string, args ...any) (*node, error) {
		return nil, fmt.Errorf("%s %s: %s", b.Op, b.Name, fmt.Sprintf(format, args...))
	}
	var x, w, y *workloads.Operand
	need := [2]int{2, 1}
	switch b.Op {
	case workloads.OpFC:
		need = [2]int{3, 1}
	case workloads.OpFCBwdFilter:
		need = [2]int{2, 2}
	}
	switch b.Op {
	case workloads.OpConv, workloads.OpConvBwdData, workloads.OpConvBwdFilter,
		workloads.OpFC, workloads.OpFCBwdData, workloads.OpFCBwdFilter:
	default:
		return nil, fmt.Errorf("%s %s: %w", b.Op, b.Name, ErrUnsupported)
	}
	if len(b.In) != need[0] || len(b.Out) != need[1] {
		return fail("%d inputs and %d outputs, want %d and %d", len(b.In), len(b.Out), need[0], need[1])
	}
	switch b.Op {
	case workloads.OpConv, workloads.OpFC:
		x, w, y = &b.In[0], &b.In[1], &b.Out[0]
	case workloads.OpConvBwdData, workloads.OpFCBwdData:
		y, w, x = &b.In[0], &b.In[1], &b.Out[0]
	default:
		x, y, w = &b.In[0], &b.In[1], &b.Out[0]
	}
	if x.DType != w.DType || x.DType != y.DType || x.DType != workloads.F16 && x.DType != workloads.F32 {
		return fail("element types %s, %s, %s", x.DType, w.DType, y.DType)
	}
	fc := b.Op == workloads.OpFC || b.Op == workloads.OpFCBwdData || b.Op == workloads.OpFCBwdFilter
	dims := 4
	if fc {
		dims = 2
	}
	for _, o := range []*workloads.Operand{x, w, y} {
		if len(o.Shape) != dims || o.Shape.Elems() == 0 {
			return fail("operand %s has shape %v, want %d dimensions", o.Name, o.Shape, dims)
		}
	}
	if fc {
		return n, n.fullyConnected(x, w, y)
	}
	return n, n.convolution(x, w, y)
}

func (n *node) convolution(x, w, y *workloads.Operand) error {
	b, a := n.b, &n.b.Attr
	g := Geometry{
		N: x.Shape[0], H: x.Shape[1], W: x.Shape[2], C: x.Shape[3], K: w.Shape[0], R: a.R, S: a.S,
		Stride: a.Stride, Pad: a.Pad, DType: x.DType,
	}
	if g.Stride < 1 || g.Pad < 0 || g.H+2*g.Pad < g.R || g.W+2*g.Pad < g.S {
		return fmt.Errorf("%s %s: window %dx%d, stride %d, pad %d on %v", b.Op, b.Name, g.R, g.S, g.Stride, g.Pad, x.Shape)
	}
	g.OH, g.OW = (g.H+2*g.Pad-g.R)/g.Stride+1, (g.W+2*g.Pad-g.S)/g.Stride+1
	n.geom = g
	return n.same(w, workloads.Shape{g.K, g.R, g.S, g.C}, y, workloads.Shape{g.N, g.OH, g.OW, g.K})
}

func (n *node) fullyConnected(x, w, y *workloads.Operand) error {
	g := Geometry{
		N: x.Shape[0], H: 1, W: 1, C: x.Shape[1], K: w.Shape[0], R: 1, S: 1, Stride: 1, OH: 1, OW: 1, DType: x.DType,
	}
	n.geom = g
	if err := n.same(w, workloads.Shape{g.K, g.C}, y, workloads.Shape{g.N, g.K}); err != nil {
		return err
	}
	t := cublas.F32
	if g.DType == workloads.F16 {
		t = cublas.F16
	}
	p := &cublas.Problem{In: t, Out: t, Align: int(alignment(256, n.b.In, n.b.Out))}
	switch n.b.Op {
	case workloads.OpFC:
		p.Rows, p.Cols, p.Inner, p.TransB, p.Bias = g.N, g.K, g.C, true, true
		if o := n.b.In[2]; o.DType != workloads.F32 || o.Shape.Elems() != g.K {
			return fmt.Errorf("%s %s: bias %s is %s of %v", n.b.Op, n.b.Name, o.Name, o.DType, o.Shape)
		}
	case workloads.OpFCBwdData:
		p.Rows, p.Cols, p.Inner = g.N, g.C, g.K
	default:
		p.Rows, p.Cols, p.Inner, p.TransA = g.K, g.C, g.N, true
	}
	n.mul = p
	return nil
}

func (n *node) same(w *workloads.Operand, ws workloads.Shape, y *workloads.Operand, ys workloads.Shape) error {
	for _, c := range []struct {
		o    *workloads.Operand
		want workloads.Shape
	}{{w, ws}, {y, ys}} {
		ok := len(c.o.Shape) == len(c.want)
		for i := 0; ok && i < len(c.want); i++ {
			ok = c.o.Shape[i] == c.want[i]
		}
		if !ok {
			return fmt.Errorf("%s %s: operand %s has shape %v, want %v", n.b.Op, n.b.Name, c.o.Name, c.o.Shape, c.want)
		}
	}
	return nil
}
