package cpu

import (
	"fmt"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// rank implements [device.Rank]. Its fields belong to its thread, unless they
// say otherwise.
type rank struct {
	id      int
	g       *Group
	mem     memory
	streams [workloads.NumStreams]*stream
	thread  *device.Thread

	cap       *capture                // the capture in progress
	capturing atomic.Pointer[capture] // the same, for other goroutines
	execs     map[*exec]bool
	gone      bool // the streams are closed

	// trace is what is recorded into; nil while nothing is. The thread alone
	// changes it and what it points to. kept is the last one, ended what the
	// lanes had recorded when it ended.
	trace  atomic.Pointer[hostTrace]
	kept   *hostTrace
	ended  []*laneTrace
	graphs uint32 // execs made, which numbers them

	// last is what each stream ran last, written by the streams and read for
	// diagnoses by anybody, always behind raceOff.
	last [workloads.NumStreams]atomic.Pointer[workloads.Bound]
}

func newRank(g *Group, id int) *rank {
	r := &rank{id: id, g: g, mem: newMemory(g.w), execs: map[*exec]bool{}}
	for s := range workloads.NumStreams {
		r.streams[s] = newStream(r, s)
	}
	return r
}

func (r *rank) start() {
	for _, st := range r.streams {
		r.g.running.Go(st.loop)
	}
	r.thread = device.NewThread(nil)
}

// Do runs f on the rank's thread and waits; on that thread it calls f.
func (r *rank) Do(f func() error) error { return r.thread.Do(f) }

// here says whether the caller runs on the rank's thread.
func (r *rank) here() bool { return r.thread.Here() }

func (r *rank) ID() int        { return r.id }
func (r *rank) Pinned() []byte { return r.mem.pinned }

// stream returns a device stream by name; HOST is none.
func (r *rank) stream(s workloads.Stream) (*stream, error) {
	if s >= workloads.NumStreams {
		return nil, fmt.Errorf("rank %d: stream number %d is not a device stream", r.id, s)
	}
	if r.gone {
		return nil, fmt.Errorf("rank %d, stream %s: %w", r.id, s, device.ErrClosed)
	}
	return r.streams[s], nil
}

// Prepare audits the node's regions and resolves it. It is refused inside a
// capture: what is prepared there is warmed up nowhere.
func (r *rank) Prepare(b *workloads.Bound) (device.Op, error) {
	s := b.SubGraph.Info().Stream
	fail := func(err error) error {
		return &device.OpError{Rank: r.id, Stream: s, Call: "prepare", Node: nodeName(b), Err: err}
	}
	st, err := r.stream(s)
	if err != nil {
		return nil, err
	}
	if c := r.cap; c != nil {
		return nil, c.fail(fail(device.ErrCaptureUnsupported))
	}
	if err := r.g.dev.unsafeElsewhere(fmt.Sprintf("Prepare(%s) on rank %d", nodeName(b), r.id)); err != nil {
		return nil, fail(err)
	}
	if err := r.audit(b); err != nil {
		if r.g.sealed.Load() {
			err = fmt.Errorf("%w: %w", device.ErrSealed, err)
		}
		return nil, fail(err)
	}
	o := &op{b: b, rank: r, stream: st, last: &r.last[s]}
	if b.Op == workloads.OpAllReduce {
		o.meet, err = r.g.world.prepare(r, s, b)
	} else {
		o.run, err = r.g.dev.compile(b, &r.mem, st)
	}
	if err != nil {
		return nil, fail(err)
	}
	if raceEnabled {
		for _, x := range b.Reads {
			o.reads = append(o.reads, r.mem.Bytes(x))
		}
		for _, x := range b.Writes {
			o.writes = append(o.writes, r.mem.Bytes(x))
		}
	}
	r.g.live.ops.Add(1)
	return o, nil
}

// audit checks that every address the node can touch is the rank's own.
func (r *rank) audit(b *workloads.Bound) error {
	operands := func(side string, list []workloads.Operand) error {
		for i, o := range list {
			if err := r.mem.check(o.Region); err != nil {
				return fmt.Errorf("operand %s (%s %d): %w", o.Name, side, i, err)
			}
		}
		return nil
	}
	regions := func(what string, list []workloads.Region) error {
		for i, x := range list {
			if err := r.mem.check(x); err != nil {
				return fmt.Errorf("%s %d: %w", what, i, err)
			}
		}
		return nil
	}
	if err := operands("in", b.In); err != nil {
		return err
	}
	if err := operands("out", b.Out); err != nil {
		return err
	}
	if err := r.mem.check(b.Scratch); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	if err := regions("read", b.Reads); err != nil {
		return err
	}
	return regions("write", b.Writes)
}

// Sync waits for one stream. A failed stream skips its operators until then.
func (r *rank) Sync(s workloads.Stream) error {
	st, err := r.stream(s)
	if err != nil {
		return err
	}
	if r.watched() {
		if err := r.unsafeCall("Sync(" + s.String() + ")"); err != nil {
			return err
		}
	}
	if t := r.trace.Load(); t != nil {
		defer t.did(callSync, 0, t.now())
	}
	st.q <- item{}
	if f := <-st.reply; f.err != nil {
		return f.report()
	}
	return nil
}

// SyncAll waits for all streams and returns the first failure in time. After
// it has returned on every rank, a communicator that failed is whole again.
func (r *rank) SyncAll() error {
	if r.gone {
		return fmt.Errorf("rank %d: %w", r.id, device.ErrClosed)
	}
	if r.watched() {
		if err := r.unsafeCall("SyncAll"); err != nil {
			return err
		}
	}
	if t := r.trace.Load(); t != nil {
		defer t.did(callSyncAll, 0, t.now())
	}
	if f := r.drain(); f.err != nil {
		return f.report()
	}
	return nil
}

func (r *rank) drain() failure {
	for _, st := range r.streams {
		st.q <- item{}
	}
	var first failure
	for _, st := range r.streams {
		first = earlier(first, <-st.reply)
	}
	r.g.world.settle(r.id)
	return first
}

// Read copies out of the rank's memory.
func (r *rank) Read(x workloads.Region, dst []byte) error {
	if err := r.access("Read", x, len(dst)); err != nil {
		return err
	}
	copy(dst, r.mem.Bytes(x))
	return nil
}

// Write copies into the rank's memory.
func (r *rank) Write(x workloads.Region, src []byte) error {
	if err := r.access("Write", x, len(src)); err != nil {
		return err
	}
	copy(r.mem.Bytes(x), src)
	return nil
}

// Fill writes one byte all over a region.
func (r *rank) Fill(x workloads.Region, b byte) error {
	if err := r.access("Fill", x, int(x.Bytes)); err != nil {
		return err
	}
	fill(r.mem.Bytes(x), b)
	return nil
}

// fill doubles what is filled, which is as fast as copying.
func fill(m []byte, b byte) {
	if len(m) == 0 {
		return
	}
	m[0] = b
	for n := 1; n < len(m); n *= 2 {
		copy(m[n:], m[:n])
	}
}

func (r *rank) access(call string, x workloads.Region, n int) error {
	if r.watched() {
		if err := r.unsafeCall(fmt.Sprintf("%s(%v)", call, x)); err != nil {
			return err
		}
	}
	if err := r.mem.check(x); err != nil {
		return fmt.Errorf("rank %d: %s: %w", r.id, call, err)
	}
	if int64(n) != x.Bytes {
		return fmt.Errorf("rank %d: %s: %v and %d bytes of host memory differ in length", r.id, call, x, n)
	}
	return nil
}

// Executed sums the streams' counts.
func (r *rank) Executed() device.Executed {
	var sum device.Executed
	for _, st := range r.streams {
		for v := range st.executed {
			for g, n := range st.executed[v] {
				sum[v][g] += n
			}
		}
	}
	return sum
}

func (r *rank) ResetExecuted() {
	for _, st := range r.streams {
		st.executed = device.Executed{}
	}
}

// LastOp may be called on any goroutine.
func (r *rank) LastOp() map[workloads.Stream]string {
	m := map[workloads.Stream]string{}
	for s := range workloads.NumStreams {
		raceOff()
		b := r.last[s].Load()
		raceOn()
		if b != nil {
			m[s] = nodeName(b)
		}
	}
	return m
}

// nodeName reads a bound that another goroutine may have made: bounds are
// immutable once made, but nothing may order their maker and this reader.
//
//go:norace
func nodeName(b *workloads.Bound) string { return b.SubGraph.String() + "/" + b.Name }
