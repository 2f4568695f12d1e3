package calibrate

import (
	"fmt"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

const (
	syncShare  = 15 * time.Millisecond // of each wait
	forkShare  = 25 * time.Millisecond // of each graph of levels
	syncBatch  = 100
	queueBatch = 50
	fewLevels  = 10
	manyLevels = 50
)

// widths are the forks measured.
var widths = []int{1, 2, maxWidth}

// idle measures waits that have nothing to wait for.
func (s *stand) idle() error {
	stream, err := s.api.PrepareStreamSynchronize(s.streams[0])
	if err != nil {
		return err
	}
	record, err := s.api.PrepareEventRecord(s.fork, s.streams[0])
	if err != nil {
		return err
	}
	wait, err := s.api.PrepareStreamWaitEvent(s.streams[1], s.fork)
	if err != nil {
		return err
	}
	pair := s.submitting(queueBatch, record, wait)
	for _, m := range []struct {
		name string
		f    func() (float64, error)
	}{
		{"sync.device_idle_ns", func() (float64, error) {
			begin := s.nowNs()
			for range syncBatch {
				if err := s.api.CtxSynchronize(); err != nil {
					return 0, err
				}
			}
			return float64(s.nowNs()-begin) / syncBatch, nil
		}},
		{"sync.stream_idle_ns", s.submitting(syncBatch, stream)},
		{"sync.event_idle_ns", pair},
		{"sync.event_queued_ns", func() (float64, error) {
			if err := s.submit(s.burnLong); err != nil {
				return 0, err
			}
			return pair()
		}},
	} {
		all, err := s.sample(syncShare, most, m.f)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		s.median(m.name, all)
	}
	return nil
}

// busy measures what a submission and a wait cost around a kernel that takes
// longer than both.
func (s *stand) busy() error {
	own, err := s.sample(syncShare, most, func() (float64, error) {
		once, err := s.span(func() error { return s.submit(s.burn) })
		if err != nil {
			return 0, err
		}
		twice, err := s.span(func() error { return s.submit(s.burnTwice) })
		return twice - once, err
	})
	if err != nil {
		return err
	}
	burn := s.median("sync.burn_gpu_ns", own)
	for _, m := range []struct {
		name string
		wait func() error
	}{
		{"sync.device_busy_ns", s.api.CtxSynchronize},
		{"sync.stream_busy_ns", s.streamIdle},
		{"sync.event_busy_ns", func() error {
			if err := s.api.EventRecord(s.fork, s.streams[0]); err != nil {
				return err
			}
			return s.api.EventSynchronize(s.fork)
		}},
	} {
		all, err := s.sample(syncShare, most, func() (float64, error) {
			took, err := s.roundTrip(s.burn, m.wait)
			return took - burn, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		s.median(m.name, all)
	}
	return nil
}

// forks measures levels inside a graph: the slope between few and many.
func (s *stand) forks() error {
	for _, w := range widths {
		few, _, err := s.levels(w, fewLevels)
		if err != nil {
			return fmt.Errorf("a fork of %d: %w", w, err)
		}
		many, n, err := s.levels(w, manyLevels)
		if err != nil {
			return fmt.Errorf("a fork of %d: %w", w, err)
		}
		s.add(fmt.Sprintf("graph.fork_join_%d_ns", w), unitNs, (many-few)/(manyLevels-fewLevels), n)
	}
	return nil
}

// levels is the GPU time of a graph of levels of a width.
func (s *stand) levels(width, levels int) (ns float64, n int, err error) {
	g, err := s.capture(func() error {
		for range levels {
			if err := s.level(width); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	exec, err := s.instantiate(g)
	if err != nil {
		return 0, 0, err
	}
	launch, err := s.api.PrepareGraphLaunch(exec, s.streams[0])
	if err != nil {
		return 0, 0, err
	}
	all, err := s.sample(forkShare, most, func() (float64, error) { return s.span(func() error { return s.submit(launch) }) })
	if err != nil {
		return 0, 0, err
	}
	return results.Median(all), len(all), s.drop(exec)
}

// level submits a kernel, as many side by side as the width, and one that
// follows them all.
func (s *stand) level(width int) error {
	origin := s.streams[0]
	if err := s.submit(s.empty[0]); err != nil {
		return err
	}
	if err := s.api.EventRecord(s.fork, origin); err != nil {
		return err
	}
	for i := range width {
		branch := s.streams[1+i]
		if err := s.api.StreamWaitEvent(branch, s.fork, 0); err != nil {
			return err
		}
		if err := s.submit(s.empty[1+i]); err != nil {
			return err
		}
		if err := s.api.EventRecord(s.joins[i], branch); err != nil {
			return err
		}
		if err := s.api.StreamWaitEvent(origin, s.joins[i], 0); err != nil {
			return err
		}
	}
	return s.submit(s.empty[0])
}
