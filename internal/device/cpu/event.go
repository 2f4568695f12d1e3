package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// event implements [device.Event]. Each Record has a number; a wait is for the
// number that was last when Wait was called, so recording again does not move
// it. A stream completes its records in order, but two streams do not: the
// highest completed number is kept for each stream.
//
// After a capture an event is what its last Record outside the capture made it.
type event struct {
	name string
	rank *rank

	// last is the last record, number<<8 | stream, 0 if there was none. The
	// rank's thread writes it; whoever polls reads it. Streams never touch it:
	// they get the record's number with the queue's item.
	last     atomic.Uint64
	captured atomic.Pointer[capture] // the capture in progress that recorded it last
	after    []int                   // in that capture: the nodes it stands after

	// The rest is behind raceOff, because a lock orders its holders both
	// ways and a waiter must learn from the recorder only. The edge itself is
	// made by clock.
	mu    sync.Mutex
	moved *sync.Cond
	done  [workloads.NumStreams]atomic.Uint64
	clock [workloads.NumStreams][eventClocks]uint64
}

func newEvent(r *rank, name string) *event {
	e := &event{name: name, rank: r}
	e.moved = sync.NewCond(&e.mu)
	return e
}

// NewEvent creates an event. It lives as long as the group, and is refused
// inside a capture, where creating anything is a mistake on accelerators.
func (r *rank) NewEvent(name string) (device.Event, error) {
	if r.gone {
		return nil, fmt.Errorf("rank %d: %w", r.id, device.ErrClosed)
	}
	if err := r.unsafeCall("NewEvent(" + name + ")"); err != nil {
		return nil, err
	}
	r.g.live.events.Add(1)
	return newEvent(r, name), nil
}

func (r *rank) event(e device.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok || ev.rank != r {
		return nil, fmt.Errorf("rank %d: the event is not of this rank", r.id)
	}
	return ev, nil
}

// Record marks the stream's tail.
func (r *rank) Record(s workloads.Stream, e device.Event) error {
	st, err := r.stream(s)
	if err != nil {
		return err
	}
	ev, err := r.event(e)
	if err != nil {
		return err
	}
	if c := r.cap; c != nil && c.in[s] {
		return c.record(s, ev)
	}
	if ev.captured.Load() != nil { // recording it for real takes it out of the capture
		ev.captured.Store(nil)
	}
	if t := r.trace.Load(); t != nil {
		defer t.did(callRecord, 0, t.now())
	}
	gen := ev.next(s)
	st.q <- item{what: ev, on: s, gen: gen}
	return nil
}

// next makes a new record the last one.
func (e *event) next(s workloads.Stream) uint64 {
	gen := e.last.Load()>>8 + 1
	e.last.Store(gen<<8 | uint64(s))
	return gen
}

// Wait makes the stream wait for the last record. On an idle or never recorded
// event nothing is queued.
func (r *rank) Wait(s workloads.Stream, e device.Event) error {
	st, err := r.stream(s)
	if err != nil {
		return err
	}
	ev, err := r.event(e)
	if err != nil {
		return err
	}
	if c := r.cap; c != nil && (c.in[s] || ev.captured.Load() == c) {
		return c.wait(s, ev)
	}
	if t := r.trace.Load(); t != nil {
		defer t.did(callWait, 0, t.now())
	}
	st.await(ev)
	return nil
}

// await queues a wait for the event's last record.
func (s *stream) await(e *event) {
	last := e.last.Load()
	if last == 0 {
		return
	}
	on, gen := workloads.Stream(last&0xff), last>>8
	if on == s.id { // the stream's own order says it already
		return
	}
	s.q <- item{what: e, wait: true, on: on, gen: gen}
}

// complete is called by the stream that reached the record.
func (e *event) complete(on workloads.Stream, gen uint64) {
	raceRelease(&e.clock[on][gen%eventClocks])
	raceOff()
	e.mu.Lock()
	e.done[on].Store(gen)
	e.moved.Broadcast()
	e.mu.Unlock()
	raceOn()
}

// await blocks until the record is reached.
func (e *event) await(on workloads.Stream, gen uint64) {
	raceOff()
	if e.done[on].Load() < gen {
		e.mu.Lock()
		for e.done[on].Load() < gen {
			e.moved.Wait()
		}
		e.mu.Unlock()
	}
	raceOn()
	raceAcquire(&e.clock[on][gen%eventClocks])
}

// Sync may be called on any goroutine.
func (e *event) Sync() error {
	if err := e.hostCall("Sync"); err != nil {
		return err
	}
	// Any thread may call it; the recording is the rank's.
	if t := e.rank.trace.Load(); t != nil && e.rank.here() {
		defer t.did(callEventSync, 0, t.now())
	}
	if last := e.last.Load(); last != 0 {
		e.await(workloads.Stream(last&0xff), last>>8)
	}
	return nil
}

// Query may be called on any goroutine.
func (e *event) Query() (bool, error) {
	if err := e.hostCall("Query"); err != nil {
		return false, err
	}
	last := e.last.Load()
	if last == 0 {
		return true, nil
	}
	on, gen := workloads.Stream(last&0xff), last>>8
	raceOff()
	done := e.done[on].Load() >= gen
	raceOn()
	if done {
		raceAcquire(&e.clock[on][gen%eventClocks])
	}
	return done, nil
}

// hostCall refuses a host's look at the event where a capture forbids it.
func (e *event) hostCall(call string) error {
	r := e.rank
	own := r.capturing.Load()
	if own == nil && r.g.dev.strict.Load() == 0 {
		return nil
	}
	call = "Event." + call + "(" + e.name + ")"
	if own == nil {
		return r.g.dev.unsafeElsewhere(call)
	}
	mine := r.here()
	if e.captured.Load() == own {
		err := own.refuse(call, device.ErrCaptureEvent)
		if mine || own.mode == device.CaptureGlobal {
			return own.fail(err)
		}
		return err
	}
	if mine {
		return own.fail(own.refuse(call, device.ErrCaptureUnsupported))
	}
	return r.g.dev.unsafeElsewhere(call)
}
