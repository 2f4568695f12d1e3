package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// shape is how simulated processes and blocks differ. The factors are of one
// configuration; process is drawn once a process, block once a block.
type shape struct {
	name           string
	process, block func(*rand.Rand) float64
}

func normal(spread float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return math.Exp(spread * r.NormFloat64()) }
}

// simulate is a cell whose true ratio is given, with blocks paired in each
// process: what both configurations share moves both.
func simulate(s shape, processes, blocks int, ratio float64, rng *rand.Rand) *results.Cell {
	c := &results.Cell{Key: syntheticPlan(1, 1).Cells[0]}
	c.Configurations = []results.Configuration{{Key: configurationKey("eager", "event")}, {Key: configurationKey("graph", "event")}}
	samples := make([][]results.Sample, 2)
	for p := range processes {
		common := normal(0.05)(rng) // heat, clocks, neighbours: common to both
		own := []float64{s.process(rng), s.process(rng)}
		for b := range blocks {
			for i, f := range own {
				v := 1e7 * common * f * s.block(rng)
				if i == 0 {
					v *= ratio
				}
				samples[i] = append(samples[i], results.Sample{Process: p, Block: b, Value: v})
			}
		}
		c.Processes = append(c.Processes, results.Process{Index: p, Status: results.Done, Blocks: blocks})
	}
	for i := range samples {
		c.Configurations[i].Metrics = []results.Metric{results.NewMetric(results.StepTimeNs, samples[i])}
	}
	Reduce(c, Plan{Blocks: blocks})
	return c
}

// TestCoverage counts how often the ratio's 95 % interval holds the truth, over
// 1,000 simulated runs, and how often two runs of the same thing differ by no
// more than their intervals say. Normal spreads are gated, other shapes
// printed.
func TestCoverage(t *testing.T) {
	const blocks, ratio = 4, 1.25
	heavy := func(r *rand.Rand) float64 { // t with 2 degrees of freedom
		return math.Exp(0.003 * r.NormFloat64() / math.Sqrt(r.ExpFloat64()))
	}
	bimodal := func(r *rand.Rand) float64 {
		if r.Float64() < 0.2 {
			return 1.03 * normal(0.003)(r)
		}
		return normal(0.003)(r)
	}
	skewed := func(r *rand.Rand) float64 { return 1 + 0.003*r.ExpFloat64() }
	for _, s := range []struct {
		shape
		gated bool
	}{
		{shape{"spread 0.3 %", normal(0.003), normal(0.003)}, true},
		{shape{"spread 1 %", normal(0.01), normal(0.003)}, true},
		{shape{"no spread", normal(0), normal(0.003)}, false},
		{shape{"skewed processes", skewed, normal(0.003)}, false},
		{shape{"heavy tails", heavy, heavy}, false},
		{shape{"one in five processes 3 % slower", bimodal, normal(0.003)}, false},
	} {
		for _, processes := range []int{3, 8} {
			runs := 1000
			if !s.gated || testing.Short() {
				runs = 200
			}
			rng := rand.New(rand.NewPCG(11, uint64(processes)))
			covered, booted, agree, medians := 0, 0, 0, 0
			var last *results.Cell
			for i := range runs {
				c := simulate(s.shape, processes, blocks, ratio, rng)
				r := c.Headline.Ratio
				covered += b2i(r.Interval.Low <= ratio && ratio <= r.Interval.High)
				if r.Bootstrap != nil {
					booted += b2i(r.Bootstrap.Low <= ratio && ratio <= r.Bootstrap.High)
				}
				if i%2 == 1 {
					agree += b2i(sameRatio(*r, *last.Headline.Ratio))
					medians += b2i(overlap(c, last))
				}
				last = c
			}
			share := 100 * float64(covered) / float64(runs)
			same := 100 * float64(agree) / float64(runs/2)
			t.Logf("%-34s %d processes: t interval %.1f %%, bootstrap %.1f %%, two equal runs agree %.1f %%, intervals of medians overlap %.1f %%",
				s.name, processes, share, 100*float64(booted)/float64(runs), same, 100*float64(medians)/float64(runs/2))
			if s.gated && !testing.Short() && (share < 93 || share > 97) {
				t.Errorf("%s, %d processes: the interval covers %.1f %%", s.name, processes, share)
			}
			if s.gated && !testing.Short() && same < 93 {
				t.Errorf("%s, %d processes: two runs of the same thing agree in %.1f %% of cases", s.name, processes, same)
			}
		}
	}
}

// TestCoverageWithPick counts how often the headline's interval holds the truth
// where the captured configuration is picked after the fact, as the one of the
// least step time. The worst case is that all are equal: the best of them is
// then luck. Seen over 2,000 runs, at spreads of 0.3 and 1 %, with 3 and 8
// processes: 95.0 to 95.2 % with two to pick from, 94.1 to 94.9 % with three, as
// the interval is wide beside what luck adds. But it misses to one side: it lies
// above the truth in 3.3 to 3.7 and 4.3 to 4.7 %, instead of 2.5. The coverage
// is printed, not gated; that every configuration is picked now and then is.
func TestCoverageWithPick(t *testing.T) {
	const blocks, ratio = 4, 1.25
	captured := []results.ConfigurationKey{configurationKey("graph", "event"), configurationKey("step", "inside"), configurationKey("graph", "host")}
	runs := 1000
	if testing.Short() {
		runs = 200
	}
	for _, processes := range []int{3, 8} {
		for n := 2; n <= len(captured); n++ {
			rng := rand.New(rand.NewPCG(12, uint64(processes)))
			covered, high := 0, 0
			picks := map[results.ConfigurationKey]int{}
			for range runs {
				r := picked(0.003, processes, blocks, ratio, captured[:n], rng)
				covered += b2i(r.Interval.Low <= ratio && ratio <= r.Interval.High)
				high += b2i(r.Interval.Low > ratio)
				picks[r.Other]++
			}
			t.Logf("spread 0.3 %%, %d processes, best of %d: t interval %.1f %%, above the truth %.1f %%", processes, n,
				100*float64(covered)/float64(runs), 100*float64(high)/float64(runs))
			for _, k := range captured[:n] {
				if share := float64(picks[k]) / float64(runs); !near(share, 1/float64(n), 0.12) {
					t.Errorf("%s is picked in %.0f %% of runs, where %d are equal", k, 100*share, n)
				}
			}
		}
	}
}

// picked is the headline's ratio of a simulated cell whose captured
// configurations are all truly the same.
func picked(spread float64, processes, blocks int, ratio float64, captured []results.ConfigurationKey, rng *rand.Rand) *results.Ratio {
	c := &results.Cell{Key: syntheticPlan(1, 1).Cells[0], Status: results.Done}
	keys := append([]results.ConfigurationKey{configurationKey("eager", "event")}, captured...)
	samples := make([][]results.Sample, len(keys))
	for p := range processes {
		common := normal(0.05)(rng)
		for i := range keys {
			own := normal(spread)(rng)
			for b := range blocks {
				v := 1e7 * common * own * normal(0.003)(rng)
				if i == 0 {
					v *= ratio
				}
				samples[i] = append(samples[i], results.Sample{Process: p, Block: b, Value: v})
			}
		}
		c.Processes = append(c.Processes, results.Process{Index: p, Status: results.Done, Blocks: blocks})
	}
	for i, k := range keys {
		c.Configurations = append(c.Configurations, results.Configuration{Key: k, Metrics: []results.Metric{results.NewMetric(results.StepTimeNs, samples[i])}})
		reduceMetric(&c.Configurations[i].Metrics[0])
	}
	return headline(c).Ratio
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sameRatio says whether two ratios differ by no more than their intervals
// allow: the half widths add up as independent errors do.
func sameRatio(a, b results.Ratio) bool {
	half := func(r results.Ratio) float64 { return math.Log(r.Interval.High/r.Interval.Low) / 2 }
	return math.Abs(math.Log(a.Value/b.Value)) <= math.Hypot(half(a), half(b))
}

func overlap(a, b *results.Cell) bool {
	x, y := a.Configurations[1].Metrics[0].Summary.Interval, b.Configurations[1].Metrics[0].Summary.Interval
	return x.Low <= y.High && y.Low <= x.High
}
