package cuda

import (
	"context"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/device/cuda/dnn"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/workloads"
)

// Two operators are ordered if one writes what the other touches, if both count
// on the counters of one stream, or if both are plans of one library handle.
func TestConflict(t *testing.T) {
	at := func(off int64) []workloads.Region {
		return []workloads.Region{{Space: workloads.Arena, Off: off, Bytes: 256}}
	}
	reads := func(off int64) *op { return &op{b: &workloads.Bound{Reads: at(off)}} }
	writes := func(off int64) *op { return &op{b: &workloads.Bound{Writes: at(off)}} }
	with := func(o *op, change func(*op)) *op { change(o); return o }
	one, other := &dnn.Stream{}, &dnn.Stream{}
	plan := func(s *dnn.Stream, off int64) *op { return with(writes(off), func(o *op) { o.state = s }) }
	counts := func(s workloads.Stream, off int64) *op {
		return with(writes(off), func(o *op) { o.counters, o.stream = true, s })
	}
	for name, c := range map[string]struct {
		a, b *op
		want bool
	}{
		"both read":               {reads(0), reads(0), false},
		"written, then read":      {writes(0), reads(255), true},
		"read, then written":      {reads(0), writes(255), true},
		"written twice":           {writes(0), writes(255), true},
		"apart":                   {writes(0), writes(256), false},
		"one handle":              {plan(one, 0), plan(one, 256), true},
		"two handles":             {plan(one, 0), plan(other, 256), false},
		"a handle and none":       {plan(one, 0), writes(256), false},
		"counters of one stream":  {counts(workloads.COMP1, 0), counts(workloads.COMP1, 256), true},
		"counters of two streams": {counts(workloads.COMP1, 0), counts(workloads.UPDATE, 256), false},
	} {
		if got := conflict(c.a, c.b); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What orders the nodes of a graph, and how batch norm is launched, changes no
// bit: the fake driver runs branches at once, and computes what the CPU device
// computes.
func TestTunedTrainsAsTheCPU(t *testing.T) {
	type tuned struct {
		o     Tuning
		width [2]int // of a training step's graph, least and most
	}
	list := []tuned{
		{Tuning{}, [2]int{2, 4}},
		{Tuning{Edges: EdgesSerial}, [2]int{1, 1}},
		{Tuning{Edges: EdgesHazards}, [2]int{3, 99}},
		{Tuning{Edges: EdgesHazards, OneKernelNorm: true, Dependent: true}, [2]int{3, 99}},
		{Tuning{Edges: EdgesSerial, OneKernelNorm: true, Dependent: true}, [2]int{1, 1}},
		{Tuning{FusedJoin: true, NormMask: true}, [2]int{2, 4}},
		{Tuning{Edges: EdgesHazards, FusedJoin: true, NormMask: true, OneKernelNorm: true}, [2]int{3, 99}},
	}
	for _, words := range (&Device{}).Tunings() {
		o, err := ParseTuning(words)
		must(t, err)
		list = append(list, tuned{o, [2]int{2, 99}})
	}
	for _, c := range list {
		t.Run(c.o.String(), func(t *testing.T) {
			if raceDetector && (c.o.Edges != EdgesHazards || c.o.Dependent) {
				t.Skip("hazards alone have the most at once")
			}
			x := fakeRig(t, nil)
			dev := x.device(Options{Tuning: c.o})
			w, err := workloads.New(tinySpec(), dev.Target())
			must(t, err)
			ref := session(t, cpu.New(cpu.Options{}), w, worker.Options{})
			s := session(t, dev, w, worker.Options{})
			v, err := s.Check(context.Background(), everyWay(), 2)
			must(t, err)
			if !v.Equal {
				t.Errorf("evidence %+v", v)
			}
			run := func(s *worker.Session, k string) *worker.State {
				e, err := s.Executor(key(k))
				must(t, err, s.Restore(), e.Rehearse(3))
				return state(t, s)
			}
			want := run(ref, "eager/event/device")
			for _, k := range []string{"eager/event/device", "graph/event/device", "step/inside/device"} {
				if d := run(s, k).Diff(want); d != nil {
					t.Errorf("%s: tensor %s, element %d: %s", k, d.Tensor, d.Index, d.Detail)
				}
			}
			e, err := s.Executor(key("step/inside/device"))
			must(t, err)
			info := e.Set().Info(worker.StepSegments(workloads.FinalFull)[0])
			if info.WidestSection < c.width[0] || info.WidestSection > c.width[1] {
				t.Errorf("width %d, want %v", info.WidestSection, c.width)
			}
			if c.o.Edges == EdgesSerial && (info.Edges != info.Total()-1 || info.CriticalPath != info.Total()) {
				t.Errorf("%d edges, critical path %d of %d nodes in series", info.Edges, info.CriticalPath, info.Total())
			}
			t.Logf("%d nodes, %d edges, width %d, critical path %d", info.Total(), info.Edges, info.WidestSection, info.CriticalPath)
		})
	}
}
