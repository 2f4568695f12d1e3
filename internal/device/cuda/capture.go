package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// capture is one in progress. All but the first failure belongs to the rank's
// thread.
type capture struct {
	r       *rank
	origin  workloads.Stream
	mode    device.CaptureMode
	streams [workloads.NumStreams]bool // taking part
	ops     []*op                      // recorded, in order
	// joined is, for each stream, how many operators of each other stream
	// precede what it holds; its own count is all it was given. It names the
	// stream that was not joined back, which the driver does not.
	joined [workloads.NumStreams]tally
	last   [workloads.NumStreams]*workloads.Bound
	edges  *ordering // nil: as the streams say

	mu sync.Mutex
	// first is what spoiled the capture; later failures are its consequences.
	// In global mode any thread may set it.
	first error
	// latest is the node that refusals name.
	latest *workloads.Bound
}

// tally counts operators by stream.
type tally [workloads.NumStreams]int32

func (t *tally) merge(o *tally) {
	for s, n := range o {
		t[s] = max(t[s], n)
	}
}

func (c *capture) takes(s workloads.Stream) bool { return c.streams[s] }

// fail remembers the first failure and returns err.
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

// refuse words the failure of a call that is no node, by the node it came
// after.
func (c *capture) refuse(call string, why error) error {
	c.mu.Lock()
	latest := c.latest
	c.mu.Unlock()
	at := "(no node yet)"
	if latest != nil {
		at = nodeName(latest)
	}
	return &device.OpError{Rank: c.r.id, Stream: c.origin, Call: "capture", Node: at, Err: fmt.Errorf("then %s: %w", call, why)}
}

// valid is the failure of a call that would add to a capture that failed
// before.
func (c *capture) valid(call, what string) error {
	if first := c.failure(); first != nil {
		return fmt.Errorf("rank %d: %s %s: %w: %w", c.r.id, call, what, device.ErrCaptureInvalidated, first)
	}
	return nil
}

// add notes an operator that the driver took.
func (c *capture) add(o *op) {
	c.ops = append(c.ops, o)
	c.joined[o.stream][o.stream]++
	c.last[o.stream] = o.b
	c.mu.Lock()
	c.latest = o.b
	c.mu.Unlock()
}

// unjoined describes a stream whose work does not precede what the origin
// holds.
func (c *capture) unjoined() string {
	for s := range workloads.NumStreams {
		if b := c.last[s]; b != nil && c.joined[s][s] > c.joined[c.origin][s] {
			return fmt.Sprintf("stream %s, last node %s", s, nodeName(b))
		}
	}
	return "no stream known to this rank"
}

// spoil makes err the failure of the capture in progress, if there is one.
func (r *rank) spoil(err error) error {
	if r.cap == nil {
		return err
	}
	return r.cap.fail(err)
}

// BeginCapture begins a capture on a stream. One at a time.
func (r *rank) BeginCapture(origin workloads.Stream, mode device.CaptureMode) error {
	if !r.thread.Here() {
		return fmt.Errorf("rank %d: BeginCapture(%s): %w", r.id, origin, device.ErrWrongThread)
	}
	if err := r.known(origin); err != nil {
		return err
	}
	if c := r.cap; c != nil {
		return c.fail(c.refuse("BeginCapture("+origin.String()+")", device.ErrCaptureActive))
	}
	m := driver.CaptureThreadLocal
	if mode == device.CaptureGlobal {
		m = driver.CaptureGlobal
	}
	if err := r.api.StreamBeginCapture(r.streams[origin], m); err != nil {
		return fmt.Errorf("rank %d: BeginCapture(%s): %w", r.id, origin, rule(err))
	}
	r.cap = &capture{r: r, origin: origin, mode: mode}
	r.cap.streams[origin] = true
	if e := r.g.tuning.Edges; e != EdgesStreams {
		r.cap.edges = &ordering{serial: e == EdgesSerial}
	}
	r.capturing.Store(r.cap)
	return nil
}

// EndCapture ends the capture, reads the graph back and audits it. A failure
// inside the capture is reported, not the driver's complaint about its end.
func (r *rank) EndCapture(origin workloads.Stream) (_ device.Graph, err error) {
	fail := func(err error) error { return fmt.Errorf("rank %d: EndCapture(%s): %w", r.id, origin, err) }
	if !r.thread.Here() {
		return nil, fail(device.ErrWrongThread)
	}
	if err := r.known(origin); err != nil {
		return nil, err
	}
	c := r.cap
	if c == nil {
		return nil, fail(device.ErrCaptureUnmatched)
	}
	if origin != c.origin {
		_ = c.fail(c.refuse("EndCapture("+origin.String()+")", device.ErrCaptureUnmatched))
	}
	if c.failure() == nil {
		if err := c.gather(); err != nil {
			_ = c.fail(err)
		}
	}
	h, end := r.endCapture()
	if h != 0 {
		g := &graph{r: r, h: h, ops: c.ops}
		r.graphs[g] = true
		r.g.live.graphs.Add(1)
		defer func() {
			if err != nil {
				err = errors.Join(err, g.Close())
			}
		}()
		if c.failure() == nil && end == nil {
			if err := g.inspect(); err != nil {
				return nil, fail(err)
			}
			return g, nil
		}
	}
	first := c.failure()
	switch {
	case first != nil:
		return nil, fail(fmt.Errorf("%w; first failure: %w", device.ErrCaptureInvalidated, first))
	case errors.Is(end, driver.StreamCaptureUnjoined):
		return nil, fail(&device.OpError{Rank: r.id, Stream: c.origin, Call: "capture", Node: c.unjoined(),
			Err: fmt.Errorf("%w: %w", device.ErrCaptureInvalidated, rule(end))})
	case errors.Is(end, driver.StreamCaptureInvalidated):
		return nil, fail(c.refuse("the end: no call of this rank failed, so another thread's did", rule(end)))
	}
	return nil, fail(c.refuse("the end", rule(end)))
}

// endCapture ends the driver's capture and the rank's. If the driver refuses
// while the stream goes on capturing, it is asked once more: no stream may be
// left capturing. The graph is 0 if there is none.
func (r *rank) endCapture() (driver.Graph, error) {
	s := r.streams[r.cap.origin]
	r.cap = nil
	r.capturing.Store(nil)
	h, err := r.api.StreamEndCapture(s)
	if err == nil {
		return h, nil
	}
	if st, stErr := r.api.StreamIsCapturing(s); stErr == nil && st != driver.CaptureNone {
		if h, again := r.api.StreamEndCapture(s); again == nil {
			return h, err
		}
	}
	return 0, err
}

// dropCapture ends a capture that nobody ended.
func (r *rank) dropCapture() error {
	if r.cap == nil {
		return nil
	}
	if h, _ := r.endCapture(); h != 0 { // the capture is given up; its owner reports why
		return r.api.GraphDestroy(h)
	}
	return nil
}

// graph implements [device.Graph].
type graph struct {
	r      *rank
	h      driver.Graph
	ops    []*op
	info   device.GraphInfo
	counts []opCount
	closed bool
}

// opCount is how many operators of a sub-graph a replay runs.
type opCount struct {
	id workloads.SubGraph
	n  int64
}

// Info describes the graph.
func (g *graph) Info() device.GraphInfo { return copyInfo(g.info) }

func copyInfo(i device.GraphInfo) device.GraphInfo {
	nodes := make(map[string]int, len(i.Nodes))
	for k, n := range i.Nodes {
		nodes[k] = n
	}
	i.Nodes = nodes
	return i
}

// Bounds lists the recorded nodes in submission order.
func (g *graph) Bounds() []*workloads.Bound {
	out := make([]*workloads.Bound, len(g.ops))
	for i, o := range g.ops {
		out[i] = o.b
	}
	return out
}

// Close destroys the graph; execs made of it live on. It returns nil once the
// graph is closed, also by the group.
func (g *graph) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	delete(g.r.graphs, g)
	g.r.g.live.graphs.Add(-1)
	return g.r.api.GraphDestroy(g.h)
}

// Instantiate makes an exec.
func (g *graph) Instantiate() (_ device.Exec, err error) {
	r := g.r
	if err := r.refuse("Instantiate"); err != nil {
		return nil, err
	}
	if g.closed {
		return nil, fmt.Errorf("rank %d: Instantiate: the graph is closed", r.id)
	}
	h, failure, err := r.api.GraphInstantiateWithParams(g.h, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("rank %d: instantiate a graph of %d nodes (%s): %w", r.id, g.info.Total(), failure.Result, err)
	}
	x := &exec{r: r, h: h, info: g.info, counts: g.counts}
	r.execs[x] = true
	r.g.live.execs.Add(1)
	for s, stream := range r.streams {
		if x.launch[s], err = r.api.PrepareGraphLaunch(h, stream); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	if n := len(g.ops); n > 0 {
		x.last = g.ops[n-1].b
	}
	return x, nil
}

// exec implements [device.Exec].
type exec struct {
	r      *rank
	h      driver.GraphExec
	info   device.GraphInfo
	counts []opCount
	launch [workloads.NumStreams]*driver.Launch
	last   *workloads.Bound
	closed bool
}

// Info describes the graph it was made of.
func (x *exec) Info() device.GraphInfo { return copyInfo(x.info) }

// check refuses a call on a closed exec, on no stream, and on a stream being
// captured, where the driver would make the replay a child graph that nothing
// counts or audits.
func (x *exec) check(call string, s workloads.Stream) error {
	if x.closed {
		return fmt.Errorf("rank %d: %s(%s): the exec is closed", x.r.id, call, s)
	}
	if err := x.r.known(s); err != nil {
		return err
	}
	if c := x.r.cap; c != nil && c.takes(s) {
		return c.fail(c.refuse(call+"("+s.String()+")", device.ErrCaptureUnsupported))
	}
	return nil
}

// Upload readies the first launch.
func (x *exec) Upload(s workloads.Stream) error {
	if err := x.check("Upload", s); err != nil {
		return err
	}
	if err := x.r.api.GraphUpload(x.h, x.r.streams[s]); err != nil {
		return x.r.failed("upload graph ending in", s, x.last, err)
	}
	return nil
}

// Launch queues one replay.
func (x *exec) Launch(s workloads.Stream, v workloads.Variant) error {
	if err := x.check("Launch", s); err != nil {
		return err
	}
	r := x.r
	r.last[s].Store(x.last)
	l := x.launch[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.failed("launch graph ending in", s, x.last, r.api.LaunchError(l, code))
	}
	for _, c := range x.counts {
		r.executed[v][c.id] += c.n
	}
	return nil
}

// Close destroys the exec; a replay in flight still completes (cuGraphExecDestroy).
// It returns nil once the exec is closed, also by the group.
func (x *exec) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	delete(x.r.execs, x)
	x.r.g.live.execs.Add(-1)
	return x.r.api.GraphExecDestroy(x.h)
}

// closeGraphs closes what the callers left, execs first.
func (r *rank) closeGraphs() error {
	var errs []error
	for x := range r.execs {
		errs = append(errs, x.Close())
	}
	for g := range r.graphs {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}
