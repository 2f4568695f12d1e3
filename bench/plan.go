package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Plan is everything a run will do. Every cell runs in every configuration.
// It is what a record keeps of it.
type Plan results.Plan

// WarmupCap is the number of warm-up steps after which a configuration is
// timed even if its steps still show a trend. Steps below 6.25 ms count
// together until they take that long.
const WarmupCap = 64

// CellRequest asks a worker for one cell in all its configurations: one
// replicate. It is plain data, so that it can be handed to another process.
type CellRequest struct {
	Cell           results.CellKey            `json:"cell"`
	Configurations []results.ConfigurationKey `json:"configurations"`
	// Process is the replicate's index, Order the seed of its block order.
	Process int    `json:"process"`
	Order   uint64 `json:"order"`
	// Steps, Single, Blocks, Warmup and WarmupCap are the plan's.
	Steps     int  `json:"steps"`
	Single    int  `json:"single"`
	Blocks    int  `json:"blocks"`
	Warmup    *int `json:"warmup"`
	WarmupCap int  `json:"warmup_cap"`
	// Seed is of weights and data.
	Seed       uint64       `json:"seed"`
	Data       data.Options `json:"data"`
	PrepareAll bool         `json:"prepare_all"`
	Quick      bool         `json:"quick"`
	// Tune is the plan's. It has an effect where Plans have no tuning.
	Tune string `json:"tune,omitempty"`
	// Plans are library plans that the cell's first replicate chose; the others
	// run the same ones.
	Plans []json.RawMessage `json:"plans,omitempty"`
	// Time is what the replicate may take before blocks are left out; 0 for as
	// long as it takes.
	Time time.Duration `json:"time"`
	// Inject is the plan's.
	Inject *results.Injection `json:"inject,omitempty"`
	// Events, if set, is told what happens, on the goroutine that called the
	// worker.
	Events func(Event) `json:"-"`
	// Machine and AfterBlock, if set, are those of [Schedule].
	Machine    func() []results.Reading `json:"-"`
	AfterBlock func() []results.Reading `json:"-"`
	// TraceSteps are the steps of each configuration that are recorded after all
	// that is timed; 0 for none. TraceFiles are where their timelines go, one a
	// configuration; none are kept if it is empty.
	TraceSteps int      `json:"trace_steps,omitempty"`
	TraceFiles []string `json:"trace_files,omitempty"`
	// Tool, if there is one, is shown what is done.
	Tool *nvtx.Client `json:"-"`
	// Phases, if set, are told what the replicate's time goes to.
	Phases *Phases `json:"-"`
}

// Request is a replicate of the plan's i-th cell. Folders in the plan are
// relative to dir.
func (p Plan) Request(i, process int, dir string) CellRequest {
	options := data.Parse(p.Data, p.Seed)
	if options.Dir != "" && !filepath.IsAbs(options.Dir) {
		options.Dir = filepath.Join(dir, options.Dir)
	}
	return CellRequest{
		Cell: p.Cells[i], Configurations: p.Configurations, Process: process, Order: p.order(i, process),
		Steps: p.Steps, Single: p.Single, Blocks: p.Blocks, Warmup: p.Warmup, WarmupCap: p.WarmupCap,
		Seed: p.Seed, Data: options, PrepareAll: p.PrepareAll, Quick: p.Quick, TraceSteps: p.TraceSteps,
		Tune: p.Tune, Inject: p.Inject,
	}
}

// order is the seed of a replicate's block order, drawn from the plan's. It has
// 53 bits, so that tools that take every number in JSON for a double (jq, a
// browser) show it, and write it back, as it is.
func (p Plan) order(cell, process int) uint64 {
	return rand.New(rand.NewPCG(p.Seed, uint64(cell)<<32|uint64(process))).Uint64() >> 11
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
	who := fmt.Sprintf("%s and %s disagree", e.Reference, e.Other)
	if e.Reference == e.Other {
		who = e.Reference.String() + " does not repeat itself"
	}
	return fmt.Sprintf("%s on %s batch %d: rank %d, tensor %s, element %d: %s",
		who, e.Cell.Workload, e.Cell.Batch, e.Rank, e.Tensor, e.Index, e.Detail)
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
	if err := p.validateCounts(); err != nil {
		return err
	}
	for _, c := range p.Cells {
		if err := validateCell(c, l); err != nil {
			return err
		}
	}
	for _, k := range p.Configurations {
		if p.Processes == 0 {
			break // nothing is run: a command that only looks at cells
		}
		if err := validateConfiguration(k, l.Device); err != nil {
			return err
		}
	}
	return p.validateSize()
}

// validateSize refuses a plan whose record could not be read again.
func (p Plan) validateSize() error {
	samples := 0.0
	for _, c := range p.Cells {
		perBlock := 5 + float64(p.Single)*(1+5*float64(c.GPUs)) // see block: back to back, then one by one
		samples += perBlock * float64(p.Blocks) * float64(p.Processes) * float64(len(p.Configurations))
	}
	if bytes := samples * bytesPerSample; bytes > results.MaxBytes {
		return &InputError{
			Name:   "the plan",
			Reason: fmt.Sprintf("has too many samples: about %.0f million, and a record holds at most %.1f million", samples/1e6, results.MaxBytes/bytesPerSample/1e6),
			Hint:   "use fewer cells, configurations, --processes or --blocks",
		}
	}
	return nil
}

// bytesPerSample is what a sample takes in a record, as written.
const bytesPerSample = 150.0

// validateCounts checks what only a run has: 0 processes ask for none.
func (p Plan) validateCounts() error {
	if p.Warmup != nil && *p.Warmup < 0 {
		return &InputError{Name: "--warmup", Reason: fmt.Sprintf("must be at least 0, not %d", *p.Warmup)}
	}
	if p.Warmup != nil && *p.Warmup >= p.Steps {
		return &InputError{
			Name:   "--warmup",
			Reason: fmt.Sprintf("must be below --steps: %d is not below %d", *p.Warmup, p.Steps),
			Hint:   "without --warmup each configuration is warmed up until its steps show no trend",
		}
	}
	for _, n := range []struct {
		flag       string
		value, max int
	}{{"--processes", p.Processes, MaxProcesses}, {"--blocks", p.Blocks, MaxBlocks}, {"--steps", p.Steps, MaxSteps},
		{"--trace-steps", p.TraceSteps, MaxTraceSteps}} {
		if n.value > n.max {
			return &InputError{Name: n.flag, Reason: fmt.Sprintf("must be at most %d, not %d", n.max, n.value)}
		}
	}
	if p.BudgetNs > MaxBudget.Nanoseconds() {
		return &InputError{Name: "--budget", Reason: fmt.Sprintf("must be at most %v, not %v", MaxBudget, time.Duration(p.BudgetNs))}
	}
	if p.Processes < 0 || p.Blocks < 0 || p.Single < 0 || p.WarmupCap < 0 || p.BudgetNs < 0 || p.TraceSteps < 0 {
		return &InputError{Name: "the plan", Reason: "has a negative count"}
	}
	return nil
}

func validateCell(c results.CellKey, l Limits) error {
	switch {
	case c.Device != l.Device:
		return &InputError{Name: "the plan", Reason: fmt.Sprintf("has a cell for device %q, and this is device %s", c.Device, l.Device)}
	case c.Variant < 0 || c.Variant > 5:
		return &InputError{Name: "--variants", Reason: fmt.Sprintf("must be 0 to 5, not %d", c.Variant)}
	}
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

// What a run may ask for at most: far above what any figure needs, and so low
// that nothing overflows.
const (
	MaxSteps     = results.MaxSteps
	MaxBlocks    = results.MaxBlocks
	MaxProcesses = results.MaxProcesses
	// MaxTraceSteps are recorded event by event.
	MaxTraceSteps = results.MaxTraceSteps
	// MaxDispatchNs is a thousand times what a framework takes for a call. A
	// step has hundreds of them.
	MaxDispatchNs = 10_000_000
	// MaxBudget is longer than anything that anybody waits for.
	MaxBudget = 30 * 24 * time.Hour
)

// MaxBatch is the largest batch a workload is built for.
const MaxBatch = 1 << 16
