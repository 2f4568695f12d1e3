package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// historyOf makes a history in results/nightly: submit time of eager is 6 % more
// from night 31 on.
func historyOf(t *testing.T, dir string, nights int) {
	t.Helper()
	s, err := history.Open(filepath.Join(dir, defaultHistory), true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range nights {
		began := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i)
		n := &history.Night{ID: fmt.Sprint("n", i+1), Began: began, Ended: began.Add(time.Hour), Verdict: results.Same, Program: results.Program{Revision: "0123456789abcdef"},
			Sentinel: &history.Sentinel{Row: "x", Injected: history.Trial{First: true, Final: i > 0}}}
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		for _, metric := range results.Gated() {
			cell := results.DefaultCellKey()
			cell.Workload, cell.Batch = "resnet20-cifar", 4
			row := history.Row{Key: results.RowKey{Cell: cell, Configuration: results.DefaultConfigurationKey(), Metric: metric}, Unit: "ns", Direction: results.Lower}
			for range 3 {
				v := 1e4 * (1 + .004*rng.NormFloat64())
				if metric == results.SubmitTimeNs && i >= 30 {
					v *= 1.06
				}
				row.Processes = append(row.Processes, v)
			}
			n.Rows = append(n.Rows, row)
		}
		if i == 40 {
			n.Verdict, n.LeftOut, n.Rows[1].Verdict = results.Slower, []string{"the sentinel"}, results.Slower
		}
		if _, err := s.Append(n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHistory runs the examples of the help, and more.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	historyOf(t, dir, 45)
	ask := func(want int, args ...string) (string, string) {
		t.Helper()
		code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), dir, append([]string{"history"}, args...)...)
		if code != want {
			t.Fatalf("history %v: exit %d, %s", args, code, stderr)
		}
		return stdout, stderr
	}
	for line := range strings.Lines(newHistoryCmd(&Env{}).Example) {
		if stdout, _ := ask(0, strings.Fields(line)[2:]...); stdout == "" {
			t.Errorf("%s says nothing", line)
		}
	}
	text, _ := ask(0)
	for _, want := range []string{"The last 20 of 45 nights; --last=N lists more.", "   41  2026-02-10 02:00   slower            1  0123456789ab  1 part left out",
		"Change points", "nothing changed, called slower: 0 of 45 at first (95 %: 0.0 to 7.9 %), 0 confirmed (95 %: 0.0 to 7.9 %)",
		"slowed on purpose, called slower: 45 of 45 at first (95 %: 92.1 to 100.0 %), 44 confirmed"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	out, _ := ask(0, "--row=submit", "--json")
	var v historyView
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Series) != 1 || len(v.Series[0].Points) != 45 || len(v.Series[0].Points[3].Processes) != 3 || len(v.Changes) != 1 || v.Changes[0].Night != 31 || v.Changes[0].State != results.Open {
		t.Fatalf("%s", out)
	}
	id := v.Changes[0].ID
	var raw map[string]any
	if err := json.Unmarshal([]byte(out), &raw); err != nil {
		t.Fatal(err)
	}
	lists := []any{raw["missing"]}
	for _, n := range raw["nights"].([]any) {
		for _, name := range []string{"left_out", "warnings", "base", "records", "slower"} {
			lists = append(lists, n.(map[string]any)[name])
		}
	}
	if slices.Contains(lists, nil) {
		t.Errorf("a list of none is null: %s", out)
	}
	out, _ = ask(0, "--csv")
	if lines, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || len(lines) != 1+3*45 || lines[1][3] != "2026-01-01T02:00:00Z" {
		t.Errorf("%v", err)
	}
	out, _ = ask(0, "--row=submit", "--plots=trends")
	if out != "trends/trend_001_submit_time_ns.png\ntrends/trend_001_submit_time_ns.svg\n" {
		t.Errorf("%q", out)
	}
	// Acknowledged until a day; the time in tests is 1970.
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"ack"}, "ack takes the id of one change point, not 0"},
		{[]string{"ack", id}, `--until "" is no day`},
		{[]string{"ack", id, "--until=1971-01-01"}, "--why is missing"},
		{[]string{"ack", "none", "--until=1971-01-01", "--why=x"}, "change point none is not there"},
		{[]string{"ack", id, "--until=1969-01-01", "--why=x"}, "--until is in the past"},
		{[]string{"--row=none"}, `--row "none" is in no row's name`},
		{[]string{"--json", "--csv"}, "--json and --csv go to the same place"},
		{[]string{"--dir=none"}, "history none is not there"},
		{[]string{"--plots=results/nightly/index.sqlite"}, "--plots results/nightly/index.sqlite cannot be written"},
	} {
		if _, stderr := ask(exitUsage, test.args...); !strings.Contains(stderr, test.want) {
			t.Errorf("%v: %s", test.args, stderr)
		}
	}
	ask(0, "ack", id, "--until=1971-01-01", "--why=a driver")
	if out, _ = ask(0); !strings.Contains(out, "acknowledged until 1971-01-01 by ") || !strings.Contains(out, ": a driver  ") {
		t.Errorf("%s", out)
	}
}

func TestProvisionalIsNotAcknowledged(t *testing.T) {
	dir := t.TempDir()
	historyOf(t, dir, 32)
	code, stdout, _ := invoke(t, t.Context(), fakeEngine(), dir, "history", "--json")
	var v historyView
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != 0 || len(v.Changes) != 1 || v.Changes[0].State != results.Provisional {
		t.Fatalf("%v: %s", err, stdout)
	}
	code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "history", "ack", v.Changes[0].ID, "--until=1990-01-01", "--why=x")
	if code != exitUsage || !strings.Contains(stderr, "is provisional: it may be gone when 3 more nights are in") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// A damaged history is refused by name with what to do; a lost index is not
// damage.
func TestDamagedHistory(t *testing.T) {
	dir := t.TempDir()
	historyOf(t, dir, 5)
	if err := os.Remove(filepath.Join(dir, defaultHistory, "index.sqlite")); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "history")
	if code != 0 || stderr != "the history's index was made anew: there was none\n" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	files, _ := filepath.Glob(filepath.Join(dir, defaultHistory, "nights", "*"))
	if err := os.Truncate(files[2], 100); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"history"}, {"history", "reindex"}, {"history", "--csv"}} {
		code, stdout, stderr := invoke(t, t.Context(), fakeEngine(), dir, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "history results/nightly is damaged: nights/000003-") || !strings.Contains(stderr, "hint: put the file back as it was") {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
	if err := os.Remove(files[2]); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "history"); code != exitUsage || !strings.Contains(stderr, "was there and is gone") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, stdout, _ := invoke(t, t.Context(), fakeEngine(), dir, "history", "reindex"); code != 0 || stdout != "4 nights indexed\nnight 3 is missing\n" {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if code, stdout, _ := invoke(t, t.Context(), fakeEngine(), dir, "history"); code != 0 || !strings.Contains(stdout, "Missing: night 3 is missing\n") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}
