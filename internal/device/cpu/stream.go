package cpu

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// queueDepth is how far the host may run ahead of a stream before it waits.
// A channel orders a receive only before the send that reuses its slot, so a
// deep one keeps finished work from reaching the host unasked.
const queueDepth = 1 << 15

// stream is one ordered queue: a goroutine that takes items from q.
type stream struct {
	id    workloads.Stream
	rank  *rank
	q     chan item
	reply chan failure
	lane  // of the stream's goroutine; the host reads it after a sync
}

func newStream(r *rank, s workloads.Stream) *stream {
	return &stream{id: s, rank: r, q: make(chan item, queueDepth), reply: make(chan failure, 1), lane: lane{rank: r}}
}

// item is one entry of a queue. The type of what says what it is: an operator,
// an event to record or to wait for, an exec to launch, nothing to synchronise.
type item struct {
	what    any
	gen     uint64 // of an event: which record
	on      workloads.Stream
	wait    bool // of an event: wait for it
	variant workloads.Variant
	launch  uint32 // of what was launched while something was recorded
}

func (s *stream) loop() {
	for it := range s.q {
		switch w := it.what.(type) {
		case *op:
			s.launch, s.graph = it.launch, 0
			s.run(w, it.variant)
		case *event:
			if it.wait {
				w.await(it.on, it.gen)
			} else {
				w.complete(it.on, it.gen)
			}
		case *exec:
			s.launch, s.graph = it.launch, w.number
			w.replay(&s.lane, it.variant)
			w.done.complete(it.on, it.gen)
		default:
			s.reply <- s.take()
		}
	}
}

// op implements [device.Op].
type op struct {
	b      *workloads.Bound
	rank   *rank
	stream *stream
	run    func()
	meet   func(o *op) error // instead of run, if the operator is a collective
	last   *atomic.Pointer[workloads.Bound]
	// What the race detector is told; empty without it.
	reads, writes [][]byte
}

func (o *op) Bound() *workloads.Bound { return o.b }

// Calls is 1: an operator is queued as a whole.
func (o *op) Calls() int { return 1 }

// Submit must be called on the rank's thread.
func (o *op) Submit(v workloads.Variant) error {
	r := o.rank
	if r.gone {
		return o.failed("submit", device.ErrClosed)
	}
	if hook := r.g.dev.opts.SubmitHook; hook != nil {
		if err := hook(r.id, o.b); err != nil {
			err = o.failed("submit", err)
			if r.cap != nil && r.cap.in[o.stream.id] {
				err = r.cap.fail(err)
			}
			return err
		}
	}
	if c := r.cap; c != nil && c.in[o.stream.id] {
		return c.add(o)
	}
	t := r.trace.Load()
	if t == nil {
		o.stream.q <- item{what: o, variant: v}
		return nil
	}
	start, n := t.now(), t.launching()
	o.stream.q <- item{what: o, variant: v, launch: n}
	what := callSubmit
	if kind(o.b.Op) == "memcpy" || kind(o.b.Op) == "memset" {
		what = callTransfer
	}
	t.did(what, n, start)
	return nil
}

func (o *op) failed(call string, err error) *device.OpError {
	return &device.OpError{Rank: o.rank.id, Stream: o.stream.id, Call: call, Node: nodeName(o.b), Err: err}
}

// lane executes operators one after another and remembers the first failure;
// after one it skips. It belongs to one goroutine, and whoever reads it has
// synchronised with that goroutine.
type lane struct {
	rank     *rank
	failure  failure
	executed device.Executed

	trace         *laneTrace // nil while nothing is recorded
	launch, graph uint32     // of what it executes: the launch and, of a replay, the exec
}

func (l *lane) run(o *op, v workloads.Variant) {
	if l.failure.err != nil {
		l.failure.skipped++
		return
	}
	raceOff()
	o.last.Store(o.b)
	raceOn()
	if err := l.execute(o); err != nil {
		l.failure = failure{err: o.failed("execute", err), at: time.Now()}
		l.rank.g.world.abandon(l.rank.id, l.failure.err)
		return
	}
	l.executed[v][o.b.SubGraph]++
}

// take hands the failure over and makes the lane whole again.
func (l *lane) take() failure {
	f := l.failure
	l.failure = failure{}
	return f
}

// execute runs the operator on the calling goroutine.
func (o *op) execute() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = device.NewPanic(p)
		}
	}()
	if raceEnabled {
		for _, b := range o.reads {
			raceRead(b)
		}
		for _, b := range o.writes {
			raceWrite(b)
		}
	}
	if hook := o.rank.g.dev.opts.Hook; hook != nil {
		if err := hook(o.rank.id, o.b); err != nil {
			return err
		}
	}
	if o.meet != nil {
		return o.meet(o)
	}
	o.run()
	return nil
}

// failure is a lane's first failure and what it cost.
type failure struct {
	err     *device.OpError
	at      time.Time
	skipped int
}

func (f failure) report() error {
	if f.skipped == 0 {
		return f.err
	}
	e := *f.err
	e.Err = fmt.Errorf("%w (then %d operators of the stream were skipped)", e.Err, f.skipped)
	return &e
}

// earlier returns the failure that came first in time, if there is one.
func earlier(a, b failure) failure {
	if a.err == nil || b.err != nil && b.at.Before(a.at) {
		return b
	}
	return a
}
