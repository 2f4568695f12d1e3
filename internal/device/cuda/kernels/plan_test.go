package kernels

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

// inside says that a region lies in one of a list.
func inside(r workloads.Region, list []workloads.Region) bool {
	return slices.ContainsFunc(list, func(o workloads.Region) bool {
		return r.Space == o.Space && r.Off >= o.Off && r.End() <= o.End()
	})
}

// checkLaunches holds a plan against what the bound operator declares.
func checkLaunches(t *testing.T, b *workloads.Bound, launches []Launch) {
	t.Helper()
	where := fmt.Sprintf("%s/%s %s", b.SubGraph, b.Name, b.Op)
	if len(launches) == 0 {
		t.Errorf("%s: no launches", where)
	}
	touched := slices.Concat(b.Reads, b.Writes)
	written, named := map[workloads.Region]bool{}, map[workloads.Region]bool{}
	for i := range launches {
		l := &launches[i]
		if err := l.check(); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		if l.Kind == KindCopyIn {
			if !inside(l.Src, b.Reads) || !inside(l.Dst, b.Writes) {
				t.Errorf("%s: copy from %v to %v", where, l.Src, l.Dst)
			}
			written[l.Dst], named[l.Src] = true, true
			continue
		}
		for _, p := range l.Params {
			named[p.Region] = true
			switch {
			case p.Kind == Counter && p.Value >= CounterWords:
				t.Errorf("%s: counter %d", where, p.Value)
			case p.Kind != Pointer:
			case p.Region.Bytes <= 0:
				t.Errorf("%s: %s has an empty region", where, l.Kernel)
			case p.Writes && !inside(p.Region, b.Writes), !inside(p.Region, touched):
				t.Errorf("%s: %s touches %v (writes: %v)", where, l.Kernel, p.Region, p.Writes)
			case p.Writes:
				written[p.Region] = true
			}
		}
		checkLayout(t, l)
	}
	for _, o := range b.Out {
		if !written[o.Region] && o.Region.Bytes > 0 {
			t.Errorf("%s: nothing writes %s", where, o.Name)
		}
	}
	for _, o := range b.In {
		if !named[o.Region] {
			t.Errorf("%s: nothing reads %s", where, o.Name)
		}
	}
}

// checkLayout compares Pack with Layout.
func checkLayout(t *testing.T, l *Launch) {
	t.Helper()
	offsets, size := l.Layout()
	block := l.Pack(nil, func(p Param) uint64 { return 0xaaaaaaaaaaaaaaaa })
	if len(block) != size {
		t.Errorf("%s: %d bytes packed, the layout has %d", l.Kernel, len(block), size)
		return
	}
	for i, p := range l.Params {
		if p.Kind == Pointer && (offsets[i]%8 != 0 || block[offsets[i]] != 0xaa || block[offsets[i]+7] != 0xaa) {
			t.Errorf("%s: parameter %d is not at %d", l.Kernel, i, offsets[i])
		}
	}
}

// TestModels plans every operator of every sub-graph of the models.
func TestModels(t *testing.T) {
	seen := map[workloads.Op]bool{}
	lean := workloads.Fused
	lean.FusedJoin, lean.NormMask = true, true
	for _, model := range workloads.Models() {
		for _, precision := range []workloads.Precision{workloads.FP32, workloads.AMP} {
			for _, optimizer := range []workloads.Optimizer{workloads.SGD, workloads.Nesterov, workloads.LARS} {
				for name, lowering := range map[string]workloads.Lowering{"fused": workloads.Fused, "plain": workloads.Plain, "lean": lean} {
					for _, batch := range []int{1, 16, 256} {
						if optimizer != workloads.SGD && (batch != 16 || name == "lean") {
							continue // the batch means nothing to the optimizers, and they nothing to the norms
						}
						spec := workloads.Spec{Model: model, Batch: batch, LastTrainBatch: (batch + 1) / 2, Precision: precision, Optimizer: optimizer, EMA: true, Inject: true}
						t.Run(fmt.Sprintf("%s/%s/%s/%s/%d", model, precision, optimizer, name, batch), func(t *testing.T) {
							w, err := workloads.New(spec, workloads.Target{Lowering: lowering, ScratchBytes: ScratchBytes})
							if err != nil {
								t.Fatal(err)
							}
							launches := planAll(t, w, Options{}, seen)
							if name == "fused" && batch == 256 {
								t.Logf("%d launches of own kernels in a training step", launches)
							}
							o := Options{OneKernelNorm: true}
							if w, err = workloads.New(spec, workloads.Target{Lowering: lowering, ScratchBytes: o.ScratchBytes}); err != nil {
								t.Fatal(err)
							}
							if fewer := planAll(t, w, o, seen); fewer > launches {
								t.Errorf("%d launches with norms in one kernel, %d without", fewer, launches)
							} else if name == "fused" && batch == 16 {
								t.Logf("%d launches, %d with small norms in one kernel", launches, fewer)
							}
						})
					}
				}
			}
		}
	}
	for op := workloads.OpNone + 1; !strings.Contains(op.String(), "chain"); op++ {
		if !seen[op] && op != workloads.OpAllReduce {
			t.Errorf("no model has the operator %s", op)
		}
	}
}

// planAll plans a workload and returns the launches of a full training step.
func planAll(t *testing.T, w *workloads.Workload, o Options, seen map[workloads.Op]bool) (step int) {
	t.Helper()
	for v := range workloads.NumVariants {
		for g := range workloads.NumSubGraphs {
			if !w.Slot(g, v).Captured() {
				continue
			}
			for _, b := range w.Bounds(g, v, workloads.ControlDevice) {
				if b.Op == workloads.OpAllReduce {
					continue
				}
				seen[b.Op] = true
				launches, err := o.Plan(b)
				if err != nil {
					t.Error(err)
					continue
				}
				checkLaunches(t, b, launches)
				if v == workloads.BeginFull && g.Info().Train && g.Info().Stream != workloads.TRANS {
					step += len(launches)
				}
			}
		}
	}
	return step
}

func bound(op workloads.Op, a workloads.Attr, in, out []workloads.Operand) *workloads.Bound {
	b := &workloads.Bound{Node: &workloads.Node{Name: "n", Op: op, Attr: a}, In: in, Out: out}
	for _, o := range in {
		b.Reads = append(b.Reads, o.Region)
	}
	for _, o := range out {
		b.Writes = append(b.Writes, o.Region)
	}
	return b
}

func operand(d workloads.DType, off int64, shape ...int) workloads.Operand {
	s := workloads.Shape(shape)
	return workloads.Operand{Name: "o", DType: d, Shape: s, Region: workloads.Region{Off: off, Bytes: int64(s.Elems()) * d.Bytes()}}
}

// TestRefused: what the kernels cannot do is an error and not a wrong answer.
func TestRefused(t *testing.T) {
	f32, f16 := workloads.F32, workloads.F16
	vec := func(off int64) workloads.Operand { return operand(f32, off, 8) }
	norm := func(groups int, x workloads.Operand) *workloads.Bound {
		y := x
		y.Region.Off = 8192
		return bound(workloads.OpBatchNorm, workloads.Attr{Groups: groups, Eps: 1e-5},
			[]workloads.Operand{x, vec(1024), vec(1280)}, []workloads.Operand{y, vec(1536), vec(1792), vec(2048), vec(2304)})
	}
	for _, test := range []struct {
		name string
		b    *workloads.Bound
		want string
	}{
		{"groups", norm(2, operand(f32, 4096, 2, 2, 2, 8)), "2 groups"},
		{"channels", norm(1, operand(f32, 4096, 2, 2, 2, 4)), "want 4"},
		{"no scratch", norm(1, operand(f32, 4096, 2, 2, 2, 8)), "scratch has 0 bytes"},
		{"all reduce", bound(workloads.OpAllReduce, workloads.Attr{}, []workloads.Operand{vec(0)}, []workloads.Operand{vec(0)}), "no kernel"},
		{"arity", bound(workloads.OpAdd, workloads.Attr{}, []workloads.Operand{vec(0)}, []workloads.Operand{vec(0)}), "1 input"},
		{"types", bound(workloads.OpAdd, workloads.Attr{}, []workloads.Operand{vec(0), operand(f16, 256, 8)}, []workloads.Operand{vec(0)}), "want f32"},
		{"cast", bound(workloads.OpCast, workloads.Attr{}, []workloads.Operand{vec(0)}, []workloads.Operand{vec(256)}), "from f32 to f32"},
		{"not in place", bound(workloads.OpUnscale, workloads.Attr{}, []workloads.Operand{vec(0), operand(f32, 256, 10)}, []workloads.Operand{vec(512)}), "same memory"},
		{"pinned", bound(workloads.OpReLU, workloads.Attr{}, []workloads.Operand{{Name: "p", DType: f32, Shape: workloads.Shape{2}, Region: workloads.Region{Space: workloads.Pinned, Bytes: 8}}}, []workloads.Operand{operand(f32, 0, 2)}), "pinned"},
		{"window", bound(workloads.OpMaxPool, workloads.Attr{R: 2, Stride: 1, Pad: 2}, []workloads.Operand{operand(f32, 0, 1, 4, 4, 8)}, []workloads.Operand{operand(f32, 1024, 1, 4, 4, 8), operand(workloads.U8, 2048, 1, 4, 4, 8)}), "window 2"},
		{"mask without ReLU", bound(workloads.OpBatchNormBwd, workloads.Attr{Groups: 1, Mask: true}, nil, nil), "without a ReLU"},
		{"skewed norm", norm(1, operand(f32, 4100, 2, 2, 2, 8)), "aligned to 16"},
		{"odd offset", bound(workloads.OpReLU, workloads.Attr{}, []workloads.Operand{operand(f32, 2, 8)}, []workloads.Operand{vec(256)}), "not aligned"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Plan(test.b)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestRepeatable: the same operator gives the same plan, and its grid does not
// depend on where the operands lie as long as they are aligned.
func TestRepeatable(t *testing.T) {
	at := func(off int64) []Launch {
		x := operand(workloads.F16, off, 64, 56, 56, 256)
		y := operand(workloads.F16, off+x.Region.Bytes, 64, 56, 56, 256)
		v := func(i int64) workloads.Operand { return operand(workloads.F32, off+2*x.Region.Bytes+1024*i, 256) }
		b := bound(workloads.OpBatchNorm, workloads.Attr{Groups: 1}, []workloads.Operand{x, v(0), v(1)}, []workloads.Operand{y, v(2), v(3), v(4), v(5)})
		b.Scratch = workloads.Region{Off: off + 3*x.Region.Bytes, Bytes: ScratchBytes(b)}
		l, err := Plan(b)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b := at(0), at(1<<20)
	for i := range a {
		if a[i].Kernel != b[i].Kernel || a[i].Grid != b[i].Grid || a[i].Block != b[i].Block {
			t.Errorf("%s %v %v became %s %v %v", a[i].Kernel, a[i].Grid, a[i].Block, b[i].Kernel, b[i].Grid, b[i].Block)
		}
	}
}
