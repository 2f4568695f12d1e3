package dnn

import (
	"errors"
	"fmt"
	"math"

	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
)

// graph is an operation graph under construction and all descriptors made for
// it. The first failure sticks; what is made after it is not used.
type graph struct {
	lib  *cudnn.Library
	live []cudnn.Descriptor
	ops  []cudnn.Descriptor
	desc cudnn.Descriptor // the finalised graph
	err  error

	uids []int64 // of the tensors in memory, in order of making
	from []int   // which operand (inputs, then outputs) each of them is
	next int64
}

// close releases all descriptors, the last made first.
func (g *graph) close() error { return g.closeTo(0) }

// closeTo releases the descriptors made after the first n.
func (g *graph) closeTo(n int) error {
	var errs []error
	for i := len(g.live) - 1; i >= n; i-- {
		errs = append(errs, g.lib.BackendDestroyDescriptor(g.live[i]))
	}
	g.live = g.live[:n]
	return errors.Join(errs...)
}

func (g *graph) create(t cudnn.DescriptorType) cudnn.Descriptor {
	if g.err != nil {
		return 0
	}
	d, err := g.lib.BackendCreateDescriptor(t)
	if err != nil {
		g.err = err
		return 0
	}
	g.live = append(g.live, d)
	return d
}

func (g *graph) finalize(d cudnn.Descriptor) cudnn.Descriptor {
	if g.err == nil {
		g.err = g.lib.BackendFinalize(d)
	}
	return d
}

func set[T cudnn.Element](g *graph, d cudnn.Descriptor, a cudnn.Attribute, t cudnn.AttributeType, v ...T) {
	if g.err == nil {
		g.err = cudnn.Set(g.lib, d, a, t, v...)
	}
}

// get reads a single value.
func get[T cudnn.Element](g *graph, d cudnn.Descriptor, a cudnn.Attribute, t cudnn.AttributeType) T {
	var v [1]T
	if g.err == nil {
		var n int
		n, g.err = cudnn.Get(g.lib, d, a, t, v[:])
		if g.err == nil && n != 1 {
			g.err = fmt.Errorf("cuDNN attribute %d has %d values, want 1", a, n)
		}
	}
	return v[0]
}

// tensor is how cuDNN sees an array: dimensions in its order (N,C,H,W or
// K,C,R,S), strides channels last.
type tensor struct {
	dtype   cudnn.DataType
	dims    [4]int
	align   int64
	virtual bool // lives inside the fused kernel only
	operand int  // of the node, inputs first; unused if virtual
}

func images(n, h, w, c int) [4]int { return [4]int{n, c, h, w} }

func (g *graph) tensor(t tensor) cudnn.Descriptor {
	g.next++
	n, c, h, w := int64(t.dims[0]), int64(t.dims[1]), int64(t.dims[2]), int64(t.dims[3])
	d := g.create(cudnn.TensorDescriptor)
	set(g, d, cudnn.TensorDataType, cudnn.TypeDataType, t.dtype)
	set(g, d, cudnn.TensorDimensions, cudnn.TypeInt64, n, c, h, w)
	set(g, d, cudnn.TensorStrides, cudnn.TypeInt64, h*w*c, 1, w*c, c)
	set(g, d, cudnn.TensorUniqueID, cudnn.TypeInt64, g.next)
	set(g, d, cudnn.TensorByteAlignment, cudnn.TypeInt64, t.align)
	if t.virtual {
		set(g, d, cudnn.TensorIsVirtual, cudnn.TypeBoolean, true)
	} else {
		g.uids = append(g.uids, g.next)
		g.from = append(g.from, t.operand)
	}
	return g.finalize(d)
}

// convolution makes the descriptor of a convolution's geometry.
func (g *graph) convolution(c Geometry) cudnn.Descriptor {
	pad, stride := int64(c.Pad), int64(c.Stride)
	d := g.create(cudnn.ConvolutionDescriptor)
	set(g, d, cudnn.ConvolutionCompType, cudnn.TypeDataType, cudnn.Float)
	set(g, d, cudnn.ConvolutionConvMode, cudnn.TypeConvMode, cudnn.CrossCorrelation)
	set(g, d, cudnn.ConvolutionSpatialDims, cudnn.TypeInt64, int64(2))
	set(g, d, cudnn.ConvolutionPrePaddings, cudnn.TypeInt64, pad, pad)
	set(g, d, cudnn.ConvolutionPostPaddings, cudnn.TypeInt64, pad, pad)
	set(g, d, cudnn.ConvolutionDilations, cudnn.TypeInt64, int64(1), 1)
	set(g, d, cudnn.ConvolutionFilterStrides, cudnn.TypeInt64, stride, stride)
	return g.finalize(d)
}

// convOp says under which names an operation takes its tensors.
type convOp struct {
	op                        cudnn.DescriptorType
	x, w, y, conv, alpha, bet cudnn.Attribute
}

var (
	convForward = convOp{
		cudnn.OperationConvolutionForward,
		cudnn.ConvolutionForwardX, cudnn.ConvolutionForwardW, cudnn.ConvolutionForwardY,
		cudnn.ConvolutionForwardConvDesc, cudnn.ConvolutionForwardAlpha, cudnn.ConvolutionForwardBeta,
	}
	convBwdData = convOp{
		cudnn.OperationConvolutionBackwardData,
		cudnn.ConvolutionBwdDataDX, cudnn.ConvolutionBwdDataW, cudnn.ConvolutionBwdDataDY,
		cudnn.ConvolutionBwdDataConvDesc, cudnn.ConvolutionBwdDataAlpha, cudnn.ConvolutionBwdDataBeta,
	}
	convBwdFilter = convOp{
		cudnn.OperationConvolutionBackwardFilter,
		cudnn.ConvolutionBwdFilterX, cudnn.ConvolutionBwdFilterDW, cudnn.ConvolutionBwdFilterDY,
		cudnn.ConvolutionBwdFilterConvDesc, cudnn.ConvolutionBwdFilterAlpha, cudnn.ConvolutionBwdFilterBeta,
	}
)

// operation adds a convolution to the graph. In which order the tensors are set
// has no meaning to cuDNN; it is the one in which NVIDIA's front end sets them,
// so that call logs can be compared.
func (g *graph) operation(o convOp, conv, x, w, y cudnn.Descriptor) {
	type role struct {
		a cudnn.Attribute
		d cudnn.Descriptor
	}
	order := []role{{o.x, x}, {o.w, w}, {o.y, y}}
	if o.op == cudnn.OperationConvolutionBackwardFilter {
		order = []role{{o.x, x}, {o.y, y}, {o.w, w}}
	}
	d := g.create(o.op)
	for _, r := range order {
		set(g, d, r.a, cudnn.TypeDescriptor, r.d)
	}
	set(g, d, o.conv, cudnn.TypeDescriptor, conv)
	set(g, d, o.alpha, cudnn.TypeFloat, float32(1))
	set(g, d, o.bet, cudnn.TypeFloat, float32(0))
	g.ops = append(g.ops, g.finalize(d))
}

// pointwise adds y = x op b in FP32; b is 0 for operations of one operand.
func (g *graph) pointwise(kind cudnn.PointwiseKind, x, b, y cudnn.Descriptor) {
	p := g.pointwiseKind(kind)
	d := g.create(cudnn.OperationPointwise)
	set(g, d, cudnn.OperationPointwisePWDesc, cudnn.TypeDescriptor, p)
	set(g, d, cudnn.OperationPointwiseXDesc, cudnn.TypeDescriptor, x)
	set(g, d, cudnn.OperationPointwiseYDesc, cudnn.TypeDescriptor, y)
	if b != 0 {
		set(g, d, cudnn.OperationPointwiseBDesc, cudnn.TypeDescriptor, b)
	}
	set(g, d, cudnn.OperationPointwiseAlpha1, cudnn.TypeFloat, float32(1))
	set(g, d, cudnn.OperationPointwiseAlpha2, cudnn.TypeFloat, float32(1))
	g.ops = append(g.ops, g.finalize(d))
}

func (g *graph) pointwiseKind(kind cudnn.PointwiseKind) cudnn.Descriptor {
	p := g.create(cudnn.PointwiseDescriptor)
	set(g, p, cudnn.PointwiseMode, cudnn.TypePointwiseMode, kind)
	set(g, p, cudnn.PointwiseMathPrec, cudnn.TypeDataType, cudnn.Float)
	if kind == cudnn.PointwiseReLUFwd || kind == cudnn.PointwiseReLUBwd {
		set(g, p, cudnn.PointwiseNanPropagation, cudnn.TypeNanProp, cudnn.PropagateNan)
		set(g, p, cudnn.PointwiseReLULowerClip, cudnn.TypeDouble, float64(0))
		set(g, p, cudnn.PointwiseReLUUpperClip, cudnn.TypeDouble, float64(math.MaxFloat32))
		set(g, p, cudnn.PointwiseReLULowerClipSlope, cudnn.TypeDouble, float64(0))
	}
	return g.finalize(p)
}

// finish closes the graph.
func (g *graph) finish(h cudnn.Handle) {
	g.desc = g.create(cudnn.OperationGraphDescriptor)
	set(g, g.desc, cudnn.OperationGraphOps, cudnn.TypeDescriptor, g.ops...)
	set(g, g.desc, cudnn.OperationGraphHandle, cudnn.TypeHandle, h)
	g.finalize(g.desc)
}

// graphOf builds a node's operation graph. The caller closes it, also after an
// error.
func (b *Builder) graphOf(n *node) *graph {
	g := &graph{lib: b.dnn}
	n.make(b, g, n)
	g.finish(b.handle)
	return g
}

// The tensors of a convolution, by operand number.
func (g *graph) x(n *node, operand int) cudnn.Descriptor {
	c := n.geom
	return g.tensor(tensor{dtype: c.dataType(), dims: images(c.N, c.H, c.W, c.C), align: n.align, operand: operand})
}

func (g *graph) y(n *node, operand int) cudnn.Descriptor {
	c := n.geom
	return g.tensor(tensor{dtype: c.dataType(), dims: images(c.N, c.OH, c.OW, c.K), align: n.align, operand: operand})
}

func (g *graph) w(n *node, operand int) cudnn.Descriptor {
	c := n.geom
	return g.tensor(tensor{dtype: c.dataType(), dims: images(c.K, c.R, c.S, c.C), align: n.align, operand: operand})
}

// vector is one value a channel.
func (g *graph) vector(n *node, t cudnn.DataType, c, operand int) cudnn.Descriptor {
	return g.tensor(tensor{dtype: t, dims: images(1, 1, 1, c), align: n.align, operand: operand})
}

// plain adds the one operation of an unfused node, and for a fully connected
// layer its bias. Operands are numbered inputs first, in the operator's order.
func plain(_ *Builder, g *graph, n *node) {
	c := n.geom
	switch kind(n.b.Op) {
	case forward:
		w, x := g.w(n, 1), g.x(n, 0)
		if n.mul == nil {
			y := g.y(n, 2)
			g.operation(convForward, g.convolution(c), x, w, y)
			break
		}
		sum := g.tensor(tensor{dtype: cudnn.Float, dims: images(c.N, c.OH, c.OW, c.K), align: n.align, virtual: true})
		bias := g.vector(n, cudnn.Float, c.K, 2)
		y := g.y(n, 3)
		g.operation(convForward, g.convolution(c), x, w, sum)
		g.pointwise(cudnn.PointwiseAdd, sum, bias, y)
	case bwdData:
		w, dy, dx := g.w(n, 1), g.y(n, 0), g.x(n, 2)
		g.operation(convBwdData, g.convolution(c), dx, w, dy)
	case bwdFilter:
		x, dy, dw := g.x(n, 0), g.y(n, 1), g.w(n, 2)
		g.operation(convBwdFilter, g.convolution(c), x, dw, dy)
	}
}
