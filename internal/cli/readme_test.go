package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

var update = flag.Bool("update", false, "rewrite the output in README.md")

// goRun is how the README starts the program; the test puts a built one in
// its place.
const goRun = "go run ./cmd/trbench"

// session is a command of a ```console block and the output below it.
type session struct {
	command string
	output  string
	from    int // lines of the README, the output's
	to      int
}

// sessions reads the console blocks of a page.
func sessions(lines []string) []session {
	var found []session
	inside := false
	for i, line := range lines {
		switch {
		case line == "```console":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside && strings.HasPrefix(line, "$ "):
			found = append(found, session{command: line[2:], from: i + 1, to: i + 1})
		case inside && len(found) > 0:
			s := &found[len(found)-1]
			s.output += line + "\n"
			s.to = i + 1
		}
	}
	return found
}

// What differs from run to run. A unit belongs to its number: 999 us today is
// 1.02 ms tomorrow.
var (
	recordName = regexp.MustCompile(`trbench-[0-9TZ]+-[0-9a-f]+\.json`)
	number     = regexp.MustCompile(`[<>]?\d+(\.\d+)?( (ns|us|ms|s|B|KiB|MiB|GiB)\b)?`)
	rule       = regexp.MustCompile(`-{3,}`)
	blanks     = regexp.MustCompile(` +`)
)

// mask leaves the words and the shape of an output. Warnings about noise come
// and go, so they are left out.
func mask(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Warning") {
			continue
		}
		line = recordName.ReplaceAllString(strings.TrimSpace(line), "trbench-#.json")
		line = rule.ReplaceAllString(number.ReplaceAllString(line, "#"), "---")
		out = append(out, blanks.ReplaceAllString(line, " "))
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// fixed says whether a command prints the same in every run, to the last digit: one
// that reads committed files.
func fixed(args string) bool {
	words := strings.Fields(args)
	return len(words) > 1 && words[0] == "report" && strings.HasPrefix(words[1], "results/2")
}

// TestREADME runs the README's sessions and compares what they print: of committed
// records all of it, else with numbers masked. With -update it writes the output it got into the page.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole benchmarks")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "trbench")
	build := exec.Command("go", "build", "-o", bin, "./cmd/trbench")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	lines := strings.Split(string(text), "\n")
	found := sessions(lines)
	if len(found) == 0 {
		t.Fatal("README.md has no console blocks")
	}
	for i := len(found) - 1; i >= 0; i-- { // backwards, so that updating keeps line numbers valid
		s := found[i]
		rest, ok := strings.CutPrefix(s.command, goRun)
		if !ok {
			t.Errorf("README.md line %d: a console block runs %q, not %s; use a sh block for what is not tested", s.from, s.command, goRun)
			continue
		}
		got := shell(t, bin, rest)
		if *update {
			output := strings.Split(strings.TrimRight(got, "\n"), "\n")
			lines = append(lines[:s.from:s.from], append(output, lines[s.to:]...)...)
		} else if fixed(rest) && got != s.output {
			t.Errorf("README.md line %d: %s prints\n%s\n\nwant\n%s", s.from, s.command, got, s.output)
		} else if mask(got) != mask(s.output) {
			t.Errorf("README.md line %d: %s prints\n%s\n\nmasked\n%s\n\nwant\n%s", s.from, s.command, got, mask(got), mask(s.output))
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tested is what tests the commands of sh blocks that this test does not run.
var tested = map[string]string{
	"go test ./...": "that is what runs this test",
	"CGO_ENABLED=1 CGO_LDFLAGS=-L/usr/local/cuda/lib64/stubs go build -tags gorgonia -o trbench-gorgonia ./cmd/trbench": "CI builds it where CUDA's headers are",
	"go run ./cmd/trbench nightly --config=nightly.yaml":                                                                "TestREADMENightly",
	`go run ./cmd/trbench baseline pin last --why="known to be good"`:                                                   "TestREADMENightly",
	"go run ./cmd/trbench history":                                                                                      "TestREADMENightly",
	"go run ./cmd/trbench history --row=submit_time_ns --plots=trends":                                                  "TestREADMENightly",
	"./trbench-gorgonia run --device=cuda --kernels=builtin --mode=eager,graph --launcher=purego,gorgonia":              "TestLaunchers runs its flags",
}

// TestREADMECommands runs the commands of the README's sh blocks, in order, in
// one folder. What times would take minutes; over an engine that invents the
// figures it is flags and files that are tested, and the sessions above time
// in earnest.
func TestREADMECommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	asInTheTree(t, dir)
	inside, ran := false, 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```sh":
			inside = true
			continue
		case strings.HasPrefix(line, "```"):
			inside = false
		}
		command, _, _ := strings.Cut(line, " #")
		command = strings.TrimSpace(command)
		if !inside || command == "" || tested[command] != "" {
			continue
		}
		if rest, ok := strings.CutPrefix(command, "go tool "); ok {
			goTool(t, dir, strings.Fields(rest))
			ran++
			continue
		}
		rest, ok := strings.CutPrefix(command, goRun+" ")
		if !ok {
			t.Errorf("README.md: %q is not tested", command)
			continue
		}
		args := expanded(t, dir, strings.Fields(rest))
		engine := NewEngine(os.Getenv, Libraries{})
		if args[0] == "run" || args[0] == "report" {
			engine = fakeEngine()
		}
		for _, a := range args {
			if file, ok := strings.CutPrefix(a, "--resume="); ok {
				interrupt(t, filepath.Join(dir, file))
			}
		}
		if code, stdout, stderr := invoke(t, t.Context(), engine, dir, args...); code != exitOK || stdout == "" {
			t.Errorf("README.md: %s: exit %d\n%s%s", command, code, stdout, stderr)
		}
		ran++
	}
	if ran < 8 {
		t.Errorf("%d commands ran", ran)
	}
}

// expanded names the files that a shell in dir would put in a pattern's place.
func expanded(t *testing.T, dir string, args []string) (out []string) {
	t.Helper()
	for _, a := range args {
		if !strings.Contains(a, "*") {
			out = append(out, a)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, a))
		if err != nil || len(files) == 0 {
			t.Fatalf("README.md: %s names %q (%v)", a, files, err)
		}
		for _, f := range files {
			out = append(out, strings.TrimPrefix(f, dir+string(filepath.Separator)))
		}
	}
	return out
}

// goTool runs a tool of this module on files of a folder. Tools are found from
// inside the module, so the files get their full names.
func goTool(t *testing.T, dir string, args []string) {
	t.Helper()
	for i, a := range args {
		if file := filepath.Join(dir, a); strings.Contains(a, "/") {
			if _, err := os.Stat(file); err == nil {
				args[i] = file
			}
		}
	}
	cmd := exec.Command("go", append([]string{"tool"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("README.md: go tool %v: %v\n%s", args, err, out)
	}
}

// The README says how many sub-graphs a step launches.
func TestREADMECountsSubGraphs(t *testing.T) {
	least, most := int(workloads.NumSubGraphs), 0
	for bits := range 1 << 5 {
		is := func(i int) bool { return bits>>i&1 == 1 }
		s := workloads.Spec{Model: "golden-tiny", Batch: 2, EMA: is(0), FreezeStem: is(1), Ranks: 1}
		if is(2) {
			s.Ranks = 2
		}
		if is(3) {
			s.Precision = workloads.AMP
		}
		if is(4) {
			s.Optimizer = workloads.LARS
		}
		w, err := workloads.New(s, workloads.Target{Lowering: workloads.Fused})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range w.Schedule(workloads.Segment{Phase: workloads.TrainStep, Variant: workloads.FinalFull}) {
			if a.Kind == workloads.ActRun {
				n++
			}
		}
		least, most = min(least, n), max(most, n)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("captured and launched, %d to %d of them", least, most); !strings.Contains(string(text), want) {
		t.Errorf("README.md does not say %q", want)
	}
}

// asInTheTree lets commands that run in dir read this module's files under the
// names that they have there.
func asInTheTree(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// The committed records one by one: a run writes beside them.
	records, err := filepath.Glob(filepath.Join(root, "results", "20*"))
	if err != nil || len(records) == 0 {
		t.Fatalf("no committed records: %v", err)
	}
	for _, from := range append(records, filepath.Join(root, "timeline")) {
		to := filepath.Join(dir, strings.TrimPrefix(from, root))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(from, to)); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs the program with the arguments as a shell reads them, in a folder
// of its own, and returns its stdout.
func shell(t *testing.T, bin, args string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", `exec "$TRBENCH"`+args)
	cmd.Dir = t.TempDir()
	asInTheTree(t, cmd.Dir)
	cmd.Env = append(os.Environ(), "TRBENCH="+bin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("trbench%s: %v\n%s", args, err, stderr.String())
	}
	return stdout.String()
}

func TestMask(t *testing.T) {
	a := "batch  step\n-----------\n4     999 us  1 x\nWarning (x): noisy\nRecord: results/local/trbench-20260731T101112Z-00ff.json\n"
	b := "batch    step\n-------------\n16   1.02 ms  12 x\nRecord: results/local/trbench-20270101T000000Z-abcd.json\n"
	if mask(a) != mask(b) {
		t.Errorf("%q and %q", mask(a), mask(b))
	}
	if mask(a) == mask(strings.Replace(b, "x", "y", 1)) {
		t.Error("another word is masked too")
	}
}
