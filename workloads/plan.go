package workloads

import (
	"cmp"
	"slices"
)

// chains are the stretches of COMP_1 between which no activation lives: a
// training step on each half, each inference, the stand-alone chain. Inside a
// chain, node order is execution order.
var chains = [][]SubGraph{
	{FirstLayerFwdA, DeepFwdBwd, FirstLayerBwdA},
	{FirstLayerFwdB, DeepFwdBwd, FirstLayerBwdB},
	{InfMainA}, {InfMainB}, {InfEMAA}, {InfEMAB},
	{SimpleTask},
}

// interval is a lifetime on the common axis of all chains, both ends included.
type interval struct{ first, last int }

// lifetimes returns, for each activation, when it lives: one interval a chain
// that uses it, from the first node that touches it to the last, on one axis
// on which the chains follow each other.
func (w *Workload) lifetimes() map[TensorID][]interval {
	lives := map[TensorID][]interval{}
	pos := 0
	for _, chain := range chains {
		begin, end := pos, pos-1
		for _, g := range chain {
			end += len(w.nodes[g])
		}
		for _, g := range chain {
			for _, n := range w.nodes[g] {
				last := pos
				if w.Target.Beside && n.Op.FilterGradient() {
					last = min(pos+besideNodes, end)
				}
				for _, id := range slices.Concat(n.In, n.Out) {
					if w.Tensors[id].Role != RoleActivation {
						continue
					}
					l := lives[id]
					if len(l) > 0 && l[len(l)-1].first >= begin {
						l[len(l)-1].last = max(l[len(l)-1].last, last)
					} else {
						lives[id] = append(l, interval{pos, last})
					}
				}
				pos++
			}
		}
	}
	return lives
}

func meet(a, b []interval) bool {
	for _, x := range a {
		for _, y := range b {
			if x.first <= y.last && y.first <= x.last {
				return true
			}
		}
	}
	return false
}

// Memory describes the plan.
type Memory struct {
	ByRole map[Role]int64 // bytes with a place of their own, by role
	// Activations is the activation part with reuse; NoReuse what it would
	// take without; Peak the most bytes alive at once, a lower bound.
	Activations, NoReuse, Peak int64
	Scratch                    int64
}

// plan places the activations behind the static part: largest first, each at
// the lowest offset that is free for its whole life.
func (w *Workload) plan(static int64) {
	w.memory = Memory{ByRole: map[Role]int64{}}
	for _, t := range w.Tensors {
		if w.base[t.ID] && t.Role != RoleActivation {
			w.memory.ByRole[t.Role] += align(t.Region.Bytes)
		}
	}
	lives := w.lifetimes()
	ids := make([]TensorID, 0, len(lives))
	for id := range lives {
		t := &w.Tensors[id]
		for v := range NumVariants {
			n, r := w.Shape(v)
			t.Region.Bytes = max(t.Region.Bytes, int64(t.Dims.At(n, r).Elems())*t.DType.Bytes())
		}
		w.memory.NoReuse += align(t.Region.Bytes)
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b TensorID) int {
		return cmp.Or(cmp.Compare(w.Tensors[b].Region.Bytes, w.Tensors[a].Region.Bytes), cmp.Compare(a, b))
	})
	end := static
	var placed []TensorID // in offset order
	for _, id := range ids {
		size := align(w.Tensors[id].Region.Bytes)
		off := static
		for _, p := range placed {
			r := w.Tensors[p].Region
			if off+size <= r.Off {
				break
			}
			if r.Off+align(r.Bytes) > off && meet(lives[id], lives[p]) {
				off = r.Off + align(r.Bytes)
			}
		}
		w.Tensors[id].Region.Off = off
		at, _ := slices.BinarySearchFunc(placed, off, func(p TensorID, off int64) int { return cmp.Compare(w.Tensors[p].Region.Off, off) })
		placed = slices.Insert(placed, at, id)
		end = max(end, off+size)
	}
	w.memory.Activations = end - static
	w.memory.Peak = w.peak(lives)
	w.ArenaBytes = end
}

func (w *Workload) peak(lives map[TensorID][]interval) int64 {
	type edge struct {
		at    int
		bytes int64
	}
	var edges []edge
	for id, l := range lives {
		n := align(w.Tensors[id].Region.Bytes)
		for _, i := range l {
			edges = append(edges, edge{i.first, n}, edge{i.last + 1, -n})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes)) })
	var now, peak int64
	for _, e := range edges {
		now += e.bytes
		peak = max(peak, now)
	}
	return peak
}

// placeScratch gives every stream that needs scratch a region of its own, of
// the size of its greediest operator, and hands it to those operators.
func (w *Workload) placeScratch() {
	if w.Target.ScratchBytes == nil {
		return
	}
	// A stream has a second region for what may run beside the rest.
	lane := func(b *Bound) int {
		if w.Target.Beside && b.Op.FilterGradient() {
			return 1
		}
		return 0
	}
	need := map[*Bound]int64{}
	var size [2][NumStreams]int64
	for v := range NumVariants {
		for g := range NumSubGraphs {
			for _, b := range w.bounds[ControlDevice][v][g] {
				if _, done := need[b]; done {
					continue
				}
				need[b] = w.Target.ScratchBytes(b)
				s := g.Info().Stream
				size[lane(b)][s] = max(size[lane(b)][s], need[b])
			}
		}
	}
	var at [2][NumStreams]int64
	for l := range size {
		for s := range NumStreams {
			if n := size[l][s]; n > 0 {
				at[l][s] = w.ArenaBytes
				if l == 0 {
					w.Scratch[s] = Region{Arena, w.ArenaBytes, n}
				}
				w.ArenaBytes = align(w.ArenaBytes + n)
				w.memory.Scratch += align(n)
			}
		}
	}
	for b, n := range need {
		if n > 0 {
			b.Scratch = Region{Arena, at[lane(b)][b.SubGraph.Info().Stream], n}
			b.Writes = append(b.Writes, b.Scratch)
		}
	}
}

// Memory returns the plan's figures, for one rank.
func (w *Workload) Memory() Memory { return w.memory }
