package guard

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat/combin"
)

// exactPairs is up to how many pairs of values the exact distribution is used;
// with ties, so many take about a tenth of a second. 5 runs of 8 processes
// against 8 are 320.
const exactPairs = 2500

// rounding is by how much a p may miss a bound that it equals on paper, such
// as 2 of 40 orders against 0.05.
const rounding = 1e-9

// mannWhitney is the two-sided test of two samples: U counts pairs in which
// head is above base, ties half, and p is twice the smaller tail's
// probability. It is exact up to [exactPairs], ties included, and a normal
// approximation with correction for ties and continuity above. Two samples of
// one value have p 1. Neither may be empty.
//
// golang.org/x/perf/benchmath is exact with ties up to 25 values a side only,
// and takes one tail's distribution for both, which with ties and sides of
// different size depends on which is called first; so its distribution is used
// here and not its test.
func mannWhitney(base, head []float64) (u, p float64) {
	ties, tied := tiesOf(base, head)
	n1, n2 := len(head), len(base)
	u = countAbove(base, head)
	switch {
	case len(ties) == 1:
		return u, 1
	case n1*n2 > exactPairs:
		r, err := stats.MannWhitneyUTest(head, base, stats.LocationDiffers)
		if err != nil {
			return u, 1 // all values are equal, which the case above found
		}
		return u, min(r.P, 1)
	}
	pairs := float64(n1 * n2)
	if !tied { // both tails are alike
		return u, min(1, 2*stats.UDist{N1: n1, N2: n2}.CDF(min(u, pairs-u)))
	}
	low := stats.UDist{N1: n1, N2: n2, T: ties}.CDF(u)
	high := stats.UDist{N1: n2, N2: n1, T: ties}.CDF(pairs - u)
	return u, min(1, 2*min(low, high))
}

// tiesOf says how often each value occurs in both samples, in ascending order,
// and whether any does more than once.
func tiesOf(base, head []float64) (counts []int, tied bool) {
	all := slices.Concat(base, head)
	slices.Sort(all)
	for i, v := range all {
		if i > 0 && v == all[i-1] {
			counts[len(counts)-1]++
			tied = true
		} else {
			counts = append(counts, 1)
		}
	}
	return counts, tied
}

func countAbove(base, head []float64) float64 {
	u := 0.0
	for _, h := range head {
		for _, b := range base {
			switch {
			case h > b:
				u++
			case h == b:
				u += .5
			}
		}
	}
	return u
}

// floorP is the least p that n1 values against n2 can reach: all of one side
// above all of the other.
func floorP(n1, n2 int) float64 {
	if n1 == 0 || n2 == 0 {
		return 1
	}
	return min(1, 2*math.Exp(-combin.LogGeneralizedBinomial(float64(n1+n2), float64(n1))))
}

// Need is the least number of processes a side, from so many on, with which one
// of so many rows can be significant at o.Alpha: the side with fewer grows first,
// then both.
func Need(base, head, rows int, o Options) (needBase, needHead int) {
	for rows > 0 && o.Alpha > 0 && floorP(base, head)*float64(rows) > o.Alpha*(1+rounding) {
		switch {
		case base < head:
			base++
		case head < base:
			head++
		default:
			base, head = base+1, head+1
		}
	}
	return base, head
}

// holm adjusts p-values so that comparing each with alpha keeps the chance of
// any false rejection in the family at alpha, whatever their dependence
// (Holm 1979).
func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	adjusted := make([]float64, len(p))
	worst := 0.0
	for rank, i := range order {
		worst = max(worst, min(1, float64(len(p)-rank)*p[i]))
		adjusted[i] = worst
	}
	return adjusted
}
