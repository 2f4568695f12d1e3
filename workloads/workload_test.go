package workloads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func specs() map[string]Spec {
	out := map[string]Spec{}
	for _, m := range Models() {
		for _, s := range []Spec{
			{Model: m, Batch: 4, LastTrainBatch: 3, LastValBatch: 2},
			{Model: m, Batch: 2, Precision: AMP, EMA: true, Ranks: 2, LastTrainBatch: 1},
			{Model: m, Batch: 2, Precision: AMP, EMA: true, Ranks: 2, Optimizer: LARS, LastTrainBatch: 1},
			{Model: m, Batch: 2, FreezeStem: true, Precision: AMP, Ranks: 2},
			{Model: m, Batch: 2, FreezeStem: true, Optimizer: LARS},
			{Model: m, Batch: 2, FreezeStem: true, Optimizer: Nesterov, LastTrainBatch: 1},
			{Model: m, Batch: 4, NoBatchNorm: true, Inject: true},
		} {
			name := fmt.Sprintf("%s/%s/%s/ema=%v/frozen=%v/ranks=%d/nobn=%v", m, s.Precision, s.Optimizer, s.EMA, s.FreezeStem, s.Ranks, s.NoBatchNorm)
			out[name] = s
		}
	}
	return out
}

// epochs is a training epoch at both resolutions, then a validation, twice.
func epochs(steps, vals int) []Segment {
	var segs []Segment
	epoch := func(full, last Variant) {
		segs = append(segs, Segment{Phase: EpochBegin, Variant: full})
		h := A
		for i := range steps {
			v := full
			if i == steps-1 {
				v = last
			}
			segs = append(segs, Segment{Phase: TrainStep, Half: h, Variant: v})
			h = h.Other()
		}
		segs = append(segs, Segment{Phase: EpochEnd, Variant: last})
	}
	for range 2 {
		epoch(BeginFull, BeginLast)
		epoch(FinalFull, FinalLast)
		segs = append(segs, Segment{Phase: ValBegin, Variant: ValFull})
		h := A
		for i := range vals {
			v := ValFull
			if i == vals-1 {
				v = ValLast
			}
			segs = append(segs, Segment{Phase: ValBatch, Half: h, Variant: v, First: i == 0})
			h = h.Other()
		}
		segs = append(segs, Segment{Phase: ValEnd, Variant: ValLast})
	}
	return segs
}

func lowerings() map[string]Lowering {
	lean := Fused
	lean.FusedJoin, lean.NormMask = true, true
	return map[string]Lowering{"plain": Plain, "fused": Fused, "lean": lean}
}

func build1(t *testing.T, s Spec, l Lowering) *Workload {
	t.Helper()
	w, err := New(s, Target{Lowering: l, ScratchBytes: func(b *Bound) int64 {
		if b.Op == OpConv {
			return 1000
		}
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestChecksPass(t *testing.T) {
	for name, s := range specs() {
		for lname, l := range lowerings() {
			t.Run(name+"/"+lname, func(t *testing.T) {
				w := build1(t, s, l)
				for _, err := range w.Check() {
					t.Error(err)
				}
			})
		}
	}
}

// No two activations that live at once share a byte, and none lies in the
// static part or in scratch. Lifetimes are recomputed here from the nodes.
func TestLiveTensorsDoNotOverlap(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			w := build1(t, s, Fused)
			for _, chain := range chains {
				var nodes []*Node
				for _, g := range chain {
					nodes = append(nodes, w.nodes[g]...)
				}
				first, last := map[TensorID]int{}, map[TensorID]int{}
				for i, n := range nodes {
					for _, id := range append(append([]TensorID(nil), n.In...), n.Out...) {
						if _, ok := first[id]; !ok {
							first[id] = i
						}
						last[id] = i
					}
				}
				for i := range nodes {
					var live []Tensor
					for id := range first {
						if w.Tensors[id].Role == RoleActivation && first[id] <= i && i <= last[id] {
							live = append(live, w.Tensors[id])
						}
					}
					for x := range live {
						for y := range x {
							if live[x].Region.Overlaps(live[y].Region) {
								t.Fatalf("at %s: %s %v and %s %v overlap", nodes[i].Name, live[x].Name, live[x].Region, live[y].Name, live[y].Region)
							}
						}
					}
				}
			}
			for _, a := range w.Tensors {
				if a.Region.Space == Arena && a.Region.End() > w.ArenaBytes {
					t.Errorf("%s ends at %d, behind the arena's %d", a.Name, a.Region.End(), w.ArenaBytes)
				}
				for _, b := range w.Tensors {
					if a.Role == RoleActivation && b.Role != RoleActivation && a.Region.Overlaps(b.Region) {
						t.Errorf("%s lies in %s", a.Name, b.Name)
					}
				}
				for _, r := range w.Scratch {
					if a.Region.Overlaps(r) {
						t.Errorf("%s lies in scratch", a.Name)
					}
				}
			}
			m := w.Memory()
			if m.Activations > m.NoReuse || m.Activations < m.Peak {
				t.Errorf("activations %d, without reuse %d, peak %d", m.Activations, m.NoReuse, m.Peak)
			}
		})
	}
}

func TestEveryEdgeIsNeeded(t *testing.T) {
	for name, s := range specs() {
		if s.NoBatchNorm || s.Model == "resnet50" && !s.EMA {
			continue
		}
		lengths := []int{2, 3, 4}
		if s.Model != "golden-tiny" { // the schedule is the same for every model
			lengths = lengths[1:2]
		}
		for _, steps := range lengths {
			for _, control := range []Control{ControlDevice, ControlHost} {
				t.Run(fmt.Sprintf("%s/steps=%d/control=%s", name, steps, control), func(t *testing.T) {
					everyEdgeIsNeeded(t, build1(t, s, Fused), epochs(steps, steps), control)
				})
			}
		}
	}
}

func everyEdgeIsNeeded(t *testing.T, w *Workload, segs []Segment, control Control) {
	t.Helper()
	q := w.Sequence(segs, control)
	for _, h := range q.Hazards() {
		t.Errorf("with all edges: %v", h)
	}
	for _, h := range w.ScheduledSequence(segs, control).Hazards() {
		t.Errorf("as scheduled: %v", h)
	}
	kept, implied := q.Edges()
	gone := Dropped(implied)
	for _, h := range q.Without(gone...) {
		t.Errorf("without implied edges: %v", h)
	}
	missed, host := 0, 0
	for _, e := range kept {
		without := append(slices.Clone(gone), e.Index)
		if !q.Notices(without...) {
			t.Errorf("dropping %v goes unnoticed", e)
			missed++
		}
		if e.Join == "host control" {
			if host++; host == 1 { // the first such edge: is the host's own work named?
				found := false
				for _, h := range q.Without(without...) {
					found = found || strings.HasPrefix(h.Second, "the host's control in ") && h.Tensor == "scalars"
				}
				if !found {
					t.Errorf("without %v the host's control is not named", e)
				}
			}
		}
	}
	if (control == ControlHost) != (host > 0) {
		t.Errorf("%d of the edges are the host's wait for UPDATE with control %s", host, control)
	}
	t.Logf("%d of %d edges reported when dropped; %d implied", len(kept)-missed, len(kept), len(implied))
}
