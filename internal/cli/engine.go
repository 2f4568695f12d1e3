package cli

import (
	"context"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
)

// NewEngine wires the devices of this build. getenv is the environment's;
// libraries says where the GPU's libraries are, empty fields search.
func NewEngine(getenv func(string) string, libraries Libraries) Engine {
	reference := cpu.New(cpu.Options{})
	gpu := newGPU(getenv, libraries)
	open := func(k results.CellKey) (device.Device, error) {
		if k.Device == reference.Name() {
			return reference, nil
		}
		return gpu.open(k.Kernels)
	}
	readings := func(ctx context.Context, name string) []results.Reading {
		from := machine.Local(program())
		if name != reference.Name() {
			from.GPU = gpu.now()
		}
		return machine.Now(ctx, from)
	}
	return Engine{
		Devices: func() []Device {
			return []Device{
				gpu.describe(),
				{
					Name: reference.Name(), MaxRanks: reference.MaxRanks(), Target: reference.Target(),
					MemoryBytes: hostMemory(), Kernels: []string{"reference"}, KernelsHint: "use --device=cuda on a machine with an NVIDIA GPU",
					Description: "reference arithmetic on this machine's CPU; ranks are threads",
				},
			}
		},
		RunCell: func(ctx context.Context, req bench.CellRequest) (*results.Cell, error) {
			dev, err := open(req.Cell)
			if err != nil {
				return nil, err
			}
			req.Machine = func() []results.Reading { return readings(ctx, req.Cell.Device) }
			return worker.RunCell(ctx, dev, req)
		},
		Readings: readings,
		Machine: func(ctx context.Context, d Device) results.Environment {
			if d.Name == reference.Name() {
				return readMachine(ctx, nil, nil)
			}
			return readMachine(ctx, gpu.environment(), gpu.calibrate)
		},
		Verify: func(ctx context.Context, req bench.VerifyRequest) (bench.VerifyReport, error) {
			dev, err := open(req.Cell)
			if err != nil {
				return bench.VerifyReport{}, err
			}
			return verify.Run(ctx, dev, req, verify.Faults{})
		},
	}
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
		e.Fields = append(e.Fields, results.EnvironmentField{Name: "gpu.calibration", Role: results.Bed, Why: err.Error()})
		return e
	}
	e.Calibration = append(e.Calibration, more...)
	return e
}
