package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Formats that [Write] knows.
const (
	FormatTable    = "table"
	FormatMarkdown = "markdown"
	FormatCSV      = "csv"
	FormatGobench  = "gobench"
	FormatPlots    = "plots"
)

// Formats lists them in the order they are written.
func Formats() []string {
	return []string{FormatTable, FormatMarkdown, FormatCSV, FormatGobench, FormatPlots}
}

// FormatError is a format that [Write] does not know.
type FormatError struct{ Format string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("report format %q is not known; known: %s", e.Format, strings.Join(Formats(), ", "))
}

// ErrNoRecords says that there is nothing to report on.
var ErrNoRecords = errors.New("a report needs at least one record")

// Write makes report.txt, report.md, report.csv, report.bench and the plots as
// PNG and SVG in dir, which it creates, as far as formats asks for them. Files
// of an earlier report are replaced, each in one move, so that no reader sees
// half a file. It returns the paths it wrote and, in notes, which plots the
// records cannot carry and why.
//
// An unknown format is a [*FormatError] and writes nothing.
func Write(dir string, formats []string, records []Named) (files, notes []string, err error) {
	for _, f := range formats {
		if !slices.Contains(Formats(), f) {
			return nil, nil, &FormatError{f}
		}
	}
	s := gather(records)
	if len(s.list) == 0 {
		return nil, nil, ErrNoRecords
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("create folder of the report: %w", err)
	}
	put := func(name string, draw func(io.Writer) error) {
		if err != nil {
			return
		}
		path := filepath.Join(dir, name)
		if err = WriteFile(path, draw); err == nil {
			files = append(files, path)
		}
	}
	asked := func(f string) bool { return slices.Contains(formats, f) }

	var pictures []Picture
	if asked(FormatPlots) {
		pictures, notes = s.all()
		for _, p := range pictures {
			for _, format := range []string{PNG, SVG} {
				put(p.Name+"."+format, func(w io.Writer) error { return p.Encode(w, format) })
			}
		}
	}
	if asked(FormatTable) {
		put("report.txt", s.table)
	}
	if asked(FormatMarkdown) {
		put("report.md", func(w io.Writer) error { return s.markdown(w, pictures, notes) })
	}
	if asked(FormatCSV) {
		put("report.csv", s.csv)
	}
	if asked(FormatGobench) {
		put("report.bench", s.gobench)
	}
	return files, notes, err
}

// Plots draws every plot that the records can carry into dir, which must
// exist, in the given formats, [PNG] and [SVG]. It returns the paths and why
// others are absent.
func Plots(dir string, formats []string, records []Named) (files, absent []string, err error) {
	pictures, absent := gather(records).all()
	files, err = Save(dir, formats, pictures)
	return files, absent, err
}

// all draws every kind. What is said of a cell is said once, not six times.
func (s sources) all() (pictures []Picture, absent []string) {
	pictures, absent = s.charted()
	ps, as := s.tracedTimelines()
	return append(pictures, ps...), append(absent, as...)
}

// charted are the pictures that are data as well: all but those of timelines.
func (s sources) charted() (pictures []Picture, absent []string) {
	fs, cells := s.families()
	for _, k := range Kinds() {
		ps, as := drawFamilies(k, fs)
		pictures = append(pictures, ps...)
		absent = append(absent, as...)
	}
	for _, f := range fs {
		ps, as := f.tracedParts()
		pictures, absent = append(pictures, ps...), append(absent, as...)
	}
	return pictures, append(absent, cells...)
}

// WriteFile writes what draw gives under a temporary name in the same folder and
// renames it, so that no reader sees half a file. What was there is replaced.
// The error of a file names path, not the temporary one.
func WriteFile(path string, draw func(io.Writer) error) error {
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	err := replace(path, b.Bytes())
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func replace(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(b); err != nil {
		f.Close()
		return err
	}
	// A temporary file is its owner's alone; a report is for others too.
	if err = f.Chmod(0o644); err != nil {
		f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
