package timeline_test

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
)

// This file is a second implementation of the split that looks at one
// nanosecond at a time, straight from the definition.

var launchName = regexp.MustCompile(`[Ll]aunch|[Mm]emcpy|[Mm]emset`)

// naiveLaunch is the launching call of an op, or None.
func naiveLaunch(t *timeline.Timeline, op int) int {
	best := timeline.None
	for i, c := range t.Calls {
		if c.Correlation == 0 || c.Correlation != t.Ops[op].Correlation {
			continue
		}
		if best == timeline.None {
			best = i
			continue
		}
		b := t.Calls[best]
		named, bestNamed := launchName.MatchString(t.Text(c.Name)), launchName.MatchString(t.Text(b.Name))
		if named && !bestNamed || named == bestNamed && (c.StartNs < b.StartNs || c.StartNs == b.StartNs && c.EndNs > b.EndNs) {
			best = i
		}
	}
	return best
}

type naive struct {
	busy, idle, late, api, after, graph, unlinked, before, inside, end int64
	doing                                                              map[string]int64
	gaps                                                               int
	operatorCall                                                       int64
}

// sweepNaive walks a window of the ops that belong.
func sweepNaive(t *timeline.Timeline, w timeline.Window, belongs func(timeline.Op) bool) naive {
	n := naive{doing: map[string]int64{}}
	var ops []int
	for i, o := range t.Ops {
		if belongs(o) && o.Timed && o.EndNs >= o.StartNs {
			ops = append(ops, i)
		}
	}
	// first tells whether a stands before b in the order of the definition.
	first := func(a, b int) bool {
		p, q := t.Ops[a], t.Ops[b]
		if p.StartNs != q.StartNs {
			return p.StartNs < q.StartNs
		}
		if p.EndNs != q.EndNs {
			return p.EndNs < q.EndNs
		}
		la, lb := naiveLaunch(t, a), naiveLaunch(t, b)
		if la == timeline.None || lb == timeline.None {
			return la == timeline.None && lb != timeline.None
		}
		c, d := t.Calls[la], t.Calls[lb]
		if c.StartNs != d.StartNs {
			return c.StartNs < d.StartNs
		}
		return c.EndNs > d.EndNs
	}
	firstCall := int64(1 << 62)
	for _, c := range t.Calls {
		firstCall = min(firstCall, c.StartNs)
	}
	wasIdle := false
	lastP := int64(-1 << 62)
	for ns := w.FromNs; ns < w.ToNs; ns++ {
		covered := false
		p, next := w.FromNs, timeline.None
		started := false
		for _, i := range ops {
			o := t.Ops[i]
			if o.StartNs <= ns && ns < o.EndNs {
				covered = true
			}
			if o.EndNs <= ns {
				started = true
				p = max(p, o.EndNs)
			}
			if o.StartNs > ns && (next == timeline.None || first(i, next)) {
				next = i
			}
		}
		if covered {
			n.busy++
			wasIdle = false
			continue
		}
		n.idle++
		if !wasIdle || p != lastP {
			n.gaps++
		}
		wasIdle, lastP = true, p
		launch := timeline.None
		if next != timeline.None {
			launch = naiveLaunch(t, next)
		}
		if launch == timeline.None {
			n.unlinked++
			switch {
			case next == timeline.None:
				n.end++
			case t.Ops[next].StartNs < firstCall:
				n.before++
			default:
				n.inside++
			}
			continue
		}
		call := t.Calls[launch]
		later := false
		if started { // an op before the window's first cannot be
			for _, i := range ops {
				if i != next && t.Ops[i].Correlation == t.Ops[next].Correlation && first(i, next) {
					later = true
				}
			}
		}
		// The definition's p is where the gap began, also left of the window.
		from := int64(-1 << 62)
		for _, i := range ops {
			if e := t.Ops[i].EndNs; e <= ns {
				from = max(from, e)
			}
		}
		switch {
		case later && call.StartNs <= from:
			n.after++
			if call.Class == timeline.CallGraphLaunch {
				n.graph++
			}
		case ns < call.StartNs:
			n.late++
			doing, nested := naiveDoing(t, call.Thread, ns)
			n.doing[doing]++
			if nested {
				n.operatorCall++
			}
		case ns < call.EndNs:
			n.api++
		default:
			n.after++
		}
	}
	return n
}

// naiveDoing is what a thread does; nested says that it is a call inside an
// operator.
func naiveDoing(t *timeline.Timeline, thread int32, ns int64) (doing string, nested bool) {
	if thread == timeline.None {
		return "nothing", false // who knows what an unknown thread did
	}
	in := map[string]bool{}
	for _, c := range t.Calls {
		if c.Thread == thread && c.StartNs <= ns && ns < c.EndNs {
			if c.Class == timeline.CallSync {
				in["sync"] = true
			} else {
				in["call"] = true
			}
		}
	}
	names := map[timeline.RangeClass]string{
		timeline.RangeUser: "user", timeline.RangeOperator: "operator", timeline.RangeFeed: "feed",
		timeline.RangeOverhead: "overhead", timeline.RangePython: "python",
	}
	for _, r := range t.Ranges {
		if r.Thread == thread && r.StartNs <= ns && ns < r.EndNs {
			in[names[r.Class]] = true
		}
	}
	for _, s := range []string{"overhead", "sync", "feed", "call", "operator", "user", "python"} {
		if in[s] {
			return s, s == "call" && in["operator"]
		}
	}
	return "nothing", false
}

func parts(l timeline.HostLate) map[string]int64 {
	m := map[string]int64{}
	for k, v := range map[string]int64{
		"overhead": l.OverheadNs, "sync": l.SyncNs, "feed": l.FeedNs, "call": l.CallNs,
		"operator": l.OperatorNs, "user": l.UserNs, "python": l.PythonNs, "nothing": l.NothingNs,
	} {
		if v != 0 {
			m[k] = v
		}
	}
	return m
}

var callNames = []struct {
	name  string
	class timeline.CallClass
}{
	{"cudaLaunchKernel", timeline.CallLaunch}, {"cuLaunchKernelEx", timeline.CallLaunch},
	{"cudaGraphLaunch", timeline.CallGraphLaunch}, {"cudaMemcpyAsync", timeline.CallCopy},
	{"cuMemsetD8Async", timeline.CallCopy}, {"cudaStreamSynchronize", timeline.CallSync},
	{"cudaEventRecord", timeline.CallOther},
}

// random is a small timeline with all that makes the definition hard: overlaps,
// zero lengths, ties, several ops a call, several calls a correlation, ops
// without calls, bad times, calls later than their ops. No two calls agree in
// their times, so that the order is defined.
func random(r *rand.Rand) *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Processes = []timeline.Process{{ID: "7", Rank: timeline.None}}
	t.Threads = []timeline.Thread{{ID: "1"}, {ID: "2"}}
	t.Devices = []timeline.Device{{ID: "0"}, {ID: "1"}}
	t.Streams = []timeline.Stream{{Device: 0, ID: "7"}, {Device: 0, ID: "13"}, {Device: 1, ID: "7"}}
	const end = 60
	used := map[[2]int64]bool{}
	for range r.IntN(12) {
		c := callNames[r.IntN(len(callNames))]
		from := int64(r.IntN(end))
		call := timeline.Call{StartNs: from, EndNs: from + int64(r.IntN(9)), Thread: int32(r.IntN(3)) - 1,
			Name: b.Name(c.name), Class: c.class, Correlation: int64(r.IntN(8))}
		if k := [2]int64{call.StartNs, call.EndNs}; !used[k] {
			used[k] = true
			t.Calls = append(t.Calls, call)
		}
	}
	for i := range r.IntN(14) {
		s := int32(r.IntN(3))
		from := int64(r.IntN(end))
		o := timeline.Op{StartNs: from, EndNs: from + int64(r.IntN(7)), Stream: s, Device: t.Streams[s].Device,
			Name: b.Name("k" + strconv.Itoa(i%5)), Kind: timeline.Kind(r.IntN(3)), Timed: r.IntN(12) > 0, Correlation: int64(r.IntN(8))}
		if r.IntN(20) == 0 {
			o.EndNs = o.StartNs - 3
		}
		t.Ops = append(t.Ops, o)
	}
	for i := range r.IntN(10) {
		from := int64(r.IntN(end))
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: from, EndNs: from + int64(r.IntN(25)), Thread: int32(r.IntN(3)) - 1,
			Name: b.Name("r" + strconv.Itoa(i%3)), Class: timeline.RangeClass(r.IntN(6))})
	}
	return t
}

func TestSplitIsTheDefinitions(t *testing.T) {
	idle, late, operatorCalls := 0, 0, int64(0)
	for seed := range uint64(4000) {
		tl := random(rand.New(rand.NewPCG(seed, 1)))
		x := timeline.NewIndex(tl)
		for i := range tl.Ops {
			if got, want := int(x.Launch[i]), naiveLaunch(tl, i); got != want {
				t.Fatalf("seed %d: op %d is launched by call %d, want %d", seed, i, got, want)
			}
		}
		windows := func(span timeline.Window, ok bool) []timeline.Window {
			ws := []timeline.Window{{FromNs: -5, ToNs: 90}, {FromNs: 13, ToNs: 37}, {FromNs: 20, ToNs: 20}, {FromNs: 70, ToNs: 80}}
			if ok {
				ws = append(ws, span, timeline.Window{FromNs: span.FromNs - 3, ToNs: span.ToNs}, timeline.Window{FromNs: span.FromNs, ToNs: span.ToNs + 3})
			}
			return ws
		}
		check := func(what string, f timeline.Figures, n naive) {
			t.Helper()
			s := f.Split
			got := [...]int64{f.BusyNs, f.IdleNs, s.HostLateNs, s.InAPINs, s.AfterAPINs, s.InGraphNs, s.UnlinkedNs,
				s.UnlinkedBeforeNs, s.UnlinkedInsideNs, s.UnlinkedEndNs, int64(f.Gaps)}
			want := [...]int64{n.busy, n.idle, n.late, n.api, n.after, n.graph, n.unlinked, n.before, n.inside, n.end, int64(n.gaps)}
			if got != want {
				t.Fatalf("seed %d, %s, %v: busy, idle, late, api, after, graph, unlinked, before, inside, end, gaps are\n%v, want\n%v",
					seed, what, f.Window, got, want)
			}
			p := parts(s.Late)
			for k := range n.doing {
				if p[k] != n.doing[k] {
					t.Fatalf("seed %d, %s, %v: late %v, want %v", seed, what, f.Window, p, n.doing)
				}
			}
			if s.Late.OperatorCallNs != n.operatorCall {
				t.Fatalf("seed %d, %s, %v: %d ns late in calls of an operator, want %d", seed, what, f.Window, s.Late.OperatorCallNs, n.operatorCall)
			}
			operatorCalls += s.Late.OperatorCallNs
			if s.Late.SumNs() != s.HostLateNs || s.IdleNs() != f.IdleNs || f.BusyNs+f.IdleNs != f.SpanNs {
				t.Fatalf("seed %d, %s: %+v does not add up", seed, what, f)
			}
			idle += f.Gaps
			late += len(p)
		}
		for d := range int32(2) {
			for _, w := range windows(x.DeviceSpan(d)) {
				check("device", x.DeviceFigures(d, w), sweepNaive(tl, w, func(o timeline.Op) bool { return o.Device == d }))
			}
		}
		for s := range int32(3) {
			for _, w := range windows(x.StreamSpan(s)) {
				check("stream", x.StreamFigures(s, w), sweepNaive(tl, w, func(o timeline.Op) bool { return o.Stream == s }))
			}
		}
	}
	if idle < 10000 || late < 5000 || operatorCalls < 1000 {
		t.Errorf("the timelines hold %d gaps, %d reasons and %d ns in calls of operators: too few to tell", idle, late, operatorCalls)
	}
}
