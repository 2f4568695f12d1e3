package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// killable is a real run of this binary, as small as can be.
type killable struct {
	t    *testing.T
	dir  string
	file string
}

const killProcesses = 3

func (k *killable) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	k.t.Helper()
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"trbench"}, args...)
	cmd.Dir = k.dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	return cmd, &errs
}

func (k *killable) fresh() (*exec.Cmd, *bytes.Buffer) {
	return k.start("run", "--workload=golden-tiny", "--batch=1", "--mode=eager,graph", "--quick", "--steps=2",
		"--processes="+strconv.Itoa(killProcesses), "--out="+k.file)
}

// finished are the record's finished replicates by index, with what tells one
// run of them from another; nil if there is no record.
func (k *killable) finished() map[int]string {
	r, err := results.ReadFile(filepath.Join(k.dir, k.file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		k.t.Fatalf("the record is damaged: %v", err)
	}
	out := map[int]string{}
	for _, c := range r.Cells {
		for _, p := range c.Processes {
			if p.Status != results.Done {
				continue
			}
			if _, twice := out[p.Index]; twice {
				k.t.Errorf("process %d is in the record twice", p.Index)
			}
			var values []float64
			for _, s := range c.Configurations[0].Metric(results.StepTimeNs).Samples {
				if s.Process == p.Index {
					values = append(values, s.Value)
				}
			}
			out[p.Index] = fmt.Sprint(p.PID, p.Ns, values)
		}
	}
	return out
}

// workerOf finds the process that a parent has running; 0 for none.
func workerOf(parent int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it ended meanwhile
		}
		// After the name in parentheses: state, parent.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid
		}
	}
	return 0
}

// SIGKILL of the parent or of a worker at random moments: what is finished is
// neither lost nor repeated, and --resume does the rest.
func TestKilledAndResumed(t *testing.T) {
	moments := 30
	if testing.Short() {
		moments = 4
	}
	probe := &killable{t, t.TempDir(), "r.json"}
	begin := time.Now()
	cmd, errs := probe.fresh()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	whole := time.Since(begin)
	seed := uint64(time.Now().UnixNano())
	t.Logf("a whole run takes %v; seed %d", whole, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range moments {
		after := time.Duration(rng.Int64N(int64(whole)))
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			k := &killable{t, t.TempDir(), "r.json"}
			k.killed(after, i%2 == 0)
		})
	}
}

func (k *killable) killed(after time.Duration, parent bool) {
	cmd, errs := k.fresh()
	time.Sleep(after)
	victim := cmd.Process.Pid
	child := workerOf(victim)
	if !parent && child != 0 {
		victim = child
	}
	_ = syscall.Kill(victim, syscall.SIGKILL) // it may have ended
	err := cmd.Wait()
	before := k.finished()
	k.t.Logf("after %v killed %s: %v, %d replicates kept", after, map[bool]string{true: "parent", false: "worker"}[victim == cmd.Process.Pid], err, len(before))
	if victim != cmd.Process.Pid && err != nil && !strings.Contains(errs.String(), "the worker process died: signal: killed") {
		k.t.Errorf("it says %q", errs)
	}
	if err != nil {
		k.again(before)
	}
	later := k.finished()
	if len(later) != killProcesses {
		k.t.Errorf("%d replicates in the end", len(later))
	}
	for index, was := range before {
		if later[index] != was {
			k.t.Errorf("replicate %d was %s and is %s", index, was, later[index])
		}
	}
	for i := 0; child != 0 && syscall.Kill(child, 0) == nil; i++ {
		if i == 100 {
			k.t.Fatalf("the worker outlives its parent")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// again runs what is missing.
func (k *killable) again(before map[int]string) {
	var cmd *exec.Cmd
	var errs *bytes.Buffer
	if before == nil && !k.exists() {
		cmd, errs = k.fresh()
	} else {
		cmd, errs = k.start("run", "--resume="+k.file)
	}
	if err := cmd.Wait(); err != nil && !strings.Contains(errs.String(), "is complete: nothing is left to run") {
		k.t.Errorf("again: %v: %s", err, errs)
	}
}

func (k *killable) exists() bool {
	_, err := os.Stat(filepath.Join(k.dir, k.file))
	return err == nil
}

// Ctrl-C in a terminal reaches the parent alone: it kills the worker, keeps
// what is finished and says how to go on.
func TestCtrlC(t *testing.T) {
	k := &killable{t, t.TempDir(), "r.json"}
	cmd, errs := k.fresh()
	for !k.exists() {
		if cmd.ProcessState != nil {
			t.Fatal("it ended")
		}
		time.Sleep(10 * time.Millisecond)
	}
	child := workerOf(cmd.Process.Pid)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() == exitOK {
		t.Skip("it was faster")
	}
	said := errs.String()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(said, "trbench: interrupted; 1 of 3 processes are kept in r.json\n") ||
		!strings.Contains(said, "hint: trbench run --resume=r.json goes on from there\n") {
		t.Errorf("exit %d: %s", code, said)
	}
	if child != 0 && syscall.Kill(child, 0) == nil {
		t.Error("the worker outlives it")
	}
	if n := len(k.finished()); n != 1 {
		t.Errorf("%d replicates kept", n)
	}
}
