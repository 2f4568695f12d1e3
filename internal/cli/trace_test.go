package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/results"
)

// profiled gives the fake GPU a profiler.
func profiled(t *testing.T, change func(*fake.Profiler)) *gpu {
	t.Helper()
	g, m := fakeMachine(t)
	p := m.CUPTI()
	change(p)
	lib, err := p.Start(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	g.tracer = func() (*cupti.API, error) { return cupti.New(lib, 13000) }
	return g
}

// run --trace that cannot be had is refused in one sentence, before anything is
// timed: what is missing even before the machine is calibrated.
func TestTraceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fake.Profiler)
		want   string
		early  bool
	}{
		"an old library":     {func(p *fake.Profiler) { p.Version = 17 }, "records are known from 18 (CUDA 11.8) on", true},
		"another subscriber": {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityEnable": 39} }, "another profiler holds CUPTI in this process", false},
		"privileges":         {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityEnable 10": 35} }, "NVreg_RestrictProfilingToAdminUsers=0", false},
		"nothing":            {func(*fake.Profiler) {}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := profiled(t, c.change)
			early, late := g.checkTrace(false), g.checkTrace(true)
			if (early != nil) != c.early || (late != nil) != (c.want != "") {
				t.Fatalf("%v, then %v", early, late)
			}
			var calibrated, ran bool
			e := gpuEngine("purego")
			e.CheckTrace = func(device string, try bool) error {
				if try != calibrated {
					t.Errorf("try is %t, calibrated %t", try, calibrated)
				}
				return g.checkTrace(try)
			}
			e.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
				if ran = true; r.TraceSteps != defaultTraceSteps || len(r.TraceFiles) != len(r.Configurations) {
					t.Errorf("asked for %d steps into %v", r.TraceSteps, r.TraceFiles)
				}
				return fakeCell(ctx, r)
			}
			var out, errs bytes.Buffer
			code := Main(&Env{
				Context: t.Context(), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, WorkDir: t.TempDir(),
				Now: func() time.Time { return time.Unix(1, 0) }, Engine: e,
				Machine: func(context.Context, Device) results.Environment { calibrated = true; return results.Environment{} },
				Args:    []string{"run", "--device=cuda", "--kernels=builtin", "--workload=golden-tiny", "--batch=2", "--quick", "--trace", "--out=r.json"},
			})
			text := errs.String()
			if c.want == "" {
				if code != exitOK || !ran {
					t.Errorf("exit %d, ran %t: %s", code, ran, text)
				}
				return
			}
			if code != exitUsage || ran || calibrated == c.early || !strings.HasPrefix(text, "trbench: --trace cannot be had: ") || !strings.Contains(text, c.want) ||
				strings.Count(strings.TrimSpace(text), "\n") != 1 || !strings.Contains(text, "hint: drop --trace") {
				t.Errorf("exit %d, ran %t, calibrated %t: %s", code, ran, calibrated, text)
			}
		})
	}
}

// Files are named after the record, the cell and the configuration, and no two
// alike.
func TestTraceFileNames(t *testing.T) {
	a, b := results.DefaultCellKey(), results.DefaultCellKey()
	a.Workload, a.Batch = "w", 4
	b.Workload, b.Batch, b.Precision = "w", 4, "amp"
	other := a
	other.Batch = 8
	eager, slow := results.DefaultConfigurationKey(), results.DefaultConfigurationKey()
	slow.DispatchNs = 5000
	s := &runSession{plan: bench.Plan{Cells: []results.CellKey{a, b, other}}, record: &results.Record{}, target: "/x/r.json.gz", traceDir: "/x"}
	seen := map[string]bool{}
	for _, k := range s.plan.Cells {
		for _, f := range s.traceFiles(bench.CellRequest{Cell: k, Configurations: []results.ConfigurationKey{eager, slow}}) {
			seen[f] = true
		}
	}
	for _, want := range []string{"/x/r-w-b4-g1-cell0-eager-event-device.trace.json.gz", "/x/r-w-b4-g1-cell1-eager-event-device-dispatch5000ns.trace.json.gz",
		"/x/r-w-b8-g1-eager-event-device.trace.json.gz"} {
		if !seen[want] {
			t.Errorf("%s is none of %v", want, seen)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%v", seen)
	}
	r := &results.Record{Cells: []results.Cell{{Configurations: []results.Configuration{{Trace: &results.Trace{File: "/x/y/t.gz"}}, {}, {Trace: &results.Trace{File: "/z/t.gz"}}}}}}
	settleTraceFiles(r, "/x/r.json")
	settleTraceFiles(r, "/x/r.json")
	if c := r.Cells[0].Configurations; c[0].Trace.File != "y/t.gz" || c[2].Trace.File != "/z/t.gz" {
		t.Errorf("%q, %q", c[0].Trace.File, c[2].Trace.File)
	}
}

// CUPTI is in no process that records nothing yet, and a file that is none of it
// is said.
func TestCUPTIIsOpenedLate(t *testing.T) {
	none := otherLibrary(t)
	g := fakeGPU(t)
	opened := false
	g.tracer = func() (*cupti.API, error) { opened = true; return nil, errors.New("no") }
	if err := g.use(Libraries{CUPTI: none}); err != nil || opened {
		t.Errorf("%v, opened %t", err, opened)
	}
	if _, err := g.openCUPTI(); err == nil || !strings.Contains(err.Error(), "CUPTI lacks a call") {
		t.Error(err)
	}
}
