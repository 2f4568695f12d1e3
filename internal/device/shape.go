package device

import "math/bits"

// Shape is what the edges of a graph of n nodes, numbered from 0, leave open.
// widest is the widest section: the most nodes of which no path orders any two,
// which is the most that may run at once. critical is the critical path: the
// number of nodes of the longest chain. next lists the nodes that wait for each;
// an edge may stand twice. Of a graph with a cycle both are 0.
//
// The widest section is exact: n less the most pairs (earlier, later) that can
// be chosen among those that a path orders with no node twice on one side, for
// that is the least number of chains that hold all nodes (Dilworth 1950; Fulkerson
// 1956). It takes n bits a node for what comes after it, and on graphs of a few
// streams little time, since edges alone choose nearly all pairs.
func Shape(next [][]int) (widest, critical int) {
	n := len(next)
	order := topologicalOrder(next)
	if len(order) < n {
		return 0, 0
	}
	words := (n + 63) / 64
	after := make([][]uint64, n) // by node: what a path leads to
	depth := make([]int, n)      // nodes of the longest chain from it
	for i := n - 1; i >= 0; i-- {
		v := order[i]
		after[v], depth[v] = make([]uint64, words), 1
		for _, w := range next[v] {
			after[v][w/64] |= 1 << (w % 64)
			for k, b := range after[w] {
				after[v][k] |= b
			}
			depth[v] = max(depth[v], depth[w]+1)
		}
		critical = max(critical, depth[v])
	}
	m := matching{after: after, earlier: make([]int, n), seen: make([]uint64, words)}
	for v := range m.earlier {
		m.earlier[v] = -1
	}
	pairs := 0
	var alone []int
	for _, v := range order {
		if m.direct(v, next[v]) {
			pairs++
		} else {
			alone = append(alone, v)
		}
	}
	for _, v := range alone {
		clear(m.seen)
		if m.augment(v) {
			pairs++
		}
	}
	return n - pairs, critical
}

// topologicalOrder lists the nodes, each before those that wait for it; without
// those of cycles and behind them.
func topologicalOrder(next [][]int) []int {
	waits := make([]int, len(next))
	for _, list := range next {
		for _, w := range list {
			waits[w]++
		}
	}
	var order []int
	for v, n := range waits {
		if n == 0 {
			order = append(order, v)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, w := range next[order[i]] {
			if waits[w]--; waits[w] == 0 {
				order = append(order, w)
			}
		}
	}
	return order
}

// matching pairs nodes with later ones.
type matching struct {
	after   [][]uint64
	earlier []int    // by node: with whom it is paired as the later one, or -1
	seen    []uint64 // later ones that this search has tried
}

// direct pairs v with the first free one that waits for it.
func (m *matching) direct(v int, next []int) bool {
	for _, w := range next {
		if m.earlier[w] < 0 {
			m.earlier[w] = v
			return true
		}
	}
	return false
}

// augment pairs v with some later one, moving others along if it has to.
func (m *matching) augment(v int) bool {
	for k := range m.seen {
		for {
			b := m.after[v][k] &^ m.seen[k]
			if b == 0 {
				break
			}
			w := k*64 + bits.TrailingZeros64(b)
			m.seen[k] |= 1 << (w % 64)
			if m.earlier[w] < 0 || m.augment(m.earlier[w]) {
				m.earlier[w] = v
				return true
			}
		}
	}
	return false
}
