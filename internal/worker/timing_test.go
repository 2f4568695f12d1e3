package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
)

// simulated is a host that feeds, then launches the kernels of a step one by
// one, and a device that runs them in order, both on one clock that the test
// moves.
type simulated struct {
	feed, launch, kernel time.Duration // of a step; of a kernel
	kernels              int
	holds                int // kernels that the queue takes while held

	now     time.Duration // the host's
	ready   time.Duration // when the device has done what it was given
	held    bool
	queued  []time.Duration // lengths behind the hold
	expired bool
	begin   time.Duration
	behind  bool // the begin mark is behind the hold
}

func (s *simulated) give(length time.Duration) {
	switch {
	case !s.held:
		s.ready = max(s.ready, s.now) + length
	case len(s.queued) == s.holds:
		s.expired = true
		s.open()
		s.ready += length
	default:
		s.queued = append(s.queued, length)
	}
}

func (s *simulated) open() {
	s.held = false
	s.ready = max(s.ready, s.now)
	if s.behind {
		s.begin, s.behind = s.ready, false
	}
	for _, length := range s.queued {
		s.ready += length
	}
	s.queued = nil
}

func (s *simulated) Submit(steps int) error {
	for range steps {
		s.now += s.feed
		for range s.kernels {
			s.now += s.launch
			s.give(s.kernel)
		}
	}
	return nil
}

func (s *simulated) Wait() error {
	if s.held {
		return fmt.Errorf("waits for what is held")
	}
	s.now = max(s.now, s.ready)
	return nil
}

func (s *simulated) Hold() error { s.held = true; return nil }

func (s *simulated) Release() (bool, error) {
	expired := s.expired
	s.expired = false
	if s.held {
		s.open()
	}
	return expired, nil
}

func (s *simulated) MarkBegin() error {
	s.begin, s.behind = max(s.ready, s.now), s.held
	return nil
}

// MarkEnd stands behind all that was given, which with a hold is known once it
// is released.
func (s *simulated) MarkEnd() error { return nil }

func (s *simulated) EventTime() (time.Duration, error) { return s.ready - s.begin, nil }

// Launch overhead is how much longer a step takes because the host submits it
// while it runs: nothing where the device is the limit, however long the host
// feeds, and all that the host takes longer where that is the limit.
func TestLaunchOverhead(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name string
		s    simulated
		want time.Duration
		why  bool
	}{
		{"one launch, a long feed", simulated{feed: 8000 * us, launch: 10 * us, kernel: 30000 * us, kernels: 1, holds: 1000}, 0, false},
		{"many launches, the device is the limit", simulated{feed: 400 * us, launch: 5 * us, kernel: 10 * us, kernels: 300, holds: 1000}, 0, false},
		{"the host is the limit", simulated{feed: 50 * us, launch: 6 * us, kernel: 4 * us, kernels: 400, holds: 1000}, 50*us + 400*2*us, false},
		{"one step fits the queue", simulated{feed: 50 * us, launch: 6 * us, kernel: 4 * us, kernels: 400, holds: 600}, 50*us + 400*2*us, false},
		{"no step fits the queue", simulated{feed: 50 * us, launch: 6 * us, kernel: 4 * us, kernels: 400, holds: 300}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why, err := launchOverhead(&c.s, 10)
			if err != nil || (why != "") != c.why || got != c.want {
				t.Errorf("%v, %q, %v; want %v", got, why, err, c.want)
			}
		})
	}
}

// Timed steps that left the optimizer out are told of, with their
// configuration.
func TestSkipsAreTold(t *testing.T) {
	eager, step := results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device"}, results.ConfigurationKey{Mode: "step", Sync: "inside", Control: "device"}
	m := bench.Measured{Configurations: []results.Configuration{{Key: eager}, {Key: step}}, Skipped: []int64{0, 12}}
	w := skips(&m)
	if len(w) != 1 || w[0].Code != "steps_skipped" || !strings.Contains(w[0].Text, "12 timed steps of "+step.String()) {
		t.Errorf("told %+v", w)
	}
}
