package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/device/devicetest"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// configurations are all that the CPU device has.
func configurations() []results.ConfigurationKey {
	var out []results.ConfigurationKey
	for _, mode := range []string{"eager", "graph"} {
		for _, sync := range []string{"event", "host"} {
			for _, control := range []string{"device", "host"} {
				k := results.DefaultConfigurationKey()
				k.Mode, k.Sync, k.Control = mode, sync, control
				out = append(out, k)
			}
		}
	}
	k := results.DefaultConfigurationKey()
	k.Mode, k.Sync = "step", "inside"
	return append(out, k)
}

func run(t *testing.T, ranks int, keys []results.ConfigurationKey, f verify.Faults) (bench.VerifyReport, error) {
	t.Helper()
	dev := devicetest.All()[0].New(t, workloads.Fused)
	if ranks > dev.MaxRanks() {
		t.Logf("%d ranks: device %s has %d", ranks, dev.Name(), dev.MaxRanks())
		ranks = dev.MaxRanks()
	}
	cell := results.CellKey{Workload: "golden-tiny", Batch: 2, GPUs: ranks, Device: dev.Name()}
	return verify.Run(context.Background(), dev, bench.VerifyRequest{
		Cell: cell, Configurations: keys, Seed: 3, Data: data.Options{Kind: data.Random, Seed: 3},
	}, f)
}

// Every model has a matrix of its own, with partial last batches and two
// resolutions, at any batch.
func TestCells(t *testing.T) {
	for _, m := range append(workloads.Models(), "golden-tiny") {
		for _, batch := range []int{0, 1, 2, 7} {
			cells, err := verify.Cells(results.CellKey{Workload: m, Batch: batch, GPUs: 2, Device: "cpu"})
			if err != nil || len(cells) != 4 {
				t.Fatalf("%s batch %d: %v, %v", m, batch, cells, err)
			}
			for _, c := range cells {
				if _, err := workloads.New(bench.Spec(c), workloads.Target{Lowering: workloads.Fused}); err != nil {
					t.Errorf("%s batch %d: %v", m, batch, err)
				}
				if c.Resolution.Begin >= c.Resolution.Final || batch > 1 && (c.LastBatch.Train >= batch || c.LastBatch.Val >= batch) {
					t.Errorf("%s batch %d: %+v %+v", m, batch, c.Resolution, c.LastBatch)
				}
			}
		}
	}
}

func TestMatrixPasses(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		r, err := run(t, ranks, configurations(), verify.Faults{})
		if err != nil {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
		if len(r.Problems) > 0 || !r.Equal {
			t.Errorf("%d ranks: %v", ranks, r.Problems)
		}
		if r.Edges.Dropped == 0 || r.Edges.Reported != r.Edges.Dropped {
			t.Errorf("%d ranks: %d of %d dropped edges reported", ranks, r.Edges.Reported, r.Edges.Dropped)
		}
		notApplicable := 0
		for _, g := range r.SubGraphs {
			if g.State == bench.SubGraphNotApplicable {
				notApplicable++
			} else if g.State != bench.SubGraphRan || g.Executed == 0 {
				t.Errorf("%d ranks: %s: %s, %d operators", ranks, g.Name, g.State, g.Executed)
			}
		}
		if want := map[bool]int{true: 4, false: 0}[r.Ranks == 1]; notApplicable != want {
			t.Errorf("%d ranks: %d sub-graphs not applicable, want %d", ranks, notApplicable, want)
		}
	}
}

// expect runs a broken matrix and wants an error that names the place.
func expect(t *testing.T, f verify.Faults, names ...string) {
	t.Helper()
	keys := configurations()
	r, err := run(t, 2, []results.ConfigurationKey{keys[0], keys[4], keys[8]}, f)
	var disagree *bench.DisagreementError
	var failure *verify.Failure
	if !errors.As(err, &disagree) && !errors.As(err, &failure) {
		t.Fatalf("error %v, want one that exits 4", err)
	}
	all := strings.Join(r.Problems, "\n")
	for _, n := range names {
		if !strings.Contains(all, n) {
			t.Errorf("no problem names %q:\n%.2000s", n, all)
		}
	}
}

func TestEmptyingAnySubGraphIsNamed(t *testing.T) {
	for g := range workloads.NumSubGraphs {
		t.Run(g.String(), func(t *testing.T) {
			names := []string{g.String() + " is filled", g.String() + " was not run: the device executed none"}
			if g.Info().Collective { // what should have been exchanged is each rank's own
				names = append(names, "rank 1 differs from rank 0 where ranks must be equal: tensor ")
			}
			expect(t, verify.Faults{Edit: func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
				if id == g {
					return nil
				}
				return n
			}}, names...)
		})
	}
}

func TestSwappedNodesAreNamed(t *testing.T) {
	expect(t, verify.Faults{Edit: func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
		if id == workloads.DeepFwdBwd {
			n[3], n[4] = n[4], n[3]
		}
		return n
	}}, "DEEP_FWD_BWD/layer")
}

func TestDroppedRestoreIsNamed(t *testing.T) {
	expect(t, verify.Faults{SkipRestore: 2}, "state was not restored before graph/event/device")
}

func TestFrozenLearningRateIsNamed(t *testing.T) {
	expect(t, verify.Faults{Edit: func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
		for _, node := range n {
			if node.Op == workloads.OpControl {
				node.Attr.Control.Rates = 1 // the device never moves on in the table
			}
		}
		return n
	}}, "learning rate", "NAN_CHECK_AND_GRAD_SCALING")
}

// onCPU runs the matrix on a CPU device of its own. said gets each progress
// message before the work it announces.
func onCPU(ctx context.Context, o cpu.Options, said func(string)) (bench.VerifyReport, error) {
	keys := configurations()
	return verify.Run(ctx, cpu.New(o), bench.VerifyRequest{
		Cell:           results.CellKey{Workload: "golden-tiny", Batch: 2, GPUs: 2, Device: "cpu"},
		Configurations: []results.ConfigurationKey{keys[0], keys[4], keys[8]},
		Seed:           3, Data: data.Options{Kind: data.Random, Seed: 3}, Progress: said,
	}, verify.Faults{})
}

// A cancelled verify ends at once: before it begins, in the checks without a
// device, between configurations, and while an operator takes long.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name, at string
		long     bool
	}{
		{name: "before"}, {name: "static", at: "AMP, LARS, EMA: checks without a device"}, {name: "between", at: "AMP, SGD, EMA: graph/event/device"},
		{name: "inside an operator", at: "AMP, SGD, EMA: graph/event/device", long: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var since atomic.Int64
			stop := func() {
				since.CompareAndSwap(0, time.Now().UnixNano())
				cancel()
			}
			if c.at == "" {
				stop()
			}
			release := make(chan bool)
			defer close(release)
			var slow atomic.Bool
			after := 0
			_, err := onCPU(ctx, cpu.Options{Hook: func(_ int, b *workloads.Bound) error {
				if slow.Load() && b.SubGraph == workloads.DeepFwdBwd {
					stop()
					<-release
				}
				return nil
			}}, func(what string) {
				if since.Load() != 0 {
					after++
				}
				if what == c.at {
					slow.Store(c.long)
					if !c.long {
						stop()
					}
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			// One second of grace for the ranks, and room for a loaded machine.
			if d := time.Since(time.Unix(0, since.Load())); since.Load() == 0 || d > 8*time.Second {
				t.Errorf("it ended %v after it was cancelled", d)
			}
			if c.at != "" && after > 0 {
				t.Errorf("it began %d things after it was cancelled", after)
			}
		})
	}
}

// What fails in one configuration, the reference included, is a problem that
// names it; the rest of the matrix goes on.
func TestFailingConfigurationIsNamed(t *testing.T) {
	for _, at := range []string{"eager/event/device", "graph/event/device", "step/inside/device"} {
		t.Run(at, func(t *testing.T) {
			var failing atomic.Bool
			r, err := onCPU(context.Background(), cpu.Options{Hook: func(rank int, b *workloads.Bound) error {
				if rank == 1 && b.SubGraph == workloads.EMAUpdate && failing.Load() {
					return errors.New("out of luck")
				}
				return nil
			}}, func(what string) { failing.Store(what == "AMP, SGD, EMA: "+at) })
			var failure *verify.Failure
			if !errors.As(err, &failure) {
				t.Fatalf("got %v", err)
			}
			if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], "AMP, SGD, EMA: "+at+": ") ||
				!strings.Contains(r.Problems[0], "EMA_UPDATE") || !strings.Contains(r.Problems[0], "out of luck") {
				t.Errorf("problems %q", r.Problems)
			}
			if len(r.Matrix) != 4 || len(r.SubGraphs) != int(workloads.NumSubGraphs) || r.Matrix[0].Verify.Equal || !r.Matrix[1].Verify.Equal {
				t.Errorf("%d rows, %d sub-graphs: %+v", len(r.Matrix), len(r.SubGraphs), r.Matrix)
			}
			if got := len(r.Matrix[0].Verify.Modes); got != 2 {
				t.Errorf("%d configurations came through, want the 2 others", got)
			}
		})
	}
}

// tunable is the CPU device with a choice that changes nothing, which keeps what
// it was told.
type tunable struct {
	device.Device
	now  results.TuningChoice
	told []string
}

func (d *tunable) Choose(workloads.Spec) error       { return nil }
func (d *tunable) Plans() ([]json.RawMessage, error) { return nil, nil }
func (d *tunable) SetPlans([]json.RawMessage) error  { return nil }
func (d *tunable) Tunings() []string                 { return []string{"plain", "odd"} }
func (d *tunable) Tuned() results.TuningChoice       { return d.now }
func (d *tunable) Tune(c results.TuningChoice) error {
	if c.Words == "unknown" {
		return errors.New("no such way")
	}
	d.now, d.told = c, append(d.told, c.Words)
	return nil
}

// RuleOfThumb is of the workload alone, not of the way taken for the one before.
func (d *tunable) RuleOfThumb(w *workloads.Workload) (words, rule string) {
	return fmt.Sprintf("%s after %q", w.Spec.Optimizer, d.now.Words), "the optimizer's"
}

// Each run of the matrix has the tuning that was asked for, the rule's by its own
// workload, and says so.
func TestTuned(t *testing.T) {
	key := results.DefaultConfigurationKey()
	for _, c := range []struct {
		tune string
		want []string // words of each run; nil: none
		rule string
	}{
		{"", nil, ""},
		{"odd", []string{"odd", "odd", "odd", "odd"}, ""},
		{bench.TuneRule, []string{`sgd after ""`, `lars after ""`, `sgd after ""`, `nesterov after ""`}, "nothing is timed here: the optimizer's"},
		{bench.TuneAuto, []string{`sgd after ""`, `lars after ""`, `sgd after ""`, `nesterov after ""`}, "nothing is timed here: the optimizer's"},
	} {
		dev := &tunable{Device: cpu.New(cpu.Options{})}
		report, err := verify.Run(t.Context(), dev, bench.VerifyRequest{
			Cell: results.CellKey{Workload: "golden-tiny", Batch: 2, GPUs: 1, Device: dev.Name()}, Configurations: []results.ConfigurationKey{key},
			Seed: 3, Data: data.Options{Kind: data.Random, Seed: 3}, Tune: c.tune,
		}, verify.Faults{})
		if err != nil || !report.Equal {
			t.Fatalf("%q: %v", c.tune, err)
		}
		for i, m := range report.Matrix {
			switch {
			case c.want == nil && (m.Tuning != nil || dev.told != nil):
				t.Errorf("%q: %s has %+v, told %q", c.tune, m.Name, m.Tuning, dev.told)
			case c.want != nil && (m.Tuning == nil || m.Tuning.Words != c.want[i] || m.Tuning.Rule != c.rule):
				t.Errorf("%q: %s has %+v, want %s", c.tune, m.Name, m.Tuning, c.want[i])
			}
		}
	}
	dev := &tunable{Device: cpu.New(cpu.Options{})}
	if _, err := verify.Run(t.Context(), dev, bench.VerifyRequest{Cell: results.CellKey{Workload: "golden-tiny", Batch: 2, GPUs: 1, Device: dev.Name()},
		Configurations: []results.ConfigurationKey{key}, Tune: "unknown"}, verify.Faults{}); err == nil || !strings.Contains(err.Error(), "AMP, SGD, EMA: no such way") {
		t.Errorf("an unknown way: %v", err)
	}
}
