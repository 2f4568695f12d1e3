package cpu

import (
	"fmt"
	"maps"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// graph implements [device.Graph]. It is immutable; it belongs to the rank's
// thread.
type graph struct {
	rank   *rank
	origin workloads.Stream
	nodes  []node
	info   device.GraphInfo
	closed bool
}

func newGraph(c *capture) *graph {
	g := &graph{rank: c.rank, origin: c.origin, nodes: c.nodes}
	g.info = describe(g.nodes)
	c.rank.g.live.graphs.Add(1)
	return g
}

// describe counts nodes and edges, and says what shape they have.
func describe(nodes []node) device.GraphInfo {
	info := device.GraphInfo{Nodes: map[string]int{}}
	next := make([][]int, len(nodes))
	for i, n := range nodes {
		info.Nodes[kind(n.op.b.Op)]++
		info.Ops[n.op.b.SubGraph]++
		info.Edges += len(n.deps)
		for _, d := range n.deps {
			next[d] = append(next[d], i)
		}
	}
	info.WidestSection, info.CriticalPath = device.Shape(next)
	return info
}

func kind(o workloads.Op) string {
	switch o {
	case workloads.OpCopyIn:
		return "memcpy"
	case workloads.OpZero:
		return "memset"
	case workloads.OpAllReduce:
		return "collective"
	}
	return "kernel"
}

func (g *graph) Info() device.GraphInfo { return copyInfo(g.info) }

func copyInfo(i device.GraphInfo) device.GraphInfo {
	i.Nodes = maps.Clone(i.Nodes)
	return i
}

func (g *graph) Bounds() []*workloads.Bound {
	list := make([]*workloads.Bound, len(g.nodes))
	for i, n := range g.nodes {
		list[i] = n.op.b
	}
	return list
}

// Close forgets the graph. Its execs go on.
func (g *graph) Close() error {
	if !g.closed && !g.rank.gone {
		g.rank.g.live.graphs.Add(-1)
	}
	g.closed = true
	return nil
}

// exec implements [device.Exec]. A captured stream becomes a chain: within one
// the order of submission is the order of edges, so nothing has to be solved.
// The origin's chain runs on the launching stream's goroutine, each other on
// one of its own.
type exec struct {
	rank   *rank
	info   device.GraphInfo
	number uint32 // among the rank's, for recordings
	total  int
	inline []link
	side   []*chain

	// done is recorded by every launch; a launch on another stream waits for
	// it, as replays of one exec do not overlap.
	done   *event
	closed bool
}

// link is an operator of a chain. Edges to other chains are channels of their
// own, so that they order just the two nodes they join.
type link struct {
	op     *op
	after  []chan bool
	before []chan bool
}

// chain is a goroutine that replays its links each time it is started.
type chain struct {
	lane  lane
	links []link
	start chan workloads.Variant
	end   chan bool
}

// Instantiate resolves the graph and starts the goroutines of its forks.
func (g *graph) Instantiate() (device.Exec, error) {
	r := g.rank
	switch {
	case g.closed:
		return nil, fmt.Errorf("rank %d: Instantiate: the graph is closed", r.id)
	case r.gone:
		return nil, fmt.Errorf("rank %d: Instantiate: %w", r.id, device.ErrClosed)
	}
	if err := r.unsafeCall("Instantiate"); err != nil {
		return nil, err
	}
	x := &exec{rank: r, info: g.info, total: len(g.nodes), done: newEvent(r, "launched")}
	var by [workloads.NumStreams][]link
	type place struct {
		stream workloads.Stream
		index  int
	}
	at := make([]place, len(g.nodes))
	for i, n := range g.nodes {
		s := n.op.stream.id
		at[i] = place{s, len(by[s])}
		l := link{op: n.op}
		for _, d := range n.deps {
			if from := at[d]; from.stream != s {
				edge := make(chan bool, 1)
				l.after = append(l.after, edge)
				by[from.stream][from.index].before = append(by[from.stream][from.index].before, edge)
			}
		}
		by[s] = append(by[s], l)
	}
	origin := g.origin
	if len(by[origin]) == 0 && len(g.nodes) > 0 {
		origin = g.nodes[0].op.stream.id
	}
	for s, links := range by {
		switch {
		case len(links) == 0:
		case workloads.Stream(s) == origin:
			x.inline = links
		default:
			c := &chain{lane: lane{rank: r}, links: links, start: make(chan workloads.Variant, 1), end: make(chan bool, 1)}
			x.side = append(x.side, c)
			r.g.running.Go(c.loop)
		}
	}
	r.graphs++
	x.number = r.graphs
	r.execs[x] = true
	r.g.live.execs.Add(1)
	return x, nil
}

func (c *chain) loop() {
	for v := range c.start {
		replay(&c.lane, c.links, v)
		c.end <- true
	}
}

// replay runs a chain once. After a failure the edges still move, so that no
// chain waits for one that gave up.
func replay(l *lane, links []link, v workloads.Variant) {
	for i := range links {
		k := &links[i]
		for _, edge := range k.after {
			<-edge
		}
		l.run(k.op, v)
		for _, edge := range k.before {
			edge <- true
		}
	}
}

// replay runs the whole graph once, on the goroutine of the launching stream.
func (x *exec) replay(l *lane, v workloads.Variant) {
	if l.failure.err != nil {
		l.failure.skipped += x.total
		return
	}
	for _, c := range x.side {
		c.lane.launch, c.lane.graph = l.launch, l.graph
		c.start <- v
	}
	replay(l, x.inline, v)
	for _, c := range x.side {
		<-c.end
		l.adopt(&c.lane, v)
	}
}

// adopt takes over what a chain that has ended counted and suffered.
func (l *lane) adopt(c *lane, v workloads.Variant) {
	for g, n := range c.executed[v] {
		l.executed[v][g] += n
	}
	c.executed[v] = [workloads.NumSubGraphs]int64{}
	f := c.take()
	skipped := l.failure.skipped + f.skipped
	l.failure = earlier(l.failure, f)
	l.failure.skipped = skipped
}

func (x *exec) Info() device.GraphInfo { return copyInfo(x.info) }

func (x *exec) check(call string, s workloads.Stream) (*stream, error) {
	if x.closed {
		return nil, fmt.Errorf("rank %d: %s(%s): the exec is closed", x.rank.id, call, s)
	}
	st, err := x.rank.stream(s)
	if err != nil {
		return nil, err
	}
	if c := x.rank.cap; c != nil && c.in[s] {
		return nil, c.fail(c.refuse(call+"("+s.String()+")", device.ErrCaptureUnsupported))
	}
	return st, nil
}

// Upload has nothing to do: instantiation readied everything.
func (x *exec) Upload(s workloads.Stream) error {
	_, err := x.check("Upload", s)
	return err
}

// Launch queues one replay.
func (x *exec) Launch(s workloads.Stream, v workloads.Variant) error {
	st, err := x.check("Launch", s)
	if err != nil {
		return err
	}
	t := x.rank.trace.Load()
	if t == nil {
		st.await(x.done)
		st.q <- item{what: x, on: s, gen: x.done.next(s), variant: v}
		return nil
	}
	start, n := t.now(), t.launching()
	st.await(x.done)
	st.q <- item{what: x, on: s, gen: x.done.next(s), variant: v, launch: n}
	t.did(callReplay, n, start)
	return nil
}

// Close waits for launches in flight and ends the exec's goroutines.
func (x *exec) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	if last := x.done.last.Load(); last != 0 {
		x.done.await(workloads.Stream(last&0xff), last>>8)
	}
	for _, c := range x.side {
		close(c.start)
	}
	delete(x.rank.execs, x)
	x.rank.g.live.execs.Add(-1)
	return nil
}

func (r *rank) closeExecs() {
	for x := range r.execs {
		x.Close()
	}
}
