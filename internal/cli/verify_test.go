package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// breaking is the real engine with a workload broken on purpose.
func breaking(f verify.Faults) Engine {
	e := fakeEngine()
	e.Verify = func(ctx context.Context, r bench.VerifyRequest) (bench.VerifyReport, error) {
		return verify.Run(ctx, cpu.New(cpu.Options{}), r, f)
	}
	return e
}

// A broken workload prints the place and exits 4, be it that modes disagree or
// that all do the same wrong thing.
func TestVerifyOfABrokenWorkload(t *testing.T) {
	emptied := func(g workloads.SubGraph) workloads.Edit {
		return func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
			if id == g {
				return nil
			}
			return n
		}
	}
	for _, c := range []struct {
		name   string
		faults verify.Faults
		want   string
	}{
		{"emptied", verify.Faults{Edit: emptied(workloads.UpdateStats)}, "UPDATE_STATS"},
		{"restore dropped", verify.Faults{SkipRestore: 2}, "state was not restored before graph/event/device"},
		{"swapped", verify.Faults{Edit: func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
			if id == workloads.DeepFwdBwd {
				n[3], n[4] = n[4], n[3]
			}
			return n
		}}, "DEEP_FWD_BWD/layer"},
		{"learning rate frozen", verify.Faults{Edit: func(_ workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
			for _, node := range n {
				if node.Op == workloads.OpControl {
					node.Attr.Control.Rates = 1
				}
			}
			return n
		}}, "learning rate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := invoke(t, t.Context(), breaking(c.faults), t.TempDir(),
				"verify", "--workload=golden-tiny", "--batch=2", "--mode=eager,graph", "--sync=event", "--control=device")
			wrong := ""
			for line := range strings.Lines(stdout) {
				if rest, ok := strings.CutPrefix(line, "WRONG: "); ok {
					wrong += rest
				}
			}
			if code != exitDisagree || !strings.Contains(wrong, c.want) || !strings.Contains(stderr, "\ntrbench: verify golden-tiny batch 2 gpus 2: ") {
				t.Errorf("exit %d, problems\n%s\nstderr %s", code, wrong, stderr)
			}
			if strings.Contains(stdout, "all modes computed the same bits") {
				t.Error("it says that all is well")
			}
		})
	}
	code, stdout, stderr := invoke(t, t.Context(), breaking(verify.Faults{}), t.TempDir(),
		"verify", "--workload=golden-tiny", "--batch=2", "--mode=eager,graph", "--sync=event", "--control=device")
	if code != exitOK || !strings.Contains(stdout, "all modes computed the same bits") {
		t.Errorf("unbroken: exit %d, %s", code, stderr)
	}
}

// The memory that verify asks for is the matrix's: at half the model's
// resolution, in the precisions it runs.
func TestVerifyChecksTheMatrixsMemory(t *testing.T) {
	need := func(memory int64) (int, string) {
		e := fakeEngine()
		devices := e.Devices("")
		devices[1].MemoryBytes = memory
		e.Devices = func(string) []Device { return devices }
		code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), "verify", "--workload=resnet18-cifar", "--batch=256", "--gpus=1")
		return code, stderr
	}
	cell := results.DefaultCellKey()
	cell.Workload, cell.Batch, cell.Device = "resnet18-cifar", 256, "cpu"
	cell.Resolution, cell.LastBatch = results.CellKey{}.Resolution, results.CellKey{}.LastBatch
	rows, err := verify.Cells(cell)
	if err != nil {
		t.Fatal(err)
	}
	largest := int64(0)
	for _, c := range rows {
		w, err := workloads.New(bench.Spec(c), workloads.Target{Lowering: workloads.Fused})
		if err != nil {
			t.Fatal(err)
		}
		if c.Resolution.Final != 16 || c.Resolution.Begin != 8 || c.LastBatch.Train != 255 || c.LastBatch.Val != 128 {
			t.Errorf("a row runs %+v %+v", c.Resolution, c.LastBatch)
		}
		largest = max(largest, w.ArenaBytes+w.PinnedBytes)
	}
	if code, stderr := need(largest); code != exitOK {
		t.Errorf("with all it needs: exit %d, %s", code, stderr)
	}
	if code, stderr := need(largest - 1); code != exitUsage || !strings.Contains(stderr, "--batch") {
		t.Errorf("with a byte less: exit %d, %s", code, stderr)
	}
}

// --tune of verify is run's, but times nothing; what ran stands in the report.
func TestVerifyTuned(t *testing.T) {
	for _, c := range []struct{ flag, variable, asked string }{
		{"", "", "rule"}, {"--tune=auto", "", "rule"}, {"--tune=rule", "", "rule"}, {"--tune=none", "", "none"},
		{"--tune=join,serial", "", "join,serial"}, {"", "mask", "mask"},
	} {
		var asked []string
		e := gpuEngine("purego")
		e.Verify = func(_ context.Context, r bench.VerifyRequest) (bench.VerifyReport, error) {
			asked = append(asked, r.Tune)
			given := &results.TuningChoice{Words: "fills", Source: results.TuningGiven}
			rule := &results.TuningChoice{Words: "fills,hazards", Source: results.TuningRule, Rule: "nothing is timed here: small ones"}
			return bench.VerifyReport{Device: "cuda", Equal: true, Matrix: []bench.VerifyRun{
				{Name: "AMP, SGD", Tuning: rule}, {Name: "AMP, LARS", Tuning: rule}, {Name: "FP32", Tuning: given}}}, nil
		}
		args := []string{"verify", "--device=cuda"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		env := func(name string) string { return map[string]string{"TRBENCH_TUNING": c.variable}[name] }
		code, stdout, stderr := invokeWith(t, e, env, args...)
		if code != exitOK || len(asked) != 1 || asked[0] != c.asked {
			t.Errorf("%s: exit %d, asked for %q, %s", c.flag, code, asked, stderr)
		}
		for _, want := range []string{"\ntuning of AMP, SGD; AMP, LARS: fills,hazards (nothing is timed here: small ones)\n", "\ntuning of FP32: fills (given)\n"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q is not in\n%s", want, stdout)
			}
		}
		if code, stdout, _ := invokeWith(t, e, env, append(args, "--json")...); code != exitOK || !strings.Contains(stdout, `"words": "fills,hazards"`) {
			t.Errorf("as JSON: exit %d, %s", code, stdout)
		}
	}
}
