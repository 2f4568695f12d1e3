package guard

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

func key(i int) results.RowKey {
	return results.RowKey{
		Cell:          results.CellKey{Workload: "resnet50", Batch: i + 1, GPUs: 1, Precision: "fp32", Optimizer: "sgd", Variant: 2, Device: "cpu", Kernels: "reference"},
		Configuration: results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device", Launcher: "go", Ranks: "threads"},
		Metric:        results.StepTimeNs,
	}
}

// run is n processes around a median, 0.1 % apart.
func run(n int, median float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = median * (1 + .001*(float64(i)-float64(n-1)/2))
	}
	return v
}

func runs(r ...[]float64) [][]float64 { return r }

func noise(v float64) *float64 { return &v }

func TestDecide(t *testing.T) {
	cases := []struct {
		name       string
		base, head [][]float64
		noise      *float64
		direction  string
		family     int // rows beside it, equal on both sides
		want       string
		reason     string
		say        string // in Why or Next
	}{
		{"slower", runs(run(8, 100)), runs(run(8, 102)), nil, "", 0, results.Slower, results.Significant, "+2.00 %, at least 1 %, and p 0.000155 after Holm over 1 row"},
		{"faster", runs(run(8, 100)), runs(run(8, 98)), nil, "", 0, results.Faster, results.Significant, "-2.00 %"},
		{"a rate that falls", runs(run(8, 100)), runs(run(8, 98)), nil, results.Higher, 0, results.Slower, results.Significant, "-2.00 %"},
		{"a rate that rises", runs(run(8, 100)), runs(run(8, 102)), nil, results.Higher, 0, results.Faster, results.Significant, "+2.00 %"},
		{"small and certain", runs(run(8, 100)), runs(run(8, 100.9)), nil, "", 0, results.Same, results.BelowThreshold, "+0.90 % is no chance"},
		{"nothing", runs(run(8, 100)), runs(run(8, 100.01)), nil, "", 0, results.Same, results.NoEvidence, "may be chance"},
		{"large and uncertain", runs([]float64{90, 95, 100, 105}), runs([]float64{94, 99, 106, 111}), nil, "", 0, results.Ambiguous, results.NotSignificant, "more processes than 4 against 4"},
		{"at the threshold", runs(run(7, 100)), runs(run(7, 101)), nil, "", 0, results.Slower, results.Significant, "+1.00 %"},
		{"noise raises the threshold", runs(run(8, 100)), runs(run(8, 102)), noise(.008), "", 0, results.Same, results.BelowThreshold, "less than 2.4 %"},
		{"noise does not lower it", runs(run(8, 100)), runs(run(8, 100.9)), noise(.0001), "", 0, results.Same, results.BelowThreshold, "less than 1 %"},
		{"noise of pinned runs", runs(run(8, 100), run(8, 101), run(8, 99), run(8, 102), run(8, 98)), runs(run(8, 104)), nil, "", 0, results.Same, results.BelowThreshold, "less than 5.3"},
		{"321 rows of 8 against 8", runs(run(8, 100)), runs(run(8, 102)), nil, "", 320, results.Slower, results.Significant, "over 321 rows"},
		{"322 rows of 8 against 8", runs(run(8, 100)), runs(run(8, 102)), nil, "", 321, results.Ambiguous, results.TooFewProcesses, "at least 9 processes a side"},
		// U is 56 of 64, p 0.0104: enough alone, too much among ten.
		{"alone", runs(run(8, 100)), runs(append(run(7, 102), 99)), nil, "", 0, results.Slower, results.Significant, "p 0.0104 after Holm over 1 row"},
		{"among ten", runs(run(8, 100)), runs(append(run(7, 102), 99)), nil, "", 9, results.Ambiguous, results.NotSignificant, "p 0.104 after Holm over 10 rows is above 0.05"},
		{"3 against 3", runs(run(3, 100)), runs(run(3, 150)), nil, "", 0, results.Ambiguous, results.TooFewProcesses, "at least 4 processes a side"},
		{"1 against 1", runs(run(1, 100)), runs(run(1, 150)), nil, "", 0, results.Ambiguous, results.TooFewProcesses, "1 process against 1 cannot tell"},
		{"none against some", nil, runs(run(8, 150)), nil, "", 0, results.Ambiguous, results.NoFigures, "no figures of base"},
		{"some against none", runs(run(8, 150)), runs(nil), nil, "", 0, results.Ambiguous, results.NoFigures, "no figures of head"},
		{"NaN", runs([]float64{100, math.NaN()}), runs(run(8, 150)), nil, "", 0, results.Ambiguous, results.BadFigures, "not a number above 0"},
		{"zero", runs(run(8, 100)), runs([]float64{0, 0, 0, 0, 0, 0, 0, 0}), nil, "", 0, results.Ambiguous, results.BadFigures, "not a number above 0"},
		{"infinite", runs(run(8, 100)), runs([]float64{math.Inf(1)}), nil, "", 0, results.Ambiguous, results.BadFigures, "not a number above 0"},
		{"bad noise", runs(run(8, 100)), runs(run(8, 150)), noise(math.NaN()), "", 0, results.Ambiguous, results.BadFigures, ""},
		{"noise that could hide 5 %", runs([]float64{90, 94, 97, 99, 101, 103, 106, 110}), runs([]float64{90.1, 94, 97, 99, 101, 103, 106, 110}), nil, "", 0, results.Ambiguous, results.TooNoisy, "nothing from -6.93 % to +7.45 % is excluded"},
		{"the same noise, the same figures", runs([]float64{90, 94, 97, 99, 101, 103, 106, 110}), runs([]float64{94, 90, 97, 99, 101, 103, 106, 110}), nil, "", 0, results.Same, results.NoEvidence, ""},
		{"noise below a high threshold", runs([]float64{90, 94, 97, 99, 101, 103, 106, 110}), runs([]float64{90.1, 94, 97, 99, 101, 103, 106, 110}), noise(.04), "", 0, results.Same, results.NoEvidence, "less than 12 %"},
		{"one value everywhere", runs(slices.Repeat([]float64{5}, 8)), runs(slices.Repeat([]float64{5}, 8)), nil, "", 0, results.Same, results.NoEvidence, ""},
		{"two values", runs(slices.Repeat([]float64{100}, 8)), runs(slices.Repeat([]float64{110}, 8)), nil, "", 0, results.Slower, results.Significant, "p 0.000155"},
		// A pooled median is 100, the median of the runs' medians 104.
		{"each run counts once", runs(run(20, 100), run(4, 104), run(4, 104.1)), runs(run(8, 104)), noise(0), "", 0, results.Same, results.BelowThreshold, "+0.00 %"},
	}
	for _, c := range cases {
		rows := []Row{{Key: key(0), Unit: "ns", Direction: c.direction, Base: c.base, Head: c.head, Noise: c.noise}}
		for i := range c.family {
			rows = append(rows, Row{Key: key(i + 1), Base: runs(run(8, 100)), Head: runs(run(8, 100))})
		}
		v := Decide(rows, DefaultOptions())[0]
		if v.Verdict != c.want || v.Reason != c.reason || !strings.Contains(v.Why+"|"+v.Next, c.say) {
			t.Errorf("%s: %s, %s: %s | %s; want %s, %s: %q", c.name, v.Verdict, v.Reason, v.Why, v.Next, c.want, c.reason, c.say)
		}
		if v.Why == "" || v.Verdict == results.Ambiguous && v.Next == "" {
			t.Errorf("%s: no reason or no next step: %+v", c.name, v)
		}
	}
}

// drawn makes random rows of all kinds: shifted and not, with ties, of one and
// of several runs.
func drawn(rng *rand.Rand) []Row {
	rows := make([]Row, 1+rng.IntN(6))
	for i := range rows {
		r := Row{Key: key(i), Unit: "ns", Direction: results.Lower}
		if rng.IntN(4) == 0 {
			r.Direction = results.Higher
		}
		spread, ties := []float64{.001, .003, .01, .03}[rng.IntN(4)], rng.IntN(3) == 0
		side := func(shift float64) [][]float64 {
			var out [][]float64
			n := 3 + rng.IntN(5)
			for range 1 + rng.IntN(3) {
				var one []float64
				for range n {
					v := 1e6 * (1 + shift + spread*rng.NormFloat64())
					if ties {
						v = math.Round(v/2000) * 2000
					}
					one = append(one, v)
				}
				out = append(out, one)
			}
			return out
		}
		r.Base, r.Head = side(0), side([]float64{0, 0, .005, .02, -.02}[rng.IntN(5)])
		rows[i] = r
	}
	return rows
}

// verdicts is what must not change: verdict, reason and the adjusted p.
type outcome struct {
	key     results.RowKey
	verdict string
	reason  string
	p       float64
}

func outcomes(rows []Row) map[results.RowKey]outcome {
	out := map[results.RowKey]outcome{}
	for _, v := range Decide(rows, DefaultOptions()) {
		out[v.Row] = outcome{v.Row, v.Verdict, v.Reason, math.Round(*v.AdjustedP*1e9) / 1e9}
	}
	return out
}

// TestDecideSymmetries: swapped sides mirror the verdict, a scale and any order
// change nothing, a side against itself is the same.
func TestDecideSymmetries(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	mirror := map[string]string{results.Slower: results.Faster, results.Faster: results.Slower, results.Same: results.Same, results.Ambiguous: results.Ambiguous}
	seen := map[string]int{}
	for range 150 {
		rows := drawn(rng)
		want := outcomes(rows)
		for _, o := range want {
			seen[o.verdict+" "+o.reason]++
		}
		changed := func(name string, change func(*Row)) []Row {
			out := slices.Clone(rows)
			for i := range out {
				change(&out[i])
			}
			return out
		}
		swapped := map[results.RowKey]outcome{}
		for k, o := range outcomes(changed("swapped", func(r *Row) { r.Base, r.Head = r.Head, r.Base })) {
			o.verdict = mirror[o.verdict]
			swapped[k] = o
		}
		each := func(runs [][]float64, f func([]float64)) [][]float64 {
			out := make([][]float64, len(runs))
			for i := range runs {
				out[i] = slices.Clone(runs[i])
				f(out[i])
			}
			return out
		}
		mix := func(v []float64) { rng.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] }) }
		permuted := changed("permuted", func(r *Row) {
			r.Base, r.Head = each(r.Base, mix), each(r.Head, mix)
			rng.Shuffle(len(r.Base), func(i, j int) { r.Base[i], r.Base[j] = r.Base[j], r.Base[i] })
		})
		rng.Shuffle(len(permuted), func(i, j int) { permuted[i], permuted[j] = permuted[j], permuted[i] })
		double := func(v []float64) {
			for i := range v {
				v[i] *= 1024 // exact, so that ties stay ties
			}
		}
		for name, got := range map[string]map[results.RowKey]outcome{
			"swapped":  swapped,
			"permuted": outcomes(permuted),
			"scaled":   outcomes(changed("scaled", func(r *Row) { r.Base, r.Head = each(r.Base, double), each(r.Head, double) })),
		} {
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\n%v, want\n%v", name, got, want)
			}
		}
		for _, o := range outcomes(changed("self", func(r *Row) { r.Head = r.Base })) {
			if o.verdict != results.Same && o.reason != results.TooFewProcesses {
				t.Fatalf("a side against itself: %v", o)
			}
		}
	}
	for _, kind := range []string{"slower significant", "faster significant", "same no_evidence", "same below_threshold", "ambiguous not_significant"} {
		if seen[kind] < 10 {
			t.Errorf("only %d rows were %s: %v", seen[kind], kind, seen)
		}
	}
}

// What one row is found to be depends on how many others there are, and what
// is handed in is neither changed nor kept from the caller.
func TestDecideLeavesItsArguments(t *testing.T) {
	rows := drawn(rand.New(rand.NewPCG(9, 10)))
	before := slices.Clone(rows)
	var values [][]float64
	for _, r := range rows {
		for _, s := range slices.Concat(r.Base, r.Head) {
			values = append(values, slices.Clone(s))
		}
	}
	Decide(rows, DefaultOptions())
	i := 0
	for _, r := range rows {
		for _, s := range slices.Concat(r.Base, r.Head) {
			if !slices.Equal(s, values[i]) {
				t.Fatal("values were changed")
			}
			i++
		}
	}
	if !reflect.DeepEqual(rows, before) {
		t.Fatal("rows were changed")
	}
}

func TestConfirm(t *testing.T) {
	row := func(i int, head float64, n int) Row {
		return Row{Key: key(i), Base: runs(run(n, 100)), Head: runs(run(n, head))}
	}
	first := Decide([]Row{row(0, 103, 8), row(1, 103, 8), row(2, 103, 8), row(3, 103, 8), row(4, 97, 8), row(5, 100, 8), row(6, 103, 8)}, DefaultOptions())
	if got := ToConfirm(first); !slices.Equal(got, []results.RowKey{key(0), key(1), key(2), key(3), key(6)}) {
		t.Fatalf("to confirm: %v", got)
	}
	again := Again{
		Rows: []Row{row(0, 103, 8), row(1, 100, 8), row(2, 103, 3), row(6, 97, 8), row(4, 103, 8), row(5, 103, 8)},
		Base: []Row{row(0, 103, 8), row(1, 100.5, 8), row(2, 103, 8), row(6, 103, 8), row(4, 103, 8)},
	}
	type settled struct{ verdict, reason string }
	check := func(name string, again Again, want []settled) []results.RowVerdict {
		t.Helper()
		final := Confirm(first, again, DefaultOptions())
		for i, v := range final {
			if v.Verdict != want[i].verdict || v.Reason != want[i].reason || v.Verdict == results.Ambiguous && v.Next == "" {
				t.Errorf("%s, row %d: %s, %s; want %v: %s", name, i, v.Verdict, v.Reason, want[i], v.Why)
			}
		}
		return final
	}
	final := check("both sides", again, []settled{
		{results.Slower, results.Confirmed}, {results.Same, results.NotRepeated}, {results.Ambiguous, results.NotConfirmed},
		{results.Ambiguous, results.NotConfirmed}, {results.Faster, results.Significant}, {results.Same, results.NoEvidence},
		{results.Ambiguous, results.BaseSlowerToo},
	})
	if final[0].Confirmation == nil || final[0].BaseAgain == nil || final[0].First != results.Slower || first[0].Confirmation != nil || final[4].First != "" || final[4].BaseAgain != nil {
		t.Error("the measurements' verdicts are not kept apart")
	}
	// Rows that were not slower are none of the family.
	if h, b := final[0].Confirmation.Family, final[0].BaseAgain.Family; h != 4 || b != 4 {
		t.Errorf("families of %d and %d, want 4 and 4", h, b)
	}
	// Head alone fails no night, and can still show that a bad moment is over.
	alone := check("head alone", Again{Rows: again.Rows, Alone: true}, []settled{
		{results.Ambiguous, results.BaseNotMeasured}, {results.Same, results.NotRepeated}, {results.Ambiguous, results.NotConfirmed},
		{results.Ambiguous, results.NotConfirmed}, {results.Faster, results.Significant}, {results.Same, results.NoEvidence},
		{results.Same, results.NotRepeated},
	})
	if got := Overall(alone, false); got != results.Ambiguous {
		t.Errorf("head alone: overall %s", got)
	}
	// The second is judged by the noise of the first.
	loud := slices.Clone(first)
	loud[0].Noise = noise(.02)
	if v := Confirm(loud, again, DefaultOptions())[0]; v.Verdict != results.Same || *v.Confirmation.Noise != .02 || v.BaseAgain.Threshold != .06 {
		t.Errorf("%s, %s: %s", v.Verdict, v.Reason, v.Why)
	}
	if got := Overall(final, false); got != results.Slower {
		t.Errorf("overall %s", got)
	}
}

func TestOverall(t *testing.T) {
	cases := []struct {
		verdicts string
		partial  bool
		want     string
	}{
		{"same slower ambiguous faster", true, results.Slower}, {"same ambiguous faster", false, results.Ambiguous},
		{"same faster", false, results.Faster}, {"same same", false, results.Same}, {"same faster", true, results.Ambiguous}, {"", false, results.Ambiguous},
	}
	for _, c := range cases {
		var rows []results.RowVerdict
		for w := range strings.FieldsSeq(c.verdicts) {
			rows = append(rows, results.RowVerdict{Verdict: w})
		}
		if got := Overall(rows, c.partial); got != c.want {
			t.Errorf("%q, partial %v: %s, want %s", c.verdicts, c.partial, got, c.want)
		}
	}
}
