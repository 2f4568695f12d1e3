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
	"syscall"
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
// own that simultaneous runs do not share. A file that is there is replaced,
// whatever it holds ([CheckWritable] asks that), and keeps its permissions and
// owner; a link is followed; a device, a pipe or a socket is refused. It
// returns the file's name. The error is a [*WriteError].
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

// CheckWritable says whether [Write] to path can work and harms nothing,
// before the run that makes the record: a file that is there must be writable,
// and a record or empty. It leaves nothing behind and creates no folder. The
// error is a [*WriteError].
func CheckWritable(path string) error {
	p, err := locate(path)
	if err != nil {
		return err
	}
	if err := p.checkFile(); err != nil {
		return err
	}
	dir := p.dir
	for p.isDir {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir) // Write would make the folders between
	}
	f, err := createTemporary(dir)
	if err != nil {
		return writeError(path, err)
	}
	dressed := dress(f, p.file)
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return writeError(path, err)
	}
	if dressed != nil {
		return &WriteError{Path: path, Problem: "the file there belongs to another user, and a new one cannot be given to them", Err: dressed}
	}
	return nil
}

// checkFile refuses to replace what is not known to be ours to replace. A
// rename would not ask: it needs no leave of the file, only of its folder.
func (p place) checkFile() error {
	if p.isDir {
		return nil
	}
	info, err := os.Stat(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return writeError(p.file, err)
	}
	// The superuser may write anywhere; a file without any leave to write is
	// protected on purpose all the same.
	f, err := os.OpenFile(p.file, os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	if info.Mode().Perm()&0o222 == 0 || err != nil {
		return &WriteError{Path: p.file, Problem: "the file there is read-only", Err: err}
	}
	if info.Size() == 0 {
		return nil
	}
	if _, err := ReadFile(p.file); err != nil {
		problem := err.Error()
		var r *ReadError
		if errors.As(err, &r) {
			problem = r.Problem
		}
		return &WriteError{Path: p.file, Problem: "the file there is no record that this program reads, so it is kept: it " + problem, Err: err}
	}
	return nil
}

// place is a path resolved: a folder, and a file in it unless isDir.
type place struct {
	dir, file string
	isDir     bool
}

const notAFile = "it is neither a file nor a folder"

func locate(path string) (place, error) {
	if path == "" {
		return place{}, &WriteError{Path: `""`, Problem: "the name is empty"}
	}
	// A rename would otherwise replace the link instead of the file.
	if resolved := FollowLinks(path); resolved != path && resolved != filepath.Clean(path) {
		return locate(resolved)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return place{dir: filepath.Clean(path), isDir: true}, nil
	case err == nil && !info.Mode().IsRegular():
		return place{}, &WriteError{Path: path, Problem: notAFile}
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
		problem = absence(filepath.Dir(strings.TrimRight(path, string(os.PathSeparator))))
	}
	return &WriteError{Path: path, Problem: problem, Err: err}
}

// absence says what "no such file" means for a file to be made in dir.
func absence(dir string) string {
	_, lost := os.Getwd()
	switch _, err := os.Stat(dir); {
	case !filepath.IsAbs(dir) && lost != nil:
		return "the working folder does not exist any more"
	case err == nil:
		return fmt.Sprintf("the folder %s takes no new files", dir)
	}
	return fmt.Sprintf("the folder %s does not exist", dir)
}

// createTemporary makes a file of a name that nothing else has, with the
// permissions that new files get.
func createTemporary(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, ".trbench-"+salt()+".tmp"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// dress gives f the permissions and the owner of the file it will replace, if
// there is one.
func dress(f *os.File, file string) error {
	if file == "" {
		return nil
	}
	old, err := os.Stat(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	is, also := now.Sys().(*syscall.Stat_t)
	if ok && also && (was.Uid != is.Uid || was.Gid != is.Gid) {
		if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(old.Mode().Perm())
}

// uniqueName is a file name with the time, for people, and 64 random bits,
// for runs that start in the same second.
func uniqueName(t time.Time) string {
	return fmt.Sprintf("trbench-%s-%s.json", t.UTC().Format("20060102T150405Z"), salt())
}

// NewName makes a folder, if need be, and names a file in it that simultaneous
// runs do not share, as [Write] to a folder would. The error is a [*WriteError].
func NewName(dir string, created time.Time) (string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", writeError(dir, err)
	}
	return filepath.Join(dir, uniqueName(created)), nil
}

// salt is 64 random bits in hexadecimal.
func salt() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}

// replace writes b under a temporary name, syncs and renames it. On failure
// the temporary file is removed and the target is as it was.
func replace(dir, file string, b []byte) (err error) {
	f, err := createTemporary(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = fill(f, b); err == nil {
		err = dress(f, file)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	// A rename would put a file in the place of a device, which other programs
	// then write to. It was looked at before; this is the last moment.
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return errors.New(notAFile)
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
