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
	_ holdable            = timed{}
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

// holdable is what launch overhead is measured on: steps between events, and a
// gate that can be put before them.
type holdable interface {
	bench.EventTimer
	Submit(steps int) error
	Wait() error
	// Hold stops every rank's device before what is submitted next; Release lets
	// it go on and says whether a rank's had by itself before.
	Hold() error
	Release() (expired bool, err error)
}

// LaunchOverhead times steps between events, free-running and then queued
// behind a hold until all are submitted, a few times in turn, and returns the
// median difference per step. Host joins and host control wait for what is
// held, so with them there is no such figure.
func (t timed) LaunchOverhead(steps int) (time.Duration, string, error) {
	if t.key.Sync == "host" || t.key.Control == "host" {
		return 0, "joins or control on the host wait for the device within a step", nil
	}
	return launchOverhead(t, steps)
}

func launchOverhead(x holdable, steps int) (perStep time.Duration, why string, err error) {
	for n := min(steps, heldSteps); n > 0; n-- {
		d, expired, err := overhead(x, n)
		if err != nil {
			return 0, "", err
		}
		if !expired {
			return d, "", nil
		}
	}
	return 0, "the device's queue could not hold a step until all of it was submitted", nil
}

// overhead is launchOverhead for a number of steps; expired says that they did
// not fit behind the hold.
func overhead(x holdable, steps int) (perStep time.Duration, expired bool, err error) {
	var differences []time.Duration
	for range overheadRounds {
		free, err := freeSpan(x, steps)
		if err != nil {
			return 0, false, err
		}
		held, expired, err := heldSpan(x, steps)
		if err != nil || expired {
			return 0, expired, err
		}
		differences = append(differences, (free-held)/time.Duration(steps))
	}
	slices.Sort(differences)
	return differences[len(differences)/2], false, nil
}

// freeSpan is the device's time of some steps behind one that does not count.
// From a drained device the first step would begin with what the host does
// before its first launch, feeding above all, which a device at work hides.
func freeSpan(x holdable, steps int) (time.Duration, error) {
	if err := x.Submit(1); err != nil {
		return 0, err
	}
	if err := between(x, steps); err != nil {
		return 0, err
	}
	if err := x.Wait(); err != nil {
		return 0, err
	}
	return x.EventTime()
}

// heldSpan is the device's time of some steps that were all submitted before it
// began; expired says that it began before.
func heldSpan(x holdable, steps int) (d time.Duration, expired bool, err error) {
	if err := x.Hold(); err != nil {
		return 0, false, err
	}
	if err := between(x, steps); err != nil {
		return 0, false, err
	}
	if expired, err = x.Release(); err != nil {
		return 0, false, err
	}
	if err := x.Wait(); err != nil {
		return 0, false, err
	}
	d, err = x.EventTime()
	return d, expired, err
}

// between submits steps between marks.
func between(x holdable, steps int) error {
	if err := x.MarkBegin(); err != nil {
		return err
	}
	if err := x.Submit(steps); err != nil {
		return err
	}
	return x.MarkEnd()
}

// Hold holds every rank's device.
func (t timed) Hold() error {
	return t.onTimers(func(_ int, d device.Timer) error { return d.Hold() })
}

// Release lets every rank's device go on.
func (t timed) Release() (expired bool, err error) {
	late := make([]bool, t.s.group.Ranks())
	err = t.onTimers(func(rank int, d device.Timer) (err error) {
		late[rank], err = d.Release()
		return err
	})
	return slices.Contains(late, true), err
}

// asBench is an executor as the harness sees it.
func (s *Session) asBench(x *Executor) bench.Executor {
	if s.timers() {
		return timed{x}
	}
	return x
}
