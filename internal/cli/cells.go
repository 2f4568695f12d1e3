package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device/cuda"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// cellFlags are the flags that name cells. Lists multiply.
type cellFlags struct {
	workload, precision, optimizer names
	batch, gpus                    counts
	resolution, lastBatch          counts
	ema, freezeStem                bool
	smoothing                      fraction
	variants                       variants
	device, kernels                names
	tune                           tune
	tuneGiven                      func() bool
}

func newCellFlags(batches ...int) *cellFlags {
	return &cellFlags{
		workload:  names{values: []string{workloads.Models()[0]}, known: workloads.Models()},
		precision: names{values: []string{"fp32"}, known: []string{"fp32", "amp"}},
		optimizer: names{values: []string{"sgd"}, known: []string{"sgd", "nesterov", "lars"}},
		batch:     counts{values: batches, min: 1},
		gpus:      counts{values: []int{1}, min: 1},
		// Absent means the model's own resolution and full last batches.
		resolution: counts{min: 1, max: 2},
		lastBatch:  counts{min: 1, max: 2},
		variants:   variants{timed: []int{defaultVariant}},
		tune:       bench.TuneAuto,
		device:     names{values: []string{"auto"}, known: []string{"auto", "cpu", "cuda"}, one: true},
		kernels:    names{values: []string{"auto"}, known: []string{"auto", "builtin", "cudnn", "reference"}},
	}
}

// addPlace adds what every command that builds a workload takes.
func (f *cellFlags) addPlace(s *pflag.FlagSet) {
	s.Var(&f.workload, "workload", "what to train: "+strings.Join(f.workload.known, ", "))
	s.Var(&f.batch, "batch", "images a rank and step")
	s.Var(&f.gpus, "gpus", "ranks; on the CPU a rank is a thread with streams of its own")
	s.Var(&f.resolution, "resolution", "image sides BEGIN,FINAL in pixels (default the model's own)")
	s.Var(&f.lastBatch, "last-batch", "images TRAIN,VAL in an epoch's last batch (default a full batch)")
	s.Var(&f.device, "device", "auto, cpu or cuda")
	s.Var(&f.kernels, "kernels", "whose operators run on a GPU: builtin (the project's own) or cudnn (cuDNN and cuBLAS where they have a plan); auto takes cudnn where it is installed")
}

// addTune adds --tune; auto says what its default does.
func (f *cellFlags) addTune(s *pflag.FlagSet, auto string) {
	f.tuneGiven = func() bool { return s.Changed("tune") }
	s.Var(&f.tune, "tune", "how a GPU runs a cell's operators: auto ("+auto+"), rule (a rule of thumb), none, or words with commas between them: "+
		"fills, copies, dependent, join, mask, stem, onekernel, and one of serial and hazards")
}

// tuning resolves --tune for a device: empty where there is no choice. The
// override of the environment is a way as the flag names it.
func (f *cellFlags) tuning(env *Env, device Device) (string, error) {
	given := f.tuneGiven()
	over := env.variable("TRBENCH_TUNING")
	switch {
	case given && over != "":
		return "", &bench.InputError{Name: "--tune", Reason: "cannot be used beside TRBENCH_TUNING", Hint: "drop one"}
	case device.Name == "cpu" && given && f.tune != bench.TuneAuto && f.tune != "none":
		return "", &bench.InputError{Name: "--tune=" + string(f.tune), Reason: "would be ignored: device cpu runs its operators in one way", Hint: "drop it, or use --device=cuda"}
	case device.Name == "cpu":
		return "", nil
	case over != "":
		if _, err := cuda.ParseTuning(over); err != nil {
			return "", &bench.InputError{Name: "TRBENCH_TUNING", Reason: err.Error()}
		}
		return over, nil
	}
	return string(f.tune), nil
}

// untimedTuning is [cellFlags.tuning] for a command that times nothing.
func (f *cellFlags) untimedTuning(env *Env, device Device) (string, error) {
	tune, err := f.tuning(env, device)
	if tune == bench.TuneAuto {
		tune = bench.TuneRule
	}
	return tune, err
}

// untimedAuto says what --tune=auto does there.
const untimedAuto = "the rule here: nothing is timed"

// tune is --tune's value.
type tune string

var _ pflag.Value = (*tune)(nil)

func (t *tune) Type() string   { return "WORDS" }
func (t *tune) String() string { return string(*t) }

func (t *tune) Set(s string) error {
	if s == "" {
		return errors.New("is empty; it takes auto, rule, none, or words with commas between them")
	}
	if s != bench.TuneAuto && s != bench.TuneRule {
		if _, err := cuda.ParseTuning(s); err != nil {
			return fmt.Errorf("cannot be used: %s", strings.TrimPrefix(err.Error(), fmt.Sprintf("tuning %q: ", s)))
		}
	}
	*t = tune(s)
	return nil
}

// addKind adds what varies the training itself.
func (f *cellFlags) addKind(s *pflag.FlagSet) {
	s.Var(&f.precision, "precision", "fp32, amp")
	s.Var(&f.optimizer, "optimizer", "sgd, nesterov, lars")
	s.BoolVar(&f.ema, "ema", false, "keep averaged weights")
	s.Var(&f.smoothing, "smoothing", "label smoothing")
	s.BoolVar(&f.freezeStem, "freeze-stem", false, "train without the first layer")
}

// pair reads BEGIN,FINAL or one value for both.
func (c *counts) pair() (int, int) {
	switch len(c.values) {
	case 0:
		return 0, 0
	case 1:
		return c.values[0], c.values[0]
	}
	return c.values[0], c.values[1]
}

// cells is the cross product, with the workloads' defaults filled in.
func (f *cellFlags) cells(device Device) ([]results.CellKey, error) {
	base := results.DefaultCellKey()
	base.Device, base.EMA, base.Frozen, base.Smoothing = device.Name, f.ema, f.freezeStem, float64(f.smoothing)
	base.Resolution.Begin, base.Resolution.Final = f.resolution.pair()
	base.LastBatch.Train, base.LastBatch.Val = f.lastBatch.pair()
	kernels, err := f.kernelSets(device)
	if err != nil {
		return nil, err
	}
	cells := []results.CellKey{base}
	cells = cross(cells, kernels, func(c *results.CellKey, v string) { c.Kernels = v })
	cells = cross(cells, f.workload.values, func(c *results.CellKey, v string) { c.Workload = v })
	cells = cross(cells, f.precision.values, func(c *results.CellKey, v string) { c.Precision = v })
	cells = cross(cells, f.optimizer.values, func(c *results.CellKey, v string) { c.Optimizer = v })
	cells = cross(cells, f.variants.timed, func(c *results.CellKey, v int) { c.Variant = v })
	cells = cross(cells, f.gpus.values, func(c *results.CellKey, v int) { c.GPUs = v })
	cells = cross(cells, f.batch.values, func(c *results.CellKey, v int) { c.Batch = v })
	for i := range cells {
		var err error
		if cells[i], err = bench.Complete(cells[i]); err != nil {
			return nil, &bench.InputError{Name: "--workload", Reason: "cannot be used: " + err.Error()}
		}
	}
	return cells, nil
}

// kernelSets resolves --kernels for a device.
func (f *cellFlags) kernelSets(d Device) ([]string, error) {
	var out []string
	for _, k := range f.kernels.values {
		if k == "auto" {
			k = d.Kernels[0]
		}
		if !slices.Contains(d.Kernels, k) {
			return nil, &bench.InputError{
				Name: "--kernels=" + k, Reason: fmt.Sprintf("cannot be used on device %s, which has: %s", d.Name, strings.Join(d.Kernels, ", ")),
				Hint: d.KernelsHint,
			}
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

// cross multiplies a list by the values of one field; the last field varies
// fastest.
func cross[T, V any](list []T, values []V, set func(*T, V)) []T {
	out := make([]T, 0, len(list)*len(values))
	for _, item := range list {
		for _, v := range values {
			set(&item, v)
			out = append(out, item)
		}
	}
	return out
}

// configurationFlags are the flags that name ways to run a cell.
type configurationFlags struct {
	mode, sync, control names
	launcher            names  // of eager's operators; empty: the device's first
	dispatch            counts // ns
}

func newConfigurationFlags(modes ...string) *configurationFlags {
	return &configurationFlags{
		mode:     names{values: modes, known: []string{"eager", "graph", "step"}},
		sync:     names{values: []string{"event"}, known: []string{"event", "host"}},
		control:  names{values: []string{"device"}, known: []string{"device", "host"}},
		launcher: names{known: []string{"purego", "gorgonia", "go"}},
		dispatch: counts{values: []int{0}, min: 0, top: bench.MaxDispatchNs},
	}
}

// addDispatch adds the axis that only timing has a use for.
func (f *configurationFlags) addDispatch(s *pflag.FlagSet) {
	s.Var(&f.dispatch, "dispatch-ns", "host time burnt before each eager submission, to stand for a framework's dispatcher, in nanoseconds")
}

func (f *configurationFlags) add(s *pflag.FlagSet) {
	s.Var(&f.mode, "mode", "eager: every node submitted by the host; graph: every sub-graph captured; step: one graph")
	s.Var(&f.sync, "sync", "how eager and graph join streams: event, host (step joins inside)")
	s.Var(&f.control, "control", "where eager and graph decide on skipping, scale and rate: device, host (step: device)")
	s.Var(&f.launcher, "launcher", "who submits eager's operators on a GPU: purego, gorgonia (gorgonia.org/cu, with --kernels=builtin); go on the CPU (default the device's own)")
}

// check refuses what would be ignored: each value that was asked for must be
// run in some mode.
func (f *configurationFlags) check() error {
	only := func(modes ...string) bool {
		return !slices.ContainsFunc(f.mode.values, func(m string) bool { return !slices.Contains(modes, m) })
	}
	beyond := func(n names, def string) bool {
		return n.given && slices.ContainsFunc(n.values, func(v string) bool { return v != def })
	}
	ignored := func(flag, value, why, hint string) error {
		return &bench.InputError{Name: "--" + flag + "=" + value, Reason: "would be ignored: " + why, Hint: hint}
	}
	switch {
	case only("step") && beyond(f.sync, "event"):
		return ignored("sync", f.sync.String(), "mode step joins its streams inside the graph", "add --mode=eager or graph, or drop --sync")
	case only("step") && beyond(f.control, "device"):
		return ignored("control", f.control.String(), "mode step has control on the device only", "add --mode=eager or graph, or drop --control")
	case only("step", "graph") && beyond(f.launcher, "purego") && beyond(f.launcher, "go"):
		return ignored("launcher", f.launcher.String(), "captured work is launched by the project's own binding", "add --mode=eager, or drop --launcher")
	case only("step", "graph") && slices.ContainsFunc(f.dispatch.values, func(ns int) bool { return ns > 0 }):
		return ignored("dispatch-ns", f.dispatch.String(), "captured work is not dispatched", "add --mode=eager, or drop --dispatch-ns")
	}
	return nil
}

// configurations is the cross product; step has one configuration, whatever
// sync and control say, and launcher and dispatch are of eager alone.
func (f *configurationFlags) configurations(d Device) []results.ConfigurationKey {
	base := results.DefaultConfigurationKey()
	base.Launcher = d.Launchers[0]
	launchers := f.launcher.values
	if len(launchers) == 0 {
		launchers = d.Launchers[:1]
	}
	list := []results.ConfigurationKey{base}
	list = cross(list, f.mode.values, func(c *results.ConfigurationKey, v string) { c.Mode = v })
	list = cross(list, f.sync.values, func(c *results.ConfigurationKey, v string) { c.Sync = v })
	list = cross(list, f.control.values, func(c *results.ConfigurationKey, v string) { c.Control = v })
	list = cross(list, launchers, func(c *results.ConfigurationKey, v string) { c.Launcher = v })
	list = cross(list, f.dispatch.values, func(c *results.ConfigurationKey, v int) { c.DispatchNs = int64(v) })
	var out []results.ConfigurationKey
	for _, c := range list {
		if c.Mode == "step" {
			c.Sync, c.Control = "inside", "device"
		}
		if c.Mode != "eager" {
			c.DispatchNs, c.Launcher = 0, base.Launcher // captured work is not dispatched
		}
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// checkLaunchers refuses a launcher that the device does not have, or that
// cannot submit what it would have to.
func checkLaunchers(plan bench.Plan, d Device) error {
	for _, k := range plan.Configurations {
		if !slices.Contains(d.Launchers, k.Launcher) {
			return &bench.InputError{
				Name: "--launcher=" + k.Launcher, Reason: fmt.Sprintf("cannot be used on device %s, which has: %s", d.Name, strings.Join(d.Launchers, ", ")),
				Hint: d.LaunchersHint,
			}
		}
		if !k.SecondLauncher() {
			continue
		}
		for _, c := range plan.Cells {
			if c.Kernels != "builtin" {
				return &bench.InputError{
					Name:   "--launcher=" + k.Launcher,
					Reason: fmt.Sprintf("cannot be used with --kernels=%s, whose libraries launch for themselves", c.Kernels),
					Hint:   "--kernels=builtin runs the project's own kernels alone, which either launcher can submit",
				}
			}
		}
	}
	return nil
}

// chooseDevice resolves --device: auto takes the first that can be used, but
// stops at one that is there and cannot. A device that is not asked for is not
// looked at.
func (env *Env) chooseDevice(name string) (Device, error) {
	var reasons []string
	only := name
	if name == "auto" {
		only = ""
	}
	for _, d := range env.Engine.Devices(only) {
		switch {
		case name != "auto" && name != d.Name:
		case name == "auto" && d.Refused:
			return Device{}, &bench.InputError{
				Name:   "--device=auto",
				Reason: fmt.Sprintf("would leave out device %s, which is there: %s", d.Name, d.Missing),
				Hint:   "--device=cpu runs without it",
			}
		case d.Missing == "" && d.Name == "cpu" && len(env.GPULibraries.words()) > 0:
			return d, &bench.InputError{Name: env.GPULibraries.words()[0], Reason: "would be ignored: " + strings.Join(reasons, "; ")}
		case d.Missing == "":
			return d, nil
		default:
			reasons = append(reasons, d.Missing)
		}
	}
	return Device{}, &bench.InputError{
		Name:   "--device=" + name,
		Reason: fmt.Sprintf("cannot be used: %s", strings.Join(reasons, "; ")),
		Hint:   "--device=cpu runs anywhere; trbench info says what this machine has",
	}
}
