package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

func goodPlan() Plan {
	c := results.DefaultCellKey()
	c.Workload, c.Batch = "resnet20-cifar", 4
	return Plan{
		Cells:          []results.CellKey{c},
		Configurations: []results.ConfigurationKey{{Mode: "eager", Sync: "event", Control: "device", Launcher: "go", Ranks: "threads"}},
		Processes:      1, Steps: 2, Warmup: new(1), Blocks: 1,
	}
}

func TestValidate(t *testing.T) {
	if err := goodPlan().Validate(Limits{"cpu", 1}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{"nothing", func(p *Plan) { p.Cells = nil }, "the plan has nothing to run"},
		{"steps", func(p *Plan) { p.Steps = 0 }, "--steps must be at least 1, not 0"},
		{"warm-up equal", func(p *Plan) { p.Warmup = new(2) }, "--warmup must be below --steps: 2 is not below 2"},
		{"warm-up negative", func(p *Plan) { p.Warmup = new(-1) }, "--warmup must be at least 0"},
		{"batch", func(p *Plan) { p.Cells[0].Batch = 0 }, "--batch must be at least 1, not 0"},
		{"huge batch", func(p *Plan) { p.Cells[0].Batch = 1 << 40 }, "--batch must be at most 65536"},
		{"gpus", func(p *Plan) { p.Cells[0].GPUs = 2 }, "--gpus asks for 2, but device cpu has 1"},
		{"last batch", func(p *Plan) { p.Cells[0].LastBatch.Train = 5 }, "--last-batch must not exceed --batch: 5 is more than 4"},
		{"resolution", func(p *Plan) { p.Cells[0].Resolution.Begin = 33 }, "--resolution cannot be used: begin resolution 33"},
		{"device", func(p *Plan) { p.Cells[0].Device = "cuda" }, `the plan has a cell for device "cuda", and this is device cpu`},
		{"variant", func(p *Plan) { p.Cells[0].Variant = 6 }, "--variants must be 0 to 5, not 6"},
		{"negative variant", func(p *Plan) { p.Cells[0].Variant = -1 }, "--variants must be 0 to 5, not -1"},
		{"mode", func(p *Plan) { p.Configurations[0].Mode = "lazy" }, `the plan has the unknown mode "lazy"; known: eager, graph, step`},
		{"sync", func(p *Plan) { p.Configurations[0].Sync = "inside" }, `the plan has mode eager with sync "inside"`},
		{"sync of step", func(p *Plan) { p.Configurations[0].Mode = "step" }, `the plan has mode step with sync "event"`},
		{"control", func(p *Plan) { p.Configurations[0].Control = "nobody" }, `the plan has mode eager with control "nobody"`},
		{"control of step", func(p *Plan) {
			p.Configurations[0].Mode, p.Configurations[0].Sync, p.Configurations[0].Control = "step", "inside", "host"
		}, `the plan has mode step with control "host"`},
		{"launcher", func(p *Plan) { p.Configurations[0].Launcher = "purego" }, `the plan has the launcher "purego", which is none of device cpu`},
		{"no launcher", func(p *Plan) { p.Configurations[0].Launcher = "" }, `the plan has the launcher ""`},
		{"dispatch", func(p *Plan) { p.Configurations[0].DispatchNs = MaxDispatchNs + 1 }, "the plan burns 10000001 ns of dispatch; it may be 0 to 10000000"},
		{"negative dispatch", func(p *Plan) { p.Configurations[0].DispatchNs = -1 }, "the plan burns -1 ns"},
		{"captured dispatch", func(p *Plan) { p.Configurations[0].Mode, p.Configurations[0].DispatchNs = "graph", 1 }, "the plan burns dispatch in mode graph"},
		{"budget", func(p *Plan) { p.BudgetNs = int64(MaxBudget) + 1 }, "--budget must be at most 720h0m0s"},
		{"workload", func(p *Plan) { p.Cells[0].Workload = "vgg" }, "--workload cannot be used"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := goodPlan()
			test.change(&p)
			err := p.Validate(Limits{"cpu", 1})
			var in *InputError
			if !errors.As(err, &in) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestCompleteMakesEqualCellsEqual(t *testing.T) {
	a, err := Complete(goodPlan().Cells[0])
	if err != nil {
		t.Fatal(err)
	}
	b := goodPlan().Cells[0]
	b.Resolution, b.LastBatch = results.Resolution{Begin: 32, Final: 32}, results.LastBatch{Train: 4, Val: 4}
	if a != b {
		t.Errorf("completed %+v, want %+v", a, b)
	}
}

// A second launcher submits eagerly alone.
func TestSecondLauncherIsEager(t *testing.T) {
	k := configurationKey("eager", "event")
	k.Launcher = "gorgonia"
	if err := validateConfiguration(k, "cuda"); err != nil {
		t.Error(err)
	}
	k.Mode = "graph"
	if err := validateConfiguration(k, "cuda"); err == nil || err.Error() != `the plan has the launcher "gorgonia" in mode graph, whose work it does not submit` {
		t.Errorf("graph: %v", err)
	}
}
