package guard

import (
	"math"

	"github.com/tech-renaissance/trbench/results"
)

// noiseFrom is the number of runs from which their medians say something about
// how much a run's median moves by itself.
const noiseFrom = 3

// Noise is the relative standard deviation of a run's median over runs of the
// same thing: 1.4826 times the median absolute deviation of the logarithms of
// the runs' medians, times the factor that makes it unbiased for so few values
// (Croux and Rousseeuw 1992). It is nil for fewer than 3 runs. All values must
// be above 0.
func Noise(runs [][]float64) *float64 {
	var logs []float64
	for _, r := range runs {
		if len(r) > 0 {
			logs = append(logs, math.Log(results.Median(r)))
		}
	}
	if len(logs) < noiseFrom {
		return nil
	}
	center := results.Median(logs)
	for i, l := range logs {
		logs[i] = math.Abs(l - center)
	}
	noise := 1.4826 * smallSample(len(logs)) * results.Median(logs)
	return &noise
}

// smallSample corrects the median absolute deviation of n values.
func smallSample(n int) float64 {
	known := [...]float64{3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
	if n < len(known) {
		return known[n]
	}
	return float64(n) / (float64(n) - 0.8)
}
