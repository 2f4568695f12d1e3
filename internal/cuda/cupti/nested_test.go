package cupti

import (
	"slices"
	"testing"
)

// A driver's call inside a runtime's of the same thread and correlation is that
// call's own.
func TestNested(t *testing.T) {
	call := func(runtime bool, process, thread, correlation uint32, from, to int64) Call {
		return Call{Runtime: runtime, Process: process, Thread: thread, Correlation: correlation, StartNs: from, EndNs: to}
	}
	for _, c := range []struct {
		name  string
		calls []Call
		want  []bool
	}{
		{"inside, in any order", []Call{call(false, 1, 2, 7, 50, 60), call(true, 1, 2, 7, 49, 61)}, []bool{true, false}},
		{"the same times", []Call{call(true, 1, 2, 7, 50, 60), call(false, 1, 2, 7, 50, 60)}, []bool{false, true}},
		{"another correlation", []Call{call(true, 1, 2, 7, 49, 61), call(false, 1, 2, 8, 50, 60)}, []bool{false, false}},
		{"another thread", []Call{call(true, 1, 2, 7, 49, 61), call(false, 1, 3, 7, 50, 60)}, []bool{false, false}},
		{"another process", []Call{call(true, 1, 2, 7, 49, 61), call(false, 2, 2, 7, 50, 60)}, []bool{false, false}},
		{"after", []Call{call(true, 1, 2, 7, 49, 61), call(false, 1, 2, 7, 61, 70)}, []bool{false, false}},
		{"longer", []Call{call(true, 1, 2, 7, 49, 61), call(false, 1, 2, 7, 50, 62)}, []bool{false, false}},
		{"two in one, and the next", []Call{call(true, 1, 2, 7, 10, 90), call(false, 1, 2, 7, 20, 30), call(false, 1, 2, 7, 40, 80),
			call(false, 1, 2, 8, 95, 99), call(true, 1, 2, 9, 100, 110), call(false, 1, 2, 9, 101, 109)}, []bool{false, true, true, false, false, true}},
		{"none", nil, []bool{}},
	} {
		if got := nested(c.calls); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
