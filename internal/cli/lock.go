package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tech-renaissance/trbench/results"
)

// fileLock keeps two runs from writing one record: each would lose what the
// other adds. It is a lock on a file beside the record, since the record itself
// is replaced whenever it is stored. The kernel drops it with the process,
// however that ends, and a worker does not inherit it. What it cannot be had
// for, such as a file system without locks, goes on without.
type fileLock struct{ f *os.File }

// heldError says that another process writes the record.
type heldError struct{ pid string } // may be empty

func (e *heldError) Error() string {
	if e.pid == "" {
		return "is being written by another run"
	}
	return fmt.Sprintf("is being written by another run (process %s)", e.pid)
}

// lockFile locks a record's file, which need not exist yet. The error is a
// [*heldError]; a nil lock is none, and can be released.
func lockFile(file string) (*fileLock, error) {
	file = results.FollowLinks(file)
	name := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".lock")
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, nil // whoever writes the record will say what is wrong
		}
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			pid, _ := io.ReadAll(io.LimitReader(f, 20))
			_ = f.Close()
			return nil, &heldError{strings.TrimSpace(string(pid))}
		case err != nil:
			_ = f.Close()
			_ = os.Remove(name)
			return nil, nil
		}
		if same(f, name) {
			_ = f.Truncate(0)
			_, _ = fmt.Fprintln(f, os.Getpid()) // for the message alone
			return &fileLock{f}, nil
		}
		_ = f.Close() // it was removed before it was locked
	}
}

// same says whether a file is still the one of that name.
func same(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(name)
	return err == nil && os.SameFile(a, b)
}

// release removes the file first: while it is locked nobody else has it.
func (l *fileLock) release() {
	if l != nil {
		_ = os.Remove(l.f.Name())
		_ = l.f.Close()
	}
}
