package report

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// sweepPart is a record of a sweep: one workload at some batches.
func sweepPart(workload string, side int, batches ...int) *results.Record {
	r := record("cuda", batches...)
	r.Device = results.Device{Name: "cuda", Description: "CUDA 13.0"}
	r.Status, r.Created = results.Complete, time.Date(2026, 11, 30, 7, batches[0], 0, 0, time.UTC)
	r.Program.Revision = "aaaaaaaaaaaaaaaa"
	r.Environment.Fields = []results.EnvironmentField{{Name: "gpu.name", Value: "NVIDIA H200", Role: results.Bed}}
	for i := range r.Cells {
		k := &r.Cells[i].Key
		k.Workload, k.Resolution = workload, results.Resolution{Begin: side, Final: side}
	}
	return r
}

// The parts of a sweep are one table and one set of plots: no column for the file
// or for what follows from the workload, batches in order, and doubts about what
// differs.
func TestJoin(t *testing.T) {
	odd := sweepPart("resnet50", 224, 4)
	odd.Program.Revision = "bbbbbbbbbbbbbbbb"
	odd.Environment.Fields = append(odd.Environment.Fields, results.EnvironmentField{Name: "cpu.model", Value: "other", Role: results.Bed})
	first := sweepPart("resnet50", 224, 16)
	first.Environment.Fields = append(first.Environment.Fields, results.EnvironmentField{Name: "cpu.model", Value: "one", Role: results.Bed})
	first.Warnings = []results.Warning{{Code: "load", Text: "busy"}}
	odd.Warnings = first.Warnings
	n, err := Join([]Named{{Name: "16.json", Record: first}, {Name: "4.json", Record: odd}, {Name: "c.json", Record: sweepPart("resnet18-cifar", 32, 1, 64)}})
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, c := range n.Record.Cells {
		at = append(at, c.Key.Name())
	}
	want := []string{"resnet50 batch 4 gpus 1", "resnet50 batch 16 gpus 1", "resnet18-cifar batch 1 gpus 1", "resnet18-cifar batch 64 gpus 1"}
	if !slices.Equal(at, want) {
		t.Errorf("cells %q", at)
	}
	if n.Record.Created.Minute() != 1 || first.Cells[0].Key.Batch != 16 || len(first.Warnings) != 1 {
		t.Errorf("made on %v, and the first is now %+v", n.Record.Created, first.Warnings)
	}
	var b strings.Builder
	if err := Tables(&b, []Named{n}); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(b.String(), "\n")
	for _, word := range []string{"file", "revision", "resolution"} {
		if strings.Contains(head, word) {
			t.Errorf("%s is a column: %s", word, head)
		}
	}
	for _, line := range []string{
		"Warning: the sweep is of several revisions, so rows of different ones differ in the program as well: aaaaaaaaaaaa (16.json, c.json); bbbbbbbbbbbb (4.json) [revisions_differ]",
		"Warning: the parts of the sweep were recorded with different cpu.model: see the records [machines_differ]",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
	if !strings.Contains(b.String(), "\nRecords: 16.json, 4.json, c.json.\n") || n.Name != "sweep of 3 records" {
		t.Errorf("%s does not name its records:\n%s", n.Name, b.String())
	}
	if strings.Count(b.String(), "[load]") != 1 {
		t.Error("a warning of two records is not there once")
	}
	pictures, _ := Draw(StepTime, []Named{n})
	if len(pictures) != 2 || pictures[0].Name != "step_time_resnet50" || pictures[1].Name != "step_time_resnet18-cifar" {
		t.Errorf("%d pictures: %+v", len(pictures), pictures)
	}
	// A workload at two resolutions does tell them apart.
	wide := sweepPart("resnet50", 160, 16)
	n, err = Join([]Named{{Name: "a", Record: sweepPart("resnet18-cifar", 160, 1)}, {Name: "b", Record: sweepPart("resnet50", 224, 16)}, {Name: "c", Record: wide}})
	b.Reset()
	if err == nil {
		err = Tables(&b, []Named{n})
	}
	if head, _, _ := strings.Cut(b.String(), "\n"); err != nil || !strings.Contains(head, "resolution") {
		t.Errorf("%v, columns %s", err, head)
	}
}

func TestJoinRefuses(t *testing.T) {
	other := sweepPart("resnet50", 224, 4)
	other.Environment.Fields[0].Value = "NVIDIA L4"
	for _, c := range []struct {
		name    string
		records []Named
		want    string
	}{
		{"twice", []Named{{Name: "a", Record: sweepPart("resnet50", 224, 4, 16)}, {Name: "b", Record: sweepPart("resnet50", 224, 16)}},
			"record b has resnet50 batch 16 gpus 1 as eager/event/device, which a has as well: a sweep has each once"},
		{"another device", []Named{{Name: "a", Record: sweepPart("resnet50", 224, 16)}, {Name: "b", Record: other}},
			"record b is of device NVIDIA L4, and a is of NVIDIA H200: no one sweep"},
	} {
		_, err := Join(c.records)
		var j *JoinError
		if !errors.As(err, &j) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := Join(nil); !errors.Is(err, ErrNoRecords) {
		t.Errorf("of nothing: %v", err)
	}
	one := Named{Name: "a", Record: sweepPart("resnet50", 224, 16)}
	if n, err := Join([]Named{one}); err != nil || n.Record != one.Record || n.Name != "a" {
		t.Errorf("of one: %+v, %v", n, err)
	}
}

// An eager step is set against the longer of busy and the host's least time, of
// its own session's calibration.
func TestBounds(t *testing.T) {
	made := func(batch int, busy, step, submit, kernelNs float64) *results.Record {
		r := sweepPart("resnet50", 224, batch)
		r.Environment.Calibration = []results.Reading{{Name: "launch.kernel_ns", Unit: "ns", Value: kernelNs, N: 9}}
		c := &r.Cells[0].Configurations[0]
		c.Metrics = []results.Metric{results.NewMetric(results.StepTimeNs, []results.Sample{{Value: step}}), results.NewMetric(results.SubmitTimeNs, []results.Sample{{Value: submit}})}
		c.Counts.Launches.Host = results.Count(160) // 100 own, 60 of libraries
		twice := []results.LaunchProcess{{Process: 0}, {Process: 1}}
		// Two processes of 5 steps: 10 steps in all.
		c.Trace = &results.Trace{Steps: 5,
			Metrics: []results.Metric{results.NewMetric(results.BusyNs, []results.Sample{{Value: 2 * busy}}), results.NewMetric(results.CorrectedBusyNs, []results.Sample{{Value: busy}})},
			Launches: []results.LaunchCost{
				{Layer: results.LayerLanguage, Count: 1000, MedianNs: 40},
				{Layer: results.LayerLibrary, Call: "cudnnBackendExecute", Count: 600, MedianNs: 6000, Processes: twice},
				{Layer: results.LayerDriver, Call: "cuLaunchKernelEx", Count: 1200, MedianNs: 4000, Processes: twice}, // 20 of them a library's
				{Layer: results.LayerDriver, Call: "cudaLaunchKernel_v7000", Count: 500, MedianNs: 5000, Processes: twice},
				{Layer: results.LayerHardware, Call: "cuLaunchKernelEx", Count: 20, MedianNs: 2000, Processes: twice},
			}}
		return r
	}
	joined, err := Join([]Named{
		{Name: "a", Record: made(1, 500e3, 1200e3, 900e3, 4000)}, // the host is the limit
		{Name: "b", Record: made(16, 2e6, 2.2e6, 900e3, 5000)},   // the device is
		{Name: "c", Record: made(64, 2e6, 2.2e6, 100e3, 5000)},   // less than a loop's launches
		{Name: "d", Record: sweepPart("resnet18-cifar", 32, 1)},  // not traced
	})
	if err != nil {
		t.Fatal(err)
	}
	joined.LaunchFloorNs = 3000
	var b strings.Builder
	empty, err := Selected(&b, FormatMarkdown, []Named{joined}, []string{"bound"})
	if err != nil || len(empty) > 0 {
		t.Fatal(empty, err)
	}
	// 60 x 6000 + 20 x 4000 + 50 x 5000 = 690 us inside libraries, on record.
	for _, want := range []string{
		"| resnet50 | 1 | 1 | eager | event | device | 1.20 ms | 500 us | 100 | 300 us | 60 | 690 us | 990 us | 1.212 | 500 us | 800 us | 1.500 |",
		"| resnet50 | 16 | 1 | eager | event | device | 2.20 ms | 2.00 ms | 100 | 300 us | 60 | 690 us | 2.00 ms | 1.100 | 400 us | 2.00 ms | 1.100 |",
		"| resnet50 | 64 | 1 | eager | event | device | 2.20 ms | 2.00 ms | 100 | 300 us | 60 | 690 us | 2.00 ms | 1.100 | 0 ns | 2.00 ms | 1.100 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "resnet18-cifar") || !strings.Contains(b.String(), "The floor is 3.00 us a launch") {
		t.Error(b.String())
	}
	joined.LaunchFloorNs = 0
	if empty, err := Selected(&b, FormatTable, []Named{joined}, []string{"bound"}); err != nil || len(empty) != 1 {
		t.Errorf("without a floor: %q, %v", empty, err)
	}
}

// Tables that are chosen without the figures name the doubts, and those of the
// figures have them in full.
func TestSelected(t *testing.T) {
	r := sweepPart("resnet50", 224, 16)
	r.Warnings = []results.Warning{{Code: "load", Text: "busy"}}
	r.Cells[0].Warnings = []results.Warning{{Code: "drift", Text: "slower"}}
	r.Cells[0].Headline.Withheld = "no reason"
	print := func(names ...string) string {
		var b strings.Builder
		if _, err := Selected(&b, FormatTable, []Named{{Name: "r", Record: r}}, names); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := print("headline"); !strings.HasPrefix(got, "Headline: ") || !strings.Contains(got, "\nWarning: the records have warnings of 2 kinds, load, drift; the table of figures has their texts.\n") || strings.Contains(got, "images/s") {
		t.Error(got)
	}
	if got := print("headline", "figures"); !strings.HasPrefix(got, "Figures\n") || !strings.Contains(got, "Warning: busy [load]\n") || strings.Contains(got, "kinds") {
		t.Error(got)
	}
	r.Cells[0].Warnings = nil
	if got := print("headline"); !strings.Contains(got, "\nWarning: the records have 1 warning, load; ") {
		t.Error(got)
	}
	var all, chosen strings.Builder
	if err := Tables(&all, []Named{{Name: "r", Record: r}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Selected(&chosen, FormatTable, []Named{{Name: "r", Record: r}}, TableNames()); err != nil || chosen.String() != "Figures\n"+all.String() {
		t.Errorf("all that there is differs from a report: %v\n%s", err, chosen.String())
	}
}
