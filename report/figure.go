package report

import (
	"math"

	"github.com/tech-renaissance/trbench/results"
)

// figure is a value with what is known of its uncertainty.
type figure struct {
	value float64
	// interval is nil if there is none, as with one process.
	interval *results.Interval
	// processes is how many replicates stand behind the value; 0 if the
	// record does not say.
	processes int
	n         int
}

// figureOf reads a metric of a configuration. It reports false for a metric
// that is absent or no number.
func figureOf(c *results.Configuration, name string) (figure, bool) {
	m := c.Metric(name)
	if m == nil {
		return figure{}, false
	}
	f := metricFigure(m)
	return f, finite(f.value)
}

func metricFigure(m *results.Metric) figure {
	f := figure{value: m.Value, n: m.N}
	if s := m.Summary; s != nil {
		f = figure{value: s.Median, interval: usable(s.Interval), processes: len(s.Processes), n: s.N}
	}
	return f
}

func ratioFigure(r *results.Ratio) (figure, bool) {
	f := figure{value: r.Value, interval: usable(r.Interval), processes: len(r.Logs)}
	return f, drawable(f.value)
}

// usable drops an interval that is none.
func usable(i *results.Interval) *results.Interval {
	if i == nil || !finite(i.Low) || !finite(i.High) || i.Low > i.High {
		return nil
	}
	return i
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// drawable tells whether a plot can place a value on a log axis: it is above 0
// and not so far from anything measured that it must be damage.
func drawable(v float64) bool { return v >= 1e-9 && v <= 1e18 }

// halfWidth is the larger distance from the value to an end of its interval.
func (f figure) halfWidth() float64 {
	return max(f.interval.High-f.value, f.value-f.interval.Low)
}

// plusMinus is the half width as a share of the value, with two digits.
func (f figure) plusMinus() string {
	if f.interval == nil {
		return "-"
	}
	if f.value == 0 || !finite(f.value) {
		if f.halfWidth() == 0 {
			return "0%"
		}
		return "-"
	}
	return percent(f.halfWidth() / math.Abs(f.value))
}

// describe says how an interval was made, for readers of a table or a plot.
func describe(i *results.Interval) string {
	method := plain(i.Method)
	switch method {
	case "order":
		method = "order statistics over processes"
	case "t":
		method = "t over processes"
	case "bootstrap":
		method = "bootstrap over processes"
	case "":
		method = "method unknown"
	}
	if i.Coverage > 0 && finite(i.Coverage) {
		return method + ", covers " + percent(i.Coverage)
	}
	return method
}
