package timeline

import (
	"errors"
	"fmt"
)

// ReplayedGraph is a graph's nodes with how long each ran, as recorded, in ns
// of the device's clock, and its edges as pairs of nodes' indexes, from and to.
type ReplayedGraph struct {
	Nodes []ReplayedNode
	Edges [][2]int
}

// ReplayedNode is a node of a graph. Recording lengthens kernels alone.
type ReplayedNode struct {
	Ns     int64
	Kernel bool
}

// CriticalPath is the path whose nodes take longest together, from a node that
// follows none to one that none follows, as indexes in order. Of paths of the same
// length it is one with the most nodes, since each adds a boundary, and of these
// the one whose last nodes have the smaller indexes.
func (g ReplayedGraph) CriticalPath() ([]int, error) {
	n := len(g.Nodes)
	next, waits := make([][]int, n), make([]int, n)
	for _, e := range g.Edges {
		if min(e[0], e[1]) < 0 || max(e[0], e[1]) >= n {
			return nil, fmt.Errorf("an edge from node %d to node %d of %d nodes", e[0], e[1], n)
		}
		next[e[0]] = append(next[e[0]], e[1])
		waits[e[1]]++
	}
	type best struct {
		ns           int64
		nodes, after int
	}
	reach := make([]best, n)
	var ready []int
	for i := range g.Nodes {
		if reach[i] = (best{g.Nodes[i].Ns, 1, -1}); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	longer := func(a, b best) bool { return a.ns > b.ns || a.ns == b.ns && a.nodes > b.nodes }
	last, done := -1, 0
	for ; len(ready) > 0; done++ {
		i := ready[0]
		ready = ready[1:]
		if len(next[i]) == 0 && (last < 0 || longer(reach[i], reach[last]) || !longer(reach[last], reach[i]) && i < last) {
			last = i
		}
		for _, j := range next[i] {
			to := best{reach[i].ns + g.Nodes[j].Ns, reach[i].nodes + 1, i}
			if longer(to, reach[j]) || !longer(reach[j], to) && i < reach[j].after {
				reach[j] = to
			}
			if waits[j]--; waits[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	if done < n {
		return nil, errors.New("the edges form a cycle")
	}
	var path []int
	for i := last; i >= 0; i = reach[i].after {
		path = append([]int{i}, path...)
	}
	return path, nil
}

// NodeBoundary is what the boundaries on a graph's critical path take together.
type NodeBoundary struct {
	// Corrected is the sum over all boundaries.
	Corrected
	// Boundaries are as many as the path has nodes: those between its nodes, and
	// the one from its end to its beginning in the next launch, where launches
	// follow each other.
	Boundaries int
	// Failed says that the sum is negative: the path's kernels, corrected, are
	// longer than the step. It is shown as it is, never as 0.
	Failed bool
}

// Each is one boundary, rounded to a ns.
func (b NodeBoundary) Each() Corrected {
	each := func(ns int64) int64 {
		n := int64(b.Boundaries)
		if n == 0 {
			return 0
		}
		half := n / 2
		if ns < 0 {
			half = -half
		}
		return (ns + half) / n
	}
	return Corrected{Ns: each(b.Ns), LowNs: each(b.LowNs), HighNs: each(b.HighNs)}
}

// Boundary is the time of a step that was timed without recording, with launches
// queued one behind another, less what the nodes of a path took.
//
// A kernel's record is longer than the work in it: by beginning and ending the
// kernel, and by recording. d is by how much, from a chain of kernels whose work
// is known ([RecordExcess]); a kernel counts as its record less d, at least 0, so
// that what is left beside the work is all boundary. Other nodes count as
// recorded. The range is that of the step, of the path's recorded length (the half
// width of its interval, over replays) and of d, all at their ends at once: it is
// wider than an interval of their sum.
func (g ReplayedGraph) Boundary(path []int, step Corrected, pathUncertaintyNs int64, d Lengthening) NodeBoundary {
	u := max(d.UncertaintyNs, -d.UncertaintyNs)
	work := func(by int64) (sum int64) {
		for _, i := range path {
			if x := g.Nodes[i]; x.Kernel {
				sum += max(x.Ns-by, 0)
			} else {
				sum += x.Ns
			}
		}
		return sum
	}
	b := NodeBoundary{Boundaries: len(path), Corrected: Corrected{
		Ns:     step.Ns - work(d.ByNs),
		LowNs:  step.LowNs - work(d.ByNs-u) - pathUncertaintyNs,
		HighNs: step.HighNs - work(d.ByNs+u) + pathUncertaintyNs,
	}}
	b.Failed = b.Ns < 0
	return b
}

// RecordExcess is by how much a kernel's record is longer than its work, and what
// a boundary takes, from chains of kernels that do a work w once and twice.
// once and twice are the untraced times a kernel of the two chains, recorded the
// mean record of a kernel of the first. Their difference is w, whatever the clock
// rate, since all else is the same in both:
//
//	w = twice - once    d = recorded - w    boundary = once - w
//
// The ranges are those with all three at their ends.
func RecordExcess(once, twice, recorded Corrected) (d Lengthening, boundary Corrected) {
	w := twice.Ns - once.Ns
	wLow, wHigh := twice.LowNs-once.HighNs, twice.HighNs-once.LowNs
	d.ByNs = recorded.Ns - w
	d.UncertaintyNs = max(recorded.HighNs-wLow-d.ByNs, d.ByNs-(recorded.LowNs-wHigh))
	return d, Corrected{Ns: once.Ns - w, LowNs: once.LowNs - (twice.HighNs - once.LowNs), HighNs: once.HighNs - (twice.LowNs - once.HighNs)}
}
