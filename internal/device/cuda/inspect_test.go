package cuda

import (
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// What the driver says of a graph made by hand is what is counted.
func TestInspectsGraphsMadeByHand(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		o := x.op(r, workloads.DeepFwdBwd, "a", 0).(*op)
		plan, err := kernels.Plan(o.b)
		must(t, err)
		h, err := x.api.GraphCreate()
		must(t, err)
		var nodes []driver.GraphNode
		node := func(deps ...int) {
			args := &driver.Args{}
			for _, p := range plan[0].Params {
				args.U64(x.r.pointer(p, o.stream))
			}
			var after []driver.GraphNode
			for _, d := range deps {
				after = append(after, nodes[d])
			}
			n, err := x.api.GraphAddKernelNode(h, after, driver.KernelSpec{Func: x.r.kernel[plan[0].Kernel], Name: plan[0].Kernel,
				Grid: plan[0].Grid, Block: plan[0].Block, Args: args})
			must(t, err)
			nodes = append(nodes, n)
		}
		node()
		node(0)
		node(0)
		node(0)
		node(1, 2)
		node(4, 3)
		ops := []*op{o, o, o, o, o, o}
		g := &graph{r: x.r, h: h, ops: ops}
		x.r.graphs[g] = true
		x.g.live.graphs.Add(1)
		must(t, g.inspect())
		if i := g.Info(); i.Nodes["kernel"] != 6 || i.Total() != 6 || i.Edges != 7 || i.WidestSection != 3 || i.CriticalPath != 4 || i.Ops[workloads.DeepFwdBwd] != 6 {
			t.Errorf("%+v", i)
		}
		// One launch more or fewer than was submitted is found.
		wants(t, (&graph{r: x.r, h: h, ops: ops[1:]}).inspect(), nil, "none of those prepared", plan[0].Kernel)
		wants(t, (&graph{r: x.r, h: h, ops: append(ops, o)}).inspect(), nil, "1 launches are missing", "DEEP_FWD_BWD/a", plan[0].Kernel)
		must(t, g.Close())
	})
}

// Each of these slips into a capture past the device and is found by the
// audit; nothing is left of the graph.
func TestAudit(t *testing.T) {
	for _, pdl := range []bool{false, true} {
		x := newRig(t, nil).open()
		if pdl {
			x.r.attrs = []driver.LaunchAttr{driver.ProgrammaticSerialization()}
		}
		x.do(func(r device.Rank) {
			k := x.r
			comp := k.streams[workloads.COMP1]
			a := x.op(r, workloads.DeepFwdBwd, "a", 0)
			foreign, err := x.api.MemAlloc(4096)
			must(t, err)
			pinned, err := x.api.MemHostAlloc(4096, driver.HostDefault)
			must(t, err)
			launch := func(kernel string, args *driver.Args) error {
				l, err := x.api.PrepareKernel(k.mem, driver.KernelSpec{Func: k.kernel[kernel], Name: kernel,
					Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{128, 1, 1}, Stream: comp, Args: args})
				must(t, err)
				return x.api.LaunchError(l, x.api.Submit(l))
			}
			arena := uint64(k.arena)
			tests := []struct {
				name  string
				slip  func() error
				words []string // none: legal
				fake  bool
			}{
				{"nothing", func() error { return nil }, nil, false},
				{"foreign pointer", func() error { return launch("chain_x4", new(driver.Args).U64(arena).U64(uint64(foreign)+100).U64(64)) },
					[]string{"chain_x4", "parameter 1", "not the rank's"}, false},
				{"own pointer, other place", func() error { return launch("chain_x4", new(driver.Args).U64(arena).U64(arena+512).U64(64)) },
					[]string{"chain_x4", "none of those prepared"}, false},
				{"other number", func() error { return launch("chain_x4", new(driver.Args).U64(arena).U64(arena).U64(60)) },
					[]string{"chain_x4", "none of those prepared"}, false},
				{"empty kernel", func() error { return launch(kernels.Empty, nil) }, []string{"empty"}, false},
				{"fill in the arena", func() error { return x.api.MemsetD8Async(k.arena+4096, 0, 64, comp) }, nil, false},
				{"fill of words over the end", func() error {
					end := k.counters
					return x.api.MemsetD32Async(end+driver.DevicePtr(int(workloads.NumStreams)*kernels.CounterWords*4-8), 0, 2, comp)
				}, nil, false},
				{"fill elsewhere", func() error { return x.api.MemsetD8Async(foreign, 0, 64, comp) }, []string{"fill of 64 bytes", "outside"}, false},
				{"copy from elsewhere", func() error { return x.api.MemcpyHtoDAsync(k.arena, pinned.Addr(), 64, comp) }, []string{"copy of 64 bytes", "outside"}, false},
				{"copy to elsewhere", func() error { return x.api.MemcpyHtoDAsync(foreign, k.pinned.Addr(), 64, comp) }, []string{"copy of 64 bytes", "outside"}, false},
				{"copy nobody prepared", func() error { return x.api.MemcpyHtoDAsync(k.arena, k.pinned.Addr(), 64, comp) },
					[]string{"copy of 64 bytes", "none that was prepared"}, false},
				{"allocation", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeMemAlloc)); return nil }, []string{"mem_alloc", "allocated memory inside"}, true},
				{"free", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeMemFree)); return nil }, []string{"mem_free"}, true},
				{"host function", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeHost)); return nil }, []string{"host node"}, true},
				{"child graph", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeGraph)); return nil }, []string{"graph node"}, true},
				{"conditional", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeConditional)); return nil }, []string{"conditional node"}, true},
				{"empty node", func() error { x.m.Plant(uintptr(comp), uint32(driver.NodeEmpty)); return nil }, nil, true},
			}
			for _, tt := range tests {
				if tt.fake && x.m == nil {
					continue
				}
				must(t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), a.Submit(0), tt.slip())
				g, err := r.EndCapture(workloads.COMP1)
				if tt.words == nil {
					if err != nil {
						t.Errorf("%s: %v", tt.name, err)
						continue
					}
					must(t, g.Close())
					continue
				}
				if g != nil {
					t.Errorf("%s: a graph came out", tt.name)
				}
				wants(t, err, nil, append(tt.words, "audit of the captured graph", "rank 0")...)
				if n := x.g.Live()["graphs"]; n != 0 {
					t.Errorf("%s: %d graphs are left", tt.name, n)
				}
			}
			must(t, x.api.MemFree(foreign), x.api.MemFreeHost(pinned))
		})
		must(t, x.g.Close())
		if x.m == nil {
			continue
		}
		if n := x.m.Live(); len(n) != 0 {
			t.Errorf("left: %v", n)
		}
		must(t, x.m.Stop())
	}
}

// A transfer is in the graph as it was prepared.
func TestAuditOfCopies(t *testing.T) {
	x := newRig(t, nil).open()
	x.do(func(r device.Rank) {
		c := x.copyIn(r, workloads.TransferA, 3)
		g := x.chain(r, c)
		if i := g.Info(); i.Nodes["memcpy"] != 1 || i.Total() != 1 {
			t.Errorf("%+v", i)
		}
		e, err := g.Instantiate()
		must(t, err)
		copy(r.Pinned()[512:], "what the host wrote after the capture")
		must(t, e.Launch(workloads.TRANS, 0), r.SyncAll(), e.Close(), g.Close())
		got := make([]byte, 256)
		if must(t, r.Read(word(3), got)); !strings.HasPrefix(string(got), "what the host wrote") {
			t.Errorf("copied %q", got)
		}
	})
}

// A driver that cannot name kernels (12.2) still captures; what can be read is
// audited.
func TestAuditOfAnOldDriver(t *testing.T) {
	x := fakeRig(t, fake.A100(1)).open()
	x.do(func(r device.Rank) {
		a := x.op(r, workloads.DeepFwdBwd, "a", 0)
		must(t, a.Submit(0), r.SyncAll(), x.chain(r, a, a).Close())
		must(t, r.BeginCapture(workloads.COMP1, 0), a.Submit(0), x.api.MemcpyHtoDAsync(x.r.arena, x.r.pinned.Addr(), 64, x.r.streams[workloads.COMP1]))
		_, err := r.EndCapture(workloads.COMP1)
		wants(t, err, nil, "none that was prepared")
	})
}
