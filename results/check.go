package results

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// What a plan may ask for at most: far above what any figure needs, and so low
// that nothing overflows and no reader of a record works without end.
const (
	MaxProcesses = 1_000
	MaxBlocks    = 10_000
	MaxSteps     = 1_000_000
	// MaxTraceSteps are few, as each is kept event by event.
	MaxTraceSteps = 100
	// MaxNodes is for each count of a graph, so that graphs can be added up.
	MaxNodes = 1_000_000_000
)

// check refuses what no record may say: figures that are not finite or have
// the wrong sign, counts out of range, and the same thing twice. What is
// written is checked as well, so that it can be read.
func (r *Record) check() error {
	if err := r.Plan.check(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	cells := map[CellKey]bool{}
	for i := range r.Cells {
		c := &r.Cells[i]
		if cells[c.Key] {
			return fmt.Errorf("has cell %d twice: %s batch %d gpus %d", i, c.Key.Workload, c.Key.Batch, c.Key.GPUs)
		}
		cells[c.Key] = true
		if err := c.check(); err != nil {
			return fmt.Errorf("cell %d: %w", i, err)
		}
		for j := range c.Configurations {
			x := &c.Configurations[j]
			if err := x.check(); err != nil {
				return fmt.Errorf("cell %d, configuration %s: %w", i, x.Key, err)
			}
		}
	}
	return nil
}

// count is a number that has a range.
type count struct {
	name       string
	value, max int64
}

const noLimit = math.MaxInt64

func checkCounts(counts ...count) error {
	for _, c := range counts {
		switch {
		case c.value < 0:
			return fmt.Errorf("%s is %d, which is negative", c.name, c.value)
		case c.value > c.max:
			return fmt.Errorf("%s is %d, above the limit of %d", c.name, c.value, c.max)
		}
	}
	return nil
}

func (p *Plan) check() error {
	if p == nil {
		return nil
	}
	counts := []count{
		{"processes", int64(p.Processes), MaxProcesses}, {"steps", int64(p.Steps), MaxSteps}, {"single", int64(p.Single), MaxSteps},
		{"blocks", int64(p.Blocks), MaxBlocks}, {"warmup_cap", int64(p.WarmupCap), MaxSteps}, {"budget_ns", p.BudgetNs, noLimit},
		{"trace_steps", int64(p.TraceSteps), MaxTraceSteps},
	}
	if p.Warmup != nil {
		counts = append(counts, count{"warmup", int64(*p.Warmup), MaxSteps})
	}
	if err := checkCounts(counts...); err != nil {
		return err
	}
	if i := repeated(p.Cells); i >= 0 {
		return fmt.Errorf("has cell %d twice: %s batch %d gpus %d", i, p.Cells[i].Workload, p.Cells[i].Batch, p.Cells[i].GPUs)
	}
	if i := repeated(p.Configurations); i >= 0 {
		return fmt.Errorf("has configuration %d twice: %s", i, p.Configurations[i])
	}
	return nil
}

// repeated is the index of the first element that was there before, or -1.
func repeated[T comparable](list []T) int {
	seen := map[T]bool{}
	return slices.IndexFunc(list, func(v T) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}

// check is of all but what its configurations say.
func (c *Cell) check() error {
	if err := checkCounts(count{"steps", int64(c.Steps), MaxSteps}, count{"warmup", int64(c.Warmup), MaxSteps},
		count{"blocks", int64(c.Blocks), MaxBlocks}); err != nil {
		return err
	}
	if err := checkCounts(c.counts()...); err != nil {
		return err
	}
	if err := checkProcesses(c.Processes); err != nil {
		return err
	}
	configurations := map[ConfigurationKey]bool{}
	for i := range c.Configurations {
		x := &c.Configurations[i]
		if configurations[x.Key] {
			return fmt.Errorf("has configuration %s twice", x.Key)
		}
		configurations[x.Key] = true
	}
	type named struct {
		name  string
		ratio *Ratio
	}
	ratios := []named{{"the headline", c.Headline.Ratio}}
	if s := c.Headline.Split; s != nil {
		ratios = append(ratios, named{"the split's total", &s.Total}, named{"the split's joins", &s.Joins},
			named{"the split's launches", &s.Launches}, named{"the split's interaction", &s.Interaction})
	}
	for i := range c.Ratios {
		ratios = append(ratios, named{fmt.Sprintf("ratio %d", i), &c.Ratios[i]})
	}
	for _, n := range ratios {
		if err := n.ratio.check(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// counts are the numbers of a cell that only have to be counts.
func (c *Cell) counts() []count {
	k := c.Key
	return []count{
		{"batch", int64(k.Batch), noLimit}, {"gpus", int64(k.GPUs), noLimit}, {"variant", int64(k.Variant), noLimit},
		{"resolution.begin", int64(k.Resolution.Begin), noLimit}, {"resolution.final", int64(k.Resolution.Final), noLimit},
		{"last_batch.train", int64(k.LastBatch.Train), noLimit}, {"last_batch.val", int64(k.LastBatch.Val), noLimit},
		{"verify.tensors", int64(c.Verify.Tensors), noLimit}, {"verify.bytes", c.Verify.Bytes, noLimit},
		{"verify.steps", int64(c.Verify.Steps), noLimit},
		{"memory.arena_bytes", c.Memory.ArenaBytes, noLimit}, {"memory.pinned_bytes", c.Memory.PinnedBytes, noLimit},
		{"atlas.filled", int64(c.Atlas.Filled), noLimit}, {"atlas.captured", int64(c.Atlas.Captured), noLimit},
		{"atlas.reused", int64(c.Atlas.Reused), noLimit},
		{"execution_table.entries", int64(c.ExecutionTable.Entries), noLimit}, {"execution_table.bytes", c.ExecutionTable.Bytes, noLimit},
	}
}

func checkProcesses(list []Process) error {
	seen := map[int]bool{}
	for _, p := range list {
		if err := checkCounts(count{"the index of a process", int64(p.Index), MaxProcesses - 1},
			count{fmt.Sprintf("the time of process %d", p.Index), p.Ns, noLimit},
			count{fmt.Sprintf("the number of blocks of process %d", p.Index), int64(p.Blocks), MaxBlocks}); err != nil {
			return err
		}
		if seen[p.Index] {
			return fmt.Errorf("has process %d twice", p.Index)
		}
		seen[p.Index] = true
		for _, phase := range p.Phases {
			if err := checkCounts(count{fmt.Sprintf("phase %s of process %d", phase.Phase, p.Index), phase.Ns, noLimit}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Configuration) check() error {
	if err := checkCounts(count{"captures", x.Captures.Captures, noLimit}, count{"replays", x.Captures.Replays, noLimit},
		count{"recaptures", x.Captures.Recaptures, noLimit}, count{"dispatch_ns", x.Key.DispatchNs, noLimit}); err != nil {
		return err
	}
	if err := checkCounts(x.Counts.known()...); err != nil {
		return err
	}
	for _, p := range x.Prepare {
		for _, ns := range append([]int64{p.Ns}, p.Processes...) {
			if err := checkCounts(count{"the time of phase " + p.Phase, ns, noLimit}); err != nil {
				return err
			}
		}
		of := map[int]bool{}
		for _, m := range p.Memory {
			if of[m.Process] {
				return fmt.Errorf("has the memory of phase %s twice for process %d", p.Phase, m.Process)
			}
			of[m.Process] = true
			if err := checkCounts(count{"the process of the memory of phase " + p.Phase, int64(m.Process), MaxProcesses - 1},
				count{"the memory before phase " + p.Phase, m.BeforeBytes, noLimit}, count{"the memory after phase " + p.Phase, m.AfterBytes, noLimit}); err != nil {
				return err
			}
		}
	}
	for _, w := range x.Warmup {
		if err := checkCounts(count{"the process of a warm-up", int64(w.Process), MaxProcesses - 1},
			count{"the steps of a warm-up", int64(w.Steps), noLimit}); err != nil {
			return err
		}
	}
	metrics := map[string]bool{}
	for _, m := range x.Metrics {
		if metrics[m.Name] {
			return fmt.Errorf("has metric %s twice", m.Name)
		}
		metrics[m.Name] = true
		if err := m.check(); err != nil {
			return fmt.Errorf("metric %s %w", m.Name, err)
		}
	}
	for _, s := range x.Machine {
		if !finite(s.Min, s.Median, s.Max) || !finite(s.Processes...) || s.Min > s.Median || s.Median > s.Max || s.N < 0 {
			return fmt.Errorf("reading %s lies from %v to %v around %v, in %d observations", s.Name, s.Min, s.Max, s.Median, s.N)
		}
	}
	if err := x.Trace.check(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// known are the counts that are no unknown ones.
func (c Counts) known() []count {
	var out []count
	for _, n := range []struct {
		name  string
		value *int64
	}{
		{"launches.host", c.Launches.Host}, {"launches.graph", c.Launches.Graph}, {"launches.copy", c.Launches.Copy},
		{"launches.sync", c.Launches.Sync}, {"kernels", c.Kernels},
	} {
		if n.value != nil {
			out = append(out, count{n.name, *n.value, noLimit})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.GraphNodes)) {
		out = append(out, count{"graph_nodes." + kind, c.GraphNodes[kind], noLimit})
	}
	for i, g := range c.Graphs {
		of := func(what string) string { return fmt.Sprintf("%s of graph %d", what, i) }
		out = append(out, count{of("edges"), int64(g.Edges), MaxNodes}, count{of("widest_section"), int64(g.WidestSection), MaxNodes},
			count{of("critical_path"), int64(g.CriticalPath), MaxNodes})
		for _, kind := range slices.Sorted(maps.Keys(g.Nodes)) {
			out = append(out, count{of("nodes." + kind), g.Nodes[kind], MaxNodes})
		}
	}
	return out
}

func finite(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// check refuses negative times and rates. An unknown metric may be of any sign.
func (m Metric) check() error {
	d, known := Define(m.Name)
	bad := func(v float64) bool { return !finite(v) || v < 0 && known && !d.Signed }
	if bad(m.Value) {
		return fmt.Errorf("has the value %v", m.Value)
	}
	for i, s := range m.Samples {
		if bad(s.Value) {
			return fmt.Errorf("has the value %v in sample %d", s.Value, i)
		}
		if s.Process < 0 || s.Process >= MaxProcesses || s.Rank < 0 || s.Block < 0 || s.Block >= MaxBlocks || s.Position < 0 {
			return fmt.Errorf("has sample %d of process %d, rank %d, block %d, position %d, which no run has", i, s.Process, s.Rank, s.Block, s.Position)
		}
	}
	s := m.Summary
	if s == nil {
		return nil
	}
	for _, v := range append([]float64{s.Median, s.P10, s.P90, s.P99, s.Max}, s.Processes...) {
		if bad(v) {
			return fmt.Errorf("has the value %v in its summary", v)
		}
	}
	if s.P10 > s.P90 || s.P90 > s.P99 || s.P99 > s.Max {
		return fmt.Errorf("has a summary whose tails are out of order: %v, %v, %v, %v", s.P10, s.P90, s.P99, s.Max)
	}
	if err := s.Interval.check(); err != nil {
		return err
	}
	if i := s.Interval; i != nil && bad(i.Low) {
		return fmt.Errorf("has an interval from %v", i.Low)
	}
	return nil
}

func (i *Interval) check() error {
	switch {
	case i == nil:
		return nil
	case !finite(i.Low, i.High) || i.Low > i.High:
		return fmt.Errorf("has an interval from %v to %v", i.Low, i.High)
	case !(i.Level >= 0 && i.Level <= 1 && i.Coverage >= 0 && i.Coverage <= 1):
		return fmt.Errorf("has an interval for %v that covers %v, which are no shares", i.Level, i.Coverage)
	}
	return nil
}

// check refuses ratios that are not above 0. The ends of an interval may
// round to 0.
func (r *Ratio) check() error {
	switch {
	case r == nil:
		return nil
	case !finite(r.Value) || r.Value <= 0:
		return fmt.Errorf("is %v, and a ratio is above 0", r.Value)
	case !finite(r.Logs...):
		return fmt.Errorf("has the logarithms %v", r.Logs)
	}
	for _, i := range []*Interval{r.Interval, r.Bootstrap} {
		if err := i.check(); err != nil {
			return err
		}
		if i != nil && i.Low < 0 {
			return fmt.Errorf("has an interval from %v, and a ratio is above 0", i.Low)
		}
	}
	return nil
}
