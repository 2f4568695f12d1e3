package capture

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// launch is one entry of a dense table of executables.
type launch struct {
	exec   device.Exec
	copies int64
}

// Launcher launches one graph a sub-graph on one rank (mode graph). It belongs
// to the rank's thread and lives as long as its set.
type Launcher struct {
	table [walk.TableEntries]launch
}

var _ walk.Launcher = (*Launcher)(nil)

// Launcher returns the rank's launcher of a set of mode graph.
func (s *Set) Launcher(rank int) *Launcher {
	l := &Launcher{}
	for cell, unit := range s.layout.slots {
		if unit > 0 {
			l.table[cell] = launch{s.execs[rank][unit-1], int64(s.layout.units[unit-1].copies)}
		}
	}
	return l
}

// Launch replays a sub-graph's graph on its stream. A slot without operators
// is no launch.
func (l *Launcher) Launch(id workloads.SubGraph, v workloads.Variant, c *walk.Counts) error {
	e := &l.table[walk.Cell(id, v)]
	if e.exec == nil {
		return nil
	}
	if err := e.exec.Launch(id.Info().Stream, v); err != nil {
		return err
	}
	c.Host++
	c.Graph++
	c.Copy += e.copies
	return nil
}

// segment is what one run of a segment does in mode step.
type segment struct {
	known    bool
	shown    *nvtx.Range
	launch   launch
	feeds    []workloads.Half
	consumed []workloads.Half
	ahead    []workloads.Half // what the step that usually follows feeds
}

// Runner runs whole segments on one rank (mode step): feed, one launch, mark
// what was consumed, feed the step that usually follows. It belongs to the
// rank's thread and lives as long as its set.
//
// A graph transfers the half it was fed before its launch, where the other
// modes feed behind the stem's forward, with the device at work already. The
// last part makes up for it: on a device that keeps up, the next step's half
// is written while this step runs, and its launch then waits for nothing. A
// half that is not consumed yet is left to the next Run, which blocks.
type Runner struct {
	*walk.Pacer
	segments walk.SegmentTable[segment]
}

var _ walk.Runner = (*Runner)(nil)

// Runner returns the rank's runner of a set of mode step. It runs on the
// rank's thread.
func (s *Set) Runner(r device.Rank, feeder walk.Feeder) (*Runner, error) {
	if s.layout.mode != Step {
		return nil, fmt.Errorf("capture: a set of mode %s has launchers, no runner", s.layout.mode)
	}
	run := &Runner{}
	var err error
	if run.Pacer, err = walk.NewPacer(r, s.tables[r.ID()], feeder, run.submit); err != nil {
		return nil, err
	}
	for _, seg := range walk.Segments(s.tables[r.ID()].Variants()) {
		p := run.segments.At(seg)
		p.known = true
		p.shown = s.tables[r.ID()].Tool().Range(walk.SegmentName(seg), nvtx.SubGraph.Look())
		p.feeds = s.feeds(seg)
		if next, ok := walk.After(seg); ok {
			p.ahead = s.feeds(next)
		}
		for _, a := range s.w.Schedule(seg) {
			if a.Kind == workloads.ActRun {
				if h, ok := walk.TransferHalf(a.SubGraph); ok {
					p.consumed = append(p.consumed, h)
				}
			}
		}
		if unit := *s.layout.segments.At(seg); unit > 0 {
			p.launch = launch{s.execs[r.ID()][unit-1], int64(s.layout.units[unit-1].copies)}
		}
	}
	return run, nil
}

// feeds lists the halves that a segment is fed.
func (s *Set) feeds(seg workloads.Segment) []workloads.Half {
	var out []workloads.Half
	for _, a := range s.w.Schedule(seg) {
		if a.Kind == workloads.ActFeed {
			out = append(out, a.Half)
		}
	}
	return out
}

// submit feeds the halves that the segment transfers, launches its graph and
// marks the halves as consumed behind it. A graph is consumed as a whole, so
// the host may be one step ahead and no more.
func (r *Runner) submit(seg workloads.Segment) error {
	p := r.segments.At(seg)
	if !p.known {
		return fmt.Errorf("the variant was not prepared")
	}
	for _, h := range p.feeds {
		if err := r.Feed.Fill(seg.Variant, h, &r.Clock); err != nil {
			return err
		}
	}
	if p.launch.exec != nil {
		p.shown.Push()
		r.Clock.Mark()
		err := p.launch.exec.Launch(workloads.COMP1, seg.Variant)
		r.Clock.Submitted()
		p.shown.Pop()
		if err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		r.Clock.Count(walk.Counts{Host: 1, Graph: 1, Copy: p.launch.copies})
	}
	for _, h := range p.consumed {
		if err := r.Feed.Consumed(workloads.COMP1, h); err != nil {
			return err
		}
	}
	for _, h := range p.ahead {
		if err := r.Feed.Ahead(seg.Variant, h); err != nil {
			return err
		}
	}
	return nil
}
