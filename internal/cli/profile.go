package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// profiledName is the hidden command that a profiler starts.
const profiledName = "profiled"

type profileOptions struct {
	env       *Env
	cells     *cellFlags
	ways      *configurationFlags
	data      string
	steps     counts
	warmup    counts
	seed      seed
	quick     bool
	out       string
	dryRun    bool
	libraries Libraries
}

func newProfileOptions(env *Env) *profileOptions {
	return &profileOptions{
		env: env, cells: newCellFlags(16), ways: newConfigurationFlags("graph"), seed: 1,
		steps:  counts{min: 1, max: 1, top: bench.MaxSteps},
		warmup: counts{values: []int{profileWarmup}, min: 0, max: 1, top: bench.MaxSteps},
	}
}

// profileWarmup is enough for clocks and caches; nothing is timed.
const profileWarmup = 10

// addFlags adds what the profiled process takes too.
func (o *profileOptions) addFlags(f *pflag.FlagSet) {
	o.cells.addPlace(f)
	o.cells.addKind(f)
	f.Var(&o.cells.variants, "variants", "the variant to profile: 0, 1 begin resolution with full, last batch; 2, 3 final; 4, 5 validation")
	o.ways.add(f)
	o.ways.addDispatch(f)
	o.cells.addTune(f, untimedAuto)
	o.libraries.addLibraries(f)
	f.StringVar(&o.data, "data", data.Random, "random, learnable, or a folder with CIFAR-10's binary files")
	f.Var(&o.steps, "steps", fmt.Sprintf("steps to record, or that the tool is shown (default %d without a tool, %d for nsys, %d for ncu)", defaultTraceSteps, stepsForSystems, stepsForCompute))
	f.Var(&o.warmup, "warmup", "steps before all others, outside of the capture")
	f.Var(&o.seed, "seed", "of weights and data")
	f.BoolVar(&o.quick, "quick", false, "verify with fewer steps")
}

func newProfileCmd(env *Env) *cobra.Command {
	o := newProfileOptions(env)
	cmd := &cobra.Command{
		Use:   "profile [flags] [-- nsys|ncu [tool arguments]]",
		Short: "record a few steps of one configuration as a timeline, or under Nsight Systems or Nsight Compute",
		Long: `profile shows where the time of a step goes: it runs one cell in one
configuration in a process of its own, verified and warmed up first.

Without a tool it records a few steps as run --trace does, times some without
recording beside them, prints what the device waited for, and writes an
annotated timeline: the host's calls, the streams, sub-graphs and steps, and
what launched what. It is a Chrome trace, which https://ui.perfetto.dev opens
and trbench analyze reads.

With -- nsys or -- ncu the steps run under that tool with the options that suit
it: graphs traced node by node, NVTX ranges, and a capture that holds the steps
alone. What follows the tool's name goes to the tool, and an option given there
replaces the one that would have been set. A profiler changes what it watches,
Nsight Compute most of all: nothing is timed then. Where the tool is not on the
PATH, the command to run elsewhere is printed, as with --dry-run.

Timelines and reports go to ` + defaultOut + ` unless --out says otherwise.`,
		Example: `  trbench profile --mode=eager
  trbench profile --workload=resnet18-cifar --batch=16 --mode=step --steps=5 --out=step.trace.json.gz
  trbench profile --workload=resnet50 --batch=64 --mode=step -- nsys
  trbench profile --mode=eager --steps=3 --out=eager -- nsys --gpu-metrics-devices=0
  trbench profile --mode=graph -- ncu --set full --launch-count 20
  trbench profile --mode=graph --dry-run -- ncu`,
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.out, "out", "", "file or folder for the timeline or the report; a tool's extension is added (default "+defaultOut+")")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "with a tool: print the command and run nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := cmd.ArgsLenAtDash()
		if stray := args[:max(at, 0)]; at < 0 {
			if stray = args; len(stray) > 0 {
				return &usageError{text: fmt.Sprintf("profile takes no %q before --; everything is a flag, as --name=value", stray[0]),
					hint: "a tool comes behind --: trbench profile [flags] -- nsys, or ncu"}
			}
		} else if len(stray) > 0 {
			return noArgs(cmd, stray)
		}
		if at < 0 || len(args) == at {
			return o.timeline(cmd.Context())
		}
		return o.under(cmd, args[at], args[at+1:])
	}
	return cmd
}

func newProfiledCmd(env *Env) *cobra.Command {
	o := newProfileOptions(env)
	cmd := &cobra.Command{
		Use:    profiledName,
		Short:  "what profile runs under a tool: one configuration, verified, warmed up, a few steps",
		Hidden: true,
		Args:   noArgs,
	}
	o.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		plan, _, err := o.validate()
		if err != nil {
			return err
		}
		return o.profiled(cmd.Context(), o.request(plan))
	}
	return cmd
}

// validate turns the options into the plan of one configuration in one process,
// and finds what would stop it.
func (o *profileOptions) validate() (bench.Plan, Device, error) {
	none := bench.Plan{}
	if err := o.ways.check(); err != nil {
		return none, Device{}, err
	}
	for _, list := range []struct {
		flag string
		n    int
	}{
		{"--workload", len(o.cells.workload.values)}, {"--batch", len(o.cells.batch.values)}, {"--gpus", len(o.cells.gpus.values)},
		{"--precision", len(o.cells.precision.values)}, {"--optimizer", len(o.cells.optimizer.values)}, {"--kernels", len(o.cells.kernels.values)},
		{"--variants", len(o.cells.variants.timed)}, {"--mode", len(o.ways.mode.values)}, {"--sync", len(o.ways.sync.values)},
		{"--control", len(o.ways.control.values)}, {"--launcher", len(o.ways.launcher.values)}, {"--dispatch-ns", len(o.ways.dispatch.values)},
	} {
		if list.n > 1 {
			return none, Device{}, &bench.InputError{Name: list.flag, Reason: fmt.Sprintf("takes one value here, not %d: a profiler is shown one configuration", list.n)}
		}
	}
	if err := o.env.useLibraries(o.libraries, o.cells.device.String(), o.cells.kernels.values); err != nil {
		return none, Device{}, err
	}
	device, err := o.env.chooseDevice(o.cells.device.String())
	if err != nil {
		return none, device, err
	}
	cells, err := o.cells.cells(device)
	if err != nil {
		return none, device, err
	}
	plan := bench.Plan{
		Cells: cells, Configurations: o.ways.configurations(device), Processes: 1, Steps: stepsForSystems, Blocks: 1,
		Seed: uint64(o.seed), Data: o.data, PrepareAll: o.cells.variants.all, Quick: o.quick,
	}
	if o.steps.values != nil {
		plan.Steps = o.steps.first()
	}
	if plan.Tune, err = o.cells.untimedTuning(o.env, device); err != nil {
		return none, device, err
	}
	if err := o.env.checkPlan(plan, device); err != nil {
		return none, device, err
	}
	return plan, device, nil
}

// request is that of the process under a tool. Its warm-up is no plan's: there
// are no blocks that it would have to be shorter than.
func (o *profileOptions) request(plan bench.Plan) bench.CellRequest {
	req := plan.Request(0, 0, o.env.WorkDir)
	req.Warmup = new(o.warmup.first())
	return req
}

// profiled is the whole life of the process under a tool.
func (o *profileOptions) profiled(ctx context.Context, req bench.CellRequest) error {
	verify, err := o.env.Engine.Profile(ctx, req)
	var d *bench.DisagreementError
	if errors.As(err, &d) {
		return fmt.Errorf("profile %s: %w", req.Cell.Name(), err)
	}
	if err != nil {
		return fmt.Errorf("profile %s, %s: %w", req.Cell.Name(), req.Configurations[0], err)
	}
	_, err = fmt.Fprintf(o.env.Stdout, "profiled %s of %s, %s, after %s of warm-up; %d tensors verified against eager\n",
		count(req.Steps, "step"), req.Configurations[0], req.Cell.Name(), count(*req.Warmup, "step"), verify.Tensors)
	return err
}

// under runs the configuration under a tool, or says how to.
func (o *profileOptions) under(cmd *cobra.Command, name string, args []string) error {
	p, err := profilerNamed(name)
	if err != nil {
		return err
	}
	if o.steps.values == nil {
		o.steps.values = []int{p.steps}
	}
	if o.libraries.CUPTI != "" {
		return &bench.InputError{Name: "--cupti", Reason: fmt.Sprintf("would be ignored: %s brings its own", p.title), Hint: "drop it, or the tool"}
	}
	plan, device, err := o.validate()
	if err != nil {
		return err
	}
	req := o.request(plan)
	if device.Name != "cuda" {
		fmt.Fprintf(o.env.Stderr, "warning: device %s has no kernels that %s could see%s\n", device.Name, p.title, p.without)
	}
	report, err := o.report(p.name, p.reports, req.Configurations[0])
	if err != nil {
		return err
	}
	options, placed := p.command(args, device.Name == "cuda", report)
	if !placed {
		report = ""
	}
	words := append([]string{name}, options...)
	words = append(words, o.env.itself(), profiledName)
	words = append(words, o.given(cmd.Flags())...)
	line := shellLine(words)
	if o.dryRun {
		_, err := fmt.Fprintln(o.env.Stdout, line)
		return err
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return &bench.InputError{Name: name, Reason: fmt.Sprintf("is not on the PATH; it comes with %s", p.title), Hint: "where it is, run: " + line}
	}
	return o.start(cmd.Context(), p, path, words[1:], report)
}

// start runs the tool and looks for its report.
func (o *profileOptions) start(ctx context.Context, p *profiler, path string, args []string, report string) error {
	if report != "" {
		if err := os.MkdirAll(filepath.Dir(report), 0o777); err != nil {
			return &bench.InputError{Name: "--out", Reason: "cannot be used: " + err.Error()}
		}
	}
	before := map[string]os.FileInfo{} // an old report is none of this run's
	for _, ext := range p.reports {
		if info, err := os.Stat(report + ext); err == nil {
			before[ext] = info
		}
	}
	run := exec.CommandContext(ctx, path, args...)
	run.Dir, run.Stdin, run.Stdout, run.Stderr = o.env.WorkDir, o.env.Stdin, o.env.Stdout, o.env.Stderr
	// It ends what it started when it is asked to, which killing would not.
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	run.WaitDelay = graceAfterInterrupt
	err := run.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && run.Process == nil:
		return &bench.InputError{Name: p.name, Reason: fmt.Sprintf("could not be started (%v)", err), Hint: fmt.Sprintf("%s is what stands first on the PATH", path)}
	case err != nil:
		return &bench.InputError{Name: p.name, Reason: fmt.Sprintf("ended without success (%v)", err), Hint: "its own words, and those of the process it ran, stand above"}
	}
	if report == "" {
		return nil // it is where the caller's own option says
	}
	for _, ext := range p.reports {
		info, err := os.Stat(report + ext)
		old := before[ext]
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 && (old == nil || !os.SameFile(info, old) || !info.ModTime().Equal(old.ModTime())) {
			_, err = fmt.Fprintf(o.env.Stdout, "Report: %s\n", o.env.short(report+ext))
			return err
		}
	}
	return &bench.InputError{Name: p.name, Reason: fmt.Sprintf("wrote no report %s", o.env.short(report+p.reports[0])), Hint: p.noReport}
}

// report is where what a tool writes goes, without any of its extensions.
func (o *profileOptions) report(tool string, extensions []string, k results.ConfigurationKey) (string, error) {
	target := o.out
	if target == "" {
		target = defaultOut
	}
	target = o.env.path(target)
	if !isFolder(target) {
		if o.out != "" {
			if _, err := os.Stat(filepath.Dir(target)); err != nil {
				return "", &bench.InputError{Name: "--out", Reason: fmt.Sprintf("cannot be used: the folder %s does not exist", filepath.Dir(target))}
			}
		}
		for _, ext := range extensions {
			target = strings.TrimSuffix(target, ext)
		}
		return target, nil
	}
	return filepath.Join(target, fmt.Sprintf("trbench-%s-%s-%s", o.env.Now().UTC().Format("20060102T150405Z"), tool, k.Mode)), nil
}

// given are the flags of the profiled process: what was given, and how many
// steps.
func (o *profileOptions) given(f *pflag.FlagSet) []string {
	var words []string
	f.Visit(func(flag *pflag.Flag) {
		if flag.Name != "out" && flag.Name != "dry-run" && flag.Name != "steps" {
			words = append(words, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return append(words, "--steps="+o.steps.String())
}

// itself is this program as another one can start it.
func (env *Env) itself() string {
	if path, err := exec.LookPath(env.Name); err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			return abs
		}
	}
	if env.Program != "" {
		return env.Program
	}
	return "trbench"
}

// shellLine is a command line that a shell understands as the words.
func shellLine(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@+%", r)
		}) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}
