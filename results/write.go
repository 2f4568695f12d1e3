package results

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// WriteError is a place where a record cannot go.
type WriteError struct {
	Path    string
	Problem string
	Err     error // may be nil
}

func (e *WriteError) Error() string { return fmt.Sprintf("cannot write %s: %s", e.Path, e.Problem) }

func (e *WriteError) Unwrap() error { return e.Err }

// Encode writes the record as indented JSON with a newline at the end.
func Encode(out io.Writer, r *Record) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

func encode(r *Record) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", " "); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Write stores the record at path: under a temporary name beside it, synced,
// then renamed, so a reader sees the whole record or none. A name that ends in
// .gz is packed. If path is a folder,
// or ends in a separator (the folder is then made), the file gets a name of its
// own that simultaneous runs do not share. It returns the file's name. The
// error is a [*WriteError].
func Write(path string, r *Record) (string, error) {
	b, err := encode(r)
	if err != nil {
		return "", &WriteError{Path: path, Problem: err.Error(), Err: err}
	}
	p, err := locate(path)
	if err != nil {
		return "", err
	}
	if p.isDir {
		if err := os.MkdirAll(p.dir, 0o777); err != nil {
			return "", writeError(path, err)
		}
		p.file = filepath.Join(p.dir, uniqueName(r.Created))
	}
	if zipped(p.file) {
		b = pack(b)
	}
	if err := replace(p.dir, p.file, b); err != nil {
		return "", writeError(path, err)
	}
	return p.file, nil
}

// pack compresses; the same bytes give the same file.
func pack(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a bytes.Buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// CheckWritable says whether [Write] to path can work, before the run that
// makes the record. It leaves nothing behind and creates no folder. The error
// is a [*WriteError].
func CheckWritable(path string) error {
	p, err := locate(path)
	if err != nil {
		return err
	}
	dir := p.dir
	for p.isDir {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir) // Write would make the folders between
	}
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return writeError(path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// place is a path resolved: a folder, and a file in it unless isDir.
type place struct {
	dir, file string
	isDir     bool
}

func locate(path string) (place, error) {
	if path == "" {
		return place{}, &WriteError{Path: `""`, Problem: "the name is empty"}
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		// A rename would otherwise replace the link instead of the file.
		if resolved != filepath.Clean(path) {
			return locate(resolved)
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return place{dir: filepath.Clean(path), isDir: true}, nil
	case err == nil && !info.Mode().IsRegular():
		return place{}, &WriteError{Path: path, Problem: "it is neither a file nor a folder"}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return place{}, writeError(path, err)
	case err != nil && os.IsPathSeparator(path[len(path)-1]):
		return place{dir: filepath.Clean(path), isDir: true}, nil
	}
	return place{dir: filepath.Dir(path), file: path}, nil
}

// writeError keeps the cause and drops the temporary name, which means
// nothing to the reader.
func writeError(path string, err error) error {
	cause := err
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		cause = p.Err
	case errors.As(err, &l):
		cause = l.Err
	}
	problem := cause.Error()
	if errors.Is(err, fs.ErrNotExist) {
		problem = fmt.Sprintf("the folder %s does not exist", filepath.Dir(strings.TrimRight(path, string(os.PathSeparator))))
	}
	return &WriteError{Path: path, Problem: problem, Err: err}
}

const temporary = ".trbench-*.tmp"

// uniqueName is a file name with the time, for people, and 64 random bits,
// for runs that start in the same second.
func uniqueName(t time.Time) string {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // documented never to fail
	return fmt.Sprintf("trbench-%s-%s.json", t.UTC().Format("20060102T150405Z"), hex.EncodeToString(salt[:]))
}

// replace writes b under a temporary name, syncs and renames it. On failure
// the temporary file is removed and the target is as it was.
func replace(dir, file string, b []byte) (err error) {
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = fill(f, b); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), file); err != nil {
		return err
	}
	return syncDir(dir)
}

func fill(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return f.Sync()
}

// syncDir makes the rename itself durable. Some file systems cannot sync a
// folder; the record is whole there all the same, so that is no failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
