package driver_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

// captured records work on a non-blocking stream.
func (h *host) captured(s driver.Stream, work func()) driver.Graph {
	h.t.Helper()
	h.ok(h.StreamBeginCapture(s, driver.CaptureThreadLocal))
	work()
	g, err := h.StreamEndCapture(s)
	h.ok(err)
	h.t.Cleanup(func() { h.GraphDestroy(g) })
	return g
}

func (h *host) exec(g driver.Graph) driver.GraphExec {
	h.t.Helper()
	e, err := h.GraphInstantiate(g, 0)
	h.ok(err)
	h.t.Cleanup(func() { h.GraphExecDestroy(e) })
	return e
}

func TestGraphReplay(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	h.set(1)
	g := h.captured(s, func() {
		h.submit(h.kernel(s, 3, 1))
		h.submit(h.kernel(s, 2, 5))
	})
	if v := h.value(); v != 1 {
		t.Errorf("the capture ran something: %d", v)
	}
	e := h.exec(g)
	h.ok(h.GraphUpload(e, s))
	l := must(h.PrepareGraphLaunch(e, s))(t)
	want := uint32(1)
	for range 5 {
		h.submit(l)
		want = (want*3+1)*2 + 5
	}
	h.ok(h.StreamSynchronize(s))
	if v := h.value(); v != want {
		t.Errorf("%d after 5 replays, want %d", v, want)
	}
}

// TestGraphInspect reads a captured diamond back: kinds, values, edges.
func TestGraphInspect(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	pin := must(h.MemHostAlloc(64, 0))(t)
	t.Cleanup(func() { h.MemFreeHost(pin) })
	g := h.captured(s, func() {
		h.ok(h.MemcpyHtoDAsync(h.word+8, pin.Addr(), 64, s))
		side, err := fork(h, s)
		h.ok(err)
		h.ok(h.MemsetD32Async(h.word+128, 0xabcd, 4, side))
		h.submit(h.kernel(s, 3, 4))
		h.ok(join(h, s, side))
		h.submit(h.kernel(s, 0, 9))
	})
	nodes, err := h.GraphGetNodes(g)
	h.ok(err)
	kinds := map[string]int{}
	index := map[driver.GraphNode]string{}
	for _, n := range nodes {
		typ, err := h.GraphNodeGetType(n)
		h.ok(err)
		kinds[typ.String()]++
		index[n] = typ.String()
		switch typ {
		case driver.NodeKernel:
			p, err := h.GraphKernelNodeGetParams(n)
			h.ok(err)
			name, err := h.FuncGetName(p.Func)
			h.ok(err)
			index[n] = name
			if !p.HasArgs() || p.Grid != [3]uint32{1, 1, 1} {
				t.Errorf("%s: %+v", name, p)
			}
			args, err := h.FuncGetParams(p.Func)
			h.ok(err)
			if got := le64(p.Arg(0, args[0].Size)); got != uint64(h.word) {
				t.Errorf("%s: pointer %#x, want %#x", name, got, h.word)
			}
			if want := map[string]byte{"mad_u32": 3, "add_u32": 9}[name]; p.Arg(1, 4)[0] != want {
				t.Errorf("%s: argument %v", name, p.Arg(1, 4))
			}
		case driver.NodeMemset:
			p, err := h.GraphMemsetNodeGetParams(n)
			h.ok(err)
			if p.Dst != h.word+128 || p.Value != 0xabcd || p.ElementSize != 4 || p.Width != 4 || p.Height != 1 {
				t.Errorf("fill %+v", p)
			}
		case driver.NodeMemcpy:
			p, err := h.GraphMemcpyNodeGetParams(n)
			h.ok(err)
			t.Logf("copy %+v", p)
			if p.Bytes() != 64 || p.Dst.Addr() != uint64(h.word+8) || p.Src.Addr() != uint64(pin.Addr()) {
				t.Errorf("copy %+v", p)
			}
		}
	}
	if want := map[string]int{"kernel": 2, "memcpy": 1, "memset": 1}; !maps.Equal(kinds, want) {
		t.Errorf("nodes %v, want %v", kinds, want)
	}
	edges, err := h.GraphGetEdges(g)
	h.ok(err)
	got := map[string]bool{}
	for _, e := range edges {
		got[index[e.From]+">"+index[e.To]] = true
	}
	want := map[string]bool{"memcpy>memset": true, "memcpy>mad_u32": true, "memset>add_u32": true, "mad_u32>add_u32": true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("edges %v, want %v", got, want)
	}
	dot := filepath.Join(t.TempDir(), "g.dot")
	h.ok(h.GraphDebugDotPrint(g, dot, driver.DotVerbose))
	if b, err := os.ReadFile(dot); err != nil || !strings.Contains(string(b), "digraph") {
		t.Errorf("picture: %.40q, %v", b, err)
	}
}

func le64(b []byte) uint64 {
	var v uint64
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

func TestCaptureInfo(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	info, err := h.StreamGetCaptureInfo(s)
	h.ok(err)
	if info.Status != driver.CaptureNone {
		t.Errorf("before: %+v", info)
	}
	var last driver.GraphNode
	g := h.captured(s, func() {
		h.submit(h.kernel(s, 0, 1))
		info, err = h.StreamGetCaptureInfo(s)
		h.ok(err)
		last = info.Last
	})
	nodes, err := h.GraphGetNodes(g)
	h.ok(err)
	if info.Status != driver.CaptureActive || info.ID == 0 || info.Dependencies != 1 || len(nodes) != 1 || last != nodes[0] {
		t.Errorf("inside: %+v, nodes %v", info, nodes)
	}
}

// Two kernels of one stream follow nothing and each other's predecessor alone
// once the capture is told so.
func TestSetCaptureDependencies(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	var node [3]driver.GraphNode
	last := func() driver.GraphNode {
		info, err := h.StreamGetCaptureInfo(s)
		h.ok(err)
		if len(info.Follows) != info.Dependencies || info.Dependencies != 1 {
			t.Errorf("behind a kernel: %+v", info)
		}
		return info.Follows[0]
	}
	g := h.captured(s, func() {
		h.submit(h.kernel(s, 0, 1))
		node[0] = last()
		h.ok(h.StreamSetCaptureDependencies(s, nil))
		h.submit(h.kernel(s, 0, 1))
		node[1] = last()
		h.ok(h.StreamSetCaptureDependencies(s, node[:2]))
		h.submit(h.kernel(s, 0, 1))
		node[2] = last()
	})
	edges, err := h.GraphGetEdges(g)
	h.ok(err)
	want := map[[2]driver.GraphNode]bool{{node[0], node[2]}: true, {node[1], node[2]}: true}
	for _, e := range edges {
		if !want[[2]driver.GraphNode{e.From, e.To}] {
			t.Errorf("edge %v of nodes %v", e, node)
		}
	}
	if len(edges) != 2 {
		t.Errorf("%d edges", len(edges))
	}
	if err := h.StreamSetCaptureDependencies(s, nil); !errors.Is(err, driver.Result(401)) {
		t.Errorf("outside a capture: %v", err)
	}
}

func TestProgrammaticEdge(t *testing.T) {
	h := newHost(t, fake.H200(1))
	if onGPU() {
		if major, _ := h.DeviceGetAttribute(0, driver.DeviceComputeCapabilityMajor); major < 9 {
			t.Skip("programmatic launch needs compute capability 9.0")
		}
	}
	s := h.stream(driver.StreamNonBlocking)
	g := h.captured(s, func() {
		h.submit(h.kernel(s, 0, 1))
		h.submit(h.kernel(s, 0, 1, driver.ProgrammaticSerialization()))
		h.submit(h.kernel(s, 0, 1))
	})
	edges, err := h.GraphGetEdges(g)
	h.ok(err)
	n := 0
	for _, e := range edges {
		if e.Data.Programmatic() {
			n++
		}
	}
	if len(edges) != 2 || n != 1 {
		t.Errorf("%d edges, %d programmatic: %+v", len(edges), n, edges)
	}
	h.exec(g)
}

// TestExecUpdate is rule 910: a graph of the same topology is taken, another
// refused.
func TestExecUpdate(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	chain := func(bs ...uint32) driver.Graph {
		return h.captured(s, func() {
			for _, b := range bs {
				h.submit(h.kernel(s, 0, b))
			}
		})
	}
	e := h.exec(chain(1, 2))
	run := func(want uint32) {
		t.Helper()
		h.set(0)
		h.ok(h.GraphLaunch(e, s))
		h.ok(h.StreamSynchronize(s))
		if v := h.value(); v != want {
			t.Errorf("replay leaves %d, want %d", v, want)
		}
	}
	run(3)
	if why, err := h.GraphExecUpdate(e, chain(10, 20)); err != nil || why.Result != driver.UpdateSuccess {
		t.Fatalf("%v, %v", why, err)
	}
	run(30)
	why, err := h.GraphExecUpdate(e, chain(1, 2, 3))
	t.Logf("a longer chain: %v, %v", why.Result, err)
	if !errors.Is(err, driver.GraphExecUpdateFailure) || why.Result != driver.UpdateTopologyChanged || !strings.Contains(err.Error(), "topology changed") {
		t.Errorf("a longer chain: %v, %v", why, err)
	}
	run(30)
	other := h.captured(s, func() {
		h.submit(h.kernel(s, 0, 1))
		h.ok(h.MemsetD8Async(h.word, 0, 4, s))
	})
	why, err = h.GraphExecUpdate(e, other)
	t.Logf("another kind: %v, node %#x, %v", why.Result, why.Node, err)
	if !errors.Is(err, driver.GraphExecUpdateFailure) || why.Result != driver.UpdateNodeTypeChanged {
		t.Errorf("another kind: %v, %v", why, err)
	}
	run(30)
}

func TestGraphByHand(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	g := must(h.GraphCreate())(t)
	t.Cleanup(func() { h.GraphDestroy(g) })
	spec := func(a, b uint32) driver.KernelSpec {
		return driver.KernelSpec{Func: h.mad, Name: "mad_u32", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Args: new(driver.Args).Ptr(h.word).U32(a).U32(b)}
	}
	second := must(h.GraphAddKernelNode(g, nil, spec(10, 0)))(t)
	first := must(h.GraphAddKernelNode(g, nil, spec(1, 2)))(t)
	h.ok(h.GraphAddDependencies(g, []driver.GraphNode{first}, []driver.GraphNode{second}))
	third := must(h.GraphAddKernelNode(g, []driver.GraphNode{second}, spec(1, 5)))(t)
	e, failure, err := h.GraphInstantiateWithParams(g, driver.InstantiateUpload, s)
	if err != nil || failure.Result != 0 {
		t.Fatalf("%v, %v", failure, err)
	}
	t.Cleanup(func() { h.GraphExecDestroy(e) })
	run := func(want uint32) {
		t.Helper()
		h.set(0)
		h.ok(h.GraphLaunch(e, s))
		h.ok(h.StreamSynchronize(s))
		if v := h.value(); v != want {
			t.Errorf("%d, want %d", v, want)
		}
	}
	run(25)
	h.ok(h.GraphExecKernelNodeSetParams(e, third, spec(2, 1)))
	run(41)
	h.ok(h.GraphNodeSetEnabled(e, second, false))
	run(5)
}

// TestRecapture takes a hundred captures of one step: memory does not drift
// once execs are destroyed first and the device is trimmed.
func TestRecapture(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	d := must(h.DeviceGet(0))(t)
	var first uint64
	for i := range 100 {
		h.ok(h.StreamBeginCapture(s, driver.CaptureThreadLocal))
		for range 20 {
			h.submit(h.kernel(s, 0, 1))
		}
		g, err := h.StreamEndCapture(s)
		h.ok(err)
		e, err := h.GraphInstantiate(g, 0)
		h.ok(err)
		h.ok(h.GraphLaunch(e, s))
		h.ok(h.StreamSynchronize(s))
		h.ok(h.GraphExecDestroy(e))
		h.ok(h.GraphDestroy(g))
		h.ok(h.DeviceGraphMemTrim(d))
		free, _, err := h.MemGetInfo()
		h.ok(err)
		if i == 0 {
			first = free
		} else if free != first && !onGPU() {
			t.Fatalf("recapture %d: %d bytes free, %d at first", i, free, first)
		}
	}
	used, err := h.DeviceGetGraphMemAttribute(d, driver.GraphMemUsed)
	if err != nil || used != 0 {
		t.Errorf("allocation nodes hold %d bytes, %v", used, err)
	}
}
