package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	chrome "github.com/tech-renaissance/trbench/timeline/write"
)

// tracedRecord has traces in two configurations of three, the second failed.
func tracedRecord() *results.Record {
	r := record("cuda", 16)
	c := r.Cells[0].Configurations
	of := func(values map[string][]float64) *results.Trace {
		t := &results.Trace{Steps: 2}
		for _, d := range results.TraceDefinitions() {
			if v, ok := values[d.Name]; ok {
				var samples []results.Sample
				for i, x := range v {
					samples = append(samples, results.Sample{Block: i, Value: x})
				}
				t.Metrics = append(t.Metrics, results.NewMetric(d.Name, samples))
			}
		}
		return t
	}
	c[0].Trace = of(map[string][]float64{
		results.TracedStepNs: {4e6, 6e6}, results.BusyNs: {1e6, 2e6}, results.IdleNs: {3e6, 4e6}, results.HostLateNs: {2e6, 3e6},
		results.InAPINs: {5e5, 5e5}, results.AfterAPINs: {5e5, 5e5}, results.UnlinkedNs: {0, 0}, results.InGraphNs: {0, 0},
		results.LateFeedNs: {1e6, 1e6}, results.LateNothingNs: {1e6, 2e6}, results.Inflation: {1.5}, results.TraceKernelCount: {300, 300},
		results.ShortKernelCount: {250, 250}, results.TraceLaunches: {301, 301}, results.CorrectedBusyNs: {9e5, 9e5}, results.CorrectedIdleNs: {-5e4},
	})
	c[0].Trace.Calibrations = []results.TraceCalibration{{ByNs: 340, UncertaintyNs: 15}}
	c[0].Trace.Launches = []results.LaunchCost{
		{Layer: results.LayerLanguage, Count: 1000, MedianNs: 60, P99Ns: 90},
		{Layer: results.LayerDriver, Call: "cuLaunchKernel", Count: 600, MedianNs: 2100, P99Ns: 4000, Inflation: new(1.25)},
		{Layer: results.LayerHardware, Call: "cuLaunchKernel", Count: 40, MedianNs: -300, P99Ns: 5000},
	}
	c[1].Trace = of(map[string][]float64{results.TracedStepNs: {2e6}, results.TraceKernelCount: {299}})
	c[1].Trace.Failed = "a step has 299 kernels on record,\nand its graphs have 300"
	return r
}

// A recording alone comes with what casts doubt on it, and with nothing about what
// was timed only to have something beside it.
func TestRecordedDoubts(t *testing.T) {
	r := tracedRecord()
	r.Warnings = []results.Warning{{Code: "load", Text: "busy"}}
	for _, code := range []string{"few_processes", "trace_faster", "few_blocks", "clocks_do_not_add_up", "trace_failed", "gpu_throttled"} {
		r.Cells[0].Warnings = append(r.Cells[0].Warnings, results.Warning{Code: code, Text: "of " + code})
	}
	var b strings.Builder
	if err := Recorded(&b, r); err != nil {
		t.Fatal(err)
	}
	got, at := warningLines(b.String()), "Warning (resnet20-cifar batch 16 gpus 1): of "
	if want := []string{"Warning: busy [load]", at + "trace_faster [trace_faster]", at + "gpu_throttled [gpu_throttled]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func section(t *testing.T, r *results.Record, title string) Section {
	t.Helper()
	for _, s := range gather([]Named{{Name: "r", Record: r}}).sections() {
		if s.Title == title {
			return s
		}
	}
	t.Fatalf("there is no section %q", title)
	return Section{}
}

// The split stands in one line with the inflation, and a failed trace says so.
func TestTracedTable(t *testing.T) {
	s := section(t, tracedRecord(), "Where a traced step's time goes")
	want := map[string][]string{
		"mode": {"eager", "graph"}, "traced step": {"5.00 ms", "2.00 ms"}, "inflation": {"1.50", "-"}, "busy": {"1.50 ms", "-"}, "idle": {"3.50 ms", "-"},
		"host late": {"2.50 ms", "-"}, "in call": {"500 us", "-"}, "after call": {"500 us", "-"}, "corrected busy": {"900 us", "-"},
		"corrected idle": {"-50.0 us", "-"}, "kernels": {"300", "299"}, "short": {"250", "-"}, "launches": {"301", "-"}, "trace": {"ok", "failed"},
	}
	for name, cells := range want {
		at := slices.Index(s.Grid.Header, name)
		if at < 0 || len(s.Grid.Rows) != 2 {
			t.Fatalf("column %q of %v in %d rows", name, s.Grid.Header, len(s.Grid.Rows))
		}
		for i, w := range cells {
			if got := s.Grid.Rows[i][at]; got != w {
				t.Errorf("row %d: %s is %q, want %q", i, name, got, w)
			}
		}
	}
	text := strings.Join(s.Lines, "\n")
	for _, want := range []string{"Failed trace (resnet20-cifar batch 16 gpus 1, graph/event/device): a step has 299 kernels on record, and its graphs have 300\n",
		"corrected busy takes 340 ns from each kernel's length (+- 15.0 ns)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	idle := section(t, tracedRecord(), "For how much of a step the device is idle")
	if got := fmt.Sprint(idle.Grid.Rows); got != "[[resnet20-cifar 16 1 eager event device 70.8% 0.0% 1.98 s 1.50] [resnet20-cifar 16 1 graph event device failed failed 1.98 s -]]" {
		t.Errorf("%s", got)
	}
	// Of a record with the block beside the recorded steps, that is the step they
	// are compared with, whatever the timed ones took.
	r := tracedRecord()
	x := &r.Cells[0].Configurations[0]
	x.Trace.Metrics = append(x.Trace.Metrics, results.NewMetric(results.UntracedStepNs, []results.Sample{{Value: 4e6}}))
	x.Trace.Metric(results.CorrectedIdleNs).Value = 1e6
	idle = section(t, r, "For how much of a step the device is idle")
	if got := fmt.Sprint(idle.Grid.Rows[0]); got != "[resnet20-cifar 16 1 eager event device 70.8% 25.0% 4.00 ms 1.50]" {
		t.Errorf("%s", got)
	}
	if got := section(t, r, "Where a traced step's time goes"); got.Grid.Rows[0][slices.Index(got.Grid.Header, "untraced step")] != "4.00 ms" || got.Grid.Rows[1][6] != "-" {
		t.Errorf("%+v", got.Grid)
	}
	if p := partsOf(x); p.StepTimeNs != 4e6 {
		t.Errorf("%+v", p)
	}
	late := section(t, tracedRecord(), "What the host did while the device waited for it")
	if len(late.Grid.Rows) != 1 || late.Grid.Rows[0][slices.Index(late.Grid.Header, "feeding")] != "1.00 ms" || late.Grid.Rows[0][slices.Index(late.Grid.Header, "else")] != "1.50 ms" {
		t.Errorf("%+v", late.Grid)
	}
	costs := section(t, tracedRecord(), "What one launch costs")
	if got := costs.Grid.Rows[2][len(costs.Grid.Header)-6:]; len(costs.Grid.Rows) != 3 || !slices.Equal(got, []string{"hardware", "cuLaunchKernel", "40", "-300 ns", "5.00 us", "-"}) {
		t.Errorf("%v", got)
	}
	if got := costs.Grid.Rows[1][len(costs.Grid.Header)-1]; got != "1.25" {
		t.Errorf("inflation %v", got)
	}
	// Without traces there is no word of them.
	for _, s := range gather([]Named{{Name: "r", Record: record("cuda", 16)}}).sections() {
		if strings.Contains(s.Title, "traced") || strings.Contains(s.Title, "launch costs") {
			t.Errorf("section %q", s.Title)
		}
	}
}

// A call of CUDA that a library makes inside its own counts for the library; a
// record that does not tell these apart says so.
func TestLateInALibrary(t *testing.T) {
	r := tracedRecord()
	x := r.Cells[0].Configurations[0].Trace
	add := func(name string, v float64) {
		x.Metrics = append(x.Metrics, results.NewMetric(name, []results.Sample{{Value: v}}))
	}
	row := func() string {
		s := section(t, r, "What the host did while the device waited for it")
		cells := s.Grid.Rows[0]
		return fmt.Sprint(cells[slices.Index(s.Grid.Header, "in a library")], cells[slices.Index(s.Grid.Header, "other call")], len(s.Lines))
	}
	add(results.LateLibraryNs, 7e5)
	add(results.LateCallNs, 6e5)
	if got := row(); got != "700 us600 us1" {
		t.Error(got)
	}
	add(results.LateLibraryCallNs, 5.8e5)
	if got := row(); got != "1.28 ms20.0 us0" {
		t.Error(got)
	}
}

// Pages and Markdown have the share of idle time too, before its causes: of the two
// it is the one to compare by.
func TestCollectedIdleShares(t *testing.T) {
	c, err := Collect([]Named{{Name: "r", Record: tracedRecord()}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(title string) int {
		return slices.IndexFunc(c.Tables, func(s Section) bool { return s.Title == title })
	}
	if idle, causes := at("For how much of a step the device is idle"), at("Where a traced step's time goes"); idle < 0 || idle != causes-1 {
		t.Errorf("idle shares are table %d, causes %d", idle, causes)
	}
}

func TestTracedCSV(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, []Named{{Name: "r", Record: tracedRecord()}}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int { return slices.Index(rows[0], name) }
	found := map[string]string{}
	for _, row := range rows[1:] {
		if k := row[at("kind")]; k == kindTrace || k == kindLaunch {
			found[row[at("mode")]+" "+row[at("name")]] = row[at("value")] + " " + row[at("unit")] + " " + row[at("status")]
		}
	}
	for name, want := range map[string]string{
		"eager busy_ns": "1.5e+06 ns done", "eager inflation": "1.5 ratio done", "eager corrected_idle_ns": "-50000 ns done", "eager kernels": "300 count done",
		"eager driver cuLaunchKernel": "2100 ns done", "eager language": "60 ns done", "graph kernels": "299 count failed",
	} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}
}

// The parts of the picture are means of the steps, so they add up; what failed
// is not drawn, and said.
func TestTracedPicture(t *testing.T) {
	r := tracedRecord()
	p := partsOf(&r.Cells[0].Configurations[0])
	if p.BusyNs+p.HostLateNs+p.InAPINs+p.AfterAPINs+p.UnlinkedNs != 5e6 || p.Steps != 2 || p.StepTimeNs != 1.2345e8*16 {
		t.Errorf("%+v", p)
	}
	pictures, _ := gather([]Named{{Name: "r", Record: r}}).all()
	i := slices.IndexFunc(pictures, func(p Picture) bool { return p.Name == "trace_parts" })
	if i < 0 {
		t.Fatal("no picture of the parts")
	}
	doubts := strings.Join(pictures[i].Doubts, "\n")
	if !strings.Contains(doubts, "graph/event/device is not drawn: a step has 299 kernels") || !strings.Contains(doubts, "1.50 to 1.50 times") {
		t.Errorf("%q", doubts)
	}
	if pictures, absent := gather([]Named{{Name: "r", Record: record("cuda", 16)}}).all(); slices.ContainsFunc(pictures, func(p Picture) bool { return strings.HasPrefix(p.Name, "trace") }) ||
		strings.Contains(strings.Join(absent, " "), "trace") {
		t.Errorf("%q", absent)
	}
}

// Timelines that lie beside the record are drawn; one that is missing or holds
// something else is said, and no other is left out for it.
func TestTracedTimelines(t *testing.T) {
	dir := t.TempDir()
	var b timeline.Builder
	b.Name("")
	x := &b.T
	x.Format = timeline.FormatOwn
	x.Processes = []timeline.Process{{ID: "5", Name: "p", Rank: timeline.None}}
	x.Devices = []timeline.Device{{ID: "0", Name: "GPU"}}
	x.Streams = []timeline.Stream{{Device: 0, Process: timeline.None, ID: "7", Name: "COMP_1"}}
	x.Threads = []timeline.Thread{{Process: 0, ID: "9", Name: "rank 0"}}
	// Steps of 9000, 9000, 1000, 3000 and 2000 ns, and the one that ends the last.
	for i, at := range []int64{0, 9000, 18000, 19000, 22000, 24000} {
		n := int64(i + 1)
		x.Calls = append(x.Calls, timeline.Call{StartNs: at + 10, EndNs: at + 20, Name: b.Name("cuLaunchKernel"), Class: timeline.CallLaunch, Correlation: n})
		x.Ops = append(x.Ops, timeline.Op{StartNs: at + 100, EndNs: at + 700, Timed: true, Name: b.Name("kernel"), Correlation: n})
		x.Ranges = append(x.Ranges, timeline.Range{StartNs: at, EndNs: at + 50, Name: b.Name("step"), Class: timeline.RangeStep})
	}
	if err := chrome.File(filepath.Join(dir, "good.trace.json.gz"), timeline.NewIndex(x)); err != nil {
		t.Fatal(err)
	}
	// However many lead the way, the last step that is on record only ends one; the
	// one of median length is drawn.
	for steps, want := range map[int]string{3: "{22100 24100} 3 gaps of [400 2400 1400]", 2: "{22100 24100} 2 gaps of [2400 1400]", 1: "{22100 24100} 1 gaps of [1400]",
		5: "{19100 22100} 5 gaps of [8400 8400 400 2400 1400]"} {
		step, gaps, err := readTraced(filepath.Join(dir, "good.trace.json.gz"), "eager", steps)
		shift := step.Index.T.Ops[0].StartNs - 100 // a written trace begins elsewhere
		w := timeline.Window{FromNs: step.Window.FromNs - shift, ToNs: step.Window.ToNs - shift}
		if got := fmt.Sprintf("%v %d gaps of %v", w, gaps.Steps, timeline.GapLengths(gaps.Gaps)); err != nil || got != want {
			t.Errorf("%d steps: %v, %s, want %s", steps, err, got, want)
		}
	}
	if _, _, err := readTraced(filepath.Join(dir, "good.trace.json.gz"), "eager", 6); err == nil || !strings.Contains(err.Error(), "holds 6 steps, and 6 and their end were to be in it") {
		t.Error(err)
	}
	r := tracedRecord()
	c := r.Cells[0].Configurations
	c[0].Trace.File, c[1].Trace.File = "good.trace.json.gz", "none.trace.json.gz"
	pictures, absent := gather([]Named{{Name: "r", Record: r, Dir: dir}}).all()
	for _, name := range []string{"trace_step_resnet20-cifar_b16_g1", "trace_gaps_resnet20-cifar_b16_g1"} {
		i := slices.IndexFunc(pictures, func(p Picture) bool { return p.Name == name })
		if i < 0 || !strings.Contains(strings.Join(pictures[i].Notes, " "), "eager/event/device: recording made the step 1.50 times as long.") {
			t.Fatalf("no picture %s", name)
		}
		if err := pictures[i].Encode(&bytes.Buffer{}, PNG); err != nil {
			t.Error(err)
		}
	}
	if text := strings.Join(absent, "\n"); !strings.Contains(text, "The timeline of resnet20-cifar batch 16 gpus 1, graph/event/device, is not drawn: trace ") {
		t.Errorf("%q", text)
	}
}
