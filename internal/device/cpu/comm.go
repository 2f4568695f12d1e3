package cpu

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// world is how the ranks of a group meet: a communicator for each stream, so
// that two streams of a rank never learn from each other by way of a lock.
//
// A failure of any operator on any rank breaks the world: the ranks that wait
// are told at once, and later collectives fail until all ranks have been idle
// (SyncAll on each). Without that, a rank that skips its operators after a
// failure would leave the others waiting, and those that came late would be
// out of step.
type world struct {
	g       *Group
	comms   [workloads.NumStreams]comm
	broken  atomic.Bool // behind raceOff; a hint, the comms' copies decide
	mu      sync.Mutex  // guards the rest; taken before a comm's lock
	settled []bool      // ranks idle since the world broke
}

// comm is the meeting place of one stream's collectives. A meeting has two
// gates: all have arrived (the inputs are ready), then all have reduced their
// share (the outputs are). Only at the first can anybody wait for long.
type comm struct {
	mu      sync.Mutex
	broken  error
	here    []bool // ranks at the first gate
	arrived int
	left    int // ranks before the second gate
	seats   []seat
}

// seat is a rank's place at a meeting.
type seat struct {
	op      *op
	in, out []float32
	opened  chan error // tells a waiting rank how the first gate ended
	reduced chan bool  // that the second has opened
	timer   *time.Timer
}

func newWorld(g *Group) *world {
	n := len(g.ranks)
	w := &world{g: g, settled: make([]bool, n)}
	for s := range w.comms {
		c := &w.comms[s]
		c.here = make([]bool, n)
		c.seats = make([]seat, n)
		for i := range c.seats {
			c.seats[i].opened = make(chan error, 1)
			c.seats[i].reduced = make(chan bool, 1)
			c.seats[i].timer = time.NewTimer(time.Hour)
			c.seats[i].timer.Stop()
		}
	}
	return w
}

// prepare resolves an all-reduce of one rank.
func (w *world) prepare(r *rank, s workloads.Stream, b *workloads.Bound) (func(*op) error, error) {
	if len(w.g.ranks) == 1 {
		return nil, errors.New("a collective with one rank has nobody to meet")
	}
	if len(b.In) != 1 || len(b.Out) != 1 {
		return nil, fmt.Errorf("all_reduce wants one operand in and one out, not %d and %d", len(b.In), len(b.Out))
	}
	in, out := b.In[0], b.Out[0]
	switch {
	case in.DType != workloads.F32 || out.DType != workloads.F32:
		return nil, fmt.Errorf("all_reduce of %s to %s, want f32", in.DType, out.DType)
	case in.Region.Bytes != out.Region.Bytes || in.Region.Bytes%4 != 0 || in.Region.Off%4 != 0 || out.Region.Off%4 != 0:
		return nil, fmt.Errorf("all_reduce of %v to %v: not two equal ranges of f32", in.Region, out.Region)
	case in.Region.Overlaps(out.Region) && in.Region != out.Region:
		return nil, fmt.Errorf("all_reduce of %v to %v: they overlap in part", in.Region, out.Region)
	}
	src, dst := floats(r.mem.Bytes(in.Region)), floats(r.mem.Bytes(out.Region))
	c := &w.comms[s]
	return func(o *op) error { return w.allReduce(c, o, src, dst) }, nil
}

func floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func (w *world) allReduce(c *comm, o *op, in, out []float32) error {
	me := o.rank.id
	if err := w.gate(c, o, in, out); err != nil {
		return err
	}
	// From here on every rank is at work and none can be missed, so nothing
	// below waits for long or gives up: a rank that did could see its
	// memory written later by another.
	ranks := len(c.seats)
	lo, hi := len(in)*me/ranks, len(in)*(me+1)/ranks
	reduce(c.seats, lo, hi, o.b.Attr.AllMean)

	c.mu.Lock()
	c.left--
	last := c.left == 0
	c.mu.Unlock()
	if !last {
		<-c.seats[me].reduced
		return nil
	}
	for i := range c.seats {
		if i != me {
			c.seats[i].reduced <- true
		}
	}
	return nil
}

// reduce sums elements lo to hi of all ranks, in rank order, and gives the
// result to all. The order of additions depends on nothing else, so neither
// timing nor the split among ranks shows in the bits. It announces what it
// touches itself: instrumenting each element would make the detector crawl.
//
//go:norace
func reduce(seats []seat, lo, hi int, mean bool) {
	if lo == hi {
		return
	}
	for i := range seats {
		raceRead(unsafe.Slice((*byte)(unsafe.Pointer(&seats[i].in[lo])), 4*(hi-lo)))
		raceWrite(unsafe.Slice((*byte)(unsafe.Pointer(&seats[i].out[lo])), 4*(hi-lo)))
	}
	inv := 1 / float32(len(seats))
	var acc [512]float32
	for lo < hi {
		n := min(len(acc), hi-lo)
		sum := acc[:n]
		copy(sum, seats[0].in[lo:lo+n])
		for i := 1; i < len(seats); i++ {
			x := seats[i].in[lo : lo+n]
			for k := range sum {
				sum[k] += x[k]
			}
		}
		if mean {
			for k := range sum {
				sum[k] *= inv
			}
		}
		for i := range seats {
			copy(seats[i].out[lo:lo+n], sum)
		}
		lo += n
	}
}

// gate waits until all ranks are here, or says why they will not be.
func (w *world) gate(c *comm, o *op, in, out []float32) error {
	me := o.rank.id
	s := &c.seats[me]
	c.mu.Lock()
	if err := c.broken; err != nil {
		c.mu.Unlock()
		w.unsettle(me)
		return err
	}
	s.op, s.in, s.out = o, in, out
	c.here[me] = true
	c.arrived++
	if c.arrived == len(c.seats) {
		err := c.agree()
		c.open(err)
		c.left = len(c.seats)
		c.mu.Unlock()
		return <-s.opened
	}
	c.mu.Unlock()

	s.timer.Reset(w.g.dev.opts.CollectiveTimeout)
	select {
	case err := <-s.opened:
		s.timer.Stop()
		return err
	case <-s.timer.C:
	}
	w.timeout(c, me)
	return <-s.opened
}

// open ends the first gate for all who are at it. The caller holds the lock.
func (c *comm) open(err error) {
	for i := range c.here {
		if c.here[i] {
			c.here[i] = false
			c.seats[i].opened <- err
		}
	}
	c.arrived = 0
}

// agree checks that all ranks came for the same operation.
func (c *comm) agree() error {
	first := c.seats[0]
	for i, s := range c.seats {
		if nodeName(s.op.b) != nodeName(first.op.b) || len(s.in) != len(first.in) || s.op.b.Attr.AllMean != first.op.b.Attr.AllMean {
			return fmt.Errorf("the ranks met for different collectives: rank 0 for %s of %d elements, rank %d for %s of %d",
				nodeName(first.op.b), len(first.in), i, nodeName(s.op.b), len(s.in))
		}
	}
	return nil
}

// timeout breaks the world for rank me, unless the gate has opened meanwhile.
func (w *world) timeout(c *comm, me int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.mu.Lock()
	waiting := c.here[me]
	var came, missing []string
	if waiting {
		for i, here := range c.here {
			if here {
				came = append(came, fmt.Sprint(i))
			} else {
				missing = append(missing, fmt.Sprint(i))
			}
		}
	}
	c.mu.Unlock()
	if !waiting {
		return
	}
	w.breakLocked(fmt.Errorf("collective timed out after %v: arrived: rank %s; did not arrive: rank %s; %s",
		w.g.dev.opts.CollectiveTimeout, strings.Join(came, ", "), strings.Join(missing, ", "), w.lastOps()))
}

// abandon breaks the world because an operator failed: its rank skips what
// follows, collectives included.
func (w *world) abandon(rank int, failed *device.OpError) {
	if len(w.g.ranks) == 1 {
		return
	}
	raceOff()
	broken := w.broken.Load()
	raceOn()
	if broken {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakLocked(fmt.Errorf("collective given up, rank %d failed: %w; %s", rank, failed, w.lastOps()))
}

func (w *world) breakLocked(why error) {
	raceOff()
	again := w.broken.Swap(true)
	raceOn()
	if again {
		return
	}
	clear(w.settled)
	for s := range w.comms {
		c := &w.comms[s]
		c.mu.Lock()
		c.broken = why
		c.open(why)
		c.mu.Unlock()
	}
}

// settle notes that all streams of the rank are idle; the last rank to be so
// mends the world: nothing can be under way then.
func (w *world) settle(rank int) {
	raceOff()
	broken := w.broken.Load()
	raceOn()
	if !broken {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled[rank] = true
	for _, s := range w.settled {
		if !s {
			return
		}
	}
	for s := range w.comms {
		c := &w.comms[s]
		c.mu.Lock()
		c.broken = nil
		c.mu.Unlock()
	}
	raceOff()
	w.broken.Store(false)
	raceOn()
}

// unsettle notes that the rank submitted a collective to the broken world.
func (w *world) unsettle(rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled[rank] = false
}

// lastOps lists what every rank's streams ran last.
func (w *world) lastOps() string {
	var b strings.Builder
	b.WriteString("last operators:")
	for _, r := range w.g.ranks {
		fmt.Fprintf(&b, " rank %d:", r.id)
		last := r.LastOp()
		if len(last) == 0 {
			b.WriteString(" none")
		}
		for s := range workloads.NumStreams {
			if name, ok := last[s]; ok {
				fmt.Fprintf(&b, " %s %s", s, name)
			}
		}
		b.WriteByte(';')
	}
	return strings.TrimSuffix(b.String(), ";")
}
