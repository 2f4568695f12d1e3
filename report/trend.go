package report

import (
	"fmt"
	"image/color"
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

// Trend is a picture of a row over nights, with its change points and the mean
// of each level. What about has beside the row stands below the title. A series
// without a value that can be drawn is none; why says so.
func Trend(s results.Series, changes []results.ChangePoint, about About) (p Picture, why string) {
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
			nights = append(nights, pointOf(nightOf(s, i), figure{value: q.Value}, by.by))
		}
	}
	p = about.picture("trend", plain(s.Row.Metric)+" over nights")
	first, last := s.Points[0].Created, s.Points[len(s.Points)-1].Created
	p.Subtitle = append([]string{plain(s.Row.String()),
		fmt.Sprintf("%s, %s to %s. Each the median over processes; the line is the mean between change points.",
			countWord(len(s.Points), "night"), first.UTC().Format("2006-01-02"), last.UTC().Format("2006-01-02"))}, p.Subtitle...)
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
		{label: "mean", look: look{color: looks[0].color}, bare: true, points: levels(s, changes, by.by)},
		{label: "nights", look: look{color: looks[2].color, glyph: draw.CircleGlyph{}}, points: nights, bare: len(nights) > maxTrendGlyphs},
	}
	for _, c := range changes {
		l.marks = append(l.marks, mark{x: nightOf(s, c.Index) - .5, text: changeText(c)})
	}
	p.set(l)
	return p, ""
}

func countWord(n int, what string) string {
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

func changeText(c results.ChangePoint) string {
	text := fmt.Sprintf("%s %s", plain(c.ID), changeOf(c.After/c.Before))
	if c.Provisional {
		text += "?"
	}
	return text
}

// levels is the mean between change points, as steps.
func levels(s results.Series, changes []results.ChangePoint, by float64) []point {
	at := func(x, y float64) point {
		return point{x: x, y: y / by, low: math.NaN(), high: math.NaN(), of: figure{value: y}}
	}
	begin, end := nightOf(s, 0), nightOf(s, len(s.Points)-1)
	if len(changes) == 0 {
		sum := 0.0
		for _, q := range s.Points {
			sum += q.Value
		}
		mean := sum / float64(len(s.Points))
		return []point{at(begin, mean), at(end, mean)}
	}
	out := []point{at(begin, changes[0].Before)}
	for _, c := range changes {
		x := nightOf(s, c.Index) - .5
		out = append(out, at(x, c.Before), at(x, c.After))
	}
	return append(out, at(end, changes[len(changes)-1].After))
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

// mark is a place on the x axis with a word.
type mark struct {
	x    float64
	text string
}

func (m mark) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	x := trX(m.x)
	c.StrokeLine2(draw.LineStyle{Color: color.RGBA{0xa4, 0, 0, 0xff}, Width: .8, Dashes: []vg.Length{2, 2}}, x, c.Min.Y, x, c.Max.Y)
	style := noteStyle()
	style.Color = doubt
	style.YAlign = draw.YTop
	at := vg.Point{X: x + 3, Y: c.Max.Y - 1}
	if x+widthOf(style, m.text) > c.Max.X {
		style.XAlign, at.X = draw.XRight, x-3
	}
	write(c, style, at, m.text)
}
