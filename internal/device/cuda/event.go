package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// event implements [device.Event] with two of the driver's: an event that was
// recorded in a capture is of no use outside it until it is recorded again (a
// query gives 907 while the capture runs and 1 after it, a wait 905), but here it must be what its last Record outside made it. Records
// and waits on each stream are laid out when it is made.
type event struct {
	r               *rank
	name            string
	outside, inside half
	recorded        bool // outside, ever
	// captured is the capture it was last recorded in; nil after a Record
	// outside. Pollers read it.
	captured atomic.Pointer[capture]
	before   tally // in that capture: what precedes the record
}

// half is one of the driver's events.
type half struct {
	h            driver.Event
	record, wait [workloads.NumStreams]*driver.Launch
}

func (r *rank) newHalf(h *half) (err error) {
	if h.h, err = r.api.EventCreate(driver.EventDisableTiming); err != nil {
		return err
	}
	for s, stream := range r.streams {
		if h.record[s], err = r.api.PrepareEventRecord(h.h, stream); err != nil {
			return err
		}
		if h.wait[s], err = r.api.PrepareStreamWaitEvent(stream, h.h); err != nil {
			return err
		}
	}
	return nil
}

func (e *event) close() error {
	var errs []error
	for _, h := range []driver.Event{e.outside.h, e.inside.h} {
		if h != 0 {
			errs = append(errs, e.r.api.EventDestroy(h))
		}
	}
	return errors.Join(errs...)
}

// NewEvent makes an event without timing.
func (r *rank) NewEvent(name string) (device.Event, error) {
	if err := r.refuse("NewEvent(" + name + ")"); err != nil {
		return nil, err
	}
	e := &event{r: r, name: name}
	for _, h := range []*half{&e.outside, &e.inside} {
		if err := r.newHalf(h); err != nil {
			return nil, errors.Join(fmt.Errorf("rank %d: NewEvent(%s): %w", r.id, name, err), e.close())
		}
	}
	r.events = append(r.events, e)
	r.g.live.events.Add(1)
	return e, nil
}

// Record marks the work now on the stream.
func (r *rank) Record(s workloads.Stream, ev device.Event) error {
	e, err := r.own(s, ev)
	if err != nil {
		return err
	}
	c := r.cap
	if c != nil && c.takes(s) {
		if err := c.valid("Record", e.name); err != nil {
			return err
		}
		if err := r.submit("record event ", e.name, s, e.inside.record[s]); err != nil {
			return c.fail(err)
		}
		e.before = c.joined[s]
		e.captured.Store(c)
		return nil
	}
	if err := r.submit("record event ", e.name, s, e.outside.record[s]); err != nil {
		return r.spoil(err)
	}
	e.recorded = true
	if e.captured.Load() != nil { // recording it for real takes it out of the capture
		e.captured.Store(nil)
	}
	return nil
}

// Wait makes later work on the stream wait for the last Record. For an event
// never recorded nothing is queued, inside a capture or not.
func (r *rank) Wait(s workloads.Stream, ev device.Event) error {
	e, err := r.own(s, ev)
	if err != nil {
		return err
	}
	c := r.cap
	inside := c != nil && e.captured.Load() == c
	if c != nil && (inside || c.takes(s)) {
		if err := c.valid("Wait", e.name); err != nil {
			return err
		}
	}
	if inside {
		if err := r.submit("wait for event ", e.name, s, e.inside.wait[s]); err != nil {
			return c.fail(err)
		}
		c.streams[s] = true
		c.joined[s].merge(&e.before)
		return nil
	}
	if !e.recorded {
		return nil
	}
	if err := r.submit("wait for event ", e.name, s, e.outside.wait[s]); err != nil {
		return r.spoil(err)
	}
	return nil
}

// submit makes the laid out call of an event. The words are put together only
// for a failure.
func (r *rank) submit(call, name string, s workloads.Stream, l *driver.Launch) error {
	code := r.api.Submit(l)
	if code == driver.Success {
		return nil
	}
	return r.failed(call+name+" behind", s, r.last[s].Load(), r.api.LaunchError(l, code))
}

func (r *rank) own(s workloads.Stream, ev device.Event) (*event, error) {
	e, ok := ev.(*event)
	if !ok || e.r != r {
		return nil, fmt.Errorf("rank %d: the event is not of this rank", r.id)
	}
	if s >= workloads.NumStreams {
		return nil, r.known(s)
	}
	return e, nil
}

// Sync blocks until the last Record's point is reached. It may be called on
// any thread.
func (e *event) Sync() error {
	if err := e.hostCall("Sync"); err != nil {
		return err
	}
	return e.answer("Sync", e.r.api.EventSynchronize(e.outside.h))
}

// Query says whether that point is reached. It may be called on any thread.
func (e *event) Query() (bool, error) {
	if err := e.hostCall("Query"); err != nil {
		return false, err
	}
	done, err := e.r.api.EventQuery(e.outside.h)
	if err != nil && sticky(code(err)) {
		done = true
	}
	return done, e.answer("Query", err)
}

// answer words the driver's answer to a host's look. A kernel that failed is
// the next Sync's to report: the context does not forget it.
func (e *event) answer(call string, err error) error {
	if err == nil || sticky(code(err)) {
		return nil
	}
	// In global mode the driver ended the capture for it.
	if c := e.r.capturing.Load(); c != nil && c.mode == device.CaptureGlobal {
		return c.fail(c.refuse("Event."+call+"("+e.name+") from another thread", rule(err)))
	}
	return fmt.Errorf("rank %d: Event.%s(%s): %w", e.r.id, call, e.name, rule(err))
}

// hostCall refuses a host's look at the event where a capture forbids it: on
// the rank's thread always, on others if the event was recorded in the capture.
// Other looks from other threads are the driver's to judge.
func (e *event) hostCall(call string) error {
	c := e.r.capturing.Load()
	if c == nil {
		return nil
	}
	call = "Event." + call + "(" + e.name + ")"
	mine := e.r.thread.Here()
	if e.captured.Load() == c {
		err := c.refuse(call, device.ErrCaptureEvent)
		if mine || c.mode == device.CaptureGlobal {
			return c.fail(err)
		}
		return err
	}
	if mine {
		return c.fail(c.refuse(call, device.ErrCaptureUnsupported))
	}
	return nil
}
