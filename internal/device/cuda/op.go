package cuda

import (
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/dnn"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// op implements [device.Op]: a library's plan, then launches of the project's
// own; either may be absent.
type op struct {
	b        *workloads.Bound
	r        *rank
	stream   workloads.Stream
	library  *dnn.Exec
	state    *dnn.Stream
	launches []*driver.Launch
	ahead    int            // how many of the launches come before the library's plan
	marks    []string       // of the launches, for the audit of graphs
	others   []func() error // the launches by Options.Submitter, if there is one
	counters bool           // its kernels use the counters of its stream
}

// Prepare audits the node's regions and lays out its launches.
func (r *rank) Prepare(b *workloads.Bound) (device.Op, error) {
	s := b.SubGraph.Info().Stream
	if c := r.cap; c != nil {
		return nil, c.fail(&device.OpError{Rank: r.id, Stream: s, Call: "prepare", Node: nodeName(b), Err: device.ErrCaptureUnsupported})
	}
	o := &op{b: b, r: r, stream: s}
	if err := o.prepare(); err != nil {
		if r.g.sealed.Load() {
			err = fmt.Errorf("%w: %w", device.ErrSealed, err)
		}
		return nil, &device.OpError{Rank: r.id, Stream: s, Call: "prepare", Node: nodeName(b), Err: err}
	}
	r.ops = append(r.ops, o)
	r.g.live.ops.Add(1)
	return o, nil
}

func (o *op) prepare() error {
	for _, list := range [][]workloads.Operand{o.b.In, o.b.Out} {
		for _, x := range list {
			if err := o.r.check(x.Region); err != nil {
				return fmt.Errorf("operand %s: %w", x.Name, err)
			}
		}
	}
	for _, x := range slices.Concat(o.b.Reads, o.b.Writes) {
		if err := o.r.check(x); err != nil {
			return err
		}
	}
	if err := o.r.check(o.b.Scratch); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	if o.b.Op == workloads.OpAllReduce {
		return fmt.Errorf("a collective of %d rank: several GPUs exchange through NCCL, which this version does not drive", o.r.g.Ranks())
	}
	if p, x, ok := o.r.g.dev.plan(o.b, o.r.g.tuning); ok {
		return o.bind(p, x)
	}
	plan, err := o.r.g.tuning.kernels().Plan(o.b)
	if err != nil {
		return err
	}
	return o.lay(plan)
}

// bind takes the library's plan, and the project's own kernel for what the
// plan leaves out. With x the plan is for the rearranged node.
func (o *op) bind(p Plan, x *kernels.Rearranged) error {
	if need := x.Scratch() + p.Choice.Workspace; o.b.Scratch.Bytes < need {
		return fmt.Errorf("scratch has %d bytes, the plan needs %d", o.b.Scratch.Bytes, need)
	}
	b, workspace := o.b, o.b.Scratch
	if x != nil {
		b = x.Bound
		workspace.Off += x.Scratch()
		if err := o.lay(x.Before); err != nil {
			return err
		}
		o.ahead = len(o.launches)
		if err := o.lay(x.After); err != nil {
			return err
		}
	}
	plan, err := o.r.build(b, p)
	if err != nil {
		return err
	}
	var ptrs []uintptr
	for _, x := range slices.Concat(b.In, b.Out) {
		ptrs = append(ptrs, uintptr(o.r.address(x.Region)))
	}
	if o.library, err = plan.Bind(ptrs, uintptr(o.r.address(workspace))); err != nil {
		return err
	}
	if o.state, err = o.r.libraryStream(o.stream, o.r.g.w.Target.Beside && o.b.Op.FilterGradient()); err != nil {
		return err
	}
	unwritten := plan.Unwritten()
	for _, i := range unwritten {
		if o.b.Op != workloads.OpFCBwdFilter || i != 1 {
			return fmt.Errorf("the plan leaves output %s unwritten, which no kernel here computes alone", o.b.Out[i].Name)
		}
		dy, db := o.b.In[1], o.b.Out[1]
		if err := o.lay([]kernels.Launch{kernels.ColumnSums(dy.DType, dy.Region, db.Region, dy.Shape[0], dy.Shape[1])}); err != nil {
			return err
		}
	}
	return nil
}

// lay prepares the launches of a plan.
func (o *op) lay(plan []kernels.Launch) error {
	for i := range plan {
		l, other, err := o.r.lay(&plan[i], o.stream)
		if err != nil {
			return err
		}
		o.launches = append(o.launches, l)
		if other != nil {
			o.others = append(o.others, other)
		}
		o.marks = append(o.marks, o.r.mark(&plan[i], o.stream))
		for _, p := range plan[i].Params {
			o.counters = o.counters || p.Kind == kernels.Counter
		}
	}
	return nil
}

// lay resolves one launch to addresses, for the binding and for
// Options.Submitter.
func (r *rank) lay(l *kernels.Launch, s workloads.Stream) (*driver.Launch, func() error, error) {
	if l.Kind == kernels.KindCopyIn {
		if l.Src.Bytes != l.Dst.Bytes {
			return nil, nil, fmt.Errorf("copy of %v to %v", l.Src, l.Dst)
		}
		return r.layCopyIn(driver.DevicePtr(r.address(l.Dst)), uintptr(r.address(l.Src)), int(l.Dst.Bytes), r.streams[s])
	}
	spec, err := r.kernelSpec(l, s)
	if err != nil {
		return nil, nil, err
	}
	return r.layKernel(spec)
}

// kernelSpec resolves a kernel's launch to addresses.
func (r *rank) kernelSpec(l *kernels.Launch, s workloads.Stream) (driver.KernelSpec, error) {
	var none driver.KernelSpec
	args := &driver.Args{}
	for _, p := range l.Params {
		switch p.Kind {
		case kernels.Pointer:
			if err := r.check(p.Region); err != nil {
				return none, fmt.Errorf("kernel %s: %w", l.Kernel, err)
			}
			args.U64(r.pointer(p, s))
		case kernels.Counter, kernels.Null, kernels.Int64:
			args.U64(r.pointer(p, s))
		case kernels.Int32, kernels.Float32:
			args.U32(uint32(p.Value))
		case kernels.Block:
			args.Struct(p.Bytes)
		default:
			return none, fmt.Errorf("kernel %s: parameter of kind %d", l.Kernel, p.Kind)
		}
	}
	f, ok := r.kernel[l.Kernel]
	if !ok {
		return none, fmt.Errorf("there is no kernel %s", l.Kernel)
	}
	return driver.KernelSpec{
		Func: f, Name: l.Kernel, Grid: l.Grid, Block: l.Block, Shared: l.Shared,
		Stream: r.streams[s], Args: args, Attrs: r.attrs,
	}, nil
}

// pointer is the value of an 8-byte parameter on a stream.
func (r *rank) pointer(p kernels.Param, s workloads.Stream) uint64 {
	switch p.Kind {
	case kernels.Pointer:
		return r.address(p.Region)
	case kernels.Counter:
		return uint64(r.counters) + 4*(uint64(s)*kernels.CounterWords+p.Value)
	case kernels.Null:
		return 0
	}
	return p.Value
}

// Bound is the node.
func (o *op) Bound() *workloads.Bound { return o.b }

// Calls is the number of submitting calls that Submit makes: the driver's for
// each launch, and one for a library's plan, whatever the library makes of it.
func (o *op) Calls() int {
	n := len(o.launches)
	if o.library != nil {
		n++
	}
	return n
}

// Submit queues the operator. Inside a capture it becomes nodes of the graph;
// what is submitted to a stream outside the capture runs.
func (o *op) Submit(v workloads.Variant) error {
	r := o.r
	c := r.cap
	if c != nil && !c.takes(o.stream) {
		c = nil
	}
	if c != nil {
		if err := c.valid("capture", nodeName(o.b)); err != nil {
			return err
		}
		if err := c.order(o); err != nil {
			return o.failed(err)
		}
	}
	r.last[o.stream].Store(o.b)
	if o.library != nil {
		if err := o.submit(o.launches[:o.ahead]); err != nil {
			return err
		}
		var err error
		if t := r.libraries; t == nil {
			err = o.library.Submit(o.state)
		} else {
			err = t.submit(o)
		}
		if err != nil {
			return o.failed(err)
		}
	}
	if r.others && r.cap == nil {
		for _, submit := range o.others {
			if err := submit(); err != nil {
				return o.failed(err)
			}
		}
	} else if err := o.submit(o.launches[o.ahead:]); err != nil {
		return err
	}
	if c != nil {
		c.add(o)
		if err := c.ordered(o); err != nil {
			return o.failed(err)
		}
		return nil
	}
	r.executed[v][o.b.SubGraph]++
	return nil
}

func (o *op) submit(launches []*driver.Launch) error {
	for _, l := range launches {
		if code := o.r.api.Submit(l); code != driver.Success {
			return o.failed(o.r.api.LaunchError(l, code))
		}
	}
	return nil
}

func (o *op) failed(err error) error {
	return o.r.spoil(o.r.failed("submit", o.stream, o.b, err))
}

func (o *op) close() error {
	if o.library == nil {
		return nil
	}
	return o.library.Close()
}
