package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tech-renaissance/trbench/results"
)

// The process of a replicate reads one [CellRequest] as JSON from stdin, which
// its parent then keeps open: its end means that the parent is gone. It writes
// one [Event] a line to stdout, in the end a cell, a disagreement or a failure.
// What it writes to stderr is shown only if it dies.

// RunCell runs one replicate. No error leaves a cell behind.
type RunCell func(context.Context, CellRequest) (*results.Cell, error)

// graceAfterCancel is how long a replicate may take to end when it is no longer
// wanted.
const graceAfterCancel = 3 * time.Second

// Serve is the whole life of a replicate's process: one request in, events out.
// What goes wrong in the cell is said there; the error is of what is around it.
// It may return before run does if ctx ends or the parent is gone; the process
// then ends with it.
func Serve(ctx context.Context, in io.Reader, out io.Writer, run RunCell) error {
	var req CellRequest
	requests := json.NewDecoder(in)
	if err := requests.Decode(&req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errors.New("the parent process is gone"))
	}()
	lines := json.NewEncoder(out) // one write a line
	var lost error
	tell := func(e Event) {
		if err := lines.Encode(e); err != nil && lost == nil {
			lost = fmt.Errorf("tell the parent: %w", err)
			cancel(lost)
		}
	}
	req.Events = tell
	type outcome struct {
		cell *results.Cell
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		cell, err := phased(run, System())(ctx, req)
		done <- outcome{cell, err}
	}()
	var got outcome
	select {
	case got = <-done:
	case <-ctx.Done():
		select {
		case got = <-done:
		case <-time.After(graceAfterCancel):
			// Nobody waits for an answer, and the process ends with this.
			return context.Cause(ctx)
		}
	}
	cell, err := got.cell, got.err
	var d *DisagreementError
	switch {
	case lost != nil:
		return lost
	case errors.As(err, &d):
		tell(Event{Disagreement: d})
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		tell(Event{Failure: fmt.Sprintf("the worker process was told to end: %v", context.Cause(ctx))})
	case err != nil:
		tell(Event{Failure: err.Error()})
	default:
		tell(Event{Cell: withoutSamples(cell)})
	}
	return lost
}

// withoutSamples drops what was told already.
func withoutSamples(c *results.Cell) *results.Cell {
	out := *c
	out.Configurations = nil
	for _, x := range c.Configurations {
		x.Metrics = nil
		out.Configurations = append(out.Configurations, x)
	}
	return &out
}

// Replicate is what became of a replicate's process.
type Replicate struct {
	Cell *results.Cell
	PID  int
}

// DeathError is a worker process that ended without an answer.
type DeathError struct {
	// Phase is what it said last that it would do; empty for nothing.
	Phase  string
	State  string // "signal: killed", "exit status 2"
	Stderr string // its end; may be empty
}

func (e *DeathError) Error() string {
	text := "the worker process died: " + e.State
	if e.Phase != "" {
		text += fmt.Sprintf(" (at %q)", e.Phase)
	}
	if e.Stderr != "" {
		text += "; its last words: " + e.Stderr
	}
	return text
}

// Command starts replicates as processes.
type Command struct {
	Path string
	Args []string // with the program's name in front
	Dir  string
}

// Run starts a process for the request and waits for its end. Its events go
// to req.Events. When ctx ends, the process and all it started are killed.
func (c Command) Run(ctx context.Context, req CellRequest) (Replicate, error) {
	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Args, cmd.Dir = c.Args, c.Dir
	// A group of its own: Ctrl-C in a terminal reaches the parent alone, which
	// then kills the group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	words := &tail{}
	cmd.Stderr = words
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Replicate{}, fmt.Errorf("start a worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Replicate{}, fmt.Errorf("start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Replicate{}, fmt.Errorf("start a worker: %w", err)
	}
	got := Replicate{PID: cmd.Process.Pid}
	sendErr := json.NewEncoder(stdin).Encode(req) // of a worker that died before it read; said below
	answer, readErr := listen(stdout, req)
	if readErr != nil {
		_ = cmd.Cancel() // it may be blocked on a pipe nobody reads
	}
	waitErr := cmd.Wait()
	_ = stdin.Close()
	switch {
	case ctx.Err() != nil:
		return got, ctx.Err()
	case readErr != nil:
		return got, readErr
	case answer.err != nil:
		return got, answer.err
	case waitErr != nil || answer.cell == nil || sendErr != nil:
		return got, &DeathError{Phase: answer.phase, State: cmd.ProcessState.String(), Stderr: words.String()}
	}
	got.Cell = answer.cell
	return got, nil
}

// answer is how a replicate ended, by its own account.
type answer struct {
	phase string // the last that it told of
	cell  *results.Cell
	err   error
}

// listen reads events to the end of the stream and puts the samples into the
// cell that comes last.
func listen(in io.Reader, req CellRequest) (answer, error) {
	var a answer
	samples := newSampleSet(len(req.Configurations), req.Process)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			// Half a line is what a killed process leaves.
			return a, nil
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return a, fmt.Errorf("the worker said what is no event: %.80q", line)
		}
		if e.Phase != "" {
			a.phase = e.Phase
		}
		switch {
		case e.Taken != nil && !samples.add(*e.Taken):
			return a, fmt.Errorf("the worker measured configuration %d, which it was not asked for", e.Taken.Configuration)
		case e.Disagreement != nil:
			a.err = e.Disagreement
		case e.Failure != "":
			a.err = errors.New(e.Failure)
		case e.Cell != nil:
			if len(e.Cell.Configurations) != len(req.Configurations) {
				return a, errors.New("the worker's cell has other configurations than it was asked for")
			}
			for i := range e.Cell.Configurations {
				e.Cell.Configurations[i].Metrics = samples.metrics(i)
			}
			a.cell = e.Cell
		}
		if req.Events != nil && e.Cell == nil {
			req.Events(e)
		}
	}
}

// tail keeps the end of what is written to it, as lines, and the line in which a
// Go program says why it dies: the stack traces after it may be long.
type tail struct {
	now   line     // not ended yet
	lines []string // the last ones, none empty
	cause string
}

// tailLines of stderr are kept in a record; beforeSignal of them stand before a
// signal's name, since what aborts says why first.
const (
	tailLines    = 6
	beforeSignal = 2
)

// deaths begin the line in which Go's runtime says why the program dies.
var deaths = regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z0-9]+: )`)

func (t *tail) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		at := bytes.IndexAny(rest, "\r\n") // a progress bar's lines end in \r
		if at < 0 {
			t.now.add(rest)
			break
		}
		t.now.add(rest[:at])
		t.end()
		rest = rest[at+1:]
	}
	return len(b), nil
}

// end ends a line.
func (t *tail) end() {
	text := t.now.String()
	t.now = line{}
	if text == "" {
		return
	}
	if t.cause == "" && deaths.MatchString(text) {
		before := t.lines[max(0, len(t.lines)-beforeSignal):]
		if !strings.HasPrefix(text, "SIG") {
			before = nil
		}
		t.cause = strings.Join(append(slices.Clone(before), text), " | ")
	}
	t.lines = append(t.lines, text)
	t.lines = t.lines[max(0, len(t.lines)-tailLines):]
}

// String is the cause, or else the last lines, as one line.
func (t *tail) String() string {
	done := tail{now: t.now, lines: slices.Clone(t.lines), cause: t.cause}
	done.end() // what has no newline yet
	if done.cause != "" {
		return done.cause
	}
	return strings.Join(done.lines, " | ")
}

// line is one of any length, of which begin and end are kept.
type line struct {
	head, last []byte
	cut        bool // something between them is gone
}

// lineBytes are kept of each end of a line.
const lineBytes = 256

func (l *line) add(b []byte) {
	if n := min(lineBytes-len(l.head), len(b)); n > 0 {
		l.head, b = append(l.head, b[:n]...), b[n:]
	}
	if over := len(b) - lineBytes; over > 0 {
		b, l.cut, l.last = b[over:], true, nil
	}
	l.last = append(l.last, b...)
	if over := len(l.last) - lineBytes; over > 0 {
		l.last, l.cut = slices.Clone(l.last[over:]), true
	}
}

// String is printable text in one line: what is not stands as a space.
func (l *line) String() string {
	text := string(l.head) + string(l.last)
	if l.cut {
		text = string(l.head) + " ... " + string(l.last)
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
