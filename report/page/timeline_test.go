package page_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	tracewrite "github.com/tech-renaissance/trbench/timeline/write"
)

// byHand is a recording of four steps of 1000 ns, each the same: the host feeds
// from 0 to 100, launches kernel a from 100 to 150 and copy c from 200 to 260, and
// blocks from 300 to 800; a runs from 400 to 600, c from 700 to 900.
func byHand() *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Threads = []timeline.Thread{{Process: timeline.None, ID: "1"}, {Process: timeline.None, ID: "2"}}
	t.Devices = []timeline.Device{{ID: "1"}, {ID: "0"}}
	t.Streams = []timeline.Stream{{Device: 1, ID: "7", Name: "COMP_1"}, {Device: 1, ID: "8"}, {Device: 0, ID: "7"}}
	for i := range int64(4) {
		at := 1000 * i
		call := func(name string, from, to, correlation int64) {
			t.Calls = append(t.Calls, timeline.Call{StartNs: at + from, EndNs: at + to, Name: b.Name(name), Correlation: correlation, Class: timeline.Classify(name)})
		}
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: at, EndNs: at + 850, Name: b.Name("step"), Class: timeline.RangeStep},
			timeline.Range{StartNs: at, EndNs: at + 100, Name: b.Name("feed"), Class: timeline.RangeFeed})
		call("cuLaunchKernel", 100, 150, 2*i+1)
		call("cuMemcpyHtoDAsync", 200, 260, 2*i+2)
		call("cuStreamSynchronize", 300, 800, 0)
		t.Ops = append(t.Ops,
			timeline.Op{StartNs: at + 400, EndNs: at + 600, Device: 1, Stream: 0, Name: b.Name("a"), Timed: true, Correlation: 2*i + 1},
			timeline.Op{StartNs: at + 700, EndNs: at + 900, Device: 1, Stream: 1, Name: b.Name("c"), Kind: timeline.Copy, Timed: true, Correlation: 2*i + 2})
	}
	// Another thread and another device, which are not this step's.
	t.Calls = append(t.Calls, timeline.Call{StartNs: 0, EndNs: 4000, Thread: 1, Name: b.Name("cuMemAlloc")})
	return t
}

// The figures are worked out by hand from byHand's times.
func TestTimelineByHand(t *testing.T) {
	got, err := page.NewTimeline(timeline.NewIndex(byHand()), page.Subject{Cell: "net", Configuration: "eager", Source: "a.json", Steps: 2, Facts: []string{"fact"}, Doubts: []string{"doubt"}})
	if err != nil {
		t.Fatal(err)
	}
	// The step is from 1400 to 2400; launching began at 1100, of which a quarter of
	// the step's length is drawn: from 1150.
	if got.LengthNs != 1000 || got.FromNs != -250 || got.Host {
		t.Errorf("the step is from %d to %d, host %v", got.FromNs, got.LengthNs, got.Host)
	}
	if want := "[traced step 1.00 us 1 kernels, 2 launches, 2 gaps busy 40% host late 20% in the launching call 5% after the call 35% fact of device 0, one of 2]"; fmt.Sprint(got.Facts) != want {
		t.Errorf("facts are %v, want %v", got.Facts, want)
	}
	if !slices.Equal(got.Doubts, []string{"doubt"}) {
		t.Errorf("doubts are %q", got.Doubts)
	}
	describe := func(l page.Lane) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s (%s):", l.Title, l.Clock)
		for i := range l.StartNs {
			fmt.Fprintf(&b, " %s %d+%d %s;", got.Names[l.Name[i]], l.StartNs[i], l.LengthNs[i], page.SpanKinds()[l.Kind[i]])
		}
		return b.String()
	}
	want := []string{
		"host calls (host): cuLaunchKernel -250+0 launching call; cuMemcpyHtoDAsync -200+60 launching call; cuStreamSynchronize -100+500 blocking call; " +
			"cuLaunchKernel 700+50 launching call; cuMemcpyHtoDAsync 800+60 launching call; cuStreamSynchronize 900+100 blocking call;",
		"host work (host): feed 600+100 feeding input;",
		"COMP_1 (device): a 0+200 kernel;",
		"stream 8 (device): c 300+200 copy or fill;",
	}
	// A call that ended where drawing begins is not drawn.
	want[0] = strings.Replace(want[0], " cuLaunchKernel -250+0 launching call;", "", 1)
	var lanes []string
	for _, l := range got.Lanes {
		lanes = append(lanes, describe(l))
	}
	if !slices.Equal(lanes, want) {
		t.Errorf("lanes are\n%s\nwant\n%s", strings.Join(lanes, "\n"), strings.Join(want, "\n"))
	}
	// Before the step nothing ran for 250 ns: its launch was over at 1150. Between a
	// and c, c was submitted at 1260: all of the 100 ns is after the call. Behind c,
	// from 1900, the host began at 2100, ended at 2150, and a started at 2400; of the
	// 200 ns before that it did nothing on record for half and fed for the other.
	g := got.Gaps
	for name, c := range map[string][2]any{
		"start": {g.StartNs, []int64{-250, 200, 500}}, "late": {g.LateNs, []int64{0, 0, 200}}, "api": {g.APINs, []int64{0, 0, 50}},
		"after": {g.AfterNs, []int64{250, 100, 250}}, "unlinked": {g.UnlinkedNs, []int64{0, 0, 0}}, "in graph": {g.InGraph, []int{0, 0, 0}}, "doing": {g.DoingNs, []int64{0, 0, 100}},
	} {
		if fmt.Sprint(c[0]) != fmt.Sprint(c[1]) {
			t.Errorf("%s of gaps is %v, want %v", name, c[0], c[1])
		}
	}
	around := func(i int) string {
		return got.Names[g.Before[i]] + " " + got.Names[g.After[i]] + " " + got.Names[g.Doing[i]]
	}
	if around(0) != "c a " || around(1) != "a c " || around(2) != "c a feeding input" {
		t.Errorf("around gaps: %q, %q, %q", around(0), around(1), around(2))
	}
}

// Spans that overlap stand in rows of their lane, of which the first has its title;
// those that fit in no row are counted.
func TestTimelineOverlaps(t *testing.T) {
	h := byHand()
	for i := range int64(4) {
		h.Ops = append(h.Ops, timeline.Op{StartNs: 1450 + i, EndNs: 1550, Device: 1, Name: 0, Timed: true})
	}
	got, err := page.NewTimeline(timeline.NewIndex(h), page.Subject{Steps: 2})
	if err != nil {
		t.Fatal(err)
	}
	var lanes []string
	for _, l := range got.Lanes[2:] {
		lanes = append(lanes, fmt.Sprint(l.Title, l.StartNs, l.LengthNs))
	}
	if want := "[COMP_1[0] [200] [50] [100] [51] [99] stream 8[300] [200]]"; fmt.Sprint(lanes) != want {
		t.Errorf("lanes are %v, want %v", lanes, want)
	}
	if want := "[2 overlapping spans of COMP_1 are not drawn.]"; fmt.Sprint(got.Doubts) != want {
		t.Errorf("doubts are %v, want %v", got.Doubts, want)
	}
}

// A graph's nodes on more streams than have room are drawn by how many work at
// once; none is lost.
func TestTimelineManyStreams(t *testing.T) {
	h := byHand()
	for i := range int64(20) {
		h.Streams = append(h.Streams, timeline.Stream{Device: 1, ID: fmt.Sprint(100 + i)})
		h.Ops = append(h.Ops, timeline.Op{StartNs: 1450 + 20*i, EndNs: 1480 + 20*i, Device: 1, Stream: int32(3 + i), Name: 0, Timed: true})
	}
	got, err := page.NewTimeline(timeline.NewIndex(h), page.Subject{Steps: 2})
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	var titles []string
	for _, l := range got.Lanes[2:] {
		titles = append(titles, l.Title)
		drawn += len(l.StartNs)
		for i := 1; i < len(l.StartNs); i++ {
			if l.StartNs[i] < l.StartNs[i-1]+l.LengthNs[i-1] {
				t.Errorf("%d lies on %d of %q", l.StartNs[i], l.StartNs[i-1], l.Title)
			}
		}
	}
	// Two of them overlap, and with them a or c.
	if drawn != 22 || fmt.Sprintf("%q", titles) != `["at work" "" ""]` || len(got.Doubts) > 0 || !slices.Contains(got.Facts, "22 streams, drawn by how many work at once") {
		t.Errorf("%d spans in lanes %q, %v, %v", drawn, titles, got.Doubts, got.Facts)
	}
}

// Which step is drawn, and what has none.
func TestTimelineSteps(t *testing.T) {
	// Lengths of steps on the device: 1000 for the lead, then 3000, 1000, 2000.
	stretched := func() *timeline.Timeline {
		h := byHand()
		shift := []int64{0, 0, 2000, 2000, 3000}
		h.Ranges = append(h.Ranges, h.Ranges[6])
		h.Calls, h.Ops, h.Ranges = h.Calls[:12], h.Ops[:8], h.Ranges[:8]
		five := func(of *timeline.Timeline) {
			for k := range 2 {
				r := h.Ranges[6+k]
				r.StartNs, r.EndNs = r.StartNs+1000, r.EndNs+1000
				h.Ranges = append(h.Ranges, r)
				o := h.Ops[6+k]
				o.StartNs, o.EndNs, o.Correlation = o.StartNs+1000, o.EndNs+1000, o.Correlation+2
				h.Ops = append(h.Ops, o)
			}
			for k := range 3 {
				c := h.Calls[9+k]
				c.StartNs, c.EndNs = c.StartNs+1000, c.EndNs+1000
				if c.Correlation != 0 {
					c.Correlation += 2
				}
				h.Calls = append(h.Calls, c)
			}
		}
		five(h)
		for i := range h.Ranges {
			by := shift[i/2]
			h.Ranges[i].StartNs, h.Ranges[i].EndNs = h.Ranges[i].StartNs+by, h.Ranges[i].EndNs+by
		}
		for i := range h.Ops {
			by := shift[i/2]
			h.Ops[i].StartNs, h.Ops[i].EndNs = h.Ops[i].StartNs+by, h.Ops[i].EndNs+by
		}
		for i := range h.Calls {
			by := shift[i/3]
			h.Calls[i].StartNs, h.Calls[i].EndNs = h.Calls[i].StartNs+by, h.Calls[i].EndNs+by
		}
		return h
	}
	for _, c := range []struct {
		name   string
		t      *timeline.Timeline
		steps  int
		length int64
		err    string
	}{
		{"median of the kept", stretched(), 3, 2000, ""},
		{"shorter of two", stretched(), 2, 1000, ""},
		{"one", stretched(), 1, 2000, ""},
		{"unknown", stretched(), 0, 1000, ""},
		{"nothing", &timeline.Timeline{}, 3, 0, "it has no device work with times"},
		{"no steps", func() *timeline.Timeline { h := byHand(); h.Ranges = nil; return h }(), 3, 0, "it has no two steps with device work"},
	} {
		got, err := page.NewTimeline(timeline.NewIndex(c.t), page.Subject{Steps: c.steps})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || got.LengthNs != c.length {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// recorded is a made-up recording of five steps of so many kernels, launched one by
// one or as one graph. A launch takes the host about 5 us, half of it in the call.
func recorded(mode string, kernels int) *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Source, t.Format = "made up", timeline.FormatCUPTI
	t.Threads = []timeline.Thread{{Process: timeline.None, ID: "1"}}
	t.Devices = []timeline.Device{{ID: "0", Name: "made up"}}
	t.Streams = []timeline.Stream{{ID: "7", Name: "COMP_1"}, {ID: "13", Name: "UPDATE"}, {ID: "14", Name: "TRANS"}}
	r := rand.New(rand.NewPCG(7, 7))
	host, gpu, correlation := int64(50_000), int64(0), int64(0)
	call := func(name string, ns, correlation int64) {
		t.Calls = append(t.Calls, timeline.Call{StartNs: host, EndNs: host + ns, Name: b.Name(name), Class: timeline.Classify(name), Correlation: correlation})
		host += ns
	}
	op := func(stream int32, kind timeline.Kind, name string, from, ns int64) {
		t.Ops = append(t.Ops, timeline.Op{StartNs: from, EndNs: from + ns, Stream: stream, Kind: kind, Timed: true, Correlation: correlation, Name: b.Name(name)})
	}
	for step := range 5 {
		began := host
		for i := range kernels {
			ns := 1200 + r.Int64N(1300)
			if i%3 == 0 {
				ns = 2500 + r.Int64N(4500)
			}
			if i > kernels/5 && i < kernels/4 {
				ns = 6000 + r.Int64N(9000)
			}
			stream, name := int32(0), fmt.Sprintf("void kernels::conv<%d>(float const*)", i%17)
			if i >= kernels*9/10 {
				stream, name = 1, "update"
			}
			switch {
			case mode == "eager":
				host += 1000 + r.Int64N(2500)
				correlation++
				call("cuLaunchKernelEx", 1800+r.Int64N(1800), correlation)
				gpu = max(gpu, host+700)
			case i == 0:
				host += 1000
				correlation++
				call("cuGraphLaunch", 9000, correlation)
				gpu = max(gpu, host+700)
			default:
				gpu += 900
			}
			if i == kernels/4 {
				op(2, timeline.Copy, "Memcpy HtoD", gpu-500, 90_000)
				t.Ranges = append(t.Ranges, timeline.Range{StartNs: host, EndNs: host + 60_000, Name: b.Name("feed"), Class: timeline.RangeFeed})
				host += 60_000
			}
			op(stream, timeline.Kernel, name, gpu, ns)
			gpu += ns + r.Int64N(300)
		}
		if mode != "eager" && step > 0 { // the host is a step ahead at most
			call("cuEventSynchronize", max(500, gpu-host-200_000), 0)
		}
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: began, EndNs: host, Name: b.Name(fmt.Sprintf("step %d", step)), Class: timeline.RangeStep})
	}
	return t
}

// traced is a record of two cells with traces, of which files lie beside it, and
// with what was read of the machine. One of its files is missing.
func traced(t testing.TB, dir string, kernels int) report.Named {
	t.Helper()
	r, err := results.ReadFile(filepath.Join("..", "testdata", "model_batches.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	environment(r)
	r.Cells = r.Cells[:2]
	for i := range r.Cells {
		for j := range r.Cells[i].Configurations {
			c := &r.Cells[i].Configurations[j]
			sample := func(v float64) []results.Sample { return []results.Sample{{Value: v}, {Value: v, Process: 1}} }
			c.Trace = &results.Trace{Steps: 3, File: fmt.Sprintf("run-%d-%d.trace.json.gz", i, j), Metrics: []results.Metric{
				results.NewMetric(results.TracedStepNs, sample(4e6)), results.NewMetric(results.BusyNs, sample(3e6)), results.NewMetric(results.IdleNs, sample(1e6)),
				results.NewMetric(results.HostLateNs, sample(6e5)), results.NewMetric(results.InAPINs, sample(3e5)), results.NewMetric(results.AfterAPINs, sample(1e5)),
				results.NewMetric(results.UnlinkedNs, sample(0)), results.NewMetric(results.Inflation, sample(1.07)),
			}}
			if i == 1 && j == 1 {
				continue
			}
			mode := "eager"
			if c.Key.Mode != "eager" {
				mode = "step"
			}
			if err := tracewrite.File(filepath.Join(dir, c.Trace.File), timeline.NewIndex(recorded(mode, kernels))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return report.Named{Name: "run.json", Record: r, Dir: dir}
}

// withMachine adds what was read of the machine over a run and under load.
func withMachine(r *results.Record) {
	at := time.Date(2026, 1, 5, 3, 0, 0, 0, time.UTC)
	for i, when := range []string{"start", "end"} {
		r.Environment.Moments = append(r.Environment.Moments, results.Moment{When: when, Time: at.Add(time.Duration(i) * time.Hour), Readings: []results.Reading{
			{Name: "gpu.sm_clock", Unit: "MHz", Value: 345 + float64(i), N: 1}, {Name: "gpu.temperature", Unit: "C", Value: 31 + 9*float64(i), N: 1},
		}})
	}
	for i := range r.Cells {
		for j := range r.Cells[i].Processes {
			r.Cells[i].Processes[j].Readings = []results.Reading{{Name: "gpu.sm_clock", Unit: "MHz", Value: 1980, N: 5}, {Name: "gpu.power", Unit: "W", Value: 512.5, N: 5}}
		}
	}
}

// What was read of the machine at both ends of a run and under load is on the page,
// and where a traced step's time goes.
func TestMachineOnThePage(t *testing.T) {
	r := traced(t, t.TempDir(), 20)
	withMachine(r.Record)
	doc := parse(t, write(t, page.Extra{}, r))
	over := cellsOf(elements(byID(doc, "t-machine-over-the-run"), "table")[0])
	if want := "[[reading start 03:00:00 end 04:00:00] [gpu.sm_clock 345.00 MHz 346.00 MHz] [gpu.temperature 31.000 C 40.000 C]]"; fmt.Sprint(over) != want {
		t.Errorf("over the run: %v, want %s", over, want)
	}
	load := cellsOf(elements(byID(doc, "t-machine-under-load"), "table")[0])
	if fmt.Sprint(load[0][len(load[0])-2:]) != "[gpu.sm_clock gpu.power]" || fmt.Sprint(load[1][len(load[1])-3:]) != "[0 1980.0 MHz 512.50 W]" || len(load) != 1+2*3 {
		t.Errorf("under load: %v", load)
	}
	rows := cellsOf(below(t, byID(doc, "figures"), "Where a traced step's time goes"))
	if len(rows) != 1+10 || !slices.Contains(rows[0], "host late") || !slices.Contains(rows[1], "600 us") {
		t.Errorf("traced: %v", rows)
	}
}

// What is read from files is what was recorded: busy and idle on the page are the
// device's figures of that step, for each configuration.
func TestReadTimelines(t *testing.T) {
	dir := t.TempDir()
	r := traced(t, dir, 100)
	got, notes := page.ReadTimelines([]report.Named{r})
	n := 0
	for _, c := range r.Record.Cells {
		n += len(c.Configurations)
	}
	if len(got) != n-1 || len(notes) != 1 || !strings.Contains(notes[0], "run-1-1.trace.json.gz is not beside the record") {
		t.Fatalf("%d timelines of %d configurations, %q", len(got), n, notes)
	}
	for _, l := range got {
		mode := "step"
		if strings.HasPrefix(l.Configuration, "eager") {
			mode = "eager"
		}
		x := timeline.NewIndex(recorded(mode, 100))
		steps := x.Steps(0)
		var fits bool
		for i := 1; i < 4; i++ {
			w := timeline.Window{FromNs: steps[i].GPU.FromNs, ToNs: steps[i+1].GPU.FromNs}
			f := x.DeviceFigures(0, w)
			var split timeline.Split
			idle, gaps := int64(0), 0
			for j, start := range l.Gaps.StartNs {
				if start >= 0 {
					split.HostLateNs += l.Gaps.LateNs[j]
					split.InAPINs += l.Gaps.APINs[j]
					split.AfterAPINs += l.Gaps.AfterNs[j]
					idle += l.Gaps.LateNs[j] + l.Gaps.APINs[j] + l.Gaps.AfterNs[j] + l.Gaps.UnlinkedNs[j]
					gaps++
				}
			}
			fits = fits || l.LengthNs == w.Ns() && idle == f.IdleNs && gaps == f.Gaps && split.HostLateNs == f.Split.HostLateNs && split.InAPINs == f.Split.InAPINs && split.AfterAPINs == f.Split.AfterAPINs
		}
		if !fits {
			t.Errorf("%s, %s is none of the recorded steps", l.Cell, l.Configuration)
		}
		if !strings.Contains(strings.Join(l.Facts, "; "), "recording makes a step 1.07 times as long") {
			t.Errorf("facts are %q", l.Facts)
		}
	}

	// Of a record that was moved without its files, a few are named.
	moved := r
	moved.Dir = t.TempDir()
	if got, notes := page.ReadTimelines([]report.Named{moved}); len(got) != 0 || len(notes) != 7 || notes[6] != fmt.Sprintf("%d more timelines are missing.", n-6) {
		t.Errorf("moved: %d timelines, %q", len(got), notes)
	}

	// Problems of files are sentences.
	conf := &r.Record.Cells[0].Configurations[0]
	r.Record.Cells = r.Record.Cells[:1]
	r.Record.Cells[0].Configurations = r.Record.Cells[0].Configurations[:1]
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("text.json", []byte("no trace"))
	put("empty.json", nil)
	whole, err := os.ReadFile(filepath.Join(dir, "run-0-0.trace.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	put("cut.trace.json.gz", whole[:len(whole)*9/10])
	for _, c := range []struct{ file, note, doubt string }{
		{"", "the run kept none", ""}, {"text.json", "text.json is no trace that is known here", ""}, {"empty.json", "empty.json is empty", ""},
		{".", ". is no file", ""}, {"/nowhere/run-0-0.trace.json.gz", "", ""}, {"cut.trace.json.gz", "", "cut.trace.json.gz is damaged"},
	} {
		conf.Trace.File = c.file
		got, notes := page.ReadTimelines([]report.Named{r})
		switch {
		case c.note != "" && (len(got) != 0 || len(notes) != 1 || !strings.Contains(notes[0], c.note)):
			t.Errorf("%q: %d timelines, notes %q, want %s", c.file, len(got), notes, c.note)
		case c.note == "" && (len(got) != 1 || len(notes) != 0 || !strings.Contains(strings.Join(got[0].Doubts, " "), c.doubt)):
			t.Errorf("%q: %d timelines, notes %q", c.file, len(got), notes)
		}
	}
	conf.Trace.File, conf.Trace.Failed = "run-0-0.trace.json.gz", "the profiler dropped 3 records"
	if got, _ := page.ReadTimelines([]report.Named{r}); len(got) != 1 || got[0].Doubts[0] != "The traced pass failed: the profiler dropped 3 records." {
		t.Errorf("a failed trace is shown without a doubt: %+v", got)
	}
}

// A page with timelines of many large steps has a bounded size, and says what it
// leaves out; 10 steps of 800 kernels are all there.
func TestTimelinesAreBounded(t *testing.T) {
	dir := t.TempDir()
	r := traced(t, dir, 800)
	list, notes := page.ReadTimelines([]report.Named{r})
	if len(list) != 9 || len(notes) != 1 {
		t.Fatalf("%d timelines, %q", len(list), notes)
	}
	withMachine(r.Record)
	b := write(t, page.Extra{Timelines: list, TimelineNotes: notes}, r)
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the page has %d bytes, %d of them 9 timelines of 800 kernels", len(b), len(raw))
	if len(b) > maxBytes {
		t.Errorf("the page has %d bytes", len(b))
	}
	many := []report.Named{r}
	for range 9 {
		many = append(many, r)
	}
	list, notes = page.ReadTimelines(many)
	raw, err = json.Marshal(list)
	if err != nil || len(raw) > 3_000_000+len(list)+1 || len(list) == 90 || !strings.Contains(notes[len(notes)-1], fmt.Sprintf("%d more timelines are left out", 100-len(list)-(len(notes)-1))) {
		t.Errorf("%d timelines of %d bytes, %v: %q", len(list), len(raw), err, notes)
	}
}

// A page without timelines has no place for them; one without files says so.
func TestTimelinesOnThePage(t *testing.T) {
	records := samples(t)["gpu"]
	doc := parse(t, write(t, page.Extra{}, records...))
	if strings.Contains(text(byID(doc, "data")), `"timelines"`) || byID(doc, "timelines") != nil {
		t.Error("a page without timelines has a place for them")
	}
	doc = parse(t, write(t, page.Extra{TimelineNotes: []string{"x.gz is not beside the record."}}, records...))
	if e := byID(doc, "timelines"); e == nil || !strings.Contains(text(e), "x.gz is not beside the record.") {
		t.Error("a missing timeline is not mentioned")
	}
	line, err := page.NewTimeline(timeline.NewIndex(byHand()), page.Subject{Cell: "</script>" + hostileText, Configuration: hostileText, Source: hostileText})
	if err != nil {
		t.Fatal(err)
	}
	other := *line
	other.Cell = "another"
	doc = parse(t, write(t, page.Extra{Timelines: []page.Timeline{*line, *line, other}}, records...))
	figures := 0
	for _, f := range elements(byID(doc, "timelines"), "figure") {
		want := map[int]string{0: "0", 1: "2"}[figures]
		if figures++; attribute(f, "data-first") != want {
			t.Errorf("figure %d begins at timeline %s", figures, attribute(f, "data-first"))
		}
	}
	got := dataOf(t, doc)
	if len(got.Timelines) != 3 || fmt.Sprint(got.Timelines[0]) != fmt.Sprint(*line) || figures != 2 {
		t.Errorf("%d figures, the data has %v, want %v", figures, got.Timelines, *line)
	}
	// The table of longest gaps: 500 ns before 100, without the one before the step.
	rows := cellsOf(elements(byID(doc, "timelines"), "table")[0])
	if fmt.Sprint(rows[1]) != "[500 ns 500 ns 200 ns 50.0 ns 250 ns 0 ns feeding input, 100 ns c a]" || len(rows) != 3 {
		t.Errorf("the longest gap is %q of %d", rows[1], len(rows))
	}
}
