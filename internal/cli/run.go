package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// defaultOut is where records go unless told otherwise; git ignores it.
var defaultOut = filepath.Join("results", "local") + string(filepath.Separator)

type runOptions struct {
	env    *Env
	cells  *cellFlags
	ways   *configurationFlags
	data   string
	steps  counts
	warmup counts
	seed   uint64
	out    string
	quick  bool
	json   bool
}

func newRunCmd(env *Env) *cobra.Command {
	o := &runOptions{
		env: env, cells: newCellFlags(1, 2, 4), ways: newConfigurationFlags("eager", "graph"),
		steps: counts{min: 1, max: 1}, warmup: counts{min: 0, max: 1},
	}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "verify that all modes compute the same bits, time them, write a record",
		Long: `run trains every cell (workload x batch x gpus x ...) in every configuration
(mode x sync x control). Each cell is verified first: modes that leave
different bits are not timed, and the run exits 4.

The record goes to ` + defaultOut + ` unless --out says otherwise; with --json it
goes to stdout, and to a file only if --out names one.`,
		Example: `  trbench run --batch=1,4 --mode=eager,graph,step
  trbench run --workload=resnet18-cifar --precision=amp --gpus=1,2 --quick --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	o.cells.addPlace(f)
	o.cells.addKind(f)
	f.Var(&o.cells.variants, "variants", "variants to time: 0, 1 begin resolution with full, last batch; 2, 3 final; 4, 5 validation; all: time 2, prepare all six")
	o.ways.add(f)
	f.StringVar(&o.data, "data", data.Random, "random, learnable, or a folder with CIFAR-10's binary files")
	f.Var(&o.steps, "steps", "timed steps of a block (default 10, with --quick 4)")
	f.Var(&o.warmup, "warmup", "steps before the first block, below --steps (default 2, with --quick 1)")
	f.Uint64Var(&o.seed, "seed", 1, "of weights, data and the order of blocks")
	f.StringVar(&o.out, "out", "", "file or folder for the record (default "+defaultOut+")")
	f.BoolVar(&o.quick, "quick", false, "few steps, for a first look; verification stays")
	f.BoolVar(&o.json, "json", false, "print the record alone on stdout")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		plan, device, err := o.validate()
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), plan, device)
	}
	return cmd
}

// validate turns the options into a plan and finds everything that would stop
// the run later.
func (o *runOptions) validate() (bench.Plan, Device, error) {
	device, err := o.env.chooseDevice(o.cells.device.String())
	if err != nil {
		return bench.Plan{}, device, err
	}
	cells, err := o.cells.cells(device.Name)
	if err != nil {
		return bench.Plan{}, device, err
	}
	plan := bench.Plan{
		Cells: cells, Configurations: o.ways.configurations(device.Name),
		Steps: 10, Warmup: 2, Blocks: 4, Seed: o.seed,
		Data: o.env.data(o.data, o.seed), PrepareAll: o.cells.variants.all, Quick: o.quick,
	}
	if o.quick {
		plan.Steps, plan.Warmup, plan.Blocks = 4, 1, 2
	}
	if o.steps.values != nil {
		plan.Steps = o.steps.first()
		plan.Warmup = min(plan.Warmup, plan.Steps-1) // the default gives way
	}
	if o.warmup.values != nil {
		plan.Warmup = o.warmup.first()
	}
	if err := plan.Validate(bench.Limits{Device: device.Name, MaxRanks: device.MaxRanks}); err != nil {
		return plan, device, err
	}
	if err := checkMemory(plan.Cells, device); err != nil {
		return plan, device, err
	}
	if err := data.Check(plan.Data); err != nil {
		return plan, device, err
	}
	if target := o.target(); target != "" {
		if err := results.CheckWritable(target); err != nil {
			return plan, device, outProblem(err)
		}
	}
	return plan, device, nil
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

// outProblem names the flag as well as the place.
func outProblem(err error) error {
	var w *results.WriteError
	if errors.As(err, &w) {
		return &bench.InputError{Name: "--out", Reason: w.Error(), Hint: "--out takes a file, or a folder when it ends in /"}
	}
	return err
}

// data reads --data; a folder is relative to the working folder.
func (e *Env) data(value string, seed uint64) data.Options {
	o := data.Parse(value, seed)
	o.Dir = e.path(o.Dir)
	return o
}

func (o *runOptions) run(ctx context.Context, plan bench.Plan, device Device) error {
	r := o.newRecord(device)
	for i, c := range plan.Cells {
		name := fmt.Sprintf("%s batch %d gpus %d", c.Workload, c.Batch, c.GPUs)
		progress := func(what string) {
			fmt.Fprintf(o.env.Stderr, "[%d/%d] %s: %s\n", i+1, len(plan.Cells), name, what)
		}
		progress("starts")
		cell, err := o.env.Engine.RunCell(ctx, plan.Request(i, progress))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", name, err)
		}
		r.Cells = append(r.Cells, cell)
	}
	return o.finish(r)
}

func (o *runOptions) newRecord(device Device) *results.Record {
	return &results.Record{
		Schema:    results.Schema{Name: results.SchemaName, Major: results.SchemaMajor, Minor: results.SchemaMinor},
		Created:   o.env.Now().UTC(),
		Arguments: o.env.Args, Seed: o.seed, Quick: o.quick,
		Program: program(),
		Host:    results.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		Device:  results.Device{Name: device.Name, Description: device.Description},
	}
}

// finish stores and shows the record, stored first: the table is made from
// what was kept.
func (o *runOptions) finish(r *results.Record) error {
	var file string
	if target := o.target(); target != "" {
		var err error
		if file, err = results.Write(target, r); err != nil {
			return outProblem(err)
		}
	}
	if o.json {
		return results.Encode(o.env.Stdout, r)
	}
	if err := report.Table(o.env.Stdout, r); err != nil {
		return err
	}
	if rel, err := filepath.Rel(o.env.WorkDir, file); err == nil && filepath.IsLocal(rel) {
		file = rel
	}
	_, err := fmt.Fprintf(o.env.Stdout, "Record: %s\n", file)
	return err
}
