package eager

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// still is a rank on which nothing ever happens, in no time.
type still struct {
	device.Rank
	pinned []byte
}

type nothing struct{ b *workloads.Bound }

func (r *still) ID() int                                       { return 0 }
func (r *still) Prepare(b *workloads.Bound) (device.Op, error) { return nothing{b}, nil }
func (r *still) NewEvent(string) (device.Event, error)         { return nothing{}, nil }
func (r *still) Record(workloads.Stream, device.Event) error   { return nil }
func (r *still) Wait(workloads.Stream, device.Event) error     { return nil }
func (r *still) Pinned() []byte                                { return r.pinned }
func (n nothing) Bound() *workloads.Bound                      { return n.b }
func (n nothing) Calls() int                                   { return 1 }
func (n nothing) Submit(workloads.Variant) error               { return nil }
func (n nothing) Sync() error                                  { return nil }
func (n nothing) Query() (bool, error)                         { return true, nil }

// stepper submits steps of resnet50, 600 operators and more, node by node.
func stepper(tb testing.TB, c *nvtx.Client) func() {
	tb.Helper()
	w, err := workloads.New(workloads.Spec{Model: "resnet50", Batch: 1, Precision: workloads.AMP, EMA: true},
		workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		tb.Fatal(err)
	}
	r := &still{pinned: make([]byte, w.PinnedBytes)}
	table, err := walk.Prepare(r, w, []workloads.Variant{workloads.FinalFull})
	if err != nil {
		tb.Fatal(err)
	}
	table.Show(c)
	feeder := func(workloads.Variant, workloads.Half, int64, []byte) error { return nil }
	walker, err := walk.NewWalker(r, table, walk.Config{}, &Launcher{Table: table}, feeder)
	if err != nil {
		tb.Fatal(err)
	}
	seg := workloads.Segment{Phase: workloads.TrainStep, Variant: workloads.FinalFull}
	return func() {
		if err := walker.Run(seg); err != nil {
			tb.Fatal(err)
		}
		seg.Half = seg.Half.Other()
	}
}

// deaf is an attached tool that takes nothing.
func deaf(tb testing.TB) *nvtx.Client {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		tb.Skip("no C compiler (cc) on the PATH: the logging tool cannot be compiled")
	}
	dir := tb.TempDir()
	path := filepath.Join(dir, "tool.so")
	out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", path, `-DLOG="`+filepath.Join(dir, "log")+`"`, "-DNOTHING",
		filepath.Join("..", "nvtx", "testdata", "tool.c")).CombinedOutput()
	if err != nil {
		tb.Fatalf("compile the tool: %v\n%s", err, out)
	}
	c, err := nvtx.Open(path, nvtx.Domain)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// A step's submission allocates nothing.
func TestStepDoesNotAllocate(t *testing.T) {
	step := stepper(t, nil)
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkShown is a step's submission on a rank that does nothing: without
// a tool, and the ratio to it with one that takes nothing, in turn.
func BenchmarkShown(b *testing.B) {
	without, with := stepper(b, nil), stepper(b, deaf(b))
	var none, some []float64
	time1 := func(step func()) float64 {
		begin := time.Now()
		step()
		return float64(time.Since(begin))
	}
	for b.Loop() {
		none = append(none, time1(without))
		some = append(some, time1(with))
	}
	slices.Sort(none)
	slices.Sort(some)
	b.ReportMetric(none[len(none)/2], "ns/step")
	b.ReportMetric(some[len(some)/2]/none[len(none)/2], "ratio")
}
