package worker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// tool attaches the logging tool of package nvtx and returns what reads its
// log.
func tool(t testing.TB, defines ...string) (*nvtx.Client, func() string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on the PATH: the logging tool cannot be compiled")
	}
	dir := t.TempDir()
	path, log := filepath.Join(dir, "tool.so"), filepath.Join(dir, "log")
	args := []string{"-O1", "-shared", "-fPIC", "-o", path, `-DLOG="` + log + `"`}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(cc, append(args, filepath.Join("..", "..", "nvtx", "testdata", "tool.c"))...).CombinedOutput(); err != nil {
		t.Fatalf("compile the tool: %v\n%s", err, out)
	}
	c, err := nvtx.Open(path, nvtx.Domain)
	must(t, err)
	return c, func() string {
		b, err := os.ReadFile(log)
		must(t, err)
		return string(b)
	}
}

// shownRange is a range as a tool saw it.
type shownRange struct {
	name     string
	category string
	value    string // its payload; empty for none
	thread   string // its name, or number; of the start, for a span
	inside   []*shownRange
	// spans are the spans of the process under way when it began.
	spans []string
}

// seen is all that a tool saw.
type seen struct {
	pushed map[string][]*shownRange // outermost ranges by thread
	spans  []*shownRange            // in the order they began
	names  []string                 // of threads
}

var (
	attributesLine = regexp.MustCompile(`^handle '(.*?)'(?: category (\d+))?(?: color [0-9A-F]{8})?(?: i64 (-?\d+))?(?: = (\d+))?$`)
	namedLine      = regexp.MustCompile(`^(?:trbench )?(\d+) '(.*)'$`)
)

// understand reads a log and fails where ranges do not nest or do not end.
func understand(t *testing.T, log string) seen {
	t.Helper()
	s := seen{pushed: map[string][]*shownRange{}}
	categories, threads := map[string]string{"": ""}, map[string]string{}
	open, under := map[string][]*shownRange{}, map[string]*shownRange{}
	var order []string // spans under way
	thread := func(id string) string {
		if name := threads[id]; name != "" {
			return name
		}
		return id
	}
	for line := range strings.Lines(log) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		what, args, _ := strings.Cut(rest, " ")
		read := func() *shownRange {
			m := attributesLine.FindStringSubmatch(strings.TrimPrefix(args, "trbench "))
			if m == nil {
				t.Fatalf("not understood: %s", line)
			}
			r := &shownRange{name: m[1], category: categories[m[2]], value: m[3], thread: thread(id)}
			for _, n := range order {
				r.spans = append(r.spans, under[n].name)
			}
			if m[4] != "" {
				under[m[4]] = r
				order = append(order, m[4])
			}
			return r
		}
		switch what {
		case "DomainNameCategoryA":
			m := namedLine.FindStringSubmatch(args)
			categories[m[1]] = m[2]
		case "NameOsThreadA":
			m := namedLine.FindStringSubmatch(args)
			if m[1] != id {
				t.Errorf("thread %s names %s", id, m[1])
			}
			threads[m[1]] = m[2]
			s.names = append(s.names, m[2])
		case "DomainRangePushEx":
			r := read()
			if stack := open[id]; len(stack) > 0 {
				last := stack[len(stack)-1]
				last.inside = append(last.inside, r)
			} else {
				s.pushed[thread(id)] = append(s.pushed[thread(id)], r)
			}
			open[id] = append(open[id], r)
		case "DomainRangePop":
			if len(open[id]) == 0 {
				t.Fatalf("thread %s pops what it did not push", id)
			}
			open[id] = open[id][:len(open[id])-1]
		case "DomainRangeStartEx":
			s.spans = append(s.spans, read())
		case "DomainRangeEnd":
			n := strings.TrimPrefix(args, "trbench ")
			if under[n] == nil {
				t.Fatalf("span %s ends, which did not begin or ended before", n)
			}
			delete(under, n)
			order = slices.DeleteFunc(order, func(o string) bool { return o == n })
		}
	}
	for id, stack := range open {
		if len(stack) > 0 {
			t.Errorf("thread %s leaves %q open", id, stack[0].name)
		}
	}
	for _, r := range under {
		t.Errorf("span %q does not end", r.name)
	}
	return s
}

func names(list []*shownRange) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.name)
	}
	return out
}

// What a tool sees of a cell in all modes: the same names, nested the same
// way, at the same places of the schedule.
func TestShown(t *testing.T) {
	if raceDetector {
		t.Skip("the tool is C code, which the race detector does not see")
	}
	c, log := tool(t)
	req := request(2, eachMode()...)
	req.Tool = c
	cell, err := RunCell(context.Background(), cpu.New(cpu.Options{}), req)
	must(t, err)
	c.Close()
	w, err := device.NewWorkload(cpu.New(cpu.Options{}), bench.Spec(req.Cell), nil)
	must(t, err)

	if n := slices.IndexFunc(cell.Warnings, func(w results.Warning) bool { return w.Code == "tool_attached" }); n < 0 ||
		cell.Warnings[n].Text != "a tool was attached ("+c.Tool()+", by NVTX_INJECTION64_PATH): timings include it" {
		t.Errorf("warnings %+v", cell.Warnings)
	}
	s := understand(t, log())
	slices.Sort(s.names)
	if want := []string{"rank 0", "rank 1"}; !slices.Equal(s.names, want) {
		t.Errorf("threads %v", s.names)
	}

	// The sub-graphs of a step, from the schedule.
	var want [2][]string
	nodes := map[string][]string{}
	for half := range workloads.Half(2) {
		for _, a := range w.Schedule(workloads.Segment{Phase: workloads.TrainStep, Half: half, Variant: workloads.FinalFull}) {
			if a.Kind != workloads.ActRun {
				continue
			}
			name := a.SubGraph.String()
			want[half] = append(want[half], name)
			nodes[name] = nil
			for _, b := range w.Bounds(a.SubGraph, workloads.FinalFull, workloads.ControlDevice) {
				nodes[name] = append(nodes[name], b.Name)
			}
		}
	}
	for _, mode := range []string{"eager/event/device", "graph/event/device", "step/inside/device"} {
		for _, rank := range []string{"rank 0", "rank 1"} {
			var steps []*shownRange
			for _, r := range s.pushed[rank] {
				if slices.Contains(r.spans, "steps") && slices.Contains(r.spans, mode) {
					steps = append(steps, r)
				}
			}
			if len(steps) != 2*3 {
				t.Fatalf("%s, %s: %d steps in 2 blocks of 3", mode, rank, len(steps))
			}
			for i, r := range steps {
				half := workloads.Half(i % 3 % 2)
				for _, n := range []string{"run", "golden-tiny batch 2 gpus 2", "block", "epoch"} {
					if !slices.Contains(r.spans, n) {
						t.Errorf("%s, %s: step %d has only %v around it", mode, rank, i, r.spans)
					}
				}
				if r.name != "step" || r.category != "step" || r.value != fmt.Sprint(i%3) {
					t.Errorf("%s, %s: step %d is %+v", mode, rank, i, *r)
				}
				if mode == "step/inside/device" {
					name := "train_step " + half.String() + " final/full"
					if len(r.inside) != 1 || r.inside[0].name != name || r.inside[0].category != "sub-graph" || r.inside[0].inside != nil {
						t.Errorf("%s, %s: step %d holds %v, want %s", mode, rank, i, names(r.inside), name)
					}
					continue
				}
				if !slices.Equal(names(r.inside), want[half]) {
					t.Fatalf("%s, %s: step %d holds %v, want %v", mode, rank, i, names(r.inside), want[half])
				}
				for _, g := range r.inside {
					inner := nodes[g.name]
					if strings.HasPrefix(mode, "graph") {
						inner = nil
					}
					if g.category != "sub-graph" || !slices.Equal(names(g.inside), inner) {
						t.Errorf("%s, %s: %+v holds %v, want %v", mode, rank, *g, names(g.inside), inner)
					}
				}
			}
		}
	}
	checkSpans(t, s, cell)
	checkCaptured(t, s, want[workloads.A])
}

// checkSpans looks for what happens in a cell, in order, and that the phases of
// capturing are those of the record.
func checkSpans(t *testing.T, s seen, cell *results.Cell) {
	t.Helper()
	var phases, blocks, captured []string
	for _, r := range s.spans {
		switch r.category {
		case "phase":
			if r.name != "steps" && r.name != "single_step" && (len(phases) == 0 || phases[len(phases)-1] != r.name) {
				phases = append(phases, r.name)
			}
			if r.name == "block" {
				blocks = append(blocks, r.value)
			}
		case "capture":
			captured = append(captured, r.name)
		}
	}
	if want := []string{"build", "prepare_operators", "verify", "prepare", "warm_up", "block"}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
	if want := []string{"0", "0", "0", "1", "1", "1"}; !slices.Equal(blocks, want) {
		t.Errorf("blocks %v, want %v", blocks, want)
	}
	var recorded []string
	for _, x := range cell.Configurations {
		for _, p := range x.Prepare {
			if p.Phase != "prepare_operators" {
				recorded = append(recorded, p.Phase)
			}
		}
	}
	if !slices.Equal(captured, recorded) {
		t.Errorf("phases of capturing %v, the record has %v", captured, recorded)
	}
}

// checkCaptured looks into the phases of capturing.
func checkCaptured(t *testing.T, s seen, step []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range s.pushed["rank 1"] {
		if r.category != "capture" {
			continue
		}
		seen[r.name] = true
		if !slices.ContainsFunc(r.spans, func(n string) bool { return n == "capture" || n == "capture_collectives" }) {
			t.Errorf("%s is captured in %v", r.name, r.spans)
		}
		if r.name == "train_step A final/full" && !slices.Equal(names(r.inside), step) {
			t.Errorf("%s holds %v, want %v", r.name, names(r.inside), step)
		}
	}
	for _, name := range []string{"DEEP_FWD_BWD (final/full)", "DEEP_COMM (final/full)", "train_step A final/full", "train_step B final/full"} {
		if !seen[name] {
			t.Errorf("no capture of %s among %v", name, seen)
		}
	}
}

// A last batch's step begins the next epoch: the one before then ends.
func TestShownEpochs(t *testing.T) {
	if raceDetector {
		t.Skip("the tool is C code, which the race detector does not see")
	}
	for _, test := range []struct {
		variant int
		epoch   string
	}{{2, "epoch"}, {3, "epoch"}, {4, "validation"}} {
		t.Run(fmt.Sprint("variant ", test.variant), func(t *testing.T) {
			c, log := tool(t)
			req := request(1, key("eager/event/device"))
			req.Cell.Variant, req.Tool = test.variant, c
			_, err := RunCell(context.Background(), cpu.New(cpu.Options{}), req)
			must(t, err)
			steps := 0
			for _, r := range understand(t, log()).pushed["rank 0"] {
				if r.name != "step" || !slices.Contains(r.spans, "block") {
					continue
				}
				steps++
				var epochs []string
				for _, n := range r.spans {
					if n == "epoch" || n == "validation" {
						epochs = append(epochs, n)
					}
				}
				if !slices.Equal(epochs, []string{test.epoch}) {
					t.Errorf("step %d is in %v", steps, epochs)
				}
			}
			if steps != 2*(3+1) {
				t.Errorf("%d steps", steps)
			}
		})
	}
}

// A profiler's span holds the steps that it is shown: those of the warm-up are
// before it.
func TestShownProfile(t *testing.T) {
	if raceDetector {
		t.Skip("the tool is C code, which the race detector does not see")
	}
	c, log := tool(t)
	req := request(1, key("graph/event/device"))
	req.Tool, req.Warmup, req.Steps = c, new(4), 3
	verify, err := Profile(context.Background(), cpu.New(cpu.Options{}), req)
	must(t, err)
	if !verify.Equal {
		t.Errorf("verified %+v", verify)
	}
	s := understand(t, log())
	var warm, profiled []string
	for _, r := range s.pushed["rank 0"] {
		switch {
		case r.name != "step":
		case slices.Contains(r.spans, "profile"):
			profiled = append(profiled, r.value)
		case slices.Contains(r.spans, "warm_up") && !slices.Contains(r.spans, "verify"):
			warm = append(warm, r.value)
		}
	}
	if want := []string{"0", "1", "2", "3"}; !slices.Equal(warm, want) {
		t.Errorf("steps of the warm-up %v, want %v", warm, want)
	}
	if want := []string{"4", "5", "6"}; !slices.Equal(profiled, want) {
		t.Errorf("steps shown %v, want %v", profiled, want)
	}
}
