package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// steppingKernel computes nothing, but copies what a copy turned into a kernel has
// to: batches would be others than in eager steps. The gate is open.
func steppingKernel(a fake.Args, _, _ [3]uint32) {
	switch a.Kernel() {
	case "copy_bytes":
		copy(a.Mem(a.Ptr(1), int(a.U64(2))), a.Mem(a.Ptr(0), int(a.U64(2))))
	case kernels.GateKernel:
		fake.View[uint32](a, a.Ptr(1), 1)[0] = kernels.GateOpened
	}
}

// stepping is the wiring of a machine on whose kernels whole steps run, with a
// profiler beside it.
func stepping(t *testing.T, change func(*fake.Profiler)) Engine {
	t.Helper()
	m := fake.H200(1)
	for _, k := range kernels.Kernels() {
		ps, err := fake.ParseParams(k.Params)
		if err != nil {
			t.Fatal(err)
		}
		m.Register(k.Name, ps, steppingKernel)
	}
	g := gpuOf(t, m)
	p := m.CUPTI()
	change(p)
	lib, err := p.Start(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	g.tracer = func() (*cupti.API, error) { return cupti.New(lib, 13000) }
	return newEngine(g)
}

// On a GPU profile without a tool writes what its profiler recorded: the same
// work in every mode, launched by the calls of the mode. (A copy of an eager step
// may be a kernel of a graph.)
func TestTimelineOfAGPU(t *testing.T) {
	dir := t.TempDir()
	work := map[string]int{}
	for _, mode := range []string{"eager", "graph", "step"} {
		t.Run(mode, func(t *testing.T) {
			code, out, said := invoke(t, t.Context(), stepping(t, func(*fake.Profiler) {}), dir, "profile", "--device=cuda", "--kernels=builtin", "--workload=golden-tiny",
				"--batch=2", "--mode="+mode, "--steps=2", "--warmup=1", "--out="+mode)
			// A kernel's length on record means nothing on a machine that is none, so the
			// corrected busy time may be any.
			if code != exitOK && !(code == exitInconclusive && strings.Contains(said, "idle time would be negative")) {
				t.Fatalf("exit %d, %s", code, said)
			}
			if !strings.Contains(out, "\nTimeline: "+mode+".trace.json.gz\n") || !strings.Contains(out, "\nWhat one launch costs\n") {
				t.Error(out)
			}
			tl, err := read.File(filepath.Join(dir, mode+".trace.json.gz"), read.Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			steps := slices.DeleteFunc(timeline.NewIndex(tl).Steps(0), func(s timeline.Step) bool { return strings.HasPrefix(s.Name, timeline.LeadStep) })
			if len(steps) != 3 || len(tl.Devices) != 1 || tl.Devices[0].Host {
				t.Fatalf("%d steps on %+v", len(steps), tl.Devices)
			}
			work[mode] = steps[0].Ops
			if mode == "step" && steps[0].Launches != 1 || mode != "step" && steps[0].Launches < 5 {
				t.Errorf("%d launches a step", steps[0].Launches)
			}
		})
	}
	if n := work["eager"]; n < 20 || work["graph"] != n || work["step"] != n {
		t.Errorf("kernels, copies and fills a step: %v", work)
	}
}

// Where nothing can be recorded that is said before anything is run, and what is
// recorded in part is no success.
func TestTimelineIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fake.Profiler)
		code   int
		want   string
	}{
		"another subscriber": {func(p *fake.Profiler) { p.Codes = map[string]uint32{"cuptiActivityEnable": 39} }, exitUsage,
			"trbench: a timeline cannot be had: "},
		"graphs are hidden": {func(p *fake.Profiler) { p.Graphless = true }, exitFailure, "trbench: no timeline of golden-tiny batch 2 gpus 1, step/inside/device was written: calibrate"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code, out, said := invoke(t, t.Context(), stepping(t, c.change), dir, "profile", "--device=cuda", "--kernels=builtin", "--workload=golden-tiny", "--batch=2",
				"--mode=step", "--steps=1", "--warmup=0", "--out=x.json")
			if code != c.code || out != "" || !strings.Contains(said, c.want) {
				t.Errorf("exit %d, want %d: %s%s", code, c.code, out, said)
			}
			wantEmpty(t, dir)
		})
	}
}
