package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/tech-renaissance/trbench/timeline"
)

// About is what the head and the foot of a picture of traces say. Whoever has
// the traces knows what was run, on what and when: the pictures here see
// timelines and sums alone.
type About struct {
	// Name is the file's name without a suffix; the kind of picture if empty.
	Name string
	// Subtitle has one sentence or more a line, Doubts what must be known before
	// reading a figure, as by how much recording lengthened the step.
	Subtitle, Doubts, Notes []string
}

func (a About) picture(kind, title string) Picture {
	p := Picture{Name: a.Name, Title: title, Subtitle: slices.Clone(a.Subtitle), Doubts: slices.Clone(a.Doubts), Notes: slices.Clone(a.Notes)}
	if p.Name == "" {
		p.Name = kind
	}
	return p
}

// Save writes pictures into dir, which must exist, in the given formats, [PNG]
// and [SVG], each under a temporary name first. It returns the paths.
func Save(dir string, formats []string, pictures []Picture) (files []string, err error) {
	for _, p := range pictures {
		for _, format := range formats {
			path := filepath.Join(dir, p.Name+"."+format)
			if err := WriteFile(path, func(w io.Writer) error { return p.Encode(w, format) }); err != nil {
				return files, err
			}
			files = append(files, path)
		}
	}
	return files, nil
}

// cause is what a device's nanosecond is spent on.
type cause int

const (
	causeBusy cause = iota
	causeLate
	causeAPI
	causeAfter
	causeUnlinked
	causes = int(causeUnlinked) + 1
)

// causeParts are the causes' names and colours, the same in every picture.
// Green is not far from blue to some readers, so the parts have numbers too.
func causeParts() []part {
	return []part{
		{"busy", color.RGBA{0x00, 0x72, 0xb2, 0xff}, false},
		{"host late: launch not begun", color.RGBA{0xe6, 0x9f, 0x00, 0xff}, false},
		{"in the launching call", color.RGBA{0xd5, 0x5e, 0x00, 0xff}, false},
		{"after the call: submitted, not started", color.RGBA{0x00, 0x9e, 0x73, 0xff}, false},
		{"launch not recorded", color.RGBA{0x99, 0x99, 0x99, 0xff}, false},
	}
}

// gapCauses are the parts of a gap in order of time.
func gapCauses(g timeline.Gap) []stretch {
	if g.Launch == timeline.None {
		return []stretch{{timeline.Window{FromNs: g.FromNs, ToNs: g.ToNs}, int(causeUnlinked)}}
	}
	return []stretch{
		{timeline.Window{FromNs: g.FromNs, ToNs: g.LateToNs}, int(causeLate)},
		{timeline.Window{FromNs: g.LateToNs, ToNs: g.APIToNs}, int(causeAPI)},
		{timeline.Window{FromNs: g.APIToNs, ToNs: g.ToNs}, int(causeAfter)},
	}
}

// StepParts is what a traced step's time went to, in ns a step, by the clock of
// the device.
type StepParts struct {
	Batch int
	Label string // the configuration
	// Steps are how many were traced; the parts are means over them.
	Steps                                               int
	BusyNs, HostLateNs, InAPINs, AfterAPINs, UnlinkedNs float64
	// StepTimeNs is the step without recording, 0 if it was not measured.
	StepTimeNs float64
}

// StepBars shows what a step's time goes to, a panel a batch and a bar a
// configuration; an error says why there is nothing to draw.
func StepBars(about About, steps []StepParts) (Picture, error) {
	p := about.picture("trace_parts", "What does a step's time go to on the device, by batch?")
	b := bars{
		parts: causeParts(), mark: "step time without recording",
		xTitle:  "time of a traced step on the device; every batch has its own scale",
		remarks: []remarkColumn{{title: "traced", right: true}, {title: "busy", right: true}, {title: "untraced", right: true}},
	}
	byBatch := map[int]*panel{}
	var batches []int
	bad, unlinked := 0, false
	for _, s := range steps {
		x := bar{label: plain(s.Label), mark: nan(), remarks: []string{"", "-", "-"}}
		ok := true
		for i, v := range []float64{s.BusyNs, s.HostLateNs, s.InAPINs, s.AfterAPINs, s.UnlinkedNs} {
			ok = ok && (v == 0 || drawable(v))
			x.segments = append(x.segments, segment{i, v, nan(), nan()})
		}
		if !ok || !drawable(x.total()) {
			bad++
			continue
		}
		unlinked = unlinked || s.UnlinkedNs > 0
		x.remarks[0] = Duration(x.total())
		x.remarks[1] = percent(s.BusyNs / x.total())
		if drawable(s.StepTimeNs) {
			x.mark, x.remarks[2] = s.StepTimeNs, Duration(s.StepTimeNs)
		}
		if byBatch[s.Batch] == nil {
			byBatch[s.Batch] = &panel{title: fmt.Sprintf("batch %d", s.Batch)}
			batches = append(batches, s.Batch)
		}
		byBatch[s.Batch].bars = append(byBatch[s.Batch].bars, x)
	}
	if len(batches) == 0 {
		return Picture{}, fmt.Errorf("%s is not drawn: no configuration has a traced step with a time above 0", p.Name)
	}
	if !unlinked {
		b.parts = b.parts[:causeUnlinked]
		for _, n := range batches {
			for i := range byBatch[n].bars {
				byBatch[n].bars[i].segments = byBatch[n].bars[i].segments[:causeUnlinked]
			}
		}
	}
	slices.Sort(batches)
	kept, left := choose(batches, maxPanels)
	if left > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d more batches are in the tables.", left))
	}
	for _, n := range kept {
		b.panels = append(b.panels, *byBatch[n])
	}
	if bad > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d configurations have no traced step, or impossible times, and are not drawn.", bad))
	}
	p.setBars(b)
	return p, nil
}

// TracedStep is one step of a configuration, as it was recorded.
type TracedStep struct {
	Label  string
	Index  *timeline.Index
	Device int32
	// Window is the step on the timeline: [timeline.Step]'s GPU, with the host's
	// lead before it if that is to be seen.
	Window timeline.Window
}

// stretch is a piece of a lane in one part.
type stretch struct {
	timeline.Window
	part int
}

// sharesOf divides an axis of so many ns, from the window's begin, into n columns
// and says what share of each column's part of the window each part has.
// Stretches are in order and do not overlap.
func sharesOf(w timeline.Window, length int64, n, parts int, stretches []stretch) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = make([]float64, parts)
	}
	if length <= 0 {
		return out
	}
	at := func(ns int64) float64 { return float64(ns-w.FromNs) / float64(length) * float64(n) }
	for _, s := range stretches {
		from, to := at(max(s.FromNs, w.FromNs)), at(min(s.ToNs, w.ToNs))
		for i := max(0, int(from)); i < n && float64(i) < to; i++ {
			if share := math.Min(to, float64(i+1)) - math.Max(from, float64(i)); share > 0 {
				out[i][s.part] += share
			}
		}
	}
	// The column in which the window ends has as much of it as there is.
	if end := at(w.ToNs); end < float64(n) {
		if rest := end - math.Floor(end); rest > 0 {
			for k := range out[int(end)] {
				out[int(end)][k] /= rest
			}
		}
	}
	return out
}

// deviceLane is what the device does all over the window.
func (s TracedStep) deviceLane() []stretch {
	var out []stretch
	at := s.Window.FromNs
	busy := func(to int64) {
		if to > at {
			out = append(out, stretch{timeline.Window{FromNs: at, ToNs: to}, int(causeBusy)})
		}
	}
	for _, g := range s.Index.DeviceGaps(s.Device, s.Window) {
		busy(g.FromNs)
		out = append(out, gapCauses(g)...)
		at = g.ToNs
	}
	busy(s.Window.ToNs)
	return out
}

// streamLane is where a stream is busy.
func (s TracedStep) streamLane(stream int32) []stretch {
	var out []stretch
	t := s.Index.T
	for _, op := range s.Index.StreamOps(stream) {
		from, to := max(t.Ops[op].StartNs, s.Window.FromNs), min(t.Ops[op].EndNs, s.Window.ToNs)
		if n := len(out); n > 0 && from <= out[n-1].ToNs {
			out[n-1].ToNs = max(out[n-1].ToNs, to)
		} else if to > from {
			out = append(out, stretch{timeline.Window{FromNs: from, ToNs: to}, int(causeBusy)})
		}
	}
	return out
}

// What the host's lane shows, the first of several.
const (
	hostLaunch = iota
	hostSync
	hostCall
	hostParts
)

func hostLaneParts() []part {
	return []part{
		{"launching call", color.RGBA{0xd5, 0x5e, 0x00, 0xff}, false},
		{"blocked in a synchronising call", color.RGBA{0xcc, 0x79, 0xa7, 0xff}, false},
		{"another call", color.RGBA{0xf0, 0xe4, 0x42, 0xff}, false},
	}
}

// hostLane is what the threads that launch on the device do, together.
func (s TracedStep) hostLane() (lane []stretch) {
	t := s.Index.T
	threads := map[int32]bool{}
	ours := map[int32]bool{}
	for _, op := range s.Index.DeviceOps(s.Device) {
		if c := s.Index.Launch[op]; c != timeline.None {
			threads[t.Calls[c].Thread], ours[c] = true, true
		}
	}
	type edge struct {
		at   int64
		part int
		by   int
	}
	var edges []edge
	for i := range t.Calls {
		c := &t.Calls[i]
		if !threads[c.Thread] || c.EndNs <= s.Window.FromNs || c.StartNs >= s.Window.ToNs {
			continue
		}
		part := hostCall
		switch {
		case ours[int32(i)]:
			part = hostLaunch
		case c.Class == timeline.CallSync:
			part = hostSync
		}
		edges = append(edges, edge{max(c.StartNs, s.Window.FromNs), part, 1}, edge{min(c.EndNs, s.Window.ToNs), part, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	var open [hostParts]int
	for i, e := range edges {
		if i > 0 && e.at > edges[i-1].at {
			if part := slices.IndexFunc(open[:], func(n int) bool { return n > 0 }); part >= 0 {
				lane = append(lane, stretch{timeline.Window{FromNs: edges[i-1].at, ToNs: e.at}, part})
			}
		}
		open[e.part] += e.by
	}
	return lane
}
