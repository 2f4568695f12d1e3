package bench

import (
	"math"
	"slices"
)

// Summary describes samples by order statistics, in the samples' unit.
type Summary struct {
	N                int
	Median, P10, P90 float64
}

// Summarize describes values; the argument is left as it is. Of none all is 0.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	v := slices.Sorted(slices.Values(values))
	return Summary{N: len(v), Median: quantile(v, 0.5), P10: quantile(v, 0.1), P90: quantile(v, 0.9)}
}

// quantile interpolates linearly between the closest ranks of sorted values
// (type 7 of Hyndman and Fan).
func quantile(v []float64, q float64) float64 {
	at := q * float64(len(v)-1)
	lo := math.Floor(at)
	i := int(lo)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (at-lo)*(v[i+1]-v[i])
}
