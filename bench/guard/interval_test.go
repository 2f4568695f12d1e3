package guard

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The interval has what the test does not reject: base times a factor inside
// it is not told from head, times one outside it is.
func TestIntervalInvertsTheTest(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range [][2]int{{8, 8}, {5, 9}, {40, 8}, {4, 4}, {12, 12}, {60, 60}} {
		for range 5 {
			draw := func(n int) []float64 {
				v := make([]float64, n)
				for i := range v {
					v[i] = 1000 * math.Exp(.01*rng.NormFloat64())
				}
				return v
			}
			base, head := draw(n[0]), draw(n[1])
			i := hodgesLehmann{map[[2]int]cut{}}.interval(base, head)
			times := func(f float64) float64 {
				scaled := make([]float64, len(base))
				for j, b := range base {
					scaled[j] = b * f
				}
				_, p := mannWhitney(scaled, head)
				return p
			}
			const step = 1e-9
			for _, inside := range []float64{i.Low * (1 + step), i.High * (1 - step)} {
				if p := times(inside); p <= .05 {
					t.Errorf("%d against %d: %v is inside %v and has p %v", n[0], n[1], inside, *i, p)
				}
			}
			for _, outside := range []float64{i.Low * (1 - step), i.High * (1 + step)} {
				if p := times(outside); p > .05 {
					t.Errorf("%d against %d: %v is outside %v and has p %v", n[0], n[1], outside, *i, p)
				}
			}
		}
	}
}

// Hollander and Wolfe's tables have these ranks for 95 %: of 8 against 8 the
// 14th smallest and largest difference, of 5 against 5 the 3rd. Of 3 against 3
// the whole range has 90 %.
func TestIntervalCuts(t *testing.T) {
	for _, c := range []struct {
		n1, n2, outside int
		coverage        float64
	}{{8, 8, 13, .950}, {5, 5, 2, .968}, {3, 3, 0, .9}, {1, 1, 0, 0}, {10, 10, 23, .957}} {
		got := cutOf(c.n1, c.n2)
		if got.outside != c.outside || math.Abs(got.coverage-c.coverage) > .0006 {
			t.Errorf("%d against %d: %+v, want %+v", c.n1, c.n2, got, c)
		}
	}
	// The approximation goes on where the exact distribution ends.
	if a, b := cutOf(50, 50), cutOf(50, 51); b.outside-a.outside < 5 || b.outside-a.outside > 30 {
		t.Errorf("50 against 50 %+v, 50 against 51 %+v", a, b)
	}
}
