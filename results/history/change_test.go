package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aclements/go-moremath/stats"

	"github.com/tech-renaissance/trbench/results"
)

// naive is the same method from the papers' formulas, each sum by itself, and
// another library's t test.
type naive struct{ v []float64 }

func (n naive) pairs(x []float64) (sum float64) {
	for i := range x {
		for j := range x {
			if i < j {
				sum += math.Abs(x[i] - x[j])
			}
		}
	}
	return sum
}

func (n naive) q(x, y []float64) float64 {
	between := 0.0
	for _, a := range x {
		for _, b := range y {
			between += math.Abs(a - b)
		}
	}
	k, m := float64(len(x)), float64(len(y))
	e := 2 / (k * m) * between
	if k > 1 {
		e -= n.pairs(x) / (k * (k - 1) / 2)
	}
	if m > 1 {
		e -= n.pairs(y) / (m * (m - 1) / 2)
	}
	return k * m / (k + m) * e
}

func (n naive) p(x, y []float64) float64 {
	if len(x)+len(y) < 3 || stats.Mean(x) == stats.Mean(y) {
		return 1
	}
	if len(x) == 1 || len(y) == 1 { // which that library refuses
		one, many := x, y
		if len(y) == 1 {
			one, many = y, x
		}
		t := (one[0] - stats.Mean(many)) / (stats.StdDev(many) * math.Sqrt(1+1/float64(len(many))))
		return 2 * stats.TDist{V: float64(len(many) - 1)}.CDF(-math.Abs(t))
	}
	r, err := stats.TwoSampleTTest(stats.Sample{Xs: x}, stats.Sample{Xs: y}, stats.LocationDiffers)
	if err != nil {
		return 0
	}
	return r.P
}

func (n naive) window(from, to int) []int {
	marks := []int{from, to}
	for {
		best, where, left, right := math.Inf(-1), -1, 0, 0
		for i := 0; i+1 < len(marks); i++ {
			for at := marks[i] + 1; at < marks[i+1]; at++ {
				if q := n.q(n.v[marks[i]:at], n.v[at:marks[i+1]]); q-best > 1e-12*math.Abs(q) {
					best, where, left, right = q, at, marks[i], marks[i+1]
				}
			}
		}
		if where < 0 || n.p(n.v[left:where], n.v[where:right]) >= .01 {
			return marks[1 : len(marks)-1]
		}
		marks = append(marks, where)
		slices.Sort(marks)
	}
}

func (n naive) jumps() []int {
	var at []int
	for start := 0; start < len(n.v); {
		found := n.window(start, min(start+50, len(n.v)))
		at = append(at, found...)
		start += 25
		if len(found) > 0 {
			start = max(start, found[len(found)-1])
		}
	}
	for {
		worst, which := -1.0, -1
		for i := range at {
			from, to := 0, len(n.v)
			if i > 0 {
				from = at[i-1]
			}
			if i+1 < len(at) {
				to = at[i+1]
			}
			if p := n.p(n.v[from:at[i]], n.v[at[i]:to]); p > worst {
				worst, which = p, i
			}
		}
		if which < 0 || worst < .001 {
			return at
		}
		at = slices.Delete(at, which, which+1)
	}
}

func indexes(list []jump) []int {
	var out []int
	for _, j := range list {
		out = append(out, j.at)
	}
	return out
}

func TestJumpsAreTheNaiveOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	some := 0
	for range 200 {
		v := make([]float64, rng.IntN(180))
		level, spread := 1e6, math.Pow(10, 2+2*rng.Float64())
		for i := range v {
			if rng.IntN(25) == 0 {
				level *= 1 + .02*rng.NormFloat64()
			}
			v[i] = level + spread*rng.NormFloat64()
		}
		got, want := indexes(jumps(v)), naive{v}.jumps()
		if !slices.Equal(got, want) {
			t.Errorf("%d values: %v, naive %v", len(v), got, want)
		}
		some += len(got)
	}
	if some < 200 {
		t.Errorf("only %d jumps in all", some)
	}
}

// wave is a level with a known alternating noise, so that the answers below can
// be seen.
func wave(levels ...float64) []float64 {
	out := make([]float64, len(levels))
	for i, l := range levels {
		out[i] = l + []float64{-.1, .1, .05, -.05, 0}[i%5]
	}
	return out
}

func repeat(level float64, n int) []float64 { return slices.Repeat([]float64{level}, n) }

func TestJumpsByHand(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []float64
		want   []int
	}{
		{"none", nil, nil},
		{"one", []float64{1}, nil},
		{"two", []float64{1, 2}, nil},
		{"level", wave(repeat(100, 120)...), nil},
		{"constant", repeat(5, 60), nil},
		{"constant, then another", slices.Concat(repeat(5, 20), repeat(6, 20)), []int{20}},
		{"a step", wave(slices.Concat(repeat(100, 30), repeat(101, 30))...), []int{30}},
		{"down", wave(slices.Concat(repeat(101, 30), repeat(100, 30))...), []int{30}},
		{"two steps", wave(slices.Concat(repeat(100, 30), repeat(101, 30), repeat(102, 30))...), []int{30, 60}},
		{"there and back", wave(slices.Concat(repeat(100, 40), repeat(101, 10), repeat(100, 40))...), []int{40, 50}},
		{"beyond a window", wave(slices.Concat(repeat(100, 333), repeat(101, 333))...), []int{333}},
		{"the last night", wave(slices.Concat(repeat(100, 40), repeat(103, 1))...), []int{40}},
		{"less than the noise", wave(slices.Concat(repeat(100, 30), repeat(100.005, 30))...), nil},
	} {
		if got := indexes(jumps(test.values)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// By hand: x = 1, 2, 3 and y = 5, 7: means 2 and 6, squares 2 + 2, so with 3
// degrees of freedom t = 4 / sqrt(4/3 * 5/6) = 3.795, of which a table has p
// between 0.05 (3.182) and 0.02 (4.541).
func TestStudent(t *testing.T) {
	j := newSums([]float64{1, 2, 3, 5, 7}).test(0, 3, 5)
	if j.before != 2 || j.after != 6 || math.Abs(j.p-.0321) > .0002 {
		t.Errorf("%+v", j)
	}
	// One value against three: t = 9 / sqrt(1 * 4/3) = 7.794 with 2 degrees.
	if j := newSums([]float64{1, 2, 3, 11}).test(0, 3, 4); math.Abs(j.p-.0161) > .0002 {
		t.Errorf("%+v", j)
	}
}

// By hand: of 0, 0, 4, 4 the best place is the middle, where the sides differ
// by 4 everywhere and within not at all: 2*2/4 * (2 * 4) = 8.
func TestWidest(t *testing.T) {
	if k, q := widest([]float64{0, 0, 4, 4}); k != 2 || q != 8 {
		t.Errorf("%d, %v", k, q)
	}
	// 0 | 3, 6: 2/3 * (2 * 4.5 - 3) = 4; 0, 3 | 6: the same, and the first one counts.
	if k, q := widest([]float64{0, 3, 6}); k != 1 || math.Abs(q-4) > 1e-12 {
		t.Errorf("%d, %v", k, q)
	}
	if k, _ := widest([]float64{1}); k != 0 {
		t.Errorf("of one value: %d", k)
	}
}

// Scale and place change nothing, and mirrored levels jump the other way.
func TestJumpsScale(t *testing.T) {
	v := wave(slices.Concat(repeat(100, 33), repeat(100.4, 21), repeat(99.8, 40))...)
	want := jumps(v)
	if len(want) == 0 {
		t.Fatal("no jump")
	}
	for i, f := range []func(float64) float64{
		func(x float64) float64 { return x * 1e7 },
		func(x float64) float64 { return x + 1e6 },
		func(x float64) float64 { return -x },
	} {
		w := slices.Clone(v)
		for j := range w {
			w[j] = f(w[j])
		}
		if got := indexes(jumps(w)); !slices.Equal(got, indexes(want)) {
			t.Errorf("%d: %v, want %v", i, got, indexes(want))
		}
	}
}

func seriesOf(values []float64) results.Series {
	s := results.Series{Row: results.RowKey{Cell: results.DefaultCellKey(), Configuration: results.DefaultConfigurationKey(), Metric: results.StepTimeNs}, Unit: "ns", Direction: results.Lower}
	for i, v := range values {
		s.Points = append(s.Points, results.Point{Run: string(rune('a'+i%26)) + string(rune('a'+i/26)), Sequence: i + 1, Value: v})
	}
	return s
}

func TestTailIsProvisional(t *testing.T) {
	for n := 1; n <= 5; n++ {
		c := Changes(seriesOf(wave(slices.Concat(repeat(100, 40), repeat(103, n))...)), nil)
		if len(c) != 1 || c[0].Provisional != (n <= 3) || c[0].Night != 41 || !c[0].Slower {
			t.Errorf("%d nights of the new level: %+v", n, c)
		}
	}
	// A single bad night is gone when the tail has passed.
	c := Changes(seriesOf(wave(slices.Concat(repeat(100, 40), repeat(100.35, 1), repeat(100, 6))...)), nil)
	if slices.ContainsFunc(c, func(p results.ChangePoint) bool { return !p.Provisional }) {
		t.Errorf("%+v", c)
	}
}

// A change keeps its id while nights come in, also where its place moves, and
// another one does not get it.
func TestIDsStay(t *testing.T) {
	values := wave(slices.Concat(repeat(100, 40), repeat(103, 60), repeat(100, 20))...)
	values[40] = 100.2 // at first it belongs to the old level
	var known []Known
	ids := map[string]bool{}
	for n := 46; n <= len(values); n++ {
		for _, c := range Changes(seriesOf(values[:n]), known) {
			if c.Provisional {
				continue
			}
			if !slices.ContainsFunc(known, func(k Known) bool { return k.ID == c.ID }) {
				known = append(known, Known{ID: c.ID, Row: c.Row.String(), Night: c.Night, Slower: c.Slower})
			}
			ids[c.ID] = true
		}
	}
	if len(ids) != 2 || len(known) != 2 || known[0].Slower == known[1].Slower {
		t.Errorf("%v, %+v", ids, known)
	}
	base := Changes(seriesOf(values), nil)
	name := base[0].Row.String()
	for _, test := range []struct {
		name  string
		known []Known
		want  bool
	}{
		{"moved by three", []Known{{"x", name, base[0].Night + Tail, true}}, true},
		{"moved by four", []Known{{"x", name, base[0].Night + Tail + 1, true}}, false},
		{"the other way", []Known{{"x", name, base[0].Night, false}}, false},
		{"another row", []Known{{"x", "y", base[0].Night, true}}, false},
		{"two, the closer one", []Known{{"z", name, base[0].Night + 2, true}, {"x", name, base[0].Night - 1, true}}, true},
	} {
		if got := Changes(seriesOf(values), test.known)[0].ID == "x"; got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// Of a rate, slower means lower.
func TestDirection(t *testing.T) {
	s := seriesOf(wave(slices.Concat(repeat(100, 30), repeat(103, 30))...))
	s.Direction = results.Higher
	if c := Changes(s, nil); len(c) != 1 || c[0].Slower {
		t.Errorf("%+v", c)
	}
}

// What was said of a change point holds until its day and no longer; who does not
// know a point, or says nothing of it, leaves it open, and a small one is small
// whatever the day.
func TestStanding(t *testing.T) {
	s := opened(t, filled(t, 1, 1))
	until := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	large := seriesOf(wave(slices.Concat(repeat(100, 30), repeat(103, 30))...))
	small := seriesOf(wave(slices.Concat(repeat(100, 30), repeat(100.9, 30))...))
	late := seriesOf(wave(slices.Concat(repeat(100, 30), repeat(110, Tail))...))
	state := func(one results.Series, now time.Time) (string, string) {
		t.Helper()
		list, err := s.Standing([]results.Series{one}, now)
		if err != nil || len(list) != 1 || (list[0].Acknowledgement != nil) != (list[0].State == results.Acknowledged || list[0].State == results.Expired) {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0].State, list[0].ID
	}
	is := func(what string, one results.Series, now time.Time, want string) {
		t.Helper()
		if got, _ := state(one, now); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	is("nothing said", large, until, results.Open)
	is("small", small, until, results.Small)
	is("in the tail", late, until, results.Provisional)
	_, id := state(large, until)
	if err := s.Acknowledge(results.Acknowledgement{ID: id, Until: until, Who: "kim", Why: "a driver"}); err != nil {
		t.Fatal(err)
	}
	is("before its day", large, until.Add(-1), results.Acknowledged)
	is("from its day on", large, until, results.Expired)
	if err := s.Acknowledge(results.Acknowledgement{ID: id, Until: until.AddDate(0, 1, 0), Who: "kim", Why: "still"}); err != nil {
		t.Fatal(err)
	}
	is("said again", large, until, results.Acknowledged)
}
