package capture

import (
	"fmt"
	"strings"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/workloads"
)

// Mode is what one graph covers.
type Mode uint8

const (
	// Graph captures each sub-graph on its own; streams are joined between
	// launches.
	Graph Mode = iota
	// Step captures each segment of the schedule whole; streams are forked and
	// joined inside.
	Step
)

func (m Mode) String() string { return [...]string{"graph", "step"}[m] }

// unit is one thing to capture, the same on every rank.
type unit struct {
	// name is how messages call it: "DEEP_FWD_BWD (final/full)" or
	// "train_step A final/full".
	name string
	// variant is the first prepared one that uses it; others have its shapes.
	variant workloads.Variant
	// origin is the stream it begins on and is launched on.
	origin workloads.Stream
	// runs are the sub-graphs inside, in submission order.
	runs []workloads.SubGraph
	// actions are the segment's, in mode step.
	actions []workloads.Action
	// collective: it meets the other ranks.
	collective bool
	// copies is how many transfers one replay holds.
	copies int
}

// layout is what a set captures and which slot or segment uses which unit.
type layout struct {
	mode  Mode
	units []unit
	// slots (mode graph) and segments (mode step) hold the index of a unit
	// plus one; 0 is none.
	slots    [walk.TableEntries]int
	segments walk.SegmentTable[int]
	filled   int
}

// deduplicate finds the distinct units among the slots or segments of the
// variants.
func deduplicate(w *workloads.Workload, t *walk.Table, mode Mode, control workloads.Control) *layout {
	if mode == Step {
		return segmentLayout(w, t)
	}
	return slotLayout(w, t, control)
}

func slotLayout(w *workloads.Workload, t *walk.Table, control workloads.Control) *layout {
	l := &layout{mode: Graph}
	type key struct {
		id    workloads.SubGraph
		owner workloads.Variant
	}
	seen := map[key]int{}
	for _, v := range t.Variants() {
		for id := range workloads.NumSubGraphs {
			slot := w.Slot(id, v)
			e := t.Entry(id, v, control)
			if !slot.Filled || len(e.Ops) == 0 {
				continue
			}
			l.filled++
			k := key{id, slot.Owner}
			if seen[k] == 0 {
				l.units = append(l.units, unit{
					name:    fmt.Sprintf("%s (%s)", id, v),
					variant: v, origin: id.Info().Stream,
					runs: []workloads.SubGraph{id}, collective: isCollective(e.Ops), copies: e.Copies,
				})
				seen[k] = len(l.units)
			}
			l.slots[walk.Cell(id, v)] = seen[k]
		}
	}
	return l
}

func segmentLayout(w *workloads.Workload, t *walk.Table) *layout {
	l := &layout{mode: Step}
	seen := map[string]int{}
	for _, seg := range walk.Segments(t.Variants()) {
		u := unit{name: walk.SegmentName(seg), variant: seg.Variant, origin: workloads.COMP1}
		var key strings.Builder
		for _, a := range w.Schedule(seg) {
			switch a.Kind {
			case workloads.ActRun:
				e := t.Entry(a.SubGraph, seg.Variant, workloads.ControlDevice)
				u.runs = append(u.runs, a.SubGraph)
				u.collective = u.collective || isCollective(e.Ops)
				u.copies += e.Copies
				fmt.Fprintf(&key, "%d/%d ", a.SubGraph, w.Slot(a.SubGraph, seg.Variant).Owner)
			case workloads.ActJoin:
				fmt.Fprintf(&key, "%d<%d ", a.Waiter, a.Waited)
			default:
				continue
			}
			u.actions = append(u.actions, a)
		}
		if len(u.runs) == 0 {
			continue
		}
		l.filled++
		if seen[key.String()] == 0 {
			l.units = append(l.units, u)
			seen[key.String()] = len(l.units)
		}
		*l.segments.At(seg) = seen[key.String()]
	}
	return l
}

func isCollective(ops []device.Op) bool {
	for _, op := range ops {
		if op.Bound().Collective {
			return true
		}
	}
	return false
}

// want is what eager would submit for the unit, in order.
func (u *unit) want(t *walk.Table, control workloads.Control) []*workloads.Bound {
	var out []*workloads.Bound
	for _, id := range u.runs {
		for _, op := range t.Ops(id, u.variant, control) {
			out = append(out, op.Bound())
		}
	}
	return out
}
