package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// capture is one in progress.
type capture struct {
	r       *rank
	origin  workloads.Stream
	streams [workloads.NumStreams]bool // taking part
	bounds  []*workloads.Bound
	first   error // the first failing call
}

func (c *capture) takes(s workloads.Stream) bool { return c.streams[s] }

// fail remembers the first failure and returns err.
func (c *capture) fail(err error) error {
	if c.first == nil {
		c.first = err
	}
	return err
}

// spoil is fail for a capture that may not exist.
func (r *rank) spoil(err error) error {
	if r.cap == nil {
		return err
	}
	return r.cap.fail(err)
}

// BeginCapture begins a capture on a stream. One at a time.
func (r *rank) BeginCapture(origin workloads.Stream, mode device.CaptureMode) error {
	if !r.thread.Here() {
		return fmt.Errorf("rank %d: begin capture on %s: %w", r.id, origin, device.ErrWrongThread)
	}
	if r.cap != nil {
		return r.cap.fail(fmt.Errorf("rank %d: begin capture on %s: %w", r.id, origin, device.ErrCaptureActive))
	}
	m := driver.CaptureThreadLocal
	if mode == device.CaptureGlobal {
		m = driver.CaptureGlobal
	}
	if err := r.api.StreamBeginCapture(r.streams[origin], m); err != nil {
		return fmt.Errorf("rank %d: begin capture on %s: %w", r.id, origin, rule(err))
	}
	r.cap = &capture{r: r, origin: origin}
	r.cap.streams[origin] = true
	return nil
}

// EndCapture ends the capture, reads the graph back and audits it. A failure
// inside the capture is reported, not the driver's complaint about its end.
func (r *rank) EndCapture(origin workloads.Stream) (_ device.Graph, err error) {
	c := r.cap
	if c == nil {
		return nil, fmt.Errorf("rank %d: end capture on %s: %w", r.id, origin, device.ErrCaptureUnmatched)
	}
	if !r.thread.Here() {
		return nil, fmt.Errorf("rank %d: end capture on %s: %w", r.id, origin, device.ErrWrongThread)
	}
	if origin != c.origin {
		c.fail(fmt.Errorf("rank %d: end capture on %s: %w", r.id, origin, device.ErrCaptureUnmatched))
	}
	r.cap = nil
	h, end := r.api.StreamEndCapture(r.streams[c.origin])
	g := &graph{r: r, h: h, bounds: c.bounds}
	if end == nil {
		r.g.live.graphs.Add(1)
	}
	switch {
	case c.first != nil:
		err = fmt.Errorf("%w: first failure: %w", device.ErrCaptureInvalidated, c.first)
	case end != nil:
		last := "nothing captured"
		if n := len(c.bounds); n > 0 {
			last = "last node " + nodeName(c.bounds[n-1])
		}
		err = fmt.Errorf("rank %d: end capture on %s (%s): %w", r.id, c.origin, last, rule(end))
	default:
		err = g.inspect()
	}
	if err != nil {
		if end == nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	return g, nil
}

// dropCapture ends a capture that nobody ended.
func (r *rank) dropCapture() {
	if r.cap == nil {
		return
	}
	if h, err := r.api.StreamEndCapture(r.streams[r.cap.origin]); err == nil {
		_ = r.api.GraphDestroy(h) // the capture is given up; its owner reports why
	}
	r.cap = nil
}

// graph implements [device.Graph].
type graph struct {
	r      *rank
	h      driver.Graph
	bounds []*workloads.Bound
	info   device.GraphInfo
	ops    []opCount
	closed bool
}

// opCount is how many operators of a sub-graph a replay runs.
type opCount struct {
	id workloads.SubGraph
	n  int64
}

// Info describes the graph.
func (g *graph) Info() device.GraphInfo { return g.info }

// Bounds lists the recorded nodes in submission order.
func (g *graph) Bounds() []*workloads.Bound { return slices.Clone(g.bounds) }

// Close destroys the graph; execs made of it live on.
func (g *graph) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	g.r.g.live.graphs.Add(-1)
	return g.r.api.GraphDestroy(g.h)
}

// Instantiate makes an exec.
func (g *graph) Instantiate() (device.Exec, error) {
	if err := g.r.refuse("Instantiate"); err != nil {
		return nil, err
	}
	h, failure, err := g.r.api.GraphInstantiateWithParams(g.h, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("rank %d: instantiate a graph of %d nodes (%s): %w", g.r.id, g.info.Total(), failure.Result, err)
	}
	x := &exec{r: g.r, h: h, info: g.info, ops: g.ops}
	g.r.g.live.execs.Add(1)
	for s, stream := range g.r.streams {
		if x.launch[s], err = g.r.api.PrepareGraphLaunch(h, stream); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	if n := len(g.bounds); n > 0 {
		x.last = g.bounds[n-1]
	}
	return x, nil
}

// exec implements [device.Exec].
type exec struct {
	r      *rank
	h      driver.GraphExec
	info   device.GraphInfo
	ops    []opCount
	launch [workloads.NumStreams]*driver.Launch
	last   *workloads.Bound
	closed bool
}

// Info describes the graph it was made of.
func (x *exec) Info() device.GraphInfo { return x.info }

// Upload readies the first launch.
func (x *exec) Upload(s workloads.Stream) error {
	if err := x.r.refuse("Upload"); err != nil {
		return err
	}
	return x.r.api.GraphUpload(x.h, x.r.streams[s])
}

// Launch queues one replay.
func (x *exec) Launch(s workloads.Stream, v workloads.Variant) error {
	r := x.r
	r.last[s] = x.last
	l := x.launch[s]
	if code := r.api.Submit(l); code != driver.Success {
		return r.spoil(r.failed("launch graph ending in", s, x.last, r.api.LaunchError(l, code)))
	}
	for _, c := range x.ops {
		r.executed[v][c.id] += c.n
	}
	return nil
}

// Close destroys the exec; a replay in flight still completes.
func (x *exec) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	x.r.g.live.execs.Add(-1)
	return x.r.api.GraphExecDestroy(x.h)
}
