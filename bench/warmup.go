package bench

import (
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// A configuration is warm when its last steps show no trend: Mann and
// Kendall's test (two-sided, 5 %, exact) finds none among the last warmWindow
// times, or Theil and Sen's slope moves them by less than warmShare of their
// median from the first to the last. It is asked every warmEvery times, so that
// windows overlap by half and a lucky one is not waited for.
//
// A time is that of one step. Where steps are short, it is the mean of as many
// as take warmSlice, so that a window is at least warmWindow steps and at least
// 50 ms, and the cap on their number allows 400 ms.
const (
	warmWindow = 8
	warmEvery  = warmWindow / 2
	warmShare  = 0.01
	warmSlice  = 50 * time.Millisecond / warmWindow
	// sliceSteps end a slice as well: a clock may stand still.
	sliceSteps = 10_000
)

// warmUp runs a configuration until it is warm, or for the number of steps
// that was asked for. No budget ends it: what is not warm is not worth timing.
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
	// Fewer than a window would show nothing.
	limit := max(m.plan.WarmupCap, warmWindow)
	var times []float64
	for len(times) < limit {
		mean, steps, err := m.slice(x)
		if err != nil {
			return err
		}
		times = append(times, mean)
		w.Steps += steps
		if warm(times) {
			return nil
		}
	}
	w.Capped = trending(times[len(times)-warmWindow:], warmShare)
	return nil
}

// slice takes one time of a warm-up: a step's, or the mean of several short
// ones'.
func (m *measurement) slice(x Executor) (mean float64, steps int, err error) {
	for all := time.Duration(0); ; {
		if err := m.ctx.Err(); err != nil {
			return 0, 0, err
		}
		begin := m.clock.Now()
		if err := x.Submit(1); err != nil {
			return 0, 0, err
		}
		if err := x.Wait(); err != nil {
			return 0, 0, err
		}
		all += m.clock.Now() - begin
		if steps++; all >= warmSlice || steps == sliceSteps {
			return perStep(all, steps), steps, nil
		}
	}
}

// warm says whether the step times so far end without a trend.
func warm(times []float64) bool {
	n := len(times)
	return n >= warmWindow && (n-warmWindow)%warmEvery == 0 && !trending(times[n-warmWindow:], warmShare)
}
