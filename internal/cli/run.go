package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// defaultOut is where records go unless told otherwise; git ignores it.
var defaultOut = filepath.Join("results", "local") + string(filepath.Separator)

type runOptions struct {
	env       *Env
	cells     *cellFlags
	ways      *configurationFlags
	libraries Libraries
	data      string
	processes counts
	steps     counts
	blocks    counts
	warmup    counts
	budget    span
	seed      seed
	out       string
	resume    string
	quick     bool
	json      bool
	progress  bool
	// inject is a slowdown put in on purpose, which no flag asks for.
	inject *results.Injection

	trace      traceFlag
	traceSteps counts
}

func newRunCmd(env *Env) *cobra.Command {
	cmd, _ := runCommand(env)
	return cmd
}

func runCommand(env *Env) (*cobra.Command, *runOptions) {
	o := &runOptions{
		env: env, cells: newCellFlags(1, 2, 4), ways: newConfigurationFlags("eager", "graph"), seed: 1,
		processes: counts{min: 1, max: 1, top: bench.MaxProcesses}, steps: counts{min: 1, max: 1, top: bench.MaxSteps},
		blocks: counts{min: 1, max: 1, top: bench.MaxBlocks}, warmup: counts{min: 0, max: 1, top: bench.MaxSteps},
		traceSteps: counts{min: 1, max: 1, top: bench.MaxTraceSteps},
	}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "verify that all modes compute the same bits, time them, write a record",
		Long: `run trains every cell (workload x batch x gpus x ...) in every configuration
(mode x sync x control x launcher x dispatch). Each cell is run in several processes, one
after another, because processes differ more than the steps of one. Each
process verifies first: modes that leave different bits are not timed, and the
run exits 4. Then every configuration is warmed up until its steps show no
trend, and blocks of them alternate, in an order drawn from --seed.

The record goes to ` + defaultOut + ` unless --out says otherwise; with --json it
goes to stdout, and to a file only if --out names one. It is stored after every
process: --resume goes on from there after an interruption, with what is left
of --budget. A cell whose process dies is marked failed, the others go on, and
the run exits 1.

With --trace a few steps of each configuration are recorded once all blocks of
a process are timed: busy and idle time of the device, and to whom idle time is
charged. Recording makes steps longer, and by how much stands beside the
figures. The timelines of a cell's first process go beside the record, as Chrome
traces that https://ui.perfetto.dev opens.`,
		Example: `  trbench run --batch=1,4 --mode=eager,graph,step
  trbench run --sync=event,host --processes=8 --out=good.json
  trbench run --dispatch-ns=0,5000,20000 --budget=45s
  trbench run --workload=resnet18-cifar --precision=amp --gpus=1,2 --quick --json
  trbench run --batch=1 --mode=eager,step --trace
  trbench run --resume=good.json`,
		Args: noArgs,
	}
	o.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := o.session(cmd)
		if err != nil {
			return err
		}
		defer func() { s.lock.release(); s.traceLock.release() }()
		return s.run(cmd.Context())
	}
	return cmd, o
}

func (o *runOptions) addFlags(f *pflag.FlagSet) {
	o.cells.addPlace(f)
	o.cells.addKind(f)
	f.Var(&o.cells.variants, "variants", "variants to time: 0, 1 begin resolution with full, last batch; 2, 3 final; 4, 5 validation; all: time 2, prepare all six")
	o.ways.add(f)
	o.ways.addDispatch(f)
	o.cells.addTune(f, "timed once a cell, with --quick the rule")
	o.libraries.addLibraries(f)
	f.StringVar(&o.data, "data", data.Random, "random, learnable, or a folder with CIFAR-10's binary files")
	f.Var(&o.processes, "processes", "processes a cell (default 3, with --quick 1; 8 to judge a change)")
	f.Var(&o.steps, "steps", "timed steps of a block (default 4 on the CPU, 50 on a GPU)")
	f.Var(&o.blocks, "blocks", "blocks of each configuration in a process (default 4 on the CPU, 10 on a GPU, with --quick 2)")
	f.Var(&o.warmup, "warmup", "steps before the first block, below --steps (default until the steps show no trend, with --quick 1)")
	f.Var(&o.budget, "budget", "time for the whole run, such as 45s: blocks are left out to keep it; processes, verification and warm-up never")
	f.Var(&o.seed, "seed", "of weights, data and the order of blocks")
	f.StringVar(&o.out, "out", "", "file or folder for the record (default "+defaultOut+"); a file that ends in .gz is packed")
	f.StringVar(&o.resume, "resume", "", "go on with an interrupted record; the plan is the record's, and --processes may ask for more")
	o.addTrace(f)
	f.BoolVar(&o.quick, "quick", false, "one process and few steps, for a first look; verification stays")
	f.BoolVar(&o.progress, "progress", false, "print a line a cell on stderr also where that is no terminal, which has a bar")
	f.BoolVar(&o.json, "json", false, "print the record alone on stdout")
}

// session makes what is run: a new record or one to go on with.
func (o *runOptions) session(cmd *cobra.Command) (*runSession, error) {
	if cmd.Flags().Changed("resume") {
		return o.resumed(cmd)
	}
	plan, device, err := o.validate()
	if err != nil {
		return nil, err
	}
	s := &runSession{env: o.env, plan: plan, target: o.target(), json: o.json, progress: o.progress}
	if s.target != "" && !isFolder(s.target) {
		if s.lock, err = lockFile(s.target); err != nil {
			return nil, &bench.InputError{Name: "--out " + o.out, Reason: err.Error(), Hint: "give each run a file of its own"}
		}
	}
	s.record = o.newRecord(cmd.Context(), device)
	if err := s.readyTrace(device, o.trace.dir); err != nil {
		s.lock.release()
		return nil, err
	}
	return s, nil
}

// isFolder says whether --out means a folder, where each record gets a name of
// its own.
func isFolder(target string) bool {
	if os.IsPathSeparator(target[len(target)-1]) {
		return true
	}
	info, err := os.Stat(target)
	return err == nil && info.IsDir()
}

// validate turns the options into a plan and finds everything that would stop
// the run later.
func (o *runOptions) validate() (bench.Plan, Device, error) {
	if err := o.ways.check(); err != nil {
		return bench.Plan{}, Device{}, err
	}
	if o.target() == "" && o.env.StdoutLost {
		return bench.Plan{}, Device{}, &bench.InputError{Name: "stdout", Reason: "is closed, so the record would be lost", Hint: "--out=FILE keeps it"}
	}
	if err := o.env.useLibraries(o.libraries, o.cells.device.String(), o.cells.kernels.values); err != nil {
		return bench.Plan{}, Device{}, err
	}
	if o.libraries.CUPTI != "" && !o.trace.on {
		return bench.Plan{}, Device{}, &bench.InputError{Name: "--cupti", Reason: "would be ignored without --trace", Hint: "add --trace"}
	}
	device, err := o.env.chooseDevice(o.cells.device.String())
	if err != nil {
		return bench.Plan{}, device, err
	}
	cells, err := o.cells.cells(device)
	if err != nil {
		return bench.Plan{}, device, err
	}
	plan := o.amounts(device.Name)
	if plan.Tune, err = o.cells.tuning(o.env, device); err != nil {
		return plan, device, err
	}
	plan.Inject = o.inject
	plan.Cells, plan.Configurations = cells, o.ways.configurations(device)
	if plan.TraceSteps, err = o.tracedSteps(); err != nil {
		return plan, device, err
	}
	if o.trace.on && o.env.Engine.CheckTrace != nil {
		if err := o.env.Engine.CheckTrace(device.Name, false); err != nil {
			return plan, device, traceProblem("--trace", err, withoutTrace)
		}
	}
	if err := o.env.checkPlan(plan, device); err != nil {
		return plan, device, err
	}
	if target := o.target(); target != "" {
		if err := results.CheckWritable(target); err != nil {
			return plan, device, outProblem("--out", err)
		}
	}
	return plan, device, nil
}

// amounts are how much is run of each cell. On a CPU a step is so long that
// few make a block.
func (o *runOptions) amounts(device string) bench.Plan {
	p := bench.Plan{
		Processes: 3, Steps: 50, Blocks: 10, WarmupCap: bench.WarmupCap, Seed: uint64(o.seed), Data: o.data,
		PrepareAll: o.cells.variants.all, Quick: o.quick, BudgetNs: time.Duration(o.budget).Nanoseconds(),
	}
	if device == "cpu" {
		p.Steps, p.Blocks = 4, 4
	}
	if o.quick {
		p.Processes, p.Steps, p.Blocks, p.Warmup = 1, min(p.Steps, 20), 2, new(1)
	}
	take := func(from counts, to *int) {
		if from.values != nil {
			*to = from.first()
		}
	}
	take(o.processes, &p.Processes)
	take(o.steps, &p.Steps)
	take(o.blocks, &p.Blocks)
	if p.Warmup != nil {
		*p.Warmup = min(*p.Warmup, p.Steps-1) // the default gives way
	}
	if o.warmup.values != nil {
		p.Warmup = new(o.warmup.first())
	}
	p.Single = min(max(p.Steps/2, 1), 20)
	return p
}

// checkPlan finds what would stop a plan on this device and machine.
func (env *Env) checkPlan(plan bench.Plan, device Device) error {
	if err := checkLaunchers(plan, device); err != nil {
		return err
	}
	if err := plan.Validate(bench.Limits{Device: device.Name, MaxRanks: device.MaxRanks}); err != nil {
		return err
	}
	if err := checkMemory(plan.Cells, device); err != nil {
		return err
	}
	return env.checkData(plan.Data, plan.Seed)
}

// checkData finds what would stop --data later.
func (env *Env) checkData(value string, seed uint64) error {
	if value == "" {
		return &bench.InputError{Name: "--data", Reason: "is empty; it takes random, learnable, or a folder with CIFAR-10's binary files"}
	}
	return data.Check(env.data(value, seed))
}

// target is where the record goes; empty for stdout only.
func (o *runOptions) target() string {
	if o.out == "" && o.json {
		return ""
	}
	if o.out == "" {
		return o.env.path(defaultOut)
	}
	return o.env.path(o.out)
}

// outProblem names the flag as well as the place. What to give instead is said
// where the place itself is the problem, not a full disk.
func outProblem(flag string, err error) error {
	var w *results.WriteError
	if !errors.As(err, &w) {
		return err
	}
	problem := &bench.InputError{Name: flag, Reason: w.Error()}
	if flag == "--out" && (w.Err == nil || errors.Is(w, fs.ErrNotExist) || errors.Is(w, syscall.ENOTDIR)) {
		problem.Hint = "--out takes a file, or a folder when it ends in /"
	}
	return problem
}

// data reads --data; a folder is relative to the working folder.
func (env *Env) data(value string, seed uint64) data.Options {
	o := data.Parse(value, seed)
	o.Dir = env.path(o.Dir)
	return o
}

func (o *runOptions) newRecord(ctx context.Context, device Device) *results.Record {
	r := &results.Record{
		Schema:    results.Schema{Name: results.SchemaName, Major: results.SchemaMajor, Minor: results.SchemaMinor},
		Created:   o.env.Now().UTC(),
		Arguments: o.env.Args, Seed: uint64(o.seed), Quick: o.quick,
		Program: o.env.identity(),
		Host:    results.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		Device:  results.Device{Name: device.Name, Description: device.Description},
	}
	if o.env.Machine != nil {
		r.Environment = o.env.Machine(ctx, device)
		r.Warnings = machine.Doubts(r.Environment)
	}
	return r
}

// runSession is a run under way.
type runSession struct {
	env     *Env
	plan    bench.Plan
	record  *results.Record
	target  string // file or folder; empty for stdout only
	file    string // what was written so far
	resumed bool
	json    bool
	// progress asks for lines where there is no bar.
	progress bool
	lock     *fileLock // of the file; nil for none
	// traceDir is where timelines go; empty keeps none.
	traceDir string
	// traceLock is on the names of timelines; nil for none.
	traceLock *fileLock
	stored    int // processes in the file
	// replaced is what the file held before, nil if there was none.
	replaced []byte
}

func (s *runSession) run(ctx context.Context) error {
	s.moment(ctx, results.AtStart)
	watch := newWatch(s.env, s.plan, s.progress)
	if s.resumed {
		fmt.Fprintf(s.env.Stderr, "kept %d of %s\n", finished(s.record), count(len(s.plan.Cells)*s.plan.Processes, "replicate"))
	}
	r := bench.Run{
		Plan: s.plan, Record: s.record, Dir: s.env.WorkDir, Replicate: s.env.replicate,
		Store: func(r *results.Record) error { s.moment(ctx, results.AtEnd); return s.store(r) }, Watch: watch.tell, Load: loadAverage,
		TraceFiles: s.traceFiles,
	}
	err := r.Do(ctx)
	watch.end()
	var failed *bench.FailedError
	if err != nil && !errors.As(err, &failed) {
		return s.stopped(ctx, err)
	}
	if shown := s.show(); shown != nil {
		return shown
	}
	return err
}

// moment keeps how the machine is now, as the start of a new session or as the
// end of this one, which is that of its last process so far.
func (s *runSession) moment(ctx context.Context, when string) {
	if s.env.Readings == nil || ctx.Err() != nil {
		return
	}
	e := &s.record.Environment
	m := results.Moment{When: when, Time: s.env.Now().UTC(), Readings: s.env.Readings(ctx, s.record.Device.Name)}
	if last := len(e.Moments) - 1; last >= 0 {
		m.Session = e.Moments[last].Session
		switch {
		case when == results.AtStart:
			m.Session++
		case e.Moments[last].When == results.AtEnd:
			e.Moments = e.Moments[:last]
		}
	}
	e.Moments = append(e.Moments, m)
	s.record.Warnings = slices.DeleteFunc(s.record.Warnings, func(w results.Warning) bool { return slices.Contains(machine.HeatCodes(), w.Code) })
	s.record.Warnings = append(s.record.Warnings, machine.Heat(e.Moments)...)
}

// store keeps the record as it is now.
func (s *runSession) store(r *results.Record) error {
	if s.target == "" {
		return nil
	}
	to := s.target
	switch {
	case s.file != "":
		to = s.file
	case !isFolder(to):
		// Kept in case nothing may stay of this run. What is there was found
		// to be a record, or empty.
		if b, err := os.ReadFile(to); err == nil {
			s.replaced = append([]byte{}, b...)
		}
	}
	settleTraceFiles(r, to)
	file, err := results.Write(to, r)
	if err != nil && s.file != "" {
		return &unstoredError{error: outProblem(s.flag(), err), file: s.env.short(s.file), finished: s.stored, all: s.replicates()}
	}
	if err != nil {
		return outProblem(s.flag(), err)
	}
	s.stored = finished(r)
	if s.file == "" && s.lock == nil {
		if s.lock, err = lockFile(file); err != nil {
			return &bench.InputError{Name: file, Reason: err.Error()}
		}
	}
	s.file = file
	return nil
}

// flag is the one that named the file.
func (s *runSession) flag() string {
	if s.resumed {
		return "--resume"
	}
	return "--out"
}

// replicates is how many the plan has.
func (s *runSession) replicates() int { return len(s.plan.Cells) * s.plan.Processes }

// unstoredError says that a record could not be stored any more, and what is
// left of it.
type unstoredError struct {
	error
	file          string
	finished, all int
}

func (e *unstoredError) Unwrap() error { return e.error }

func (e *unstoredError) hint() string {
	return fmt.Sprintf("%d of %d processes are kept in %s; once it can be written again, trbench run --resume=%s goes on from there",
		e.finished, e.all, e.file, e.file)
}

// stopped says what is left of a run that ended early.
func (s *runSession) stopped(ctx context.Context, err error) error {
	var d *bench.DisagreementError
	switch {
	case ctx.Err() != nil && s.file != "":
		return &interruptedError{file: s.env.short(s.file), finished: finished(s.record), all: s.replicates()}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &d) && s.resumed:
		return &doubtedError{error: err, file: s.env.short(s.file)}
	case errors.As(err, &d) && s.file != "":
		// Timings of modes that disagree are timings of different things.
		return errors.Join(err, s.undo())
	}
	return err
}

// undo leaves things as they were before a new record was stored.
func (s *runSession) undo() error {
	if s.replaced == nil {
		return os.Remove(s.file)
	}
	return os.WriteFile(s.file, s.replaced, 0o666) // the file is there: its permissions stay
}

// doubtedError says that modes disagree which were timed before.
type doubtedError struct {
	error
	file string
}

func (e *doubtedError) Unwrap() error { return e.error }

func (e *doubtedError) hint() string {
	return e.file + " keeps timings of modes that now disagree: do not use them; trbench verify narrows it down"
}

func finished(r *results.Record) int {
	n := 0
	for _, c := range r.Cells {
		for _, p := range c.Processes {
			if p.Status == results.Done {
				n++
			}
		}
	}
	return n
}

// interruptedError says what is kept of an interrupted run.
type interruptedError struct {
	file          string
	finished, all int
	night         bool // of nightly, which goes on by itself
}

func (e *interruptedError) Error() string {
	if e.night {
		return "interrupted; what is finished of the night is kept in " + e.file
	}
	return fmt.Sprintf("interrupted; %d of %d processes are kept in %s", e.finished, e.all, e.file)
}

func (e *interruptedError) Unwrap() error { return context.Canceled }

// show prints the record, which was stored first: the table is made from what
// was kept.
func (s *runSession) show() error {
	var err error
	if s.json {
		err = results.Encode(s.env.Stdout, s.record)
	} else if err = report.Table(s.env.Stdout, s.record); err == nil {
		out := &printer{w: s.env.Stdout}
		out.linef("Record: %s", s.env.short(s.file))
		for _, t := range timelinesOf(s.record, s.file) {
			out.linef("Timeline: %s", s.env.short(t))
		}
		err = out.err
	}
	if out, ok := s.env.Stdout.(*watched); ok && out.failed() != nil && s.file != "" {
		return &outputError{err: out.failed(), kept: s.env.short(s.file)}
	}
	return err
}

// short is a file's name as seen from the working folder, if it is below it.
func (env *Env) short(file string) string {
	if rel, err := filepath.Rel(env.WorkDir, file); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return file
}

// loadAverage is the load of the last minute.
func loadAverage() (float64, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	var load float64
	_, err = fmt.Sscan(strings.TrimSpace(string(b)), &load)
	return load, err == nil
}
