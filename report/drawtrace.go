package report

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tech-renaissance/trbench/timeline"
)

const (
	// pixel is one of the picture's in points; columns of lanes are as wide, so
	// that their edges are sharp.
	pixel      = 0.75
	laneHeight = 12
	lanePitch  = 15
	deviceLane = 24 // the device's own lane is higher: its causes are to be read
	// wide is how many pixels its columns take where gaps are too many to be
	// seen one by one: shares of a wider column are read more easily.
	wide        = 4
	groupGap    = 12
	laneLabel   = 74
	maxStreams  = 5
	maxTraced   = 6
	histHeight  = 58
	histSummary = 150
)

// lane is a row of a timeline: columns filled by shares, from the bottom.
type lane struct {
	label  string
	height vg.Length
	parts  []part
	first  int // number of the first part
	// coarse lanes have wide columns in crowded pictures.
	coarse bool
	stack  []stretch
}

// group is one configuration in a picture of timelines.
type group struct {
	title, facts string
	summary      []summaryItem
	lanes        []lane
	window       timeline.Window
	gaps         int
	before       bool // some of it was launched before it began
}

type summaryItem struct {
	part int
	text string
}

// StepTimelines shows one step of each configuration on one time axis; an error
// says why there is nothing to draw. Shorter windows are a closer look: from
// 165 gaps in a step on, the device is drawn in shares of wider columns.
func StepTimelines(about About, steps []TracedStep) (Picture, error) {
	p := about.picture("trace_step", "Where does the device wait in a step?")
	var ts timelines
	for _, s := range steps {
		if s.Index == nil || s.Device < 0 || int(s.Device) >= len(s.Index.T.Devices) || s.Window.Ns() <= 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%s has no traced step.", plain(s.Label)))
			continue
		}
		if len(ts.groups) == maxTraced {
			p.Notes = append(p.Notes, fmt.Sprintf("%d of %d configurations are drawn.", maxTraced, len(steps)))
			break
		}
		ts.groups = append(ts.groups, groupOf(s))
		ts.host = ts.host || s.Index.T.Devices[s.Device].Host
	}
	if len(ts.groups) == 0 {
		return Picture{}, fmt.Errorf("%s is not drawn: no configuration has a traced step", p.Name)
	}
	for _, g := range ts.groups {
		ts.length = max(ts.length, g.window.Ns())
	}
	column := float64(ts.length) / float64(ts.columns())
	text := fmt.Sprintf("Each column of a lane, %s wide, is filled by the shares of its time.", Duration(column))
	if ts.crowded() {
		text = fmt.Sprintf("Each column of a lane, %s wide and %s for the device, is filled by the shares of its time.", Duration(column), Duration(wide*column))
	}
	p.Subtitle = append(p.Subtitle, text)
	if slices.ContainsFunc(ts.groups, func(g group) bool { return g.before }) {
		p.Notes = append(p.Notes, "The host's lane is of the same time as the device's: a host that is ahead launches what comes later.")
	}
	p.height, p.body = ts.height(), ts.draw
	return p, nil
}

func groupOf(s TracedStep) group {
	t := s.Index.T
	f := s.Index.DeviceFigures(s.Device, s.Window)
	launches, before := s.launches()
	device := "GPU"
	if t.Devices[s.Device].Host {
		device = "device"
	}
	g := group{
		title: plain(s.Label), window: s.Window, gaps: f.Gaps, before: before,
		facts: fmt.Sprintf("%s; %s, %s", Duration(float64(f.SpanNs)), counted(launches, "launch", "launches"), counted(f.Ops, "operation", "operations")),
		lanes: []lane{
			{"host", laneHeight, hostLaneParts(), causes, false, s.hostLane()},
			{device, deviceLane, causeParts(), 0, true, s.deviceLane()},
		},
	}
	names := []string{"busy", "host late", "in call", "after call", "no launch"}
	for i, ns := range []int64{f.BusyNs, f.Split.HostLateNs, f.Split.InAPINs, f.Split.AfterAPINs, f.Split.UnlinkedNs} {
		if ns > 0 && f.SpanNs > 0 {
			g.summary = append(g.summary, summaryItem{i, names[i] + " " + percent(float64(ns)/float64(f.SpanNs))})
		}
	}
	lanes, note := s.streamLanes()
	g.lanes = append(g.lanes, lanes...)
	g.facts += note
	return g
}

// streamLanes are a lane a stream; or, where a graph spreads its nodes over more
// streams than can be drawn, as many lanes as there are operations at once: each
// goes to the first one that is free. The note says so.
func (s TracedStep) streamLanes() (lanes []lane, note string) {
	t := s.Index.T
	for i := range t.Streams {
		if t.Streams[i].Device != s.Device {
			continue
		}
		stretches := s.streamLane(int32(i))
		if len(stretches) == 0 {
			continue
		}
		name := t.Streams[i].Name
		if name == "" {
			name = "stream " + t.Streams[i].ID
		}
		lanes = append(lanes, lane{plain(name), laneHeight, causeParts(), 0, false, stretches})
	}
	if len(lanes) <= maxStreams {
		return lanes, ""
	}
	note = fmt.Sprintf("; %d streams, drawn by how many work at once", len(lanes))
	packed, more := s.packed()
	lanes = lanes[:0]
	for i, stretches := range packed {
		name := "one more"
		if i == 0 {
			name = "at work"
		}
		lanes = append(lanes, lane{name, laneHeight, causeParts(), 0, false, stretches})
	}
	if more > 0 {
		note += fmt.Sprintf(", %s beyond not drawn", counted(more, "operation", "operations"))
	}
	return lanes, note
}

// launches are how many calls launched the operations that begin in the window,
// and whether some of them began before it.
func (s TracedStep) launches() (n int, before bool) {
	t := s.Index.T
	seen := map[int32]bool{}
	for _, op := range s.Index.DeviceOps(s.Device) {
		c := s.Index.Launch[op]
		if at := t.Ops[op].StartNs; c == timeline.None || at < s.Window.FromNs || at >= s.Window.ToNs || seen[c] {
			continue
		}
		seen[c] = true
		before = before || t.Calls[c].StartNs < s.Window.FromNs
	}
	return len(seen), before
}

// packed puts the device's operations of the window into as few lanes as overlaps
// allow, maxStreams at most, and counts those beyond.
func (s TracedStep) packed() (lanes [][]stretch, more int) {
	t := s.Index.T
	for _, op := range s.Index.DeviceOps(s.Device) {
		from, to := max(t.Ops[op].StartNs, s.Window.FromNs), min(t.Ops[op].EndNs, s.Window.ToNs)
		if to <= from {
			continue
		}
		i := slices.IndexFunc(lanes, func(l []stretch) bool { return l[len(l)-1].ToNs <= from })
		if i < 0 && len(lanes) == maxStreams {
			more++
			continue
		}
		if i < 0 {
			i = len(lanes)
			lanes = append(lanes, nil)
		}
		if n := len(lanes[i]); n > 0 && lanes[i][n-1].ToNs == from {
			lanes[i][n-1].ToNs = to
			continue
		}
		lanes[i] = append(lanes[i], stretch{timeline.Window{FromNs: from, ToNs: to}, int(causeBusy)})
	}
	return lanes, more
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return rounded(float64(n)) + " " + many
}

// timelines is groups of lanes over one axis.
type timelines struct {
	groups []group
	length int64 // ns
	host   bool  // the device is the host
}

// crowded tells whether a device has too many gaps to be seen one by one.
func (ts timelines) crowded() bool {
	return slices.ContainsFunc(ts.groups, func(g group) bool { return g.gaps > ts.columns()/wide })
}

// parts are the causes that occur, and those of the palette before them.
func (ts timelines) parts() []part {
	if slices.ContainsFunc(ts.groups, func(g group) bool {
		return slices.ContainsFunc(g.summary, func(i summaryItem) bool { return i.part == int(causeUnlinked) })
	}) {
		return causeParts()
	}
	return causeParts()[:causeUnlinked]
}

// columns is how many pixels the axis is long.
func (ts timelines) columns() int {
	width := vg.Length(pictureWidth - 2*margin - laneLabel - 8)
	return int(width/pixel) / wide * wide
}

func (ts timelines) height() vg.Length {
	h := vg.Length(2*legendLine + 4 + panelAxis + lineOf(smallStyle()))
	for _, g := range ts.groups {
		h += ts.groupHeight(g)
	}
	return h
}

func (ts timelines) groupHeight(g group) vg.Length {
	h := vg.Length(2*legendLine + groupGap)
	for _, l := range g.lanes {
		h += l.height + lanePitch - laneHeight
	}
	return h
}

func (ts timelines) draw(c draw.Canvas) {
	// The colours: of the device's time first, of the host's behind.
	y := c.Max.Y - 10
	swatches(c, c.Min.X, y, "device:", ts.parts(), 0)
	y -= legendLine
	swatches(c, c.Min.X, y, "host:", hostLaneParts(), causes)

	p := overTime(float64(ts.length), 7)
	left := c.Min.X + laneLabel
	// On a whole pixel, so that columns are.
	left = vg.Length(math.Ceil(float64(left/pixel))) * pixel
	right := left + vg.Length(ts.columns())*pixel
	p.Add(plotter(func(dc draw.Canvas, _ *plot.Plot) {
		top := dc.Max.Y
		for _, g := range ts.groups {
			ts.drawGroup(c, g, left, top)
			top -= ts.groupHeight(g)
		}
	}))
	label := lineOf(smallStyle())
	p.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: left, Y: c.Min.Y + label}, Max: vg.Point{X: right, Y: c.Max.Y - 2*legendLine - 4},
	}})
	s := smallStyle()
	s.XAlign = draw.XCenter
	write(c, s, vg.Point{X: (left + right) / 2, Y: c.Min.Y + 1}, "time since the step's begin")
}

// swatches writes parts with their colours and numbers in a line.
func swatches(c draw.Canvas, x, y vg.Length, title string, parts []part, first int) {
	b := bars{parts: parts}
	write(c, bold(smallStyle()), vg.Point{X: x, Y: y}, title)
	x += max(widthOf(bold(smallStyle()), title)+6, 38)
	for i, p := range parts {
		b.fill(c, i, x, x+12, y, y+10)
		numbered(c, p, first+i, x+6, y+5)
		write(c, smallStyle(), vg.Point{X: x + 15, Y: y}, p.name)
		x += 15 + widthOf(smallStyle(), p.name) + 10
	}
}

// numbered writes a part's number, which counts on from those before.
func numbered(c draw.Canvas, p part, i int, x, y vg.Length) {
	s := textStyle(7.5, ink)
	if luminance(p.color) < 0.25 {
		s.Color = ground
	}
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	write(c, s, vg.Point{X: x, Y: y}, strconv.Itoa(i+1))
}

func (ts timelines) drawGroup(c draw.Canvas, g group, left, top vg.Length) {
	n := ts.columns()
	y := top - legendLine
	title := fit(g.title, bold(smallStyle()), 200)
	write(c, bold(smallStyle()), vg.Point{X: c.Min.X, Y: y}, title)
	write(c, quietStyle(), vg.Point{X: c.Min.X + widthOf(bold(smallStyle()), title) + 8, Y: y}, g.facts)
	y -= legendLine
	x := left
	parts := causeParts()
	b := bars{parts: parts}
	for _, it := range g.summary {
		b.fill(c, it.part, x, x+12, y+1, y+10)
		numbered(c, parts[it.part], it.part, x+6, y+5.5)
		write(c, smallStyle(), vg.Point{X: x + 15, Y: y}, it.text)
		x += 15 + widthOf(smallStyle(), it.text) + 12
	}
	y -= 3
	end := left + vg.Length(math.Ceil(float64(n)*float64(g.window.Ns())/float64(ts.length)))*pixel
	for _, l := range g.lanes {
		bottom := y - l.height
		s := smallStyle()
		s.XAlign, s.YAlign = draw.XRight, draw.YCenter
		write(c, s, vg.Point{X: left - 6, Y: y - l.height/2}, fit(l.label, s, laneLabel-6))
		c.FillPolygon(laneGround, rectangle(left, end, bottom, y))
		pixels := 1
		if l.coarse && ts.crowded() {
			pixels = wide
		}
		l.draw(c, left, end, bottom, vg.Length(pixels)*pixel, sharesOf(g.window, ts.length, n/pixels, len(l.parts), l.stack))
		y = bottom - (lanePitch - laneHeight)
	}
}

func rectangle(x0, x1, y0, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// draw fills a lane's columns, a polygon a part and run of columns: a rectangle a
// column would make an SVG of megabytes.
func (l lane) draw(c draw.Canvas, left, right, bottom, width vg.Length, cols [][]float64) {
	below := make([]float64, len(cols))
	for part := range l.parts {
		for i := 0; i < len(cols); {
			if cols[i][part] <= 0 {
				i++
				continue
			}
			var up, down []vg.Point
			from := i
			for ; i < len(cols) && cols[i][part] > 0; i++ {
				lo := bottom + l.height*vg.Length(math.Min(1, below[i]))
				hi := bottom + l.height*vg.Length(math.Min(1, below[i]+cols[i][part]))
				x0, x1 := left+vg.Length(i)*width, min(right, left+vg.Length(i+1)*width)
				up = append(up, vg.Point{X: x0, Y: hi}, vg.Point{X: x1, Y: hi})
				down = append(down, vg.Point{X: x0, Y: lo}, vg.Point{X: x1, Y: lo})
			}
			slices.Reverse(down)
			c.FillPolygon(l.parts[part].color, append(up, down...))
			// A number where a part has a place to itself.
			l.numberRun(c, part, from, i, left, bottom, width, cols)
		}
		for i := range cols {
			below[i] += cols[i][part]
		}
	}
}

func (l lane) numberRun(c draw.Canvas, part, from, to int, left, bottom, width vg.Length, cols [][]float64) {
	const need = 10 // points
	start := from
	for i := from; i <= to; i++ {
		if i < to && cols[i][part] > 0.9 {
			continue
		}
		if vg.Length(i-start)*width >= need {
			numbered(c, l.parts[part], l.first+part, left+vg.Length(start+i)/2*width, bottom+l.height/2)
		}
		start = i + 1
	}
}

// GapSet is the gaps of a configuration's traced steps.
type GapSet struct {
	Label string
	// Gaps are as [timeline.Index.DeviceGaps] gives them; Steps is how many
	// steps they are of.
	Gaps  []timeline.Gap
	Steps int
}

// GapLengths shows how long gaps are and how much idle time those of a length
// make, a panel a configuration.
func GapLengths(about About, sets []GapSet) (Picture, error) {
	p := about.picture("trace_gaps", "How long are the gaps, and how much idle time do they make?")
	var h histograms
	for _, s := range sets {
		if s.Steps <= 0 || len(s.Gaps) == 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%s has no gap on record.", plain(s.Label)))
			continue
		}
		if len(h.rows) == maxTraced {
			p.Notes = append(p.Notes, fmt.Sprintf("%d of %d configurations are drawn.", maxTraced, len(sets)))
			break
		}
		h.rows = append(h.rows, histogramOf(s))
	}
	if len(h.rows) == 0 {
		return Picture{}, errors.New(p.Name + " is not drawn: no configuration has a gap on record")
	}
	if h.reach() {
		p.Notes = append(p.Notes, "Gaps so short that together they make less than 0.1% of the idle time are not drawn; the figures on the right have them.")
	}
	p.Subtitle = append(p.Subtitle, "A bar is as high as the idle time that gaps of its length make together in a step, by what they waited for.")
	p.height, p.body = h.height(), h.draw
	return p, nil
}

// histogram is a configuration's gaps by length: idle time a step by cause.
type histogram struct {
	label   string
	facts   []string
	buckets map[int][]float64 // by bucket, by cause
}

// A bucket is a third of a factor of two: ten a decade.
const perDoubling = 3

func bucketOf(ns int64) int { return int(math.Floor(math.Log2(float64(ns)) * perDoubling)) }

func bucketFrom(i int) float64 { return math.Exp2(float64(i) / perDoubling) }

func histogramOf(s GapSet) histogram {
	h := histogram{label: plain(s.Label), buckets: map[int][]float64{}}
	lengths := make([]int64, 0, len(s.Gaps))
	for _, g := range s.Gaps {
		if g.Ns() <= 0 {
			continue
		}
		lengths = append(lengths, g.Ns())
		i := bucketOf(g.Ns())
		if h.buckets[i] == nil {
			h.buckets[i] = make([]float64, causes)
		}
		for _, part := range gapCauses(g) {
			h.buckets[i][part.part] += float64(part.Ns()) / float64(s.Steps)
		}
	}
	d := timeline.Distribute(lengths)
	h.facts = []string{
		counted(int(math.Round(float64(d.Count)/float64(s.Steps))), "gap", "gaps") + " a step",
		Duration(float64(d.SumNs)/float64(s.Steps)) + " idle a step",
		"median " + Duration(float64(d.P50Ns)) + ", p99 " + Duration(float64(d.P99Ns)),
	}
	return h
}

// histograms share both axes.
type histograms struct {
	rows   []histogram
	lo, hi int     // buckets
	top    float64 // the highest bar
}

// reach finds the axes' ends, and tells whether gaps are left out because they
// are too short to be seen: those that together make less than a thousandth of
// the idle time in every row. They would give half the picture to nothing.
func (h *histograms) reach() (leftOut bool) {
	h.lo, h.hi = math.MaxInt, math.MinInt
	for _, r := range h.rows {
		total, below := 0.0, 0.0
		for i, parts := range r.buckets {
			h.hi = max(h.hi, i)
			h.top = max(h.top, sumOf(parts))
			total += sumOf(parts)
		}
		for k, i := range slices.Sorted(maps.Keys(r.buckets)) {
			if below += sumOf(r.buckets[i]); below >= total/1000 {
				h.lo = min(h.lo, i)
				leftOut = leftOut || k > 0
				break
			}
		}
	}
	// Room for two ticks at least.
	for h.hi-h.lo < 8 {
		h.lo, h.hi = h.lo-1, h.hi+1
	}
	return leftOut
}

// unlinked tells whether a gap's launch is not on record.
func (h *histograms) unlinked() bool {
	for _, r := range h.rows {
		for _, parts := range r.buckets {
			if parts[causeUnlinked] > 0 {
				return true
			}
		}
	}
	return false
}

func sumOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

func (h *histograms) height() vg.Length {
	return vg.Length(len(h.rows))*(histHeight+groupGap+legendLine) - groupGap + legendLine + 6 + panelAxis + lineOf(smallStyle())
}

func (h *histograms) draw(c draw.Canvas) {
	parts := causeParts()
	// Without busy, which no gap is.
	x := c.Min.X
	y := c.Max.Y - 10
	b := bars{parts: parts}
	for i := int(causeLate); i < causes; i++ {
		if i == int(causeUnlinked) && !h.unlinked() {
			continue
		}
		b.fill(c, i, x, x+12, y, y+10)
		numbered(c, parts[i], i, x+6, y+5)
		write(c, smallStyle(), vg.Point{X: x + 15, Y: y}, parts[i].name)
		x += 15 + widthOf(smallStyle(), parts[i].name) + 12
	}
	u := timeUnit(h.top)
	v := linearAxis([]float64{h.top / u.by})
	v.ticks = linearTicks(0, v.hi, 3)
	top := c.Max.Y - legendLine - 6
	const left = 44
	for k, r := range h.rows {
		write(c, bold(smallStyle()), vg.Point{X: c.Min.X, Y: top - legendLine + 3}, fit(r.label, bold(smallStyle()), 300))
		last := k == len(h.rows)-1
		p := newPlot()
		axis{lo: bucketFrom(h.lo), hi: bucketFrom(h.hi + 1), log: true, ticks: lengthTicks(bucketFrom(h.lo), bucketFrom(h.hi+1), last)}.apply(&p.X)
		axis{hi: v.hi, ticks: v.ticks}.apply(&p.Y)
		p.Add(grid{x: true, y: true})
		p.Add(plotter(func(dc draw.Canvas, p *plot.Plot) {
			trX, trY := p.Transforms(&dc)
			for i := h.lo; i <= h.hi; i++ {
				below := 0.0
				for part, ns := range r.buckets[i] {
					if ns <= 0 {
						continue
					}
					x0, x1 := trX(bucketFrom(i)), trX(bucketFrom(i+1))
					y0, y1 := trY(below/u.by), trY((below+ns)/u.by)
					b.fill(dc, part, x0, x1, y0, y1)
					if y1-y0 > 8 && x1-x0 > 7 {
						numbered(dc, parts[part], part, (x0+x1)/2, (y0+y1)/2)
					}
					below += ns
				}
			}
		}))
		h2 := vg.Length(histHeight)
		if last {
			h2 += panelAxis
		} else {
			h2 += 6
		}
		area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: c.Min.X, Y: top - legendLine - h2}, Max: vg.Point{X: c.Max.X - histSummary, Y: top - legendLine},
		}}
		p.Y.Label.Text = unkerned("idle (" + u.name + ")")
		p.Draw(area)
		for i, f := range r.facts {
			write(c, smallStyle(), vg.Point{X: c.Max.X - histSummary + 10, Y: top - legendLine - 12 - vg.Length(i)*13}, f)
		}
		top -= histHeight + groupGap + legendLine
	}
	s := smallStyle()
	s.XAlign = draw.XCenter
	write(c, s, vg.Point{X: c.Min.X + left + (c.Max.X-histSummary-c.Min.X-left)/2, Y: c.Min.Y + 1}, "length of a gap")
}

// lengthTicks are decades, and 2 and 5 of them where there is room, with units.
func lengthTicks(lo, hi float64, labels bool) []plot.Tick {
	ticks := logTicks(lo, hi)
	for i := range ticks {
		if ticks[i].Label == "" {
			continue
		}
		u := timeUnit(ticks[i].Value)
		ticks[i].Label = unkerned(tickText(ticks[i].Value/u.by) + " " + u.name)
		if !labels {
			ticks[i].Label = " "
		}
	}
	return ticks
}
