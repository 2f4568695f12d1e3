package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// oddRecords are records that a report must survive and explain.
func oddRecords() map[string][]report.Named {
	out := map[string][]report.Named{}
	one := func(name string, s sweep, change func(*results.Record)) {
		r := s.record()
		if change != nil {
			change(r)
		}
		out[name] = []report.Named{{Name: name + ".json", Record: r}}
	}
	metrics := func(r *results.Record, f func(*results.Metric)) {
		for i := range r.Cells {
			for j := range r.Cells[i].Configurations {
				ms := r.Cells[i].Configurations[j].Metrics
				for k := range ms {
					f(&ms[k])
				}
			}
		}
	}
	set := func(v float64) func(*results.Record) {
		return func(r *results.Record) {
			metrics(r, func(m *results.Metric) { m.Value, m.Summary = v, nil })
			for i := range r.Cells {
				r.Cells[i].Ratios, r.Cells[i].Headline = nil, results.Headline{}
			}
		}
	}
	single := h200()
	single.batches = []int{32}
	one("one-batch", single, nil)
	single.modes = []string{"eager/event"}
	one("one-configuration", single, nil)
	alone := h200()
	alone.processes = 1
	one("one-process", alone, nil)
	cpu := h200()
	cpu.cpu, cpu.batches, cpu.modes = true, []int{1, 2, 4}, []string{"eager/event", "graph/event"}
	one("cpu", cpu, nil)
	one("zero", h200(), set(0))
	one("negative", h200(), set(-5e6))
	one("nan", h200(), set(math.NaN()))
	one("infinite", h200(), set(math.Inf(1)))
	one("huge", h200(), set(1e300))
	one("tiny", h200(), set(1e-300))
	one("no-cells", h200(), func(r *results.Record) { r.Cells = nil })
	one("no-metrics", h200(), func(r *results.Record) {
		for i := range r.Cells {
			for j := range r.Cells[i].Configurations {
				c := &r.Cells[i].Configurations[j]
				c.Metrics, c.Prepare = nil, nil
			}
			r.Cells[i].Ratios, r.Cells[i].Headline = nil, results.Headline{}
		}
	})
	one("one-zero", h200(), func(r *results.Record) {
		m := r.Cells[2].Configurations[0].Metric(results.StepTimeNs)
		m.Value, m.Summary = 0, nil
	})
	one("failed", h200(), func(r *results.Record) {
		for _, i := range []int{1, 4} {
			r.Cells[i].Status = results.Failed
			r.Cells[i].Failure = "worker 2 of resnet50 batch 256 ended with exit status 2; the end of its stderr:\npanic: out of memory\n\x1b[31mgoroutine 1\x1b[0m [running]:\nmain.main()\n"
		}
		r.Cells[1].Processes[2] = results.Process{Index: 2, Status: results.Failed, Failure: r.Cells[1].Failure}
		r.Cells[4].Configurations, r.Cells[4].Ratios, r.Cells[4].Headline, r.Cells[4].Verify = nil, nil, results.Headline{}, results.Verify{}
		r.Warnings = []results.Warning{{Code: "load", Text: "the machine was busy: load 31 on 96 processors"}}
		r.Cells[0].Warnings = []results.Warning{{Code: "drift", Text: "the blocks of step drift by 2 % | up"}}
	})
	one("unequal", h200(), func(r *results.Record) { r.Cells[0].Verify.Equal = false })
	one("many", h200(), func(r *results.Record) {
		for i := range r.Cells {
			c := &r.Cells[i]
			for n := range 50 {
				x := c.Configurations[n%5]
				x.Key.Launcher = fmt.Sprintf("launcher_%d_%s", n, strings.Repeat("long", 30))
				c.Configurations = append(c.Configurations, x)
			}
		}
	})
	one("names", h200(), func(r *results.Record) {
		r.Device.Description = "a \x00 device\n</svg>&<b> " + strings.Repeat("wide ", 100)
		r.Environment.Fields = nil
		for i := range r.Cells {
			r.Cells[i].Key.Workload = "weird /=*|`name\u202e\xff " + strings.Repeat("x", 500)
			for j := range r.Cells[i].Configurations {
				r.Cells[i].Configurations[j].Key.Mode += " a/b-8"
			}
		}
	})
	one("batches", func() sweep {
		s := h200()
		s.batches = nil
		for b := range 40 {
			s.batches = append(s.batches, b*3+1)
		}
		s.dispatch = []int64{0, 1e4, 1e5}
		return s
	}(), nil)
	one("bad-batches", h200(), func(r *results.Record) {
		r.Cells[0].Key.Batch, r.Cells[1].Key.Batch, r.Cells[2].Key.GPUs = 0, -3, 0
	})
	one("bad-intervals", h200(), func(r *results.Record) {
		metrics(r, func(m *results.Metric) {
			m.Summary.Interval = &results.Interval{Low: -1, High: m.Value * 1e9, Method: "t"}
		})
		r.Cells[0].Ratios[0].Interval = &results.Interval{Low: 3, High: 1}
		r.Cells[0].Ratios[1].Value = -2
		r.Cells[1].Ratios[1].Interval = &results.Interval{Low: math.NaN(), High: 4}
	})
	one("phases", h200(), func(r *results.Record) {
		for i := range r.Cells {
			for j := range r.Cells[i].Configurations {
				c := &r.Cells[i].Configurations[j]
				for n := range 12 {
					c.Prepare = append(c.Prepare, results.Phase{Phase: fmt.Sprintf("phase_%d", n), Ns: int64(n-1) * 1e7})
				}
				c.Prepare = append(c.Prepare, results.Phase{Phase: "overflow", Ns: math.MaxInt64})
			}
		}
	})
	two := h200()
	two.seed = 8
	a, b := h200().named("base.json"), two.named("head.json")
	b.Record.Program.Revision = "99887766554433221100"
	b.Record.Environment.Fields[2].Value = "580.10"
	out["two-records"] = []report.Named{a, b}
	out["same-twice"] = []report.Named{h200().named("x.json"), two.named("x.json")}
	left, right := h200(), h200()
	left.batches, right.batches = []int{1, 4}, []int{16, 64}
	out["halves"] = []report.Named{left.named("left.json"), right.named("right.json")}
	out["nil"] = []report.Named{{Name: "nothing"}, h200().named("h200.json")}
	return out
}

// check writes every format and reads it back.
func check(t *testing.T, records []report.Named) (files, notes []string) {
	t.Helper()
	dir := t.TempDir()
	files, notes, err := report.Write(dir, report.Formats(), records)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(f) {
		case ".png":
			if p, err := png.DecodeConfig(bytes.NewReader(b)); err != nil || p.Width != 800 || p.Height > 2000 {
				t.Errorf("%s: %dx%d, %v", f, p.Width, p.Height, err)
			}
		case ".svg":
			d := xml.NewDecoder(bytes.NewReader(b))
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v", f, err)
					break
				}
			}
			if bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Inf")) {
				t.Errorf("%s draws at no place", f)
			}
		case ".csv":
			readCSV(t, b)
		case ".bench":
			readBench(t, b)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(files) {
		t.Errorf("%d files lie there, %d are named", len(entries), len(files))
	}
	return files, notes
}

// Every plot is drawn, or its absence is said.
func TestOddRecords(t *testing.T) {
	for name, records := range oddRecords() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, notes := check(t, records)
			for _, k := range report.Kinds() {
				drawn := slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), string(k)) })
				said := slices.ContainsFunc(notes, func(n string) bool {
					return strings.HasPrefix(n, string(k)) || strings.HasPrefix(n, "Nothing is drawn")
				})
				if !drawn && !said {
					t.Errorf("%s is neither drawn nor explained: %q", k, notes)
				}
			}
		})
	}
}

// Random damage to a good record, many times.
func TestDamagedRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("draws hundreds of plots")
	}
	values := []float64{0, -1, 1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-320, 1e308, math.MaxFloat64, 1e9, 1}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 9))
			value := func() float64 { return values[random.IntN(len(values))] }
			interval := func() *results.Interval {
				return [...]*results.Interval{nil, {}, {Low: value(), High: value(), Coverage: value(), Method: "order"}}[random.IntN(3)]
			}
			s := h200()
			s.batches, s.gpus, s.dispatch = []int{1, 16}, []int{1, 2}, []int64{0, 1e4}
			r := s.record()
			for i := range r.Cells {
				c := &r.Cells[i]
				if random.IntN(4) == 0 {
					c.Key.Batch = random.IntN(5) - 2
				}
				if random.IntN(4) == 0 {
					c.Key.GPUs = random.IntN(5) - 2
				}
				if random.IntN(5) == 0 {
					c.Status = results.Failed
				}
				for j := range c.Ratios {
					if random.IntN(2) == 0 {
						c.Ratios[j].Value, c.Ratios[j].Interval, c.Ratios[j].Bootstrap = value(), interval(), interval()
					}
				}
				for j := range c.Configurations {
					x := &c.Configurations[j]
					for k := range x.Metrics {
						m := &x.Metrics[k]
						switch random.IntN(5) {
						case 0:
							m.Summary = nil
						case 1:
							m.Value, m.Summary = value(), nil
						case 2:
							m.Summary.Median, m.Summary.Interval = value(), interval()
						case 3:
							m.Summary.Processes = m.Summary.Processes[:random.IntN(2)]
						}
					}
					for k := range x.Prepare {
						if random.IntN(3) == 0 {
							x.Prepare[k].Ns = random.Int64() - math.MaxInt64/2
						}
					}
					if random.IntN(6) == 0 {
						x.Key.DispatchNs = random.Int64() - math.MaxInt64/2
					}
				}
			}
			check(t, []report.Named{{Name: "damaged.json", Record: r}})
		})
	}
}

// Whatever text a record has, in whichever place, no format has anything in it
// that a terminal obeys, or more lines for it.
func TestOddText(t *testing.T) {
	const junk = "x\x1b[31m\ny\u202e\x00"
	render := func(r *results.Record) string {
		var b strings.Builder
		for _, format := range []func(io.Writer, []report.Named) error{report.Tables, report.Markdown, report.CSV, report.Gobench} {
			if err := format(&b, []report.Named{{Name: "r.json", Record: r}}); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	places := map[string]bool{}
	for { // one place more each time
		r := small().named("r.json").Record
		at := ""
		var spoil func(v reflect.Value, path string)
		spoil = func(v reflect.Value, path string) {
			switch {
			case at != "":
			case v.Kind() == reflect.Pointer && !v.IsNil():
				spoil(v.Elem(), path)
			case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
				for i := range v.NumField() {
					spoil(v.Field(i), path+"."+v.Type().Field(i).Name)
				}
			case v.Kind() == reflect.Slice:
				for i := range v.Len() {
					spoil(v.Index(i), path)
				}
			case v.Kind() == reflect.String && !places[path]:
				at, places[path] = path, true
				v.SetString(junk)
			}
		}
		spoil(reflect.ValueOf(r), "Record")
		if at == "" {
			break
		}
		got := render(r)
		for _, c := range got {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("%s: %q is in the output", at, c)
				break
			}
		}
		if strings.Contains(got, "\ny") {
			t.Errorf("%s begins a line of its own", at)
		}
	}
	if len(places) < 40 {
		t.Errorf("only %d places for text: %v", len(places), places)
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	var bad *report.FormatError
	if _, _, err := report.Write(dir, []string{"table", "pdf"}, []report.Named{h200().named("a")}); !errors.As(err, &bad) || bad.Format != "pdf" {
		t.Errorf("an unknown format: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made all the same")
	}
	if _, _, err := report.Write(dir, report.Formats(), nil); !errors.Is(err, report.ErrNoRecords) {
		t.Errorf("no records: %v", err)
	}
	files, _, err := report.Write(dir, []string{report.FormatCSV}, []report.Named{h200().named("a")})
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "report.csv" {
		t.Errorf("one format: %v, %v", files, err)
	}
}
