package report_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// modelled are records of the model in sweep_test.go, which rooms above test
// with: nobody measured them.
func modelled() map[string]*results.Record {
	scaling := h200()
	scaling.gpus, scaling.batches = []int{1, 2, 4, 8}, []int{4, 64}
	dispatch := h200()
	dispatch.dispatch, dispatch.modes = []int64{0, 5e3, 20e3, 50e3, 100e3}, []string{"eager/event", "step/inside"}
	alone := h200()
	alone.processes = 1
	return map[string]*results.Record{
		"model_batches": h200().record(), "model_gpus": scaling.record(),
		"model_dispatch": dispatch.record(), "model_one_process": alone.record(),
	}
}

// The files are what the model gives: figures that the tests above expect are
// this file's.
func TestModelledRecords(t *testing.T) {
	for name, r := range modelled() {
		path := filepath.Join("testdata", name+".json.gz")
		if updating() {
			if _, err := results.Write(path, r); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := results.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		named := func(r *results.Record) []report.Named { return []report.Named{{Name: name, Record: r}} }
		if got, want := tables(t, named(kept)), tables(t, named(r)); got != want {
			t.Errorf("%s differs from the model; -update writes it anew:\n%s\nwant\n%s", path, got, want)
		}
	}
}

func tables(t *testing.T, records []report.Named) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.CSV(&b, records); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
