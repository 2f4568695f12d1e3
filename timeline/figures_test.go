package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
)

// scene is a timeline written by hand: one process, threads "main" and "loader".
type scene struct{ b timeline.Builder }

func newScene(devices, streams int) *scene {
	s := &scene{}
	s.b.Name("")
	t := &s.b.T
	t.Processes = []timeline.Process{{ID: "1", Name: "train", Rank: 0}}
	t.Threads = []timeline.Thread{{ID: "1", Name: "main"}, {ID: "2", Name: "loader"}}
	for d := range devices {
		t.Devices = append(t.Devices, timeline.Device{ID: strconv.Itoa(d)})
		for k := range streams {
			t.Streams = append(t.Streams, timeline.Stream{Device: int32(d), ID: strconv.Itoa(7 + k)})
		}
	}
	return s
}

func (s *scene) op(name string, stream int32, from, to, correlation int64) *timeline.Op {
	t := &s.b.T
	t.Ops = append(t.Ops, timeline.Op{StartNs: from, EndNs: to, Stream: stream, Device: t.Streams[stream].Device,
		Name: s.b.Name(name), Timed: true, Correlation: correlation})
	return &t.Ops[len(t.Ops)-1]
}

func (s *scene) call(name string, thread int32, from, to, correlation int64) {
	s.b.T.Calls = append(s.b.T.Calls, timeline.Call{StartNs: from, EndNs: to, Thread: thread, Name: s.b.Name(name),
		Correlation: correlation, Class: timeline.Classify(name)})
}

func (s *scene) rng(name string, class timeline.RangeClass, thread int32, from, to int64) {
	s.b.T.Ranges = append(s.b.T.Ranges, timeline.Range{StartNs: from, EndNs: to, Thread: thread, Name: s.b.Name(name), Class: class})
}

func (s *scene) index() *timeline.Index { return timeline.NewIndex(&s.b.T) }

// step is a scene with a bit of everything; the figures in the tests are
// counted by hand from this picture.
//
//	main    [launch k1 0..10][sync 20..45][launch k2 60..70] [graph 80..85 .......]
//	ranges  step 0..300, fwd 0..75 with operator conv 50..65, opt 76..300, feed 46..52
//	stream7        k1 15..40                    k2 75..100   g1 110..120 g2 130..150
//	stream8                                         copy 90..105 (no call)   g3 125..128
func step() *scene {
	s := newScene(1, 2)
	s.call("cudaLaunchKernel", 0, 0, 10, 1)
	s.call("cudaStreamSynchronize", 0, 20, 45, 2)
	s.call("cudaLaunchKernel", 0, 60, 70, 3)
	s.call("cudaGraphLaunch_v10000", 0, 80, 85, 4)
	s.rng("step 1", timeline.RangeStep, 0, 0, 300)
	s.rng("forward", timeline.RangeUser, 0, 0, 75)
	s.rng("conv", timeline.RangeOperator, 0, 50, 65)
	s.rng("optimizer", timeline.RangeUser, 0, 76, 300)
	s.rng("next batch", timeline.RangeFeed, 0, 46, 52)
	s.op("k1", 0, 15, 40, 1)
	s.op("k2", 0, 75, 100, 3)
	s.op("copy", 1, 90, 105, 9).Kind = timeline.Copy
	for _, g := range []struct {
		name     string
		stream   int32
		from, to int64
	}{{"g1", 0, 110, 120}, {"g3", 1, 125, 128}, {"g2", 0, 130, 150}} {
		o := s.op(g.name, g.stream, g.from, g.to, 4)
		o.Graph = 17
	}
	return s
}

func TestStepByHand(t *testing.T) {
	x := step().index()
	f, ok := x.SpanFigures(0)
	if !ok {
		t.Fatal("no span")
	}
	// Busy: 15..40, 75..105, 110..120, 125..128, 130..150.
	// Gaps: 40..75 (late 20, api 10, after 5), 105..110, 120..125, 128..130, all
	// of the graph, the first of them its first op's: launched before, so after.
	want := timeline.Figures{
		Window: timeline.Window{FromNs: 15, ToNs: 150}, SpanNs: 135, BusyNs: 88, IdleNs: 47, Gaps: 4,
		Ops: 6, Linked: 5, Kernels: 5, Copies: 1, OpsNs: 25 + 25 + 15 + 10 + 3 + 20,
		Split: timeline.Split{
			HostLateNs: 20, InAPINs: 10, AfterAPINs: 17, InGraphNs: 7,
			// 40..45 sync, 45..46 forward alone, 46..52 feed, 52..60 conv.
			Late: timeline.HostLate{SyncNs: 5, UserNs: 1, FeedNs: 6, OperatorNs: 8},
		},
	}
	if f != want {
		t.Errorf("figures are\n%+v, want\n%+v", f, want)
	}
	// A window in the middle cuts a gap in each of its parts.
	f = x.DeviceFigures(0, timeline.Window{FromNs: 50, ToNs: 65})
	if s := f.Split; f.BusyNs != 0 || s.HostLateNs != 10 || s.InAPINs != 5 || s.AfterAPINs != 0 || s.Late.FeedNs != 2 || s.Late.OperatorNs != 8 {
		t.Errorf("50..65: %+v", f)
	}
	// Stream 8 waits from 105 to 125 for a graph launched before.
	f = x.StreamFigures(1, timeline.Window{FromNs: 90, ToNs: 128})
	if f.BusyNs != 18 || f.Split.AfterAPINs != 20 || f.Split.InGraphNs != 0 || f.Ops != 2 {
		t.Errorf("stream 8: %+v", f)
	}
	d := x.Delays(0, f.Window)
	if d.Ns.Count != 1 || d.Ns.P50Ns != 30 {
		t.Errorf("delays in 90..128: %+v", d)
	}
	d = x.Delays(0, want.Window)
	if d.Negative != 0 || d.Ns.Count != 3 || d.Ns.SumNs != 15+15+30 || d.Ns.P99Ns != 30 || d.Ns.P50Ns != 15 {
		t.Errorf("delays: %+v", d)
	}
	if g := x.GraphStats(0, want.Window); g.Launches != 1 || g.Ops != 3 || g.MaxOps != 3 || g.Short != 0 || g.HostNs.SumNs != 5 {
		t.Errorf("graphs: %+v", g)
	}
	if s := x.ShortKernels(0, want.Window); s.Count != 0 || s.Of != 2 {
		t.Errorf("short kernels: %+v", s)
	}
	in := x.Integrity(0)
	if in != (timeline.Integrity{Ops: 6, Linked: 5, UnlinkedInside: 1, Launches: 3, MaxOpsPerLaunch: 3}) {
		t.Errorf("integrity: %+v", in)
	}
}

func TestQueueDepth(t *testing.T) {
	x := step().index()
	// k1 waits 0..15, k2 60..75, the graph's ops 80..110, 80..125, 80..130.
	want := []timeline.Depth{{AtNs: 0, Ops: 1}, {AtNs: 15}, {AtNs: 60, Ops: 1}, {AtNs: 75}, {AtNs: 80, Ops: 3}, {AtNs: 110, Ops: 2}, {AtNs: 125, Ops: 1}, {AtNs: 130}}
	got := x.QueueDepth(0)
	if !slices.Equal(got, want) {
		t.Errorf("depths are %v, want %v", got, want)
	}
	s := timeline.QueueStatsOf(got, timeline.Window{FromNs: 10, ToNs: 140})
	if s.Max != 3 || s.OpNs != 5+15+3*30+2*15+5 || s.EmptyNs != 45+5+10 {
		t.Errorf("queue is %+v", s)
	}
	if s := timeline.QueueStatsOf(nil, timeline.Window{FromNs: 10, ToNs: 140}); s.EmptyNs != 130 {
		t.Errorf("an empty queue is %+v", s)
	}
	if got := x.StreamQueueDepth(1); !slices.Equal(got, []timeline.Depth{{AtNs: 80, Ops: 1}, {AtNs: 125}}) {
		t.Errorf("depths of stream 8 are %v", got)
	}
}

// TestQueueDepthIsTheCount counts, nanosecond by nanosecond.
func TestQueueDepthIsTheCount(t *testing.T) {
	for seed := range uint64(500) {
		tl := random(rand.New(rand.NewPCG(seed, 6)))
		x := timeline.NewIndex(tl)
		depths := x.QueueDepth(0)
		at, depth := 0, 0
		var sum int64
		for ns := int64(-5); ns < 90; ns++ {
			for at < len(depths) && depths[at].AtNs <= ns {
				depth = depths[at].Ops
				at++
			}
			want := 0
			for i, o := range tl.Ops {
				if c := x.Launch[i]; o.Device == 0 && o.Timed && o.EndNs >= o.StartNs && c != timeline.None && tl.Calls[c].StartNs <= ns && ns < o.StartNs {
					want++
				}
			}
			if depth != want {
				t.Fatalf("seed %d: at %d, %d wait, want %d", seed, ns, depth, want)
			}
			sum += int64(want)
		}
		if got := timeline.QueueStatsOf(depths, timeline.Window{FromNs: -5, ToNs: 90}); got.OpNs != sum {
			t.Fatalf("seed %d: %d op ns, want %d", seed, got.OpNs, sum)
		}
	}
}

func TestShares(t *testing.T) {
	x := step().index()
	w, _ := x.DeviceSpan(0)
	shares, rest := x.Shares(0, w, nil)
	want := []timeline.Share{
		{Name: "step 1", Launches: 3, Ops: 5, GPUNs: 83},
		{Name: "forward", Launches: 2, Ops: 2, GPUNs: 50, SelfNs: 50},
		{Name: "optimizer", Launches: 1, Ops: 3, GPUNs: 33, SelfNs: 33},
	}
	if !slices.Equal(shares, want) {
		t.Errorf("shares are\n%+v, want\n%+v", shares, want)
	}
	if rest != (timeline.Share{Ops: 1, GPUNs: 15, SelfNs: 15}) {
		t.Errorf("rest is %+v", rest)
	}
	shares, _ = x.Shares(0, w, func(r *timeline.Range) bool { return r.Class == timeline.RangeOperator })
	if len(shares) != 1 || shares[0].Name != "conv" || shares[0].GPUNs != 25 {
		t.Errorf("operators: %+v", shares)
	}
}

// TestSharesAddUp is against the definition, op by op.
func TestSharesAddUp(t *testing.T) {
	for seed := range uint64(1500) {
		tl := random(rand.New(rand.NewPCG(seed, 2)))
		x := timeline.NewIndex(tl)
		w, ok := x.DeviceSpan(0)
		if !ok {
			continue
		}
		any := func(*timeline.Range) bool { return true }
		shares, rest := x.Shares(0, w, any)
		var self int64
		for _, s := range shares {
			self += s.SelfNs
			var gpu int64
			ops := 0
			for i, o := range tl.Ops {
				c := x.Launch[i]
				if o.Device != 0 || !o.Timed || o.EndNs < o.StartNs || c == timeline.None || tl.Calls[c].Thread == timeline.None {
					continue
				}
				if slices.ContainsFunc(tl.Ranges, func(r timeline.Range) bool {
					return tl.Text(r.Name) == s.Name && r.Thread == tl.Calls[c].Thread && r.StartNs <= tl.Calls[c].StartNs && tl.Calls[c].StartNs < r.EndNs
				}) {
					gpu, ops = gpu+o.EndNs-o.StartNs, ops+1
				}
			}
			if s.GPUNs != gpu || s.Ops != ops {
				t.Fatalf("seed %d: %s has %d ns in %d ops, want %d in %d", seed, s.Name, s.GPUNs, s.Ops, gpu, ops)
			}
		}
		if f := x.DeviceFigures(0, w); self+rest.SelfNs != f.OpsNs {
			t.Fatalf("seed %d: %d and the rest %d are not %d", seed, self, rest.SelfNs, f.OpsNs)
		}
	}
}

func TestTops(t *testing.T) {
	x := step().index()
	w, _ := x.DeviceSpan(0)
	k := x.TopKernels(0, w, 2)
	if len(k) != 2 || k[0].Name != "k1" || k[0].GPUNs.SumNs != 25 || k[1].Name != "k2" {
		t.Errorf("top kernels: %+v", k)
	}
	if k = x.TopKernels(0, w, -1); len(k) != 6 {
		t.Errorf("%d names, want 6", len(k))
	}
	g := x.TopGaps(0, w, 2)
	if len(g) != 2 || g[0].Before != "k1" || g[0].After != "k2" || g[0].Launch != "cudaLaunchKernel" || g[0].Split.HostLateNs != 20 ||
		!slices.Equal(g[0].Ranges, []string{"step 1", "forward", "conv"}) || !slices.Equal(g[0].Calls, []string{"cudaStreamSynchronize"}) {
		t.Errorf("longest gap: %+v", g)
	}
	if g[1].Gap.FromNs != 105 || g[1].Before != "copy" || g[1].After != "g1" {
		t.Errorf("second gap: %+v", g[1])
	}
}

func TestSteps(t *testing.T) {
	s := newScene(1, 1)
	// Two steps on the host, each of two launches; the device is late by one.
	for i := range int64(2) {
		at := 100 * i
		s.rng("step "+strconv.Itoa(int(i)), timeline.RangeStep, 0, at, at+90)
		s.rng("inner", timeline.RangeStep, 0, at+10, at+20)
		s.call("cuLaunchKernel", 0, at, at+5, 10*i+1)
		s.call("cudaMemcpyAsync", 0, at+50, at+58, 10*i+2)
		s.op("k", 0, at+60, at+90, 10*i+1)
		s.op("c", 0, at+110, at+120, 10*i+2).Kind = timeline.Copy
	}
	s.call("cuLaunchKernel", 0, 95, 96, 30) // between the steps
	s.op("k", 0, 125, 130, 30)
	s.rng("other thread's", timeline.RangeStep, 1, 0, 1000)
	got := s.index().Steps(0)
	if len(got) != 2 {
		t.Fatalf("%d steps: %+v", len(got), got)
	}
	a := got[0]
	if a.Name != "step 0" || a.Host != (timeline.Window{FromNs: 0, ToNs: 90}) || a.GPU != (timeline.Window{FromNs: 60, ToNs: 120}) ||
		a.Ops != 2 || a.Kernels != 1 || a.Launches != 2 || a.OpsNs != 40 || a.LaunchHostNs != 13 {
		t.Errorf("step: %+v", a)
	}
	// In the host's window k alone runs, from 60; its gap begins with the window.
	if a.Within.BusyNs != 30 || a.Within.IdleNs != 60 || a.Within.Split.InAPINs != 5 || a.Within.Split.AfterAPINs != 55 || a.Own.BusyNs != 40 || a.Own.IdleNs != 20 {
		t.Errorf("within %+v, own %+v", a.Within, a.Own)
	}
	if w, ok := timeline.StepsWindow(got); !ok || w != (timeline.Window{FromNs: 0, ToNs: 190}) {
		t.Errorf("steps span %v", w)
	}
	if _, ok := timeline.StepsWindow(nil); ok {
		t.Error("no steps have a window")
	}
	if own := got[1].Own; own.SpanNs != 60 || own.BusyNs != 40 {
		t.Errorf("second step: %+v", own)
	}
}

// A graph's launch counts once however much it launched; a step's work ends with
// what ends last, which need not have begun last; a call at a step's end is not
// in it, and one at its begin is.
func TestStepsAtTheirEdges(t *testing.T) {
	s := newScene(1, 2)
	s.rng("step 0", timeline.RangeStep, 0, 0, 90)
	s.rng("step 1", timeline.RangeStep, 0, 100, 190)
	s.call("cudaGraphLaunch_v10000", 0, 0, 7, 1)
	s.call("cuLaunchKernel", 0, 90, 92, 2)
	s.call("cuLaunchKernel", 0, 100, 103, 3)
	s.op("long", 0, 10, 60, 1)
	s.op("short", 1, 20, 30, 1)
	s.op("late", 1, 40, 50, 1)
	s.op("between", 0, 95, 99, 2)
	s.op("second", 0, 104, 110, 3)
	got := s.index().Steps(0)
	if len(got) != 2 {
		t.Fatalf("%d steps", len(got))
	}
	if a := got[0]; a.Launches != 1 || a.LaunchHostNs != 7 || a.Ops != 3 || a.Kernels != 3 || a.GPU != (timeline.Window{FromNs: 10, ToNs: 60}) {
		t.Errorf("first: %+v", a)
	}
	if b := got[1]; b.Launches != 1 || b.LaunchHostNs != 3 || b.Ops != 1 || b.GPU != (timeline.Window{FromNs: 104, ToNs: 110}) {
		t.Errorf("second: %+v", b)
	}
}

func TestLaunchStats(t *testing.T) {
	s := newScene(1, 1)
	s.call("cudaLaunchKernel_v7000", 0, 0, 10, 1)
	s.call("cuLaunchKernel", 0, 2, 8, 1) // inside of it: not another launch
	s.call("cudaLaunchKernel_v7000", 0, 20, 26, 2)
	s.call("cudaMemcpyAsync", 0, 30, 34, 3) // launched nothing on record
	s.call("hipExtModuleRun", 0, 40, 43, 4) // launched something, whatever its name
	s.call("cudaDeviceSynchronize", 0, 50, 90, 5)
	s.call("cudaEventRecord", 0, 91, 92, 6)
	s.call("cudaLaunchKernel_v7000", 0, 1000, 1001, 7) // outside
	for k := range int64(2) {
		s.op("k", 0, 11+20*k, 14+20*k, 1+k)
	}
	s.op("k", 0, 60, 61, 4)
	s.call("cuLaunchKernel", 0, 93, 95, 8)
	s.op("as long as its call", 0, 97, 99, 8)
	x := s.index()
	l := x.LaunchStats(timeline.Window{FromNs: 0, ToNs: 100})
	if l.All.HostNs.Count != 5 || l.All.HostNs.SumNs != 25 || l.All.Ops != 4 || l.All.Unmatched != 1 {
		t.Errorf("all: %+v", l.All)
	}
	if len(l.ByName) != 4 || l.ByName[0].Name != "cudaLaunchKernel_v7000" || l.ByName[0].HostNs.SumNs != 16 || l.ByName[0].Class != timeline.CallLaunch {
		t.Errorf("by name: %+v", l.ByName)
	}
	if l.Syncs.HostNs.SumNs != 40 || l.Syncs.HostNs.Count != 1 {
		t.Errorf("syncs: %+v", l.Syncs)
	}
	if sk := x.ShortKernels(0, timeline.Window{FromNs: 0, ToNs: 100}); sk != (timeline.ShortKernels{Count: 3, Of: 4, GPUNs: 7, HostNs: 19}) {
		t.Errorf("short kernels: %+v", sk)
	}
}

func TestIntegrityCounts(t *testing.T) {
	s := newScene(2, 2)
	s.call("cudaLaunchKernel", 0, 50, 55, 1)
	s.op("early", 0, 45, 60, 1) // before its call
	s.op("old", 0, 10, 20, 7)
	s.op("lost", 0, 70, 80, 8)
	s.op("lost", 0, 70, 80, 8)
	s.op("lost", 0, 70, 80, 8)
	s.op("late", 0, 70, 80, 5) // of the same times, and twice
	s.op("late", 0, 70, 80, 5)
	s.op("long", 1, 100, 200, 0)
	s.op("in", 1, 110, 120, 0)
	s.op("in too", 1, 130, 140, 0)
	s.op("zero", 1, 200, 200, 0)
	s.op("bad", 1, 30, 20, 1)
	s.op("untimed", 1, 0, 0, 1).Timed = false
	s.op("elsewhere", 2, 0, 5, 0)
	s.op("replay", 0, 90, 95, 0).Kind = timeline.Envelope
	got := s.index().Integrity(0)
	want := timeline.Integrity{Ops: 14, Untimed: 2, Linked: 1, UnlinkedBefore: 1, UnlinkedInside: 10, ZeroOps: 1,
		Overlaps: 6, OverlapNs: 10 + 10 + 10 + 10 + 10 + 10, Duplicates: 3, Early: 1, Envelopes: 1, Launches: 1, MaxOpsPerLaunch: 1}
	if got != want {
		t.Errorf("integrity is\n%+v, want\n%+v", got, want)
	}
	if got.Bad() != 13 || got.Unlinked() != 11 {
		t.Errorf("bad %d, unlinked %d", got.Bad(), got.Unlinked())
	}
}

func TestGraphReplayCutShort(t *testing.T) {
	s := newScene(1, 1)
	at := int64(0)
	for replay, nodes := range []int{3, 2, 3, 3} {
		c := int64(replay + 1)
		s.call("cuGraphLaunch", 0, at, at+2, c)
		for range nodes {
			at += 10
			o := s.op("n", 0, at, at+5, c)
			if replay < 3 {
				o.Graph = 5
			}
		}
	}
	g := s.index().GraphStats(0, timeline.Window{FromNs: 0, ToNs: 1000})
	if g.Launches != 4 || g.Short != 1 || g.MinOps != 2 || g.MedianOps != 3 || g.MaxOps != 3 || g.Ops != 11 {
		t.Errorf("graphs: %+v", g)
	}
	for i := range s.b.T.Ops {
		s.b.T.Ops[i].Graph = 0
	}
	if g = s.index().GraphStats(0, timeline.Window{FromNs: 0, ToNs: 1000}); g.Short != timeline.None {
		t.Errorf("short replays of unknown graphs: %d", g.Short)
	}
}

// all are all figures of a timeline, for comparison.
func all(t *testing.T, tl *timeline.Timeline, deviceOf, streamOf []int32, shift int64) string {
	t.Helper()
	x := timeline.NewIndex(tl)
	back := func(w timeline.Window) timeline.Window {
		return timeline.Window{FromNs: w.FromNs - shift, ToNs: w.ToNs - shift}
	}
	out := ""
	for _, d := range deviceOf {
		w, ok := x.DeviceSpan(d)
		if !ok {
			out += "none\n"
			continue
		}
		f := x.DeviceFigures(d, w)
		f.Window = back(f.Window)
		part := timeline.Window{FromNs: w.FromNs + 5, ToNs: w.FromNs + 25}
		p := x.DeviceFigures(d, part)
		p.Window = back(p.Window)
		shares, rest := x.Shares(d, w, nil)
		depth := x.QueueDepth(d)
		qs := timeline.QueueStatsOf(depth, w)
		steps := x.Steps(d)
		for i := range steps {
			s := &steps[i]
			s.Host, s.Within.Window = back(s.Host), back(s.Within.Window)
			if s.Ops > 0 {
				s.GPU, s.Own.Window = back(s.GPU), back(s.Own.Window)
			}
		}
		out += fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v %+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n", f, p, x.Integrity(d), x.Delays(d, w), shares, rest, qs,
			steps, x.TopKernels(d, w, -1), x.GraphStats(d, w), x.ShortKernels(d, w), x.CorrectedBusy(d, w, timeline.Lengthening{ByNs: 2, UncertaintyNs: 1}))
		out += fmt.Sprintf("%+v\n", timeline.LogHistogram(timeline.GapLengths(x.DeviceGaps(d, w))))
	}
	for _, s := range streamOf {
		if w, ok := x.StreamSpan(s); ok {
			f := x.StreamFigures(s, w)
			f.Window = back(f.Window)
			out += fmt.Sprintf("%+v\n", f)
		}
	}
	return out + fmt.Sprintf("%+v", x.LaunchStats(timeline.Window{FromNs: shift, ToNs: shift + 1000}))
}

func TestOrderNumbersAndOriginDoNotMatter(t *testing.T) {
	for seed := range uint64(800) {
		r := rand.New(rand.NewPCG(seed, 3))
		tl := random(r)
		before := all(t, tl, []int32{0, 1}, []int32{0, 1, 2}, 0)

		const shift = 1 << 40
		far := int64(seed%2) * 1e15 // correlations may be any numbers
		r.Shuffle(len(tl.Ops), reflect.Swapper(tl.Ops))
		r.Shuffle(len(tl.Calls), reflect.Swapper(tl.Calls))
		r.Shuffle(len(tl.Ranges), reflect.Swapper(tl.Ranges))
		tl.Devices = []timeline.Device{{ID: "9"}, {ID: "4"}}
		tl.Streams = []timeline.Stream{{Device: 0}, {Device: 1}, {Device: 1}}
		streams, devices := []int32{2, 1, 0}, []int32{1, 0}
		renumbered := map[int64]int64{0: 0}
		number := func(n int64) int64 {
			if _, ok := renumbered[n]; !ok {
				renumbered[n] = far*int64(1-2*(len(renumbered)%2)) + 1000 + int64(len(renumbered))
			}
			return renumbered[n]
		}
		for i := range tl.Ops {
			o := &tl.Ops[i]
			o.StartNs, o.EndNs, o.Correlation = o.StartNs+shift, o.EndNs+shift, number(o.Correlation)
			o.Stream, o.Device = streams[o.Stream], devices[o.Device]
		}
		for i := range tl.Calls {
			c := &tl.Calls[i]
			c.StartNs, c.EndNs, c.Correlation = c.StartNs+shift, c.EndNs+shift, number(c.Correlation)
		}
		for i := range tl.Ranges {
			tl.Ranges[i].StartNs += shift
			tl.Ranges[i].EndNs += shift
		}
		if after := all(t, tl, devices, streams, shift); after != before {
			t.Fatalf("seed %d: figures were\n%s\nand are\n%s", seed, before, after)
		}
	}
}

func TestCorrectedBusy(t *testing.T) {
	s := newScene(1, 2)
	s.op("a", 0, 0, 30, 0)
	s.op("b", 1, 20, 50, 0) // covers a's end
	s.op("c", 0, 60, 64, 0) // shorter than the correction
	s.op("copy", 0, 70, 80, 0).Kind = timeline.Copy
	x := s.index()
	w, _ := x.DeviceSpan(0)
	for _, c := range []struct{ by, want int64 }{{0, 64}, {5, 45 + 0 + 10}, {11, 19 + 19 + 10}, {100, 10}, {-3, 53 + 7 + 10}, {-12, 62 + 8 + 10}} {
		if got := x.CorrectedBusy(0, w, timeline.Lengthening{ByNs: c.by}); got.Ns != c.want || got.LowNs != c.want || got.HighNs != c.want {
			t.Errorf("by %d: %+v, want %d", c.by, got, c.want)
		}
	}
	got := x.CorrectedBusy(0, w, timeline.Lengthening{ByNs: 5, UncertaintyNs: 2})
	if got != (timeline.Corrected{Ns: 45 + 10, LowNs: 43 + 10, HighNs: 47 + 1 + 10}) {
		t.Errorf("range: %+v", got)
	}
	if got := x.CorrectedBusy(0, timeline.Window{FromNs: 10, ToNs: 75}, timeline.Lengthening{ByNs: 5}); got.Ns != 35+5 {
		t.Errorf("within 10..75: %+v", got)
	}
	if i := got.IdleOf(100); i.Ns != 45 || i.LowNs != 42 || i.HighNs != 47 || i.Failed {
		t.Errorf("idle: %+v", i)
	}
	if i := got.IdleOf(50); i.Ns != -5 || !i.Failed {
		t.Errorf("negative idle: %+v", i)
	}
	if i := got.IdleOf(56); i.Failed || i.LowNs != -2 {
		t.Errorf("idle that may be negative: %+v", i)
	}
}

// TestCorrectedBusyIsTheUnion counts nanoseconds.
func TestCorrectedBusyIsTheUnion(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 4))
		tl := random(r)
		x := timeline.NewIndex(tl)
		by, w := int64(r.IntN(8))-2, timeline.Window{FromNs: int64(r.IntN(30)), ToNs: int64(30 + r.IntN(40))}
		var want int64
		for ns := w.FromNs; ns < w.ToNs; ns++ {
			if slices.ContainsFunc(tl.Ops, func(o timeline.Op) bool {
				end := o.EndNs
				if o.Kind == timeline.Kernel {
					end = max(o.StartNs, end-by)
				}
				return o.Device == 0 && o.Timed && o.EndNs >= o.StartNs && o.StartNs <= ns && ns < end
			}) {
				want++
			}
		}
		if got := x.CorrectedBusy(0, w, timeline.Lengthening{ByNs: by}); got.Ns != want {
			t.Fatalf("seed %d: by %d in %v is %d, want %d", seed, by, w, got.Ns, want)
		}
	}
}

func TestDistribute(t *testing.T) {
	var ns []int64
	for i := range int64(200) {
		ns = append(ns, 200-i) // 200..1
	}
	want := timeline.Distribution{Count: 200, SumNs: 20100, MinNs: 1, P1Ns: 2, P10Ns: 20, P25Ns: 50, P50Ns: 100, P75Ns: 150, P90Ns: 180, P99Ns: 198, MaxNs: 200}
	if got := timeline.Distribute(ns); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := timeline.Distribute([]int64{-7}); got.P1Ns != -7 || got.P99Ns != -7 || got.SumNs != -7 {
		t.Errorf("one: %+v", got)
	}
	if got := timeline.Distribute(nil); got != (timeline.Distribution{}) {
		t.Errorf("none: %+v", got)
	}
}

func TestLogHistogram(t *testing.T) {
	got := timeline.LogHistogram([]int64{0, 3, 8, 9, 10, 15, 16, 17, -4})
	var text string
	for _, b := range got {
		text += fmt.Sprintf("%d..%d:%d/%d ", b.FromNs, b.ToNs, b.Count, b.SumNs)
	}
	const want = "0..1:1/0 1..2:0/0 2..3:0/0 3..4:1/3 4..5:0/0 5..6:0/0 6..7:0/0 7..8:0/0 8..10:2/17 10..12:1/10 12..14:0/0 14..16:1/15 16..20:2/33 "
	if text != want {
		t.Errorf("buckets are\n%s, want\n%s", text, want)
	}
	// Every value lies in its bucket, to the ends of the range.
	r := rand.New(rand.NewPCG(1, 5))
	for range 20000 {
		v := r.Int64() >> r.IntN(63)
		b := timeline.LogHistogram([]int64{v})
		if len(b) != 1 || v < b[0].FromNs || v >= b[0].ToNs && v != 1<<63-1 {
			t.Fatalf("%d lies in %+v", v, b)
		}
	}
}

func TestClassify(t *testing.T) {
	for name, want := range map[string]timeline.CallClass{
		"cudaLaunchKernel_v7000": timeline.CallLaunch, "cudaLaunchKernelExC_v11060": timeline.CallLaunch, "cuLaunchKernelEx": timeline.CallLaunch,
		"hipLaunchKernel": timeline.CallLaunch, "hipModuleLaunchKernel": timeline.CallLaunch, "cudaLaunchCooperativeKernel": timeline.CallLaunch,
		"cudaGraphLaunch_v10000": timeline.CallGraphLaunch, "cuGraphLaunch_ptsz": timeline.CallGraphLaunch, "hipGraphLaunch": timeline.CallGraphLaunch,
		"cudaMemcpyAsync_ptsz": timeline.CallCopy, "cuMemsetD32Async": timeline.CallCopy, "hipMemcpyWithStream": timeline.CallCopy,
		"cudaStreamSynchronize_v3020": timeline.CallSync, "cuEventSynchronize": timeline.CallSync, "cuCtxSynchronize_v2": timeline.CallSync,
		"cudaGraphAddMemcpyNode": timeline.CallOther, "cudaGraphInstantiate": timeline.CallOther, "cudaLaunchHostFunc_v10000": timeline.CallOther,
		"cudaMalloc": timeline.CallOther, "cudaEventQuery": timeline.CallOther, "": timeline.CallOther, "_v1": timeline.CallOther,
	} {
		if got := timeline.Classify(name); got != want {
			t.Errorf("%q is of class %d, want %d", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"cudaLaunchKernel_v7000": "cudaLaunchKernel", "cudaMemcpyAsync_ptsz": "cudaMemcpyAsync", "cuMemcpyDtoH_v2_ptds": "cuMemcpyDtoH",
		"my_kernel": "my_kernel", "a_v": "a_v", "_v7": "_v7", "": "",
	} {
		if got := timeline.CleanAPIName(name); got != want {
			t.Errorf("%q is cleaned to %q, want %q", name, got, want)
		}
	}
}

func TestEmpty(t *testing.T) {
	x := timeline.NewIndex(&timeline.Timeline{})
	if l := x.LaunchStats(timeline.Window{FromNs: 0, ToNs: 10}); l.All.HostNs.Count != 0 || len(l.ByName) != 0 {
		t.Errorf("launches of nothing: %+v", l)
	}
	s := newScene(1, 1)
	x = s.index()
	if _, ok := x.SpanFigures(0); ok {
		t.Error("a device without ops has a span")
	}
	f := x.DeviceFigures(0, timeline.Window{FromNs: 5, ToNs: 15})
	if f.IdleNs != 10 || f.Split.UnlinkedEndNs != 10 || f.Gaps != 1 {
		t.Errorf("a window of nothing: %+v", f)
	}
	if len(x.Steps(0)) != 0 || len(x.QueueDepth(0)) != 0 || len(x.TopGaps(0, timeline.Window{FromNs: 0, ToNs: 9}, 3)) != 1 {
		t.Error("something is made of nothing")
	}
}

// large is an eager step repeated: launches of 5 us, kernels of 3 us, two
// streams, operators and ranges.
func large(ops int) *timeline.Timeline {
	s := newScene(1, 2)
	r := rand.New(rand.NewPCG(9, 9))
	at, gpu := int64(0), int64(0)
	for i := range ops {
		s.rng("aten::op"+strconv.Itoa(i%97), timeline.RangeOperator, 0, at, at+8000)
		s.call("cudaLaunchKernel", 0, at+2000, at+7000, int64(i+1))
		gpu = max(gpu, at+6000+r.Int64N(4000))
		n := 1000 + r.Int64N(9000)
		s.op("kernel"+strconv.Itoa(i%61), int32(i%2), gpu, gpu+n, int64(i+1))
		gpu += n * 3 / 4
		at += 8000
	}
	return &s.b.T
}

func BenchmarkIndex1M(b *testing.B) {
	tl := large(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		timeline.NewIndex(tl)
	}
}

func BenchmarkFigures1M(b *testing.B) {
	tl := large(1_000_000)
	x := timeline.NewIndex(tl)
	b.ReportAllocs()
	for b.Loop() {
		w, _ := x.DeviceSpan(0)
		x.DeviceFigures(0, w)
		x.Integrity(0)
		x.Shares(0, w, func(r *timeline.Range) bool { return true })
		x.LaunchStats(timeline.Window{FromNs: 0, ToNs: 1 << 62})
		x.Delays(0, w)
		x.TopKernels(0, w, 20)
		x.TopGaps(0, w, 10)
		x.QueueDepth(0)
		x.Steps(0)
	}
}
