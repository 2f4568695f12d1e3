package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

func TestInspectListsActivations(t *testing.T) {
	code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), t.TempDir(), "inspect", "--workload=resnet20-cifar", "--batch=64", "--json")
	if code != exitOK {
		t.Fatal(stderr)
	}
	var r inspectReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	// At batch 64 the first stage's activations, of 4 MiB each, are the largest
	// tensors but for the input.
	const stage = 64 * 32 * 32 * 16 * 4
	count := 0
	for i, l := range r.Memory.Largest {
		if l.Role == workloads.RoleActivation.String() {
			count++
			if l.Bytes != stage {
				t.Errorf("%s has %d bytes, want %d", l.Name, l.Bytes, stage)
			}
		}
		if i > 0 && l.Bytes > r.Memory.Largest[i-1].Bytes {
			t.Errorf("%s is not in its place", l.Name)
		}
	}
	if count < 5 {
		t.Errorf("%d activations among the largest: %+v", count, r.Memory.Largest)
	}
	if sum := r.Memory.ByRole["activation"]; sum != r.Memory.ActivationBytes {
		t.Errorf("activations have %d bytes by role and %d in the plan", sum, r.Memory.ActivationBytes)
	}
}

func TestDotRefusesJSON(t *testing.T) {
	code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), t.TempDir(), "inspect", "--dot", "--json")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "--dot") || !strings.Contains(stderr, "--json") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// What reaches an operator under another name, as part of a range or as the
// range around it, is drawn too.
func TestDotDrawsViews(t *testing.T) {
	for _, c := range []struct{ graph, want string }{
		{"NAN_CHECK_AND_GRAD_SCALING", `n0 -> n1 \[label="scalars"\]`},
		{"TRANSFER_A", `n0 -> n1 \[label="raw_images_A"\]`}, // written as raw_A
	} {
		code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), t.TempDir(), "inspect", "--precision=amp", "--dot="+c.graph)
		if code != exitOK || !regexp.MustCompile(c.want).MatchString(stdout) {
			t.Errorf("%s: no %s in\n%s%s", c.graph, c.want, stdout, stderr)
		}
		if strings.Count(stdout, "legend [") != 1 {
			t.Errorf("%s has no legend", c.graph)
		}
	}
}

func TestWriters(t *testing.T) {
	region := func(off, n int64) workloads.Region { return workloads.Region{Off: off, Bytes: n} }
	var before []*workloads.Bound
	for _, r := range []workloads.Region{region(0, 100), region(0, 40), region(40, 20), region(200, 10), region(10, 20)} {
		before = append(before, &workloads.Bound{Out: []workloads.Operand{{Region: r}}})
	}
	for _, c := range []struct {
		r    workloads.Region
		want []int
	}{
		{region(0, 60), []int{4, 2, 1}}, // the first is overwritten
		{region(50, 20), []int{2, 0}},
		{region(12, 5), []int{4}},
		{region(100, 50), nil},
		{region(205, 100), []int{3}},
	} {
		if got := writers(before, c.r); !slices.Equal(got, c.want) {
			t.Errorf("%v was written by %v, want %v", c.r, got, c.want)
		}
	}
}

// On a GPU --tune says which operators there are; the way taken stands above
// them.
func TestInspectTuned(t *testing.T) {
	e := newEngine(fakeGPU(t))
	show := func(words ...string) inspectReport {
		t.Helper()
		args := append([]string{"inspect", "--device=cuda", "--workload=resnet18-cifar", "--precision=amp", "--json"}, words...)
		code, stdout, stderr := invoke(t, t.Context(), e, t.TempDir(), args...)
		if code != exitOK {
			t.Fatal(stderr)
		}
		var r inspectReport
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	nodes := func(r inspectReport) int { return r.SubGraphs[workloads.DeepFwdBwd].Nodes }
	plain, lean, rule := show("--tune=none"), show("--tune=join,mask"), show()
	if nodes(lean) >= nodes(plain) { // residual joins have no nodes of their own
		t.Errorf("%d nodes with join and mask, %d without", nodes(lean), nodes(plain))
	}
	if c := plain.Tuning; c == nil || c.Words != "none" || c.Source != "given" {
		t.Errorf("none is %+v", c)
	}
	if c := lean.Tuning; c == nil || c.Words != "join,mask" || c.Source != "given" {
		t.Errorf("join,mask is %+v", c)
	}
	if c := rule.Tuning; c == nil || !strings.Contains(c.Words, "hazards") || c.Source != "rule" || !strings.HasPrefix(c.Rule, "nothing is timed here: all that was never slower") {
		t.Errorf("the default is %+v", c)
	}
	// Filter gradients that run beside the way back keep what they read for longer.
	if h := show("--tune=hazards"); h.Memory.ActivationBytes <= plain.Memory.ActivationBytes {
		t.Errorf("%d bytes of activations by hazards, %d by streams", h.Memory.ActivationBytes, plain.Memory.ActivationBytes)
	}
	code, stdout, stderr := invoke(t, t.Context(), e, t.TempDir(), "inspect", "--device=cuda", "--tune=serial")
	if code != exitOK || !strings.Contains(stdout, "\nTuning: serial (given)\n") {
		t.Errorf("exit %d, %s, %s", code, stdout, stderr)
	}
	if r := show("--tune=rule"); r.Tuning.Words != rule.Tuning.Words {
		t.Errorf("rule is %+v", r.Tuning)
	}
}

// Where there is one way, another one is refused, and none is shown.
func TestInspectTunedOnCPU(t *testing.T) {
	for _, command := range []string{"inspect", "verify"} {
		code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), t.TempDir(), command, "--tune=hazards")
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "--tune=hazards would be ignored: device cpu runs its operators in one way") {
			t.Errorf("%s: exit %d, %q, %q", command, code, stdout, stderr)
		}
		code, stdout, stderr = invoke(t, t.Context(), fakeEngine(), t.TempDir(), command, "--tune=none")
		if code != exitOK || strings.Contains(strings.ToLower(stdout), "tuning") {
			t.Errorf("%s: exit %d, %q, %q", command, code, stdout, stderr)
		}
	}
}

// --capture shows the graphs of a step and what preparing them took, on a device
// with memory of its own also what was in use.
func TestInspectCapture(t *testing.T) {
	e := newEngine(fakeGPU(t))
	words := []string{"inspect", "--device=cpu", "--workload=golden-tiny", "--batch=2"}
	run := func(more ...string) string {
		t.Helper()
		code, stdout, stderr := invoke(t, t.Context(), e, t.TempDir(), slices.Concat(words, more)...)
		if code != exitOK {
			t.Fatal(stderr)
		}
		return stdout
	}
	var r inspectReport
	if err := json.Unmarshal([]byte(run("--capture", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Captured) != 2 || r.Captured[0].Mode != "graph" || r.Captured[1].Mode != "step" || len(r.Captured[0].Graphs) < 9 || len(r.Captured[1].Graphs) != 1 {
		t.Fatalf("%+v", r.Captured)
	}
	var nodes int64
	for _, g := range r.Captured[0].Graphs {
		nodes += g.Total()
	}
	step := r.Captured[1].Graphs[0]
	if step.Total() != nodes || step.WidestSection < 2 || step.CriticalPath <= int(nodes)/2 || step.CriticalPath >= int(nodes) {
		t.Errorf("%d nodes in sub-graphs, the step is %+v", nodes, step)
	}
	shows := func(stdout string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !regexp.MustCompile(want).MatchString(stdout) {
				t.Errorf("no %s in\n%s", want, stdout)
			}
		}
	}
	shows(run("--capture"), `(?m)^mode +graph +nodes .*edges +widest section +critical path$`, `(?m)^graph +first replay +[0-9.]+ .?s$`,
		fmt.Sprintf(`(?m)^step +train_step A final/full +%d .* %d +%d +%d$`, nodes, step.Edges, step.WidestSection, step.CriticalPath))
	if strings.Contains(run("--json"), `"captured": [`) {
		t.Error("captured without being asked")
	}
	if stdout := run("--capture"); strings.Contains(stdout, "in use") {
		t.Errorf("a CPU's memory is shown:\n%s", stdout)
	}
	e.Captured = func(_ context.Context, cell results.CellKey, ways []results.ConfigurationKey) ([]results.Configuration, error) {
		if cell.Batch != 2 || len(ways) != 2 || ways[0].String() != "graph/event/device" || ways[1].String() != "step/inside/device" {
			t.Errorf("%s, %v", cell.Name(), ways)
		}
		return []results.Configuration{{Key: ways[1], Prepare: []results.Phase{
			{Phase: "warm_up", Ns: 1500, Memory: []results.PhaseMemory{{BeforeBytes: 1 << 30, AfterBytes: 1<<30 + 5<<20}}}, {Phase: "upload", Ns: 7}}}}, nil
	}
	shows(run("--capture"), `(?m)^mode +phase +took +in use before +after +more$`, `(?m)^step +warm up +1.50 us +1.00 GiB +1.00 GiB +5.00 MiB$`, `(?m)^step +upload +7.00 ns +- +- +-$`,
		regexp.QuoteMeta(report.MemoryLine))
	e.Captured = func(context.Context, results.CellKey, []results.ConfigurationKey) ([]results.Configuration, error) {
		return nil, errors.New("no plan")
	}
	if code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), append(words, "--capture")...); code == exitOK || !strings.Contains(stderr, "capture golden-tiny batch 2 gpus 1: no plan") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	for _, wrong := range [][]string{{"inspect", "--capture", "--dot"}, {"inspect", "--capture", "--device=cpu", "--batch=1000000"}} {
		if code, stdout, stderr := invoke(t, t.Context(), e, t.TempDir(), wrong...); code != exitUsage || stdout != "" {
			t.Errorf("%v: exit %d, %q, %q", wrong, code, stdout, stderr)
		}
	}
}
