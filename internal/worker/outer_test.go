package worker

import (
	"math"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
)

// The three clocks of a step lie within the outer one, and but for reading the
// clocks they are all of it, in every mode and for every step. How long a step
// takes does not matter: what is compared is what this machine's clock takes
// now. Something may come between two reads, so the median counts, and another
// try; or memory may lie badly for as long as a session lives, and so another
// session.
func TestClocksAddUp(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector is between all reads")
	}
	for _, k := range everyWay() {
		t.Run(k.String(), func(t *testing.T) {
			var share, gap, limit float64
			for range 5 {
				s := open(t, tinySpec(), cpu.Options{}, Options{})
				x := executor(t, s, k)
				must(t, x.Begin())
				for range 5 {
					if share, gap, limit = gapOf(t, x); gap <= limit {
						return
					}
				}
			}
			t.Errorf("the clocks miss %.1f %%, %.0f ns of a step, and may miss %.0f", 100*share, gap, limit)
		})
	}
}

// gapOf is what the parts of single steps miss of the clock around them, in
// the median, and what they may miss.
func gapOf(t *testing.T, x *Executor) (share, gap, limit float64) {
	t.Helper()
	var gaps, outers, reads []float64
	for range 60 {
		x.Clocks()
		must(t, x.Submit(1))
		c := x.Clocks()[0]
		must(t, x.Wait())
		// As in a step, on a thread that did something else before.
		must(t, x.s.group.Rank(0).Do(func() error {
			begin := walk.Now()
			reads = append(reads, float64(walk.Now()-begin))
			return nil
		}))
		sum := c.Submit + c.SyncWait + c.Host
		if sum > c.Outer || c.Submit < 0 || c.SyncWait < 0 || c.Host < 0 || c.Outer <= 0 {
			t.Fatalf("the parts are more than the whole: %+v", c)
		}
		if want := 2 * x.s.readClock; c.Reads != want {
			t.Fatalf("%v for two reads of %v", c.Reads, x.s.readClock)
		}
		gaps, outers = append(gaps, float64(c.Outer-c.Reads-sum)), append(outers, float64(c.Outer-c.Reads))
	}
	gap, outer := math.Abs(results.Median(gaps)), results.Median(outers)
	return gap / outer, gap, max(outer*0.02, 3*results.Median(reads))
}

// What is around the timed steps counts in none of them: neither the epoch's
// begin nor steps of the launch overhead.
func TestCountsAreOfStepsAlone(t *testing.T) {
	for _, k := range everyWay() {
		s := open(t, tinySpec(), cpu.Options{}, Options{})
		x := executor(t, s, k)
		must(t, s.Restore(), x.Begin(), x.Submit(3), x.Wait())
		x.Clocks()
		must(t, x.Submit(1), x.Wait())
		x.Clocks()
		one, replays := x.counts, x.Captures().Replays
		if x.counted != 1 || one == (walk.Counts{}) {
			t.Fatalf("%s: %+v", k, one)
		}
		must(t, s.Restore(), x.Submit(2), x.Wait()) // counted by nobody
		must(t, s.Restore(), x.Begin())
		for i, c := range x.Clocks() {
			if c != (bench.Clocks{Reads: x.s.readClock}) || x.counts != one {
				t.Errorf("%s: rank %d has %+v, %+v before the first step", k, i, c, x.counts)
			}
		}
		must(t, x.Submit(2), x.Wait())
		x.Clocks()
		if x.counted != 2 || x.counts != (walk.Counts{Host: 2 * one.Host, Graph: 2 * one.Graph, Copy: 2 * one.Copy, Sync: 2 * one.Sync}) {
			t.Errorf("%s: two steps count %+v, one %+v", k, x.counts, one)
		}
		if x.set != nil && x.Captures().Replays <= replays+2*one.Graph*int64(len(x.runners)) {
			t.Errorf("%s: replays are lost: %d after %d", k, x.Captures().Replays, replays)
		}
	}
}

// Readying a rank runs the way to a step and back, and leaves the rank where it
// is: nothing is submitted, counted or moved, so the step after it is the one
// that was next.
func TestReadyLeavesNoTrace(t *testing.T) {
	for _, k := range everyWay() {
		s := open(t, tinySpec(), cpu.Options{}, Options{})
		x := executor(t, s, k)
		must(t, x.Begin(), x.Submit(1), x.Wait())
		r := x.runners[0]
		pos, stats, progress := r.Position(), r.Stats(), r.Progress()
		must(t, s.group.Rank(0).Do(func() error { r.Ready(); return nil }))
		if r.Position() != pos || r.Stats() != stats || r.Progress() != progress {
			t.Errorf("%s: %+v, %+v, %d, before it %+v, %+v, %d", k, r.Position(), r.Stats(), r.Progress(), pos, stats, progress)
		}
		must(t, x.Submit(1), x.Wait())
		if now := r.Position(); now.Half != pos.Half.Other() || now.First {
			t.Errorf("%s: a step from %+v leads to %+v", k, pos, now)
		}
	}
}

func TestReadClock(t *testing.T) {
	if d := readClock(); d <= 0 || d > 100*time.Microsecond {
		t.Errorf("a read takes %v", d)
	}
}

// BenchmarkClocksAddUp prints how far the three clocks of a step are from a
// clock around its whole submission, to a drained device.
func BenchmarkClocksAddUp(b *testing.B) {
	for _, k := range []string{"eager/event/device", "eager/host/host", "graph/event/device", "step/inside/device"} {
		b.Run(k, func(b *testing.B) {
			s := open(b, tinySpec(), cpu.Options{}, Options{})
			x := executor(b, s, key(k))
			must(b, x.Begin())
			var sum, outer float64
			for b.Loop() {
				x.Clocks()
				must(b, x.Submit(1))
				c := x.Clocks()[0]
				must(b, x.Wait())
				sum += float64(c.Submit + c.SyncWait + c.Host)
				outer += float64(c.Outer - c.Reads)
			}
			b.ReportMetric(100*(1-sum/outer), "%missing")
			b.ReportMetric(outer/float64(b.N), "outer-ns/step")
		})
	}
}
