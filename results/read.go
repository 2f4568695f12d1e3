package results

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
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

// ErrNoSchema is in a [ReadError] of a file that is no record of any version.
var ErrNoSchema = errors.New("names no schema")

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
		return fail(err, "does not fit schema %s %d.%d: %s", SchemaName, SchemaMajor, SchemaMinor, misfit(err))
	}
	if err := r.check(); err != nil {
		return fail(err, "%v", err)
	}
	return &r, nil
}

// misfit says which field does not take its value. The decoder's own words name
// this program's types.
func misfit(err error) string {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err.Error()
	}
	before, _, _ := strings.Cut(err.Error(), "json: ")
	var path []string
	for name := range strings.SplitSeq(before, ": ") {
		if name != "" {
			path = append(path, name)
		}
	}
	if t.Field != "" {
		path = append(path, t.Field)
	}
	has, number, isNumber := strings.Cut(t.Value, " ")
	has = map[string]string{"number": "a number", "string": "a string", "array": "a list", "object": "an object", "bool": "true or false"}[has]
	if isNumber {
		has = "the number " + number
	}
	means := "an object"
	switch kind := t.Type.Kind(); {
	case kind == reflect.Slice || kind == reflect.Array:
		means = "a list"
	case kind == reflect.String:
		means = "a string"
	case kind == reflect.Bool:
		means = "true or false"
	case reflect.Int <= kind && kind <= reflect.Uint64:
		means = fmt.Sprintf("a whole number of %d bits", t.Type.Bits())
	case kind == reflect.Float64:
		means = "a number of 64 bits"
	}
	return fmt.Sprintf("%s is %s, where %s is meant", strings.Join(path, "."), has, means)
}

// checkText walks the tokens for what encoding/json lets pass: repeated keys,
// keys that it would take for others, deep nesting, text after the end.
func checkText(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	w := walk{names: map[reflect.Type]map[string]reflect.Type{}}
	for {
		token, err := d.Token()
		if err != nil {
			return syntaxProblem(err, len(bytes.TrimSpace(b)), len(b), d.InputOffset())
		}
		if err = w.advance(token); err != nil {
			return fmt.Errorf("%w at byte %d", err, d.InputOffset())
		}
		if len(w.stack) == 0 {
			break
		}
	}
	if rest := bytes.TrimSpace(b[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("has more after the end of the record, from byte %d on", d.InputOffset())
	}
	return nil
}

func syntaxProblem(err error, text, size int, at int64) error {
	switch {
	case text == 0:
		return errors.New("is empty")
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends in the middle, at byte %d", size)
	}
	return fmt.Errorf("is not JSON at byte %d: %w", at, err)
}

// walk is where in a record's text a reader is.
type walk struct {
	stack []scope
	// names are the fields of each struct type met, with their types.
	names map[reflect.Type]map[string]reflect.Type
}

// scope is an object or list being read.
type scope struct {
	keys    map[string]bool // nil in a list
	wantKey bool
	// is what the object or list is decoded into, and next what follows a key;
	// nil for what is no part of the schema.
	is, next reflect.Type
}

func (w *walk) advance(token json.Token) error {
	top := len(w.stack) - 1
	if top >= 0 && w.stack[top].wantKey {
		if k, ok := token.(string); ok {
			return w.key(&w.stack[top], k)
		}
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		in := scope{is: reflect.TypeFor[Record]()}
		if top >= 0 {
			w.stack[top].wantKey = w.stack[top].keys != nil
			in.is = w.stack[top].next
		}
		if len(w.stack) == MaxDepth {
			return fmt.Errorf("is nested more than %d deep", MaxDepth)
		}
		for in.is != nil && in.is.Kind() == reflect.Pointer {
			in.is = in.is.Elem()
		}
		if token == json.Delim('{') {
			in.keys, in.wantKey = map[string]bool{}, true
		} else if in.is != nil && in.is.Kind() == reflect.Slice {
			in.next = in.is.Elem()
		}
		w.stack = append(w.stack, in)
		return nil
	case json.Delim('}'), json.Delim(']'):
		w.stack = w.stack[:top]
		return nil
	}
	if top >= 0 {
		w.stack[top].wantKey = w.stack[top].keys != nil
	}
	return nil
}

// key refuses one that was there before, and one that differs from a field's
// name in the case of its letters: encoding/json would take it for the field,
// and where both are there the last would win.
func (w *walk) key(in *scope, k string) error {
	if in.keys[k] {
		return fmt.Errorf("repeats the key %q", k)
	}
	in.keys[k], in.wantKey, in.next = true, false, nil
	if in.is == nil || in.is.Kind() != reflect.Struct {
		return nil
	}
	fields, ok := w.names[in.is]
	if !ok {
		fields = map[string]reflect.Type{}
		for i := range in.is.NumField() {
			if name := fieldName(in.is.Field(i)); name != "-" {
				fields[name] = in.is.Field(i).Type
			}
		}
		w.names[in.is] = fields
	}
	if in.next, ok = fields[k]; ok || exact(in.is) {
		return nil
	}
	for name := range fields {
		if strings.EqualFold(name, k) {
			return fmt.Errorf("has the key %q, which is spelled %q,", k, name)
		}
	}
	return nil
}

// exact says whether a type takes its fields by [decodeKnown], so that other
// spellings are unknown fields.
func exact(t reflect.Type) bool {
	_, ok := t.FieldByName("Extra")
	return ok
}

// checkSchema reads name and version before anything else is interpreted.
func checkSchema(b []byte) error {
	var head struct {
		Schema *Schema `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Schema == nil {
		return fmt.Errorf("%w, which a record begins with: {\"schema\":{\"name\":%q}}", ErrNoSchema, SchemaName)
	}
	s := *head.Schema
	switch {
	case s.Name != SchemaName:
		return fmt.Errorf("has schema %q, not %q", s.Name, SchemaName)
	case s.Major > SchemaMajor:
		return fmt.Errorf("has schema version %d.%d, which is newer than this program reads (%d.x); use a newer trbench",
			s.Major, s.Minor, SchemaMajor)
	case s.Major != SchemaMajor || s.Minor < 0:
		return fmt.Errorf("has schema version %d.%d; this program reads %d.x", s.Major, s.Minor, SchemaMajor)
	}
	return nil
}
