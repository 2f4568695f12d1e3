package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
)

// measurement is a record that grows process by process in a file of its own,
// so that it can be gone on with after a kill, and alternate with others.
type measurement struct {
	env *Env
	// file has the record; flags are those of run without processes and out.
	file  string
	flags []string
	// program is another trbench that measures; empty for this one.
	program string
	inject  *results.Injection
	// loud shows what run says of its progress; else its words are shown if it
	// fails.
	loud bool
}

// ofBase says that a program other than this one measures, which is base's.
func (m *measurement) ofBase() bool { return m.program != "" }

// record reads what there is; nil for nothing yet.
func (m *measurement) record() (*results.Record, error) {
	switch info, err := os.Stat(m.file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular(): // a pipe waits for someone who writes it
		return nil, &results.ReadError{File: m.file, Problem: "is no regular file"}
	}
	return results.ReadFile(m.file)
}

// upTo measures until there are so many processes. Failed cells are no error:
// the record says so.
func (m *measurement) upTo(ctx context.Context, processes int) error {
	r, err := m.record()
	if err != nil {
		return err
	}
	words := append(slices.Clone(m.flags), fmt.Sprintf("--processes=%d", processes), "--out="+m.file)
	switch {
	case r == nil:
	case r.Plan == nil || r.Plan.Processes > processes || r.Status == results.Complete && r.Plan.Processes == processes:
		return nil
	default:
		words = []string{"--resume=" + m.file, fmt.Sprintf("--processes=%d", processes)}
	}
	var said bytes.Buffer
	env := *m.env
	if !m.loud {
		env.Stderr, env.Terminal = &said, false
	}
	if m.ofBase() {
		err = m.other(ctx, &env, words)
	} else {
		err = m.own(ctx, &env, words)
	}
	var failed *bench.FailedError
	if errors.As(err, &failed) {
		return nil
	}
	if err != nil {
		_, _ = m.env.Stderr.Write(said.Bytes())
	}
	return err
}

// own runs trbench run in this process, whose workers are processes.
func (m *measurement) own(ctx context.Context, env *Env, words []string) error {
	env.Stdout, env.StdoutLost = io.Discard, false
	env.Args = append([]string{"run"}, words...)
	cmd, o := runCommand(env)
	o.inject = m.inject
	cmd.SetArgs(words)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(ctx)
}

// programError says that another trbench did not measure.
type programError struct{ program, reason string }

func (e *programError) Error() string { return e.program + " " + e.reason }

// other runs trbench run of another build. It ends with this process, however
// that ends. The error is a [*programError], or the context's.
func (m *measurement) other(ctx context.Context, env *Env, words []string) error {
	start := env.RunProgram
	if start == nil {
		start = env.startProgram
	}
	err := start(ctx, m.program, append([]string{"run"}, words...))
	var exit interface{ ExitCode() int }
	failed := errors.As(err, &exit) && exit.ExitCode() == exitFailure // of cells: the record says so
	_, missing := os.Stat(m.file)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case (err == nil || failed) && missing != nil:
		return &programError{m.program, "left no record"}
	case failed:
		return nil
	case err != nil:
		return &programError{m.program, fmt.Sprintf("ended without success (%v)", err)}
	}
	return nil
}

func (e *Env) startProgram(ctx context.Context, program string, words []string) error {
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.WorkDir, io.Discard, e.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceAfterInterrupt
	// The signal comes with the end of the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// alternate brings measurements to so many processes each, one process of each
// after another, in turns that begin with the other end: what drifts drifts on
// all. It stops, and says how far it came, where the next turn would not end in
// the time that left tells; nil is any time.
func alternate(ctx context.Context, list []*measurement, processes int, left func() (time.Duration, bool)) (done int, err error) {
	longest := time.Duration(0)
	for k := 1; k <= processes; k++ {
		begin := time.Now()
		if rest, limited := left(); limited && (rest <= 0 || rest < longest) {
			return k - 1, nil
		}
		order := slices.Clone(list)
		if k%2 == 0 {
			slices.Reverse(order)
		}
		for _, m := range order {
			if err := m.upTo(ctx, k); err != nil {
				return k - 1, fmt.Errorf("measure %s: %w", filepath.Base(m.file), err)
			}
		}
		longest = max(longest, time.Since(begin))
	}
	return processes, nil
}
