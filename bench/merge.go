package bench

import (
	"math"
	"reflect"
	"slices"

	"github.com/tech-renaissance/trbench/results"
)

// Merge adds what a good replicate brought to its cell; the first one makes the
// cell. The samples stay in the order of processes and, within, in the order
// they were taken. [Reduce] then says what they mean.
func Merge(c *results.Cell, got *results.Cell, p results.Process) {
	p.Status = results.Done
	processes := append(c.Processes, p)
	if len(c.Configurations) == 0 {
		warnings := got.Warnings
		*c = *got
		c.Warnings = nil
		warn(c, warnings...)
	} else {
		for i := range got.Configurations {
			mergeConfiguration(c, &got.Configurations[i])
		}
		warn(c, got.Warnings...)
	}
	c.Processes, c.Status, c.Failure = processes, results.Done, ""
	for i := range c.Configurations {
		settlePhases(&c.Configurations[i])
	}
}

// warn adds what one more process warns of. What another said in the same words
// is not repeated, but counted.
func warn(c *results.Cell, warnings ...results.Warning) {
	for _, w := range warnings {
		at := slices.IndexFunc(c.Warnings, func(have results.Warning) bool { return have.Code == w.Code && have.Text == w.Text })
		if at < 0 {
			at = len(c.Warnings)
			c.Warnings = append(c.Warnings, results.Warning{Code: w.Code, Text: w.Text})
		}
		c.Warnings[at].Processes++
	}
}

func mergeConfiguration(c *results.Cell, from *results.Configuration) {
	to := findConfiguration(c, func(k results.ConfigurationKey) bool { return k == from.Key })
	if to == nil {
		c.Configurations = append(c.Configurations, *from)
		return
	}
	for _, m := range from.Metrics {
		if have := to.Metric(m.Name); have != nil {
			have.Samples = append(have.Samples, m.Samples...)
		} else {
			to.Metrics = append(to.Metrics, m)
		}
	}
	to.Warmup = append(to.Warmup, from.Warmup...)
	for _, a := range from.Absent {
		if !slices.Contains(to.Absent, a) {
			to.Absent = append(to.Absent, a)
		}
	}
	to.Captures.Captures += from.Captures.Captures
	to.Captures.Replays += from.Captures.Replays
	to.Captures.Recaptures += from.Captures.Recaptures
	if len(to.Counts.Graphs) == 0 { // those of a record before 1.4
		to.Counts.Graphs = from.Counts.Graphs
	}
	if !reflect.DeepEqual(to.Counts, from.Counts) {
		warn(c, results.Warning{Code: "counts_differ", Text: label(to.Key) +
			": the processes count different launches or kernels for the same step; the record keeps the first count"})
	}
	for _, p := range from.Prepare {
		mergePhase(to, p)
	}
	to.Trace = mergeTrace(to.Trace, from.Trace)
	for _, s := range from.Machine {
		mergeSpread(to, s)
	}
}

// mergeSpread adds what was read in one more process.
func mergeSpread(to *results.Configuration, s results.Spread) {
	i := slices.IndexFunc(to.Machine, func(have results.Spread) bool { return have.Name == s.Name })
	if i < 0 {
		to.Machine = append(to.Machine, s)
		return
	}
	have := &to.Machine[i]
	have.Min, have.Max, have.N = min(have.Min, s.Min), max(have.Max, s.Max), have.N+s.N
	have.Processes = append(have.Processes, s.Processes...)
	have.Median = results.Median(have.Processes)
}

// mergePhase adds what a phase took in one more process.
func mergePhase(to *results.Configuration, p results.Phase) {
	for i := range to.Prepare {
		if have := &to.Prepare[i]; have.Phase == p.Phase {
			have.Processes = append(have.Processes, p.Ns)
			have.Memory = append(have.Memory, p.Memory...)
			return
		}
	}
	to.Prepare = append(to.Prepare, p)
}

// settlePhases makes each phase's figure the median over processes.
func settlePhases(c *results.Configuration) {
	for i := range c.Prepare {
		p := &c.Prepare[i]
		if len(p.Processes) == 0 {
			p.Processes = []int64{p.Ns}
		}
		values := make([]float64, len(p.Processes))
		for j, ns := range p.Processes {
			values[j] = float64(ns)
		}
		p.Ns = int64(math.Round(results.Median(values)))
	}
}

// Reduce says what a cell's samples mean: the summary of every metric, ratios,
// headline, and the doubts. It may be called again after each replicate.
func Reduce(c *results.Cell, p Plan) {
	for i := range c.Configurations {
		for j := range c.Configurations[i].Metrics {
			reduceMetric(&c.Configurations[i].Metrics[j])
		}
		reduceRate(&c.Configurations[i])
		reduceTrace(c.Configurations[i].Trace)
	}
	c.Ratios, c.Headline = ratios(c), headline(c)
	c.Warnings = append(slices.DeleteFunc(c.Warnings, func(w results.Warning) bool { return slices.Contains(doubtCodes, w.Code) }),
		doubts(c, p)...)
}

func reduceMetric(m *results.Metric) {
	m.Summary = Summarize(m.ByProcess())
	m.N = len(m.Samples)
	if m.Summary != nil {
		m.Value = m.Summary.Median
	}
}

// reduceRate makes the rate's figures those of the step time, so that the two
// never contradict each other: a median of rates is not the rate at the median
// where their number is even. Only the tails, P10 to Max, are of the rate's own
// samples.
func reduceRate(c *results.Configuration) {
	rate, step := c.Metric(results.ImagesPerS), c.Metric(results.StepTimeNs)
	if rate == nil || step == nil || rate.Summary == nil || step.Summary == nil || len(rate.Samples) != len(step.Samples) {
		return
	}
	// Samples are rounded, so the images of a step are not exact
	// in any one.
	products := make([]float64, len(rate.Samples))
	for i := range products {
		products[i] = rate.Samples[i].Value * step.Samples[i].Value
	}
	images := math.Round(results.Median(products) / 1e9)
	at := func(stepNs float64) float64 { return images * 1e9 / max(stepNs, 1) }
	from, to := step.Summary, rate.Summary
	rate.Value, to.Median = at(from.Median), at(from.Median)
	for i, v := range from.Processes {
		to.Processes[i] = at(v)
	}
	if from.Interval != nil {
		interval := *from.Interval
		interval.Low, interval.High = at(from.Interval.High), at(from.Interval.Low)
		to.Interval = &interval
	}
}
