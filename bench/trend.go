package bench

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tech-renaissance/trbench/results"
)

// trendLevel is the error probability below which values are said to have a
// trend.
const trendLevel = 0.05

// kendall is Mann and Kendall's S: how many pairs rise, less how many fall.
func kendall(values []float64) int {
	s := 0
	for i, a := range values {
		for _, b := range values[i+1:] {
			switch {
			case b > a:
				s++
			case b < a:
				s--
			}
		}
	}
	return s
}

// kendallP is the two-sided probability of an S at least as far from 0 among n
// values without ties in random order, exactly.
func kendallP(s, n int) float64 {
	if s < 0 {
		s = -s
	}
	// share[k] is the share of permutations with k falling pairs; S is the
	// number of pairs less twice that.
	share := []float64{1}
	for m := 2; m <= n; m++ {
		next := make([]float64, len(share)+m-1)
		for k, p := range share {
			for more := range m {
				next[k+more] += p / float64(m)
			}
		}
		share = next
	}
	pairs := n * (n - 1) / 2
	p := 0.0
	for k, q := range share {
		if at := pairs - 2*k; at >= s || at <= -s {
			p += q
		}
	}
	return min(p, 1)
}

// slope is Theil and Sen's: the median of the slopes of all pairs.
func slope(values []float64) float64 {
	var slopes []float64
	for i, a := range values {
		for j, b := range values[i+1:] {
			slopes = append(slopes, (b-a)/float64(j+1))
		}
	}
	return results.Median(slopes)
}

// change is what the trend amounts to from the first value to the last, as a
// share of the median.
func change(values []float64) float64 {
	m := results.Median(values)
	if m == 0 || len(values) < 2 {
		return 0
	}
	return slope(values) * float64(len(values)-1) / m
}

// trending says whether values have a trend that matters: Mann and Kendall's
// test finds one, and from the first to the last value it amounts to at least
// the given share of the median.
func trending(values []float64, share float64) bool {
	return kendallP(kendall(values), len(values)) < trendLevel && math.Abs(change(values)) >= share
}

// drift looks for one trend in several series of the same thing, such as the
// blocks of each process: each counts by itself (Hirsch and Slack's test), so
// that a difference between them is no trend. It returns the median change and
// the probability of such a trend by chance.
func drift(series [][]float64) (share, p float64) {
	s, variance := 0.0, 0.0
	var changes []float64
	for _, v := range series {
		n := float64(len(v))
		if n < 2 {
			continue
		}
		s += float64(kendall(v))
		variance += n * (n - 1) * (2*n + 5) / 18
		changes = append(changes, change(v))
	}
	if variance == 0 {
		return 0, 1
	}
	z := max(math.Abs(s)-1, 0) / math.Sqrt(variance)
	return results.Median(changes), 2 * distuv.UnitNormal.Survival(z)
}

// twoGroups says whether values fall into two groups far from each other: the
// widest gap between neighbours is more than twice as wide as either group, each
// group has at least two values, and the gap amounts to the given share of the
// median.
func twoGroups(values []float64, share float64) bool {
	v := slices.Sorted(slices.Values(values))
	if len(v) < 6 {
		return false
	}
	at, widest := 0, 0.0
	for i := 1; i < len(v); i++ {
		if gap := v[i] - v[i-1]; gap > widest {
			at, widest = i, gap
		}
	}
	if at < 2 || len(v)-at < 2 || widest < share*results.Median(v) {
		return false
	}
	within := max(v[at-1]-v[0], v[len(v)-1]-v[at])
	return widest > 2*within
}
