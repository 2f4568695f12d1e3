package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Options configure a [Device].
type Options struct {
	// Driver is the opened driver.
	Driver *driver.API
	// Lowering is the node list to run; nil means [workloads.Fused].
	Lowering *workloads.Lowering
	// CuDNN and CuBLAS run convolutions and fully connected layers; nil leaves
	// them to the project's own kernels.
	CuDNN  *cudnn.Library
	CuBLAS *cublas.Library
	// Heuristic takes the libraries' own guess for each node instead of timing
	// what they offer.
	Heuristic bool
	// Tuning is how operators run until [Device.SetPlans] or [Device.Tune] says
	// otherwise.
	Tuning Tuning
	// Submitter is a second way to launch the project's own kernels; see
	// [Group.UseLauncher]. It goes with neither libraries nor Dependent.
	Submitter Submitter
	// CUPTI opens what [Group.Trace] records with, when that is asked for first;
	// nil records nothing.
	CUPTI func() (*cupti.API, error)
	// Unfilled leaves the arena as it was allocated, for a tool that reports reads
	// of memory that nobody wrote. Else every byte starts as part of a NaN.
	Unfilled bool
}

// Device is the GPUs of this machine. It is safe for concurrent use.
type Device struct {
	opts Options
	api  *driver.API
	gpus int

	mu     sync.Mutex
	plans  map[string]Plan // by key of package dnn
	tuning Tuning
	choice results.TuningChoice // how it was chosen
}

// New returns the device. The driver has been initialised by whoever opened
// it; nothing is allocated before Open.
func New(opts Options) (*Device, error) {
	if opts.Driver == nil {
		return nil, errors.New("cuda: no driver")
	}
	if opts.Submitter != nil && (opts.CuDNN != nil || opts.CuBLAS != nil || opts.Tuning.Dependent) {
		return nil, fmt.Errorf("cuda: launcher %s submits the project's own kernels alone, without attributes", opts.Submitter.Name())
	}
	n, err := opts.Driver.DeviceGetCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	if opts.Lowering == nil {
		l := workloads.Fused
		opts.Lowering = &l
	}
	d := &Device{opts: opts, api: opts.Driver, gpus: n, plans: map[string]Plan{}}
	d.untune()
	return d, nil
}

// Name is "cuda".
func (d *Device) Name() string { return "cuda" }

// Kernels is the word after --kernels: whose operators run.
func (d *Device) Kernels() string {
	if d.opts.CuDNN != nil {
		return "cudnn"
	}
	return "builtin"
}

// GPUs is the number of GPUs the driver sees.
func (d *Device) GPUs() int { return d.gpus }

// MaxRanks is 1: ranks on several GPUs exchange gradients through NCCL, which
// this version does not drive.
func (d *Device) MaxRanks() int { return min(d.gpus, 1) }

// Target says which lowering the device runs and what scratch its operators
// need.
func (d *Device) Target() workloads.Target {
	t := d.Tuning()
	return workloads.Target{Lowering: t.lowering(*d.opts.Lowering), ScratchBytes: d.scratch, Beside: t.Edges == EdgesHazards}
}

func (d *Device) scratch(b *workloads.Bound) int64 {
	t := d.Tuning()
	own := t.kernels().ScratchBytes(b)
	if p, x, ok := d.plan(b, t); ok {
		return max(x.Scratch()+p.Choice.Workspace, own)
	}
	return own
}

// Open allocates the arenas and starts the ranks. The group's concrete type is
// *[Group]. The caller closes it, from a goroutine that is not a rank's.
func (d *Device) Open(w *workloads.Workload) (_ device.Group, err error) {
	n := w.Spec.Ranks
	if n < 1 || n > d.MaxRanks() {
		return nil, fmt.Errorf("cuda: open: %d ranks on %d GPUs: this version runs one, since it does not drive NCCL", n, d.gpus)
	}
	if w.Spec.BatchNormGroups > 1 {
		return nil, fmt.Errorf("cuda: open: batch norm on %d groups: only the CPU device has it", w.Spec.BatchNormGroups)
	}
	g := &Group{dev: d, w: w, tuning: d.Tuning()}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for i := range n {
		r := newRank(g, i)
		g.ranks = append(g.ranks, r)
		if err := r.thread.Do(r.allocate); err != nil {
			return nil, fmt.Errorf("cuda: open GPU %d: %w", i, err)
		}
	}
	return g, nil
}

// Group is the ranks of one workload; it implements [device.Group].
type Group struct {
	dev    *Device
	w      *workloads.Workload
	tuning Tuning
	ranks  []*rank
	sealed atomic.Bool
	closed atomic.Bool
	live   struct{ graphs, execs, events, ops atomic.Int64 }
	rec    recording
}

// Ranks is the number of ranks.
func (g *Group) Ranks() int { return len(g.ranks) }

// Rank returns rank i.
func (g *Group) Rank(i int) device.Rank { return g.ranks[i] }

// Each runs f on all ranks' threads at once and waits. It must not be called
// on a rank's thread.
func (g *Group) Each(f func(device.Rank) error) error {
	threads := make([]*device.Thread, len(g.ranks))
	for i, r := range g.ranks {
		threads[i] = r.thread
	}
	return device.Each(threads, func(i int) error { return f(g.ranks[i]) })
}

// Seal declares preparation finished: an operator that asks for memory the
// arena does not have is refused with [device.ErrSealed].
func (g *Group) Seal() { g.sealed.Store(true) }

// Live counts handles that exist: graphs and execs not closed yet, events and
// operators, which live as long as the group.
func (g *Group) Live() map[string]int {
	return map[string]int{
		"graphs": int(g.live.graphs.Load()), "execs": int(g.live.execs.Load()),
		"events": int(g.live.events.Load()), "ops": int(g.live.ops.Load()),
	}
}

// Memory returns each rank's free and total bytes of device memory; see
// [device.Memory].
func (g *Group) Memory() (free, total []uint64, err error) {
	free, total = make([]uint64, len(g.ranks)), make([]uint64, len(g.ranks))
	err = g.Each(func(r device.Rank) (err error) {
		free[r.ID()], total[r.ID()], err = g.dev.api.MemGetInfo()
		return err
	})
	return free, total, err
}

// Close ends a capture in progress, waits for the streams and releases
// everything, graphs and execs that nobody closed included. It returns the
// first failure that no call returned. Later calls return nil.
func (g *Group) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	var errs []error
	if t := g.rec.tracer; t != nil {
		errs = append(errs, t.Stop())
	}
	for i, r := range g.ranks {
		if err := r.thread.Do(r.release); err != nil {
			errs = append(errs, fmt.Errorf("cuda: close GPU %d: %w", i, err))
		}
		r.thread.Stop()
	}
	return errors.Join(errs...)
}
