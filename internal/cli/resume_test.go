package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// A record whose plan, or what it holds of it, was changed by hand is refused
// in one sentence that says what does not fit, and stays as it is.
func TestResumeRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--batch=2,4", "--out=r.json"); code != 0 {
		t.Fatal(code, stderr)
	}
	interrupt(t, file)
	for _, c := range []struct {
		name   string
		change func(*results.Record)
		want   string
	}{
		{"steps", func(r *results.Record) { r.Plan.Steps = 7 }, "does not hold what its plan asks for: resnet20-cifar batch 2 gpus 1 was run with 4 steps a block, and the plan says 7; take the record as the run left it, or begin a new one"},
		{"seed", func(r *results.Record) { r.Plan.Seed = 7 }, "was run with --seed=1, and its plan says 7"},
		{"blocks", func(r *results.Record) { r.Plan.Blocks = 5 }, "a process 0 that timed 4 blocks, and the plan says 5"},
		{"a foreign cell", func(r *results.Record) { r.Cells[0].Key.Batch = 3 }, "holds resnet20-cifar batch 3 gpus 1, and its plan has no such cell"},
		{"a configuration less", func(r *results.Record) { r.Plan.Configurations = r.Plan.Configurations[1:] }, "was run as eager/event/device"},
		{"metrics gone", func(r *results.Record) { r.Cells[0].Configurations[0].Metrics = nil }, "has 0 samples of step_time_ns"},
		{"mode", func(r *results.Record) { r.Plan.Configurations[0].Mode = "lazy" }, `has a plan that cannot be run here: the plan has the unknown mode "lazy"`},
		{"variant", func(r *results.Record) { r.Plan.Cells[0].Variant = 9 }, "has a plan that cannot be run here: --variants must be 0 to 5, not 9"},
		{"device of a cell", func(r *results.Record) { r.Plan.Cells[0].Device = "tpu" }, `has a plan that cannot be run here: the plan has a cell for device "tpu"`},
		{"device", func(r *results.Record) { r.Device.Name = "tpu" }, `was run on device "tpu", which this program does not know`},
		{"no device", func(r *results.Record) { r.Device.Name = "" }, `was run on device "", which this program does not know`},
		{"device auto", func(r *results.Record) { r.Device.Name = "auto" }, `was run on device "auto", which`},
		{"kernels", func(r *results.Record) { r.Plan.Cells[0].Kernels = "cudnn" }, `kernels "cudnn" are none of device cpu, which has: reference`},
		{"status", func(r *results.Record) { r.Status = "half" }, `has the status "half"`},
		{"budget", func(r *results.Record) { r.Plan.BudgetNs = 1 << 62 }, "--budget must be at most"},
		{"dispatch", func(r *results.Record) { r.Plan.Configurations[0].DispatchNs = 1e10 }, "the plan burns 10000000000 ns of dispatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := results.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c.change(r)
			if _, err := results.Write(filepath.Join(dir, "edited.json"), r); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, "edited.json", c.want)
		})
	}
	// What no writer writes either.
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	once := func(from, to string) string {
		t.Helper()
		if !strings.Contains(text, from) {
			t.Fatalf("the record has no %q", from)
		}
		return strings.Replace(text, from, to, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"a process twice", once(`"index": 1`, `"index": 0`), "has process 0 twice"},
		{"a negative process", once(`"index": 1`, `"index": -1`), "the index of a process is -1, which is negative"},
		{"a configuration twice", once(`"mode": "graph"`, `"mode": "eager"`), "has configuration 1 twice: eager/event/device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "edited.json"), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, "edited.json", c.want)
		})
	}
	// An empty name is no default run.
	refused(t, dir, "", "--resume is empty; it takes the record of a run that did not end")
	// Flags beside it are named, whether they agree with the record or not.
	code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--resume=r.json", "--steps=4", "--seed=2")
	if code != exitUsage || !strings.Contains(stderr, "--resume takes the plan from the record; drop --seed, --steps") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != text {
		t.Errorf("the record changed: %v", err)
	}
	if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--resume=r.json"); code != 0 {
		t.Errorf("as it was left: exit %d, %s", code, stderr)
	}
}

// refused resumes a record in vain: exit 2, one sentence, nothing changed and
// nothing new in the folder.
func refused(t *testing.T, dir, name, want string) {
	t.Helper()
	file := filepath.Join(dir, name)
	before, _ := os.ReadFile(file)
	entries, _ := os.ReadDir(dir)
	code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--resume="+name)
	first, _, _ := strings.Cut(stderr, "\nhint: ")
	if code != exitUsage || !strings.Contains(first, want) || !strings.HasPrefix(first, "trbench: --resume ") && !strings.HasPrefix(first, "trbench: record ") || strings.Count(strings.TrimSpace(first), "\n") > 0 || stdout != "" {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
	now, _ := os.ReadFile(file)
	after, _ := os.ReadDir(dir)
	if string(before) != string(now) || len(entries) != len(after) {
		t.Error("something changed")
	}
}

// Each field of a plan, changed by hand, is found: one that contradicts what the
// record holds by name, all others by the plan's digest.
func TestResumeFindsChangedPlan(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--batch=2,4", "--out=r.json"); code != 0 {
		t.Fatal(code, stderr)
	}
	interrupt(t, file)
	read := func() *results.Record {
		r, err := results.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	edits := changes(reflect.ValueOf(read().Plan).Elem(), "plan")
	for _, field := range []string{"plan.Data", "plan.Tune", "plan.TraceSteps", "plan.BudgetNs", "plan.Warmup", "plan.Inject", "plan.Cells[1].Smoothing", "plan.Configurations[0].DispatchNs"} {
		if _, ok := edits[field]; !ok {
			t.Errorf("nothing changes %s", field)
		}
	}
	edits["plan.Data"] = func(plan reflect.Value) { plan.FieldByName("Data").SetString("learnable") } // that can be had
	byDigest := map[string]bool{}
	for name, change := range edits {
		t.Run(name, func(t *testing.T) {
			r := read()
			change(reflect.ValueOf(r.Plan).Elem())
			if _, err := results.Write(filepath.Join(dir, "edited.json"), r); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--resume=edited.json")
			if strings.Contains(stderr, "has a plan that was changed since the run wrote it") {
				byDigest[name] = true
			}
			if code != exitUsage {
				t.Errorf("exit %d, %s", code, stderr)
			}
			refused(t, dir, "edited.json", "plan") // every sentence says what it is about
		})
	}
	for _, field := range []string{"plan.Data", "plan.Tune", "plan.Inject", "plan.BudgetNs"} {
		if !byDigest[field] { // nothing else in a record tells
			t.Errorf("%s was not found by the digest", field)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*results.Record)
		want   string // empty: it is gone on with
	}{
		{"the digest is gone", func(r *results.Record) { r.PlanDigest = "" }, fmt.Sprintf("has no digest of its plan, which every record of schema %d.%d has", results.SchemaMajor, results.SchemaMinor)},
		{"the digest is changed", func(r *results.Record) { r.PlanDigest = "sha256:0" }, "has a plan that was changed since the run wrote it (its digest is sha256:"},
		{"a record of 1.2", func(r *results.Record) { r.PlanDigest, r.Schema.Minor = "", 2 }, ""},
		{"as it was left", func(*results.Record) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := read()
			c.change(r)
			if _, err := results.Write(filepath.Join(dir, "edited.json"), r); err != nil {
				t.Fatal(err)
			}
			if c.want != "" {
				refused(t, dir, "edited.json", c.want)
				return
			}
			// More processes than planned are no change by hand, also the second time.
			for _, n := range []string{"4", "5"} {
				if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--resume=edited.json", "--processes="+n); code != 0 {
					t.Fatalf("exit %d, %s", code, stderr)
				}
			}
			r, err := results.ReadFile(filepath.Join(dir, "edited.json"))
			if err != nil || r.Schema.Minor != results.SchemaMinor || r.Plan.Processes != 5 || r.CheckDigest() != nil {
				t.Errorf("%v, schema %+v, %d processes, %v", err, r.Schema, r.Plan.Processes, r.CheckDigest())
			}
		})
	}
}

// changes are ways to change a value, one for each field and element in it, by
// where it is.
func changes(v reflect.Value, at string) map[string]func(reflect.Value) {
	out := map[string]func(reflect.Value){}
	within := func(v reflect.Value, at string, down func(reflect.Value) reflect.Value) {
		for name, change := range changes(v, at) {
			out[name] = func(top reflect.Value) { change(down(top)) }
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			within(v.Field(i), at+"."+v.Type().Field(i).Name, func(top reflect.Value) reflect.Value { return top.Field(i) })
		}
	case reflect.Slice:
		for i := range v.Len() {
			within(v.Index(i), fmt.Sprintf("%s[%d]", at, i), func(top reflect.Value) reflect.Value { return top.Index(i) })
		}
		out[at+" without its last"] = func(top reflect.Value) { top.Set(top.Slice(0, top.Len()-1)) }
	case reflect.Pointer: // nil here
		out[at] = func(top reflect.Value) { top.Set(reflect.New(top.Type().Elem())) }
	case reflect.String:
		out[at] = func(top reflect.Value) { top.SetString(top.String() + "x") }
	case reflect.Bool:
		out[at] = func(top reflect.Value) { top.SetBool(!top.Bool()) }
	case reflect.Int, reflect.Int64:
		out[at] = func(top reflect.Value) { top.SetInt(top.Int() + 1) }
	case reflect.Uint64:
		out[at] = func(top reflect.Value) { top.SetUint(top.Uint() + 1) }
	case reflect.Float64:
		out[at] = func(top reflect.Value) { top.SetFloat(top.Float() + 0.125) }
	default:
		panic("no way to change a " + v.Kind().String())
	}
	return out
}

// Builds with local changes call themselves the same: they are told by their files,
// and one does not go on with what another began.
func TestResumeByAnotherBuild(t *testing.T) {
	g := newGuarded(t, "")
	g.do(0, "run", "--batch=2", "--mode=eager", "--out=r.json")
	interrupt(t, filepath.Join(g.dir, "r.json"))
	text, err := os.ReadFile(g.executable())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.executable(), []byte("another build"), 0o777); err != nil {
		t.Fatal(err)
	}
	g.do(exitUsage, "run", "--resume=r.json")
	g.has(g.stderr, "by another build of trbench ", ", whose SHA-256 is ", ", and this one's ")
	if err := os.WriteFile(g.executable(), text, 0o777); err != nil {
		t.Fatal(err)
	}
	g.do(0, "run", "--resume=r.json")
}
