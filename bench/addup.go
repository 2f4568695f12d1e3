package bench

import (
	"fmt"
	"math"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Submit time, sync wait and host time of a step should add up to what a
// clock around the whole submission saw, less what reading the clocks takes.
// They may differ by addUpShare, or by what a few memory accesses take where a
// step has emptied the caches.
const (
	addUpShare = 0.02
	addUpNs    = 200
)

// outer is the clock around a submission without the reads between it and the
// others; ok is false where there is none.
func (c Clocks) outer() (d time.Duration, ok bool) { return max(c.Outer-c.Reads, 0), c.Outer > 0 }

// outerClock holds, of each single step, the three clocks' sum and the clock
// around them.
type outerClock struct{ sum, outer []float64 }

func (o *outerClock) add(c Clocks) {
	if outer, ok := c.outer(); ok {
		o.sum = append(o.sum, float64(c.Submit+c.SyncWait+c.Host))
		o.outer = append(o.outer, float64(outer))
	}
}

// gap is the median difference as a share of the outer clock, and in
// nanoseconds. Medians, because an interruption may fall between the clocks.
func (o outerClock) gap() (share, ns float64) {
	var shares, diffs []float64
	for i := range o.sum {
		d := o.outer[i] - o.sum[i]
		shares, diffs = append(shares, d/max(o.outer[i], 1)), append(diffs, d)
	}
	return results.Median(shares), results.Median(diffs)
}

// addUp doubts clocks that do not add up.
func (m *measurement) addUp() {
	for i, o := range m.outer {
		if share, ns := o.gap(); math.Abs(share) > addUpShare && math.Abs(ns) > addUpNs {
			m.out.Warnings = append(m.out.Warnings, results.Warning{Code: "clocks_do_not_add_up", Text: fmt.Sprintf(
				"%s: submit time, sync wait and host time miss %.1f %% of what a clock around the submission saw; do not read them as parts of a whole",
				m.keys[i], 100*share)})
		}
	}
}
