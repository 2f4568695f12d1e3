package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// inspect reads the captured graph back from the driver: node kinds, edges,
// widest section and critical path, and every address its nodes hold. The project's own
// launches must be in it as they were prepared, all of them and no others.
func (g *graph) inspect() error {
	r := g.r
	nodes, err := r.api.GraphGetNodes(g.h)
	if err != nil {
		return fmt.Errorf("read the graph back: %w", err)
	}
	a := newAudit(r, g.ops)
	g.info.Nodes = map[string]int{}
	for _, n := range nodes {
		kind, err := r.api.GraphNodeGetType(n)
		if err != nil {
			return fmt.Errorf("read a node back: %w", err)
		}
		g.info.Nodes[kind.String()]++
		if err := a.node(n, kind); err != nil {
			return fmt.Errorf("audit of the captured graph: %w", err)
		}
	}
	if err := a.rest(); err != nil {
		return fmt.Errorf("audit of the captured graph: %w", err)
	}
	if t := r.g.tuning; t.FillKernels || t.CopyKernels {
		if nodes, err = g.replace(nodes); err != nil {
			return err
		}
	}
	edges, err := r.api.GraphGetEdges(g.h)
	if err != nil {
		return fmt.Errorf("read the edges back: %w", err)
	}
	g.info.Edges = len(edges)
	g.info.WidestSection, g.info.CriticalPath = shapeOf(nodes, edges)
	for _, o := range g.ops {
		g.info.Ops[o.b.SubGraph]++
	}
	for id, n := range g.info.Ops {
		if n > 0 {
			g.counts = append(g.counts, opCount{workloads.SubGraph(id), int64(n)})
		}
	}
	return nil
}

// shapeOf is [device.Shape] of a graph as the driver tells it.
func shapeOf(nodes []driver.GraphNode, edges []driver.Edge) (widest, critical int) {
	number := make(map[driver.GraphNode]int, len(nodes))
	for i, n := range nodes {
		number[n] = i
	}
	next := make([][]int, len(nodes))
	for _, e := range edges {
		from := number[e.From]
		next[from] = append(next[from], number[e.To])
	}
	return device.Shape(next)
}

// audit compares a graph's nodes with what was prepared.
type audit struct {
	r *rank
	// want counts the project's launches by mark, of says whose they are.
	want map[string]int
	of   map[string]*workloads.Bound
	// blind: the driver is too old to name kernels or to tell their parameters.
	blind bool
}

func newAudit(r *rank, ops []*op) *audit {
	a := &audit{r: r, want: map[string]int{}, of: map[string]*workloads.Bound{}}
	for _, o := range ops {
		for _, m := range o.marks {
			a.want[m]++
			a.of[m] = o.b
		}
	}
	return a
}

// mark identifies a launch by all that a node of it tells: the kernel, its
// grid and the values of its parameters, or the ends of a copy.
func (r *rank) mark(l *kernels.Launch, s workloads.Stream) string {
	if l.Kind == kernels.KindCopyIn {
		return markCopy(r.address(l.Dst), r.address(l.Src), uint64(l.Dst.Bytes))
	}
	m := markKernel(l.Kernel, l.Grid, l.Block, l.Shared)
	for i := range l.Params {
		switch p := &l.Params[i]; p.Kind {
		case kernels.Block:
			m = append(m, p.Bytes...)
		case kernels.Int32, kernels.Float32:
			m = binary.NativeEndian.AppendUint32(m, uint32(p.Value))
		default:
			m = binary.NativeEndian.AppendUint64(m, r.pointer(*p, s))
		}
	}
	return string(m)
}

func markKernel(name string, grid, block [3]uint32, shared uint32) []byte {
	return fmt.Appendf(nil, "kernel %s %v %v %d:", name, grid, block, shared)
}

func markCopy(dst, src, n uint64) string { return fmt.Sprintf("copy %#x %#x %d", dst, src, n) }

// take strikes a launch off the list and says whether it was there.
func (a *audit) take(mark string) bool {
	if a.want[mark] == 0 {
		return false
	}
	a.want[mark]--
	return true
}

// rest names a launch that is not in the graph.
func (a *audit) rest() error {
	if a.blind {
		return nil
	}
	var missing []string
	for m, n := range a.want {
		if n > 0 {
			missing = append(missing, m)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	first := slices.Min(missing)
	what, _, _ := strings.Cut(first, ":")
	return fmt.Errorf("%d launches are missing, among them %s of %s", len(missing), what, nodeName(a.of[first]))
}

// node checks one node: copies and the project's own kernels exactly; fills
// and the kernels of libraries by their addresses. What neither the project
// nor the libraries submit is refused by kind.
func (a *audit) node(n driver.GraphNode, kind driver.NodeType) error {
	r := a.r
	switch kind {
	case driver.NodeKernel:
		return a.kernel(n)
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
		if !a.take(markCopy(p.Dst.Addr(), p.Src.Addr(), p.Bytes())) {
			return fmt.Errorf("a copy of %d bytes from %#x to %#x is none that was prepared", p.Bytes(), p.Src.Addr(), p.Dst.Addr())
		}
		return nil
	case driver.NodeMemset:
		p, err := r.api.GraphMemsetNodeGetParams(n)
		if err != nil {
			return err
		}
		if bytes := p.Width * uint64(p.ElementSize) * max(p.Height, 1); !r.owns(uint64(p.Dst), bytes) {
			return fmt.Errorf("a fill of %d bytes touches %#x, outside the rank's memory", bytes, p.Dst)
		}
		return nil
	case driver.NodeEmpty:
		return nil
	case driver.NodeMemAlloc, driver.NodeMemFree:
		return fmt.Errorf("the graph holds a %s node: something allocated memory inside the capture", kind)
	}
	return fmt.Errorf("the graph holds a %s node, which nothing here submits", kind)
}

func (a *audit) kernel(n driver.GraphNode) error {
	r := a.r
	p, err := r.api.GraphKernelNodeGetParams(n)
	if err != nil {
		return err
	}
	if p.Func == 0 {
		return nil // a library's, and nothing the driver lets us read
	}
	name, err := r.api.FuncGetName(p.Func)
	if errors.Is(err, driver.NotSupported) {
		a.blind = true
		return nil
	}
	if err != nil {
		return err
	}
	params, err := r.api.FuncGetParams(p.Func)
	if errors.Is(err, driver.NotSupported) {
		a.blind = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("kernel %s: %w", name, err)
	}
	_, own := kernels.Lookup(name)
	if len(params) > 0 && !p.HasArgs() && !own {
		return nil // packed by a library; the driver does not tell
	}
	mark := markKernel(name, p.Grid, p.Block, p.Shared)
	args := make([][]byte, len(params))
	for i, info := range params {
		if !p.HasArgs() {
			break // packed: this launch is none of the project's
		}
		args[i] = p.Arg(i, info.Size)
		mark = append(mark, args[i]...)
	}
	if a.take(string(mark)) {
		return nil
	}
	for i, arg := range args {
		for at := 0; at+8 <= len(arg); at += 8 {
			word := binary.NativeEndian.Uint64(arg[at:])
			if word == 0 || r.owns(word, 1) || !own && paddedInt(word) {
				continue
			}
			if _, _, err := r.api.MemGetAddressRange(driver.DevicePtr(word)); err == nil {
				return fmt.Errorf("kernel %s, parameter %d: %#x lies in an allocation of this process that is not the rank's", name, i, word)
			}
		}
	}
	if own {
		return fmt.Errorf("kernel %s, grid %v: its parameters are none of those prepared", name, p.Grid)
	}
	return nil
}

// paddedInt says that a word of a library's structure may be a 32-bit number
// beside padding that still holds the upper half of some address, as was seen
// of a cuDNN reduction's parameters on an H200 (0x7feb_0001_0100, in memory
// that is not the rank's): 24 bits or fewer are taken for a number. An address
// into the first 16 MiB of a 4 GiB span goes unjudged with it, one in 256.
func paddedInt(word uint64) bool { return uint32(word) < 1<<24 }

// owns says whether n bytes from an address lie in the rank's arena, counters
// or pinned memory.
func (r *rank) owns(addr, n uint64) bool {
	inside := func(base uint64, size int64) bool {
		return addr >= base && n <= uint64(size) && addr-base <= uint64(size)-n
	}
	return inside(uint64(r.arena), r.g.w.ArenaBytes) ||
		inside(uint64(r.counters), int64(workloads.NumStreams)*kernels.CounterWords*4) ||
		inside(uint64(r.pinned.Addr()), r.g.w.PinnedBytes)
}

var _ device.Graph = (*graph)(nil)
