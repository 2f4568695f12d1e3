package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tech-renaissance/trbench/results"
)

// How change points are looked for: in windows of so many nights, and with so
// small a p; points are found with ten times that and then merged.
const (
	Window     = 50
	MaxP       = 0.001
	weakFactor = 10
)

// Tail is how many of the last nights are provisional.
const Tail = results.Tail

// jump is a change point in a series: the index of the first value of the new
// level.
type jump struct {
	at int
	p  float64
	// before and after are the means between the neighbouring jumps.
	before, after float64
}

// jumps finds where the level of a series changes, as Apache Otava does
// (Fleming et al., ICPE 2023): E-divisive (Matteson and James 2014) by halves
// of a window, with Student's t test in place of a permutation test so that
// the same series has the same jumps; weak ones stay until they are merged
// over the whole series. Values must be finite.
func jumps(values []float64) []jump {
	s := newSums(values)
	var found []int
	for start := 0; start < len(values); {
		end := min(start+Window, len(values))
		next := start + Window/2
		for _, at := range s.divide(start, end, weakFactor*MaxP) {
			found = append(found, at)
			next = max(next, at)
		}
		start = next
	}
	return s.merge(found, MaxP)
}

// sums are running sums of a series less its first value, which keeps the
// digits of squares.
type sums struct {
	values    []float64
	one, two  []float64 // of values and squares before an index
	reference float64
}

func newSums(values []float64) *sums {
	s := &sums{values: values, one: make([]float64, len(values)+1), two: make([]float64, len(values)+1)}
	if len(values) > 0 {
		s.reference = values[0]
	}
	for i, v := range values {
		v -= s.reference
		s.one[i+1], s.two[i+1] = s.one[i]+v, s.two[i]+v*v
	}
	return s
}

// test is Student's t test of [from, at) against [at, to), two-sided, with the
// variance of both together; a side may have one value.
func (s *sums) test(from, at, to int) jump {
	n, m := float64(at-from), float64(to-at)
	a, b := (s.one[at]-s.one[from])/n, (s.one[to]-s.one[at])/m
	squares := max(0, s.two[at]-s.two[from]-n*a*a) + max(0, s.two[to]-s.two[at]-m*b*b)
	j := jump{at: at, p: 1, before: a + s.reference, after: b + s.reference}
	switch freedom := n + m - 2; {
	case a == b || freedom < 1:
	case squares == 0:
		j.p = 0
	default:
		t := math.Abs(a-b) / math.Sqrt(squares/freedom*(1/n+1/m))
		j.p = 2 * distuv.StudentsT{Sigma: 1, Nu: freedom}.Survival(t)
	}
	return j
}

// divide splits [start, end) at the place where both sides differ most, then
// the parts in the same way, until the best place is none by the t test.
func (s *sums) divide(start, end int, p float64) []int {
	edges := []int{start, end}
	for {
		best, at := math.Inf(-1), -1
		for i := 1; i < len(edges); i++ {
			if k, q := widest(s.values[edges[i-1]:edges[i]]); k > 0 && q > best {
				best, at = q, edges[i-1]+k
			}
		}
		if at < 0 {
			break
		}
		i, _ := slices.BinarySearch(edges, at)
		if s.test(edges[i-1], at, edges[i]).p >= p {
			break
		}
		edges = slices.Insert(edges, i, at)
	}
	return edges[1 : len(edges)-1]
}

// widest is where the energy distance between what lies before and behind is
// largest, weighted by the sizes n and m:
//
//	nm/(n+m) (2/nm sum|x-y| - 2/n(n-1) sum|x-x'| - 2/m(m-1) sum|y-y'|)
//
// with sums over pairs, 0 of a side that has one value. k is 0 for less than
// two values.
func widest(v []float64) (k int, q float64) {
	// left and right are the sums over pairs within the sides, all those over
	// all pairs.
	var left, right, all float64
	to := make([]float64, len(v)) // distances to those before
	for i, x := range v {
		for _, y := range v[:i] {
			to[i] += math.Abs(x - y)
		}
		all += to[i]
	}
	right = all
	q = math.Inf(-1)
	for i := range v {
		if i > 0 {
			n, m := float64(i), float64(len(v)-i)
			e := 2 / (n * m) * (all - left - right)
			if n > 1 {
				e -= 2 / (n * (n - 1)) * left
			}
			if m > 1 {
				e -= 2 / (m * (m - 1)) * right
			}
			if e *= n * m / (n + m); e > q {
				k, q = i, e
			}
		}
		left += to[i]
		for _, y := range v[i+1:] {
			right -= math.Abs(v[i] - y)
		}
	}
	return k, q
}

// merge drops the weakest point, whose neighbours' parts then join, until all
// that are left have a p below the limit over the whole series.
func (s *sums) merge(points []int, p float64) []jump {
	list := make([]jump, len(points))
	edge := func(i int) int {
		switch {
		case i < 0:
			return 0
		case i >= len(list):
			return len(s.values)
		}
		return list[i].at
	}
	for i, at := range points {
		list[i].at = at
	}
	measure := func(i int) {
		if i >= 0 && i < len(list) {
			list[i] = s.test(edge(i-1), list[i].at, edge(i+1))
		}
	}
	for i := range list {
		measure(i)
	}
	for len(list) > 0 {
		weakest := 0
		for i := range list {
			if list[i].p > list[weakest].p {
				weakest = i
			}
		}
		if list[weakest].p < p {
			break
		}
		list = slices.Delete(list, weakest, weakest+1)
		measure(weakest - 1)
		measure(weakest)
	}
	return list
}

// Known is a change point that a night found, by which later nights know it.
type Known struct {
	ID    string `json:"id"`
	Row   string `json:"row"`   // its name
	Night int    `json:"night"` // sequence of the first night of the new level
	// Slower says in which direction it went.
	Slower bool `json:"slower"`
}

// Changes finds the change points of a series, oldest first. One keeps the id by
// which it is known as long as it moves by no more than [Tail] nights and goes the
// same way; a new one's is made from its row and night.
func Changes(s results.Series, known []Known) []results.ChangePoint {
	values := make([]float64, len(s.Points))
	for i, p := range s.Points {
		values[i] = p.Value
	}
	name := s.Row.String()
	var out []results.ChangePoint
	for _, j := range jumps(values) {
		at := s.Points[j.at]
		out = append(out, results.ChangePoint{
			ID: hashOf([]byte(name + "\n" + at.Run))[:10], Row: s.Row, Unit: s.Unit, Index: j.at,
			Night: at.Sequence, Run: at.Run, Created: at.Created, P: j.p, Before: j.before, After: j.after,
			Slower: (j.after > j.before) == (s.Direction != results.Higher), Provisional: j.at >= len(values)-Tail,
		})
	}
	identify(out, name, known)
	return out
}

// identify gives known ids: the pairs that lie closest first.
func identify(out []results.ChangePoint, name string, known []Known) {
	type pair struct{ of, to, apart int }
	var pairs []pair
	for i, k := range known {
		for j, c := range out {
			if apart := max(k.Night-c.Night, c.Night-k.Night); k.Row == name && k.Slower == c.Slower && apart <= Tail {
				pairs = append(pairs, pair{i, j, apart})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.apart, b.apart) })
	taken, given := map[string]bool{}, map[int]bool{}
	for _, p := range pairs {
		if id := known[p.of].ID; !taken[id] && !given[p.to] {
			out[p.to].ID, taken[id], given[p.to] = id, true, true
		}
	}
}

// Standing are the change points of some series with what was said of them, as
// it stands now.
func (s *Store) Standing(series []results.Series, now time.Time) ([]results.Change, error) {
	out := []results.Change{}
	known, err := s.Known()
	if err != nil {
		return nil, err
	}
	acks, err := s.Acknowledgements()
	if err != nil {
		return nil, err
	}
	for _, one := range series {
		for _, c := range Changes(one, known) {
			x := results.Change{ChangePoint: c, State: results.Open}
			ack, said := acks[c.ID]
			switch {
			case c.Provisional:
				x.State = results.Provisional
			case said && now.Before(ack.Until):
				x.State, x.Acknowledgement = results.Acknowledged, &ack
			case said:
				x.State, x.Acknowledgement = results.Expired, &ack
			case !c.Matters():
				x.State = results.Small
			}
			out = append(out, x)
		}
	}
	return out, nil
}
