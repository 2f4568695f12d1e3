package report_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// goldenText compares text with testdata/NAME, or writes that.
func goldenText(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if updating() {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// small is a sweep whose texts a person can check.
func small() sweep {
	s := h200()
	s.batches = []int{1, 64}
	return s
}

func TestTables(t *testing.T) {
	odd := oddRecords()
	for name, records := range map[string][]report.Named{
		"intervals": {small().named("h200.json")}, "failed": odd["failed"], "two": odd["two-records"], "same": odd["same-twice"],
		"dispatch": {func() sweep {
			s := small()
			s.dispatch, s.modes, s.processes = []int64{0, 2e4}, []string{"eager/event", "step/inside"}, 8
			return s
		}().named("dispatch.json")},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := report.Tables(&b, records); err != nil {
				t.Fatal(err)
			}
			goldenText(t, "tables_"+name+".txt", b.Bytes())
		})
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := report.Markdown(&b, oddRecords()["failed"]); err != nil {
		t.Fatal(err)
	}
	goldenText(t, "report.md", b.Bytes())
}

func readCSV(t *testing.T, b []byte) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, l := range lines[1:] {
		m := map[string]string{}
		for i, h := range lines[0] {
			m[h] = l[i]
		}
		for _, h := range []string{"value", "low", "high", "n", "processes"} {
			if v := m[h]; v != "" {
				if f, err := strconv.ParseFloat(v, 64); err != nil || f-f != 0 {
					t.Errorf("%s is %q", h, v)
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// Every figure of a record is in its CSV, with all digits.
func TestCSVHasAll(t *testing.T) {
	named := small().named("h200.json")
	var b bytes.Buffer
	if err := report.CSV(&b, []report.Named{named}); err != nil {
		t.Fatal(err)
	}
	lines := readCSV(t, b.Bytes())
	find := func(batch int, mode, sync, kind, name string) map[string]string {
		for _, l := range lines {
			if l["batch"] == strconv.Itoa(batch) && l["mode"] == mode && l["sync"] == sync && l["kind"] == kind && l["name"] == name {
				return l
			}
		}
		return nil
	}
	want := 0
	for i := range named.Record.Cells {
		c := &named.Record.Cells[i]
		for j := range c.Configurations {
			x := &c.Configurations[j]
			for _, m := range x.Metrics {
				l := find(c.Key.Batch, x.Key.Mode, x.Key.Sync, "metric", m.Name)
				exact := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
				if l["value"] != exact(m.Summary.Median) || l["low"] != exact(m.Summary.Interval.Low) || l["unit"] != m.Unit || l["processes"] != "3" {
					t.Errorf("%s of %s: %v", m.Name, x.Key, l)
				}
				want++
			}
			want += len(x.Prepare) + 1
		}
		for _, r := range c.Ratios {
			if l := find(c.Key.Batch, r.Other.Mode, r.Other.Sync, "ratio", results.StepTimeNs); l["base_mode"] != "eager" || l["coverage"] != "0.95" {
				t.Errorf("ratio of %s: %v", r.Other, l)
			}
			want++
		}
		want += 5 // headline and split
	}
	if len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
}

func readBench(t *testing.T, b []byte) (out []*benchfmt.Result) {
	t.Helper()
	r := benchfmt.NewReader(bytes.NewReader(b), "report.bench")
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("%v", rec)
		case *benchfmt.Result:
			out = append(out, rec.Clone())
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	return out
}

func TestGobench(t *testing.T) {
	two := oddRecords()["two-records"]
	var b bytes.Buffer
	if err := report.Gobench(&b, two); err != nil {
		t.Fatal(err)
	}
	got := readBench(t, b.Bytes())
	if want := 2 * 5 * 5 * 3; len(got) != want {
		t.Fatalf("%d lines, want one a configuration and process: %d", len(got), want)
	}
	first := got[0]
	if want := "Step/workload=resnet50/device=cuda/kernels=cudnn/precision=fp32/optimizer=sgd/resolution=224,224" +
		"/mode=eager/sync=event/control=device/batch=1/gpus=1"; string(first.Name) != want {
		t.Errorf("name %s, want %s", first.Name, want)
	}
	if got, want := fmt.Sprint(first.Values[0].Value, first.Values[0].Unit), fmt.Sprint(two[0].Record.Cells[0].Configurations[0].Metrics[0].Summary.Processes[0]/1e9, "sec/op"); got != want {
		t.Errorf("step time %s, want %s", got, want)
	}
	last := got[len(got)-1]
	for key, want := range map[string]string{"goos": "linux", "driver.version": "580.10", "revision": "998877665544", "cpu": "AMD EPYC 9654"} {
		if got := last.GetConfig(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// Readers leave the unit of a 0 as it is written, so a metric in a unit that they
// rescale would be two, of zeros and of others.
func TestGobenchZeros(t *testing.T) {
	var out bytes.Buffer
	if err := report.Gobench(&out, []report.Named{small().named("a")}); err != nil {
		t.Fatal(err)
	}
	zeros, others := map[string]bool{}, map[string]bool{}
	for _, r := range readBench(t, out.Bytes()) {
		for _, v := range r.Values {
			if v.Value == 0 {
				zeros[v.Unit] = true
			} else {
				others[v.Unit] = true
			}
		}
	}
	if !zeros["sync-wait-sec/op"] || !others["sync-wait-sec/op"] {
		t.Errorf("zeros of %v, others of %v: the record has sync waits of both kinds", zeros, others)
	}
	for unit := range zeros {
		if _, rescaled := benchunit.Tidy(1, unit); rescaled != unit {
			t.Errorf("a 0 %s, where others become %s", unit, rescaled)
		}
	}
}

// What one record says must not stand for the next one that does not say it.
func TestGobenchTakesBack(t *testing.T) {
	a, b := small().named("a"), small().named("b")
	b.Record.Environment.Fields = nil
	var out bytes.Buffer
	if err := report.Gobench(&out, []report.Named{a, b}); err != nil {
		t.Fatal(err)
	}
	got := readBench(t, out.Bytes())
	if v := got[len(got)-1].GetConfig("driver.version"); v != "" {
		t.Errorf("the second record has the first one's driver %q", v)
	}
}

// Stock benchstat pairs eager with captured and knows what is better.
func TestBenchstat(t *testing.T) {
	if testing.Short() {
		t.Skip("builds benchstat")
	}
	s := small()
	s.processes = 8
	dir := t.TempDir()
	files, _, err := report.Write(dir, []string{report.FormatGobench}, []report.Named{s.named("h200.json")})
	if err != nil {
		t.Fatal(err)
	}
	// The file itself says how to read it.
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# benchstat -col /mode report.bench\n", "# With 3 processes every delta but those of counts is ~ "} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("report.bench lacks %q", want)
		}
	}
	for name, args := range map[string][]string{
		"benchstat_mode.txt": {"-col", "/mode"},
		"benchstat_step.txt": {"-col", "/mode", "-ignore", "/sync", "-filter", "/sync:(event OR inside) .unit:(sec/op OR launches/op)"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("go", append(append([]string{"tool", "benchstat"}, args...), files[0])...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.Bytes())
			}
			goldenText(t, name, bytes.ReplaceAll(out, []byte(dir+string(filepath.Separator)), nil))
		})
	}
}

func TestBenchmarkNames(t *testing.T) {
	for name, records := range oddRecords() {
		var b bytes.Buffer
		if err := report.Gobench(&b, records); err != nil {
			t.Fatal(err)
		}
		for _, r := range readBench(t, b.Bytes()) {
			base, parts := r.Name.Parts()
			if string(base) != "Step" || !strings.HasPrefix(string(parts[len(parts)-1]), "/gpus=") {
				t.Errorf("%s: name %q is taken apart as %q, %q", name, r.Name, base, parts)
			}
		}
	}
}
