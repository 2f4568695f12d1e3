package dnn

import (
	"errors"
	"fmt"
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// First builds the first candidate that builds: the libraries' own guess,
// without measurement. The caller closes the plan. The error wraps
// [ErrUnsupported] if none builds.
func (b *Builder) First(n *workloads.Bound) (*Plan, error) {
	nd, err := look(n)
	if err != nil {
		return nil, err
	}
	return b.first(nd)
}

func (b *Builder) first(n *node) (*Plan, error) {
	cands, err := b.candidates(n)
	if err != nil {
		return nil, err
	}
	why := fmt.Errorf("%s: none of %d candidates builds: %w", n.what, len(cands), ErrUnsupported)
	for _, c := range cands {
		p, err := b.build(n, c.Choice)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, ErrUnsupported) {
			return nil, err
		}
		why = also(why, err)
	}
	return nil, why
}

// Timer gives the GPU time of one execution of a plan, in nanoseconds, best as
// a median over replays of a captured graph. The plan lives until it returns.
// shortest is the best time so far, infinite at first: among the candidates are
// engines a hundred times slower than the best, so a timer looks at one
// execution first and returns its time if that is far behind.
type Timer func(p *Plan, shortest float64) (ns float64, err error)

// Pick builds each candidate in turn, has it timed and returns the best: the
// shortest time, where anything within 2 % of it counts as equal and the
// smaller workspace, then the lower engine, decides. A candidate that does not
// build or cannot be timed is passed over; the timings say why. The choice has
// the plan's own workspace.
func (b *Builder) Pick(n *workloads.Bound, cands []Candidate, time Timer) (Choice, []Timing, error) {
	nd, err := look(n)
	if err != nil {
		return Choice{}, nil, err
	}
	return b.pick(nd, cands, time)
}

func (b *Builder) pick(n *node, cands []Candidate, time Timer) (Choice, []Timing, error) {
	timings := make([]Timing, 0, len(cands))
	shortest := math.Inf(1)
	for _, c := range cands {
		t := Timing{Choice: c.Choice}
		p, err := b.build(n, c.Choice)
		if err == nil {
			t.Choice = p.Choice()
			t.TimeNs, err = time(p, shortest)
			if e := p.Close(); err == nil {
				err = e
			}
		}
		if t.Err = err; err == nil {
			shortest = min(shortest, t.TimeNs)
		}
		timings = append(timings, t)
	}
	i := best(timings)
	if i < 0 {
		err := fmt.Errorf("%s: none of %d candidates could be timed: %w", n.what, len(cands), ErrUnsupported)
		for _, t := range timings {
			err = also(err, t.Err)
		}
		return Choice{}, timings, err
	}
	return timings[i].Choice, timings, nil
}
