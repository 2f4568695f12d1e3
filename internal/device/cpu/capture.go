package cpu

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// capture is one recording. A rank has at most one at a time. All but the
// first failure belongs to the rank's thread.
type capture struct {
	rank   *rank
	origin workloads.Stream
	mode   device.CaptureMode

	nodes []node
	in    [workloads.NumStreams]bool  // streams brought in
	tail  [workloads.NumStreams][]int // what the stream's next node depends on
	marks []*event                    // events recorded in it

	mu sync.Mutex
	// first is what invalidated the capture; later failures are its
	// consequences. In global mode any goroutine may set it.
	first  error
	latest string // the last node's name, for refusals
}

// node is an operator of a graph with the nodes it depends on, which all
// precede it.
type node struct {
	op   *op
	deps []int
}

// BeginCapture starts a recording. Work that is on the stream already is not
// part of it.
func (r *rank) BeginCapture(origin workloads.Stream, mode device.CaptureMode) error {
	if !r.here() {
		return fmt.Errorf("rank %d: BeginCapture(%s): %w", r.id, origin, device.ErrWrongThread)
	}
	if _, err := r.stream(origin); err != nil {
		return err
	}
	if c := r.cap; c != nil {
		return c.fail(c.refuse("BeginCapture("+origin.String()+")", device.ErrCaptureActive))
	}
	c := &capture{rank: r, origin: origin, mode: mode}
	c.in[origin] = true
	r.cap = c
	r.capturing.Store(c)
	if mode == device.CaptureGlobal {
		r.g.dev.watch(c)
	}
	return nil
}

// EndCapture ends the recording, whatever the outcome. Only a call on the
// wrong thread, or without a capture, changes nothing.
func (r *rank) EndCapture(origin workloads.Stream) (device.Graph, error) {
	if !r.here() {
		return nil, fmt.Errorf("rank %d: EndCapture(%s): %w", r.id, origin, device.ErrWrongThread)
	}
	c := r.cap
	if c == nil {
		return nil, fmt.Errorf("rank %d: EndCapture(%s): %w", r.id, origin, device.ErrCaptureUnmatched)
	}
	if origin != c.origin {
		c.fail(c.refuse("EndCapture("+origin.String()+")", device.ErrCaptureUnmatched))
	}
	c.checkJoined()
	r.dropCapture()
	if first := c.failure(); first != nil {
		return nil, fmt.Errorf("rank %d: EndCapture(%s): %w; first failure: %w", r.id, origin, device.ErrCaptureInvalidated, first)
	}
	return newGraph(c), nil
}

// dropCapture takes the rank out of its capture and cleans the events.
func (r *rank) dropCapture() {
	c := r.cap
	r.cap = nil
	r.capturing.Store(nil)
	r.g.dev.unwatch(c)
	for _, e := range c.marks {
		if e.captured.Load() == c {
			e.captured.Store(nil)
		}
		e.after = nil
	}
}

// fail invalidates the capture and returns err. The first one counts.
func (c *capture) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = err
	}
	return err
}

func (c *capture) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// refuse words the failure of a call that is not a node, by the node it came
// after.
func (c *capture) refuse(call string, why error) error {
	c.mu.Lock()
	at := c.latest
	c.mu.Unlock()
	if at == "" {
		at = "(no node yet)"
	}
	return &device.OpError{Rank: c.rank.id, Stream: c.origin, Call: "capture", Node: at, Err: fmt.Errorf("then %s: %w", call, why)}
}

// valid is the failure of any call in a capture that failed before.
func (c *capture) valid(call string) error {
	if first := c.failure(); first != nil {
		return fmt.Errorf("rank %d: %s: %w: %w", c.rank.id, call, device.ErrCaptureInvalidated, first)
	}
	return nil
}

func (c *capture) add(o *op) error {
	if err := c.valid("capture " + nodeName(o.b)); err != nil {
		return err
	}
	s := o.stream.id
	c.nodes = append(c.nodes, node{op: o, deps: c.tail[s]})
	c.tail[s] = []int{len(c.nodes) - 1}
	c.mu.Lock()
	c.latest = nodeName(o.b)
	c.mu.Unlock()
	return nil
}

func (c *capture) record(s workloads.Stream, e *event) error {
	if err := c.valid("Record(" + s.String() + ", " + e.name + ")"); err != nil {
		return err
	}
	e.after = slices.Clone(c.tail[s])
	e.captured.Store(c)
	c.marks = append(c.marks, e)
	return nil
}

// wait makes an edge, and brings the stream in if it is not yet.
func (c *capture) wait(s workloads.Stream, e *event) error {
	call := "Wait(" + s.String() + ", " + e.name + ")"
	if err := c.valid(call); err != nil {
		return err
	}
	if e.captured.Load() != c {
		if e.last.Load() == 0 { // never recorded
			return nil
		}
		return c.fail(c.refuse(call, device.ErrCaptureIsolation))
	}
	c.in[s] = true
	for _, n := range e.after {
		if !slices.Contains(c.tail[s], n) {
			c.tail[s] = append(slices.Clip(c.tail[s]), n)
		}
	}
	return nil
}

// checkJoined fails the capture if some stream's last nodes are not before the
// origin's tail.
func (c *capture) checkJoined() {
	joined := make([]bool, len(c.nodes))
	for _, n := range c.tail[c.origin] {
		joined[n] = true
	}
	for n := len(c.nodes) - 1; n >= 0; n-- {
		if joined[n] {
			for _, d := range c.nodes[n].deps {
				joined[d] = true
			}
		}
	}
	for s := range workloads.NumStreams {
		for _, n := range c.tail[s] {
			if !joined[n] {
				o := c.nodes[n].op
				c.fail(&device.OpError{Rank: c.rank.id, Stream: c.origin, Call: "capture", Node: nodeName(o.b),
					Err: fmt.Errorf("stream %s: %w", s, device.ErrCaptureUnjoined)})
				return
			}
		}
	}
}

// watched says whether an unsafe call on the rank's thread can hit a capture,
// so that the common case neither words the call nor takes a lock.
func (r *rank) watched() bool { return r.cap != nil || r.g.dev.strict.Load() != 0 }

// unsafeCall refuses, on the rank's thread, what no capture can hold.
func (r *rank) unsafeCall(call string) error {
	if c := r.cap; c != nil {
		return c.fail(c.refuse(call, device.ErrCaptureUnsupported))
	}
	return r.g.dev.unsafeElsewhere(fmt.Sprintf("%s on rank %d", call, r.id))
}

// unsafeElsewhere is an unsafe call outside the captures it may hit: those in
// global mode, on any thread. The call is refused and ends them.
func (d *Device) unsafeElsewhere(call string) error {
	if d.strict.Load() == 0 {
		return nil
	}
	d.strictMu.Lock()
	defer d.strictMu.Unlock()
	var first error
	for c := range d.captures {
		err := c.fail(c.refuse(call+" from another thread", device.ErrCaptureUnsupported))
		if first == nil {
			first = err
		}
	}
	return first
}

func (d *Device) watch(c *capture) {
	d.strictMu.Lock()
	defer d.strictMu.Unlock()
	d.captures[c] = true
	d.strict.Store(int32(len(d.captures)))
}

func (d *Device) unwatch(c *capture) {
	d.strictMu.Lock()
	defer d.strictMu.Unlock()
	delete(d.captures, c)
	d.strict.Store(int32(len(d.captures)))
}
