package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Kinds of CSV lines.
const (
	kindMetric  = "metric"   // a metric of a configuration
	kindCount   = "count"    // a count a step
	kindPrepare = "prepare"  // a phase of preparing
	kindRatio   = "ratio"    // base over this configuration
	kindHead    = "headline" // the same, as the cell's figure, and its split
	kindTrace   = "trace"    // a figure of the traced pass, which recording inflates
	kindLaunch  = "launch"   // what a layer of a launch takes, in the traced pass
	kindCell    = "cell"     // a cell that failed before it had figures
	kindWarning = "warning"  // doubt about the record or the cell
)

// csvLine is a line by column name: what a kind has not stays empty.
type csvLine map[string]string

func csvHeader() []string {
	return []string{
		"file", "created", "version", "revision", "device_description", "quick",
		"workload", "batch", "gpus", "precision", "optimizer", "ema", "smoothing", "frozen",
		"resolution_begin", "resolution_final", "last_batch_train", "last_batch_val", "variant", "device", "kernels",
		"mode", "sync", "control", "launcher", "ranks", "dispatch_ns",
		"kind", "name", "value", "low", "high", "level", "coverage", "method", "unit", "direction", "clock",
		"n", "processes", "p10", "p90", "p99", "max",
		"base_mode", "base_sync", "base_control", "base_launcher", "base_ranks", "base_dispatch_ns",
		"status", "note",
	}
}

// CSV writes every figure of the records in long form: a line is one row key
// and one figure, with base units and all digits. Figures that are unknown
// have no line.
func CSV(w io.Writer, records []Named) error { return gather(records).csv(w) }

func (s sources) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	header := csvHeader()
	if err := out.Write(header); err != nil {
		return err
	}
	for line := range s.csvLines {
		words := make([]string, len(header))
		for i, h := range header {
			words[i] = line[h]
		}
		if err := out.Write(words); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func (s sources) csvLines(yield func(csvLine) bool) {
	for _, src := range s.list {
		for _, w := range src.record.Warnings {
			if !yield(csvRecord(src).with(csvWarning(w))) {
				return
			}
		}
	}
	for cell, src := range s.cells {
		base := csvCell(src, cell)
		if failed(cell) && len(cell.Configurations) == 0 {
			if !yield(base.with(csvLine{"kind": kindCell, "note": plain(cell.Failure)})) {
				return
			}
		}
		for _, w := range cell.Warnings {
			if !yield(base.with(csvWarning(w))) {
				return
			}
		}
		for i := range cell.Configurations {
			for _, l := range csvConfiguration(base, &cell.Configurations[i]) {
				if !yield(l) {
					return
				}
			}
		}
		for _, l := range csvRatios(base, cell) {
			if !yield(l) {
				return
			}
		}
	}
}

func (l csvLine) with(more csvLine) csvLine {
	out := make(csvLine, len(l)+len(more))
	for k, v := range l {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func csvWarning(w results.Warning) csvLine {
	return csvLine{"kind": kindWarning, "name": plain(w.Code), "note": plain(w.Text)}
}

func csvRecord(src *source) csvLine {
	r := src.record
	created := ""
	if !r.Created.IsZero() {
		created = r.Created.UTC().Format(time.RFC3339)
	}
	return csvLine{
		"file": src.name, "created": created, "version": plain(r.Program.Version), "revision": src.fact("revision"),
		"device_description": plain(r.Device.Description), "quick": strconv.FormatBool(r.Quick),
	}
}

func csvCell(src *source, c *results.Cell) csvLine {
	k, note := c.Key, ""
	if failed(c) {
		note = plain(c.Failure)
	}
	return csvRecord(src).with(csvLine{
		"workload": plain(k.Workload), "batch": strconv.Itoa(k.Batch), "gpus": strconv.Itoa(k.GPUs),
		"precision": plain(k.Precision), "optimizer": plain(k.Optimizer), "ema": strconv.FormatBool(k.EMA),
		"smoothing": exact(k.Smoothing), "frozen": strconv.FormatBool(k.Frozen),
		"resolution_begin": strconv.Itoa(k.Resolution.Begin), "resolution_final": strconv.Itoa(k.Resolution.Final),
		"last_batch_train": strconv.Itoa(k.LastBatch.Train), "last_batch_val": strconv.Itoa(k.LastBatch.Val),
		"variant": strconv.Itoa(k.Variant), "device": plain(k.Device), "kernels": plain(k.Kernels),
		"status": status(c), "note": note,
	})
}

func csvKey(prefix string, k results.ConfigurationKey) csvLine {
	return csvLine{
		prefix + "mode": plain(k.Mode), prefix + "sync": plain(k.Sync), prefix + "control": plain(k.Control),
		prefix + "launcher": plain(k.Launcher), prefix + "ranks": plain(k.Ranks),
		prefix + "dispatch_ns": strconv.FormatInt(k.DispatchNs, 10),
	}
}

// value fills the columns of a figure.
func (f figure) csv() csvLine {
	l := csvLine{"value": number(f.value)}
	if f.n > 0 {
		l["n"] = strconv.Itoa(f.n)
	}
	if f.processes > 0 {
		l["processes"] = strconv.Itoa(f.processes)
	}
	if i := f.interval; i != nil {
		l["low"], l["high"], l["method"] = number(i.Low), number(i.High), plain(i.Method)
		l["level"], l["coverage"] = number(i.Level), number(i.Coverage)
	}
	return l
}

// number leaves out what is none, so that a column stays numeric.
func number(v float64) string {
	if !finite(v) {
		return ""
	}
	return exact(v)
}

func csvConfiguration(base csvLine, c *results.Configuration) []csvLine {
	base = base.with(csvKey("", c.Key))
	var out []csvLine
	for i := range c.Metrics {
		m := &c.Metrics[i]
		f := metricFigure(m)
		l := base.with(f.csv()).with(csvLine{
			"kind": kindMetric, "name": plain(m.Name), "unit": plain(m.Unit), "direction": plain(m.Direction), "clock": plain(m.Clock),
		})
		if s := m.Summary; s != nil {
			l["p10"], l["p90"], l["p99"], l["max"] = number(s.P10), number(s.P90), number(s.P99), number(s.Max)
		}
		if l["value"] != "" {
			out = append(out, l)
		}
	}
	for _, n := range []struct {
		name  string
		value *int64
	}{
		{"launches.host", c.Counts.Launches.Host}, {"launches.graph", c.Counts.Launches.Graph},
		{"launches.copy", c.Counts.Launches.Copy}, {"launches.sync", c.Counts.Launches.Sync}, {"kernels", c.Counts.Kernels},
	} {
		if n.value != nil {
			out = append(out, base.with(csvLine{"kind": kindCount, "name": n.name, "value": strconv.FormatInt(*n.value, 10)}))
		}
	}
	for _, p := range c.Prepare {
		out = append(out, base.with(csvLine{
			"kind": kindPrepare, "name": plain(p.Phase), "value": strconv.FormatInt(p.Ns, 10),
			"unit": "ns", "direction": results.Lower, "clock": "host",
		}))
	}
	return append(out, csvTrace(base, c.Trace)...)
}

func csvRatios(base csvLine, c *results.Cell) []csvLine {
	var out []csvLine
	add := func(kind, name string, r *results.Ratio) {
		f, _ := ratioFigure(r)
		f.value = r.Value
		l := base.with(csvKey("", r.Other)).with(csvKey("base_", r.Base)).with(f.csv())
		l["kind"], l["name"], l["unit"], l["direction"] = kind, name, "ratio", results.Higher
		if l["value"] != "" {
			out = append(out, l)
		}
	}
	for i := range c.Ratios {
		add(kindRatio, plain(c.Ratios[i].Metric), &c.Ratios[i])
	}
	if onCPU(c) {
		return out
	}
	if h := &c.Headline; h.Ratio != nil {
		add(kindHead, plain(h.Ratio.Metric), h.Ratio)
	}
	if sp := c.Headline.Split; sp != nil {
		add(kindHead, "split.total", &sp.Total)
		add(kindHead, "split.joins", &sp.Joins)
		add(kindHead, "split.launches", &sp.Launches)
		add(kindHead, "split.interaction", &sp.Interaction)
	}
	return out
}
