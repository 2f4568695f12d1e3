package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// NoLayers says why the CPU device has no layers of a launch.
const NoLayers = "on the CPU device a launch is an entry in a queue: there is no library, driver or hardware whose share could be told"

// traceAnalysis turns a recording into figures. It reads nothing else, so that a
// recording made by hand has figures known beforehand.
type traceAnalysis struct {
	x           *timeline.Index
	key         results.ConfigurationKey
	lead        int // steps in front of those that count
	counts      results.Counts
	calibration *results.TraceCalibration // nil: recording lengthens nothing
	process     int
	untracedNs  float64 // a step of the block beside; 0: unknown
	submitNs    float64 // of an untraced step, in submitting calls; 0: unknown
	trace       *results.Trace
	values      map[string][]results.Sample
	launchCalls []int64 // calls that launch a kernel, by step of rank 0
}

// fail keeps the first reason.
func (a *traceAnalysis) fail(format string, args ...any) {
	if a.trace.Failed == "" {
		a.trace.Failed = fmt.Sprintf(format, args...)
	}
}

func (a *traceAnalysis) run() {
	r := a.x.T.Read
	a.trace.Dropped, a.trace.Lost = max(0, r.Dropped), r.LostEvents
	switch {
	case r.Dropped > 0:
		a.fail("the profiler dropped %d records: it had no room for them", r.Dropped)
	case r.LostBytes > 0 || r.LostEvents > 0:
		a.fail("%d records (%d bytes) could not be understood", r.LostEvents, r.LostBytes)
	case r.BadTimes > 0:
		a.fail("%d pieces of device work have no times on record", r.BadTimes)
	case len(a.x.T.Devices) == 0:
		a.fail("nothing that the device did was recorded")
	}
	var windows []timeline.Window
	for d := range a.x.T.Devices {
		windows = append(windows, a.device(int32(d))...)
	}
	a.launches(windows)
	if a.calibration != nil {
		a.trace.Calibrations = []results.TraceCalibration{*a.calibration}
		a.trace.Calibrations[0].Process = a.process
	}
	for i := range a.trace.Launches {
		l := &a.trace.Launches[i]
		l.Processes = []results.LaunchProcess{{Process: a.process, Count: l.Count, MedianNs: l.MedianNs, P99Ns: l.P99Ns}}
	}
	for _, d := range results.TraceDefinitions() {
		if s := a.values[d.Name]; len(s) > 0 {
			a.trace.Metrics = append(a.trace.Metrics, results.NewMetric(d.Name, s))
		}
	}
	a.compare()
}

// rankOf is the rank that a device belongs to.
func (a *traceAnalysis) rankOf(device int32) int {
	n := 0
	if _, err := fmt.Sscan(a.x.T.Devices[device].ID, &n); err != nil || n < 0 {
		return int(device)
	}
	return n
}

// device takes the figures of one, and returns the windows of its steps on the
// host.
func (a *traceAnalysis) device(d int32) (host []timeline.Window) {
	rank, steps := a.rankOf(d), a.x.Steps(d)
	if want := a.lead + a.trace.Steps + tailSteps; len(steps) != want {
		a.fail("rank %d: the recording has %d steps, not %d", rank, len(steps), want)
		return nil
	}
	for i, s := range steps {
		if s.Ops == 0 {
			a.fail("rank %d: step %d launched nothing that is on record", rank, i)
			return nil
		}
		if i > 0 && s.GPU.FromNs < steps[i-1].GPU.FromNs {
			a.fail("rank %d: step %d began before step %d did on the device", rank, i, i-1)
			return nil
		}
	}
	var busy []float64
	a.linked(d, rank, timeline.Window{FromNs: steps[a.lead].GPU.FromNs, ToNs: steps[len(steps)-tailSteps].GPU.FromNs})
	for i, s := range steps[a.lead : len(steps)-tailSteps] {
		w := timeline.Window{FromNs: s.GPU.FromNs, ToNs: steps[a.lead+i+1].GPU.FromNs}
		busy = append(busy, a.step(d, rank, i, s, w))
		host = append(host, s.Host)
		if rank == 0 {
			a.launchCalls = append(a.launchCalls, a.kernelCalls(d, s))
		}
	}
	a.beside(rank, busy)
	return host
}

// linked fails if device work of the steps has no call on record: it would belong
// to no step, and the figures of launching would be those of the rest alone.
func (a *traceAnalysis) linked(d int32, rank int, w timeline.Window) {
	all, without := 0, 0
	for _, op := range a.x.DeviceOps(d) {
		if o := &a.x.T.Ops[op]; o.Timed && w.FromNs <= o.StartNs && o.StartNs < w.ToNs {
			all++
			if a.x.Launch[op] == timeline.None {
				without++
			}
		}
	}
	if without > 0 {
		a.fail("rank %d: %d of %d pieces of device work in the steps have no call on record", rank, without, all)
	}
}

// add keeps a sample.
func (a *traceAnalysis) add(name string, rank, step int, v float64) {
	a.values[name] = append(a.values[name], results.Sample{Process: a.process, Rank: rank, Block: step, Value: v})
}

// step takes the figures of one step, and returns its corrected busy time.
func (a *traceAnalysis) step(d int32, rank, i int, s timeline.Step, w timeline.Window) (corrected float64) {
	ns := func(name string, v int64) { a.add(name, rank, i, float64(v)) }
	f := a.x.DeviceFigures(d, w)
	split := f.Split
	if f.BusyNs+f.IdleNs != f.SpanNs || split.IdleNs() != f.IdleNs || f.IdleNs < 0 {
		a.fail("rank %d, step %d: busy %d ns and idle %d ns (split: %d ns) do not sum to %d ns", rank, i, f.BusyNs, f.IdleNs, split.IdleNs(), f.SpanNs)
	}
	ns(results.TracedStepNs, f.SpanNs)
	ns(results.BusyNs, f.BusyNs)
	ns(results.IdleNs, f.IdleNs)
	ns(results.HostLateNs, split.HostLateNs)
	ns(results.InAPINs, split.InAPINs)
	ns(results.AfterAPINs, split.AfterAPINs)
	ns(results.UnlinkedNs, split.UnlinkedNs)
	ns(results.InGraphNs, split.InGraphNs)
	late := split.Late
	ns(results.LateOverheadNs, late.OverheadNs)
	ns(results.LateSyncNs, late.SyncNs)
	ns(results.LateFeedNs, late.FeedNs)
	ns(results.LateCallNs, late.CallNs)
	ns(results.LateLibraryNs, late.OperatorNs)
	ns(results.LateLibraryCallNs, late.OperatorCallNs)
	ns(results.LateRangeNs, late.UserNs+late.PythonNs)
	ns(results.LateNothingNs, late.NothingNs)
	ns(results.TraceKernelCount, int64(s.Kernels))
	ns(results.TraceCopies, int64(s.Ops-s.Kernels))
	ns(results.TraceLaunches, int64(s.Launches))
	ns(results.TraceGaps, int64(f.Gaps))
	ns(results.ShortKernelCount, int64(a.x.ShortKernels(d, w).Count))
	ns(results.OverheadNs, a.overhead(w))
	c := a.calibration
	if c == nil {
		return float64(f.BusyNs)
	}
	v := a.x.CorrectedBusy(d, w, timeline.Lengthening{ByNs: int64(math.Round(c.ByNs)), UncertaintyNs: int64(math.Round(c.UncertaintyNs))})
	ns(results.CorrectedBusyNs, v.Ns)
	ns(results.CorrectedLowNs, v.LowNs)
	ns(results.CorrectedHighNs, v.HighNs)
	return float64(v.Ns)
}

// kernelCalls counts the calls of a step that launch one kernel each, whether it
// is on record or not.
func (a *traceAnalysis) kernelCalls(d int32, s timeline.Step) (n int64) {
	threads := map[int32]bool{}
	for _, op := range a.x.DeviceOps(d) {
		if c := a.x.Launch[op]; c != timeline.None {
			threads[a.x.T.Calls[c].Thread] = true
		}
	}
	for i := range a.x.T.Calls {
		c := &a.x.T.Calls[i]
		if c.Class == timeline.CallLaunch && threads[c.Thread] && s.Host.FromNs <= c.StartNs && c.StartNs < s.Host.ToNs {
			n++
		}
	}
	return n
}

// overhead is how long the profiler was at work on itself in a window.
func (a *traceAnalysis) overhead(w timeline.Window) (sum int64) {
	for i := range a.x.T.Ranges {
		if r := &a.x.T.Ranges[i]; r.Class == timeline.RangeOverhead {
			sum += max(0, min(r.EndNs, w.ToNs)-max(r.StartNs, w.FromNs))
		}
	}
	return sum
}

// beside compares with the step that nothing recorded.
func (a *traceAnalysis) beside(rank int, busy []float64) {
	if a.untracedNs <= 0 {
		a.absent(results.Inflation, "the untraced step was not timed")
		return
	}
	a.add(results.UntracedStepNs, rank, 0, a.untracedNs)
	var traced []float64
	for _, s := range a.values[results.TracedStepNs] {
		if s.Rank == rank {
			traced = append(traced, s.Value)
		}
	}
	a.add(results.Inflation, rank, 0, results.Median(traced)/a.untracedNs)
	if a.calibration == nil {
		a.absent(results.CorrectedBusyNs, "recording on this device lengthens no kernel: busy_ns is what it is")
		return
	}
	idle := a.untracedNs - results.Median(busy)
	a.add(results.CorrectedIdleNs, rank, 0, idle)
	if idle < 0 {
		a.fail("rank %d: corrected busy time is %.0f ns longer than the untraced step, so idle time would be negative", rank, -idle)
	}
}

func (a *traceAnalysis) absent(metric, why string) {
	if x := (results.Absence{Metric: metric, Why: why}); !slices.Contains(a.trace.Absent, x) {
		a.trace.Absent = append(a.trace.Absent, x)
	}
}

// library says whether calls of libraries are on record.
func (a *traceAnalysis) library() bool {
	return slices.ContainsFunc(a.x.T.Ranges, func(r timeline.Range) bool { return r.Class == timeline.RangeOperator })
}

// compare sets the recorded kernels of a step beside those there should be: the
// kernel nodes of its graphs or, where no captured configuration tells, the
// launching calls on record. An eager step with calls of libraries is compared
// with the latter: what a library fills with a copy engine when eager, it may
// fill with a kernel when captured.
func (a *traceAnalysis) compare() {
	k := &a.trace.Kernels
	of := func(name string) (n int64, same bool) {
		all := a.values[name]
		if len(all) == 0 {
			return 0, false
		}
		for _, s := range all {
			if s.Value != all[0].Value {
				a.fail("the recorded steps differ in %s: %.0f and %.0f", name, all[0].Value, s.Value)
				return int64(all[0].Value), false
			}
		}
		return int64(all[0].Value), true
	}
	var ok bool
	if k.Recorded, ok = of(results.TraceKernelCount); !ok {
		return
	}
	switch {
	case a.counts.Kernels != nil && !(a.key.Mode == "eager" && a.library()):
		k.From = results.FromGraphNodes
		// A collective is a kernel as a device sees it.
		k.Expected = results.Count(*a.counts.Kernels + a.counts.GraphNodes["collective"])
		if k.Recorded != *k.Expected {
			a.fail("a step has %d kernels on record, and its graphs have %d kernel nodes", k.Recorded, *k.Expected)
		}
	case a.key.Mode == "eager" && len(a.launchCalls) > 0:
		k.From, k.Expected = results.FromLaunchRecords, results.Count(a.launchCalls[0])
		if k.Recorded != *k.Expected {
			a.fail("a step has %d kernels on record, and %d calls on record that launch one", k.Recorded, *k.Expected)
		}
	}
}

// launches says what a launch costs in the kept steps, given their windows on
// the host.
func (a *traceAnalysis) launches(windows []timeline.Window) {
	if len(windows) == 0 {
		return
	}
	if a.x.T.Devices[0].Host {
		a.absent("launches", NoLayers)
		return
	}
	if c := a.calibration; c != nil {
		for _, l := range c.Costs {
			if l.Layer == results.LayerLanguage {
				a.trace.Launches = append(a.trace.Launches, l)
			}
		}
	}
	inside := func(ns int64) bool {
		return slices.ContainsFunc(windows, func(w timeline.Window) bool { return w.FromNs <= ns && ns < w.ToNs })
	}
	a.cost(results.LayerLibrary, a.libraryCalls(inside))
	calls := map[string][]int64{}
	for i := range a.x.T.Calls {
		if c := &a.x.T.Calls[i]; a.x.OpsOf[i] > 0 && inside(c.StartNs) {
			name := a.x.T.Text(c.Name)
			calls[name] = append(calls[name], c.EndNs-c.StartNs)
		}
	}
	a.cost(results.LayerDriver, calls)
	a.wholeSubmission(calls, len(windows))
	idle := map[string][]int64{}
	for d := range a.x.T.Devices {
		span, ok := a.x.DeviceSpan(int32(d))
		if !ok {
			continue
		}
		for _, g := range a.x.DeviceGaps(int32(d), span) {
			// The device was idle before the call began, so nothing stood in the
			// kernel's way but the launch.
			if g.Launch == timeline.None || g.LateToNs <= g.FromNs || a.x.T.Ops[g.After].Kind != timeline.Kernel {
				continue
			}
			if c := &a.x.T.Calls[g.Launch]; inside(c.StartNs) {
				name := a.x.T.Text(c.Name)
				idle[name] = append(idle[name], a.x.T.Ops[g.After].StartNs-c.EndNs)
			}
		}
	}
	a.cost(results.LayerHardware, idle)
}

// libraryCalls are the calls of libraries, by name, less the driver's calls
// inside them.
func (a *traceAnalysis) libraryCalls(inside func(int64) bool) map[string][]int64 {
	t := a.x.T
	byThread := map[int32][]int32{}
	for i := range t.Calls {
		byThread[t.Calls[i].Thread] = append(byThread[t.Calls[i].Thread], int32(i))
	}
	for _, calls := range byThread {
		slices.SortFunc(calls, func(x, y int32) int { return cmp.Compare(t.Calls[x].StartNs, t.Calls[y].StartNs) })
	}
	out := map[string][]int64{}
	for i := range t.Ranges {
		r := &t.Ranges[i]
		if r.Class != timeline.RangeOperator || !inside(r.StartNs) {
			continue
		}
		own := r.EndNs - r.StartNs
		calls := byThread[r.Thread]
		first, _ := slices.BinarySearchFunc(calls, r.StartNs, func(c int32, ns int64) int { return cmp.Compare(t.Calls[c].StartNs, ns) })
		for _, c := range calls[first:] {
			if t.Calls[c].StartNs >= r.EndNs {
				break
			}
			own -= min(t.Calls[c].EndNs, r.EndNs) - t.Calls[c].StartNs
		}
		name, _, _ := strings.Cut(t.Text(r.Name), " ")
		out[name] = append(out[name], own)
	}
	return out
}

// cost adds a layer's lines.
func (a *traceAnalysis) cost(layer string, calls map[string][]int64) {
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		d := timeline.Distribute(calls[name])
		l := results.LaunchCost{Layer: layer, Call: name, Count: int64(d.Count), MedianNs: d.P50Ns, P99Ns: d.P99Ns}
		if a.calibration != nil {
			for _, c := range a.calibration.Costs {
				if c.Layer == layer && c.Call == name {
					l.Inflation = c.Inflation
				}
			}
		}
		a.trace.Launches = append(a.trace.Launches, l)
	}
}

// wholeSubmission says by how much recording lengthens a launching call where a
// step's submission consists of that call alone, as a graph's launch: its
// recorded time a step over the untraced submit time.
func (a *traceAnalysis) wholeSubmission(calls map[string][]int64, steps int) {
	if a.key.Mode == "eager" || len(calls) != 1 || a.submitNs <= 0 || len(a.x.T.Devices) != 1 {
		return
	}
	for i := range a.trace.Launches {
		l := &a.trace.Launches[i]
		if each := calls[l.Call]; l.Layer == results.LayerDriver && l.Inflation == nil && len(each) > 0 {
			sum := int64(0)
			for _, ns := range each {
				sum += ns
			}
			l.Inflation = new(float64(sum) / float64(steps) / a.submitNs)
		}
	}
}
