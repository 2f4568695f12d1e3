package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// VerifySteps and QuickVerifySteps are the training steps of the check before
// anything is timed. Both train on A and on B.
const (
	VerifySteps      = 4
	QuickVerifySteps = 2
)

// RunCell builds a cell on the device, checks that all its configurations
// leave the same bits behind, and times them. It runs on the caller's
// goroutine and ends early if ctx does, between steps. If two configurations
// differ nothing is timed and the error is a [*bench.DisagreementError]; no
// error leaves a cell behind.
func RunCell(ctx context.Context, dev device.Device, req bench.CellRequest) (_ *results.Cell, err error) {
	clock := bench.System()
	defer req.Tool.StartInt(nvtx.RunName, nvtx.Run.Look(), int64(req.Process)).End()
	defer req.Tool.Start(req.Cell.Name(), nvtx.Cell.Look()).End()
	s, verify, err := openCell(ctx, dev, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		req.Phases.Begin(results.PhaseClose)
		err = errors.Join(err, s.Close())
	}()
	images, _ := s.w.Shape(s.opts.Timed)
	measured, err := bench.Measure(ctx, s.Bench(), req.Configurations, schedule(req, clock, images*s.w.Spec.Ranks), req.Events)
	if err != nil {
		return nil, err
	}
	c := s.cell(req, verify, measured)
	if chooser, ok := dev.(device.Chooser); ok {
		if c.Plans, err = chooser.Plans(); err != nil {
			return nil, err
		}
	}
	if tuner, ok := dev.(device.Tuner); ok {
		c.Warnings = append(c.Warnings, tuningDoubts(tuner.Tuned(), req.Configurations)...)
	}
	return c, nil
}

// openCell opens a request's cell and checks that its configurations agree. The
// caller closes the session; there is none beside an error.
func openCell(ctx context.Context, dev device.Device, req bench.CellRequest) (s *Session, verify results.Verify, err error) {
	var none results.Verify
	progress := func(what string) {
		if req.Events != nil {
			req.Events(bench.Event{Phase: what})
		}
	}
	variant := workloads.Variant(req.Cell.Variant)
	if req.Cell.Variant < 0 || variant >= workloads.NumVariants {
		return nil, none, fmt.Errorf("variant %d: must be 0 to %d", req.Cell.Variant, workloads.NumVariants-1)
	}
	if len(req.Configurations) == 0 {
		return nil, none, errors.New("the request names no configuration")
	}
	req.Phases.Begin(results.PhaseBuild)
	progress("build " + req.Cell.Workload)
	if chooser, ok := dev.(device.Chooser); ok {
		if err := chooser.SetPlans(req.Plans); err != nil {
			return nil, none, err
		}
	}
	if err := settleTuning(ctx, dev, req, progress); err != nil {
		return nil, none, err
	}
	req.Phases.Begin(results.PhaseBuild)
	shown := req.Tool.Start("build", nvtx.Phase.Look())
	w, err := device.NewWorkload(dev, bench.Spec(req.Cell), nil)
	shown.End()
	if err != nil {
		return nil, none, fmt.Errorf("build workload: %w", err)
	}
	source, err := data.Open(req.Data, w.Classes())
	if err != nil {
		return nil, none, err
	}
	variants := []workloads.Variant{variant}
	if req.PrepareAll {
		variants = workloads.AllVariants()
	}
	if err := ctx.Err(); err != nil {
		return nil, none, err
	}
	progress("prepare operators")
	shown = req.Tool.Start("prepare_operators", nvtx.Phase.Look())
	s, err = Open(dev, w, Options{Variants: variants, Timed: variant, Seed: req.Seed, Source: source, Context: ctx, Tool: req.Tool, Inject: req.Inject, Phases: req.Phases})
	shown.End()
	if err != nil {
		return nil, none, err
	}
	defer func() {
		if err != nil {
			s, err = nil, errors.Join(err, s.Close())
		}
	}()

	steps := VerifySteps
	if req.Quick {
		steps = QuickVerifySteps
	}
	progress(fmt.Sprintf("check that %d configurations agree", len(req.Configurations)))
	req.Phases.Begin(results.PhaseVerify)
	shown = req.Tool.StartInt("verify", nvtx.Phase.Look(), int64(steps))
	verify, err = s.Check(ctx, req.Configurations, steps)
	shown.End()
	if err != nil {
		var d *bench.DisagreementError
		if errors.As(err, &d) {
			d.Cell = req.Cell
		}
		return s, none, err
	}
	return s, verify, nil
}

// schedule is the request's, on a clock that began with it.
func schedule(req bench.CellRequest, clock bench.Clock, images int) bench.Schedule {
	return bench.Schedule{Steps: req.Steps, Blocks: req.Blocks, Single: req.Single, Warmup: req.Warmup, WarmupCap: req.WarmupCap,
		Order: req.Order, Images: images, Process: req.Process, Clock: clock, Deadline: req.Time, Machine: req.Machine, AfterBlock: req.AfterBlock,
		Tool: req.Tool, Tracing: tracing(req), Phases: req.Phases}
}

// skips doubts configurations whose timed steps did less than a step's work.
func skips(m *bench.Measured) (out []results.Warning) {
	for i, n := range m.Skipped {
		if n > 0 {
			out = append(out, results.Warning{Code: "steps_skipped", Text: fmt.Sprintf(
				"%d timed steps of %s changed no weights, as gradients were not finite: such a step leaves the optimizer's work out; try another --seed, or other --data",
				n, m.Configurations[i].Key)})
		}
	}
	return out
}

// cell describes what was run.
func (s *Session) cell(req bench.CellRequest, verify results.Verify, measured *bench.Measured) *results.Cell {
	size := s.Table().Size()
	c := &results.Cell{
		Key: req.Cell, Steps: req.Steps, Blocks: req.Blocks,
		Verify: verify, Status: results.Done,
		Memory: results.Memory{ArenaBytes: s.w.ArenaBytes, PinnedBytes: s.w.PinnedBytes},
		Atlas:  results.Atlas{Filled: size.Filled, Captured: size.Owned, Reused: size.Filled - size.Owned},
		ExecutionTable: results.ExecutionTable{
			Entries: size.Entries * s.group.Ranks(), Bytes: size.Bytes * int64(s.group.Ranks()),
		},
		Configurations: measured.Configurations,
		Processes:      []results.Process{{Index: req.Process, Readings: measured.Readings}},
	}
	if req.Warmup != nil {
		c.Warmup = *req.Warmup
	}
	if complete, err := bench.Complete(req.Cell); err == nil {
		c.Key = complete
	}
	for _, v := range s.opts.Variants {
		c.Variants = append(c.Variants, int(v))
	}
	slices.Sort(c.Variants)
	if s.group.Ranks() > 1 && c.Key.Device == "cpu" {
		c.Warnings = append(c.Warnings, results.Warning{Code: "ranks_share_cores",
			Text: "the ranks share this machine's cores, so their step times are not those of as many devices"})
	}
	if in := req.Inject; in != nil {
		c.Warnings = append(c.Warnings, results.Warning{Code: "injected", Text: fmt.Sprintf(
			"%d ns of host time were put before every submission of %s on purpose: its times are no measurement of the program", in.Ns, in.SubGraph)})
	}
	if path := req.Tool.Tool(); path != "" {
		c.Warnings = append(c.Warnings, results.Warning{Code: "tool_attached", Text: fmt.Sprintf(
			"a tool was attached (%s, by %s): timings include it", path, nvtx.PathVariable)})
	}
	c.Warnings = append(c.Warnings, skips(measured)...)
	if len(s.step) > 1 {
		c.Warnings = append(c.Warnings, results.Warning{Code: "step_begins_epoch", Text: fmt.Sprintf(
			"a step of variant %d, an epoch's last batch, transfers no next batch, so each timed one begins the next epoch as well: times, launches and nodes are of both",
			s.opts.Timed)})
	}
	return c
}
