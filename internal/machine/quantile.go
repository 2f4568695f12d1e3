package machine

import "math"

// quantile is the nearest rank: the smallest value with at least q of the
// sorted values at or below it. The sorted values are at least one.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
