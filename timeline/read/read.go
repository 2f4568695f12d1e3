package read

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// Options say how to read.
type Options struct {
	// Strict refuses what is damaged instead of reading what can be understood.
	Strict bool
}

// Error is a recording that cannot be used.
type Error struct {
	File, Reason string
	Hint         string // what to do about it; may be empty
	Err          error  // may be nil
}

func (e *Error) Error() string { return fmt.Sprintf("trace %s: %s", e.File, e.Reason) }

func (e *Error) Unwrap() error { return e.Err }

// Damaged tells whether a recording was read in part only, or by guessing.
func Damaged(r timeline.ReadReport) bool {
	return r.LostBytes > 0 || r.LostEvents > 0 || r.Truncated || r.Repaired > 0 || r.Dropped > 0
}

const sqliteMagic = "SQLite format 3\x00"

// File reads a recording of any known format, which it tells by its content. The
// error is an [*Error]. A recording that is damaged is read as far as it can be
// understood, and its ReadReport says how far that was.
func File(path string, o Options) (*timeline.Timeline, error) {
	fail := func(reason, hint string, err error) (*timeline.Timeline, error) {
		return nil, &Error{File: path, Reason: reason, Hint: hint, Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		reason := err.Error()
		var p *os.PathError
		if errors.As(err, &p) {
			reason = "cannot be opened: " + p.Err.Error()
		}
		return fail(reason, "", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fail("cannot be looked at: "+err.Error(), "", err)
	}
	if info.IsDir() {
		return fail("is a folder, not a file", "name the files in it; several are taken for the ranks of one job", nil)
	}
	in := bufio.NewReaderSize(f, chunkBytes)
	head, err := in.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return fail("cannot be read: "+err.Error(), "", err)
	}
	switch what := recognise(head); {
	case len(head) == 0:
		return fail("is empty", "", nil)
	case what == isSQLite:
		if !info.Mode().IsRegular() {
			return fail("is an SQLite database, but no regular file", "copy it to a file first", nil)
		}
		return nsys(path, o)
	case what == isGzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return fail("begins as a gzip file, but its header is damaged", "", err)
		}
		inner := bufio.NewReaderSize(z, chunkBytes)
		head, _ := inner.Peek(512) // an error comes again
		switch recognise(head) {
		case isJSON:
			return chrome(inner, path, o)
		case isSQLite:
			return fail("is a packed SQLite database", "unpack it with gunzip first", nil)
		}
		if len(head) == 0 {
			return fail("has nothing in its packed bytes that can be unpacked", "", nil)
		}
		return fail("is a gzip file without a trace in it", known, nil)
	case what == isJSON:
		return chrome(in, path, o)
	case what == isNsysReport || strings.HasSuffix(path, ".nsys-rep") || strings.HasSuffix(path, ".qdrep"):
		return fail("is an Nsight Systems report, which only nsys can read", "nsys export --type=sqlite REPORT makes the database that can be read here", nil)
	case what == isZip || what == isZstd:
		return fail("is packed in a way that is not read here", "unpack it, or pack it with gzip", nil)
	}
	return fail("is no trace that is known here", known, nil)
}

const known = "known are PyTorch profiler traces (.json, .json.gz), Nsight Systems' SQLite exports, and traces that trbench wrote"

type content uint8

const (
	isUnknown content = iota
	isGzip
	isZip
	isZstd
	isSQLite
	isJSON
	isNsysReport
)

// recognise tells what a file is from its first bytes.
func recognise(head []byte) content {
	switch {
	case bytes.HasPrefix(head, []byte(sqliteMagic)):
		return isSQLite
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return isGzip
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return isZip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return isZstd
	}
	b := bytes.TrimPrefix(head, []byte(byteOrderMark))
	i := skipBlanks(b, 0)
	if i == len(b) {
		return isUnknown
	}
	// A brace alone begins many things; a key, or an event, must follow.
	j := skipBlanks(b, i+1)
	switch {
	case b[i] == '{' && (j == len(b) || b[j] == '"' || b[j] == '}'):
		return isJSON
	case b[i] == '[' && (j == len(b) || b[j] == '{' || b[j] == ']'):
		return isJSON
	case bytes.Contains(head, []byte("NVIDIA Tegra Profiler")) || bytes.Contains(head, []byte("nsys-rep")):
		return isNsysReport
	}
	return isUnknown
}

const byteOrderMark = "\xef\xbb\xbf"

// JSON reads a Chrome trace, unpacked, from a stream; source is what errors call
// it.
func JSON(in io.Reader, source string, o Options) (*timeline.Timeline, error) {
	return chrome(in, source, o)
}
