package report

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is how a line is told from others: by colour, dash and glyph each, so
// that any one of them may be lost.
type look struct {
	color color.RGBA
	dash  []vg.Length
	glyph draw.GlyphDrawer
}

// maxLines is how many lines a picture holds and a person tells apart.
const maxLines = 8

// looks is Okabe and Ito's palette, made for colour-blind readers, without its
// yellow, which is too light for a line (https://jfly.uni-koeln.de/color).
func looks() [maxLines]look {
	return [maxLines]look{
		{color.RGBA{0xd5, 0x5e, 0x00, 0xff}, nil, draw.CircleGlyph{}},
		{color.RGBA{0xe6, 0x9f, 0x00, 0xff}, []vg.Length{5, 3}, draw.RingGlyph{}},
		{color.RGBA{0x00, 0x72, 0xb2, 0xff}, nil, draw.BoxGlyph{}},
		{color.RGBA{0x56, 0xb4, 0xe9, 0xff}, []vg.Length{5, 3}, draw.SquareGlyph{}},
		{color.RGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{8, 2, 2, 2}, draw.PyramidGlyph{}},
		{color.RGBA{0xcc, 0x79, 0xa7, 0xff}, []vg.Length{2, 2}, draw.TriangleGlyph{}},
		{color.RGBA{0x00, 0x00, 0x00, 0xff}, []vg.Length{1, 3}, draw.PlusGlyph{}},
		{color.RGBA{0x77, 0x77, 0x77, 0xff}, []vg.Length{10, 3}, draw.CrossGlyph{}},
	}
}

// point is a value with its interval; without one, low and high are NaN.
// of is the figure in base units; text is what x is called beside its number.
type point struct {
	x, y, low, high float64
	of              figure
	text            string
}

func pointOf(x float64, f figure, by float64) point {
	p := point{x: x, y: f.value / by, low: math.NaN(), high: math.NaN(), of: f}
	if f.interval != nil {
		p.low, p.high = f.interval.Low/by, f.interval.High/by
	}
	return p
}

// series is a line with a label at its end.
type series struct {
	label  string
	look   look
	points []point
	// shift moves the glyphs sideways, so that whiskers of lines that lie on
	// each other stand side by side.
	shift vg.Length
	// bare draws neither glyphs nor intervals, for lines that were not
	// measured.
	bare bool
	// level says that a bare line is a mean of what was measured; small that
	// glyphs have no room.
	level, small bool
}

func (s series) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	y := func(v float64) vg.Length { return trY(min(max(v, p.Y.Min), p.Y.Max)) }
	var line []vg.Point
	for _, q := range s.points {
		line = append(line, vg.Point{X: trX(q.x) + s.shift, Y: y(q.y)})
	}
	width := vg.Length(1.6)
	if s.bare {
		width = 1
	}
	if len(line) > 1 {
		c.StrokeLines(draw.LineStyle{Color: s.look.color, Width: width, Dashes: s.look.dash}, line)
	}
	if s.bare {
		return
	}
	style := draw.LineStyle{Color: s.look.color, Width: 1}
	for i, q := range s.points {
		if w, ok := whiskerOf(q.low, q.high, p.Y.Min, p.Y.Max); ok {
			for _, l := range w.strokes(line[i].X, y(w.low), y(w.high), 5) {
				c.StrokeLines(style, l)
			}
		}
	}
	if s.small {
		return
	}
	for _, at := range line {
		if body := bodyOf(s.look.glyph); body != nil {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: ground, Radius: 2.6, Shape: body}, at)
		}
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: s.look.color, Radius: 2.6, Shape: s.look.glyph}, at)
	}
}

// whisker is an interval as it is drawn: within an axis.
type whisker struct {
	low, high     float64
	atLow, atHigh whiskerEnd
}

// whiskerEnd is how an end is drawn. One that lies beyond the axis gets an
// arrow, as a cap would be read as the end.
type whiskerEnd int

const (
	capped  whiskerEnd = iota
	arrowed            // it goes on out of the picture
	missing            // it lies out of the picture on the other end's side
)

// whiskerOf cuts an interval to an axis; false if there is no interval.
func whiskerOf(low, high, lo, hi float64) (whisker, bool) {
	if !finite(low) || !finite(high) {
		return whisker{}, false
	}
	w := whisker{low: min(max(low, lo), hi), high: min(max(high, lo), hi)}
	if low < lo {
		w.atLow = arrowed
	}
	if high > hi {
		w.atHigh = arrowed
	}
	switch {
	case high < lo:
		w.atHigh = missing
	case low > hi:
		w.atLow = missing
	}
	return w, true
}

// leaves tells whether the interval goes on out of the picture.
func (w whisker) leaves() bool { return w.atLow == arrowed || w.atHigh == arrowed }

// strokes are the lines of a whisker that stands at x from lo to hi: a stem,
// and at each end a cap or an arrow.
func (w whisker) strokes(x, lo, hi, half vg.Length) [][]vg.Point {
	out := [][]vg.Point{{{X: x, Y: lo}, {X: x, Y: hi}}}
	end := func(e whiskerEnd, y, back vg.Length) {
		switch e {
		case capped:
			out = append(out, []vg.Point{{X: x - half, Y: y}, {X: x + half, Y: y}})
		case arrowed:
			out = append(out, []vg.Point{{X: x - half*0.8, Y: y + back}, {X: x, Y: y}, {X: x + half*0.8, Y: y + back}})
		}
	}
	end(w.atLow, lo, half*1.2)
	end(w.atHigh, hi, -half*1.2)
	return out
}

// bodyOf is what an open glyph is filled with, so that no line runs through it.
func bodyOf(g draw.GlyphDrawer) draw.GlyphDrawer {
	switch g.(type) {
	case draw.RingGlyph:
		return draw.CircleGlyph{}
	case draw.SquareGlyph:
		return draw.BoxGlyph{}
	case draw.TriangleGlyph:
		return draw.PyramidGlyph{}
	}
	return nil
}

// rule is a level to compare with.
type rule struct {
	y    float64
	text string
}

func (r rule) Plot(c draw.Canvas, p *plot.Plot) {
	if r.y < p.Y.Min || r.y > p.Y.Max {
		return
	}
	_, trY := p.Transforms(&c)
	y := trY(r.y)
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 1, Dashes: []vg.Length{3, 2}}, c.Min.X, y, c.Max.X, y)
}

// lines is a plot of series over counts or costs.
type lines struct {
	xTitle, yTitle string
	// xName and yName head the columns of the data: shorter, with the unit.
	xName, yName string
	x            func(width vg.Length) axis
	y            axis
	series       []series
	rules        []rule
	marks        []mark
	bands        []band
}

// leaves tells whether an interval goes on out of the picture.
func (l lines) leaves() bool {
	for _, s := range l.series {
		for _, q := range s.points {
			if w, ok := whiskerOf(q.low, q.high, l.y.lo, l.y.hi); ok && !s.bare && w.leaves() {
				return true
			}
		}
	}
	return false
}

const (
	labelGap    = 14 // from the plot to its labels, crossed by a thin line
	labelMax    = 170
	yTitleSpace = 16
)

// ending is a label at the right, for a line or a rule.
type ending struct {
	text  string
	color color.RGBA
	end   func(trX, trY func(float64) vg.Length, data draw.Canvas) vg.Point
}

func (l lines) endings() []ending {
	var out []ending
	for _, s := range l.series {
		last := s.points[len(s.points)-1]
		out = append(out, ending{s.label, s.look.color, func(trX, trY func(float64) vg.Length, _ draw.Canvas) vg.Point {
			return vg.Point{X: trX(last.x) + s.shift + 5, Y: trY(min(max(last.y, l.y.lo), l.y.hi))}
		}})
	}
	for _, r := range l.rules {
		if r.y >= l.y.lo && r.y <= l.y.hi {
			out = append(out, ending{r.text, ink, func(_, trY func(float64) vg.Length, data draw.Canvas) vg.Point {
				return vg.Point{X: data.Max.X, Y: trY(r.y)}
			}})
		}
	}
	return out
}

func (l lines) draw(c draw.Canvas) {
	style := bold(smallStyle())
	var labelWidth vg.Length
	endings := l.endings()
	for i := range endings {
		endings[i].text = fit(endings[i].text, style, labelMax)
		labelWidth = max(labelWidth, widthOf(style, endings[i].text))
	}
	area := draw.Crop(c, 0, -(labelGap + labelWidth), 0, -yTitleSpace)

	p := newPlot()
	l.x(area.Size().X - 40).apply(&p.X)
	l.y.apply(&p.Y)
	p.X.Label.Text = unkerned(l.xTitle)
	for _, b := range l.bands {
		p.Add(b)
	}
	p.Add(grid{x: true, y: true})
	for _, r := range l.rules {
		p.Add(r)
	}
	for _, m := range l.marks {
		p.Add(m)
	}
	// The first lines are the ones to see: they are drawn last.
	for _, s := range slices.Backward(l.series) {
		p.Add(s)
	}
	p.Draw(area)
	data := p.DataCanvas(area)
	// The title of y stands above it, to be read without turning the head.
	write(c, smallStyle(), vg.Point{X: c.Min.X, Y: c.Max.Y - 10}, l.yTitle)

	trX, trY := p.Transforms(&data)
	ends := make([]vg.Point, len(endings))
	want := make([]vg.Length, len(endings))
	for i, e := range endings {
		ends[i] = e.end(trX, trY, data)
		want[i] = ends[i].Y
	}
	for i, y := range spread(want, lineOf(style), data.Min.Y+5, data.Max.Y-5) {
		style := style
		style.Color, style.YAlign = dark(endings[i].color), draw.YCenter
		x := data.Max.X + labelGap
		c.StrokeLine2(draw.LineStyle{Color: endings[i].color, Width: 0.5}, ends[i].X, ends[i].Y, x-2, y)
		write(c, style, vg.Point{X: x, Y: y}, endings[i].text)
	}
}

// dodge sets lines apart sideways. It is for lines that run flat: in a steep
// one, a shift to the side looks like a difference in height.
func dodge(ss []series) {
	for i := range ss {
		ss[i].shift = (vg.Length(i) - vg.Length(len(ss)-1)/2) * 6
	}
}

// dark makes a colour dark enough for text on white: a contrast of about 4.5.
func dark(c color.RGBA) color.RGBA {
	for range 20 {
		if luminance(c) < 0.18 {
			break
		}
		c.R, c.G, c.B = uint8(float64(c.R)*0.93), uint8(float64(c.G)*0.93), uint8(float64(c.B)*0.93)
	}
	return c
}

// luminance is the relative luminance of sRGB, from 0 to 1.
func luminance(c color.RGBA) float64 {
	lin := func(v uint8) float64 { return math.Pow(float64(v)/255, 2.2) }
	return 0.2126*lin(c.R) + 0.7152*lin(c.G) + 0.0722*lin(c.B)
}

// spread moves positions apart to a least distance, as little as it can, and
// keeps them within lo and hi if there is room.
func spread(want []vg.Length, gap, lo, hi vg.Length) []vg.Length {
	order := make([]int, len(want))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
	// Clusters of labels that touch, each centred on what its members want.
	type cluster struct {
		first, n int
		sum      vg.Length // of wanted positions less their offsets
	}
	var cs []cluster
	start := func(c cluster) vg.Length { return c.sum / vg.Length(c.n) }
	for i, k := range order {
		cs = append(cs, cluster{i, 1, want[k]})
		for len(cs) > 1 {
			a, b := cs[len(cs)-2], cs[len(cs)-1]
			if start(a)+vg.Length(a.n)*gap <= start(b) {
				break
			}
			merged := cluster{a.first, a.n + b.n, a.sum + b.sum - vg.Length(a.n*b.n)*gap}
			cs = append(cs[:len(cs)-2], merged)
		}
	}
	sorted := make([]vg.Length, len(want))
	for _, c := range cs {
		for j := range c.n {
			sorted[c.first+j] = start(c) + vg.Length(j)*gap
		}
	}
	for i := range sorted {
		sorted[i] = max(sorted[i], lo+vg.Length(i)*gap)
	}
	for i := len(sorted) - 1; i >= 0; i-- {
		sorted[i] = min(sorted[i], hi-vg.Length(len(sorted)-1-i)*gap)
	}
	out := make([]vg.Length, len(want))
	for i, k := range order {
		out[k] = sorted[i]
	}
	return out
}
