package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Run carries out a plan, one replicate after another, into a record. What the
// record holds already is not run again.
type Run struct {
	Plan Plan
	// Record has the plan's cells so far; it is changed in place.
	Record *results.Record
	// Dir is what folders in the plan are relative to.
	Dir string
	// Replicate runs one replicate, as a rule in a process of its own.
	Replicate func(context.Context, CellRequest) (Replicate, error)
	// Store, if set, keeps the record. It is called after every replicate.
	Store func(*results.Record) error
	// Watch, if set, is told how far the run is.
	Watch func(Progress)
	// TraceFiles, if set, says where the timelines of a cell's first process go,
	// one a configuration; see [CellRequest.TraceFiles].
	TraceFiles func(CellRequest) []string
	// Load, if set, is the machine's load average now.
	Load func() (float64, bool)
	// Clock is what the budget is measured with; nil is [System].
	Clock Clock

	begin time.Duration
	spent time.Duration // on the replicates that the record held
	watch *watcher
}

// FailedError says that some cells failed; the record says why.
type FailedError struct {
	Failed, Cells int
	First         string // the first failure, with its cell
}

func (e *FailedError) Error() string {
	if e.Cells == 1 {
		return e.First
	}
	return fmt.Sprintf("%d of %d cells failed; the first: %s", e.Failed, e.Cells, e.First)
}

// Do runs what is missing. A cell whose replicate fails is marked and the
// others go on; in the end that is a [*FailedError]. Modes that disagree end
// the run at once with a [*DisagreementError], and so does the end of ctx with
// its error; finished replicates are then in the record, which stays
// incomplete.
func (r *Run) Do(ctx context.Context) error {
	if r.Clock == nil {
		r.Clock = System()
	}
	r.begin = r.Clock.Now()
	r.Record.Plan, r.Record.Status = (*results.Plan)(&r.Plan), results.Incomplete
	var err error
	if r.Record.PlanDigest, err = r.Record.Plan.Digest(); err != nil {
		return err
	}
	r.countSpent()
	r.dropFailures()
	r.watch = newWatcher(r)
	for i := range r.Plan.Cells {
		for process := range r.Plan.Processes {
			if r.finished(i, process) {
				continue
			}
			ok, err := r.replicate(ctx, i, process)
			if err != nil {
				return err
			}
			if !ok {
				break // more of the same would fail as well
			}
		}
		r.watch.cellDone(i)
	}
	r.Record.Status = results.Complete
	r.doubtBudget()
	if err := r.store(); err != nil {
		return err
	}
	return r.failures()
}

// countSpent adds up what went on the replicates that the record holds. The
// budget is for all of a run, also where it is resumed.
func (r *Run) countSpent() {
	r.spent = 0
	for _, c := range r.Record.Cells {
		for _, p := range c.Processes {
			r.spent += time.Duration(p.Ns)
		}
	}
}

// left is what remains of the budget, less than 0 where it was overrun.
func (r *Run) left() time.Duration {
	return time.Duration(r.Plan.BudgetNs) - r.spent - (r.Clock.Now() - r.begin)
}

// budgetSlack is the share of the budget that may be overrun without a word:
// how long a pair of blocks takes is only guessed from the one before.
const budgetSlack = 0.05

// doubtBudget says by how much the budget was overrun.
func (r *Run) doubtBudget() {
	const code = "budget_overrun"
	r.Record.Warnings = slices.DeleteFunc(r.Record.Warnings, func(w results.Warning) bool { return w.Code == code })
	budget := time.Duration(r.Plan.BudgetNs)
	over := -r.left()
	if budget == 0 || float64(over) <= budgetSlack*float64(budget) {
		return
	}
	r.Record.Warnings = append(r.Record.Warnings, results.Warning{Code: code, Text: fmt.Sprintf(
		"the run took %.1f s longer than --budget=%v: processes, verification, warm-up and the first %d blocks of each configuration are never left out; raise it, or take fewer cells or configurations",
		over.Seconds(), budget, LeastBlocks)})
}

// dropFailures forgets failed replicates, so that they are tried again.
func (r *Run) dropFailures() {
	for i := range r.Record.Cells {
		c := &r.Record.Cells[i]
		c.Processes = slices.DeleteFunc(c.Processes, func(p results.Process) bool { return p.Status != results.Done })
		if c.Status == results.Failed {
			c.Status, c.Failure = results.Done, ""
		}
	}
	r.Record.Cells = slices.DeleteFunc(r.Record.Cells, func(c results.Cell) bool { return len(c.Processes) == 0 })
}

// cell returns the record's cell for one of the plan, made if need be, in the
// plan's order.
func (r *Run) cell(i int) *results.Cell {
	if c := r.lookup(i); c != nil {
		return c
	}
	at := 0
	for j := range i {
		if r.lookup(j) != nil {
			at++
		}
	}
	r.Record.Cells = slices.Insert(r.Record.Cells, at, results.Cell{Key: r.Plan.Cells[i], Status: results.Done})
	return &r.Record.Cells[at]
}

func (r *Run) lookup(i int) *results.Cell {
	for j := range r.Record.Cells {
		if c := &r.Record.Cells[j]; c.Key == r.Plan.Cells[i] {
			return c
		}
	}
	return nil
}

func (r *Run) finished(i, process int) bool {
	c := r.lookup(i)
	return c != nil && slices.ContainsFunc(c.Processes, func(p results.Process) bool {
		return p.Index == process && p.Status == results.Done
	})
}

// replicate runs one and stores the record. It reports false for one that
// failed.
func (r *Run) replicate(ctx context.Context, i, process int) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	req := r.Plan.Request(i, process, r.Dir)
	req.Time = r.share(i, process)
	told := r.watch.replicate(i, process)
	spoke := time.Duration(-1) // when it said its first word; below 0 for not yet
	req.Events = func(e Event) {
		if spoke < 0 {
			spoke = r.Clock.Now()
		}
		told(e)
	}
	if r.TraceFiles != nil && process == 0 && req.TraceSteps > 0 {
		req.TraceFiles = r.TraceFiles(req)
	}
	if c := r.lookup(i); c != nil {
		req.Plans = c.Plans
	}
	p := results.Process{Index: process, Seed: req.Order}
	if r.Load != nil {
		if load, ok := r.Load(); ok {
			p.Load1 = &load
		}
	}
	begin := r.Clock.Now()
	got, err := r.Replicate(ctx, req)
	took := r.Clock.Now() - begin
	p.Ns, p.PID = took.Nanoseconds(), got.PID
	var d *DisagreementError
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &d):
		return false, fmt.Errorf("run %s: %w", req.Cell.Name(), err)
	case err != nil:
		c := r.cell(i)
		p.Status, p.Failure = results.Failed, err.Error()
		c.Processes, c.Status, c.Failure = append(c.Processes, p), results.Failed, p.Failure
		Reduce(c, r.Plan)
		return false, r.store()
	}
	c := r.cell(i)
	p.Blocks = blocksOf(got.Cell)
	for _, own := range got.Cell.Processes {
		p.Readings = own.Readings
		p.Phases = aroundPhases(own.Phases, max(spoke-begin, 0), took)
	}
	Merge(c, got.Cell, p)
	c.Key = r.Plan.Cells[i]
	Reduce(c, r.Plan)
	return true, r.store()
}

// blocksOf counts the blocks of a replicate.
func blocksOf(c *results.Cell) int {
	blocks := map[int]bool{}
	for i := range c.Configurations {
		if m := c.Configurations[i].Metric(results.StepTimeNs); m != nil {
			for _, s := range m.Samples {
				blocks[s.Block] = true
			}
		}
	}
	return len(blocks)
}

// share is what a replicate may take of the budget: what is left, divided in
// proportion to the weights of the cells over the replicates that remain.
func (r *Run) share(i, process int) time.Duration {
	if r.Plan.BudgetNs == 0 {
		return 0
	}
	left := max(r.left(), 1)
	own, all := weight(r.Plan.Cells[i]), 0.0
	for j, c := range r.Plan.Cells {
		for p := range r.Plan.Processes {
			if (j > i || j == i && p >= process) && !r.finished(j, p) {
				all += weight(c)
			}
		}
	}
	return max(time.Duration(float64(left)*own/all), 1)
}

// weight is roughly what a cell costs beside others: on a CPU the arithmetic of
// its images, and on a GPU at the batches in question less than in proportion.
func weight(c results.CellKey) float64 {
	images := float64(c.Batch * c.GPUs)
	if c.Device == "cpu" {
		return 1 + images
	}
	return 32 + float64(c.Batch)
}

func (r *Run) store() error {
	if r.Store == nil {
		return nil
	}
	return r.Store(r.Record)
}

func (r *Run) failures() error {
	e := &FailedError{Cells: len(r.Plan.Cells)}
	for _, c := range r.Record.Cells {
		if c.Status == results.Failed {
			if e.Failed++; e.First == "" {
				e.First = fmt.Sprintf("run %s: %s", c.Key.Name(), c.Failure)
			}
		}
	}
	if e.Failed == 0 {
		return nil
	}
	return e
}
