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
	"github.com/tech-renaissance/trbench/internal/dl"
	"github.com/tech-renaissance/trbench/results"
)

// fakeGPU is the wiring of a machine with an H200 and no library.
func fakeGPU(t *testing.T) *gpu {
	t.Helper()
	g, _ := fakeMachine(t)
	return g
}

// gpuOf is the wiring of a machine without libraries, which it starts and the
// test's end stops.
func gpuOf(t *testing.T, m *fake.Machine) *gpu {
	t.Helper()
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	api, err := driver.New(r)
	if err != nil {
		t.Fatal(err)
	}
	g := newGPU(func(string) string { return "" }, Libraries{})
	g.asked, g.api, g.noDNN, g.noBLAS = true, api, errors.New("no cuDNN here"), errors.New("nor cuBLAS")
	return g
}

// fakeMachine is fakeGPU, with the machine.
func fakeMachine(t *testing.T) (*gpu, *fake.Machine) {
	t.Helper()
	m := fake.H200(1)
	return gpuOf(t, m), m
}

// otherLibrary is the file of a library that is none of the GPU's.
func otherLibrary(t *testing.T) string {
	t.Helper()
	l, err := dl.Open(dl.Query{Files: []string{"libm.so.6"}, Dirs: []string{}})
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	return l.Path()
}

// A file that is no library of its kind is refused, whatever else the machine
// has; so is one that nothing can open.
func TestUseLibraries(t *testing.T) {
	libm, none := otherLibrary(t), filepath.Join(t.TempDir(), "none.so")
	for name, c := range map[string]struct {
		l    Libraries
		want string
	}{
		"driver":         {Libraries{Driver: libm}, "--libcuda=" + libm + " cannot be used: the file is no CUDA driver (it has no cuInit or no cuDriverGetVersion); name NVIDIA's libcuda.so.1"},
		"missing driver": {Libraries{Driver: none}, "--libcuda=" + none + " cannot be used: " + none + ": cannot open shared object file"},
		"cudnn":          {Libraries{CuDNN: libm}, "--cudnn=" + libm + " cannot be used: the library that was opened is not cuDNN 9, it lacks cudnnGetVersion"},
		"missing cudnn":  {Libraries{CuDNN: none}, "--cudnn=" + none + " cannot be used: " + none},
		"cublas":         {Libraries{CuBLAS: libm}, "--cublas=" + libm + " cannot be used: the library that was opened is not a cuBLASLt"},
		"nvml":           {Libraries{NVML: libm}, "--nvml=" + libm + " cannot be used: "},
		"missing nvml":   {Libraries{NVML: none}, "--nvml=" + none + " cannot be used: " + none},
	} {
		t.Run(name, func(t *testing.T) {
			err := newGPU(func(string) string { return "" }, Libraries{}).use(c.l)
			var input *bench.InputError
			if !errors.As(err, &input) || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// A flag wins over the environment, which stays for the others.
func TestFlagsWinOverTheEnvironment(t *testing.T) {
	g := fakeGPU(t)
	g.libraries = Libraries{Driver: "a", CuDNN: "b", CuBLAS: "c"}
	if err := g.use(Libraries{Driver: "x"}); err != nil {
		t.Fatal(err)
	}
	if want := (Libraries{Driver: "x", CuDNN: "b", CuBLAS: "c"}); g.libraries != want {
		t.Errorf("%+v, want %+v", g.libraries, want)
	}
}

// Nothing of the GPU is looked at for the CPU.
func TestCPUOpensNoLibrary(t *testing.T) {
	// A driver that is none would be an error as soon as it is opened.
	g := newGPU(func(string) string { return "" }, Libraries{Driver: otherLibrary(t)})
	e := newEngine(g)
	if d := e.Devices("cpu"); len(d) != 1 || d[0].Name != "cpu" || d[0].Missing != "" {
		t.Errorf("%+v", d)
	}
	e.Machine(t.Context(), Device{Name: "cpu"})
	if _, err := e.RunCell(t.Context(), bench.CellRequest{Cell: results.CellKey{Device: "cpu", Workload: "golden-tiny", Batch: 1, GPUs: 1}}); err == nil {
		t.Error("a request without configurations ran")
	}
	if g.asked {
		t.Error("the GPU's libraries were opened for the CPU")
	}
	if d := e.Devices(""); len(d) != 2 || !g.asked || !strings.Contains(d[0].Missing, "no CUDA driver") {
		t.Errorf("%+v", d)
	}
}

// gpuEngine is the fake engine with a usable GPU.
func gpuEngine(launchers ...string) Engine {
	e := fakeEngine()
	devices := e.Devices
	e.Devices = func(name string) []Device {
		out := devices(name)
		for i := range out {
			if out[i].Name == "cuda" {
				out[i].Missing, out[i].MaxRanks, out[i].MemoryBytes = "", 1, 1<<40
				out[i].Kernels, out[i].Launchers, out[i].LaunchersHint = []string{"cudnn", "builtin"}, launchers, "build it"
				out[i].Target = e.Devices("cpu")[0].Target
			}
		}
		return out
	}
	return e
}

// The engine and worker processes get what the flags name, with absolute paths.
func TestWorkersGetTheLibraries(t *testing.T) {
	dir := t.TempDir()
	worker := filepath.Join(dir, "worker")
	if err := os.WriteFile(worker, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >arguments\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var used []Libraries
	e := gpuEngine("purego")
	e.UseLibraries = func(l Libraries) error { used = append(used, l); return nil }
	env := &Env{Context: t.Context(), Stdout: &lockedBuffer{}, Stderr: &lockedBuffer{}, WorkDir: dir, Engine: e, Program: worker, Name: "trbench"}
	want := Libraries{Driver: "/opt/libcuda.so.1", CuDNN: filepath.Join(dir, "lib")}
	if err := env.useLibraries(Libraries{Driver: "/opt/libcuda.so.1", CuDNN: "lib"}, "auto", []string{"auto"}); err != nil {
		t.Fatal(err)
	}
	if len(used) != 1 || used[0] != want {
		t.Errorf("the engine was given %+v", used)
	}
	if _, err := env.replicate(context.Background(), bench.CellRequest{}); err == nil {
		t.Error("the worker succeeded")
	}
	b, err := os.ReadFile(filepath.Join(dir, "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(b)); !slices.Equal(got, []string{"worker", "--libcuda=" + want.Driver, "--cudnn=" + want.CuDNN}) {
		t.Errorf("the worker was given %q", got)
	}
	// A worker is of the program that runs, whatever stands now where it was.
	if err := os.Rename(worker, filepath.Join(dir, "running")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(worker, []byte("#!/bin/sh\necho another build >arguments\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env.Executable = filepath.Join(dir, "running")
	if _, err := env.replicate(context.Background(), bench.CellRequest{}); err == nil {
		t.Error("the worker succeeded")
	}
	if again, err := os.ReadFile(filepath.Join(dir, "arguments")); err != nil || string(again) != string(b) {
		t.Errorf("another program was started: %q, %v", again, err)
	}
	used = nil
	env.Args, env.Stdin = append([]string{}, strings.Fields(string(b))...), strings.NewReader("")
	Main(env) // fails at its empty request
	if len(used) != 1 || used[0] != want {
		t.Errorf("the worker's engine was given %+v", used)
	}
}

// A resumed run takes the libraries that the record's command named.
func TestLibrariesOfACommand(t *testing.T) {
	line := []string{"run", "--device=cuda", "--cudnn=/opt/cudnn/lib", "--out", "x.json", "--cupti", "lib/libcupti.so", "--tune=fills", "--batch=1,2"}
	if got, want := librariesIn(line), (Libraries{CuDNN: "/opt/cudnn/lib", CUPTI: "lib/libcupti.so"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := librariesIn([]string{"run", "--cudnn=", "--nvml=x"}); got != (Libraries{}) {
		t.Errorf("%+v of a line that cannot be read", got)
	}
	if got, want := (Libraries{CuDNN: "mine"}).over(librariesIn(line)), (Libraries{CuDNN: "mine", CUPTI: "lib/libcupti.so"}); got != want {
		t.Errorf("%+v, want %+v: flags come first", got, want)
	}

	dir := t.TempDir()
	var used []Libraries
	e := gpuEngine("purego")
	e.UseLibraries = func(l Libraries) error { used = append(used, l); return nil }
	resume := func(flags ...string) {
		t.Helper()
		interrupt(t, filepath.Join(dir, "r.json"))
		if code, _, stderr := invoke(t, t.Context(), e, dir, append([]string{"run", "--resume=r.json"}, flags...)...); code != 0 {
			t.Fatal(code, stderr)
		}
	}
	if code, _, stderr := invoke(t, t.Context(), e, dir, "run", "--device=cuda", "--batch=2", "--cudnn=/opt/cudnn", "--out=r.json"); code != 0 {
		t.Fatal(code, stderr)
	}
	resume()
	resume("--cudnn=/other", "--nvml=/opt/nvml")
	want := []Libraries{{CuDNN: "/opt/cudnn"}, {CuDNN: "/opt/cudnn"}, {CuDNN: "/other", NVML: "/opt/nvml"}}
	if !slices.Equal(used, want) {
		t.Errorf("the engine was given %+v, want %+v", used, want)
	}
}

// Launchers are an axis of eager alone, and refused where they cannot submit.
func TestLaunchers(t *testing.T) {
	for name, c := range map[string]struct {
		have []string
		args string
		want []string // configurations, or the error's beginning
		code int
	}{
		"default": {[]string{"purego", "gorgonia"}, "--mode=eager,graph", []string{"eager/event/device", "graph/event/device"}, 0},
		"side by side": {[]string{"purego", "gorgonia"}, "--mode=eager,step --launcher=purego,gorgonia --kernels=builtin",
			[]string{"eager/event/device", "eager/event/device/gorgonia", "step/inside/device"}, 0},
		"alone": {[]string{"purego", "gorgonia"}, "--mode=eager,graph --launcher=gorgonia --kernels=builtin --sync=event,host",
			[]string{"eager/event/device/gorgonia", "eager/host/device/gorgonia", "graph/event/device", "graph/host/device"}, 0},
		"cudnn": {[]string{"purego", "gorgonia"}, "--launcher=gorgonia",
			[]string{"trbench: --launcher=gorgonia cannot be used with --kernels=cudnn, whose libraries launch for themselves\nhint: --kernels=builtin"}, 2},
		"one of two": {[]string{"purego", "gorgonia"}, "--launcher=purego,gorgonia --kernels=builtin,cudnn",
			[]string{"trbench: --launcher=gorgonia cannot be used with --kernels=cudnn"}, 2},
		"not built": {[]string{"purego"}, "--launcher=gorgonia --kernels=builtin",
			[]string{"trbench: --launcher=gorgonia cannot be used on device cuda, which has: purego\nhint: build it\n"}, 2},
		"the CPU's": {[]string{"purego"}, "--launcher=go", []string{"trbench: --launcher=go cannot be used on device cuda, which has: purego"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			e := gpuEngine(c.have...)
			e.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
				got = nil
				for _, k := range r.Configurations {
					got = append(got, k.String())
				}
				return fakeCell(ctx, r)
			}
			args := append([]string{"run", "--device=cuda", "--batch=2", "--processes=1", "--json"}, strings.Fields(c.args)...)
			code, _, stderr := invoke(t, t.Context(), e, t.TempDir(), args...)
			if code != c.code || code != 0 && !strings.HasPrefix(stderr, c.want[0]) || code == 0 && !slices.Equal(got, c.want) {
				t.Errorf("exit %d, configurations %q, stderr %s", code, got, stderr)
			}
		})
	}
}

// Launches that wait for their kernels are refused before a driver is opened.
func TestLaunchBlockingIsRefused(t *testing.T) {
	getenv := func(name string) string {
		if name == "CUDA_LAUNCH_BLOCKING" {
			return "1"
		}
		return ""
	}
	code, stdout, stderr := invoke(t, t.Context(), NewEngine(getenv, Libraries{}), t.TempDir(), "run", "--device=cuda")
	if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "trbench: --device=cuda cannot be used: CUDA_LAUNCH_BLOCKING is set: ") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// info says what is missing, of which file, and what to do.
func TestInfoExplains(t *testing.T) {
	unknown := fake.H200(1)
	unknown.InitCode = 999
	for name, c := range map[string]struct {
		m           *fake.Machine
		row, advice string
	}{
		"no GPU":  {fake.Laptop(), "the CUDA driver sees no GPU (cuInit: CUDA_ERROR_NO_DEVICE (100))", "check that the machine has an NVIDIA GPU"},
		"too old": {fake.V100(1), "the CUDA driver is too old (it is for CUDA 11.8, and ", "install a driver for CUDA 12.0 or newer (525 on Linux)"},
		"unknown": {unknown, "the CUDA driver did not start (cuInit: CUDA_ERROR_UNKNOWN (999))", "load the module nvidia-uvm"},
	} {
		t.Run(name, func(t *testing.T) {
			lib, err := c.m.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.m.Stop(); err != nil {
					t.Error(err)
				}
			})
			g := newGPU(func(string) string { return "" }, Libraries{})
			g.asked = true
			_, g.missing = driver.New(lib)
			g.missing.(*driver.Unavailable).Library = "/usr/lib/libcuda.so.1.1"
			code, stdout, stderr := invoke(t, t.Context(), newEngine(g), t.TempDir(), "info")
			for _, want := range []string{"\ncuda    no      -      " + c.row, "\ndriver   -        /usr/lib/libcuda.so.1.1\n", "\nno driver: " + c.row, "; " + c.advice} {
				if !strings.Contains(stdout, want) {
					t.Errorf("info lacks %q", want)
				}
			}
			if code != exitOK || stderr != "" || t.Failed() {
				t.Errorf("exit %d, stderr %q\n%s", code, stderr, stdout)
			}
		})
	}
	// Without a library there is no file, and the loader's own search is no news.
	g := newGPU(func(string) string { return "" }, Libraries{})
	g.asked, g.missing = true, &driver.Unavailable{Reason: driver.ErrNoLibrary, Cause: errors.New("libcuda.so: no such file"), Advice: "Install it"}
	_, stdout, _ := invoke(t, t.Context(), newEngine(g), t.TempDir(), "info")
	if !strings.Contains(stdout, "\nno driver: the CUDA driver library was not found; install it\n") {
		t.Errorf("no library:\n%s", stdout)
	}
}

// info shows the driver that was opened and says what lacks beside it.
func TestInfoOfAGPU(t *testing.T) {
	_, stdout, _ := invoke(t, t.Context(), newEngine(fakeGPU(t)), t.TempDir(), "info")
	for _, want := range []string{"\ncuda    yes     1      ", "H200", "\ndriver   for CUDA 13.0", "\nno cudnn: no cuDNN here\n", "\nno cublas: nor cuBLAS\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("info lacks %q:\n%s", want, stdout)
		}
	}
}
