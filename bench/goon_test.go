package bench

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// interrupted is a record of two cells whose last replicate is missing, and its
// plan.
func interrupted(t *testing.T, change func(*Plan)) *results.Record {
	t.Helper()
	p := syntheticPlan(3, 2, configurationKey("eager", "event"), configurationKey("graph", "event"))
	second := p.Cells[0]
	second.Batch = 8
	p.Cells = append(p.Cells, second)
	if change != nil {
		change(&p)
	}
	r := &results.Record{Seed: p.Seed}
	w := steady(nil)
	ctx, cancel := context.WithCancel(t.Context())
	run := Run{Plan: p, Record: r, Clock: w.clock, Replicate: func(ctx context.Context, req CellRequest) (Replicate, error) {
		if req.Cell.Batch == 8 && req.Process == 2 {
			cancel()
			return Replicate{}, errors.New("killed")
		}
		return w.replicate(ctx, req)
	}}
	if err := run.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return r
}

// What a run left can be gone on with; what somebody changed in the plan, or in
// what the record holds of it, is found and named.
func TestCheckHeld(t *testing.T) {
	var left bytes.Buffer
	r := interrupted(t, nil)
	r.Schema = results.Schema{Name: results.SchemaName, Major: results.SchemaMajor, Minor: results.SchemaMinor}
	if err := results.Encode(&left, r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*results.Record)
		want   string // empty: nothing is wrong
	}{
		{"as it was left", func(*results.Record) {}, ""},
		{"more processes", func(r *results.Record) { r.Plan.Processes = 8 }, "has a plan that was changed since the run wrote it"},
		{"a cell more", func(r *results.Record) {
			k := r.Plan.Cells[1]
			k.Batch = 16
			r.Plan.Cells = append(r.Plan.Cells, k)
		}, "has a plan that was changed since the run wrote it"},
		{"other data", func(r *results.Record) { r.Plan.Data = "learnable" }, "has a plan that was changed since the run wrote it"},
		{"a failed process", func(r *results.Record) {
			c := &r.Cells[1]
			c.Status, c.Processes = results.Failed, append(c.Processes, results.Process{Index: 2, Status: results.Failed, Seed: Plan(*r.Plan).order(1, 2)})
		}, ""},
		{"steps", func(r *results.Record) { r.Plan.Steps++ }, "resnet20-cifar batch 4 gpus 1 was run with 4 steps a block, and the plan says 5"},
		{"blocks", func(r *results.Record) { r.Plan.Blocks = 4 }, "batch 4 gpus 1 has a process 0 that timed 2 blocks, and the plan says 4"},
		{"fewer blocks", func(r *results.Record) { r.Plan.Blocks = 1 }, "a process 0 that timed 2 blocks, and the plan says 1"},
		{"single steps", func(r *results.Record) { r.Plan.Single = 3 }, "has 4 samples of latency_ns as eager/event/device from process 0, and the plan says 3 in each of 2 blocks"},
		{"warm-up", func(r *results.Record) { r.Plan.Warmup = new(3) }, "was run with 0 warm-up steps, and the plan says 3"},
		{"cap", func(r *results.Record) { r.Plan.WarmupCap = 5 }, "ends warm-up after 5 steps at most, and runs end it after 64"},
		{"seed of the plan", func(r *results.Record) { r.Plan.Seed = 2 }, "was run with --seed=1, and its plan says 2"},
		{"seed of both", func(r *results.Record) { r.Plan.Seed, r.Seed = 2, 2 }, "a process 0 that ran its blocks in the order of seed "},
		{"seed of a process", func(r *results.Record) { r.Cells[1].Processes[1].Seed++ }, "batch 8 gpus 1 has a process 1 that ran its blocks in the order of seed"},
		{"quick", func(r *results.Record) { r.Plan.Quick = true }, "was run with --quick=false, and its plan says true"},
		{"all variants", func(r *results.Record) { r.Plan.PrepareAll = true }, "the plan has prepare_all true"},
		{"cells swapped", func(r *results.Record) { slices.Reverse(r.Plan.Cells) }, "ran its blocks in the order of seed"},
		{"a cell less", func(r *results.Record) { r.Plan.Cells = r.Plan.Cells[:1] }, "holds resnet20-cifar batch 8 gpus 1, and its plan has no such cell"},
		{"a cell of another device", func(r *results.Record) { r.Cells[0].Key.Kernels = "cudnn" }, "its plan has no such cell"},
		{"a configuration more", func(r *results.Record) {
			r.Plan.Configurations = append(r.Plan.Configurations, configurationKey("step", "inside"))
		}, "was not run as step/inside/device (launcher purego, ranks threads), which is in the plan"},
		{"a configuration less", func(r *results.Record) { r.Plan.Configurations = r.Plan.Configurations[:1] }, "was run as graph/event/device (launcher purego, ranks threads), which is not in the plan"},
		{"a configuration changed", func(r *results.Record) { r.Plan.Configurations[1].Launcher = "gorgonia" }, "was run as graph/event/device (launcher purego"},
		{"fewer processes", func(r *results.Record) { r.Plan.Processes = 2 }, "has a process 2 that is none of the plan's 2"},
		{"a negative process", func(r *results.Record) { r.Cells[0].Processes[0].Index = -1 }, "has a process -1 that is none of the plan's 3"},
		{"no metrics", func(r *results.Record) { r.Cells[0].Configurations[1].Metrics = nil },
			"has 0 samples of step_time_ns as graph/event/device from process "},
		{"a sample less", func(r *results.Record) {
			m := r.Cells[0].Configurations[0].Metric(results.StepTimeNs)
			m.Samples = m.Samples[1:]
		}, "has 1 samples of step_time_ns as eager/event/device from process 0, which timed 2 blocks"},
		{"a block that was not timed", func(r *results.Record) {
			r.Cells[0].Configurations[0].Metric(results.StepTimeNs).Samples[0].Block = 2
		}, "has a sample of step_time_ns as eager/event/device from block 2 of process 0, which timed 2 blocks"},
		{"a block twice", func(r *results.Record) {
			r.Cells[0].Configurations[0].Metric(results.StepTimeNs).Samples[0].Block = 1
		}, "has block 1 of process 0 twice as eager/event/device"},
		{"a rank too many", func(r *results.Record) {
			r.Cells[0].Configurations[0].Metric(results.SubmitTimeNs).Samples[0].Rank = 1
		}, "has a sample of submit_time_ns as eager/event/device from rank 1 of 1"},
		{"a single step's sample less", func(r *results.Record) {
			m := r.Cells[0].Configurations[0].Metric(results.SubmitTimeNs)
			m.Samples = m.Samples[1:]
		}, "has 3 samples of submit_time_ns as eager/event/device from process 0, and the plan says 2 in each of 2 blocks"},
		{"a block's processor time less", func(r *results.Record) {
			m := r.Cells[0].Configurations[1].Metric(results.CPUTimeNs)
			m.Samples = m.Samples[1:]
		}, "has 1 samples of cpu_time_ns as graph/event/device from process 0, and the plan says 1 in each of 2 blocks"},
		{"a process taken out", func(r *results.Record) { r.Cells[0].Processes = r.Cells[0].Processes[1:] }, "from process 0, which did not finish"},
		{"a process that failed after all", func(r *results.Record) { r.Cells[0].Processes[2].Status = results.Failed }, "from process 2, which did not finish"},
		{"only failed ones", func(r *results.Record) {
			for i := range r.Cells[0].Processes {
				r.Cells[0].Processes[i].Status = results.Failed
			}
		}, "from process 0, which did not finish"},
		{"a process that claims to be done", func(r *results.Record) {
			c := &r.Cells[1]
			c.Processes = append(c.Processes, results.Process{Index: 2, Status: results.Done, Blocks: 2, Seed: Plan(*r.Plan).order(1, 2)})
		}, "has 0 samples of step_time_ns as eager/event/device from process 2, which timed 2 blocks"},
		{"status of the record", func(r *results.Record) { r.Status = "half" }, `has the status "half", which no run writes`},
		{"status of a cell", func(r *results.Record) { r.Cells[0].Status = "" }, `gpus 1 has the status "", which no run writes`},
		{"status of a process", func(r *results.Record) { r.Cells[0].Processes[1].Status = "well" }, `process 1 that has the status "well"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := results.Decode("r.json", bytes.NewReader(left.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			c.change(r)
			err = Plan(*r.Plan).CheckHeld(r)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "%!") {
				t.Error(err)
			}
		})
	}
	// More processes than the record planned can be asked for.
	more := Plan(*r.Plan)
	more.Processes = 8
	if err := more.CheckHeld(r); err != nil {
		t.Error(err)
	}
	// A budget leaves blocks out, all but the least; a fixed warm-up is no doubt.
	r = interrupted(t, func(p *Plan) { p.BudgetNs, p.Blocks = 1, 8 })
	if err := Plan(*r.Plan).CheckHeld(r); err != nil || r.Cells[0].Processes[0].Blocks != LeastBlocks {
		t.Errorf("with a budget: %v", err)
	}
	r.Cells[0].Processes[0].Blocks = 1
	if err := Plan(*r.Plan).CheckHeld(r); err == nil || !strings.Contains(err.Error(), "timed 1 block, and the plan says 8") {
		t.Errorf("below the least: %v", err)
	}
}
