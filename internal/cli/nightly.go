package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

const nightlyExample = `  # nightly.yaml; names of files are relative to its folder
  run: --batch=1,4 --mode=eager,graph      # flags of trbench run
  history: results/nightly
  base_command: trbench-base               # to measure base again, instead of the program kept with the pins
  deadline: 3h
  sentinel:
    run: --workload=golden-tiny --batch=4 --mode=eager
  retention: {full: 30, weeks: 52, timelines: 7, max_bytes: 2147483648}`

func newNightlyCmd(env *Env) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "nightly",
		Short: "measure, compare with the baseline, confirm, keep a history",
		Long: fmt.Sprintf(`nightly runs a plan, compares it with the pinned baseline (trbench baseline) as
trbench compare does, and confirms what is slower: in fresh processes, after all
other rows, %d of each side in turns. It adds the night to the history, writes a
page for a browser, and exits by the confirmed verdict.

%s

A night has 8 processes a cell unless run says --processes=N; other keys are
page (a file), allow (fields of the machine that may differ), confirm_processes.

With --trace in run, the timelines of each configuration are kept with the night,
for as many nights as retention says, and the page shows a step of each.

The confirmation measures both sides again, each by its own program: base by the
one that was kept with the latest pin that has one (trbench baseline), or by
base_command. A row that is slower both times fails the night. One where base is
as slow as head tonight does not: then the machine, its driver or a library
became slower, and the night ends without a verdict, with the suspects listed.
Without base's program head alone is measured again, and compared with the pinned
runs: that can show that a bad moment is over, and never fails a night (3).

So few processes that no row could be judged are refused before anything is
measured, with how many are needed.

On a sentinel cell, by default the one above, the guard tests itself each night;
sentinel: {off: true} spares the time. Two sides of the same
program are compared, which must not be slower; and then one whose first
submitted configuration is slowed in one sub-graph, by max(5 %%, 5 x noise) of its
submit time, which must be found. Both go through the confirmation too. The
rolling counts stand in the verdict, the page and trbench history.

A night that was killed goes on where it was, with what is left of its deadline;
one that another program began, or that began more than a day ago, is put into
the history as abandoned. What there was no time for is named. Two nights at once
are refused. When a deadline is set the sentinel is left out before the
confirmation is.

Exit codes: 0 nothing is slower; 1 a row is slower, and both sides measured again
confirm it; 2 the configuration, the history or a record cannot be used; 3 it
cannot be told, or something is missing, or there is no baseline yet; 4 modes
disagree.`, guard.ConfirmProcesses, nightlyExample),
		Example: `  trbench nightly --config=nightly.yaml`,
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&config, "config", "", "the file that says what to run")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := env.readNightly(config)
		if err != nil {
			return err
		}
		n := &nightly{env: env, config: c}
		return n.run(cmd.Context())
	}
	return cmd
}

// nightly is a night under way. What it decides follows from records in
// tonight/, so that one that was killed comes to the same; what it cannot find
// there again is in its state.
type nightly struct {
	env    *Env
	config *nightlyConfig
	store  *history.Store
	state  nightState
	begun  time.Time // of this process, with its monotonic clock

	plan bench.Plan
	// ways are the flags of run that say how a cell is run.
	ways     []string
	pins     []history.Pin
	base     []guard.Named // the pins' records
	program  baseProgram
	warnings []results.Warning
}

// nightState is what tonight/state.json has.
type nightState struct {
	ID      string          `json:"id"`
	Began   time.Time       `json:"began"`
	Program results.Program `json:"program"`
	Config  string          `json:"config"` // the file's text
	// Pins are the baseline as it was when the night began.
	Pins []history.Pin `json:"pins"`
	// LeftOut says in sentences what there was no time for: decided once.
	LeftOut map[string]string `json:"left_out"`
}

// oldest is how old a night may be to be gone on with.
const oldest = 24 * time.Hour

func (n *nightly) tonight(name string) string {
	return filepath.Join(n.config.History, "tonight", name)
}

func (n *nightly) run(ctx context.Context) (err error) {
	n.begun = n.env.Now()
	if n.plan, n.ways, err = n.env.nightlyPlan("run", strings.Fields(n.config.Run), nightProcesses); err != nil {
		return err
	}
	if !n.config.Sentinel.Off {
		plan, _, err := n.env.nightlyPlan("sentinel: run", strings.Fields(n.config.Sentinel.Run), n.config.Sentinel.Processes)
		if err != nil {
			return err
		}
		if len(plan.Cells) != 1 || !slices.ContainsFunc(plan.Configurations[:1], func(k results.ConfigurationKey) bool { return k.Mode != "step" }) {
			return inConfig("sentinel: run", errors.New("must be one cell, with eager or graph as its first mode"))
		}
		if plan.TraceSteps > 0 {
			return inConfig("sentinel: run", errors.New("--trace is for the night's own run"))
		}
	}
	if err := n.checkPage(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(n.tonight("x")), 0o777); err != nil {
		return &bench.InputError{Name: "history " + n.env.short(n.config.History), Reason: "cannot be made: " + unwrapPath(err).Error()}
	}
	lock, err := lockFile(n.tonight("night"))
	if err != nil {
		return &bench.InputError{Name: "history " + n.env.short(n.config.History), Reason: strings.Replace(err.Error(), "another run", "another nightly", 1), Hint: "one night at a time"}
	}
	defer lock.release()
	if n.store, err = history.Open(n.config.History, true); err != nil {
		return historyProblem(n.env.short(n.config.History), err)
	}
	defer func() { err = errors.Join(err, n.store.Close()) }()
	if n.store.Rebuilt != "" && n.store.Nights() > 0 {
		fmt.Fprintf(n.env.Stderr, "the history's index was made anew: %s\n", n.store.Rebuilt)
	}
	if err := n.store.Sweep(); err != nil {
		return historyProblem(n.env.short(n.config.History), err)
	}
	if err := n.problem(n.begin()); err != nil {
		if exitCode(err) == exitFailure { // 1 is for rows that are slower
			err = historyProblem(n.env.short(n.config.History), err)
		}
		return err
	}
	if err := n.readPins(); err != nil {
		return err
	}
	err = n.problem(n.night(ctx))
	switch {
	case err != nil && ctx.Err() != nil:
		return &interruptedError{file: n.env.short(filepath.Dir(n.tonight("x"))), night: true}
	case exitCode(err) == exitFailure && !errors.As(err, new(*judgedError)):
		// 1 is for rows that are slower.
		return &bench.InputError{Name: "nightly", Reason: "could not end: " + err.Error(), Hint: "what is finished is kept; the next try goes on from there"}
	}
	return err
}

// problem names the history in what is its own.
func (n *nightly) problem(err error) error {
	var damaged *history.DamagedError
	var full *history.FullError
	if errors.As(err, &damaged) || errors.As(err, &full) {
		return historyProblem(n.env.short(n.config.History), err)
	}
	var read *results.ReadError
	if errors.As(err, &read) {
		return &bench.InputError{Name: "record " + n.env.short(read.File), Reason: read.Problem, Hint: n.takeAway()}
	}
	return err
}

// takeAway is what to do with a night under way that cannot be read.
func (n *nightly) takeAway() string {
	return fmt.Sprintf("take %s away to begin a new night", n.env.short(filepath.Dir(n.tonight("x"))))
}

// outcome is what a night comes to.
type outcome struct {
	head       *results.Record
	comparison *results.Comparison // nil without a baseline
	records    []history.Kept
	sentinel   *history.Sentinel
	// err is why there is no comparison where there should be one.
	err error
}

// night measures, judges and stores. All of it can be repeated after a kill.
func (n *nightly) night(ctx context.Context) error {
	if list, err := n.store.List(); err != nil {
		return err
	} else if k := len(list); k > 0 && list[k-1].ID != n.state.ID && n.state.Began.Before(list[k-1].Ended) {
		n.warn("clock_jumped_back", fmt.Sprintf("the night began %s, and the one before ended %s: the clock jumped back; the history is in the order of nights, not of times",
			n.state.Began.Format(time.RFC3339), list[k-1].Ended.Format(time.RFC3339)))
	}
	o, err := n.measured(ctx)
	if err != nil {
		return err
	}
	stored, err := n.keep(o)
	if err != nil {
		return err
	}
	if err := n.show(o, stored); err != nil {
		return err
	}
	if err := n.clear(); err != nil {
		return err
	}
	switch {
	case o.err != nil:
		return n.uncompared(o.err, stored)
	case o.comparison == nil:
		return &inconclusiveError{"there is no baseline to compare with", fmt.Sprintf("trbench baseline pin %d --dir=%s --why=TEXT makes this night one; three or more show how much runs differ", stored.Sequence, n.env.short(n.config.History))}
	}
	return verdictError(o.comparison)
}

// uncompared is why a night that is stored was not compared, with what to do:
// the configuration says what may differ, and a night can be a baseline of its own.
func (n *nightly) uncompared(err error, night *history.Night) error {
	var input *bench.InputError
	if !errors.As(err, &input) {
		return err
	}
	return &bench.InputError{Name: fmt.Sprintf("night %d", night.Sequence), Reason: "is stored, and was not compared: the pinned runs (BASE) and tonight's (HEAD) " + input.Reason,
		Hint: fmt.Sprintf("what may differ goes into allow: of the configuration; or begin a new baseline: trbench baseline drop each of the old pins, and pin %d, with --dir=%s", night.Sequence, n.env.short(n.config.History))}
}

// measured takes all measurements of the night.
func (n *nightly) measured(ctx context.Context) (*outcome, error) {
	o := &outcome{}
	var err error
	if o.head, err = n.measureHead(ctx); err != nil {
		return nil, err
	}
	c := &comparison{base: n.base, head: []guard.Named{{Name: "tonight", Record: o.head}}, allow: n.config.Allow, options: guard.DefaultOptions()}
	var first *results.Comparison
	if len(c.base) > 0 {
		if first, o.err = c.compare(); o.err != nil {
			n.warn("not_compared", o.err.Error())
		}
	}
	if o.sentinel, err = n.sentinel(ctx, o); err != nil {
		return nil, err
	}
	o.comparison = first
	if first != nil && len(guard.ToConfirm(first.Rows)) > 0 {
		if err := n.confirm(ctx, c, first); err != nil {
			return nil, err
		}
		if o.comparison, o.err = c.compare(); o.err != nil {
			n.warn("not_compared", o.err.Error())
		}
	}
	if o.records, err = n.keepTimelines(o.head, o.records); err != nil {
		return nil, err
	}
	for _, s := range []sided{{"head", c.head}, {results.BaseAgain, c.baseAgain}, {results.HeadAgain, c.headAgain}} {
		for _, r := range s.records {
			k, err := n.store.Keep(s.side, r.Record)
			if err != nil {
				return nil, err
			}
			o.records = append(o.records, k)
		}
	}
	return o, nil
}

// keepTimelines puts a record's timelines into the history, where its own file
// goes, and makes it name them there. One that is gone is no error: the page says
// so.
func (n *nightly) keepTimelines(r *results.Record, kept []history.Kept) ([]history.Kept, error) {
	for i := range r.Cells {
		for j := range r.Cells[i].Configurations {
			t := r.Cells[i].Configurations[j].Trace
			if t == nil || t.File == "" {
				continue
			}
			k, err := n.store.KeepTimeline(r.Created, n.tonight(filepath.FromSlash(t.File)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			t.File = k.File
			kept = append(kept, k)
		}
	}
	return kept, nil
}

// measureHead runs the plan, as far as there is time.
func (n *nightly) measureHead(ctx context.Context) (*results.Record, error) {
	m := &measurement{env: n.env, file: n.tonight("head.json"), flags: strings.Fields(n.config.Run), loud: true}
	if !n.omitted("head") {
		limited := ctx
		if left, ok := n.left(); ok {
			var stop context.CancelFunc
			limited, stop = context.WithTimeout(ctx, max(left, 0))
			defer stop()
		}
		switch err := m.upTo(limited, n.plan.Processes); {
		case err == nil || ctx.Err() != nil:
			if err != nil {
				return nil, err
			}
		case limited.Err() != nil:
			if err := n.leaveOut("head", "some processes of tonight's run: the deadline was over"); err != nil {
				return nil, err
			}
		default:
			return nil, n.disagreed(err)
		}
	}
	r, err := m.record()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, errors.Join(&inconclusiveError{"the deadline was over before one process had ended: nothing was measured, and no night is added", "raise deadline in " + filepath.Base(n.config.dir)}, n.clear())
	}
	return r, nil
}

// disagreed puts a night whose modes disagree into the history: there is
// nothing else to keep of it.
func (n *nightly) disagreed(err error) error {
	var d *bench.DisagreementError
	if !errors.As(err, &d) {
		return err
	}
	night := &history.Night{ID: n.state.ID, Began: n.state.Began, Ended: n.begun.UTC(), Program: n.state.Program, Line: "modes disagree: " + err.Error(),
		Warnings: []results.Warning{{Code: "modes_disagree", Text: err.Error()}}}
	return errors.Join(err, n.append(night), n.clear())
}

// confirm measures slower rows again: their whole cells, as before.
func (n *nightly) confirm(ctx context.Context, c *comparison, first *results.Comparison) error {
	var cells []results.CellKey
	for _, k := range guard.ToConfirm(first.Rows) {
		if !slices.Contains(cells, k.Cell) {
			cells = append(cells, k.Cell)
		}
	}
	var list []*measurement
	for i, k := range cells {
		flags := append(slices.Clone(n.ways), cellFlagsOf(k, n.plan.PrepareAll)...)
		if n.program.path != "" {
			list = append(list, &measurement{env: n.env, file: n.tonight(fmt.Sprintf("confirm-%d-base.json", i)), flags: flags, program: n.program.path})
		}
		list = append(list, &measurement{env: n.env, file: n.tonight(fmt.Sprintf("confirm-%d-head.json", i)), flags: flags})
	}
	fmt.Fprintf(n.env.Stderr, "confirming %s of %s\n", count(len(guard.ToConfirm(first.Rows)), "slower row"), count(len(cells), "cell"))
	done := 0
	if !n.omitted("confirmation") {
		var err error
		done, err = alternate(ctx, list, n.config.ConfirmProcesses, n.left)
		var lost *programError
		switch {
		case !errors.As(err, &lost):
		case n.program.pin == "":
			return &bench.InputError{Name: "base_command " + lost.program, Reason: lost.reason, Hint: "it is to be another build of trbench; its own words stand above"}
		default:
			n.warn("base_not_measured", fmt.Sprintf("the program of pin %s, which was to measure base again, %s: head is measured again alone", n.program.pin, lost.reason))
			list = slices.DeleteFunc(list, (*measurement).ofBase)
			done, err = alternate(ctx, list, n.config.ConfirmProcesses, n.left)
		}
		if err != nil {
			return err
		}
		if done < n.config.ConfirmProcesses {
			if err := n.leaveOut("confirmation", fmt.Sprintf("%d of %d turns of the confirmation: the deadline was over", n.config.ConfirmProcesses-done, n.config.ConfirmProcesses)); err != nil {
				return err
			}
		}
	}
	list, err := n.onlyPinned(list)
	if err != nil {
		return err
	}
	c.alone = !slices.ContainsFunc(list, (*measurement).ofBase)
	for _, m := range list {
		r, err := m.record()
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(m.file), ".json")
		if m.ofBase() {
			n.program.name(r)
			c.baseAgain = append(c.baseAgain, guard.Named{Name: name, Record: r})
		} else {
			c.headAgain = append(c.headAgain, guard.Named{Name: name, Record: r})
		}
	}
	c.missing = len(c.headAgain) == 0
	return nil
}

// onlyPinned leaves out base's measurements if one is not by the program that was
// pinned: it was found good before the night, and may have been replaced since.
func (n *nightly) onlyPinned(list []*measurement) ([]*measurement, error) {
	if n.program.record == nil {
		return list, nil
	}
	for _, m := range list {
		if !m.ofBase() {
			continue
		}
		r, err := m.record()
		if err != nil {
			return nil, err
		}
		if r != nil && r.Program.Executable != n.program.record.Program.Executable {
			n.warn("base_not_measured", fmt.Sprintf("the program of pin %s, which was to measure base again, was replaced before it did: head is compared with the pinned runs alone", n.program.pin))
			return slices.DeleteFunc(list, (*measurement).ofBase), nil
		}
	}
	return list, nil
}

// name makes a record say of the pinned program what its pin does: that of a
// build without a revision takes what is checked out tonight for its own.
func (p baseProgram) name(r *results.Record) {
	if p.record == nil || r.Program.Executable != p.record.Program.Executable {
		return
	}
	r.Program = p.record.Program
	for i, f := range r.Environment.Fields {
		if was, ok := p.record.Environment.Field(f.Name); ok && strings.HasPrefix(f.Name, "program.") {
			r.Environment.Fields[i] = was
		}
	}
}

// keep stores the night.
func (n *nightly) keep(o *outcome) (*history.Night, error) {
	night := &history.Night{ID: n.state.ID, Began: n.state.Began, Ended: n.env.Now().UTC(), Program: n.state.Program,
		Warnings: n.warnings, Records: o.records, Sentinel: o.sentinel, LeftOut: n.leftOut()}
	if night.Ended.Before(night.Began) {
		night.Ended = night.Began
	}
	for _, p := range n.pins {
		night.Base = append(night.Base, p.Name)
	}
	rows, err := rowsOf(o.head)
	if err != nil {
		return nil, err
	}
	if c := o.comparison; c != nil {
		night.Verdict, night.Line = c.Verdict, report.VerdictLine(c)
		for _, v := range c.Rows {
			if i := slices.IndexFunc(rows, func(r history.Row) bool { return r.Key == v.Row }); i >= 0 {
				rows[i].Verdict, rows[i].Reason, rows[i].Ratio = v.Verdict, v.Reason, v.Ratio
			}
		}
	} else if o.err != nil {
		night.Line = "not compared: " + o.err.Error()
	}
	night.Rows = rows
	if night.Changes, err = n.newChanges(night); err != nil {
		return nil, err
	}
	return night, n.append(night)
}

func (n *nightly) leftOut() []string {
	var out []string
	for _, what := range []string{"head", "sentinel", "confirmation"} {
		if text := n.state.LeftOut[what]; text != "" {
			out = append(out, text)
		}
	}
	return out
}

// append adds a night to the history, once. An index that cannot follow is made
// anew by the next who opens it.
func (n *nightly) append(night *history.Night) error {
	_, err := n.store.Append(night)
	var index *history.IndexError
	if errors.As(err, &index) {
		fmt.Fprintf(n.env.Stderr, "warning: %v; the night is stored, and trbench history reindex makes the index anew\n", err)
		return nil
	}
	return err
}

// rowsOf are the gated rows of a record.
func rowsOf(r *results.Record) ([]history.Row, error) {
	self := []guard.Named{{Name: "tonight", Record: r}}
	g, err := guard.Gather(self, self)
	var unequal *guard.UnequalError
	if errors.As(err, &unequal) {
		return nil, nil // its figures mean nothing
	}
	if err != nil {
		return nil, err
	}
	var out []history.Row
	for _, row := range g.Rows {
		processes := row.Head[0]
		if !slices.ContainsFunc(processes, func(v float64) bool { return !(v > 0) }) && len(processes) > 0 {
			out = append(out, history.Row{Key: row.Key, Unit: row.Unit, Direction: row.Direction, Processes: processes})
		}
	}
	return out, nil
}

// newChanges are the change points that no night found before, once they are no
// longer provisional.
func (n *nightly) newChanges(night *history.Night) ([]history.Known, error) {
	series, err := n.store.Series(nil, false)
	if err != nil {
		return nil, err
	}
	known, err := n.store.Known()
	if err != nil {
		return nil, err
	}
	var out []history.Known
	for _, s := range series {
		if i := slices.IndexFunc(night.Rows, func(r history.Row) bool { return r.Key == s.Row }); i >= 0 && !slices.ContainsFunc(s.Points, func(p results.Point) bool { return p.Run == night.ID }) {
			s.Points = append(s.Points, results.Point{Run: night.ID, Created: night.Began, Sequence: n.store.Next(), Value: night.Rows[i].Value()})
		}
		for _, c := range history.Changes(s, known) {
			if !c.Provisional && !slices.ContainsFunc(known, func(k history.Known) bool { return k.ID == c.ID }) {
				out = append(out, history.Known{ID: c.ID, Row: s.Row.String(), Night: c.Night, Slower: c.Slower})
			}
		}
	}
	return out, nil
}

// inconclusiveError is an end that says neither good nor bad.
type inconclusiveError struct{ text, advice string }

func (e *inconclusiveError) Error() string { return e.text }
