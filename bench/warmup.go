package bench

import (
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// A configuration is warm when its last steps show no trend: Mann and
// Kendall's test (two-sided, 5 %, exact) finds none among the last warmWindow
// step times, or Theil and Sen's slope moves them by less than warmShare of
// their median from the first to the last. It is asked every warmEvery steps,
// so that windows overlap by half and a lucky one is not waited for.
const (
	warmWindow = 8
	warmEvery  = warmWindow / 2
	warmShare  = 0.01
	// warmBudget is the share of the time left that all warm-ups may take
	// where the time is limited.
	warmBudget = 0.5
)

// warmUp runs a configuration until it is warm, or for the number of steps
// that was asked for.
func (m *measurement) warmUp(i int) error {
	x := m.executors[i]
	w := results.Warmup{Process: m.plan.Process}
	defer func() { m.out.Configurations[i].Warmup = []results.Warmup{w} }()
	if m.plan.Warmup != nil && *m.plan.Warmup == 0 {
		return nil
	}
	if err := m.start(x); err != nil {
		return err
	}
	if m.plan.Warmup != nil {
		w.Steps = *m.plan.Warmup
		if err := x.Submit(w.Steps); err != nil {
			return err
		}
		return x.Wait()
	}
	until := m.warmUntil(i)
	var times []float64
	for {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		begin := m.clock.Now()
		if err := x.Submit(1); err != nil {
			return err
		}
		if err := x.Wait(); err != nil {
			return err
		}
		now := m.clock.Now()
		times = append(times, float64(now-begin))
		w.Steps = len(times)
		if warm(times) {
			return nil
		}
		if len(times) >= m.plan.WarmupCap || until > 0 && now >= until {
			w.Capped = true
			return nil
		}
	}
}

// warmUntil is when the i-th configuration's warm-up ends at the latest: all
// that follow get the same share of what is left.
func (m *measurement) warmUntil(i int) time.Duration {
	if m.plan.Deadline == 0 {
		return 0
	}
	now := m.clock.Now()
	left := max(m.plan.Deadline-now, 0)
	return now + time.Duration(warmBudget*float64(left))/time.Duration(len(m.keys)-i) + 1
}

// warm says whether the step times so far end without a trend.
func warm(times []float64) bool {
	n := len(times)
	return n >= warmWindow && (n-warmWindow)%warmEvery == 0 && !trending(times[n-warmWindow:], warmShare)
}
