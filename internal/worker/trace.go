package worker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/write"
	"github.com/tech-renaissance/trbench/workloads"
)

var _ bench.Tracer = (*Executor)(nil)

// errNotTraced says that a device has nothing to record with.
var errNotTraced = errors.New("the device records nothing")

// stepTrace is what a rank's thread notes of recorded steps: when each was
// submitted, and when input was prepared. It belongs to that thread.
type stepTrace struct {
	now          func() int64
	steps, feeds []timeline.Window
}

// feeding is a feeder whose work is noted while something is recorded.
func (s *Session) feeding(rank int, f walk.Feeder) walk.Feeder {
	return func(v workloads.Variant, h workloads.Half, index int64, dst []byte) error {
		t := s.traces[rank]
		if t == nil {
			return f(v, h, index, dst)
		}
		begin := t.now()
		err := f(v, h, index, dst)
		t.feeds = append(t.feeds, timeline.Window{FromNs: begin, ToNs: t.now()})
		return err
	}
}

// CalibrateTrace implements [bench.Tracer].
func (x *Executor) CalibrateTrace() (*results.TraceCalibration, error) {
	c, ok := x.s.group.(device.TraceCalibrator)
	if !ok {
		return nil, nil
	}
	var out *results.TraceCalibration
	err := x.s.await(func() (err error) {
		out, err = c.CalibrateTrace()
		return err
	})
	return out, err
}

// Record implements [bench.Tracer]. The session is drained.
func (x *Executor) Record(steps int) (t *timeline.Timeline, err error) {
	g, ok := x.s.group.(device.Tracer)
	if !ok {
		return nil, errNotTraced
	}
	if err := x.s.await(func() error { return g.Trace(true) }); err != nil {
		return nil, err
	}
	notes := make([]*stepTrace, x.s.group.Ranks())
	for i := range notes {
		notes[i] = &stepTrace{now: g.TraceNow}
	}
	err = x.submitNoted(steps, notes)
	if err == nil {
		err = x.Wait()
	}
	if x.s.stuck != nil {
		return nil, err
	}
	if off := x.s.await(func() error { return g.Trace(false) }); err == nil {
		err = off
	}
	if err != nil {
		return nil, err
	}
	if t, err = g.Recorded(); err != nil {
		return nil, err
	}
	for i, n := range notes {
		n.place(t, i)
	}
	return t, nil
}

// submitNoted is Submit, with notes on each step.
func (x *Executor) submitNoted(steps int, notes []*stepTrace) error {
	step := x.s.step
	x.submitted += steps
	err := x.eachRank(func(rank int, r walk.Runner) error {
		n := notes[rank]
		x.s.traces[rank] = n
		defer func() { x.s.traces[rank] = nil }()
		for range steps {
			begin := n.now()
			if err := submitSteps(r, step, step[0], r.Position(), 1); err != nil {
				return err
			}
			n.steps = append(n.steps, timeline.Window{FromNs: begin, ToNs: n.now()})
		}
		return nil
	})
	return err
}

// place adds what was noted to a recording, as ranges of the rank's thread.
func (n *stepTrace) place(t *timeline.Timeline, rank int) {
	name := device.TraceThread(rank)
	thread := int32(slices.IndexFunc(t.Threads, func(th timeline.Thread) bool { return th.Name == name }))
	if thread < 0 { // it made no call that is on record
		thread = int32(len(t.Threads))
		th := timeline.Thread{Process: timeline.None, ID: fmt.Sprint(rank + 1), Name: name}
		if len(t.Processes) > 0 {
			th.Process = 0
		}
		t.Threads = append(t.Threads, th)
	}
	text := func(s string) timeline.Name {
		i := slices.Index(t.Names, s)
		if i < 0 {
			i = len(t.Names)
			t.Names = append(t.Names, s)
		}
		return timeline.Name(i)
	}
	for i, w := range n.steps {
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: w.FromNs, EndNs: w.ToNs, Thread: thread, Name: text(fmt.Sprintf("step %d", i)), Class: timeline.RangeStep})
	}
	for _, w := range n.feeds {
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: w.FromNs, EndNs: w.ToNs, Thread: thread, Name: text("feed"), Class: timeline.RangeFeed})
	}
}

// tracing is what a request asks to be recorded.
func tracing(req bench.CellRequest) bench.Tracing {
	t := bench.Tracing{Steps: req.TraceSteps}
	if len(req.TraceFiles) == 0 {
		return t
	}
	t.Save = func(k results.ConfigurationKey, x *timeline.Index) (string, error) {
		i := slices.Index(req.Configurations, k)
		if i < 0 || i >= len(req.TraceFiles) || req.TraceFiles[i] == "" {
			return "", nil
		}
		if err := write.File(req.TraceFiles[i], x); err != nil {
			return "", err
		}
		return req.TraceFiles[i], nil
	}
	return t
}
