package machine

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Difference is a field in which two environments are not known to agree.
type Difference struct {
	Name string
	// A and B are the values; an empty one is not known, and its Why says so.
	A, B       string
	WhyA, WhyB string
}

// Unknown says that one side has no value: they may be the same.
func (d Difference) Unknown() bool { return d.A == "" || d.B == "" }

// absent is the value of an environment variable without a field.
const absent = "(not set)"

// sameSize is by how much sizes of memory may differ: kernels and drivers keep
// a little for themselves, and not always the same.
const sameSize = .02

// Differences compares two environments field by field, in the order of a and
// then of b. What neither side knows is no difference. A field that the sides
// mark with different roles is of the bed.
func Differences(a, b results.Environment) (subjects, beds []Difference) {
	for _, name := range names(a, b) {
		fa, knownA := a.Field(name)
		fb, knownB := b.Field(name)
		role := fa.Role
		switch {
		case !knownA:
			role = fb.Role
		case knownB && fa.Role != fb.Role:
			role = results.Bed
		}
		fillAbsent(&fa, knownA, name, a)
		fillAbsent(&fb, knownB, name, b)
		if same(name, fa.Value, fb.Value) {
			continue
		}
		d := Difference{Name: name, A: fa.Value, B: fb.Value, WhyA: fa.Why, WhyB: fb.Why}
		if role == results.Subject {
			subjects = append(subjects, d)
		} else {
			beds = append(beds, d)
		}
	}
	return subjects, beds
}

// names lists the fields of both.
func names(a, b results.Environment) []string {
	var list []string
	seen := map[string]bool{}
	for _, f := range slices.Concat(a.Fields, b.Fields) {
		if !seen[f.Name] {
			seen[f.Name] = true
			list = append(list, f.Name)
		}
	}
	return list
}

// fillAbsent says what a missing field means: of a variable, that it was not
// set; of anything else, and of a record without an environment, nothing.
func fillAbsent(f *results.EnvironmentField, known bool, name string, e results.Environment) {
	switch {
	case known:
	case len(e.Fields) == 0:
		f.Why = "the record has no environment"
	case strings.HasPrefix(name, EnvPrefix):
		f.Value = absent
	default:
		f.Why = "the record has no such field"
	}
}

func same(name, a, b string) bool {
	if a == b {
		return true
	}
	if !strings.HasSuffix(name, "_bytes") {
		return false
	}
	x, err := strconv.ParseFloat(a, 64)
	y, again := strconv.ParseFloat(b, 64)
	return err == nil && again == nil && math.Abs(x-y) <= sameSize*max(x, y)
}
