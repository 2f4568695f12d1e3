package results

import (
	"math"
	"slices"
)

// Metric is a figure of one configuration: the median of its samples.
type Metric struct {
	Name      string   `json:"name"`
	Unit      string   `json:"unit"`      // ns, images/s
	Direction string   `json:"direction"` // which way is better: lower, higher, none
	Clock     string   `json:"clock"`     // host, events, gpu
	Value     float64  `json:"value"`
	N         int      `json:"n"`
	Samples   []Sample `json:"samples"`
	Summary   *Summary `json:"summary"` // null in records of one process before 1.1
}

// Names of metrics. All are per step.
const (
	StepTimeNs   = "step_time_ns"   // wall time of a block of back-to-back steps with one wait, over steps
	SubmitTimeNs = "submit_time_ns" // host time inside submitting calls, to a drained device; joins excluded
	SyncWaitNs   = "sync_wait_ns"   // host time blocked in joins
	HostTimeNs   = "host_time_ns"   // the rest of the host's work in a step
	LatencyNs    = "latency_ns"     // a step with a wait after it
	ImagesPerS   = "images_per_s"   // the job's total: batch x gpus / step time
)

// Directions of a metric.
const (
	Lower  = "lower"
	Higher = "higher"
	None   = "none"
)

// Definition is what is fixed about a metric of a given name.
type Definition struct{ Name, Unit, Direction, Clock string }

// Definitions lists the metrics this version writes, in the order they are shown.
func Definitions() []Definition {
	return []Definition{
		{StepTimeNs, "ns", Lower, "host"},
		{SubmitTimeNs, "ns", Lower, "host"},
		{SyncWaitNs, "ns", Lower, "host"},
		{HostTimeNs, "ns", Lower, "host"},
		{LatencyNs, "ns", Lower, "host"},
		{ImagesPerS, "images/s", Higher, "host"},
	}
}

// NewMetric makes the metric of a defined name from its samples, whose order
// is kept and whose slice the metric then owns. Nanoseconds are rounded to
// whole ones. An undefined name gets no unit and direction none.
func NewMetric(name string, samples []Sample) Metric {
	m := Metric{Name: name, Direction: None, N: len(samples), Samples: samples}
	for _, d := range Definitions() {
		if d.Name == name {
			m.Unit, m.Direction, m.Clock = d.Unit, d.Direction, d.Clock
		}
	}
	values := make([]float64, len(samples))
	for i := range samples {
		if m.Unit == "ns" {
			samples[i].Value = math.Round(samples[i].Value)
		}
		values[i] = samples[i].Value
	}
	m.Value = Median(values)
	if m.Unit == "ns" {
		m.Value = math.Round(m.Value)
	}
	return m
}

// Median is the middle value, or the mean of the two middle ones; 0 of none.
// The argument is left as it is.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	h := len(v) / 2
	if len(v)%2 == 1 {
		return v[h]
	}
	return v[h-1] + (v[h]-v[h-1])/2
}

// Count makes a known count.
func Count(n int64) *int64 { return &n }
