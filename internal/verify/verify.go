package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/eager"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Steps is the number of full steps of each epoch; one last step follows.
const Steps = 2

// Faults break a run on purpose, so that a test can see that it is noticed.
// The zero value breaks nothing.
type Faults struct {
	// Edit changes the node lists; see [workloads.NewEdited].
	Edit workloads.Edit
	// SkipRestore leaves out the restore before that configuration of each
	// entry of the matrix (counted from 1; the reference is number 1).
	SkipRestore int
}

// entry is one row of the matrix.
type entry struct {
	name string
	set  func(*results.CellKey)
}

// matrix is fixed: it fills every slot at least once, and each optimizer's and
// precision's own path.
var matrix = []entry{
	{"AMP, SGD, EMA", func(c *results.CellKey) { c.Precision, c.Optimizer, c.EMA = "amp", "sgd", true }},
	{"AMP, LARS, EMA", func(c *results.CellKey) { c.Precision, c.Optimizer, c.EMA = "amp", "lars", true }},
	{"FP32, SGD", func(c *results.CellKey) { c.Precision, c.Optimizer, c.EMA = "fp32", "sgd", false }},
	{"FP32, Nesterov, frozen stem", func(c *results.CellKey) {
		c.Precision, c.Optimizer, c.EMA, c.Frozen = "fp32", "nesterov", false, true
	}},
}

// Run runs the matrix on a device. The report is valid beside an error that is
// a [*bench.DisagreementError] or a [*Failure]; other errors are of the
// machine or the input. What fails in one configuration is a problem that
// names it; the matrix goes on while the ranks can be used, and ends with that
// problem if they cannot. ctx ends it soon, also in the middle of a run.
func Run(ctx context.Context, dev device.Device, req bench.VerifyRequest, faults Faults) (bench.VerifyReport, error) {
	v := &verifier{ctx: ctx, dev: dev, req: req, faults: faults, watch: &watch{}}
	v.report = bench.VerifyReport{
		Device: dev.Name(), Workload: req.Cell.Workload, Ranks: max(req.Cell.GPUs, 1),
		Problems: []string{}, Edges: bench.VerifyEdges{Implied: []bench.ImpliedEdge{}},
	}
	for _, e := range matrix {
		if err := v.entry(e); err != nil {
			return v.report, err
		}
		if v.broken {
			break
		}
	}
	if !v.broken {
		v.subGraphs()
	}
	v.report.Equal = v.first == nil
	if len(v.report.Problems) == 0 {
		return v.report, nil
	}
	if v.first != nil {
		return v.report, v.first
	}
	return v.report, &Failure{Problems: v.report.Problems}
}

// Failure is a run whose modes agree and in which something else is wrong.
type Failure struct{ Problems []string }

func (f *Failure) Error() string {
	s := f.Problems[0]
	if n := len(f.Problems); n > 1 {
		s += fmt.Sprintf(" (and %d more problems)", n-1)
	}
	return s
}

type verifier struct {
	ctx    context.Context
	dev    device.Device
	req    bench.VerifyRequest
	faults Faults
	report bench.VerifyReport
	watch  *watch
	first  *bench.DisagreementError
	broken bool // the ranks cannot be used any more
	total  [workloads.NumSubGraphs]int64
}

func (v *verifier) problem(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(v.report.Problems, s) {
		v.report.Problems = append(v.report.Problems, s)
	}
}

func (v *verifier) progress(format string, args ...any) {
	if v.req.Progress != nil {
		v.req.Progress(fmt.Sprintf(format, args...))
	}
}

// Cells are the rows' cells, completed: what a request will run.
func Cells(c results.CellKey) ([]results.CellKey, error) {
	var out []results.CellKey
	for _, e := range matrix {
		cell, err := e.cell(c)
		if err != nil {
			return nil, err
		}
		out = append(out, cell)
	}
	return out, nil
}

// cell completes a row's cell: both resolutions differ where the model allows
// it, and last batches are partial and different.
func (e entry) cell(c results.CellKey) (results.CellKey, error) {
	e.set(&c)
	c.Smoothing = 0.1
	if c.Batch == 0 {
		c.Batch = 4
	}
	m, err := workloads.Model(c.Workload)
	if err != nil {
		return c, &bench.InputError{Name: "--workload", Reason: err.Error()}
	}
	if c.Resolution.Final == 0 {
		c.Resolution.Final = max(m.Resolution/2/m.Multiple, 1) * m.Multiple
	}
	if c.Resolution.Begin == 0 {
		c.Resolution.Begin = max(c.Resolution.Final-m.Multiple, m.Multiple)
	}
	if c.LastBatch.Train == 0 {
		c.LastBatch.Train = max(c.Batch-1, 1)
	}
	if c.LastBatch.Val == 0 {
		c.LastBatch.Val = max(c.Batch/2, 1)
	}
	return bench.Complete(c)
}

// entry runs one row.
func (v *verifier) entry(e entry) error {
	cell, err := e.cell(v.req.Cell)
	if err != nil {
		return err
	}
	tuning, err := worker.UseTuning(v.dev, bench.Spec(cell), v.req.Tune)
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	w, err := device.NewWorkload(v.dev, bench.Spec(cell), v.faults.Edit)
	if err != nil {
		return fmt.Errorf("%s: build workload: %w", e.name, err)
	}
	script := worker.Script(workloads.AllVariants(), Steps)
	v.progress("%s: checks without a device", e.name)
	if err := v.static(e, w, script); err != nil {
		return err
	}
	source, err := data.Open(v.req.Data, w.Classes())
	if err != nil {
		return err
	}
	v.progress("%s: prepare operators", e.name)
	s, err := worker.Open(v.dev, w, worker.Options{
		Variants: workloads.AllVariants(), Timed: workloads.FinalFull, Seed: v.req.Seed, Source: source, Context: v.ctx,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	err = v.run(e, bench.VerifyRun{Name: e.name, Cell: cell, Tuning: tuning}, s, script)
	return errors.Join(err, s.Close())
}

// static checks nodes, order and hazards, then drops each edge in turn, for
// each control that the configurations have.
func (v *verifier) static(e entry, w *workloads.Workload, script []workloads.Segment) error {
	for _, err := range w.Check() {
		v.problem("%s: %v", e.name, err)
	}
	for _, c := range []workloads.Control{workloads.ControlDevice, workloads.ControlHost} {
		if !slices.ContainsFunc(v.req.Configurations, func(k results.ConfigurationKey) bool { return k.Control == c.String() }) {
			continue
		}
		name := e.name
		if c == workloads.ControlHost {
			name += ", host control"
		}
		if err := v.edges(name, w, script, c); err != nil {
			return err
		}
	}
	return nil
}

// edges puts the hazard check to the test.
func (v *verifier) edges(name string, w *workloads.Workload, script []workloads.Segment, c workloads.Control) error {
	for _, h := range w.ScheduledSequence(script, c).Hazards() {
		v.problem("%s: %v", name, h)
	}
	q := w.Sequence(script, c)
	kept, implied := q.Edges()
	gone := workloads.Dropped(implied)
	for _, edge := range kept {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		v.report.Edges.Dropped++
		if q.Notices(append(slices.Clone(gone), edge.Index)...) {
			v.report.Edges.Reported++
		} else {
			v.problem("%s: the hazard check does not notice that an edge is missing: %v", name, edge)
		}
	}
	for _, i := range implied {
		path := []string{}
		for _, p := range i.Path {
			path = append(path, p.String())
		}
		v.report.Edges.Implied = append(v.report.Edges.Implied, bench.ImpliedEdge{
			Run: name, Waiting: i.Edge.Waiter.String(), Waited: i.Edge.Waited.String(),
			Join: i.Edge.Join + " in " + i.Edge.Segment, Path: path,
		})
	}
	return nil
}

// run compares every configuration with the reference, from one snapshot, and
// the ranks of each with each other. row is what is known beforehand.
func (v *verifier) run(e entry, row bench.VerifyRun, s *worker.Session, script []workloads.Segment) error {
	keys := slices.Clone(v.req.Configurations)
	ref := worker.Reference(keys)
	keys = slices.DeleteFunc(keys, func(k results.ConfigurationKey) bool { return k == ref })
	keys = append([]results.ConfigurationKey{ref}, keys...)
	initial, err := s.State()
	if err != nil {
		return err
	}
	row.Configurations = keys
	row.Verify = results.Verify{Equal: true, Tensors: initial.Tensors(), Bytes: initial.Bytes(), Steps: trainSteps(script)}
	r := &rowRun{verifier: v, entry: e, cell: row.Cell, s: s, script: script, initial: initial, ref: ref, verify: &row.Verify}
	for i, k := range keys {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		v.progress("%s: %s", e.name, k)
		if err := r.configuration(k, i+1 == v.faults.SkipRestore); err != nil {
			if err := r.failed(k, err); err != nil {
				return err
			}
		}
		if v.broken {
			break
		}
	}
	v.report.Matrix = append(v.report.Matrix, row)
	if v.broken {
		return nil
	}
	if err := v.look(e, s, ref, script); err != nil {
		return r.failed(ref, fmt.Errorf("watched: %w", err))
	}
	return nil
}

// rowRun is a row of the matrix while it runs.
type rowRun struct {
	*verifier
	entry     entry
	cell      results.CellKey
	s         *worker.Session
	script    []workloads.Segment
	initial   *worker.State
	ref       results.ConfigurationKey // whose state the others must leave
	reference *worker.State            // nil until a configuration came through
	verify    *results.Verify
}

// failed makes a problem of what went wrong in a configuration, unless ctx has
// ended. It finds out whether the ranks can still be used.
func (r *rowRun) failed(k results.ConfigurationKey, err error) error {
	if ended := r.ctx.Err(); ended != nil {
		return ended
	}
	r.verify.Equal = false
	r.problem("%s: %s: %v", r.entry.name, k, err)
	if err := r.s.Restore(); err != nil {
		r.broken = true
		r.problem("%s: the matrix ends here, as the ranks cannot be used after %s failed: %v", r.entry.name, k, err)
	}
	return nil
}

// configuration runs the script in one configuration and compares.
func (r *rowRun) configuration(k results.ConfigurationKey, skipRestore bool) error {
	x, err := r.s.Executor(k)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if !skipRestore {
		if err := r.s.Restore(); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	now, err := r.s.State()
	if err != nil {
		return err
	}
	if d := now.Diff(r.initial); d != nil {
		r.verify.Equal = false
		r.disagree(r.cell, r.ref, k, d, fmt.Sprintf("%s: state was not restored before %s: rank %d, tensor %s, element %d: %s",
			r.entry.name, k, d.Rank, d.Tensor, d.Index, d.Detail))
	}
	if err := r.execute(r.entry, r.s, x, k, r.script); err != nil {
		return err
	}
	st, err := r.s.State()
	if err != nil {
		return err
	}
	r.verify.Modes = append(r.verify.Modes, k.String())
	// The script ends with a validation, whose results are summed over ranks.
	if d := st.DiffRanks(true); d != nil {
		r.verify.Equal = false
		r.problem("%s: %s: rank %d differs from rank 0 where ranks must be equal: tensor %s, element %d: %s",
			r.entry.name, k, d.Rank, d.Tensor, d.Index, d.Detail)
	}
	if r.reference == nil {
		r.ref, r.reference = k, st
		r.trained(r.entry, r.s)
		return nil
	}
	if d := st.Diff(r.reference); d != nil {
		r.verify.Equal = false
		r.disagree(r.cell, r.ref, k, d, fmt.Sprintf("%s: %s and %s disagree: rank %d, tensor %s, element %d: %s",
			r.entry.name, r.ref, k, d.Rank, d.Tensor, d.Index, d.Detail))
	}
	return nil
}

func (v *verifier) disagree(cell results.CellKey, ref, k results.ConfigurationKey, d *bench.Difference, text string) {
	v.problem("%s", text)
	if v.first == nil {
		v.first = &bench.DisagreementError{Cell: cell, Reference: ref, Other: k, Rank: d.Rank, Tensor: d.Tensor, Index: d.Index, Detail: d.Detail}
	}
}

func trainSteps(script []workloads.Segment) int {
	n := 0
	for _, seg := range script {
		if seg.Phase == workloads.TrainStep {
			n++
		}
	}
	return n
}

// execute runs the script in one configuration and compares what the device
// executed with what the schedule holds.
func (v *verifier) execute(e entry, s *worker.Session, x *worker.Executor, k results.ConfigurationKey, script []workloads.Segment) error {
	if err := s.Group().Each(func(r device.Rank) error { r.ResetExecuted(); return nil }); err != nil {
		return err
	}
	if err := x.Run(script...); err != nil {
		return err
	}
	if err := x.Wait(); err != nil {
		return err
	}
	executed := make([]device.Executed, s.Group().Ranks())
	if err := s.Group().Each(func(r device.Rank) error { executed[r.ID()] = r.Executed(); return nil }); err != nil {
		return err
	}
	want := expected(s.Workload(), script, k)
	for rank, got := range executed {
		for variant := range workloads.NumVariants {
			for id := range workloads.NumSubGraphs {
				n := got[variant][id]
				if n != want[variant][id] {
					v.problem("%s: %s: rank %d executed %d operators of %s in variant %s, not %d", e.name, k, rank, n, id, variant, want[variant][id])
				}
				if n == 0 {
					continue
				}
				v.total[id] += n
				v.report.Counts = append(v.report.Counts, bench.VerifyCount{
					Run: e.name, Configuration: k, Rank: rank, Variant: int(variant), SubGraph: id.String(), Operators: n,
				})
			}
		}
	}
	return nil
}

// expected counts the operators of a script.
func expected(w *workloads.Workload, script []workloads.Segment, k results.ConfigurationKey) (want device.Executed) {
	control := workloads.ControlDevice
	if k.Control == workloads.ControlHost.String() {
		control = workloads.ControlHost
	}
	for _, seg := range script {
		for _, a := range w.Schedule(seg) {
			if a.Kind == workloads.ActRun {
				want[seg.Variant][a.SubGraph] += int64(len(w.Bounds(a.SubGraph, seg.Variant, control)))
			}
		}
	}
	return want
}

// trained checks what every training run must leave behind: as many steps
// counted as were run, and the learning rate of the last one.
func (v *verifier) trained(e entry, s *worker.Session) {
	w := s.Workload()
	steps := trainSteps(worker.Script(workloads.AllVariants(), Steps))
	rates := w.Spec.Hyper.LearningRates
	want := rates[min(steps, len(rates))-1]
	for rank := range s.Group().Ranks() {
		sc, err := s.Scalars(rank)
		switch {
		case err != nil:
			v.problem("%s: read the scalars of rank %d: %v", e.name, rank, err)
		case int(sc.Step) != steps:
			v.problem("%s: rank %d counted %d steps in %s, not %d", e.name, rank, sc.Step, workloads.NaNCheck, steps)
		case sc.LR != want:
			v.problem("%s: rank %d trained its last step with learning rate %g, not %g: %s", e.name, rank, sc.LR, want, workloads.NaNCheck)
		case sc.Skipped > 0:
			v.problem("%s: rank %d skipped %d of %d steps: a gradient was not finite", e.name, rank, sc.Skipped, steps)
		}
	}
}

// look runs the script once more, eagerly, and watches each sub-graph's output.
func (v *verifier) look(e entry, s *worker.Session, ref results.ConfigurationKey, script []workloads.Segment) error {
	v.progress("%s: which sub-graphs change their output", e.name)
	w := s.Workload()
	x, err := s.Custom(ref, func(r device.Rank, t *walk.Table) walk.Launcher {
		return &probe{inner: eager.Launcher{Table: t}, rank: r, w: w, watch: v.watch}
	})
	if err != nil {
		return err
	}
	if err := s.Restore(); err != nil {
		return err
	}
	if err := x.Run(script...); err != nil {
		return err
	}
	return x.Wait()
}

// subGraphs judges the 33.
func (v *verifier) subGraphs() {
	for id := range workloads.NumSubGraphs {
		g := bench.VerifySubGraph{ID: int(id), Name: id.String(), Executed: v.total[id], State: bench.SubGraphRan}
		switch {
		case id.Info().Collective && v.report.Ranks == 1:
			g.State, g.Why = bench.SubGraphNotApplicable, "one rank has nobody to exchange with"
		case v.total[id] == 0:
			g.State, g.Why = bench.SubGraphNotRun, "the device executed none of its operators"
		case !v.watch.seen(id):
			g.State, g.Why = bench.SubGraphNotRun, "it changed no byte of its declared output"
		}
		if g.State == bench.SubGraphNotRun {
			v.problem("%s was not run: %s", g.Name, g.Why)
		}
		v.report.SubGraphs = append(v.report.SubGraphs, g)
	}
}
