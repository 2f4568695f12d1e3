package workloads

import "fmt"

// builder makes tensors and nodes for one spec. Static tensors (state, input,
// step results) get their offsets at once; activations wait for the plan.
type builder struct {
	w      *Workload
	spec   Spec
	model  model
	params *params
	norms  *normLayout
	byName map[string]TensorID
	act    DType // activation type
	arena  int64 // end of the static part
	pinned int64
	seq    int
	nodes  [NumSubGraphs][]*Node
	g      SubGraph // the one being built
}

func align(n int64) int64 { return (n + Alignment - 1) / Alignment * Alignment }

func (b *builder) amp() bool { return b.spec.Precision == AMP }

// tensor registers a tensor and returns its id.
func (b *builder) tensor(t Tensor) TensorID {
	if _, dup := b.byName[t.Name]; dup {
		panic("workloads: two tensors named " + t.Name)
	}
	t.ID = TensorID(len(b.w.Tensors))
	b.w.Tensors = append(b.w.Tensors, t)
	b.byName[t.Name] = t.ID
	return t.ID
}

// static registers a tensor with bytes of its own.
func (b *builder) static(name string, role Role, dt DType, shape Shape) TensorID {
	t := Tensor{Name: name, DType: dt, Role: role, Dims: Dims{Fixed: shape}}
	t.Region = Region{Arena, b.arena, int64(shape.Elems()) * dt.Bytes()}
	b.arena = align(t.Region.End())
	return b.tensor(t)
}

// view registers a tensor that lies inside another: elements off.. of base,
// counted in dt.
func (b *builder) view(name string, base TensorID, dt DType, off int, d Dims, elems int) TensorID {
	t := b.w.Tensors[base]
	r := Region{t.Region.Space, t.Region.Off + int64(off)*dt.Bytes(), int64(elems) * dt.Bytes()}
	if r.End() > t.Region.End() {
		panic("workloads: view " + name + " leaves " + t.Name)
	}
	return b.tensor(Tensor{Name: name, DType: dt, Role: t.Role, Dims: d, Region: r})
}

// part is a view of fixed shape.
func (b *builder) part(name string, base TensorID, off, elems int) TensorID {
	if id, ok := b.byName[name]; ok {
		return id
	}
	return b.view(name, base, b.w.Tensors[base].DType, off, Dims{Fixed: Shape{elems}}, elems)
}

// activation registers a tensor of the plan. The halves' twins of a sub-graph
// share theirs, so a name met again is the same tensor; [Workload.CheckData]
// reports one that two nodes of a chain write.
func (b *builder) activation(name string, dt DType, d Dims) TensorID {
	if id, ok := b.byName[name]; ok {
		return id
	}
	return b.tensor(Tensor{Name: name, DType: dt, Role: RoleActivation, Dims: d})
}

func (b *builder) id(name string) TensorID {
	id, ok := b.byName[name]
	if !ok {
		panic("workloads: no tensor " + name)
	}
	return id
}

// add appends a node to the sub-graph being built.
func (b *builder) add(n Node) {
	n.seq = b.seq
	b.seq++
	b.nodes[b.g] = append(b.nodes[b.g], &n)
}

// statics makes everything that does not depend on liveness.
func (b *builder) statics() {
	k := &b.w.Known
	n := b.params.total
	k.Scalars = b.static("scalars", RoleState, F32, Shape{ScalarWords})
	k.RateTable = b.static("rate_table", RoleState, F32, Shape{MaxLearningRates})
	k.Metrics = b.static("metrics", RoleState, F32, Shape{2 * MetricWords})
	k.Params = b.static("params", RoleState, F32, Shape{n})
	k.Momentum = b.static("momentum", RoleState, F32, Shape{n})
	k.EMA, k.Running = NoTensor, NoTensor
	if b.spec.EMA {
		k.EMA = b.static("ema", RoleState, F32, Shape{n})
	}
	if b.amp() {
		b.static("half", RoleState, F16, Shape{n})
		if b.spec.EMA {
			b.static("half_ema", RoleState, F16, Shape{n})
		}
	}
	if !b.spec.NoBatchNorm {
		k.Running = b.static("running", RoleState, F32, Shape{b.norms.total})
		b.static("inf", RoleState, F32, Shape{b.norms.total})
		if b.spec.EMA {
			b.static("inf_ema", RoleState, F32, Shape{b.norms.total})
		}
	}
	k.Grads = b.static("grads", RoleStep, F32, Shape{n})
	if b.amp() {
		b.static("half_grads", RoleStep, F16, Shape{n})
	}
	if !b.spec.NoBatchNorm {
		b.static("stats", RoleStep, F32, Shape{b.norms.total})
	}
	k.Step = b.static("step", RoleStep, F32, Shape{StepWords})
	b.static("labels", RoleStep, I32, Shape{b.spec.Batch})
	b.inputs()
	b.parameterViews()
	b.normViews()
}

// inputs makes the pinned halves, their raw copies and the normalised images.
func (b *builder) inputs() {
	k := &b.w.Known
	side := max(b.spec.BeginResolution, b.spec.FinalResolution)
	pixels := b.spec.Batch * side * side * 3
	k.LabelsOffset = align(int64(pixels))
	bytes := int(k.LabelsOffset) + b.spec.Batch*4
	for h := A; h <= B; h++ {
		pin := Tensor{Name: "pinned_" + h.String(), DType: U8, Role: RoleHost, Dims: Dims{Fixed: Shape{bytes}}}
		pin.Region = Region{Pinned, b.pinned, int64(bytes)}
		b.pinned = align(pin.Region.End())
		k.Pinned[h] = b.tensor(pin)
		k.Raw[h] = b.static("raw_"+h.String(), RoleInput, U8, Shape{bytes})
		b.view("raw_images_"+h.String(), k.Raw[h], U8, 0, Dims{Fixed: Shape{pixels}}, pixels)
		k.Labels[h] = b.view("labels_"+h.String(), k.Raw[h], I32, int(k.LabelsOffset/4), Dims{PerImage: true}, b.spec.Batch)
		flat := b.static("images_flat_"+h.String(), RoleInput, b.act, Shape{pixels})
		k.Images[h] = b.view("images_"+h.String(), flat, b.act, 0, Dims{PerImage: true, Down: 1, C: 3}, pixels)
	}
}

// parameterViews names each parameter in each range: "NAME", "grad:NAME",
// "momentum:NAME", "ema:NAME", and for half types "half:", "half_grad:",
// "half_ema:".
func (b *builder) parameterViews() {
	for _, r := range []struct{ prefix, base string }{
		{"", "params"}, {"grad:", "grads"}, {"momentum:", "momentum"}, {"ema:", "ema"},
		{"half:", "half"}, {"half_grad:", "half_grads"}, {"half_ema:", "half_ema"},
	} {
		base, ok := b.byName[r.base]
		if !ok {
			continue
		}
		dt := b.w.Tensors[base].DType
		for _, p := range b.params.list {
			if dt == F32 || p.half {
				b.view(r.prefix+p.name, base, dt, p.off, Dims{Fixed: p.shape}, p.shape.Elems())
			}
		}
	}
}

// normViews names each norm's vectors in the running, batch and inference
// ranges.
func (b *builder) normViews() {
	for _, r := range []struct{ base, format1, format2 string }{
		{"running", "%s.running_mean", "%s.running_var"}, {"stats", "%s.stat_mean", "%s.stat_var"},
		{"inf", "%s.scale", "%s.bias"}, {"inf_ema", "ema:%s.scale", "ema:%s.bias"},
	} {
		base, ok := b.byName[r.base]
		if !ok {
			continue
		}
		for _, n := range b.norms.names {
			c, off := b.norms.c[n], b.norms.off[n]
			b.view(fmt.Sprintf(r.format1, n), base, F32, off, Dims{Fixed: Shape{c}}, c)
			b.view(fmt.Sprintf(r.format2, n), base, F32, off+b.norms.pitch(n), Dims{Fixed: Shape{c}}, c)
		}
	}
}

// weight returns the tensor a forward pass reads a weight from.
func (b *builder) weight(name string, ema bool) TensorID {
	prefix := ""
	if b.amp() {
		prefix = "half"
		if ema {
			prefix += "_ema"
		}
		prefix += ":"
	} else if ema {
		prefix = "ema:"
	}
	return b.id(prefix + name)
}

// weightGrad returns the tensor backward writes a weight's gradient to.
func (b *builder) weightGrad(name string) TensorID {
	if b.amp() {
		return b.id("half_grad:" + name)
	}
	return b.id("grad:" + name)
}
