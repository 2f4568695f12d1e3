package workloads

import "errors"

// Workload is a spec made concrete for a target. It is immutable and safe for
// concurrent use.
type Workload struct {
	Spec    Spec
	Target  Target
	Tensors []Tensor
	// ArenaBytes and PinnedBytes are what one rank needs. Offsets are
	// multiples of [Alignment].
	ArenaBytes, PinnedBytes int64
	// Scratch is each stream's scratch region (may be empty).
	Scratch [NumStreams]Region
	// Well-known tensors.
	Known Known
}

// Alignment is the alignment of every tensor, in bytes.
const Alignment = 256

// Known names the tensors that code outside this package touches.
type Known struct {
	Scalars, RateTable, Step, Metrics TensorID
	Pinned                            [2]TensorID // images (U8) then labels; RoleHost
	Raw                               [2]TensorID // the same bytes in the arena
	Images                            [2]TensorID // normalised, type T
	Labels                            [2]TensorID // I32, a view of Raw
	// LabelsOffset is where labels begin inside Pinned and Raw, in bytes.
	LabelsOffset int64
	Params, Grads, Momentum, EMA      TensorID // whole F32 ranges
	Running                           TensorID
}

// New builds the workload: graphs, lowering, memory plan, atlas. It fails on
// a spec that [Spec.Validate] refuses.
func New(s Spec, t Target) (*Workload, error) { return nil, errors.New("not built yet") }

// Shape returns the images a rank and step, and the image side, of a variant.
func (w *Workload) Shape(v Variant) (batch, resolution int) { panic("TODO") }

// Bounds returns the nodes of a sub-graph in a variant, in order; nil if the
// slot is empty. With ControlHost the DeviceControl nodes are left out.
func (w *Workload) Bounds(id SubGraph, v Variant, c Control) []*Bound { panic("TODO") }

// Slot returns an entry of the atlas.
func (w *Workload) Slot(id SubGraph, v Variant) Slot { panic("TODO") }

// Schedule returns the actions of a segment, empty slots left out. Every mode
// walks it.
func (w *Workload) Schedule(seg Segment) []Action { panic("TODO") }

// Init calls write for every region that must hold a defined value before the
// first step: weights (from the seed), averages, statistics, scalars, tables;
// all else of RoleState is zero. The same seed gives the same bytes for every
// rank and every target.
func (w *Workload) Init(seed uint64, write func(r Region, data []byte) error) error { panic("TODO") }

// State lists the tensors that live across steps, in offset order.
func (w *Workload) State() []TensorID { panic("TODO") }
