package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// In scripts, trbench is the program; faked is the same command line over an
// engine that invents its figures, so that a script about flags, files and
// exit codes takes no time.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"trbench": func() { os.Exit(Main(OS())) },
		"faked": func() {
			env := OS()
			env.Engine, env.Machine = fakeEngine(), nil
			os.Exit(Main(env))
		},
		// Programs that start another with its stdout or its folder changed.
		"full":      func() { shellWith(`exec "$@" >/dev/full`) },
		"closed":    func() { shellWith(`exec "$@" >&-`) },
		"discarded": func() { shellWith(`exec "$@" >/dev/null`) },
		"gone":      func() { shellWith(`mkdir gone && cd gone && rmdir ../gone && exec "$@"`) },
	})
}

// shellWith becomes a shell that runs its own arguments as "$@".
func shellWith(script string) {
	err := syscall.Exec("/bin/sh", append([]string{"sh", "-c", script, "sh"}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// eachFull runs faked with each argument's words, its output going nowhere.
func eachFull(ts *testscript.TestScript, neg bool, args []string) {
	for _, a := range args {
		exits(ts, neg, append([]string{"2", "full", "faked"}, strings.Fields(a)...))
		if said := ts.ReadFile("stderr"); said != "trbench: stdout: no space left on device\n" {
			ts.Fatalf("%s says %q", a, said)
		}
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "for-each": eachFull,
		},
		Setup: badRecords,
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Geteuid() == 0, nil
			case "full":
				_, err := os.Stat("/dev/full")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		RequireUniqueNames: true,
	})
}

// badRecords makes the files that a script cannot hold.
func badRecords(e *testscript.Env) error {
	head := `{"schema":{"name":"trbench.record","major":1,"minor":1}`
	deep := head + `,"x":` + strings.Repeat("[", results.MaxDepth) + strings.Repeat("]", results.MaxDepth) + "}"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(head + "}"))
	_ = z.Close()
	huge := filepath.Join(e.WorkDir, "huge.json")
	return errors.Join(
		os.Mkdir(filepath.Join(e.WorkDir, "pipes"), 0o777),
		syscall.Mkfifo(filepath.Join(e.WorkDir, "pipes", "data_batch_1.bin"), 0o666),
		syscall.Mkfifo(filepath.Join(e.WorkDir, "pipe"), 0o666), // stands for a device
		os.WriteFile(filepath.Join(e.WorkDir, "deep.json"), []byte(deep), 0o666),
		os.WriteFile(filepath.Join(e.WorkDir, "cut.json.gz"), packed.Bytes()[:packed.Len()-6], 0o666),
		os.WriteFile(huge, nil, 0o666), os.Truncate(huge, 1<<30), // sparse
	)
}

// exits N COMMAND... runs a command, expects exit code N, and that what it
// says is no more than a sentence and a hint, without a stack trace.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
	said := ts.ReadFile("stderr")
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic") {
		ts.Fatalf("a stack trace")
	}
	if i := strings.Index(said, "trbench: "); code == exitUsage && (i < 0 || strings.Count(said[i:], "\n") > 2) {
		ts.Fatalf("more than a sentence and a hint")
	}
}

// fakeEngine has a CPU with 4 ranks and no GPU. Batch 13 finds modes that
// disagree, batch 14 another failure, batch 15 dies in its second process; all
// else succeeds.
func fakeEngine() Engine {
	return Engine{
		Devices: func(name string) []Device {
			return slices.DeleteFunc([]Device{
				{Name: "cuda", Missing: "no NVIDIA GPU was found"},
				{Name: "cpu", MaxRanks: 4, MemoryBytes: 1 << 40, Kernels: []string{"reference"}, Launchers: []string{"go"}, Description: "a fake",
					Target: workloads.Target{Lowering: workloads.Fused}},
			}, func(d Device) bool { return name != "" && name != d.Name })
		},
		RunCell: fakeCell,
		Machine: func(context.Context, Device) results.Environment {
			return results.Environment{Calibration: []results.Reading{{Name: "clock.read_ns", Unit: "ns", Value: 31.25, N: 7}}}
		},
		CalibrateTrace: func(string) (*results.TraceCalibration, error) {
			return &results.TraceCalibration{Kernels: 4500, UntracedNs: 2400, TracedNs: 1900, PeriodNs: 3500, ByNs: -500, UncertaintyNs: 20,
				Costs: []results.LaunchCost{{Layer: results.LayerLanguage, Count: 1000, MedianNs: 60, P99Ns: 95},
					{Layer: results.LayerDriver, Call: "cuLaunchKernel", Count: 200, MedianNs: 2100, P99Ns: 4000, Inflation: new(1.25)},
					{Layer: results.LayerHardware, Call: "cuLaunchKernel", Count: 200, MedianNs: -300, P99Ns: 5000}}}, errors.New("the last part was cut short")
		},
		Profile: func(_ context.Context, r bench.CellRequest) (results.Verify, error) {
			if r.Cell.Batch == 13 {
				return results.Verify{}, &bench.DisagreementError{Cell: r.Cell, Tensor: "params", Detail: "0.5 against 0.25"}
			}
			return results.Verify{Equal: true, Tensors: 10}, nil
		},
		Captured: func(_ context.Context, _ results.CellKey, ways []results.ConfigurationKey) (out []results.Configuration, _ error) {
			for _, k := range ways {
				out = append(out, results.Configuration{Key: k, Prepare: []results.Phase{{Phase: "capture", Ns: 5000}}})
			}
			return out, nil
		},
		Verify: func(_ context.Context, r bench.VerifyRequest) (bench.VerifyReport, error) {
			report := bench.VerifyReport{Device: "cpu", Workload: r.Cell.Workload, Ranks: r.Cell.GPUs, Equal: r.Cell.Batch != 13}
			for g := range workloads.NumSubGraphs {
				report.SubGraphs = append(report.SubGraphs, bench.VerifySubGraph{ID: int(g), Name: g.String(), State: bench.SubGraphRan})
			}
			if !report.Equal {
				report.Problems = []string{"DEEP_COMM is empty"}
				return report, &bench.DisagreementError{Cell: r.Cell, Tensor: "momentum", Detail: "1 against 2"}
			}
			return report, nil
		},
	}
}

func fakeCell(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
	switch r.Cell.Batch {
	case 13:
		return nil, fmt.Errorf("check: %w", &bench.DisagreementError{
			Cell: r.Cell, Reference: r.Configurations[0], Other: r.Configurations[1],
			Tensor: "params", Index: 7, Detail: "0.5 against 0.25",
		})
	case 14:
		return nil, errors.New("rank 0: launch DEEP_FWD_BWD: it broke")
	case 15:
		if r.Process == 1 {
			fmt.Fprintln(os.Stderr, "the driver fell over")
			os.Exit(3) // in a worker process: a script's
		}
	}
	cell := &results.Cell{
		Key: r.Cell, Steps: r.Steps, Blocks: r.Blocks, Variants: []int{r.Cell.Variant},
		Verify: results.Verify{Equal: true, Tensors: 10, Bytes: 1000, Steps: 4},
	}
	for i, k := range r.Configurations {
		cell.Configurations = append(cell.Configurations, results.Configuration{Key: k})
		t := bench.Taken{Configuration: i, Timed: true, Values: []bench.Value{{Metric: results.StepTimeNs, Value: 1e6}}}
		var samples []results.Sample
		for b := range r.Blocks {
			t.Block = b
			samples = append(samples, results.Sample{Process: r.Process, Block: b, Value: 1e6})
			if r.Events != nil {
				r.Events(bench.Event{Taken: &t})
			}
		}
		cell.Configurations[i].Metrics = []results.Metric{results.NewMetric(results.StepTimeNs, samples)}
		if r.TraceSteps > 0 {
			cell.Configurations[i].Trace = fakeTrace(r, i)
		}
	}
	return cell, ctx.Err()
}

// fakeTrace is of steps that are three quarters busy. With batch 18 it failed, with 17
// there is no timeline.
func fakeTrace(r bench.CellRequest, i int) *results.Trace {
	t := &results.Trace{Steps: r.TraceSteps}
	for name, v := range map[string]float64{results.TracedStepNs: 2e6, results.BusyNs: 1.5e6, results.IdleNs: 0.5e6, results.Inflation: 2} {
		t.Metrics = append(t.Metrics, results.NewMetric(name, []results.Sample{{Process: r.Process, Value: v}}))
	}
	slices.SortFunc(t.Metrics, func(a, b results.Metric) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case r.Cell.Batch == 17:
		t.Failed = "write trace: no space left on device"
	case len(r.TraceFiles) > i:
		t.File = r.TraceFiles[i]
	}
	if r.Cell.Batch == 18 {
		t.Failed = "the profiler dropped 3 records: it had no room for them"
	}
	return t
}

// invoke runs a command in this process.
func invoke(t *testing.T, ctx context.Context, engine Engine, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return invokeIn(ctx, engine, dir, func(string) string { return "" }, args...)
}

// invokeWith is invoke in a folder of its own, with variables of the environment.
func invokeWith(t *testing.T, engine Engine, getenv func(string) string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return invokeIn(t.Context(), engine, t.TempDir(), getenv, args...)
}

func invokeIn(ctx context.Context, engine Engine, dir string, getenv func(string) string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(&Env{
		Context: ctx, Stdout: &out, Stderr: &errs, Args: args, Getenv: getenv,
		WorkDir: dir, Now: func() time.Time { return time.Unix(1, 0) }, Engine: engine,
	})
	return code, out.String(), errs.String()
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	engine := fakeEngine()
	engine.RunCell = func(ctx context.Context, _ bench.CellRequest) (*results.Cell, error) {
		cancel()
		<-ctx.Done()
		return nil, errors.New("rank 0: the stream was closed")
	}
	code, stdout, stderr := invoke(t, ctx, engine, dir, "run")
	if code != exitInterrupted || stdout != "" || !strings.Contains(stderr, "trbench: interrupted; nothing was written\n") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	wantEmpty(t, dir)
}

// A command that does not end by itself after Ctrl-C is left.
func TestInterruptStuck(t *testing.T) {
	for _, command := range []string{"run", "verify"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		engine, over := fakeEngine(), make(chan struct{})
		engine.RunCell = func(context.Context, bench.CellRequest) (*results.Cell, error) {
			cancel()
			<-over
			return nil, errors.New("too late")
		}
		engine.Verify = func(ctx context.Context, _ bench.VerifyRequest) (bench.VerifyReport, error) {
			_, err := engine.RunCell(ctx, bench.CellRequest{})
			return bench.VerifyReport{}, err
		}
		begin := time.Now()
		var stderr lockedBuffer
		code := Main(&Env{Context: ctx, Stdout: &lockedBuffer{}, Stderr: &stderr, Args: []string{command}, WorkDir: dir, Now: time.Now, Engine: engine})
		if took := time.Since(begin); code != exitInterrupted || took > 5*time.Second || !strings.HasSuffix(stderr.String(), "trbench: interrupted\n") {
			t.Errorf("%s: exit %d after %v, %s", command, code, took, stderr.String())
		}
		close(over)
		wantEmpty(t, dir)
	}
}

// lockedBuffer is for what a command that was left may still write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A cell that finishes although the context has ended is not written either.
func TestInterruptUnnoticed(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	engine := fakeEngine()
	engine.RunCell = func(context.Context, bench.CellRequest) (*results.Cell, error) {
		cancel()
		return &results.Cell{}, nil
	}
	if code, _, _ := invoke(t, ctx, engine, dir, "run"); code != exitInterrupted {
		t.Errorf("exit %d", code)
	}
	wantEmpty(t, dir)
}

func TestNothingIsRunBeforeAllIsChecked(t *testing.T) {
	engine := fakeEngine()
	engine.RunCell = func(context.Context, bench.CellRequest) (*results.Cell, error) {
		t.Error("a cell ran")
		return nil, errors.New("never")
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // never a real device: a fault would replace it
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"--out=" + pipe, "--data=/none", "--batch=1,0", "--gpus=1,5", "--warmup=10", "--resolution=32,33"} {
		dir := t.TempDir()
		if code, _, stderr := invoke(t, t.Context(), engine, dir, "run", bad); code != exitUsage {
			t.Errorf("%s: exit %d, %s", bad, code, stderr)
		}
		wantEmpty(t, dir)
	}
}

func TestCellsAreTheProduct(t *testing.T) {
	var cells []results.CellKey
	var ways []results.ConfigurationKey
	engine := fakeEngine()
	engine.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		cells, ways = append(cells, r.Cell), r.Configurations
		return fakeCell(ctx, r)
	}
	code, _, stderr := invoke(t, t.Context(), engine, t.TempDir(), "run", "--workload=resnet20-cifar,resnet50", "--batch=2,4",
		"--gpus=1,2", "--precision=fp32,amp", "--optimizer=sgd,lars", "--variants=0,2", "--ema", "--smoothing=0.1", "--freeze-stem",
		"--mode=eager,graph,step", "--sync=event,host", "--control=device,host", "--processes=1", "--json")
	if code != 0 {
		t.Fatal(stderr)
	}
	seen := map[results.CellKey]bool{}
	for _, c := range cells {
		seen[c] = true
		if !c.EMA || !c.Frozen || c.Smoothing != 0.1 || c.LastBatch.Train != c.Batch || c.Resolution.Begin == 0 {
			t.Errorf("cell %+v", c)
		}
	}
	if len(cells) != 64 || len(seen) != 64 {
		t.Errorf("%d cells, %d of them different, want 64", len(cells), len(seen))
	}
	var got []string
	for _, w := range ways {
		got = append(got, w.String())
		if w.Launcher != "go" || w.Ranks != "threads" || w.DispatchNs != 0 {
			t.Errorf("configuration %+v", w)
		}
	}
	want := "eager/event/device eager/event/host eager/host/device eager/host/host " +
		"graph/event/device graph/event/host graph/host/device graph/host/host step/inside/device"
	if strings.Join(got, " ") != want {
		t.Errorf("configurations %v", got)
	}
}

func TestSimultaneousRuns(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var errs bytes.Buffer
			if code := Main(&Env{Context: context.Background(), Stdout: &bytes.Buffer{}, Stderr: &errs, Args: []string{"run", "--batch=2"},
				WorkDir: dir, Now: func() time.Time { return time.Unix(1, 0) }, Engine: fakeEngine()}); code != 0 {
				t.Errorf("exit %d: %s", code, errs.String())
			}
		})
	}
	wg.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "results", "local", "*"))
	if err != nil || len(files) != 8 {
		t.Errorf("records %v (%v)", files, err)
	}
	for _, f := range files {
		if _, err := results.ReadFile(f); err != nil {
			t.Error(err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailure},
		{fmt.Errorf("run: %w", &bench.InputError{Name: "--x"}), exitUsage},
		{fmt.Errorf("run: %w", &results.ReadError{}), exitUsage},
		{errors.Join(errors.New("x"), &bench.DisagreementError{}), exitDisagree},
		{fmt.Errorf("verify: %w", &verify.Failure{Problems: []string{"x"}}), exitDisagree},
		{fmt.Errorf("run: %w", context.Canceled), exitInterrupted},
		{errAbandoned, exitInterrupted},
		{&outputError{err: errors.New("x")}, exitUsage},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit %d, want %d", test.err, got, test.want)
		}
	}
}

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:   64 kB\nSwapFree: 1 kB\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"a machine", map[string]string{"/proc/meminfo": meminfo}, 64 << 10},
		{"no limit", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "max\n"}, 64 << 10},
		{"a container", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "4096\n"}, 4096},
		{"a roomy container", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "4096000\n"}, 64 << 10},
	} {
		got := freeMemory(func(name string) ([]byte, error) {
			if text, ok := test.files[name]; ok {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		})
		if got != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.want)
		}
	}
}

// Every example in a help text runs; the tools that profile starts are scripts
// that write a report of a line.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	tools := t.TempDir()
	const tool = "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --output=*) echo report >\"${1#--output=}.nsys-rep\" ;; --export) echo report >\"$2.ncu-rep\" ;; esac; shift; done\n"
	for _, name := range []string{"nsys", "ncu"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(tool), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	made := func(args ...string) {
		if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, args...); code != exitOK {
			t.Fatalf("%v: exit %d, %s", args, code, stderr)
		}
	}
	made("run", "--batch=2", "--out=base.json")
	made("run", "--batch=2", "--out=head.json")
	trace, err := os.ReadFile(filepath.Join("..", "..", "timeline", "read", "testdata", "eager.json"))
	if err != nil {
		t.Fatal(err)
	}
	// What a trace is is told by its content, so one serves for all names.
	for _, name := range []string{"rank0.json.gz", "rank1.json.gz", "trace.json", "export.sqlite", "before.json.gz", "after.json.gz"} {
		if err := os.WriteFile(filepath.Join(dir, name), trace, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for _, cmd := range newRootCmd(&Env{Args: []string{}}).Commands() {
		if slices.Contains([]string{"compare", "history", "nightly", "baseline"}, cmd.Name()) {
			continue // they have tests of their own, with records, histories and exit codes
		}
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, " | ") // what others do with the output
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if strings.Contains(line, "--resume=good.json") {
				interrupt(t, filepath.Join(dir, "good.json"))
			}
			if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, words[1:]...); code != exitOK || words[0] != "trbench" {
				t.Errorf("%s: exit %d, %s", strings.TrimSpace(line), code, stderr)
			}
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("%d examples ran", ran)
	}
}

// interrupt makes a record look like one of a run that did not end.
func interrupt(t *testing.T, file string) {
	t.Helper()
	r, err := results.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.Status = results.Incomplete
	last := &r.Cells[len(r.Cells)-1]
	last.Processes = last.Processes[:1]
	for i := range last.Configurations {
		for j := range last.Configurations[i].Metrics {
			m := &last.Configurations[i].Metrics[j]
			m.Samples = slices.DeleteFunc(m.Samples, func(s results.Sample) bool { return s.Process > 0 })
		}
	}
	if _, err := results.Write(file, r); err != nil {
		t.Fatal(err)
	}
}

// What a record or a file's name brings into an error is shown, not obeyed.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"record x\x1b[31m.json\u202e: is empty": `record x\x1b[31m.json\u202e: is empty`,
		"bell \a, tab\tand\nlines, é, 32 µs":    "bell \\a, tab\tand\nlines, é, 32 µs",
		"half \xff":                             "half \uFFFD",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
