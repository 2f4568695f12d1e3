package bench

import (
	"math"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestSummarize(t *testing.T) {
	if Summarize(nil) != nil || Summarize([][]float64{nil, {}}) != nil {
		t.Error("a summary of nothing")
	}
	s := Summarize([][]float64{{1, 2, 30}, {}, {4, 6}, {3}})
	if s.Median != 3 || s.N != 6 || s.Max != 30 || len(s.Processes) != 3 || s.Processes[1] != 5 {
		t.Errorf("%+v", s)
	}
	if i := s.Interval; i.Low != 2 || i.High != 5 || i.Coverage != 0.75 || i.Level != 0.95 {
		t.Errorf("interval %+v", i)
	}
	if s.P10 != 1.5 || s.P90 != 18 {
		t.Errorf("p10 %v, p90 %v", s.P10, s.P90)
	}
	var hundred []float64
	for i := range 101 {
		hundred = append(hundred, float64(100-i))
	}
	if s := Summarize([][]float64{hundred}); s.P10 != 10 || s.P90 != 90 || s.P99 != 99 || s.Max != 100 {
		t.Errorf("of 0 to 100: %+v", s)
	}
	if Summarize([][]float64{{4}}).Interval != nil {
		t.Error("an interval of one process")
	}
}

// Coverage of order statistics, from tables of the sign test.
func TestOrderInterval(t *testing.T) {
	for _, c := range []struct {
		n         int
		low, high float64
		coverage  float64
	}{
		{2, 0, 1, .5}, {3, 0, 2, .75}, {5, 0, 4, .9375}, {6, 0, 5, .96875}, {8, 0, 7, .9921875}, {9, 1, 7, .9609375}, {15, 3, 11, .96484375},
	} {
		values := make([]float64, c.n)
		for i := range values {
			values[i] = float64(c.n - 1 - i)
		}
		i := OrderInterval(values, Level)
		if i.Low != c.low || i.High != c.high || !near(i.Coverage, c.coverage, 1e-9) {
			t.Errorf("%d values: %+v, want %v to %v with %v", c.n, *i, c.low, c.high, c.coverage)
		}
	}
}

func TestTInterval(t *testing.T) {
	i := TInterval([]float64{1, 2, 3}, Level)
	if half := 4.302653 / math.Sqrt(3); !near(i.Low, 2-half, 1e-5) || !near(i.High, 2+half, 1e-5) {
		t.Errorf("%+v", *i)
	}
	if TInterval([]float64{1}, Level) != nil {
		t.Error("an interval of one value")
	}
}

func TestBootstrap(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5, 6, 7, 20}
	i, again := Bootstrap(values, Level, 1), Bootstrap(values, Level, 1)
	if *i != *again {
		t.Error("the same seed gave another interval")
	}
	// The right end is farther away: the values lean to the right.
	if !(i.Low >= 3 && i.Low < 4 && i.High > 9 && i.High < 11.5) {
		t.Errorf("%+v", *i)
	}
	if Bootstrap(values[:7], Level, 1) != nil {
		t.Error("a bootstrap of 7")
	}
	if i := Bootstrap(make([]float64, 8), Level, 1); i.Low != 0 || i.High != 0 {
		t.Errorf("of equal values: %+v", *i)
	}
}

// Kendall's own table.
func TestKendall(t *testing.T) {
	for _, c := range []struct {
		s, n int
		want float64
	}{{6, 4, 1. / 12}, {10, 5, 1. / 60}, {-18, 8, 0.0312}, {16, 8, 0.0613}, {0, 8, 1}} {
		if got := kendallP(c.s, c.n); !near(got, c.want, 5e-4) {
			t.Errorf("S %d of %d values: p %v, want %v", c.s, c.n, got, c.want)
		}
	}
	if s := kendall([]float64{1, 3, 2, 2}); s != 1 {
		t.Errorf("S is %d", s)
	}
	if c := change([]float64{100, 110, 120, 130, 140}); !near(c, 40./120, 1e-12) {
		t.Errorf("change %v", c)
	}
}

func TestTrending(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   bool
	}{
		{"falling", []float64{130, 121, 115, 110, 107, 105, 104, 103.6}, true},
		{"one slow beginning", []float64{300, 100, 101, 99, 100, 102, 100, 99}, false},
		{"flat", []float64{100, 101, 99, 100, 101, 100, 99, 100}, false},
		{"too small to matter", []float64{100, 100.01, 100.02, 100.03, 100.04, 100.05, 100.06, 100.07}, false},
	} {
		if got := trending(c.values, 0.01); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestDrift(t *testing.T) {
	share, p := drift([][]float64{{100, 102, 104, 106}, {200, 204, 208, 212}, {50, 51, 52, 53}})
	// S is 18 with a variance of 26, so z is 17/5.099.
	if !near(share, .06, .005) || !near(p, 8.56e-4, 2e-6) {
		t.Errorf("drift %v with p %v", share, p)
	}
	if _, p := drift([][]float64{{100, 99, 101, 100}, {200, 201, 199, 200}}); p < .5 {
		t.Errorf("no drift has p %v", p)
	}
	if _, p := drift(nil); p != 1 {
		t.Error("a drift of nothing")
	}
}

func TestTwoGroups(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   bool
	}{
		{"two", []float64{100, 101, 130, 99, 131, 129}, true},
		{"one outlier", []float64{100, 101, 130, 99, 100, 98}, false},
		{"spread out", []float64{100, 110, 120, 130, 140, 150}, false},
		{"close", []float64{100, 100.1, 100.9, 100, 101, 100.95}, false},
		{"few", []float64{100, 101, 130}, false},
		{"one alone below", []float64{70, 100, 101, 99, 100, 98}, false},
		{"wider groups, gap 9 of 4", []float64{100, 102, 104, 113, 115, 117}, true},
		{"gap 8 of 4", []float64{100, 102, 104, 112, 114, 116}, false},
	} {
		if got := twoGroups(c.values, 0.02); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
