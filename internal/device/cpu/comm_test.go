package cpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// sumOp prepares an all-reduce in place over n elements at byte off.
func sumOp(t *testing.T, r device.Rank, id workloads.SubGraph, off int64, n int, mean bool) device.Op {
	t.Helper()
	o, err := r.Prepare(sumBound(id, off, n, mean))
	must(t, err)
	return o
}

func sumBound(id workloads.SubGraph, off int64, n int, mean bool) *workloads.Bound {
	at := workloads.Region{Off: off, Bytes: int64(4 * n)}
	x := workloads.Operand{Name: "g", DType: workloads.F32, Shape: workloads.Shape{n}, Region: at}
	return &workloads.Bound{
		Node: &workloads.Node{Name: "all_reduce", Op: workloads.OpAllReduce, Collective: true, Attr: workloads.Attr{AllMean: mean}},
		In:   []workloads.Operand{x}, Out: []workloads.Operand{x}, SubGraph: id,
		Reads: []workloads.Region{at}, Writes: []workloads.Region{at},
	}
}

func TestAllReduceBits(t *testing.T) {
	for _, ranks := range []int{2, 3, 4} {
		for _, n := range []int{0, 1, 2, 5, 600, 1021} {
			for _, mean := range []bool{false, true} {
				rng := rand.New(rand.NewPCG(uint64(ranks), uint64(n)))
				data, want := make([][]float32, ranks), make([]uint32, n)
				for i := range data {
					data[i] = make([]float32, n)
					for k := range data[i] {
						data[i][k] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(30))))
					}
				}
				if n > 4 {
					data[1][4] = float32(math.Inf(1))
				}
				for k := range want {
					s := data[0][k]
					for i := 1; i < ranks; i++ {
						s += data[i][k]
					}
					if mean {
						s *= 1 / float32(ranks)
					}
					want[k] = math.Float32bits(s)
				}
				x := open(t, ranks, Options{Hook: func(rank int, _ *workloads.Bound) error {
					time.Sleep(time.Duration((rank*7)%3) * 100 * time.Microsecond) // arrive in another order
					return nil
				}})
				must(t, x.g.Each(func(r device.Rank) error {
					o := sumOp(t, r, workloads.DeepComm, 8, n, mean)
					place := floats(r.(*rank).mem.arena[8:])
					for replay := range 2 {
						copy(place, data[r.ID()])
						if replay == 0 {
							must(t, o.Submit(0))
						} else {
							g := x.chain(r, o)
							exec, err := g.Instantiate()
							must(t, err, exec.Launch(workloads.UPDATE, 0))
						}
						must(t, r.SyncAll())
						for k := range want {
							if got := math.Float32bits(place[k]); got != want[k] {
								return fmt.Errorf("%d ranks, %d elements, mean %v: element %d is %#x, want %#x", ranks, n, mean, k, got, want[k])
							}
						}
						if !math.IsNaN(float64(place[n])) {
							return errors.New("wrote past the end")
						}
					}
					return nil
				}))
				must(t, x.g.Close())
			}
		}
	}
}

func TestAllReduceRefuses(t *testing.T) {
	x := open(t, 1, Options{})
	x.do(func(r device.Rank) {
		_, err := r.Prepare(sumBound(workloads.DeepComm, 0, 4, false))
		wants(t, err, nil, "DEEP_COMM/all_reduce", "one rank")
	})
	y := open(t, 2, Options{})
	y.do(func(r device.Rank) {
		half := sumBound(workloads.DeepComm, 0, 4, false)
		half.In[0].DType = workloads.F16
		_, err := r.Prepare(half)
		wants(t, err, nil, "f16")
		partly := sumBound(workloads.DeepComm, 0, 4, false)
		partly.Out = []workloads.Operand{partly.Out[0]}
		partly.Out[0].Region.Off = 8
		_, err = r.Prepare(partly)
		wants(t, err, nil, "overlap")
		none := sumBound(workloads.DeepComm, 0, 4, false)
		none.In = nil
		_, err = r.Prepare(none)
		wants(t, err, nil, "one operand")
		far := sumBound(workloads.DeepComm, testArena, 4, false)
		_, err = r.Prepare(far)
		wants(t, err, nil, "operand g (in 0)")
	})
}

func TestCollectiveTimeout(t *testing.T) {
	x := open(t, 3, Options{CollectiveTimeout: 50 * time.Millisecond})
	ops := make([]device.Op, 3)
	work := make([]device.Op, 3)
	must(t, x.g.Each(func(r device.Rank) error {
		ops[r.ID()] = sumOp(t, r, workloads.DeepComm, 0, 4, false)
		work[r.ID()] = x.op(r, workloads.DeepFwdBwd, "work", nothing)
		return nil
	}))
	begin := time.Now()
	errs := make([]error, 3)
	err := x.g.Each(func(r device.Rank) error {
		must(t, work[r.ID()].Submit(0), r.Sync(workloads.COMP1))
		if r.ID() != 2 { // rank 2 stopped
			must(t, ops[r.ID()].Submit(0))
		}
		errs[r.ID()] = r.Sync(workloads.UPDATE)
		return errs[r.ID()]
	})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	wants(t, err, nil, "rank 0, stream UPDATE: execute DEEP_COMM/all_reduce", "rank 1, stream UPDATE", "timed out after 50ms",
		"arrived: rank 0, 1; did not arrive: rank 2", "rank 2: COMP_1 DEEP_FWD_BWD/work", "rank 0: COMP_1 DEEP_FWD_BWD/work UPDATE DEEP_COMM/all_reduce")
	if errs[2] != nil {
		t.Errorf("the rank that did nothing failed: %v", errs[2])
	}
	// A late rank is told at once, and once all are idle they can meet again.
	must(t, x.g.Rank(2).Do(func() error { return ops[2].Submit(0) }))
	wants(t, x.g.Rank(2).Do(x.g.Rank(2).SyncAll), nil, "timed out")
	must(t, x.g.Each(func(r device.Rank) error { return r.SyncAll() }))
	must(t, x.g.Each(func(r device.Rank) error { must(t, ops[r.ID()].Submit(0)); return r.SyncAll() }))
}

// A rank that fails skips its collectives; the others are told at once, not
// after the timeout, and in a graph as on a stream.
func TestFailureReleasesOthers(t *testing.T) {
	for _, graph := range []bool{false, true} {
		boom := errors.New("boom")
		x := open(t, 3, Options{Hook: func(rank int, b *workloads.Bound) error {
			if rank == 1 && b.Name == "bad" {
				return boom
			}
			return nil
		}})
		ops := make([][]device.Op, 3)
		must(t, x.g.Each(func(r device.Rank) error {
			ops[r.ID()] = []device.Op{x.op(r, workloads.ZeroGrad, "bad", nothing), sumOp(t, r, workloads.DeepComm, 0, 4, false)}
			return nil
		}))
		begin := time.Now()
		err := x.g.Each(func(r device.Rank) error {
			for range 3 {
				if graph {
					exec, err := x.chain(r, ops[r.ID()]...).Instantiate()
					must(t, err, exec.Launch(workloads.UPDATE, 0))
					continue
				}
				for _, o := range ops[r.ID()] {
					must(t, o.Submit(0))
				}
			}
			return r.SyncAll()
		})
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		wants(t, err, boom, "rank 1, stream UPDATE: execute ZERO_GRAD/bad: boom", "rank 0, stream UPDATE: execute DEEP_COMM/all_reduce: collective given up, rank 1 failed")
		if n := strings.Count(err.Error(), "\n"); n != 2 {
			t.Errorf("%d lines, want one a rank: %v", n+1, err)
		}
		must(t, x.g.Each(func(r device.Rank) error { must(t, ops[r.ID()][1].Submit(0)); return r.SyncAll() }))
	}
}

func TestRanksDisagree(t *testing.T) {
	x := open(t, 2, Options{})
	err := x.g.Each(func(r device.Rank) error {
		must(t, sumOp(t, r, workloads.DeepComm, 0, 4+r.ID(), false).Submit(0))
		return r.SyncAll()
	})
	wants(t, err, nil, "different collectives", "of 4 elements", "of 5", "rank 0, ", "rank 1, ")
}

// A long run of forked graphs with collectives on several ranks ends, and
// ends with the right numbers.
func TestSoak(t *testing.T) {
	const steps = 500
	x := open(t, 3, Options{})
	must(t, x.g.Each(func(r device.Rank) error {
		place := floats(r.(*rank).mem.arena)
		place[0] = 1
		n := 0
		grow := x.op(r, workloads.UpdateStats, "grow", func(*memory) { place[0] += 3 })
		sum := sumOp(t, r, workloads.DeepComm, 0, 1, true)
		exec, err := x.fork(r, x.op(r, workloads.DeepFwdBwd, "count", func(*memory) { n++ }), sum, x.op(r, workloads.DeepFwdBwd, "twice", func(*memory) { n++ })).Instantiate()
		must(t, err)
		done := x.event(r, "done")
		for range steps {
			must(t, done.Sync(), exec.Launch(workloads.UPDATE, 0), grow.Submit(0), r.Record(workloads.UPDATE, done))
		}
		must(t, r.SyncAll(), exec.Close())
		if want := float32(1 + 3*steps); n != 2*steps || math.Abs(float64(place[0]-want)) > 0.5 {
			return fmt.Errorf("counted %d, summed %v, want %d and about %v", n, place[0], 2*steps, want)
		}
		return nil
	}))
}
