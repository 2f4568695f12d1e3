package fake

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"
)

type graph struct {
	h         uintptr
	name      string
	nodes     []*node
	capturing bool
}

type node struct {
	h    uintptr
	g    *graph
	typ  uint32
	deps []*node
	// One of these, by type.
	l   *launch
	cp  *copyOp
	set *setOp
	ev  *event
	// argAt is the array that cuGraphKernelNodeGetParams_v2 points to.
	argAt []unsafe.Pointer
}

// copyOp is a copy between addresses; host ends are pinned.
type copyOp struct {
	dst, src         uint64
	n                int
	dstHost, srcHost bool
}

func (o *copyOp) ends(c *context, mem *memMap) (dst, src []byte) {
	at := func(addr uint64, host bool) []byte {
		if host {
			return mem.pinned(uintptr(addr), o.n)
		}
		return mem.device(c.dev, addr, o.n)
	}
	return at(o.dst, o.dstHost), at(o.src, o.srcHost)
}

func (o *copyOp) run(c *context, mem *memMap) {
	if c.failed.Load() != 0 || o.n == 0 {
		return
	}
	dst, src := o.ends(c, mem)
	if dst == nil || src == nil {
		c.fail(illegalAddress, fmt.Sprintf("copy of %d bytes from %#x to %#x", o.n, o.src, o.dst))
		return
	}
	copy(dst, src)
}

type setOp struct {
	dst  uint64
	v    uint32
	size int // of an element
	n    int // elements
}

func (o *setOp) run(c *context, mem *memMap) {
	if c.failed.Load() != 0 || o.n == 0 {
		return
	}
	dst := mem.device(c.dev, o.dst, o.n*o.size)
	if dst == nil {
		c.fail(illegalAddress, fmt.Sprintf("fill of %d bytes at %#x", o.n*o.size, o.dst))
		return
	}
	fill(dst, o.v, o.size)
}

func (m *Machine) newGraph() *graph {
	g := &graph{}
	g.h, g.name = m.put("graph", g)
	return g
}

func (m *Machine) dropGraph(g *graph) {
	for _, n := range g.nodes {
		delete(m.objects, n.h)
	}
	delete(m.objects, g.h)
}

func (g *graph) add(m *Machine, n *node) {
	n.g = g
	n.h, _ = m.put("node", n)
	g.nodes = append(g.nodes, n)
}

// remove takes a node and its edges out.
func (g *graph) remove(m *Machine, n *node) {
	g.nodes = slices.DeleteFunc(g.nodes, func(o *node) bool { return o == n })
	for _, o := range g.nodes {
		o.deps = slices.DeleteFunc(o.deps, func(d *node) bool { return d == n })
	}
	delete(m.objects, n.h)
}

// programmatic says whether the edge from d to n comes of programmatic
// dependent launch.
func (n *node) programmatic(d *node) bool {
	return n.typ == typeKernel && d.typ == typeKernel && n.l.pdl && len(n.deps) == 1
}

// exec is an instantiated graph: copies of its nodes, in an order that follows
// their dependencies, cut into chains.
type exec struct {
	h      uintptr
	name   string
	ctx    *context
	nodes  []xnode
	chains [][]int
	// signal marks nodes that another chain waits for.
	signal []bool
	last   *item
	bytes  uint64
}

type xnode struct {
	node           // a copy
	of       *node // the node it was made of
	deps     []int // indices
	waits    []int // those in other chains
	disabled bool
}

// plan orders the nodes. It fails on a cycle.
func (e *exec) plan(g *graph) bool {
	index := map[*node]int{}
	e.nodes = nil
	for len(index) < len(g.nodes) {
		before := len(index)
		for _, n := range g.nodes {
			if _, ok := index[n]; ok {
				continue
			}
			if slices.ContainsFunc(n.deps, func(d *node) bool { _, ok := index[d]; return !ok }) {
				continue
			}
			index[n] = len(e.nodes)
			x := xnode{node: *n, of: n}
			for _, d := range n.deps {
				x.deps = append(x.deps, index[d])
			}
			e.nodes = append(e.nodes, x)
		}
		if len(index) == before {
			return false
		}
	}
	e.chains, e.signal = nil, make([]bool, len(e.nodes))
	chain := make([]int, len(e.nodes)) // of each node
	tail := map[int]int{}              // last node of each chain
	for i := range e.nodes {
		x := &e.nodes[i]
		if len(x.deps) == 1 {
			if c := chain[x.deps[0]]; tail[c] == x.deps[0] {
				chain[i], tail[c] = c, i
				e.chains[c] = append(e.chains[c], i)
				continue
			}
		}
		c := len(e.chains)
		chain[i], tail[c] = c, i
		e.chains = append(e.chains, []int{i})
		x.waits = x.deps
		for _, d := range x.deps {
			e.signal[d] = true
		}
	}
	return true
}

// replay is one launch of an exec as it was when launched.
type replay struct {
	ctx    *context
	mem    *memMap
	nodes  []xnode
	chains [][]int
	signal []bool
	fails  map[int]code
	before *item         // the exec's replay before this one
	waits  map[int]*item // of event wait nodes
	marks  map[int]*mark // of event record nodes
	acts   []*activity   // by node, where a profiler records them
}

type mark struct {
	it   *item
	when *int64
}

func (r *replay) run() {
	r.before.wait()
	done := make([]chan struct{}, len(r.nodes))
	for i, s := range r.signal {
		if s {
			done[i] = make(chan struct{})
		}
	}
	chain := func(c []int) {
		for _, i := range c {
			n := &r.nodes[i]
			for _, d := range n.waits {
				<-done[d]
			}
			if !n.disabled {
				r.exec(i, n)
			}
			if done[i] != nil {
				close(done[i])
			}
		}
	}
	if len(r.chains) == 1 {
		chain(r.chains[0])
		return
	}
	ends := make([]chan struct{}, len(r.chains))
	for i, c := range r.chains {
		ends[i] = make(chan struct{})
		go func() {
			defer close(ends[i])
			chain(c)
		}()
	}
	for _, e := range ends {
		<-e
	}
}

func (r *replay) exec(i int, n *xnode) {
	if r.acts != nil && r.acts[i] != nil {
		a, begin := r.acts[i], cuptiNow()
		defer func() { a.start, a.end = begin, cuptiNow() }()
	}
	switch n.typ {
	case typeKernel:
		n.l.run(r.ctx, r.mem, r.fails[i])
	case typeMemcpy:
		n.cp.run(r.ctx, r.mem)
	case typeMemset:
		n.set.run(r.ctx, r.mem)
	case typeWaitEvent:
		r.waits[i].wait()
	case typeEventRecord:
		*r.marks[i].when = nowNs()
		close(r.marks[i].it.done)
	}
}

func (m *Machine) instantiate(t *thread, gh uintptr, out *uintptr) code {
	c, r := m.current(t)
	if r != 0 {
		return r
	}
	g, r := get[*graph](m, gh)
	if r != 0 {
		return r
	}
	if g.capturing {
		return illegalState
	}
	e := &exec{ctx: c}
	if !e.plan(g) {
		return invalidValue
	}
	for i := range e.nodes {
		if l := e.nodes[i].l; l != nil && l.fn.ctx != c {
			return invalidContext
		}
	}
	e.bytes = execFixed + execNode*uint64(len(e.nodes))
	if m.used(c.dev)+e.bytes > m.GPUs[c.dev].Memory+c.execPool {
		return outOfMemory
	}
	c.execPool -= min(c.execPool, e.bytes)
	c.execBytes += e.bytes
	e.h, e.name = m.put("exec", e)
	m.say("%s %s", g.name, e.name)
	*out = e.h
	return success
}

func (m *Machine) destroyExec(h uintptr) code {
	e, r := get[*exec](m, h)
	if r != 0 {
		return r
	}
	m.say("%s", e.name)
	delete(m.objects, h)
	// Memory comes back late: the context keeps it for the next exec until a
	// trim.
	e.ctx.execBytes -= e.bytes
	e.ctx.execPool += e.bytes
	return success
}

func (m *Machine) launchGraph(t *thread, eh, sh uintptr) code {
	e, r := get[*exec](m, eh)
	if r != 0 {
		return r
	}
	s, r := m.stream(t, sh)
	if r != 0 {
		return r
	}
	m.say("%s %s", e.name, s.name)
	k, r := s.capturing()
	if r != 0 {
		return r
	}
	if k != nil {
		// The driver makes a child graph of it; nothing here does that.
		k.invalid = true
		return captureUnsupported
	}
	if s.ctx != e.ctx {
		return invalidHandle
	}
	re := &replay{ctx: e.ctx, mem: m.mem, nodes: slices.Clone(e.nodes), chains: e.chains, signal: e.signal, before: e.last}
	for i := range e.nodes {
		n := &e.nodes[i]
		switch n.typ {
		case typeKernel:
			n.l.fn.loaded = true
			if f := m.kernelFault(n.l.fn.k.name); f != 0 {
				if re.fails == nil {
					re.fails = map[int]code{}
				}
				re.fails[i] = f
			}
		case typeWaitEvent:
			if re.waits == nil {
				re.waits = map[int]*item{}
			}
			re.waits[i] = n.ev.item
		case typeEventRecord:
			if re.marks == nil {
				re.marks = map[int]*mark{}
			}
			mk := &mark{newItem(), new(int64)}
			re.marks[i] = mk
			n.ev.cap, n.ev.nodes = nil, nil
			n.ev.item, n.ev.whenNs = mk.it, mk.when
		}
	}
	re.acts = m.activities(e, s)
	e.last = m.replayed(e, s, re.acts, re.run)
	return success
}

// update gives an exec the parameters of a graph.
func (m *Machine) update(eh, gh uintptr) (bad uintptr, why uint32, r code) {
	e, r := get[*exec](m, eh)
	if r != 0 {
		return 0, 1, r
	}
	g, r := get[*graph](m, gh)
	if r != 0 {
		return 0, 1, r
	}
	m.say("%s %s", e.name, g.name)
	n := &exec{ctx: e.ctx}
	if len(g.nodes) != len(e.nodes) || !n.plan(g) {
		return 0, updateTopology, graphUpdateFailure
	}
	for i := range n.nodes {
		a, b := &e.nodes[i], &n.nodes[i]
		switch {
		case a.typ != b.typ:
			return b.of.h, updateNodeType, graphUpdateFailure
		case !slices.Equal(a.deps, b.deps):
			return b.of.h, updateTopology, graphUpdateFailure
		case a.typ == typeKernel && a.l.fn.ctx != b.l.fn.ctx:
			return b.of.h, updateFunction, graphUpdateFailure
		case a.typ == typeMemcpy && (a.cp.dstHost != b.cp.dstHost || a.cp.srcHost != b.cp.srcHost):
			return b.of.h, updateParameters, graphUpdateFailure
		}
	}
	for i := range n.nodes {
		n.nodes[i].of = e.nodes[i].of
		n.nodes[i].disabled = e.nodes[i].disabled
	}
	e.nodes = n.nodes
	return 0, 0, success
}

func (m *Machine) xnode(eh, nh uintptr) (*xnode, code) {
	e, r := get[*exec](m, eh)
	if r != 0 {
		return nil, r
	}
	for i := range e.nodes {
		if e.nodes[i].of.h == nh {
			// A replay under way has a copy.
			return &e.nodes[i], success
		}
	}
	return nil, invalidValue
}

var typeNames = map[uint32]string{typeKernel: "kernel", typeMemcpy: "memcpy", typeMemset: "memset", typeEmpty: "empty",
	typeWaitEvent: "wait_event", typeEventRecord: "event_record"}

func (g *graph) dot(path string) code {
	var b strings.Builder
	b.WriteString("digraph dot {\n")
	index := map[*node]int{}
	for i, n := range g.nodes {
		index[n] = i
		label := typeNames[n.typ]
		if n.l != nil {
			label = n.l.fn.k.name
		}
		fmt.Fprintf(&b, "\t\"node_%d\" [label=%q];\n", i, label)
	}
	for i, n := range g.nodes {
		for _, d := range n.deps {
			fmt.Fprintf(&b, "\t\"node_%d\" -> \"node_%d\";\n", index[d], i)
		}
	}
	b.WriteString("}\n")
	if os.WriteFile(path, []byte(b.String()), 0o644) != nil {
		return 304 // CUDA_ERROR_OPERATING_SYSTEM
	}
	return success
}
