package cuda

import (
	"context"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/workloads"
)

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
			if info.Width < c.width[0] || info.Width > c.width[1] {
				t.Errorf("width %d, want %v", info.Width, c.width)
			}
			if c.o.Edges == EdgesSerial && (info.Edges != info.Total()-1 || info.CriticalPath != info.Total()) {
				t.Errorf("%d edges, critical path %d of %d nodes in series", info.Edges, info.CriticalPath, info.Total())
			}
			t.Logf("%d nodes, %d edges, width %d, critical path %d", info.Total(), info.Edges, info.Width, info.CriticalPath)
		})
	}
}
