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

// sweepFolder is that of the committed records of a sweep; traces has records with
// timelines.
var (
	sweepFolder = filepath.Join("..", "results", "2026-11-30-h200")
	traces      = filepath.Join(sweepFolder, "traces")
)

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

type committedPlot struct {
	folder   string
	pictures []string // none: all
	records  []string
	sweep    bool
	beside   string
}

// committedPlots are folders of pictures in the sweep's, by the names that a report
// gives them, and the reports: files below the folder, as one sweep or not.
func committedPlots() []committedPlot {
	return []committedPlot{
		{"traces", []string{"trace_step_resnet50_b16_g1.png", "trace_gaps_resnet50_b16_g1.png"}, []string{"traces/resnet50-16-amp.json.gz"}, false, ""},
		{"traces", []string{"trace_parts.png"}, []string{"traces/resnet50-*-amp.json.gz"}, false, ""},
		{"plots", nil, []string{"*-amp.json.gz"}, true, ""},
		{"plots", []string{"dispatch.png"}, []string{"resnet50-16-dispatch.json.gz"}, false, "peer"},
	}
}

// namedFiles reads the records that patterns name below the sweep's folder.
func namedFiles(t *testing.T, patterns ...string) (out []report.Named) {
	t.Helper()
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join(sweepFolder, filepath.FromSlash(p)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", p, files, err)
		}
		for _, f := range files {
			r, err := results.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, report.Named{Name: filepath.Base(f), Record: r, Dir: filepath.Dir(f)})
		}
	}
	return out
}

// The committed pictures are those that the commands beside them make, and small;
// -update writes them anew.
func TestCommittedPictures(t *testing.T) {
	known := map[string]bool{}
	for _, c := range committedPlots() {
		named := namedFiles(t, c.records...)
		if c.sweep {
			joined, err := report.Join(named)
			if err != nil {
				t.Fatal(err)
			}
			named = []report.Named{joined}
		}
		if c.beside != "" {
			var err error
			if named[0].Peers, err = report.ReadPeers(filepath.Join(sweepFolder, c.beside)); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		if _, _, err := report.Write(dir, []string{report.FormatPlots}, named); err != nil {
			t.Fatal(err)
		}
		pictures := c.pictures
		if pictures == nil {
			made, err := filepath.Glob(filepath.Join(dir, "*.png"))
			if err != nil || len(made) == 0 {
				t.Fatal(made, err)
			}
			for _, m := range made {
				pictures = append(pictures, filepath.Base(m))
			}
		}
		for _, picture := range pictures {
			committed := filepath.Join(sweepFolder, c.folder, picture)
			known[committed] = true
			if updating() {
				b, err := os.ReadFile(filepath.Join(dir, picture))
				if err == nil {
					err = os.MkdirAll(filepath.Dir(committed), 0o755)
				}
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
	for _, folder := range []string{"plots", "traces"} {
		there, err := filepath.Glob(filepath.Join(sweepFolder, folder, "*.png"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range there {
			if !known[p] {
				t.Errorf("%s: no command makes it", p)
			}
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

// So is the table of what bounds eager steps.
func TestCommittedBounds(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sweepFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	joined, err := report.Join(namedFiles(t, "traces/resnet*-16-amp.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	joined.LaunchFloorNs = 3429
	var out strings.Builder
	if _, err := report.Selected(&out, report.FormatTable, []report.Named{joined}, []string{"bound"}); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i, line := range strings.Split(out.String(), "\n") {
		if i > 0 && i < 5 {
			want += "    " + line + "\n"
		}
	}
	if !strings.Contains(string(page), want) {
		t.Errorf("the page lacks the table:\n%s", want)
	}
}
