package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/results"
)

const olderTimeline = "r-golden-tiny-b2-g1-eager-event-device.trace.json.gz"

func put(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("{}"), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// Of a process that gave no result no timeline stays, whole or in parts: not of
// one that failed, nor of one that was interrupted. What was there before and was
// not written stays.
func TestTimelinesOfTheFailed(t *testing.T) {
	broke := errors.New("it broke")
	for name, c := range map[string]struct {
		args  []string
		cause error
		code  int
		stays []string
	}{
		"failed":      {[]string{"run", "--trace=t", "--out=r.json"}, broke, exitFailure, []string{"r.json", "t/" + olderTimeline}},
		"interrupted": {[]string{"run", "--trace=t", "--out=r.json"}, context.Canceled, exitInterrupted, []string{"t/" + olderTimeline}},
		"beside":      {[]string{"run", "--trace", "--out=r.json"}, broke, exitFailure, []string{"r.json", "t/" + olderTimeline}},
		"profile":     {[]string{"profile", "--out=x"}, context.Canceled, exitInterrupted, []string{"t/" + olderTimeline}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, filepath.Join(dir, "t", olderTimeline))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e := fakeEngine()
			e.RunCell = func(_ context.Context, r bench.CellRequest) (*results.Cell, error) {
				if len(r.TraceFiles) == 0 {
					t.Error("no timelines were asked for")
				}
				for i, f := range r.TraceFiles {
					if i == 0 {
						put(t, f)
					}
					put(t, filepath.Join(filepath.Dir(f), "."+filepath.Base(f)+".0123456789abcdef.tmp"))
				}
				if errors.Is(c.cause, context.Canceled) {
					cancel()
				}
				return nil, c.cause
			}
			args := append(c.args, "--quick", "--workload=golden-tiny", "--batch=2", "--mode=graph")
			if c.args[0] == "run" {
				args = append(args, "--mode=graph,eager")
			}
			code, _, stderr := invoke(t, ctx, e, dir, args...)
			var left []string
			_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
				if rel, _ := filepath.Rel(dir, path); !d.IsDir() {
					left = append(left, rel)
				}
				return nil
			})
			if code != c.code || !slices.Equal(left, c.stays) {
				t.Errorf("exit %d, left %v, want %v: %s", code, left, c.stays, stderr)
			}
		})
	}
}

// A folder that takes no timelines, and names that another run writes there, are
// said before anything is timed. Other names go beside them.
func TestTraceFolder(t *testing.T) {
	dir := t.TempDir()
	held, err := lockFile(filepath.Join(dir, "r"+traceSuffix))
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	ran := false
	e := fakeEngine()
	e.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		ran = true
		return fakeCell(ctx, r)
	}
	args := []string{"run", "--quick", "--workload=golden-tiny", "--batch=2"}
	for _, c := range []struct{ folder, out, want string }{
		{"/proc/self", "r.json", "trbench: --trace=/proc/self cannot write /proc/self/r.trace.json.gz: "},
		{dir, "sub/r.json", "trbench: --trace=" + dir + " holds timelines named r-..., and is being written by another run\n"},
		{dir, "sub/r.json.gz", "trbench: --trace=" + dir + " holds timelines named r-..., and is being written by another run\n"},
	} {
		work := t.TempDir()
		if err := os.Mkdir(filepath.Join(work, "sub"), 0o777); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := invoke(t, t.Context(), e, work, append(args, "--trace="+c.folder, "--out="+c.out)...)
		if code != exitUsage || !strings.HasPrefix(stderr, c.want) || ran {
			t.Errorf("%s: exit %d, ran %t: %s", c.folder, code, ran, stderr)
		}
	}
	for _, out := range []string{"other.json", "r.json"} {
		code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), append(args, "--trace="+dir, "--out="+out)...)
		if code != exitOK || !ran {
			t.Errorf("%s: exit %d: %s", out, code, stderr)
		}
		held.release()
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if held, err = lockFile(filepath.Join(dir, "p"+traceSuffix)); err != nil || held == nil {
		t.Fatal(held, err)
	}
	defer held.release()
	code, _, stderr := invoke(t, t.Context(), e, dir, "profile", "--quick", "--workload=golden-tiny", "--out=p")
	if code != exitUsage || !strings.HasPrefix(stderr, "trbench: --out p is being written by another run (process ") {
		t.Errorf("profile: exit %d: %s", code, stderr)
	}
}

// A run that goes on puts timelines where it put the first ones.
func TestResumedTimelines(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"t/x" + traceSuffix, "/r/t"}, {"x" + traceSuffix, ""}, {"/else/where/x" + traceSuffix, "/else/where"}, {"", ""},
	} {
		r := &results.Record{Cells: []results.Cell{{Configurations: []results.Configuration{{}, {Trace: &results.Trace{}}, {Trace: &results.Trace{File: c.file}}}}}}
		if got := keptTimelines(r, "/r/r.json"); got != c.want {
			t.Errorf("%q: %q, want %q", c.file, got, c.want)
		}
	}
	dir := t.TempDir()
	var into []string
	e := fakeEngine()
	e.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		cell, err := fakeCell(ctx, r)
		for i, f := range r.TraceFiles {
			into = append(into, filepath.Dir(f))
			cell.Configurations[i].Trace = &results.Trace{Steps: r.TraceSteps, File: f}
		}
		return cell, err
	}
	args := []string{"run", "--quick", "--workload=golden-tiny", "--batch=2,4", "--mode=eager", "--warmup=0", "--trace=t", "--out=r.json"}
	if code, _, stderr := invoke(t, t.Context(), e, dir, args...); code != exitOK {
		t.Fatal(code, stderr)
	}
	file := filepath.Join(dir, "r.json")
	r, err := results.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.Status, r.Cells = results.Incomplete, r.Cells[:1]
	if _, err := results.Write(file, r); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := invoke(t, t.Context(), e, dir, "run", "--resume=r.json"); code != exitOK {
		t.Fatal(code, stderr)
	}
	if want := filepath.Join(dir, "t"); len(into) != 3 || into[0] != want || into[2] != want {
		t.Errorf("timelines went to %v, want %s", into, want)
	}
}

// --device=auto takes the CPU where there is no GPU, and never in the place of
// one that is there and cannot be used.
func TestAutoLeavesNoGPUOut(t *testing.T) {
	code := func(c driver.Result) error { return &driver.Error{Call: "cuInit", Code: c} }
	for name, c := range map[string]struct {
		missing error
		refused bool
	}{
		"no library":   {&driver.Unavailable{Reason: driver.ErrNoLibrary, Advice: "Install it"}, false},
		"no driver":    {&driver.Unavailable{Reason: driver.ErrNotDriver}, false},
		"no GPU":       {&driver.Unavailable{Reason: driver.ErrNoDevice, Cause: code(driver.NoDevice), Advice: "Check"}, false},
		"a stub":       {&driver.Unavailable{Reason: driver.ErrNotStarted, Cause: code(driver.StubLibrary)}, false},
		"too old":      {&driver.Unavailable{Reason: driver.ErrTooOld, Advice: "Install"}, true},
		"not started":  {&driver.Unavailable{Reason: driver.ErrNotStarted, Cause: code(driver.Unknown)}, true},
		"no version":   {&driver.Unavailable{Reason: driver.ErrNotStarted}, true},
		"mismatch":     {&driver.Unavailable{Reason: driver.ErrNotStarted, Cause: code(driver.SystemDriverMismatch)}, true},
		"one by one":   {driver.ErrLaunchBlocking, true},
		"some failure": {errors.New("it broke"), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPU(func(string) string { return "" }, Libraries{})
			g.asked, g.missing = true, c.missing
			gpu := g.describe()
			if gpu.Refused != c.refused || gpu.Missing == "" {
				t.Fatalf("%+v", gpu)
			}
			e, cpu := fakeEngine(), fakeEngine().Devices("cpu")[0]
			e.Devices = func(only string) []Device {
				return slices.DeleteFunc([]Device{gpu, cpu}, func(d Device) bool { return only != "" && only != d.Name })
			}
			want := exitOK
			if c.refused {
				want = exitUsage
			}
			args := []string{"run", "--quick", "--workload=golden-tiny", "--batch=2", "--out=r.json"}
			code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), args...)
			if code != want || c.refused && !strings.HasPrefix(stderr, "trbench: --device=auto would leave out device cuda, which is there: "+gpu.Missing+"\nhint: --device=cpu ") {
				t.Errorf("auto: exit %d: %s", code, stderr)
			}
			if code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), append(args, "--device=cpu")...); code != exitOK {
				t.Errorf("cpu: exit %d: %s", code, stderr)
			}
			if code, stdout, stderr := invoke(t, t.Context(), e, t.TempDir(), "info", "--calibrate"); code != exitOK || !strings.Contains(stdout, "Calibration of device cpu\n") {
				t.Errorf("info: exit %d: %s%s", code, stdout, stderr)
			}
		})
	}
}

// A driver that starts and counts no GPU is one without a GPU; one that cannot
// tell of its GPU is there.
func TestNoGPUCounted(t *testing.T) {
	g, m := fakeMachine(t)
	gpus := m.GPUs
	m.GPUs = nil
	if d := g.describe(); d.Refused || d.Missing != driver.ErrNoDevice.Error() {
		t.Errorf("no GPU: %+v", d)
	}
	m.GPUs = gpus
	for _, call := range []string{"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"} {
		m.Fail(fake.Fault{Call: call, Nth: 1, Code: 999})
		if d := g.describe(); !d.Refused || !strings.Contains(d.Missing, call) {
			t.Errorf("%s: %+v", call, d)
		}
	}
}
