package workloads

import "testing"

// Filter gradients that may fall behind share neither scratch with the rest of
// their stream nor bytes with what the next nodes write.
func TestBeside(t *testing.T) {
	scratch := func(b *Bound) int64 {
		if b.Op == OpConv || b.Op == OpConvBwdData || b.Op == OpConvBwdFilter {
			return 1024
		}
		return 0
	}
	spec := Spec{Model: "resnet18-cifar", Batch: 2, Ranks: 1, Precision: AMP, Optimizer: SGD}
	for _, beside := range []bool{false, true} {
		w, err := New(spec, Target{Lowering: Fused, ScratchBytes: scratch, Beside: beside})
		if err != nil {
			t.Fatal(err)
		}
		nodes := w.Bounds(DeepFwdBwd, FinalFull, ControlDevice)
		meets, filters := 0, 0
		for i, b := range nodes {
			if !b.Op.FilterGradient() {
				continue
			}
			filters++
			for _, n := range nodes[i+1 : min(i+1+besideNodes, len(nodes))] {
				if n.Op.FilterGradient() {
					continue
				}
				for _, r := range b.Reads {
					for _, x := range n.Writes {
						if r.Overlaps(x) {
							meets++
						}
					}
				}
				if b.Scratch.Overlaps(n.Scratch) {
					meets++
				}
			}
		}
		if filters != 20 || (meets == 0) != beside {
			t.Errorf("beside=%v: %d filter gradients, %d meet what follows", beside, filters, meets)
		}
	}
}
