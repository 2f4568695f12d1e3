package golden

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tech-renaissance/trbench/workloads"
)

// Floor is the root mean square below which a golden tensor counts as this
// large: a relative error against nearly nothing says nothing. The script's
// own tables use the same.
const Floor = 1e-6

// Distance is the relative error |a-b| / max(|b|, Floor*sqrt(n)) by L2 norm,
// b the golden values. It is +Inf if the lengths differ or anything in a is
// not finite.
func Distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	if len(b) == 0 {
		return 0
	}
	var diff, norm float64
	for i := range b {
		x, y := float64(a[i]), float64(b[i])
		diff += (x - y) * (x - y)
		norm += y * y
	}
	d := math.Sqrt(diff) / max(math.Sqrt(norm), Floor*math.Sqrt(float64(len(b))))
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}

// Tolerance is the largest distance that counts as equal for a tensor of that
// kind after a stored step. ok is false for what is not compared: half
// precision drifts apart over steps, so AMP answers only for loss and weights
// after the first.
func Tolerance(p workloads.Precision, step int, kind string) (tolerance float64, ok bool) {
	switch {
	case p == workloads.FP32 && step == 1:
		return 1e-4, true
	case p == workloads.FP32:
		return 1e-3, true
	case step == 1 || kind == Loss || kind == Weight:
		return 2e-2, true
	}
	return 0, false
}

// Mismatch is a tensor and how far it is from the golden one.
type Mismatch struct {
	Case       string
	Step       int
	Kind, Name string
	Distance   float64 // +Inf if it is absent, of another length or not finite
	Tolerance  float64
	Why        string // for an infinite distance, in words
}

func (m Mismatch) String() string {
	s := fmt.Sprintf("%s after step %d: %s %s: distance %.3g, tolerance %.3g", m.Case, m.Step, m.Kind, m.Name, m.Distance, m.Tolerance)
	if m.Why != "" {
		s += " (" + m.Why + ")"
	}
	return s
}

// Over is the distance in units of the tolerance.
func (m Mismatch) Over() float64 { return m.Distance / m.Tolerance }

// Compare returns the tensors that are further from the golden ones than the
// tolerance, worst first. get returns the values that a device computed, K,R,S,C
// for convolution weights; nil means absent, and its result is not kept.
func Compare(c *Case, step int, get func(kind, name string) []float32) []Mismatch {
	all := Measure(c, step, get)
	return slices.DeleteFunc(all, func(m Mismatch) bool { return m.Distance <= m.Tolerance })
}

// Measure returns every tensor that [Compare] looks at, worst first. A step
// that is not stored, or with nothing to compare, gives one infinitely distant
// entry: a check that looks at nothing must not pass.
func Measure(c *Case, step int, get func(kind, name string) []float32) []Mismatch {
	var out []Mismatch
	for _, s := range c.Steps {
		if s.Step != step {
			continue
		}
		for _, t := range s.Tensors {
			tolerance, ok := Tolerance(c.Precision, step, t.Kind)
			if !ok {
				continue
			}
			m := Mismatch{Case: c.Name, Step: step, Kind: t.Kind, Name: t.Name, Tolerance: tolerance}
			got := get(t.Kind, t.Name)
			m.Distance, m.Why = Distance(got, t.Data), why(got, t.Data)
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return []Mismatch{{Case: c.Name, Step: step, Distance: math.Inf(1), Tolerance: 1, Why: "nothing stored to compare with"}}
	}
	slices.SortStableFunc(out, func(a, b Mismatch) int { return cmp.Compare(b.Over(), a.Over()) })
	return out
}

// why explains an infinite distance.
func why(got, want []float32) string {
	switch {
	case got == nil:
		return "absent"
	case len(got) != len(want):
		return fmt.Sprintf("%d elements, want %d", len(got), len(want))
	}
	for i, v := range got {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Sprintf("element %d is %g", i, v)
		}
	}
	return ""
}
