package bench

import (
	"math"

	"github.com/tech-renaissance/trbench/results"
)

// What a plan's and a request's Tune may say beside the words of a way to run:
// choose by timing, or by the device's rule of thumb. Empty leaves the device as
// it is.
const (
	TuneAuto = "auto"
	TuneRule = "rule"
)

// TuneTie is the least difference that counts between two ways to run a step:
// half a per cent.
const TuneTie = 0.005

// Simplest picks one of the candidates, which are listed simplest first, by the
// times of their blocks; the i-th block of each ran in the i-th round. Candidates
// without blocks are passed over; the result is -1 if all are.
//
// It is the first that is not slower than the fastest: that is, whose interval of
// the median ratio to it, by rounds, begins at or below 1 + tie. The interval is
// [OrderInterval]'s: with 9 rounds one round that something disturbed does not
// widen it to what it was. The fastest has the least median.
func Simplest(blocks [][]float64, tie float64) int {
	best, least := -1, math.Inf(1)
	for i, b := range blocks {
		if len(b) == 0 {
			continue
		}
		if m := results.Median(b); m < least {
			best, least = i, m
		}
	}
	for i := range max(best, 0) {
		if len(blocks[i]) > 0 && notSlower(blocks[i], blocks[best], tie) {
			return i
		}
	}
	return best
}

func notSlower(a, b []float64, tie float64) bool {
	var ratios []float64
	for r := range min(len(a), len(b)) {
		ratios = append(ratios, a[r]/b[r])
	}
	low := results.Median(ratios)
	if i := OrderInterval(ratios, Level); i != nil {
		low = i.Low
	}
	return low <= 1+tie
}
