package kernels

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/workloads"
)

// flat is the memory of one rank: the arena and the pinned halves.
type flat [2][]byte

func newFlat(w *workloads.Workload) flat {
	var f flat
	for i, n := range []int64{w.ArenaBytes, w.PinnedBytes} {
		f[i] = newAligned(n)
	}
	return f
}

func newAligned(n int64) []byte {
	raw := make([]byte, n+workloads.Alignment)
	shift := -int(uintptr(unsafe.Pointer(&raw[0]))) & (workloads.Alignment - 1)
	return raw[shift : shift+int(n)]
}

func (f flat) Bytes(r workloads.Region) []byte { return f[r.Space][r.Off:r.End():r.End()] }

// step is a training step's operators in schedule order, on one thread of
// submission.
type step struct {
	mem    flat
	bounds []*workloads.Bound
	run    []func()
}

func newStep(tb testing.TB, spec workloads.Spec, pool *Pool) *step {
	tb.Helper()
	w, err := workloads.New(spec, workloads.Target{Lowering: workloads.Fused, ScratchBytes: ScratchBytes})
	if err != nil {
		tb.Fatal(err)
	}
	mem := newFlat(w)
	if err := w.Init(1, func(r workloads.Region, data []byte) error { copy(mem.Bytes(r), data); return nil }); err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range mem[workloads.Pinned] {
		mem[workloads.Pinned][i] = byte(rng.Uint32())
	}
	for h := range w.Known.Pinned {
		pinned := mem.Bytes(w.Tensor(w.Known.Pinned[h]).Region)
		for i, labels := 0, view[int32](pinned[w.Known.LabelsOffset:]); i < len(labels); i++ {
			labels[i] = int32(i % w.Classes())
		}
	}
	s := &step{mem: mem}
	for _, seg := range []workloads.Segment{{Phase: workloads.EpochBegin, Variant: workloads.FinalFull}, {Phase: workloads.TrainStep, Variant: workloads.FinalFull}} {
		for _, a := range w.Schedule(seg) {
			if a.Kind != workloads.ActRun {
				continue
			}
			for _, b := range w.Bounds(a.SubGraph, seg.Variant, workloads.ControlDevice) {
				if b.Op == workloads.OpAllReduce {
					continue
				}
				f, err := Compile(b, mem, pool)
				if err != nil {
					tb.Fatal(err)
				}
				if seg.Phase == workloads.EpochBegin {
					f()
					continue
				}
				s.bounds, s.run = append(s.bounds, b), append(s.run, f)
			}
		}
	}
	return s
}

// BenchmarkStep is the arithmetic of one training step, without a device
// around it. TRBENCH_OPS=1 prints where the time of the last step went.
func BenchmarkStep(b *testing.B) {
	for _, model := range []string{"resnet20-cifar"} {
		for _, precision := range []workloads.Precision{workloads.FP32, workloads.AMP} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d", model, precision, threads), func(b *testing.B) {
					pool := NewPool(threads)
					defer pool.Close()
					s := newStep(b, workloads.Spec{Model: model, Batch: 4, Ranks: 1, Precision: precision}, pool)
					took := map[string]time.Duration{}
					for b.Loop() {
						clear(took)
						for i, f := range s.run {
							start := time.Now()
							f()
							took[s.bounds[i].Op.String()] += time.Since(start)
						}
					}
					if os.Getenv("TRBENCH_OPS") != "" {
						var names []string
						for n := range took {
							names = append(names, n)
						}
						slices.SortFunc(names, func(x, y string) int { return cmp.Compare(took[y], took[x]) })
						for _, n := range names {
							b.Logf("%-16s %v", n, took[n])
						}
					}
				})
			}
		}
	}
}

// untouched is memory to resolve regions in and not to compute in: all regions
// begin at the same place.
type untouched []byte

func (u *untouched) Bytes(r workloads.Region) []byte {
	if int64(len(*u)) < r.Bytes {
		*u = newAligned(r.Bytes)
	}
	return (*u)[:r.Bytes:r.Bytes]
}

// TestModelsCompile: every operator of every variant compiles with the scratch
// that ScratchBytes asked for, and a step of a small model leaves the loss
// that untrained weights have.
func TestModelsCompile(t *testing.T) {
	pool := newPool(t, 1)
	var nowhere untouched
	for _, model := range workloads.Models() {
		for _, lowering := range []workloads.Lowering{workloads.Plain, workloads.Fused} {
			for _, precision := range []workloads.Precision{workloads.FP32, workloads.AMP} {
				name := fmt.Sprintf("%s/%+v/%s", model, lowering, precision)
				w, err := workloads.New(workloads.Spec{Model: model, Batch: 2, Ranks: 1, Precision: precision, EMA: true},
					workloads.Target{Lowering: lowering, ScratchBytes: ScratchBytes})
				if err != nil {
					t.Fatal(name, err)
				}
				for v := range workloads.NumVariants {
					for g := range workloads.NumSubGraphs {
						for _, b := range w.Bounds(workloads.SubGraph(g), workloads.Variant(v), workloads.ControlDevice) {
							if b.Op == workloads.OpAllReduce {
								continue
							}
							if _, err := Compile(b, &nowhere, pool); err != nil {
								t.Fatal(name, err)
							}
						}
					}
				}
			}
		}
	}
	s := newStep(t, workloads.Spec{Model: "resnet20-cifar", Batch: 2, Ranks: 1}, pool)
	for _, f := range s.run {
		f()
	}
	for _, b := range s.bounds {
		if b.Op == workloads.OpLoss {
			if loss := view[float32](s.mem.Bytes(b.Out[1].Region))[workloads.StepLoss]; !(loss > 0.5 && loss < 10) {
				t.Errorf("loss %v of untrained weights", loss)
			}
		}
	}
}
