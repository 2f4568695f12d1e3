package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// loggingTool compiles package nvtx's tool.
func loggingTool(t *testing.T, defines ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on the PATH: the logging tool cannot be compiled")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tool.so")
	args := []string{"-O1", "-shared", "-fPIC", "-o", path, `-DLOG="` + filepath.Join(dir, "log") + `"`}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(cc, append(args, filepath.Join("..", "..", "nvtx", "testdata", "tool.c"))...).CombinedOutput(); err != nil {
		t.Fatalf("compile the tool: %v\n%s", err, out)
	}
	return path
}

// What info says of a tool, and a record's warning.
func TestToolIsReported(t *testing.T) {
	for _, test := range []struct {
		name string
		path func(*testing.T) string
		info string // PATH stands for the path
		code string // of the warning
	}{
		{"none", func(*testing.T) string { return "" }, "no tool (NVTX_INJECTION64_PATH is not set)", ""},
		{"attached", func(t *testing.T) string { return loggingTool(t) }, "tool PATH attached", "tool_attached"},
		{"takes nothing", func(t *testing.T) string { return loggingTool(t, "NOTHING") }, "tool PATH attached, but it takes no ranges", "tool_attached"},
		{"refuses", func(t *testing.T) string { return loggingTool(t, "FAIL") },
			"the NVTX tool PATH is not attached: its InitializeInjectionNvtx2 returned 0, not 1", "tool_not_attached"},
		{"missing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "no.so") }, "the NVTX tool PATH is not attached: it could not be opened", "tool_not_attached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.path(t)
			getenv := func(name string) string {
				if name == nvtx.PathVariable {
					return path
				}
				return ""
			}
			e := NewEngine(getenv, Libraries{Driver: filepath.Join(t.TempDir(), "no driver")})
			if got := strings.ReplaceAll(e.Tool().sentence(), path, "PATH"); path != "" && !strings.HasPrefix(got, test.info) || path == "" && e.Tool().sentence() != test.info {
				t.Errorf("info says %q, want %q", e.Tool().sentence(), test.info)
			}
			code, out, _ := invoke(t, context.Background(), e, t.TempDir(), "info")
			if code != exitOK || !strings.Contains(out, "\nNVTX: "+e.Tool().sentence()+"\n") {
				t.Errorf("info: exit code %d, %q", code, out)
			}
			c := results.DefaultCellKey()
			c.Workload, c.Batch, c.Device, c.Kernels = "golden-tiny", 1, "cpu", "reference"
			k := results.DefaultConfigurationKey()
			k.Launcher = "go"
			cell, err := e.RunCell(context.Background(), bench.CellRequest{Cell: c, Configurations: []results.ConfigurationKey{k}, Steps: 1, Blocks: 1, Warmup: new(0),
				Seed: 1, Quick: true, Data: data.Options{Kind: data.Random}})
			if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, w := range cell.Warnings {
				if strings.HasPrefix(w.Code, "tool_") {
					codes = append(codes, w.Code)
				}
			}
			var want []string
			if test.code != "" {
				want = []string{test.code}
			}
			if !slices.Equal(codes, want) {
				t.Errorf("warnings %v, want %v", codes, want)
			}
		})
	}
}

func TestProfilersCommands(t *testing.T) {
	for _, test := range []struct {
		name  string
		tool  string
		given string
		want  string
		place bool
	}{
		{"systems", "nsys", "", "profile --trace=cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi " +
			"--capture-range-end=stop --output=R --force-overwrite=true", true},
		{"short names replace long ones", "nsys", "-t cuda -s cpu -c none -f false -o X",
			"profile --cuda-graph-trace=node --cpuctxsw=none --capture-range-end=stop -t cuda -s cpu -c none -f false -o X", false},
		{"compute", "ncu", "", "--nvtx --nvtx-include trbench@step/ --profile-from-start off --graph-profiling node --target-processes all " +
			"--clock-control none --launch-count 200 --export R --force-overwrite", true},
		{"a whole graph at once", "ncu", "--graph-profiling=graph --clock-control base",
			"--nvtx --nvtx-include trbench@step/ --profile-from-start off --target-processes all --launch-count 200 --export R --force-overwrite " +
				"--graph-profiling=graph --clock-control base", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := profilerNamed(test.tool)
			if err != nil {
				t.Fatal(err)
			}
			words, placed := p.command(strings.Fields(test.given), true, "R")
			if got := strings.Join(words, " "); got != test.want || placed != test.place {
				t.Errorf("%s, placed %v\nwant\n%s, %v", got, placed, test.want, test.place)
			}
		})
	}
}

func TestShellLine(t *testing.T) {
	for _, test := range []struct{ words, want string }{
		{"a|--b=c/d@e", "a --b=c/d@e"},
		{"a b|it's||$x", `'a b' 'it'\''s' '' '$x'`},
		{"trbench@step/*/X]", `'trbench@step/*/X]'`},
	} {
		if got := shellLine(strings.Split(test.words, "|")); got != test.want {
			t.Errorf("%q: %s, want %s", test.words, got, test.want)
		}
	}
}

// On a GPU the capture is the driver's, and the process is told the libraries.
func TestProfileOnAGPU(t *testing.T) {
	e := gpuEngine("purego")
	e.UseLibraries = func(Libraries) error { return nil }
	dir := t.TempDir()
	code, out, said := invoke(t, t.Context(), e, dir, "profile", "--mode=step", "--batch=64", "--kernels=builtin", "--libcuda=/opt/libcuda.so.1", "--ema",
		"--steps=2", "--dry-run", "--out=r", "--", "nsys")
	want := "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop " +
		"--output=" + filepath.Join(dir, "r") + " --force-overwrite=true trbench profiled --batch=64 --ema=true --kernels=builtin --libcuda=/opt/libcuda.so.1 --mode=step --steps=2\n"
	if code != exitOK || out != want || said != "" {
		t.Errorf("exit code %d, %q\n%s\nwant\n%s", code, said, out, want)
	}
}

// A tool that ends the process in which it starts is named with the cell.
func TestToolEndsTheWorker(t *testing.T) {
	path := loggingTool(t, "DIE")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"trbench", "run", "--workload=golden-tiny", "--batch=1", "--mode=eager", "--quick", "--steps=2", "--out=r.json"}
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), nvtx.PathVariable+"="+path)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(string(out), "the worker process died: exit status 2 (at \"attach the NVTX tool "+path+"\"); its last words: SIGILL") &&
		!strings.Contains(string(out), "the worker process died: exit status 2 (at \"attach the NVTX tool "+path+"\"); its last words: SIGTRAP") {
		t.Errorf("%v: %s", err, out)
	}
}
