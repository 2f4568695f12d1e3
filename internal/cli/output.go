package cli

import (
	"errors"
	"io"
	"io/fs"
	"sync"
)

// outputError is stdout failing: what was asked for did not arrive.
type outputError struct {
	err  error
	kept string // the file that has the record all the same; may be empty
}

func (e *outputError) Error() string {
	cause := e.err
	var p *fs.PathError
	if errors.As(cause, &p) {
		cause = p.Err
	}
	return "stdout: " + cause.Error()
}

func (e *outputError) Unwrap() error { return e.err }

// watched remembers the first failure to write. Not everything that prints
// says so: help texts do not.
type watched struct {
	w    io.Writer
	mu   sync.Mutex
	fail error
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fail == nil {
			w.fail = err
		}
	}
	return n, err
}

// failed is the first failure.
func (w *watched) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fail
}

// failure is what a command's end means, once the failure of its output counts.
// What is worse than lost output stays.
func (w *watched) failure(err error) error {
	var known *outputError
	fail := w.failed()
	switch code := exitCode(err); {
	case fail == nil, errors.As(err, &known), code == exitDisagree, code == exitInterrupted:
		return err
	}
	return &outputError{err: fail}
}
