package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// How candidates are timed. Nine rounds are the fewest whose order interval
// leaves one disturbed round out; see [bench.Simplest].
const (
	tuneRounds  = 9
	tuneBlock   = 30 * time.Millisecond // at least four steps: the first begins on an idle device
	tuneSubmits = 9
	tuneStall   = 30 * time.Second
	// tuneFrom is the least time for a replicate with which candidates are
	// timed: it takes some seconds.
	tuneFrom = time.Minute
)

// settleTuning decides how the device runs the cell's operators, once: what
// another process decided, or the device was made with, stays. Nothing is timed
// that was not checked: each candidate's mode step must leave the bits of its
// own eager.
func settleTuning(ctx context.Context, dev device.Device, req bench.CellRequest, progress func(string)) error {
	tuner, ok := dev.(device.Tuner)
	if !ok || req.Tune == "" || tuner.Tuned().Source != "" {
		return nil
	}
	why := ""
	switch {
	case req.Tune == bench.TuneRule:
		why = "as --tune=rule asks"
	case req.Tune != bench.TuneAuto: // a way's words
	case req.Quick:
		why = "with --quick"
	case req.Time > 0 && req.Time < tuneFrom:
		why = fmt.Sprintf("with less than %v for a process", tuneFrom)
	}
	if req.Tune == bench.TuneAuto && why == "" {
		req.Phases.Begin(results.PhaseTuning)
		t := &tuning{ctx: ctx, dev: dev, tuner: tuner, req: req, progress: progress, clock: bench.System()}
		return t.choose()
	}
	return untimed(tuner, req.Tune, why, func() (*workloads.Workload, error) { return device.NewWorkload(dev, bench.Spec(req.Cell), nil) })
}

// untimed takes a tuning without timing any: a way's words, or else the rule of
// thumb for the workload that build makes; why says why nothing is timed.
func untimed(tuner device.Tuner, tune, why string, build func() (*workloads.Workload, error)) error {
	if tune != bench.TuneAuto && tune != bench.TuneRule {
		return tuner.Tune(results.TuningChoice{Words: tune, Source: results.TuningGiven})
	}
	w, err := build()
	if err != nil {
		return fmt.Errorf("build workload: %w", err)
	}
	words, rule := tuner.RuleOfThumb(w)
	return tuner.Tune(results.TuningChoice{Words: words, Source: results.TuningRule, Rule: why + ": " + rule})
}

// UseTuning makes a device run a cell as --tune says, in place of how it ran the
// one before, for commands that time nothing. It returns what it took; nil where
// the device has no choice or tune is empty, which leaves it as it is. No plans
// are chosen.
func UseTuning(dev device.Device, spec workloads.Spec, tune string) (*results.TuningChoice, error) {
	tuner, ok := dev.(device.Tuner)
	if !ok || tune == "" {
		return nil, nil
	}
	// The rule looks at the workload as it is without any tuning.
	if err := tuner.Tune(results.TuningChoice{}); err != nil {
		return nil, err
	}
	err := untimed(tuner, tune, "nothing is timed here", func() (*workloads.Workload, error) { return workloads.New(spec, dev.Target()) })
	if err != nil {
		return nil, err
	}
	c := tuner.Tuned()
	return &c, nil
}

// tuning is a comparison of the device's candidates.
type tuning struct {
	ctx      context.Context
	dev      device.Device
	tuner    device.Tuner
	req      bench.CellRequest
	source   data.Source // opened with the first candidate
	progress func(string)
	clock    bench.Clock
}

// candidate is one way, and its session while it is open.
type candidate struct {
	results.TuningCandidate
	s     *Session
	x     *Executor
	steps int // of a block
}

// close releases all that the candidate has. What it fails with is told where
// nothing else was.
func (c *candidate) close() error {
	if c.s == nil {
		return nil
	}
	s := c.s
	c.s, c.x = nil, nil
	return s.Close()
}

// errNoRoom says that the candidates do not fit into memory at once.
var errNoRoom = errors.New("no room for another session")

// choose times the candidates in turn, in rounds, or if memory does not hold
// all of them one after another.
func (t *tuning) choose() (err error) {
	list := t.tuner.Tunings()
	defer t.req.Tool.Start("tune", nvtx.Phase.Look()).End()
	t.progress(fmt.Sprintf("time %d ways to run a step", len(list)))
	all := make([]*candidate, len(list))
	for i, words := range list {
		all[i] = &candidate{TuningCandidate: results.TuningCandidate{Words: words}}
	}
	defer func() {
		for _, c := range all {
			if e := c.close(); err == nil {
				err = e
			}
		}
	}()
	tie, how := bench.TuneTie, fmt.Sprintf("blocks of mode step in turn, %d rounds", tuneRounds)
	err = t.together(all)
	if errors.Is(err, errNoRoom) {
		var drift float64
		drift, err = t.apart(all)
		tie = max(tie, drift)
		how = fmt.Sprintf("%d blocks of mode step, one way after another for want of memory; the first again at the end differed by %.1f %%", tuneRounds, 100*drift)
	}
	if err != nil {
		return err
	}
	blocks := make([][]float64, len(all))
	choice := results.TuningChoice{Source: results.TuningTimed, Rule: fmt.Sprintf(
		"%s; the simplest of those that the fastest does not beat by more than %.1f %%", how, 100*tie)}
	for i, c := range all {
		blocks[i] = c.BlocksNs
		choice.Candidates = append(choice.Candidates, c.TuningCandidate)
	}
	at := bench.Simplest(blocks, tie)
	if at < 0 {
		return fmt.Errorf("no way to run a step could be timed; the first, %s: %s", all[0].Words, all[0].Failure)
	}
	choice.Words = all[at].Words
	return t.tuner.Tune(choice)
}

// together keeps all sessions open at once, so that each round has a block of
// each.
func (t *tuning) together(all []*candidate) error {
	leave := func(err error) error {
		for _, c := range all {
			err = errors.Join(err, c.close())
			c.TuningCandidate = results.TuningCandidate{Words: c.Words}
		}
		return err
	}
	takes := int64(0) // the most that a session took
	for i, c := range all {
		before, known := t.free(all[:i])
		if known && i > 0 && before < takes+takes/4 {
			return leave(errNoRoom)
		}
		if err := t.open(c); err != nil {
			return err
		}
		if after, _ := t.free(all[:i+1]); c.s != nil {
			takes = max(takes, c.ArenaBytes, before-after)
		}
	}
	if slices.ContainsFunc(all, func(c *candidate) bool { return c.Failure != "" && outOfMemory(c.Failure) }) {
		return leave(errNoRoom) // alone it may fit
	}
	for round := range 1 + tuneRounds { // the first warms up
		for i := range all {
			c := all[i]
			if round%2 == 0 {
				c = all[len(all)-1-i]
			}
			if err := t.block(c, round > 0); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		if err := t.finish(c); err != nil {
			return err
		}
	}
	return nil
}

// outOfMemory says whether a failure is one for want of device memory.
func outOfMemory(failure string) bool {
	return strings.Contains(failure, "CUDA_ERROR_OUT_OF_MEMORY")
}

// apart has one session open at a time, and the first that could be timed once
// more at the end, which shows by how much the machine changed meanwhile.
func (t *tuning) apart(all []*candidate) (drift float64, err error) {
	run := func(c *candidate) error {
		if err := t.open(c); err != nil {
			return err
		}
		for round := range 1 + tuneRounds {
			if err := t.block(c, round > 0); err != nil {
				return err
			}
		}
		return t.finish(c)
	}
	for _, c := range all {
		if err := run(c); err != nil {
			return 0, err
		}
	}
	i := slices.IndexFunc(all, func(c *candidate) bool { return c.Failure == "" })
	if i < 0 {
		return 0, nil
	}
	again := &candidate{TuningCandidate: results.TuningCandidate{Words: all[i].Words}}
	defer func() { err = errors.Join(err, again.close()) }()
	if err := run(again); err != nil || again.Failure != "" {
		return 0, err
	}
	return math.Abs(again.StepTimeNs/all[i].StepTimeNs - 1), nil
}

// free is what the first open session's rank 0 has left of device memory; known
// is false where there is none or it does not tell.
func (t *tuning) free(open []*candidate) (bytes int64, known bool) {
	for _, c := range open {
		if c.s == nil {
			continue
		}
		m, ok := c.s.group.(device.Memory)
		if !ok {
			return 0, false
		}
		free, _, err := m.Memory()
		if err != nil {
			return 0, false
		}
		return int64(slices.Min(free)), true
	}
	return 0, false
}

// open prepares and checks a candidate. One that cannot be opened, prepared or
// captured, or that fails as it runs, is left out with its failure; an error is
// what ends the comparison.
func (t *tuning) open(c *candidate) error {
	t.progress("way " + c.Words)
	err := t.try(c)
	var d *bench.DisagreementError
	switch {
	case err == nil:
		return nil
	case t.ctx.Err() != nil:
		return errors.Join(t.ctx.Err(), c.close())
	case errors.As(err, &d):
		d.Cell = t.req.Cell
		return fmt.Errorf("tuning %s: %w", c.Words, errors.Join(err, c.close()))
	}
	return t.leaveOut(c, err)
}

// leaveOut closes a candidate that failed. Ranks that are stuck in it cannot run
// another one either.
func (t *tuning) leaveOut(c *candidate, err error) error {
	stuck := c.s != nil && c.s.stuck != nil
	err = errors.Join(err, c.close())
	if stuck {
		return fmt.Errorf("tuning %s: %w; --tune=none runs without", c.Words, err)
	}
	c.Failure, c.BlocksNs, c.StepTimeNs, c.SubmitTimeNs = err.Error(), nil, 0, 0
	return nil
}

func (t *tuning) try(c *candidate) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if err := t.tuner.Tune(results.TuningChoice{Words: c.Words}); err != nil {
		return err
	}
	c.GraphOrder = t.tuner.Tuned().GraphOrder
	w, err := device.NewWorkload(t.dev, bench.Spec(t.req.Cell), nil)
	if err != nil {
		return err
	}
	c.ArenaBytes = w.ArenaBytes
	if t.source == nil {
		if t.source, err = data.Open(t.req.Data, w.Classes()); err != nil {
			return err
		}
	}
	v := workloads.Variant(t.req.Cell.Variant)
	if c.s, err = Open(t.dev, w, Options{Variants: []workloads.Variant{v}, Timed: v, Seed: t.req.Seed, Source: t.source,
		Context: t.ctx, StallAfter: tuneStall}); err != nil {
		return err
	}
	step := Reference(t.req.Configurations)
	step.Mode, step.Sync = "step", "inside"
	if _, err := c.s.Check(t.ctx, []results.ConfigurationKey{step}, QuickVerifySteps); err != nil {
		return err
	}
	if c.x, err = c.s.Executor(step); err != nil {
		return err
	}
	return c.x.Begin() // Check left the snapshot
}

// block runs steps back to back and, if it counts, keeps their mean time.
func (t *tuning) block(c *candidate, counts bool) error {
	if c.s == nil {
		return nil
	}
	if err := t.ctx.Err(); err != nil {
		return err
	}
	span := func(n int) (time.Duration, error) {
		begin := t.clock.Now()
		err := errors.Join(c.x.Submit(n), c.x.Wait())
		return t.clock.Now() - begin, err
	}
	if c.steps == 0 { // a guess from two steps behind the first
		if _, err := span(1); err != nil {
			return t.leaveOut(c, err)
		}
		took, err := span(2)
		if err != nil {
			return t.leaveOut(c, err)
		}
		c.steps = int(min(max(2*tuneBlock/max(took, 1), 4), 200))
	}
	took, err := span(c.steps)
	if err != nil {
		return t.leaveOut(c, err)
	}
	if counts {
		c.BlocksNs = append(c.BlocksNs, float64(took.Nanoseconds())/float64(c.steps))
	}
	return nil
}

// finish takes the candidate's other figures and closes it.
func (t *tuning) finish(c *candidate) error {
	if c.s == nil {
		return nil
	}
	var submits []float64
	for range tuneSubmits {
		c.x.Clocks()
		if err := c.x.Submit(1); err != nil {
			return t.leaveOut(c, err)
		}
		longest := time.Duration(0)
		for _, k := range c.x.Clocks() {
			longest = max(longest, k.Submit)
		}
		submits = append(submits, float64(longest.Nanoseconds()))
		if err := c.x.Wait(); err != nil {
			return t.leaveOut(c, err)
		}
	}
	c.StepTimeNs, c.SubmitTimeNs = results.Median(c.BlocksNs), results.Median(submits)
	return c.close()
}

// tuningDoubts are what a reader of a cell's figures has to know of its tuning.
func tuningDoubts(c results.TuningChoice, ways []results.ConfigurationKey) (out []results.Warning) {
	for _, k := range c.Candidates {
		if k.Failure != "" {
			out = append(out, results.Warning{Code: "tuning_left_out", Text: fmt.Sprintf("tuning %s was left out of the comparison: %s", k.Words, k.Failure)})
		}
	}
	if c.Source == results.TuningRule {
		out = append(out, results.Warning{Code: "tuning_by_rule", Text: fmt.Sprintf("tuning %s was not timed against others but taken by a rule of thumb, %s", c.Words, c.Rule)})
	}
	eager := slices.ContainsFunc(ways, func(k results.ConfigurationKey) bool { return k.Mode == "eager" })
	graphs := slices.ContainsFunc(ways, func(k results.ConfigurationKey) bool { return k.Mode != "eager" })
	if c.GraphOrder == "" || !eager || !graphs {
		return out
	}
	text := fmt.Sprintf("graphs of this cell order nodes %s; eager orders them by streams: what a graph gains over eager is that of capture and of the other order together", c.GraphOrder)
	least := func(take func(results.TuningCandidate) bool) (at *results.TuningCandidate) {
		for i, k := range c.Candidates {
			if k.Failure == "" && take(k) && (at == nil || k.StepTimeNs < at.StepTimeNs) {
				at = &c.Candidates[i]
			}
		}
		return at
	}
	streams := least(func(k results.TuningCandidate) bool { return k.GraphOrder == "" })
	chosen := least(func(k results.TuningCandidate) bool { return k.Words == c.Words })
	if streams != nil && chosen != nil {
		text += fmt.Sprintf("; a step of mode step took %.3f ms ordered by streams (%s), %.3f ms as chosen (%s)",
			streams.StepTimeNs/1e6, streams.Words, chosen.StepTimeNs/1e6, chosen.Words)
	}
	return append(out, results.Warning{Code: "graph_order", Text: text})
}
