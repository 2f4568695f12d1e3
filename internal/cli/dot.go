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
	p.legend("a solid arrow: the next on the same stream", "a dashed arrow: a join by its name; the work it points at waits", "below the name: the stream")
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

// legend draws a box that says what is what.
func (p *printer) legend(lines ...string) {
	p.linef(" legend [shape=note, label=\"%s\\l\"];", strings.Join(lines, "\\l"))
}

// dotNodes draws a sub-graph's operators and which one reads what another
// wrote, be it under another name.
func dotNodes(out io.Writer, w *workloads.Workload, g workloads.SubGraph) error {
	bounds := firstBounds(w, g)
	if bounds == nil {
		return &bench.InputError{Name: "--dot", Reason: fmt.Sprintf("%s is empty here: %s", g, w.Slot(g, workloads.FinalFull).Why)}
	}
	p := &printer{w: out}
	p.linef("digraph %q {\n node [shape=box];", g)
	p.legend("an arrow: the tensor that one operator reads and another wrote", "below the name: the operator", "they run one after another, in this order, on "+g.Info().Stream.String())
	for i, b := range bounds {
		p.linef(" n%d [label=\"%s\\n%s\"];", i, b.Name, b.Op)
		for _, in := range b.In {
			for _, from := range writers(bounds[:i], in.Region) {
				p.linef(" n%d -> n%d [label=%q];", from, i, in.Name)
			}
		}
	}
	p.linef("}")
	return p.err
}

// writers finds the operators that wrote what a region holds: for each of its
// bytes the last one before.
func writers(before []*workloads.Bound, r workloads.Region) []int {
	left := []workloads.Region{r}
	var found []int
	for i := len(before) - 1; i >= 0 && len(left) > 0; i-- {
		wrote := false
		for _, o := range before[i].Out {
			var rest []workloads.Region
			for _, l := range left {
				if !l.Overlaps(o.Region) {
					rest = append(rest, l)
					continue
				}
				wrote = true
				if n := o.Region.Off - l.Off; n > 0 {
					rest = append(rest, workloads.Region{Space: l.Space, Off: l.Off, Bytes: n})
				}
				if n := l.End() - o.Region.End(); n > 0 {
					rest = append(rest, workloads.Region{Space: l.Space, Off: o.Region.End(), Bytes: n})
				}
			}
			left = rest
		}
		if wrote {
			found = append(found, i)
		}
	}
	return found
}

func firstBounds(w *workloads.Workload, g workloads.SubGraph) []*workloads.Bound {
	for v := range workloads.NumVariants {
		if b := w.Bounds(g, v, workloads.ControlDevice); b != nil {
			return b
		}
	}
	return nil
}
