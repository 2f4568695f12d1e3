package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
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
			expect(t, verify.Faults{Edit: func(id workloads.SubGraph, n []*workloads.Node) []*workloads.Node {
				if id == g {
					return nil
				}
				return n
			}}, g.String()+" is filled", g.String()+" was not run: the device executed none")
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
