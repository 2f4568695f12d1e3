package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tech-renaissance/trbench/results"
)

// Gobench writes the records in Go's benchmark format, a line a process, so
// that benchstat counts replicates and not steps:
//
//	benchstat -col /mode report.bench
//	benchstat -col /mode -ignore /sync -filter '/sync:(event OR inside)' report.bench
//
// The second line also pairs mode step, whose joins lie inside its graph. What
// differs between machines stands in configuration lines, and benchstat keeps
// such results in tables of their own. With 3 processes every delta of a
// measured figure (all but counts) is ~, that
// is, not significant: benchstat's test needs at least 4 on either side.
//
// The format: https://go.dev/design/14313-benchmark-format.
func Gobench(w io.Writer, records []Named) error { return gather(records).gobench(w) }

// benchstatCommands compare the modes of a written report.bench.
var benchstatCommands = []string{
	"benchstat -col /mode report.bench",
	"benchstat -col /mode -ignore /sync -filter '/sync:(event OR inside)' report.bench",
}

// What a reader of the format must know to use it.
const (
	benchstatInstall = "go install golang.org/x/perf/cmd/benchstat@latest"
	benchstatStep    = "The last command also pairs mode step, whose joins lie inside its graph."
	benchstatFew     = "With 3 processes every delta but those of counts is ~ (not significant): benchstat's test needs at least 4. Run with --processes=8."
)

func (s sources) gobench(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, l := range benchstatCommands {
		fmt.Fprintln(b, "# "+l)
	}
	for _, l := range []string{benchstatStep, benchstatFew} {
		fmt.Fprintln(b, "# "+l)
	}
	for _, l := range s.unitLines() {
		fmt.Fprintln(b, l)
	}
	// The format has no word for doubt; readers skip these lines, people do not.
	for _, l := range slices.Concat(s.evidence(), s.failures(), s.warnings(), s.notes()) {
		fmt.Fprintln(b, "# "+l)
	}
	before := map[string]string{}
	for _, src := range s.list {
		before = gobenchConfig(b, src, before)
		for i := range src.record.Cells {
			cell := &src.record.Cells[i]
			if !cell.Verify.Equal {
				continue // its figures mean nothing, and a comment stops no program
			}
			for j := range cell.Configurations {
				gobenchLines(b, cell, &cell.Configurations[j])
			}
		}
	}
	return b.Flush()
}

// gobenchUnit is a metric's name in the format. Times but the step's are in
// seconds: readers turn ns into them, but leave the unit of a 0 as it is, so that
// in ns the zeros of a metric would be a metric, and a table, of their own.
func gobenchUnit(m *results.Metric) string {
	switch {
	case m.Name == results.StepTimeNs:
		return "ns/op"
	case m.Name == results.ImagesPerS:
		return "images/s"
	case m.Unit == "ns":
		return word(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(m.Name, "_ns"), "_time"), "_", "-")) + "-sec/op"
	}
	return word(m.Name)
}

// gobenchValue is a metric's value in [gobenchUnit].
func gobenchValue(m *results.Metric, v float64) float64 {
	if m.Unit == "ns" && m.Name != results.StepTimeNs {
		return v / 1e9
	}
	return v
}

const gobenchLaunches = "launches/op"

// unitLines give each unit's direction, and what benchstat may assume: times
// nothing, counts that they are exact.
func (s sources) unitLines() []string {
	var lines []string
	seen := map[string]bool{}
	add := func(unit, direction, assume string) {
		if seen[unit] {
			return
		}
		seen[unit] = true
		line := "Unit " + unit
		if direction == results.Lower || direction == results.Higher {
			line += " better=" + direction
		}
		lines = append(lines, line+" assume="+assume)
	}
	for _, r := range s.rows() {
		for i := range r.conf.Metrics {
			add(gobenchUnit(&r.conf.Metrics[i]), r.conf.Metrics[i].Direction, "nothing")
		}
		if r.conf.Counts.Launches.Host != nil {
			add(gobenchLaunches, results.Lower, "exact")
		}
	}
	return lines
}

// gobenchConfig writes what differs from the lines in force, and takes back
// what this record does not say.
func gobenchConfig(w io.Writer, src *source, before map[string]string) map[string]string {
	r := src.record
	now := map[string]string{}
	var order []string
	set := func(key, value string) {
		key, value = configKey(key), plain(value)
		if key == "" || value == "" {
			return
		}
		if _, ok := now[key]; !ok {
			order = append(order, key)
		}
		now[key] = value
	}
	set("goos", r.Host.OS)
	set("goarch", r.Host.Arch)
	set("device-description", r.Device.Description)
	set("trbench-version", r.Program.Version)
	set("revision", src.fact("revision"))
	for _, f := range r.Environment.Fields {
		set(f.Name, f.Value)
		if f.Name == "cpu.model" {
			set("cpu", f.Value)
		}
	}
	var gone []string
	for key := range before {
		if _, ok := now[key]; !ok {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	for _, key := range gone {
		fmt.Fprintf(w, "%s:\n", key)
	}
	for _, key := range order {
		if before[key] != now[key] {
			fmt.Fprintf(w, "%s: %s\n", key, now[key])
		}
	}
	return now
}

// configKey fits a name to the format: a lower case letter first, no spaces
// and no capitals.
func configKey(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || r == ':':
			return '-'
		case unicode.IsUpper(r):
			return unicode.ToLower(r)
		}
		return r
	}, plain(s))
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return ""
	}
	if strings.IndexFunc(s, unicode.IsUpper) >= 0 {
		return "" // a capital without a lower case form
	}
	return s
}

// gobenchName holds the whole row key. Parts that few runs vary are left out
// at their defaults; the rule looks at the key alone, so that two files name a
// row alike. The last part must not end in a dash and a number, which readers
// take for GOMAXPROCS: gpus never does.
func gobenchName(c results.CellKey, k results.ConfigurationKey) string {
	var b strings.Builder
	b.WriteString("BenchmarkStep")
	part := func(key, value string) { fmt.Fprintf(&b, "/%s=%s", key, word(value)) }
	def := results.DefaultCellKey()
	part("workload", c.Workload)
	part("device", c.Device)
	if c.Kernels != def.Kernels {
		part("kernels", c.Kernels)
	}
	part("precision", c.Precision)
	part("optimizer", c.Optimizer)
	if c.EMA {
		part("ema", "true")
	}
	if c.Smoothing != 0 {
		part("smoothing", exact(c.Smoothing))
	}
	if c.Frozen {
		part("frozen", "true")
	}
	if r := c.Resolution; r != (results.Resolution{}) {
		part("resolution", fmt.Sprintf("%d,%d", r.Begin, r.Final))
	}
	if l := c.LastBatch; l != (results.LastBatch{}) {
		part("last-batch", fmt.Sprintf("%d,%d", l.Train, l.Val))
	}
	if c.Variant != def.Variant {
		part("variant", strconv.Itoa(c.Variant))
	}
	part("mode", k.Mode)
	part("sync", k.Sync)
	part("control", k.Control)
	conf := results.DefaultConfigurationKey()
	if k.Launcher != conf.Launcher && k.Launcher != "" {
		part("launcher", k.Launcher)
	}
	if k.Ranks != conf.Ranks && k.Ranks != "" {
		part("ranks", k.Ranks)
	}
	if k.DispatchNs != 0 {
		part("dispatch-ns", strconv.FormatInt(k.DispatchNs, 10))
	}
	part("batch", strconv.Itoa(c.Batch))
	part("gpus", strconv.Itoa(c.GPUs))
	return b.String()
}

// word makes text one field of a name.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, plain(s))
	if s == "" {
		return "none"
	}
	return s
}

// gobenchLines writes a line a process. The iterations are its timed steps;
// the format wants at least 1.
func gobenchLines(w io.Writer, cell *results.Cell, c *results.Configuration) {
	type column struct {
		metric *results.Metric
		values []float64
	}
	var columns []column
	lines := 0
	for i := range c.Metrics {
		m := &c.Metrics[i]
		if values := perProcess(m); len(values) > 0 {
			columns = append(columns, column{m, values})
			lines = max(lines, len(values))
		}
	}
	iterations := max(1, cell.Steps*max(1, cell.Blocks))
	for p := range lines {
		var b strings.Builder
		for _, col := range columns {
			if p < len(col.values) && finite(col.values[p]) {
				fmt.Fprintf(&b, " %s %s", exact(gobenchValue(col.metric, col.values[p])), gobenchUnit(col.metric))
			}
		}
		if n := c.Counts.Launches.Host; n != nil {
			fmt.Fprintf(&b, " %d %s", *n, gobenchLaunches)
		}
		if b.Len() > 0 {
			fmt.Fprintf(w, "%s %d%s\n", gobenchName(cell.Key, c.Key), iterations, b.String())
		}
	}
}

// perProcess is a metric's median in each process. Records before 1.1 carry no
// summary and their samples are grouped here, which is the one place where a
// figure is made from samples.
func perProcess(m *results.Metric) []float64 {
	if m.Summary != nil && len(m.Summary.Processes) > 0 {
		return m.Summary.Processes
	}
	groups := map[int][]float64{}
	var order []int
	for _, s := range m.Samples {
		if _, ok := groups[s.Process]; !ok {
			order = append(order, s.Process)
		}
		groups[s.Process] = append(groups[s.Process], s.Value)
	}
	var out []float64
	for _, p := range order {
		out = append(out, results.Median(groups[p]))
	}
	if len(out) == 0 && finite(m.Value) {
		out = []float64{m.Value}
	}
	return out
}
