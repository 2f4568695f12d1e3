package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func sample() *Record {
	key := DefaultCellKey()
	key.Workload, key.Batch, key.Resolution, key.LastBatch = "resnet20-cifar", 4, Resolution{32, 32}, LastBatch{4, 3}
	configuration := DefaultConfigurationKey()
	configuration.Launcher = "go"
	return &Record{
		Schema:    Schema{SchemaName, SchemaMajor, SchemaMinor},
		Created:   time.Date(2026, 7, 31, 10, 11, 12, 0, time.UTC),
		Arguments: []string{"run", "--batch=4"},
		Seed:      math.MaxUint64,
		Status:    Incomplete,
		Plan: &Plan{Cells: []CellKey{key}, Configurations: []ConfigurationKey{configuration}, Processes: 3, Steps: 10,
			Single: 2, Blocks: 3, Warmup: new(2), WarmupCap: 64, Seed: 1, Data: "random", BudgetNs: 45e9},
		Environment: Environment{
			Fields:      []EnvironmentField{{"gpu.name", "NVIDIA H200", Bed, ""}},
			Readings:    []Reading{{"load1", "", 0.25, 1}},
			Calibration: []Reading{},
			Moments: []Moment{{Session: 1, When: AtEnd, Time: time.Date(2026, 7, 31, 10, 12, 0, 0, time.UTC),
				Readings: []Reading{{"temperature.gpu", "celsius", 61, 1}}}},
		},
		Warnings: []Warning{{"load", "the machine is busy", 0}},
		Cells: []Cell{{
			Key: key, Steps: 10, Warmup: 2, Blocks: 3, Variants: []int{2},
			Verify:         Verify{Equal: true, Tensors: 3, Bytes: 12, Steps: 4, Modes: []string{"eager", "graph"}},
			Memory:         Memory{ArenaBytes: 1 << 40, PinnedBytes: 7},
			Atlas:          Atlas{Filled: 9, Captured: 6, Reused: 3},
			ExecutionTable: ExecutionTable{Entries: 33, Bytes: 264},
			Warnings:       []Warning{{"noise", "the blocks differ by 12 %", 2}},
			Status:         Done,
			Processes:      []Process{{Index: 1, Seed: 9, Status: Done, Ns: 5, PID: 2, Blocks: 3, Readings: []Reading{{"gpu.sm_clock_hz", "Hz", 1.98e9, 1}}}},
			Ratios:         []Ratio{{Metric: StepTimeNs, Base: configuration, Other: configuration, Value: 1, Interval: &Interval{0.9, 1.1, 0.95, 0.95, "t"}, Logs: []float64{0, 0.1}}},
			Plans:          []json.RawMessage{json.RawMessage(`"a plan"`)},
			Configurations: []Configuration{{
				Key: configuration,
				Metrics: []Metric{
					NewMetric(StepTimeNs, []Sample{{0, 0, 1, 0, 300}, {0, 0, 0, 1, 100.4}, {0, 0, 2, 0, 200}}),
					NewMetric(ImagesPerS, []Sample{{0, 0, 0, 0, 0.5}}),
				},
				Prepare:  []Phase{{"capture", 12, []int64{12}, []PhaseMemory{{Process: 1, BeforeBytes: 1 << 33, AfterBytes: 1<<33 + 5}}}, {"instantiate", 13, nil, nil}},
				Absent:   []Absence{{LaunchOverheadNs, "no events"}},
				Captures: Captures{Captures: 20, Replays: 400},
				Counts: Counts{Launches: Launches{Host: Count(300)}, GraphNodes: map[string]int64{"kernel": 280},
					Graphs: []CapturedGraph{{Name: "OPTIMIZER (final/full)", Nodes: map[string]int64{"kernel": 280}, Edges: 279, WidestSection: 2, CriticalPath: 270}}},
				Warmup:  []Warmup{{Process: 1, Steps: 12, Capped: true}},
				Machine: []Spread{{"gpu.sm_clock_hz", "Hz", 1, 2, 3, 4, []float64{2}}},
				Trace: &Trace{
					Steps: 3, Metrics: []Metric{NewMetric(BusyNs, []Sample{{0, 0, 1, 0, 300}})}, Kernels: TraceKernels{7, Count(8), FromGraphNodes},
					Dropped: 2, Lost: 1, Failed: "7 are not 8", Absent: []Absence{{CorrectedBusyNs, "none"}}, File: "x.trace.json.gz",
					Calibrations: []TraceCalibration{{Process: 1, Kernels: 300, UntracedNs: 2400.5, TracedNs: 1900, PeriodNs: 3500, ByNs: -500.5, UncertaintyNs: 12,
						Costs: []LaunchCost{{Layer: LayerLanguage, Count: 9, MedianNs: 60, P99Ns: 90}}}},
					Launches: []LaunchCost{{LayerDriver, "cuLaunchKernel", 4, 1800, 2500, []LaunchProcess{{1, 4, 1800, 2500}}, new(1.5)}},
				},
			}},
		}},
	}
}

func encoded(t *testing.T, r *Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	got, err := Decode("x.json", strings.NewReader(encoded(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back\n%+v, want\n%+v", got, want)
	}
}

func TestUnknownCountIsNull(t *testing.T) {
	text := encoded(t, sample())
	for _, want := range []string{`"kernels": null`, `"graph": null`, `"host": 300`} {
		if !strings.Contains(text, want) {
			t.Errorf("the record has no %s:\n%s", want, text)
		}
	}
}

func TestNewMetric(t *testing.T) {
	m := sample().Cells[0].Configurations[0].Metrics[0]
	if m.Value != 200 || m.N != 3 || m.Unit != "ns" || m.Direction != Lower || m.Clock != "host" {
		t.Errorf("metric %+v", m)
	}
	if m.Samples[0].Value != 300 || m.Samples[1].Value != 100.4 {
		t.Errorf("samples %v: order or rounding is wrong", m.Samples)
	}
	// A launch may take less than a nanosecond's worth of difference.
	for _, v := range [][2]float64{{312.34567, 312.346}, {0.4, 0.4}, {-0.0004, 0}, {-12.3456, -12.346}, {1000.4, 1000}, {-1000.6, -1001}} {
		if m := NewMetric(LaunchCostNs, []Sample{{Value: v[0]}}); m.Value != v[1] || m.Samples[0].Value != v[1] {
			t.Errorf("%v became %v", v[0], m.Value)
		}
	}
	if Median([]float64{4, 1, 3, 2}) != 2.5 || Median(nil) != 0 {
		t.Error("median of an even number, or of none, is wrong")
	}
}

func TestAbsentFieldsAreDefaults(t *testing.T) {
	r, err := Decode("x", strings.NewReader(`{"schema":{"name":"trbench.record","major":1,"minor":0},
		"cells":[{"key":{"workload":"w","batch":2},"configurations":[{"key":{"mode":"graph"}},{}]},{}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultCellKey()
	want.Workload, want.Batch = "w", 2
	if r.Cells[0].Key != want {
		t.Errorf("key %+v, want %+v", r.Cells[0].Key, want)
	}
	if k := r.Cells[0].Configurations[0].Key; k.Mode != "graph" || k.Sync != "event" || k.Ranks != "threads" {
		t.Errorf("configuration key %+v", k)
	}
	if r.Cells[1].Key != DefaultCellKey() || r.Cells[0].Configurations[1].Key != DefaultConfigurationKey() {
		t.Error("an absent key is not the default key")
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	in := `{"schema":{"name":"trbench.record","major":1,"minor":7},"later":{"b":1,"a":[1e999]},"Cells":"not cells",
		"cells":[{"gap":2.50,"configurations":[{"note\"":"x","key":{}}]}]}`
	r, err := Decode("x", strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	text := encoded(t, r)
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"later":{"b":1,"a":[1e999]}`, `"gap":2.50`, `"note\"":"x"`, `"Cells":"not cells"`, `"minor":7`} {
		if !strings.Contains(compact.String(), want) {
			t.Errorf("%s was lost:\n%s", want, compact.String())
		}
	}
	again, err := Decode("x", strings.NewReader(text))
	if err != nil || encoded(t, again) != text {
		t.Errorf("a second round trip changed the record (%v)", err)
	}
}

func TestRefusals(t *testing.T) {
	head := `{"schema":{"name":"trbench.record","major":1,"minor":0}`
	deep := head + `,"x":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`
	for _, test := range []struct{ name, in, want string }{
		{"empty", ``, "is empty"},
		{"blank", " \n\t", "is empty"},
		{"cut off", head + `,"cells":[`, "ends in the middle"},
		{"not JSON", `hello`, "is not JSON"},
		{"a list", `[]`, "names no schema"},
		{"no schema", `{"cells":[]}`, "names no schema"},
		{"foreign", `{"schema":{"name":"other","major":1}}`, `has schema "other", not "trbench.record"`},
		{"newer", `{"schema":{"name":"trbench.record","major":2,"minor":1}}`, "2.1, which is newer"},
		{"older", `{"schema":{"name":"trbench.record"}}`, "version 0.0"},
		{"twice", head + `,"cells":[{"key":{"batch":1,"batch":2}}]}`, `repeats the key "batch"`},
		{"twice in other letters", head + `,"cells":[{"configurations":[{"metrics":[{"samples":[{"value":1,"Value":2}]}]}]}]}`, `has the key "Value", which is spelled "value", at byte 126`},
		{"other letters alone", head + `,"cells":[{"configurations":[{"metrics":[{"summary":{"MEDIAN":1}}]}]}]}`, `has the key "MEDIAN", which is spelled "median"`},
		{"other letters that fold", head + `,"cells":[{"key":{"wor\u212aload":"x"}}]}`, `which is spelled "workload"`},
		{"other letters behind a pointer", head + `,"plan":{"cells":[{"Batch":9}]}}`, `has the key "Batch", which is spelled "batch"`},
		{"negative minor", `{"schema":{"name":"trbench.record","major":1,"minor":-1}}`, "version 1.-1; this program reads 1.x"},
		{"trailing", head + `} {}`, "has more after the end"},
		{"deep", deep, "nested more than 100 deep"},
		{"NaN", head + `,"seed":NaN}`, "is not JSON"},
		{"huge", head + `,"cells":[{"configurations":[{"metrics":[{"value":1e999}]}]}]}`, "does not fit"},
		{"wrong type", head + `,"cells":[{"key":{"batch":"four"}}]}`, "does not fit schema trbench.record 1.4: cells.key.batch is a string, where a whole number of 64 bits is meant"},
		{"a number of graphs", head + `,"cells":[{"configurations":[{"counts":{"graphs":3}}]}]}`, "cells.configurations.counts.graphs is a number, where a list is meant"},
		{"half an edge", head + `,"cells":[{"configurations":[{"counts":{"graphs":[{"edges":1.5}]}}]}]}`, "counts.graphs.edges is the number 1.5, where a whole number of 64 bits is meant"},
		{"a list for memory", head + `,"cells":[{"memory":[]}]}`, "cells.memory is a list, where an object is meant"},
		{"no hash", head + `,"program":{"executable":true}}`, "program.executable is true or false, where a string is meant"},
		{"an object of text", head + `,"quick":{}}`, "quick is an object, where true or false is meant"},
		{"negative seed", head + `,"seed":-1}`, "seed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode("my.json", strings.NewReader(test.in))
			var re *ReadError
			if !errors.As(err, &re) || !strings.HasPrefix(err.Error(), "record my.json: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a sentence with my.json and %q", err, test.want)
			}
		})
	}
}

// What cannot be a figure, a count or a second of its kind is refused in one
// sentence that names it.
func TestImplausible(t *testing.T) {
	x := func(r *Record) *Configuration { return &r.Cells[0].Configurations[0] }
	for _, test := range []struct {
		name, want string
		damage     func(*Record)
	}{
		{"processes", "plan: processes is 2000000000, above the limit of 1000", func(r *Record) { r.Plan.Processes = 2000000000 }},
		{"blocks", "plan: blocks is -1, which is negative", func(r *Record) { r.Plan.Blocks = -1 }},
		{"steps", "plan: steps is 1000001", func(r *Record) { r.Plan.Steps = 1000001 }},
		{"single", "plan: single", func(r *Record) { r.Plan.Single = -2 }},
		{"warm-up", "plan: warmup is -3", func(r *Record) { r.Plan.Warmup = new(-3) }},
		{"cap", "plan: warmup_cap", func(r *Record) { r.Plan.WarmupCap = 1 << 40 }},
		{"budget", "plan: budget_ns", func(r *Record) { r.Plan.BudgetNs = -1 }},
		{"plan's cells", "plan: has cell 1 twice: resnet20-cifar batch 4 gpus 1", func(r *Record) { r.Plan.Cells = append(r.Plan.Cells, r.Plan.Cells[0]) }},
		{"plan's configurations", "plan: has configuration 1 twice: eager/event/device", func(r *Record) { r.Plan.Configurations = append(r.Plan.Configurations, r.Plan.Configurations[0]) }},
		{"cells", "has cell 1 twice", func(r *Record) { r.Cells = append(r.Cells, r.Cells[0]) }},
		{"cell's blocks", "cell 0: blocks is -1", func(r *Record) { r.Cells[0].Blocks = -1 }},
		{"configurations", "cell 0: has configuration eager/event/device twice", func(r *Record) { r.Cells[0].Configurations = append(r.Cells[0].Configurations, *x(r)) }},
		{"metrics", "has metric step_time_ns twice", func(r *Record) { x(r).Metrics = append(x(r).Metrics, x(r).Metrics[0]) }},
		{"process twice", "has process 1 twice", func(r *Record) { r.Cells[0].Processes = append(r.Cells[0].Processes, Process{Index: 1}) }},
		{"process index", "the index of a process is -1, which is negative", func(r *Record) { r.Cells[0].Processes[0].Index = -1 }},
		{"huge process index", "the index of a process is 2000000000", func(r *Record) { r.Cells[0].Processes[0].Index = 2000000000 }},
		{"process time", "the time of process 1 is -5", func(r *Record) { r.Cells[0].Processes[0].Ns = -5 }},
		{"sample's process", "metric step_time_ns has sample 0 of process 2000000000", func(r *Record) { x(r).Metrics[0].Samples[0].Process = 2000000000 }},
		{"prepare", "the time of phase capture is -12", func(r *Record) { x(r).Prepare[0].Ns = -12 }},
		{"prepare of a process", "the time of phase capture is -1", func(r *Record) { x(r).Prepare[0].Processes[0] = -1 }},
		{"warm-up steps", "the steps of a warm-up is -1", func(r *Record) { x(r).Warmup[0].Steps = -1 }},
		{"batch", "cell 0: batch is -4, which is negative", func(r *Record) { r.Cells[0].Key.Batch = -4 }},
		{"gpus", "cell 0: gpus is -1", func(r *Record) { r.Cells[0].Key.GPUs = -1 }},
		{"variant", "cell 0: variant is -1", func(r *Record) { r.Cells[0].Key.Variant = -1 }},
		{"begin resolution", "resolution.begin is -8", func(r *Record) { r.Cells[0].Key.Resolution.Begin = -8 }},
		{"final resolution", "resolution.final is -8", func(r *Record) { r.Cells[0].Key.Resolution.Final = -8 }},
		{"last training batch", "last_batch.train is -2", func(r *Record) { r.Cells[0].Key.LastBatch.Train = -2 }},
		{"last validation batch", "last_batch.val is -2", func(r *Record) { r.Cells[0].Key.LastBatch.Val = -2 }},
		{"tensors", "verify.tensors is -1", func(r *Record) { r.Cells[0].Verify.Tensors = -1 }},
		{"verified bytes", "verify.bytes is -1", func(r *Record) { r.Cells[0].Verify.Bytes = -1 }},
		{"verify steps", "verify.steps is -1", func(r *Record) { r.Cells[0].Verify.Steps = -1 }},
		{"arena", "memory.arena_bytes is -1", func(r *Record) { r.Cells[0].Memory.ArenaBytes = -1 }},
		{"pinned", "memory.pinned_bytes is -1", func(r *Record) { r.Cells[0].Memory.PinnedBytes = -1 }},
		{"before a phase", "the memory before phase capture is -1", func(r *Record) { r.Cells[0].Configurations[0].Prepare[0].Memory[0].BeforeBytes = -1 }},
		{"after a phase", "the memory after phase capture is -1", func(r *Record) { r.Cells[0].Configurations[0].Prepare[0].Memory[0].AfterBytes = -1 }},
		{"whose memory", "the process of the memory of phase capture is -1", func(r *Record) { r.Cells[0].Configurations[0].Prepare[0].Memory[0].Process = -1 }},
		{"memory twice", "has the memory of phase capture twice for process 1", func(r *Record) {
			p := &r.Cells[0].Configurations[0].Prepare[0]
			p.Memory = append(p.Memory, p.Memory[0])
		}},
		{"too many nodes", "nodes.kernel of graph 0 is 9223372036854775807, above the limit of 1000000000", func(r *Record) { r.Cells[0].Configurations[0].Counts.Graphs[0].Nodes["kernel"] = math.MaxInt64 }},
		{"edges", "edges of graph 0 is -1", func(r *Record) { r.Cells[0].Configurations[0].Counts.Graphs[0].Edges = -1 }},
		{"widest section", "widest_section of graph 0 is -1", func(r *Record) { r.Cells[0].Configurations[0].Counts.Graphs[0].WidestSection = -1 }},
		{"critical path", "critical_path of graph 0 is -1", func(r *Record) { r.Cells[0].Configurations[0].Counts.Graphs[0].CriticalPath = -1 }},
		{"nodes", "nodes.kernel of graph 0 is -1", func(r *Record) { r.Cells[0].Configurations[0].Counts.Graphs[0].Nodes["kernel"] = -1 }},
		{"filled", "atlas.filled is -1", func(r *Record) { r.Cells[0].Atlas.Filled = -1 }},
		{"captured", "atlas.captured is -1", func(r *Record) { r.Cells[0].Atlas.Captured = -1 }},
		{"reused", "atlas.reused is -1", func(r *Record) { r.Cells[0].Atlas.Reused = -1 }},
		{"entries", "execution_table.entries is -1", func(r *Record) { r.Cells[0].ExecutionTable.Entries = -1 }},
		{"table's bytes", "execution_table.bytes is -1", func(r *Record) { r.Cells[0].ExecutionTable.Bytes = -1 }},
		{"dispatch", "dispatch_ns is -5", func(r *Record) { x(r).Key.DispatchNs = -5 }},
		{"launches", "launches.host is -1", func(r *Record) { x(r).Counts.Launches.Host = Count(-1) }},
		{"graph launches", "launches.graph is -1", func(r *Record) { x(r).Counts.Launches.Graph = Count(-1) }},
		{"copies", "launches.copy is -1", func(r *Record) { x(r).Counts.Launches.Copy = Count(-1) }},
		{"blocking joins", "launches.sync is -1", func(r *Record) { x(r).Counts.Launches.Sync = Count(-1) }},
		{"kernels", "kernels is -1", func(r *Record) { x(r).Counts.Kernels = Count(-1) }},
		{"nodes", "graph_nodes.memset is -1", func(r *Record) { x(r).Counts.GraphNodes = map[string]int64{"kernel": 2, "memset": -1} }},
		{"captures", "captures is -1", func(r *Record) { x(r).Captures.Captures = -1 }},
		{"negative sample", "metric step_time_ns has the value -1 in sample 0", func(r *Record) { x(r).Metrics[0].Samples[0].Value = -1 }},
		{"summary", "metric step_time_ns has the value -2 in its summary", func(r *Record) { x(r).Metrics[0].Summary = &Summary{Median: -2} }},
		{"summary's process", "metric step_time_ns has the value -2 in its summary", func(r *Record) { x(r).Metrics[0].Summary = &Summary{Processes: []float64{-2}} }},
		{"tails", "tails are out of order", func(r *Record) { x(r).Metrics[0].Summary = &Summary{P10: 3, P90: 2, P99: 4, Max: 4} }},
		{"interval", "metric step_time_ns has an interval from 3 to 2", func(r *Record) { x(r).Metrics[0].Summary = &Summary{Interval: &Interval{Low: 3, High: 2}} }},
		{"level", "covers 1.5", func(r *Record) { x(r).Metrics[0].Summary = &Summary{Interval: &Interval{Coverage: 1.5}} }},
		{"ratio", "ratio 0: is 0, and a ratio is above 0", func(r *Record) { r.Cells[0].Ratios[0].Value = 0 }},
		{"ratio's interval", "ratio 0: has an interval from 2 to 1", func(r *Record) { r.Cells[0].Ratios[0].Interval.Low, r.Cells[0].Ratios[0].Interval.High = 2, 1 }},
		{"ratio's negative interval", "ratio 0: has an interval from -1", func(r *Record) { r.Cells[0].Ratios[0].Interval.Low = -1 }},
		{"headline", "the headline: is -1", func(r *Record) { r.Cells[0].Headline.Ratio = &Ratio{Value: -1} }},
		{"traced steps in the plan", "plan: trace_steps is 101, above the limit of 100", func(r *Record) { r.Plan.TraceSteps = 101 }},
		{"traced steps", "trace: the traced steps is -1", func(r *Record) { x(r).Trace.Steps = -1 }},
		{"dropped", "trace: the dropped records is -1", func(r *Record) { x(r).Trace.Dropped = -1 }},
		{"expected kernels", "trace: the expected kernels is -8", func(r *Record) { x(r).Trace.Kernels.Expected = Count(-8) }},
		{"traced metric", "trace: metric busy_ns has the value -1", func(r *Record) { x(r).Trace.Metrics[0].Value = -1 }},
		{"traced metric twice", "trace: has metric busy_ns twice", func(r *Record) { x(r).Trace.Metrics = append(x(r).Trace.Metrics, x(r).Trace.Metrics[0]) }},
		{"calibration", "trace: has a calibration of -500.5 with the uncertainty -1", func(r *Record) { x(r).Trace.Calibrations[0].UncertaintyNs = -1 }},
		{"launch cost", "trace: has a launch cost of -4 observations", func(r *Record) { x(r).Trace.Launches[0].Count = -4 }},
		{"calibration's cost", "trace: has a launch cost of -9 observations", func(r *Record) { x(r).Trace.Calibrations[0].Costs[0].Count = -9 }},
		{"reading after blocks", "reading gpu.sm_clock_hz lies from 5 to 3 around 2", func(r *Record) { x(r).Machine[0].Min = 5 }},
		{"split", "the split's total: is 0", func(r *Record) { r.Cells[0].Headline.Split = &Split{} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := sample()
			test.damage(r)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Decode("my.json", bytes.NewReader(b))
			var re *ReadError
			if !errors.As(err, &re) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want a sentence with %q", err, test.want)
			}
		})
	}
}

func TestSizeLimit(t *testing.T) {
	text := encoded(t, sample())
	if _, err := decode("x", strings.NewReader(text), int64(len(text))); err != nil {
		t.Errorf("a record at the limit: %v", err)
	}
	if _, err := decode("x", strings.NewReader(text), int64(len(text))-1); err == nil || !strings.Contains(err.Error(), "larger than the limit") {
		t.Errorf("a record above the limit: %v", err)
	}
}

func TestWriterRefusesNaN(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		r := sample()
		r.Cells[0].Configurations[0].Metrics[1].Samples[0].Value = v
		path := filepath.Join(t.TempDir(), "r.json")
		if _, err := Write(path, r); err == nil || !strings.Contains(err.Error(), "images_per_s") {
			t.Errorf("%v: got %v", v, err)
		}
		wantFiles(t, filepath.Dir(path), 0)
	}
}

func wantFiles(t *testing.T, dir string, n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != n {
		t.Errorf("folder %s has %v (%v), want %d files", dir, entries, err, n)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.json")
	for range 2 { // the second replaces the first
		if err := CheckWritable(path); err != nil {
			t.Fatal(err)
		}
		got, err := Write(path, sample())
		if err != nil || got != path {
			t.Fatalf("wrote %q, %v", got, err)
		}
	}
	wantFiles(t, dir, 1)
	if _, err := ReadFile(path); err != nil {
		t.Error(err)
	}
}

// A name that ends in .gz is packed; the same record gives the same bytes.
func TestPacked(t *testing.T) {
	dir := t.TempDir()
	var files [][]byte
	for _, name := range []string{"a.json.gz", "b.json.gz"} {
		path := filepath.Join(dir, name)
		if _, err := Write(path, sample()); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if err != nil || !reflect.DeepEqual(got, sample()) {
			t.Errorf("read back %+v (%v)", got, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) || len(files[0]) > len(encoded(t, sample()))/2 {
		t.Errorf("%d and %d bytes", len(files[0]), len(files[1]))
	}
}

// What unpacks to too much is refused before it fills the memory.
func TestPackedBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("unpacks 256 MiB")
	}
	path := filepath.Join(t.TempDir(), "bomb.gz")
	if err := os.WriteFile(path, pack(bytes.Repeat([]byte(" "), MaxBytes+1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "is larger than the limit") {
		t.Error(err)
	}
}

// Negative idle time is a finding, and is kept as it is.
func TestTracesIdleMayBeNegative(t *testing.T) {
	r := sample()
	tr := r.Cells[0].Configurations[0].Trace
	tr.Metrics = append(tr.Metrics, NewMetric(CorrectedIdleNs, []Sample{{Value: -50}}))
	got, err := Decode("x.json", strings.NewReader(encoded(t, r)))
	if err != nil || got.Cells[0].Configurations[0].Trace.Metric(CorrectedIdleNs).Value != -50 {
		t.Errorf("%v", err)
	}
}

func TestSignedMetricsMayBeNegative(t *testing.T) {
	for _, d := range Definitions() {
		r := sample()
		r.Cells[0].Configurations[0].Metrics = []Metric{NewMetric(d.Name, []Sample{{Value: -1}})}
		if err := r.check(); (err == nil) != d.Signed {
			t.Errorf("%s of -1: %v", d.Name, err)
		}
	}
}

func TestByProcess(t *testing.T) {
	m := Metric{Samples: []Sample{{Process: 2, Value: 5}, {Process: 0, Value: 1}, {Process: 2, Value: 4}}}
	if got := m.ByProcess(); !reflect.DeepEqual(got, [][]float64{{1}, {5, 4}}) {
		t.Errorf("%v", got)
	}
}

func TestWriteThroughLink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	target, link := filepath.Join(other, "r.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	if _, err := Write(link, sample()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Error("the link was replaced by a file")
	}
	if _, err := ReadFile(target); err != nil {
		t.Error(err)
	}
}

func TestWriteFolderAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder") + string(os.PathSeparator)
	if err := CheckWritable(dir); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, filepath.Dir(filepath.Dir(filepath.Clean(dir))), 0)
	const runs = 16
	var wg sync.WaitGroup
	for range runs {
		wg.Go(func() {
			if _, err := Write(dir, sample()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantFiles(t, dir, runs)
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, want string }{
		{"", "name is empty"},
		{filepath.Join(dir, "none", "r.json"), "none does not exist"},
		{filepath.Join(file, "r.json"), "not a directory"},
		{file + "/new/", "not a directory"},
		{device(t, dir), "neither a file nor a folder"},
		{file, "the file there is no record that this program reads, so it is kept: it is not JSON"},
	} {
		t.Run(test.want, func(t *testing.T) {
			errs := []error{CheckWritable(test.path)}
			if test.path != file { // Write replaces what it was told to
				_, err := Write(test.path, sample())
				errs = append(errs, err)
			}
			for _, err := range errs {
				var we *WriteError
				if !errors.As(err, &we) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%q: got %v, want %q", test.path, err, test.want)
				}
			}
		})
	}
	wantFiles(t, dir, 2)
	if b, err := os.ReadFile(file); err != nil || string(b) != "x" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

// device makes what stands for a device: a pipe with a name. The real
// /dev/null is not for tests, which as the superuser could replace it.
func device(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "device")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Skip(err)
	}
	return path
}

// What turned into a device since it was looked at is not replaced either.
func TestReplaceKeepsDevices(t *testing.T) {
	dir := t.TempDir()
	path := device(t, dir)
	if err := replace(dir, path, []byte("x")); err == nil || err.Error() != notAFile {
		t.Error(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("%v (%v)", info, err)
	}
	wantFiles(t, dir, 1)
}

// A file that is replaced keeps its permissions, and its owner where that can
// be had; a new one gets what new files get. Read-only files are kept.
func TestWriteKeepsPermissions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.json")
	for _, mode := range []os.FileMode{0o600, 0o640, 0o666} {
		if err := errors.Join(os.WriteFile(path, nil, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		uid, gid := os.Getuid(), os.Getgid()
		if uid == 0 {
			uid, gid = 1234, 1235
			if err := os.Chown(path, uid, gid); err != nil {
				uid, gid = 0, 0
			}
		}
		if err := CheckWritable(path); err != nil {
			t.Fatal(err)
		}
		for range 2 { // an empty file, then a record
			if _, err := Write(path, sample()); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		is, ok := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm() != mode || ok && (int(is.Uid) != uid || int(is.Gid) != gid) {
			t.Errorf("%v of %d:%d became %v of %d:%d", mode, uid, gid, info.Mode(), is.Uid, is.Gid)
		}
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := CheckWritable(path); err == nil || !strings.HasSuffix(err.Error(), "the file there is read-only") {
		t.Error(err)
	}

	plain, made := filepath.Join(dir, "plain"), filepath.Join(dir, "made.json")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(made, sample()); err != nil {
		t.Fatal(err)
	}
	a, err := os.Stat(plain)
	b, berr := os.Stat(made)
	if err != nil || berr != nil || a.Mode() != b.Mode() {
		t.Errorf("a new record has %v, other new files %v", b.Mode(), a.Mode())
	}
	wantFiles(t, dir, 3)
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	if err := Encode(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":{"name":"trbench.record","major":1},"cells":[{}],"x":{"y":[null]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Decode("fuzz", bytes.NewReader(in))
		if err != nil {
			return
		}
		var once bytes.Buffer
		if err := Encode(&once, r); err != nil {
			t.Fatalf("a record that was read cannot be written: %v", err)
		}
		again, err := Decode("fuzz", bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("a record that was written cannot be read: %v\n%s", err, once.Bytes())
		}
		var twice bytes.Buffer
		if err := Encode(&twice, again); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("the second writing differs (%v)", err)
		}
	})
}

func ExampleConfigurationKey_String() {
	fmt.Println(DefaultConfigurationKey())
	// Output: eager/event/device
}

// A plan's digest is the same for ever: records keep it.
func TestPlanDigest(t *testing.T) {
	digest := func(p *Plan) string {
		t.Helper()
		d, err := p.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	p := sample().Plan
	// Python's json.dumps(..., sort_keys=True, separators=(",", ":")) of it hashes to this.
	const want = "sha256:4b01b7afffbef4549aba10fb156f9e1d8b86de58f6f4a30beb4c25294d15bf1c"
	if got := digest(p); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// What is written and read again is the same plan, whatever is empty.
	r, err := Decode("r", strings.NewReader(encoded(t, sample())))
	if err != nil || digest(r.Plan) != want {
		t.Errorf("%v, read again: %s", err, digest(r.Plan))
	}
	if digest(&Plan{}) != digest(&Plan{Cells: []CellKey{}}) {
		t.Error("no list and an empty one differ")
	}
	if digest(&Plan{Warmup: new(0)}) == digest(&Plan{}) {
		t.Error("no fixed warm-up and one of 0 steps are the same")
	}
	if digest(&Plan{Cells: []CellKey{{}, {Batch: 1}}}) == digest(&Plan{Cells: []CellKey{{Batch: 1}, {}}}) {
		t.Error("cells in another order are the same")
	}
}
