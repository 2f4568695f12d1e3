package walk

import (
	"fmt"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// Pacer is what a [Runner] is apart from how it submits: clocks, data, drains.
// Runners embed it. It belongs to the rank's thread.
type Pacer struct {
	Rank  device.Rank
	Feed  *Feed
	Clock Stopwatch

	submit   func(workloads.Segment) error
	shown    *shownSteps // nil without a tool
	progress atomic.Int64
}

var _ Runner = (*Pacer)(nil)

// NewPacer makes the consumed events. submit submits a segment. It runs on the
// rank's thread.
func NewPacer(r device.Rank, t *Table, feeder Feeder, submit func(workloads.Segment) error) (*Pacer, error) {
	feed, err := NewFeed(r, t, feeder)
	if err != nil {
		return nil, err
	}
	return &Pacer{Rank: r, Feed: feed, submit: submit, shown: newShownSteps(t.tool, r.ID())}, nil
}

// Run submits a segment. After an error the rank's streams may still hold work;
// the caller drains them.
func (p *Pacer) Run(seg workloads.Segment) error {
	if p.shown != nil {
		p.shown.begin(seg)
	}
	p.Clock.Begin()
	err := p.submit(seg)
	if err == nil {
		p.Feed.Advance(seg)
	}
	p.progress.Add(1)
	p.Clock.End() // last, so that the clocks hold all there is
	if p.shown != nil {
		p.shown.end(seg)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", SegmentName(seg), err)
	}
	return nil
}

// Ready fetches into the caches what [Pacer.Run] does before its clock begins
// and after it ends, by running a segment that submits nothing. It counts as
// none, and no tool is shown it.
func (p *Pacer) Ready() {
	stats, submit, shown, pos := p.Clock.stats, p.submit, p.shown, p.Feed.pos
	p.submit, p.shown = submitNothing, nil
	_ = p.Run(workloads.Segment{})
	p.Clock.stats, p.submit, p.shown, p.Feed.pos = stats, submit, shown, pos
	p.progress.Add(-1)
}

func submitNothing(workloads.Segment) error { return nil }

// Drain blocks until every stream is idle.
func (p *Pacer) Drain() error {
	err := p.Rank.SyncAll()
	p.progress.Add(1)
	return err
}

// Stats returns the clocks and counts since the last reset.
func (p *Pacer) Stats() Stats { return p.Clock.Stats() }

// ResetStats sets clocks and counts to zero.
func (p *Pacer) ResetStats() { p.Clock.Reset() }

// Position returns where the runner stands in its data.
func (p *Pacer) Position() Position { return p.Feed.Position() }

// SetPosition moves it. The rank is drained.
func (p *Pacer) SetPosition(pos Position) {
	p.Feed.SetPosition(pos)
	if p.shown != nil {
		p.shown.endEpoch()
	}
}

// Progress counts segments and drains.
func (p *Pacer) Progress() int64 { return p.progress.Load() }
