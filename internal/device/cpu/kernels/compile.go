package kernels

import (
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// kernel says how to compile one operator. Optional operands raise the count
// by what extra returns.
type kernel struct {
	in, out int
	extraIn func(a *workloads.Attr) int
	extraO  func(a *workloads.Attr) int
	build   func(c *compiler) func()
	// scratch lays out the operator's scratch; nil if it needs none.
	scratch func(b *workloads.Bound) layout
	// manyOut allows any number of outputs from out upward.
	manyOut bool
}

func ifAdd(a *workloads.Attr) int {
	if a.Add {
		return 1
	}
	return 0
}

func ifMask(a *workloads.Attr) int {
	if a.Mask {
		return 1
	}
	return 0
}

func ifReLUAndSum(a *workloads.Attr) (n int) {
	if a.ReLU {
		n++
	}
	if a.Sum {
		n++
	}
	return n
}

// kernelOf finds the table entry of an operator; build is nil if there is none.
// It is a switch and not a map so that the entries need no initialisation
// order.
func kernelOf(op workloads.Op) kernel {
	switch op {
	case workloads.OpConv:
		return kernel{in: 2, out: 1, build: buildConv, scratch: convScratch}
	case workloads.OpConvBwdData:
		return kernel{in: 2, out: 1, build: buildBwdData, scratch: bwdDataScratch}
	case workloads.OpConvBwdFilter:
		return kernel{in: 2, out: 1, build: buildBwdFilter, scratch: bwdFilterScratch}
	case workloads.OpFC:
		return kernel{in: 3, out: 1, build: buildConv, scratch: convScratch}
	case workloads.OpFCBwdData:
		return kernel{in: 2, out: 1, build: buildBwdData, scratch: bwdDataScratch}
	case workloads.OpFCBwdFilter:
		return kernel{in: 2, out: 2, build: buildBwdFilter, scratch: bwdFilterScratch}
	case workloads.OpBatchNorm:
		return kernel{in: 3, out: 5, extraIn: ifAdd, extraO: ifMask, build: buildBatchNorm, scratch: batchNormScratch}
	case workloads.OpBatchNormBwd:
		return kernel{in: 5, out: 3, extraIn: ifReLUAndSum, extraO: ifAdd, build: buildBatchNormBwd, scratch: batchNormBwdScratch}
	case workloads.OpReLU:
		return kernel{in: 1, out: 1, build: buildReLU}
	case workloads.OpReLUBwd:
		return kernel{in: 2, out: 1, build: buildReLUBwd}
	case workloads.OpAdd:
		return kernel{in: 2, out: 1, build: buildAdd}
	case workloads.OpAffine:
		return kernel{in: 3, out: 1, extraIn: ifAdd, build: buildAffine}
	case workloads.OpMaxPool:
		return kernel{in: 1, out: 2, build: buildMaxPool}
	case workloads.OpMaxPoolBwd:
		return kernel{in: 2, out: 1, build: buildMaxPoolBwd}
	case workloads.OpAvgPool:
		return kernel{in: 1, out: 1, build: buildAvgPool}
	case workloads.OpAvgPoolBwd:
		return kernel{in: 1, out: 1, build: buildAvgPoolBwd}
	case workloads.OpLoss:
		return kernel{in: 4, out: 2, build: buildLoss, scratch: lossScratch}
	case workloads.OpLossEval:
		return kernel{in: 2, out: 1, build: buildLossEval, scratch: lossScratch}
	}
	return rangeKernelOf(op)
}

func rangeKernelOf(op workloads.Op) kernel {
	switch op {
	case workloads.OpCopyLabels, workloads.OpCopyIn:
		return kernel{in: 1, out: 1, build: buildCopy}
	case workloads.OpInject:
		return kernel{in: 1, out: 1, build: buildInject}
	case workloads.OpNormalize:
		return kernel{in: 1, out: 1, build: buildNormalize}
	case workloads.OpZero:
		return kernel{in: 0, out: 1, manyOut: true, build: buildZero}
	case workloads.OpCast:
		return kernel{in: 1, out: 1, build: buildCast}
	case workloads.OpFiniteCheck:
		return kernel{in: 1, out: 1, build: buildFiniteCheck}
	case workloads.OpUnscale:
		return kernel{in: 2, out: 1, build: buildUnscale}
	case workloads.OpControl:
		return kernel{in: 2, out: 1, build: buildControl}
	case workloads.OpUpdateStats:
		return kernel{in: 2, out: 1, build: buildUpdateStats}
	case workloads.OpSGD:
		return kernel{in: 4, out: 2, build: buildSGD}
	case workloads.OpLARS:
		return kernel{in: 4, out: 2, build: buildLARS}
	case workloads.OpEMA:
		return kernel{in: 3, out: 1, build: buildEMA}
	case workloads.OpBNInfer:
		return kernel{in: 2, out: 1, build: buildBNInfer}
	case workloads.OpAccum:
		return kernel{in: 1, out: 1, build: buildAccum}
	case workloads.OpChain:
		return kernel{in: 1, out: 1, build: buildChain}
	}
	return kernel{}
}

// Compile resolves a node's operands, once, and returns the function that
// computes it. The function allocates nothing once it has run a first time; it
// may run on any goroutine, but not twice at once, because its scratch is one.
// An error names the operator and, where one is at fault, the operand.
func Compile(b *workloads.Bound, mem Memory, pool *Pool) (func(), error) {
	k := kernelOf(b.Op)
	if k.build == nil {
		return nil, fmt.Errorf("%s %s: the operator has no kernel", b.Op, b.Name)
	}
	c := &compiler{b: b, mem: mem, pool: pool}
	c.arity(k)
	if c.err != nil {
		return nil, c.err
	}
	f := k.build(c)
	if c.err != nil {
		return nil, c.err
	}
	return f, nil
}

// ScratchBytes is the scratch memory that a node needs, 0 for none. Compile
// expects at least as much in b.Scratch, aligned like a tensor. It looks at
// operator, shapes and types only; a node that Compile would refuse needs none.
func ScratchBytes(b *workloads.Bound) int64 {
	k := kernelOf(b.Op)
	if k.scratch == nil {
		return 0
	}
	c := &compiler{b: b}
	if c.arity(k); c.err != nil {
		return 0
	}
	return k.scratch(b).size
}

func (c *compiler) arity(k kernel) {
	in, out := k.in, k.out
	if k.extraIn != nil {
		in += k.extraIn(&c.b.Attr)
	}
	if k.extraO != nil {
		out += k.extraO(&c.b.Attr)
	}
	if len(c.b.In) != in {
		c.reject("%d input operands, want %d", len(c.b.In), in)
	}
	if len(c.b.Out) != out && !(k.manyOut && len(c.b.Out) > out) {
		c.reject("%d output operands, want %d", len(c.b.Out), out)
	}
}
