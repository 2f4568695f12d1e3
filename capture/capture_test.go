package capture

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/workloads"
)

// rig is a group with prepared tables.
type rig struct {
	w       *workloads.Workload
	group   device.Group
	tables  []*walk.Table
	feeders []walk.Feeder
}

func newRig(t *testing.T, ranks int, variants []workloads.Variant, o cpu.Options) *rig {
	t.Helper()
	dev := cpu.New(o)
	spec := workloads.Spec{Model: "golden-tiny", Batch: 2, Ranks: ranks, Precision: workloads.AMP, Optimizer: workloads.LARS, EMA: true}
	w, err := workloads.New(spec, dev.Target())
	if err != nil {
		t.Fatal(err)
	}
	g, err := dev.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{w, g, make([]*walk.Table, ranks), make([]walk.Feeder, ranks)}
	err = g.Each(func(rank device.Rank) (err error) {
		i := rank.ID()
		r.feeders[i] = func(_ workloads.Variant, _ workloads.Half, _ int64, dst []byte) error { clear(dst); return nil }
		if err := w.Init(1, rank.Write); err != nil {
			return err
		}
		r.tables[i], err = walk.Prepare(rank, w, variants)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) prepare(c Config) (*Set, error) {
	c.Feeders = r.feeders
	return Prepare(r.group, r.w, r.tables, c)
}

var all = []workloads.Variant{0, 1, 2, 3, 4, 5}

func TestPhases(t *testing.T) {
	r := newRig(t, 2, all, cpu.Options{})
	filled, captured, reused := r.w.Totals()
	s, err := r.prepare(Config{Mode: Graph})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	counts := map[string]int{}
	var names []string
	for _, p := range s.Phases() {
		names = append(names, p.Name)
		counts[p.Name] = p.Count
		if p.Time < 0 {
			t.Errorf("phase %s took %v", p.Name, p.Time)
		}
	}
	want := []string{PhaseDeduplicate, PhaseWarmUp, PhaseFindCollectives, PhaseCapture, PhaseCaptureCollective,
		PhaseInstantiate, PhaseUpload, PhaseFirstReplay}
	if !slices.Equal(names, want) {
		t.Errorf("phases %v, want %v", names, want)
	}
	// DEEP_COMM, FIRST_COMM, STATS_COMM and VAL_RESULT_COMM meet.
	for name, n := range map[string]int{PhaseDeduplicate: reused, PhaseWarmUp: 2 * r.tables[0].Size().Prepared, PhaseFindCollectives: 4,
		PhaseCapture: 2 * (captured - 4), PhaseCaptureCollective: 2 * 4, PhaseInstantiate: 2 * captured,
		PhaseUpload: 2 * captured, PhaseFirstReplay: 2 * captured} {
		if counts[name] != n {
			t.Errorf("phase %s handled %d, want %d", name, counts[name], n)
		}
	}
	if s.Filled() != filled || s.Captured() != captured {
		t.Errorf("%d filled, %d captured; the atlas says %d, %d", s.Filled(), s.Captured(), filled, captured)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if live := r.group.(*cpu.Group).Live(); live["graphs"] != 0 || live["execs"] != 0 {
		t.Errorf("left open: %v", live)
	}
}

// In mode step every segment holds what its sub-graphs hold together.
func TestStepHoldsTheWholeSegment(t *testing.T) {
	r := newRig(t, 2, all, cpu.Options{})
	graph, err := r.prepare(Config{Mode: Graph})
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	step, err := r.prepare(Config{Mode: Step})
	if err != nil {
		t.Fatal(err)
	}
	defer step.Close()
	if step.Captured() >= step.Filled() {
		t.Errorf("%d graphs for %d segments: nothing is shared", step.Captured(), step.Filled())
	}
	for _, seg := range walk.Segments(all) {
		if a, b := fmt.Sprint(graph.Nodes(seg)), fmt.Sprint(step.Nodes(seg)); a != b {
			t.Errorf("%s: %s in sub-graphs, %s in one", walk.SegmentName(seg), a, b)
		}
		if info := step.Info(seg); info.WidestSection > int(workloads.NumStreams) {
			t.Errorf("%s: width %d", walk.SegmentName(seg), info.WidestSection)
		}
	}
}

func TestWarmUpFailureNamesTheOperator(t *testing.T) {
	r := newRig(t, 2, []workloads.Variant{workloads.FinalFull}, cpu.Options{Hook: func(rank int, b *workloads.Bound) error {
		if rank == 1 && b.SubGraph == workloads.EMAUpdate {
			return errors.New("no plan")
		}
		return nil
	}})
	s, err := r.prepare(Config{Mode: Graph})
	if s != nil || err == nil || !strings.Contains(err.Error(), "phase warm_up") || !strings.Contains(err.Error(), "rank 1") ||
		!strings.Contains(err.Error(), "EMA_UPDATE/") || !strings.Contains(err.Error(), "no plan") {
		t.Errorf("got %v", err)
	}
}

func TestStepRefusesHostControl(t *testing.T) {
	r := newRig(t, 1, []workloads.Variant{workloads.FinalFull}, cpu.Options{})
	if s, err := r.prepare(Config{Mode: Step, Control: workloads.ControlHost}); s != nil || err == nil {
		t.Errorf("got %v, %v", s, err)
	}
}

// eventful is a rank that writes down what a runner does in order.
type eventful struct {
	device.Rank
	log *[]string
}

func (r eventful) Record(s workloads.Stream, e device.Event) error {
	*r.log = append(*r.log, "record")
	return r.Rank.Record(s, e)
}

// loggedExec writes down launches.
type loggedExec struct {
	device.Exec
	log *[]string
}

func (e loggedExec) Launch(s workloads.Stream, v workloads.Variant) error {
	*e.log = append(*e.log, "launch")
	return e.Exec.Launch(s, v)
}

// Mode step feeds the next step behind its launch, as the other modes do, so
// that feeding does not stand between the host and the device's work; nothing
// is fed twice, and the batches are those of the other modes in their order.
func TestStepFeedsBehindItsLaunch(t *testing.T) {
	r := newRig(t, 1, all, cpu.Options{})
	var log []string
	var fed []string
	feeder := func(v workloads.Variant, h workloads.Half, index int64, dst []byte) error {
		log = append(log, "feed")
		fed = append(fed, fmt.Sprintf("%s %s %d", v, h, index))
		clear(dst)
		return nil
	}
	set, err := r.prepare(Config{Mode: Step})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	err = r.group.Rank(0).Do(func() error {
		rank := eventful{r.group.Rank(0), &log}
		run, err := set.Runner(rank, feeder)
		if err != nil {
			return err
		}
		for _, seg := range walk.Segments(all) {
			if e := &run.segments.At(seg).launch.exec; *e != nil {
				*e = loggedExec{*e, &log}
			}
		}
		step := func(p workloads.Phase, h workloads.Half, v workloads.Variant, want string) {
			t.Helper()
			log = nil
			err := errors.Join(run.Run(workloads.Segment{Phase: p, Half: h, Variant: v}), run.Drain())
			if got := strings.Join(log, " "); err != nil || got != want {
				t.Errorf("%s %s %s: %s, want %s; %v", p, h, v, got, want, err)
			}
		}
		const full, last = workloads.FinalFull, workloads.FinalLast
		step(workloads.EpochBegin, workloads.A, full, "feed launch record feed")
		step(workloads.TrainStep, workloads.A, full, "launch record feed")
		step(workloads.TrainStep, workloads.B, full, "launch record feed")
		step(workloads.TrainStep, workloads.A, last, "launch")
		step(workloads.EpochBegin, workloads.A, workloads.BeginFull, "feed launch record feed") // the half fed in vain is fed anew
		step(workloads.TrainStep, workloads.A, workloads.BeginFull, "launch record feed")
		step(workloads.ValBatch, workloads.A, workloads.ValFull, "feed launch record")
		want := "final/full A 0, final/full B 1, final/full A 2, final/full B 3, begin/full A 3, begin/full B 4, begin/full A 5, val/full A 0"
		if got := strings.Join(fed, ", "); got != want {
			t.Errorf("fed %s, want %s", got, want)
		}
		if p := run.Position(); p.Train != 5 || p.Val != 1 {
			t.Errorf("position %+v: a batch that no segment took does not count", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

type fakeGraph struct {
	device.Graph
	bounds []*workloads.Bound
}

func (g fakeGraph) Bounds() []*workloads.Bound { return g.bounds }
func (g fakeGraph) Info() device.GraphInfo {
	return device.GraphInfo{Nodes: map[string]int{"kernel": len(g.bounds)}}
}

// A graph that does not hold exactly what eager submits is no graph of the
// step.
func TestProof(t *testing.T) {
	bound := func(name string) *workloads.Bound {
		return &workloads.Bound{Node: &workloads.Node{Name: name}, SubGraph: workloads.DeepFwdBwd, Variant: workloads.FinalFull}
	}
	a, b, c := bound("a"), bound("b"), bound("c")
	for _, x := range []struct {
		name      string
		got, want []*workloads.Bound
		problem   string
	}{
		{"same", []*workloads.Bound{a, b}, []*workloads.Bound{a, b}, ""},
		{"empty", nil, []*workloads.Bound{a}, "the graph is empty"},
		{"one missing", []*workloads.Bound{a}, []*workloads.Bound{a, b}, "DEEP_FWD_BWD/b (final/full) is missing"},
		{"one too many", []*workloads.Bound{a, b, c}, []*workloads.Bound{a, b}, "DEEP_FWD_BWD/c (final/full) is too many"},
		{"swapped", []*workloads.Bound{b, a}, []*workloads.Bound{a, b}, "operator 0 of the graph is DEEP_FWD_BWD/b (final/full), eager submits DEEP_FWD_BWD/a"},
	} {
		err := prove(fakeGraph{bounds: x.got}, x.want)
		if (err == nil) != (x.problem == "") || err != nil && !strings.Contains(err.Error(), x.problem) {
			t.Errorf("%s: %v, want %q", x.name, err, x.problem)
		}
	}
}

// sized is a group whose device says how much of its memory is free.
type sized struct {
	device.Group
	free  []uint64
	asked int
	err   error
}

func (g *sized) Memory() (free, total []uint64, err error) {
	g.asked++
	return g.free, []uint64{100}, g.err
}

// What memory was in use is said of what was done, before it and after; not of
// what failed, behind which nothing is asked.
func TestMemoryAround(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name  string
		g     device.Group
		fails error
		then  error // of asking behind it
		want  *PhaseMemory
		asked int
	}{
		{"taken", &sized{free: []uint64{70}}, nil, nil, &PhaseMemory{Before: 30, After: 90}, 2},
		{"failed", &sized{free: []uint64{70}}, no, nil, nil, 1},
		{"not told behind it", &sized{free: []uint64{70}}, nil, no, nil, 2},
		{"more free than there is", &sized{free: []uint64{101}}, nil, nil, nil, 1},
		{"not told", &sized{free: []uint64{70}, err: no}, nil, nil, nil, 1},
		{"no such device", newRig(t, 1, nil, cpu.Options{}).group, nil, nil, nil, 0},
	} {
		s, _ := c.g.(*sized)
		ran := false
		got, err := MemoryAround(c.g, func() error {
			if ran = true; s != nil && s.free[0] == 70 {
				s.free, s.err = []uint64{10}, c.then
			}
			return c.fails
		})
		if !ran || err != c.fails || !reflect.DeepEqual(got, c.want) || s != nil && s.asked != c.asked {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}
