package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tech-renaissance/trbench/results"
)

// leastTrend is the least range of a trend's axis, as a factor: noise below it
// does not fill the picture.
const leastTrend = 1.04

// maxTrendGlyphs is up to how many nights each has a glyph of its own.
const maxTrendGlyphs = 150

// Trend is a picture of a row over nights: its change points, each with what was
// said of it, the mean of each level, and the last nights, which are provisional.
// What about has beside the row stands below the title. A series without a value
// that can be drawn is none; why says so. A change's index may lie before the
// series, where only its last nights are handed in.
func Trend(s results.Series, changes []results.Change, about About) (p Picture, why string) {
	by := unit{"", 1}
	var values []float64
	left := 0
	for _, q := range s.Points {
		if drawable(q.Value) {
			values = append(values, q.Value)
		} else {
			left++
		}
	}
	if len(values) == 0 {
		return p, fmt.Sprintf("%s has no value that can be drawn", s.Row)
	}
	if s.Unit == "ns" {
		by = timeUnit(slices.Max(values))
	}
	var nights []point
	for i, q := range s.Points {
		if drawable(q.Value) {
			at := pointOf(nightOf(s, i), figure{value: q.Value}, by.by)
			at.text = dayOf(q)
			nights = append(nights, at)
		}
	}
	p = about.picture("trend", plain(s.Row.Metric)+" over nights")
	p.Subtitle = append([]string{plain(s.Row.String()),
		fmt.Sprintf("%s, %s to %s. Each the median over processes; the line is the mean between change points.",
			CountWord(len(s.Points), "night"), dayOf(s.Points[0]), dayOf(s.Points[len(s.Points)-1]))}, p.Subtitle...)
	if left > 0 {
		p.undrawn(left, "night")
	}
	all := make([]float64, len(values))
	for i, v := range values {
		all[i] = v / by.by
	}
	title := plain(s.Unit)
	if by.name != "" {
		title = by.name
	}
	looks := looks()
	l := lines{
		xTitle: "night", yTitle: title, xName: "night", yName: title,
		x: func(vg.Length) axis { return nightAxis(nights) },
		y: logAxis(all, leastTrend),
	}
	l.series = []series{
		{label: "mean", look: look{color: looks[0].color}, bare: true, level: true, points: levels(s, changes, by.by)},
		{label: "nights", look: look{color: looks[2].color, glyph: draw.CircleGlyph{}}, points: nights, small: len(nights) > maxTrendGlyphs},
	}
	for _, c := range changes {
		if c.Index > 0 {
			l.marks = append(l.marks, mark{x: nightOf(s, c.Index) - .5, text: changeText(c), quiet: !c.Unheeded()})
		}
	}
	l.bands = []band{{from: nightOf(s, max(0, len(s.Points)-results.Tail)) - .5, to: nightOf(s, len(s.Points)-1) + .5, text: "provisional"}}
	p.set(l)
	asData := p.chart
	p.chart = func() Chart {
		c := asData()
		c.Table = trendTable(s, by, title)
		return c
	}
	return p, ""
}

// trendTable has the nights, the last one first.
func trendTable(s results.Series, by unit, title string) Grid {
	g := Grid{Header: []string{"night", "date", title}, Left: 0}
	for i, q := range slices.Backward(s.Points) {
		g.Rows = append(g.Rows, []string{tickText(nightOf(s, i)), dayOf(q), fine(q.Value / by.by)})
	}
	return g
}

func dayOf(q results.Point) string { return q.Created.UTC().Format("2006-01-02") }

// CountWord is a number with its noun, which takes an s.
func CountWord(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// nightOf is where a point stands: at its night's number, or its place where it
// has none.
func nightOf(s results.Series, i int) float64 {
	if n := s.Points[i].Sequence; n > 0 {
		return float64(n)
	}
	return float64(i + 1)
}

// changeText names a change point; a ? stands behind one that the next nights
// may take back.
func changeText(c results.Change) string {
	text := fmt.Sprintf("%s %s", plain(c.ID), changeOf(c.After/c.Before))
	switch c.State {
	case results.Provisional:
		text += "?"
	case results.Acknowledged:
		text += " acknowledged"
	case results.Expired:
		text += " no longer acknowledged"
	}
	return text
}

// levels is the mean between change points, as steps.
func levels(s results.Series, changes []results.Change, by float64) []point {
	at := func(x, y float64) point {
		return point{x: x, y: y / by, low: math.NaN(), high: math.NaN(), of: figure{value: y}}
	}
	begin, end := nightOf(s, 0), nightOf(s, len(s.Points)-1)
	if len(changes) == 0 {
		sum, n := 0.0, 0
		for _, q := range s.Points {
			if drawable(q.Value) {
				sum, n = sum+q.Value, n+1
			}
		}
		mean := sum / float64(n)
		return []point{at(begin, mean), at(end, mean)}
	}
	level := 0.0
	var out []point
	for _, c := range changes {
		if c.Index > 0 {
			if len(out) == 0 {
				out = append(out, at(begin, c.Before))
			}
			x := nightOf(s, c.Index) - .5
			out = append(out, at(x, c.Before), at(x, c.After))
		}
		level = c.After
	}
	if len(out) == 0 {
		out = append(out, at(begin, level))
	}
	return append(out, at(end, level))
}

// nightAxis has whole numbers as ticks.
func nightAxis(points []point) axis {
	lo, hi := points[0].x-.5, points[len(points)-1].x+.5
	ticks := linearTicks(lo, hi, 8)
	ticks = slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value != math.Round(t.Value) || t.Value < 1 })
	if len(ticks) == 0 {
		ticks = []plot.Tick{{Value: points[0].x, Label: fmt.Sprintf("%.0f", points[0].x)}}
	}
	return axis{lo: lo, hi: hi, ticks: ticks}
}

// mark is a place on the x axis with a word; quiet for one that nobody has to
// look at.
type mark struct {
	x     float64
	text  string
	quiet bool
}

// band is a range of the x axis with a word.
type band struct {
	from, to float64
	text     string
}

func (b band) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	from, to := max(trX(max(b.from, p.X.Min)), c.Min.X), min(trX(min(b.to, p.X.Max)), c.Max.X)
	if to <= from {
		return
	}
	c.FillPolygon(laneGround, []vg.Point{{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: from, Y: c.Max.Y}})
	style := noteStyle()
	style.XAlign = draw.XRight
	write(c, style, vg.Point{X: c.Max.X - 2, Y: c.Min.Y + 2}, b.text)
}

func (m mark) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	x := trX(m.x)
	style := noteStyle()
	if style.Color = doubt; m.quiet {
		style.Color = quiet
	}
	c.StrokeLine2(draw.LineStyle{Color: style.Color, Width: .8, Dashes: []vg.Length{2, 2}}, x, c.Min.Y, x, c.Max.Y)
	style.YAlign = draw.YTop
	at := vg.Point{X: x + 3, Y: c.Max.Y - 1}
	if x+widthOf(style, m.text) > c.Max.X {
		style.XAlign, at.X = draw.XRight, x-3
	}
	write(c, style, at, m.text)
}
