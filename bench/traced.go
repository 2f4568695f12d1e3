package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// Tracer is an [Executor] whose device can record what it does.
type Tracer interface {
	// Record runs steps from where the drained session stands, back to back, with
	// one wait after them, and returns what the device recorded of them.
	// Each step is a range of the class [timeline.RangeStep] on the thread of each
	// rank. The device of rank i has the ID i.
	Record(steps int) (*timeline.Timeline, error)
	// CalibrateTrace measures what recording does to known kernels; nil where it
	// lengthens nothing.
	CalibrateTrace() (*results.TraceCalibration, error)
}

// Tracing says what is recorded after all that is timed.
type Tracing struct {
	// Steps are those whose figures are kept; 0 records nothing.
	Steps int
	// Save, if set, keeps a configuration's timeline and returns the file's name.
	Save func(k results.ConfigurationKey, x *timeline.Index) (file string, err error)
}

// Around the kept steps, recorded ones that are not: leadSteps in front, as the
// host is not ahead of the device at first and the profiler readies itself (an
// H200's first four recorded eager steps took up to a third longer than those
// behind them), and one behind, whose begin is the end of the last kept one.
const (
	leadSteps  = 4
	tailSteps  = 1
	warmTraced = 1 // steps before a block beside
)

// trace records every configuration. It is the last act of a process, since a
// profiler that was used leaves costs behind: launch-bound eager steps of an
// H200 then took half as long again with nothing recorded. So all blocks that
// recordings are compared with come before the profiler is loaded. What goes
// wrong here does not take away what was timed: it is the trace's failure.
func (m *measurement) trace() error {
	if m.plan.Tracing.Steps == 0 {
		return nil
	}
	m.plan.Phases.Begin(results.PhaseTrace)
	p := tracePass{measurement: m, beside: make([]float64, len(m.keys))}
	for i := range m.keys {
		m.out.Configurations[i].Trace = &results.Trace{Steps: m.plan.Tracing.Steps}
	}
	for _, act := range []struct {
		name string
		do   func(i int, x Tracer) error
	}{{"time beside trace ", p.timeBeside}, {"trace ", p.record}} {
		for i, k := range m.keys {
			t := m.out.Configurations[i].Trace
			if t.Failed != "" {
				continue
			}
			m.phase(act.name + k.String())
			shown := m.show("trace", i, 0)
			err := errors.New("the device records nothing")
			if x, ok := m.executors[i].(Tracer); ok {
				err = act.do(i, x)
			}
			shown.end()
			if gone := m.ctx.Err(); gone != nil {
				return gone
			}
			if err != nil {
				t.Failed = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
		}
	}
	return nil
}

// tracePass is what the traced pass knows of all configurations.
type tracePass struct {
	*measurement
	beside      []float64 // ns a step of the block beside, by configuration
	calibrated  bool
	calibration *results.TraceCalibration // nil: recording lengthens nothing
	broken      error                     // why calibrating failed, and so what follows
}

func (p *tracePass) timeBeside(i int, _ Tracer) (err error) {
	defer quietGC()()
	p.beside[i], err = p.unrecorded(p.executors[i])
	return err
}

// unrecorded times a block of steps that nothing records, from a restored
// session, and returns its time a step, in ns of the host's clock. The collector
// is off.
func (p *tracePass) unrecorded(x Executor) (ns float64, err error) {
	if err := p.start(x); err != nil {
		return 0, err
	}
	if err := x.Submit(warmTraced); err != nil {
		return 0, err
	}
	if err := x.Wait(); err != nil {
		return 0, err
	}
	var t Taken
	if err := p.backToBack(x, &t); err != nil {
		return 0, err
	}
	for _, v := range t.Values {
		if v.Metric == results.StepTimeNs {
			ns = v.Value
		}
	}
	return ns, nil
}

// record records a configuration, behind a block that brings the device to where
// the block beside had it: warm, and at the clocks that its power allows. A few
// steps after a rest are not: an H200 was 4 % faster in them.
func (p *tracePass) record(i int, x Tracer) error {
	if !p.calibrated {
		p.calibrated = true
		p.calibration, p.broken = x.CalibrateTrace()
	}
	if p.broken != nil {
		return p.broken
	}
	defer quietGC()() // here, so that no collection lets the device rest behind the block
	if _, err := p.unrecorded(p.executors[i]); err != nil {
		return err
	}
	c := &p.out.Configurations[i]
	t := c.Trace
	recorded, err := x.Record(leadSteps + t.Steps + tailSteps)
	if err != nil {
		return err
	}
	nameLead(recorded)
	index := timeline.NewIndex(recorded)
	if save := p.plan.Tracing.Save; save != nil {
		file, err := save(p.keys[i], index)
		if err != nil {
			return err // there is no such file
		}
		t.File = file
	}
	a := traceAnalysis{x: index, key: p.keys[i], lead: leadSteps, counts: c.Counts, calibration: p.calibration, process: p.plan.Process,
		untracedNs: p.beside[i], trace: t, values: map[string][]results.Sample{}}
	if submit := c.Metric(results.SubmitTimeNs); submit != nil {
		a.submitNs = results.Median(valuesOf(submit.Samples))
	}
	a.run()
	return nil
}

// nameLead names the steps whose figures do not count, for whoever reads the
// timeline without the record: the first ones of each thread.
func nameLead(t *timeline.Timeline) {
	byThread := map[int32][]int{}
	for i := range t.Ranges {
		if t.Ranges[i].Class == timeline.RangeStep {
			byThread[t.Ranges[i].Thread] = append(byThread[t.Ranges[i].Thread], i)
		}
	}
	for _, steps := range byThread {
		slices.SortFunc(steps, func(a, b int) int { return cmp.Compare(t.Ranges[a].StartNs, t.Ranges[b].StartNs) })
		for n, i := range steps[:min(leadSteps, len(steps))] {
			name := fmt.Sprint(timeline.LeadStep, n)
			at := slices.Index(t.Names, name)
			if at < 0 {
				at = len(t.Names)
				t.Names = append(t.Names, name)
			}
			t.Ranges[i].Name = timeline.Name(at)
		}
	}
}

func valuesOf(samples []results.Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.Value
	}
	return out
}

// mergeTrace adds what one more process recorded.
func mergeTrace(to, from *results.Trace) *results.Trace {
	switch {
	case from == nil:
		return to
	case to == nil:
		return from
	}
	for _, m := range from.Metrics {
		if have := to.Metric(m.Name); have != nil {
			have.Samples = append(have.Samples, m.Samples...)
		} else {
			to.Metrics = append(to.Metrics, m)
		}
	}
	to.Dropped += from.Dropped
	to.Lost += from.Lost
	to.Steps = max(to.Steps, from.Steps) // 0 of a process that recorded nothing
	to.Calibrations = append(to.Calibrations, from.Calibrations...)
	for _, l := range from.Launches {
		i := slices.IndexFunc(to.Launches, func(have results.LaunchCost) bool { return have.Layer == l.Layer && have.Call == l.Call })
		if i < 0 {
			to.Launches = append(to.Launches, l)
			continue
		}
		to.Launches[i].Processes = append(to.Launches[i].Processes, l.Processes...)
	}
	for _, a := range from.Absent {
		if !slices.Contains(to.Absent, a) {
			to.Absent = append(to.Absent, a)
		}
	}
	if to.Kernels.From == "" {
		to.Kernels = from.Kernels
	}
	if to.Failed == "" && from.Kernels.From != "" && (to.Kernels.Recorded != from.Kernels.Recorded) {
		to.Failed = fmt.Sprintf("the processes recorded different kernels for the same step: %d and %d", to.Kernels.Recorded, from.Kernels.Recorded)
	}
	to.Failed = cmp.Or(to.Failed, from.Failed)
	to.File = cmp.Or(to.File, from.File)
	return to
}

// reduceTrace says what a trace's samples mean.
func reduceTrace(t *results.Trace) {
	if t == nil {
		return
	}
	for i := range t.Metrics {
		reduceMetric(&t.Metrics[i])
	}
	for i := range t.Launches {
		l := &t.Launches[i]
		if len(l.Processes) == 0 {
			continue
		}
		var middle, tail []float64
		l.Count = 0
		for _, p := range l.Processes {
			l.Count += p.Count
			middle, tail = append(middle, float64(p.MedianNs)), append(tail, float64(p.P99Ns))
		}
		l.MedianNs, l.P99Ns = int64(math.Round(results.Median(middle))), int64(math.Round(results.Median(tail)))
	}
}
