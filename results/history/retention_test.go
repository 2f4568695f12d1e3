package history

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Timelines stay for fewer nights than records, and where room is short they go
// first, whatever their age; those of the newest night stay.
func TestTimelinesAreThinned(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	file := filepath.Join(dir, "step.trace.json.gz")
	for i := range 6 {
		n := night(i+1, 1)
		if err := os.WriteFile(file, []byte(fmt.Sprintf("%1000d", i)), 0o666); err != nil {
			t.Fatal(err)
		}
		k, err := s.KeepTimeline(n.Began, file)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := s.KeepTimeline(n.Began, file); err != nil || again != k || k.Role != RoleTimeline || k.Bytes != 1000 {
			t.Fatalf("%+v, %v", again, err)
		}
		r, err := s.Keep("head", &results.Record{Schema: results.Schema{Name: results.SchemaName, Major: 1}, Created: n.Began, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		n.Records = []Kept{k, r}
		if _, err := s.Append(n); err != nil {
			t.Fatal(err)
		}
	}
	left := func(rule Retention) string {
		if _, _, _, err := s.Thin(rule, nil); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(s.Records())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range files {
			word := "r"
			if strings.HasSuffix(f.Name(), timelineSuffix) {
				word = "t"
			}
			out = append(out, f.Name()[6:8]+word)
		}
		return strings.Join(out, " ")
	}
	for _, test := range []struct {
		rule Retention
		want string
	}{
		{Retention{Full: 5, Timelines: 3}, "01r 02r 03r 04r 04t 05r 05t 06r 06t"},
		{Retention{Full: 5, Timelines: 3, MaxBytes: 4500}, "01r 02r 03r 04r 05r 05t 06r 06t"},
		{Retention{Full: 5, Timelines: 0}, "01r 02r 03r 04r 05r 06r 06t"},
	} {
		if got := left(test.rule); got != test.want {
			t.Errorf("%+v leaves %s, want %s", test.rule, got, test.want)
		}
	}
	if _, err := s.KeepTimeline(night(1, 1).Began, "none"); err == nil {
		t.Error("a timeline that is not there is kept")
	}
}

// The first night of a month is the first that has a record: one that was
// abandoned has none, and a clock may pass whole years.
func TestFirstNightWithARecord(t *testing.T) {
	nights := make([]Brief, 0, 5)
	for _, n := range []struct {
		began   string
		records int
	}{{"2026-01-30", 0}, {"2026-01-31", 1}, {"2026-02-01", 0}, {"2026-02-02", 1}, {"2026-02-03", 1}, {"2027-02-04", 1}, {"2027-02-05", 1}} {
		began, err := time.Parse(time.DateOnly, n.began)
		if err != nil {
			t.Fatal(err)
		}
		nights = append(nights, Brief{Began: began, Records: make([]Kept, n.records)})
	}
	var kept []int
	for i := range nights {
		if (Retention{Full: 1}).keeps(nights, i) && len(nights[i].Records) > 0 {
			kept = append(kept, nights[i].Began.Day())
		}
	}
	if want := []int{31, 2, 4, 5}; !slices.Equal(kept, want) {
		t.Errorf("kept those of the days %v, want %v", kept, want)
	}
}
