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
