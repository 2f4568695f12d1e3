package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Captured prepares a cell in each configuration, and says what that took, phase
// by phase, and what graphs a step of the cell's variant consists of, for commands
// that time nothing: of counts there are those of nodes alone. It ends early if
// ctx does. Nothing is left behind on the device, which runs the operators as it
// was told before.
func Captured(ctx context.Context, dev device.Device, cell results.CellKey, keys []results.ConfigurationKey) (out []results.Configuration, err error) {
	variant := workloads.Variant(cell.Variant)
	if cell.Variant < 0 || variant >= workloads.NumVariants {
		return nil, fmt.Errorf("variant %d: must be 0 to %d", cell.Variant, workloads.NumVariants-1)
	}
	w, err := device.NewWorkload(dev, bench.Spec(cell), nil)
	if err != nil {
		return nil, fmt.Errorf("build workload: %w", err)
	}
	s, err := Open(dev, w, Options{Variants: []workloads.Variant{variant}, Timed: variant, Seed: 1, Source: data.NewRandom(1, w.Classes()), Context: ctx})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, k := range keys {
		x, err := s.Executor(k)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k, err)
		}
		out = append(out, results.Configuration{Key: k, Prepare: x.Costs(), Captures: x.Captures(), Counts: x.Counts()})
	}
	return out, nil
}
