package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// tracedRow is a configuration with a traced pass.
type tracedRow struct {
	src   *source
	cell  *results.Cell
	conf  *results.Configuration
	trace *results.Trace
}

func (s sources) traced() (rows []tracedRow) {
	for cell, src := range s.cells {
		for i := range cell.Configurations {
			if c := &cell.Configurations[i]; c.Trace != nil {
				rows = append(rows, tracedRow{src, cell, c, c.Trace})
			}
		}
	}
	return rows
}

// Recorded writes what traced passes found, without what was timed beside them:
// for whoever asked for a recording alone. What casts doubt on it stands below the
// first table.
func Recorded(w io.Writer, r *results.Record) error {
	s := single(r)
	sections := slices.DeleteFunc([]Section{s.idleShares(), s.times(), s.lateness(), s.launchCosts()}, func(t Section) bool { return len(t.Grid.Rows) == 0 })
	if len(sections) > 0 {
		for _, d := range s.doubts() {
			if !slices.Contains(notOfRecording, d.Code) {
				sections[0].Lines = append(sections[0].Lines, d.line())
			}
		}
	}
	return writeSections(w, sections, true)
}

// notOfRecording are doubts about what [Recorded] does not show, or says already.
var notOfRecording = []string{"few_processes", "few_blocks", "clocks_do_not_add_up", "trace_failed"}

// tracedColumn is a figure of a trace in a table.
type tracedColumn struct {
	name, header string
	show         func(float64) string
}

func (c tracedColumn) text(t *results.Trace) string {
	m := t.Metric(c.name)
	if m == nil {
		return "-"
	}
	f := metricFigure(m)
	if !finite(f.value) {
		return "-"
	}
	return c.show(f.value)
}

// SignedDuration is [Duration] of a time that may be below 0.
func SignedDuration(ns float64) string {
	if ns < 0 {
		return "-" + Duration(-ns)
	}
	return Duration(ns)
}

// times shows what a traced step's time goes to, with the inflation beside it.
func (s sources) times() Section {
	rows := s.traced()
	if len(rows) == 0 {
		return Section{}
	}
	g, keys := s.keys()
	known := func(c tracedColumn) bool {
		return slices.ContainsFunc(rows, func(r tracedRow) bool { return r.trace.Metric(c.name) != nil })
	}
	var columns []tracedColumn
	if c := (tracedColumn{results.UntracedStepNs, "untraced step", Duration}); known(c) {
		columns = append(columns, c)
	}
	columns = append(columns, []tracedColumn{
		{results.TracedStepNs, "traced step", Duration}, {results.Inflation, "inflation", digits}, {results.BusyNs, "busy", Duration},
		{results.IdleNs, "idle", Duration}, {results.HostLateNs, "host late", Duration}, {results.InAPINs, "in call", Duration},
		{results.AfterAPINs, "after call", Duration}, {results.InGraphNs, "in graph", Duration}, {results.UnlinkedNs, "unlinked", Duration},
	}...)
	for _, c := range []tracedColumn{{results.CorrectedBusyNs, "corrected busy", Duration}, {results.CorrectedIdleNs, "corrected idle", SignedDuration}} {
		if known(c) {
			columns = append(columns, c)
		}
	}
	columns = append(columns, tracedColumn{results.TraceKernelCount, "kernels", exact}, tracedColumn{results.ShortKernelCount, "short", exact},
		tracedColumn{results.TraceLaunches, "launches", exact})
	for _, c := range columns {
		g.Header = append(g.Header, c.header)
	}
	g.Header, g.LeftEnd = append(g.Header, "trace"), 1
	var failures []string
	for _, r := range rows {
		line := keys(r.src, r.cell, r.conf)
		for _, c := range columns {
			line = append(line, c.text(r.trace))
		}
		state := "ok"
		if r.trace.Failed != "" {
			state = results.Failed
			failures = append(failures, fmt.Sprintf("Failed trace (%s, %s): %s", s.place(r.src, r.cell), plain(r.conf.Key.String()), plain(r.trace.Failed)))
		}
		g.Rows = append(g.Rows, append(line, state))
	}
	lines := []string{
		"Medians of single recorded steps, after all that was timed; recording makes steps longer, and inflation is the traced step over the untraced one of the same process.",
		"busy + idle = traced step; host late + in call + after call + unlinked = idle; in graph is part of after call. Medians need not add up, steps do.",
		"short: kernels, launched alone, that took the device less time than their launch took the host.",
	}
	if t := tracedCalibrations(rows); t != "" {
		lines = append(lines, t)
	}
	return Section{"Where a traced step's time goes", g, slices.Concat(failures, lines)}
}

// tracedCalibrations says what corrected figures are corrected by.
func tracedCalibrations(rows []tracedRow) string {
	var by, uncertain []float64
	for _, r := range rows {
		for _, c := range r.trace.Calibrations {
			by, uncertain = append(by, c.ByNs), append(uncertain, c.UncertaintyNs)
		}
	}
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("corrected busy takes %s from each kernel's length (+- %s), which recording adds to those of a known chain; corrected idle is the untraced step less that.",
		SignedDuration(results.Median(by)), Duration(results.Median(uncertain)))
}

// lateness shows what the host did while the device waited for a launch to begin.
// Calls that a library makes inside its own are the library's, where the record
// tells them apart.
func (s sources) lateness() Section {
	g, keys := s.keys()
	part := func(names ...string) func(*results.Trace) string {
		return func(t *results.Trace) string {
			sum, ok := 0.0, false
			for _, name := range names {
				sign := 1.0
				if name[0] == '-' {
					name, sign = name[1:], -1
				}
				if m := t.Metric(name); m != nil && finite(m.Value) {
					sum, ok = sum+sign*m.Value, true
				}
			}
			if !ok {
				return "-"
			}
			return Duration(max(0, sum)) // of medians, which need not add up
		}
	}
	columns := []struct {
		header string
		text   func(*results.Trace) string
	}{
		{"host late", part(results.HostLateNs)}, {"blocked", part(results.LateSyncNs)}, {"feeding", part(results.LateFeedNs)},
		{"in a library", part(results.LateLibraryNs, results.LateLibraryCallNs)}, {"other call", part(results.LateCallNs, "-"+results.LateLibraryCallNs)},
		{"named range", part(results.LateRangeNs)}, {"profiler", part(results.LateOverheadNs)}, {"else", part(results.LateNothingNs)},
	}
	for _, c := range columns {
		g.Header = append(g.Header, c.header)
	}
	mixed := false
	for _, r := range s.traced() {
		if m := r.trace.Metric(results.HostLateNs); m == nil || m.Value <= 0 {
			continue
		}
		if m := r.trace.Metric(results.LateLibraryNs); m != nil && m.Value > 0 && r.trace.Metric(results.LateLibraryCallNs) == nil {
			mixed = true
		}
		line := keys(r.src, r.cell, r.conf)
		for _, c := range columns {
			line = append(line, c.text(r.trace))
		}
		g.Rows = append(g.Rows, line)
	}
	var lines []string
	if mixed {
		lines = []string{"other call holds calls of CUDA that a library made inside its own: records before 1.3 do not tell them apart, and nearly all are such where there is time in a library."}
	}
	return Section{"What the host did while the device waited for it", g, lines}
}

// idleShares shows how much of a step the device is idle, recorded and not, from
// the step's own time: the figure to compare configurations by.
func (s sources) idleShares() Section {
	g, keys := s.keys()
	g.Header = append(g.Header, "recorded", "without recording", "step", "inflation")
	unknown := false
	for _, r := range s.traced() {
		line := keys(r.src, r.cell, r.conf)
		recorded, without, step := "-", "-", "-"
		if v, ok := idleShare(r.trace); ok {
			recorded = tenths(v)
		}
		if ns, ok := untracedStep(r.conf); ok {
			step = Duration(ns)
			if m := r.trace.Metric(results.CorrectedIdleNs); m != nil && finite(m.Value) && ns > 0 {
				without = tenths(m.Value / ns)
			}
		}
		if r.trace.Failed != "" {
			recorded, without = results.Failed, results.Failed
		}
		unknown = unknown || without == "-"
		g.Rows = append(g.Rows, append(line, recorded, without, step, tracedColumn{results.Inflation, "", digits}.text(r.trace)))
	}
	if len(g.Rows) == 0 {
		return Section{}
	}
	lines := []string{
		"recorded: idle over recorded step. without recording: untraced step less corrected busy, over untraced step; it compares two runs, which agree to about 1 % of a step, so its last digits are not to be relied on.",
		"Where they differ much, recording slowed the host: take the share without recording, and the causes below.",
	}
	if unknown {
		lines = append(lines, "- without recording: by how much recording lengthens a kernel was not measured, as on the CPU device.")
	}
	return Section{"For how much of a step the device is idle", g, lines}
}

// untracedStep is the step that recorded ones are compared with, in ns: that of
// the block beside, or, of a record before 1.4, the timed one.
func untracedStep(c *results.Configuration) (ns float64, ok bool) {
	if m := c.Trace.Metric(results.UntracedStepNs); m != nil {
		return m.Value, finite(m.Value)
	}
	f, ok := figureOf(c, results.StepTimeNs)
	return f.value, ok
}

// idleShare is the median over recorded steps of idle over the step.
func idleShare(t *results.Trace) (float64, bool) {
	idle, step := t.Metric(results.IdleNs), t.Metric(results.TracedStepNs)
	if idle == nil || step == nil || len(idle.Samples) != len(step.Samples) {
		return 0, false
	}
	var shares []float64
	for i, s := range step.Samples {
		if s.Value > 0 {
			shares = append(shares, idle.Samples[i].Value/s.Value)
		}
	}
	return results.Median(shares), len(shares) > 0
}

// tenths is a share in tenths of a per cent.
func tenths(v float64) string { return fmt.Sprintf("%.1f%%", math.Round(1000*v)/10+0) } // no -0

// launchCosts shows what one launch costs, layer by layer.
func (s sources) launchCosts() Section {
	g, keys := s.keys()
	g.Header = append(g.Header, "layer", "call")
	g.Left = len(g.Header)
	g.Header = append(g.Header, "count", "median", "p99", "inflation")
	for _, r := range s.traced() {
		for _, l := range r.trace.Launches {
			g.Rows = append(g.Rows, append(append(keys(r.src, r.cell, r.conf), plain(l.Layer), cmp.Or(plain(l.Call), "-")), LaunchCostCells(l)...))
		}
	}
	return Section{"What one launch costs", g, LaunchCostLines()}
}

// LaunchCostCells are a layer's count, median, 99th percentile and inflation as
// tables show them.
func LaunchCostCells(l results.LaunchCost) []string {
	inflation := "-"
	if l.Inflation != nil {
		inflation = digits(*l.Inflation)
	}
	return []string{strconv.FormatInt(l.Count, 10), SignedDuration(float64(l.MedianNs)), SignedDuration(float64(l.P99Ns)), inflation}
}

// LaunchCostLines explain the layers.
func LaunchCostLines() []string {
	return strings.Split(strings.TrimSpace(`
language: an empty call through the binding. library: a library's call less the driver's calls inside it. driver: the driver's call, on record; one that finds its stream's queue full waits in it.
hardware: from the call's end to the kernel's start on an idle device; below 0 the kernel starts before the call ends.
All but language are recorded and so lengthened; inflation, where known, is the recorded call over the same call without recording.`), "\n")
}

// csvTrace are the figures of a traced pass in long form.
func csvTrace(base csvLine, t *results.Trace) []csvLine {
	if t == nil {
		return nil
	}
	base = base.with(csvLine{"note": plain(t.Failed)})
	if t.Failed != "" {
		base["status"] = results.Failed
	}
	var out []csvLine
	for i := range t.Metrics {
		m := &t.Metrics[i]
		l := base.with(metricFigure(m).csv()).with(csvLine{
			"kind": kindTrace, "name": plain(m.Name), "unit": plain(m.Unit), "direction": plain(m.Direction), "clock": plain(m.Clock),
		})
		if s := m.Summary; s != nil {
			l["p10"], l["p90"], l["p99"], l["max"] = number(s.P10), number(s.P90), number(s.P99), number(s.Max)
		}
		if l["value"] != "" {
			out = append(out, l)
		}
	}
	for _, l := range t.Launches {
		name := l.Layer
		if l.Call != "" {
			name += " " + l.Call
		}
		out = append(out, base.with(csvLine{"kind": kindLaunch, "name": plain(name), "value": strconv.FormatInt(l.MedianNs, 10),
			"p99": strconv.FormatInt(l.P99Ns, 10), "n": strconv.FormatInt(l.Count, 10), "unit": "ns", "direction": results.Lower, "clock": results.TraceClock}))
	}
	return out
}

// tracedParts draws what a traced step's time goes to, a picture a family and
// number of GPUs. There is none, and no word of it, where nothing was traced.
func (f *family) tracedParts() (pictures []Picture, absent []string) {
	byGPUs := map[int][]*results.Cell{}
	var gpus []int
	for _, c := range f.cells {
		if !slices.ContainsFunc(c.Configurations, func(x results.Configuration) bool { return x.Trace != nil }) {
			continue
		}
		if byGPUs[c.Key.GPUs] == nil {
			gpus = append(gpus, c.Key.GPUs)
		}
		byGPUs[c.Key.GPUs] = append(byGPUs[c.Key.GPUs], c)
	}
	slices.Sort(gpus)
	for _, n := range gpus {
		about := About{Name: strings.Trim("trace_parts_"+f.suffix, "_"), Subtitle: []string{f.describe() + ", " + f.ranksWord(n)}, Notes: slices.Concat(f.warnings(), f.notes)}
		if len(gpus) > 1 {
			about.Name += fmt.Sprintf("_g%d", n)
		}
		var parts []StepParts
		low, high := 0.0, 0.0
		for _, c := range byGPUs[n] {
			for i := range c.Configurations {
				x := &c.Configurations[i]
				if x.Trace == nil {
					continue
				}
				name := fmt.Sprintf("batch %d, %s", c.Key.Batch, plain(x.Key.String()))
				if x.Trace.Failed != "" {
					about.Doubts = append(about.Doubts, fmt.Sprintf("%s is not drawn: %s.", name, plain(x.Trace.Failed)))
					continue
				}
				p := partsOf(x)
				p.Batch = c.Key.Batch
				parts = append(parts, p)
				if m := x.Trace.Metric(results.Inflation); m != nil && finite(m.Value) {
					if low == 0 || m.Value < low {
						low = m.Value
					}
					high = max(high, m.Value)
				}
			}
		}
		if high > 0 {
			said := fmt.Sprintf("Recording made the steps %s to %s times as long as without it.", digits(low), digits(high))
			if low >= 1-plainInflation && high <= 1+plainInflation {
				about.Subtitle = append(about.Subtitle, said)
			} else {
				about.Doubts = append(about.Doubts, said)
			}
		}
		p, err := StepBars(about, parts)
		if err != nil {
			absent = append(absent, plain(err.Error())+".")
			continue
		}
		pictures = append(pictures, p)
	}
	return pictures, absent
}

// plainInflation is by how much recording may lengthen a step, or seem to shorten
// it, and be a fact like others; beyond it is a doubt.
const plainInflation = 0.05

// partsOf are means over all recorded steps, so that the parts add up.
func partsOf(c *results.Configuration) StepParts {
	mean := func(name string) float64 {
		m := c.Trace.Metric(name)
		if m == nil || len(m.Samples) == 0 {
			return 0
		}
		sum := 0.0
		for _, s := range m.Samples {
			sum += s.Value
		}
		return sum / float64(len(m.Samples))
	}
	p := StepParts{Label: plain(c.Key.String()), BusyNs: mean(results.BusyNs), HostLateNs: mean(results.HostLateNs),
		InAPINs: mean(results.InAPINs), AfterAPINs: mean(results.AfterAPINs), UnlinkedNs: mean(results.UnlinkedNs)}
	if m := c.Trace.Metric(results.BusyNs); m != nil {
		p.Steps = len(m.Samples)
	}
	p.StepTimeNs, _ = untracedStep(c)
	return p
}
