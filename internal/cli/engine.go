package cli

import (
	"context"
	"fmt"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
)

// NewEngine wires the devices of this build.
func NewEngine() Engine {
	reference := cpu.New(cpu.Options{})
	open := func(name string) (device.Device, error) {
		if name != reference.Name() {
			return nil, fmt.Errorf("open device %s: this build has no such device", name)
		}
		return reference, nil
	}
	return Engine{
		Devices: func() []Device { return devices(reference) },
		RunCell: func(ctx context.Context, req bench.CellRequest) (*results.Cell, error) {
			dev, err := open(req.Cell.Device)
			if err != nil {
				return nil, err
			}
			return worker.RunCell(ctx, dev, req)
		},
		Verify: func(ctx context.Context, req bench.VerifyRequest) (bench.VerifyReport, error) {
			dev, err := open(req.Cell.Device)
			if err != nil {
				return bench.VerifyReport{}, err
			}
			return verify.Run(ctx, dev, req, verify.Faults{})
		},
	}
}

// devices lists what --device can name, the fastest first.
func devices(reference device.Device) []Device {
	return []Device{
		{Name: "cuda", Missing: "the CUDA device is not built yet in this version"},
		{
			Name: reference.Name(), MaxRanks: reference.MaxRanks(), Target: reference.Target(),
			MemoryBytes: hostMemory(),
			Description: "reference arithmetic on this machine's CPU; ranks are threads",
		},
	}
}
