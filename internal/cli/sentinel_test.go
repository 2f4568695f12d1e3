package cli

import (
	"math"
	"testing"

	"github.com/tech-renaissance/trbench/bench/guard"
)

// By hand. Halves with medians e^0, e^.01, e^.02, e^.03 differ from their median by
// .015, .005, .005, .015: 1.4826 x 1.363 x .01 = 2.02 %. In the second, halves
// are alike and processes are e^-.1 or e^.1: 1.4826 x .1 x 1.129 (of 8 values) is a sd
// of 16.74 %, and of a median of 4, sqrt(pi/2/4) of it, 10.49 %.
func TestNoiseWithin(t *testing.T) {
	e := func(logs ...float64) []float64 {
		for i := range logs {
			logs[i] = math.Exp(logs[i])
		}
		return logs
	}
	for _, test := range []struct {
		base, head []float64
		want       float64
	}{
		{e(0, 0, 0, 0, .01, .01, .01, .01), e(.02, .02, .02, .02, .03, .03, .03, .03), .0202},
		{e(-.1, .1, -.1, .1), e(-.1, .1, -.1, .1), .1049},
	} {
		if got := noiseWithin(guard.Row{Base: [][]float64{test.base}, Head: [][]float64{test.head}}); math.Abs(got-test.want) > 1e-3 {
			t.Errorf("%.4f, want %.4f", got, test.want)
		}
	}
}

func TestSlowdown(t *testing.T) {
	for noise, want := range map[float64]float64{0: .05, .01: .05, .02: .1, .2: 1} {
		if got := slowdown(noise); math.Abs(got-want) > 1e-12 {
			t.Errorf("of noise %g: %g, want %g", noise, got, want)
		}
	}
}
