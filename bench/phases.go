package bench

import (
	"context"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Phases adds up where a replicate's wall time goes: one phase at a time, from
// one Begin to the next. It belongs to the goroutine that runs the replicate. nil
// adds up nothing. Beginning a phase reads the clock once and, for a phase that
// was there before, makes nothing, so it may stand right beside what is timed.
type Phases struct {
	clock Clock
	names []string
	spent []time.Duration
	now   int // the phase that runs; -1 for none
	since time.Duration
}

// NewPhases begins without a phase.
func NewPhases(clock Clock) *Phases { return &Phases{clock: clock, now: -1} }

// Begin ends the phase that runs and begins another, or goes on with one that
// was there before.
func (p *Phases) Begin(name string) {
	if p == nil {
		return
	}
	p.stop()
	p.now = slices.Index(p.names, name)
	if p.now < 0 {
		p.now = len(p.names)
		p.names, p.spent = append(p.names, name), append(p.spent, 0)
	}
}

func (p *Phases) stop() {
	now := p.clock.Now()
	if p.now >= 0 {
		p.spent[p.now] += now - p.since
	}
	p.since = now
}

// End ends the phase that runs and returns all, in the order of their first
// begin.
func (p *Phases) End() []results.ProcessPhase {
	if p == nil {
		return nil
	}
	p.stop()
	p.now = -1
	var out []results.ProcessPhase
	for i, name := range p.names {
		out = append(out, results.ProcessPhase{Phase: name, Ns: p.spent[i].Nanoseconds()})
	}
	return out
}

// phased runs a replicate whose cell says where its time went. Its first event
// comes before anything else, so that who started the process knows how long
// that took.
func phased(run RunCell, clock Clock) RunCell {
	return func(ctx context.Context, req CellRequest) (*results.Cell, error) {
		req.Phases = NewPhases(clock)
		req.Phases.Begin(results.PhaseOpenDevice)
		if req.Events != nil {
			req.Events(Event{Phase: "open device " + req.Cell.Device})
		}
		cell, err := run(ctx, req)
		if err != nil {
			return cell, err
		}
		if len(cell.Processes) == 0 {
			cell.Processes = []results.Process{{Index: req.Process}}
		}
		cell.Processes[0].Phases = req.Phases.End()
		return cell, nil
	}
}

// Here runs a replicate in this process.
func Here(ctx context.Context, req CellRequest, run RunCell) (*results.Cell, error) {
	return phased(run, System())(ctx, req)
}

// aroundPhases completes what a replicate says of itself with what came before
// its first event and after its cell, both by the parent's clock: together the
// phases are its wall time.
func aroundPhases(own []results.ProcessPhase, before, whole time.Duration) []results.ProcessPhase {
	if len(own) == 0 {
		return nil
	}
	rest := whole - before
	for _, p := range own {
		rest -= time.Duration(p.Ns)
	}
	// Two processes' clocks tick alike, but an event takes a moment to arrive.
	all := append([]results.ProcessPhase{{Phase: results.PhaseStart, Ns: before.Nanoseconds()}}, own...)
	return append(all, results.ProcessPhase{Phase: results.PhaseEnd, Ns: max(rest, 0).Nanoseconds()})
}
