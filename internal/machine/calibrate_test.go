package machine

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// fakeClock moves only when it is read, by step (rounded down to grain), and
// when something sleeps or works.
type fakeClock struct {
	ns, step, grain int64
	late            time.Duration
	reads           int
	jump            func(read int) int64 // added at a read; may be negative
}

func (c *fakeClock) NowNs() int64 {
	c.reads++
	c.ns += c.step
	if c.jump != nil {
		c.ns += c.jump(c.reads)
	}
	if c.grain > 1 {
		return c.ns - c.ns%c.grain
	}
	return c.ns
}

func (c *fakeClock) Sleep(d time.Duration) { c.ns += int64(d + c.late) }

func value(t *testing.T, list []results.Reading, name string) float64 {
	t.Helper()
	v, ok := find(list, name)
	if !ok {
		t.Fatalf("no reading %s in %v", name, list)
	}
	return v
}

func TestCalibrateKnown(t *testing.T) {
	c := &fakeClock{step: 40, late: 70 * time.Microsecond}
	calls := 0
	got := Calibrate(c,
		Call{"known", func(n int) { c.ns += 250 * int64(n); calls += n }},
		Call{"nothing to call", nil},
		Call{"two-sided", func(n int) { // one batch in 20 is slow
			c.ns += 1000 * int64(n)
			if c.ns/20_000%20 == 0 {
				c.ns += 9000 * int64(n)
			}
		}},
	)
	for name, want := range map[string]float64{
		ClockReadNs: 40, ClockReadP99Ns: 40, ClockStepNs: 40, ClockBackwards: 0,
		SleepOvershootNs: 70_000 + 40, PauseLongestNs: 40, PauseShare: 0, StopWorldNs: 40,
	} {
		if v := value(t, got, name); v != want {
			t.Errorf("%s = %v, want %v", name, v, want)
		}
	}
	// Reading the clock adds 40 ns to a batch of 20 us.
	if v := value(t, got, "call.known_ns"); math.Abs(v-250) > 1 {
		t.Errorf("call.known_ns = %v", v)
	}
	if m, p := value(t, got, "call.two-sided_ns"), value(t, got, "call.two-sided_p99_ns"); m > 1010 || p < 9000 {
		t.Errorf("call.two-sided: median %v, p99 %v", m, p)
	}
	if calls == 0 {
		t.Error("the call was not made")
	}
	for _, r := range got {
		if r.Unit == "" || r.N <= 0 || math.IsNaN(r.Value) {
			t.Errorf("reading %+v", r)
		}
	}
}

func TestCalibrateStrangeClocks(t *testing.T) {
	for name, c := range map[string]struct {
		clock *fakeClock
		check func(t *testing.T, got []results.Reading)
	}{
		"coarse": {&fakeClock{step: 50, grain: 15_000}, func(t *testing.T, got []results.Reading) {
			if v := value(t, got, ClockStepNs); v != 15_000 {
				t.Errorf("step %v", v)
			}
		}},
		"backwards": {&fakeClock{step: 50, jump: func(read int) int64 {
			if read%1000 == 0 {
				return -200
			}
			return 0
		}}, func(t *testing.T, got []results.Reading) {
			if v := value(t, got, ClockBackwards); v == 0 {
				t.Error("no step back was seen")
			}
		}},
		"interrupted": {&fakeClock{step: 50, jump: func(read int) int64 {
			if read%20_000 == 0 { // 1 ms of each 2
				return 1_000_000
			}
			return 0
		}}, func(t *testing.T, got []results.Reading) {
			if v := value(t, got, PauseLongestNs); v != 1_000_050 {
				t.Errorf("longest %v", v)
			}
			if v := value(t, got, PauseShare); v < .4 || v > .6 {
				t.Errorf("share %v", v)
			}
		}},
		"standing still": {&fakeClock{}, func(t *testing.T, got []results.Reading) {
			if _, ok := find(got, ClockStepNs); ok {
				t.Error("a step was seen")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, Calibrate(c.clock)) })
	}
}

// By a clock that counts all that is done, a calibration ends in time however
// many calls there are, and each of them is measured.
func TestCalibrateEnds(t *testing.T) {
	for _, n := range []int{0, 1, 5, 50} {
		c := &fakeClock{step: 60, late: 3 * time.Millisecond}
		var calls []Call
		for range n {
			calls = append(calls, Call{"slow", func(n int) { c.ns += int64(n) * 300_000 }})
		}
		got := Calibrate(c, calls...)
		if c.ns >= int64(100*time.Millisecond) {
			t.Errorf("%d calls: took %v", n, time.Duration(c.ns))
		}
		measured := slices.DeleteFunc(got, func(r results.Reading) bool { return r.Name != "call.slow_ns" })
		if len(measured) != n {
			t.Errorf("%d of %d calls have a reading", len(measured), n)
		}
	}
}

// On the real clock figures are those of a computer. The limit holds for the
// best of several tries: the machine that runs the tests may be busy.
func TestCalibrateHere(t *testing.T) {
	best := time.Hour
	for range 10 {
		start := time.Now()
		got := Calibrate(Monotonic(), Call{"again", callNothing})
		best = min(best, time.Since(start))
		if v := value(t, got, CallEmptyNs); v <= 0 || v > 1e5 {
			t.Errorf("an empty call takes %v ns", v)
		}
		if v := value(t, got, ClockReadNs); v <= 0 || v > 1e5 {
			t.Errorf("reading the clock takes %v ns", v)
		}
		value(t, got, "call.again_p99_ns")
		if best < 100*time.Millisecond {
			return
		}
	}
	t.Errorf("the shortest calibration of 10 took %v", best)
}

func TestQuantile(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0: 1, .1: 1, .5: 5, .99: 10, 1: 10} {
		if got := quantile(ten, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}
