package worker

import (
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
)

// timed is an executor on a device that keeps time itself.
type timed struct{ *Executor }

var (
	_ bench.EventTimer    = timed{}
	_ bench.OverheadMeter = timed{}
)

// timers says whether every rank keeps time.
func (s *Session) timers() bool {
	for i := range s.group.Ranks() {
		if _, ok := s.group.Rank(i).(device.Timer); !ok {
			return false
		}
	}
	return true
}

// onTimers runs f on every rank's timer.
func (t timed) onTimers(f func(rank int, d device.Timer) error) error {
	return t.s.each(func(r device.Rank) error { return f(r.ID(), r.(device.Timer)) })
}

// MarkBegin records an event on every rank before what is submitted next.
func (t timed) MarkBegin() error {
	return t.onTimers(func(_ int, d device.Timer) error { return d.MarkBegin() })
}

// MarkEnd records an event on every rank behind what was submitted.
func (t timed) MarkEnd() error {
	return t.onTimers(func(_ int, d device.Timer) error { return d.MarkEnd() })
}

// EventTime is the time between the two on the slowest rank.
func (t timed) EventTime() (time.Duration, error) {
	all := make([]time.Duration, t.s.group.Ranks())
	err := t.onTimers(func(rank int, d device.Timer) (err error) {
		all[rank], err = d.Between()
		return err
	})
	return slices.Max(all), err
}

// heldSteps is how many steps can be submitted while the device is held: each
// step fills the half that the step before the last one transferred, and the
// third would wait for a transfer that is held.
const heldSteps = 2

// overheadRounds is how often free and held steps are timed in turn.
const overheadRounds = 3

// LaunchOverhead times steps between events, free-running and then queued
// behind a hold until all are submitted, a few times in turn, and returns the
// median difference per step. Host joins and host control wait for what is
// held, so with them there is no such figure.
func (t timed) LaunchOverhead(steps int) (time.Duration, string, error) {
	if t.key.Sync == "host" || t.key.Control == "host" {
		return 0, "joins or control on the host wait for the device within a step", nil
	}
	for n := min(steps, heldSteps); n > 0; n-- {
		d, expired, err := t.overhead(n)
		if err != nil {
			return 0, "", err
		}
		if !expired {
			return d, "", nil
		}
	}
	return 0, "the device's queue could not hold a step until all of it was submitted", nil
}

// overhead is LaunchOverhead for a number of steps; expired says that they did
// not fit behind the hold.
func (t timed) overhead(steps int) (perStep time.Duration, expired bool, err error) {
	var differences []time.Duration
	for range overheadRounds {
		free, _, err := t.spanOf(steps, false)
		if err != nil {
			return 0, false, err
		}
		held, expired, err := t.spanOf(steps, true)
		if err != nil || expired {
			return 0, expired, err
		}
		differences = append(differences, (free-held)/time.Duration(steps))
	}
	slices.Sort(differences)
	return differences[len(differences)/2], false, nil
}

// spanOf is the device's time of some steps from a drained device.
func (t timed) spanOf(steps int, hold bool) (d time.Duration, expired bool, err error) {
	if hold {
		if err := t.onTimers(func(_ int, d device.Timer) error { return d.Hold() }); err != nil {
			return 0, false, err
		}
	}
	for _, f := range []func() error{t.MarkBegin, func() error { return t.Submit(steps) }, t.MarkEnd} {
		if err := f(); err != nil {
			return 0, false, err
		}
	}
	if hold {
		late := make([]bool, t.s.group.Ranks())
		err := t.onTimers(func(rank int, d device.Timer) (err error) {
			late[rank], err = d.Release()
			return err
		})
		if err != nil {
			return 0, false, err
		}
		expired = slices.Contains(late, true)
	}
	if err := t.Wait(); err != nil {
		return 0, false, err
	}
	d, err = t.EventTime()
	return d, expired, err
}

// asBench is an executor as the harness sees it.
func (s *Session) asBench(x *Executor) bench.Executor {
	if s.timers() {
		return timed{x}
	}
	return x
}
