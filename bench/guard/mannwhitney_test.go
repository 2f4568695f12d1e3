package guard

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/combin"
)

// enumerate is the two-sided p by its definition: of all ways to call n2 of
// the values head, twice the share whose U is at most, or at least, that of
// the sample, whichever is smaller.
func enumerate(base, head []float64) float64 {
	all := slices.Concat(base, head)
	u := countAbove(base, head)
	var low, high, n float64
	for _, pick := range combin.Combinations(len(all), len(head)) {
		var b, h []float64
		for i, v := range all {
			if slices.Contains(pick, i) {
				h = append(h, v)
			} else {
				b = append(b, v)
			}
		}
		n++
		at := countAbove(b, h)
		if at <= u {
			low++
		}
		if at >= u {
			high++
		}
	}
	return min(1, 2*min(low, high)/n)
}

func TestMannWhitneyIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(n, values int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(rng.IntN(values))
		}
		return v
	}
	for _, values := range []int{2, 3, 5, 9, 1_000_000} { // from mostly ties to none
		for range 40 {
			base, head := draw(1+rng.IntN(7), values), draw(1+rng.IntN(5), values)
			if _, got := mannWhitney(base, head); math.Abs(got-enumerate(base, head)) > 1e-9 {
				t.Errorf("%v against %v: p %v, by enumeration %v", base, head, got, enumerate(base, head))
			}
		}
	}
}

// What the published tables of critical values say: the largest U that is
// significant at 5 % and at 1 %, two-sided, and that one more is not.
func TestMannWhitneyTables(t *testing.T) {
	tables := []struct{ n1, n2, at5, at1 int }{
		{5, 5, 2, 0}, {6, 6, 5, 2}, {7, 7, 8, 4}, {8, 8, 13, 7}, {10, 10, 23, 16}, {8, 10, 17, 11}, {5, 8, 6, 2}, {20, 20, 127, 105},
	}
	for _, c := range tables {
		p := func(u int) float64 {
			// base 1..n1 lies so among head that exactly u pairs have head above.
			var base, head []float64
			for i := range c.n1 {
				base = append(base, float64(10*(i+1)))
			}
			for range c.n2 {
				above := min(u, c.n1)
				u -= above
				head = append(head, float64(10*above)+5+float64(len(head))/100)
			}
			_, p := mannWhitney(base, head)
			return p
		}
		for _, at := range []struct {
			u     int
			alpha float64
		}{{c.at5, .05}, {c.at1, .01}} {
			if p(at.u) > at.alpha || p(at.u+1) <= at.alpha {
				t.Errorf("%d against %d: U %d has p %v and U %d has %v; the table says that the first alone is within %v",
					c.n1, c.n2, at.u, p(at.u), at.u+1, p(at.u+1), at.alpha)
			}
		}
	}
}

// Far from the exact range the approximation takes over; near its edge both
// agree.
func TestMannWhitneyLarge(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int, shift float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = rng.NormFloat64() + shift
		}
		return v
	}
	base := draw(50, 0)
	head := draw(51, .4)
	_, large := mannWhitney(base, head) // 2550 pairs
	_, exact := mannWhitney(base, head[:50])
	if large == exact || math.Abs(math.Log(large/exact)) > .5 {
		t.Errorf("p %v of 50 against 51, exact %v of 50 against 50", large, exact)
	}
	same := slices.Repeat([]float64{7}, 80)
	if u, p := mannWhitney(same, same); p != 1 || u != 3200 {
		t.Errorf("equal values: U %v p %v", u, p)
	}
}

func TestFloorAndNeed(t *testing.T) {
	floors := []struct {
		n1, n2 int
		want   float64
	}{{8, 8, 2. / 12870}, {7, 7, 2. / 3432}, {6, 6, 2. / 924}, {3, 3, .1}, {1, 1, 1}, {40, 8, 2. / 377348994}, {0, 8, 1}}
	for _, c := range floors {
		if got := floorP(c.n1, c.n2); math.Abs(got/c.want-1) > 1e-9 {
			t.Errorf("%d against %d: floor %v, want %v", c.n1, c.n2, got, c.want)
		}
	}
	needs := []struct{ base, head, rows, wantBase, wantHead int }{
		{8, 8, 321, 8, 8}, // 321 x 2/12870 = 0.04988
		{8, 8, 322, 9, 9}, // 322 x 2/12870 = 0.05004
		{3, 3, 1, 4, 4},
		{3, 3, 40, 7, 7},
		{7, 7, 40, 7, 7},
		{6, 6, 40, 7, 7},
		{40, 3, 40, 40, 3}, // C(43,3) = 12341
		{40, 2, 40, 40, 3},
		{39, 1, 1, 39, 1}, // 2 of 40 orders are 0.05
		{38, 1, 1, 38, 2},
		{0, 0, 1, 4, 4},
	}
	for _, c := range needs {
		b, h := Need(c.base, c.head, c.rows, DefaultOptions())
		if b != c.wantBase || h != c.wantHead {
			t.Errorf("%d against %d over %d rows needs %d and %d, want %d and %d", c.base, c.head, c.rows, b, h, c.wantBase, c.wantHead)
		}
	}
}

func TestHolm(t *testing.T) {
	cases := []struct {
		name    string
		p, want []float64
	}{
		{"none", nil, []float64{}},
		{"one", []float64{.04}, []float64{.04}},
		// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
		{"four", []float64{.01, .04, .03, .005}, []float64{.03, .06, .06, .02}},
		{"never above 1 and in order", []float64{.9, .5, .02}, []float64{1, 1, .06}},
		{"equal", []float64{.01, .01}, []float64{.02, .02}},
	}
	for _, c := range cases {
		got := holm(c.p)
		for i := range c.want {
			if math.Abs(got[i]-c.want[i]) > 1e-12 {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

func TestNoise(t *testing.T) {
	around := func(medians ...float64) [][]float64 {
		var runs [][]float64
		for _, m := range medians {
			runs = append(runs, []float64{m * .9, m, m * 1.1})
		}
		return runs
	}
	if n := Noise(around(100, 101)); n != nil {
		t.Errorf("of two runs: %v", *n)
	}
	// Deviations of the logarithms from their median are 0, 0.01, 0.01, 0.02,
	// 0.03: median 0.01, times 1.4826 x 1.206.
	e := func(x float64) float64 { return 100 * math.Exp(x) }
	if n := Noise(around(e(-.01), e(0), e(.01), e(-.02), e(.03))); n == nil || math.Abs(*n-.0178802) > 1e-6 {
		t.Errorf("of five runs: %v", n)
	}
	if n := Noise(around(100, 100, 100, 100)); n == nil || *n != 0 {
		t.Errorf("of equal runs: %v", n)
	}
	// Unbiased for normal spreads: the mean over many draws is the sd.
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{3, 5, 8, 12} {
		sum := 0.0
		const times = 20_000
		for range times {
			runs := make([][]float64, n)
			for i := range runs {
				runs[i] = []float64{math.Exp(.01 * rng.NormFloat64())}
			}
			sum += *Noise(runs)
		}
		if mean := sum / times; math.Abs(mean/.01-1) > .03 {
			t.Errorf("%d runs of noise 0.01: %v on average", n, mean)
		}
	}
}
