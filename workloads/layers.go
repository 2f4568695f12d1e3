package workloads

// value is an activation with its place in the network.
type value struct {
	id      TensorID
	down, c int // image side is resolution/down; down 0 is a vector
}

func (v value) dims() Dims { return Dims{PerImage: true, Down: v.down, C: v.c} }

// unit is a convolution with what follows it: batch norm, the residual sum,
// ReLU. It remembers what its backward pass needs.
type unit struct {
	conv         convShape
	x, out       value
	y            TensorID // the convolution's output
	mean, invstd TensorID
	mask         TensorID // of the output's values above 0; NoTensor if there is none
	relu, add    bool
}

func (c convShape) attr() Attr {
	return Attr{R: c.kernel, S: c.kernel, Stride: c.stride, Pad: c.pad}
}

// forward emits a unit. z, if any, is added before ReLU.
func (b *builder) forward(c convShape, x value, relu bool, z *value) unit {
	u := unit{conv: c, x: x, relu: relu, add: z != nil, mask: NoTensor}
	u.out = value{down: x.down * c.stride, c: c.out}
	u.y = b.activation("act:"+c.name, b.act, u.out.dims())
	b.add(Node{Name: c.name + ".fwd", Op: OpConv, In: []TensorID{x.id, b.weight(c.name+".weight", false)}, Out: []TensorID{u.y}, Attr: c.attr()})
	last := u.y
	fuse := b.w.Target.Lowering.FusedNorm
	if !b.spec.NoBatchNorm {
		last = b.norm(&u, z, fuse)
		if fuse {
			u.out.id = last
			return u
		}
	}
	if z != nil {
		sum := b.activation("sum:"+c.norm, b.act, u.out.dims())
		b.add(Node{Name: c.norm + ".add", Op: OpAdd, In: []TensorID{last, z.id}, Out: []TensorID{sum}})
		last = sum
	}
	if relu {
		y := b.activation("relu:"+c.norm, b.act, u.out.dims())
		b.add(Node{Name: c.norm + ".relu", Op: OpReLU, In: []TensorID{last}, Out: []TensorID{y}})
		last = y
	}
	u.out.id = last
	return u
}

// norm emits the batch norm of a unit and returns its output.
func (b *builder) norm(u *unit, z *value, fuse bool) TensorID {
	c := u.conv
	groups := b.spec.BatchNormGroups
	u.mean = b.activation("mean:"+c.norm, F32, Dims{Fixed: Shape{groups * c.out}})
	u.invstd = b.activation("invstd:"+c.norm, F32, Dims{Fixed: Shape{groups * c.out}})
	out := b.activation("act:"+c.norm, b.act, u.out.dims())
	n := Node{
		Name: c.norm + ".fwd", Op: OpBatchNorm,
		In:   []TensorID{u.y, b.id(c.norm + ".gamma"), b.id(c.norm + ".beta")},
		Out:  []TensorID{out, u.mean, u.invstd, b.id(c.norm + ".stat_mean"), b.id(c.norm + ".stat_var")},
		Attr: Attr{Eps: b.spec.Hyper.BNEpsilon, Groups: groups, Unbiased: b.spec.Hyper.UnbiasedVariance},
	}
	if fuse {
		n.Attr.ReLU, n.Attr.Add = u.relu, u.add
		if z != nil {
			n.In = append(n.In, z.id)
		}
		if u.relu && b.w.Target.Lowering.NormMask {
			d := u.out.dims()
			d.C /= MaskRun(b.act, d.C)
			u.mask = b.activation("mask:"+c.norm, U8, d)
			n.Attr.Mask = true
			n.Out = append(n.Out, u.mask)
		}
	}
	b.add(n)
	return out
}

// gradient is a value's gradient: a tensor, or the sum of two that is yet to be
// taken.
type gradient struct {
	id, other TensorID // other is NoTensor if there is one alone
	join      string   // the name of their sum
}

func whole(id TensorID) gradient { return gradient{id: id, other: NoTensor} }

// taken emits a gradient's sum, if it is one.
func (b *builder) taken(g gradient, d Dims) TensorID {
	if g.other == NoTensor {
		return g.id
	}
	sum := b.activation("dx:"+g.join, b.act, d)
	b.add(Node{Name: g.join + ".join.bwd", Op: OpAdd, In: []TensorID{g.id, g.other}, Out: []TensorID{sum}})
	return sum
}

// sums says whether a unit's backward pass takes the sum of two gradients
// itself.
func (b *builder) sums(u unit) bool {
	l := b.w.Target.Lowering
	return l.FusedNorm && l.FusedJoin && !b.spec.NoBatchNorm && u.relu
}

// backward emits a unit's backward pass from the gradient of its output. It
// returns the gradient of its input (NoTensor unless needDX) and, for a unit
// with a residual sum, of the value added.
func (b *builder) backward(u unit, g gradient, needDX bool) (dx, dz TensorID) {
	c := u.conv
	dx, dz = NoTensor, NoTensor
	dy, other := g.id, g.other
	if !b.sums(u) {
		dy, other = b.taken(g, u.out.dims()), NoTensor
	}
	fused := b.w.Target.Lowering.FusedNorm && !b.spec.NoBatchNorm
	if !fused && u.relu {
		d := b.activation("drelu:"+c.norm, b.act, u.out.dims())
		b.add(Node{Name: c.norm + ".relu_bwd", Op: OpReLUBwd, In: []TensorID{u.out.id, dy}, Out: []TensorID{d}})
		dy = d
	}
	if !fused && u.add {
		dz = dy
	}
	if !b.spec.NoBatchNorm {
		dconv := b.activation("dact:"+c.name, b.act, u.out.dims())
		n := Node{
			Name: c.norm + ".bwd", Op: OpBatchNormBwd,
			In:   []TensorID{u.y, dy, b.id(c.norm + ".gamma"), u.mean, u.invstd},
			Out:  []TensorID{dconv, b.id("grad:" + c.norm + ".gamma"), b.id("grad:" + c.norm + ".beta")},
			Attr: Attr{Eps: b.spec.Hyper.BNEpsilon, Groups: b.spec.BatchNormGroups},
		}
		if fused && u.relu {
			n.Attr.ReLU = true
			on := u.out.id
			if u.mask != NoTensor {
				n.Attr.Mask, on = true, u.mask
			}
			n.In = append(n.In, on)
		}
		if other != NoTensor {
			n.Attr.Sum = true
			n.In = append(n.In, other)
		}
		if fused && u.add {
			n.Attr.Add = true
			dz = b.activation("dsum:"+c.norm, b.act, u.out.dims())
			n.Out = append(n.Out, dz)
		}
		b.add(n)
		dy = dconv
	}
	if needDX {
		dx = b.activation("dx:"+c.name, b.act, u.x.dims())
		b.add(Node{Name: c.name + ".bwd_data", Op: OpConvBwdData, In: []TensorID{dy, b.weight(c.name+".weight", false)}, Out: []TensorID{dx}, Attr: c.attr()})
	}
	b.add(Node{Name: c.name + ".bwd_filter", Op: OpConvBwdFilter, In: []TensorID{u.x.id, dy}, Out: []TensorID{b.weightGrad(c.name + ".weight")}, Attr: c.attr()})
	return dx, dz
}

// residual is a block's units, kept for backward.
type residual struct {
	shape    blockShape
	main     []unit
	shortcut *unit
}

func (b *builder) blockForward(s blockShape, x value) (residual, value) {
	r := residual{shape: s}
	z := x
	if s.projected() {
		u := b.forward(s.shortcut(), x, false, nil)
		r.shortcut, z = &u, u.out
	}
	convs := s.main()
	for i, c := range convs {
		var u unit
		if i == len(convs)-1 {
			u = b.forward(c, x, true, &z)
		} else {
			u = b.forward(c, x, true, nil)
		}
		r.main = append(r.main, u)
		x = u.out
	}
	return r, x
}

// blockBackward emits a block's backward pass and returns the gradient of its
// input.
func (b *builder) blockBackward(r residual, d gradient, needDX bool) gradient {
	dz := NoTensor
	for i := len(r.main) - 1; i >= 0; i-- {
		dx, z := b.backward(r.main[i], d, needDX || i > 0)
		if z != NoTensor {
			dz = z
		}
		d = whole(dx)
	}
	if r.shortcut != nil {
		dz, _ = b.backward(*r.shortcut, whole(dz), needDX)
	}
	if !needDX {
		return whole(NoTensor)
	}
	d.other, d.join = dz, r.shape.name
	if !b.w.Target.Lowering.FusedJoin {
		return whole(b.taken(d, r.main[0].x.dims()))
	}
	return d
}

// stemUnit is the first layer, kept for backward.
type stemUnit struct {
	unit  unit
	out   value
	index TensorID
}

var poolAttr = Attr{R: 3, S: 3, Stride: 2, Pad: 1}

// stemForward emits the first layer's forward pass on a half, and the copy of
// the half's labels to the place DEEP_FWD_BWD reads. All but the images is
// shared by the halves.
func (b *builder) stemForward(h Half) stemUnit {
	b.add(Node{Name: "labels", Op: OpCopyLabels, In: []TensorID{b.w.Known.Labels[h]}, Out: []TensorID{b.fixedLabels()}})
	s := stemUnit{unit: b.forward(b.model.convs()[0], value{b.w.Known.Images[h], 1, 3}, true, nil)}
	s.out = s.unit.out
	if b.model.stem.pool {
		s.out = value{down: s.unit.out.down * 2, c: s.unit.out.c}
		s.out.id = b.activation("act:stem.pool", b.act, s.out.dims())
		s.index = b.activation("index:stem.pool", U8, s.out.dims())
		b.add(Node{Name: "stem.pool.fwd", Op: OpMaxPool, In: []TensorID{s.unit.out.id}, Out: []TensorID{s.out.id, s.index}, Attr: poolAttr})
	}
	return s
}

// stemBackward emits the first layer's backward pass.
func (b *builder) stemBackward(s stemUnit, dy gradient) {
	if b.model.stem.pool {
		d := b.activation("dx:stem.pool", b.act, s.unit.out.dims())
		b.add(Node{Name: "stem.pool.bwd", Op: OpMaxPoolBwd, In: []TensorID{dy.id, s.index}, Out: []TensorID{d}, Attr: poolAttr})
		dy = whole(d)
	}
	b.backward(s.unit, dy, false)
}

// fixedLabels is the place DEEP_FWD_BWD reads labels from.
func (b *builder) fixedLabels() TensorID {
	if id, ok := b.byName["labels.step"]; ok {
		return id
	}
	return b.view("labels.step", b.id("labels"), I32, 0, Dims{PerImage: true}, b.spec.Batch)
}

// deep emits DEEP_FWD_BWD and returns the gradient of the stem's output.
func (b *builder) deep(s stemUnit) gradient {
	x := s.out
	var blocks []residual
	for _, shape := range b.model.blocks {
		var r residual
		r, x = b.blockForward(shape, x)
		blocks = append(blocks, r)
	}
	pooled := value{down: 0, c: x.c}
	pooled.id = b.activation("act:pool", b.act, pooled.dims())
	b.add(Node{Name: "pool.fwd", Op: OpAvgPool, In: []TensorID{x.id}, Out: []TensorID{pooled.id}})
	logits := b.activation("act:fc", b.act, Dims{PerImage: true, C: b.model.classes})
	fcw := b.weight("fc.weight", false)
	b.add(Node{Name: "fc.fwd", Op: OpFC, In: []TensorID{pooled.id, fcw, b.id("fc.bias")}, Out: []TensorID{logits}})
	k := b.w.Known
	dlogits := b.activation("dact:fc", b.act, Dims{PerImage: true, C: b.model.classes})
	b.add(Node{
		Name: "loss", Op: OpLoss, In: []TensorID{logits, b.fixedLabels(), k.Scalars, k.Step}, Out: []TensorID{dlogits, k.Step},
		Attr: Attr{Smoothing: float32(b.spec.Smoothing)},
	})
	dpool := b.activation("dx:fc", b.act, pooled.dims())
	b.add(Node{Name: "fc.bwd_data", Op: OpFCBwdData, In: []TensorID{dlogits, fcw}, Out: []TensorID{dpool}})
	b.add(Node{Name: "fc.bwd_filter", Op: OpFCBwdFilter, In: []TensorID{pooled.id, dlogits}, Out: []TensorID{b.weightGrad("fc.weight"), b.id("grad:fc.bias")}})
	d := whole(b.activation("dx:pool", b.act, x.dims()))
	b.add(Node{Name: "pool.bwd", Op: OpAvgPoolBwd, In: []TensorID{dpool}, Out: []TensorID{d.id}})
	for i := len(blocks) - 1; i >= 0; i-- {
		d = b.blockBackward(blocks[i], d, i > 0 || !b.spec.FreezeStem)
	}
	if b.model.stem.pool || !b.sums(s.unit) {
		d = whole(b.taken(d, s.out.dims())) // here once, and not in both halves' backward
	}
	if b.spec.Inject {
		g := b.weightGrad(b.model.convs()[1].name + ".weight")
		b.add(Node{Name: "inject", Op: OpInject, In: []TensorID{k.Scalars}, Out: []TensorID{g}})
	}
	return d
}

// inference emits INF_MAIN or INF_EMA on a half. Its activations are named
// once a network and shared by the halves.
func (b *builder) inference(h Half, ema bool) {
	prefix := "inf"
	if ema {
		prefix = "inf_ema"
	}
	e := evaluator{b: b, prefix: prefix, ema: ema}
	c := b.model.convs()[0]
	x := e.unit(c, value{b.w.Known.Images[h], 1, 3}, true, nil)
	if b.model.stem.pool {
		y := value{down: x.down * 2, c: x.c}
		y.id = e.act("stem.pool", b.act, y.dims())
		b.add(Node{Name: "stem.pool.inf", Op: OpMaxPool, In: []TensorID{x.id}, Out: []TensorID{y.id, e.act("stem.pool.index", U8, y.dims())}, Attr: poolAttr})
		x = y
	}
	for _, s := range b.model.blocks {
		z := x
		if s.projected() {
			z = e.unit(s.shortcut(), x, false, nil)
		}
		convs := s.main()
		for i, c := range convs {
			if i == len(convs)-1 {
				x = e.unit(c, x, true, &z)
			} else {
				x = e.unit(c, x, true, nil)
			}
		}
	}
	pooled := value{down: 0, c: x.c}
	pooled.id = e.act("pool", b.act, pooled.dims())
	b.add(Node{Name: "pool.inf", Op: OpAvgPool, In: []TensorID{x.id}, Out: []TensorID{pooled.id}})
	logits := e.act("fc", b.act, Dims{PerImage: true, C: b.model.classes})
	bias, slot := "fc.bias", 0
	if ema {
		bias, slot = "ema:fc.bias", 1
	}
	b.add(Node{Name: "fc.inf", Op: OpFC, In: []TensorID{pooled.id, b.weight("fc.weight", ema), b.id(bias)}, Out: []TensorID{logits}})
	b.add(Node{Name: "loss.inf", Op: OpLossEval, In: []TensorID{logits, b.w.Known.Labels[h]}, Out: []TensorID{b.w.Known.Step}, Attr: Attr{Slot: slot}})
}

type evaluator struct {
	b      *builder
	prefix string
	ema    bool
}

// act is an activation of this network.
func (e evaluator) act(name string, dt DType, d Dims) TensorID {
	return e.b.activation(e.prefix+":"+name, dt, d)
}

func (e evaluator) unit(c convShape, x value, relu bool, z *value) value {
	b := e.b
	out := value{down: x.down * c.stride, c: c.out}
	last := e.act(c.name, b.act, out.dims())
	b.add(Node{Name: c.name + ".inf", Op: OpConv, In: []TensorID{x.id, b.weight(c.name+".weight", e.ema)}, Out: []TensorID{last}, Attr: c.attr()})
	fuse := b.w.Target.Lowering.FusedNorm
	done := false
	if !b.spec.NoBatchNorm {
		prefix := ""
		if e.ema {
			prefix = "ema:"
		}
		y := e.act(c.norm, b.act, out.dims())
		n := Node{Name: c.norm + ".inf", Op: OpAffine, In: []TensorID{last, b.id(prefix + c.norm + ".scale"), b.id(prefix + c.norm + ".bias")}, Out: []TensorID{y}}
		if fuse {
			n.Attr.ReLU, n.Attr.Add = relu, z != nil
			if z != nil {
				n.In = append(n.In, z.id)
			}
			done = true
		}
		b.add(n)
		last = y
	}
	if !done && z != nil {
		y := e.act(c.norm+".sum", b.act, out.dims())
		b.add(Node{Name: c.norm + ".add.inf", Op: OpAdd, In: []TensorID{last, z.id}, Out: []TensorID{y}})
		last = y
	}
	if !done && relu {
		y := e.act(c.norm+".relu", b.act, out.dims())
		b.add(Node{Name: c.norm + ".relu.inf", Op: OpReLU, In: []TensorID{last}, Out: []TensorID{y}})
		last = y
	}
	out.id = last
	return out
}
