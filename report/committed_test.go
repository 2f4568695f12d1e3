package report_test

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// traces is the folder of committed records with timelines.
var traces = filepath.Join("..", "results", "2026-11-30-h200", "traces")

func decoded(t *testing.T, file string) image.Image {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// The committed pictures are those that the command beside them makes, and small;
// -update writes them anew.
func TestCommittedPictures(t *testing.T) {
	for picture, records := range map[string][]string{
		"trace_step_resnet50_b16_g1.png": {"resnet50-16-amp"},
		"trace_gaps_resnet50_b16_g1.png": {"resnet50-16-amp"},
		"trace_parts.png":                {"resnet50-1-amp", "resnet50-16-amp", "resnet50-256-amp", "resnet50-4-amp", "resnet50-64-amp"},
	} {
		var named []report.Named
		for _, r := range records {
			record, err := results.ReadFile(filepath.Join(traces, r+".json.gz"))
			if err != nil {
				t.Fatal(err)
			}
			named = append(named, report.Named{Name: r + ".json.gz", Record: record, Dir: traces})
		}
		dir := t.TempDir()
		if _, _, err := report.Write(dir, []string{report.FormatPlots}, named); err != nil {
			t.Fatal(err)
		}
		committed := filepath.Join(traces, picture)
		if updating() {
			b, err := os.ReadFile(filepath.Join(dir, picture))
			if err == nil {
				err = os.WriteFile(committed, b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := compare(decoded(t, filepath.Join(dir, picture)), decoded(t, committed)); err != nil {
			t.Errorf("%s: %v (look at both; -update writes it anew)", committed, err)
		}
		if info, err := os.Stat(committed); err != nil || info.Size() > maxGoldenBytes {
			t.Errorf("%s: %v, %+v", committed, err, info)
		}
	}
}

// The tables of idle shares in the committed page are what the commands above them
// print.
func TestCommittedTables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(traces, "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, workload := range []string{"resnet50", "resnet18-cifar"} {
		var named []report.Named
		for _, precision := range []string{"amp", "fp32"} {
			files, err := filepath.Glob(filepath.Join(traces, workload+"-*-"+precision+".json.gz"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				r, err := results.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				named = append(named, report.Named{Name: filepath.Base(f), Record: r, Dir: traces})
			}
		}
		var out strings.Builder
		if err := report.Tables(&out, named); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(out.String(), "\nFor how much of a step the device is idle\n")
		table, _, found := strings.Cut(rest, "recorded: idle")
		if !found || table == "" {
			t.Fatalf("no table of %s:\n%s", workload, out.String())
		}
		want := ""
		for line := range strings.Lines(table) {
			want += "    " + line
		}
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks the table of %s:\n%s", workload, want)
		}
	}
}
