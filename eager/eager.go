// Package eager submits a step node by node: the full price of launching.
//
// It stands beside package capture, above the walk: a [walk.Walker] takes the
// schedule's actions and calls the [Launcher] for each sub-graph.
//
// The package keeps one rule: a launch is its operators' submitting calls, in
// order, and nothing else; it never waits, joins or allocates.
package eager

import (
	"time"

	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// Launcher submits the operators of a rank's table one by one. It belongs to
// the rank's thread.
type Launcher struct {
	Table   *walk.Table
	Control workloads.Control
	// Dispatch is host time burnt before each operator, to stand in for a
	// framework's dispatcher (--dispatch-ns). It is busy waiting, on the host's
	// monotonic clock, and counts as submitting.
	Dispatch time.Duration
}

var _ walk.Launcher = (*Launcher)(nil)

// Launch submits a sub-graph's operators on their stream. The first failure
// ends it; it names the operator.
func (l *Launcher) Launch(id workloads.SubGraph, v workloads.Variant, c *walk.Counts) error {
	e := l.Table.Entry(id, v, l.Control)
	if shown := l.Table.ShownNodes(id, v, l.Control); shown != nil {
		return l.show(shown, e, v, c)
	}
	for _, op := range e.Ops {
		if l.Dispatch > 0 {
			burn(l.Dispatch)
		}
		if err := op.Submit(v); err != nil {
			return err
		}
	}
	c.Host += int64(e.Calls)
	c.Copy += int64(e.Copies)
	return nil
}

// show is Launch with a range around every operator, for a tool.
func (l *Launcher) show(shown []*nvtx.Range, e *walk.Entry, v workloads.Variant, c *walk.Counts) error {
	for i, op := range e.Ops {
		shown[i].Push()
		if l.Dispatch > 0 {
			burn(l.Dispatch)
		}
		err := op.Submit(v)
		shown[i].Pop()
		if err != nil {
			return err
		}
	}
	c.Host += int64(e.Calls)
	c.Copy += int64(e.Copies)
	return nil
}

func burn(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}
