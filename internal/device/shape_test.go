package device

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestShape(t *testing.T) {
	for _, c := range []struct {
		name             string
		nodes            int
		edges            string // "ab" is an edge from a to b
		widest, critical int
	}{
		{"empty", 0, "", 0, 0},
		{"one", 1, "", 1, 1},
		{"apart", 3, "", 3, 1},
		{"chain", 4, "ab bc cd", 1, 4},
		{"fork", 4, "ab ac ad", 3, 2},
		{"diamond", 4, "ab ac bd cd", 2, 3},
		{"long and short way", 5, "ab bc ce ad de", 2, 4},
		{"shortcut", 3, "ab bc ac", 1, 3},
		{"an edge twice", 3, "ab ab bc", 1, 3},
		{"edges in any order", 4, "cd ab bc", 1, 4},
		{"two chains", 6, "ab bc de ef", 2, 3},
		{"ladder", 6, "ab cd ef ad cf", 3, 2},
		// b may run beside c and d, though it is no deeper than one of them.
		{"a late fork", 6, "ab ac cd ce bf df ef", 3, 4},
		{"what edges pair is undone", 4, "ac ad bc", 2, 2},
		{"cycle", 3, "ab bc ca", 0, 0},
		{"cycle behind a node", 3, "ab bc cb", 0, 0},
	} {
		next := make([][]int, c.nodes)
		for _, e := range strings.Fields(c.edges) {
			next[e[0]-'a'] = append(next[e[0]-'a'], int(e[1]-'a'))
		}
		if w, d := Shape(next); w != c.widest || d != c.critical {
			t.Errorf("%s: widest section %d, critical path %d, want %d, %d", c.name, w, d, c.widest, c.critical)
		}
	}
}

// Both are what trying every set and every path finds.
func TestShapeAgainstEverySet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		n := 1 + r.IntN(10)
		name := r.Perm(n) // numbers say nothing of the order
		next := make([][]int, n)
		var ordered [10]int // by node, as bits: those that a path orders with it
		longest := make([]int, n)
		for i := n - 1; i >= 0; i-- {
			longest[i] = 1
			for j := i + 1; j < n; j++ {
				if r.IntN(4) == 0 {
					next[name[i]] = append(next[name[i]], name[j])
					ordered[i] |= 1<<j | ordered[j]
					longest[i] = max(longest[i], longest[j]+1)
				}
			}
		}
		widest, critical := 0, 0
		for set := range 1 << n {
			size := 0
			for i := range n {
				if set>>i&1 == 1 {
					if size++; set&ordered[i] != 0 {
						size = -n
					}
				}
			}
			widest = max(widest, size)
		}
		for _, l := range longest {
			critical = max(critical, l)
		}
		if w, d := Shape(next); w != widest || d != critical {
			t.Fatalf("%v: widest section %d, critical path %d, want %d, %d", next, w, d, widest, critical)
		}
	}
}

// BenchmarkShape is a graph of five streams with joins, as a step's is.
func BenchmarkShape(b *testing.B) {
	const n, streams = 2000, 5
	next := make([][]int, n)
	for i := range n - streams {
		next[i] = append(next[i], i+streams)
		if i%50 == 0 {
			next[i] = append(next[i], i+streams+1)
		}
	}
	for b.Loop() {
		Shape(next)
	}
}
