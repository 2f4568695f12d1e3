package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
)

func started(t *testing.T, dir string) {
	t.Helper()
	if code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, "run", "--batch=2", "--out=r.json"); code != 0 {
		t.Fatal(code, stderr)
	}
}

// A record has one writer: the second is told of the first, in one sentence,
// and nothing is lost.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	started(t, dir)
	interrupt(t, file)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	running, goOn := make(chan bool), make(chan bool)
	engine := fakeEngine()
	engine.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		if r.Process == 1 {
			running <- true
			<-goOn
		}
		return fakeCell(ctx, r)
	}
	type end struct {
		code   int
		stderr string
	}
	first := make(chan end)
	go func() {
		code, _, stderr := invoke(t, t.Context(), engine, dir, "run", "--resume=r.json", "--progress")
		first <- end{code, stderr}
	}()
	<-running
	for _, args := range [][]string{{"run", "--resume=r.json"}, {"run", "--batch=2", "--out=r.json"}} {
		code, _, stderr := invoke(t, t.Context(), fakeEngine(), dir, args...)
		if code != exitUsage || !strings.Contains(stderr, "r.json is being written by another run (process ") {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
		t.Errorf("the record changed: %v", err)
	}
	close(goOn)
	if e := <-first; e.code != 0 || !strings.Contains(e.stderr, "kept 1 of 3 replicates\n") {
		t.Errorf("the first: %+v", e)
	}
	entries, _ := os.ReadDir(dir)
	if r, err := results.ReadFile(file); err != nil || len(r.Cells[0].Processes) != 3 || len(entries) != 1 {
		t.Errorf("%v, %v", err, entries)
	}
}

// A lock ends with its process, however that ends, and also where the file
// stays.
func TestLockOfTheDead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip(err)
	}
	holder := exec.Command(flock, filepath.Join(dir, ".r.json.lock"), "-c", "echo held; exec sleep 60")
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if l, err := lockFile(file); err == nil || err.Error() != "is being written by another run" {
		t.Fatalf("%v, %v", l, err)
	}
	_ = syscall.Kill(-holder.Process.Pid, syscall.SIGKILL)
	_ = holder.Wait()
	for i := 0; ; i++ {
		l, err := lockFile(file)
		if err == nil && l != nil {
			l.release()
			break
		}
		if i == 100 {
			t.Fatalf("%v, %v", l, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	wantEmpty(t, dir)
}

// Modes that disagree later leave what was there before the run: nothing, a
// record of before, or, in a resumed run, its own earlier timings, of which it
// then says what they are.
func TestDisagreementLater(t *testing.T) {
	engine := fakeEngine()
	engine.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		if r.Process == 1 {
			r.Cell.Batch = 13
		}
		return fakeCell(ctx, r)
	}
	fresh := []string{"run", "--batch=2", "--out=r.json"}
	t.Run("nothing", func(t *testing.T) {
		dir := t.TempDir()
		code, _, stderr := invoke(t, t.Context(), engine, dir, fresh...)
		if code != exitDisagree || !strings.Contains(stderr, "hint: no timing was written; ") {
			t.Errorf("exit %d, %s", code, stderr)
		}
		wantEmpty(t, dir)
	})
	t.Run("a record of before", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "r.json")
		started(t, dir)
		before, _ := os.ReadFile(file)
		code, _, stderr := invoke(t, t.Context(), engine, dir, fresh...)
		if now, err := os.ReadFile(file); err != nil || string(now) != string(before) || code != exitDisagree {
			t.Errorf("exit %d, %s; %v", code, stderr, err)
		}
	})
	t.Run("resumed", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "r.json")
		started(t, dir)
		interrupt(t, file)
		code, _, stderr := invoke(t, t.Context(), engine, dir, "run", "--resume=r.json")
		if code != exitDisagree || !strings.Contains(stderr, "hint: r.json keeps timings of modes that now disagree: do not use them;") {
			t.Errorf("exit %d, %s", code, stderr)
		}
		if r, err := results.ReadFile(file); err != nil || len(r.Cells[0].Processes) != 1 {
			t.Errorf("%v", err)
		}
	})
}

// A record that cannot be stored any more is left as it was stored last, and
// the sentence says what that holds and how to go on.
func TestStorageFailsLater(t *testing.T) {
	for _, test := range []struct{ name, flag, word string }{{"a new run", "--out=r.json", "1 of 3"}, {"resumed", "--resume=r.json", "2 of 3"}} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file, away := filepath.Join(dir, "r.json"), filepath.Join(dir, "away")
			args, at := []string{"run", "--batch=2", test.flag}, 1
			if strings.HasPrefix(test.flag, "--resume") {
				started(t, dir)
				interrupt(t, file)
				args, at = []string{"run", test.flag}, 2
			}
			engine := fakeEngine()
			engine.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
				if r.Process == at { // the file becomes one that no file may replace
					if err := errors.Join(os.Rename(file, away), syscall.Mkfifo(file, 0o600)); err != nil {
						t.Error(err)
					}
				}
				return fakeCell(ctx, r)
			}
			code, _, stderr := invoke(t, t.Context(), engine, dir, args...)
			flag, _, _ := strings.Cut(test.flag, "=")
			want := []string{"trbench: " + flag + " cannot write ", "hint: " + test.word + " processes are kept in r.json; once it can be written again, trbench run --resume=r.json goes on from there\n"}
			for _, w := range want {
				if code != exitUsage || !strings.Contains(stderr, w) {
					t.Errorf("exit %d, %s; want %q", code, stderr, w)
				}
			}
			if r, err := results.ReadFile(away); err != nil || len(r.Cells[0].Processes) != at {
				t.Errorf("%v", err)
			}
		})
	}
}
