package kernels

import (
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// planner resolves one bound node. The first error sticks; what is returned
// after it is not used.
type planner struct {
	Options
	b       *workloads.Bound
	scratch int64 // bytes laid out so far
	sizing  bool  // only the scratch is wanted
	out     []Launch
	err     error
}

// Options say what a device can do. Results may differ in their last bits
// between options, so one group of ranks keeps to one value, for Plan and
// ScratchBytes alike.
type Options struct {
	// OneKernelNorm lets small batch norms run as one kernel whose blocks wait
	// for each other. It asks for a device that holds OneKernelBlocks blocks of
	// each kernel in [OneKernelNames] at once, which the driver's occupancy
	// call tells; otherwise such a kernel would wait for ever.
	OneKernelNorm bool
}

// Plan is [Options.Plan] with nothing asked of the device.
func Plan(b *workloads.Bound) ([]Launch, error) { return Options{}.Plan(b) }

// ScratchBytes is [Options.ScratchBytes] with nothing asked of the device.
func ScratchBytes(b *workloads.Bound) int64 { return Options{}.ScratchBytes(b) }

// Plan returns the launches of a bound operator, in order, all on the stream of
// its sub-graph. It looks at shapes, types, attributes and regions, needs no
// device, and allocates all that a submission will need. An error names the
// operator and, where one is at fault, the operand.
func (o Options) Plan(b *workloads.Bound) ([]Launch, error) {
	p := &planner{Options: o, b: b}
	if plan := planOf(b.Op); plan != nil {
		plan(p)
	} else {
		p.reject("the operator has no kernel")
	}
	if p.err == nil && b.Scratch.Bytes < p.scratch {
		p.reject("scratch has %d bytes, need %d", b.Scratch.Bytes, p.scratch)
	}
	for i := range p.out {
		if err := p.out[i].check(); err != nil && p.err == nil {
			p.err = fmt.Errorf("%s %s: %w", b.Op, b.Name, err)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.out, nil
}

// ScratchBytes is the scratch memory that an operator needs, 0 for none. It
// looks at operator, shapes and types only; Plan expects that much in
// b.Scratch. A node that Plan would refuse needs none.
func (o Options) ScratchBytes(b *workloads.Bound) int64 {
	plan := planOf(b.Op)
	if plan == nil {
		return 0
	}
	p := &planner{Options: o, b: b, sizing: true}
	plan(p)
	if p.err != nil {
		return 0
	}
	return p.scratch
}

func planOf(op workloads.Op) func(*planner) {
	switch op {
	case workloads.OpConv, workloads.OpFC:
		return (*planner).conv
	case workloads.OpConvBwdData, workloads.OpFCBwdData:
		return (*planner).convBwdData
	case workloads.OpConvBwdFilter, workloads.OpFCBwdFilter:
		return (*planner).convBwdFilter
	case workloads.OpBatchNorm:
		return (*planner).batchNorm
	case workloads.OpBatchNormBwd:
		return (*planner).batchNormBwd
	case workloads.OpAffine:
		return (*planner).affine
	case workloads.OpReLU:
		return func(p *planner) { p.pointwise("relu", 1) }
	case workloads.OpReLUBwd:
		return func(p *planner) { p.pointwise("relu_bwd", 2) }
	case workloads.OpAdd:
		return func(p *planner) { p.pointwise("add", 2) }
	case workloads.OpMaxPool:
		return (*planner).maxPool
	case workloads.OpMaxPoolBwd:
		return (*planner).maxPoolBwd
	case workloads.OpAvgPool:
		return (*planner).avgPool
	case workloads.OpAvgPoolBwd:
		return (*planner).avgPoolBwd
	case workloads.OpLoss:
		return (*planner).loss
	case workloads.OpLossEval:
		return (*planner).lossEval
	}
	return planOfRange(op)
}

func planOfRange(op workloads.Op) func(*planner) {
	switch op {
	case workloads.OpCopyLabels:
		return (*planner).copyBytes
	case workloads.OpCopyIn:
		return (*planner).copyIn
	case workloads.OpInject:
		return (*planner).inject
	case workloads.OpNormalize:
		return (*planner).normalize
	case workloads.OpZero:
		return (*planner).zero
	case workloads.OpCast:
		return (*planner).cast
	case workloads.OpFiniteCheck:
		return (*planner).finiteCheck
	case workloads.OpUnscale:
		return (*planner).unscale
	case workloads.OpControl:
		return (*planner).control
	case workloads.OpUpdateStats:
		return (*planner).updateStats
	case workloads.OpSGD:
		return (*planner).sgd
	case workloads.OpLARS:
		return (*planner).lars
	case workloads.OpEMA:
		return (*planner).ema
	case workloads.OpBNInfer:
		return (*planner).bnInfer
	case workloads.OpAccum:
		return (*planner).accum
	case workloads.OpChain:
		return (*planner).chain
	}
	return nil
}

func (p *planner) add(l Launch) { p.out = append(p.out, l) }

func (p *planner) reject(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s %s: %s", p.b.Op, p.b.Name, fmt.Sprintf(format, args...))
	}
}

func (p *planner) fail(o *workloads.Operand, format string, args ...any) {
	p.reject("operand %s: %s", o.Name, fmt.Sprintf(format, args...))
}

func (p *planner) in(i int) *workloads.Operand   { return &p.b.In[i] }
func (p *planner) outs(i int) *workloads.Operand { return &p.b.Out[i] }

// arity checks the number of operands and that each region has its shape's size.
func (p *planner) arity(in, out int) bool {
	if len(p.b.In) != in || len(p.b.Out) != out {
		p.reject("%d input and %d output operands, want %d and %d", len(p.b.In), len(p.b.Out), in, out)
		return false
	}
	for _, list := range [2][]workloads.Operand{p.b.In, p.b.Out} {
		for i := range list {
			o := &list[i]
			if want := int64(o.Shape.Elems()) * o.DType.Bytes(); o.Region.Bytes != want {
				p.fail(o, "region has %d bytes, shape %v of %s needs %d", o.Region.Bytes, o.Shape, o.DType, want)
			} else if o.Region.Off%o.DType.Bytes() != 0 {
				p.fail(o, "offset %d is not aligned to %s", o.Region.Off, o.DType)
			} else if o.Region.Space != workloads.Arena && p.b.Op != workloads.OpCopyIn {
				p.fail(o, "lies in %s memory", o.Region.Space)
			}
		}
	}
	return p.err == nil
}

// typed checks the element type of operands.
func (p *planner) typed(d workloads.DType, operands ...*workloads.Operand) {
	for _, o := range operands {
		if o.DType != d {
			p.fail(o, "is %s, want %s", o.DType, d)
		}
	}
}

// real checks that operands share a type, F32 or F16, and returns its name in
// kernels.
func (p *planner) real(operands ...*workloads.Operand) string {
	d := operands[0].DType
	if d != workloads.F32 && d != workloads.F16 {
		p.fail(operands[0], "is %s, want f32 or f16", d)
	}
	p.typed(d, operands...)
	return d.String()
}

func (p *planner) elems(n int, operands ...*workloads.Operand) {
	for _, o := range operands {
		if o.Shape.Elems() != n {
			p.fail(o, "shape %v has %d elements, want %d", o.Shape, o.Shape.Elems(), n)
		}
	}
}

func (p *planner) shape(o *workloads.Operand, dims ...int) {
	ok := len(o.Shape) == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = o.Shape[i] == dims[i]
	}
	if !ok {
		p.fail(o, "shape %v, want %v", o.Shape, dims)
	}
}

// rank checks an operand's number of dimensions, that none is below 1, and that
// the kernels' 32-bit indices of rows can count it.
func (p *planner) rank(o *workloads.Operand, n int) bool {
	if len(o.Shape) != n {
		p.fail(o, "shape %v, want %d dimensions", o.Shape, n)
		return false
	}
	rows := int64(1)
	for i, d := range o.Shape {
		if d < 1 {
			p.fail(o, "shape %v has an empty dimension", o.Shape)
			return false
		}
		if i < n-1 {
			rows *= int64(d)
		}
	}
	if rows > 1<<30 {
		p.fail(o, "shape %v has more than 2^30 rows", o.Shape)
		return false
	}
	return true
}

// scalars checks that an operand holds the scalars tensor.
func (p *planner) scalars(o *workloads.Operand) {
	if o.Region.Bytes < 4*workloads.ScalarWords {
		p.fail(o, "has %d bytes, the scalars need %d", o.Region.Bytes, 4*workloads.ScalarWords)
	}
}

// inPlace checks that an operator updates memory where it lies.
func (p *planner) inPlace(in, out *workloads.Operand) {
	if in.Region != out.Region || in.DType != out.DType {
		p.fail(out, "must be the same memory as input %s", in.Name)
	}
}

// take lays out bytes of scratch and returns their region.
func (p *planner) take(bytes int64) workloads.Region {
	r := workloads.Region{Space: p.b.Scratch.Space, Off: p.b.Scratch.Off + p.scratch, Bytes: bytes}
	p.scratch += (bytes + workloads.Alignment - 1) / workloads.Alignment * workloads.Alignment
	return r
}

// aligned says that all operands begin at multiples of n bytes. While only
// scratch is being sized the answer is yes: offsets are not known, and no
// operator's scratch depends on the answer.
func (p *planner) aligned(n int64, operands ...*workloads.Operand) bool {
	for _, o := range operands {
		if !p.sizing && o.Region.Off%n != 0 {
			return false
		}
	}
	return true
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
