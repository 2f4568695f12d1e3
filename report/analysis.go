package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/analysis"
)

// Analysis is one recording and what was found on its devices.
type Analysis struct {
	Timeline *timeline.Timeline
	Devices  []analysis.Device
	// Unread is why a file could not be read, as what follows its name in a
	// sentence; of Timeline there is the Source alone then.
	Unread string
}

// AnalysisText writes what was found as text for a terminal.
func AnalysisText(w io.Writer, files []Analysis) error {
	for i, f := range files {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		for _, s := range analysisSections(f) {
			if err := s.text(w); err != nil {
				return err
			}
		}
	}
	if s, ok := ranksSection(files); ok {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return s.text(w)
	}
	return nil
}

// AnalysisMarkdown is AnalysisText as a page in GitHub's dialect.
func AnalysisMarkdown(w io.Writer, files []Analysis) error {
	var b strings.Builder
	b.WriteString("# trbench analyze\n")
	for _, f := range files {
		for _, s := range analysisSections(f) {
			s.markdown(&b)
		}
	}
	if s, ok := ranksSection(files); ok {
		s.markdown(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// AnalysisJSON writes a flat object a device, each on a line of its own.
func AnalysisJSON(w io.Writer, files []Analysis) error {
	for _, f := range files {
		for _, fields := range fieldsOf(f) {
			if _, err := w.Write(append(analysis.JSON(fields), '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// AnalysisCSV writes a line a device, with the names of [AnalysisJSON].
func AnalysisCSV(w io.Writer, files []Analysis) error {
	var header []string
	var lines []csvLine
	seen := map[string]bool{}
	for _, f := range files {
		for _, fields := range fieldsOf(f) {
			line := csvLine{}
			for _, x := range fields {
				line[x.Name] = x.Text()
				if !seen[x.Name] {
					seen[x.Name] = true
					header = append(header, x.Name)
				}
			}
			lines = append(lines, line)
		}
	}
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	for _, l := range lines {
		row := make([]string, len(header))
		for i, h := range header {
			row[i] = l[h]
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// AnalysisPictures draws a step of each device and the lengths of its gaps, as
// for this program's own traces. absent says what could not be drawn, and why.
func AnalysisPictures(files []Analysis) (pictures []Picture, absent []string) {
	var steps []TracedStep
	var gaps []GapSet
	for _, f := range files {
		for i := range f.Devices {
			d := &f.Devices[i]
			if d.Span.Ops == 0 {
				continue
			}
			label := filepath.Base(d.File) + " device " + d.ID
			w := d.Span.Window
			if n := len(d.Steps); n > 0 && d.Steps[n/2].Ops > 0 {
				w = d.Steps[n/2].GPU // the first is seldom like the others
			}
			steps = append(steps, TracedStep{Label: label, Index: d.Index(), Device: d.Number(), Window: w})
			set := GapSet{Label: label, Steps: max(1, d.Cycles)}
			for _, w := range d.Windows {
				set.Gaps = append(set.Gaps, d.Index().DeviceGaps(d.Number(), w)...)
			}
			gaps = append(gaps, set)
		}
	}
	keep := func(p Picture, err error) {
		if err != nil {
			absent = append(absent, err.Error())
			return
		}
		pictures = append(pictures, p)
	}
	keep(StepTimelines(About{Subtitle: []string{"a step in the middle, or the whole recording where no steps are annotated"}}, steps))
	keep(GapLengths(About{}, gaps))
	return pictures, absent
}

func fieldsOf(f Analysis) [][]analysis.Field {
	if f.Unread != "" {
		return [][]analysis.Field{{{Name: "file", Value: f.Timeline.Source}, {Name: "format"}, {Name: "device"}, {Name: "verdict"}, {Name: "note", Value: "left out: it " + f.Unread}}}
	}
	if len(f.Devices) == 0 {
		return [][]analysis.Field{analysis.Nothing(f.Timeline)}
	}
	out := make([][]analysis.Field, len(f.Devices))
	for i, d := range f.Devices {
		out[i] = d.Fields()
	}
	return out
}

// analysisSection is a title, sentences and a table, of which any may be empty.
type analysisSection struct {
	title string
	lines []string
	grid  Grid
	after []string
}

func (s analysisSection) empty() bool { return len(s.lines)+len(s.grid.Rows)+len(s.after) == 0 }

func (s analysisSection) text(w io.Writer) error {
	if s.empty() {
		return nil
	}
	var b strings.Builder
	if s.title != "" {
		fmt.Fprintf(&b, "\n%s\n", plain(s.title))
	}
	for _, l := range s.lines {
		fmt.Fprintln(&b, plain(l))
	}
	if len(s.grid.Rows) > 0 {
		if err := s.grid.Write(&b); err != nil {
			return err
		}
	}
	for _, l := range s.after {
		fmt.Fprintln(&b, plain(l))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s analysisSection) markdown(b *strings.Builder) {
	if s.empty() {
		return
	}
	if s.title != "" {
		fmt.Fprintf(b, "\n## %s\n", markdownText(s.title))
	}
	lines := func(ls []string) {
		if len(ls) > 0 {
			b.WriteByte('\n')
		}
		for _, l := range ls {
			fmt.Fprintf(b, "%s  \n", markdownText(l))
		}
	}
	lines(s.lines)
	if len(s.grid.Rows) > 0 {
		b.WriteByte('\n')
		s.grid.markdown(b)
	}
	lines(s.after)
}

var formatWords = map[string]string{
	timeline.FormatKineto: "PyTorch profiler (Kineto)", timeline.FormatNsys: "Nsight Systems export", timeline.FormatOwn: "trbench",
}

func analysisSections(f Analysis) []analysisSection {
	t := f.Timeline
	if f.Unread != "" {
		return []analysisSection{{lines: []string{filepath.Base(t.Source) + ": left out; it " + f.Unread}}}
	}
	head := analysisSection{lines: []string{fmt.Sprintf("%s: %s, %d ops, %d API calls, %d host ranges", filepath.Base(t.Source), formatWords[t.Format], len(t.Ops), len(t.Calls), len(t.Ranges))}}
	head.lines = append(head.lines, readLines(t.Read)...)
	if len(f.Devices) == 0 {
		head.lines = append(head.lines, analysis.NoWork+": no kernel, copy or fill in it")
		return []analysisSection{head}
	}
	out := []analysisSection{head}
	for i := range f.Devices {
		out = append(out, deviceSections(&f.Devices[i])...)
	}
	return out
}

func readLines(r timeline.ReadReport) []string {
	var out []string
	for _, d := range Damage(r) {
		out = append(out, "PARTIAL: "+d)
	}
	if len(r.NotRecorded) > 0 {
		out = append(out, "Not recorded: "+strings.Join(r.NotRecorded, ", "))
	}
	return append(out, r.Notes...)
}

// Damage says what of a recording is missing or was guessed, a clause each; none
// of a whole one.
func Damage(r timeline.ReadReport) []string {
	var out []string
	if r.LostBytes > 0 || r.LostEvents > 0 {
		s := fmt.Sprintf("%s and %s could not be understood", exactly(r.LostEvents, "event"), exactly(r.LostBytes, "byte"))
		if r.LostBytes > 0 {
			s += fmt.Sprintf(", first at byte %d", r.LostAt)
		}
		out = append(out, s)
	}
	if r.Repaired > 0 {
		out = append(out, fmt.Sprintf("the file is not valid JSON in %s, first at byte %d, read by guessing", exactly(r.Repaired, "place"), r.RepairedAt))
	}
	if r.Truncated {
		out = append(out, "the recording is not complete")
	}
	if r.Dropped > 0 {
		out = append(out, fmt.Sprintf("the profiler says that it dropped %s", exactly(r.Dropped, "event")))
	}
	return out
}

// exactly is a count with its noun, all digits.
func exactly(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

func deviceTitle(d *analysis.Device) string {
	s := "Device " + d.ID
	if d.Name != "" {
		s += ", " + d.Name
	}
	if d.Rank != timeline.None {
		s += fmt.Sprintf(", rank %d", d.Rank)
	}
	return s
}

func deviceSections(d *analysis.Device) []analysisSection {
	verdict := analysisSection{title: deviceTitle(d), lines: []string{
		fmt.Sprintf("Verdict: %s; %s", d.Verdict.Word, d.Verdict.Reason),
		"Rule: " + analysis.Rule,
	}}
	verdict.lines = append(verdict.lines, captureLines(&d.Capture)...)
	out := []analysisSection{verdict, integritySection(d)}
	if d.Span.Ops == 0 {
		return out
	}
	out = append(out, timeSection(d), causeSection(d), launchSection(d))
	if len(d.Steps) > 0 {
		out = append(out, stepsSection(d))
	}
	return append(out, kernelSection(d), gapSection(d))
}

func ns(v int64) string { return Duration(float64(v)) }

func captureLines(c *analysis.Capture) []string {
	var out []string
	if c.Withheld != "" {
		out = append(out, "Capture: withheld; "+c.Withheld)
	} else {
		s := fmt.Sprintf("Capture: as one graph of %s, and not recorded, the %s could take %s to %s; from %s if the graph keeps the order of the streams",
			exactly(int64(c.Nodes+0.5), "node"), c.Per, ns(c.LowNs), ns(c.HighNs), ns(c.OrderedLowNs))
		if c.LossNs > 0 {
			s += fmt.Sprintf("; at worst it loses %s", ns(c.LossNs))
		}
		out = append(out, s,
			fmt.Sprintf("Recorded it takes %s, of which %s are busy; recording stretches a step that waits for its host, so set the graph's time against one taken without a profiler", ns(c.EagerNs), ns(c.BusyNs)),
			"Constants "+analysis.ConstantsOf)
	}
	for _, s := range c.Cannot {
		out = append(out, "Not to be captured: "+s)
	}
	return out
}

func integritySection(d *analysis.Device) analysisSection {
	g := d.Integrity
	grid := Grid{Header: []string{"integrity", "count"}, Left: 1}
	add := func(name string, n int, always bool) {
		if n != 0 || always {
			grid.Rows = append(grid.Rows, []string{name, strconv.Itoa(n)})
		}
	}
	add("ops", g.Ops, true)
	add("linked with their launch", g.Linked, true)
	add("unlinked, before the first API call", g.UnlinkedBefore, true)
	add("unlinked, inside the recording", g.UnlinkedInside, true)
	add("without usable times", g.Untimed, true)
	add("of no length", g.ZeroOps, true)
	add("overlapping on one stream", g.Overlaps, true)
	add("duplicates", g.Duplicates, true)
	add("started before their call", g.Early, false)
	add("graph replays as one event", g.Envelopes, false)
	add("launches with ops here", g.Launches, true)
	add("most ops of a launch", g.MaxOpsPerLaunch, true)
	return analysisSection{grid: grid}
}

// shareOf shows a part of a whole.
func shareOf(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

func timeSection(d *analysis.Device) analysisSection {
	all := []timeline.Figures{d.Span}
	grid := Grid{Header: []string{"device time", "span", "of it"}, Left: 1}
	if len(d.Steps) > 0 && d.Over == analysis.OverSteps {
		all = append(all, d.OnHost)
		grid.Header = append(grid.Header, "steps on the host", "of it")
	}
	if d.Over != analysis.OverSpan {
		all = append(all, d.Window)
		grid.Header = append(grid.Header, d.Over, "of it")
	}
	add := func(name string, always bool, of func(timeline.Figures) int64) {
		row := []string{name}
		for _, f := range all {
			v := of(f)
			always = always || v != 0
			row = append(row, ns(v), shareOf(v, f.SpanNs))
		}
		if always {
			grid.Rows = append(grid.Rows, row)
		}
	}
	type figures = timeline.Figures
	busy := "busy"
	if d.Span.Envelopes > 0 {
		busy = "busy (upper bound: graph replays as one event)"
	}
	add("all", true, func(f figures) int64 { return f.SpanNs })
	add(busy, true, func(f figures) int64 { return f.BusyNs })
	add("idle", true, func(f figures) int64 { return f.IdleNs })
	add("- host_late: launch not begun", true, func(f figures) int64 { return f.Split.HostLateNs })
	add("-- in a synchronising call", false, func(f figures) int64 { return f.Split.Late.SyncNs })
	add("-- under the data loader", false, func(f figures) int64 { return f.Split.Late.FeedNs })
	add("-- in another API call", false, func(f figures) int64 { return f.Split.Late.CallNs })
	add("-- in an operator", false, func(f figures) int64 { return f.Split.Late.OperatorNs })
	add("-- in a user's range", false, func(f figures) int64 { return f.Split.Late.UserNs })
	add("-- in Python", false, func(f figures) int64 { return f.Split.Late.PythonNs })
	add("-- the profiler at work", false, func(f figures) int64 { return f.Split.Late.OverheadNs })
	add("-- nothing recorded", false, func(f figures) int64 { return f.Split.Late.NothingNs })
	add("- in_api: inside the launching call", true, func(f figures) int64 { return f.Split.InAPINs })
	add("- after_api: submitted, not started", true, func(f figures) int64 { return f.Split.AfterAPINs })
	add("-- inside a graph", false, func(f figures) int64 { return f.Split.InGraphNs })
	add("- unlinked: no launch on record", true, func(f figures) int64 { return f.Split.UnlinkedNs })
	add("-- before the first API call", false, func(f figures) int64 { return f.Split.UnlinkedBeforeNs })
	add("-- later", false, func(f figures) int64 { return f.Split.UnlinkedInsideNs })
	add("-- behind the last op", false, func(f figures) int64 { return f.Split.UnlinkedEndNs })
	return analysisSection{title: fmt.Sprintf("Where the time goes (%d gaps in the span)", d.Span.Gaps), grid: grid}
}

func causeSection(d *analysis.Device) analysisSection {
	c := d.Causes
	grid := Grid{Header: []string{"idle by cause", d.Over, "of it"}, Left: 1}
	for _, r := range []struct {
		name string
		v    int64
	}{
		{"launching one by one", c.LaunchNs}, {"waiting for the device on the host", c.SyncNs}, {"the data loader", c.InputNs}, {"inside graphs", c.GraphNs},
		{"host code beyond dispatching", c.HostNs}, {"submitted, waiting for something else", c.WaitNs}, {"the profiler", c.OverheadNs}, {"unlinked", c.UnlinkedNs},
	} {
		if r.v != 0 {
			grid.Rows = append(grid.Rows, []string{r.name, ns(r.v), shareOf(r.v, d.Window.SpanNs)})
		}
	}
	return analysisSection{title: "What the idle time is due to", grid: grid}
}

func launchSection(d *analysis.Device) analysisSection {
	grid := Grid{Header: []string{"call", "calls", "ops", "sum", "p10", "p50", "p90", "p99", "max"}, Left: 1}
	add := func(name string, s timeline.CallStats) {
		h := s.HostNs
		if h.Count > 0 {
			grid.Rows = append(grid.Rows, []string{name, strconv.Itoa(h.Count), strconv.Itoa(s.Ops), ns(h.SumNs), ns(h.P10Ns), ns(h.P50Ns), ns(h.P90Ns), ns(h.P99Ns), ns(h.MaxNs)})
		}
	}
	l := d.Launches
	if len(l.ByName) != 1 {
		add("all launches", l.All)
	}
	for _, s := range l.ByName {
		add(s.Name, s)
	}
	add("synchronising calls", l.Syncs)
	s := analysisSection{title: "Launches (host time inside the calls)", grid: grid}
	if q := d.Delays.Ns; q.Count > 0 {
		line := fmt.Sprintf("From a call's start to its first op's: p10 %s, p50 %s, p90 %s, p99 %s", ns(q.P10Ns), ns(q.P50Ns), ns(q.P90Ns), ns(q.P99Ns))
		if d.Delays.Negative > 0 {
			line += fmt.Sprintf("; %d are negative, so the clocks disagree", d.Delays.Negative)
		}
		s.after = append(s.after, line)
	}
	if k := d.Short; k.Of > 0 {
		s.after = append(s.after, fmt.Sprintf("%d of %d kernels took the GPU less time than their launch took the host", k.Count, k.Of))
	}
	if g := d.Graphs; g.Launches > 0 {
		line := fmt.Sprintf("Graph launches: %d, of %d to %d ops each, median %d; host time p50 %s", g.Launches, g.MinOps, g.MaxOps, g.MedianOps, ns(g.HostNs.P50Ns))
		if g.Short > 0 {
			line += "; with fewer ops than others of their graph: " + exactly(int64(g.Short), "replay")
		}
		s.after = append(s.after, line)
	}
	if len(grid.Rows) == 0 {
		s.after = append(s.after, "none on record there")
	}
	return s
}

// maxSteps is how many steps are listed.
const maxSteps = 20

func stepsSection(d *analysis.Device) analysisSection {
	grid := Grid{Header: []string{"step", "host", "busy", "of it", "idle", "host_late", "in_api", "after_api", "ops", "launches", "in launches"}, Left: 1}
	for i, s := range d.Steps {
		if i == maxSteps {
			break
		}
		f := s.Within
		grid.Rows = append(grid.Rows, []string{s.Name, ns(s.Host.Ns()), ns(f.BusyNs), shareOf(f.BusyNs, f.SpanNs), ns(f.IdleNs), ns(f.Split.HostLateNs), ns(f.Split.InAPINs), ns(f.Split.AfterAPINs),
			strconv.Itoa(s.Ops), strconv.Itoa(s.Launches), ns(s.LaunchHostNs)})
	}
	out := analysisSection{title: "Steps (busy and idle while the host was in the step; ops and launches that it launched)", grid: grid}
	if n := len(d.Steps); n > maxSteps {
		out.after = append(out.after, fmt.Sprintf("and %d more", n-maxSteps))
	}
	return out
}

// maxNameText is how much of a name a table shows.
const maxNameText = 72

func shortName(s string) string {
	s = plain(s)
	if r := []rune(s); len(r) > maxNameText {
		return string(r[:maxNameText-3]) + "..."
	}
	return s
}

// maxGapName is the same for what stands around a gap.
const maxGapName = 32

func kernelSection(d *analysis.Device) analysisSection {
	grid := Grid{Header: []string{"sum", "of busy", "count", "p50", "max", "kernel"}, LeftEnd: 1}
	for _, k := range d.Kernels {
		g := k.GPUNs
		grid.Rows = append(grid.Rows, []string{ns(g.SumNs), shareOf(g.SumNs, d.Window.BusyNs), strconv.Itoa(g.Count), ns(g.P50Ns), ns(g.MaxNs), shortName(k.Name)})
	}
	return analysisSection{title: "Top kernels, copies and fills", grid: grid}
}

func gapSection(d *analysis.Device) analysisSection {
	grid := Grid{Header: []string{"gap", "host_late", "in_api", "after_api", "unlinked", "surroundings"}, LeftEnd: 1}
	for _, g := range d.Gaps {
		var words []string
		name := func(s string) string {
			if s == "" {
				return "nothing"
			}
			if r := []rune(plain(s)); len(r) > maxGapName {
				return string(r[:maxGapName-3]) + "..."
			}
			return plain(s)
		}
		words = append(words, name(g.Before)+" > "+name(g.After))
		if g.Launch != "" {
			words = append(words, "by "+name(g.Launch))
		}
		if n := len(g.Ranges); n > 0 {
			words = append(words, "in "+name(g.Ranges[n-1]))
		}
		if len(g.Calls) > 0 {
			words = append(words, "beside "+name(g.Calls[0]))
		}
		s := g.Split
		grid.Rows = append(grid.Rows, []string{ns(g.Gap.Ns()), ns(s.HostLateNs), ns(s.InAPINs), ns(s.AfterAPINs), ns(s.UnlinkedNs), strings.Join(words, ", ")})
	}
	return analysisSection{title: "Longest gaps", grid: grid}
}

// ranksTwice are the ranks that more than one file says it is.
func ranksTwice(files []Analysis) []string {
	in := map[int]int{}
	for _, f := range files {
		var own []int
		for i := range f.Devices {
			if r := f.Devices[i].Rank; r != timeline.None && !slices.Contains(own, r) {
				own = append(own, r)
				in[r]++
			}
		}
	}
	var out []string
	for _, r := range slices.Sorted(maps.Keys(in)) {
		if in[r] > 1 {
			out = append(out, fmt.Sprintf("rank %d", r))
		}
	}
	return out
}

// ranksSection sets several files side by side.
func ranksSection(files []Analysis) (analysisSection, bool) {
	if len(files) < 2 {
		return analysisSection{}, false
	}
	grid := Grid{Header: []string{"file", "rank", "device", "window", "length", "busy", "of it", "idle", "verdict"}, Left: 1, LeftEnd: 1}
	for _, f := range files {
		for i := range f.Devices {
			d := &f.Devices[i]
			rank := "-"
			if d.Rank != timeline.None {
				rank = strconv.Itoa(d.Rank)
			}
			grid.Rows = append(grid.Rows, []string{plain(filepath.Base(d.File)), rank, d.ID, d.Over, ns(d.Window.SpanNs), ns(d.Window.BusyNs), shareOf(d.Window.BusyNs, d.Window.SpanNs), ns(d.Window.IdleNs), d.Verdict.Word})
		}
	}
	after := []string{"Each file has clocks of its own, so times of different files are not set against each other."}
	if twice := ranksTwice(files); len(twice) > 0 {
		after = append(after, "Several files say that they are "+strings.Join(twice, ", ")+": these are not the ranks of one job, or some are of another run.")
	}
	for _, f := range files {
		if f.Unread != "" {
			after = append(after, "Left out: "+filepath.Base(f.Timeline.Source)+", which "+f.Unread)
		}
	}
	return analysisSection{title: "All ranks", grid: grid, after: after}, len(grid.Rows) > 0
}
