package guard

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Row is what was measured of a row on both sides.
type Row struct {
	Key  results.RowKey
	Unit string
	// Direction is results.Lower or results.Higher; empty means lower.
	Direction string
	// Base and Head are runs: each a list of process medians, in the row's
	// unit. Decide keeps references to them and changes nothing.
	Base, Head [][]float64
	// Noise is the relative standard deviation of a run's median when nothing
	// changed, such as [Noise] finds over the pinned runs. nil takes it from
	// the row's own sides, the larger of them, where they have enough runs. A
	// confirming measurement, which has one run a side, is handed that of the
	// first.
	Noise *float64
}

// Options are the conditions of a verdict.
type Options struct {
	// Alpha is the chance of any false rejection among all rows, by the test
	// alone.
	Alpha float64
	// MinEffect is the least relative effect that matters, and NoiseFactor how
	// many times the row's noise an effect must have.
	MinEffect   float64
	NoiseFactor float64
	// MaxHidden is the largest relative change that a row called the same may
	// hide: its interval must exclude one of this size, or of the threshold if
	// that is larger.
	MaxHidden float64
}

// DefaultOptions are those of all commands.
func DefaultOptions() Options {
	return Options{Alpha: 0.05, MinEffect: results.LeastEffect, NoiseFactor: 3, MaxHidden: 0.05}
}

// Decide judges all rows of one comparison, in their order. They are one
// family: the more rows, the smaller the p that one needs. A row is slower or
// faster if the Mann-Whitney test of its process medians stays below alpha
// after Holm's correction over the family, and its effect reaches the
// threshold: max(MinEffect, NoiseFactor x noise). It is ambiguous if only its
// effect does, if so few processes cannot be significant at all, or if they
// differ so much that a change of MaxHidden could hide among them, and else
// the same. Swapping the sides turns slower into faster and changes nothing
// else; scaling a row, and the order of rows, runs and processes, change
// nothing.
func Decide(rows []Row, o Options) []results.RowVerdict {
	out := make([]results.RowVerdict, len(rows))
	var tested []int
	var ps []float64
	s := hodgesLehmann{cuts: map[[2]int]cut{}}
	for i, r := range rows {
		v := measure(r, o)
		if v.Reason == "" {
			base, head := slices.Concat(r.Base...), slices.Concat(r.Head...)
			u, p := mannWhitney(base, head)
			floor := floorP(len(base), len(head))
			v.U, v.P, v.FloorP, v.Interval = &u, &p, &floor, s.interval(base, head)
			tested, ps = append(tested, i), append(ps, p)
		}
		out[i] = v
	}
	adjusted := holm(ps)
	for j, i := range tested {
		out[i].AdjustedP = &adjusted[j]
	}
	for i := range out {
		v := &out[i]
		v.Family = len(tested)
		v.NeedBase, v.NeedHead = Need(v.Base.Processes, v.Head.Processes, max(v.Family, 1), o)
		if v.Reason == "" {
			judge(v, o)
		}
		explain(v)
	}
	return out
}

// measure fills in what follows from the row alone. A row that cannot be
// tested gets its reason.
func measure(r Row, o Options) results.RowVerdict {
	v := results.RowVerdict{
		Row: r.Key, Unit: r.Unit, Direction: r.Direction,
		Base: side(r.Base), Head: side(r.Head), Alpha: o.Alpha, Threshold: o.MinEffect,
	}
	if v.Direction == "" {
		v.Direction = results.Lower
	}
	switch {
	case v.Base.Processes == 0 || v.Head.Processes == 0:
		v.Verdict, v.Reason = results.Ambiguous, results.NoFigures
		return v
	case !positive(r.Base) || !positive(r.Head) || r.Noise != nil && !(*r.Noise >= 0 && *r.Noise <= math.MaxFloat64):
		v.Verdict, v.Reason = results.Ambiguous, results.BadFigures
		v.Base.Median, v.Head.Median = nil, nil
		return v
	}
	ratio := *v.Head.Median / *v.Base.Median
	v.Ratio = &ratio
	v.Noise, v.NoiseRuns = noiseOf(r)
	if v.Noise != nil {
		v.Threshold = max(o.MinEffect, o.NoiseFactor**v.Noise)
	}
	return v
}

func side(runs [][]float64) results.RowSide {
	s := results.RowSide{Runs: runs}
	var medians []float64
	for _, r := range runs {
		if len(r) > 0 {
			s.Processes += len(r)
			medians = append(medians, results.Median(r))
		}
	}
	if len(medians) > 0 {
		m := results.Median(medians)
		s.Median = &m
	}
	return s
}

// positive says that all values are numbers above 0, as times and rates are.
func positive(runs [][]float64) bool {
	for _, r := range runs {
		for _, v := range r {
			if !(v > 0 && v <= math.MaxFloat64) {
				return false
			}
		}
	}
	return true
}

// noiseOf is the noise that was handed in, or the larger one of the sides: the
// same whichever is called base.
func noiseOf(r Row) (noise *float64, runs int) {
	if r.Noise != nil {
		return r.Noise, 0
	}
	for _, s := range [][][]float64{r.Base, r.Head} {
		if n := Noise(s); n != nil && (noise == nil || *n > *noise) {
			noise, runs = n, len(s)
		}
	}
	return noise, runs
}

// judge gives a tested row its verdict.
func judge(v *results.RowVerdict, o Options) {
	significant := *v.AdjustedP <= v.Alpha*(1+rounding)
	up := *v.Ratio >= 1+v.Threshold
	down := *v.Ratio <= 1/(1+v.Threshold)
	worse, better := up, down
	if v.Direction == results.Higher {
		worse, better = down, up
	}
	switch {
	case *v.FloorP*float64(v.Family) > v.Alpha*(1+rounding):
		v.Verdict, v.Reason = results.Ambiguous, results.TooFewProcesses
	case significant && worse:
		v.Verdict, v.Reason = results.Slower, results.Significant
	case significant && better:
		v.Verdict, v.Reason = results.Faster, results.Significant
	case worse || better:
		v.Verdict, v.Reason = results.Ambiguous, results.NotSignificant
	case hides(v, o):
		v.Verdict, v.Reason = results.Ambiguous, results.TooNoisy
	case significant:
		v.Verdict, v.Reason = results.Same, results.BelowThreshold
	default:
		v.Verdict, v.Reason = results.Same, results.NoEvidence
	}
}

// hides says that a change too large to overlook is not excluded. Equal figures
// on both sides, such as a record's own, hide none.
func hides(v *results.RowVerdict, o Options) bool {
	most := 1 + max(v.Threshold, o.MaxHidden)
	if v.Interval.Low >= 1/most && v.Interval.High <= most {
		return false
	}
	return !slices.Equal(sorted(v.Base.Runs), sorted(v.Head.Runs))
}

func sorted(runs [][]float64) []float64 {
	all := slices.Concat(runs...)
	slices.Sort(all)
	return all
}

// explain puts the reason into words.
func explain(v *results.RowVerdict) {
	const again = "measure both sides again, at another time, and hand that in to confirm"
	more := fmt.Sprintf("measure with at least %s", needed(v))
	switch v.Reason {
	case results.NoFigures:
		v.Why = "there are no figures of " + missing(v)
		v.Next = "see why its cell failed, and run it again"
	case results.BadFigures:
		v.Why = "a figure is not a number above 0"
		v.Next = "run it again; such a record was not written by a good run"
	case results.TooFewProcesses:
		v.Why = fmt.Sprintf("%s against %d cannot tell: the least p they can reach is %s, and one of %s needs %s",
			processes(v.Base.Processes), v.Head.Processes, number(*v.FloorP), rows(v.Family), number(v.Alpha/float64(v.Family)))
		v.Next = more
	case results.Significant:
		v.Why = fmt.Sprintf("%s, at least %s, and p %s after Holm over %s, at most %s",
			change(*v.Ratio), percent(v.Threshold), number(*v.AdjustedP), rows(v.Family), number(v.Alpha))
		if v.Verdict == results.Slower {
			v.Next = again
		}
	case results.NotSignificant:
		v.Why = fmt.Sprintf("%s reaches %s, but p %s after Holm over %s is above %s: it may be chance",
			change(*v.Ratio), percent(v.Threshold), number(*v.AdjustedP), rows(v.Family), number(v.Alpha))
		v.Next = fmt.Sprintf("measure again with more processes than %d against %d, on a quieter machine", v.Base.Processes, v.Head.Processes)
	case results.TooNoisy:
		v.Why = fmt.Sprintf("%s is less than %s, but nothing from %s to %s is excluded: the processes differ too much to call it the same",
			change(*v.Ratio), percent(v.Threshold), change(v.Interval.Low), change(v.Interval.High))
		v.Next = fmt.Sprintf("measure again with more processes than %d against %d, on a quieter machine", v.Base.Processes, v.Head.Processes)
	case results.BelowThreshold:
		v.Why = fmt.Sprintf("%s is no chance (p %s after Holm over %s) but less than %s",
			change(*v.Ratio), number(*v.AdjustedP), rows(v.Family), percent(v.Threshold))
	case results.NoEvidence:
		v.Why = fmt.Sprintf("%s is less than %s and may be chance (p %s after Holm over %s)",
			change(*v.Ratio), percent(v.Threshold), number(*v.AdjustedP), rows(v.Family))
	}
}

func needed(v *results.RowVerdict) string {
	if v.NeedBase == v.NeedHead {
		return fmt.Sprintf("%d processes a side", v.NeedBase)
	}
	return fmt.Sprintf("%d processes of base against %d of head", v.NeedBase, v.NeedHead)
}

func missing(v *results.RowVerdict) string {
	var sides []string
	if v.Base.Processes == 0 {
		sides = append(sides, results.BaseSide)
	}
	if v.Head.Processes == 0 {
		sides = append(sides, results.HeadSide)
	}
	return strings.Join(sides, " and ")
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

func rows(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

func number(x float64) string { return fmt.Sprintf("%.3g", x) }

func percent(x float64) string { return fmt.Sprintf("%.3g %%", 100*x) }

// change is a ratio as a change in per cent.
func change(ratio float64) string { return fmt.Sprintf("%+.2f %%", 100*(ratio-1)) }
