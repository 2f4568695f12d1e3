package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// MaxRanks is the number of ranks a group can hold. Nothing in the package
// depends on it; it keeps a mistyped flag from asking for thousands of arenas.
const MaxRanks = 64

// Options configure a [Device]. The zero value is usable.
type Options struct {
	// Workers is the number of goroutines that share one operator's
	// arithmetic; 0 means GOMAXPROCS.
	Workers int
	// Lowering is the node list to run; nil means [workloads.Fused].
	Lowering *workloads.Lowering
	// CollectiveTimeout is how long a rank waits for the others in a
	// collective; 0 means 60 s.
	CollectiveTimeout time.Duration

	// Hook is called on the device's goroutines before each operator is
	// executed; an error (or a panic) becomes the operator's failure. Tests
	// delay and break operators with it. Synchronisation inside it orders
	// streams, and so can hide a missing join from the race detector.
	Hook func(rank int, b *workloads.Bound) error
	// SubmitHook is called on the rank's thread by each Submit, captured or
	// not; an error is the submission's failure.
	SubmitHook func(rank int, b *workloads.Bound) error
}

// Device is the CPU as a [device.Device]. It is safe for concurrent use.
type Device struct {
	opts    Options
	compile compileFunc
	scratch func(b *workloads.Bound) int64

	// Captures in global mode, of all groups: unsafe calls anywhere on the
	// device end them. strict is their number, so that the common case costs
	// one load.
	strict   atomic.Int32
	strictMu sync.Mutex
	captures map[*capture]bool
}

// compileFunc resolves an operator to a function over the rank's memory, to be
// run on one stream.
type compileFunc func(b *workloads.Bound, mem *memory, st *stream) (func(), error)

// New returns the device. Nothing is allocated or started before Open.
func New(opts Options) *Device {
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Lowering == nil {
		l := workloads.Fused
		opts.Lowering = &l
	}
	if opts.CollectiveTimeout <= 0 {
		opts.CollectiveTimeout = time.Minute
	}
	return &Device{opts: opts, compile: compileKernel, scratch: kernelScratch, captures: map[*capture]bool{}}
}

// Name is "cpu".
func (d *Device) Name() string { return "cpu" }

// MaxRanks is the constant of that name.
func (d *Device) MaxRanks() int { return MaxRanks }

// Target says which lowering the device runs and what scratch its kernels need.
func (d *Device) Target() workloads.Target {
	return workloads.Target{Lowering: *d.opts.Lowering, ScratchBytes: d.scratch}
}

// Open allocates the arenas and starts the goroutines. The group's concrete
// type is *[Group]. The caller closes it, from a goroutine that is not a
// rank's.
func (d *Device) Open(w *workloads.Workload) (device.Group, error) {
	n := w.Spec.Ranks
	if n < 1 || n > MaxRanks {
		return nil, fmt.Errorf("cpu: open: %d ranks, want 1 to %d", n, MaxRanks)
	}
	if w.ArenaBytes < 0 || w.PinnedBytes < 0 {
		return nil, fmt.Errorf("cpu: open: the workload has %d arena and %d pinned bytes", w.ArenaBytes, w.PinnedBytes)
	}
	if err := d.unsafeElsewhere("Open"); err != nil {
		return nil, err
	}
	g := &Group{dev: d, w: w}
	for i := range n {
		g.ranks = append(g.ranks, newRank(g, i))
	}
	g.world = newWorld(g)
	for _, r := range g.ranks {
		r.start()
	}
	return g, nil
}

// Group is the ranks of one workload; it implements [device.Group].
type Group struct {
	dev   *Device
	w     *workloads.Workload
	ranks []*rank
	world *world

	sealed  atomic.Bool
	closing sync.Once
	running sync.WaitGroup
	live    struct{ graphs, execs, events, ops atomic.Int64 }
	pools   pools

	traceMu sync.Mutex
	begun   time.Time // the axis of the recording; zero before the first
}

// Ranks is the number of ranks.
func (g *Group) Ranks() int { return len(g.ranks) }

// Rank returns rank i.
func (g *Group) Rank(i int) device.Rank { return g.ranks[i] }

// Each runs f on all ranks' threads at once and waits. It must not be called
// on a rank's thread, and not twice at once: the ranks could then meet in
// collectives of different calls.
func (g *Group) Each(f func(device.Rank) error) error {
	threads := make([]*device.Thread, len(g.ranks))
	for i, r := range g.ranks {
		threads[i] = r.thread
	}
	return device.Each(threads, func(i int) error { return f(g.ranks[i]) })
}

// Seal declares preparation finished: an operator that then asks for memory
// the arena does not have is refused with [device.ErrSealed], because a graph
// recorded before could not see a larger arena.
func (g *Group) Seal() { g.sealed.Store(true) }

// Live counts handles that exist: "graphs" and "execs" not closed yet, and
// "events" and "ops", which live as long as the group. It may be called on any
// goroutine.
func (g *Group) Live() map[string]int {
	return map[string]int{
		"graphs": int(g.live.graphs.Load()),
		"execs":  int(g.live.execs.Load()),
		"events": int(g.live.events.Load()),
		"ops":    int(g.live.ops.Load()),
	}
}

// Close ends captures, waits for the streams, stops every goroutine of the
// group and releases what is left, graphs and execs included. It returns the
// first failure in time that no Sync returned. Later calls return nil.
func (g *Group) Close() error {
	var first error
	g.closing.Do(func() {
		fails := make([]failure, len(g.ranks))
		jobs := make([]*device.Job, len(g.ranks))
		for i, r := range g.ranks {
			jobs[i] = r.thread.Post(func() error {
				if r.cap != nil {
					r.dropCapture()
				}
				fails[i] = r.drain()
				r.closeExecs()
				for _, st := range r.streams {
					close(st.q)
				}
				r.gone = true
				return nil
			})
		}
		for _, j := range jobs {
			first = errors.Join(first, j.Wait())
		}
		var f failure
		for _, x := range fails {
			f = earlier(f, x)
		}
		if f.err != nil && first == nil {
			first = f.report()
		}
		for _, r := range g.ranks {
			r.thread.Stop()
		}
		g.running.Wait()
		g.pools.close()
		g.live.graphs.Store(0)
		g.live.execs.Store(0)
		g.live.events.Store(0)
		g.live.ops.Store(0)
	})
	return first
}

// memory is one rank's arena and pinned buffers.
type memory struct{ arena, pinned []byte }

func newMemory(w *workloads.Workload) memory {
	m := memory{arena: aligned(w.ArenaBytes), pinned: aligned(w.PinnedBytes)}
	// All ones is a NaN in FP32 and in FP16.
	fill(m.arena, 0xff)
	return m
}

// aligned returns n bytes that begin at a multiple of [workloads.Alignment].
func aligned(n int64) []byte {
	b := make([]byte, n+workloads.Alignment)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (workloads.Alignment - 1)
	return b[skip : int64(skip)+n : int64(skip)+n]
}

// Bytes returns the region's memory. The region must have passed check.
func (m *memory) Bytes(r workloads.Region) []byte {
	if r.Space == workloads.Pinned {
		return m.pinned[r.Off:r.End():r.End()]
	}
	return m.arena[r.Off:r.End():r.End()]
}

// check refuses a region that is not inside its space.
func (m *memory) check(r workloads.Region) error {
	size := int64(len(m.arena))
	switch r.Space {
	case workloads.Arena:
	case workloads.Pinned:
		size = int64(len(m.pinned))
	default:
		return fmt.Errorf("memory space %d is unknown", r.Space)
	}
	if r.Off < 0 || r.Bytes < 0 || r.Bytes > size || r.Off > size-r.Bytes {
		return fmt.Errorf("%v lies outside the %d bytes of %s memory", r, size, r.Space)
	}
	return nil
}
