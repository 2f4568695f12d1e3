package walk

import (
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// Show makes the submissions of whatever is made with the table from now on
// visible to a tool: steps, sub-graphs and, node by node, operators. It is
// called once, on the rank's thread; nil shows nothing.
func (t *Table) Show(c *nvtx.Client) {
	if t.tool = c; c == nil || c.Deaf() {
		return
	}
	t.shown = &shownTable{}
	for id := range workloads.NumSubGraphs {
		t.shown.subGraphs[id] = c.Range(id.String(), nvtx.SubGraph.Look())
	}
	made := map[device.Op]*nvtx.Range{}
	for control := range t.entries {
		for i, e := range t.entries[control] {
			for _, op := range e.Ops {
				if made[op] == nil {
					made[op] = c.Range(op.Bound().Name, nvtx.Node.Look())
				}
				t.shown.nodes[control][i] = append(t.shown.nodes[control][i], made[op])
			}
		}
	}
}

// shownTable has a table's ranges: of sub-graphs and, beside the operators of
// each entry, of nodes.
type shownTable struct {
	subGraphs [workloads.NumSubGraphs]*nvtx.Range
	nodes     [2][TableEntries][]*nvtx.Range
}

// Tool is what the table is shown to; nil for none.
func (t *Table) Tool() *nvtx.Client { return t.tool }

// Shown is a sub-graph's range; nil without a tool.
func (t *Table) Shown(id workloads.SubGraph) *nvtx.Range {
	if t.shown == nil {
		return nil
	}
	return t.shown.subGraphs[id]
}

// ShownNodes are the ranges of a slot's operators, beside [Table.Ops]; nil
// without a tool.
func (t *Table) ShownNodes(id workloads.SubGraph, v workloads.Variant, c workloads.Control) []*nvtx.Range {
	if t.shown == nil {
		return nil
	}
	return t.shown.nodes[c][Cell(id, v)]
}

// shownSteps are the ranges of a runner, which give them the number of the
// step: they belong to its rank's thread.
type shownSteps struct {
	phases [workloads.NumPhases]*nvtx.Range
	epochs [2]*nvtx.Range // of training and of validation
	epoch  nvtx.Span      // under way
	step   int64          // in it
	rank   int64
}

func newShownSteps(c *nvtx.Client, rank int) *shownSteps {
	if c == nil {
		return nil
	}
	s := &shownSteps{rank: int64(rank)}
	for p := range workloads.NumPhases {
		name := p.String()
		if p == workloads.TrainStep || p == workloads.ValBatch {
			name = nvtx.StepName
		}
		s.phases[p] = c.Range(name, nvtx.Step.Look())
	}
	s.epochs = [2]*nvtx.Range{c.Range(nvtx.EpochName, nvtx.Epoch.Look()), c.Range(nvtx.ValName, nvtx.Epoch.Look())}
	return s
}

// begin shows a segment. A step has its number in the epoch, from 0.
func (s *shownSteps) begin(seg workloads.Segment) {
	switch seg.Phase {
	case workloads.EpochBegin, workloads.ValBegin:
		s.endEpoch()
		val := 0
		if seg.Phase == workloads.ValBegin {
			val = 1
		}
		s.epoch = s.epochs[val].StartInt(s.rank)
		s.phases[seg.Phase].Push()
	case workloads.TrainStep, workloads.ValBatch:
		s.phases[seg.Phase].PushInt(s.step)
		s.step++
	default:
		s.phases[seg.Phase].Push()
	}
}

func (s *shownSteps) end(seg workloads.Segment) {
	s.phases[seg.Phase].Pop()
	if seg.Phase == workloads.EpochEnd || seg.Phase == workloads.ValEnd {
		s.endEpoch()
	}
}

func (s *shownSteps) endEpoch() {
	s.epoch.End()
	s.epoch, s.step = nvtx.Span{}, 0
}
