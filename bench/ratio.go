package bench

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/tech-renaissance/trbench/results"
)

// compared are the metrics that configurations are compared in.
var compared = []string{results.StepTimeNs, results.LatencyNs, results.SubmitTimeNs, results.CPUTimeNs}

// place is a block of a process.
type place struct{ process, block int }

// blockMedians reduces a metric to one value a block: the median over its
// ranks and single steps.
func blockMedians(m *results.Metric) map[place]float64 {
	values := map[place][]float64{}
	for _, s := range m.Samples {
		at := place{s.Process, s.Block}
		values[at] = append(values[at], s.Value)
	}
	out := make(map[place]float64, len(values))
	for at, v := range values {
		out[at] = results.Median(v)
	}
	return out
}

// logRatios is, of each process that both have blocks of, the median over its
// blocks of the logarithm of base over other, in process order. A block that
// either lacks, or where either is not above 0, does not count.
func logRatios(metric string, base, other *results.Configuration) []float64 {
	a, b := base.Metric(metric), other.Metric(metric)
	if a == nil || b == nil {
		return nil
	}
	of, to := blockMedians(a), blockMedians(b)
	byProcess := map[int][]float64{}
	for at, v := range of {
		if w := to[at]; v > 0 && w > 0 {
			byProcess[at.process] = append(byProcess[at.process], math.Log(v/w))
		}
	}
	var out []float64
	for _, p := range slices.Sorted(maps.Keys(byProcess)) {
		out = append(out, results.Median(byProcess[p]))
	}
	return out
}

// RatioOf makes a ratio from one logarithm a process: their mean, with a t
// interval and, from [BootstrapFrom] processes, a bootstrap beside it. Means,
// because the t interval is one of the mean and because the parts of a split
// then add up. It is nil without any process.
func RatioOf(metric string, base, other results.ConfigurationKey, logs []float64) *results.Ratio {
	if len(logs) == 0 {
		return nil
	}
	return &results.Ratio{
		Metric: metric, Base: base, Other: other, Value: math.Exp(stat.Mean(logs, nil)),
		Interval: exponential(TInterval(logs, Level)), Bootstrap: exponential(Bootstrap(logs, Level, bootstrapSeed)),
		Logs: logs,
	}
}

// bootstrapSeed is fixed: the same samples give the same interval.
const bootstrapSeed = 1

// exponential takes an interval from logarithms to ratios.
func exponential(i *results.Interval) *results.Interval {
	if i == nil {
		return nil
	}
	low, high := math.Exp(i.Low), math.Exp(i.High)
	if math.IsInf(high, 0) {
		high = math.MaxFloat64 // what JSON can carry
	}
	i.Low, i.High = low, high
	return i
}

// ratios compares every eager configuration that joins by event, with any
// dispatch cost, with every captured one, and the plain one with all others.
func ratios(c *results.Cell) []results.Ratio {
	var out []results.Ratio
	plain := plainEager(c)
	for i := range c.Configurations {
		base := &c.Configurations[i]
		k := base.Key
		if k.Mode != "eager" || k.Sync != "event" || k.Control != "device" {
			continue
		}
		for j := range c.Configurations {
			other := &c.Configurations[j]
			if j == i || other.Key.Mode == "eager" && base != plain {
				continue
			}
			for _, metric := range compared {
				if r := RatioOf(metric, k, other.Key, logRatios(metric, base, other)); r != nil {
					out = append(out, *r)
				}
			}
		}
	}
	return out
}

// plainEager is eager/event with device control and nothing burnt, by the
// project's own launcher if it was run, else by another; or nil.
func plainEager(c *results.Cell) *results.Configuration {
	plain := func(k results.ConfigurationKey) bool {
		return k.Mode == "eager" && k.Sync == "event" && k.Control == "device" && k.DispatchNs == 0
	}
	own := findConfiguration(c, func(k results.ConfigurationKey) bool { return plain(k) && !k.SecondLauncher() })
	if own != nil {
		return own
	}
	return findConfiguration(c, plain)
}

func findConfiguration(c *results.Cell, is func(results.ConfigurationKey) bool) *results.Configuration {
	for i := range c.Configurations {
		if is(c.Configurations[i].Key) {
			return &c.Configurations[i]
		}
	}
	return nil
}
