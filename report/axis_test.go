package report

import (
	"math"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"github.com/tech-renaissance/trbench/results"
)

// checkTicks looks at the labels of an axis: enough of them, inside, and not so
// many or so alike that they could not be read.
func checkTicks(t *testing.T, lo, hi float64, ticks []plot.Tick) {
	t.Helper()
	seen := map[string]bool{}
	for _, k := range ticks {
		if k.Label == "" {
			continue
		}
		if seen[k.Label] || k.Value < lo*(1-1e-9) || k.Value > hi*(1+1e-9) {
			t.Errorf("%g..%g: tick %s at %g", lo, hi, k.Label, k.Value)
		}
		seen[k.Label] = true
	}
	if len(seen) < 4 || len(seen) > 14 {
		t.Errorf("%g..%g has %d labels", lo, hi, len(seen))
	}
}

func TestRatioTicks(t *testing.T) {
	for _, test := range []struct {
		lo, hi       float64
		below, above bool
	}{
		{0.575, 1.78, true, true}, {0.9, 1.42, true, true}, {0.3, 1.05, true, false}, {0.96, 3.4, false, true},
		{0.92, 3, true, true}, {0.5, 20, true, true}, {0.05, 1.4, true, true}, {1e-6, 1e6, true, true},
		{0.1, 300, true, true}, {0.001, 2000, true, true}, {0.7, 7.7, true, true}, {0.88, 1.14, true, true},
	} {
		ticks := bothSides(test.lo, test.hi, logTicks(test.lo, test.hi))
		checkTicks(t, test.lo, test.hi, ticks)
		below, above := false, false
		for _, k := range ticks {
			below = below || k.Label != "" && k.Value < 1
			above = above || k.Label != "" && k.Value > 1
		}
		if test.below && !below || test.above && !above {
			t.Errorf("%g..%g has ticks below 1: %v, above: %v", test.lo, test.hi, below, above)
		}
	}
}

// Every range that a log axis can get, from the shortest to a record's damage.
func TestLogTicks(t *testing.T) {
	for lo := 1e-9; lo < 1e9; lo *= 1.37 {
		for factor := 1.3; factor < 1e12; factor *= 1.31 {
			checkTicks(t, lo, lo*factor, logTicks(lo, lo*factor))
			if lo < 1 && lo*factor > 1 {
				checkTicks(t, lo, lo*factor, bothSides(lo, lo*factor, logTicks(lo, lo*factor)))
			}
		}
	}
}

func TestLinearTicks(t *testing.T) {
	for hi := 0.01; hi < 1e6; hi *= 1.03 {
		checkTicks(t, 0, hi, linearTicks(0, hi, 6))
	}
}

func TestWhisker(t *testing.T) {
	inf := math.Inf(1)
	for _, test := range []struct {
		low, high float64
		want      whisker
		ok        bool
	}{
		{2, 3, whisker{2, 3, capped, capped}, true},
		{1, 10, whisker{1, 10, capped, capped}, true}, // the ends of the axis are inside
		{0.5, 3, whisker{1, 3, arrowed, capped}, true},
		{2, 11, whisker{2, 10, capped, arrowed}, true},
		{-4, 1e9, whisker{1, 10, arrowed, arrowed}, true},
		{11, 12, whisker{10, 10, missing, arrowed}, true},
		{0.1, 0.2, whisker{1, 1, arrowed, missing}, true},
		{math.NaN(), 3, whisker{}, false}, {2, inf, whisker{}, false},
	} {
		if got, ok := whiskerOf(test.low, test.high, 1, 10); got != test.want || ok != test.ok {
			t.Errorf("%g..%g: got %v, %v", test.low, test.high, got, ok)
		}
	}
}

// shape counts what ends an interval: flat caps are lines across it, arrows
// have their tip on its end.
type shape struct{ stems, caps, arrows int }

// shapes reads what was drawn in strokes of a width.
func shapes(actions []recorder.Action, width vg.Length, upright bool) (s shape, tips []vg.Point) {
	var now vg.Length
	for _, a := range actions {
		switch a := a.(type) {
		case *recorder.SetLineWidth:
			now = a.Width
		case *recorder.Stroke:
			if now != width {
				continue
			}
			across := func(p, q vg.Point) bool {
				if upright {
					return p.Y == q.Y
				}
				return p.X == q.X
			}
			switch p := a.Path; {
			case len(p) == 3:
				s.arrows++
				tips = append(tips, p[1].Pos)
			case len(p) == 2 && across(p[0].Pos, p[1].Pos):
				s.caps++
			default:
				s.stems++
			}
		}
	}
	return s, tips
}

// An end that the axis has no room for is drawn as an arrow at the border and
// never as a cap, which would be a false end.
func TestSeriesDrawsArrows(t *testing.T) {
	for _, test := range []struct {
		name      string
		low, high float64
		want      shape
		up        bool
	}{
		{"inside", 1.2, 2.5, shape{1, 2, 0}, false},
		{"high", 1.2, 90, shape{1, 1, 1}, true},
		{"low", -3, 2.5, shape{1, 1, 1}, false},
		{"both", 0.001, 90, shape{1, 0, 2}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ss := []series{{points: []point{{x: 1, y: 2, low: test.low, high: test.high}, {x: 2, y: 3, low: nan(), high: nan()}}, look: looks()[2]}}
			l := lines{series: ss, y: logAxis(yValues(ss), 2)}
			p := newPlot()
			l.y.apply(&p.Y)
			p.X.Min, p.X.Max = 0, 3
			var rec recorder.Canvas
			c := draw.NewCanvas(&rec, 300, 200)
			ss[0].Plot(c, p)
			got, tips := shapes(rec.Actions, 1, true)
			if got != test.want {
				t.Errorf("drawn: %+v, want %+v", got, test.want)
			}
			for _, tip := range tips {
				if tip.Y != c.Min.Y && tip.Y != c.Max.Y {
					t.Errorf("an arrow ends at %v, inside the picture", tip)
				}
			}
			if len(tips) == 1 && (tips[0].Y == c.Max.Y) != test.up {
				t.Errorf("the arrow points to %v", tips[0])
			}
			if l.leaves() != (test.want.arrows > 0) {
				t.Errorf("leaves: %v", l.leaves())
			}
			pic := Picture{Subtitle: []string{"."}}
			pic.set(l)
			if said := pic.Subtitle[len(pic.Subtitle)-1] == arrows; said != (test.want.arrows > 0) {
				t.Errorf("subtitle %q", pic.Subtitle)
			}
		})
	}
}

func testBars(high, waiting, mark float64) bars {
	return bars{
		parts: []part{{name: "work"}, {name: "waiting", open: true}}, mark: "step time",
		panels: []panel{{bars: []bar{
			{segments: []segment{{0, 100, 90, high}, {1, waiting, nan(), nan()}}, mark: mark},
			{segments: []segment{{0, 8, nan(), nan()}}, mark: nan()},
		}}},
	}
}

func TestBarsDrawArrows(t *testing.T) {
	for _, test := range []struct {
		name string
		b    bars
		want shape
	}{
		{"inside", testBars(110, 20, nan()), shape{1, 2, 0}},
		{"far", testBars(4000, 20, nan()), shape{1, 1, 1}},
	} {
		var rec recorder.Canvas
		c := draw.NewCanvas(&rec, 300, 20)
		reach := test.b.reach(test.b.panels[0])
		trX := func(v float64) vg.Length { return vg.Length(v / reach * 300) }
		test.b.drawBar(c, test.b.panels[0].bars[0], trX, 10, reach)
		got, tips := shapes(rec.Actions, 0.8, false)
		if got != test.want || test.b.leaves() != (got.arrows > 0) {
			t.Errorf("%s: drawn %+v, want %+v; leaves: %v", test.name, got, test.want, test.b.leaves())
		}
		for _, tip := range tips {
			if tip.X != 300 {
				t.Errorf("%s: an arrow ends at %v", test.name, tip)
			}
		}
	}
}

// The host's work has the axis; the device's time and waiting for it do not
// make it invisible.
func TestHostAxis(t *testing.T) {
	for _, test := range []struct {
		name             string
		b                bars
		broken, unmarked bool
	}{
		{"all inside", testBars(100, 20, 130), false, false},
		{"long waiting", testBars(100, 90000, nan()), true, false},
		{"long step", testBars(100, 20, 90000), false, true},
		{"both", testBars(100, 90000, 95000), true, true},
		{"a step a little longer", testBars(100, 0, 149), false, false},
	} {
		reach := test.b.reach(test.b.panels[0])
		if reach < 100 || reach > 100*openReach*1.04*endReach {
			t.Errorf("%s: the axis ends at %g", test.name, reach)
		}
		if test.b.broken() != test.broken || test.b.unmarked() != test.unmarked {
			t.Errorf("%s: broken %v, unmarked %v", test.name, test.b.broken(), test.b.unmarked())
		}
	}
	// A CPU's step: microseconds of host time in 20 ms.
	b := testBars(100, 3, 20000)
	if r := b.reach(b.panels[0]); 8/r < 0.05 {
		t.Errorf("the shortest bar has %g of the width", 8/r)
	}
}

func TestWarningsBelowPlots(t *testing.T) {
	f := &family{}
	if got := f.warnings(); got != nil {
		t.Errorf("none: %q", got)
	}
	for _, code := range []string{"load", "few_blocks", "load", "drift"} {
		f.warn(results.Warning{Code: code, Text: "a text that takes a whole line below a plot and more than that if there are many of it"})
	}
	if got := f.warnings(); len(got) != 1 || got[0] != "3 warnings: load, few_blocks, drift; see the table." {
		t.Errorf("got %q", got)
	}
	for i := range 200 {
		f.warn(results.Warning{Code: "a_long_code_" + time.Duration(i).String()})
	}
	p := Picture{Notes: f.warnings()}
	if n := len(p.foot()); n != 2 {
		t.Errorf("%d lines: %q", n, p.Notes)
	}
}

func TestPreparationTotal(t *testing.T) {
	c := results.Configuration{Prepare: []results.Phase{{Phase: "a", Ns: 10, Processes: []int64{1, 10, 20}}, {Phase: "b", Ns: 6, Processes: []int64{9, 6, 5}}}}
	if f, stored := preparationOf(&c); f.value != 16 || stored {
		t.Errorf("without prepare_ns: %v, %v", f, stored)
	}
	// The median of the sums 10, 16 and 25 happens to be the same; of these it is not.
	m := results.NewMetric(results.PrepareNs, []results.Sample{{Value: 40}})
	m.Summary = &results.Summary{Median: 40, Processes: []float64{10, 40, 50}}
	c.Metrics = []results.Metric{m}
	if f, stored := preparationOf(&c); f.value != 40 || !stored || results.Median(perProcess(&m)) != f.value {
		t.Errorf("with prepare_ns: %v, %v; benchstat sees %v", f, stored, perProcess(&m))
	}
	i := phaseInterval(c.Prepare[:1])
	if i == nil || i.Low != 1 || i.High != 20 || i.Coverage != 0.75 {
		t.Errorf("interval %+v", i)
	}
	if i := phaseInterval(c.Prepare); i == nil || i.Low != 10 || i.High != 25 {
		t.Errorf("interval of two phases in one part %+v", i)
	}
	if i := phaseInterval([]results.Phase{{Processes: []int64{1}}}); i != nil {
		t.Errorf("one process: %+v", i)
	}
	if i := phaseInterval([]results.Phase{{Processes: []int64{1, 2}}, {}}); i != nil {
		t.Errorf("a phase that not all processes have: %+v", i)
	}
}

func TestRepaid(t *testing.T) {
	base, own := results.DefaultConfigurationKey(), results.DefaultConfigurationKey()
	own.Mode = "graph"
	metric := func(name string, v float64) results.Metric {
		return results.NewMetric(name, []results.Sample{{Value: v}})
	}
	for _, test := range []struct {
		ratio, low, high float64
		cost             float64
		want             string
	}{
		{2, 1.6, 4, 1e6, "after 2,000 steps (1,330..2,670)"},
		{2, 0, 0, 1e6, "after 2,000 steps"},
		{2, 1.6, 4, 400, "after 1 step (1..2)"},
		{1.25, 0.8, 2, 1e6, "unclear: 2,000 steps at best, or never"},
		{0.9, 0.8, 2, 1e6, "unclear: 2,000 steps at best, or never"},
		{0.9, 0.8, 0.95, 1e6, "never: no faster than eager"},
		{2, 1.6, 4, -5, "at once"},
		{2, 1.6, 4, 1e13, "after >1e9 steps (>1e9..>1e9)"},
	} {
		c := results.Cell{Configurations: []results.Configuration{
			{Key: base, Metrics: []results.Metric{metric(results.StepTimeNs, 1000), metric(results.PrepareNs, 1e6)}},
			{Key: own, Metrics: []results.Metric{metric(results.StepTimeNs, 1000/test.ratio), metric(results.PrepareNs, 1e6+test.cost)}},
		}}
		r := results.Ratio{Metric: results.StepTimeNs, Base: base, Other: own, Value: test.ratio}
		if test.low > 0 {
			r.Interval = &results.Interval{Low: test.low, High: test.high}
		}
		c.Ratios = []results.Ratio{r}
		if got := repaid(&c, &c.Configurations[1]); got != test.want {
			t.Errorf("%g (%g..%g) and %g ns: got %q, want %q", test.ratio, test.low, test.high, test.cost, got, test.want)
		}
	}
}
