package workloads

import "fmt"

// CheckData walks each chain of COMP_1 and returns what is wrong with its
// activations: a node reads a tensor that no earlier node of the chain wrote,
// or whose bytes another tensor has taken since, or writes one a second time.
func (w *Workload) CheckData() []error {
	var errs []error
	for _, chain := range chains {
		m := ownership{w: w, written: map[TensorID]bool{}}
		for _, g := range chain {
			for _, n := range w.nodes[g] {
				place := g.String() + "/" + n.Name
				for _, id := range n.In {
					if w.Tensors[id].Role == RoleActivation {
						errs = append(errs, m.read(place, w.Tensors[id])...)
					}
				}
				for _, id := range n.Out {
					if w.Tensors[id].Role == RoleActivation {
						errs = append(errs, m.write(place, w.Tensors[id])...)
					}
				}
			}
		}
	}
	return errs
}

// ownership remembers whose values lie where.
type ownership struct {
	w       *Workload
	live    []Tensor
	written map[TensorID]bool
}

func (m *ownership) read(place string, t Tensor) []error {
	for _, l := range m.live {
		if l.ID == t.ID {
			return nil
		}
	}
	if m.written[t.ID] {
		return []error{fmt.Errorf("%s reads %s, whose bytes another tensor has taken", place, t.Name)}
	}
	return []error{fmt.Errorf("%s reads %s before any node wrote it", place, t.Name)}
}

func (m *ownership) write(place string, t Tensor) (errs []error) {
	if m.written[t.ID] {
		errs = append(errs, fmt.Errorf("%s writes %s, which was written before", place, t.Name))
	}
	m.written[t.ID] = true
	keep := m.live[:0]
	for _, l := range m.live {
		if !l.Region.Overlaps(t.Region) {
			keep = append(keep, l)
		}
	}
	m.live = append(keep, t)
	return errs
}

// CheckOrder returns the pairs of nodes of a sub-graph that touch a common
// region, at least one writing, and stand in another order than the one they
// were built in.
func (w *Workload) CheckOrder() []error {
	var errs []error
	for v := range NumVariants {
		for g := range NumSubGraphs {
			if !w.slots[v][g].Captured() {
				continue
			}
			list := w.bounds[ControlDevice][v][g]
			for j := 1; j < len(list); j++ {
				for i := range j {
					if list[i].seq > list[j].seq && touch(list[i], list[j]) {
						errs = append(errs, fmt.Errorf("%s/%s runs before %s, which it depends on", g, list[i].Name, list[j].Name))
					}
				}
			}
		}
	}
	return errs
}

func touch(a, b *Bound) bool {
	over := func(x, y []Region) bool {
		for _, r := range x {
			for _, s := range y {
				if r.Overlaps(s) {
					return true
				}
			}
		}
		return false
	}
	return over(a.Writes, b.Writes) || over(a.Writes, b.Reads) || over(a.Reads, b.Writes)
}

// CheckScalars returns an error for each update node that does not read the
// scalars, and would so train with a value frozen at capture.
func (w *Workload) CheckScalars() []error {
	var errs []error
	for g := range NumSubGraphs {
		for _, n := range w.nodes[g] {
			switch n.Op {
			case OpSGD, OpLARS, OpEMA, OpLoss, OpUnscale:
				found := false
				for _, id := range n.In {
					found = found || id == w.Known.Scalars
				}
				if !found {
					errs = append(errs, fmt.Errorf("%s/%s does not read the scalars in device memory", g, n.Name))
				}
			}
		}
	}
	return errs
}

// Check runs the checks that need neither device nor sequence.
func (w *Workload) Check() []error {
	var errs []error
	for v := range NumVariants {
		for g := range NumSubGraphs {
			if w.slots[v][g].Filled && len(w.bounds[ControlDevice][v][g]) == 0 {
				errs = append(errs, fmt.Errorf("%s is filled in variant %s and has no nodes", g, v))
			}
		}
	}
	errs = append(errs, w.CheckData()...)
	errs = append(errs, w.CheckOrder()...)
	return append(errs, w.CheckScalars()...)
}

// Edit changes the node list of a sub-graph while a workload is built.
type Edit func(id SubGraph, nodes []*Node) []*Node

// NewEdited is [New] with its node lists changed before the plan is made. It
// is there to break a workload on purpose, and so to test the checks.
func NewEdited(s Spec, t Target, edit Edit) (*Workload, error) { return build(s, t, edit) }
