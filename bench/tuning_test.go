package bench

import "testing"

// Blocks are times; the expected pick follows from the ratios by hand.
func TestSimplest(t *testing.T) {
	flat := func(v float64, n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = v
		}
		return out
	}
	// Nine ratios to 100 whose second smallest is what decides (the order
	// interval of nine with 95 % is from the second to the eighth).
	spread := func(second float64) []float64 {
		return []float64{90, second, 104, 104, 104, 104, 104, 104, 140}
	}
	hiccup := flat(100, 9)
	hiccup[4] = 1000
	for _, c := range []struct {
		name   string
		blocks [][]float64
		tie    float64
		want   int
	}{
		{"none", nil, TuneTie, -1},
		{"all left out", [][]float64{nil, {}}, TuneTie, -1},
		{"one", [][]float64{nil, {5}}, TuneTie, 1},
		{"the fastest", [][]float64{flat(120, 9), flat(110, 9), flat(100, 9), flat(105, 9)}, TuneTie, 2},
		{"within the tie", [][]float64{flat(120, 9), flat(100.5, 9), flat(100, 9)}, TuneTie, 1},
		{"beyond the tie", [][]float64{flat(120, 9), flat(100.6, 9), flat(100, 9)}, TuneTie, 2},
		{"a wider tie", [][]float64{flat(120, 9), flat(101.9, 9), flat(100, 9)}, 0.02, 1},
		{"the simplest of the tied", [][]float64{flat(100.2, 9), flat(100.1, 9), flat(100, 9)}, TuneTie, 0},
		{"equal", [][]float64{flat(7, 9), flat(7, 9)}, 0, 0},
		{"noise that reaches it", [][]float64{spread(100.4), flat(100, 9)}, TuneTie, 0},
		{"noise that does not", [][]float64{spread(100.6), flat(100, 9)}, TuneTie, 1},
		{"the fastest was disturbed once", [][]float64{flat(120, 9), hiccup}, TuneTie, 1},
		{"fewer rounds", [][]float64{{103}, {100}}, TuneTie, 1},
		{"left out before it", [][]float64{nil, flat(100, 9), flat(99.9, 9)}, TuneTie, 1},
		// Rounds pair: the machine slowed down for all, and the ratio is 1.02 in each.
		{"drift", [][]float64{{102, 204, 306, 408, 102, 204, 306, 408, 102}, {100, 200, 300, 400, 100, 200, 300, 400, 100}}, TuneTie, 1},
	} {
		if got := Simplest(c.blocks, c.tie); got != c.want {
			t.Errorf("%s: picked %d, want %d", c.name, got, c.want)
		}
	}
}
