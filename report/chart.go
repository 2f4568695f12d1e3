package report

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/tech-renaissance/trbench/results"
)

// Chart is what a [Picture] shows, as data: for a renderer that lets readers
// ask for values. It has Lines or Bars.
//
// A renderer places numbers; it shows texts. Both are made here, so that no
// figure is rounded in two ways.
type Chart struct {
	// Name is the picture's, fit for a file or an anchor.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Subtitle, Doubts and Notes are the picture's, without what only holds
	// for its fixed frame.
	Subtitle []string   `json:"subtitle"`
	Doubts   []string   `json:"doubts"`
	Notes    []string   `json:"notes"`
	Lines    *LineChart `json:"lines,omitempty"`
	Bars     *BarChart  `json:"bars,omitempty"`
	// Table has every value that is shown, one a row.
	Table Grid `json:"-"`
}

// LineChart is series over counts or costs.
type LineChart struct {
	XTitle string       `json:"x_title"`
	YTitle string       `json:"y_title"`
	X      ChartAxis    `json:"x"`
	Y      ChartAxis    `json:"y"`
	Series []LineSeries `json:"series"`
	Rules  []ChartRule  `json:"rules"`
	// Marks are places on the x axis, Bands ranges of it, each with a word.
	Marks []ChartMark `json:"marks,omitempty"`
	Bands []ChartBand `json:"bands,omitempty"`
}

// ChartAxis is the range in which all values lie, and round places in it.
type ChartAxis struct {
	Low   float64     `json:"low"`
	High  float64     `json:"high"`
	Log   bool        `json:"log"`
	Ticks []ChartTick `json:"ticks"`
}

// ChartTick is a place on an axis; the lesser ones have no label.
type ChartTick struct {
	Value float64 `json:"value"`
	Label string  `json:"label"`
}

// LineSeries is a line. Look is its place in the palette, the same in every
// chart of the same records: 0 to 7.
type LineSeries struct {
	Label string `json:"label"`
	Look  int    `json:"look"`
	// Shift is how many pixels to the right the line stands, so that intervals
	// of lines that lie on each other stand side by side.
	Shift float64 `json:"shift"`
	// Bare lines were not measured; they have neither glyphs nor intervals.
	Bare bool `json:"bare"`
	// Level says that a bare line is a mean of what was measured; Small that
	// there are too many points for glyphs to be told apart.
	Level  bool         `json:"level,omitempty"`
	Small  bool         `json:"small,omitempty"`
	Points []ChartPoint `json:"points"`
}

// ChartPoint is a value in the unit of its axis. Low and High are its
// interval, null where there is none.
type ChartPoint struct {
	X    float64  `json:"x"`
	Y    float64  `json:"y"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// XText and Text are what a reader is told; Text has the interval.
	XText string `json:"x_text"`
	Text  string `json:"text"`
}

// ChartRule is a level to compare with.
type ChartRule struct {
	Y    float64 `json:"y"`
	Text string  `json:"text"`
}

// ChartMark is where something changed.
type ChartMark struct {
	X    float64 `json:"x"`
	Text string  `json:"text"`
	// Quiet says that nobody has to look at it.
	Quiet bool `json:"quiet"`
}

// ChartBand is a range of the x axis that is not like the rest.
type ChartBand struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// BarChart is panels of stacked bars, each on a scale of its own.
type BarChart struct {
	XTitle string `json:"x_title"`
	// Parts are the kinds of segments; a segment names its part by its place.
	Parts []BarPart `json:"parts"`
	// Mark names the level that a bar is compared with; empty for none.
	Mark string `json:"mark"`
	// Remarks head the words beside each bar.
	Remarks []string   `json:"remarks"`
	Panels  []BarPanel `json:"panels"`
}

// BarPart is a kind of segment. Look is its place in the palette: 0 to 7.
type BarPart struct {
	Name string `json:"name"`
	Look int    `json:"look"`
}

// BarPanel is bars on one scale. High is how far a first look at it reaches:
// what was told to may lie beyond.
type BarPanel struct {
	Title string  `json:"title"`
	Unit  string  `json:"unit"`
	High  float64 `json:"high"`
	Bars  []Bar   `json:"bars"`
}

// Bar is a row: segments from left to right, and words.
type Bar struct {
	Label    string       `json:"label"`
	Segments []BarSegment `json:"segments"`
	Mark     *float64     `json:"mark"`
	MarkText string       `json:"mark_text"`
	Remarks  []string     `json:"remarks"`
}

// BarSegment is a part of a bar in the unit of its panel, with the interval of
// its own length.
type BarSegment struct {
	Part  int      `json:"part"`
	Value float64  `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Text  string   `json:"text"`
}

// Charts makes the charts that the records can carry, in the order of
// [Kinds], and says why others are absent.
func Charts(records []Named) (charts []Chart, absent []string) {
	pictures, absent := gather(records).charted()
	for _, p := range pictures {
		charts = append(charts, p.Chart())
	}
	return charts, absent
}

// Chart is what the picture shows, as data; pictures of traces have neither
// lines nor bars.
func (p Picture) Chart() Chart {
	var c Chart
	if p.chart != nil {
		c = p.chart()
	}
	c.Name, c.Title, c.Doubts, c.Notes = p.Name, p.Title, p.Doubts, p.Notes
	return c
}

// chartWidth is the width that labels of a count axis are chosen for.
const chartWidth = vg.Length(480)

func lineChart(subtitle []string, l lines) Chart {
	out := &LineChart{XTitle: l.xTitle, YTitle: l.yTitle, X: chartAxis(l.x(chartWidth)), Y: chartAxis(l.y)}
	table := Grid{Header: []string{l.xName, "configuration", l.yName, "low", "high", "processes"}, Left: 2}
	if len(l.series) > 0 && strings.HasPrefix(l.series[0].label, "batch ") {
		table.Header[1] = "batch"
	}
	for _, s := range l.series {
		c := LineSeries{Label: s.label, Look: lookIndex(s.look.color), Shift: float64(s.shift), Bare: s.bare, Level: s.level, Small: s.small}
		for _, q := range s.points {
			p := ChartPoint{X: q.x, Y: q.y, Low: known(q.low), High: known(q.high), XText: tickText(q.x), Text: fine(q.y)}
			row := []string{p.XText, s.label, fine(q.y), "-", "-", "-"}
			if q.text != "" {
				p.XText += ", " + q.text
			}
			if p.Low != nil && p.High != nil {
				row[3], row[4] = fine(q.low), fine(q.high)
				p.Text += " (" + row[3] + ".." + row[4] + ")"
			}
			if q.of.processes > 0 {
				row[5] = strconv.Itoa(q.of.processes)
			}
			if c.Points = append(c.Points, p); !s.bare {
				table.Rows = append(table.Rows, row)
			}
		}
		out.Series = append(out.Series, c)
	}
	for _, r := range l.rules {
		out.Rules = append(out.Rules, ChartRule{r.y, r.text})
	}
	for _, m := range l.marks {
		out.Marks = append(out.Marks, ChartMark{m.x, m.text, m.quiet})
	}
	for _, b := range l.bands {
		out.Bands = append(out.Bands, ChartBand{b.from, b.to, b.text})
	}
	slices.SortStableFunc(table.Rows, func(a, b []string) int {
		x, _ := strconv.ParseFloat(a[0], 64)
		y, _ := strconv.ParseFloat(b[0], 64)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return Chart{Subtitle: subtitle, Lines: out, Table: table}
}

func chartAxis(a axis) ChartAxis {
	out := ChartAxis{Low: a.lo, High: a.hi, Log: a.log}
	for _, t := range a.ticks {
		out.Ticks = append(out.Ticks, ChartTick{t.Value, t.Label})
	}
	return out
}

func barChart(subtitle []string, b bars) Chart {
	out := &BarChart{XTitle: b.xTitle, Mark: b.mark}
	var table Grid
	titled := slices.ContainsFunc(b.panels, func(p panel) bool { return p.title != "" })
	if titled {
		table.Header = append(table.Header, "panel")
	}
	table.Header = append(table.Header, "configuration")
	table.Left = len(table.Header)
	for _, p := range b.parts {
		out.Parts = append(out.Parts, BarPart{p.name, partIndex(p.color)})
		table.Header = append(table.Header, p.name, "+-")
	}
	for i, r := range b.remarks {
		out.Remarks = append(out.Remarks, r.title)
		if table.Header = append(table.Header, r.title); !r.right && i == len(b.remarks)-1 {
			table.LeftEnd = 1
		}
	}
	for _, p := range b.panels {
		reach := b.reach(p)
		u := timeUnit(reach)
		panel := BarPanel{Title: p.title, Unit: u.name, High: reach / u.by}
		for _, r := range p.bars {
			bar := Bar{Label: r.label, Remarks: r.remarks}
			row := []string{r.label}
			if titled {
				row = []string{p.title, r.label}
			}
			if finite(r.mark) {
				bar.Mark, bar.MarkText = known(r.mark/u.by), Duration(r.mark)
			}
			cells := make([][2]string, len(b.parts))
			for i := range cells {
				cells[i] = [2]string{"-", "-"}
			}
			for _, s := range r.segments {
				f := figure{value: s.value}
				if finite(s.low) && finite(s.high) {
					f.interval = usable(&results.Interval{Low: s.low, High: s.high})
				}
				seg := BarSegment{Part: s.part, Value: s.value / u.by, Text: Duration(s.value)}
				if f.interval != nil {
					seg.Low, seg.High = known(s.low/u.by), known(s.high/u.by)
					seg.Text += " (" + Duration(s.low) + ".." + Duration(s.high) + ")"
				}
				cells[s.part] = [2]string{Duration(s.value), f.plusMinus()}
				bar.Segments = append(bar.Segments, seg)
			}
			for _, c := range cells {
				row = append(row, c[0], c[1])
			}
			table.Rows = append(table.Rows, append(row, r.remarks...))
			panel.Bars = append(panel.Bars, bar)
		}
		out.Panels = append(out.Panels, panel)
	}
	return Chart{Subtitle: subtitle, Bars: out, Table: table}
}

// lookIndex is a colour's place among looks; the last for a colour that is
// none of them, such as the ideal line's grey.
func lookIndex(c color.RGBA) int {
	all := looks()
	for i, l := range all {
		if l.color == c {
			return i
		}
	}
	return len(all) - 1
}

func partIndex(c color.RGBA) int { return max(0, slices.Index(partColors(), c)) }

// known is a number as a field that may be null: JSON has no NaN.
func known(v float64) *float64 {
	if !finite(v) {
		return nil
	}
	return &v
}

// fine shows five significant digits, for readers who ask for a value. An
// exponent stands where no one measured.
func fine(v float64) string {
	a := math.Abs(v)
	if a == 0 {
		return "0"
	}
	if a < 1e-4 || a >= 1e9 || !finite(v) {
		return strconv.FormatFloat(v, 'g', 5, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, 4-int(math.Floor(math.Log10(a)))), 64)
}
