package cli

import (
	"errors"
	"flag"
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
	"github.com/tech-renaissance/trbench/results/history"
)

// TestREADMENightly runs the README's section on nights, its configuration, its
// commands and the script of its crontab, over an engine that invents figures.
func TestREADMENightly(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Guard every night\n")
	section, _, _ = strings.Cut(section, "\n## ")
	block := func(kind string) string {
		_, rest, found := strings.Cut(section, "```"+kind+"\n")
		body, _, ended := strings.Cut(rest, "```")
		if !found || !ended {
			t.Fatalf("no %s block", kind)
		}
		return body
	}
	g := newGuarded(t, block("yaml"))
	ran := 0
	for line := range strings.Lines(block("sh")) {
		command, _, _ := strings.Cut(line, " #")
		rest, ok := strings.CutPrefix(strings.TrimSpace(command), goRun+" ")
		if !ok {
			t.Fatalf("%q", line)
		}
		args := strings.Fields(strings.ReplaceAll(rest, `"known to be good"`, "known"))
		want := exitOK
		if ran == 0 {
			want = exitInconclusive
		}
		g.do(want, args...)
		g.now = g.now.AddDate(0, 0, 1)
		ran++
	}
	if files, _ := filepath.Glob(filepath.Join(g.dir, "trends", "*.svg")); ran != 5 || len(files) == 0 {
		t.Errorf("%d commands, %v", ran, files)
	}
	fields := strings.Fields(block("crontab"))
	if len(fields) != 8 || !strings.HasSuffix(fields[5], "/scripts/nightly.sh") {
		t.Errorf("%q", fields)
	}
}

// The script of the crontab is quiet when all is well, and says what is wrong
// where the program's exit code does.
func TestNightlyScript(t *testing.T) {
	script, err := filepath.Abs(filepath.Join("..", "..", "scripts", "nightly.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "nightly.yaml")
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	call := func(args ...string) (int, string) {
		cmd := exec.Command("bash", append([]string{script}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for code, want := range map[int]string{
		0: "", 1: "trbench: slower than the baseline, and confirmed\n\nsaid --config=" + config, 2: "trbench: the night could not", 3: "trbench: no verdict", 4: "trbench: modes disagree", 130: "trbench: ended with 130",
	} {
		stub := put("stub", fmt.Sprintf("#!/bin/sh\n[ \"$1\" = nightly ] && echo said \"$2\"\nexit %d\n", code), 0o777)
		got, out := call(config, stub)
		if got != code || !strings.HasPrefix(out, want) || want == "" && out != "" {
			t.Errorf("exit %d, want %d: %q", got, code, out)
		}
	}
	// Killed once, it goes on.
	stub := put("stub", "#!/bin/sh\n[ -e once ] && exit 0\ntouch once\nkill -9 $$\n", 0o777)
	if got, out := call(config, stub); got != 0 || out != "" {
		t.Errorf("exit %d: %q", got, out)
	}
	if got, out := call(); got != 2 || !strings.HasPrefix(out, "usage: ") {
		t.Errorf("exit %d: %q", got, out)
	}
	for i := range 70 {
		put(filepath.Join("nightly-logs", fmt.Sprintf("20200101T0000%02dZ-1.log", i)), "", 0o666)
	}
	// And with the program itself, on a real history.
	put("nightly.yaml", "run: --batch=1 --mode=eager\nsentinel: {off: true}\n", 0o666)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	faked := filepath.Join(dir, "faked")
	if err := os.Symlink(self, faked); err != nil {
		t.Fatal(err)
	}
	if got, out := call(config, faked); got != exitInconclusive || !strings.Contains(out, "there is no baseline to compare with") {
		t.Errorf("exit %d: %s", got, out)
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "nightly-logs", "*.log")); len(logs) != 60 {
		t.Errorf("%d logs", len(logs))
	}
}

// SIGKILL of a real night at random moments, and again while it goes on: what
// is finished is neither lost nor run again, and the night is stored once.
func TestNightKilled(t *testing.T) {
	moments := *kills
	if testing.Short() {
		moments = min(moments, 3)
	}
	k := &killable{t: t, dir: t.TempDir()}
	const amounts = "--workload=golden-tiny --batch=1 --mode=eager --quick --steps=2 --blocks=1"
	config := "run: " + amounts + " --processes=4\nconfirm_processes: 4\nsentinel:\n  run: " + amounts + "\n  processes: 4\n"
	if err := os.WriteFile(filepath.Join(k.dir, "nightly.yaml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	night := func() (*exec.Cmd, func() string) {
		cmd, errs := k.start("nightly", "--config=nightly.yaml")
		return cmd, errs.String
	}
	begin := time.Now()
	cmd, said := night()
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInconclusive {
		t.Fatalf("exit %d: %s", cmd.ProcessState.ExitCode(), said())
	}
	whole := time.Since(begin)
	seed := uint64(time.Now().UnixNano())
	t.Logf("a whole night takes %v; seed %d", whole, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nights := 1
	begun := false // a night is under way
	kept := map[string]string{}
	check := func(where string) {
		now := k.replicates()
		for name, was := range kept {
			if is, there := now[name]; there && is != was {
				t.Errorf("%s: %s was %s and is %s", where, name, was, is)
			}
		}
		kept = now
		if n := k.nights(); n != nights {
			t.Errorf("%s: %d nights, want %d", where, n, nights)
		}
	}
	for i := range moments {
		cmd, said := night()
		time.Sleep(time.Duration(rng.Int64N(int64(whole))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		begun = true
		if cmd.ProcessState.Exited() { // before the signal
			if cmd.ProcessState.ExitCode() != exitInconclusive {
				t.Fatalf("exit %d: %s", cmd.ProcessState.ExitCode(), said())
			}
			nights++
			begun = false
		} else if k.nights() == nights+1 {
			// Stored, but not ended: the next one ends it, and stores it no more.
			nights++
		}
		check(fmt.Sprintf("kill %d", i))
	}
	if begun {
		before := nights
		cmd, said := night()
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInconclusive {
			t.Fatalf("exit %d: %s", cmd.ProcessState.ExitCode(), said())
		}
		if nights = k.nights(); nights < before || nights > before+1 {
			t.Errorf("%d nights, and %d before the last", nights, before)
		}
	}
	s, err := history.Reindex(filepath.Join(k.dir, defaultHistory))
	if err != nil || len(s.Missing) > 0 || s.Nights() != nights {
		t.Fatalf("%v, %d nights of %d", err, s.Nights(), nights)
	}
	list, err := s.List()
	_ = s.Close()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, b := range list {
		if seen[b.ID] {
			t.Errorf("night %s is stored twice", b.ID)
		}
		seen[b.ID] = true
	}
	if left, _ := filepath.Glob(filepath.Join(k.dir, defaultHistory, "*", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// nights is how many files of nights there are.
func (k *killable) nights() int {
	files, _ := filepath.Glob(filepath.Join(k.dir, defaultHistory, "nights", "0*"))
	return len(files)
}

// replicates are the finished ones of the night under way, by record and
// process, with what tells one run of them from another.
func (k *killable) replicates() map[string]string {
	out := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(k.dir, defaultHistory, "tonight", "*.json"))
	for _, f := range files {
		if filepath.Base(f) == "state.json" {
			continue
		}
		r, err := results.ReadFile(f)
		if err != nil {
			k.t.Errorf("a record is damaged: %v", err)
			continue
		}
		for _, c := range r.Cells {
			for _, p := range c.Processes {
				name := r.Created.String() + " " + filepath.Base(f) + " " + strconv.Itoa(p.Index)
				if out[name] != "" {
					k.t.Errorf("%s is there twice", name)
				}
				out[name] = fmt.Sprint(p.PID, p.Ns)
			}
		}
	}
	return out
}

// A disk that is full ends the night with exit 2 and a word; with room it goes
// on, and nothing is lost.
func TestNightOnAFullDisk(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	dir := filepath.Join(g.dir, "results")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=300k"); err != nil {
		t.Skipf("tmpfs cannot be mounted here (%v); results/history has a test with a write that fails", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	g.night(exitUsage)
	g.has(g.stderr, "no space left on device")
	ended := g.cells
	if ended == 0 || ended >= 16+4*8+24 {
		t.Errorf("%d replicates", ended)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	g.now = g.now.AddDate(0, 0, -1)
	g.night(exitInconclusive)
	g.has(g.stderr, "going on with the night")
	if list := g.briefs(); len(list) != 1 || list[0].Sentinel == nil {
		t.Errorf("%+v", list)
	}
	t.Logf("%d replicates until it was full, %d in all", ended, g.cells)
}

var kills = flag.Int("kills", 6, "random moments at which a night is killed; 50 take minutes")

var forReal = flag.Bool("guard-for-real", false, "run the guard's own test on the CPU device, which takes minutes and needs a machine with nothing else to do")

// TestGuardForReal is the guard on real figures of the CPU device: a run of the
// same program is never called slower, and a slowdown of max(5 %, 5 x noise) is
// confirmed. Noise may grow between its measurement and the slowdown's, on a
// machine that others use as well: then one night of five may end in doubt, but
// none may call the slowed row the same. It asserts no time.
func TestGuardForReal(t *testing.T) {
	if !*forReal {
		t.Skip("takes minutes: go test ./internal/cli -run GuardForReal -guard-for-real -v -timeout=30m")
	}
	k := &killable{t: t, dir: t.TempDir()}
	const amounts = "--workload=golden-tiny --batch=2 --mode=eager --steps=20 --blocks=6"
	config := "run: " + amounts + " --processes=8\nsentinel:\n  run: " + amounts + "\n"
	if err := os.WriteFile(filepath.Join(k.dir, "nightly.yaml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	const nights = 5
	for range nights {
		cmd, errs := k.start("nightly", "--config=nightly.yaml")
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInconclusive {
			t.Fatalf("exit %d: %s", cmd.ProcessState.ExitCode(), errs)
		}
	}
	s, err := history.Open(filepath.Join(k.dir, defaultHistory), false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	confirmed := 0
	for _, b := range list {
		x := b.Sentinel
		if x == nil {
			t.Fatalf("night %d has no sentinel: %v", b.Sequence, b.Warnings)
		}
		t.Logf("night %d: noise %.2f %%, slowed by %.1f %%: %s; null: %s", b.Sequence, 100*x.Noise, 100*x.Factor, told(x.Injected), told(x.Null))
		if x.Null.Final {
			t.Errorf("night %d: a run of the same program was called slower: %s", b.Sequence, x.Null.Why)
		}
		switch {
		case x.Injected.Final:
			confirmed++
		case x.Injected.Verdict != results.Ambiguous:
			t.Errorf("night %d: the slowed row was called %s: %s", b.Sequence, x.Injected.Verdict, x.Injected.Why)
		default:
			t.Logf("night %d: the slowdown was not confirmed: %s", b.Sequence, x.Injected.Why)
		}
	}
	if confirmed < nights-1 {
		t.Errorf("%d of %d slowdowns were confirmed", confirmed, nights)
	}
}
