package report

import (
	"fmt"
	"math"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
)

func window(from, to int64) timeline.Window { return timeline.Window{FromNs: from, ToNs: to} }

func TestShares(t *testing.T) {
	for _, c := range []struct {
		name      string
		w         timeline.Window
		length    int64
		stretches []stretch
		want      string
	}{
		{"whole columns", window(100, 140), 40, []stretch{{window(100, 110), 0}, {window(120, 140), 1}}, "[[1 0] [0 0] [0 1] [0 1]]"},
		{"parts of one", window(0, 40), 40, []stretch{{window(2, 4), 0}, {window(4, 5), 1}, {window(6, 7), 0}}, "[[0.3 0.1] [0 0] [0 0] [0 0]]"},
		{"across columns", window(0, 40), 40, []stretch{{window(5, 32), 1}}, "[[0 0.5] [0 1] [0 1] [0 0.2]]"},
		{"beyond the window", window(0, 40), 40, []stretch{{window(-9, 5), 0}, {window(35, 99), 0}}, "[[0.5 0] [0 0] [0 0] [0.5 0]]"},
		{"shorter than the axis", window(0, 25), 40, []stretch{{window(10, 21), 0}, {window(21, 25), 1}}, "[[0 0] [1 0] [0.2 0.8] [0 0]]"},
		{"nothing", window(7, 7), 0, nil, "[[0 0] [0 0] [0 0] [0 0]]"},
	} {
		got := sharesOf(c.w, c.length, 4, 2, c.stretches)
		for _, col := range got {
			for i := range col {
				col[i] = math.Round(col[i]*1e9) / 1e9
			}
		}
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestLanes is one launch of two nested records, a sync and a call of a thread
// that launches nothing.
func TestLanes(t *testing.T) {
	var b timeline.Builder
	b.Name("")
	tl := &b.T
	tl.Threads = make([]timeline.Thread, 2)
	tl.Devices = make([]timeline.Device, 1)
	tl.Streams = make([]timeline.Stream, 2)
	call := func(thread int32, name string, from, to, correlation int64) {
		tl.Calls = append(tl.Calls, timeline.Call{StartNs: from, EndNs: to, Thread: thread, Name: b.Name(name), Correlation: correlation, Class: timeline.Classify(name)})
	}
	call(0, "cudaLaunchKernel", 10, 20, 1)
	call(0, "cuLaunchKernel", 12, 18, 1)
	call(0, "cudaEventRecord", 18, 30, 2)
	call(0, "cudaStreamSynchronize", 40, 90, 3)
	call(1, "cudaMalloc", 0, 99, 4)
	for _, o := range [][3]int64{{0, 25, 40}, {0, 30, 45}, {0, 60, 70}, {1, 65, 80}} {
		tl.Ops = append(tl.Ops, timeline.Op{Stream: int32(o[0]), StartNs: o[1], EndNs: o[2], Timed: true, Correlation: 1})
	}
	s := TracedStep{Index: timeline.NewIndex(tl), Window: window(5, 85)}
	if got, want := fmt.Sprint(s.hostLane()), "[{{10 12} 0} {{12 18} 0} {{18 20} 0} {{20 30} 2} {{40 85} 1}]"; got != want {
		t.Errorf("host %s, want %s", got, want)
	}
	for _, c := range []struct {
		w    timeline.Window
		want string
	}{{window(5, 85), "1 false"}, {window(11, 85), "1 true"}, {window(66, 85), "0 false"}, {window(0, 25), "0 false"}} {
		n, before := TracedStep{Index: s.Index, Window: c.w}.launches()
		if got := fmt.Sprint(n, before); got != c.want {
			t.Errorf("launches in %v: %s, want %s", c.w, got, c.want)
		}
	}
	if got, want := fmt.Sprint(s.streamLane(0), s.streamLane(1)), "[{{25 45} 0} {{60 70} 0}] [{{65 80} 0}]"; got != want {
		t.Errorf("streams %s, want %s", got, want)
	}
	// The first gap is late to 10, in the call to 20, after it to 25; the second
	// is of the same launch; nothing ends the last.
	var device []stretch
	for _, d := range s.deviceLane() {
		if d.Ns() > 0 {
			device = append(device, d)
		}
	}
	if got, want := fmt.Sprint(device), "[{{5 10} 1} {{10 20} 2} {{20 25} 3} {{25 45} 0} {{45 60} 3} {{60 80} 0} {{80 85} 4}]"; got != want {
		t.Errorf("device %s, want %s", got, want)
	}
}

// TestPacked is a graph on more streams than there are lanes: its operations go
// where there is room, in order of their begins, and what finds none is counted.
func TestPacked(t *testing.T) {
	at := func(streams int, ops ...[2]int64) TracedStep {
		tl := &timeline.Timeline{Names: []string{""}, Devices: make([]timeline.Device, 1), Streams: make([]timeline.Stream, streams)}
		for i, o := range ops {
			tl.Ops = append(tl.Ops, timeline.Op{Stream: int32(i % streams), StartNs: o[0], EndNs: o[1], Timed: true})
		}
		return TracedStep{Index: timeline.NewIndex(tl), Window: window(0, 100)}
	}
	show := func(s TracedStep) string {
		out := ""
		lanes, note := s.streamLanes()
		for _, l := range lanes {
			out += fmt.Sprintf("%s %v; ", l.label, l.stack)
		}
		return out + note
	}
	six := [][2]int64{{-5, 10}, {10, 20}, {12, 30}, {22, 40}, {30, 31}, {90, 120}}
	if got, want := show(at(6, six...)), "at work [{{0 20} 0} {{22 40} 0} {{90 100} 0}]; one more [{{12 31} 0}]; ; 6 streams, drawn by how many work at once"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := show(at(2, six...)), "stream [{{0 10} 0} {{12 31} 0}]; stream [{{10 20} 0} {{22 40} 0} {{90 100} 0}]; "; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	var seven [][2]int64
	for i := range int64(7) {
		seven = append(seven, [2]int64{i, 50})
	}
	_, note := at(7, seven...).streamLanes()
	if want := "; 7 streams, drawn by how many work at once, 2 operations beyond not drawn"; note != want {
		t.Errorf("%s, want %s", note, want)
	}
}

func TestHistogramOfGaps(t *testing.T) {
	linked := func(from, late, api, to int64) timeline.Gap {
		return timeline.Gap{FromNs: from, LateToNs: late, APIToNs: api, ToNs: to, Launch: 0}
	}
	h := histogramOf(GapSet{Label: "x", Steps: 2, Gaps: []timeline.Gap{
		linked(0, 40, 70, 100), linked(0, 0, 30, 101), {FromNs: 5, LateToNs: 5, APIToNs: 5, ToNs: 4101, Launch: timeline.None}, linked(7, 7, 7, 7),
	}})
	// 100 and 101 ns share a bucket; 4096 ns begins one.
	if len(h.buckets) != 2 || fmt.Sprint(h.buckets[19], h.buckets[36]) != "[0 20 30 50.5 0] [0 0 0 0 2048]" {
		t.Errorf("buckets %v", h.buckets)
	}
	if got, want := fmt.Sprint(h.facts), "[2 gaps a step 2.15 us idle a step median 101 ns, p99 4.10 us]"; got != want {
		t.Errorf("facts %s, want %s", got, want)
	}
	r := histograms{rows: []histogram{h}}
	if left := r.reach(); left || r.top != 2048 || r.lo > 19 || r.hi < 36 {
		t.Errorf("reach %v %+v", left, r)
	}
	h.buckets[3] = []float64{0, 0.5, 0, 0, 0}
	r = histograms{rows: []histogram{h}}
	if left := r.reach(); !left || r.lo != 19 {
		t.Errorf("what is too little to be seen: %v %d", left, r.lo)
	}
}
