package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Named is a record and what messages call it.
type Named struct {
	Name   string
	Record *results.Record
}

// Gathered is what two sides' records have of the gated metrics. Rows stand in
// the order in which base's records have them.
type Gathered struct {
	Rows               []Row
	OnlyBase, OnlyHead []results.RowKey
	Exact              []results.ExactDifference
	// Partial says in sentences what should be there and is not: unfinished
	// records, failed cells and processes, rows that base has and head lacks or
	// that some records of a side lack.
	Partial []string
}

// UnequalError says that a record's modes were not found equal, so that its
// figures mean nothing.
type UnequalError struct {
	Record string
	Cell   results.CellKey
}

func (e *UnequalError) Error() string {
	return fmt.Sprintf("record %s: the modes of %s were not found equal, so its figures mean nothing", e.Record, e.Cell.Name())
}

// Gather pairs the rows of base's records with those of head's: each record is
// a run. A record whose process medians are not those of its samples was
// edited, and is a [*results.ReadError]; modes that are not equal are an
// [*UnequalError].
func Gather(base, head []Named) (*Gathered, error) {
	g := &Gathered{}
	b, err := g.collect(results.BaseSide, base)
	if err != nil {
		return nil, err
	}
	h, err := g.collect(results.HeadSide, head)
	if err != nil {
		return nil, err
	}
	for _, k := range b.order {
		other, both := h.rows[k]
		if !both {
			g.OnlyBase = append(g.OnlyBase, k)
			continue
		}
		of := b.rows[k]
		g.Rows = append(g.Rows, Row{Key: k, Unit: of.unit, Direction: of.direction, Base: of.runs, Head: other.runs})
	}
	for _, k := range h.order {
		if b.rows[k] == nil {
			g.OnlyHead = append(g.OnlyHead, k)
		}
	}
	if n := len(g.OnlyBase); n > 0 {
		g.Partial = append(g.Partial, fmt.Sprintf("head lacks %s that base has", rows(n)))
	}
	for _, s := range []struct {
		side string
		collected
		records int
	}{{results.BaseSide, b, len(base)}, {results.HeadSide, h, len(head)}} {
		short := 0
		for _, k := range s.order {
			if len(s.rows[k].runs) < s.records {
				short++
			}
		}
		if short > 0 {
			g.Partial = append(g.Partial, fmt.Sprintf("not all %d records of %s have %s", s.records, s.side, rows(short)))
		}
	}
	g.Exact = exactDifferences(base, head)
	return g, nil
}

// collected is a side's rows.
type collected struct {
	order []results.RowKey
	rows  map[results.RowKey]*sideRow
}

type sideRow struct {
	unit, direction string
	runs            [][]float64
}

func (g *Gathered) collect(side string, records []Named) (collected, error) {
	c := collected{rows: map[results.RowKey]*sideRow{}}
	for _, r := range records {
		if r.Record.Status != results.Complete {
			g.Partial = append(g.Partial, fmt.Sprintf("%s: %s is not complete", side, r.Name))
		}
		for i := range r.Record.Cells {
			cell := &r.Record.Cells[i]
			g.Partial = append(g.Partial, failures(side, r.Name, cell)...)
			for j := range cell.Configurations {
				if !cell.Verify.Equal {
					return c, &UnequalError{Record: r.Name, Cell: cell.Key}
				}
				if err := c.add(r.Name, cell, &cell.Configurations[j]); err != nil {
					return c, err
				}
			}
		}
	}
	return c, nil
}

func failures(side, record string, c *results.Cell) []string {
	at := fmt.Sprintf("%s: %s: %s", side, record, c.Key.Name())
	failed := 0
	for _, p := range c.Processes {
		if p.Status == results.Failed {
			failed++
		}
	}
	switch {
	case c.Status == results.Failed:
		return []string{at + " failed"}
	case failed > 0:
		return []string{fmt.Sprintf("%s: %d of %d processes failed", at, failed, len(c.Processes))}
	}
	return nil
}

// add takes the gated metrics of a configuration.
func (c *collected) add(record string, cell *results.Cell, conf *results.Configuration) error {
	for _, name := range results.Gated() {
		m := conf.Metric(name)
		if m == nil {
			continue
		}
		key := results.RowKey{Cell: cell.Key, Configuration: conf.Key, Metric: name}
		medians, err := processMedians(m)
		if err != nil {
			return &results.ReadError{File: record, Problem: fmt.Sprintf("%s: %v; it was edited after the run", key, err)}
		}
		row := c.rows[key]
		if row == nil {
			d, _ := results.Define(name)
			row = &sideRow{unit: d.Unit, direction: d.Direction}
			c.rows[key] = row
			c.order = append(c.order, key)
		}
		row.runs = append(row.runs, medians)
	}
	return nil
}

// sameFigure is by how much a stored figure may differ from that of its
// samples: rounding when written by another version, never an edit.
const sameFigure = 1e-6

// processMedians are those of the samples; a stored summary must say the same.
// A record without samples has its summary alone.
func processMedians(m *results.Metric) ([]float64, error) {
	var medians []float64
	for _, values := range m.ByProcess() {
		medians = append(medians, results.Median(values))
	}
	s := m.Summary
	switch {
	case s == nil:
		return medians, nil
	case len(medians) == 0:
		return s.Processes, nil
	case len(m.Samples) != s.N && s.N != 0:
		return nil, fmt.Errorf("its summary is of %d samples, and it has %d", s.N, len(m.Samples))
	case !near(largest(m.Samples), s.Max) && s.Max != 0:
		return nil, fmt.Errorf("the largest value is %.10g in its summary and %.10g by its samples", s.Max, largest(m.Samples))
	case len(medians) != len(s.Processes):
		return nil, fmt.Errorf("its summary has %d processes and its samples %d", len(s.Processes), len(medians))
	}
	for i, v := range medians {
		if !near(v, s.Processes[i]) {
			return nil, fmt.Errorf("the median of process %d is %.10g in its summary and %.10g by its samples", i, s.Processes[i], v)
		}
	}
	if v := results.Median(medians); !near(v, s.Median) || !near(s.Median, m.Value) {
		return nil, fmt.Errorf("the median is %.10g, %.10g in its summary and %.10g by its samples", m.Value, s.Median, v)
	}
	return medians, nil
}

func largest(samples []results.Sample) float64 {
	most := math.Inf(-1)
	for _, s := range samples {
		most = max(most, s.Value)
	}
	return most
}

func near(a, b float64) bool { return math.Abs(a-b) <= sameFigure*max(math.Abs(a), math.Abs(b), 1) }

// exactDifferences compares what is counted or chosen, in cells and
// configurations that both sides have.
func exactDifferences(base, head []Named) []results.ExactDifference {
	b, h := factsOf(base), factsOf(head)
	var out []results.ExactDifference
	for _, k := range b.order {
		other, both := h.values[k]
		if !both {
			continue
		}
		of, to := b.values[k], other
		if k.what == whatPlans {
			of, to = without(of, other), without(other, of)
		}
		if slices.Equal(slices.Sorted(slices.Values(of)), slices.Sorted(slices.Values(to))) {
			continue
		}
		d := results.ExactDifference{Cell: k.cell, What: k.what, Base: listed(of), Head: listed(to)}
		if k.of {
			d.Configuration = &k.configuration
		}
		out = append(out, d)
	}
	return out
}

func without(list, remove []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(remove, s) })
}

func listed(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, ", ")
}

// fact names something exact.
type fact struct {
	cell          results.CellKey
	of            bool // a configuration, not the cell
	configuration results.ConfigurationKey
	what          string
}

const whatPlans = "plans"

// facts has each fact's distinct values over a side's records.
type facts struct {
	order  []fact
	values map[fact][]string
}

func (f *facts) add(k fact, values ...string) {
	if _, ok := f.values[k]; !ok {
		f.order = append(f.order, k)
		f.values[k] = nil
	}
	for _, v := range values {
		if !slices.Contains(f.values[k], v) {
			f.values[k] = append(f.values[k], v)
		}
	}
}

func factsOf(records []Named) facts {
	f := facts{values: map[fact][]string{}}
	for _, r := range records {
		for i := range r.Record.Cells {
			c := &r.Record.Cells[i]
			if len(c.Configurations) == 0 {
				continue // it did not come so far
			}
			var plans []string
			for _, p := range c.Plans {
				plans = append(plans, plan(p))
			}
			f.add(fact{cell: c.Key, what: whatPlans}, plans...)
			for j := range c.Configurations {
				x := &c.Configurations[j]
				put := func(what string, n *int64) {
					f.add(fact{c.Key, true, x.Key, what}, counted(n))
				}
				put("launches.host", x.Counts.Launches.Host)
				put("launches.graph", x.Counts.Launches.Graph)
				put("launches.copy", x.Counts.Launches.Copy)
				put("launches.sync", x.Counts.Launches.Sync)
				put("kernels", x.Counts.Kernels)
				var nodes []string
				for _, kind := range slices.Sorted(maps.Keys(x.Counts.GraphNodes)) {
					nodes = append(nodes, fmt.Sprintf("%s %d", kind, x.Counts.GraphNodes[kind]))
				}
				f.add(fact{c.Key, true, x.Key, "graph_nodes"}, strings.Join(nodes, " + "))
			}
		}
	}
	return f
}

// plan is a library plan in one form, whatever the order of its fields, without
// what was measured when it was chosen: that is never the same twice, and no part
// of what ran.
func plan(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if fields, ok := v.(map[string]any); ok {
			for _, measured := range []string{"time_ns", "candidates", "rule"} {
				delete(fields, measured)
			}
		}
		if b, err := json.Marshal(v); err == nil {
			return string(b)
		}
	}
	return string(raw)
}

func counted(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}
