package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// What a cell shows can be read back for sorting, as near as its digits say.
func TestQuantity(t *testing.T) {
	for _, test := range []struct {
		text string
		want float64
		ok   bool
	}{
		{"1.23 ms", 1.23e6, true}, {"999 ns", 999, true}, {"12.3 s", 12.3e9, true}, {"-2.50 us", -2500, true},
		{"1.50 KiB", 1536, true}, {"512 B", 512, true}, {"3.00 GiB", 3 << 30, true},
		{"18%", 0.18, true}, {"<0.1%", 0.001, true}, {">1000%", 10, true},
		{"1.106 (1.010..1.200)", 1.106, true}, {"1.394..1.415", 1.394, true}, {"2 of 3", 2, true}, {"1,230", 1230, true}, {"41.0", 41, true},
		{"-", 0, false}, {"unknown", 0, false}, {"", 0, false}, {"eager", 0, false}, {"NaN", 0, false}, {"Inf s", 0, false}, {"<", 0, false},
	} {
		got, ok := Quantity(test.text)
		if ok != test.ok || math.Abs(got-test.want) > 1e-12*math.Abs(test.want) {
			t.Errorf("%q is %v, %v; want %v, %v", test.text, got, ok, test.want, test.ok)
		}
	}
	for _, ns := range []float64{0, 0.5, 7, 999, 1e3, 999.4e3, 2.5e6, 1.75e9, 3e12} {
		if got, ok := Quantity(Duration(ns)); !ok || math.Abs(got-ns) > 0.006*ns {
			t.Errorf("%v as %q is read as %v", ns, Duration(ns), got)
		}
	}
}

func TestUnit(t *testing.T) {
	for text, want := range map[string][2]string{
		"1.23 ms": {"1.23", "ms"}, "0 ns": {"0", "ns"}, "205 MiB": {"205", "MiB"}, "2 of 3": {"2 of 3", ""},
		"-": {"-", ""}, "eager ms": {"eager ms", ""}, "18%": {"18%", ""}, "12 ms x": {"12 ms x", ""},
	} {
		if f, u := Unit(text); f != want[0] || u != want[1] {
			t.Errorf("%q is %q and %q", text, f, u)
		}
	}
}

func TestFine(t *testing.T) {
	for want, v := range map[string]float64{
		"0": 0, "1.2346": 1.23456, "12.346": 12.3456, "12346": 12345.6, "1234567": 1234567, "0.0012346": 0.00123456, "-1.5000": -1.5, "1e+300": 1e300, "1.2300e-08": 1.23e-8,
	} {
		got := fine(v)
		if strings.Contains(want, "e-") {
			want = "1.23e-08"
		}
		if got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// headlined makes a GPU's cells with headlines; NaN as an end is no interval,
// NaN as a value is a withheld one.
func headlined(values ...[3]float64) *results.Record {
	r := &results.Record{}
	for i, v := range values {
		k := results.DefaultCellKey()
		k.Workload, k.Batch, k.Device = "resnet50", 1<<i, "cuda"
		c := results.Cell{Key: k, Verify: results.Verify{Equal: true, Modes: []string{"a", "b"}}}
		base, other := results.DefaultConfigurationKey(), results.DefaultConfigurationKey()
		other.Mode, other.Sync = "step", "inside"
		c.Configurations = []results.Configuration{{Key: base}, {Key: other}}
		if math.IsNaN(v[0]) {
			c.Headline.Withheld = "the captured one was not run"
		} else {
			q := results.Ratio{Metric: results.StepTimeNs, Base: base, Other: other, Value: v[0], Logs: []float64{0, 0, 0}}
			if !math.IsNaN(v[1]) {
				q.Interval = &results.Interval{Low: v[1], High: v[2], Coverage: 0.95, Method: "t"}
			}
			c.Headline.Ratio = &q
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func TestVerdict(t *testing.T) {
	none := math.NaN()
	cpu := record("cpu", 1)
	broken := headlined([3]float64{2, 1.9, 2.1}, [3]float64{none, none, none})
	broken.Cells[1] = results.Cell{Key: broken.Cells[1].Key, Status: results.Failed, Failure: "killed"}
	unequal := headlined([3]float64{2, 1.9, 2.1}, [3]float64{9, 8, 10})
	unequal.Cells[1].Verify.Equal = false
	dead := &results.Record{Cells: broken.Cells[1:]}
	mixed := headlined([3]float64{2, 1.9, 2.1})
	mixed.Cells = append(mixed.Cells, cpu.Cells...)
	for name, test := range map[string]struct {
		record *results.Record
		want   []string
	}{
		"no cells":    {&results.Record{}, []string{"Nothing was measured: no cells."}},
		"cpu":         {cpu, []string{"No headline: these figures are of a CPU, and show the method, not the gain."}},
		"no headline": {record("cuda", 1), []string{"No headline: no cell has one."}},
		"one faster": {headlined([3]float64{1.5, 1.4, 1.6}), []string{
			"A captured step is 1.500 times as fast as an eager one, with step/inside/device.", "Interval: 1.400..1.600."}},
		"one slower": {headlined([3]float64{0.9, 0.8, 0.95}), []string{
			"A captured step is slower than an eager one: 0.900 times as fast, with step/inside/device.", "Interval: 0.800..0.950."}},
		"one unclear": {headlined([3]float64{1.01, 0.99, 1.03}), []string{
			"No difference between a captured step and an eager one is shown, with step/inside/device.", "Speed-up 1.010, interval 0.990..1.030."}},
		// 1 itself is no difference: an interval that ends there holds it.
		"edge": {headlined([3]float64{1.01, 1, 1.03}), []string{
			"No difference between a captured step and an eager one is shown, with step/inside/device.", "Speed-up 1.010, interval 1.000..1.030."}},
		"all faster": {headlined([3]float64{3, 2.9, 3.1}, [3]float64{1.2, 1.1, 1.3}), []string{
			"Captured steps are up to 3.000 times as fast as eager ones, and faster in all 2 cells.",
			"Most: 3.000 (2.900..3.100), batch 1, with step/inside/device.",
			"Least of the faster ones: 1.200 (1.100..1.300), batch 2, with step/inside/device."}},
		"some of each": {headlined([3]float64{3, 2.9, 3.1}, [3]float64{1, 0.9, 1.1}, [3]float64{0.8, 0.7, 0.9}, [3]float64{4, none, none}, [3]float64{none, none, none}), []string{
			"Captured steps are up to 3.000 times as fast as eager ones, and faster in 1 of 3 cells.",
			"Most: 3.000 (2.900..3.100), batch 1, with step/inside/device.",
			"No difference is shown in 1 cell: the interval holds 1.",
			"Captured is slower in 1 cell: 0.800 times as fast (0.700..0.900), batch 4, with step/inside/device.",
			"A captured step was 4.000 times as fast as an eager one in one process, batch 8, with step/inside/device.",
			"1 cell without an interval, as there was one process: other runs may differ by any amount.",
			"Withheld in 1 cell: see the remarks."}},
		"none faster": {headlined([3]float64{1, 0.9, 1.1}, [3]float64{0.8, 0.7, 0.9}), []string{
			"Captured steps are not shown to be faster than eager ones in any of 2 cells.",
			"No difference is shown in 1 cell: the interval holds 1.",
			"Captured is slower in 1 cell: 0.800 times as fast (0.700..0.900), batch 2, with step/inside/device."}},
		"one failed": {broken, []string{"A captured step is 2.000 times as fast as an eager one, with step/inside/device.", "Interval: 1.900..2.100.", "1 cell failed."}},
		"unequal":    {unequal, []string{"A captured step is 2.000 times as fast as an eager one, batch 1, with step/inside/device.", "Interval: 1.900..2.100.", "Withheld in 1 cell: see the remarks."}},
		"all failed": {dead, []string{"Nothing holds: every cell failed."}},
		"with a cpu": {mixed, []string{"A captured step is 2.000 times as fast as an eager one, with step/inside/device.", "Interval: 1.900..2.100."}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Collect([]Named{{Name: "a.json", Record: test.record}})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.Verdict, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(c.Verdict, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	if _, err := Collect(nil); !errors.Is(err, ErrNoRecords) {
		t.Errorf("of no records: %v", err)
	}
}

// An axis of headlines holds 1 and every interval that would not flatten it.
func TestHeadlineAxis(t *testing.T) {
	c, err := Collect([]Named{{Record: headlined([3]float64{2, 1.5, 2.5}, [3]float64{1.8, 0.01, 400})}})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.HeadlineAxis; a.Low > 1 || a.Low < 0.5 || a.High < 2.5 || a.High > 4 || !a.Log {
		t.Errorf("from %v to %v", a.Low, a.High)
	}
}

func sectionOf(t *testing.T, c Contents, title string) Section {
	t.Helper()
	for _, s := range c.Details {
		if s.Title == title {
			return s
		}
	}
	t.Fatalf("there is no %q", title)
	return Section{}
}

func TestDetails(t *testing.T) {
	r := record("cuda", 1)
	r.Environment = results.Environment{
		Fields: []results.EnvironmentField{
			{Name: "gpu.name", Value: "NVIDIA H200", Role: results.Bed}, {Name: "driver.version", Value: "580.1", Role: results.Subject},
			{Name: "cudnn.version", Role: results.Subject, Why: "libcudnn.so.9: not found"},
		},
		Calibration: []results.Reading{{Name: "launch_ns", Unit: "ns", Value: 2345, N: 9}, {Name: "copy", Unit: "GB/s", Value: 41.5, N: 3}},
	}
	r.Cells[0].Plans = []json.RawMessage{
		json.RawMessage(`{"key":"conv 1","choice":{"engine": 12},"offered":8}`), json.RawMessage(`{"key":"conv 2","time_ns":12.5}`), json.RawMessage(`"odd"`)}
	r.Environment.Moments = []results.Moment{
		{When: results.AtStart, Readings: []results.Reading{{Name: "load1", Value: 0.5}}},
		{When: results.AtEnd, Readings: []results.Reading{{Name: "load1", Value: 1.5}, {Name: "gpu0.temperature", Unit: "C", Value: 61}}},
		{Session: 1, When: results.AtStart, Readings: []results.Reading{{Name: "gpu0.temperature", Unit: "C", Value: 40}}},
	}
	r.Cells[0].Processes = []results.Process{
		{Index: 0, Readings: []results.Reading{{Name: "load1", Value: 2}}}, {Index: 1},
		{Index: 2, Readings: []results.Reading{{Name: "power", Unit: "W", Value: 500}, {Name: "load1", Value: 3}}},
	}
	c, err := Collect([]Named{{Name: "a.json", Record: r}})
	if err != nil {
		t.Fatal(err)
	}
	over, under := sectionOf(t, c, "Machine over the run").Grid, sectionOf(t, c, "Machine under load").Grid
	for _, test := range []struct{ got, want []string }{
		{over.Header, []string{"reading", "start", "end", "session 2 start"}},
		{over.Rows[0], []string{"load1", "0.50000", "1.5000", "-"}},
		{over.Rows[1], []string{"gpu0.temperature", "-", "61.000 C", "40.000 C"}},
		{under.Header, []string{"workload", "batch", "gpus", "process", "load1", "power"}},
		{under.Rows[0], []string{"resnet20-cifar", "1", "1", "0", "2.0000", "-"}},
		{under.Rows[1], []string{"resnet20-cifar", "1", "1", "2", "3.0000", "500.00 W"}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
	find := func(title, first string) []string {
		s := sectionOf(t, c, title)
		i := slices.IndexFunc(s.Grid.Rows, func(row []string) bool { return row[0] == first })
		if i < 0 {
			t.Fatalf("%s has no %s: %q", title, first, s.Grid.Rows)
		}
		if len(s.Grid.Rows[i]) != len(s.Grid.Header) {
			t.Errorf("%s: %q below %q", title, s.Grid.Rows[i], s.Grid.Header)
		}
		return s.Grid.Rows[i]
	}
	for _, test := range []struct{ title, first, second string }{
		{"Environment: bed", "gpu.name", "NVIDIA H200"}, {"Environment: subject", "driver.version", "580.1"},
		{"Environment: subject", "cudnn.version", "unknown: libcudnn.so.9: not found"},
		{"Calibration", "launch_ns", "2.35 us"}, {"Calibration", "copy", "41.500 GB/s"}, {"How it was run", "quick", "false"},
	} {
		if row := find(test.title, test.first); row[1] != test.second {
			t.Errorf("%s: %s is %q, want %q", test.title, test.first, row[1], test.second)
		}
	}
	plans := sectionOf(t, c, "Library plans").Grid
	if want := []string{"workload", "batch", "gpus", "key", "choice", "offered", "time_ns", "plan"}; !slices.Equal(plans.Header, want) {
		t.Errorf("plans have the columns %q", plans.Header)
	}
	if want := []string{"resnet20-cifar", "1", "1", "conv 1", `{"engine":12}`, "8", "-", "-"}; !slices.Equal(plans.Rows[0], want) {
		t.Errorf("the first plan is %q", plans.Rows[0])
	}
	if row := plans.Rows[2]; row[7] != `"odd"` {
		t.Errorf("what is no object is %q", row)
	}
	if row := sectionOf(t, c, "Verification").Grid.Rows[0]; !slices.Equal(row, []string{"resnet20-cifar", "1", "1", "120", "3.00 MiB", "4", "equal", ""}) {
		t.Errorf("the check is %q", row)
	}
	// Of two records each has a column, and what differs says so.
	other := *r
	other.Environment = results.Environment{Fields: []results.EnvironmentField{{Name: "driver.version", Value: "575.9", Role: results.Subject}, {Name: "gpu.name", Value: "NVIDIA H200", Role: results.Bed}}}
	if c, err = Collect([]Named{{Name: "a.json", Record: r}, {Name: "b.json", Record: &other}}); err != nil {
		t.Fatal(err)
	}
	if row := find("Environment: subject", "driver.version"); !slices.Equal(row, []string{"driver.version", "580.1", "575.9", "differs"}) {
		t.Errorf("of two records: %q", row)
	}
	if row := find("Environment: bed", "gpu.name"); row[3] != "" {
		t.Errorf("what is the same: %q", row)
	}
	if row := find("Calibration", "copy"); !slices.Equal(row, []string{"copy", "41.500 GB/s", "-"}) {
		t.Errorf("what one lacks: %q", row)
	}
}

func TestPlansAreBounded(t *testing.T) {
	r := record("cuda", 1)
	for i := range maxPlanRows + 7 {
		r.Cells[0].Plans = append(r.Cells[0].Plans, json.RawMessage(fmt.Sprintf(`{"key":"%d"}`, i)))
	}
	c, err := Collect([]Named{{Record: r}})
	if err != nil {
		t.Fatal(err)
	}
	s := sectionOf(t, c, "Library plans")
	if len(s.Grid.Rows) != maxPlanRows || !slices.Contains(s.Lines, "7 more are in the records.") {
		t.Errorf("%d rows, %q", len(s.Grid.Rows), s.Lines)
	}
}

// Whoever asks for a table of which the records have nothing hears what it needs.
func TestTableNeeds(t *testing.T) {
	for _, name := range TableNames() {
		if got := TableNeeds([]string{name}); !strings.HasPrefix(got, name+" needs ") || strings.HasSuffix(got, " ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, want := TableNeeds([]string{"ratios", "preparation", "none"}), "ratios needs a cell in two configurations; preparation needs a captured mode"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A process's phases are columns, in the order of what is done; those that some
// processes lack stand where the others have them.
func TestPhases(t *testing.T) {
	r := record("cuda", 1, 4)
	r.Cells[0].Processes = []results.Process{
		{Index: 0, Ns: 9e9, Phases: []results.ProcessPhase{{Phase: "start", Ns: 1e9}, {Phase: "build", Ns: 2e9}, {Phase: "tuning", Ns: 3e9}, {Phase: "end", Ns: 3e9}}},
		{Index: 1, Ns: 3e9, Phases: []results.ProcessPhase{{Phase: "start", Ns: 1e9}, {Phase: "build", Ns: 1500}, {Phase: "trace", Ns: 0}, {Phase: "end", Ns: 1e9}}},
	}
	r.Cells[1].Processes = []results.Process{{Index: 0, Ns: 5}} // an older record's
	var b strings.Builder
	asked := []string{"phases"}
	if empty, err := Selected(&b, FormatTable, []Named{{Name: "r.json", Record: r}}, asked); err != nil || len(empty) > 0 {
		t.Fatal(empty, err)
	}
	var rows [][]string
	for line := range strings.Lines(b.String()) {
		rows = append(rows, strings.Fields(line))
	}
	for i, want := range map[int]string{
		0: "Where a process's time went",
		1: "workload batch gpus process took start build trace tuning end",
		3: "resnet20-cifar 1 1 0 9.00 s 1.00 s 2.00 s - 3.00 s 3.00 s",
		4: "resnet20-cifar 1 1 1 3.00 s 1.00 s 1.50 us 0 ns - 1.00 s",
	} {
		if got := strings.Join(rows[i], " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	if len(rows) < 6 || !strings.HasPrefix(strings.Join(rows[5], " "), "Wall time by the host's clock.") {
		t.Errorf("%d lines:\n%s", len(rows), b.String())
	}
	b.Reset()
	r.Cells[0].Processes = nil
	if empty, err := Selected(&b, FormatTable, []Named{{Name: "r.json", Record: r}}, asked); !slices.Equal(empty, asked) || err != nil || b.Len() > 0 {
		t.Errorf("of nothing: %v, %v, %q", empty, err, b.String())
	}
}

// What phases took and what memory was in use around them is a line a phase of
// what was captured; of several processes it is the one with the median
// difference.
func TestPreparation(t *testing.T) {
	r := record("cuda", 1)
	cell := &r.Cells[0]
	cell.Configurations = []results.Configuration{
		{Key: results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device"}, Prepare: []results.Phase{{Phase: "prepare_operators", Ns: 5}}},
		{Key: results.ConfigurationKey{Mode: "step", Sync: "inside", Control: "device"}, Prepare: []results.Phase{
			{Phase: "warm_up", Ns: 4000, Processes: []int64{4000, 9000, 1000}, Memory: []results.PhaseMemory{
				{Process: 0, BeforeBytes: 1 << 30, AfterBytes: 1<<30 + 9<<20}, {Process: 1, BeforeBytes: 2 << 30, AfterBytes: 2<<30 + 4<<20}, {Process: 2, BeforeBytes: 3 << 30, AfterBytes: 3 << 30}}},
			{Phase: "upload", Ns: 77, Memory: []results.PhaseMemory{{BeforeBytes: 3 << 20, AfterBytes: 1 << 20}}},
			{Phase: "capture", Ns: 88},
		}},
	}
	asked := []string{"preparation"}
	lines := func() []string {
		t.Helper()
		var b strings.Builder
		if empty, err := Selected(&b, FormatTable, []Named{{Name: "r.json", Record: r}}, asked); err != nil || len(empty) > 0 {
			t.Fatal(empty, err)
		}
		var out []string
		for line := range strings.Lines(b.String()) {
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
		return out
	}
	got := lines()
	for i, want := range map[int]string{
		1: "workload batch gpus mode sync control phase took processes in use before after more",
		3: "resnet20-cifar 1 1 step inside device warm up 4.00 us 3 2.00 GiB 2.00 GiB 4.00 MiB",
		4: "resnet20-cifar 1 1 step inside device upload 77.0 ns 1 3.00 MiB 1.00 MiB -2.00 MiB",
		5: "resnet20-cifar 1 1 step inside device capture 88.0 ns 1 - - -",
	} {
		if got[i] != want {
			t.Errorf("line %d is %q, want %q", i, got[i], want)
		}
	}
	if !slices.Contains(got, MemoryLine) {
		t.Errorf("nothing explains the memory: %q", got)
	}
	for i := range cell.Configurations[1].Prepare {
		cell.Configurations[1].Prepare[i].Memory = nil
	}
	got = lines()
	if got[3] != "resnet20-cifar 1 1 step inside device warm up 4.00 us 3" || slices.Contains(got, MemoryLine) {
		t.Errorf("without memory: %q", got)
	}
}

func TestGraphs(t *testing.T) {
	r := record("cuda", 1)
	cell := &r.Cells[0]
	cell.Configurations = []results.Configuration{
		{Key: results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device"}, Counts: results.Counts{GraphNodes: map[string]int64{"kernel": 5}}},
		{Key: results.ConfigurationKey{Mode: "graph", Sync: "event", Control: "device"}, Counts: results.Counts{Graphs: []results.CapturedGraph{
			{Name: "a", Nodes: map[string]int64{"kernel": 5}, Edges: 6, WidestSection: 3, CriticalPath: 2},
			{Name: "b", Nodes: map[string]int64{"kernel": 4, "memcpy": 1}, Edges: 4, WidestSection: 1, CriticalPath: 5}}}},
	}
	var b strings.Builder
	asked := []string{"graphs"}
	if empty, err := Selected(&b, FormatTable, []Named{{Name: "r.json", Record: r}}, asked); err != nil || len(empty) > 0 {
		t.Fatal(empty, err)
	}
	var rows []string
	for line := range strings.Lines(b.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	if rows[1] != "workload batch gpus mode sync control graphs nodes kernel memcpy edges widest section critical path" ||
		rows[3] != "resnet20-cifar 1 1 graph event device 2 10 9 1 10 3 5" || !strings.HasPrefix(rows[4], "Of one rank and step") {
		t.Errorf("%q", rows)
	}
	b.Reset()
	cell.Configurations = cell.Configurations[:1]
	if empty, err := Selected(&b, FormatTable, []Named{{Name: "r.json", Record: r}}, asked); !slices.Equal(empty, asked) || err != nil {
		t.Errorf("of nothing: %v, %v", empty, err)
	}
}
