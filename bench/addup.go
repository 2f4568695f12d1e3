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

// addUp doubts clocks that do not add up. It looks at each process by itself.
func (d *doubter) addUp(c *results.Configuration, _ steps) finding {
	var shares []float64
	gaps := gapsOf(c)
	for _, g := range gaps {
		if share, ns := g.median(); math.Abs(share) > addUpShare && math.Abs(ns) > addUpNs {
			shares = append(shares, share)
		}
	}
	if len(shares) == 0 {
		return finding{}
	}
	return finding{fmt.Sprintf("misses %.1f %% of what a clock around a submission saw in %d of %s",
		100*results.Median(shares), len(shares), plural(len(gaps), "process", "processes")),
		"do not read submit time, sync wait and host time as parts of a whole"}
}

// gaps are, of each single step of a process, what the three clocks miss of the
// outer one: as a share of it and in nanoseconds.
type gaps struct{ shares, ns []float64 }

// median is what counts, because an interruption may fall between the clocks.
func (g gaps) median() (share, ns float64) { return results.Median(g.shares), results.Median(g.ns) }

// gapsOf are a configuration's by process; none where the clocks' samples are
// not of the same steps.
func gapsOf(c *results.Configuration) map[int]*gaps {
	outer := c.Metric(results.OuterTimeNs)
	if outer == nil {
		return nil
	}
	sum := make([]float64, len(outer.Samples))
	for _, name := range []string{results.SubmitTimeNs, results.SyncWaitNs, results.HostTimeNs} {
		part := c.Metric(name)
		if part == nil || len(part.Samples) != len(sum) {
			return nil
		}
		for i, s := range part.Samples {
			sum[i] += s.Value
		}
	}
	out := map[int]*gaps{}
	for i, s := range outer.Samples {
		g := out[s.Process]
		if g == nil {
			g = &gaps{}
			out[s.Process] = g
		}
		d := s.Value - sum[i]
		g.shares, g.ns = append(g.shares, d/max(s.Value, 1)), append(g.ns, d)
	}
	return out
}
