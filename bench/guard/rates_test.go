package guard

import (
	"bytes"
	"encoding/json"
	"errors"
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
	nights = flag.Int("nights", 25, "nights to simulate in each bounded line of the table of error rates")
	rates  = flag.Bool("rates", false, "simulate the whole table of error rates, 1,000 nights or more a line, by a fixed seed and a fresh one, and write it")
	update = flag.Bool("update", false, "write the document of error rates anew from what was simulated")
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
	// runs, as without base's program.
	alone bool
	// machine says that what happens to head happens to whatever runs tonight.
	machine bool
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
		{name: "one bad night of +3 %, confirmed by 8 processes a side", effect: .03, all: true, passes: true, again: 8},
		{name: "the machine or its driver slower by 3 %", effect: .03, all: true, machine: true},
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
	again := Again{Alone: w.alone}
	n := w.again
	if n == 0 {
		n = ConfirmProcesses
	}
	for i, v := range first {
		if v.Verdict != results.Slower {
			continue
		}
		level := effects[pinnedRuns]
		if w.machine {
			level *= slowed(i)
		}
		head := level
		if !w.passes && !w.machine {
			head *= slowed(i)
		}
		if w.alone {
			again.Rows = append(again.Rows, Row{Key: v.Row, Base: list[i].Base, Head: runs(w.session(rng, head, n, 0, 1))})
			continue
		}
		base := runs(w.session(rng, level, n, 0, 2))
		again.Rows = append(again.Rows, Row{Key: v.Row, Base: base, Head: runs(w.session(rng, head, n, 1, 2))})
		again.Base = append(again.Base, Row{Key: v.Row, Base: list[i].Base, Head: base})
	}
	return first, Confirm(first, again, o), changed
}

// tally counts nights of a cell.
type tally struct {
	Nights    int `json:"nights"`
	Before    int `json:"before"`    // nights that the first measurement alone would fail
	After     int `json:"after"`     // nights that fail
	Ambiguous int `json:"ambiguous"` // nights that end without a verdict
	// RowAfter counts those of Rows changed rows that are found slower.
	Rows     int `json:"rows"`
	RowAfter int `json:"row_after"`
}

func (w world) simulate(n int, seed uint64) tally {
	// A stream of its own for every cell, whatever runs beside it.
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(w.family.name, w.spread, w.nightSD, w.shift.name)) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	rng := rand.New(rand.NewPCG(seed, h))
	t := tally{Nights: n}
	for range n {
		first, final, changed := w.night(rng, DefaultOptions())
		if Overall(first, false) == results.Slower {
			t.Before++
		}
		switch Overall(final, false) {
		case results.Slower:
			t.After++
		case results.Ambiguous:
			t.Ambiguous++
		}
		for i := range final {
			if !w.all && i != changed {
				continue
			}
			t.Rows++
			if final[i].Verdict == results.Slower {
				t.RowAfter++
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

// bound is between which shares of nights fail, and how many end without a
// verdict at least.
type bound struct{ least, most, unclear float64 }

func (b bound) String() string {
	var parts []string
	switch {
	case b.least > 0:
		parts = append(parts, fmt.Sprintf("at least %g fail", 100*b.least))
	case b.most < 1:
		parts = append(parts, fmt.Sprintf("at most %g fail", 100*b.most))
	}
	if b.unclear > 0 {
		parts = append(parts, fmt.Sprintf("at least %g without a verdict", 100*b.unclear))
	}
	return strings.Join(parts, ", ")
}

// gated says whether a cell's rates have a bound, and which. Of a head that was
// measured again alone no night may fail, whatever the noise, and a night that
// passes may not either where processes differ by no more than the bounds are
// for.
func (w world) gated() (b bound, ok bool) {
	quiet := w.spread <= .003
	bounded := quiet && w.nightSD <= .002
	switch {
	case w.alone && w.slow && bounded && w.spread == .003:
		return bound{0, 0, map[float64]float64{.02: .95, .05: .999}[w.effect]}, true
	case w.alone:
		return bound{0, 0, 0}, true
	case w.passes:
		return bound{0, 0, 0}, quiet
	case w.machine:
		return bound{0, .01, .95}, bounded
	case w.effect == 0:
		return bound{0, .01, 0}, bounded
	case !bounded || w.spread != .003 || w.again > 0:
		return bound{}, false
	case w.effect == .02:
		return bound{.95, 1, 0}, true
	}
	return bound{.999, 1, 0}, true
}

func worlds() []world {
	var list []world
	for _, c := range shifts() {
		for _, sd := range []float64{.002, .005} {
			for _, f := range families() {
				for _, spread := range []float64{.001, .003, .01} {
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

// simulated is what was simulated for the table, in testdata/rates.json.
type simulated struct {
	Seeds []seeded `json:"seeds"`
}

type seeded struct {
	Seed  uint64      `json:"seed"`
	Kind  string      `json:"kind"` // fixed, fresh
	Lines []tallyLine `json:"lines"`
}

// tallyLine is a line of the table. First are its first nights, by which it is
// known to be of the code as it stands.
type tallyLine struct {
	World string `json:"world"`
	First tally  `json:"first"`
	All   tally  `json:"all"`
}

const (
	fixedSeed   = 1
	firstNights = 6 // of each line, simulated in every run of the tests

	ratesHead = "testdata/rates-head.md"
	ratesData = "testdata/rates.json"
	ratesDoc  = "../../docs/guard-rates.md"
)

// TestErrorRates holds the decision to its bounds on simulated nights: few, by
// a fixed seed, so that it repeats itself. With -rates it simulates the whole
// table, and writes it:
//
//	go test ./bench/guard -run ErrorRates -timeout 2h -nights 1000 -rates
func TestErrorRates(t *testing.T) {
	if *rates {
		wholeTable(t)
		return
	}
	var list []world
	for _, w := range worlds() {
		// Of head alone no night can fail, and one noise is enough to see that.
		if _, ok := w.gated(); ok && (!w.alone || w.spread == .003) {
			list = append(list, w)
		}
	}
	for i, got := range simulateAll(list, *nights, fixedSeed) {
		list[i].hold(t, got, fixedSeed)
	}
}

func (w world) String() string {
	return fmt.Sprintf("%s, %s, %g %% between processes, %g %% between nights", w.shift.name, w.family.name, 100*w.spread, 100*w.nightSD)
}

// hold compares the rates with their bound.
func (w world) hold(t *testing.T, got tally, seed uint64) {
	t.Helper()
	b, ok := w.gated()
	fail, unclear := float64(got.After)/float64(got.Nights), float64(got.Ambiguous)/float64(got.Nights)
	if ok && (fail < b.least || fail > b.most || unclear < b.unclear) {
		t.Errorf("%v: of %d nights %d fail and %d end without a verdict, seed %d; bound: %v", w, got.Nights, got.After, got.Ambiguous, seed, b)
	}
}

// TestErrorRatesAreOfThisCode holds what was simulated for the table to its
// bounds, compares its first nights with what the code makes of them now, and
// the document with what follows from it.
func TestErrorRatesAreOfThisCode(t *testing.T) {
	if *rates {
		t.Skip("it is being made")
	}
	b, err := os.ReadFile(ratesData)
	if err != nil {
		t.Fatal(err)
	}
	var s simulated
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	list := worlds()
	if len(s.Seeds) != 2 || s.Seeds[0].Seed != fixedSeed || s.Seeds[1].Seed == fixedSeed {
		t.Fatalf("%s is not of a fixed seed and a fresh one", ratesData)
	}
	for i, seed := range s.Seeds {
		if len(seed.Lines) != len(list) {
			t.Fatalf("%s has %d lines for seed %d, want %d", ratesData, len(seed.Lines), seed.Seed, len(list))
		}
		for j, w := range list {
			line := seed.Lines[j]
			if line.World != w.String() || line.All.Nights < 1000 {
				t.Fatalf("%s: line %d is %q of %d nights, want %v", ratesData, j, line.World, line.All.Nights, w)
			}
			w.hold(t, line.All, seed.Seed)
		}
		if i > 0 || runtime.GOARCH != "amd64" {
			continue // elsewhere a last digit, and with it a verdict, may differ
		}
		for j, got := range simulateAll(list, firstNights, seed.Seed) {
			if want := seed.Lines[j].First; got != want {
				t.Errorf("%v: the first nights are %+v, and the table is of code that made %+v of them; go test ./bench/guard -run ErrorRates -timeout 2h -nights 1000 -rates makes it anew", list[j], got, want)
			}
		}
	}
	want := s.document(t)
	if *update {
		if err := os.WriteFile(ratesDoc, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(ratesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(doc) != want {
		t.Errorf("%s is not what %s and %s make; go test ./bench/guard -run ErrorRates -update writes it", ratesDoc, ratesHead, ratesData)
	}
}

func wholeTable(t *testing.T) {
	if *nights < 1000 {
		t.Fatalf("the table is of at least 1000 nights, not %d", *nights)
	}
	list := worlds()
	var s simulated
	for i, seed := range []uint64{fixedSeed, uint64(time.Now().UnixNano())} {
		begin := time.Now()
		all, first := simulateAll(list, *nights, seed), simulateAll(list, firstNights, seed)
		t.Logf("seed %d: %v", seed, time.Since(begin))
		one := seeded{Seed: seed, Kind: []string{"fixed", "fresh"}[i]}
		for j, w := range list {
			w.hold(t, all[j], seed)
			one.Lines = append(one.Lines, tallyLine{w.String(), first[j], all[j]})
		}
		s.Seeds = append(s.Seeds, one)
		b, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		// After each seed: one takes minutes.
		if err := errors.Join(os.WriteFile(ratesData, append(b, '\n'), 0o666), os.WriteFile(ratesDoc, []byte(s.document(t)), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
}

// document is the table with what is said about it.
func (s simulated) document(t *testing.T) string {
	t.Helper()
	head, err := os.ReadFile(ratesHead)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewBuffer(head)
	for _, seed := range s.Seeds {
		fmt.Fprintf(b, "\n## Seed %d (%s), %d nights a line\n", seed.Seed, seed.Kind, seed.Lines[0].All.Nights)
		title := ""
		for i, w := range worlds() {
			if w.shift.name != title {
				title = w.shift.name
				fmt.Fprintf(b, "\n### %s%s\n\n%s", strings.ToUpper(title[:1]), title[1:], ratesColumns)
			}
			got := seed.Lines[i].All
			said := "printed"
			if limit, ok := w.gated(); ok {
				said = limit.String()
			}
			row := "-"
			if w.slow {
				row = share(got.RowAfter, got.Rows)
				if w.all {
					row = fmt.Sprintf("%.2f", 100*float64(got.RowAfter)/float64(got.Rows)) // rows of a night are no independent trials
				}
			}
			fmt.Fprintf(b, "| %s | %g | %g | %s | %s | %s | %s | %s |\n", w.family.name, 100*w.spread, 100*w.nightSD,
				share(got.Before, got.Nights), share(got.After, got.Nights), row, share(got.Ambiguous, got.Nights), said)
		}
	}
	return b.String()
}

const ratesColumns = `| processes differ | by % | nights by % | fail before confirming | fail after | changed rows found after | no verdict | bound |
|---|--:|--:|--:|--:|--:|--:|---|
`
