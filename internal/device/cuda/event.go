package cuda

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// event implements [device.Event]. Its records and waits on each stream are
// laid out when it is made.
type event struct {
	r            *rank
	name         string
	h            driver.Event
	record, wait [workloads.NumStreams]*driver.Launch
	captured     *capture // the capture it was last recorded in
}

// NewEvent makes an event without timing.
func (r *rank) NewEvent(name string) (device.Event, error) {
	if err := r.refuse("NewEvent(" + name + ")"); err != nil {
		return nil, err
	}
	h, err := r.api.EventCreate(driver.EventDisableTiming)
	if err != nil {
		return nil, fmt.Errorf("rank %d: event %s: %w", r.id, name, err)
	}
	e := &event{r: r, name: name, h: h}
	r.events = append(r.events, e)
	r.g.live.events.Add(1)
	for s, stream := range r.streams {
		if e.record[s], err = r.api.PrepareEventRecord(h, stream); err != nil {
			return nil, err
		}
		if e.wait[s], err = r.api.PrepareStreamWaitEvent(stream, h); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Record marks the work now on the stream.
func (r *rank) Record(s workloads.Stream, ev device.Event) error {
	e, err := r.own(s, ev)
	if err != nil {
		return err
	}
	l := e.record[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.spoil(r.failed("record event "+e.name+" behind", s, r.last[s], r.api.LaunchError(l, code)))
	}
	e.captured = nil
	if r.cap != nil && r.cap.takes(s) {
		e.captured = r.cap
	}
	return nil
}

// Wait makes later work on the stream wait for the last Record.
func (r *rank) Wait(s workloads.Stream, ev device.Event) error {
	e, err := r.own(s, ev)
	if err != nil {
		return err
	}
	l := e.wait[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.spoil(r.failed("wait for event "+e.name+" behind", s, r.last[s], r.api.LaunchError(l, code)))
	}
	if r.cap != nil && e.captured == r.cap {
		r.cap.streams[s] = true
	}
	return nil
}

func (r *rank) own(s workloads.Stream, ev device.Event) (*event, error) {
	e, ok := ev.(*event)
	if !ok || e.r != r {
		return nil, fmt.Errorf("rank %d: the event is another rank's", r.id)
	}
	if s >= workloads.NumStreams {
		return nil, fmt.Errorf("rank %d: stream number %d is not a device stream", r.id, s)
	}
	return e, nil
}

// Sync blocks until the last Record's point is reached.
func (e *event) Sync() error {
	if err := e.r.api.EventSynchronize(e.h); err != nil {
		return e.r.spoil(fmt.Errorf("rank %d: wait for event %s: %w", e.r.id, e.name, rule(err)))
	}
	return nil
}

// Query says whether that point is reached.
func (e *event) Query() (bool, error) {
	done, err := e.r.api.EventQuery(e.h)
	if err != nil {
		return false, e.r.spoil(fmt.Errorf("rank %d: query event %s: %w", e.r.id, e.name, rule(err)))
	}
	return done, nil
}
