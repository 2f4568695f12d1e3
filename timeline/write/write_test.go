package write_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/write"
)

// event is what any reader of Chrome traces sees.
type event struct {
	Ph, Cat, Name, BP string
	PID, TID          *json.Number
	TS, Dur           *json.Number
	ID                json.Number
	Args              map[string]any
}

type trace struct {
	BaseTimeNanoseconds int64
	DeviceProperties    []struct {
		ID   any
		Name string
	}
	DistributedInfo *struct{ Rank int }
	Trbench         struct {
		Format    string
		Version   int
		Processes []struct {
			PID      int64
			ID, Name string
			Rank     *int
		}
		Threads []struct {
			TIDs     []int64
			Process  int32
			ID, Name string
		}
		Devices []struct {
			PID      int64
			ID, Name string
			Host     bool
		}
		Streams []struct {
			TIDs            []int64
			Process, Device int32
			ID, Name        string
		}
		Untimed []struct {
			Name, Kind     string
			Device, Stream int32
			Correlation    int64
			Bytes          int64
			Graph, Node    uint64
		}
		Read struct {
			Bytes       int64    `json:"bytes"`
			LostBytes   int64    `json:"lost_bytes"`
			LostAt      *int64   `json:"lost_at"`
			Dropped     *int64   `json:"dropped"`
			Notes       []string `json:"notes"`
			NotRecorded []string `json:"not_recorded"`
		}
	}
	TraceEvents []event
}

func decode(t *testing.T, b []byte) trace {
	t.Helper()
	var tr trace
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&tr); err != nil {
		t.Fatalf("%v in %.200s", err, b)
	}
	return tr
}

var micros = regexp.MustCompile(`^\d+\.\d{3}$`)

// ns reads microseconds with three decimals as an integer.
func ns(t *testing.T, n *json.Number) int64 {
	t.Helper()
	if n == nil || !micros.MatchString(n.String()) {
		t.Fatalf("%v is no time with three decimals", n)
	}
	v, err := strconv.ParseInt(strings.Replace(n.String(), ".", "", 1), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// check is what Perfetto's importer minds, event by event.
func check(t *testing.T, raw []byte, tr trace) {
	t.Helper()
	for i, b := range raw {
		if b < 0x20 && b != '\n' || b >= 0x7f {
			t.Fatalf("control byte %#x at %d", b, i)
		}
	}
	if bytes.Contains(raw, []byte(`\u000`)) || bytes.Contains(raw, []byte(`\u001`)) || bytes.Contains(raw, []byte(`\ud8`)) || bytes.Contains(raw, []byte(`\n`)) {
		t.Fatal("an escaped control character")
	}
	// Perfetto makes a float64 of a number, in one of two ways, times 1000, cut
	// off; other readers take it as it stands.
	for name, read := range map[string]func(*json.Number) int64{
		"exact":        func(n *json.Number) int64 { return ns(t, n) },
		"nearest":      func(n *json.Number) int64 { f, _ := n.Float64(); return int64(f * 1000) },
		"digit by one": func(n *json.Number) int64 { return int64(digits(n.String()) * 1000) },
	} {
		checkTracks(t, name, tr, read)
	}
}

// digits reads a number as Perfetto's own parser does.
func digits(s string) float64 {
	whole, frac, _ := strings.Cut(s, ".")
	v, f, div := 0.0, 0.0, 1.0
	for _, d := range whole {
		v = v*10 + float64(d-'0')
	}
	for _, d := range frac {
		f, div = f*10+float64(d-'0'), div*10
	}
	return v + f/div
}

func checkTracks(t *testing.T, reading string, tr trace, read func(*json.Number) int64) {
	t.Helper()
	type slice struct{ start, end int64 }
	tids := map[int64]int64{} // pid by tid
	pids := map[int64]bool{}
	named := map[int64]bool{}
	open := map[int64][]slice{}
	begun := map[string]int64{}
	// Perfetto sorts by time and keeps the file's order within one.
	type timed struct {
		at int64
		e  event
	}
	var es []timed
	for _, e := range tr.TraceEvents {
		if e.Ph == "M" {
			if e.Name == "thread_name" {
				v, _ := e.TID.Int64()
				named[v] = true
			}
			continue
		}
		if v := ns(t, e.TS); v <= 0 || v > 2e12 {
			t.Fatalf("time %v", e.TS)
		}
		es = append(es, timed{read(e.TS), e})
	}
	slices.SortStableFunc(es, func(a, b timed) int { return int(a.at - b.at) })
	for _, te := range es {
		e := te.e
		pid, err := e.PID.Int64()
		if err != nil || pid < 1 || pid >= 1<<32 {
			t.Fatalf("pid %v", e.PID)
		}
		pids[pid] = true
		if e.Ph == "C" {
			if e.TID != nil {
				t.Fatalf("a counter on thread %v", e.TID)
			}
			continue
		}
		tid, err := e.TID.Int64()
		if err != nil || tid < 1 || tid >= 1<<32 {
			t.Fatalf("tid %v", e.TID)
		}
		if p, ok := tids[tid]; ok && p != pid {
			t.Fatalf("tid %d is in processes %d and %d", tid, p, pid)
		}
		tids[tid] = pid
		if !named[tid] {
			t.Fatalf("tid %d has no name", tid)
		}
		switch e.Ph {
		case "X":
			s := slice{te.at, te.at + read(e.Dur)}
			stack := open[tid]
			for len(stack) > 0 && stack[len(stack)-1].end <= s.start {
				stack = stack[:len(stack)-1]
			}
			if n := len(stack); n > 0 && stack[n-1].end < s.end {
				t.Fatalf("%s: on tid %d, %v overlaps %v", reading, tid, s, stack[n-1])
			}
			if gpu := e.Args["device"] != nil; gpu && len(stack) > 0 {
				t.Fatalf("on tid %d, an op %v lies in %v", tid, s, stack)
			}
			open[tid] = append(stack, s)
		case "s":
			if _, twice := begun[e.ID.String()]; twice {
				t.Fatalf("flow %s begins twice", e.ID)
			}
			if stack := open[tid]; len(stack) == 0 || stack[len(stack)-1].start != te.at {
				t.Fatalf("flow %s begins in nothing", e.ID)
			}
			begun[e.ID.String()] = te.at
		case "f":
			if at, ok := begun[e.ID.String()]; !ok || at > te.at || e.BP != "e" {
				t.Fatalf("flow %s ends before it begins: %+v", e.ID, e)
			}
			if stack := open[tid]; len(stack) == 0 || stack[len(stack)-1].start != te.at {
				t.Fatalf("flow %s ends in nothing", e.ID)
			}
		default:
			t.Fatalf("phase %q", e.Ph)
		}
	}
	for tid, pid := range tids {
		if pids[tid] && tid != pid {
			t.Fatalf("tid %d of process %d is another process", tid, pid)
		}
	}
}

// rebuild makes a timeline of a trace, as a reader would.
func rebuild(t *testing.T, tr trace) *timeline.Timeline {
	t.Helper()
	var b timeline.Builder
	b.Name("")
	tl := &b.T
	tl.OriginNs = tr.BaseTimeNanoseconds
	h := &tr.Trbench
	if h.Format != timeline.FormatOwn || h.Version != write.Version {
		t.Fatalf("format %q %d", h.Format, h.Version)
	}
	for _, p := range h.Processes {
		q := timeline.Process{ID: p.ID, Name: p.Name, Rank: timeline.None}
		if p.Rank != nil {
			q.Rank = *p.Rank
		}
		tl.Processes = append(tl.Processes, q)
	}
	threads, streams, devices, processes := map[int64]int32{}, map[int64]int32{}, map[int64]int32{}, map[int64]int32{}
	for i, p := range h.Processes {
		processes[p.PID] = int32(i)
	}
	for i, th := range h.Threads {
		tl.Threads = append(tl.Threads, timeline.Thread{Process: th.Process, ID: th.ID, Name: th.Name})
		for _, tid := range th.TIDs {
			threads[tid] = int32(i)
		}
	}
	for i, d := range h.Devices {
		tl.Devices = append(tl.Devices, timeline.Device{ID: d.ID, Name: d.Name, Host: d.Host})
		devices[d.PID] = int32(i)
	}
	for i, s := range h.Streams {
		tl.Streams = append(tl.Streams, timeline.Stream{Device: s.Device, Process: s.Process, ID: s.ID, Name: s.Name})
		for _, tid := range s.TIDs {
			streams[tid] = int32(i)
		}
	}
	get := func(m map[int64]int32, n *json.Number) int32 {
		v, _ := n.Int64()
		if i, ok := m[v]; ok {
			return i
		}
		return timeline.None
	}
	integer := func(v any) int64 {
		if v == nil {
			return 0
		}
		n, err := v.(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	kinds := map[string]timeline.Kind{"kernel": timeline.Kernel, "gpu_memcpy": timeline.Copy, "gpu_memset": timeline.Fill, "copy": timeline.Copy, "fill": timeline.Fill, "envelope": timeline.Envelope}
	classes := map[string]timeline.CallClass{"other": timeline.CallOther, "launch": timeline.CallLaunch, "graph_launch": timeline.CallGraphLaunch, "copy": timeline.CallCopy, "sync": timeline.CallSync}
	ranges := map[string]timeline.RangeClass{"cpu_op": timeline.RangeOperator, "overhead": timeline.RangeOverhead, "python_function": timeline.RangePython,
		"user_annotation/user": timeline.RangeUser, "user_annotation/step": timeline.RangeStep, "user_annotation/feed": timeline.RangeFeed}
	for _, u := range h.Untimed {
		tl.Ops = append(tl.Ops, timeline.Op{Name: b.Name(u.Name), Kind: kinds[u.Kind], Device: u.Device, Stream: u.Stream, Correlation: u.Correlation,
			Bytes: u.Bytes, Graph: u.Graph, Node: u.Node})
	}
	for _, e := range tr.TraceEvents {
		if e.Ph == "C" && e.Cat != "derived" {
			v, err := e.Args["value"].(json.Number).Float64()
			if err != nil {
				t.Fatal(err)
			}
			tl.Counters = append(tl.Counters, timeline.Counter{AtNs: ns(t, e.TS), Name: b.Name(e.Name), Process: get(processes, e.PID), Value: v})
		}
		if e.Ph != "X" {
			continue
		}
		start := ns(t, e.TS)
		end := start + ns(t, e.Dur)
		class, _ := e.Args["class"].(string)
		switch e.Cat {
		case "kernel", "gpu_memcpy", "gpu_memset":
			o := timeline.Op{StartNs: start, EndNs: end, Device: get(devices, e.PID), Stream: get(streams, e.TID), Name: b.Name(e.Name), Kind: kinds[e.Cat],
				Timed: true, Correlation: integer(e.Args["correlation"]), Bytes: integer(e.Args["bytes"])}
			if n, ok := e.Args["graph id"].(json.Number); ok {
				o.Graph, _ = strconv.ParseUint(n.String(), 10, 64)
			}
			if n, ok := e.Args["graph node id"].(json.Number); ok {
				o.Node, _ = strconv.ParseUint(n.String(), 10, 64)
			}
			if e.Args["kind"] == "envelope" {
				o.Kind = timeline.Envelope
			}
			if want := tl.Devices[o.Device].ID; fmt.Sprint(e.Args["device"]) != want {
				t.Fatalf("device %v is %s", e.Args["device"], want)
			}
			if o.Stream >= 0 && fmt.Sprint(e.Args["stream"]) != tl.Streams[o.Stream].ID {
				t.Fatalf("stream %v is %s", e.Args["stream"], tl.Streams[o.Stream].ID)
			}
			tl.Ops = append(tl.Ops, o)
		case "cuda_runtime", "cuda_driver":
			c := timeline.Call{StartNs: start, EndNs: end, Thread: get(threads, e.TID), Name: b.Name(e.Name), Correlation: integer(e.Args["correlation"]), Class: timeline.Classify(e.Name)}
			if class != "" {
				c.Class = classes[class]
			}
			tl.Calls = append(tl.Calls, c)
		default:
			key := e.Cat
			if class != "" {
				key += "/" + class
			}
			c, ok := ranges[key]
			if !ok {
				t.Fatalf("category %q", key)
			}
			domain, _ := e.Args["domain"].(string)
			tl.Ranges = append(tl.Ranges, timeline.Range{StartNs: start, EndNs: end, Thread: get(threads, e.TID), Name: b.Name(e.Name), Domain: b.Name(domain), Class: c})
		}
	}
	return tl
}

// figures are those of a timeline, times relative to the origin.
func figures(tl *timeline.Timeline, origin int64) string {
	x := timeline.NewIndex(tl)
	var s strings.Builder
	at := func(w *timeline.Window) {
		w.FromNs += tl.OriginNs - origin
		w.ToNs += tl.OriginNs - origin
	}
	for d := range int32(len(tl.Devices)) {
		fmt.Fprintf(&s, "%+v %+v\n", tl.Devices[d], x.Integrity(d))
		w, ok := x.DeviceSpan(d)
		if !ok {
			continue
		}
		f := x.DeviceFigures(d, w)
		at(&f.Window)
		shares, rest := x.Shares(d, w, func(*timeline.Range) bool { return true })
		fmt.Fprintf(&s, "%+v\n%+v %+v\n%+v\n%+v\n%+v\n", f, shares, rest, x.TopKernels(d, w, -1), x.Delays(d, w), x.GraphStats(d, w))
		for _, st := range x.Steps(d) {
			at(&st.Host)
			at(&st.GPU)
			at(&st.Within.Window)
			at(&st.Own.Window)
			if st.Ops == 0 {
				st.GPU, st.Own.Window = timeline.Window{}, timeline.Window{}
			}
			fmt.Fprintf(&s, "%+v\n", st)
		}
		var bytes int64
		nodes := uint64(0)
		for _, o := range tl.Ops {
			bytes += o.Bytes
			nodes += o.Node
		}
		fmt.Fprintf(&s, "%d bytes, %d\n", bytes, nodes)
	}
	for i := range int32(len(tl.Streams)) {
		if w, ok := x.StreamSpan(i); ok {
			f := x.StreamFigures(i, w)
			at(&f.Window)
			fmt.Fprintf(&s, "%+v %+v\n", tl.Streams[i], f)
		}
	}
	l := x.LaunchStats(timeline.Window{FromNs: -1 << 62, ToNs: 1 << 62})
	fmt.Fprintf(&s, "%+v\n%+v\n%+v\n", l, tl.Threads, tl.Processes)
	var counters []string
	for _, c := range tl.Counters {
		counters = append(counters, fmt.Sprint(c.AtNs+tl.OriginNs-origin, tl.Text(c.Name), c.Process, c.Value))
	}
	fmt.Fprintf(&s, "%v\n", counters)
	return s.String()
}

func random(r *rand.Rand) *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.OriginNs = 1_700_000_000_123_456_789
	t.Processes = []timeline.Process{{ID: "4242", Name: "python \"train\"", Rank: 3}, {ID: "-1", Rank: timeline.None}, {ID: "18446744073709551617", Rank: 1}}[:1+r.IntN(3)]
	t.Threads = []timeline.Thread{{ID: "4242", Name: "main"}, {ID: "7", Process: timeline.None}, {ID: "autograd"}, {ID: "7", Process: int32(len(t.Processes)) - 1}}
	t.Devices = []timeline.Device{{ID: "0", Name: "NVIDIA H200"}, {ID: "cpu", Host: true}}
	t.Streams = []timeline.Stream{{Device: 0, ID: "7", Name: "COMP_1"}, {Device: 1, ID: "7"}, {Device: 0, ID: "0"}, {Device: 0, Process: timeline.None, ID: "4242"}}
	scale := []int64{1, 1, 37}[r.IntN(3)] // so that floats lose something
	at := []int64{0, 1_234_567, 1_700_000_000_000_000_000}[r.IntN(3)]
	names := []string{"cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch_v10000", "cudaMemcpyAsync", "cudaStreamSynchronize", "submit \x01node", "aunt"}
	const end = 300
	for range r.IntN(25) {
		from := int64(r.IntN(end)) - 40
		n := names[r.IntN(len(names))]
		class := timeline.Classify(n)
		if r.IntN(4) == 0 {
			class = timeline.CallClass(r.IntN(5))
		}
		t.Calls = append(t.Calls, timeline.Call{StartNs: from, EndNs: from + int64(r.IntN(30)) - 1, Thread: int32(r.IntN(5)) - 1,
			Name: b.Name(n), Class: class, Correlation: int64(r.IntN(14))})
	}
	for range r.IntN(30) {
		s := int32(r.IntN(5)) - 1
		o := timeline.Op{Stream: s, Name: b.Name([]string{"k<\"a\\b\">", "émb\x7fed \u2028\u0085\U0001f600", "bad \xff utf8", "k"}[r.IntN(4)]),
			StartNs: int64(r.IntN(end)) - 40, Kind: timeline.Kind(r.IntN(4)), Timed: r.IntN(10) > 0, Correlation: int64(r.IntN(14)), Bytes: int64(r.IntN(3)) << 40}
		if s >= 0 {
			o.Device = t.Streams[s].Device
		}
		o.EndNs = o.StartNs + int64(r.IntN(25)) - 1
		if r.IntN(3) == 0 {
			o.Graph, o.Node = uint64(r.IntN(3)), uint64(r.IntN(3))<<63+5
		}
		t.Ops = append(t.Ops, o)
	}
	for range r.IntN(25) {
		from := int64(r.IntN(end)) - 40
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: from, EndNs: from + int64(r.IntN(120)) - 3, Thread: int32(r.IntN(5)) - 1,
			Name: b.Name("r" + strconv.Itoa(r.IntN(4))), Domain: b.Name([]string{"", "trbench"}[r.IntN(2)]), Class: timeline.RangeClass(r.IntN(6))})
	}
	for range r.IntN(4) {
		p := int32(0)
		if len(t.Processes) > 1 {
			p = int32(r.IntN(len(t.Processes)+1)) - 1
		}
		t.Counters = append(t.Counters, timeline.Counter{AtNs: int64(r.IntN(end)) - 50, Name: b.Name("power"), Process: p, Value: r.Float64() * 700})
	}
	move := func(ns *int64) { *ns = *ns*scale + at }
	for i := range t.Ops {
		move(&t.Ops[i].StartNs)
		move(&t.Ops[i].EndNs)
	}
	for i := range t.Calls {
		move(&t.Calls[i].StartNs)
		move(&t.Calls[i].EndNs)
	}
	for i := range t.Ranges {
		move(&t.Ranges[i].StartNs)
		move(&t.Ranges[i].EndNs)
	}
	for i := range t.Counters {
		move(&t.Counters[i].AtNs)
	}
	return t
}

func TestReadBack(t *testing.T) {
	for seed := range uint64(1500) {
		tl := random(rand.New(rand.NewPCG(seed, 1)))
		var out bytes.Buffer
		if err := write.Chrome(&out, timeline.NewIndex(tl)); err != nil {
			t.Fatal(err)
		}
		tr := decode(t, out.Bytes())
		check(t, out.Bytes(), tr)
		back := rebuild(t, tr)
		// Texts lose their control characters and what is no UTF-8.
		for i, s := range tl.Names {
			tl.Names[i] = strings.NewReplacer("\x01", " ", "\x7f", " ", "\u0085", " ", "\U0001f600", "\ufffd", "\xff", "\ufffd").Replace(s)
		}
		if got, want := figures(back, tl.OriginNs), figures(tl, tl.OriginNs); got != want {
			a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d: figures were\n%s\nand are\n%s", seed, a[i], b[i])
				}
			}
			t.Fatalf("seed %d: %d figures, want %d", seed, len(b), len(a))
		}
	}
}

// TestTouching is about events that touch, at times where a float64 loses a
// nanosecond and where it does not.
func TestTouching(t *testing.T) {
	var b timeline.Builder
	b.Name("")
	tl := &b.T
	tl.Threads = []timeline.Thread{{Process: timeline.None, ID: "1"}}
	tl.Devices = []timeline.Device{{ID: "0"}}
	tl.Streams = []timeline.Stream{{ID: "7"}}
	r := rand.New(rand.NewPCG(1, 3))
	at := int64(1)
	for i := range 20000 {
		if i%500 == 0 {
			at += r.Int64N(30e9)
		}
		n := 2 + r.Int64N(3000)
		tl.Ops = append(tl.Ops, timeline.Op{StartNs: at, EndNs: at + n, Timed: true, Name: b.Name("k")})
		for _, w := range [][2]int64{{at, at + n}, {at, at + n/2}, {at + n/2, at + n}} {
			tl.Ranges = append(tl.Ranges, timeline.Range{StartNs: w[0], EndNs: w[1], Name: b.Name("r")})
		}
		at += n
	}
	var out bytes.Buffer
	if err := write.Chrome(&out, timeline.NewIndex(tl)); err != nil {
		t.Fatal(err)
	}
	tr := decode(t, out.Bytes())
	check(t, out.Bytes(), tr)
	// What is not torn apart by rounding stays together.
	first := 0
	for _, e := range tr.TraceEvents {
		if e.Ph == "X" && (e.TID.String() == "1" || e.TID.String() == "7") {
			first++
		}
	}
	if first < 60000 {
		t.Errorf("%d of 80000 events stand on the first tids", first)
	}
}

// small is one launch of each kind by hand.
func small() *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.OriginNs = 5000
	t.Processes = []timeline.Process{{ID: "42", Name: "train", Rank: 0}}
	t.Threads = []timeline.Thread{{ID: "42", Name: "main"}}
	t.Devices = []timeline.Device{{ID: "0", Name: "H200"}}
	t.Streams = []timeline.Stream{{ID: "7", Name: "COMP_1"}}
	t.Ranges = []timeline.Range{{EndNs: 5000, Name: b.Name("step"), Class: timeline.RangeStep, Domain: b.Name("trbench")}}
	t.Calls = []timeline.Call{{StartNs: 1001, EndNs: 2002, Name: b.Name("cuGraphLaunch"), Correlation: 9, Class: timeline.CallGraphLaunch}}
	t.Ops = []timeline.Op{
		{StartNs: 2500, EndNs: 3000, Name: b.Name("k"), Timed: true, Correlation: 9, Graph: 4, Node: 1},
		{StartNs: 2900, EndNs: 3100, Name: b.Name("Memcpy HtoD"), Kind: timeline.Copy, Timed: true, Correlation: 9, Graph: 4, Node: 2, Bytes: 77},
	}
	return t
}

func TestGolden(t *testing.T) {
	var out bytes.Buffer
	if err := write.Chrome(&out, timeline.NewIndex(small())); err != nil {
		t.Fatal(err)
	}
	// Written by hand from the format's description, line by line.
	const want = `{"schemaVersion":1,"displayTimeUnit":"ns","baseTimeNanoseconds":4000,"deviceProperties":[{"id":0,"name":"H200"}],"distributedInfo":{"rank":0},` +
		`"trbench":{"format":"trbench","version":1,"origin_ns":5000,"shift_ns":1000,"processes":[{"pid":42,"id":"42","name":"train","rank":0}],"threads":[{"tids":[42],"process":0,"id":"42","name":"main"}],` +
		`"devices":[{"pid":1,"id":"0","name":"H200"}],"streams":[{"tids":[7,2],"process":0,"id":"7","name":"COMP_1","device":0}],"read":{"dropped":0}}
,"traceEvents":[
{"ph":"M","name":"process_name","pid":42,"args":{"name":"train"}},
{"ph":"M","name":"process_labels","pid":42,"args":{"labels":"rank 0"}},
{"ph":"M","name":"process_sort_index","pid":42,"args":{"sort_index":0}},
{"ph":"M","name":"process_name","pid":1,"args":{"name":"GPU 0"}},
{"ph":"M","name":"process_labels","pid":1,"args":{"labels":"H200"}},
{"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":1}},
{"ph":"M","name":"thread_name","pid":42,"tid":42,"args":{"name":"main"}},
{"ph":"M","name":"thread_sort_index","pid":42,"tid":42,"args":{"sort_index":0}},
{"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"COMP_1"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":7,"args":{"sort_index":1}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"COMP_1 (overlap 2)"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":2}},
{"ph":"X","cat":"user_annotation","name":"step","pid":42,"tid":42,"ts":1.000,"dur":5.000,"args":{"class":"step","domain":"trbench"}},
{"ph":"X","cat":"cuda_driver","name":"cuGraphLaunch","pid":42,"tid":42,"ts":2.001,"dur":1.001,"args":{"correlation":9}},
{"ph":"s","cat":"ac2g","name":"ac2g","id":1,"pid":42,"tid":42,"ts":2.001},
{"ph":"X","cat":"kernel","name":"k","pid":1,"tid":7,"ts":3.500,"dur":0.500,"args":{"device":0,"stream":7,"correlation":9,"graph id":4,"graph node id":1}},
{"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":1,"pid":1,"tid":7,"ts":3.500},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":1,"tid":2,"ts":3.900,"dur":0.200,"args":{"device":0,"stream":7,"correlation":9,"graph id":4,"graph node id":2,"bytes":77}},
{"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":1,"pid":1,"tid":2,"ts":3.900},
{"ph":"C","cat":"derived","name":"queue depth","pid":1,"ts":2.001,"args":{"ops":2}},
{"ph":"C","cat":"derived","name":"queue depth","pid":1,"ts":3.500,"args":{"ops":1}},
{"ph":"C","cat":"derived","name":"queue depth","pid":1,"ts":3.900,"args":{"ops":0}}
]}
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

// TestTracks is about which tids there are: as few as can be, none of them
// another process, none twice.
func TestTracks(t *testing.T) {
	var b timeline.Builder
	b.Name("")
	tl := &b.T
	tl.Processes = []timeline.Process{{ID: "42"}, {ID: "99"}, {ID: "42"}, {ID: "007"}, {ID: "0"}}
	tl.Threads = []timeline.Thread{{ID: "42"}, {ID: "99"}, {Process: 1, ID: "99"}, {Process: 2, ID: "42"}, {Process: 3, ID: "5"}, {Process: 4, ID: "5"}, {Process: 4, ID: "4294967296"}}
	for _, r := range [][2]int64{{10, 20}, {10, 40}, {10, 40}, {20, 40}, {40, 50}, {40, 40}} { // nest, in any order
		tl.Ranges = append(tl.Ranges, timeline.Range{StartNs: r[0], EndNs: r[1], Name: b.Name("r")})
	}
	tl.Calls = []timeline.Call{{StartNs: 10, EndNs: 40, Name: b.Name("c")}, {StartNs: 45, EndNs: 55, Name: b.Name("across the end"), Thread: 1},
		{StartNs: 40, EndNs: 50, Name: b.Name("first"), Thread: 1}, {StartNs: 50, EndNs: 60, Name: b.Name("free again"), Thread: 1}}
	var out bytes.Buffer
	if err := write.Chrome(&out, timeline.NewIndex(tl)); err != nil {
		t.Fatal(err)
	}
	h := decode(t, out.Bytes()).Trbench
	var pids []int64
	for _, p := range h.Processes {
		pids = append(pids, p.PID)
	}
	if want := []int64{42, 99, 1, 2, 3}; !slices.Equal(pids, want) {
		t.Errorf("pids %v, want %v", pids, want)
	}
	for i, want := range [][]int64{{42}, {4, 6}, {99}, {7}, {5}, {8}, {9}} {
		if got := h.Threads[i].TIDs; !slices.Equal(got, want) {
			t.Errorf("thread %d has tids %v, want %v", i, got, want)
		}
	}
}

func TestHeaderKeepsTheReport(t *testing.T) {
	tl := small()
	tl.Read = timeline.ReadReport{Bytes: 10, LostBytes: 2, LostAt: 5, Dropped: -1, Notes: []string{"a\nb"}, NotRecorded: []string{"launch calls"}}
	var out bytes.Buffer
	if err := write.Chrome(&out, timeline.NewIndex(tl)); err != nil {
		t.Fatal(err)
	}
	r := decode(t, out.Bytes()).Trbench.Read
	if r.Bytes != 10 || r.LostBytes != 2 || *r.LostAt != 5 || r.Dropped != nil || !slices.Equal(r.Notes, []string{"a b"}) || len(r.NotRecorded) != 1 {
		t.Errorf("read report: %+v", r)
	}
}

func TestEmpty(t *testing.T) {
	var out bytes.Buffer
	if err := write.Chrome(&out, timeline.NewIndex(&timeline.Timeline{})); err != nil {
		t.Fatal(err)
	}
	if tr := decode(t, out.Bytes()); len(tr.TraceEvents) != 0 || tr.BaseTimeNanoseconds != 0 {
		t.Errorf("%+v", tr)
	}
}

type broken struct{ after int }

var errBroken = errors.New("broken pipe")

func (b *broken) Write(p []byte) (int, error) {
	if b.after -= len(p); b.after < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestWriterFails(t *testing.T) {
	if err := write.Chrome(&broken{after: 100}, timeline.NewIndex(small())); !errors.Is(err, errBroken) {
		t.Errorf("error is %v", err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	x := timeline.NewIndex(small())
	var want bytes.Buffer
	if err := write.Chrome(&want, x); err != nil {
		t.Fatal(err)
	}
	plain, packed, link := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.json.gz"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(plain, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plain, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, packed} {
		if err := write.File(p, x); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(plain)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%v: %.100s", err, got)
	}
	if info, err := os.Stat(plain); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("permissions %v %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v %v", info.Mode(), err)
	}
	f, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = io.ReadAll(z); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%v: %.100s", err, got)
	}
	for _, p := range []string{dir, filepath.Join(dir, "none", "a.json")} {
		if err := write.File(p, x); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// eager is n kernels launched one by one, with long names as templates have.
func eager(n int) *timeline.Index {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Processes = []timeline.Process{{ID: "42", Name: "train", Rank: 0}}
	t.Threads = []timeline.Thread{{ID: "42", Name: "main"}}
	t.Devices = []timeline.Device{{ID: "0", Name: "NVIDIA H200"}}
	t.Streams = []timeline.Stream{{ID: "7", Name: "COMP_1"}, {ID: "13", Name: "UPDATE"}}
	r := rand.New(rand.NewPCG(1, 2))
	at, gpu := int64(0), int64(0)
	for i := range n {
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: at, EndNs: at + 5000, Name: b.Name("CONV2D_" + strconv.Itoa(i%53)), Domain: b.Name("trbench")})
		t.Calls = append(t.Calls, timeline.Call{StartNs: at + 500, EndNs: at + 4321, Name: b.Name("cuLaunchKernelEx"), Correlation: int64(i + 1), Class: timeline.CallLaunch})
		gpu = max(gpu, at+4000+r.Int64N(3000))
		d := 1500 + r.Int64N(6000)
		t.Ops = append(t.Ops, timeline.Op{StartNs: gpu, EndNs: gpu + d, Stream: int32(i & 1), Timed: true, Correlation: int64(i + 1),
			Name: b.Name("void cutlass::Kernel<cutlass_80_tensorop_s1688fprop_optimized_tf32_" + strconv.Itoa(i%40) + ">(ParamsT)")})
		gpu += d
		at += 5200
	}
	return timeline.NewIndex(t)
}

type counting struct{ n int64 }

func (c *counting) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

func BenchmarkChrome10000Kernels(b *testing.B) {
	x := eager(10_000)
	var c counting
	b.ReportAllocs()
	for b.Loop() {
		c.n = 0
		if err := write.Chrome(&c, x); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(c.n), "bytes/trace")
}

func BenchmarkFile10000Kernels(b *testing.B) {
	x := eager(10_000)
	path := filepath.Join(b.TempDir(), "t.json.gz")
	b.ReportAllocs()
	for b.Loop() {
		if err := write.File(path, x); err != nil {
			b.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size()), "bytes/trace")
}

// What a writer that was killed leaves is removed, and nothing else.
func TestDiscard(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("n", 230)+".json.gz"
	const salt = "0123456789abcdef"
	stays := []string{".a.json.gz." + salt, ".a.json.gz.0123.tmp", ".a.json.gz.0123456789abcdeg.tmp", ".b.json.gz." + salt + ".tmp", ".trbench-" + salt + ".tmp",
		"a.json.gz", "a.json.gz." + salt + ".tmp"}
	goes := []string{".a.json.gz." + salt + ".tmp", ".a.json.gz.fedcba9876543210.tmp", "." + long[:200] + "." + salt + ".tmp"}
	for _, f := range append(goes, stays...) {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a.json.gz", long} {
		if err := write.Discard(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if slices.Sort(stays); err != nil || !slices.Equal(left, stays) {
		t.Errorf("left %q, %v", left, err)
	}
	if err := write.File(filepath.Join(dir, long), timeline.NewIndex(small())); err != nil {
		t.Errorf("a long name: %v", err)
	}
	if err := write.Discard(filepath.Join(dir, "none", "a.json")); err == nil {
		t.Error("a folder that is not there holds nothing to remove")
	}
}
