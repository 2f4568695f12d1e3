package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Table writes a record's cells and configurations, one a line, then what
// must be read with them: the evidence, the warnings, and, for a record of a
// CPU, why it has no headline.
func Table(w io.Writer, r *results.Record) error {
	if err := grid(r).Write(w); err != nil {
		return err
	}
	for _, line := range slices.Concat(evidence(r), warnings(r), notes(r)) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// column is one property of a cell.
type column struct {
	name string
	// always shows the column even if all cells agree
	always bool
	text   func(results.CellKey) string
}

func columns() []column {
	number := func(f func(results.CellKey) int) func(results.CellKey) string {
		return func(k results.CellKey) string { return strconv.Itoa(f(k)) }
	}
	return []column{
		{"workload", true, func(k results.CellKey) string { return k.Workload }},
		{"batch", true, number(func(k results.CellKey) int { return k.Batch })},
		{"gpus", true, number(func(k results.CellKey) int { return k.GPUs })},
		{"precision", false, func(k results.CellKey) string { return k.Precision }},
		{"optimizer", false, func(k results.CellKey) string { return k.Optimizer }},
		{"ema", false, func(k results.CellKey) string { return strconv.FormatBool(k.EMA) }},
		{"smoothing", false, func(k results.CellKey) string { return strconv.FormatFloat(k.Smoothing, 'g', -1, 64) }},
		{"frozen", false, func(k results.CellKey) string { return strconv.FormatBool(k.Frozen) }},
		{"resolution", false, func(k results.CellKey) string { return fmt.Sprintf("%d,%d", k.Resolution.Begin, k.Resolution.Final) }},
		{"variant", false, number(func(k results.CellKey) int { return k.Variant })},
		{"device", false, func(k results.CellKey) string { return k.Device }},
		{"kernels", false, func(k results.CellKey) string { return k.Kernels }},
	}
}

// shown leaves out columns in which all cells agree.
func shown(r *results.Record) []column {
	return slices.DeleteFunc(columns(), func(c column) bool {
		if c.always {
			return false
		}
		for _, cell := range r.Cells {
			if c.text(cell.Key) != c.text(r.Cells[0].Key) {
				return false
			}
		}
		return true
	})
}

func grid(r *results.Record) Grid {
	cols := shown(r)
	var g Grid
	for _, c := range cols {
		g.Header = append(g.Header, c.name)
	}
	g.Header = append(g.Header, "mode", "sync", "control")
	g.Left = len(g.Header)
	g.Header = append(g.Header, "step", "submit", "sync wait", "host", "images/s", "launches")
	for i := range r.Cells {
		cell := &r.Cells[i]
		var keys []string
		for _, c := range cols {
			keys = append(keys, c.text(cell.Key))
		}
		for j := range cell.Configurations {
			g.Rows = append(g.Rows, slices.Concat(keys, figures(&cell.Configurations[j])))
		}
	}
	return g
}

func figures(c *results.Configuration) []string {
	row := []string{c.Key.Mode, c.Key.Sync, c.Key.Control}
	for _, name := range []string{results.StepTimeNs, results.SubmitTimeNs, results.SyncWaitNs, results.HostTimeNs} {
		text := "-"
		if m := c.Metric(name); m != nil {
			text = Duration(m.Value)
		}
		row = append(row, text)
	}
	rate := "-"
	if m := c.Metric(results.ImagesPerS); m != nil {
		rate = digits(m.Value)
	}
	return append(row, rate, count(c.Counts.Launches.Host))
}

func count(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

// evidence is a line on what was compared before anything was timed.
func evidence(r *results.Record) []string {
	var tensors, steps int
	var bytes int64
	for _, c := range r.Cells {
		if !c.Verify.Equal {
			return []string{"The modes of a cell were not found equal: its figures mean nothing."}
		}
		tensors, bytes, steps = max(tensors, c.Verify.Tensors), max(bytes, c.Verify.Bytes), max(steps, c.Verify.Steps)
	}
	if len(r.Cells) == 0 {
		return []string{"The record has no cells."}
	}
	return []string{fmt.Sprintf(
		"Before timing, all modes of each cell left the same bits: up to %d tensors, %s, after %d steps.",
		tensors, Bytes(bytes), steps)}
}

func warnings(r *results.Record) []string {
	var lines []string
	for _, c := range r.Cells {
		for _, w := range c.Warnings {
			lines = append(lines, fmt.Sprintf("Warning (%s batch %d gpus %d): %s [%s]",
				c.Key.Workload, c.Key.Batch, c.Key.GPUs, w.Text, w.Code))
		}
	}
	return lines
}

// notes says what the figures cannot carry.
func notes(r *results.Record) []string {
	onCPU := slices.ContainsFunc(r.Cells, func(c results.Cell) bool { return c.Key.Device == "cpu" })
	if !onCPU {
		return nil
	}
	return strings.Split(strings.TrimSpace(`
A CPU record shows the method, not the gain: here a launch costs next to nothing and the arithmetic nearly all.
For real figures use --device=cuda on a machine with an NVIDIA GPU.`), "\n")
}
