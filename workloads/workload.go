package workloads

import (
	"cmp"
	"fmt"
	"slices"
)

// Workload is a spec made concrete for a target. It is immutable and safe for
// concurrent use.
type Workload struct {
	Spec    Spec
	Target  Target
	Tensors []Tensor
	// ArenaBytes and PinnedBytes are what one rank needs. Offsets are
	// multiples of [Alignment].
	ArenaBytes, PinnedBytes int64
	// Scratch is each stream's scratch region (may be empty).
	Scratch [NumStreams]Region
	// Known names the tensors that code outside this package touches.
	Known Known

	model  model
	byName map[string]TensorID
	base   map[TensorID]bool
	nodes  [NumSubGraphs][]*Node
	slots  [NumVariants][NumSubGraphs]Slot
	bounds [2][NumVariants][NumSubGraphs][]*Bound // by control
	memory Memory
}

// Alignment is the alignment of every tensor, in bytes.
const Alignment = 256

// Known names the tensors that code outside this package touches. Absent ones
// are NoTensor.
type Known struct {
	Scalars, RateTable, Step, Metrics TensorID
	Pinned                            [2]TensorID // images (U8) then labels; RoleHost
	Raw                               [2]TensorID // the same bytes in the arena
	Images                            [2]TensorID // normalised, type T
	Labels                            [2]TensorID // I32, a view of Raw
	// LabelsOffset is where labels begin inside Pinned and Raw, in bytes.
	LabelsOffset                 int64
	Params, Grads, Momentum, EMA TensorID // whole F32 ranges
	Running                      TensorID
}

// New builds the workload: graphs, lowering, memory plan, atlas. It fails on
// a spec that [Spec.Validate] refuses.
func New(s Spec, t Target) (*Workload, error) { return build(s, t, nil) }

func build(s Spec, t Target, edit Edit) (*Workload, error) {
	s, err := s.Defaults()
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	m, err := findModel(s.Model)
	if err != nil {
		return nil, err
	}
	w := &Workload{Spec: s, Target: t, model: m}
	b := &builder{
		w: w, spec: s, model: m, params: layoutParams(m, !s.NoBatchNorm), norms: layoutNorms(m),
		byName: map[string]TensorID{}, act: F32,
	}
	if b.amp() {
		b.act = F16
	}
	b.statics()
	b.build()
	w.nodes, w.byName, w.PinnedBytes = b.nodes, b.byName, b.pinned
	for g := range w.nodes {
		if edit != nil && len(w.nodes[g]) > 0 {
			w.nodes[g] = edit(SubGraph(g), w.nodes[g])
		}
	}
	w.markBases()
	w.plan(b.arena)
	w.fillAtlas()
	w.bindAll()
	w.placeScratch()
	return w, nil
}

// markBases finds the tensors that are not views: no earlier tensor covers
// them. (A base is always registered before its views.) Activations have no
// views; they share bytes by turns.
func (w *Workload) markBases() {
	w.base = map[TensorID]bool{}
	var end [2]int64
	for _, t := range w.Tensors {
		if t.Role == RoleActivation {
			w.base[t.ID] = true
		} else if t.Region.Off >= end[t.Region.Space] {
			w.base[t.ID] = true
			end[t.Region.Space] = t.Region.End()
		}
	}
}

// Shape returns the images a rank and step, and the image side, of a variant.
func (w *Workload) Shape(v Variant) (batch, resolution int) {
	s := w.Spec
	batch, resolution = s.Batch, s.FinalResolution
	switch v {
	case BeginLast, FinalLast:
		batch = s.LastTrainBatch
	case ValLast:
		batch = s.LastValBatch
	}
	if v == BeginFull || v == BeginLast {
		resolution = s.BeginResolution
	}
	return batch, resolution
}

// Classes is the number of classes of the model.
func (w *Workload) Classes() int { return w.model.classes }

// Lookup finds a tensor by name.
func (w *Workload) Lookup(name string) (Tensor, bool) {
	id, ok := w.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return w.Tensors[id], true
}

// Tensor returns a tensor by id.
func (w *Workload) Tensor(id TensorID) Tensor { return w.Tensors[id] }

// Parameters lists the trainable tensors by name, in range order. In each
// range a parameter is found as PREFIX+name: "" (weights), "grad:",
// "momentum:", "ema:", and in half precision "half:", "half_grad:",
// "half_ema:".
func (w *Workload) Parameters() []string {
	var names []string
	for _, p := range layoutParams(w.model, !w.Spec.NoBatchNorm).list {
		names = append(names, p.name)
	}
	return names
}

// Norms lists the batch norms by name; their statistics are
// NAME.running_mean, NAME.running_var.
func (w *Workload) Norms() []string {
	if w.Spec.NoBatchNorm {
		return nil
	}
	return layoutNorms(w.model).names
}

// State lists the tensors that live across steps, in offset order, without
// their views. They are what modes are compared on.
func (w *Workload) State() []TensorID { return w.Bases(RoleState) }

// Bases lists the tensors of some roles that are not views, in offset order.
// Activations that no node uses have no place and are left out.
func (w *Workload) Bases(roles ...Role) []TensorID {
	var ids []TensorID
	for _, t := range w.Tensors {
		if w.base[t.ID] && t.Region.Bytes > 0 && slices.Contains(roles, t.Role) {
			ids = append(ids, t.ID)
		}
	}
	slices.SortStableFunc(ids, func(a, b TensorID) int {
		x, y := w.Tensors[a].Region, w.Tensors[b].Region
		return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.Off, y.Off))
	})
	return ids
}

// Locate names the smallest statically placed tensor that covers a byte of
// the arena, and the element; ok is false for activations and scratch.
func (w *Workload) Locate(off int64) (t Tensor, elem int, ok bool) {
	for _, c := range w.Tensors {
		r := c.Region
		if c.Role == RoleActivation || r.Space != Arena || off < r.Off || off >= r.End() {
			continue
		}
		if !ok || r.Bytes < t.Region.Bytes {
			t, ok = c, true
		}
	}
	if !ok {
		return Tensor{}, 0, false
	}
	return t, int((off - t.Region.Off) / t.DType.Bytes()), true
}

// Nodes returns a sub-graph's nodes in order, without shapes; nil if it is
// empty.
func (w *Workload) Nodes(id SubGraph) []*Node { return w.nodes[id] }

// Bounds returns the nodes of a sub-graph in a variant, in order; nil if the
// slot is empty. Slots that share their shapes share the bounds, whose
// Variant is then the owner's. With ControlHost the DeviceControl nodes are
// left out. The caller does not change the slice.
func (w *Workload) Bounds(id SubGraph, v Variant, c Control) []*Bound { return w.bounds[c][v][id] }

// Slot returns an entry of the atlas.
func (w *Workload) Slot(id SubGraph, v Variant) Slot { return w.slots[v][id] }

// Totals counts the atlas: filled slots, and how many of them are captured
// and reused. filled = captured + reused.
func (w *Workload) Totals() (filled, captured, reused int) {
	for v := range NumVariants {
		for g := range NumSubGraphs {
			switch s := w.slots[v][g]; {
			case s.Captured():
				captured++
			case s.Filled:
				reused++
			}
		}
	}
	return captured + reused, captured, reused
}

// fillAtlas decides every slot.
func (w *Workload) fillAtlas() {
	for g := range NumSubGraphs {
		owner := map[string]Variant{}
		info := g.Info()
		why := w.Spec.emptyBecause(g)
		for v := range NumVariants {
			s := Slot{SubGraph: g, Variant: v, Owner: v, Why: why}
			if info.ByShape {
				n, r := w.Shape(v)
				s.Shape = fmt.Sprintf("n%d r%d", n, r)
				switch {
				case why != "": // whatever the variant
				case v.Val() && !info.Val:
					s.Why = "training only"
				case !v.Val() && !info.Train:
					s.Why = "validation only"
				}
			}
			s.Filled = s.Why == ""
			if o, ok := owner[s.Shape]; ok && s.Filled {
				s.Owner = o
			} else if s.Filled {
				owner[s.Shape] = v
			}
			w.slots[v][g] = s
		}
	}
}

// bindAll resolves every filled slot.
func (w *Workload) bindAll() {
	for v := range NumVariants {
		for g := range NumSubGraphs {
			s := w.slots[v][g]
			switch {
			case !s.Filled:
			case s.Captured():
				all := w.bind(g, v)
				w.bounds[ControlDevice][v][g] = all
				w.bounds[ControlHost][v][g] = slices.DeleteFunc(slices.Clone(all), func(b *Bound) bool { return b.DeviceControl })
			default:
				for c := range w.bounds {
					w.bounds[c][v][g] = w.bounds[c][s.Owner][g]
				}
			}
		}
	}
}

func (w *Workload) bind(g SubGraph, v Variant) []*Bound {
	n, r := w.Shape(v)
	operand := func(id TensorID) Operand {
		t := w.Tensors[id]
		shape := t.Dims.At(n, r)
		region := t.Region
		bytes := int64(shape.Elems()) * t.DType.Bytes()
		if bytes > region.Bytes {
			panic(fmt.Sprintf("workloads: %s %v does not fit its slot of %d bytes", t.Name, shape, region.Bytes))
		}
		region.Bytes = bytes
		return Operand{Tensor: id, Name: t.Name, DType: t.DType, Shape: shape, Region: region}
	}
	var out []*Bound
	for i, node := range w.nodes[g] {
		b := &Bound{Node: node, SubGraph: g, Variant: v, Index: i}
		for _, id := range node.In {
			o := operand(id)
			b.In = append(b.In, o)
			b.Reads = append(b.Reads, o.Region)
		}
		for _, id := range node.Out {
			o := operand(id)
			b.Out = append(b.Out, o)
			b.Writes = append(b.Writes, o.Region)
		}
		out = append(out, b)
	}
	return out
}
