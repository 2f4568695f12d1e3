package results

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Trace is what the traced pass of a configuration found: a few steps of each
// process, run after all that was timed, while the device recorded them. It says
// where a step's time goes, not how long a step takes: recording makes steps
// longer, and Inflation beside every figure says by how much. All but the first
// process's files are of all finished processes.
type Trace struct {
	// Steps are the recorded steps of each process whose figures are kept. A step
	// is from the start of the first device work that it launched to that of the
	// next step's: so steps neither overlap nor leave time out, and in every
	// sample busy and idle sum to the step, the split to idle. Medians need not.
	Steps int `json:"steps"`
	// Metrics are per step, with a sample a process, rank and step (Block is the
	// step's number), except those that compare with the untraced step, which
	// have one a process and rank.
	Metrics []Metric `json:"metrics"`
	// Kernels compares what was recorded with what was to be expected.
	Kernels TraceKernels `json:"kernels"`
	// Dropped is how many records the profiler had no room for, by its own count,
	// and Lost how many could not be understood, over all processes.
	Dropped int64 `json:"dropped"`
	Lost    int64 `json:"lost"`
	// Calibrations say, one a process, by how much recording lengthens a kernel.
	// None where the device's recording does not.
	Calibrations []TraceCalibration `json:"calibrations"`
	// Launches say what one launch costs, layer by layer.
	Launches []LaunchCost `json:"launches"`
	// Failed says why the figures must not be used; empty if they can be.
	Failed string `json:"failed"`
	// Absent names figures that could not be had, and why.
	Absent []Absence `json:"absent"`
	// File is the first process's timeline as a Chrome trace, relative to the
	// record where it lies below it; empty if none was kept.
	File string `json:"file"`
}

// TraceFailed says whether the traced pass of a configuration failed: then it may
// have left the device unusable, behind all that was timed.
func TraceFailed(list []Configuration) bool {
	return slices.ContainsFunc(list, func(c Configuration) bool { return c.Trace != nil && c.Trace.Failed != "" })
}

// TraceKernels are kernels of one rank (rank 0) and one step.
type TraceKernels struct {
	Recorded int64 `json:"recorded"`
	// Expected is null if nothing says how many there should be.
	Expected *int64 `json:"expected"`
	// From says whence the expectation is: graph_nodes are the kernel nodes of
	// the captured step, launch_records the launching calls on record.
	From string `json:"from"`
}

// Whence the expected number of kernels is.
const (
	FromGraphNodes    = "graph_nodes"
	FromLaunchRecords = "launch_records"
)

// TraceCalibration compares a chain of known short kernels on record with the
// same chain without recording.
type TraceCalibration struct {
	Process int `json:"process"`
	// Kernels are how many records the traced figures are of.
	Kernels int `json:"kernels"`
	// UntracedNs is what a kernel takes in a chain that nothing records, between
	// events of the device, from chains of two lengths. The time from one kernel
	// to the next is part of it, since nothing but a recording can tell it apart.
	UntracedNs float64 `json:"untraced_ns"`
	// TracedNs is a kernel's mean length on record, PeriodNs the mean time from
	// one start to the next.
	TracedNs float64 `json:"traced_ns"`
	PeriodNs float64 `json:"period_ns"`
	// ByNs is TracedNs less UntracedNs, by which corrected_busy_ns is corrected;
	// UncertaintyNs is half its interval of about 95 %.
	ByNs          float64 `json:"by_ns"`
	UncertaintyNs float64 `json:"uncertainty_ns"`
	// Costs are those of a launch in the chain: the layers that need no library.
	Costs []LaunchCost `json:"costs"`
}

// Layers of a launch.
const (
	LayerLanguage = "language" // an empty call through the binding
	LayerLibrary  = "library"  // a library's call, less the driver's calls inside it
	LayerDriver   = "driver"   // the driver's call, on record
	LayerHardware = "hardware" // from the call's end to the kernel's start, on an idle device; below 0 where the kernel starts earlier
)

// LaunchCost is what one layer of a launch takes, in ns of the recording's axis.
type LaunchCost struct {
	Layer string `json:"layer"`
	// Call is the function, where the layer has several.
	Call string `json:"call"`
	// Count are the observations of all processes. Median and P99 are medians over
	// processes of each process's.
	Count    int64 `json:"count"`
	MedianNs int64 `json:"median_ns"`
	P99Ns    int64 `json:"p99_ns"`
	// Processes holds each process's, in process order; absent where there is one.
	Processes []LaunchProcess `json:"processes,omitempty"`
	// Inflation is by how much recording lengthens it, 1 being not at all; null is
	// unknown. Layers that were not recorded have none to know.
	Inflation *float64 `json:"inflation"`
}

// LaunchProcess is one process's share of a [LaunchCost].
type LaunchProcess struct {
	Process  int   `json:"process"`
	Count    int64 `json:"count"`
	MedianNs int64 `json:"median_ns"`
	P99Ns    int64 `json:"p99_ns"`
}

// Names of a trace's metrics. All are per step.
const (
	TracedStepNs   = "traced_step_ns" // from its first device work's start to the next step's
	BusyNs         = "busy_ns"        // covered by device work, each nanosecond once
	IdleNs         = "idle_ns"        // the rest; the next four sum to it
	HostLateNs     = "host_late_ns"   // the host had not begun the call that launched what came next
	InAPINs        = "in_api_ns"      // the host was inside that call
	AfterAPINs     = "after_api_ns"   // submitted, not started
	UnlinkedNs     = "unlinked_ns"    // the launch is not on record
	InGraphNs      = "in_graph_ns"    // of after_api, between work of one graph launch
	LateOverheadNs = "host_late_overhead_ns"
	LateSyncNs     = "host_late_sync_ns"
	LateFeedNs     = "host_late_feed_ns"
	LateCallNs     = "host_late_call_ns"
	LateLibraryNs  = "host_late_library_ns"
	// LateLibraryCallNs is the part of LateCallNs in calls that a library made
	// inside its own; records before 1.3 do not tell it apart.
	LateLibraryCallNs = "host_late_library_call_ns"
	LateRangeNs       = "host_late_range_ns"
	LateNothingNs     = "host_late_nothing_ns"
	TraceKernelCount  = "kernels"
	TraceCopies       = "copies"   // fills included
	TraceLaunches     = "launches" // calls that launched what is on record
	TraceGaps         = "gaps"
	ShortKernelCount  = "short_kernels" // kernels that took the device less time than their launch the host; launched alone
	OverheadNs        = "overhead_ns"   // the profiler at work on itself, by its own account
	// UntracedStepNs is a step of the block beside the recorded ones, before the
	// profiler was loaded, by the host's clock; records before 1.4 lack it, and
	// compare with the median of the timed blocks instead.
	UntracedStepNs  = "untraced_step_ns"
	Inflation       = "inflation" // traced step time over untraced
	CorrectedBusyNs = "corrected_busy_ns"
	CorrectedLowNs  = "corrected_busy_low_ns"
	CorrectedHighNs = "corrected_busy_high_ns"
	CorrectedIdleNs = "corrected_idle_ns" // untraced step time less corrected busy
)

// TraceClock is a recording's axis: nanoseconds of the host, to which the
// profiler has brought the device's times.
const TraceClock = "trace"

// TraceDefinitions lists the metrics of a trace, in the order they are shown.
func TraceDefinitions() []Definition {
	ns := func(name, direction string) Definition {
		return Definition{Name: name, Unit: "ns", Direction: direction, Clock: TraceClock}
	}
	n := func(name string) Definition {
		return Definition{Name: name, Unit: "count", Direction: None, Clock: TraceClock}
	}
	signed := ns(CorrectedIdleNs, Lower)
	signed.Signed = true
	return []Definition{
		ns(TracedStepNs, Lower), ns(BusyNs, Lower), ns(IdleNs, Lower), ns(HostLateNs, Lower), ns(InAPINs, Lower), ns(AfterAPINs, Lower), ns(UnlinkedNs, Lower),
		ns(InGraphNs, Lower), ns(LateOverheadNs, Lower), ns(LateSyncNs, Lower), ns(LateFeedNs, Lower), ns(LateCallNs, Lower), ns(LateLibraryNs, Lower),
		ns(LateLibraryCallNs, Lower), ns(LateRangeNs, Lower), ns(LateNothingNs, Lower),
		n(TraceKernelCount), n(TraceCopies), n(TraceLaunches), n(TraceGaps), n(ShortKernelCount), ns(OverheadNs, Lower),
		{Name: UntracedStepNs, Unit: "ns", Direction: Lower, Clock: HostClock},
		{Name: Inflation, Unit: "ratio", Direction: None, Clock: TraceClock},
		ns(CorrectedBusyNs, Lower), ns(CorrectedLowNs, Lower), ns(CorrectedHighNs, Lower), signed,
	}
}

// Metric returns the named metric, or nil.
func (t *Trace) Metric(name string) *Metric {
	if t == nil {
		return nil
	}
	for i := range t.Metrics {
		if t.Metrics[i].Name == name {
			return &t.Metrics[i]
		}
	}
	return nil
}

// withLists makes lists appear as [] rather than null.
func (t *Trace) withLists() *Trace {
	if t == nil {
		return nil
	}
	u := *t
	u.Metrics, u.Calibrations, u.Launches, u.Absent = notNil(t.Metrics), append([]TraceCalibration{}, t.Calibrations...), notNil(t.Launches), notNil(t.Absent)
	for i := range u.Calibrations {
		u.Calibrations[i].Costs = notNil(u.Calibrations[i].Costs)
	}
	return &u
}

// check refuses what no trace may say.
func (t *Trace) check() error {
	if t == nil {
		return nil
	}
	counts := []count{{"the traced steps", int64(t.Steps), MaxTraceSteps}, {"the recorded kernels", t.Kernels.Recorded, noLimit},
		{"the dropped records", t.Dropped, noLimit}, {"the lost records", t.Lost, noLimit}}
	if t.Kernels.Expected != nil {
		counts = append(counts, count{"the expected kernels", *t.Kernels.Expected, noLimit})
	}
	if err := checkCounts(counts...); err != nil {
		return err
	}
	metrics := map[string]bool{}
	for _, m := range t.Metrics {
		if metrics[m.Name] {
			return fmt.Errorf("has metric %s twice", m.Name)
		}
		metrics[m.Name] = true
		if err := m.check(); err != nil {
			return fmt.Errorf("metric %s %w", m.Name, err)
		}
	}
	costs := t.Launches
	for _, c := range t.Calibrations {
		if !finite(c.UntracedNs, c.TracedNs, c.PeriodNs, c.ByNs, c.UncertaintyNs) || c.UncertaintyNs < 0 {
			return fmt.Errorf("has a calibration of %v with the uncertainty %v", c.ByNs, c.UncertaintyNs)
		}
		if err := checkCounts(count{"the process of a calibration", int64(c.Process), MaxProcesses - 1}, count{"a calibration's kernels", int64(c.Kernels), noLimit}); err != nil {
			return err
		}
		costs = append(costs[:len(costs):len(costs)], c.Costs...)
	}
	for _, c := range costs {
		if c.Count < 0 || c.Inflation != nil && !(finite(*c.Inflation) && *c.Inflation >= 0) {
			return fmt.Errorf("has a launch cost of %d observations, which no run has", c.Count)
		}
	}
	return nil
}

// TraceFile is where the timeline lies that a record in that folder names:
// relative to the folder, or absolute. See [Trace].File.
func TraceFile(dir, name string) string {
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}
