package workloads

import "fmt"

// DType is an element type.
type DType uint8

const (
	F32 DType = iota
	F16
	U8
	I32
)

// Bytes is the size of one element.
func (d DType) Bytes() int64 { return [...]int64{4, 2, 1, 4}[d] }

func (d DType) String() string { return [...]string{"f32", "f16", "u8", "i32"}[d] }

// Shape is a dense row-major shape. Images are N,H,W,C (channels last);
// convolution weights K,R,S,C; vectors have one dimension.
type Shape []int

// Elems is the number of elements.
func (s Shape) Elems() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// Space is a memory space of one rank.
type Space uint8

const (
	// Arena is the rank's device memory. Its addresses never move.
	Arena Space = iota
	// Pinned is page-locked host memory: the A and B input buffers.
	Pinned
)

func (s Space) String() string { return [...]string{"arena", "pinned"}[s] }

// Region is a range of bytes in a space of one rank.
type Region struct {
	Space Space
	Off   int64
	Bytes int64
}

// End is the offset after the last byte.
func (r Region) End() int64 { return r.Off + r.Bytes }

// Overlaps says whether two regions share a byte.
func (r Region) Overlaps(o Region) bool {
	return r.Space == o.Space && r.Off < o.End() && o.Off < r.End() && r.Bytes > 0 && o.Bytes > 0
}

func (r Region) String() string { return fmt.Sprintf("%s[%d:%d]", r.Space, r.Off, r.End()) }

// TensorID indexes Workload.Tensors.
type TensorID int32

// NoTensor is the id of an absent operand.
const NoTensor TensorID = -1

// Role says what a tensor is for and, with it, how long it lives.
type Role uint8

const (
	// RoleState lives across steps and is compared between modes: weights,
	// momentum, averages, running statistics, scalars, metrics.
	RoleState Role = iota
	// RoleInput is a half's input buffer; it lives until the half is refilled.
	RoleInput
	// RoleStep lives within a step at a fixed place of its own: gradients,
	// batch statistics, step results, the fixed labels, half weights.
	RoleStep
	// RoleActivation is placed by liveness and shares its bytes with others.
	RoleActivation
	// RoleHost is pinned host memory.
	RoleHost
)

func (r Role) String() string {
	return [...]string{"state", "input", "step", "activation", "host"}[r]
}

// Dims is a shape that may depend on the variant. With PerImage false, Fixed
// is the shape. With PerImage true the shape is [n, s, s, C] where n is the
// variant's batch and s its resolution / Down; Down 0 means [n, C], and C 0
// means [n].
type Dims struct {
	PerImage bool
	Down, C  int
	Fixed    Shape
}

// At resolves the shape for a batch and a resolution.
func (d Dims) At(batch, resolution int) Shape {
	switch {
	case !d.PerImage:
		return d.Fixed
	case d.C == 0:
		return Shape{batch}
	case d.Down == 0:
		return Shape{batch, d.C}
	}
	s := resolution / d.Down
	return Shape{batch, s, s, d.C}
}

// Tensor is a named array. Region is where it lies once the plan is made: the
// slot has the same offset and bytes in every variant (the largest variant's),
// and a variant uses a prefix of it. A view (whole gradient range, say) has a
// region that covers other tensors'.
type Tensor struct {
	ID     TensorID
	Name   string
	DType  DType
	Role   Role
	Dims   Dims
	Region Region
}
