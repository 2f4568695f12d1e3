package guard

import (
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/stats"

	"github.com/tech-renaissance/trbench/results"
)

// intervalLevel is the coverage that a row's interval is made for.
const intervalLevel = 0.95

// hodgesLehmann makes the intervals that belong to the test: all factors between head
// and base that it would not reject, between two order statistics of the pairs'
// ratios (Hodges and Lehmann 1963). Coverage is what so many processes reach
// without ties, over the processes of the runs at hand; how much whole runs
// differ is the noise, which is not in it. cuts keeps what depends on numbers
// of processes alone.
type hodgesLehmann struct{ cuts map[[2]int]cut }

// cut is how many ratios lie outside an interval at each end, and what it then
// covers.
type cut struct {
	outside  int
	coverage float64
}

// interval is that of head over base. Neither may be empty.
func (s hodgesLehmann) interval(base, head []float64) *results.Interval {
	n := [2]int{len(base), len(head)}
	c, ok := s.cuts[n]
	if !ok {
		c = cutOf(n[0], n[1])
		s.cuts[n] = c
	}
	ratios := make([]float64, 0, n[0]*n[1])
	for _, h := range head {
		for _, b := range base {
			ratios = append(ratios, h/b)
		}
	}
	slices.Sort(ratios)
	return &results.Interval{
		Low: ratios[c.outside], High: ratios[len(ratios)-1-c.outside],
		Level: intervalLevel, Coverage: c.coverage, Method: "hodges-lehmann",
	}
}

// cutOf is the most ratios that may lie outside at each end, so that either
// tail has at most half of what is not covered; with few processes none may,
// and the whole range covers less than the level. Above [exactPairs] the normal
// approximation takes over.
func cutOf(n1, n2 int) cut {
	pairs := n1 * n2
	below := stats.UDist{N1: n1, N2: n2}.CDF // of so many pairs or fewer
	if pairs > exactPairs {
		sd := math.Sqrt(float64(pairs) * float64(n1+n2+1) / 12)
		below = stats.NormalDist{Mu: float64(pairs)/2 - .5, Sigma: sd}.CDF
	}
	over := sort.Search(pairs/2, func(k int) bool { return below(float64(k)) > (1-intervalLevel)/2 })
	outside := max(over-1, 0)
	return cut{outside, max(0, 1-2*below(float64(outside)))}
}
