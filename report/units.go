package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Duration shows nanoseconds with three significant digits and a unit.
func Duration(ns float64) string {
	u := timeUnit(ns)
	return scaled(ns, u.by, u.name)
}

// unit is a scale to show values in.
type unit struct {
	name string
	by   float64
}

// timeUnit is the unit in which so many nanoseconds have one to three digits
// before the point.
func timeUnit(ns float64) unit {
	switch a := math.Abs(ns); {
	case a < 999.5:
		return unit{"ns", 1}
	case a < 999.5e3:
		return unit{"us", 1e3}
	case a < 999.5e6:
		return unit{"ms", 1e6}
	}
	return unit{"s", 1e9}
}

// Bytes shows a size in powers of 1024.
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, i := float64(n), 0
	for v >= 999.5 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return scaled(v, 1, units[i])
}

func scaled(v, by float64, unit string) string { return digits(v/by) + " " + unit }

// digits shows three significant digits without an exponent.
func digits(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a < 9.995:
		return fmt.Sprintf("%.2f", v)
	case a < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Percent shows a share with two significant digits.
func Percent(share float64) string { return percent(share) }

// percent shows a share with two significant digits.
func percent(share float64) string {
	p := 100 * share
	switch {
	case p == 0:
		return "0%"
	case p < 0.095:
		return "<0.1%"
	case p < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", p), ".0") + "%"
	case p < 1000:
		return fmt.Sprintf("%.0f%%", p)
	}
	return ">1000%"
}

// exact is the shortest text that reads back as the same number: for formats
// that programs read.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Quantity reads the figure at the beginning of a cell back, in base units, so
// that a renderer can sort by what is shown. It reports false for text that is
// no figure; digits that rounding dropped stay dropped.
func Quantity(text string) (float64, bool) {
	fields := strings.Fields(strings.TrimLeft(text, "<>"))
	if len(fields) == 0 {
		return 0, false
	}
	number, by := strings.ReplaceAll(fields[0], ",", ""), 1.0
	// A change too large for per cent is written as a factor.
	if n, ok := strings.CutPrefix(number, "x"); ok {
		v, err := strconv.ParseFloat(n, 64)
		return v - 1, err == nil && finite(v)
	}
	if n, ok := strings.CutSuffix(number, "%"); ok {
		number, by = n, 0.01
	}
	// A range counts from its lower end.
	number, _, _ = strings.Cut(number, "..")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !finite(v) {
		return 0, false
	}
	if len(fields) > 1 {
		scale, ok := scales()[fields[1]]
		if ok {
			by = scale
		}
	}
	return v * by, true
}

// scales are the units that [Duration] and [Bytes] write.
func scales() map[string]float64 {
	return map[string]float64{
		"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9,
		"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60,
	}
}

// Unit splits a figure from a unit of [Duration] or [Bytes] behind it; unit is
// empty if there is none, or more than a figure and a unit.
func Unit(text string) (figure, unit string) {
	fields := strings.Fields(text)
	if len(fields) == 2 {
		if _, ok := scales()[fields[1]]; ok {
			if _, ok := Quantity(fields[0]); ok {
				return fields[0], fields[1]
			}
		}
	}
	return text, ""
}
