package guard

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// record makes one of cells by batch, each with two configurations and the
// given medians of a process, scaled by batch.
func record(medians []float64, batches ...int) *results.Record {
	r := &results.Record{Status: results.Complete}
	for _, batch := range batches {
		c := results.Cell{Key: results.DefaultCellKey(), Status: results.Done, Verify: results.Verify{Equal: true}}
		c.Key.Workload, c.Key.Batch = "resnet50", batch
		for _, mode := range []string{"eager", "graph"} {
			x := results.Configuration{Key: results.DefaultConfigurationKey()}
			x.Key.Mode = mode
			x.Counts.Launches.Host = results.Count(100)
			x.Counts.GraphNodes = map[string]int64{"kernel": 5}
			for _, name := range []string{results.StepTimeNs, results.SubmitTimeNs, results.HostTimeNs} {
				var samples []results.Sample
				for p, v := range medians {
					for block, d := range []float64{-1, 0, 1} {
						samples = append(samples, results.Sample{Process: p, Block: block, Value: v*float64(batch) + d})
					}
				}
				m := results.NewMetric(name, samples)
				s := &results.Summary{}
				for _, v := range medians {
					s.Processes = append(s.Processes, v*float64(batch))
				}
				s.Median = results.Median(s.Processes)
				m.Value, m.Summary = s.Median, s
				x.Metrics = append(x.Metrics, m)
			}
			c.Configurations = append(c.Configurations, x)
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func named(list ...*results.Record) []Named {
	var out []Named
	for i, r := range list {
		out = append(out, Named{Name: string(rune('a'+i)) + ".json", Record: r})
	}
	return out
}

func TestGather(t *testing.T) {
	eight := []float64{2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007}
	g, err := Gather(named(record(eight, 1, 2), record(eight, 2, 1)), named(record(eight[:3], 2, 4)))
	if err != nil {
		t.Fatal(err)
	}
	// Batch 2 alone is on both sides, in two configurations and two gated
	// metrics; host time is not gated.
	if len(g.Rows) != 4 || len(g.OnlyBase) != 4 || len(g.OnlyHead) != 4 {
		t.Fatalf("%d rows, %d and %d on one side", len(g.Rows), len(g.OnlyBase), len(g.OnlyHead))
	}
	r := g.Rows[0]
	if r.Key.Cell.Batch != 2 || r.Key.Metric != results.StepTimeNs || len(r.Base) != 2 || len(r.Head) != 1 || len(r.Head[0]) != 3 || r.Head[0][1] != 4002 ||
		r.Unit != "ns" || r.Direction != results.Lower {
		t.Errorf("row %+v", r)
	}
	if text := strings.Join(g.Partial, "\n"); text != "head lacks 4 rows that base has" {
		t.Errorf("partial: %s", text)
	}
	if len(g.Exact) != 0 {
		t.Errorf("exact: %v", g.Exact)
	}
}

func TestGatherPartial(t *testing.T) {
	eight := []float64{2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007}
	cases := []struct {
		name   string
		change func(base, head *results.Record)
		want   string
	}{
		{"nothing", func(_, _ *results.Record) {}, ""},
		{"not complete", func(_, h *results.Record) { h.Status = results.Incomplete }, "head: a.json is not complete"},
		{"a failed cell", func(b, _ *results.Record) { b.Cells[0].Status = results.Failed }, "base: a.json: resnet50 batch 1 gpus 1 failed"},
		{"a failed process", func(_, h *results.Record) {
			h.Cells[0].Processes = []results.Process{{Status: results.Done}, {Index: 1, Status: results.Failed}}
		}, "head: a.json: resnet50 batch 1 gpus 1: 1 of 2 processes failed"},
		{"a lost configuration", func(_, h *results.Record) { h.Cells[0].Configurations = h.Cells[0].Configurations[:1] }, "head lacks 2 rows that base has"},
		{"a new configuration", func(b, _ *results.Record) { b.Cells[0].Configurations = b.Cells[0].Configurations[:1] }, ""},
	}
	for _, c := range cases {
		base, head := record(eight, 1), record(eight, 1)
		c.change(base, head)
		g, err := Gather(named(base), named(head))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := strings.Join(g.Partial, "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	g, err := Gather(named(record(eight, 1), record(eight, 1, 2)), named(record(eight, 1, 2)))
	if err != nil || strings.Join(g.Partial, "\n") != "not all 2 records of base have 4 rows" {
		t.Errorf("a run that lacks a cell: %v, %v", g, err)
	}
}

func TestGatherRefuses(t *testing.T) {
	eight := []float64{2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007}
	step := func(r *results.Record) *results.Metric { return &r.Cells[0].Configurations[0].Metrics[0] }
	cases := []struct {
		name   string
		change func(*results.Record)
		want   string
	}{
		{"an edited sample", func(r *results.Record) { step(r).Samples[1].Value *= 1.1 }, "the median of process 0 is 2000 in its summary and 2001 by its samples"},
		{"an edited summary", func(r *results.Record) { step(r).Summary.Processes[2] *= 1.1 }, "the median of process 2 is 2202.2 in its summary and 2002 by its samples"},
		{"an edited tail", func(r *results.Record) {
			step(r).Summary.Max, step(r).Samples[0].Value = 2008, 1
			step(r).Samples[2].Value = 3000
		}, "the largest value is 2008 in its summary and 3000 by its samples"},
		{"a lost sample", func(r *results.Record) { step(r).Summary.N, step(r).Samples = 24, step(r).Samples[:23] }, "its summary is of 24 samples, and it has 23"},
		{"a lost process", func(r *results.Record) { step(r).Summary.Processes = step(r).Summary.Processes[:7] }, "its summary has 7 processes and its samples 8"},
		{"an edited median", func(r *results.Record) { step(r).Summary.Median = 5 }, "5 in its summary and 2003.5 by its samples"},
		{"an edited value", func(r *results.Record) { step(r).Value = 5 }, "the median is 5, 2003.5 in its summary"},
		{"modes that disagree", func(r *results.Record) { r.Cells[0].Verify.Equal = false }, "the modes of resnet50 batch 1 gpus 1 were not found equal"},
	}
	for _, c := range cases {
		bad := record(eight, 1)
		c.change(bad)
		for side, err := range map[string]error{
			"base": second(Gather(named(bad), named(record(eight, 1)))), "head": second(Gather(named(record(eight, 1)), named(bad))),
		} {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "a.json") {
				t.Errorf("%s in %s: %v", c.name, side, err)
			}
			var unequal *UnequalError
			if got := errors.As(err, &unequal); got != (c.name == "modes that disagree") {
				t.Errorf("%s in %s: %T", c.name, side, err)
			}
		}
	}
	// Without summaries, as records before 1.1 are, samples are enough; without
	// samples the summary is.
	bare := record(eight, 1)
	step(bare).Summary = nil
	thin := record(eight, 1)
	step(thin).Samples = nil
	for _, r := range []*results.Record{bare, thin} {
		g, err := Gather(named(r), named(record(eight, 1)))
		if err != nil || len(g.Rows[0].Base[0]) != 8 || g.Rows[0].Base[0][3] != 2003 {
			t.Errorf("%v, %v", g, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestExactDifferences(t *testing.T) {
	eight := []float64{2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007}
	base, head := record(eight, 1), record(eight, 1)
	counts := &head.Cells[0].Configurations[1].Counts
	counts.Launches.Host = results.Count(101)
	counts.Kernels = results.Count(7)
	counts.GraphNodes = map[string]int64{"memcpy": 1, "kernel": 5}
	// The first of base and the second of head differ in what was measured alone,
	// as the tunings do.
	base.Cells[0].Plans = []json.RawMessage{[]byte(`{"engine":1,"node":"a","time_ns":5.5}`), []byte(`{"engine":1,"node":"b"}`),
		[]byte(`{"key":"tuning","edges":"hazards","rule":"drift 1","candidates":[{"words":"none","step_time_ns":7}]}`)}
	head.Cells[0].Plans = []json.RawMessage{[]byte(`{"node":"b","engine":2}`), []byte(`{"node":"a", "engine":1,"time_ns":6}`),
		[]byte(`{"key":"tuning","edges":"hazards","rule":"drift 2","candidates":[{"words":"none","step_time_ns":8}]}`)}
	g, err := Gather(named(base), named(head))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range g.Exact {
		at := ""
		if d.Configuration != nil {
			at = d.Configuration.Mode
		}
		got = append(got, strings.Join([]string{at, d.What, d.Base, d.Head}, "|"))
	}
	want := []string{
		`|plans|{"engine":1,"node":"b"}|{"engine":2,"node":"b"}`, "graph|launches.host|100|101", "graph|kernels|unknown|7",
		"graph|graph_nodes|kernel 5|kernel 5 + memcpy 1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
