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
	Clock     string   `json:"clock"`     // host, cpu, events
	Value     float64  `json:"value"`     // the summary's median, where there is a summary
	N         int      `json:"n"`
	Samples   []Sample `json:"samples"`
	Summary   *Summary `json:"summary"` // null in records of one process before 1.1
}

// Names of metrics. All but the preparation's are per step.
const (
	StepTimeNs       = "step_time_ns"        // wall time of a block of back-to-back steps with one wait, over steps
	StepTimeEventsNs = "step_time_events_ns" // the same block between two events of the device, over steps
	SubmitTimeNs     = "submit_time_ns"      // host time inside submitting calls, to a drained device; joins excluded
	SyncWaitNs       = "sync_wait_ns"        // host time blocked in joins
	HostTimeNs       = "host_time_ns"        // the rest of the host's work in a step
	OuterTimeNs      = "outer_time_ns"       // the three together by a clock around them, less what reading the clocks takes
	CPUTimeNs        = "cpu_time_ns"         // processor time of the whole process, over all threads, in a block, over steps
	LatencyNs        = "latency_ns"          // a step with a wait after it
	LaunchCostNs     = "launch_cost_ns"      // submit time over submitting calls
	LaunchOverheadNs = "launch_overhead_ns"  // free-running step time less that of the same work queued beforehand
	// ImagesPerS is the job's total, over all ranks: a sample is of its block's
	// step time, the figures are batch x gpus over those of step_time_ns.
	ImagesPerS = "images_per_s"

	PrepareNs     = "prepare_ns"      // all one-off work before the first step
	CaptureNs     = "capture_ns"      // of which recording submissions into graphs
	InstantiateNs = "instantiate_ns"  // of which turning graphs into something launchable
	UploadNs      = "upload_ns"       // of which readying them on the device
	FirstReplayNs = "first_replay_ns" // of which launching each once
)

// Directions of a metric.
const (
	Lower  = "lower"
	Higher = "higher"
	None   = "none"
)

// Clocks of a metric.
const (
	HostClock  = "host"   // the host's monotonic clock
	CPUClock   = "cpu"    // processor time of the process
	EventClock = "events" // events of the device
)

// Definition is what is fixed about a metric of a given name.
type Definition struct {
	Name, Unit, Direction, Clock string
	// Signed says that noise may push a sample below 0.
	Signed bool
}

// Definitions lists the metrics this version writes, in the order they are shown.
func Definitions() []Definition {
	return []Definition{
		{StepTimeNs, "ns", Lower, HostClock, false},
		{StepTimeEventsNs, "ns", Lower, EventClock, false},
		{SubmitTimeNs, "ns", Lower, HostClock, false},
		{SyncWaitNs, "ns", Lower, HostClock, false},
		{HostTimeNs, "ns", Lower, HostClock, false},
		{OuterTimeNs, "ns", Lower, HostClock, false},
		{CPUTimeNs, "ns", Lower, CPUClock, false},
		{LatencyNs, "ns", Lower, HostClock, false},
		{LaunchCostNs, "ns", Lower, HostClock, false},
		{LaunchOverheadNs, "ns", Lower, EventClock, true},
		{ImagesPerS, "images/s", Higher, HostClock, false},
		{PrepareNs, "ns", Lower, HostClock, false},
		{CaptureNs, "ns", Lower, HostClock, false},
		{InstantiateNs, "ns", Lower, HostClock, false},
		{UploadNs, "ns", Lower, HostClock, false},
		{FirstReplayNs, "ns", Lower, HostClock, false},
	}
}

// Define returns the definition of a name, also of a trace's metric, and whether
// there is one.
func Define(name string) (Definition, bool) {
	for _, list := range [][]Definition{Definitions(), TraceDefinitions()} {
		for _, d := range list {
			if d.Name == name {
				return d, true
			}
		}
	}
	return Definition{}, false
}

// NewMetric makes the metric of a defined name from its samples, whose order
// is kept and whose slice the metric then owns. Nanoseconds are rounded to
// whole ones, and below a microsecond to thousandths. An undefined name gets
// no unit and direction none.
func NewMetric(name string, samples []Sample) Metric {
	m := Metric{Name: name, Direction: None, N: len(samples), Samples: samples}
	if d, ok := Define(name); ok {
		m.Unit, m.Direction, m.Clock = d.Unit, d.Direction, d.Clock
	}
	values := make([]float64, len(samples))
	for i := range samples {
		if m.Unit == "ns" {
			samples[i].Value = roundNs(samples[i].Value)
		}
		values[i] = samples[i].Value
	}
	m.Value = Median(values)
	if m.Unit == "ns" {
		m.Value = roundNs(m.Value)
	}
	return m
}

// roundNs drops what no clock can tell. What is below a microsecond is as a
// rule a mean, such as a step's over its calls, and has a fraction.
func roundNs(v float64) float64 {
	if math.Abs(v) < 1000 {
		return math.Round(v*1000) / 1000
	}
	return math.Round(v)
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

// ByProcess divides the values by process, in the order of the processes'
// numbers; within one they stay in the order they were taken.
func (m *Metric) ByProcess() [][]float64 {
	var numbers []int
	values := map[int][]float64{}
	for _, s := range m.Samples {
		if _, ok := values[s.Process]; !ok {
			numbers = append(numbers, s.Process)
		}
		values[s.Process] = append(values[s.Process], s.Value)
	}
	slices.Sort(numbers)
	out := make([][]float64, len(numbers))
	for i, n := range numbers {
		out[i] = values[n]
	}
	return out
}
