package report

import (
	"fmt"
	"math"
)

// Duration shows nanoseconds with three significant digits and a unit.
func Duration(ns float64) string {
	switch a := math.Abs(ns); {
	case a < 999.5:
		return scaled(ns, 1, "ns")
	case a < 999.5e3:
		return scaled(ns, 1e3, "us")
	case a < 999.5e6:
		return scaled(ns, 1e6, "ms")
	}
	return scaled(ns, 1e9, "s")
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
