package cuda

import (
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device/cuda/dnn"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// The rearranged stem is planned where the tuning asks for it and a library does
// it, with its operands' scratch in front of the plan's workspace; everywhere
// else the node is what it was.
func TestSpaceToDepthIsPlanned(t *testing.T) {
	x := fakeRig(t, fake.H200(1))
	w, err := workloads.New(workloads.Spec{Model: "resnet18-cifar", Batch: 2, Precision: workloads.AMP}, workloads.Target{Lowering: workloads.Fused})
	must(t, err)
	find := func(id workloads.SubGraph, op workloads.Op) *workloads.Bound {
		for _, b := range w.Bounds(id, workloads.FinalFull, workloads.ControlDevice) {
			if b.Op == op {
				return b
			}
		}
		t.Fatalf("no %s", op)
		return nil
	}
	for _, c := range []struct {
		name       string
		b          *workloads.Bound
		rearranged bool
	}{
		{"forward", find(workloads.FirstLayerFwdA, workloads.OpConv), true},
		{"filter gradient", find(workloads.FirstLayerBwdA, workloads.OpConvBwdFilter), true},
		{"another layer", find(workloads.DeepFwdBwd, workloads.OpConv), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := func(b *workloads.Bound, workspace int64) Plan {
				key, err := dnn.Key(b)
				must(t, err)
				return Plan{Key: key, Choice: dnn.Choice{Library: dnn.CuDNN, Workspace: workspace}}
			}
			const own, blocks = 1 << 24, 1 << 25
			re := kernels.Rearrange(c.b)
			if (re != nil) != c.rearranged {
				t.Fatalf("rearranged: %v", re)
			}
			for _, with := range []struct{ tuned, offered bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
				d := x.device(Options{Tuning: Tuning{SpaceToDepth: with.tuned}})
				d.opts.CuDNN = &cudnn.Library{} // nothing is asked of it
				p := plan(c.b, own)
				d.plans[p.Key] = p
				if with.offered && re != nil {
					q := plan(re.Bound, blocks)
					if q.Key == p.Key {
						t.Fatalf("both have the key %s", q.Key)
					}
					d.plans[q.Key] = q
				}
				want := int64(own)
				if with.tuned && with.offered && re != nil {
					want = blocks + re.Scratch()
				}
				if got := d.scratch(c.b); got != want {
					t.Errorf("%+v: %d bytes of scratch, want %d", with, got, want)
				}
				if got, r, ok := d.plan(c.b, d.Tuning()); !ok || (r != nil) != (want != own) || got.Choice.Workspace != want-r.Scratch() {
					t.Errorf("%+v: plan %+v for %v", with, got, r)
				}
			}
		})
	}
}
