package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

const (
	pinsFile = "pins.jsonl"
	acksFile = "acknowledgements.jsonl"
)

// What is done to a pin.
const (
	pinned  = "pin"
	dropped = "drop"
)

// Pin is a record of the baseline.
type Pin struct {
	Action string `json:"action"` // pin, drop
	// Name is what the pin is called: "night-12", or a record file's name.
	Name   string `json:"name"`
	Record Kept   `json:"record"`
	// Program is the one that made the record, to measure base again with; null
	// where it was not at hand.
	Program *Kept     `json:"program"`
	Who     string    `json:"who"`
	Why     string    `json:"why"`
	When    time.Time `json:"when"`
}

// Pins are those in force, in the order they were pinned.
func (s *Store) Pins() ([]Pin, error) {
	all, err := readJournal[Pin](s, pinsFile)
	if err != nil {
		return nil, err
	}
	var out []Pin
	for _, p := range all {
		out = slices.DeleteFunc(out, func(o Pin) bool { return o.Name == p.Name })
		if p.Action == pinned {
			out = append(out, p)
		}
	}
	return out, nil
}

// Pin adds a record to the baseline. A name, or a record, that is pinned already
// is an error. keep, unless nil, is called to store the pin's files and name
// them in it, where nothing thins them before the pin is in force.
func (s *Store) Pin(p Pin, keep func(*Pin) error) error {
	return s.append(pinsFile, func() (any, error) {
		have, err := s.Pins()
		if err != nil {
			return nil, err
		}
		if keep != nil {
			if err := keep(&p); err != nil {
				return nil, err
			}
		}
		for _, o := range have {
			if o.Name == p.Name || o.Record.SHA256 == p.Record.SHA256 {
				return nil, fmt.Errorf("is pinned already, as %s by %s on %s", o.Name, o.Who, o.When.Format(time.DateOnly))
			}
		}
		p.Action = pinned
		return p, nil
	})
}

// Drop takes a pin out of the baseline.
func (s *Store) Drop(name, who, why string, when time.Time) error {
	return s.append(pinsFile, func() (any, error) {
		have, err := s.Pins()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(have, func(p Pin) bool { return p.Name == name })
		if i < 0 {
			return nil, errors.New("is not pinned")
		}
		p := have[i]
		p.Action, p.Who, p.Why, p.When = dropped, who, why, when
		return p, nil
	})
}

// Acknowledge adds one; of several of a change point the last one counts.
func (s *Store) Acknowledge(a results.Acknowledgement) error {
	return s.append(acksFile, func() (any, error) { return a, nil })
}

// Acknowledgements are the last ones of each change point, expired ones among
// them.
func (s *Store) Acknowledgements() (map[string]results.Acknowledgement, error) {
	all, err := readJournal[results.Acknowledgement](s, acksFile)
	if err != nil {
		return nil, err
	}
	out := map[string]results.Acknowledgement{}
	for _, a := range all {
		out[a.ID] = a
	}
	return out, nil
}

// A journal is a file of JSON lines that grows. A line's digest is over what it
// says and the digest of the line before, so that one that was edited, cut,
// taken out or put elsewhere is told; the index knows how many there were.
type journalLine struct {
	Entry  json.RawMessage `json:"entry"`
	Digest string          `json:"digest"`
}

func journalDigest(before string, entry []byte) string {
	return hashOf(append([]byte(before+"\n"), entry...))
}

// line is a journal's next line, with its end.
func nextLine(before string, entry []byte) ([]byte, error) {
	b, err := json.Marshal(journalLine{entry, journalDigest(before, entry)})
	return append(b, '\n'), err
}

// journal reads a journal and checks it; one that is not there has no lines.
func (s *Store) journal(name string) (lines []journalLine, err error) {
	damaged := func(remedy, format string, args ...any) ([]journalLine, error) {
		return nil, &DamagedError{s.dir, []string{name + fmt.Sprintf(format, args...)}, remedy}
	}
	known, last, err := s.index.journal(name) // before the file, which grows
	if err != nil {
		return nil, err
	}
	b, err := readRegular(filepath.Join(s.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && known > 0:
		return damaged(cutRemedy, " was there and is gone")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the history's %s: %w", name, err)
	}
	before := ""
	for text := range bytes.Lines(b) {
		var l journalLine
		i := len(lines) + 1
		if !bytes.HasSuffix(text, []byte("\n")) {
			return damaged(lineRemedy, ", line %d ends in the middle", i)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if d.Decode(&l) != nil {
			return damaged(lineRemedy, ", line %d is not as it was written", i)
		}
		if is, err := nextLine(before, l.Entry); err != nil || !bytes.Equal(is, text) {
			return damaged(lineRemedy, ", line %d is not as it was written: it was edited, or what stood before it was edited, taken out or moved", i)
		}
		lines, before = append(lines, l), l.Digest
	}
	switch {
	case len(lines) < known:
		return damaged(cutRemedy, " had %s and has %d: it was cut", counted(known, "line"), len(lines))
	case known > 0 && lines[known-1].Digest != last:
		return damaged(cutRemedy, " has other lines than the %d that it had: it was replaced", known)
	case len(lines) > known:
		_ = s.index.setJournal(name, len(lines), before) // the next one who opens it does it else
	}
	return lines, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func readJournal[T any](s *Store, name string) ([]T, error) {
	lines, err := s.journal(name)
	if err != nil {
		return nil, err
	}
	var out []T
	for i, l := range lines {
		var v T
		d := json.NewDecoder(bytes.NewReader(l.Entry))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
			return nil, &DamagedError{s.dir, []string{fmt.Sprintf("%s, line %d is of another version of this program: %s", name, i+1, strings.TrimPrefix(err.Error(), "json: "))}, lineRemedy}
		}
		out = append(out, v)
	}
	return out, nil
}

// lock keeps others from pinning, dropping and thinning, until it is released.
// The kernel drops it with the process. A file system without locks goes on
// without.
func (s *Store) lock() (release func()) {
	d, err := os.Open(s.dir)
	if err != nil {
		return func() {} // whoever writes there will say what is wrong
	}
	for errors.Is(syscall.Flock(int(d.Fd()), syscall.LOCK_EX), syscall.EINTR) {
	}
	return func() { _ = d.Close() }
}

// append adds a line to a journal, whole or not at all: what next says, which is
// asked where nobody else adds one.
func (s *Store) append(name string, next func() (any, error)) error {
	defer s.lock()()
	lines, err := s.journal(name)
	if err != nil {
		return err
	}
	v, err := next()
	if err != nil {
		return err
	}
	entry, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before := ""
	if n := len(lines); n > 0 {
		before = lines[n-1].Digest
	}
	line, err := nextLine(before, entry)
	if err != nil {
		return err
	}
	if err := s.appendTo(filepath.Join(s.dir, name), line); err != nil {
		return &FullError{filepath.Join(s.dir, name), err}
	}
	_ = s.index.setJournal(name, len(lines)+1, journalDigest(before, entry)) // the next one who opens it does it else
	return nil
}

func (s *Store) appendTo(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	before, err := f.Stat()
	if err == nil {
		if err = s.write(f, line); err != nil {
			_ = f.Truncate(before.Size())
		}
	}
	return errors.Join(err, f.Close())
}
