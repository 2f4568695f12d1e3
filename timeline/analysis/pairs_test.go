package analysis

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

var update = flag.Bool("update", false, "rewrite the table of intervals, and the pairs from the folder that TRBENCH_PAIRS names")

const (
	// pairsFile has what intervals are told from, of the pairs whose eager trace is
	// not kept beside the records.
	pairsFile  = "testdata/h200-pairs.txt"
	pairsHead  = "# What the interval of a captured step is told from, of eager traces that are not kept. In ns.\n# pair name nodes and the host's feeding; then a line a recorded step: all, busy, idle by launching, idle that capture may remove.\n"
	tableFile  = "../../results/2026-11-30-h200/README.md"
	tableBegin = "<!-- intervals: go test ./timeline/analysis -run Pairs -update -->\n"
	tableEnd   = "<!-- end of intervals -->\n"
	recordsDir = "../../results/2026-11-30-h200/traces"
)

// pair is an eager step that was recorded, and the same step as one graph.
type pair struct {
	name            string // the record's: workload, batch and precision
	eagerNs, stepNs int64  // timed, without recording
	replayNs        int64  // the graph, recorded
	trace           string // of eager
	observed
}

// observed is what the interval is told from.
type observed struct {
	nodes  int
	feedNs int64
	steps  []stretch
}

// calibrates: the constants that come from pairs come from these.
func (p *pair) calibrates() bool { return strings.HasPrefix(p.name, "resnet18-cifar-") }

func (o observed) interval() Capture {
	c := Capture{
		EagerNs: median(mapped(o.steps, func(s stretch) int64 { return s.spanNs })),
		BusyNs:  median(mapped(o.steps, func(s stretch) int64 { return s.busyNs })),
	}
	c.interval(o.steps, o.nodes, o.feedNs)
	return c
}

// observe reads an eager trace.
func observe(t *testing.T, trace string) observed {
	t.Helper()
	recording, err := read.File(trace, read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := Devices(timeline.NewIndex(recording), Options{})
	if err != nil || len(devices) != 1 || devices[0].Capture.Withheld != "" {
		t.Fatalf("%s: %d devices, %v", trace, len(devices), err)
	}
	d := &devices[0]
	o := observed{int(d.Capture.Nodes), d.feedNs() / int64(len(d.Steps)), d.stretches()}
	// What is told from these figures is what the command says.
	if got, want := o.interval(), d.Capture; got.LowNs != want.LowNs || got.HighNs != want.HighNs || got.OrderedLowNs != want.OrderedLowNs {
		t.Errorf("%s: %+v, but analyze says %+v", trace, got, want)
	}
	return o
}

// pairs are those of the records. Figures of traces that are not kept come from
// pairsFile, or, to write it, from the folder that TRBENCH_PAIRS names.
func pairs(t *testing.T) []pair {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordsDir, "*.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	kept := readObserved(t)
	var out []pair
	for _, f := range files {
		if strings.Contains(f, ".trace.") {
			continue
		}
		r, err := results.ReadFile(f)
		if err != nil || len(r.Cells) != 1 {
			t.Fatalf("%s: %v", f, err)
		}
		p := pair{name: strings.TrimSuffix(filepath.Base(f), ".json.gz")}
		for _, c := range r.Cells[0].Configurations {
			value := func(m *results.Metric) int64 {
				if m == nil {
					t.Fatalf("%s lacks a figure of %s", f, c.Key.Mode)
				}
				return int64(math.Round(m.Value))
			}
			switch c.Key.Mode {
			case "eager":
				p.eagerNs = value(c.Metric(results.StepTimeNs))
				p.trace = filepath.Join(recordsDir, p.name+"-eager.trace.json.gz")
			case "step":
				p.stepNs, p.replayNs = value(c.Metric(results.StepTimeNs)), value(c.Trace.Metric(results.TracedStepNs))
			}
		}
		if _, err := os.Stat(p.trace); err == nil {
			p.observed = observe(t, p.trace)
		} else if dir := os.Getenv("TRBENCH_PAIRS"); *update && dir != "" {
			p.observed = observe(t, filepath.Join(dir, filepath.Base(p.trace)))
			kept[p.name] = p.observed
		} else if p.observed = kept[p.name]; len(p.steps) == 0 {
			t.Fatalf("%s has neither a trace nor figures in %s", p.name, pairsFile)
		}
		out = append(out, p)
	}
	if *update {
		writeObserved(t, kept)
	}
	return out
}

func readObserved(t *testing.T) map[string]observed {
	t.Helper()
	b, err := os.ReadFile(pairsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]observed{}
	name := ""
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var o observed
		if _, err := fmt.Sscanf(line, "pair %s %d %d", &name, &o.nodes, &o.feedNs); err == nil {
			out[name] = o
			continue
		}
		var s stretch
		if _, err := fmt.Sscan(line, &s.spanNs, &s.busyNs, &s.launchNs, &s.perhapsNs); err != nil || name == "" {
			t.Fatalf("%s: %q: %v", pairsFile, line, err)
		}
		o = out[name]
		o.steps = append(o.steps, s)
		out[name] = o
	}
	return out
}

func writeObserved(t *testing.T, all map[string]observed) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(pairsHead)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		fmt.Fprintf(&b, "pair %s %d %d\n", name, o.nodes, o.feedNs)
		for _, s := range o.steps {
			fmt.Fprintln(&b, s.spanNs, s.busyNs, s.launchNs, s.perhapsNs)
		}
	}
	if err := os.WriteFile(pairsFile, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPairs: intervals told from eager recordings alone hold the step as one
// graph, as timed without recording, and are no wider than asked for.
func TestPairs(t *testing.T) {
	list := pairs(t)
	var table bytes.Buffer
	table.WriteString("| cell | | eager, recorded | busy | interval | in order, from | step, timed | in it | upper/lower | [busy, eager] | its upper/lower |\n|---|---|--:|--:|--:|--:|--:|---|--:|---|--:|\n")
	groups := []*group{{name: "held out"}, {name: "calibrates"}}
	for i := range list {
		p := &list[i]
		c := p.interval()
		g := groups[0]
		if p.calibrates() {
			g = groups[1]
		}
		in, trivially := c.LowNs <= p.stepNs && p.stepNs <= c.HighNs, c.BusyNs <= p.stepNs && p.stepNs <= c.EagerNs
		ratio, trivial := float64(c.HighNs)/float64(c.LowNs), float64(c.EagerNs)/float64(c.BusyNs)
		g.add(in, trivially, ratio, trivial)
		us := func(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/1e3) }
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s to %s | %s | %s | %s | %.2f | %s | %.2f |\n", p.name, g.name, us(c.EagerNs), us(c.BusyNs),
			us(c.LowNs), us(c.HighNs), us(c.OrderedLowNs), us(p.stepNs), word(in), ratio, word(trivially), trivial)
	}
	table.WriteString("\n")
	for _, g := range groups {
		fmt.Fprintf(&table, "%s: %d of %d hold the timed step, median upper/lower %.2f; [busy, eager]: %d of %d, %.2f.\n", g.name, g.in, g.n, middle(g.ratios), g.trivially, g.n, middle(g.trivial))
	}
	if g := groups[0]; g.n != 6 || g.in != g.n || middle(g.ratios) > 1.5 {
		t.Errorf("%d of %d pairs that did not calibrate, median upper/lower %.2f", g.in, g.n, middle(g.ratios))
	}
	in, n := elsewhere(t, list)
	fmt.Fprintf(&table, "Of the records of other sessions, with up to 8 processes: modes `step` and `graph` (event joins) of these cells, %d of %d times in the interval.\n", in, n)
	if in != n {
		t.Errorf("%d of %d times of other sessions are in the intervals", in, n)
	}
	checkTable(t, table.String())
}

// elsewhere counts the captured steps of the same cells in the records beside,
// and those that the intervals hold.
func elsewhere(t *testing.T, list []pair) (in, n int) {
	t.Helper()
	for _, p := range list {
		r, err := results.ReadFile(filepath.Join(filepath.Dir(recordsDir), p.name+".json.gz"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		c := p.interval()
		for _, k := range r.Cells[0].Configurations {
			if m := k.Metric(results.StepTimeNs); m != nil && k.Key.Mode != "eager" && k.Key.Sync != "host" {
				n++
				if v := int64(math.Round(m.Value)); c.LowNs <= v && v <= c.HighNs {
					in++
				} else {
					t.Errorf("%s: mode %s took %d ns elsewhere, not %d to %d", p.name, k.Key.Mode, v, c.LowNs, c.HighNs)
				}
			}
		}
	}
	return in, n
}

// group is some pairs and how their intervals fared.
type group struct {
	name             string
	n, in, trivially int
	ratios, trivial  []float64
}

func (g *group) add(in, trivially bool, ratio, trivial float64) {
	g.n++
	if in {
		g.in++
	}
	if trivially {
		g.trivially++
	}
	g.ratios, g.trivial = append(g.ratios, ratio), append(g.trivial, trivial)
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func word(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func checkTable(t *testing.T, table string) {
	t.Helper()
	b, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), tableBegin)
	got, after, ends := strings.Cut(rest, tableEnd)
	if !found || !ends {
		t.Fatalf("%s has no place for the table", tableFile)
	}
	if got == table {
		return
	}
	if !*update {
		t.Errorf("%s has another table; -update writes this one:\n%s", tableFile, table)
		return
	}
	if err := os.WriteFile(tableFile, []byte(before+tableBegin+table+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestConstantsOfPairs: the constants are the least that the calibrating pairs
// need, rounded up to 50 ns and to 1 %.
func TestConstantsOfPairs(t *testing.T) {
	var hiddenNode, hiddenShare, drift float64
	for _, p := range pairs(t) {
		if !p.calibrates() {
			continue
		}
		c := p.interval()
		hidden := float64(c.OrderedLowNs - p.stepNs)
		hiddenNode = max(hiddenNode, hidden/float64(p.nodes))
		hiddenShare = max(hiddenShare, hidden/float64(c.BusyNs))
		drift = max(drift, float64(p.stepNs)/float64(p.replayNs)-1)
	}
	if got := 50 * math.Ceil(hiddenNode/50); got != OverlapNodeNs {
		t.Errorf("%.1f ns a node were hidden, the constant is %d", hiddenNode, OverlapNodeNs)
	}
	if got := math.Ceil(100 * hiddenShare); got != OverlapPercent {
		t.Errorf("%.2f %% of busy time were hidden, the constant is %d", 100*hiddenShare, OverlapPercent)
	}
	if got := math.Ceil(100 * drift); got != DriftPercent {
		t.Errorf("busy time drifted by %.2f %%, the constant is %d", 100*drift, DriftPercent)
	}
}

// TestHostIsAFloor: a host that feeds for longer than the graph takes is what a
// step waits for, and of one that takes longer than eager nothing is gained.
func TestHostIsAFloor(t *testing.T) {
	// As a graph of 10 nodes at most 100 + 4 + 9 x 0.68 + 2.043 = 112.163 us, at
	// least 100 - 11.5; launching it takes 2.043 us of the host.
	s := []stretch{{spanNs: 1_000_000, busyNs: 100_000, launchNs: 900_000}}
	for _, test := range []struct{ feed, low, ordered, high int64 }{
		{0, 88_500, 100_000, 112_163},
		{95_000, 97_043, 100_000, 112_163},
		{105_000, 107_043, 107_043, 112_163},
		{500_000, 502_043, 502_043, 502_043},
		{2_000_000, 1_004_000, 1_004_000, 1_004_000},
	} {
		var c Capture
		c.interval(s, 10, test.feed)
		if c.LowNs != test.low || c.OrderedLowNs != test.ordered || c.HighNs != test.high || c.LossNs != 0 {
			t.Errorf("feeding for %d ns: %d, %d..%d, want %d, %d..%d", test.feed, c.OrderedLowNs, c.LowNs, c.HighNs, test.ordered, test.low, test.high)
		}
	}
}
