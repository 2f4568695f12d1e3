package workloads

import "fmt"

// transfer emits TRANSFER_h: the whole pinned half into the arena, then the
// images normalised to the activation type, so that the stem's forward and
// backward read their half directly.
func (b *builder) transfer(h Half) {
	k := b.w.Known
	b.add(Node{Name: "copy", Op: OpCopyIn, In: []TensorID{k.Pinned[h]}, Out: []TensorID{k.Raw[h]}})
	var inv [3]float32
	for i, s := range b.model.std {
		inv[i] = 1 / s
	}
	b.add(Node{
		Name: "normalize", Op: OpNormalize, In: []TensorID{b.id("raw_images_" + h.String())}, Out: []TensorID{b.id("images_flat_" + h.String())},
		Attr: Attr{Mean: b.model.mean, InvStd: inv},
	})
}

func (b *builder) zeroGrad() {
	out := []TensorID{b.w.Known.Grads}
	if b.amp() {
		out = append(out, b.id("half_grads"))
	}
	b.add(Node{Name: "zero", Op: OpZero, Out: append(out, b.w.Known.Step)})
}

// ranges of elements in every parameter range, by what they are for.
func (b *builder) deepRange() Span     { return Span{0, b.params.stem} }
func (b *builder) stemRange() Span     { return Span{b.params.stem, b.params.total - b.params.stem} }
func (b *builder) deepHalfRange() Span { return Span{0, b.params.plain} }
func (b *builder) stemConvRange() Span {
	return Span{b.params.stemWeight, b.params.total - b.params.stemWeight}
}
func (b *builder) trainedRange() Span  { return Span{0, b.end()} }
func (b *builder) deepConvRange() Span { return Span{0, b.params.fcWeight} }
func (b *builder) fcWeightRange() Span {
	return Span{b.params.fcWeight, b.params.plain - b.params.fcWeight}
}
func (b *builder) undecayedRange() Span {
	return Span{b.params.plain, min(b.params.stemWeight, b.end()) - b.params.plain}
}

// end is where trained parameters end: a frozen stem is the tail.
func (b *builder) end() int {
	if b.spec.FreezeStem {
		return b.params.stem
	}
	return b.params.total
}

// rangeOf is a view of elements s of a parameter range.
func (b *builder) rangeOf(base string, s Span) TensorID {
	if s.Off == 0 && s.Len == b.params.total {
		return b.id(base)
	}
	return b.part(fmt.Sprintf("%s[%d:%d]", base, s.Off, s.Off+s.Len), b.id(base), s.Off, s.Len)
}

func (b *builder) cast(name, from, to string, s Span) {
	b.add(Node{Name: name, Op: OpCast, In: []TensorID{b.rangeOf(from, s)}, Out: []TensorID{b.rangeOf(to, s)}})
}

func (b *builder) allReduce(name string, r TensorID, mean bool) {
	b.add(Node{Name: name, Op: OpAllReduce, Collective: true, In: []TensorID{r}, Out: []TensorID{r}, Attr: Attr{AllMean: mean}})
}

func (b *builder) nanCheck() {
	k := b.w.Known
	b.add(Node{Name: "check", Op: OpFiniteCheck, In: []TensorID{k.Grads}, Out: []TensorID{k.Scalars}})
	if b.amp() {
		b.add(Node{Name: "unscale", Op: OpUnscale, In: []TensorID{k.Grads, k.Scalars}, Out: []TensorID{k.Grads}})
	}
	b.add(Node{
		Name: "control", Op: OpControl, In: []TensorID{k.RateTable, k.Scalars}, Out: []TensorID{k.Scalars}, DeviceControl: true,
		Attr: Attr{Control: b.w.ControlRule()},
	})
}

// ControlRule is the rule that OpControl and --control=host apply.
func (w *Workload) ControlRule() ControlRule {
	h := w.Spec.Hyper
	return ControlRule{
		Dynamic: w.Spec.Precision == AMP, GrowthInterval: h.GrowthInterval, StopAfter: h.StopAfter,
		Rates: len(h.LearningRates),
	}
}

// sgd emits the update of a range, or of each tensor in it.
func (b *builder) sgd(s Span, decay float32) {
	h := b.spec.Hyper
	attr := Attr{Momentum: h.Momentum, Decay: decay, Nesterov: b.spec.Optimizer == Nesterov}
	b.eachTensor(s, func(name string, s Span) {
		b.add(Node{Name: "sgd." + name, Op: OpSGD, In: b.updateIn(s), Out: b.updateOut(s), Attr: attr})
	})
}

// lars emits layer-wise updates of a range.
func (b *builder) lars(s Span) {
	h := b.spec.Hyper
	b.eachTensor(s, func(name string, r Span) {
		attr := Attr{Momentum: h.Momentum, Decay: h.WeightDecay, Trust: h.Trust}
		for _, p := range b.params.list {
			if p.off >= r.Off && p.off < r.Off+r.Len {
				attr.Spans = append(attr.Spans, Span{p.off - r.Off, p.shape.Elems()})
			}
		}
		b.add(Node{Name: "lars." + name, Op: OpLARS, In: b.updateIn(r), Out: b.updateOut(r), Attr: attr})
	})
}

func (b *builder) updateIn(s Span) []TensorID {
	return []TensorID{b.rangeOf("params", s), b.rangeOf("grads", s), b.rangeOf("momentum", s), b.w.Known.Scalars}
}

func (b *builder) updateOut(s Span) []TensorID {
	return []TensorID{b.rangeOf("params", s), b.rangeOf("momentum", s)}
}

// eachTensor calls f once for the range, or with a plain lowering once for
// each parameter in it.
func (b *builder) eachTensor(s Span, f func(name string, s Span)) {
	if s.Len <= 0 {
		return
	}
	if b.w.Target.Lowering.MultiTensor {
		f(fmt.Sprintf("range%d", s.Off), s)
		return
	}
	for _, p := range b.params.list {
		if p.off >= s.Off && p.off < s.Off+s.Len {
			f(p.name, p.span())
		}
	}
}

func (b *builder) optimizer() {
	h := b.spec.Hyper
	plain := float32(0)
	if h.DecayBatchNorm {
		plain = h.WeightDecay
	}
	if b.spec.Optimizer != LARS {
		b.sgd(b.deepHalfRange(), h.WeightDecay)
	}
	b.sgd(b.undecayedRange(), plain)
	if b.spec.Optimizer != LARS && !b.spec.FreezeStem {
		b.sgd(b.stemConvRange(), h.WeightDecay)
	}
}

func (b *builder) bnInfer(params, inf string) {
	var spans []NormSpan
	l := b.norms
	for _, n := range l.names {
		off, pitch := l.off[n], l.pitch(n)
		spans = append(spans, NormSpan{
			Gamma: b.params.find(n + ".gamma").off, Beta: b.params.find(n + ".beta").off,
			Mean: off, Var: off + pitch, Scale: off, Bias: off + pitch, C: l.c[n],
		})
	}
	b.add(Node{
		Name: "infer." + params, Op: OpBNInfer, In: []TensorID{b.id(params), b.w.Known.Running}, Out: []TensorID{b.id(inf)},
		Attr: Attr{Eps: b.spec.Hyper.BNEpsilon, Norms: spans},
	})
}

func (b *builder) accum(count int) {
	slots := 1
	if b.spec.EMA {
		slots = 2
	}
	k := b.w.Known
	b.add(Node{Name: "accum", Op: OpAccum, In: []TensorID{k.Step}, Out: []TensorID{k.Metrics}, Attr: Attr{Count: float32(count), Slots: slots}})
}

// simpleLinks is the length of SIMPLE_TASK_GRAPH.
const simpleLinks = 20

// simpleElems is the size of a link's tensor.
const simpleElems = 1024

// simple emits a chain that stands alone: its state goes round, so every run
// changes it.
func (b *builder) simple() {
	first := b.static("simple_0", RoleState, F32, Shape{simpleElems})
	prev := first
	for i := 1; i <= simpleLinks; i++ {
		next := first
		if i < simpleLinks {
			next = b.activation(fmt.Sprintf("simple_%d", i), F32, Dims{Fixed: Shape{simpleElems}})
		}
		b.add(Node{Name: fmt.Sprintf("link%d", i), Op: OpChain, In: []TensorID{prev}, Out: []TensorID{next}})
		prev = next
	}
}

// rangeOp says which operators work on regions.
func rangeOp(o Op) bool { return o >= OpCopyIn && o < numOps }

// emptyBecause says why a sub-graph is empty for a spec, or "".
func (s Spec) emptyBecause(g SubGraph) string {
	needs := func(ok bool, why string) string {
		if ok {
			return ""
		}
		return why
	}
	amp := needs(s.Precision == AMP, "AMP only")
	trained := needs(!s.FreezeStem, "the stem is frozen")
	ranks := needs(s.Ranks > 1, "one rank")
	ema := needs(s.EMA, "no EMA")
	lars := needs(s.Optimizer == LARS, "LARS only")
	norms := needs(!s.NoBatchNorm, "no batch norm")
	first := func(reasons ...string) string {
		for _, r := range reasons {
			if r != "" {
				return r
			}
		}
		return ""
	}
	switch g {
	case FirstLayerBwdA, FirstLayerBwdB:
		return trained
	case CastDeepGrad, CastMain:
		return amp
	case CastFirstGrad:
		return first(amp, trained)
	case DeepComm, ValResultComm:
		return ranks
	case FirstComm:
		return first(ranks, trained)
	case StatsComm:
		return first(ranks, norms)
	case UpdateStats, UpdateBNInf:
		return norms
	case LARSFC, LARSDeepConv:
		return lars
	case LARSFirstConv:
		return first(lars, trained)
	case EMAUpdate, InfEMAA, InfEMAB:
		return ema
	case CastEMA:
		return first(amp, ema)
	}
	return ""
}

// build emits every sub-graph.
func (b *builder) build() {
	emit := func(g SubGraph, f func()) {
		if b.spec.emptyBecause(g) == "" {
			b.g = g
			f()
		}
	}
	k := b.w.Known
	emit(TransferA, func() { b.transfer(A) })
	emit(TransferB, func() { b.transfer(B) })
	emit(ZeroGrad, b.zeroGrad)
	var stem [2]stemUnit
	emit(FirstLayerFwdA, func() { stem[A] = b.stemForward(A) })
	emit(FirstLayerFwdB, func() { stem[B] = b.stemForward(B) })
	var d gradient
	emit(DeepFwdBwd, func() { d = b.deep(stem[A]) })
	emit(FirstLayerBwdA, func() { b.stemBackward(stem[A], d) })
	emit(FirstLayerBwdB, func() { b.stemBackward(stem[B], d) })
	emit(CastDeepGrad, func() { b.cast("cast", "half_grads", "grads", b.deepHalfRange()) })
	emit(CastFirstGrad, func() { b.cast("cast", "half_grads", "grads", b.stemConvRange()) })
	emit(DeepComm, func() { b.allReduce("deep", b.rangeOf("grads", b.deepRange()), true) })
	emit(FirstComm, func() { b.allReduce("stem", b.rangeOf("grads", b.stemRange()), true) })
	emit(NaNCheck, b.nanCheck)
	emit(StatsComm, func() { b.allReduce("stats", b.id("stats"), true) })
	emit(UpdateStats, func() {
		b.add(Node{Name: "fold", Op: OpUpdateStats, In: []TensorID{b.id("stats"), k.Running}, Out: []TensorID{k.Running}, Attr: Attr{Momentum: b.spec.Hyper.BNMomentum}})
	})
	emit(OptimizerUpdate, b.optimizer)
	emit(LARSFC, func() { b.lars(b.fcWeightRange()) })
	emit(LARSFirstConv, func() { b.lars(b.stemConvRange()) })
	emit(LARSDeepConv, func() { b.lars(b.deepConvRange()) })
	emit(EMAUpdate, func() {
		r := b.trainedRange()
		ema := b.rangeOf("ema", r)
		b.add(Node{Name: "ema", Op: OpEMA, In: []TensorID{b.rangeOf("params", r), ema, k.Scalars}, Out: []TensorID{ema}, Attr: Attr{Decay: b.spec.Hyper.EMADecay}})
	})
	emit(CastMain, func() {
		b.cast("cast.deep", "params", "half", b.deepHalfRange())
		b.cast("cast.stem", "params", "half", b.stemConvRange())
	})
	emit(CastEMA, func() {
		b.cast("cast.deep", "ema", "half_ema", b.deepHalfRange())
		b.cast("cast.stem", "ema", "half_ema", b.stemConvRange())
	})
	emit(UpdateBNInf, func() {
		b.bnInfer("params", "inf")
		if b.spec.EMA {
			b.bnInfer("ema", "inf_ema")
		}
	})
	emit(InfMainA, func() { b.inference(A, false) })
	emit(InfMainB, func() { b.inference(B, false) })
	emit(InfEMAA, func() { b.inference(A, true) })
	emit(InfEMAB, func() { b.inference(B, true) })
	emit(AccumMetrics, func() { b.accum(b.spec.Batch) })
	emit(AccumTrainLast, func() { b.accum(b.spec.LastTrainBatch) })
	emit(AccumValLast, func() { b.accum(b.spec.LastValBatch) })
	emit(ValResultComm, func() { b.allReduce("metrics", k.Metrics, false) })
	emit(ClearMetrics, func() { b.add(Node{Name: "clear", Op: OpZero, Out: []TensorID{k.Metrics}}) })
	emit(SimpleTask, b.simple)
	for g := range b.nodes {
		for _, n := range b.nodes[g] {
			n.Range = rangeOp(n.Op)
		}
	}
}
