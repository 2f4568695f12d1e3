package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

func rowKey(i int) results.RowKey {
	c := results.DefaultCellKey()
	c.Workload, c.Batch = "resnet20-cifar", i+1
	return results.RowKey{Cell: c, Configuration: results.DefaultConfigurationKey(), Metric: results.StepTimeNs}
}

// night is the i-th of a history of n rows; row 0 gets slower at night 21.
func night(i, rows int) *Night {
	rng := rand.New(rand.NewPCG(uint64(i), 3))
	began := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i-1)
	n := &Night{ID: fmt.Sprintf("id%d", i), Began: began, Ended: began.Add(time.Hour), Verdict: results.Same, Line: "same", Base: []string{"night-1"}}
	for r := range rows {
		row := Row{Key: rowKey(r), Unit: "ns", Direction: results.Lower}
		level := 1e6 * float64(r+1)
		if r == 0 && i > 20 {
			level *= 1.05
		}
		for range 8 {
			row.Processes = append(row.Processes, level*(1+.003*rng.NormFloat64()))
		}
		n.Rows = append(n.Rows, row)
	}
	return n
}

func filled(t testing.TB, nights, rows int) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// As Append does, but for the disk's sake without its syncs; the index comes
	// with the first who opens.
	last := ""
	for i := range nights {
		n := night(i+1, rows)
		n.Schema, n.Sequence, n.Previous = results.Schema{Name: NightName, Major: NightMajor}, i+1, last
		b, err := n.pack()
		if err != nil {
			t.Fatal(err)
		}
		last = hashOf(b)
		if err := os.WriteFile(filepath.Join(dir, nightsDir, n.fileName(last)), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if nights > 0 {
		_ = opened(t, dir).Close()
	}
	return dir
}

func opened(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func nightFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, nightsDir, "0*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// all is everything a history says.
func all(t testing.TB, s *Store) string {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	series, err := s.Series(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	known, err := s.Known()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(list, series, known)
}

func TestNightsComeBack(t *testing.T) {
	dir := filled(t, 40, 3)
	s := opened(t, dir)
	want := night(7, 3)
	series, err := s.Series(func(k results.RowKey) bool { return k.Cell.Batch == 2 }, true)
	if err != nil || len(series) != 1 || len(series[0].Points) != 40 {
		t.Fatalf("%v, %v", series, err)
	}
	p := series[0].Points[6]
	if p.Sequence != 7 || p.Run != "id7" || !p.Created.Equal(want.Began) || !reflect.DeepEqual(p.Processes, want.Rows[1].Processes) ||
		p.Value != results.Median(want.Rows[1].Processes) || series[0].Unit != "ns" || series[0].Row != rowKey(1) {
		t.Errorf("%+v", p)
	}
	quick, err := s.Series(nil, false)
	if err != nil || len(quick) != 3 || quick[1].Points[6].Value != p.Value || quick[1].Points[6].Processes != nil {
		t.Errorf("%v, %v", quick, err)
	}
	if c := Changes(quick[0], nil); len(c) != 1 || c[0].Night != 21 || !c[0].Slower || c[0].Provisional {
		t.Errorf("%+v", c)
	}
	list, err := s.List()
	if err != nil || len(list) != 40 || list[0].Sequence != 1 || list[39].Base[0] != "night-1" || s.Next() != 41 || s.Nights() != 40 {
		t.Errorf("%v, %v", list, err)
	}
}

// A lost, damaged or foreign index is made again, and says the same.
func TestIndexIsMadeAgain(t *testing.T) {
	dir := filled(t, 30, 2)
	want := all(t, opened(t, dir))
	path := filepath.Join(dir, indexFile)
	for _, test := range []struct {
		name string
		harm func() error
		why  string
	}{
		{"lost", func() error { return os.Remove(path) }, "there was none"},
		{"no database", func() error { return os.WriteFile(path, []byte("no database, but a longer text"), 0o666) }, "file is not a database"},
		{"cut", func() error { return os.Truncate(path, 5000) }, ""},
		{"empty", func() error { return os.Truncate(path, 0) }, "it is of version 0, not 2"},
	} {
		if err := test.harm(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, false)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := all(t, s); got != want || s.Rebuilt == "" || !strings.Contains(s.Rebuilt, test.why) {
			t.Errorf("%s: rebuilt as %q", test.name, s.Rebuilt)
		}
		_ = s.Close()
	}
	s, err := Reindex(dir)
	if err != nil || all(t, s) != want {
		t.Errorf("reindex: %v", err)
	}
	_ = s.Close()
}

func TestDamage(t *testing.T) {
	type files []string
	rename := func(a, b string) error { return os.Rename(a, b) }
	for _, test := range []struct {
		name    string
		harm    func(f files) error
		want    string
		missing string
		gone    bool // the index alone can tell
	}{
		{"cut", func(f files) error { return os.Truncate(f[4], 300) }, "is not as it was written: it ends in the middle", "", false},
		{"empty", func(f files) error { return os.Truncate(f[4], 0) }, "is not as it was written: it is no packed night", "", false},
		{"a byte edited", func(f files) error { return flip(f[4], 200) }, "is not as it was written: it ", "", false},
		{"edited with care", func(f files) error { return rewrite(f[4], false) }, "was edited: its bytes are not those that its name tells of", "", false},
		{"edited and renamed", func(f files) error { return rewrite(f[4], true) }, "one of them was put in another's place", "", false},
		{"copied", func(f files) error { return copyTo(f[4], strings.Replace(f[4], "000005", "000011", 1)) }, "was renamed: it holds night 5", "", false},
		{"two swapped", func(f files) error {
			a, b := strings.Replace(f[4], "000005", "000006", 1), strings.Replace(f[5], "000006", "000005", 1)
			return errors.Join(rename(f[4], a), rename(f[5], b))
		}, "was renamed: it holds night ", "", false},
		{"a time renamed", func(f files) error { return rename(f[4], strings.Replace(f[4], "20260105", "20260205", 1)) }, "was renamed: it holds night 5, which is called 000005-20260105T", "", false},
		{"not a night", func(f files) error { return os.WriteFile(filepath.Join(filepath.Dir(f[0]), "notes.txt"), nil, 0o666) }, "notes.txt is no night's file", "", false},
		{"a folder", func(f files) error { return errors.Join(os.Remove(f[4]), os.Mkdir(f[4], 0o777)) }, "is no night's file", "", false},
		{"gone", func(f files) error { return os.Remove(f[4]) }, "was there and is gone", "night 5 is missing", true},
		{"two gone", func(f files) error { return errors.Join(os.Remove(f[4]), os.Remove(f[5])) }, "was there and is gone", "nights 5 to 6 are missing", true},
		{"the first gone", func(f files) error { return os.Remove(f[0]) }, "was there and is gone", "night 1 is missing", true},
		{"the last gone", func(f files) error { return os.Remove(f[9]) }, "was there and is gone", "", true},
		{"the folder gone", func(f files) error { return os.RemoveAll(filepath.Dir(f[0])) }, "nights/ was there and is gone", "", false},
		{"a hidden file", func(f files) error {
			return os.WriteFile(filepath.Join(filepath.Dir(f[0]), ".nfs0001"), []byte("x"), 0o666)
		}, "", "", false},
		{"left by a kill", func(f files) error {
			return os.WriteFile(filepath.Join(filepath.Dir(f[0]), ".trbench-1.tmp"), []byte("x"), 0o666)
		}, "", "", false},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, index %v", test.name, indexed), func(t *testing.T) {
				dir := filled(t, 10, 1)
				if err := test.harm(nightFiles(t, dir)); err != nil {
					t.Fatal(err)
				}
				open := func() (*Store, error) { return Open(dir, false) }
				if !indexed {
					open = func() (*Store, error) { return Reindex(dir) }
				}
				s, err := open()
				if want := test.want; want == "" || test.gone && !indexed {
					if err != nil {
						t.Fatal(err)
					}
					if got := strings.Join(s.Missing, ";"); got != test.missing {
						t.Errorf("missing %q", got)
					}
					_ = s.Close()
					return
				}
				var d *DamagedError
				if !errors.As(err, &d) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
			})
		}
	}
}

func flip(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 4
	return os.WriteFile(path, b, 0o666)
}

func copyTo(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o666)
}

// rewrite makes a night faster, as one might wish, under its old name or one
// that fits.
func rewrite(path string, rename bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n, err := unpack(b)
	if err != nil {
		return err
	}
	n.Rows[0].Processes[0] /= 2
	if b, err = n.pack(); err != nil {
		return err
	}
	to := path
	if rename {
		to = filepath.Join(filepath.Dir(path), n.fileName(hashOf(b)))
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.WriteFile(to, b, 0o666)
}

// The same night is stored once, however often it is handed in.
func TestOnceOnly(t *testing.T) {
	dir := filled(t, 3, 1)
	s := opened(t, dir)
	a, err := s.Append(night(2, 1))
	if err != nil || !strings.HasPrefix(a, "000002-") || len(nightFiles(t, dir)) != 3 {
		t.Errorf("%s, %v", a, err)
	}
	// The clock jumped back: the number decides.
	n := night(4, 1)
	n.Began = n.Began.AddDate(-1, 0, 0)
	if _, err := s.Append(n); err != nil {
		t.Fatal(err)
	}
	list, err := opened(t, dir).List()
	if err != nil || list[3].Sequence != 4 || list[3].Began.Year() != 2025 {
		t.Errorf("%v, %v", list, err)
	}
}

// A disk that is full at any write leaves what was there, and no half file.
func TestFullDisk(t *testing.T) {
	dir := filled(t, 3, 1)
	before := all(t, opened(t, dir))
	s := opened(t, dir)
	s.write = func(f *os.File, b []byte) error {
		_, _ = f.Write(b[:len(b)/2])
		return &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	record := &results.Record{Schema: results.Schema{Name: results.SchemaName, Major: 1}, Created: time.Unix(1e9, 0)}
	_, nightErr := s.Append(night(4, 1))
	_, keepErr := s.Keep("head", record)
	for _, err := range []error{nightErr, keepErr, s.Pin(Pin{Name: "x"}, nil), s.Acknowledge(results.Acknowledgement{ID: "x"})} {
		var full *FullError
		if !errors.As(err, &full) || !strings.HasSuffix(err.Error(), ": no space left on device") {
			t.Errorf("%v", err)
		}
	}
	if got := all(t, opened(t, dir)); got != before {
		t.Error("the history changed")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", ".trbench*"))
	if pins, err := s.Pins(); err != nil || len(pins) != 0 || len(left) != 0 {
		t.Errorf("%v, %v, %v", pins, err, left)
	}
	s.write = writeAll
	if _, err := s.Append(night(4, 1)); err != nil || s.Nights() != 4 {
		t.Error(err)
	}
}

// A small real file system that is full. Where it cannot be mounted the test
// above stands alone.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("tmpfs cannot be mounted here (%v); TestFullDisk has the same with a write that fails", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for i := 1; i < 1000; i++ {
		_, err = s.Append(night(i, 40))
		var index *IndexError
		if err == nil || errors.As(err, &index) {
			stored++
			continue
		}
		break
	}
	var full *FullError
	if !errors.As(err, &full) || stored == 0 {
		t.Fatalf("after %d nights: %v", stored, err)
	}
	_ = s.Close()
	s, err = Open(dir, false)
	if err != nil || s.Nights() != stored {
		t.Fatalf("%v", err)
	}
	if list, err := s.List(); err != nil || len(list) != stored {
		t.Errorf("%d nights of %d, %v", len(list), stored, err)
	}
	_ = s.Close()
}

// Many may open a history whose index lacks nights.
func TestManyReaders(t *testing.T) {
	dir := filled(t, 20, 2)
	want := all(t, opened(t, dir))
	if err := os.Remove(filepath.Join(dir, indexFile)); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			s, err := Open(dir, false)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if all(t, s) != want {
				t.Error("another answer")
			}
		})
	}
	wait.Wait()
}

func TestPinsAndAcknowledgements(t *testing.T) {
	dir := filled(t, 1, 1)
	s := opened(t, dir)
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"a", "b"} {
		if err := s.Pin(Pin{Name: name, Record: Kept{SHA256: "sum " + name}, Who: "kim", Why: "good", When: when}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Pin(Pin{Name: "c", Record: Kept{SHA256: "sum a"}}, nil); err == nil || !strings.Contains(err.Error(), "is pinned already, as a by kim on 2026-03-01") {
		t.Errorf("%v", err)
	}
	if err := s.Drop("c", "kim", "x", when); err == nil {
		t.Error("dropped what was not pinned")
	}
	if err := s.Drop("a", "lee", "too old", when); err != nil {
		t.Fatal(err)
	}
	pins, err := s.Pins()
	if err != nil || len(pins) != 1 || pins[0].Name != "b" || pins[0].Why != "good" {
		t.Errorf("%+v, %v", pins, err)
	}
	if err := s.Pin(Pin{Name: "a", Record: Kept{SHA256: "sum a"}}, nil); err != nil {
		t.Errorf("pinned again: %v", err)
	}
	for _, until := range []int{1, 9} {
		if err := s.Acknowledge(results.Acknowledgement{ID: "x", Until: when.AddDate(0, 0, until)}); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := s.Acknowledgements(); err != nil || len(a) != 1 || a["x"].Until.Day() != 10 {
		t.Errorf("%v, %v", a, err)
	}
}

func TestRecordsAreKeptAndThinned(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// Without syncs.
	s.write = func(f *os.File, b []byte) error { _, err := f.Write(b); return err }
	_ = s.index.close()
	if s.index, err = makeIndex(inMemory, s.fresh); err != nil {
		t.Fatal(err)
	}
	var kept []Kept
	for i := range 500 {
		n := night(i+1, 1)
		k, err := s.Keep("head", &results.Record{Schema: results.Schema{Name: results.SchemaName, Major: 1}, Created: n.Began, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Keep("head", &results.Record{Schema: results.Schema{Name: results.SchemaName, Major: 1}, Created: n.Began, Seed: uint64(i)})
		if err != nil || again != k {
			t.Fatalf("%v, %v", again, err)
		}
		kept = append(kept, k)
		n.Records = []Kept{k}
		if _, err := s.Append(n); err != nil {
			t.Fatal(err)
		}
	}
	orphan, err := s.Keep("head", &results.Record{Schema: results.Schema{Name: results.SchemaName, Major: 1}, Created: time.Unix(5, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pin(Pin{Name: "p", Record: kept[200]}, nil); err != nil {
		t.Fatal(err)
	}
	removed, bytes, over, err := s.Thin(Retention{Full: 10, Weeks: 4, MaxBytes: 1 << 30}, nil)
	if err != nil || over != 0 {
		t.Fatal(err)
	}
	var days []string
	for i, k := range kept {
		if _, err := s.Record(k); err == nil {
			days = append(days, fmt.Sprint(i+1))
		}
	}
	// Night 1 is 2026-01-01, a Thursday, and night 500 2027-05-15, a Saturday: the
	// last ten; Mondays of the last four weeks, from 2027-04-19 on; firsts of
	// months; and the pin.
	want := "1 32 60 91 121 152 182 201 213 244 274 305 335 366 397 425 456 474 481 486 488 491 492 493 494 495 496 497 498 499 500"
	if got := strings.Join(days, " "); got != want || !slices.Contains(removed, orphan.File) || len(removed) != 501-len(days) || bytes == 0 {
		t.Errorf("kept %s, removed %d", got, len(removed))
	}
	// Then by size: the oldest first, but neither the pin nor the newest.
	one := kept[0].Bytes
	if removed, _, over, err = s.Thin(Retention{Full: 10, Weeks: 4, MaxBytes: 5 * one}, nil); err != nil || over != 0 || len(removed) == 0 {
		t.Fatal(err, over)
	}
	days = nil
	for i, k := range kept {
		if _, err := s.Record(k); err == nil {
			days = append(days, fmt.Sprint(i+1))
		}
	}
	if got := strings.Join(days, " "); !strings.HasPrefix(got, "201 49") || !strings.HasSuffix(got, "499 500") {
		t.Errorf("kept %s", got)
	}
	if _, _, over, err = s.Thin(Retention{MaxBytes: 1}, []string{kept[498].File}); err != nil || over == 0 {
		t.Errorf("over by %d, %v", over, err)
	}
	left, _ := os.ReadDir(filepath.Join(dir, recordsDir))
	if len(left) != 3 || len(nightFiles(t, dir)) != 500 {
		t.Errorf("%d records", len(left))
	}
	if err := flip(filepath.Join(dir, recordsDir, kept[499].File), 30); err != nil {
		t.Fatal(err)
	}
	var d *DamagedError
	if _, err := s.Record(kept[499]); !errors.As(err, &d) {
		t.Errorf("%v", err)
	}
	if _, err := s.Record(kept[3]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestNoHistory(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Nothing in a file makes the reader fall.
func FuzzNight(f *testing.F) {
	n := night(1, 2)
	n.Schema, n.Sequence = results.Schema{Name: NightName, Major: NightMajor}, 1
	b, err := n.pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add(packed([]byte(`{"schema":{"name":"trbench.night","major":1},"sequence":1,"rows":[{"processes":[1]}]}`)))
	f.Add(packed([]byte(`{"schema":{"name":"trbench.night","major":1},"sequence":1}{}`)))
	f.Add(packed([]byte(`{"schema":{"name":"trbench.night","major":1},"sequence":-1}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := unpack(b)
		if err != nil {
			return
		}
		again, err := n.pack()
		if err != nil {
			t.Fatal(err)
		}
		m, err := unpack(again)
		if err != nil || !reflect.DeepEqual(n, m) {
			t.Fatalf("%v: %+v, %+v", err, n, m)
		}
	})
}

// BenchmarkQuery opens a history of 5,000 nights of 40 rows, every file checked,
// and finds all change points.
func BenchmarkQuery(b *testing.B) {
	dir := filled(b, 5000, 40)
	b.ResetTimer()
	for range b.N {
		s, err := Open(dir, false)
		if err != nil {
			b.Fatal(err)
		}
		series, err := s.Series(nil, false)
		if err != nil {
			b.Fatal(err)
		}
		known, err := s.Known()
		if err != nil {
			b.Fatal(err)
		}
		found := 0
		for _, one := range series {
			found += len(Changes(one, known))
		}
		if len(series) != 40 || len(series[0].Points) != 5000 || found == 0 {
			b.Fatal("not the history")
		}
		_ = s.Close()
	}
}

// What is wrong is said once, with what to do.
func TestDamageIsSaidOnce(t *testing.T) {
	for _, test := range []struct {
		harm   func(dir string, files []string) error
		remedy string
	}{
		{func(_ string, f []string) error { return os.Truncate(f[4], 300) }, nightRemedy},
		{func(_ string, f []string) error { return os.Truncate(f[9], 0) }, nightRemedy},
		{func(_ string, f []string) error { return errors.Join(os.Remove(f[4]), os.Mkdir(f[4], 0o777)) }, foreignRemedy},
		{func(_ string, f []string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(f[0]), "x"), nil, 0o666)
		}, foreignRemedy},
		{func(dir string, _ []string) error { return os.RemoveAll(filepath.Join(dir, nightsDir)) }, folderRemedy},
	} {
		dir := filled(t, 10, 1)
		if err := test.harm(dir, nightFiles(t, dir)); err != nil {
			t.Fatal(err)
		}
		var d *DamagedError
		if _, err := Open(dir, false); !errors.As(err, &d) || len(d.Problems) != 1 || d.Remedy != test.remedy {
			t.Errorf("%+v", err)
		}
	}
}
