package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// Thresholds of doubt, as shares of the figure in question. What is smaller
// does not change what anybody would do.
const (
	outlierShare  = 0.10 // of a block from its process's median
	outlierMADs   = 8    // and in scaled median absolute deviations
	slowShare     = 0.05 // of first blocks above the others
	driftShare    = 0.02 // over the blocks of a process
	driftLevel    = 0.01 // error probability of a drift
	groupShare    = 0.02 // between two groups
	spreadShare   = 0.05 // between the slowest and fastest process
	clockShare    = 0.03 // between wall clock and events
	tracedShare   = 0.10 // between the longest and shortest recorded step of a process
	fasterShare   = 0.02 // of the untraced step, by which recorded ones are shorter
	stateShare    = 0.03 // between the timed blocks and the block beside the recording
	fewProcesses  = 3
	gateProcesses = 8
	fewBlocks     = 4
)

// doubtCodes are the codes of the warnings that follow from what a cell's
// processes measured.
var doubtCodes = append(machine.LoadCodes(), "few_processes", "few_blocks", "budget", "warmup_cap", "slow_first_block", "drift",
	"outliers", "bimodal", "processes_differ", "clocks_disagree", "clocks_do_not_add_up", "trace_failed", "trace_unsteady", "trace_faster", "trace_elsewhere")

// doubts says what makes a cell's figures less certain, with advice that fits
// how it was run. Configurations with the same doubt share a sentence.
func doubts(c *results.Cell, p Plan) []results.Warning {
	d := doubter{cell: c, plan: p}
	d.amount()
	d.each("warmup_cap", (*doubter).capped)
	d.each("slow_first_block", (*doubter).slowFirst)
	d.each("drift", (*doubter).drifting)
	d.each("outliers", (*doubter).outliers)
	d.each("bimodal", (*doubter).bimodal)
	d.each("processes_differ", (*doubter).spread)
	d.each("clocks_disagree", (*doubter).clocks)
	d.each("clocks_do_not_add_up", (*doubter).addUp)
	d.each("trace_failed", (*doubter).trace)
	d.each("trace_unsteady", (*doubter).traceUnsteady)
	d.each("trace_faster", (*doubter).traceFaster)
	d.each("trace_elsewhere", (*doubter).traceElsewhere)
	return append(append(d.list, machine.UnderLoad(c.Processes)...), machine.AfterBlocks(c.Configurations)...)
}

type doubter struct {
	cell *results.Cell
	plan Plan
	list []results.Warning
}

// finding is what is wrong with one configuration; empty for nothing. The
// advice is the same for all.
type finding struct{ what, advice string }

// each puts a question about every configuration's step time and joins the
// answers to one warning.
func (d *doubter) each(code string, ask func(*doubter, *results.Configuration, steps) finding) {
	var what []string
	advice := ""
	for i := range d.cell.Configurations {
		x := &d.cell.Configurations[i]
		if f := ask(d, x, stepsOf(x)); f.what != "" {
			what, advice = append(what, label(x.Key)+" "+f.what), f.advice
		}
	}
	if len(what) > 0 {
		d.add(code, "%s; %s", strings.Join(what, ", "), advice)
	}
}

func (d *doubter) add(code, format string, args ...any) {
	d.list = append(d.list, results.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

// label is a configuration's name in warnings.
func label(k results.ConfigurationKey) string {
	if k.DispatchNs > 0 {
		return fmt.Sprintf("%s with %d ns of dispatch", k, k.DispatchNs)
	}
	return k.String()
}

// steps are the step times of a configuration's blocks, by process.
type steps [][]float64

func stepsOf(c *results.Configuration) steps {
	if m := c.Metric(results.StepTimeNs); m != nil {
		return m.ByProcess()
	}
	return nil
}

// amount doubts too little data.
func (d *doubter) amount() {
	var blocks []int
	for _, p := range d.cell.Processes {
		if p.Status == results.Done {
			blocks = append(blocks, p.Blocks)
		}
	}
	if len(blocks) == 0 {
		return
	}
	few, most := slices.Min(blocks), slices.Max(blocks)
	if n := len(blocks); n < fewProcesses {
		d.add("few_processes", "%s, so how much processes differ is not in the figures; %s",
			plural(n, "process", "processes"), d.moreProcesses())
	}
	switch {
	case few < d.plan.Blocks && d.plan.BudgetNs > 0:
		d.add("budget", "--budget left time for %s of %d blocks; raise it, or take fewer cells, for narrower intervals",
			between(few, most), d.plan.Blocks)
	case few < fewBlocks:
		d.add("few_blocks", "a process has %s of each configuration, too few to see drifts or outliers; %s", plural(few, "block", "blocks"), d.moreBlocks())
	}
}

func between(a, b int) string {
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d to %d", a, b)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (d *doubter) moreProcesses() string {
	if d.plan.Quick {
		return "drop --quick for figures that hold"
	}
	return fmt.Sprintf("use --processes=%d or more, %d to judge a change", fewProcesses, gateProcesses)
}

func (d *doubter) moreBlocks() string {
	switch {
	case d.plan.Quick:
		return "drop --quick for figures that hold"
	case d.plan.BudgetNs > 0:
		return "raise --budget"
	}
	return fmt.Sprintf("use --blocks=%d or more", fewBlocks)
}

func (d *doubter) capped(c *results.Configuration, _ steps) finding {
	n, most := 0, 0
	for _, w := range c.Warmup {
		if w.Capped {
			n, most = n+1, max(most, w.Steps)
		}
	}
	if n == 0 {
		return finding{}
	}
	return finding{fmt.Sprintf("was still getting faster or slower when warm-up ended after %d steps in %s", most, plural(n, "process", "processes")),
		"the machine was not at rest: end what else is running"}
}

// slowFirst looks at the first block of each process against its others.
func (d *doubter) slowFirst(_ *results.Configuration, s steps) finding {
	var over []float64
	for _, v := range s {
		if len(v) >= 3 {
			over = append(over, v[0]/results.Median(v[1:])-1)
		}
	}
	if len(over) == 0 || results.Median(over) < slowShare || slices.Min(over) < 0 {
		return finding{}
	}
	advice := "warm-up judged too early: a fixed --warmup=N above what it used, with --steps above that, skips it"
	if d.plan.Warmup != nil {
		advice = fmt.Sprintf("--warmup=%d was too short: leave it out to warm up until steps show no trend", *d.plan.Warmup)
	}
	return finding{fmt.Sprintf("has a first block %.0f %% slower than the others", 100*results.Median(over)), advice}
}

func (d *doubter) drifting(_ *results.Configuration, s steps) finding {
	share, p := drift(s)
	if p >= driftLevel || math.Abs(share) < driftShare {
		return finding{}
	}
	way := "slower"
	if share < 0 {
		way = "faster"
	}
	advice := "ratios are paired, so they hold; for the figures themselves let the machine come to its temperature before the run"
	if d.plan.Warmup != nil {
		advice = "ratios are paired, so they hold; for the figures themselves leave --warmup out, or let the machine come to its temperature"
	}
	return finding{fmt.Sprintf("becomes %.1f %% %s from the first block to the last", 100*math.Abs(share), way), advice}
}

// outliers looks at all blocks relative to their process's median.
func (d *doubter) outliers(_ *results.Configuration, s steps) finding {
	off, all := deviations(s)
	if all < 5 {
		return finding{}
	}
	abs := make([]float64, len(off))
	for i, v := range off {
		abs[i] = math.Abs(v)
	}
	limit := max(outlierShare, outlierMADs*1.4826*results.Median(abs))
	n, worst := 0, 0.0
	for _, v := range off {
		if math.Abs(v) > limit {
			n++
			if math.Abs(v) > math.Abs(worst) {
				worst = v
			}
		}
	}
	if n == 0 {
		return finding{}
	}
	return finding{fmt.Sprintf("has %d of %s far from the rest, the farthest %+.0f %%", n, plural(all, "block", "blocks"), 100*worst),
		"medians bear with it; end what else is running if it matters"}
}

// trace says why a traced pass cannot be used.
func (d *doubter) trace(c *results.Configuration, _ steps) finding {
	if c.Trace == nil || c.Trace.Failed == "" {
		return finding{}
	}
	return finding{"was traced, and its trace failed: " + c.Trace.Failed, "the figures of a failed trace must not be used; what was timed holds"}
}

// traceUnsteady doubts recorded steps that differ: their medians go with how many
// were recorded.
func (d *doubter) traceUnsteady(c *results.Configuration, _ steps) finding {
	m := c.Trace.Metric(results.TracedStepNs)
	if m == nil || c.Trace.Failed != "" {
		return finding{}
	}
	type lane struct{ process, rank int }
	each := map[lane][]float64{}
	for _, s := range m.Samples {
		at := lane{s.Process, s.Rank}
		each[at] = append(each[at], s.Value)
	}
	worst := 0.0
	for _, v := range each {
		if middle := results.Median(v); middle > 0 {
			worst = max(worst, (slices.Max(v)-slices.Min(v))/middle)
		}
	}
	if worst <= tracedShare {
		return finding{}
	}
	return finding{fmt.Sprintf("has recorded steps that differ by %.0f %%", 100*worst), "record more (run: --trace-steps, profile: --steps), and take the trace for causes, not for times"}
}

// traceFaster doubts recorded steps that are shorter than those nothing recorded:
// the two were not in the same state, and corrected idle is of both.
func (d *doubter) traceFaster(c *results.Configuration, _ steps) finding {
	m := c.Trace.Metric(results.Inflation)
	if m == nil || c.Trace.Failed != "" || m.Value >= 1-fasterShare {
		return finding{}
	}
	return finding{fmt.Sprintf("took %.1f %% less while it was recorded", 100*(1-m.Value)),
		"the few recorded steps and those beside them found the device in different states, so corrected idle, which compares them, is wrong by about as much"}
}

// traceElsewhere doubts that what was recorded is like what was timed: the block
// beside the recording took another time than the timed ones of its process. A
// trace that failed has its reason already.
func (d *doubter) traceElsewhere(c *results.Configuration, _ steps) finding {
	m, timed := c.Trace.Metric(results.UntracedStepNs), c.Metric(results.StepTimeNs)
	if m == nil || timed == nil || c.Trace.Failed != "" {
		return finding{}
	}
	blocks := map[int][]float64{}
	for _, s := range timed.Samples {
		blocks[s.Process] = append(blocks[s.Process], s.Value)
	}
	var off []float64
	for _, s := range m.Samples {
		if b := blocks[s.Process]; len(b) > 0 {
			off = append(off, s.Value/max(results.Median(b), 1)-1)
		}
	}
	if len(off) == 0 {
		return finding{}
	}
	by := results.Median(off)
	if math.Abs(by) <= stateShare {
		return finding{}
	}
	word := "more"
	if by < 0 {
		word = "less"
	}
	return finding{fmt.Sprintf("took %.1f %% %s in the unrecorded block beside its recording than in the timed ones", 100*math.Abs(by), word),
		"the timed blocks found the machine in another state; read the trace's shares, and take its nanoseconds from the trace alone"}
}

// deviations are all blocks relative to the median of their process.
func deviations(s steps) (off []float64, n int) {
	for _, v := range s {
		m := results.Median(v)
		if m <= 0 {
			continue
		}
		for _, x := range v {
			off = append(off, x/m-1)
		}
	}
	return off, len(off)
}

// bimodal looks for two levels: among the processes, or in one.
func (d *doubter) bimodal(c *results.Configuration, s steps) finding {
	advice := "a median between two levels is neither: look for what switches, such as clocks, placement or another program"
	medians := make([]float64, len(s))
	for i, v := range s {
		medians[i] = results.Median(v)
		if twoGroups(v, groupShare) {
			return finding{fmt.Sprintf("has blocks at two levels in process %d, %.1f %% apart", i, 100*groupGap(v)), advice}
		}
	}
	if twoGroups(medians, groupShare) {
		return finding{fmt.Sprintf("has processes at two levels, %.1f %% apart", 100*groupGap(medians)), advice}
	}
	return finding{}
}

func groupGap(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	widest := 0.0
	for i := 1; i < len(v); i++ {
		widest = max(widest, v[i]-v[i-1])
	}
	return widest / results.Median(v)
}

func (d *doubter) spread(_ *results.Configuration, s steps) finding {
	var medians []float64
	for _, v := range s {
		medians = append(medians, results.Median(v))
	}
	if len(medians) < 2 || slices.Min(medians) <= 0 {
		return finding{}
	}
	share := slices.Max(medians)/slices.Min(medians) - 1
	if share < spreadShare {
		return finding{}
	}
	advice := fmt.Sprintf("use --processes=%d or more and end what else is running", gateProcesses)
	if len(medians) >= gateProcesses {
		advice = "end what else is running; the interval says how much the median is worth"
	}
	return finding{fmt.Sprintf("differs by %.0f %% between the fastest and the slowest process", 100*share), advice}
}

// clocks compares the wall clock with the device's events.
func (d *doubter) clocks(c *results.Configuration, _ steps) finding {
	wall, events := c.Metric(results.StepTimeNs), c.Metric(results.StepTimeEventsNs)
	if wall == nil || events == nil || wall.Value <= 0 {
		return finding{}
	}
	share := events.Value/wall.Value - 1
	if math.Abs(share) < clockShare {
		return finding{}
	}
	return finding{fmt.Sprintf("takes %+.1f %% by the device's events against the wall clock", 100*share),
		"trust neither before it is known why; more --steps a block make what lies outside the events count less"}
}
