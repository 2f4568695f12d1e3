package page

import (
	"math"
	"strconv"

	"github.com/tech-renaissance/trbench/report"
)

// forest draws headlines beneath each other on one logarithmic axis: a point
// and its interval a row, and where 1 is. It is SVG, so that it is there
// without a script and on paper.
type forest struct{ axis report.ChartAxis }

// Sizes in the units of the drawing's viewBox.
const (
	forestWidth = 240
	forestSide  = 12 // left and right of the axis
)

// x is a value's place, cut to the axis.
func (f forest) x(v float64) float64 {
	v = min(max(v, f.axis.Low), f.axis.High)
	share := math.Log(v/f.axis.Low) / math.Log(f.axis.High/f.axis.Low)
	return math.Round(10*(forestSide+share*(forestWidth-2*forestSide))) / 10
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// One is where a captured step is as fast as an eager one.
func (f forest) One() string { return number(f.x(1)) }

// Tick is a labelled place on the axis.
type Tick struct{ X, Text string }

// Ticks are the labelled places that do not touch.
func (f forest) Ticks() []Tick {
	var out []Tick
	end := math.Inf(-1)
	for _, t := range f.axis.Ticks {
		if t.Label == "" {
			continue
		}
		x := f.x(t.Value)
		half := 4*float64(len(t.Label)) + 3
		// The one at 1 is what the picture is about.
		if t.Value != 1 && math.Abs(x-f.x(1)) < 2*half || x-half < end {
			continue
		}
		out, end = append(out, Tick{number(x), t.Label}), x+half
	}
	return out
}

// Mark is a headline as drawn: its place, its interval, and whether the
// interval goes on beyond an end.
type Mark struct {
	X, Low, High, Width string
	HasInterval         bool
	OffLow, OffHigh     bool
	Tone                string // faster, slower, unclear
}

// Mark places a headline.
func (f forest) Mark(h report.Headline) Mark {
	m := Mark{X: number(f.x(h.Value)), HasInterval: h.HasInterval, Tone: "unclear"}
	if !h.HasInterval {
		return m
	}
	low, high := f.x(h.Low), f.x(h.High)
	m.Low, m.High, m.Width = number(low), number(high), number(math.Round(10*(high-low))/10)
	m.OffLow, m.OffHigh = h.Low < f.axis.Low, h.High > f.axis.High
	switch {
	case h.Low > 1:
		m.Tone = "faster"
	case h.High < 1:
		m.Tone = "slower"
	}
	return m
}
