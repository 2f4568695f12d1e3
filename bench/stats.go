package bench

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tech-renaissance/trbench/results"
)

// Level is the coverage that intervals are made for.
const Level = 0.95

// BootstrapFrom is the number of processes from which a bootstrap over them
// stands beside the t interval. Below, it is far too narrow: simulated, one
// for 95 % covers 76 % with 3 processes.
const BootstrapFrom = 8

// Summarize describes a metric by its samples, process by process. The
// arguments are left as they are. Processes without samples do not count; of
// none the summary is nil.
func Summarize(byProcess [][]float64) *results.Summary {
	var all, medians []float64
	for _, values := range byProcess {
		if len(values) > 0 {
			all = append(all, values...)
			medians = append(medians, results.Median(values))
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return &results.Summary{
		Median: results.Median(medians), Interval: OrderInterval(medians, Level), Processes: medians,
		P10: quantile(all, 0.1), P90: quantile(all, 0.9), P99: quantile(all, 0.99), Max: all[len(all)-1], N: len(all),
	}
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

// OrderInterval is an interval of the median between two order statistics, as
// narrow as the level allows; if not even the whole range reaches it, the
// range with the coverage it has: 0.75 for 3 values. It holds for any
// distribution. Of fewer than two values there is none.
func OrderInterval(values []float64, level float64) *results.Interval {
	n := len(values)
	if n < 2 {
		return nil
	}
	v := slices.Sorted(slices.Values(values))
	// The median lies outside [v[i], v[n-1-i]] if at most i values are on one
	// side of it.
	below := distuv.Binomial{N: float64(n), P: 0.5}
	coverage := func(i int) float64 { return 1 - 2*below.CDF(float64(i)) }
	i := 0
	for i+1 < n/2 && coverage(i+1) >= level {
		i++
	}
	return &results.Interval{Low: v[i], High: v[n-1-i], Level: level, Coverage: coverage(i), Method: "order"}
}

// TInterval is Student's interval of the mean; nil for fewer than two values.
func TInterval(values []float64, level float64) *results.Interval {
	n := float64(len(values))
	if n < 2 {
		return nil
	}
	mean, sd := stat.MeanStdDev(values, nil)
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.5+level/2) * sd / math.Sqrt(n)
	return &results.Interval{Low: mean - half, High: mean + half, Level: level, Coverage: level, Method: "t"}
}

// resamples of a bootstrap: its ends then move by a few per cent of its width
// from one seed to another.
const resamples = 2000

// Bootstrap is the percentile interval of the mean over resampled values,
// drawn from a seed; nil for fewer than [BootstrapFrom] values. It covers less
// than its level: simulated, 89 % with 8 values, and the bias-corrected and
// accelerated form the same. So no coverage is claimed.
func Bootstrap(values []float64, level float64, seed uint64) *results.Interval {
	n := len(values)
	if n < BootstrapFrom {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x626f6f74))
	means := make([]float64, resamples)
	for i := range means {
		for range n {
			means[i] += values[rng.IntN(n)]
		}
		means[i] /= float64(n)
	}
	slices.Sort(means)
	return &results.Interval{Low: quantile(means, 0.5-level/2), High: quantile(means, 0.5+level/2), Level: level, Method: "bootstrap"}
}
