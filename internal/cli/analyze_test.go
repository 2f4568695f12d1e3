package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// TestAnalyzePublicTraces runs the command on the public traces that
// TRBENCH_CORPUS names and finds every figure of expected.json under its name.
func TestAnalyzePublicTraces(t *testing.T) {
	dir := os.Getenv("TRBENCH_CORPUS")
	if dir == "" {
		t.Skip("TRBENCH_CORPUS names no folder of public traces")
	}
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]map[string]map[string]json.Number
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&files); err != nil {
		t.Fatal(err)
	}
	for file, devices := range files {
		code, stdout, stderr := invoke(t, t.Context(), Engine{}, dir, "analyze", "--json", file)
		if want := map[bool]int{true: exitInconclusive, false: exitOK}[len(devices) == 0]; code != want {
			t.Errorf("%s: exit %d, want %d: %s", file, code, want, stderr)
		}
		seen := 0
		for line := range strings.Lines(stdout) {
			var got map[string]any
			d := json.NewDecoder(strings.NewReader(line))
			d.UseNumber()
			if err := d.Decode(&got); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, line)
			}
			id, _ := got["device"].(string)
			if id == "" && len(devices) == 0 {
				continue
			}
			seen++
			for name, want := range devices[id] {
				if got[name] != want {
					t.Errorf("%s, device %s: %s is %v, want %v", file, id, name, got[name], want)
				}
			}
		}
		if seen != len(devices) {
			t.Errorf("%s: %d devices, want %d", file, seen, len(devices))
		}
	}
}

// TestAnalyzeDamagedPublicTraces cuts and garbles a public trace in many places:
// a marked partial result or a sentence, and never another figure unmarked.
func TestAnalyzeDamagedPublicTraces(t *testing.T) {
	dir := os.Getenv("TRBENCH_CORPUS")
	if dir == "" {
		t.Skip("TRBENCH_CORPUS names no folder of public traces")
	}
	whole, err := os.ReadFile(filepath.Join(dir, "kineto_tb_gpu_metrics_input.json"))
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	file := filepath.Join(tmp, "trace.json")
	ops := func(b []byte) (code int, text string) {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := invoke(t, t.Context(), Engine{}, tmp, "analyze", "--json", "trace.json")
		if code != exitOK && code != exitInconclusive && code != exitUsage || strings.Count(stderr, "\n") > 2 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		return code, stdout
	}
	for cut := len(whole) / 60; cut < len(whole)-2; cut += len(whole) / 60 {
		if code, _ := ops(whole[:cut]); code == exitOK {
			t.Errorf("cut at %d: exit 0", cut)
		}
		garbled := bytes.Clone(whole)
		copy(garbled[cut:], `"{[`) // opens what nothing closes
		// Where it is still JSON a key has become another.
		if code, text := ops(garbled); code == exitOK && !json.Valid(garbled) {
			t.Errorf("garbled at %d: exit %d\n%s", cut, code, text)
		}
	}
}

// What analyze says of a committed timeline is what its record says: the steps
// that count there are those that count here.
func TestAnalyzeAgreesWithTheRecord(t *testing.T) {
	dir := filepath.Join("..", "..", "results", "2026-11-30-h200", "traces")
	for _, name := range []string{"resnet18-cifar-16-amp", "resnet50-1-amp", "resnet50-16-amp", "resnet50-64-amp", "resnet50-256-amp"} {
		r, err := results.ReadFile(filepath.Join(dir, name+".json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Cells[0].Configurations {
			code, stdout, stderr := invoke(t, t.Context(), Engine{}, dir, "analyze", "--json", c.Trace.File)
			var got map[string]any
			if err := json.Unmarshal([]byte(stdout), &got); code != exitOK || err != nil {
				t.Fatalf("%s: exit %d, %v, %s", c.Trace.File, code, err, stderr)
			}
			for metric, field := range map[string]string{
				results.TracedStepNs: "window_span_ns", results.BusyNs: "window_busy_ns", results.IdleNs: "window_idle_ns", results.HostLateNs: "window_host_late_ns",
				results.InAPINs: "window_in_api_ns", results.AfterAPINs: "window_after_api_ns", results.InGraphNs: "window_in_graph_ns", results.UnlinkedNs: "window_unlinked_ns",
				results.LateCallNs: "window_host_late_call_ns", results.LateLibraryNs: "window_host_late_operator_ns", results.LateFeedNs: "window_host_late_feed_ns",
			} {
				sum := 0.0
				for _, s := range c.Trace.Metric(metric).Samples {
					sum += s.Value
				}
				if got[field] != sum {
					t.Errorf("%s: %s is %v, and the record's steps have %.0f", c.Trace.File, field, got[field], sum)
				}
			}
			if n := got["window_steps"]; n != float64(c.Trace.Steps) {
				t.Errorf("%s: %v steps, want %d", c.Trace.File, n, c.Trace.Steps)
			}
		}
	}
}
