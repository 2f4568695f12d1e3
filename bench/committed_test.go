package bench

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// The committed timelines of an H200, written as Chrome traces and read back,
// give every figure that their records took from the recording itself, sample by
// sample: nothing is lost on the way through a file.
func TestCommittedTimelines(t *testing.T) {
	dir := filepath.Join("..", "results", "2026-11-30-h200", "traces")
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".trace.json.gz") {
			continue
		}
		r, err := results.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Cells[0].Configurations {
			c := &r.Cells[0].Configurations[i]
			if c.Trace == nil || c.Trace.File == "" {
				continue
			}
			t.Run(c.Trace.File, func(t *testing.T) { sameFigures(t, c, filepath.Join(dir, c.Trace.File)) })
			compared++
		}
	}
	if compared != 10 {
		t.Errorf("%d timelines, not those of 5 cells in 2 configurations", compared)
	}
}

func sameFigures(t *testing.T, c *results.Configuration, file string) {
	tl, err := read.File(file, read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	want := c.Trace
	a := traceAnalysis{x: timeline.NewIndex(tl), key: c.Key, counts: c.Counts, untracedNs: c.Metric(results.StepTimeNs).Value,
		trace: &results.Trace{Steps: want.Steps}, values: map[string][]results.Sample{}}
	for i := range tl.Ranges {
		if r := &tl.Ranges[i]; r.Class == timeline.RangeStep && strings.HasPrefix(tl.Text(r.Name), timeline.LeadStep) {
			a.lead++
		}
	}
	calibration := want.Calibrations[0]
	a.calibration = &calibration
	a.run()
	reduceTrace(a.trace)
	got := a.trace
	if got.Failed != want.Failed || !reflect.DeepEqual(got.Kernels, want.Kernels) || a.lead != 1 {
		t.Errorf("%d steps lead; failed %q, want %q; kernels %+v, want %+v", a.lead, got.Failed, want.Failed, got.Kernels, want.Kernels)
	}
	for _, m := range want.Metrics {
		g := got.Metric(m.Name)
		if g == nil || fmt.Sprint(g.Samples) != fmt.Sprint(m.Samples) || g.Value != m.Value {
			t.Errorf("%s is %+v, want %+v", m.Name, g, m)
		}
	}
	if n := len(got.Metrics) - len(want.Metrics); n != 2 { // what libraries call inside their own, and the block beside, which these records lack
		t.Errorf("%d more figures than in the record", n)
	}
	for i, l := range want.Launches {
		if i >= len(got.Launches) || !reflect.DeepEqual(got.Launches[i], l) {
			t.Errorf("launch cost %+v, want %+v", got.Launches[i:], l)
			break
		}
	}
}
