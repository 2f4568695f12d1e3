package bench

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// recorded are the steps of a recording of two that count.
const recorded = leadSteps + 2 + tailSteps

// handMade is a recording of steps of 1000 ns on one device, drawn by hand: two
// kernels and a copy each. In ns from a step's begin on the host,
//
//	host    0 launch 10 ... 195 [library 200 launch 220 ] 225 230 copy 240 ... 500 sync 600 feed 650 ... 700 call 710
//	device  50 kernel 150 ... 210 kernel 300 ... 350 copy 400 ... 1050 (the next step's)
//
// so that from 50 to 1050 the device is busy for 100 + 90 + 50 and idle for 60
// (50 late, 10 in the call), 50 (after the call) and 650 (600 late, 10 in the
// call, 40 after it).
func handMade(steps int) *timeline.Timeline {
	var b timeline.Builder
	t := &b.T
	b.Name("")
	t.Format = timeline.FormatCUPTI
	t.Devices = []timeline.Device{{ID: "0"}}
	t.Streams = []timeline.Stream{{Device: 0, Process: timeline.None, ID: "1"}}
	t.Threads = []timeline.Thread{{Process: timeline.None, ID: "1", Name: "rank 0"}}
	for i := range steps {
		at := int64(1000 * i)
		call := func(name string, class timeline.CallClass, from, to, correlation int64) {
			t.Calls = append(t.Calls, timeline.Call{StartNs: at + from, EndNs: at + to, Name: b.Name(name), Class: class, Correlation: correlation})
		}
		op := func(kind timeline.Kind, from, to, correlation int64) {
			t.Ops = append(t.Ops, timeline.Op{StartNs: at + from, EndNs: at + to, Timed: true, Kind: kind, Correlation: correlation})
		}
		in := func(name string, class timeline.RangeClass, from, to int64) {
			t.Ranges = append(t.Ranges, timeline.Range{StartNs: at + from, EndNs: at + to, Name: b.Name(name), Class: class})
		}
		n := int64(3*i + 1)
		call("cuLaunchKernel", timeline.CallLaunch, 0, 10, n)
		call("cuLaunchKernel", timeline.CallLaunch, 200, 220, n+1)
		call("cuMemcpyHtoDAsync", timeline.CallCopy, 230, 240, n+2)
		call("cuStreamSynchronize", timeline.CallSync, 500, 600, 0)
		call("cuEventQuery", timeline.CallOther, 700, 710, 0)
		call("cudaGetDevice", timeline.CallOther, 196, 199, 0) // inside the library's
		op(timeline.Kernel, 50, 150, n)
		op(timeline.Kernel, 210, 300, n+1)
		op(timeline.Copy, 350, 400, n+2)
		in(fmt.Sprintf("step %d", i), timeline.RangeStep, -5, 260)
		in("cudnnBackendExecute a/b", timeline.RangeOperator, 195, 225)
		in("feed", timeline.RangeFeed, 600, 650)
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: at + 100, EndNs: at + 130, Thread: timeline.None, Class: timeline.RangeOverhead})
	}
	return t
}

func analysed(t *timeline.Timeline, change func(*traceAnalysis)) *results.Trace {
	k := results.DefaultConfigurationKey()
	k.Mode = "step"
	a := traceAnalysis{x: timeline.NewIndex(t), key: k, lead: leadSteps, counts: results.Counts{Kernels: results.Count(2)}, process: 4, untracedNs: 600,
		calibration: &results.TraceCalibration{ByNs: 20, UncertaintyNs: 5, Costs: []results.LaunchCost{
			{Layer: results.LayerLanguage, Count: 9, MedianNs: 60, P99Ns: 90}, {Layer: results.LayerDriver, Call: "cuLaunchKernel", Inflation: new(1.5)}}},
		trace: &results.Trace{Steps: 2}, values: map[string][]results.Sample{}}
	if change != nil {
		change(&a)
	}
	a.run()
	reduceTrace(a.trace)
	return a.trace
}

func TestTraceByHand(t *testing.T) {
	got := analysed(handMade(recorded), nil)
	want := map[string]float64{
		results.TracedStepNs: 1000, results.BusyNs: 240, results.IdleNs: 760, results.HostLateNs: 650, results.InAPINs: 20, results.AfterAPINs: 90,
		results.UnlinkedNs: 0, results.InGraphNs: 0, results.LateOverheadNs: 0, results.LateSyncNs: 100, results.LateFeedNs: 50, results.LateCallNs: 13, results.LateLibraryCallNs: 3,
		results.LateLibraryNs: 2, results.LateRangeNs: 0, results.LateNothingNs: 485, results.TraceKernelCount: 2, results.TraceCopies: 1,
		results.TraceLaunches: 3, results.TraceGaps: 3, results.ShortKernelCount: 0, results.OverheadNs: 30, results.UntracedStepNs: 600, results.Inflation: 1000. / 600,
		results.CorrectedBusyNs: 200, results.CorrectedLowNs: 190, results.CorrectedHighNs: 210, results.CorrectedIdleNs: 400,
	}
	if got.Failed != "" || len(got.Metrics) != len(want) {
		t.Errorf("failed %q; %d metrics, want %d", got.Failed, len(got.Metrics), len(want))
	}
	for _, m := range got.Metrics {
		n := 2
		if m.Name == results.UntracedStepNs || m.Name == results.Inflation || m.Name == results.CorrectedIdleNs {
			n = 1
		}
		clock := results.TraceClock
		if m.Name == results.UntracedStepNs {
			clock = results.HostClock // nothing was recorded
		}
		if m.Value != want[m.Name] || m.N != n || m.Clock != clock || m.Unit == "" || m.Samples[0].Process != 4 || m.Samples[n-1].Block != n-1 {
			t.Errorf("%s is %v %s of %d samples %+v, want %v of %d", m.Name, m.Value, m.Unit, m.N, m.Samples, want[m.Name], n)
		}
	}
	if k := got.Kernels; k.Recorded != 2 || *k.Expected != 2 || k.From != results.FromGraphNodes {
		t.Errorf("kernels %+v", k)
	}
	each := func(layer, call string, n, median, p99 int64, inflation *float64) results.LaunchCost {
		return results.LaunchCost{Layer: layer, Call: call, Count: n, MedianNs: median, P99Ns: p99, Inflation: inflation,
			Processes: []results.LaunchProcess{{Process: 4, Count: n, MedianNs: median, P99Ns: p99}}}
	}
	costs := []results.LaunchCost{
		each(results.LayerLanguage, "", 9, 60, 90, nil),
		each(results.LayerLibrary, "cudnnBackendExecute", 2, 7, 7, nil),
		each(results.LayerDriver, "cuLaunchKernel", 4, 10, 20, new(1.5)),
		each(results.LayerDriver, "cuMemcpyHtoDAsync", 2, 10, 10, nil),
		// Twice the first kernel starts 40 ns after its call, the second 10 ns before its call ends.
		each(results.LayerHardware, "cuLaunchKernel", 4, -10, 40, nil),
	}
	if !reflect.DeepEqual(got.Launches, costs) {
		t.Errorf("launches\n%+v, want\n%+v", got.Launches, costs)
	}
	if len(got.Calibrations) != 1 || got.Calibrations[0].Process != 4 {
		t.Errorf("%+v", got.Calibrations)
	}
}

func TestTraceFailures(t *testing.T) {
	without := func(drop func(i int, o timeline.Op) bool) func() *timeline.Timeline {
		return func() *timeline.Timeline {
			x := handMade(recorded)
			var kept []timeline.Op
			for i, o := range x.Ops {
				if !drop(i, o) {
					kept = append(kept, o)
				}
			}
			x.Ops = kept
			return x
		}
	}
	plain := func() *timeline.Timeline { return handMade(recorded) }
	eager := func(a *traceAnalysis) { a.key.Mode = "eager" }
	for name, c := range map[string]struct {
		recording func() *timeline.Timeline
		change    func(*traceAnalysis)
		want      string // empty: it does not fail
	}{
		"as it is": {plain, nil, ""},
		"other kernels than nodes": {plain, func(a *traceAnalysis) { a.counts.Kernels = results.Count(3) },
			"a step has 2 kernels on record, and its graphs have 3 kernel nodes"},
		"collectives are kernels": {plain, func(a *traceAnalysis) {
			a.counts = results.Counts{Kernels: results.Count(1), GraphNodes: map[string]int64{"collective": 1}}
		}, ""},
		// An eager step with a library is not compared with graph nodes.
		"eager, a library, other nodes": {plain, func(a *traceAnalysis) { eager(a); a.counts.Kernels = results.Count(3) }, ""},
		"eager, a kernel without record": {without(func(i int, _ timeline.Op) bool { return i%3 == 1 }), eager,
			"a step has 1 kernels on record, and 2 calls on record that launch one"},
		// What a library launches through calls that were not recorded.
		"work without a call": {func() *timeline.Timeline {
			x := handMade(recorded)
			o := x.Ops[3*leadSteps+1] // of the first step that is counted
			o.StartNs, o.EndNs, o.Correlation = o.EndNs, o.EndNs+1, 0
			x.Ops = append(x.Ops, o)
			return x
		}, nil, "rank 0: 1 of 7 pieces of device work in the steps have no call on record"},
		"a step with fewer":            {without(func(i int, _ timeline.Op) bool { return i == 3*leadSteps+1 }), nil, "the recorded steps differ in kernels: 1 and 2"},
		"a step that is not on record": {func() *timeline.Timeline { return handMade(recorded - 1) }, nil, "rank 0: the recording has 6 steps, not 7"},
		"a step that launched nothing": {without(func(i int, _ timeline.Op) bool { return i/3 == 5 }), nil, "rank 0: step 5 launched nothing that is on record"},
		"nothing at all":               {func() *timeline.Timeline { return &timeline.Timeline{} }, nil, "nothing that the device did was recorded"},
		"dropped":                      {func() *timeline.Timeline { x := handMade(recorded); x.Read.Dropped = 3; return x }, nil, "the profiler dropped 3 records"},
		"lost": {func() *timeline.Timeline {
			x := handMade(recorded)
			x.Read.LostBytes, x.Read.LostEvents = 40, 1
			return x
		}, nil, "1 records (40 bytes) could not be understood"},
		"no times": {func() *timeline.Timeline { x := handMade(recorded); x.Read.BadTimes = 2; return x }, nil,
			"2 pieces of device work have no times"},
		"negative idle": {plain, func(a *traceAnalysis) { a.untracedNs = 150 },
			"rank 0: corrected busy time is 50 ns longer than the untraced step, so idle time would be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			got := analysed(c.recording(), c.change)
			if got.Failed == "" != (c.want == "") || !strings.Contains(got.Failed, c.want) {
				t.Errorf("failed %q, want %q", got.Failed, c.want)
			}
			if idle := got.Metric(results.CorrectedIdleNs); name == "negative idle" && idle.Value != -50 {
				t.Errorf("negative idle time is shown as %v", idle.Value)
			}
		})
	}
}

// On the CPU device nothing is corrected and no layer can be told.
func TestTraceOfTheHost(t *testing.T) {
	x := handMade(recorded)
	x.Devices[0].Host = true
	got := analysed(x, func(a *traceAnalysis) { a.calibration = nil })
	if got.Failed != "" || len(got.Launches) != 0 || got.Metric(results.CorrectedBusyNs) != nil || len(got.Absent) != 2 {
		t.Errorf("%+v", got)
	}
}

// tracedSession is a session whose executors record.
type tracedSession struct {
	fakeSession
	fails     string // the mode whose recording fails
	uncertain bool   // calibrating fails
}

type tracedExecutor struct {
	*fakeExecutor
	s *tracedSession
}

func (s *tracedSession) Executor(k results.ConfigurationKey) (Executor, error) {
	x, err := s.fakeSession.Executor(k)
	if err != nil {
		return nil, err
	}
	return tracedExecutor{x.(*fakeExecutor), s}, nil
}

func (x tracedExecutor) Counts() results.Counts { return results.Counts{Kernels: results.Count(2)} }

func (x tracedExecutor) Record(n int) (*timeline.Timeline, error) {
	x.s.log = append(x.s.log, fmt.Sprintf("record %s %d", x.key.Mode, n))
	if x.s.fails == x.key.Mode {
		return nil, errors.New("one\ntwo")
	}
	return handMade(n), nil
}

func (x tracedExecutor) CalibrateTrace() (*results.TraceCalibration, error) {
	x.s.log = append(x.s.log, "calibrate")
	if x.s.uncertain {
		return nil, errors.New("no profiler")
	}
	return nil, nil
}

// The traced pass is the last act: whatever it does comes after all that is
// timed, and a failure in it takes nothing of that away.
func TestTracingIsTheLastAct(t *testing.T) {
	measure := func(s *tracedSession) *Measured {
		p := Schedule{Steps: 5, Blocks: 1, Warmup: new(0), Single: 0, Order: 1, Images: 8, Tracing: Tracing{Steps: 2,
			Save: func(k results.ConfigurationKey, x *timeline.Index) (string, error) {
				s.log = append(s.log, fmt.Sprintf("save %s %d", k.Mode, len(x.T.Ops)))
				return k.Mode + ".json.gz", nil
			}}}
		got, err := Measure(t.Context(), s, modes("step", "graph"), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	last := func(s *tracedSession) []string { return s.log[slices.Index(s.log, "calibrate")-6:] }
	s := &tracedSession{}
	got := measure(s)
	want := []string{"restore", "step 1", "step 5", "restore", "graph 1", "graph 5", "calibrate", "restore", "step 1", "step 5",
		"record step 7", "save step 21", "restore", "graph 1", "graph 5", "record graph 7", "save graph 21", "restore"}
	if !slices.Equal(last(s), want) {
		t.Errorf("order\n%v, want\n%v", last(s), want)
	}
	for _, c := range got.Configurations {
		if c.Trace == nil || c.Trace.Steps != 2 || c.Trace.File != c.Key.Mode+".json.gz" || c.Trace.Metric(results.BusyNs).N != 2 || c.Metric(results.StepTimeNs).N != 1 {
			t.Errorf("%s: %+v", c.Key, c.Trace)
		}
	}

	s = &tracedSession{fails: "step"}
	got = measure(s)
	if a, b := got.Configurations[0], got.Configurations[1]; a.Trace.Failed != "one; two" || a.Trace.Metrics != nil || a.Metric(results.StepTimeNs).N != 1 ||
		b.Trace.Metric(results.BusyNs) == nil {
		t.Errorf("%+v, %+v", a.Trace, b.Trace)
	}
	// A timeline that was not kept has no file, whatever the saver calls it.
	p := Schedule{Steps: 5, Blocks: 1, Warmup: new(0), Order: 1, Tracing: Tracing{Steps: 2,
		Save: func(results.ConfigurationKey, *timeline.Index) (string, error) { return "x", errors.New("no space") }}}
	lost, err := Measure(t.Context(), &tracedSession{}, modes("step"), p, nil)
	if err != nil || lost.Configurations[0].Trace.Failed != "no space" || lost.Configurations[0].Trace.File != "" {
		t.Errorf("%v, %+v", err, lost.Configurations[0].Trace)
	}
	s = &tracedSession{uncertain: true}
	got = measure(s)
	for _, c := range got.Configurations {
		if c.Trace.Failed != "no profiler" || slices.Contains(s.log, "record step 4") {
			t.Errorf("%+v", c.Trace)
		}
	}
	// What records nothing says so; what is not asked for is not there.
	plain := &fakeSession{}
	untraced, err := Measure(t.Context(), plain, modes("step"), Schedule{Steps: 5, Blocks: 1, Warmup: new(0), Tracing: Tracing{Steps: 2}}, nil)
	if err != nil || untraced.Configurations[0].Trace.Failed != "the device records nothing" {
		t.Errorf("%v, %+v", err, untraced)
	}
	if untraced, err = Measure(t.Context(), plain, modes("step"), Schedule{Steps: 5, Blocks: 1, Warmup: new(0)}, nil); err != nil || untraced.Configurations[0].Trace != nil {
		t.Errorf("%v, %+v", err, untraced)
	}
}

// besideSession takes a known time for each block: of a configuration the timed
// one first, then the one beside, then the one that a recording follows.
type besideSession struct {
	tracedSession
	clock  fakeClock
	blocks map[string][]time.Duration // a step's time, by mode
	// beside is called in the block beside; nil does nothing.
	beside func(mode string) error
}

type besideExecutor struct {
	tracedExecutor
	s    *besideSession
	done int
}

const besideSteps = 5

func (s *besideSession) Executor(k results.ConfigurationKey) (Executor, error) {
	x, err := s.tracedSession.Executor(k)
	if err != nil {
		return nil, err
	}
	return &besideExecutor{tracedExecutor: x.(tracedExecutor), s: s}, nil
}

func (x *besideExecutor) Submit(n int) error {
	if n == besideSteps {
		x.s.clock.now += time.Duration(n) * x.s.blocks[x.key.Mode][x.done]
		if x.done++; x.done == 2 && x.s.beside != nil {
			if err := x.s.beside(x.key.Mode); err != nil {
				return err
			}
		}
	}
	return x.tracedExecutor.Submit(n)
}

// Recorded steps are compared with the configuration's own block before all
// recordings; where that fails nothing is recorded, and who gives up is heard.
func TestTraceIsComparedWithTheBlockBeside(t *testing.T) {
	measure := func(ctx context.Context, beside func(string) error) (*besideSession, *Measured, error) {
		const us = time.Microsecond
		s := &besideSession{blocks: map[string][]time.Duration{"step": {5 * us, 2 * us, 9 * us}, "graph": {7 * us, 4 * us, 11 * us}}, beside: beside}
		got, err := Measure(ctx, s, modes("step", "graph"), Schedule{Steps: besideSteps, Blocks: 1, Warmup: new(0), Order: 1, Clock: &s.clock, Tracing: Tracing{Steps: 2}}, nil)
		return s, got, err
	}
	_, got, err := measure(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{2000, 4000} {
		c := got.Configurations[i]
		if u := c.Trace.Metric(results.UntracedStepNs); u == nil || u.Value != want || c.Trace.Metric(results.Inflation).Value != 1000/want {
			t.Errorf("%s: untraced step %+v, want %g", c.Key, u, want)
		}
	}
	s, got, err := measure(t.Context(), func(mode string) error {
		if mode == "step" {
			return errors.New("no block")
		}
		return nil
	})
	if err != nil || got.Configurations[0].Trace.Failed != "no block" || got.Configurations[1].Trace.Failed != "" ||
		slices.Contains(s.log, "record step 7") || !slices.Contains(s.log, "record graph 7") {
		t.Errorf("%v, %+v, %v", err, got, s.log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, _, err = measure(ctx, func(string) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || slices.Contains(s.log, "record step 7") {
		t.Errorf("given up: %v, %v", err, s.log)
	}
}

// Processes add samples; what is of one keeps whose it is.
func TestMergeTraces(t *testing.T) {
	cell := func(process int, change func(*results.Trace)) *results.Cell {
		tr := analysed(handMade(recorded), func(a *traceAnalysis) { a.process = process })
		tr.File = fmt.Sprintf("of %d", process)
		if change != nil {
			change(tr)
		}
		return &results.Cell{Configurations: []results.Configuration{{Key: modes("step")[0], Trace: tr}}}
	}
	all := &results.Cell{}
	Merge(all, cell(0, nil), results.Process{Index: 0})
	Merge(all, cell(1, func(tr *results.Trace) {
		tr.Dropped = 5
		tr.Launches[0].Processes[0].MedianNs, tr.Launches[0].Processes[0].P99Ns = 80, 100
	}), results.Process{Index: 1})
	Merge(all, cell(2, nil), results.Process{Index: 2})
	Reduce(all, Plan{})
	got := all.Configurations[0].Trace
	if got.File != "of 0" || got.Dropped != 5 || got.Failed != "" || len(got.Calibrations) != 3 || got.Steps != 2 {
		t.Errorf("%+v", got)
	}
	busy := got.Metric(results.BusyNs)
	if busy.N != 6 || busy.Summary == nil || busy.Summary.Median != 240 || len(busy.Summary.Processes) != 3 || busy.Summary.Interval == nil {
		t.Errorf("%+v", busy)
	}
	if l := got.Launches[0]; len(l.Processes) != 3 || l.Count != 27 || l.MedianNs != 60 || l.P99Ns != 90 {
		t.Errorf("%+v", l)
	}

	// Processes that recorded other kernels contradict each other.
	Merge(all, cell(3, func(tr *results.Trace) { tr.Kernels.Recorded = 9 }), results.Process{Index: 3})
	Reduce(all, Plan{})
	if w := all.Warnings; !slices.ContainsFunc(w, func(w results.Warning) bool {
		return w.Code == "trace_failed" && strings.Contains(w.Text, "the processes recorded different kernels for the same step: 2 and 9")
	}) {
		t.Errorf("%+v", w)
	}
}

// The hardware's share is taken where the device was idle when the call began: a
// kernel that was launched while another ran waited for that one.
func TestHardwareNeedsAnIdleDevice(t *testing.T) {
	x := handMade(recorded)
	for i := range x.Calls {
		if c := &x.Calls[i]; c.EndNs-c.StartNs == 20 { // the second launch, now while the first kernel runs
			c.StartNs, c.EndNs = c.StartNs-100, c.EndNs-100
		}
	}
	for _, l := range analysed(x, nil).Launches {
		if l.Layer == results.LayerHardware && (l.Count != 2 || l.MedianNs != 40) {
			t.Errorf("%+v", l)
		}
	}
}

// A step that is submitted by one call, several times or once, tells by how much
// recording lengthens that call; others do not.
func TestGraphLaunchInflation(t *testing.T) {
	single := func() *timeline.Timeline {
		x := handMade(recorded)
		keep := x.Calls[:0]
		for _, c := range x.Calls {
			if c.Correlation%3 == 1 {
				keep = append(keep, c)
			}
		}
		x.Calls = keep
		for i := range x.Ops {
			x.Ops[i].Correlation -= (x.Ops[i].Correlation - 1) % 3
		}
		return x
	}
	inflation := func(x *timeline.Timeline, change func(*traceAnalysis)) *float64 {
		got := analysed(x, func(a *traceAnalysis) {
			a.submitNs, a.calibration.Costs = 2, nil
			if change != nil {
				change(a)
			}
		})
		for _, l := range got.Launches {
			if l.Layer == results.LayerDriver {
				return l.Inflation
			}
		}
		t.Fatalf("no launch: %+v", got)
		return nil
	}
	if v := inflation(single(), nil); v == nil || *v != 5 {
		t.Errorf("a call of 10 ns where nothing recorded it took 2: inflation %v", v)
	}
	for name, v := range map[string]*float64{
		"two kinds of calls": inflation(handMade(recorded), nil),
		"eager":              inflation(single(), func(a *traceAnalysis) { a.key.Mode = "eager" }),
		"no submit time":     inflation(single(), func(a *traceAnalysis) { a.submitNs = 0 }),
	} {
		if v != nil {
			t.Errorf("%s: inflation %v", name, *v)
		}
	}
}

// Steps in front of those that count are named so, on every thread.
func TestLeadIsNamed(t *testing.T) {
	x := handMade(recorded)
	x.Threads = append(x.Threads, timeline.Thread{Process: timeline.None, ID: "2"})
	other := handMade(2)
	for _, r := range other.Ranges {
		if r.Class == timeline.RangeStep {
			r.Thread = 1
			r.Name = timeline.Name(slices.Index(x.Names, other.Text(r.Name)))
			x.Ranges = append(x.Ranges, r)
		}
	}
	slices.Reverse(x.Ranges) // whatever their order is
	nameLead(x)
	names := map[int32][]string{}
	for _, r := range slices.Backward(x.Ranges) {
		if r.Class == timeline.RangeStep {
			names[r.Thread] = append(names[r.Thread], x.Text(r.Name))
		}
	}
	want := map[int32][]string{0: {"lead 0", "lead 1", "lead 2", "lead 3", "step 4", "step 5", "step 6"}, 1: {"lead 0", "lead 1"}}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// What is doubted of a traced pass.
func TestTraceDoubts(t *testing.T) {
	traced := func(inflation float64, steps ...float64) *results.Configuration {
		var samples []results.Sample
		for i, v := range steps {
			samples = append(samples, results.Sample{Block: i, Value: v})
		}
		return &results.Configuration{Key: results.DefaultConfigurationKey(), Trace: &results.Trace{Metrics: []results.Metric{
			results.NewMetric(results.TracedStepNs, samples), results.NewMetric(results.Inflation, []results.Sample{{Value: inflation}})}}}
	}
	// Processes 0 and 2 took 100 and 200 in their blocks, and this beside their
	// recordings.
	beside := func(first, second float64) *results.Configuration {
		c := traced(1)
		c.Metrics = []results.Metric{results.NewMetric(results.StepTimeNs, []results.Sample{{Value: 100}, {Process: 2, Value: 200}})}
		c.Trace.Metrics = append(c.Trace.Metrics, results.NewMetric(results.UntracedStepNs, []results.Sample{{Value: first}, {Process: 2, Value: second}}))
		return c
	}
	for name, c := range map[string]struct {
		conf *results.Configuration
		want string
	}{
		"beside":         {beside(102, 207), ""},
		"beside, failed": {func() *results.Configuration { c := beside(96, 190); c.Trace.Failed = "no"; return c }(), "trace_failed eager/event/device was traced, and its trace failed: no; the figures of a failed trace must not be used; what was timed holds"},
		"elsewhere, more": {beside(103.1, 206.4), "trace_elsewhere eager/event/device took 3.1 % more in the unrecorded block beside its recording than in the timed ones; the timed blocks " +
			"found the machine in another state; read the trace's shares, and take its nanoseconds from the trace alone"},
		"elsewhere": {beside(96, 190), "trace_elsewhere eager/event/device took 4.5 % less in the unrecorded block beside its recording than in the timed ones; the timed blocks found the machine in " +
			"another state; read the trace's shares, and take its nanoseconds from the trace alone"},
		"steady":          {traced(1.4, 100, 109, 101), ""},
		"not steady":      {traced(1.4, 100, 111, 101), "trace_unsteady eager/event/device has recorded steps that differ by 11 %; record more (run: --trace-steps, profile: --steps), and take the trace for causes, not for times"},
		"a little faster": {traced(0.981, 100), ""},
		"faster": {traced(0.96, 100), "trace_faster eager/event/device took 4.0 % less while it was recorded; the few recorded steps and those beside them found the device " +
			"in different states, so corrected idle, which compares them, is wrong by about as much"},
		"untraced": {&results.Configuration{Key: results.DefaultConfigurationKey()}, ""},
		"failed": {func() *results.Configuration { c := traced(0.5, 1, 2); c.Trace.Failed = "no"; return c }(),
			"trace_failed eager/event/device was traced, and its trace failed: no; the figures of a failed trace must not be used; what was timed holds"},
	} {
		var got []string
		for _, w := range doubts(&results.Cell{Configurations: []results.Configuration{*c.conf}}, Plan{}) {
			if strings.HasPrefix(w.Code, "trace_") {
				got = append(got, w.Code+" "+w.Text)
			}
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
