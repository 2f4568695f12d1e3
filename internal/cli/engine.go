package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/gorgonia"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// NewEngine wires the devices of this build. getenv is the environment's;
// libraries says where the GPU's libraries are, empty fields search.
func NewEngine(getenv func(string) string, libraries Libraries) Engine {
	return newEngine(newGPU(getenv, libraries))
}

func newEngine(gpu *gpu) Engine {
	reference := cpu.New(cpu.Options{})
	watched := &watcher{getenv: gpu.getenv}
	open := func(k results.CellKey, ways []results.ConfigurationKey) (device.Device, error) {
		if k.Device == reference.Name() {
			return reference, nil
		}
		return gpu.open(k.Kernels, slices.ContainsFunc(ways, results.ConfigurationKey.SecondLauncher))
	}
	readings := func(ctx context.Context, name string) []results.Reading {
		from := machine.Local(program())
		if name != reference.Name() {
			from.GPU = gpu.now()
		}
		return machine.Now(ctx, from)
	}
	return Engine{
		Devices: func(name string) (out []Device) {
			if name == "" || name == "cuda" {
				out = append(out, gpu.describe())
			}
			if name == "" || name == reference.Name() {
				out = append(out, describeCPU(reference))
			}
			return out
		},
		UseLibraries: gpu.use,
		Libraries:    gpu.states,
		RunCell: func(ctx context.Context, req bench.CellRequest) (*results.Cell, error) {
			dev, err := open(req.Cell, req.Configurations)
			if err != nil {
				return nil, err
			}
			req.Machine = func() []results.Reading { return readings(ctx, req.Cell.Device) }
			if path := gpu.getenv(nvtx.PathVariable); path != "" && req.Events != nil {
				req.Events(bench.Event{Phase: "attach the NVTX tool " + path})
			}
			if req.Tool, err = watched.attach(); errors.Is(err, nvtx.ErrHangs) {
				return nil, err // it is at work beside whatever would be timed
			} // what else is wrong with it is said in the record
			if req.Cell.Device != reference.Name() {
				read, done := gpu.watch()
				defer done()
				req.AfterBlock = read
			}
			cell, err := worker.RunCell(ctx, dev, req)
			watched.doubt(cell)
			return cell, err
		},
		Tool: watched.describe,
		Profile: func(ctx context.Context, req bench.CellRequest) (results.Verify, error) {
			dev, err := open(req.Cell, req.Configurations)
			if err != nil {
				return results.Verify{}, err
			}
			if req.Tool, err = watched.attach(); err != nil {
				// There would be no ranges to look for.
				return results.Verify{}, &bench.InputError{Name: nvtx.PathVariable, Reason: "cannot be used: " + err.Error()}
			}
			return worker.Profile(ctx, dev, req)
		},
		Readings: readings,
		Machine: func(ctx context.Context, d Device) results.Environment {
			if d.Name == reference.Name() {
				return readMachine(ctx, nil, nil)
			}
			return readMachine(ctx, gpu.environment(), gpu.calibrate)
		},
		CheckTrace: func(name string, try bool) error {
			if name == reference.Name() {
				return nil
			}
			return gpu.checkTrace(try)
		},
		CalibrateTrace: func(name string) (*results.TraceCalibration, error) {
			if name == reference.Name() {
				return nil, errors.New(bench.NoLayers)
			}
			return gpu.calibrateTrace()
		},
		Tuned: func(k results.CellKey, tune string) (workloads.Target, *results.TuningChoice, error) {
			dev, err := open(k, nil)
			if err != nil {
				return workloads.Target{}, nil, err
			}
			c, err := worker.UseTuning(dev, bench.Spec(k), tune)
			return dev.Target(), c, err
		},
		Captured: func(ctx context.Context, k results.CellKey, ways []results.ConfigurationKey) ([]results.Configuration, error) {
			dev, err := open(k, ways)
			if err != nil {
				return nil, err
			}
			return worker.Captured(ctx, dev, k, ways)
		},
		Verify: func(ctx context.Context, req bench.VerifyRequest) (bench.VerifyReport, error) {
			dev, err := open(req.Cell, req.Configurations)
			if err != nil {
				return bench.VerifyReport{}, err
			}
			return verify.Run(ctx, dev, req, verify.Faults{})
		},
	}
}

func describeCPU(d device.Device) Device {
	const elsewhere = "use --device=cuda on a machine with an NVIDIA GPU"
	out := Device{
		Name: d.Name(), MaxRanks: d.MaxRanks(), Target: d.Target(), MemoryBytes: hostMemory(),
		Kernels: []string{"reference"}, KernelsHint: elsewhere, Launchers: []string{"go"}, LaunchersHint: elsewhere,
		Description: "reference arithmetic on this machine's CPU; ranks are threads",
	}
	if _, err := gorgonia.New(); err != nil {
		out.LaunchersHint += "; for gorgonia, " + err.Error()
	}
	return out
}

// readMachine reads and calibrates the machine this runs on, in about a tenth
// of a second, and its GPU, which takes seconds.
func readMachine(ctx context.Context, gpu machine.GPU, calibrateGPU func() ([]results.Reading, error)) results.Environment {
	from := machine.Local(program())
	from.GPU = gpu
	e := machine.Read(ctx, from)
	e.Calibration = machine.Calibrate(machine.Monotonic())
	if calibrateGPU == nil || ctx.Err() != nil {
		return e
	}
	more, err := calibrateGPU()
	if err != nil {
		e.Fields = append(e.Fields, results.EnvironmentField{Name: gpuCalibration, Role: results.Bed, Why: err.Error()})
		return e
	}
	e.Calibration = append(e.Calibration, more...)
	return e
}
