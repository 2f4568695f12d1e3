package dnn

import (
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/workloads"
)

// Plan is a node's computation, ready to be bound to addresses any number of
// times. It belongs to its builder; the caller closes it after its Execs.
type Plan struct {
	b      *Builder
	name   string
	choice Choice
	align  int64
	args   int // operands
	skip   []int

	g    *graph // cuDNN
	plan cudnn.Descriptor

	mul cublas.Problem // cuBLASLt
}

// Build makes the plan that a choice describes. It may load and compile
// kernels, for seconds, and is not allowed inside a capture. A choice that
// does not fit the node or that breaks the package's rule is refused; one of
// another library version gives [ErrStale]; one that the library cannot build
// wraps [ErrUnsupported].
func (b *Builder) Build(n *workloads.Bound, c Choice) (*Plan, error) {
	nd, err := look(n)
	if err != nil {
		return nil, err
	}
	return b.build(nd, c)
}

func (b *Builder) build(n *node, c Choice) (*Plan, error) {
	p := &Plan{b: b, name: n.what, choice: c, align: n.align, args: n.args, skip: n.skip}
	fail := func(err error) error { return fmt.Errorf("%s: plan %s: %w", p.name, c, err) }
	version := 0
	switch {
	case c.Library == CuDNN && b.dnn != nil:
		version = b.dnn.Version()
	case c.Library == CuBLASLt && b.blas != nil && n.mul != nil && c.Algorithm != nil:
		version = b.blas.Version()
	default:
		return nil, fail(ErrUnsupported)
	}
	if c.Version != version {
		return nil, fail(fmt.Errorf("%w: %d, this is %d", ErrStale, c.Version, version))
	}
	if c.Library == CuBLASLt {
		p.mul, p.align = *n.mul, int64(n.mul.Align)
		return p, nil
	}
	p.g = b.graphOf(n)
	if err := p.engine(n); err != nil {
		return nil, fail(errors.Join(err, p.g.close()))
	}
	return p, nil
}

// engine rebuilds engine and knobs by number, and the plan on them.
func (p *Plan) engine(n *node) error {
	g, c := p.g, p.choice
	e := g.create(cudnn.EngineDescriptor)
	set(g, e, cudnn.EngineOperationGraph, cudnn.TypeDescriptor, g.desc)
	set(g, e, cudnn.EngineGlobalIndex, cudnn.TypeInt64, c.Engine)
	g.finalize(e)
	if g.err != nil {
		return unsupported(g.err)
	}
	notes, words, err := p.b.notes(g, e)
	if err != nil {
		return err
	}
	if reason := refuse(notes, n.geom.DType); reason != "" {
		return fmt.Errorf("engine %d is %s: %w", c.Engine, reason, ErrUnsupported)
	}
	p.choice.Notes = words
	knobs := make([]cudnn.Descriptor, len(c.Knobs))
	for i, k := range c.Knobs {
		knobs[i] = g.create(cudnn.KnobChoiceDescriptor)
		set(g, knobs[i], cudnn.KnobChoiceKnobType, cudnn.TypeKnobType, k.Type)
		set(g, knobs[i], cudnn.KnobChoiceKnobValue, cudnn.TypeInt64, k.Value)
		g.finalize(knobs[i])
	}
	cfg := g.create(cudnn.EngineCfgDescriptor)
	set(g, cfg, cudnn.EngineCfgEngine, cudnn.TypeDescriptor, e)
	if len(knobs) > 0 {
		set(g, cfg, cudnn.EngineCfgKnobChoices, cudnn.TypeDescriptor, knobs...)
	}
	g.finalize(cfg)
	p.plan = g.create(cudnn.ExecutionPlanDescriptor)
	set(g, p.plan, cudnn.ExecutionPlanEngineConfig, cudnn.TypeDescriptor, cfg)
	g.finalize(p.plan)
	if g.err != nil {
		return unsupported(g.err)
	}
	p.choice.Workspace = get[int64](g, p.plan, cudnn.ExecutionPlanWorkspaceSize, cudnn.TypeInt64)
	if g.err != nil {
		return g.err
	}
	if p.choice.Workspace > p.b.maxWorkspace() {
		return fmt.Errorf("a workspace of %d bytes: %w", p.choice.Workspace, ErrUnsupported)
	}
	return nil
}

// unsupported adds ErrUnsupported to what cuDNN says of an engine that cannot
// do the node.
func unsupported(err error) error {
	if errors.Is(err, cudnn.NotSupported) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// Choice is what the plan was made from, with its own workspace and notes.
func (p *Plan) Choice() Choice { return p.choice }

// Workspace is the memory it needs while it runs, in bytes. Plans on one
// stream may share it.
func (p *Plan) Workspace() int64 { return p.choice.Workspace }

// Unwritten lists the outputs of the node, by number, that the plan does not
// compute and the caller must: the bias gradient of a fully connected layer.
func (p *Plan) Unwritten() []int { return p.skip }

// Bind lays out the plan on device addresses: one for each operand, inputs
// first, and a workspace of at least Workspace bytes, aligned to 256. The caller
// closes the Exec before the plan. Not inside a capture.
func (p *Plan) Bind(ptrs []uintptr, workspace uintptr) (_ *Exec, err error) {
	fail := func(err error) (*Exec, error) { return nil, fmt.Errorf("%s: bind plan %s: %w", p.name, p.choice, err) }
	if len(ptrs) != p.args {
		return fail(fmt.Errorf("%d addresses for %d operands", len(ptrs), p.args))
	}
	for i, a := range ptrs {
		if a == 0 || a%uintptr(p.align) != 0 {
			return fail(fmt.Errorf("operand %d at %#x, want a multiple of %d", i, a, p.align))
		}
	}
	if p.choice.Workspace > 0 && (workspace == 0 || workspace%256 != 0) {
		return fail(fmt.Errorf("workspace at %#x, want a multiple of 256", workspace))
	}
	e := &Exec{plan: p}
	if p.g == nil {
		a := cublas.Algorithm{Workspace: p.choice.Workspace, Compute: p.choice.Algorithm.Compute}
		for i, w := range p.choice.Algorithm.Words {
			a.Words[i] = uint64(w)
		}
		// Inputs are A and B, then a bias; the first output is D.
		o := cublas.Operands{A: ptrs[0], B: ptrs[1], D: ptrs[2]}
		switch {
		case p.mul.Bias:
			o.Bias, o.D = ptrs[2], ptrs[3]
		case p.mul.TransA:
			// x, dy: the product is dy^T * x.
			o.A, o.B = ptrs[1], ptrs[0]
		}
		if e.blas, err = p.b.blas.Execution(p.b.lt, p.mul, a, o, workspace); err != nil {
			return fail(err)
		}
		return e, nil
	}
	pack := &graph{lib: p.g.lib}
	d := pack.create(cudnn.VariantPackDescriptor)
	addrs := make([]uintptr, len(p.g.uids))
	for i, o := range p.g.from {
		addrs[i] = ptrs[o]
	}
	set(pack, d, cudnn.VariantPackWorkspace, cudnn.TypeVoidPtr, workspace)
	set(pack, d, cudnn.VariantPackDataPointers, cudnn.TypeVoidPtr, addrs...)
	set(pack, d, cudnn.VariantPackUniqueIDs, cudnn.TypeInt64, p.g.uids...)
	pack.finalize(d)
	if pack.err != nil {
		return fail(errors.Join(pack.err, pack.close()))
	}
	e.pack, e.dnn = pack, p.g.lib.Execution(p.plan, d)
	return e, nil
}

// Close releases the plan. More calls do nothing.
func (p *Plan) Close() error {
	if p.g == nil {
		return nil
	}
	return p.g.close()
}

// Exec is a plan on fixed addresses. It belongs to one thread.
type Exec struct {
	plan *Plan
	dnn  cudnn.Execution
	pack *graph
	blas *cublas.Execution
}

// Submit queues the computation on the stream, or records it if the stream is
// being captured. It does not wait and does not allocate unless it fails. The
// first submission on a stream may do lazy work, so one is made outside any
// capture.
func (e *Exec) Submit(s *Stream) error {
	var err error
	if e.blas != nil {
		err = e.blas.Submit(s.stream)
	} else {
		err = e.dnn.Submit(s.handle)
	}
	if err != nil {
		return fmt.Errorf("%s: plan %s: %w", e.plan.name, e.plan.choice, err)
	}
	return nil
}

// CuBLAS says whether cuBLASLt is called, and not cuDNN.
func (e *Exec) CuBLAS() bool { return e.blas != nil }

// Close releases what Bind made. More calls do nothing.
func (e *Exec) Close() error {
	if e.blas != nil {
		return e.blas.Close()
	}
	return e.pack.close()
}

// Stream is a CUDA stream with the libraries' state for it. It belongs to one
// thread; the caller closes it before the CUDA stream is destroyed.
type Stream struct {
	b      *Builder
	handle cudnn.Handle
	stream uintptr
}

// NewStream makes the libraries' state for a stream (a CUstream) of the
// builder's context. Not inside a capture.
func (b *Builder) NewStream(stream uintptr) (*Stream, error) {
	s := &Stream{b: b, stream: stream}
	if b.dnn == nil {
		return s, nil
	}
	var err error
	if s.handle, err = b.dnn.Create(); err != nil {
		return nil, err
	}
	if err := b.dnn.SetStream(s.handle, stream); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close releases the state, not the CUDA stream. More calls do nothing.
func (s *Stream) Close() error {
	if s.handle == 0 {
		return nil
	}
	h := s.handle
	s.handle = 0
	return s.b.dnn.Destroy(h)
}
