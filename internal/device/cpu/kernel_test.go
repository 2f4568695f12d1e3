package cpu

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

const bigRegion = 1 << 20 // enough for the kernels to split

// kernelGroup opens a group with the real kernels.
func kernelGroup(t *testing.T, opts Options) *Group {
	t.Helper()
	g, err := New(opts).Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 2}, ArenaBytes: 2 * bigRegion})
	must(t, err)
	t.Cleanup(func() { g.Close() })
	return g.(*Group)
}

// zeroOp clears the big region at off, on the stream.
func zeroOp(t *testing.T, r device.Rank, s workloads.Stream, off int64) device.Op {
	t.Helper()
	at := workloads.Region{Off: off, Bytes: bigRegion}
	o, err := r.Prepare(&workloads.Bound{
		Node: &workloads.Node{Name: "zero", Op: workloads.OpZero, Range: true}, SubGraph: lanes[s],
		Out:    []workloads.Operand{{Name: "r", DType: workloads.F32, Shape: workloads.Shape{bigRegion / 4}, Region: at}},
		Writes: []workloads.Region{at},
	})
	must(t, err)
	return o
}

func TestRealKernels(t *testing.T) {
	before := runtime.NumGoroutine()
	g := kernelGroup(t, Options{Workers: 3})
	must(t, g.Each(func(r device.Rank) error {
		must(t, zeroOp(t, r, workloads.COMP1, bigRegion).Submit(0), zeroOp(t, r, workloads.UPDATE, 0).Submit(0), r.SyncAll())
		got := make([]byte, 2*bigRegion)
		must(t, r.Read(workloads.Region{Bytes: int64(len(got))}, got))
		for i, b := range got {
			if b != 0 {
				return fmt.Errorf("byte %d is %#x", i, b)
			}
		}
		_, err := r.Prepare(&workloads.Bound{Node: &workloads.Node{Name: "odd"}})
		wants(t, err, nil, "TRANSFER_A/odd", "no kernel")
		return nil
	}))
	must(t, g.Close())
	settles(t, before)
}

func TestScratchOfCollective(t *testing.T) {
	if n := New(Options{}).Target().ScratchBytes(&workloads.Bound{Node: &workloads.Node{Op: workloads.OpAllReduce}}); n != 0 {
		t.Errorf("%d bytes", n)
	}
}
