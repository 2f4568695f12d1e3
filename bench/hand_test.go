package bench

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// blocksOfProcesses makes a configuration from step times by process and block.
func blocksOfProcesses(k results.ConfigurationKey, values ...[]float64) results.Configuration {
	var samples []results.Sample
	for p, blocks := range values {
		for b, v := range blocks {
			samples = append(samples, results.Sample{Process: p, Block: b, Value: v})
		}
	}
	return results.Configuration{Key: k, Metrics: []results.Metric{results.NewMetric(results.StepTimeNs, samples)}}
}

// Blocks are paired by process and number. The values are such that any other
// pairing has another median; right answers by hand.
func TestLogRatiosByHand(t *testing.T) {
	for _, c := range []struct {
		name        string
		base, other [][]float64
		want        []float64
	}{
		// 1/4, 2, 3/2, 1/2: the middle two are 1/2 and 3/2.
		{"four blocks", [][]float64{{1000, 2000, 3000, 4000}}, [][]float64{{4000, 1000, 2000, 8000}}, []float64{math.Log(.5*1.5) / 2}},
		// 1, 2, 4.
		{"three blocks", [][]float64{{1000, 2000, 4000}}, [][]float64{{1000, 1000, 1000}}, []float64{math.Log(2)}},
		// 2 and 3, each of its own process.
		{"two processes", [][]float64{{2000}, {9000}}, [][]float64{{1000}, {3000}}, []float64{math.Log(2), math.Log(3)}},
		// The third block is of one alone.
		{"a block too many", [][]float64{{2000, 4000, 1}}, [][]float64{{1000, 1000}}, []float64{math.Log(8) / 2}},
		{"a process too many", [][]float64{{2000}, {4000}}, [][]float64{{1000}}, []float64{math.Log(2)}},
		{"zeros", [][]float64{{0, 3000, 5000}}, [][]float64{{1000, 1000, 0}}, []float64{math.Log(3)}},
		{"nothing in common", [][]float64{{0}}, [][]float64{{1000}}, nil},
	} {
		a, b := blocksOfProcesses(configurationKey("eager", "event"), c.base...), blocksOfProcesses(configurationKey("graph", "event"), c.other...)
		got := logRatios(results.StepTimeNs, &a, &b)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if !near(got[i], c.want[i], 1e-12) {
				t.Errorf("%s: process %d has %v, want %v", c.name, i, got[i], c.want[i])
			}
		}
	}
	// Ranks and single steps of a block are one value: their median, which is
	// here neither the first, the last nor the mean.
	m := results.NewMetric(results.LatencyNs, []results.Sample{{Block: 1, Value: 1}, {Block: 1, Rank: 1, Value: 4}, {Block: 1, Value: 9}, {Process: 1, Block: 1, Value: 7}})
	if got := blockMedians(&m); len(got) != 2 || got[place{0, 1}] != 4 || got[place{1, 1}] != 7 {
		t.Errorf("%v", got)
	}
}

// The mean of logarithms and Student's interval of it: of ln 1, ln 2, ln 4 the
// mean is ln 2 and the deviation ln 2.
func TestRatioByHand(t *testing.T) {
	k := configurationKey("eager", "event")
	r := RatioOf(results.StepTimeNs, k, k, []float64{0, math.Log(2), math.Log(4)})
	half := 4.302653 * math.Log(2) / math.Sqrt(3) // t of 2 degrees of freedom
	if !near(r.Value, 2, 1e-12) || !near(math.Log(r.Interval.High), math.Log(2)+half, 1e-5) || !near(math.Log(r.Interval.Low), math.Log(2)-half, 1e-5) || r.Bootstrap != nil {
		t.Errorf("%+v, %+v", r, r.Interval)
	}
	// t of 7 degrees of freedom is 2.364624.
	logs := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	r = RatioOf(results.StepTimeNs, k, k, logs)
	if half = 2.364624 * math.Sqrt(6) / math.Sqrt(8); !near(math.Log(r.Interval.High), 4.5+half, 1e-5) || r.Bootstrap == nil {
		t.Errorf("%+v", r.Interval)
	}
	if RatioOf(results.StepTimeNs, k, k, nil) != nil {
		t.Error("a ratio of nothing")
	}
}

// Orders differ from seed to seed, and so do those of a plan's replicates, by
// seed, cell and process; the same seed gives the same.
func TestOrdersFollowTheirSeed(t *testing.T) {
	seen := map[string]int{}
	later := 0
	for seed := range uint64(240) {
		o := Order(4, 4, seed)
		seen[strings.Trim(strings.Join(strings.Fields(join(o[0])), ""), "[]")]++
		if !slices.Equal(o[0], o[2]) {
			later++
		}
		if again := Order(4, 4, seed); !slices.EqualFunc(o, again, slices.Equal[[]int]) {
			t.Errorf("seed %d gives two orders", seed)
		}
	}
	// 24 orders, each in about ten of 240 seeds: that one is missing, or there
	// more than 30 times, has a chance below one in a thousand.
	for o, n := range seen {
		if n > 30 {
			t.Errorf("order %s %d times", o, n)
		}
	}
	if len(seen) < 23 || later < 200 {
		t.Errorf("%d orders of 24; another in the second pair of blocks in %d of 240", len(seen), later)
	}
	p := syntheticPlan(3, 2, configurationKey("eager", "event"))
	p.Cells = append(p.Cells, p.Cells[0])
	orders := map[uint64]bool{}
	for _, seed := range []uint64{1, 2, 1} {
		p.Seed = seed
		for cell := range p.Cells {
			for process := range p.Processes {
				order := p.Request(cell, process, "").Order
				if orders[order] = true; uint64(float64(order)) != order {
					t.Errorf("a JSON reader with doubles takes the seed %d for %.0f", order, float64(order))
				}
			}
		}
	}
	if len(orders) != 2*2*3 {
		t.Errorf("%d different seeds of orders, want 12", len(orders))
	}
}

func join(list []int) string {
	var words []string
	for _, v := range list {
		words = append(words, string(rune('0'+v)))
	}
	return strings.Join(words, "")
}

// doubtsOf are the doubts of one configuration with these step times by process
// and block.
func doubtsOf(p Plan, values ...[]float64) []results.Warning {
	c := &results.Cell{Status: results.Done, Configurations: []results.Configuration{blocksOfProcesses(configurationKey("eager", "event"), values...)}}
	for i, blocks := range values {
		c.Processes = append(c.Processes, results.Process{Index: i, Status: results.Done, Blocks: len(blocks)})
	}
	Reduce(c, p)
	return c.Warnings
}

// Thresholds by hand, each on both sides.
func TestDoubtsByHand(t *testing.T) {
	flat := []float64{1000, 1000, 1000, 1000}
	// eight blocks around a level, a block of which is changed
	level := func(at float64, changes ...float64) []float64 {
		v := []float64{at, at, at, at, at, at, at, at}
		for i := 0; i < len(changes); i += 2 {
			v[int(changes[i])] = changes[i+1]
		}
		return v
	}
	for _, c := range []struct {
		name   string
		values [][]float64
		change func(*Plan)
		want   []string // code, then words of the text
	}{
		{"nothing", [][]float64{flat, flat, flat}, nil, nil},
		// An outlier on either side, above a tenth of its process's median.
		{"a slow block", [][]float64{level(1000, 4, 1101.), level(2000), level(3000)}, nil, []string{"outliers: has 1 of 24 blocks far from the rest, the farthest +10 %", "processes_differ"}},
		{"a fast block", [][]float64{level(1000, 4, 300.), level(1000), level(1000)}, nil, []string{"outliers: has 1 of 24 blocks far from the rest, the farthest -70 %"}},
		{"two, the farther is fast", [][]float64{level(1000, 4, 300., 6, 1500.), level(1000), level(1000)}, nil, []string{"outliers: has 2 of 24 blocks far from the rest, the farthest -70 %"}},
		{"not a tenth", [][]float64{level(1000, 4, 1099.), level(1000), level(1000)}, nil, nil},
		// Half the blocks are 3 % off or more: eight deviations of that, scaled as
		// for a normal spread, are 36 %.
		{"wide, so not far", [][]float64{{1000, 970, 1030, 960, 1040, 1000, 1300, 990}, level(1000, 1, 960., 2, 1040., 5, 970., 6, 1030.), level(1000, 1, 1030., 2, 970., 5, 1040., 6, 960.)}, nil, nil},
		// A first block that is slower by a twentieth of the others' median.
		{"a slow first block", [][]float64{level(1000, 0, 1050.), level(1000, 0, 1050.), level(1000, 0, 1050.)}, nil, []string{"slow_first_block: has a first block 5 % slower"}},
		{"hardly slow", [][]float64{level(1000, 0, 1049.), level(1000, 0, 1049.), level(1000, 0, 1049.)}, nil, nil},
		// Against the median of the others: 1062/1010, where 1062/1020 would be of all.
		{"of three blocks", [][]float64{{1062, 1000, 1020}, {1062, 1000, 1020}, {1062, 1000, 1020}}, nil, []string{"few_blocks", "slow_first_block: has a first block 5 % slower"}},
		{"slow in most", [][]float64{level(1000, 0, 1090.), level(1000, 0, 1090.), level(1000, 0, 999.)}, nil, nil},
		{"slow with a fixed warm-up", [][]float64{level(1000, 0, 1050.), level(1000, 0, 1050.), level(1000, 0, 1050.)}, func(p *Plan) { p.Warmup = new(2) },
			[]string{"slow_first_block: --warmup=2 was too short"}},
		// Fastest and slowest process apart by a twentieth.
		{"processes differ", [][]float64{flat, flat, {1050, 1050, 1050, 1050}}, nil, []string{"processes_differ: differs by 5 % between the fastest and the slowest process; use --processes=8"}},
		{"hardly", [][]float64{flat, flat, {1049, 1049, 1049, 1049}}, nil, nil},
		{"seven differ", inProcesses(1000, 1008, 1016, 1025, 1033, 1042, 1050), nil, []string{"processes_differ: differs by 5 % between the fastest and the slowest process; use --processes=8 or more"}},
		{"eight differ", inProcesses(1000, 1007, 1014, 1021, 1029, 1036, 1043, 1050), nil, []string{"processes_differ: between the fastest and the slowest process; end what else is running; the interval says"}},
		// A drift of 2 % over the blocks, either way.
		{"slower", [][]float64{rising(1e6, 3000), rising(1e6, 3000), rising(1e6, 3000)}, nil, []string{"drift: becomes 2.1 % slower"}},
		{"faster", [][]float64{rising(1e6, -3000), rising(1e6, -3000), rising(1e6, -3000)}, nil, []string{"drift: becomes 2.1 % faster"}},
		{"too little", [][]float64{rising(1e6, 2800), rising(1e6, 2800), rising(1e6, 2800)}, nil, nil},
		{"each its own way", [][]float64{rising(1e6, 3000), rising(1e6, -3000), level(1e6)}, nil, nil},
		// Two levels.
		{"blocks at two levels", [][]float64{{1000, 1000, 1030, 1030, 1000, 1030, 1030, 1000}, level(1015), level(1015)}, nil, []string{"bimodal: has blocks at two levels in process 0, 3.0 % apart"}},
		{"two levels close together", [][]float64{{1000, 1000, 1019, 1019, 1000, 1019, 1019, 1000}, level(1010), level(1010)}, nil, nil},
		{"processes at two levels", [][]float64{flat, flat, flat, {1030, 1030, 1030, 1030}, {1030, 1030, 1030, 1030}, {1030, 1030, 1030, 1030}}, nil, []string{"bimodal: has processes at two levels, 3.0 % apart"}},
		// Too little.
		{"one process", [][]float64{flat}, nil, []string{"few_processes: 1 process, so how much processes differ is not in the figures; use --processes=3 or more, 8 to judge a change"}},
		{"quick", [][]float64{flat}, func(p *Plan) { p.Quick = true }, []string{"few_processes: drop --quick"}},
		{"two processes", [][]float64{flat, flat}, nil, []string{"few_processes: 2 processes"}},
		{"three blocks", [][]float64{flat, flat[:3], flat}, nil, []string{"few_blocks: a process has 3 blocks of each configuration"}},
		{"a budget", [][]float64{flat[:2], flat[:2], flat[:3]}, func(p *Plan) { p.Blocks, p.BudgetNs = 4, 1 }, []string{"budget: --budget left time for 2 to 3 of 4 blocks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := syntheticPlan(len(c.values), len(c.values[0]))
			if c.change != nil {
				c.change(&p)
			}
			got := doubtsOf(p, c.values...)
			var list []string
			for _, w := range got {
				list = append(list, w.Code+": "+w.Text)
			}
			ok := len(got) == len(c.want)
			for i := range min(len(got), len(c.want)) {
				code, words, _ := strings.Cut(c.want[i], ": ")
				ok = ok && got[i].Code == code && strings.Contains(got[i].Text, words)
			}
			if !ok {
				t.Errorf("%q, want %q", list, c.want)
			}
		})
	}
}

// inProcesses are processes of four blocks, each at a level.
func inProcesses(levels ...float64) [][]float64 {
	var v [][]float64
	for _, at := range levels {
		v = append(v, []float64{at, at, at, at})
	}
	return v
}

// Which configurations are compared: plain eager with all others, eager with
// dispatch with what is captured alone, and nothing else is a base.
func TestRatiosByHand(t *testing.T) {
	slow := configurationKey("eager", "event")
	slow.DispatchNs = 5000
	host := configurationKey("eager", "event")
	host.Control = "host"
	plain, joined, graph := configurationKey("eager", "event"), configurationKey("eager", "host"), configurationKey("graph", "event")
	c := &results.Cell{}
	for i, k := range []results.ConfigurationKey{plain, slow, joined, host, graph} {
		c.Configurations = append(c.Configurations, blocksOfProcesses(k, []float64{1000 * float64(i+1)}))
	}
	got := map[[2]results.ConfigurationKey]float64{}
	for _, r := range ratios(c) {
		got[[2]results.ConfigurationKey{r.Base, r.Other}] = r.Value
	}
	want := map[[2]results.ConfigurationKey]float64{{plain, slow}: 1. / 2, {plain, joined}: 1. / 3, {plain, host}: 1. / 4, {plain, graph}: 1. / 5, {slow, graph}: 2. / 5}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for pair, v := range want {
		if !near(got[pair], v, 1e-12) {
			t.Errorf("%v: %v, want %v", pair, got[pair], v)
		}
	}
}

// Where a sample was taken goes into it whole.
func TestSamplesKeepTheirPlace(t *testing.T) {
	s := newSampleSet(2, 3)
	if !s.add(Taken{Configuration: 1, Block: 4, Position: 5, Values: []Value{{results.SubmitTimeNs, 6, 7000}}}) {
		t.Fatal("refused")
	}
	m := s.metrics(1)
	if len(m) != 1 || len(s.metrics(0)) != 0 || m[0].Samples[0] != (results.Sample{Process: 3, Rank: 6, Block: 4, Position: 5, Value: 7000}) {
		t.Errorf("%+v", m)
	}
}

// The pace is this run's: 10 of 100 parts took 10 s, and 40 are left.
func TestTimeLeftByHand(t *testing.T) {
	w := &watcher{run: &Run{Clock: &fakeClock{now: 12 * time.Second}, begin: 2 * time.Second}, total: 100, sum: 60, resumed: 50}
	if got := w.left(); got != 40*time.Second {
		t.Errorf("%v", got)
	}
	w.sum = 51.9 // too little to tell
	if got := w.left(); got != 0 {
		t.Errorf("%v", got)
	}
}

// rising are eight values around one, a step of which is given.
func rising(middle, step float64) []float64 {
	var v []float64
	for i := range 8 {
		v = append(v, middle+step*(float64(i)-3.5))
	}
	return v
}

// Events and wall clock are doubted from 3 % on, either way.
func TestClockShares(t *testing.T) {
	for events, want := range map[float64]string{1029: "", 971: "", 1030: "takes +3.0 % by the device's events", 970: "takes -3.0 %"} {
		x := blocksOfProcesses(configurationKey("eager", "event"), []float64{1000})
		x.Metrics = append(x.Metrics, results.NewMetric(results.StepTimeEventsNs, []results.Sample{{Value: events}}))
		f := (&doubter{}).clocks(&x, nil)
		if (want == "") != (f.what == "") || !strings.Contains(f.what, want) {
			t.Errorf("events %v: %q, want %q", events, f.what, want)
		}
	}
}

// The captured configuration of the least step time, of those with device
// control alone; eager is none.
func TestBestCaptured(t *testing.T) {
	of := func(mode, sync, control string, ns float64) results.Configuration {
		k := configurationKey(mode, sync)
		k.Control = control
		return blocksOfProcesses(k, []float64{ns})
	}
	for _, c := range []struct {
		list []results.Configuration
		want string
	}{
		{[]results.Configuration{of("eager", "event", "device", 1)}, ""},
		{[]results.Configuration{of("eager", "event", "device", 1), of("graph", "event", "device", 5), of("step", "inside", "device", 4)}, "step/inside/device"},
		{[]results.Configuration{of("graph", "event", "device", 4), of("step", "inside", "device", 5)}, "graph/event/device"},
		{[]results.Configuration{of("graph", "event", "host", 1), of("graph", "host", "device", 4), of("graph", "event", "device", 5)}, "graph/host/device"},
	} {
		got := ""
		if x := bestCaptured(&results.Cell{Configurations: c.list}); x != nil {
			got = x.Key.String()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// All finished processes of all cells count against the budget, and a twentieth
// of it may be overrun without a word.
func TestBudgetByHand(t *testing.T) {
	s := time.Second.Nanoseconds()
	for last, want := range map[int64]string{5: "", 6: "the run took 6.0 s longer than --budget=1m40s: "} {
		r := Run{Plan: Plan{BudgetNs: 100 * s}, Clock: &fakeClock{}, Record: &results.Record{Cells: []results.Cell{
			{Processes: []results.Process{{Ns: 40 * s}, {Ns: 30 * s}}}, {Processes: []results.Process{{Ns: 30 * s}, {Ns: last * s}}}}}}
		r.countSpent()
		r.doubtBudget()
		if got := r.Record.Warnings; (want == "") != (len(got) == 0) || len(got) == 1 && !strings.HasPrefix(got[0].Text, want) {
			t.Errorf("%d s over: %+v, want %q", last, got, want)
		}
	}
}

// Counts of captures add up over processes, and a phase takes the median of them.
func TestMergeByHand(t *testing.T) {
	k := configurationKey("graph", "event")
	var c results.Cell
	graphs := []results.CapturedGraph{{Name: "OPTIMIZER", Nodes: map[string]int64{"kernel": 3}}}
	for i, ns := range []int64{50, 10, 20} {
		n := int64(i + 1)
		counts := results.Counts{Graphs: graphs}
		if i == 0 {
			counts.Graphs = nil // a record before 1.4 that is gone on with
		}
		Merge(&c, &results.Cell{Configurations: []results.Configuration{{Key: k, Captures: results.Captures{Captures: n, Replays: 10 * n, Recaptures: 100 * n},
			Counts: counts, Prepare: []results.Phase{{Phase: "capture", Ns: ns, Memory: []results.PhaseMemory{{Process: i, AfterBytes: n}}}}}}}, results.Process{Index: i})
	}
	x := c.Configurations[0]
	if x.Captures != (results.Captures{Captures: 6, Replays: 60, Recaptures: 600}) {
		t.Errorf("%+v", x.Captures)
	}
	if p := x.Prepare[0]; p.Ns != 20 || !slices.Equal(p.Processes, []int64{50, 10, 20}) {
		t.Errorf("%+v", p)
	} else if !slices.Equal(p.Memory, []results.PhaseMemory{{AfterBytes: 1}, {Process: 1, AfterBytes: 2}, {Process: 2, AfterBytes: 3}}) {
		t.Errorf("memory %+v", p.Memory)
	}
	if !reflect.DeepEqual(x.Counts.Graphs, graphs) || len(c.Warnings) > 0 {
		t.Errorf("graphs %+v, warnings %+v", x.Counts.Graphs, c.Warnings)
	}
}

// Quantiles of 1 to 11 lie on the values: type 7 of Hyndman and Fan.
func TestQuantile(t *testing.T) {
	v := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for q, want := range map[float64]float64{0: 1, .1: 2, .25: 3.5, .5: 6, .9: 10, .99: 10.9, 1: 11} {
		if got := quantile(v, q); !near(got, want, 1e-9) {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}
