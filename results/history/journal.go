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
	Name   string    `json:"name"`
	Record Kept      `json:"record"`
	Who    string    `json:"who"`
	Why    string    `json:"why"`
	When   time.Time `json:"when"`
}

// Pins are those in force, in the order they were pinned.
func (s *Store) Pins() ([]Pin, error) {
	all, err := readJournal[Pin](s.dir, pinsFile)
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
// is an error.
func (s *Store) Pin(p Pin) error {
	have, err := s.Pins()
	if err != nil {
		return err
	}
	for _, o := range have {
		if o.Name == p.Name || o.Record.SHA256 == p.Record.SHA256 {
			return fmt.Errorf("is pinned already, as %s by %s on %s", o.Name, o.Who, o.When.Format(time.DateOnly))
		}
	}
	p.Action = pinned
	return s.appendTo(pinsFile, p)
}

// Drop takes a pin out of the baseline.
func (s *Store) Drop(name, who, why string, when time.Time) error {
	have, err := s.Pins()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(have, func(p Pin) bool { return p.Name == name })
	if i < 0 {
		return errors.New("is not pinned")
	}
	p := have[i]
	p.Action, p.Who, p.Why, p.When = dropped, who, why, when
	return s.appendTo(pinsFile, p)
}

// Acknowledge adds one; of several of a change point the last one counts.
func (s *Store) Acknowledge(a results.Acknowledgement) error { return s.appendTo(acksFile, a) }

// Acknowledgements are the last ones of each change point, expired ones among
// them.
func (s *Store) Acknowledgements() (map[string]results.Acknowledgement, error) {
	all, err := readJournal[results.Acknowledgement](s.dir, acksFile)
	if err != nil {
		return nil, err
	}
	out := map[string]results.Acknowledgement{}
	for _, a := range all {
		out[a.ID] = a
	}
	return out, nil
}

// readJournal reads a file of JSON lines; one that is not there has none.
func readJournal[T any](dir, name string) ([]T, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the history's %s: %w", name, err)
	}
	var out []T
	for i, line := range bytes.Split(b, []byte("\n")) {
		if len(line) == 0 && i == bytes.Count(b, []byte("\n")) {
			break
		}
		var v T
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil || d.More() {
			return nil, &DamagedError{dir, []string{fmt.Sprintf("%s, line %d is not as it was written", name, i+1)}, lineRemedy}
		}
		out = append(out, v)
	}
	return out, nil
}

// appendTo adds a line, whole or not at all.
func (s *Store) appendTo(name string, v any) (err error) {
	path := filepath.Join(s.dir, name)
	defer func() {
		if err != nil {
			err = &FullError{path, err}
		}
	}()
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	before, err := f.Stat()
	if err == nil {
		if err = s.write(f, append(line, '\n')); err != nil {
			_ = f.Truncate(before.Size())
		}
	}
	return errors.Join(err, f.Close())
}
