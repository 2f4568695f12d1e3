package timeline_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
)

func replayed(ns []int64, edges ...[2]int) timeline.ReplayedGraph {
	g := timeline.ReplayedGraph{Edges: edges}
	for _, n := range ns {
		g.Nodes = append(g.Nodes, timeline.ReplayedNode{Ns: n, Kernel: true})
	}
	return g
}

func TestCriticalPath(t *testing.T) {
	for _, c := range []struct {
		name string
		g    timeline.ReplayedGraph
		want []int
	}{
		{"nothing", replayed(nil), nil},
		{"one", replayed([]int64{5}), []int{0}},
		{"chain, not in the order of indexes", replayed([]int64{1, 2, 3}, [2]int{2, 0}, [2]int{0, 1}), []int{2, 0, 1}},
		{"fork: the longer side", replayed([]int64{1, 9, 4, 4, 1}, [2]int{0, 1}, [2]int{0, 2}, [2]int{2, 3}, [2]int{1, 4}, [2]int{3, 4}), []int{0, 1, 4}},
		{"fork: two short ones are longer", replayed([]int64{1, 7, 4, 4, 1}, [2]int{0, 1}, [2]int{0, 2}, [2]int{2, 3}, [2]int{1, 4}, [2]int{3, 4}), []int{0, 2, 3, 4}},
		{"the same length: more nodes", replayed([]int64{1, 8, 4, 4, 1}, [2]int{0, 1}, [2]int{0, 2}, [2]int{2, 3}, [2]int{1, 4}, [2]int{3, 4}), []int{0, 2, 3, 4}},
		{"the same in all: the smaller index", replayed([]int64{1, 4, 4, 1}, [2]int{0, 2}, [2]int{0, 1}, [2]int{2, 3}, [2]int{1, 3}), []int{0, 1, 3}},
		{"a side branch that ends later", replayed([]int64{1, 1, 20}, [2]int{0, 1}, [2]int{0, 2}), []int{0, 2}},
		{"two that nothing joins", replayed([]int64{3, 4}), []int{1}},
		{"a shortcut", replayed([]int64{1, 1, 1}, [2]int{0, 2}, [2]int{0, 1}, [2]int{1, 2}), []int{0, 1, 2}},
		{"an edge twice", replayed([]int64{1, 1}, [2]int{0, 1}, [2]int{0, 1}), []int{0, 1}},
		{"nodes without length", replayed([]int64{0, 0, 0}, [2]int{0, 1}, [2]int{1, 2}), []int{0, 1, 2}},
	} {
		if got, err := c.g.CriticalPath(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for word, g := range map[string]timeline.ReplayedGraph{
		"cycle":            replayed([]int64{1, 1, 1}, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 1}),
		"node 0 to node 1": replayed([]int64{1}, [2]int{0, 1}),
		"node -1":          replayed([]int64{1}, [2]int{-1, 0}),
	} {
		if _, err := g.CriticalPath(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// On random graphs, against all paths.
func TestCriticalPathIsTheLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		n := 1 + rng.IntN(8)
		g := replayed(make([]int64, n))
		next := make([][]int, n)
		begins := slices.Repeat([]bool{true}, n)
		for i := range n {
			g.Nodes[i].Ns = rng.Int64N(5)
			for j := i + 1; j < n; j++ {
				if rng.IntN(3) == 0 {
					g.Edges = append(g.Edges, [2]int{i, j})
					next[i], begins[j] = append(next[i], j), false
				}
			}
		}
		longest, most := int64(-1), 0
		var walk func(i int, ns int64, nodes int)
		walk = func(i int, ns int64, nodes int) {
			ns, nodes = ns+g.Nodes[i].Ns, nodes+1
			if len(next[i]) == 0 && (ns > longest || ns == longest && nodes > most) {
				longest, most = ns, nodes
			}
			for _, j := range next[i] {
				walk(j, ns, nodes)
			}
		}
		for i := range n {
			if begins[i] {
				walk(i, 0, 0)
			}
		}
		path, err := g.CriticalPath()
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for k, i := range path {
			sum += g.Nodes[i].Ns
			if k > 0 && !slices.Contains(next[path[k-1]], i) {
				t.Fatalf("%v is no path of %v", path, g)
			}
		}
		if sum != longest || len(path) != most || !begins[path[0]] {
			t.Fatalf("path %v takes %d with %d nodes, the longest %d with %d, in %v", path, sum, len(path), longest, most, g)
		}
	}
}

// A step of 10 us: kernels of 3, 4 and 0.2 us and a copy of 1 us on the path, all
// as recorded. Records exceed the work by 0.5 us (0.1 us either way): the work is
// 2.5 + 3.5 + 0 + 1 = 7 us, and 3 us are left for four boundaries.
func TestNodeBoundary(t *testing.T) {
	g := replayed([]int64{3000, 4000, 1000, 200, 100}, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{0, 4})
	g.Nodes[2].Kernel = false
	path, err := g.CriticalPath()
	if err != nil || !slices.Equal(path, []int{0, 1, 2, 3}) {
		t.Fatal(path, err)
	}
	step := timeline.Corrected{Ns: 10_000, LowNs: 9_900, HighNs: 10_050}
	got := g.Boundary(path, step, 40, timeline.Lengthening{ByNs: 500, UncertaintyNs: 100})
	want := timeline.NodeBoundary{Boundaries: 4, Corrected: timeline.Corrected{
		Ns:     3000,
		LowNs:  9_900 - (2600 + 3600 + 0 + 1000) - 40,
		HighNs: 10_050 - (2400 + 3400 + 0 + 1000) + 40,
	}}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if each := got.Each(); each != (timeline.Corrected{Ns: 750, LowNs: 665, HighNs: 823}) { // 2660/4, 3290/4 = 822.5
		t.Errorf("each %+v", each)
	}
	// Without a correction: 10 - 8.2 us.
	if got := g.Boundary(path, step, 0, timeline.Lengthening{}); got.Ns != 1800 || got.Failed {
		t.Errorf("uncorrected %+v", got)
	}
	// Records shorter than the work lengthen it.
	if got := g.Boundary(path, step, 0, timeline.Lengthening{ByNs: -700}); got.Ns != 1800-3*700 || !got.Failed || got.Each().Ns != -75 {
		t.Errorf("shortened %+v, each %+v", got, got.Each())
	}
	if got := (timeline.NodeBoundary{}).Each(); got != (timeline.Corrected{}) {
		t.Errorf("of nothing %+v", got)
	}
}

// Kernels of 5 us of work in 5.9 us each, 10 us in 10.9; the record of the first is
// 5.6 us: 0.6 of the boundary of 0.9 us are in it.
func TestRecordExcess(t *testing.T) {
	at := func(ns, u int64) timeline.Corrected { return timeline.Corrected{Ns: ns, LowNs: ns - u, HighNs: ns + u} }
	d, b := timeline.RecordExcess(at(5900, 0), at(10_900, 0), at(5600, 0))
	if d != (timeline.Lengthening{ByNs: 600}) || b != at(900, 0) {
		t.Errorf("exact: %+v, %+v", d, b)
	}
	d, b = timeline.RecordExcess(at(5900, 10), at(10_900, 20), at(5600, 5))
	if d != (timeline.Lengthening{ByNs: 600, UncertaintyNs: 35}) || b != at(900, 40) {
		t.Errorf("with ranges: %+v, %+v", d, b)
	}
	// On the chain itself the two agree: the step of 100 kernels has the boundary.
	g := replayed(slices.Repeat([]int64{5600}, 100))
	var path []int
	for i := range 100 {
		path = append(path, i)
	}
	if each := g.Boundary(path, at(590_000, 0), 0, d).Each(); each.Ns != 900 {
		t.Errorf("the chain's boundary is %+v", each)
	}
}
