package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

// TestMaskAndSum: with a mask in the place of y, and with two gradients whose
// sum it takes itself, batch norm gives the bits of the separate operators.
func TestMaskAndSum(t *testing.T) {
	pool := newPool(t, 2)
	for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
		for _, c := range []struct{ n, s, c, groups int }{{2, 3, 16, 1}, {3, 4, 5, 1}, {2, 1, 12, 2}, {3, 9, 24, 1}, {1, 1, 1504, 1}} {
			t.Run(fmt.Sprintf("%s %dx%dx%dx%d", d, c.n, c.s, c.s, c.c), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 4))
				run := 1
				if per := map[workloads.DType]int{workloads.F32: 4, workloads.F16: 8}[d]; c.c%per == 0 {
					run = per
				}
				shape := []int{c.n, c.s, c.s, c.c}
				x, z := act("x", rng, shape...), act("z", rng, shape...)
				x.values[1], z.values[2] = math.NaN(), math.Inf(1)
				mask := spec{"mask", workloads.U8, workloads.Shape{c.n, c.s, c.s, c.c / run}, nil}
				vectors := []spec{outF32("mean", c.groups*c.c), outF32("invstd", c.groups*c.c), outF32("stat_mean", c.c), outF32("stat_var", c.c)}
				gamma := f32("gamma", rng, c.c)
				gamma.values[0] = 1e-9 // y rounds to 0 in halves
				f := opCase{name: "fwd", op: workloads.OpBatchNorm, in: []spec{x, gamma, f32("beta", rng, c.c), z},
					out: append([]spec{outAct("y", shape...)}, vectors...), attr: workloads.Attr{Groups: c.groups, ReLU: true, Add: true, Eps: 1e-5}}
				f.in[2].values[0], z.values[0] = 0, 1e-9
				plain := newRig(f, d)
				plain.compile(t, pool)()
				f.attr.Mask, f.out = true, append(f.out, mask)
				masked := newRig(f, d)
				masked.compile(t, pool)()
				for i := range plain.bound.Out {
					if !bytes.Equal(plain.Bytes(plain.bound.Out[i].Region), masked.Bytes(masked.bound.Out[i].Region)) {
						t.Errorf("the mask changes %s", plain.bound.Out[i].Name)
					}
				}
				y, bits := masked.get(&masked.bound.Out[0]), masked.get(&masked.bound.Out[5])
				on := 0
				for i, v := range y {
					if got := int(bits[i/run])>>(i%run)&1 == 1; got != (v > 0) {
						t.Fatalf("element %d: %v is %v in the mask", i, v, got)
					}
					if v > 0 {
						on++
					}
				}
				if on == 0 || on == len(y) {
					t.Fatalf("%d of %d elements above 0", on, len(y))
				}

				dy, dy2 := act("dy", rng, shape...), act("dy2", rng, shape...)
				dy.values[3], dy.values[5] = math.NaN(), math.Inf(-1)
				sum := newRig(opCase{name: "sum", op: workloads.OpAdd, in: []spec{dy, dy2}, out: []spec{outAct("y", shape...)}}, d)
				sum.compile(t, pool)()
				moments := make([][]float64, 2)
				for i := range moments {
					moments[i] = masked.get(&masked.bound.Out[1+i])
				}
				backward := func(a workloads.Attr, dy spec, more ...spec) *rig {
					a.Groups, a.Eps = c.groups, 1e-5
					b := opCase{name: "bwd", op: workloads.OpBatchNormBwd, attr: a,
						in: append([]spec{x, dy, gamma, {"mean", workloads.F32, vectors[0].shape, moments[0]},
							{"invstd", workloads.F32, vectors[1].shape, moments[1]}}, more...),
						out: []spec{outAct("dx", shape...), outF32("dgamma", c.c), outF32("dbeta", c.c)}}
					if a.Add {
						b.out = append(b.out, outAct("dz", shape...))
					}
					r := newRig(b, d)
					r.compile(t, pool)()
					return r
				}
				added := spec{"dy", activation, shape, sum.get(&sum.bound.Out[0])}
				ys, ms := spec{"y", activation, shape, y}, spec{"mask", workloads.U8, mask.shape, bits}
				for _, add := range []bool{false, true} {
					for _, relu := range []bool{false, true} {
						a := workloads.Attr{ReLU: relu, Add: add}
						with, both := a, a
						with.Sum, both.Sum, both.Mask = true, true, true
						var want *rig
						var got []*rig
						if relu {
							want = backward(a, added, ys)
							got = append(got, backward(with, dy, ys, dy2), backward(both, dy, ms, dy2))
							both.Sum = false
							got = append(got, backward(both, added, ms))
						} else {
							want, got = backward(a, added), append(got, backward(with, dy, dy2))
						}
						for k, g := range got {
							for i := range want.bound.Out {
								if !bytes.Equal(want.Bytes(want.bound.Out[i].Region), g.Bytes(g.bound.Out[i].Region)) {
									t.Errorf("add %v, relu %v, way %d: %s differs", add, relu, k, want.bound.Out[i].Name)
								}
							}
						}
					}
				}
			})
		}
	}
}
