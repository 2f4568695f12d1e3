package report

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// axis is a range with ticks, in the unit that is drawn.
type axis struct {
	lo, hi float64
	log    bool
	ticks  []plot.Tick
}

func (a axis) apply(to *plot.Axis) {
	to.Min, to.Max = a.lo, a.hi
	if a.log {
		to.Scale = plot.LogScale{}
	}
	to.Tick.Marker = plot.ConstantTicks(a.ticks)
}

// logAxis holds all values, which must be drawable, with some room. The range
// is at least the factor least, so that noise does not fill the picture.
func logAxis(values []float64, least float64) axis {
	lo, hi := slices.Min(values), slices.Max(values)
	room := math.Pow(hi/lo, 0.06)
	lo, hi = lo/room, hi*room
	if r := hi / lo; r < least {
		grow := math.Sqrt(least / r)
		lo, hi = lo/grow, hi*grow
	}
	return axis{lo, hi, true, logTicks(lo, hi)}
}

// ratioAxis is a log axis for quotients: it shows where 1 lies and, if it
// reaches visibly to both sides of it, has ticks on both.
func ratioAxis(values []float64) axis {
	a := logAxis(append(slices.Clone(values), 1), 1.3)
	a.ticks = bothSides(a.lo, a.hi, a.ticks)
	return a
}

// bothSides adds the roundest number to a side of 1 without a labelled tick, if
// the side is wide enough to set it apart from the tick at 1.
func bothSides(lo, hi float64, ticks []plot.Tick) []plot.Tick {
	gap := math.Pow(hi/lo, 0.06)
	add := func(from, to float64) {
		if from > to || slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Label != "" && t.Value >= from && t.Value <= to }) {
			return
		}
		v := roundest(from, to)
		ticks = append(ticks, plot.Tick{Value: v, Label: tickText(v)})
	}
	add(lo, 1/gap)
	add(gap, hi)
	return ticks
}

// roundest is the number with the fewest digits in a range above 0, the one
// next to 1 of several.
func roundest(from, to float64) float64 {
	for step := math.Pow(10, math.Floor(math.Log10(to))); step > to*1e-9; step /= 10 {
		low, high := math.Ceil(from/step-1e-9)*step, math.Floor(to/step+1e-9)*step
		switch {
		case low > high*(1+1e-9) || low == 0:
		case low >= 1:
			return low
		default:
			return high
		}
	}
	return from
}

// linearAxis begins at 0 and holds all values.
func linearAxis(values []float64) axis {
	hi := 0.0
	for _, v := range values {
		hi = max(hi, v)
	}
	if hi == 0 {
		hi = 1
	}
	hi *= 1.03
	return axis{0, hi, false, linearTicks(0, hi, 6)}
}

// leastTicks is how many labels an axis has at the least: a reader of a log
// axis cannot tell its scale from two.
const leastTicks = 4

func labelled(ticks []plot.Tick) int {
	n := 0
	for _, t := range ticks {
		if t.Label != "" {
			n++
		}
	}
	return n
}

// logTicks labels round numbers: more of them the shorter the range.
func logTicks(lo, hi float64) []plot.Tick {
	decades := math.Log10(hi) - math.Log10(lo)
	if decades < 0.5 {
		return linearTicks(lo, hi, 6)
	}
	kinds := [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 7}}
	switch {
	case decades > 6:
		return decadeTicks(lo, hi, kinds[0], 1+int(decades/8))
	case decades < 1:
		kinds = kinds[3:]
	case decades <= 3:
		kinds = kinds[2:]
	}
	for _, mantissas := range kinds {
		if ticks := decadeTicks(lo, hi, mantissas, 1); labelled(ticks) >= leastTicks {
			return ticks
		}
	}
	return linearTicks(lo, hi, 6)
}

// decadeTicks labels the same digits in each decade, or in each of a stride.
func decadeTicks(lo, hi float64, mantissas []float64, stride int) []plot.Tick {
	d0, d1 := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	decades := math.Log10(hi) - math.Log10(lo)
	var out []plot.Tick
	for d := d0; d <= d1; d++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow(10, float64(d))
			if decades <= 6 && v >= lo && v <= hi && !slices.Contains(mantissas, float64(m)) {
				out = append(out, plot.Tick{Value: v})
			}
		}
		for _, m := range mantissas {
			v := m * math.Pow(10, float64(d))
			if v >= lo && v <= hi && (d-d0)%stride == 0 {
				out = append(out, plot.Tick{Value: v, Label: tickText(v)})
			}
		}
	}
	return out
}

// linearTicks are about n round steps, and more if that makes too few ticks.
func linearTicks(lo, hi float64, n int) []plot.Tick {
	raw := (hi - lo) / float64(n)
	ten := math.Pow(10, math.Floor(math.Log10(raw)))
	if !finite(ten) || ten <= 0 {
		return nil
	}
	steps := []float64{10, 5, 2, 1, 0.5, 0.2}
	at := 3
	for at > 0 && steps[at]*ten < raw {
		at--
	}
	var out []plot.Tick
	for ; at < len(steps); at++ {
		if out = stepTicks(lo, hi, steps[at]*ten, 4*n); len(out) >= leastTicks {
			break
		}
	}
	return out
}

// stepTicks are the multiples of a step, at most so many.
func stepTicks(lo, hi, step float64, most int) []plot.Tick {
	var out []plot.Tick
	first := math.Ceil(lo/step - 1e-9)
	for i := range most {
		v := (first + float64(i)) * step
		if v > hi*(1+1e-12) {
			break
		}
		out = append(out, plot.Tick{Value: v, Label: tickText(v)})
	}
	return out
}

// tickText drops what arithmetic left behind the digits.
func tickText(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e7) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// countAxis is for batches and GPU counts: its ticks are the counts that were
// run, on a log axis because they are as a rule powers of 2. Labels that would
// touch are left out, never the first or the last.
func countAxis(counts []int, width vg.Length) axis {
	counts = slices.Compact(slices.Sorted(slices.Values(counts)))
	lo, hi := float64(counts[0]), float64(counts[len(counts)-1])
	room := max(math.Pow(hi/lo, 0.03), 1.05)
	if lo == hi {
		room = 2
	}
	a := axis{lo: lo / room, hi: hi * room, log: true}
	at := func(v float64) vg.Length {
		return width * vg.Length(math.Log(v/a.lo)/math.Log(a.hi/a.lo))
	}
	style := smallStyle()
	half := func(n int) vg.Length { return style.Width(strconv.Itoa(n))/2 + 3 }
	last := counts[len(counts)-1]
	end := vg.Length(math.Inf(-1))
	for i, n := range counts {
		t := plot.Tick{Value: float64(n)}
		from, to := at(float64(n))-half(n), at(float64(n))+half(n)
		if from >= end && (i == len(counts)-1 || to <= at(float64(last))-half(last)) || i == 0 {
			t.Label, end = strconv.Itoa(n), to
		}
		a.ticks = append(a.ticks, t)
	}
	if a.ticks[len(a.ticks)-1].Label == "" {
		a.ticks[len(a.ticks)-1].Label = strconv.Itoa(last)
	}
	return a
}

// grid draws faint lines at the labelled ticks of one direction or both.
type grid struct{ x, y bool }

func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	style := draw.LineStyle{Color: faint, Width: 0.6}
	if g.x {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if !t.IsMinor() && t.Value >= p.X.Min && t.Value <= p.X.Max {
				x := trX(t.Value)
				c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
			}
		}
	}
	if g.y {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			if !t.IsMinor() && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
				y := trY(t.Value)
				c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
			}
		}
	}
}
