package dnn

import (
	"errors"
	"fmt"

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
	var why []error
	for _, c := range cands {
		p, err := b.build(n, c.Choice)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, ErrUnsupported) {
			return nil, err
		}
		why = append(why, err)
	}
	return nil, fmt.Errorf("%s: none of %d candidates builds: %w", n.what, len(cands), errors.Join(why...))
}

// Pick builds each candidate in turn, has it timed and returns the best: the
// shortest time, where anything within 2 % of it counts as equal and the
// smaller workspace, then the lower engine, decides. time gets a plan that
// lives until it returns and gives the GPU time of one execution, best a median
// over replays of a captured graph. A candidate that does not build or cannot
// be timed is passed over; the timings say why. The choice has the plan's own
// workspace.
func (b *Builder) Pick(n *workloads.Bound, cands []Candidate, time func(*Plan) (ns float64, err error)) (Choice, []Timing, error) {
	nd, err := look(n)
	if err != nil {
		return Choice{}, nil, err
	}
	return b.pick(nd, cands, time)
}

func (b *Builder) pick(n *node, cands []Candidate, time func(*Plan) (ns float64, err error)) (Choice, []Timing, error) {
	timings := make([]Timing, 0, len(cands))
	for _, c := range cands {
		t := Timing{Choice: c.Choice}
		p, err := b.build(n, c.Choice)
		if err == nil {
			t.Choice = p.Choice()
			t.TimeNs, err = time(p)
			if e := p.Close(); err == nil {
				err = e
			}
		}
		t.Err = err
		timings = append(timings, t)
	}
	i := best(timings)
	if i < 0 {
		var why []error
		for _, t := range timings {
			why = append(why, t.Err)
		}
		return Choice{}, timings, fmt.Errorf("%s: none of %d candidates could be timed: %w", n.what, len(cands), errors.Join(append(why, ErrUnsupported)...))
	}
	return timings[i].Choice, timings, nil
}
