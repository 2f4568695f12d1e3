package report

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
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

func section(t *testing.T, r *results.Record, title string) Section {
	t.Helper()
	for _, s := range gather([]Named{{"r", r}}).sections() {
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
	for _, s := range gather([]Named{{"r", record("cuda", 16)}}).sections() {
		if strings.Contains(s.Title, "traced") || strings.Contains(s.Title, "launch costs") {
			t.Errorf("section %q", s.Title)
		}
	}
}

func TestTracedCSV(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, []Named{{"r", tracedRecord()}}); err != nil {
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
	pictures, _ := gather([]Named{{"r", r}}).all()
	i := slices.IndexFunc(pictures, func(p Picture) bool { return p.Name == "trace_parts" })
	if i < 0 {
		t.Fatal("no picture of the parts")
	}
	doubts := strings.Join(pictures[i].Doubts, "\n")
	if !strings.Contains(doubts, "graph/event/device is not drawn: a step has 299 kernels") || !strings.Contains(doubts, "1.50 to 1.50 times") {
		t.Errorf("%q", doubts)
	}
	if pictures, absent := gather([]Named{{"r", record("cuda", 16)}}).all(); slices.ContainsFunc(pictures, func(p Picture) bool { return strings.HasPrefix(p.Name, "trace") }) ||
		strings.Contains(strings.Join(absent, " "), "trace") {
		t.Errorf("%q", absent)
	}
}
