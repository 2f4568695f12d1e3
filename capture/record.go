package capture

import (
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// recorder captures units on one rank. It belongs to the rank's thread.
type recorder struct {
	rank    device.Rank
	table   *walk.Table
	control workloads.Control
}

// capture records a unit and proves that the graph holds what eager would
// submit. After an error nothing is left capturing and no graph is left open.
func (c *recorder) capture(u *unit) (graph device.Graph, err error) {
	fail := func(call string, err error) error {
		return fmt.Errorf("capture %s: %s: %w", u.name, call, err)
	}
	shown := c.table.Tool().Range(u.name, nvtx.Capture.Look())
	shown.Push()
	defer shown.Pop()
	if err := c.reserve(u); err != nil {
		return nil, fail("reserve", err)
	}
	if err := c.rank.BeginCapture(u.origin, device.CaptureThreadLocal); err != nil {
		return nil, fail("begin on "+u.origin.String(), err)
	}
	ended := false
	defer func() {
		// A failure, or a panic passing through, must not leave the stream
		// capturing. What ends here was broken before, so its own complaint
		// would only hide the first.
		if !ended {
			if g, endErr := c.rank.EndCapture(u.origin); endErr == nil && g != nil {
				_ = g.Close()
			}
		}
	}()
	if u.actions == nil {
		err = c.submit(u.runs[0], u)
	} else {
		err = c.walk(u)
	}
	if err != nil {
		return nil, fail("submit", err)
	}
	ended = true
	if graph, err = c.rank.EndCapture(u.origin); err != nil {
		return nil, fail("end on "+u.origin.String(), err)
	}
	if err := prove(graph, u.want(c.table, c.control)); err != nil {
		return nil, errors.Join(fail("check", err), graph.Close())
	}
	return graph, nil
}

// reserve makes the events that recording the unit takes: one a join, one to
// fork, one a stream to join back.
func (c *recorder) reserve(u *unit) error {
	if u.actions == nil {
		return nil
	}
	var need [workloads.NumStreams]int
	for _, a := range u.actions {
		if a.Kind == workloads.ActJoin && a.Waited < workloads.NumStreams {
			need[a.Waited]++
		}
	}
	for s, n := range need {
		if err := c.table.Events().Reserve(workloads.Stream(s), n+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *recorder) submit(id workloads.SubGraph, u *unit) error {
	shown := c.table.Shown(id)
	shown.Push()
	defer shown.Pop()
	nodes := c.table.ShownNodes(id, u.variant, c.control)
	for i, op := range c.table.Ops(id, u.variant, c.control) {
		if nodes != nil {
			nodes[i].Push()
		}
		err := op.Submit(u.variant)
		if nodes != nil {
			nodes[i].Pop()
		}
		if err != nil {
			return fmt.Errorf("node %d, %s/%s: %w", i, id, op.Bound().Name, err)
		}
	}
	return nil
}

// walk records a segment. The origin is forked at its beginning: a stream's
// first work in the capture waits for nothing but what the schedule's joins
// say. A join with a stream that has no work in the capture yet orders against
// the launch before, which the launch stream does already.
func (c *recorder) walk(u *unit) error {
	events := c.table.Events()
	events.Restart()
	var inside [workloads.NumStreams]bool
	inside[u.origin] = true
	fork, err := events.Next(u.origin)
	if err == nil {
		err = c.rank.Record(u.origin, fork)
	}
	if err != nil {
		return fmt.Errorf("fork from %s: %w", u.origin, err)
	}
	for _, a := range u.actions {
		switch a.Kind {
		case workloads.ActRun:
			if s := a.SubGraph.Info().Stream; !inside[s] {
				if err := c.rank.Wait(s, fork); err != nil {
					return fmt.Errorf("fork %s from %s: %w", s, u.origin, err)
				}
				inside[s] = true
			}
			if err := c.submit(a.SubGraph, u); err != nil {
				return err
			}
		case workloads.ActJoin:
			if a.Waited >= workloads.NumStreams || a.Waiter >= workloads.NumStreams {
				return fmt.Errorf("join %q involves the host (%s after %s), which a graph cannot hold", a.Join, a.Waiter, a.Waited)
			}
			if !inside[a.Waited] {
				continue
			}
			if err := c.join(a.Waiter, a.Waited, a.Join); err != nil {
				return err
			}
			inside[a.Waiter] = true
		}
	}
	for s := range workloads.NumStreams {
		if inside[s] && s != u.origin {
			if err := c.join(u.origin, s, "end of capture"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *recorder) join(waiter, waited workloads.Stream, name string) error {
	e, err := c.table.Events().Next(waited)
	if err == nil {
		if err = c.rank.Record(waited, e); err == nil {
			err = c.rank.Wait(waiter, e)
		}
	}
	if err != nil {
		return fmt.Errorf("join %q, %s after %s: %w", name, waiter, waited, err)
	}
	return nil
}

// prove checks a graph against the operators eager submits: all of them, once,
// in order.
func prove(g device.Graph, want []*workloads.Bound) error {
	if n := g.Info().Total(); n == 0 {
		return errors.New("the graph is empty")
	}
	got := g.Bounds()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("the graph ends after %d of %d operators; %s is missing", len(got), len(want), nodeName(want[i]))
		case i >= len(want):
			return fmt.Errorf("the graph has %d operators, eager %d; %s is too many", len(got), len(want), nodeName(got[i]))
		case got[i] != want[i]:
			return fmt.Errorf("operator %d of the graph is %s, eager submits %s", i, nodeName(got[i]), nodeName(want[i]))
		}
	}
	return nil
}

func nodeName(b *workloads.Bound) string {
	return fmt.Sprintf("%s/%s (%s)", b.SubGraph, b.Name, b.Variant)
}
