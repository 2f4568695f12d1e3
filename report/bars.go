package report

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// part is a kind of segment in stacked bars. Its number stands in the legend
// and in the bars, for readers to whom two colours look alike.
type part struct {
	name  string
	color color.RGBA
	// open parts come last and may run out of the picture, so that they do
	// not flatten the others.
	open bool
}

func partColors() []color.RGBA {
	return []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0xf0, 0xe4, 0x42, 0xff}, {0x99, 0x99, 0x99, 0xff},
	}
}

// segment is a part of a bar with its interval; without one, low and high are NaN.
type segment struct {
	part             int
	value, low, high float64
}

// bar is a row: its name, its segments, a level to compare it with (NaN if
// there is none), and what is said of it in words.
type bar struct {
	label    string
	segments []segment
	mark     float64
	remarks  []string // in the columns of bars.remarks
}

func (b bar) total() float64 {
	sum := 0.0
	for _, s := range b.segments {
		sum += s.value
	}
	return sum
}

// closed is how much of the bar must lie inside the picture.
func (b bars) closed(r bar) float64 {
	sum := 0.0
	for _, s := range r.segments {
		if !b.parts[s.part].open {
			sum += s.value
		}
	}
	return sum
}

const (
	// openReach is how far open parts stretch an axis, in closed ones.
	openReach = 1.5
	// markReach is how far marks stretch it, in bars.
	markReach = 1.5
	// endReach is how far the ends of intervals stretch it.
	endReach = 1.5
)

// reach is where a panel's axis ends. The bars determine it: what is marked or
// lies far out has a place if that leaves them legible.
func (b bars) reach(p panel) float64 {
	var closed, bars float64
	for _, r := range p.bars {
		closed, bars = max(closed, b.closed(r)), max(bars, r.total())
	}
	if closed > 0 {
		bars = min(bars, closed*openReach)
	}
	reach := bars
	for _, r := range p.bars {
		if finite(r.mark) && r.mark <= bars*markReach {
			reach = max(reach, r.mark)
		}
		end := 0.0
		for _, s := range r.segments {
			if high := end + s.high; finite(high) && high <= bars*endReach {
				reach = max(reach, high)
			}
			end += s.value
		}
	}
	return linearAxis([]float64{reach}).hi
}

// whiskers are the intervals of a bar's segments where the segments end.
func (r bar) whiskers(reach float64) []whisker {
	var out []whisker
	end := 0.0
	for _, s := range r.segments {
		w, ok := whiskerOf(end+s.low, end+s.high, 0, reach)
		if end += s.value; ok && s.value > 0 && end <= reach {
			out = append(out, w)
		}
	}
	return out
}

// leaves tells whether an interval goes on out of the picture.
func (b bars) leaves() bool {
	for _, p := range b.panels {
		reach := b.reach(p)
		for _, r := range p.bars {
			if slices.ContainsFunc(r.whiskers(reach), whisker.leaves) {
				return true
			}
		}
	}
	return false
}

// broken tells whether a bar is longer than its axis.
func (b bars) broken() bool {
	for _, p := range b.panels {
		reach := b.reach(p)
		if slices.ContainsFunc(p.bars, func(r bar) bool { return r.total() > reach }) {
			return true
		}
	}
	return false
}

// marked tells whether a mark is drawn.
func (b bars) marked() bool {
	for _, p := range b.panels {
		reach := b.reach(p)
		if slices.ContainsFunc(p.bars, func(r bar) bool { return r.mark <= reach }) {
			return true
		}
	}
	return false
}

// unmarked tells whether a mark lies beyond its axis.
func (b bars) unmarked() bool {
	for _, p := range b.panels {
		reach := b.reach(p)
		if slices.ContainsFunc(p.bars, func(r bar) bool { return finite(r.mark) && r.mark > reach }) {
			return true
		}
	}
	return false
}

// panel is bars on one scale.
type panel struct {
	title string
	bars  []bar
}

// bars is panels with one legend.
type bars struct {
	parts []part
	// mark names the level, drawn as a line across the bar.
	mark   string
	xTitle string
	// remarks are the columns of words beside the bars.
	remarks []remarkColumn
	panels  []panel
}

// remarkColumn is a heading of words beside the bars.
type remarkColumn struct {
	title string
	right bool // aligned right, for figures
	width vg.Length
}

const (
	barPitch    = 15
	panelAxis   = 20
	panelGap    = 5
	legendLine  = 15
	remarkGap   = 10
	barLabelMax = 150
	remarkMax   = 210
)

func (b bars) panelHeight(p panel) vg.Length {
	h := vg.Length(len(p.bars))*barPitch + panelAxis + panelGap
	return h + lineOf(smallStyle())
}

func (b bars) height() vg.Length {
	h := b.legendHeight() + lineOf(smallStyle())
	for _, p := range b.panels {
		h += b.panelHeight(p)
	}
	return h
}

// legendItem is a place in the legend.
type legendItem struct {
	part int // -1 is the mark
	x, y vg.Length
	text string
}

// legend lays the parts out in lines; y counts down from the top.
func (b bars) legend() (items []legendItem, height vg.Length) {
	style := smallStyle()
	const width = pictureWidth - 2*margin
	var x, y vg.Length
	put := func(part int, text string) {
		w := 16 + widthOf(style, text) + 14
		if x > 0 && x+w > width {
			x, y = 0, y+legendLine
		}
		items = append(items, legendItem{part, x, y, text})
		x += w
	}
	for i, p := range b.parts {
		put(i, fit(p.name, style, 200))
	}
	if b.mark != "" && b.marked() {
		put(-1, b.mark)
	}
	return items, y + legendLine + 4
}

func (b bars) legendHeight() vg.Length {
	_, h := b.legend()
	return h
}

func (b bars) draw(c draw.Canvas) {
	items, used := b.legend()
	for _, it := range items {
		x, y := c.Min.X+it.x, c.Max.Y-it.y-10
		if it.part < 0 {
			b.drawMark(c, x+6, y, y+10)
		} else {
			b.fill(c, it.part, x, x+12, y, y+10)
			b.number(c, it.part, x, x+12, y+5)
		}
		write(c, smallStyle(), vg.Point{X: x + 16, Y: y}, it.text)
	}

	style := smallStyle()
	var left, right vg.Length
	for i := range b.remarks {
		col := &b.remarks[i]
		col.width = widthOf(style, col.title)
		for _, p := range b.panels {
			for _, r := range p.bars {
				col.width = max(col.width, widthOf(style, fit(r.remarks[i], style, remarkMax)))
			}
		}
		right += col.width + remarkGap
	}
	for _, p := range b.panels {
		for _, r := range p.bars {
			left = max(left, widthOf(style, fit(r.label, style, barLabelMax)))
		}
	}
	left += 6
	top := c.Max.Y - used
	for i, p := range b.panels {
		h := b.panelHeight(p)
		area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: c.Min.X, Y: top - h + panelGap}, Max: vg.Point{X: c.Max.X, Y: top},
		}}
		b.drawPanel(area, p, left, right, i == 0)
		top -= h
	}
	s := smallStyle()
	s.XAlign = draw.XCenter
	write(c, s, vg.Point{X: (c.Min.X + left + c.Max.X - right) / 2, Y: c.Min.Y + 1}, b.xTitle)
}

// remark writes the words of one line beside the bars.
func (b bars) remark(c draw.Canvas, style draw.TextStyle, right, y vg.Length, text func(int) string) {
	x := c.Max.X - right + remarkGap
	for i, col := range b.remarks {
		s, at := style, x
		if s.XAlign = draw.XLeft; col.right {
			s.XAlign, at = draw.XRight, x+col.width
		}
		write(c, s, vg.Point{X: at, Y: y}, fit(text(i), s, remarkMax))
		x += col.width + remarkGap
	}
}

func (b bars) drawPanel(c draw.Canvas, pn panel, left, right vg.Length, first bool) {
	h := lineOf(smallStyle())
	write(c, bold(smallStyle()), vg.Point{X: c.Min.X, Y: c.Max.Y - h + 2}, pn.title)
	if first {
		b.remark(c, quietStyle(), right, c.Max.Y-h+2, func(i int) string { return b.remarks[i].title })
	}
	c.Max.Y -= h
	reach := b.reach(pn)
	p := overTime(reach, 6)
	p.Add(plotter(func(dc draw.Canvas, p *plot.Plot) {
		trX, _ := p.Transforms(&dc)
		pitch := dc.Size().Y / vg.Length(len(pn.bars))
		for i, r := range pn.bars {
			mid := dc.Max.Y - (vg.Length(i)+0.5)*pitch
			b.drawBar(dc, r, trX, mid, reach)
			s := smallStyle()
			s.XAlign, s.YAlign = draw.XRight, draw.YCenter
			write(dc, s, vg.Point{X: c.Min.X + left - 6, Y: mid}, fit(r.label, s, barLabelMax))
			b.remark(draw.Canvas{Canvas: dc.Canvas, Rectangle: c.Rectangle}, s, right, mid, func(i int) string { return r.remarks[i] })
		}
	}))
	p.Draw(draw.Crop(c, left, -right, 0, 0))
}

// overTime begins a plot over 0 to hi ns, in the unit that suits, with lines at
// the ticks and no scale upwards.
func overTime(hi float64, ticks int) *plot.Plot {
	a := axis{hi: hi}
	u := timeUnit(hi)
	a.ticks = linearTicks(0, hi/u.by, ticks)
	for i := range a.ticks {
		a.ticks[i].Value *= u.by
		if a.ticks[i].Value != 0 {
			a.ticks[i].Label = unkerned(a.ticks[i].Label + " " + u.name)
		}
	}
	p := newPlot()
	a.apply(&p.X)
	p.HideY()
	p.Y.Min, p.Y.Max = 0, 1
	p.Add(grid{x: true})
	return p
}

func (b bars) drawBar(c draw.Canvas, r bar, trX func(float64) vg.Length, mid vg.Length, reach float64) {
	const half = 5
	end := 0.0
	for _, s := range r.segments {
		if s.value <= 0 || end >= reach {
			continue
		}
		x0, x1 := trX(end), trX(min(end+s.value, reach))
		if end += s.value; end > reach {
			// It goes on: the bar ends in a point.
			tip := max(x0, x1-half)
			c.FillPolygon(b.parts[s.part].color, []vg.Point{{X: tip, Y: mid - half}, {X: x1, Y: mid}, {X: tip, Y: mid + half}})
			x1 = tip
		}
		b.fill(c, s.part, x0, x1, mid-half, mid+half)
		// The mark must not hide the number.
		if finite(r.mark) && r.mark <= reach {
			if m := trX(r.mark); m > x0 && m-x0 > x1-m {
				x1 = min(x1, m-1)
			} else if m < x1 {
				x0 = max(x0, m+1)
			}
		}
		if x1-x0 >= 7 {
			b.number(c, s.part, x0, x1, mid)
		}
	}
	style := draw.LineStyle{Color: ink, Width: 0.8}
	side := vg.Length(1)
	for _, w := range r.whiskers(reach) {
		lo, hi := trX(w.low), trX(w.high)
		// Within the width of a line it would only look like an edge.
		if hi-lo <= 1.5 && !w.leaves() {
			continue
		}
		// At an edge it leaves the number legible, and at the other one
		// than the last it leaves that legible.
		y := mid - side*half
		side = -side
		for _, l := range w.strokes(y, lo, hi, 2) {
			for i, p := range l {
				l[i] = vg.Point{X: p.Y, Y: p.X}
			}
			c.StrokeLines(style, l)
		}
	}
	if finite(r.mark) && r.mark <= reach {
		b.drawMark(c, trX(r.mark), mid-half-1.5, mid+half+1.5)
	}
}

func (b bars) drawMark(c draw.Canvas, x, lo, hi vg.Length) {
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 2}, x, lo, x, hi)
}

// fill draws a segment with a white edge.
func (b bars) fill(c draw.Canvas, part int, x0, x1, y0, y1 vg.Length) {
	clr := b.parts[part].color
	c.FillPolygon(clr, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	if x1-x0 > 3 {
		c.StrokeLine2(draw.LineStyle{Color: ground, Width: 0.7}, x1, y0, x1, y1)
	}
}

// number writes a part's number into a segment.
func (b bars) number(c draw.Canvas, part int, x0, x1, y vg.Length) {
	if len(b.parts) < 2 {
		return
	}
	clr := b.parts[part].color
	s := textStyle(7.5, ink)
	if luminance(clr) < 0.25 {
		s.Color = ground
	}
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	write(c, s, vg.Point{X: (x0 + x1) / 2, Y: y}, strconv.Itoa(part+1))
}

// plotter makes a function a plot.Plotter.
type plotter func(draw.Canvas, *plot.Plot)

func (f plotter) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

func nan() float64 { return math.NaN() }
