package report

import (
	"strconv"

	"github.com/tech-renaissance/trbench/results"
)

// hostBound is the least that the host needs to submit an eager step, by what a
// launch takes in a loop in C and by the time inside calls of libraries.
type hostBound struct {
	own, calls float64 // a step: own submitting calls, copies among them, and calls of libraries
	ownNs      float64 // own calls at the floor
	recordedNs float64 // inside library calls, as recorded
	untracedNs float64 // the same from the untraced submission; below 0 where it is not known
}

// boundOf takes a host's least time apart; false for what is no traced eager step
// of the project's own launcher.
func boundOf(c *results.Configuration, readings []results.Reading, floorNs float64) (hostBound, bool) {
	t, host := c.Trace, c.Counts.Launches.Host
	if captured(c.Key) || c.Key.DispatchNs != 0 || c.Key.SecondLauncher() || t == nil || t.Failed != "" || t.Steps == 0 || host == nil {
		return hostBound{}, false
	}
	perStep := func(l results.LaunchCost) float64 {
		return float64(l.Count) / float64(t.Steps*max(len(l.Processes), 1))
	}
	var b hostBound
	var driver, driverNs float64
	var ownNs float64 // of the driver's call that own launches make
	for _, l := range t.Launches {
		n := perStep(l)
		switch {
		case l.Layer == results.LayerLibrary:
			b.calls, b.recordedNs = b.calls+n, b.recordedNs+n*float64(l.MedianNs)
		case l.Layer == results.LayerDriver:
			driver, driverNs = driver+n, driverNs+n*float64(l.MedianNs)
			if ownNs == 0 && (l.Call == "cuLaunchKernel" || l.Call == "cuLaunchKernelEx") || l.Call == "cuLaunchKernelEx" {
				ownNs = float64(l.MedianNs)
			}
		}
	}
	if driver == 0 {
		return hostBound{}, false
	}
	b.own = max(float64(*host)-b.calls, 0)
	b.ownNs = b.own * floorNs
	// What is not launched by own calls is launched inside those of libraries.
	b.recordedNs += max(driverNs-b.own*ownNs, 0)
	b.untracedNs = -1
	if f, ok := figureOf(c, results.SubmitTimeNs); ok {
		for _, r := range readings {
			if r.Name == "launch.kernel_ns" {
				b.untracedNs = max(f.value-b.own*r.Value, 0)
			}
		}
	}
	return b, true
}

// bounds sets eager steps against the longer of the device's busy time and the
// host's least time.
func (s sources) bounds() Section {
	if s.floorNs <= 0 {
		return Section{}
	}
	g, keys := s.keys()
	g.Header = append(g.Header, "step", "busy", "own launches", "at the floor", "library calls",
		"in them, recorded", "bound", "step/bound", "in them, untraced", "bound", "step/bound")
	for _, r := range s.traced() {
		b, ok := boundOf(r.conf, r.src.calibration(r.cell, r.conf), s.floorNs)
		step, known := figureOf(r.conf, results.StepTimeNs)
		busy := r.trace.Metric(results.CorrectedBusyNs)
		if busy == nil {
			busy = r.trace.Metric(results.BusyNs)
		}
		if !ok || !known || busy == nil {
			continue
		}
		least := metricFigure(busy).value
		line := append(keys(r.src, r.cell, r.conf), Duration(step.value), Duration(least), strconv.FormatFloat(b.own, 'f', 0, 64), Duration(b.ownNs),
			strconv.FormatFloat(b.calls, 'f', 0, 64))
		for _, inside := range []float64{b.recordedNs, b.untracedNs} {
			if inside < 0 {
				line = append(line, "-", "-", "-")
				continue
			}
			bound := max(least, b.ownNs+inside)
			line = append(line, Duration(inside), Duration(bound), factor(step.value/bound))
		}
		g.Rows = append(g.Rows, line)
	}
	if len(g.Rows) == 0 {
		return Section{}
	}
	return Section{"Eager steps against what bounds them", g, []string{
		"bound: the longer of busy and own launches at the floor + time inside library calls. The floor is " + Duration(s.floorNs) + " a launch, as --launch-floor-ns says: what a loop in C takes. The step is not recorded, busy is corrected for recording.",
		"Time inside library calls, recorded: of each call the median, and of the launches inside it. Recording lengthens all of it, where the host is the limit by half and more, so that this bound may exceed the step: below 1 the ratio says nothing.",
		"untraced: the submission of a step to a drained device, less own launches at what this program's launch takes in a loop (calibration launch.kernel_ns). What own launches take beyond a loop's counts as the libraries' there, which favours the step. It is the sounder one where recording stretched the step.",
	}}
}
