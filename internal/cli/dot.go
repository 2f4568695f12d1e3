package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/workloads"
)

// dotSchedule is the value of --dot that draws the schedule.
const dotSchedule = "schedule"

// writeDot prints Graphviz: the schedule, or one sub-graph's nodes.
func writeDot(out io.Writer, w *workloads.Workload, what string) error {
	if what == dotSchedule {
		return dotStep(out, w)
	}
	var known []string
	for g := range workloads.NumSubGraphs {
		if g.String() == what {
			return dotNodes(out, w, g)
		}
		known = append(known, g.String())
	}
	return &bench.InputError{Name: "--dot", Reason: fmt.Sprintf("%q is unknown; known: %s, %s", what, dotSchedule, strings.Join(known, ", "))}
}

// dotStep draws a training step on half A: a row a stream; solid lines are a
// stream's own order, dashed ones joins.
func dotStep(out io.Writer, w *workloads.Workload) error {
	p := &printer{w: out}
	p.linef("digraph step {\n rankdir=LR; node [shape=box];")
	last := map[workloads.Stream]string{}
	pending := map[workloads.Stream][]string{} // edges waiting for the waiter's next node
	for _, a := range w.Schedule(workloads.Segment{Phase: workloads.TrainStep, Half: workloads.A, Variant: workloads.FinalFull}) {
		switch a.Kind {
		case workloads.ActRun:
			s, name := a.SubGraph.Info().Stream, a.SubGraph.String()
			p.linef(" %q [group=%q, label=\"%s\\n%s\"];", name, s, name, s)
			if last[s] != "" {
				p.linef(" %q -> %q;", last[s], name)
			}
			for _, e := range pending[s] {
				p.linef(" %s;", fmt.Sprintf(e, name))
			}
			last[s], pending[s] = name, nil
		case workloads.ActJoin:
			if from := last[a.Waited]; from != "" {
				edge := fmt.Sprintf("%q -> %%q [style=dashed, label=%q]", from, a.Join)
				pending[a.Waiter] = append(pending[a.Waiter], edge)
			}
		}
	}
	p.linef("}")
	return p.err
}

// dotNodes draws a sub-graph's operators and which one reads what another
// wrote.
func dotNodes(out io.Writer, w *workloads.Workload, g workloads.SubGraph) error {
	bounds := firstBounds(w, g)
	if bounds == nil {
		return &bench.InputError{Name: "--dot", Reason: fmt.Sprintf("%s is empty here: %s", g, w.Slot(g, workloads.FinalFull).Why)}
	}
	p := &printer{w: out}
	p.linef("digraph %q {\n node [shape=box];", g)
	writer := map[workloads.TensorID]int{}
	for i, b := range bounds {
		p.linef(" n%d [label=\"%s\\n%s\"];", i, b.Name, b.Op)
		for _, in := range b.In {
			if from, ok := writer[in.Tensor]; ok {
				p.linef(" n%d -> n%d [label=%q];", from, i, in.Name)
			}
		}
		for _, o := range b.Out {
			writer[o.Tensor] = i
		}
	}
	p.linef("}")
	return p.err
}

func firstBounds(w *workloads.Workload, g workloads.SubGraph) []*workloads.Bound {
	for v := range workloads.NumVariants {
		if b := w.Bounds(g, v, workloads.ControlDevice); b != nil {
			return b
		}
	}
	return nil
}
