package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// journals makes a history with three lines in each journal, which the index
// knows.
func journals(t *testing.T) string {
	t.Helper()
	dir := filled(t, 1, 1)
	s := opened(t, dir)
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"a", "b", "c"} {
		if err := s.Pin(Pin{Name: name, Record: Kept{SHA256: "sum " + name}, Who: "kim", Why: "x < y & z", When: when}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Acknowledge(results.Acknowledgement{ID: name, Until: when, Who: "kim", Why: "known", When: when}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What was done to pins or acknowledgements is named when the history is opened,
// with what to do. Lines that are gone from the end the index alone can tell.
func TestJournalDamage(t *testing.T) {
	edit := func(change func(lines [][]byte) [][]byte) func(path string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.Join(change(slices.Collect(bytes.Lines(b))), nil), 0o666)
		}
	}
	for _, test := range []struct {
		name   string
		harm   func(path string) error
		want   string
		remedy string
		gone   bool // the index alone can tell
	}{
		{"edited", edit(func(l [][]byte) [][]byte { l[1] = bytes.Replace(l[1], []byte("kim"), []byte("lee"), 1); return l }), ", line 2 is not as it was written: it was edited, or what stood before it was edited, taken out or moved", lineRemedy, false},
		{"the last edited", edit(func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte("kim"), []byte("lee"), 1); return l }), ", line 3 is not as it was written: it was edited", lineRemedy, false},
		{"spaced", edit(func(l [][]byte) [][]byte { l[0] = bytes.Replace(l[0], []byte(`":`), []byte(`": `), 1); return l }), ", line 1 is not as it was written: it was edited", lineRemedy, false},
		{"a byte cut", edit(func(l [][]byte) [][]byte { l[2] = l[2][:len(l[2])-1]; return l }), ", line 3 ends in the middle", lineRemedy, false},
		{"half a line cut", edit(func(l [][]byte) [][]byte { l[2] = l[2][:len(l[2])/2]; return l }), ", line 3 ends in the middle", lineRemedy, false},
		{"one taken out", edit(func(l [][]byte) [][]byte { return slices.Delete(l, 1, 2) }), ", line 2 is not as it was written: ", lineRemedy, false},
		{"the first taken out", edit(func(l [][]byte) [][]byte { return l[1:] }), ", line 1 is not as it was written: ", lineRemedy, false},
		{"two swapped", edit(func(l [][]byte) [][]byte { l[0], l[1] = l[1], l[0]; return l }), ", line 1 is not as it was written: ", lineRemedy, false},
		{"one twice", edit(func(l [][]byte) [][]byte { return append(l, l[2]) }), ", line 4 is not as it was written: ", lineRemedy, false},
		{"no JSON", edit(func(l [][]byte) [][]byte { l[0] = []byte("x\n"); return l }), ", line 1 is not as it was written", lineRemedy, false},
		{"a blank line", edit(func(l [][]byte) [][]byte { return slices.Insert(l, 1, []byte("\n")) }), ", line 2 is not as it was written", lineRemedy, false},
		{"without digests", edit(func(l [][]byte) [][]byte { return [][]byte{[]byte(`{"action":"pin"}` + "\n")} }), ", line 1 is not as it was written", lineRemedy, false},
		{"the last gone", edit(func(l [][]byte) [][]byte { return l[:2] }), " had 3 lines and has 2: it was cut", cutRemedy, true},
		{"emptied", edit(func(l [][]byte) [][]byte { return nil }), " had 3 lines and has 0: it was cut", cutRemedy, true},
		{"gone", os.Remove, " was there and is gone", cutRemedy, true},
		{"replaced", edit(func([][]byte) (l [][]byte) {
			before := ""
			for i := range 4 {
				entry := fmt.Appendf(nil, `{"id":"%d"}`, i)
				line, _ := nextLine(before, entry)
				l, before = append(l, line), journalDigest(before, entry)
			}
			return l
		}), " has other lines than the 3 that it had: it was replaced", cutRemedy, true},
	} {
		for _, name := range []string{pinsFile, acksFile} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				dir := journals(t)
				if err := test.harm(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				var d *DamagedError
				if _, err := Open(dir, false); !errors.As(err, &d) || len(d.Problems) != 1 || !strings.HasPrefix(d.Problems[0], name+test.want) || d.Remedy != test.remedy {
					t.Errorf("%v, want %q", err, test.want)
				}
				s, err := Reindex(dir)
				if err == nil {
					_ = s.Close()
				}
				if !test.gone && !errors.As(err, &d) || test.gone && err != nil {
					t.Errorf("reindex: %v", err)
				}
			})
		}
	}
}

// Lines that were added behind the index's back are known from then on.
func TestJournalGrowsWithoutTheIndex(t *testing.T) {
	dir := journals(t)
	if err := removeIndex(filepath.Join(dir, indexFile)); err != nil {
		t.Fatal(err)
	}
	s := opened(t, dir)
	pins, err := s.Pins()
	if err != nil || len(pins) != 3 || pins[0].Why != "x < y & z" {
		t.Fatalf("%+v, %v", pins, err)
	}
	if n, _, err := s.index.journal(pinsFile); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// A reader that saw fewer lines than were added meanwhile does not make the index
// forget them.
func TestJournalIsKnownToItsLastLine(t *testing.T) {
	s := opened(t, journals(t))
	lines, err := s.journal(pinsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.index.setJournal(pinsFile, 2, lines[1].Digest); err != nil {
		t.Fatal(err)
	}
	if n, last, err := s.index.journal(pinsFile); n != 3 || last != lines[2].Digest || err != nil {
		t.Errorf("%d lines to %s, %v", n, last, err)
	}
}

// Many may pin at once: each line follows the one before, and none is lost.
func TestManyPin(t *testing.T) {
	dir := filled(t, 1, 1)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			s, err := Open(dir, false)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for j := range 5 {
				name := fmt.Sprint(i, j)
				if err := s.Pin(Pin{Name: name, Record: Kept{SHA256: name}}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if pins, err := opened(t, dir).Pins(); err != nil || len(pins) != 40 {
		t.Errorf("%d pins, %v", len(pins), err)
	}
}

// A program stays as long as a pin has it, can be started, and is told from one
// that was changed.
func TestProgramsAreKept(t *testing.T) {
	dir := filled(t, 1, 1)
	s := opened(t, dir)
	file := filepath.Join(t.TempDir(), "program")
	text := []byte("#!/bin/sh\n")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeepProgram(file, hashOf([]byte("another"))); err == nil || !strings.Contains(err.Error(), "is not what it was: its SHA-256 is ") {
		t.Errorf("%v", err)
	}
	for i, name := range []string{"a", "b"} {
		if err := s.Pin(Pin{Name: name, Record: Kept{SHA256: name}}, func(p *Pin) error {
			k, err := s.KeepProgram(file, hashOf(text))
			p.Program = &k
			return err
		}); err != nil {
			t.Fatal(i, err)
		}
	}
	pins, err := s.Pins()
	if err != nil || len(pins) != 2 || pins[1].Program == nil {
		t.Fatalf("%+v, %v", pins, err)
	}
	k := *pins[1].Program
	path, err := s.Program(k)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 || k.Bytes != int64(len(text)) {
		t.Errorf("%v, %v, %+v", info.Mode(), err, k)
	}
	thin := func() {
		t.Helper()
		if _, bytes, over, err := s.Thin(Retention{Full: 1, MaxBytes: 5}, nil); err != nil || bytes != over+5 {
			t.Errorf("%d, over by %d, %v", bytes, over, err)
		}
	}
	if err := s.Drop("a", "kim", "old", time.Time{}); err != nil {
		t.Fatal(err)
	}
	thin()
	if _, err := s.Program(k); err != nil {
		t.Errorf("thinned though a pin has it: %v", err)
	}
	// One that cannot be started is found before it is needed; kept again it can.
	var d *DamagedError
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Program(k); !errors.As(err, &d) || d.Remedy != startRemedy {
		t.Errorf("%v", err)
	}
	if _, err := s.KeepProgram(file, hashOf(text)); err != nil {
		t.Error(err)
	}
	if _, err := s.Program(k); err != nil {
		t.Error(err)
	}
	// A folder that is nobody's is left alone.
	for _, d := range []string{recordsDir, programsDir} {
		if err := os.MkdirAll(filepath.Join(dir, d, "mine", "here"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	thin()
	if err := os.WriteFile(path, []byte("#!/bin/no\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Program(k); !errors.As(err, &d) || d.Remedy != programRemedy {
		t.Errorf("%v", err)
	}
	if err := s.Drop("b", "kim", "old", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if removed, bytes, _, err := s.Thin(DefaultRetention(), nil); err != nil || len(removed) != 1 || bytes != 0 {
		t.Errorf("%v, %d, %v", removed, bytes, err)
	}
	if _, err := s.Program(k); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// What a pin is writing is not half written; what was killed long ago is.
func TestSweepSparesWhatIsWritten(t *testing.T) {
	dir := filled(t, 1, 1)
	s, other := opened(t, dir), opened(t, dir)
	swept := make(chan error)
	write := func(name string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o666), os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, new := write(tempPrefix+"1.sqlite-journal", 48*time.Hour), write(tempPrefix+"2.sqlite", 0)
	if err := s.Pin(Pin{Name: "x"}, func(*Pin) error {
		file := write(filepath.Join(recordsDir, tempPrefix+"3.tmp"), 0)
		go func() { swept <- other.Sweep() }()
		time.Sleep(50 * time.Millisecond) // so that the other one is likely to have come
		_, err := os.Stat(file)
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := <-swept; err != nil {
		t.Error(err)
	}
	for path, stays := range map[string]bool{old: false, new: true, filepath.Join(dir, recordsDir, tempPrefix+"3.tmp"): false} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
}
