package dnn

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/workloads"
)

// pass is which of a layer's three products an operator is.
type pass int

const (
	forward pass = iota
	bwdData
	bwdFilter
)

func kind(op workloads.Op) pass {
	switch op {
	case workloads.OpConvBwdData, workloads.OpFCBwdData:
		return bwdData
	case workloads.OpConvBwdFilter, workloads.OpFCBwdFilter:
		return bwdFilter
	}
	return forward
}

// Builder makes plans in one context. It and its plans are used by one thread
// at a time, with that context current, and not while the thread captures.
type Builder struct {
	// MaxWorkspace bounds the workspace of a plan, in bytes; 0 means
	// [DefaultWorkspace].
	MaxWorkspace int64

	dnn    *cudnn.Library
	handle cudnn.Handle
	blas   *cublas.Library
	lt     cublas.Handle
}

// DefaultWorkspace is the largest workspace a plan may have by default.
const DefaultWorkspace = 256 << 20

// New returns a builder for the current context. Either library may be nil:
// its operators are then unsupported. The caller closes the builder after its
// plans and streams.
func New(d *cudnn.Library, l *cublas.Library) (_ *Builder, err error) {
	b := &Builder{dnn: d, blas: l}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if d != nil {
		if b.handle, err = d.Create(); err != nil {
			return nil, err
		}
	}
	if l != nil {
		if b.lt, err = l.Create(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Close releases the handles. More calls do nothing.
func (b *Builder) Close() error {
	var errs []error
	if b.handle != 0 {
		errs = append(errs, b.dnn.Destroy(b.handle))
		b.handle = 0
	}
	if b.lt != 0 {
		errs = append(errs, b.blas.Destroy(b.lt))
		b.lt = 0
	}
	return errors.Join(errs...)
}

func (b *Builder) maxWorkspace() int64 {
	if b.MaxWorkspace > 0 {
		return b.MaxWorkspace
	}
	return DefaultWorkspace
}

// Candidates lists what the libraries offer for a node within the package's
// rule, their best guess first, without duplicates. Some of them may turn out
// not to build. The error wraps [ErrUnsupported] if there is none, and says what
// was left out and why.
func (b *Builder) Candidates(n *workloads.Bound) ([]Candidate, error) {
	nd, err := look(n)
	if err != nil {
		return nil, err
	}
	return b.candidates(nd)
}

func (b *Builder) candidates(nd *node) ([]Candidate, error) {
	why := fmt.Errorf("%s (%s): %w", nd.what, nd.geom, ErrUnsupported)
	sources := []func(*node) ([]Candidate, error){b.engines}
	if nd.mul != nil {
		sources = []func(*node) ([]Candidate, error){b.products, b.engines}
	}
	for _, ask := range sources {
		out, err := ask(nd)
		switch {
		case len(out) > 0 && err == nil:
			return out, nil
		case errors.Is(err, ErrUnsupported):
			why = also(why, err)
		default:
			return nil, fmt.Errorf("%s (%s): %w", nd.what, nd.geom, err)
		}
	}
	return nil, why
}

// also adds a further reason to an error, in one line.
func also(err, more error) error { return fmt.Errorf("%w; %w", err, more) }

// products asks cuBLASLt. The error wraps ErrUnsupported if it has nothing.
func (b *Builder) products(n *node) ([]Candidate, error) {
	if b.blas == nil {
		return nil, fmt.Errorf("no cuBLASLt: %w", ErrUnsupported)
	}
	p := *n.mul
	p.MaxWorkspace = min(b.maxWorkspace(), 32<<20)
	algos, err := b.blas.Algorithms(b.lt, p, 8)
	if errors.Is(err, cublas.ErrNoAlgorithm) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	var out []Candidate
	for i, a := range algos {
		c := Choice{
			Library: CuBLASLt, Version: b.blas.Version(), Engine: int64(a.ID), Workspace: a.Workspace,
			Algorithm: &Algorithm{Compute: a.Compute},
			Notes: []string{
				fmt.Sprintf("tile=%d", a.Tile), fmt.Sprintf("stages=%d", a.Stages), fmt.Sprintf("split_k=%d", a.SplitK),
				fmt.Sprintf("reduction=%d", a.Reduction), fmt.Sprintf("flags=%#x", a.Flags),
			},
		}
		for j, w := range a.Words {
			c.Algorithm.Words[j] = Word(w)
		}
		out = append(out, Candidate{Choice: c, Source: "heuristic", Rank: i})
	}
	return out, nil
}

// heuristics are cuDNN's, in the order in which they are asked.
var heuristics = []struct {
	name string
	mode cudnn.HeurMode
}{{"mode_a", cudnn.HeurModeA}, {"mode_b", cudnn.HeurModeB}, {"fallback", cudnn.HeurModeFallback}}

// engines asks cuDNN. The error wraps ErrUnsupported if it has nothing.
func (b *Builder) engines(n *node) (out []Candidate, err error) {
	if b.dnn == nil {
		return nil, fmt.Errorf("no cuDNN: %w", ErrUnsupported)
	}
	g := b.graphOf(n)
	defer func() {
		if e := g.close(); e != nil {
			out, err = nil, errors.Join(err, e)
		}
	}()
	if g.err != nil {
		return nil, unsupported(g.err)
	}
	seen := map[string]bool{}
	left := map[string]int{}
	var why error
	for _, h := range heuristics {
		base := len(g.live)
		found, err := b.ask(g, h.mode)
		if err != nil && !errors.Is(err, cudnn.NotSupported) {
			return nil, err
		}
		if err != nil {
			why = fmt.Errorf("%s: %w", h.name, err)
		}
		for i, c := range found {
			if s := c.Choice.String(); seen[s] {
				continue
			} else {
				seen[s] = true
			}
			switch reason := refuse(c.notes, n.geom.DType); {
			case reason != "":
				left[reason]++
			case c.Workspace > b.maxWorkspace():
				left["workspace"]++
			default:
				out = append(out, Candidate{Choice: c.Choice, Source: h.name, Rank: i})
			}
		}
		if err := g.closeTo(base); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		var reasons []string
		for r, k := range left {
			reasons = append(reasons, fmt.Sprintf("%s %d", r, k))
		}
		sort.Strings(reasons)
		err := fmt.Errorf("%d engine configurations of cuDNN, left out: %s: %w", len(seen), strings.Join(reasons, ", "), ErrUnsupported)
		if why != nil {
			err = also(err, why)
		}
		return nil, err
	}
	return out, nil
}

// refuse names the note for which an engine is left out, if there is one.
func refuse(notes []cudnn.NumericalNote, d workloads.DType) string {
	no := []cudnn.NumericalNote{
		cudnn.NoteNondeterministic, cudnn.NoteReducedPrecisionReduction, cudnn.NoteWinograd, cudnn.NoteFFT,
	}
	if d == workloads.F32 {
		no = append(no, cudnn.NoteTensorCore, cudnn.NoteDownConvertInputs)
	}
	for _, n := range no {
		if slices.Contains(notes, n) {
			return n.String()
		}
	}
	return ""
}

// config is an engine configuration as heuristics return it.
type config struct {
	Choice
	notes []cudnn.NumericalNote
}

// Room to ask with first: the numbers of notes and knob types that cuDNN 9.19
// knows.
const (
	numericalRoom = 10
	behaviorRoom  = 5
	knobRoom      = 44
)

// ask reads all configurations of one heuristic mode. It leaves the
// descriptors it made to the caller to close.
func (b *Builder) ask(g *graph, mode cudnn.HeurMode) ([]config, error) {
	defer func() { g.err = nil }()
	h := g.create(cudnn.EngineHeurDescriptor)
	set(g, h, cudnn.EngineHeurOperationGraph, cudnn.TypeDescriptor, g.desc)
	set(g, h, cudnn.EngineHeurMode, cudnn.TypeHeurMode, mode)
	g.finalize(h)
	if g.err != nil {
		return nil, g.err
	}
	n, err := cudnn.Get[cudnn.Descriptor](g.lib, h, cudnn.EngineHeurResults, cudnn.TypeDescriptor, nil)
	if err != nil || n == 0 {
		return nil, err
	}
	cfgs := make([]cudnn.Descriptor, n)
	for i := range cfgs {
		cfgs[i] = g.create(cudnn.EngineCfgDescriptor)
	}
	if g.err != nil {
		return nil, g.err
	}
	if n, err = cudnn.Get(g.lib, h, cudnn.EngineHeurResults, cudnn.TypeDescriptor, cfgs); err != nil {
		return nil, err
	}
	var out []config
	for _, d := range cfgs[:min(n, len(cfgs))] {
		base := len(g.live)
		c, err := b.readConfig(g, d)
		if e := g.closeTo(base); err == nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (b *Builder) readConfig(g *graph, cfg cudnn.Descriptor) (config, error) {
	c := config{Choice: Choice{Library: CuDNN, Version: b.dnn.Version()}}
	engine := g.create(cudnn.EngineDescriptor)
	if g.err != nil {
		return c, g.err
	}
	if _, err := cudnn.Get(g.lib, cfg, cudnn.EngineCfgEngine, cudnn.TypeDescriptor, []cudnn.Descriptor{engine}); err != nil {
		return c, err
	}
	var err error
	if c.notes, c.Notes, err = b.notes(g, engine); err != nil {
		return c, err
	}
	c.Engine = get[int64](g, engine, cudnn.EngineGlobalIndex, cudnn.TypeInt64)
	knobs := make([]cudnn.Descriptor, knobRoom)
	for i := range knobs {
		knobs[i] = g.create(cudnn.KnobChoiceDescriptor)
	}
	if g.err != nil {
		return c, g.err
	}
	n, err := cudnn.Get(g.lib, cfg, cudnn.EngineCfgKnobChoices, cudnn.TypeDescriptor, knobs)
	if err != nil {
		return c, err
	}
	if n > len(knobs) {
		return c, fmt.Errorf("cuDNN engine %d has %d knobs, room for %d", c.Engine, n, len(knobs))
	}
	for _, k := range knobs[:n] {
		c.Knobs = append(c.Knobs, Knob{
			Type:  get[int32](g, k, cudnn.KnobChoiceKnobType, cudnn.TypeKnobType),
			Value: get[int64](g, k, cudnn.KnobChoiceKnobValue, cudnn.TypeInt64),
		})
	}
	slices.SortFunc(c.Knobs, func(x, y Knob) int { return int(x.Type - y.Type) })
	c.Workspace = get[int64](g, cfg, cudnn.EngineCfgWorkspaceSize, cudnn.TypeInt64)
	if errors.Is(g.err, cudnn.NotSupported) {
		g.err, c.Workspace = nil, 0 // no forecast; the plan will say
	}
	return c, g.err
}

// notes reads an engine's notes: the numerical ones, and all as words.
func (b *Builder) notes(g *graph, engine cudnn.Descriptor) (nums []cudnn.NumericalNote, words []string, err error) {
	nums, err = cudnn.GetAll[cudnn.NumericalNote](g.lib, engine, cudnn.EngineNumericalNote, cudnn.TypeNumericalNote, numericalRoom)
	if err != nil {
		return nil, nil, err
	}
	how, err := cudnn.GetAll[cudnn.BehaviorNote](g.lib, engine, cudnn.EngineBehaviorNote, cudnn.TypeBehaviorNote, behaviorRoom)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range nums {
		words = append(words, n.String())
	}
	for _, n := range how {
		words = append(words, n.String())
	}
	return nums, words, nil
}
