package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// inspect reads the captured graph back from the driver: node kinds, edges,
// width and critical path, and every address its nodes hold.
func (g *graph) inspect() error {
	nodes, err := g.r.api.GraphGetNodes(g.h)
	if err != nil {
		return fmt.Errorf("rank %d: read the graph back: %w", g.r.id, err)
	}
	g.info.Nodes = map[string]int{}
	for _, n := range nodes {
		kind, err := g.r.api.GraphNodeGetType(n)
		if err != nil {
			return fmt.Errorf("rank %d: read a node back: %w", g.r.id, err)
		}
		if kind == driver.NodeMemAlloc || kind == driver.NodeMemFree {
			return fmt.Errorf("rank %d: the graph holds a %s node: something allocated memory inside the capture", g.r.id, kind)
		}
		g.info.Nodes[kind.String()]++
		if err := g.r.auditNode(n, kind); err != nil {
			return fmt.Errorf("rank %d: audit of the captured graph: %w", g.r.id, err)
		}
	}
	edges, err := g.r.api.GraphGetEdges(g.h)
	if err != nil {
		return fmt.Errorf("rank %d: read the edges back: %w", g.r.id, err)
	}
	g.info.Edges = len(edges)
	g.info.Width, g.info.CriticalPath = levels(nodes, edges)
	for _, b := range g.bounds {
		g.info.Ops[b.SubGraph]++
	}
	for id, n := range g.info.Ops {
		if n > 0 {
			g.ops = append(g.ops, opCount{workloads.SubGraph(id), int64(n)})
		}
	}
	return nil
}

// levels is the largest number of nodes at one depth, and the greatest depth.
func levels(nodes []driver.GraphNode, edges []driver.Edge) (width, depth int) {
	next := map[driver.GraphNode][]driver.GraphNode{}
	waits := map[driver.GraphNode]int{}
	for _, e := range edges {
		next[e.From] = append(next[e.From], e.To)
		waits[e.To]++
	}
	level := map[driver.GraphNode]int{}
	var ready []driver.GraphNode
	for _, n := range nodes {
		if waits[n] == 0 {
			ready, level[n] = append(ready, n), 1
		}
	}
	count := map[int]int{}
	for len(ready) > 0 {
		n := ready[0]
		ready = ready[1:]
		count[level[n]]++
		width, depth = max(width, count[level[n]]), max(depth, level[n])
		for _, m := range next[n] {
			level[m] = max(level[m], level[n]+1)
			if waits[m]--; waits[m] == 0 {
				ready = append(ready, m)
			}
		}
	}
	return width, depth
}

// auditNode checks the addresses in a node: exactly for copies, fills and the
// project's own kernels, whose parameters are known; for a library's kernel,
// every 8-byte word that falls into an allocation of this process must lie in
// the rank's own memory.
func (r *rank) auditNode(n driver.GraphNode, kind driver.NodeType) error {
	switch kind {
	case driver.NodeMemcpy:
		p, err := r.api.GraphMemcpyNodeGetParams(n)
		if err != nil {
			return err
		}
		for _, end := range []driver.CopyEnd{p.Src, p.Dst} {
			if !r.owns(end.Addr(), p.Bytes()) {
				return fmt.Errorf("a copy of %d bytes touches %#x, outside the rank's memory", p.Bytes(), end.Addr())
			}
		}
	case driver.NodeMemset:
		p, err := r.api.GraphMemsetNodeGetParams(n)
		if err != nil {
			return err
		}
		if bytes := p.Width * uint64(p.ElementSize) * max(p.Height, 1); !r.owns(uint64(p.Dst), bytes) {
			return fmt.Errorf("a fill of %d bytes touches %#x, outside the rank's memory", bytes, p.Dst)
		}
	case driver.NodeKernel:
		return r.auditKernel(n)
	}
	return nil
}

func (r *rank) auditKernel(n driver.GraphNode) error {
	p, err := r.api.GraphKernelNodeGetParams(n)
	if err != nil {
		return err
	}
	if p.Func == 0 || !p.HasArgs() {
		return nil // nothing the driver lets us read
	}
	name, err := r.api.FuncGetName(p.Func)
	if errors.Is(err, driver.NotSupported) {
		return nil
	}
	if err != nil {
		return err
	}
	params, err := r.api.FuncGetParams(p.Func)
	if errors.Is(err, driver.NotSupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kernel %s: %w", name, err)
	}
	_, own := kernels.Lookup(name)
	for i, info := range params {
		arg := p.Arg(i, info.Size)
		if own && info.Size != 8 {
			continue
		}
		for at := 0; at+8 <= len(arg); at += 8 {
			word := binary.NativeEndian.Uint64(arg[at:])
			if word == 0 || r.owns(word, 1) {
				continue
			}
			if _, _, err := r.api.MemGetAddressRange(driver.DevicePtr(word)); err == nil {
				return fmt.Errorf("kernel %s, parameter %d: %#x lies in an allocation of this process that is not the rank's", name, i, word)
			}
		}
	}
	return nil
}

// owns says whether n bytes from an address lie in the rank's arena, counters
// or pinned memory.
func (r *rank) owns(addr, n uint64) bool {
	inside := func(base uint64, size int64) bool { return addr >= base && addr+n <= base+uint64(size) }
	return inside(uint64(r.arena), r.g.w.ArenaBytes) ||
		inside(uint64(r.counters), int64(workloads.NumStreams)*kernels.CounterWords*4) ||
		inside(uint64(r.pinned.Addr()), r.g.w.PinnedBytes)
}

var _ device.Graph = (*graph)(nil)
