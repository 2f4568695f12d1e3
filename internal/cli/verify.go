package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

type verifyOptions struct {
	env   *Env
	cells *cellFlags
	ways  *configurationFlags
	libs  Libraries
	data  string
	seed  seed
	json  bool
}

func newVerifyCmd(env *Env) *cobra.Command {
	o := &verifyOptions{env: env, seed: 1, cells: newCellFlags(4), ways: newConfigurationFlags("eager", "graph", "step")}
	o.ways.sync.values = slices.Clone(o.ways.sync.known)
	o.ways.control.values = slices.Clone(o.ways.control.known)
	o.cells.gpus.values = nil // depends on the device
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "check that every mode computes the same bits, on a fixed matrix",
		Long: `verify trains an epoch at both resolutions with a last partial batch, then
validates, for a fixed matrix (AMP with SGD and averages, AMP with LARS and
averages, FP32 with SGD, frozen stem), in every configuration, and compares
all state bit for bit, of configurations with each other and of ranks where
they must be equal. It drops each ordering edge in turn and expects the hazard
check to report it. It exits 4 if anything is wrong.`,
		Args: noArgs,
	}
	f := cmd.Flags()
	o.cells.addPlace(f)
	f.Lookup("gpus").Usage = "ranks (default 2 on the CPU, else 1)"
	f.Lookup("resolution").Usage = "image sides BEGIN,FINAL in pixels (default for FINAL half the model's own, rounded down to a size it takes, and for BEGIN the size below)"
	f.Lookup("last-batch").Usage = "images TRAIN,VAL in an epoch's last batch (default one less than --batch, and half of it)"
	o.ways.add(f)
	o.cells.addTune(f, untimedAuto)
	o.libs.addLibraries(f)
	f.StringVar(&o.data, "data", data.Random, "random, learnable, or a folder with CIFAR-10's binary files")
	f.Var(&o.seed, "seed", "of weights and data")
	f.BoolVar(&o.json, "json", false, "print the report as JSON, with the counts by rank, variant and sub-graph")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		requests, err := o.validate()
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), requests)
	}
	return cmd
}

// validate makes one request a cell. A resolution or last batch that was not
// given stays 0: the matrix then chooses ones that exercise every variant.
func (o *verifyOptions) validate() ([]bench.VerifyRequest, error) {
	if err := o.ways.check(); err != nil {
		return nil, err
	}
	if err := o.env.useLibraries(o.libs, o.cells.device.String(), o.cells.kernels.values); err != nil {
		return nil, err
	}
	device, err := o.env.chooseDevice(o.cells.device.String())
	if err != nil {
		return nil, err
	}
	tune, err := o.cells.untimedTuning(o.env, device)
	if err != nil {
		return nil, err
	}
	if o.cells.gpus.values == nil {
		o.cells.gpus.values = []int{1}
		if device.Name == "cpu" {
			o.cells.gpus.values = []int{min(2, device.MaxRanks)}
		}
	}
	cells, err := o.cells.cells(device)
	if err != nil {
		return nil, err
	}
	ways := o.ways.configurations(device)
	plan := bench.Plan{Cells: cells, Configurations: ways, Steps: 1}
	if err := checkLaunchers(plan, device); err != nil {
		return nil, err
	}
	if err := plan.Validate(bench.Limits{Device: device.Name, MaxRanks: device.MaxRanks}); err != nil {
		return nil, err
	}
	if err := o.env.checkData(o.data, uint64(o.seed)); err != nil {
		return nil, err
	}
	options := o.env.data(o.data, uint64(o.seed))
	var requests []bench.VerifyRequest
	for _, c := range cells {
		c.Resolution.Begin, c.Resolution.Final = o.cells.resolution.pair()
		c.LastBatch.Train, c.LastBatch.Val = o.cells.lastBatch.pair()
		rows, err := verify.Cells(c)
		if err != nil {
			return nil, err
		}
		if err := checkMemory(rows, device); err != nil {
			return nil, err
		}
		requests = append(requests, bench.VerifyRequest{
			Cell: c, Configurations: ways, Seed: uint64(o.seed), Data: options, Tune: tune,
			Progress: func(what string) { fmt.Fprintf(o.env.Stderr, "%s gpus %d: %s\n", c.Workload, c.GPUs, what) },
		})
	}
	return requests, nil
}

// run does all cells even if one fails, and fails if any did.
func (o *verifyOptions) run(ctx context.Context, requests []bench.VerifyRequest) error {
	var reports []bench.VerifyReport
	var failures []error
	for _, r := range requests {
		got, err := o.env.Engine.Verify(ctx, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			err = fmt.Errorf("verify %s batch %d gpus %d: %w", r.Cell.Workload, r.Cell.Batch, r.Cell.GPUs, err)
			failures = append(failures, err)
		}
		reports = append(reports, got)
	}
	if err := o.print(reports); err != nil {
		return err
	}
	return errors.Join(failures...)
}

func (o *verifyOptions) print(reports []bench.VerifyReport) error {
	if o.json {
		return printJSON(o.env.Stdout, reports)
	}
	for _, r := range reports {
		if err := printVerify(o.env, r); err != nil {
			return err
		}
	}
	return nil
}

func printVerify(env *Env, r bench.VerifyReport) error {
	out := &printer{w: env.Stdout}
	out.linef("%s on %s, %d ranks", r.Workload, r.Device, r.Ranks)
	matrix := report.Grid{Header: []string{"run", "equal", "configurations", "steps", "tensors", "bytes"}, Left: 2}
	for _, m := range r.Matrix {
		equal := "yes"
		if !m.Verify.Equal {
			equal = "NO"
		}
		matrix.Rows = append(matrix.Rows, []string{m.Name, equal, strconv.Itoa(len(m.Configurations)),
			strconv.Itoa(m.Verify.Steps), strconv.Itoa(m.Verify.Tensors), report.Bytes(m.Verify.Bytes)})
	}
	out.grid(matrix)
	printTunings(out, r.Matrix)
	out.linef("")
	graphs := report.Grid{Header: []string{"id", "sub-graph", "state", "operators", "why"}, Left: 3, LeftEnd: 1}
	for _, g := range r.SubGraphs {
		graphs.Rows = append(graphs.Rows, []string{strconv.Itoa(g.ID), g.Name, g.State, strconv.FormatInt(g.Executed, 10), g.Why})
	}
	out.grid(graphs)
	out.linef("")
	// A hundred and more are implied: --json has them, here they would push the verdict off the screen.
	out.linef("hazard check: %d of %d dropped edges reported; %d more may be dropped, as other paths imply them or nothing depends on them (--json lists each)",
		r.Edges.Reported, r.Edges.Dropped, len(r.Edges.Implied))
	for _, p := range r.Problems {
		out.linef("WRONG: %s", p)
	}
	if r.Equal && len(r.Problems) == 0 {
		out.linef("all modes computed the same bits")
	}
	return out.err
}

// printTunings says how the device ran the operators, a line for each way: as a
// rule one, of all runs.
func printTunings(out *printer, matrix []bench.VerifyRun) {
	var ways []results.TuningChoice
	runs := map[string][]string{} // by the way's words
	for _, m := range matrix {
		if m.Tuning == nil {
			continue
		}
		if runs[m.Tuning.Words] == nil {
			ways = append(ways, *m.Tuning)
		}
		runs[m.Tuning.Words] = append(runs[m.Tuning.Words], m.Name)
	}
	for _, t := range ways {
		of := ""
		if len(ways) > 1 {
			of = " of " + strings.Join(runs[t.Words], "; ")
		}
		out.linef("tuning%s: %s (%s)", of, t.Words, cmp.Or(t.Rule, t.Source))
	}
}
