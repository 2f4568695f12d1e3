package cli

import (
	"context"
	"fmt"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// NewEngine wires the devices of this build.
func NewEngine() Engine {
	return Engine{
		Devices: devices,
		RunCell: func(context.Context, bench.CellRequest) (results.Cell, error) {
			return results.Cell{}, fmt.Errorf("run on the CPU: %w", errNotBuilt)
		},
		Verify: func(context.Context, bench.VerifyRequest) (bench.VerifyReport, error) {
			return bench.VerifyReport{}, fmt.Errorf("verify on the CPU: %w", errNotBuilt)
		},
	}
}

func devices() []Device {
	return []Device{
		{Name: "cuda", Missing: "the CUDA device is not built yet in this version"},
		{Name: "cpu", MaxRanks: 8, Description: "reference arithmetic on this machine's CPU; ranks are threads",
			Target: workloads.Target{Lowering: workloads.Fused}},
	}
}
