package write

import (
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// File writes a timeline to path as Chrome JSON, packed if the name ends in .gz:
// under a temporary name beside it, synced and renamed, so that a reader sees
// the whole trace or none. A file that is there is replaced and keeps its
// permissions; a link is followed; what is no file is refused.
func File(path string, x *timeline.Index) error {
	if err := file(path, x); err != nil {
		return fmt.Errorf("write trace %s: %w", path, err)
	}
	return nil
}

func file(path string, x *timeline.Index) (err error) {
	path = results.FollowLinks(path)
	old, err := os.Stat(path)
	switch {
	case err == nil && !old.Mode().IsRegular():
		return errors.New("it is no file")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// Not os.CreateTemp, whose files are their owner's alone.
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // documented never to fail
	name := filepath.Join(filepath.Dir(path), temporaryPrefix(path)+hex.EncodeToString(salt[:])+temporarySuffix)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(name)
		}
	}()
	err = pour(f, strings.HasSuffix(path, ".gz"), x)
	if err == nil && old != nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(name, path)
}

// The name of a temporary file is that of its file between these, so that it can
// be told whose it is.
const (
	saltBytes       = 8
	temporarySuffix = ".tmp"
	longestBase     = 200 // a name has at most 255 bytes
)

func temporaryPrefix(path string) string {
	base := filepath.Base(path)
	return "." + base[:min(len(base), longestBase)] + "."
}

// Discard removes what [File] leaves beside path if its process is killed. No
// process may be writing that file.
func Discard(path string) error {
	path = results.FollowLinks(path)
	dir, prefix := filepath.Dir(path), temporaryPrefix(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		salt, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		salt, ok = strings.CutSuffix(salt, temporarySuffix)
		if _, err := hex.DecodeString(salt); ok && err == nil && len(salt) == 2*saltBytes {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func pour(w io.Writer, packed bool, x *timeline.Index) error {
	if !packed {
		return Chrome(w, x)
	}
	// The fastest level: of 10,000 kernels the default makes a sixth less, in
	// two and a half times the time.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := Chrome(z, x); err != nil {
		return err
	}
	return z.Close()
}
