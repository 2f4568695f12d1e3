package cuda

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// Fills with zeros and copies from pinned memory become kernels in their
// places; the other fills stay.
func TestFillsBecomeKernels(t *testing.T) {
	for _, kernels := range []bool{false, true} {
		t.Run(fmt.Sprint(kernels), func(t *testing.T) {
			x := newRig(t, nil).open()
			x.g.tuning.FillKernels, x.g.tuning.CopyKernels = kernels, kernels
			x.do(func(r device.Rank) {
				k := x.r
				comp := k.streams[workloads.COMP1]
				at := func(x workloads.Region) driver.DevicePtr { return driver.DevicePtr(k.address(x)) }
				a, b := x.op(r, workloads.DeepFwdBwd, "a", 0), x.op(r, workloads.DeepFwdBwd, "b", 1)
				c := x.copyIn(r, workloads.DeepFwdBwd, 5)
				must(t, r.Fill(word(2), 9), r.Fill(word(3), 9), r.Fill(word(4), 9),
					r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal),
					x.api.MemsetD8Async(at(word(0)), 0, 256, comp), // the graph's first node
					a.Submit(0), c.Submit(0), b.Submit(0),
					// Two in a row, between operators; the second clears a part.
					x.api.MemsetD8Async(at(word(0)), 0, 256, comp), x.api.MemsetD8Async(at(word(1)), 0, 100, comp),
					a.Submit(0),
					x.api.MemsetD8Async(at(word(2)), 7, 256, comp),  // no zeros
					x.api.MemsetD8Async(at(word(3))+8, 0, 32, comp), // not at a multiple of 16
					x.api.MemsetD32Async(at(word(4)), 0, 64, comp))  // the last, of elements wider than a byte
				g, err := r.EndCapture(workloads.COMP1)
				must(t, err)
				fills, copies := 6, 1
				if kernels {
					fills, copies = 2, 0
				}
				if i := g.Info(); i.Nodes["memset"] != fills || i.Nodes["memcpy"] != copies || i.Nodes["kernel"] != 10-fills-copies ||
					i.Total() != 10 || i.Edges != 9 || i.WidestSection != 1 || i.CriticalPath != 10 {
					t.Errorf("kernels %v: %+v", kernels, i)
				}
				e, err := g.Instantiate()
				must(t, err)
				for n := range 3 {
					for i := range 256 {
						k.Pinned()[512+i] = byte(i + n)
					}
					must(t, e.Launch(workloads.COMP1, 0), r.SyncAll())
					if n := x.runs(r, 0); n != 1 {
						t.Errorf("kernels %v: a ran %d times since it was cleared", kernels, n)
					}
					got := make([]byte, 256)
					if must(t, r.Read(word(5), got)); !bytes.Equal(got, k.Pinned()[512:768]) {
						t.Errorf("kernels %v: the copy brought % x", kernels, got[:16])
					}
					if must(t, r.Read(word(1), got)); !bytes.Equal(got[:100], make([]byte, 100)) || bytes.Equal(got[100:104], make([]byte, 4)) {
						t.Errorf("kernels %v: b's region holds % x", kernels, got[:112])
					}
					must(t, r.Read(word(2), got))
					if want := bytes.Repeat([]byte{7}, 256); !bytes.Equal(got, want) {
						t.Errorf("kernels %v: the fill with sevens left % x", kernels, got[:16])
					}
					must(t, r.Read(word(3), got))
					if want := append(bytes.Repeat([]byte{9}, 8), make([]byte, 32)...); !bytes.Equal(got[:40], want) || got[40] != 9 {
						t.Errorf("kernels %v: the fill off 16 left % x", kernels, got[:48])
					}
					if must(t, r.Read(word(4), got)); !bytes.Equal(got, make([]byte, 256)) {
						t.Errorf("kernels %v: the last fill left % x", kernels, got[:16])
					}
				}
				must(t, e.Close(), g.Close())
			})
			must(t, x.g.Close())
		})
	}
}

// The order in which a driver lists nodes is not promised: one may come before
// what it follows.
func TestFillsInAnyOrder(t *testing.T) {
	x := fakeRig(t, nil).open()
	x.do(func(r device.Rank) {
		k := x.r
		comp := k.streams[workloads.COMP1]
		at := driver.DevicePtr(k.address(word(4)))
		must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal),
			x.api.MemsetD8Async(at, 0, 256, comp), x.api.MemsetD8Async(at, 0, 256, comp), x.api.MemsetD8Async(at, 0, 256, comp),
			x.api.MemsetD8Async(at+16, 3, 16, comp))
		captured, err := r.EndCapture(workloads.COMP1)
		must(t, err)
		g := captured.(*graph)
		nodes, err := x.api.GraphGetNodes(g.h)
		must(t, err)
		slices.Reverse(nodes)
		x.g.tuning.FillKernels = true
		nodes, err = g.replace(nodes)
		must(t, err)
		edges, err := x.api.GraphGetEdges(g.h)
		must(t, err)
		follows := map[driver.Edge]bool{}
		for _, e := range edges {
			follows[e] = true
		}
		for i := range nodes[1:] {
			if !follows[driver.Edge{From: nodes[i+1], To: nodes[i]}] {
				t.Errorf("node %d from the end lost its predecessor", i)
			}
		}
		if len(edges) != 3 || g.info.Nodes["kernel"] != 3 || g.info.Nodes["memset"] != 1 {
			t.Errorf("%d edges, nodes %v", len(edges), g.info.Nodes)
		}
		must(t, g.Close())
	})
	must(t, x.g.Close())
}
