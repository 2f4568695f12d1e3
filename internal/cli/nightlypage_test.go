package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// The page of a night has every row over the nights, with its change points as
// they stand.
func TestPageHasTrends(t *testing.T) {
	g := newGuarded(t, "run: --batch=1 --mode=eager,graph\nsentinel: {off: true}\n")
	g.level = func(_ bench.CellRequest, k results.ConfigurationKey) float64 {
		if len(g.briefs()) >= 12 && k.Mode == "eager" {
			return 1.1
		}
		return 1
	}
	// The part of the page that is not script or data.
	page := func() string {
		b, err := os.ReadFile(filepath.Join(g.dir, defaultHistory, "page.html"))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 3_000_000 {
			t.Errorf("%d bytes", len(b))
		}
		_, text, _ := strings.Cut(string(b), `<section id="trends"`)
		text, _, _ = strings.Cut(text, `<section id="verdict"`)
		return text
	}
	for range 14 {
		g.night(exitInconclusive)
	}
	g.has(page(), "3 changes in the last 3 nights, which the next ones may take back.", "since night 13", "<td>provisional</td>")
	for range 2 {
		g.night(exitInconclusive)
	}
	known := g.known()
	if len(known) != 3 {
		t.Fatalf("%+v", known)
	}
	g.has(page(), "3 changes of level that nobody has acknowledged, 3 for the worse.", "<td>open</td>", known[0].ID)
	g.do(0, "history", "ack", known[0].ID, "--until=2027-03-31", "--why=driver 590")
	g.night(exitInconclusive)
	text := page()
	g.has(text, "2 changes of level that nobody has acknowledged, 2 for the worse; 1 change acknowledged.", "acknowledged until 2027-03-31 by ", ": driver 590", known[0].ID)
	g.has(text, `<td class="n" data-key="17">17</td>`, `id="t-nights"`)
}

// What many changed rows have to say is bounded where it is printed.
func TestChangeLinesAreBounded(t *testing.T) {
	var changes []results.Change
	for i := range 50 {
		changes = append(changes, results.Change{ChangePoint: results.ChangePoint{ID: fmt.Sprint(i), Night: i, Before: 1, After: 2}, State: results.Open})
	}
	changes = append(changes, results.Change{State: results.Acknowledged}, results.Change{State: results.Provisional})
	lines := changeLines(changes)
	if len(lines) != maxChangeLines+1 || !strings.HasPrefix(lines[0], "Change point 49 (open)") || lines[maxChangeLines] != "30 change points more: trbench history lists all." {
		t.Errorf("%q", lines)
	}
	if lines := changeLines(changes[50:]); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
}

// With --trace a night keeps the timelines of its run, shows them, and lets old
// ones go; a report on a kept record finds them as well.
func TestNightTraced(t *testing.T) {
	k := &killable{t: t, dir: t.TempDir()}
	configure := func(run, rest string) {
		text := "run: --workload=golden-tiny --batch=1 --mode=eager,graph --quick --steps=2 --blocks=1 --processes=1 " + run + "\nsentinel: {off: true}\n" + rest
		if err := os.WriteFile(filepath.Join(k.dir, "nightly.yaml"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	night := func(want int) string {
		cmd, errs := k.start("nightly", "--config=nightly.yaml")
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != want {
			t.Fatalf("exit %d: %s", cmd.ProcessState.ExitCode(), errs)
		}
		return errs.String()
	}
	kept := func(pattern string) []string {
		files, _ := filepath.Glob(filepath.Join(k.dir, defaultHistory, pattern))
		return files
	}
	configure("--trace --trace-steps=2", "retention: {timelines: 2}\n")
	for i := range 3 {
		night(exitInconclusive)
		if n, want := len(kept("records/*-timeline-*.trace.json.gz")), 2*min(i+1, 2); n != want {
			t.Errorf("night %d: %d timelines, want %d", i+1, n, want)
		}
		if left := kept("tonight/*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	b, err := os.ReadFile(kept("page.html")[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), `class="lanes"`); n != 2 || strings.Contains(string(b), "No timeline of") {
		t.Errorf("%d timelines on the page", n)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report := func(record string) string {
		page := filepath.Join(k.dir, "report.html")
		cmd := exec.Command(self)
		cmd.Args = []string{"trbench", "report", record, "--html=" + page}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s, err := history.Open(filepath.Join(k.dir, defaultHistory), false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	at := func(night int) string {
		return filepath.Join(k.dir, defaultHistory, "records", list[night].Records[2].File)
	}
	if n := strings.Count(report(at(2)), `class="lanes"`); n != 2 {
		t.Errorf("a report on a kept record shows %d timelines", n)
	}
	if text := report(at(0)); !strings.Contains(text, "is not beside the record") {
		t.Error("a timeline that went is not named")
	}
	var roles []string
	for _, r := range list[2].Records {
		roles = append(roles, r.Role)
	}
	if fmt.Sprint(roles) != "[timeline timeline head]" {
		t.Errorf("%v", roles)
	}
	for _, test := range []struct{ run, rest, want string }{
		{"--trace=here", "", "--config: run: --trace=here names a folder; nightly keeps timelines in the history: --trace alone"},
		{"", "retention: {timelines: -1}\n", "keeps less than one night"},
	} {
		configure(test.run, test.rest)
		if said := night(exitUsage); !strings.Contains(said, test.want) {
			t.Errorf("%q", said)
		}
	}
	if err := os.WriteFile(filepath.Join(k.dir, "nightly.yaml"), []byte("run: --batch=1\nsentinel: {run: --batch=1 --mode=eager --trace}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if said := night(exitUsage); !strings.Contains(said, "--config: sentinel: run: --trace is for the night's own run") {
		t.Errorf("%q", said)
	}
}
