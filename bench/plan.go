package bench

import (
	"fmt"
	"math"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Plan is everything a run will do. Every cell runs in every configuration.
type Plan struct {
	Cells          []results.CellKey
	Configurations []results.ConfigurationKey
	// Steps are the timed steps of a block, Warmup the untimed steps of each
	// configuration before its first block, Blocks the blocks of each.
	Steps, Warmup, Blocks int
	Seed                  uint64
	Data                  data.Options
	// PrepareAll prepares all six variants instead of the timed one alone.
	PrepareAll bool
	// Quick marks a run whose figures are for a first look.
	Quick bool
}

// CellRequest asks a worker for one cell in all its configurations.
type CellRequest struct {
	Cell                  results.CellKey
	Configurations        []results.ConfigurationKey
	Steps, Warmup, Blocks int
	Seed                  uint64
	Data                  data.Options
	PrepareAll            bool
	Quick                 bool
	// Progress, if set, is told in a few words what happens next. It may be
	// called from the goroutine that called the worker only.
	Progress func(string)
}

// Request is the plan's i-th cell as a request.
func (p Plan) Request(i int, progress func(string)) CellRequest {
	return CellRequest{
		Cell: p.Cells[i], Configurations: p.Configurations,
		Steps: p.Steps, Warmup: p.Warmup, Blocks: p.Blocks,
		Seed: p.Seed, Data: p.Data, PrepareAll: p.PrepareAll, Quick: p.Quick,
		Progress: progress,
	}
}

// DisagreementError says that two modes left different bits: nothing was
// timed, and the program exits 4.
type DisagreementError struct {
	Cell      results.CellKey
	Reference results.ConfigurationKey
	Other     results.ConfigurationKey
	// Tensor and Index place the first difference; Detail says how far apart
	// the values are, or which sub-graph is at fault.
	Rank   int
	Tensor string
	Index  int64
	Detail string
}

func (e *DisagreementError) Error() string {
	return fmt.Sprintf("%s and %s disagree on %s batch %d: rank %d, tensor %s, element %d: %s",
		e.Reference, e.Other, e.Cell.Workload, e.Cell.Batch, e.Rank, e.Tensor, e.Index, e.Detail)
}

// Limits is what the device allows.
type Limits struct {
	Device   string
	MaxRanks int
}

// InputError is a value that cannot be used: which flag or file, and why.
type InputError struct {
	Name   string // "--batch", or a file
	Reason string
	Hint   string // what to do instead; may be empty
}

func (e *InputError) Error() string { return e.Name + " " + e.Reason }

// Validate checks what no single flag can: the plan as a whole against the
// device. The error is an [*InputError].
func (p Plan) Validate(l Limits) error {
	if len(p.Cells) == 0 || len(p.Configurations) == 0 {
		return &InputError{Name: "the plan", Reason: "has nothing to run"}
	}
	if p.Steps < 1 {
		return &InputError{Name: "--steps", Reason: fmt.Sprintf("must be at least 1, not %d", p.Steps)}
	}
	if p.Warmup < 0 {
		return &InputError{Name: "--warmup", Reason: fmt.Sprintf("must be at least 0, not %d", p.Warmup)}
	}
	if p.Warmup >= p.Steps {
		return &InputError{Name: "--warmup", Reason: fmt.Sprintf("must be below --steps: %d is not below %d", p.Warmup, p.Steps)}
	}
	for _, c := range p.Cells {
		if err := validateCell(c, l); err != nil {
			return err
		}
	}
	return nil
}

func validateCell(c results.CellKey, l Limits) error {
	for _, n := range []struct {
		flag       string
		value, max int
	}{{"--batch", c.Batch, MaxBatch}, {"--gpus", c.GPUs, math.MaxInt}} {
		if n.value < 1 {
			return &InputError{Name: n.flag, Reason: fmt.Sprintf("must be at least 1, not %d", n.value)}
		}
		if n.value > n.max {
			return &InputError{Name: n.flag, Reason: fmt.Sprintf("must be at most %d, not %d", n.max, n.value)}
		}
	}
	if c.GPUs > l.MaxRanks {
		return &InputError{
			Name:   "--gpus",
			Reason: fmt.Sprintf("asks for %d, but device %s has %d", c.GPUs, l.Device, l.MaxRanks),
			Hint:   fmt.Sprintf("use --gpus=%d or less", l.MaxRanks),
		}
	}
	if last := max(c.LastBatch.Train, c.LastBatch.Val); last > c.Batch {
		return &InputError{Name: "--last-batch", Reason: fmt.Sprintf("must not exceed --batch: %d is more than %d", last, c.Batch)}
	}
	if min(c.LastBatch.Train, c.LastBatch.Val) < 0 {
		return &InputError{Name: "--last-batch", Reason: "must be at least 1"}
	}
	return validateSpec(c)
}

// validateSpec asks the workload; what is left for it to refuse is the
// resolution.
func validateSpec(c results.CellKey) error {
	spec, err := Spec(c).Defaults()
	if err != nil {
		return &InputError{Name: "--workload", Reason: "cannot be used: " + err.Error()}
	}
	if err := spec.Validate(); err != nil {
		return &InputError{Name: "--resolution", Reason: "cannot be used: " + err.Error()}
	}
	return nil
}

// MaxBatch is the largest batch a workload is built for.
const MaxBatch = 1 << 16
