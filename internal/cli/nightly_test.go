package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// guarded is a machine whose figures a test sets: nightly runs on it in this
// process.
type guarded struct {
	t   *testing.T
	dir string
	rng *rand.Rand
	now time.Time
	// level multiplies a configuration's times.
	level func(r bench.CellRequest, k results.ConfigurationKey) float64
	// pinnedLevel is the same for the program that is kept with pins; nil is 1. baseEnds,
	// if set, is how that ends before it begins, and replace what is done to it before.
	pinnedLevel func(r bench.CellRequest, k results.ConfigurationKey) float64
	measuredBy  string // the program that measured base last
	baseEnds    error
	replace     func(program string) error
	// before, if set, is called before each replicate.
	before func(r bench.CellRequest) error
	cells  int // replicates that ended
	stderr string
}

const guardedConfig = `
run: --batch=1,2 --mode=eager,graph
sentinel:
  run: --workload=golden-tiny --batch=4 --mode=eager
`

func newGuarded(t *testing.T, config string) *guarded {
	g := &guarded{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(1, 2)), now: time.Date(2026, 5, 1, 2, 0, 0, 0, time.UTC),
		level: func(bench.CellRequest, results.ConfigurationKey) float64 { return 1 }}
	g.configure(config)
	return g
}

func (g *guarded) configure(text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "nightly.yaml"), []byte(text), 0o666); err != nil {
		g.t.Fatal(err)
	}
}

// replicate invents a cell: 0.2 % between processes.
func (g *guarded) replicate(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
	if g.before != nil {
		if err := g.before(r); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &results.Cell{Key: r.Cell, Steps: r.Steps, Blocks: r.Blocks, Variants: []int{r.Cell.Variant}, Verify: results.Verify{Equal: true, Tensors: 1, Steps: 4}}
	for i, k := range r.Configurations {
		x := results.Configuration{Key: k}
		process := g.level(r, k) * (1 + .002*g.rng.NormFloat64())
		for _, m := range []struct {
			name  string
			value float64
		}{{results.StepTimeNs, 1e6}, {results.SubmitTimeNs, 1e5}, {results.LatencyNs, 2e6}} {
			taken := bench.Taken{Configuration: i, Timed: true}
			var samples []results.Sample
			each := 1
			if m.name != results.StepTimeNs {
				each = r.Single
			}
			for b := range r.Blocks * each {
				b /= each
				v := m.value * process * (1 + .001*g.rng.NormFloat64())
				if r.Inject != nil && m.name != results.StepTimeNs {
					v += float64(r.Inject.Ns)
				}
				samples = append(samples, results.Sample{Process: r.Process, Block: b, Value: v})
				taken.Block, taken.Values = b, []bench.Value{{Metric: m.name, Value: v}}
				if r.Events != nil {
					r.Events(bench.Event{Taken: &taken})
				}
			}
			x.Metrics = append(x.Metrics, results.NewMetric(m.name, samples))
		}
		c.Configurations = append(c.Configurations, x)
	}
	g.cells++
	return c, nil
}

func (g *guarded) call(ctx context.Context, args ...string) (code int, stdout string) {
	g.t.Helper()
	engine := fakeEngine()
	engine.RunCell = g.replicate
	var out, errs bytes.Buffer
	env := &Env{Context: ctx, Stdout: &out, Stderr: &errs, Args: args, Getenv: func(string) string { return "" }, WorkDir: g.dir,
		Now: func() time.Time { return g.now }, Engine: engine, Executable: g.executable()}
	env.RunProgram = func(ctx context.Context, program string, words []string) error {
		if filepath.Base(filepath.Dir(program)) != "programs" {
			return env.startProgram(ctx, program, words)
		}
		g.measuredBy = program
		if g.baseEnds != nil {
			return g.baseEnds
		}
		if g.replace != nil {
			if err := g.replace(program); err != nil {
				return err
			}
		}
		base := *g
		base.level = g.pinnedLevel
		if base.level == nil {
			base.level = func(bench.CellRequest, results.ConfigurationKey) float64 { return 1 }
		}
		before := base.cells
		inner := *env
		inner.Context, inner.Args, inner.Stdout, inner.Engine.RunCell = ctx, words, io.Discard, base.replicate
		inner.Executable = program
		code := Main(&inner)
		g.cells += base.cells - before
		if code != exitOK {
			return fmt.Errorf("exit %d", code)
		}
		return nil
	}
	code = Main(env)
	g.stderr = errs.String()
	return code, out.String()
}

// executable is a file that stands for this program's.
func (g *guarded) executable() string {
	name := filepath.Join(g.dir, "trbench-of-tonight")
	if _, err := os.Stat(name); err != nil {
		if err := os.WriteFile(name, []byte("a program"), 0o777); err != nil {
			g.t.Fatal(err)
		}
	}
	return name
}

// night runs one night and expects its exit code; the next is a day later.
func (g *guarded) night(want int) string {
	g.t.Helper()
	code, stdout := g.call(g.t.Context(), "nightly", "--config=nightly.yaml")
	if code != want {
		g.t.Fatalf("exit %d, want %d: %s\n%s", code, want, g.stderr, stdout)
	}
	g.now = g.now.AddDate(0, 0, 1)
	return stdout
}

func (g *guarded) do(want int, args ...string) string {
	g.t.Helper()
	code, stdout := g.call(g.t.Context(), args...)
	if code != want {
		g.t.Fatalf("%v: exit %d, want %d: %s", args, code, want, g.stderr)
	}
	return stdout
}

// base makes three nights and pins them.
func (g *guarded) base() {
	g.t.Helper()
	config, err := os.ReadFile(filepath.Join(g.dir, "nightly.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	run, _, _ := strings.Cut(string(config), "sentinel:")
	g.configure(run + "sentinel: {off: true}\n")
	defer g.configure(string(config))
	for range 3 {
		code := exitInconclusive
		if len(g.briefs()) > 0 {
			code = -1
		}
		got, _ := g.call(g.t.Context(), "nightly", "--config=nightly.yaml")
		if code >= 0 && got != code {
			g.t.Fatalf("exit %d: %s", got, g.stderr)
		}
		g.now = g.now.AddDate(0, 0, 1)
		g.do(0, "baseline", "pin", "last", "--why=good")
	}
}

func (g *guarded) briefs() []history.Brief {
	g.t.Helper()
	s, err := history.Open(filepath.Join(g.dir, defaultHistory), false)
	if os.IsNotExist(unwrapPath(err)) || err != nil && strings.Contains(err.Error(), "no such file") {
		return nil
	}
	if err != nil {
		g.t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List()
	if err != nil {
		g.t.Fatal(err)
	}
	return list
}

func (g *guarded) has(text string, wants ...string) {
	g.t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			g.t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

func onlyEager(by float64) func(bench.CellRequest, results.ConfigurationKey) float64 {
	return func(r bench.CellRequest, k results.ConfigurationKey) float64 {
		if k.Mode == "eager" && r.Cell.Batch == 2 {
			return by
		}
		return 1
	}
}

// A guard's life: no baseline, a baseline, nights that are the same, a bad
// moment, a regression.
func TestNights(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	out := g.night(exitInconclusive)
	g.has(g.stderr, "there is no baseline to compare with", "hint: trbench baseline pin 1 --dir=results/nightly --why=TEXT makes this night one")
	g.has(out, "Night 1\n", "Sentinel, golden-tiny/batch=4/gpus=1/resolution=16/eager/event/device/submit_time_ns: nothing changed: not slower (same); slowed by 5.0 %", "in OPTIMIZER", "slower, confirmed.")
	g.base()
	out = g.night(exitOK)
	g.has(out, "Verdict: same (12 rows: 12 same)", "base: night-2", "head: tonight", "Page: results/nightly/page.html",
		"Over 2 nights, nothing changed, called slower: 0 of 2 at first")

	// A bad moment is over when the confirmation measures.
	turn := 0
	g.level = func(r bench.CellRequest, k results.ConfigurationKey) float64 {
		if turn++; turn <= 4*16 && r.Cell.Workload != "golden-tiny" {
			return onlyEager(1.06)(r, k)
		}
		return 1
	}
	out = g.night(exitOK)
	g.has(out, "not_repeated, again ", "confirming base: confirm-0-base")

	g.level = onlyEager(1.06)
	out = g.night(exitFailure)
	g.has(out, "Verdict: slower (12 rows: 3 slower, 9 same)", "confirmed, again +", "confirming head: confirm-0-head")
	g.has(g.stderr, "confirming 3 slower rows of 1 cell")
	page, err := os.ReadFile(filepath.Join(g.dir, defaultHistory, "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	g.has(string(page), "Night 7: Head is slower than base in 3 of 12 rows, confirmed.", `class="comparison worse"`)
	list := g.briefs()
	if len(list) != 7 || list[6].Verdict != results.Slower || len(list[6].Slower) != 3 || !reflect.DeepEqual(list[6].Base, []string{"night-2", "night-3", "night-4"}) || list[6].Sentinel == nil {
		t.Errorf("%+v", list)
	}
	var roles []string
	for _, k := range list[6].Records {
		roles = append(roles, k.Role)
	}
	if strings.Join(roles, ", ") != "sentinel null base, sentinel null head, sentinel injected base, sentinel injected head, sentinel injected-again base, sentinel injected-again head, head, confirming base, confirming head" {
		t.Errorf("%q", roles)
	}
	if left, _ := filepath.Glob(filepath.Join(g.dir, defaultHistory, "tonight", "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What became slower beside the program is in base's second measurement as well: no
// night fails by it, and none is called well.
func TestMachineSlower(t *testing.T) {
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
	g.base()
	g.level, g.pinnedLevel = onlyEager(1.06), onlyEager(1.06)
	g.has(g.night(exitInconclusive), "Verdict: ambiguous (3 rows: 3 ambiguous)", "base_slower_too, again ")
	// The program alone: base is as it was.
	g.pinnedLevel = nil
	g.has(g.night(exitFailure), "Verdict: slower", "confirmed, again +")
}

// A confirmation that cannot measure base beside head fails no night, and can
// still show that a bad moment is over.
func TestHeadAlone(t *testing.T) {
	for name, lose := range map[string]func(g *guarded){
		"no program": func(g *guarded) {
			for _, pin := range []string{"night-1", "night-2", "night-3"} {
				g.do(0, "baseline", "drop", pin, "--why=x")
				g.has(g.do(0, "baseline", "pin", strings.TrimPrefix(pin, "night-"), "--program=none", "--why=x"), pin+" is pinned, without its program: --program=none\n")
			}
		},
		"a program that ends": func(g *guarded) { g.baseEnds = errors.New("exit status 7") },
		"a program that was replaced": func(g *guarded) {
			g.replace = func(program string) error { return os.WriteFile(program, []byte("another build"), 0o777) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
			g.base()
			lose(g)
			g.level = onlyEager(1.06)
			out := g.night(exitInconclusive)
			g.has(out, "Verdict: ambiguous (3 rows: 3 ambiguous)", "base_not_measured, again +", "[head_measured_again]")
			switch {
			case g.replace != nil:
				g.has(out, "the program of pin night-3, which was to measure base again, was replaced before it did: head is compared with the pinned runs alone [base_not_measured]")
				g.replace = func(string) error { return nil }
				g.do(0, "baseline", "pin", "4", "--why=puts the copy right")
				g.do(0, "baseline", "drop", "night-4", "--why=was for that")
			case g.baseEnds != nil:
				g.has(out, "the program of pin night-3, which was to measure base again, ended without success (exit status 7): head is measured again alone [base_not_measured]")
			default:
				g.has(g.stderr, "no pin has its program, and there is no base_command: base cannot be measured again")
			}
			if list := g.briefs(); list[3].Verdict != results.Ambiguous || len(list[3].Slower) != 0 {
				t.Errorf("%+v", list[3])
			}
			turn := 0
			g.level = func(r bench.CellRequest, k results.ConfigurationKey) float64 {
				if turn++; turn <= 8 {
					return 1.06
				}
				return 1
			}
			g.has(g.night(exitOK), "Verdict: same (3 rows: 3 same)", "not_repeated, again ")
		})
	}
}

// The program of the latest pin that has one measures base again; one that was
// changed or is gone is named before anything is measured.
func TestPinnedProgram(t *testing.T) {
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
	g.base()
	programs, _ := filepath.Glob(filepath.Join(g.dir, defaultHistory, "programs", "*"))
	if len(programs) != 1 {
		t.Fatalf("%q", programs)
	}
	g.has(g.do(0, "baseline", "list"), "night-1  2026-05-02  ", "  "+filepath.Base(programs[0])+"\n")
	text, err := os.ReadFile(programs[0])
	if err != nil {
		t.Fatal(err)
	}
	g.cells = 0
	for _, harm := range []struct {
		want string
		do   func() error
	}{
		{" cannot be read: no such file or directory\nhint: put ", func() error { return os.Remove(programs[0]) }},
		{" is not as it was written\nhint: put ", func() error { return os.WriteFile(programs[0], text[1:], 0o777) }},
		{" cannot be started: permission denied\nhint: put ", func() error {
			return errors.Join(os.WriteFile(programs[0], text, 0o666), os.Chmod(programs[0], 0o644))
		}},
		{" cannot be read: is no regular file\nhint: put ", func() error { return errors.Join(os.Remove(programs[0]), os.Mkdir(programs[0], 0o777)) }},
		{" cannot be read: is no regular file\nhint: put ", func() error {
			return errors.Join(os.Remove(programs[0]), syscall.Mkfifo(programs[0], 0o666))
		}},
	} {
		if err := harm.do(); err != nil {
			t.Fatal(err)
		}
		g.night(exitUsage)
		g.has(g.stderr, "trbench: pin night-3 cannot be used: ", "programs/"+filepath.Base(programs[0])+harm.want)
	}
	if g.cells != 0 {
		t.Errorf("%d replicates ran", g.cells)
	}
	// Another build is not taken for the one that measured, and does not do as
	// --program; the one that did does, whatever it is called.
	if err := os.WriteFile(g.executable(), []byte("another build"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, pin := range []string{"night-1", "night-2", "night-3"} {
		g.do(0, "baseline", "drop", pin, "--why=x")
	}
	g.has(g.do(0, "baseline", "pin", "1", "--why=x"), "night-1 is pinned, without its program: trbench ", " made it, and this is another build; --program=FILE names that one\nBase cannot be measured again by it, ")
	g.do(exitUsage, "baseline", "pin", "2", "--program=trbench-of-tonight", "--why=x")
	g.has(g.stderr, "baseline 2 was made by the program with SHA-256 ", ", and --program=trbench-of-tonight has ")
	g.do(exitUsage, "baseline", "pin", "2", "--program=none-such", "--why=x")
	g.has(g.stderr, "baseline 2 cannot be pinned with --program=none-such: no such file or directory")
	// What never ends, or has nobody who writes it, is waited for by nobody.
	if err := syscall.Mkfifo(filepath.Join(g.dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "/dev/zero"} {
		g.do(exitUsage, "baseline", "pin", "2", "--program="+name, "--why=x")
		g.has(g.stderr, "baseline 2 cannot be pinned with --program="+name+": is no regular file\n")
	}
	if err := os.WriteFile(filepath.Join(g.dir, "old"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	if out := g.do(0, "baseline", "pin", "2", "--program=old", "--why=x"); out != "night-2 is pinned, with its program\n" {
		t.Errorf("%q", out)
	}
	// The copy that was damaged is put right.
	if is, err := os.ReadFile(programs[0]); err != nil || !bytes.Equal(is, text) {
		t.Errorf("%q, %v", is, err)
	}
	// A pin that has it is enough.
	if out := g.do(0, "baseline", "pin", "3", "--why=x"); out != "night-3 is pinned, with its program\n" {
		t.Errorf("%q", out)
	}
	g.level = onlyEager(1.06)
	g.has(g.night(exitFailure), "confirming base: confirm-0-base")
}

// Of several programs the one of the latest pin that has any measures base.
func TestLatestProgram(t *testing.T) {
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
	for i, build := range []string{"one", "two", "three"} {
		if err := os.WriteFile(g.executable(), []byte(build), 0o777); err != nil {
			t.Fatal(err)
		}
		if got, _ := g.call(t.Context(), "nightly", "--config=nightly.yaml"); got != exitInconclusive && i == 0 || got == exitUsage {
			t.Fatalf("exit %d: %s", got, g.stderr)
		}
		g.now = g.now.AddDate(0, 0, 1)
		with := "--program="
		if i == 2 {
			with += "none"
		}
		g.do(0, "baseline", "pin", "last", with, "--why=good")
	}
	g.level = onlyEager(1.06)
	// No revision tells them apart, but their files do.
	g.has(g.night(exitFailure), "program.executable: 7692c3ad3540 or 3fc4ccfe7458 or 8b5b9db0c13d -> 8b5b9db0c13d\n")
	if text, err := os.ReadFile(g.measuredBy); err != nil || string(text) != "two" {
		t.Errorf("%s is %q, %v", g.measuredBy, text, err)
	}
}

// What a build without a revision says of itself is what is checked out; its pin
// knows better.
func TestPinnedProgramHasItsOwnRevision(t *testing.T) {
	made := func(executable, revision string) *results.Record {
		return &results.Record{Program: results.Program{Revision: revision, Executable: executable},
			Environment: results.Environment{Fields: []results.EnvironmentField{{Name: "program.revision", Value: revision}, {Name: "go.version", Value: revision}}}}
	}
	p := baseProgram{pin: "night-1", record: made("sum", "old")}
	r := made("sum", "new")
	p.name(r)
	if r.Program.Revision != "old" || r.Environment.Fields[0].Value != "old" || r.Environment.Fields[1].Value != "new" {
		t.Errorf("%+v", r)
	}
	other := made("another", "new")
	p.name(other)
	if !reflect.DeepEqual(other, made("another", "new")) {
		t.Errorf("%+v", other)
	}
}

// So few processes that no row can be judged are refused before anything is
// measured, with how many are needed; without a baseline it is said.
func TestFewProcesses(t *testing.T) {
	run := func(n int) string {
		return fmt.Sprintf("run: --batch=2 --mode=eager,graph --processes=%d\nsentinel: {off: true}\n", n)
	}
	g := newGuarded(t, run(3))
	g.night(exitInconclusive)
	g.has(g.stderr, "3 processes a night cannot judge 6 rows against one pinned night of as many: 5 can\n")
	g.do(0, "baseline", "pin", "last", "--why=x")
	g.cells = 0
	g.night(exitUsage)
	g.has(g.stderr, "trbench: --config: run: 3 processes a night cannot judge 6 rows against the 3 of the baseline\nhint: --processes=10 in run is enough against these pins; or drop them, and pin nights of at least 5\n")
	if g.cells != 0 || len(g.briefs()) != 1 {
		t.Errorf("%d replicates ran", g.cells)
	}
	g.configure(run(9))
	g.night(exitUsage)
	g.configure(run(10))
	g.has(g.night(exitOK), "Verdict: same (6 rows: 6 same)")
	if strings.Contains(g.stderr, "cannot judge") {
		t.Errorf("%s", g.stderr)
	}
}

// A change of level gets its id on the night on which it is no more
// provisional, and keeps it.
func TestChangesAreKept(t *testing.T) {
	g := newGuarded(t, "run: --batch=1 --mode=eager\nsentinel: {off: true}\n")
	var ids []string
	for i := range 22 {
		if i == 12 {
			g.level = func(bench.CellRequest, results.ConfigurationKey) float64 { return 1.1 }
		}
		out := g.night(exitInconclusive)
		if known := g.known(); i == 14 && len(known) > 0 || i == 15 && len(known) != 3 {
			t.Errorf("night %d knows %+v", i+1, known)
		}
		for line := range strings.Lines(out) {
			if rest, ok := strings.CutPrefix(line, "  Change point "); ok && strings.Contains(line, "/step_time_ns") {
				id, _, _ := strings.Cut(rest, " ")
				ids = append(ids, fmt.Sprint(i+1, " ", id))
			}
		}
	}
	if len(ids) != 7 || !strings.HasPrefix(ids[0], "16 ") {
		t.Fatalf("%q", ids)
	}
	id := strings.TrimPrefix(ids[0], "16 ")
	for _, other := range ids {
		if !strings.HasSuffix(other, id) {
			t.Errorf("%q", ids)
		}
	}
	if known := g.known(); len(known) != 3 || known[0].Night != 13 {
		t.Errorf("%+v", known)
	}
}

// known are the change points that nights kept.
func (g *guarded) known() []history.Known {
	g.t.Helper()
	s, err := history.Open(filepath.Join(g.dir, defaultHistory), false)
	if err != nil {
		g.t.Fatal(err)
	}
	defer s.Close()
	known, err := s.Known()
	if err != nil {
		g.t.Fatal(err)
	}
	return known
}

// The sides take turns, and the turns their order: what drifts drifts on both.
func TestSidesTakeTurns(t *testing.T) {
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel:\n  run: --workload=golden-tiny --batch=4 --mode=eager\n  processes: 4\n")
	var order strings.Builder
	g.before = func(r bench.CellRequest) error {
		files, _ := filepath.Glob(filepath.Join(g.dir, defaultHistory, "tonight", "injected-*.json"))
		if r.Cell.Workload == "golden-tiny" && len(files) == 2 {
			if r.Inject != nil {
				order.WriteString("h")
			} else {
				order.WriteString("b")
			}
		}
		return nil
	}
	g.night(exitInconclusive)
	if got := order.String(); got != "hbbhhb" {
		t.Errorf("%q", got)
	}
}

// With a second program both sides are measured again, each by its own.
func TestBaseCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\nbase_command: bin/faked\n")
	if err := os.Mkdir(filepath.Join(g.dir, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(g.dir, "bin", "faked")); err != nil {
		t.Fatal(err)
	}
	g.base()
	g.level = onlyEager(1.06)
	out := g.night(exitFailure)
	g.has(out, "confirming base: confirm-0-base", "confirming head: confirm-0-head", "confirmed, again +")
	if strings.Contains(out, "head_measured_again") {
		t.Errorf("%s", out)
	}
	// Its figures decide: submit time and latency are not among what it has.
	g.has(out, "not_confirmed")
	g.configure("run: --batch=2 --mode=eager\nsentinel: {off: true}\nbase_command: bin/none\n")
	g.night(exitUsage)
	g.has(g.stderr, "bin/none, which is no program")
}

// Whatever replicate a night is ended in, the next one goes on: nothing
// finished runs twice, and the night is stored once.
func TestNightGoesOn(t *testing.T) {
	begin := func() *guarded {
		g := newGuarded(t, guardedConfig)
		g.base()
		g.level, g.cells = onlyEager(1.06), 0
		return g
	}
	whole := begin()
	whole.night(exitFailure)
	all := whole.cells
	if all < 50 {
		t.Fatalf("%d replicates", all)
	}
	step := all / 7
	if testing.Short() {
		step = all / 2
	}
	g := begin()
	for at := 1; at < all; at += step {
		ctx, cancel := context.WithCancel(t.Context())
		g.cells = 0
		g.before = func(bench.CellRequest) error {
			if g.cells == at {
				cancel()
			}
			return nil
		}
		code, _ := g.call(ctx, "nightly", "--config=nightly.yaml")
		cancel()
		if code != exitInterrupted || !strings.Contains(g.stderr, "trbench: interrupted; what is finished of the night is kept in results/nightly/tonight\nhint: trbench nightly with the same configuration goes on from there\n") {
			t.Fatalf("after %d: exit %d, %s", at, code, g.stderr)
		}
		g.before = nil
		nights := len(g.briefs())
		g.night(exitFailure)
		g.has(g.stderr, "going on with the night that began ")
		if g.cells != all {
			t.Errorf("ended in replicate %d: %d replicates in all, want %d", at, g.cells, all)
		}
		if n := len(g.briefs()); n != nights+1 {
			t.Errorf("ended in replicate %d: %d nights more", at, n-nights)
		}
	}
}

// One night at a time; the second is told, and nothing is lost.
func TestTwoNights(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	running, goOn := make(chan bool), make(chan bool)
	var once sync.Once
	other := &guarded{t: t, dir: g.dir, rng: g.rng, now: g.now, level: g.level}
	g.before = func(bench.CellRequest) error {
		once.Do(func() { running <- true; <-goOn })
		return nil
	}
	end := make(chan int)
	go func() {
		code, _ := g.call(t.Context(), "nightly", "--config=nightly.yaml")
		end <- code
	}()
	<-running
	code, _ := other.call(t.Context(), "nightly", "--config=nightly.yaml")
	if code != exitUsage || !strings.Contains(other.stderr, "history results/nightly is being written by another nightly (process ") {
		t.Errorf("exit %d, %s", code, other.stderr)
	}
	close(goOn)
	if code := <-end; code != exitInconclusive || len(g.briefs()) != 1 {
		t.Errorf("exit %d", code)
	}
}

// What there is no time for is named.
func TestDeadline(t *testing.T) {
	for _, test := range []struct {
		name, deadline string
		perReplicate   time.Duration
		code           int
		want           []string
	}{
		{"enough", "100h", time.Minute, exitFailure, []string{"Verdict: slower"}},
		{"no sentinel, no confirmation", "40m", time.Minute, exitInconclusive, []string{"Left out: the sentinel: there was no time for it before the deadline.",
			"Left out: 12 of 12 turns of the confirmation: the deadline was over.", "Verdict: ambiguous", "it was not measured again"}},
	} {
		g := newGuarded(t, guardedConfig)
		g.base()
		g.configure(guardedConfig + "deadline: " + test.deadline + "\n")
		g.level = onlyEager(1.06)
		g.before = func(bench.CellRequest) error { g.now = g.now.Add(test.perReplicate); return nil }
		out := g.night(test.code)
		g.before = nil
		for _, want := range test.want {
			if !strings.Contains(out, want) && want != "it was not measured again" {
				t.Errorf("%s: lacks %q:\n%s", test.name, want, out)
			}
		}
		if list := g.briefs(); len(list) != 4 || test.code == exitInconclusive && len(list[3].LeftOut) != 2 {
			t.Errorf("%s: %+v", test.name, list)
		}
	}
	// Over before anything was measured.
	g := newGuarded(t, guardedConfig+"deadline: 1ns\n")
	g.night(exitInconclusive)
	g.has(g.stderr, "the deadline was over before one process had ended: nothing was measured, and no night is added")
	if len(g.briefs()) != 0 {
		t.Error("a night was added")
	}
}

func TestClockJumpedBack(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	g.base()
	g.now = g.now.AddDate(-1, 0, 0)
	g.has(g.night(exitOK), "the clock jumped back; the history is in the order of nights, not of times [clock_jumped_back]")
	if list := g.briefs(); len(list) != 4 || list[3].Sequence != 4 || list[3].Warnings[0].Code != "clock_jumped_back" {
		t.Errorf("%+v", list)
	}
	// And within a night.
	ctx, cancel := context.WithCancel(t.Context())
	g.before = func(bench.CellRequest) error { cancel(); return nil }
	g.call(ctx, "nightly", "--config=nightly.yaml")
	g.before = nil
	g.now = g.now.Add(-time.Hour)
	g.has(g.night(exitOK), "its deadline begins anew [clock_jumped_back]")
}

// A night that cannot be gone on with is in the history as what it is.
func TestAbandoned(t *testing.T) {
	for name, change := range map[string]func(g *guarded){
		"it was begun with another configuration": func(g *guarded) { g.configure(guardedConfig + "\n# another\n") },
		"it was begun 2026-05-04T02:00:00Z":       func(g *guarded) { g.now = g.now.AddDate(0, 0, 2) },
		"it was begun by another build of trbench ": func(g *guarded) {
			if err := os.WriteFile(g.executable(), []byte("another build"), 0o777); err != nil {
				g.t.Fatal(err)
			}
		},
	} {
		g := newGuarded(t, guardedConfig)
		g.base()
		ctx, cancel := context.WithCancel(t.Context())
		g.cells = 0
		g.before = func(bench.CellRequest) error {
			if g.cells == 5 {
				cancel()
			}
			return nil
		}
		g.call(ctx, "nightly", "--config=nightly.yaml")
		g.before = nil
		change(g)
		g.night(exitOK)
		list := g.briefs()
		if len(list) != 5 || !strings.HasPrefix(list[3].Line, "abandoned: "+name) || list[3].Warnings[0].Code != "abandoned" || len(list[3].Records) != 1 || list[4].Verdict != results.Same {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

func TestDisagreementAtNight(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	g.before = func(r bench.CellRequest) error {
		return &bench.DisagreementError{Cell: r.Cell, Reference: r.Configurations[0], Other: r.Configurations[1], Tensor: "w"}
	}
	g.night(exitDisagree)
	if list := g.briefs(); len(list) != 1 || list[0].Warnings[0].Code != "modes_disagree" || !strings.HasPrefix(list[0].Line, "modes disagree: ") {
		t.Errorf("%+v", list)
	}
}

// A sentinel that fails does not cost the night.
func TestSentinelFails(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	g.base()
	g.before = func(r bench.CellRequest) error {
		if r.Cell.Workload == "golden-tiny" {
			return fmt.Errorf("it died")
		}
		return nil
	}
	g.has(g.night(exitOK), "Verdict: same", "the guard could not be tested: ", "[sentinel_failed]")
}

// A damaged history or pin is refused, before anything is measured.
func TestDamageAtNight(t *testing.T) {
	g := newGuarded(t, guardedConfig)
	g.base()
	files, _ := filepath.Glob(filepath.Join(g.dir, defaultHistory, "nights", "*"))
	kept, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(files[1], 90); err != nil {
		t.Fatal(err)
	}
	g.cells = 0
	g.night(exitUsage)
	g.has(g.stderr, "history results/nightly is damaged: nights/000002-")
	if g.cells != 0 {
		t.Errorf("%d replicates ran", g.cells)
	}
	if err := os.WriteFile(files[1], kept, 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := history.Open(filepath.Join(g.dir, defaultHistory), false)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := s.Pins()
	_ = s.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(g.dir, defaultHistory, "records", pins[1].Record.File), 99); err != nil {
		t.Fatal(err)
	}
	g.night(exitUsage)
	g.has(g.stderr, "trbench: pin night-2 cannot be used: records/", " is not as it was written\n", "hint: put the file back, or take the pin out: trbench baseline drop night-2 --dir=results/nightly --why=TEXT\n")
	if err := os.Remove(filepath.Join(g.dir, defaultHistory, "records", pins[0].Record.File)); err != nil {
		t.Fatal(err)
	}
	g.night(exitUsage)
	g.has(g.stderr, "trbench: pin night-1 cannot be used: the record records/", " cannot be read: no such file or directory\n")
	if g.cells != 0 {
		t.Errorf("%d replicates ran", g.cells)
	}
	for file, want := range map[string]string{"pins.jsonl": "put the file back as it was; or take that line and all behind it out of it, and run trbench history reindex", "nights/notes.txt": "take what is no night's own file out of the folder"} {
		other := newGuarded(t, guardedConfig)
		other.base()
		f, err := os.OpenFile(filepath.Join(other.dir, defaultHistory, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString("{\"action\"")
		_ = f.Close()
		other.cells = 0
		other.night(exitUsage)
		other.has(other.stderr, "history results/nightly is damaged: "+file, "hint: "+want)
		if other.cells != 0 {
			t.Errorf("%s: %d replicates ran", file, other.cells)
		}
	}
}

func TestNightlyConfigs(t *testing.T) {
	g := newGuarded(t, "")
	for _, test := range []struct{ text, want string }{
		{"", "has nothing to run"},
		{"run: [--batch=1]", "has run, which takes text, not a list"},
		{"run: --batch=1\nruns: x", "is not understood: [2:1] unknown field \"runs\""},
		{"run: --batch=0", `--config: run: --batch "0" must be at least 1`},
		{"run: --nonsense", "--config: run: unknown flag: --nonsense"},
		{"run: batch", `--config: run: "batch" is no flag`},
		{"run: --out=x", "--config: run: --out is nightly's own"},
		{"run: --resume=x", "--config: run: --resume is nightly's own"},
		{"run: --batch=1\nsentinel: {run: '--batch=1,2'}", "--config: sentinel: run: must be one cell, with eager or graph as its first mode"},
		{"run: --batch=1\nsentinel: {run: --batch=1 --mode=step}", "must be one cell, with eager or graph"},
		{"run: --batch=1\nsentinel: {sub_graph: X}", `names the sub_graph "X", which no step has`},
		{"run: --batch=1\nsentinel: {processes: 3}", "has sentinel processes 3, which must be 4 to 1000"},
		{"run: --batch=1\nconfirm_processes: 3", "has confirm_processes 3, which must be 4 to 1000: fewer cannot confirm one row"},
		{"run: --batch=1\nallow: [cpu.model, host.cpus, env.X, cpu.colour]", `allows "cpu.colour", which is no field of the machine`},
		{"run: --batch=1\nallow: [env.]", `allows "env.", which is no field of the machine`},
		{"run: --batch=1\ndeadline: soon", `has the deadline "soon", which is no time such as 3h`},
		{"run: --batch=1\nretention: {full: 0}", "keeps less than one night"},
		{"run: --batch=1\nbase_command: nightly.yaml", "which is no program"},
		{"run: [", "is not understood: "},
		{"null", "has nothing to run"},
		{"# nothing", "has nothing to run"},
		{"- a\n- b", "takes names with values, as run: --batch=1, not a list"},
		{"5", `takes names with values, as run: --batch=1, not "5"`},
		{"run: {a: b}", "has run, which takes text, not names with values"},
		{"run: --batch=1\nretention: {full: 1.5}", `has retention.full, which takes a whole number, not "1.5"`},
		{"run: --batch=1\nretention: {full: many}", `has retention.full, which takes a whole number, not "many"`},
		{"run: --batch=1\nretention: {max_bytes: 9999999999999999999}", "has retention.max_bytes, which takes a smaller number"},
		{"run: --batch=1\nretention: [1]", "has retention, which takes names with values"},
		{"run: --batch=1\nallow: cpu.model", `has allow, which takes a list, as [a, b], not "cpu.model"`},
		{"run: --batch=1\nallow: [[a]]", "has allow, which takes text, not a list"},
		{"run: --batch=1\nconfirm_processes: x", "has confirm_processes, which takes a whole number"},
		{"run: --batch=1\nsentinel: {off: maybe}", "has sentinel.off, which takes true or false"},
		{"run: --batch=1\nbase_command: [x]", "has base_command, which takes text, not a list"},
		{"run: --batch=1\n---\nrun: x", "has more than one document"},
		{"run: --batch=1\nrun: --batch=2", `mapping key "run" already defined`},
		{"run: --help", "--config: run: --help is nothing to run"},
		{"run: --batch=1\npage: nightly.yaml", "page nightly.yaml cannot be written: is there and no page of this program, so it is not replaced"},
		{"run: --batch=1\npage: .", "page . cannot be written: is no file"},
		{"run: --batch=1\npage: nightly.yaml/page.html", "page nightly.yaml/page.html cannot be written: not a directory"},
		{"run: --batch=1\nhistory: nightly.yaml\npage: p.html", "history nightly.yaml cannot be made: not a directory"},
	} {
		g.configure(test.text)
		g.night(exitUsage)
		g.has(g.stderr, test.want)
		if strings.Count(g.stderr, "\n") > 2 {
			t.Errorf("%q: %s", test.text, g.stderr)
		}
	}
	if g.cells != 0 {
		t.Errorf("%d replicates ran", g.cells)
	}
	g.do(exitUsage, "nightly")
	g.has(g.stderr, "--config is missing")
	g.do(exitUsage, "nightly", "--config=none.yaml")
	g.has(g.stderr, "--config none.yaml cannot be opened: no such file or directory")
	// The one in the help is one.
	var text strings.Builder
	for line := range strings.Lines(nightlyExample) {
		if !strings.Contains(line, "base_command") {
			text.WriteString(strings.TrimPrefix(line, "  "))
		}
	}
	g.configure(text.String())
	g.night(exitInconclusive)
}

// A night on another bed, or of other cells, is stored, and says why it was not
// compared and what to do.
func TestNightOnAnotherBed(t *testing.T) {
	for run, want := range map[string]string{
		"--batch=1,2 --mode=eager,graph --steps=7": "were not measured in the same place: steps is 4 against 7",
		"--batch=8 --mode=eager":                   "have no row in common",
	} {
		g := newGuarded(t, guardedConfig)
		g.base()
		g.configure("run: " + run + "\nsentinel: {off: true}\nhistory: \"\"\n")
		out := g.night(exitUsage)
		g.has(out, "\nNight 4\n", "[not_compared]")
		g.has(g.stderr, "trbench: night 4 is stored, and was not compared: the pinned runs (BASE) and tonight's (HEAD) "+want, "hint: what may differ goes into allow: of the configuration; or begin a new baseline: ")
		if list := g.briefs(); len(list) != 4 || len(list[3].Records) != 1 {
			t.Errorf("%+v", list)
		}
		g.do(0, "baseline", "pin", "4", "--why=another bed")
	}
}

// A night that ended but for its page is not called abandoned.
func TestPageWasNotMade(t *testing.T) {
	g := newGuarded(t, "run: --batch=1 --mode=eager\nsentinel: {off: true}\n")
	page := filepath.Join(g.dir, defaultHistory, "page.html")
	g.before = func(bench.CellRequest) error { _ = os.MkdirAll(page, 0o777); return nil }
	g.night(exitUsage)
	g.has(g.stderr, "page results/nightly/page.html cannot be written: ", "hint: the night is stored; the next try makes the page")
	g.before = nil
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	g.configure("run: --batch=1 --mode=eager\nsentinel: {off: true}\n# changed\n")
	g.night(exitInconclusive)
	g.has(g.stderr, "is stored; its page was not made: it was begun with another configuration")
	if list := g.briefs(); len(list) != 2 || list[0].Line != "" {
		t.Errorf("%+v", list)
	}
}

// Every cell of a plan can be measured alone.
func TestCellFlags(t *testing.T) {
	g := newGuarded(t, "")
	env := &Env{Getenv: func(string) string { return "" }, WorkDir: g.dir, Now: time.Now, Engine: fakeEngine()}
	for _, flags := range [][]string{
		{"--workload=resnet20-cifar,resnet50", "--batch=1,8", "--gpus=1,2", "--precision=fp32,amp", "--optimizer=sgd,lars", "--variants=0,2,5", "--ema", "--smoothing=0.1", "--freeze-stem"},
		{"--workload=golden-tiny", "--batch=4", "--resolution=8,16", "--last-batch=3,2"},
		{"--variants=all"},
	} {
		plan, ways, err := env.nightlyPlan("run", append([]string{"--mode=eager,step", "--sync=host,event", "--dispatch-ns=0,100", "--steps=7"}, flags...), 8)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range plan.Cells {
			one, _, err := env.nightlyPlan("run", append(slices.Clone(ways), cellFlagsOf(c, plan.PrepareAll)...), plan.Processes)
			want := plan
			want.Cells = []results.CellKey{c}
			if err != nil || !reflect.DeepEqual(one, want) {
				t.Errorf("%+v, %v\nwant %+v", one, err, want)
			}
		}
	}
}

func TestBaseline(t *testing.T) {
	g := newGuarded(t, "run: --batch=1 --mode=eager\nsentinel: {off: true}\n")
	g.do(exitUsage, "baseline", "list")
	g.has(g.stderr, "history results/nightly is not there")
	// What cannot be pinned makes no history: an empty one would look like a guard that is well.
	for name, want := range map[string]string{"last": "history results/nightly is not there", "1": "history results/nightly is not there", "none.json": "is neither a night nor a record"} {
		g.do(exitUsage, "baseline", "pin", name, "--why=x")
		g.has(g.stderr, want)
		if _, err := os.Stat(filepath.Join(g.dir, "results", "nightly")); err == nil {
			t.Fatalf("pin %s made a history", name)
		}
	}
	g.do(0, "run", "--batch=1", "--mode=eager", "--processes=8", "--out=first.json")
	g.do(0, "baseline", "pin", "first.json", "--dir=pinned", "--why=by hand")
	if out := g.do(0, "history", "--dir=pinned"); out != "No night is kept in pinned: trbench nightly adds one, and --dir names another history.\n" {
		t.Errorf("%q", out)
	}
	g.do(exitUsage, "baseline", "pin", "last", "--dir=pinned", "--why=x")
	g.has(g.stderr, "is no night: there is none yet\nhint: trbench nightly measures one; --dir says where its history is")
	g.night(exitInconclusive)
	g.do(exitUsage, "baseline", "pin", "last")
	g.has(g.stderr, "--why is missing")
	if out := g.do(0, "baseline", "list"); out != "Nothing is pinned.\n" {
		t.Errorf("%q", out)
	}
	g.do(0, "baseline", "pin", "1", "--why=release 1")
	g.do(exitUsage, "baseline", "pin", "last", "--why=again")
	g.has(g.stderr, "baseline last is pinned already, as night-1 by ")
	g.do(0, "run", "--batch=1", "--mode=eager", "--processes=8", "--out=r.json")
	g.do(0, "baseline", "pin", "r.json", "--why=by hand")
	g.has(g.do(0, "baseline", "list"), "night-1  2026-05-02  ", "release 1", "r.json   2026-05-02  ", "by hand")
	g.has(g.night(exitOK), "base: night-1, ", "base: r.json, ")
	g.do(0, "baseline", "drop", "night-1", "--why=old")
	g.do(exitUsage, "baseline", "drop", "night-1", "--why=old")
	g.has(g.stderr, "baseline night-1 is not pinned")
	g.do(exitUsage, "baseline", "pin", "9", "--why=x")
	g.has(g.stderr, "baseline 9 is no night of the history")
	g.do(exitUsage, "baseline", "pin", "none.json", "--why=x")
	g.has(g.stderr, "baseline none.json is neither a night nor a record: ")
	interrupt(t, filepath.Join(g.dir, "r.json"))
	g.do(exitUsage, "baseline", "pin", "r.json", "--why=x")
	g.has(g.stderr, "baseline r.json is not complete")
	g.do(exitUsage, "baseline", "pin", "last", "1", "--why=x")
	g.has(g.stderr, "pin takes one name, not 2")
}
