package bench

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tech-renaissance/trbench/results"
)

// CheckHeld says why a record does not hold what its plan asks for, as far as
// it was run; nil if it does. A plan that somebody changed would go on with
// processes that are no replicates of the ones there, and nobody would see it.
// p is the record's plan, or one with more processes. What contradicts the plan
// is named; a change that contradicts nothing is found by the plan's digest. The
// error continues a sentence about the record.
func (p Plan) CheckHeld(r *results.Record) error {
	switch {
	case r.Status != results.Complete && r.Status != results.Incomplete:
		return fmt.Errorf("has the status %q, which no run writes", r.Status)
	case r.Seed != p.Seed:
		return fmt.Errorf("was run with --seed=%d, and its plan says %d", r.Seed, p.Seed)
	case r.Quick != p.Quick:
		return fmt.Errorf("was run with --quick=%t, and its plan says %t", r.Quick, p.Quick)
	case p.WarmupCap != WarmupCap:
		return fmt.Errorf("has a plan that ends warm-up after %d steps at most, and runs end it after %d", p.WarmupCap, WarmupCap)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		at := slices.Index(p.Cells, c.Key)
		if at < 0 {
			return fmt.Errorf("holds %s, and its plan has no such cell", c.Key.Name())
		}
		if err := p.checkCell(at, c); err != nil {
			return fmt.Errorf("does not hold what its plan asks for: %s %w", c.Key.Name(), err)
		}
	}
	return r.CheckDigest()
}

// checkCell compares the plan's i-th cell with what the record holds of it.
func (p Plan) checkCell(i int, c *results.Cell) error {
	if c.Status != results.Done && c.Status != results.Failed {
		return fmt.Errorf("has the status %q, which no run writes", c.Status)
	}
	done := map[int]int{} // blocks, by process
	for _, process := range c.Processes {
		if err := p.checkProcess(i, process); err != nil {
			return fmt.Errorf("has a process %d that %w", process.Index, err)
		}
		if process.Status == results.Done {
			done[process.Index] = process.Blocks
		}
	}
	if len(done) == 0 {
		// A cell that only failed has nothing to contradict the plan with; what
		// it may hold all the same is found by its samples.
		return checkSamples(c, done, p.Single)
	}
	warmup := 0
	if p.Warmup != nil {
		warmup = *p.Warmup
	}
	for _, n := range []struct {
		what       string
		held, plan int
	}{{"steps a block", c.Steps, p.Steps}, {"blocks", c.Blocks, p.Blocks}, {"warm-up steps", c.Warmup, warmup}} {
		if n.held != n.plan {
			return fmt.Errorf("was run with %d %s, and the plan says %d", n.held, n.what, n.plan)
		}
	}
	if all := len(c.Variants) > 1; all != p.PrepareAll {
		return fmt.Errorf("has %s prepared, and the plan has prepare_all %t", plural(len(c.Variants), "variant", "variants"), p.PrepareAll)
	}
	var held []results.ConfigurationKey
	for _, x := range c.Configurations {
		held = append(held, x.Key)
		if !slices.Contains(p.Configurations, x.Key) {
			return fmt.Errorf("was run as %s, which is not in the plan", fullName(x.Key))
		}
	}
	for _, k := range p.Configurations {
		if !slices.Contains(held, k) {
			return fmt.Errorf("was not run as %s, which is in the plan", fullName(k))
		}
	}
	return checkSamples(c, done, p.Single)
}

// fullName tells apart configurations whose short names are the same.
func fullName(k results.ConfigurationKey) string {
	return fmt.Sprintf("%s (launcher %s, ranks %s)", label(k), k.Launcher, k.Ranks)
}

// checkProcess compares a replicate with the plan. The error continues "has a
// process that".
func (p Plan) checkProcess(cell int, process results.Process) error {
	switch {
	case process.Status != results.Done && process.Status != results.Failed:
		return fmt.Errorf("has the status %q, which no run writes", process.Status)
	case process.Index < 0 || process.Index >= p.Processes:
		return fmt.Errorf("is none of the plan's %d", p.Processes)
	case process.Seed != p.order(cell, process.Index):
		return fmt.Errorf("ran its blocks in the order of seed %d, which does not follow from the plan's place and --seed=%d", process.Seed, p.Seed)
	case process.Status == results.Failed:
		return nil
	}
	least := p.Blocks
	if p.BudgetNs > 0 {
		least = min(p.Blocks, LeastBlocks)
	}
	if process.Blocks < least || process.Blocks > p.Blocks {
		return fmt.Errorf("timed %s, and the plan says %d", plural(process.Blocks, "block", "blocks"), p.Blocks)
	}
	return nil
}

// checkSamples says where samples do not belong to the finished processes, or
// are missing.
func checkSamples(c *results.Cell, done map[int]int, single int) error {
	for i := range c.Configurations {
		x := &c.Configurations[i]
		per := map[string]map[int]int{} // samples, by metric and process
		for _, m := range x.Metrics {
			per[m.Name] = map[int]int{}
			for _, s := range m.Samples {
				blocks, ok := done[s.Process]
				switch {
				case !ok:
					return fmt.Errorf("has samples of %s as %s from process %d, which did not finish", m.Name, label(x.Key), s.Process)
				case s.Block >= blocks:
					return fmt.Errorf("has a sample of %s as %s from block %d of process %d, which timed %s",
						m.Name, label(x.Key), s.Block, s.Process, plural(blocks, "block", "blocks"))
				case s.Rank >= max(c.Key.GPUs, 1):
					return fmt.Errorf("has a sample of %s as %s from rank %d of %d", m.Name, label(x.Key), s.Rank, c.Key.GPUs)
				}
				per[m.Name][s.Process]++
			}
		}
		for _, process := range slices.Sorted(maps.Keys(done)) {
			if err := checkAmounts(x, per, process, done[process], single, c.Key.GPUs); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAmounts compares how many samples a finished process has with what its
// blocks take. Metrics that it may lack count where any process has them.
func checkAmounts(x *results.Configuration, per map[string]map[int]int, process, blocks, single, ranks int) error {
	if n := per[results.StepTimeNs][process]; n != blocks {
		return fmt.Errorf("has %d samples of %s as %s from process %d, which timed %s",
			n, results.StepTimeNs, label(x.Key), process, plural(blocks, "block", "blocks"))
	}
	for _, m := range []struct {
		name    string
		inBlock int
	}{
		{results.CPUTimeNs, 1}, {results.ImagesPerS, 1}, {results.LatencyNs, single},
		{results.SubmitTimeNs, single * ranks}, {results.SyncWaitNs, single * ranks}, {results.HostTimeNs, single * ranks},
	} {
		if n, ok := per[m.name]; ok && n[process] != blocks*m.inBlock {
			return fmt.Errorf("has %d samples of %s as %s from process %d, and the plan says %d in each of %s",
				n[process], m.name, label(x.Key), process, m.inBlock, plural(blocks, "block", "blocks"))
		}
	}
	steps := x.Metric(results.StepTimeNs)
	seen := map[int]bool{}
	for _, s := range steps.Samples {
		if s.Process != process {
			continue
		}
		if seen[s.Block] {
			return fmt.Errorf("has block %d of process %d twice as %s", s.Block, process, label(x.Key))
		}
		seen[s.Block] = true
	}
	return nil
}

// validateConfiguration refuses what no run has. Flags cannot ask for it; a
// plan that somebody wrote can.
func validateConfiguration(k results.ConfigurationKey, device string) error {
	refuse := func(format string, args ...any) error {
		return &InputError{Name: "the plan", Reason: fmt.Sprintf(format, args...)}
	}
	syncs, ok := map[string][]string{"eager": {"event", "host"}, "graph": {"event", "host"}, "step": {"inside"}}[k.Mode]
	switch {
	case !ok:
		return refuse("has the unknown mode %q; known: eager, graph, step", k.Mode)
	case !slices.Contains(syncs, k.Sync):
		return refuse("has mode %s with sync %q, which it does not have", k.Mode, k.Sync)
	case k.Control != "device" && (k.Control != "host" || k.Mode == "step"):
		return refuse("has mode %s with control %q, which it does not have", k.Mode, k.Control)
	case (k.Launcher == "go") != (device == "cpu") || k.Launcher == "":
		return refuse("has the launcher %q, which is none of device %s", k.Launcher, device)
	case k.SecondLauncher() && k.Mode != "eager":
		return refuse("has the launcher %q in mode %s, whose work it does not submit", k.Launcher, k.Mode)
	case k.DispatchNs < 0 || k.DispatchNs > MaxDispatchNs:
		return refuse("burns %d ns of dispatch; it may be 0 to %d", k.DispatchNs, MaxDispatchNs)
	case k.DispatchNs > 0 && k.Mode != "eager":
		return refuse("burns dispatch in mode %s, whose work is not dispatched", k.Mode)
	}
	return nil
}
