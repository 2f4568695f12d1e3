package history

import (
	"math"
	"testing"
)

// The values are those of Newcombe 1998 (table I, method 3, the score interval
// without continuity correction).
func TestWilson(t *testing.T) {
	for _, test := range []struct {
		hits, n   int
		low, high float64
	}{{81, 263, .2553, .3662}, {15, 148, .0624, .1605}, {0, 20, 0, .1611}, {1, 29, .0061, .1718}, {0, 0, 0, 1}, {20, 20, .8389, 1}} {
		r := NewRate(test.hits, test.n)
		if math.Abs(r.Low-test.low) > 5e-5 || math.Abs(r.High-test.high) > 5e-5 {
			t.Errorf("%+v, want %v to %v", r, test.low, test.high)
		}
	}
}

func TestRates(t *testing.T) {
	yes := Trial{First: true, Final: true}
	r := ratesOf([]Sentinel{
		{Null: Trial{First: true}, Injected: yes}, {Injected: yes}, {Null: yes}, {Injected: Trial{First: true}},
	})
	if r.FalseFirst.Hits != 2 || r.FalseFinal.Hits != 1 || r.CaughtFirst.Hits != 3 || r.CaughtFinal.Hits != 2 || r.CaughtFinal.N != 4 {
		t.Errorf("%+v", r)
	}
}
