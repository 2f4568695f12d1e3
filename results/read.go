package results

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// What a reader accepts. Both limits are far above any record this program
// writes.
const (
	MaxDepth = 100
	MaxBytes = 256 << 20
)

// ReadError is a record that cannot be used.
type ReadError struct {
	File    string
	Problem string
	Err     error // may be nil
}

func (e *ReadError) Error() string { return fmt.Sprintf("record %s: %s", e.File, e.Problem) }

func (e *ReadError) Unwrap() error { return e.Err }

// ReadFile reads a record; a name that ends in .gz is unpacked. The error is a
// [*ReadError].
func ReadFile(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		problem := err.Error()
		var p *os.PathError
		if errors.As(err, &p) {
			problem = "cannot be opened: " + p.Err.Error()
		}
		return nil, &ReadError{File: path, Problem: problem, Err: err}
	}
	defer f.Close()
	if !zipped(path) {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > MaxBytes {
			return nil, tooLarge(path, MaxBytes)
		}
		return Decode(path, f)
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, &ReadError{File: path, Problem: "is not a gzip file, though its name ends in " + zipSuffix, Err: err}
	}
	return Decode(path, unpacked)
}

const zipSuffix = ".gz"

func zipped(path string) bool { return strings.HasSuffix(path, zipSuffix) }

func tooLarge(name string, limit int64) *ReadError {
	return &ReadError{File: name, Problem: fmt.Sprintf("is larger than the limit of %d bytes", limit)}
}

// Decode reads one record; name is what errors call it. The error is a
// [*ReadError].
func Decode(name string, in io.Reader) (*Record, error) {
	return decode(name, in, MaxBytes)
}

func decode(name string, in io.Reader, limit int64) (*Record, error) {
	fail := func(err error, format string, args ...any) (*Record, error) {
		return nil, &ReadError{File: name, Problem: fmt.Sprintf(format, args...), Err: err}
	}
	b, err := io.ReadAll(io.LimitReader(in, limit+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fail(err, "ends in the middle of its packed bytes")
	case errors.Is(err, syscall.EISDIR):
		return fail(err, "is a folder")
	case err != nil:
		return fail(err, "cannot be read: %v", err)
	case int64(len(b)) > limit:
		return nil, tooLarge(name, limit)
	}
	if err := checkText(b); err != nil {
		return fail(err, "%v", err)
	}
	if err := checkSchema(b); err != nil {
		return fail(err, "%v", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return fail(err, "does not fit schema %s %d.%d: %v", SchemaName, SchemaMajor, SchemaMinor, err)
	}
	if err := r.check(); err != nil {
		return fail(err, "%v", err)
	}
	return &r, nil
}

// checkText walks the tokens for what encoding/json lets pass: repeated keys,
// deep nesting, text after the end.
func checkText(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var stack []scope
	for {
		token, err := d.Token()
		if err != nil {
			return syntaxProblem(err, len(b), d.InputOffset())
		}
		if stack, err = advance(stack, token); err != nil {
			return fmt.Errorf("%w at byte %d", err, d.InputOffset())
		}
		if len(stack) == 0 {
			break
		}
	}
	if rest := bytes.TrimSpace(b[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("has more after the end of the record, from byte %d on", d.InputOffset())
	}
	return nil
}

func syntaxProblem(err error, size int, at int64) error {
	switch {
	case size == 0:
		return errors.New("is empty")
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends in the middle, at byte %d", size)
	}
	return fmt.Errorf("is not JSON at byte %d: %w", at, err)
}

// scope is an object or list being read.
type scope struct {
	keys    map[string]bool // nil in a list
	wantKey bool
}

func advance(stack []scope, token json.Token) ([]scope, error) {
	top := len(stack) - 1
	if top >= 0 && stack[top].wantKey {
		if k, ok := token.(string); ok {
			if stack[top].keys[k] {
				return nil, fmt.Errorf("repeats the key %q", k)
			}
			stack[top].keys[k], stack[top].wantKey = true, false
			return stack, nil
		}
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		if top >= 0 {
			stack[top].wantKey = stack[top].keys != nil
		}
		if len(stack) == MaxDepth {
			return nil, fmt.Errorf("is nested more than %d deep", MaxDepth)
		}
		if token == json.Delim('{') {
			return append(stack, scope{keys: map[string]bool{}, wantKey: true}), nil
		}
		return append(stack, scope{}), nil
	case json.Delim('}'), json.Delim(']'):
		return stack[:top], nil
	}
	if top >= 0 {
		stack[top].wantKey = stack[top].keys != nil
	}
	return stack, nil
}

// checkSchema reads name and version before anything else is interpreted.
func checkSchema(b []byte) error {
	var head struct {
		Schema *Schema `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Schema == nil {
		return fmt.Errorf("names no schema, which a record begins with: {\"schema\":{\"name\":%q}}", SchemaName)
	}
	s := *head.Schema
	switch {
	case s.Name != SchemaName:
		return fmt.Errorf("has schema %q, not %q", s.Name, SchemaName)
	case s.Major > SchemaMajor:
		return fmt.Errorf("has schema version %d.%d, which is newer than this program reads (%d.x); use a newer trbench",
			s.Major, s.Minor, SchemaMajor)
	case s.Major != SchemaMajor:
		return fmt.Errorf("has schema version %d.%d; this program reads %d.x", s.Major, s.Minor, SchemaMajor)
	}
	return nil
}
