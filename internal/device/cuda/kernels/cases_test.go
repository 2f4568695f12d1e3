package kernels

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

var casesFile = flag.String("cases", "", "write the planned launches of check.py's cases to this file")

// What check.py reads: operands as the planner saw them, and launches with
// their packed parameter blocks, in which it fills in the addresses.
type (
	caseOperand struct {
		Name  string `json:"name"`
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Off   int64  `json:"off"`
		Bytes int64  `json:"bytes"`
	}
	caseReloc struct {
		At      int   `json:"at"`
		Counter bool  `json:"counter,omitempty"`
		Off     int64 `json:"off"`
	}
	caseLaunch struct {
		Kernel string      `json:"kernel"`
		Module string      `json:"module"`
		Grid   [3]uint32   `json:"grid"`
		Block  [3]uint32   `json:"block"`
		Shared uint32      `json:"shared"`
		Params string      `json:"params"`
		Relocs []caseReloc `json:"relocs"`
	}
	caseJSON struct {
		Name     string         `json:"name"`
		Op       string         `json:"op"`
		Time     bool           `json:"time"`
		Attr     workloads.Attr `json:"attr"`
		In       []caseOperand  `json:"in"`
		Out      []caseOperand  `json:"out"`
		Scratch  caseOperand    `json:"scratch"`
		Arena    int64          `json:"arena"`
		Traffic  int64          `json:"traffic"` // bytes the launches move
		Floor    int64          `json:"floor"`   // bytes of each operand once
		Launches []caseLaunch   `json:"launches"`
	}
)

// builder places the operands of one case after each other.
type builder struct {
	name    string
	op      workloads.Op
	attr    workloads.Attr
	in, out []workloads.Operand
	time    bool
	options Options
	// plan and kind stand for the operator's where the launches are a part of one.
	plan func(b *workloads.Bound) []Launch
	kind string
	skew int64 // bytes that every operand is off its alignment
	end  int64
}

func (b *builder) place(name string, d workloads.DType, shape ...int) workloads.Operand {
	o := operand(d, b.end+b.skew, shape...)
	o.Name = name
	b.end = (o.Region.End() + workloads.Alignment - 1) / workloads.Alignment * workloads.Alignment
	return o
}

func (b *builder) input(name string, d workloads.DType, shape ...int) *builder {
	b.in = append(b.in, b.place(name, d, shape...))
	return b
}

func (b *builder) output(name string, d workloads.DType, shape ...int) *builder {
	b.out = append(b.out, b.place(name, d, shape...))
	return b
}

// inPlace makes input i an output too.
func (b *builder) inPlace(i int) *builder {
	b.out = append(b.out, b.in[i])
	return b
}

func (b *builder) json(t *testing.T) caseJSON {
	t.Helper()
	n := bound(b.op, b.attr, b.in, b.out)
	n.Name = b.name
	n.Scratch = workloads.Region{Off: b.end, Bytes: b.options.ScratchBytes(n)}
	n.Writes = append(n.Writes, n.Scratch)
	var launches []Launch
	if b.plan != nil {
		launches = b.plan(n)
	} else {
		var err error
		if launches, err = b.options.Plan(n); err != nil {
			t.Fatal(err)
		}
		b.kind = b.op.String()
	}
	checkLaunches(t, n, launches)
	c := caseJSON{Name: b.name, Op: b.kind, Time: b.time, Attr: b.attr, Arena: n.Scratch.End() + workloads.Alignment}
	c.Scratch = caseOperand{Name: "scratch", Off: n.Scratch.Off, Bytes: n.Scratch.Bytes}
	convert := func(list []workloads.Operand) (out []caseOperand) {
		for _, o := range list {
			out = append(out, caseOperand{o.Name, o.DType.String(), o.Shape, o.Region.Off, o.Region.Bytes})
			c.Floor += o.Region.Bytes
		}
		return out
	}
	c.In, c.Out = convert(b.in), convert(b.out)
	if c.In == nil {
		c.In = []caseOperand{}
	}
	for i := range launches {
		l := &launches[i]
		k, _ := Lookup(l.Kernel)
		j := caseLaunch{Kernel: l.Kernel, Module: k.Module, Grid: l.Grid, Block: l.Block, Shared: l.Shared}
		j.Params = hex.EncodeToString(l.Pack(nil, func(Param) uint64 { return 0 }))
		offsets, _ := l.Layout()
		for i, p := range l.Params {
			switch p.Kind {
			case Pointer:
				j.Relocs = append(j.Relocs, caseReloc{At: offsets[i], Off: p.Region.Off})
				c.Traffic += p.Region.Bytes
				if p.Writes && slices.ContainsFunc(b.in, func(o workloads.Operand) bool { return o.Region == p.Region }) {
					c.Traffic += p.Region.Bytes
				}
			case Counter:
				j.Relocs = append(j.Relocs, caseReloc{At: offsets[i], Counter: true, Off: 4 * int64(p.Value)})
			}
		}
		c.Launches = append(c.Launches, j)
	}
	return c
}

const (
	f32Type = workloads.F32
	f16Type = workloads.F16
)

func convCases(d workloads.DType, timed bool, n, h, w, c, k, r, stride, pad int) []*builder {
	oh, ow := (h+2*pad-r)/stride+1, (w+2*pad-r)/stride+1
	a := workloads.Attr{R: r, S: r, Stride: stride, Pad: pad}
	name := fmt.Sprintf("%s %dx%dx%dx%d k%d r%d s%d p%d", d, n, h, w, c, k, r, stride, pad)
	make := func(op workloads.Op) *builder {
		return &builder{name: op.String() + " " + name, op: op, attr: a, time: timed}
	}
	return []*builder{
		make(workloads.OpConv).input("x", d, n, h, w, c).input("w", d, k, r, r, c).output("y", d, n, oh, ow, k),
		make(workloads.OpConvBwdData).input("dy", d, n, oh, ow, k).input("w", d, k, r, r, c).output("dx", d, n, h, w, c),
		make(workloads.OpConvBwdFilter).input("x", d, n, h, w, c).input("dy", d, n, oh, ow, k).output("dw", d, k, r, r, c),
	}
}

func fcCases(d workloads.DType, timed bool, n, c, k int) []*builder {
	name := fmt.Sprintf("%s %dx%d k%d", d, n, c, k)
	make := func(op workloads.Op) *builder { return &builder{name: op.String() + " " + name, op: op, time: timed} }
	return []*builder{
		make(workloads.OpFC).input("x", d, n, c).input("w", d, k, c).input("b", f32Type, k).output("y", d, n, k),
		make(workloads.OpFCBwdData).input("dy", d, n, k).input("w", d, k, c).output("dx", d, n, c),
		make(workloads.OpFCBwdFilter).input("x", d, n, c).input("dy", d, n, k).output("dw", d, k, c).output("db", f32Type, k),
	}
}

func normCases(d workloads.DType, timed bool, skew int64, relu, add bool, n, h, w, c int) []*builder {
	a := workloads.Attr{Eps: 1e-5, Groups: 1, ReLU: relu, Add: add, Unbiased: true}
	name := fmt.Sprintf("%s %dx%dx%dx%d", d, n, h, w, c)
	if relu {
		name += " relu"
	}
	if add {
		name += " add"
	}
	if skew > 0 {
		name += " skewed"
	}
	make := func(op workloads.Op) *builder {
		return &builder{name: op.String() + " " + name, op: op, attr: a, time: timed, skew: skew}
	}
	fwd := make(workloads.OpBatchNorm).input("x", d, n, h, w, c).input("gamma", f32Type, c).input("beta", f32Type, c)
	if add {
		fwd.input("z", d, n, h, w, c)
	}
	fwd.output("y", d, n, h, w, c).output("mean", f32Type, c).output("invstd", f32Type, c).output("statMean", f32Type, c).output("statVar", f32Type, c)
	bwd := make(workloads.OpBatchNormBwd).input("x", d, n, h, w, c).input("dy", d, n, h, w, c).input("gamma", f32Type, c).input("mean", f32Type, c).input("invstd", f32Type, c)
	if relu {
		bwd.input("y", d, n, h, w, c)
	}
	bwd.output("dx", d, n, h, w, c).output("dgamma", f32Type, c).output("dbeta", f32Type, c)
	if add {
		bwd.output("dz", d, n, h, w, c)
	}
	aff := make(workloads.OpAffine).input("x", d, n, h, w, c).input("scale", f32Type, c).input("bias", f32Type, c)
	if add {
		aff.input("z", d, n, h, w, c)
	}
	aff.output("y", d, n, h, w, c)
	return []*builder{fwd, bwd, aff}
}

// leanCases are norms with a mask, and backward ones with the sum of two
// gradients and a mask or y.
func leanCases(d workloads.DType, timed bool, add bool, n, h, w, c int) (all []*builder) {
	run := workloads.MaskRun(d, c)
	name := fmt.Sprintf("%s %dx%dx%dx%d", d, n, h, w, c)
	if add {
		name += " add"
	}
	make := func(op workloads.Op, mask, sum bool) *builder {
		b := &builder{name: op.String() + " " + name, op: op, time: timed,
			attr: workloads.Attr{Eps: 1e-5, Groups: 1, ReLU: true, Add: add, Mask: mask, Sum: sum, Unbiased: true}}
		if mask {
			b.name += " mask"
		}
		if sum {
			b.name += " sum"
		}
		return b
	}
	fwd := make(workloads.OpBatchNorm, true, false).input("x", d, n, h, w, c).input("gamma", f32Type, c).input("beta", f32Type, c)
	if add {
		fwd.input("z", d, n, h, w, c)
	}
	all = append(all, fwd.output("y", d, n, h, w, c).output("mean", f32Type, c).output("invstd", f32Type, c).
		output("statMean", f32Type, c).output("statVar", f32Type, c).output("mask", workloads.U8, n, h, w, c/run))
	for _, f := range [][2]bool{{true, false}, {true, true}, {false, true}} {
		b := make(workloads.OpBatchNormBwd, f[0], f[1]).input("x", d, n, h, w, c).input("dy", d, n, h, w, c).
			input("gamma", f32Type, c).input("mean", f32Type, c).input("invstd", f32Type, c)
		if f[0] {
			b.input("mask", workloads.U8, n, h, w, c/run)
		} else {
			b.input("y", d, n, h, w, c)
		}
		if f[1] {
			b.input("dy2", d, n, h, w, c)
		}
		b.output("dx", d, n, h, w, c).output("dgamma", f32Type, c).output("dbeta", f32Type, c)
		if add {
			b.output("dz", d, n, h, w, c)
		}
		all = append(all, b)
	}
	return all
}

// stemCases are the launches around a rearranged convolution: to blocks, with
// weights and without, and a filter gradient back.
func stemCases(timed bool, n, h, w, k, r, stride, pad int) []*builder {
	a := workloads.Attr{R: r, S: r, Stride: stride, Pad: pad}
	name := fmt.Sprintf("%dx%dx%d k%d r%d s%d p%d", n, h, w, k, r, stride, pad)
	x, f := workloads.Shape{n, h, w, 3}, workloads.Shape{k, r, r, 3}
	g, _ := blocks(a, x, f, workloads.Shape{n, (h+2*pad-r)/stride + 1, (w+2*pad-r)/stride + 1, k})
	make := func(kind string, plan func(b *workloads.Bound) []Launch) *builder {
		return &builder{name: kind + " " + name, kind: kind, attr: a, time: timed, plan: plan}
	}
	both := make("stem_blocks", func(b *workloads.Bound) []Launch {
		return []Launch{g.image(b.In[0].Region, b.Out[0].Region, read(b.In[1].Region), write(b.Out[1].Region), b.Out[1].Shape.Elems())}
	}).input("x", f16Type, x...).input("w", f16Type, f...).output("image", f16Type, n, g.hb, g.wb, g.c).output("weights", f16Type, k, g.rb, g.rb, g.c)
	image := make("stem_image", func(b *workloads.Bound) []Launch {
		return []Launch{g.image(b.In[0].Region, b.Out[0].Region, null(), null(), 0)}
	}).input("x", f16Type, x...).output("image", f16Type, n, g.hb, g.wb, g.c)
	back := make("stem_filter", func(b *workloads.Bound) []Launch {
		return []Launch{g.filter(b.In[0].Region, b.Out[0].Region)}
	}).input("weights", f16Type, k, g.rb, g.rb, g.c).output("dw", f16Type, f...)
	return []*builder{both, image, back}
}

func poolCases(d workloads.DType, timed bool, n, h, w, c, r, stride, pad int) []*builder {
	oh, ow := (h+2*pad-r)/stride+1, (w+2*pad-r)/stride+1
	a := workloads.Attr{R: r, S: r, Stride: stride, Pad: pad}
	name := fmt.Sprintf("%s %dx%dx%dx%d r%d s%d p%d", d, n, h, w, c, r, stride, pad)
	make := func(op workloads.Op) *builder {
		return &builder{name: op.String() + " " + name, op: op, attr: a, time: timed}
	}
	return []*builder{
		make(workloads.OpMaxPool).input("x", d, n, h, w, c).output("y", d, n, oh, ow, c).output("index", workloads.U8, n, oh, ow, c),
		make(workloads.OpMaxPoolBwd).input("dy", d, n, oh, ow, c).input("index", workloads.U8, n, oh, ow, c).output("dx", d, n, h, w, c),
	}
}

func averageCases(d workloads.DType, timed bool, n, h, c int) []*builder {
	name := fmt.Sprintf("%s %dx%dx%dx%d", d, n, h, h, c)
	return []*builder{
		(&builder{name: "avg_pool " + name, op: workloads.OpAvgPool, time: timed}).input("x", d, n, h, h, c).output("y", d, n, c),
		(&builder{name: "avg_pool_bwd " + name, op: workloads.OpAvgPoolBwd, time: timed}).input("dy", d, n, c).output("dx", d, n, h, h, c),
	}
}

func lossCases(d workloads.DType, timed bool, n, k int, smooth float32) []*builder {
	name := fmt.Sprintf("%s %dx%d smooth %v", d, n, k, smooth)
	train := (&builder{name: "loss " + name, op: workloads.OpLoss, attr: workloads.Attr{Smoothing: smooth}, time: timed}).
		input("logits", d, n, k).input("labels", workloads.I32, n).input("scalars", f32Type, workloads.ScalarWords).input("step", f32Type, workloads.StepWords).
		output("dlogits", d, n, k).inPlace(3)
	eval := (&builder{name: "loss_eval " + name, op: workloads.OpLossEval, attr: workloads.Attr{Slot: 1}, time: timed}).
		input("logits", d, n, k).input("labels", workloads.I32, n).output("step", f32Type, workloads.StepWords)
	return []*builder{train, eval}
}

func pointCases(d workloads.DType, timed bool, skew int64, shape ...int) []*builder {
	name := fmt.Sprintf("%s %v", d, shape)
	if skew > 0 {
		name += " skewed"
	}
	make := func(op workloads.Op, attr workloads.Attr) *builder {
		return &builder{name: op.String() + " " + name, op: op, attr: attr, time: timed, skew: skew}
	}
	return []*builder{
		make(workloads.OpReLU, workloads.Attr{}).input("x", d, shape...).output("y", d, shape...),
		make(workloads.OpReLUBwd, workloads.Attr{}).input("y", d, shape...).input("dy", d, shape...).output("dx", d, shape...),
		make(workloads.OpAdd, workloads.Attr{}).input("a", d, shape...).input("b", d, shape...).output("y", d, shape...),
		make(workloads.OpNormalize, workloads.Attr{Mean: [3]float32{.485, .456, .406}, InvStd: [3]float32{4.3668, 4.4643, 4.4444}}).
			input("u", workloads.U8, shape...).output("x", d, shape...),
		make(workloads.OpInject, workloads.Attr{}).input("scalars", f32Type, workloads.ScalarWords).output("g", d, shape...),
	}
}

func rangeCases(timed bool, skew int64, n int, spans []workloads.Span) []*builder {
	name := fmt.Sprintf("%d", n)
	if skew > 0 {
		name += " skewed"
	}
	make := func(op workloads.Op, attr workloads.Attr) *builder {
		return &builder{name: op.String() + " " + name, op: op, attr: attr, time: timed, skew: skew}
	}
	sgd := workloads.Attr{Momentum: 0.9, Decay: 5e-4}
	nesterov := sgd
	nesterov.Nesterov = true
	lars := sgd
	lars.Trust, lars.Spans = 1e-3, spans
	update := func(op workloads.Op, a workloads.Attr) *builder {
		return make(op, a).input("w", f32Type, n).input("g", f32Type, n).input("v", f32Type, n).input("scalars", f32Type, workloads.ScalarWords).inPlace(0).inPlace(2)
	}
	all := []*builder{
		make(workloads.OpCast, workloads.Attr{}).input("src", f16Type, n).output("dst", f32Type, n),
		make(workloads.OpCast, workloads.Attr{}).input("src", f32Type, n).output("dst", f16Type, n),
		make(workloads.OpFiniteCheck, workloads.Attr{}).input("g", f32Type, n).output("scalars", f32Type, workloads.ScalarWords),
		make(workloads.OpUnscale, workloads.Attr{}).input("g", f32Type, n).input("scalars", f32Type, workloads.ScalarWords).inPlace(0),
		make(workloads.OpEMA, workloads.Attr{Decay: 0.99}).input("w", f32Type, n).input("ema", f32Type, n).input("scalars", f32Type, workloads.ScalarWords).inPlace(1),
		make(workloads.OpUpdateStats, workloads.Attr{Momentum: 0.1}).input("stats", f32Type, n).input("running", f32Type, n).inPlace(1),
		make(workloads.OpChain, workloads.Attr{}).input("a", f32Type, n).output("b", f32Type, n),
		update(workloads.OpSGD, sgd), update(workloads.OpSGD, nesterov), update(workloads.OpLARS, lars),
	}
	all[8].name += " nesterov"
	if skew%16 == 0 {
		all = append(all, make(workloads.OpZero, workloads.Attr{}).output("grads", f32Type, n).output("half", f16Type, n).output("step", f32Type, 4),
			make(workloads.OpZero, workloads.Attr{}).output("metrics", f32Type, 6),
			make(workloads.OpZero, workloads.Attr{}).output("grads", f32Type, n).output("step", f32Type, 4))
		all[len(all)-2].name += " one"
		all[len(all)-1].name += " two"
	}
	return all
}

func smallCases() []*builder {
	control := func(name string, r workloads.ControlRule) *builder {
		return (&builder{name: "control " + name, op: workloads.OpControl, attr: workloads.Attr{Control: r}}).
			input("table", f32Type, workloads.MaxLearningRates).input("scalars", f32Type, workloads.ScalarWords).inPlace(1)
	}
	norms := []workloads.NormSpan{{Gamma: 0, Beta: 128, Mean: 0, Var: 128, Scale: 0, Bias: 128, C: 100}, {Gamma: 256, Beta: 1280, Mean: 256, Var: 1280, Scale: 256, Bias: 1280, C: 1000}}
	return []*builder{
		control("fixed", workloads.ControlRule{GrowthInterval: 3, StopAfter: 4, Rates: 5}),
		control("dynamic", workloads.ControlRule{Dynamic: true, GrowthInterval: 3, StopAfter: 4, Rates: 5}),
		(&builder{name: "bn_infer", op: workloads.OpBNInfer, attr: workloads.Attr{Eps: 1e-5, Norms: norms}}).
			input("params", f32Type, 2304).input("running", f32Type, 2304).output("inf", f32Type, 2304),
		(&builder{name: "accum", op: workloads.OpAccum, attr: workloads.Attr{Count: 16, Slots: 2}}).input("step", f32Type, workloads.StepWords).output("metrics", f32Type, 6),
		(&builder{name: "copy_labels 17", op: workloads.OpCopyLabels}).input("from", workloads.I32, 17).output("to", workloads.I32, 17),
		(&builder{name: "copy_labels 17 skewed", op: workloads.OpCopyLabels, skew: 4}).input("from", workloads.I32, 17).output("to", workloads.I32, 17),
	}
}

// oneKernel is the same cases with norms in one kernel, those that fit.
func oneKernel(list []*builder) (out []*builder) {
	for _, b := range list {
		n := bound(b.op, b.attr, b.in, b.out)
		c := *b
		c.name, c.options = b.name+" one", Options{OneKernelNorm: true}
		n.Scratch = workloads.Region{Off: b.end, Bytes: c.options.ScratchBytes(n)}
		if l, err := c.options.Plan(n); err == nil && len(l) == 1 && b.op != workloads.OpAffine {
			out = append(out, &c)
		}
	}
	return out
}

// checkCases is every case: small ones for right answers, large ones for time.
func checkCases() (all []*builder) {
	add := func(list []*builder) {
		all = append(all, list...)
		if list[0].op == workloads.OpBatchNorm {
			all = append(all, oneKernel(list)...)
		}
	}
	spans := []workloads.Span{{Off: 0, Len: 9000}, {Off: 9088, Len: 7}, {Off: 9216, Len: 20000}}
	for _, d := range []workloads.DType{f32Type, f16Type} {
		add(convCases(d, false, 2, 9, 9, 3, 8, 7, 2, 3))
		add(convCases(d, false, 3, 14, 14, 16, 32, 3, 1, 1))
		add(convCases(d, false, 2, 15, 13, 24, 20, 3, 2, 1))
		add(convCases(d, false, 4, 8, 8, 64, 128, 1, 2, 0))
		add(convCases(d, false, 1, 7, 6, 5, 3, 2, 3, 0))
		add(convCases(d, false, 8, 28, 28, 32, 96, 1, 1, 0))
		add(fcCases(d, false, 5, 130, 11))
		add(fcCases(d, false, 64, 512, 100))
		for _, f := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			add(normCases(d, false, 0, f[0], f[1], 4, 9, 9, 64))
			add(normCases(d, false, 0, f[0], f[1], 2, 3, 3, 3))
			add(normCases(d, false, 0, f[0], f[1], 8, 16, 16, 512))
			add(normCases(d, false, 0, f[0], f[1], 3, 5, 5, 50))
		}
		for _, f := range []bool{false, true} {
			add(leanCases(d, false, f, 4, 9, 9, 64))
			add(leanCases(d, false, f, 2, 3, 3, 3))
			add(leanCases(d, false, f, 8, 16, 16, 512))
			add(leanCases(d, false, f, 3, 5, 5, 50))
			add(leanCases(d, false, f, 33, 31, 29, 128))
			add(leanCases(d, false, f, 5, 7, 7, 2048))
		}
		add(normCases(d, false, 0, true, true, 16, 32, 32, 64))
		add(normCases(d, false, 0, true, true, 33, 31, 29, 128))
		add(normCases(d, false, 0, true, false, 3, 5, 5, 24))
		add(normCases(d, false, 0, true, true, 1, 3, 1, 8))
		add(normCases(d, false, 0, true, true, 1, 1, 1, 8)[:1])
		add(normCases(d, false, 0, true, true, 5, 7, 7, 2048))
		add(poolCases(d, false, 3, 17, 19, 64, 3, 2, 1))
		add(poolCases(d, false, 2, 9, 9, 5, 3, 2, 1))
		add(poolCases(d, false, 2, 8, 8, 16, 2, 2, 0))
		add(poolCases(d, false, 2, 8, 8, 24, 3, 1, 1))
		add(poolCases(d, false, 3, 12, 11, 16, 3, 2, 1))
		add(poolCases(d, false, 2, 9, 9, 16, 2, 1, 1))
		add(averageCases(d, false, 5, 7, 96))
		add(averageCases(d, false, 3, 4, 5))
		add(lossCases(d, false, 37, 10, 0))
		add(lossCases(d, false, 19, 1000, 0.1))
		add(pointCases(d, false, 0, 3, 5, 7, 8))
		add(pointCases(d, false, 4, 3, 5, 7, 3))
		add(pointCases(d, false, 0, 100, 1000))
	}
	add(rangeCases(false, 0, 29216, spans))
	add(rangeCases(false, 4, 29217, spans))
	add(smallCases())
	add(stemCases(false, 3, 32, 32, 16, 7, 2, 3))
	add(stemCases(false, 2, 15, 18, 5, 7, 2, 3))
	add(stemCases(false, 5, 9, 7, 8, 3, 1, 1))
	add(stemCases(false, 2, 8, 10, 4, 5, 2, 2))

	for _, n := range []int{16, 64, 256} {
		add(stemCases(true, n, 224, 224, 64, 7, 2, 3))
	}
	add(stemCases(true, 16, 32, 32, 64, 3, 1, 1))
	for _, n := range []int{16, 64, 256} {
		for _, s := range [][2]int{{112, 64}, {56, 64}, {56, 256}, {28, 512}, {14, 1024}, {7, 512}, {7, 2048}} {
			if n == 256 && s[0] < 56 {
				continue
			}
			add(normCases(f16Type, true, 0, true, false, n, s[0], s[0], s[1])[:2])
			add(leanCases(f16Type, true, false, n, s[0], s[0], s[1])[:2])
			if s[1] >= 256 {
				add(normCases(f16Type, true, 0, true, true, n, s[0], s[0], s[1])[:2])
				add(leanCases(f16Type, true, true, n, s[0], s[0], s[1]))
			}
		}
		add(poolCases(f16Type, true, n, 112, 112, 64, 3, 2, 1))
		add(averageCases(f16Type, true, n, 7, 2048))
		add(lossCases(f16Type, true, n, 1000, 0)[:1])
		add(pointCases(f16Type, true, 0, n, 56, 56, 256)[:3])
		add(pointCases(f16Type, true, 0, n, 224, 224, 3)[3:4])
		add(fcCases(f16Type, true, n, 2048, 1000))
	}
	add(normCases(f16Type, true, 0, true, true, 16, 32, 32, 64)[:2])
	add(normCases(f16Type, true, 0, true, true, 16, 4, 4, 512)[:2])
	add(normCases(f16Type, true, 0, true, true, 256, 32, 32, 64)[:2])
	add(normCases(f32Type, true, 0, true, true, 64, 56, 56, 256)[:2])
	add(convCases(f16Type, true, 64, 56, 56, 64, 64, 3, 1, 1))
	add(convCases(f32Type, true, 64, 14, 14, 256, 1024, 1, 1, 0))
	add(rangeCases(true, 0, 25_600_000, resnet50Spans()))
	return all
}

// resnet50Spans are the decayed tensors of resnet50.
func resnet50Spans() (spans []workloads.Span) {
	w, err := workloads.New(workloads.Spec{Model: "resnet50", Batch: 1}, workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		panic(err)
	}
	base := w.Tensor(w.Known.Params).Region.Off
	for _, name := range w.Parameters() {
		p, _ := w.Lookup(name)
		if len(p.Dims.Fixed) > 1 {
			spans = append(spans, workloads.Span{Off: int(p.Region.Off-base) / 4, Len: p.Dims.Fixed.Elems()})
		}
	}
	return spans
}

// TestCases plans check.py's cases and, with -cases, writes them for it.
func TestCases(t *testing.T) {
	var all []caseJSON
	used := map[string]bool{"empty": true, "gate": true, "burn": true}
	for _, b := range checkCases() {
		c := b.json(t)
		for _, l := range c.Launches {
			used[l.Kernel] = true
		}
		all = append(all, c)
	}
	for _, k := range table {
		if !used[k.Name] {
			t.Errorf("no case checks %s", k.Name)
		}
	}
	if *casesFile == "" {
		return
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*casesFile, text, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases, %d bytes", len(all), len(text))
}
