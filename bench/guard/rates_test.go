package guard

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tech-renaissance/trbench/results"
)

var (
	nights = flag.Int("nights", 25, "nights to simulate in each cell of the table of error rates")
	rates  = flag.String("rates", "", "file to write the table of error rates to, of 1,000 nights or more, a fixed seed and a fresh one")
)

// What is simulated: nights of so many rows, a pinned set of runs, and so many
// processes a run.
const (
	nightRows      = 40
	pinnedRuns     = 5
	nightProcesses = 8

	sessionDrift = 0.01 // from a session's first process to its last, upward
	nightCarry   = 0.5  // correlation of one night's effect with the next
	flipShare    = 0.01 // of processes in which another plan is chosen
	flipEffect   = 0.03
)

// family is how processes differ; spread is its scale: the standard deviation
// of the logarithm, and of Student's t with 3 degrees of freedom the scale,
// whose standard deviation is 1.73 times that.
type family struct {
	name string
	draw func(rng *rand.Rand, spread float64) float64
}

func families() []family {
	lognormal := func(rng *rand.Rand, spread float64) float64 { return math.Exp(spread * rng.NormFloat64()) }
	return []family{
		{"lognormal", lognormal},
		{"Student t3", func(rng *rand.Rand, spread float64) float64 {
			chi := 0.0
			for range 3 {
				z := rng.NormFloat64()
				chi += z * z
			}
			return math.Exp(spread * rng.NormFloat64() / math.Sqrt(chi/3))
		}},
		{"2 % outliers of +20 %", func(rng *rand.Rand, spread float64) float64 {
			v := lognormal(rng, spread)
			if rng.Float64() < 0.02 {
				v *= 1.2
			}
			return v
		}},
	}
}

// shift is what happens to head.
type shift struct {
	name   string
	effect float64
	all    bool // in all rows, else in one
	passes bool // it is gone when the confirmation measures
	// again is how many processes a side confirm; 0 for [ConfirmProcesses].
	again int
	// alone says that head alone is measured again and compared with the pinned
	// runs, as without another program for base.
	alone bool
	// slow is whether failing is right.
	slow bool
}

func shifts() []shift {
	return []shift{
		{name: "unchanged"},
		{name: "one row +2 %", effect: .02, slow: true},
		{name: "one row +5 %", effect: .05, slow: true},
		{name: "one row +5 %, confirmed by 8 processes a side", effect: .05, slow: true, again: 8},
		{name: "all rows +2 %", effect: .02, all: true, slow: true},
		{name: "one bad night of +3 %", effect: .03, all: true, passes: true},
		{name: "unchanged, head alone measured again", alone: true},
		{name: "one row +2 %, head alone measured again", effect: .02, slow: true, alone: true},
		{name: "one row +5 %, head alone measured again", effect: .05, slow: true, alone: true},
		{name: "one bad night of +3 %, head alone measured again", effect: .03, all: true, passes: true, alone: true},
	}
}

// world is a cell of the table.
type world struct {
	family
	spread  float64 // between processes
	nightSD float64 // of a night's effect, common to all rows
	shift
}

// session draws a row's run: one process after another, times growing by the
// drift, at positions first, first+step and so on of n*step.
func (w world) session(rng *rand.Rand, level float64, n, first, step int) []float64 {
	v := make([]float64, n)
	for i := range v {
		at := (float64(first+i*step) + .5) / float64(n*step)
		v[i] = 1e6 * level * w.draw(rng, w.spread) * (1 + sessionDrift*at)
		if rng.Float64() < flipShare {
			v[i] *= 1 + flipEffect
		}
	}
	return v
}

// night simulates one night: five pinned nights in a row, tonight up to 20
// nights later, and the confirmation after it, whose processes of base and
// head alternate. Each night has pinned runs of its own, so nights are
// independent.
func (w world) night(rng *rand.Rand, o Options) (first, final []results.RowVerdict, changed int) {
	effects := make([]float64, pinnedRuns+1)
	at := w.nightSD * rng.NormFloat64()
	for i := range effects {
		steps := 1
		if i == pinnedRuns {
			steps = 1 + rng.IntN(20)
		}
		for range steps {
			at = nightCarry*at + math.Sqrt(1-nightCarry*nightCarry)*w.nightSD*rng.NormFloat64()
		}
		effects[i] = math.Exp(at)
	}
	changed = rng.IntN(nightRows)
	slowed := func(row int) float64 {
		if w.all || row == changed {
			return 1 + w.effect
		}
		return 1
	}
	list := make([]Row, nightRows)
	for i := range list {
		list[i].Key = key(i)
		for n := range pinnedRuns {
			list[i].Base = append(list[i].Base, w.session(rng, effects[n], nightProcesses, 0, 1))
		}
		list[i].Head = runs(w.session(rng, effects[pinnedRuns]*slowed(i), nightProcesses, 0, 1))
	}
	first = Decide(list, o)
	var again []Row
	n := w.again
	if n == 0 {
		n = ConfirmProcesses
	}
	for i, v := range first {
		if v.Verdict != results.Slower {
			continue
		}
		level := effects[pinnedRuns]
		head := level
		if !w.passes {
			head *= slowed(i)
		}
		r := Row{Key: v.Row, Noise: v.Noise}
		if w.alone {
			r.Base, r.Head = list[i].Base, runs(w.session(rng, head, n, 0, 1))
		} else {
			r.Base, r.Head = runs(w.session(rng, level, n, 0, 2)), runs(w.session(rng, head, n, 1, 2))
		}
		again = append(again, r)
	}
	return first, Confirm(first, Decide(again, o)), changed
}

// tally counts nights of a cell.
type tally struct {
	nights    int
	before    int // nights that the first measurement alone would fail
	after     int // nights that fail
	ambiguous int // nights that end without a verdict
	// rowBefore and rowAfter count changed rows found slower.
	rows, rowBefore, rowAfter int
}

func (w world) simulate(n int, seed uint64) tally {
	// A stream of its own for every cell, whatever runs beside it.
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(w.family.name, w.spread, w.nightSD, w.shift.name)) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	rng := rand.New(rand.NewPCG(seed, h))
	t := tally{nights: n}
	for range n {
		first, final, changed := w.night(rng, DefaultOptions())
		if Overall(first, false) == results.Slower {
			t.before++
		}
		switch Overall(final, false) {
		case results.Slower:
			t.after++
		case results.Ambiguous:
			t.ambiguous++
		}
		for i := range final {
			if !w.all && i != changed {
				continue
			}
			t.rows++
			if first[i].Verdict == results.Slower {
				t.rowBefore++
			}
			if final[i].Verdict == results.Slower {
				t.rowAfter++
			}
		}
	}
	return t
}

// clopperPearson is the exact interval of a share at 95 %.
func clopperPearson(k, n int) (low, high float64) {
	low, high = 0, 1
	if k > 0 {
		low = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(.025)
	}
	if k < n {
		high = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(.975)
	}
	return low, high
}

func share(k, n int) string {
	low, high := clopperPearson(k, n)
	return fmt.Sprintf("%.2f (%.2f-%.2f)", 100*float64(k)/float64(n), 100*low, 100*high)
}

// gated says whether a cell's rate has a bound, and which.
func (w world) gated() (least, most float64, ok bool) {
	if w.nightSD > .002 || w.spread > .003 || w.again > 0 || w.alone && w.passes {
		return 0, 0, false
	}
	switch {
	case !w.slow && w.effect == 0:
		return 0, .01, true
	case !w.slow:
		return 0, 0, true
	case w.spread != .003:
		return 0, 0, false
	case w.effect == .02:
		return .95, 1, true
	}
	return .999, 1, true
}

func worlds() []world {
	var list []world
	for _, c := range shifts() {
		for _, sd := range []float64{.002, .005} {
			for _, f := range families() {
				for _, spread := range []float64{.001, .003, .01} {
					if c.again > 0 && (sd != .002 || spread != .003) || c.alone && spread != .003 {
						continue // beside some lines of the table, to show the reason
					}
					list = append(list, world{f, spread, sd, c})
				}
			}
		}
	}
	return list
}

// simulateAll runs cells side by side; the order of the answer is theirs.
func simulateAll(list []world, n int, seed uint64) []tally {
	out := make([]tally, len(list))
	next := make(chan int)
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				out[i] = list[i].simulate(n, seed)
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wait.Wait()
	return out
}

// TestErrorRates holds the decision to its bounds on simulated nights. Without
// flags it is short, gated cells alone and one fixed seed, and so repeats
// itself; with -rates it writes the whole table:
//
//	go test ./bench/guard -run ErrorRates -timeout 2h -nights 1000 -rates ../../docs/guard-rates.md
func TestErrorRates(t *testing.T) {
	if *rates != "" {
		wholeTable(t)
		return
	}
	var list []world
	for _, w := range worlds() {
		if _, _, ok := w.gated(); ok {
			list = append(list, w)
		}
	}
	for i, got := range simulateAll(list, *nights, 1) {
		list[i].hold(t, got, 1)
	}
}

func (w world) String() string {
	return fmt.Sprintf("%s, %s, %g %% between processes, %g %% between nights", w.shift.name, w.family.name, 100*w.spread, 100*w.nightSD)
}

// hold compares the rate with its bound.
func (w world) hold(t *testing.T, got tally, seed uint64) {
	t.Helper()
	least, most, ok := w.gated()
	if rate := float64(got.after) / float64(got.nights); ok && (rate < least || rate > most) {
		t.Errorf("%v: %d of %d nights fail, seed %d; bound %g to %g", w, got.after, got.nights, seed, least, most)
	}
}

func wholeTable(t *testing.T) {
	if *nights < 1000 {
		t.Fatalf("the table is of at least 1000 nights, not %d", *nights)
	}
	list := worlds()
	var b strings.Builder
	head, err := os.ReadFile("testdata/rates-head.md")
	if err != nil {
		t.Fatal(err)
	}
	b.Write(head)
	for i, seed := range []uint64{1, uint64(time.Now().UnixNano())} {
		kind := "fixed"
		if i == 1 {
			kind = "fresh"
		}
		begin := time.Now()
		all := simulateAll(list, *nights, seed)
		t.Logf("seed %d (%s): %v", seed, kind, time.Since(begin))
		fmt.Fprintf(&b, "\n## Seed %d (%s), %d nights a line\n", seed, kind, *nights)
		title := ""
		for i, w := range list {
			if w.shift.name != title {
				title = w.shift.name
				fmt.Fprintf(&b, "\n### %s%s\n\n%s", strings.ToUpper(title[:1]), title[1:], ratesColumns)
			}
			got := all[i]
			w.hold(t, got, seed)
			bound := "printed"
			if least, most, ok := w.gated(); ok {
				bound = fmt.Sprintf("at most %g", 100*most)
				if least > 0 {
					bound = fmt.Sprintf("at least %g", 100*least)
				}
			}
			row := "-"
			if w.slow {
				row = share(got.rowAfter, got.rows)
				if w.all {
					row = fmt.Sprintf("%.2f", 100*float64(got.rowAfter)/float64(got.rows)) // rows of a night are no independent trials
				}
			}
			fmt.Fprintf(&b, "| %s | %g | %g | %s | %s | %s | %s | %s |\n", w.family.name, 100*w.spread, 100*w.nightSD,
				share(got.before, got.nights), share(got.after, got.nights), row, share(got.ambiguous, got.nights), bound)
		}
		if err := os.WriteFile(*rates, []byte(b.String()), 0o666); err != nil { // after each seed: one takes minutes
			t.Fatal(err)
		}
	}
}

const ratesColumns = `| processes differ | by % | nights by % | fail before confirming | fail after | changed rows found after | no verdict | bound on "fail after" |
|---|--:|--:|--:|--:|--:|--:|---|
`
