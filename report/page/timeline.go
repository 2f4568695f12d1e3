package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/timeline"
)

// Timeline is one recorded step of one configuration, as the page's script draws
// it: lanes of spans over one axis, and the gaps of the device with their causes.
// All times are nanoseconds of the recording's axis.
//
// Spans and gaps lie in columns of equal length rather than in objects, as a step
// has thousands of them and the page counts bytes.
type Timeline struct {
	// Cell and Configuration say what ran, in the words of the tables.
	Cell          string `json:"cell"`
	Configuration string `json:"configuration"`
	// Source names the recording.
	Source string `json:"source"`
	// Facts are figures of the step, in words; Doubts must be read before them.
	Facts  []string `json:"facts"`
	Doubts []string `json:"doubts"`
	// Names are the texts that spans and gaps refer to by their place.
	Names []string `json:"names"`
	// The step is from 0, where its first device work starts, to LengthNs, where
	// the next step's does: the traced step of the tables. FromNs, at most 0, is
	// where what is drawn begins, so that the launches ahead of the work are seen.
	FromNs   int64 `json:"from_ns"`
	LengthNs int64 `json:"length_ns"`
	// Host says that the device is the host itself.
	Host  bool   `json:"host"`
	Lanes []Lane `json:"lanes"`
	Gaps  Gaps   `json:"gaps"`
}

// Lane is a stream or a host thread, or one of several rows of these where spans
// overlap: spans that do not overlap, in the order of their starts.
type Lane struct {
	Title string `json:"title"`
	// Clock is device or host: the two never share a lane.
	Clock    string  `json:"clock"`
	StartNs  []int64 `json:"start_ns"`
	LengthNs []int64 `json:"length_ns"`
	// Name is a place in Names and Kind one in [SpanKinds].
	Name []int `json:"name"`
	Kind []int `json:"kind"`
}

// Gaps are the stretches in which the device had no work, in order. Each has four
// parts, which follow each other in time and sum to it, as [timeline.Gap] has
// them; LateNs, APINs and AfterNs are 0 where UnlinkedNs is not.
type Gaps struct {
	StartNs    []int64 `json:"start_ns"`
	LateNs     []int64 `json:"late_ns"`
	APINs      []int64 `json:"api_ns"`
	AfterNs    []int64 `json:"after_ns"`
	UnlinkedNs []int64 `json:"unlinked_ns"`
	// InGraph is 1 where AfterNs is between work of one graph launch.
	InGraph []int `json:"in_graph"`
	// Doing is what the launching thread did for most of LateNs, by place in
	// Names, and DoingNs for how long.
	Doing   []int   `json:"doing"`
	DoingNs []int64 `json:"doing_ns"`
	// Before and After are the work on either side, by place in Names.
	Before []int `json:"before"`
	After  []int `json:"after"`
}

// Kinds of spans.
const (
	spanKernel = iota
	spanCopy
	spanGraph
	spanLaunch
	spanSync
	spanCall
	spanFeed
	spanRange
)

// SpanKinds are the kinds of spans in words.
func SpanKinds() []string {
	return []string{"kernel", "copy or fill", "graph replay as one", "launching call", "blocking call", "other call", "feeding input", "library or named range"}
}

// GapCauses are the parts of a gap in words, in order of time.
func GapCauses() []string {
	return []string{"host late: launch not begun", "in the launching call", "after the call: submitted, not started", "launch not recorded"}
}

// What is drawn at most.
const (
	maxLead    = 0.25   // of the step's length, before it
	maxStreams = 12     // lanes of streams
	maxRows    = 3      // rows of a lane with overlaps
	maxSpans   = 40_000 // spans and gaps of one step
)

// Subject says whose step a timeline is to be of.
type Subject struct {
	// Cell, Configuration and Source are the timeline's.
	Cell, Configuration, Source string
	// Steps are how many of the recorded steps are kept in the record; those
	// around them are not drawn. 0 is unknown.
	Steps int
	// Facts and Doubts are the record's.
	Facts, Doubts []string
}

// NewTimeline makes the timeline of one step of a recording: of its first device,
// the kept step whose length is the median, or of two the shorter one. An error
// says why there is none.
func NewTimeline(x *timeline.Index, s Subject) (*Timeline, error) {
	t := x.T
	device := int32(slices.IndexFunc(t.Devices, func(d timeline.Device) bool { return d.ID == "0" }))
	if device < 0 {
		device = 0
	}
	if len(t.Devices) == 0 || len(x.DeviceOps(device)) == 0 {
		return nil, fmt.Errorf("it has no device work with times")
	}
	step, window, ok := typicalStep(x.Steps(device), s.Steps)
	if !ok {
		return nil, fmt.Errorf("it has no two steps with device work, so none has an end")
	}
	b := builder{x: x, device: device, origin: window.FromNs, names: map[string]int{}, out: &Timeline{
		Cell: s.Cell, Configuration: s.Configuration, Source: s.Source, Doubts: s.Doubts, LengthNs: window.Ns(), Host: t.Devices[device].Host,
	}}
	b.drawn = timeline.Window{FromNs: window.FromNs - b.lead(step), ToNs: window.ToNs}
	b.out.FromNs = b.drawn.FromNs - b.origin
	b.host()
	b.gaps()
	b.streams()
	if b.spans > maxSpans {
		return nil, fmt.Errorf("a step of %d events is more than a page can draw (%d)", b.spans, maxSpans)
	}
	b.facts(window, step, s)
	return b.out, nil
}

// typicalStep is the step to draw, with its window on the device: from its first
// work to the next step's.
func typicalStep(steps []timeline.Step, kept int) (timeline.Step, timeline.Window, bool) {
	type candidate struct {
		step   timeline.Step
		window timeline.Window
	}
	var list []candidate
	for i := range len(steps) - 1 {
		w := timeline.Window{FromNs: steps[i].GPU.FromNs, ToNs: steps[i+1].GPU.FromNs}
		if steps[i].Ops > 0 && steps[i+1].Ops > 0 && w.Ns() > 0 {
			list = append(list, candidate{steps[i], w})
		}
	}
	// The last step ends none that is kept; what else is recorded beside the kept
	// ones goes before them.
	if extra := len(list) - kept; kept > 0 && extra > 0 {
		list = list[extra:]
	}
	if len(list) == 0 {
		return timeline.Step{}, timeline.Window{}, false
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.window.Ns(), b.window.Ns()) })
	c := list[(len(list)-1)/2]
	return c.step, c.window, true
}

// builder fills a timeline.
type builder struct {
	x      *timeline.Index
	device int32
	origin int64 // what is 0 in out
	drawn  timeline.Window
	names  map[string]int
	spans  int
	out    *Timeline
}

// maxName cuts names of templates of templates.
const maxName = 160

func (b *builder) name(s string) int {
	i, ok := b.names[s]
	if !ok {
		i = len(b.out.Names)
		shown := []rune(report.Plain(s))
		if len(shown) > maxName {
			shown = append(shown[:maxName-3], []rune("...")...)
		}
		b.names[s], b.out.Names = i, append(b.out.Names, string(shown))
	}
	return i
}

// lead is how long before its first device work a step began to launch, as far
// as that is drawn.
func (b *builder) lead(s timeline.Step) int64 {
	t := b.x.T
	first := b.origin
	for _, op := range b.x.DeviceOps(b.device) {
		if c := b.x.Launch[op]; c != timeline.None && t.Calls[c].StartNs >= s.Host.FromNs && t.Calls[c].StartNs < s.Host.ToNs {
			first = min(first, t.Calls[c].StartNs)
		}
	}
	return min(b.origin-first, int64(maxLead*float64(b.out.LengthNs)))
}

// span is one as recorded.
type span struct {
	from, to   int64
	name, kind int
}

// lanes adds spans in as few rows as overlaps allow, most at most; what fits in none
// of them is counted in a note.
func (b *builder) lanes(title, clock string, spans []span, most int) {
	slices.SortStableFunc(spans, func(p, q span) int { return cmp.Or(cmp.Compare(p.from, q.from), cmp.Compare(q.to, p.to)) })
	var rows []Lane
	var ends []int64
	over := 0
	for _, s := range spans {
		from, to := max(s.from, b.drawn.FromNs), min(s.to, b.drawn.ToNs)
		if to < from || to == from && s.to > s.from {
			continue
		}
		row := slices.IndexFunc(ends, func(end int64) bool { return end <= from })
		if row < 0 {
			if len(rows) == most {
				over++
				continue
			}
			row = len(rows)
			rows, ends = append(rows, Lane{Clock: clock}), append(ends, 0)
			if row == 0 {
				rows[0].Title = title
			}
		}
		r := &rows[row]
		r.StartNs, r.LengthNs = append(r.StartNs, from-b.origin), append(r.LengthNs, to-from)
		r.Name, r.Kind = append(r.Name, s.name), append(r.Kind, s.kind)
		ends[row] = to
		b.spans++
	}
	b.out.Lanes = append(b.out.Lanes, rows...)
	if over > 0 {
		b.out.Doubts = append(b.out.Doubts, fmt.Sprintf("%d overlapping spans of %s are not drawn.", over, title))
	}
}

// within tells whether something touches what is drawn.
func (b *builder) within(from, to int64) bool { return to >= b.drawn.FromNs && from < b.drawn.ToNs }

// host adds the threads that launch on the device: their calls, and what they
// did beside.
func (b *builder) host() {
	t := b.x.T
	launches, threads := map[int32]bool{}, map[int32]bool{}
	for _, op := range b.x.DeviceOps(b.device) {
		if c := b.x.Launch[op]; c != timeline.None {
			launches[c], threads[t.Calls[c].Thread] = true, true
		}
	}
	for thread := range int32(len(t.Threads)) {
		if !threads[thread] {
			continue
		}
		title := "host"
		if len(threads) > 1 {
			title = "host " + cmp.Or(t.Threads[thread].Name, t.Threads[thread].ID)
		}
		var calls, beside []span
		for i := range t.Calls {
			c := &t.Calls[i]
			if c.Thread != thread || !b.within(c.StartNs, c.EndNs) {
				continue
			}
			kind := spanCall
			switch {
			case launches[int32(i)]:
				kind = spanLaunch
			case c.Class == timeline.CallSync:
				kind = spanSync
			}
			calls = append(calls, span{c.StartNs, c.EndNs, b.name(t.Text(c.Name)), kind})
		}
		for i := range t.Ranges {
			r := &t.Ranges[i]
			if r.Thread != thread || r.EndNs == r.StartNs || !b.within(r.StartNs, r.EndNs) {
				continue
			}
			switch r.Class {
			case timeline.RangeFeed:
				beside = append(beside, span{r.StartNs, r.EndNs, b.name(t.Text(r.Name)), spanFeed})
			case timeline.RangeUser, timeline.RangeOperator:
				beside = append(beside, span{r.StartNs, r.EndNs, b.name(t.Text(r.Name)), spanRange})
			}
		}
		b.lanes(title+" calls", "host", calls, maxRows)
		b.lanes(title+" work", "host", beside, maxRows)
	}
}

// streams adds a lane for each stream with work; or, where a graph spreads its
// nodes over more streams than have room, as many lanes as work at once.
func (b *builder) streams() {
	t := b.x.T
	var titles []string
	var of [][]span
	for i := range t.Streams {
		if t.Streams[i].Device != b.device {
			continue
		}
		var spans []span
		for _, op := range b.x.StreamOps(int32(i)) {
			o := &t.Ops[op]
			if !b.within(o.StartNs, o.EndNs) {
				continue
			}
			kind := spanKernel
			switch o.Kind {
			case timeline.Copy, timeline.Fill:
				kind = spanCopy
			case timeline.Envelope:
				kind = spanGraph
			}
			spans = append(spans, span{o.StartNs, o.EndNs, b.name(t.Text(o.Name)), kind})
		}
		if len(spans) == 0 {
			continue
		}
		titles, of = append(titles, cmp.Or(report.Plain(t.Streams[i].Name), "stream "+report.Plain(t.Streams[i].ID))), append(of, spans)
	}
	if len(of) > maxStreams {
		b.out.Facts = append(b.out.Facts, fmt.Sprintf("%d streams, drawn by how many work at once", len(of)))
		b.lanes("at work", "device", slices.Concat(of...), maxStreams)
		return
	}
	for i, spans := range of {
		b.lanes(titles[i], "device", spans, maxRows)
	}
}

// gaps adds the device's gaps.
func (b *builder) gaps() {
	t, g := b.x.T, &b.out.Gaps
	opName := func(op int32) int {
		if op == timeline.None {
			return b.name("nothing")
		}
		return b.name(t.Text(t.Ops[op].Name))
	}
	for _, gap := range b.x.DeviceGaps(b.device, b.drawn) {
		s := b.x.SplitOf(gap)
		g.StartNs = append(g.StartNs, gap.FromNs-b.origin)
		g.LateNs, g.APINs = append(g.LateNs, s.HostLateNs), append(g.APINs, s.InAPINs)
		g.AfterNs, g.UnlinkedNs = append(g.AfterNs, s.AfterAPINs), append(g.UnlinkedNs, s.UnlinkedNs)
		inGraph := 0
		if gap.InGraph {
			inGraph = 1
		}
		doing, ns := mostly(s.Late)
		g.InGraph, g.Doing, g.DoingNs = append(g.InGraph, inGraph), append(g.Doing, b.name(doing)), append(g.DoingNs, ns)
		g.Before, g.After = append(g.Before, opName(gap.Before)), append(g.After, opName(gap.After))
		b.spans++
	}
}

// mostly is what the host did for the largest part of the time that it was late.
func mostly(h timeline.HostLate) (what string, ns int64) {
	for _, p := range []struct {
		what string
		ns   int64
	}{
		{"blocked in a synchronising call", h.SyncNs}, {"feeding input", h.FeedNs}, {"another call", h.CallNs},
		{"a library", h.OperatorNs}, {"a named range", h.UserNs}, {"an interpreter", h.PythonNs}, {"the profiler itself", h.OverheadNs},
		{"nothing on record", h.NothingNs},
	} {
		if p.ns > ns {
			what, ns = p.what, p.ns
		}
	}
	return what, ns
}

// facts says what the step comes to: figures of the step alone, not of what is
// drawn before it.
func (b *builder) facts(w timeline.Window, step timeline.Step, s Subject) {
	f := b.x.DeviceFigures(b.device, w)
	share := func(ns int64) string { return report.Percent(float64(ns) / float64(max(f.SpanNs, 1))) }
	out := []string{
		fmt.Sprintf("traced step %s", report.Duration(float64(f.SpanNs))),
		fmt.Sprintf("%d kernels, %d launches, %d gaps", step.Kernels, step.Launches, f.Gaps),
		fmt.Sprintf("busy %s", share(f.BusyNs)),
	}
	for i, ns := range []int64{f.Split.HostLateNs, f.Split.InAPINs, f.Split.AfterAPINs, f.Split.UnlinkedNs} {
		if ns > 0 {
			name, _, _ := strings.Cut(GapCauses()[i], ":")
			out = append(out, name+" "+share(ns))
		}
	}
	b.out.Facts = slices.Concat(out, b.out.Facts, s.Facts)
	if n := len(b.x.T.Devices); n > 1 {
		b.out.Facts = append(b.out.Facts, fmt.Sprintf("of device %s, one of %d", report.Plain(b.x.T.Devices[b.device].ID), n))
	}
}

// maxLongest is how many of a step's gaps the page's table has.
const maxLongest = 8

// longest is the table of a timeline's longest gaps.
func (t *Timeline) longest() report.Grid {
	g := report.Grid{Header: []string{"starts at", "gap", "host late", "in call", "after call", "unlinked", "host was mostly in", "after", "before"}, LeftEnd: 3}
	length := func(i int) int64 {
		return t.Gaps.LateNs[i] + t.Gaps.APINs[i] + t.Gaps.AfterNs[i] + t.Gaps.UnlinkedNs[i]
	}
	var order []int // those of the step itself
	for i, start := range t.Gaps.StartNs {
		if start >= 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(length(b), length(a)) })
	for _, i := range order[:min(len(order), maxLongest)] {
		ns := func(v int64) string { return report.SignedDuration(float64(v)) }
		doing := "-"
		if t.Gaps.DoingNs[i] > 0 {
			doing = t.Names[t.Gaps.Doing[i]] + ", " + ns(t.Gaps.DoingNs[i])
		}
		g.Rows = append(g.Rows, []string{
			ns(t.Gaps.StartNs[i]), ns(length(i)), ns(t.Gaps.LateNs[i]), ns(t.Gaps.APINs[i]), ns(t.Gaps.AfterNs[i]), ns(t.Gaps.UnlinkedNs[i]),
			doing, t.Names[t.Gaps.Before[i]], t.Names[t.Gaps.After[i]],
		})
	}
	return g
}

// group is the timelines of one cell, on one axis.
type group struct {
	ID, Cell string
	// First is the place of its first timeline in the page's data.
	First     int
	Timelines []Timeline
}

// groups are timelines by cell. Those of a cell must follow each other.
func groups(list []Timeline) (out []group) {
	for i, t := range list {
		if n := len(out); n == 0 || out[n-1].Cell != t.Cell {
			out = append(out, group{ID: fmt.Sprintf("timeline-%d", len(out)), Cell: t.Cell, First: i})
		}
		g := &out[len(out)-1]
		g.Timelines = append(g.Timelines, t)
	}
	return out
}
