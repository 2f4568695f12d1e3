package capture

import (
	"fmt"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
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
	launch   launch
	feeds    []workloads.Half
	consumed []workloads.Half
}

// Runner runs whole segments on one rank (mode step): feed, one launch, mark
// what was consumed. It belongs to the rank's thread and lives as long as its
// set.
type Runner struct {
	rank     device.Rank
	segments walk.SegmentTable[segment]
	feed     *walk.Feed
	sw       walk.Stopwatch
	progress atomic.Int64
}

var _ walk.Runner = (*Runner)(nil)

// Runner returns the rank's runner of a set of mode step. It runs on the
// rank's thread.
func (s *Set) Runner(r device.Rank, feeder walk.Feeder) (*Runner, error) {
	if s.layout.mode != Step {
		return nil, fmt.Errorf("capture: a set of mode %s has launchers, no runner", s.layout.mode)
	}
	feed, err := walk.NewFeed(r, s.w, feeder)
	if err != nil {
		return nil, err
	}
	run := &Runner{rank: r, feed: feed}
	for _, seg := range walk.Segments(s.tables[r.ID()].Variants()) {
		p := run.segments.At(seg)
		p.known = true
		for _, a := range s.w.Schedule(seg) {
			if a.Kind == workloads.ActFeed {
				p.feeds = append(p.feeds, a.Half)
			}
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

// Run feeds the halves that the segment transfers, launches its graph and
// marks the halves as consumed behind it. A graph is consumed as a whole, so
// the host may be one step ahead and no more.
func (r *Runner) Run(seg workloads.Segment) error {
	r.sw.Begin()
	err := r.run(seg)
	if err == nil {
		r.feed.Advance(seg)
	}
	r.progress.Add(1)
	r.sw.End() // last, so that the clocks hold all there is
	if err != nil {
		return fmt.Errorf("%s: %w", walk.SegmentName(seg), err)
	}
	return nil
}

func (r *Runner) run(seg workloads.Segment) error {
	p := r.segments.At(seg)
	if !p.known {
		return fmt.Errorf("the variant was not prepared")
	}
	for _, h := range p.feeds {
		if err := r.feed.Fill(seg.Variant, h, &r.sw); err != nil {
			return err
		}
	}
	if p.launch.exec != nil {
		r.sw.Mark()
		err := p.launch.exec.Launch(workloads.COMP1, seg.Variant)
		r.sw.Submitted()
		if err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		r.sw.Count(walk.Counts{Host: 1, Graph: 1, Copy: p.launch.copies})
	}
	for _, h := range p.consumed {
		if err := r.feed.Consumed(workloads.COMP1, h); err != nil {
			return err
		}
	}
	return nil
}

// Drain blocks until every stream is idle.
func (r *Runner) Drain() error {
	err := r.rank.SyncAll()
	r.progress.Add(1)
	return err
}

// Stats returns the clocks and counts since the last reset.
func (r *Runner) Stats() walk.Stats { return r.sw.Stats() }

// ResetStats sets clocks and counts to zero.
func (r *Runner) ResetStats() { r.sw.Reset() }

// Position returns where the runner stands in its data.
func (r *Runner) Position() walk.Position { return r.feed.Position() }

// SetPosition moves it. The rank is drained.
func (r *Runner) SetPosition(p walk.Position) { r.feed.SetPosition(p) }

// Progress counts segments and drains.
func (r *Runner) Progress() int64 { return r.progress.Load() }
