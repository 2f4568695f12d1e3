package cublas

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Type is a cudaDataType_t.
type Type int32

const (
	F32 Type = 0
	F16 Type = 2
)

// Values of cuBLASLt's enumerations, of cublasLt.h and cublas_api.h.
const (
	compute32F         = 68
	compute32FPedantic = 69

	descTransA       = 3
	descTransB       = 4
	descEpilogue     = 7
	descBiasPointer  = 8
	descBiasDataType = 26

	epilogueBias = 4

	prefMaxWorkspace  = 1
	prefReductionMask = 3
	prefAlignA        = 5 // and B, C, D after it

	reductionNone        = 0
	reductionComputeType = 2

	capNumericalFlags = 15
	flagsTensorOps    = 0xfe // CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK
	flagAccumulator32 = 1 << 9
)

// Problem is a product of dense row-major matrices:
//
//	D[Rows,Cols] = A[Rows,Inner] * B[Inner,Cols] (+ Bias[Cols], to every row)
//
// accumulated in FP32 and rounded once, on store. TransA means that A is stored
// as [Inner,Rows], TransB that B is stored as [Cols,Inner].
type Problem struct {
	Rows, Cols, Inner int
	TransA, TransB    bool
	In, Out           Type // of A and B, of D
	// Bias adds an F32 vector.
	Bias bool
	// Align is the alignment in bytes that all pointers have, at least 16;
	// 0 means 256.
	Align int
	// MaxWorkspace bounds the workspace of the algorithms proposed, in bytes.
	MaxWorkspace int64
}

func (p Problem) String() string {
	t := func(b bool) string {
		if b {
			return "t"
		}
		return "n"
	}
	return fmt.Sprintf("%dx%dx%d%s%s", p.Rows, p.Cols, p.Inner, t(p.TransA), t(p.TransB))
}

// Algorithm is one way to compute a problem, with its parameters for a reader.
type Algorithm struct {
	// Words are the library's own form, valid under the same version only.
	Words [8]uint64
	// Workspace is what it needs, in bytes.
	Workspace int64
	// Compute is the cublasComputeType_t it was proposed for.
	Compute int32
	// Parameters, of cublasLtMatmulAlgoConfigAttributes_t.
	ID, Tile, SplitK, Reduction, Swizzle, Custom, Stages int32
	// Flags are its cublasLtNumericalImplFlags_t.
	Flags uint64
}

// heuristicResult is a cublasLtMatmulHeuristicResult_t.
type heuristicResult struct {
	algo      [8]uint64
	workspace uint64
	state     int32
	waves     float32
	reserved  [4]int32
}

// ErrNoAlgorithm says that cuBLASLt has no algorithm for a problem within this
// package's rule.
var ErrNoAlgorithm = errors.New("cuBLASLt has no deterministic algorithm for the problem")

// descriptors are what cuBLASLt needs to know of a problem. cuBLASLt's matrices
// are column-major, so it is asked for the transposed product: a row-major D is
// a column-major D^T = B^T * A^T, and the bias, one value a column of D,
// becomes one a row, which is what its epilogue adds.
type descriptors struct {
	l          *Library
	op         uintptr
	a, b, d    uintptr // layouts of cuBLASLt's A (our B), B (our A) and D
	alpha, bet float32
}

func (d *descriptors) close() error {
	var errs []error
	for _, x := range []*uintptr{&d.a, &d.b, &d.d} {
		if *x != 0 {
			r, _, _ := purego.SyscallN(d.l.t.layoutDestroy, *x)
			errs = append(errs, d.l.check("cublasLtMatrixLayoutDestroy", r))
			*x = 0
		}
	}
	if d.op != 0 {
		r, _, _ := purego.SyscallN(d.l.t.descDestroy, d.op)
		errs = append(errs, d.l.check("cublasLtMatmulDescDestroy", r))
		d.op = 0
	}
	return errors.Join(errs...)
}

func set[T any](d *descriptors, attr uintptr, v T) error {
	r, _, _ := purego.SyscallN(d.l.t.descSet, d.op, attr, uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v))
	if int32(r) == 0 {
		return nil
	}
	return d.l.check(fmt.Sprintf("cublasLtMatmulDescSetAttribute(%d)", attr), r)
}

// describe makes the descriptors. bias is the vector's address, or one of the
// same alignment if only algorithms are asked for.
func (l *Library) describe(p Problem, compute int32, bias uintptr) (_ *descriptors, err error) {
	if p.Rows < 1 || p.Cols < 1 || p.Inner < 1 {
		return nil, fmt.Errorf("matrix product %v: an empty dimension", p)
	}
	d := &descriptors{l: l, alpha: 1}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	r, _, _ := purego.SyscallN(l.t.descCreate, uintptr(unsafe.Pointer(&d.op)), uintptr(compute), uintptr(F32))
	if err := l.check("cublasLtMatmulDescCreate", r); err != nil {
		return nil, err
	}
	flag := func(b bool) int32 {
		if b {
			return 1
		}
		return 0
	}
	if err := set(d, descTransA, flag(p.TransB)); err != nil {
		return nil, err
	}
	if err := set(d, descTransB, flag(p.TransA)); err != nil {
		return nil, err
	}
	if p.Bias {
		if err := set(d, descEpilogue, uint32(epilogueBias)); err != nil {
			return nil, err
		}
		if err := set(d, descBiasDataType, int32(F32)); err != nil {
			return nil, err
		}
		if err := set(d, descBiasPointer, bias); err != nil {
			return nil, err
		}
	}
	// A row-major matrix [r,c] is a column-major one of c rows and r columns.
	layout := func(at *uintptr, t Type, rows, cols int, trans bool) error {
		if trans {
			rows, cols = cols, rows
		}
		r, _, _ := purego.SyscallN(l.t.layoutCreate, uintptr(unsafe.Pointer(at)), uintptr(t), uintptr(cols), uintptr(rows), uintptr(cols))
		return l.check("cublasLtMatrixLayoutCreate", r)
	}
	if err := layout(&d.a, p.In, p.Inner, p.Cols, p.TransB); err != nil {
		return nil, err
	}
	if err := layout(&d.b, p.In, p.Rows, p.Inner, p.TransA); err != nil {
		return nil, err
	}
	if err := layout(&d.d, p.Out, p.Rows, p.Cols, false); err != nil {
		return nil, err
	}
	return d, nil
}

// computes lists the cublasComputeType_t to ask for, best first. For FP32
// pedantic means no TF32 and no emulation; some versions have no pedantic
// algorithm for a problem but plain ones that are as exact.
func (p Problem) computes() []int32 {
	if p.In == F32 {
		return []int32{compute32FPedantic, compute32F}
	}
	return []int32{compute32F}
}

// Algorithms asks cuBLASLt for up to want algorithms, its best guess first, and
// returns those within the package's rule; ErrNoAlgorithm if none is. Not
// inside a capture. Source: cublasLtMatmulAlgoGetHeuristic.
func (l *Library) Algorithms(h Handle, p Problem, want int) ([]Algorithm, error) {
	proposed := 0
	for _, compute := range p.computes() {
		all, err := l.propose(h, p, compute, want)
		if err != nil {
			return nil, err
		}
		proposed += len(all)
		var out []Algorithm
		for _, a := range all {
			if a.admitted(p) == nil {
				out = append(out, a)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%v (%d proposed): %w", p, proposed, ErrNoAlgorithm)
}

// propose returns what the library proposes for one compute type.
func (l *Library) propose(h Handle, p Problem, compute int32, want int) ([]Algorithm, error) {
	const alignedAddress = 1 << 12 // stands for a bias whose address is not known yet
	d, err := l.describe(p, compute, alignedAddress)
	if err != nil {
		return nil, err
	}
	defer d.close()
	var pref uintptr
	r, _, _ := purego.SyscallN(l.t.prefCreate, uintptr(unsafe.Pointer(&pref)))
	if err := l.check("cublasLtMatmulPreferenceCreate", r); err != nil {
		return nil, err
	}
	defer purego.SyscallN(l.t.prefDestroy, pref)
	setPref := func(attr uintptr, v unsafe.Pointer, size uintptr) error {
		r, _, _ := purego.SyscallN(l.t.prefSet, pref, attr, uintptr(v), size)
		return l.check("cublasLtMatmulPreferenceSetAttribute", r)
	}
	workspace, mask, align := uint64(p.MaxWorkspace), uint32(reductionComputeType), uint32(p.Align)
	if align == 0 {
		align = 256
	}
	errs := []error{
		setPref(prefMaxWorkspace, unsafe.Pointer(&workspace), 8),
		setPref(prefReductionMask, unsafe.Pointer(&mask), 4),
	}
	for i := range uintptr(4) {
		errs = append(errs, setPref(prefAlignA+i, unsafe.Pointer(&align), 4))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	results := make([]heuristicResult, max(want, 1))
	var got int32
	r, _, _ = purego.SyscallN(l.t.getHeuristic, uintptr(h), d.op, d.a, d.b, d.d, d.d, pref, uintptr(len(results)),
		uintptr(unsafe.Pointer(unsafe.SliceData(results))), uintptr(unsafe.Pointer(&got)))
	// An F32 bias on an F16 result is refused as an invalid value (seen: 13.1).
	if s := Status(int32(r)); s == NotSupported || s == InvalidValue && p.Bias && p.Out != F32 {
		return nil, nil
	}
	if err := l.check("cublasLtMatmulAlgoGetHeuristic", r); err != nil {
		return nil, err
	}
	var out []Algorithm
	for _, c := range results[:max(0, min(int(got), len(results)))] {
		if c.state != 0 {
			continue
		}
		a := Algorithm{Words: c.algo, Workspace: int64(c.workspace), Compute: compute}
		if err := l.read(&a); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// read fills in what an algorithm's words say.
func (l *Library) read(a *Algorithm) error {
	var n uintptr
	get := func(fn, attr uintptr, v unsafe.Pointer, size uintptr) error {
		r, _, _ := purego.SyscallN(fn, uintptr(unsafe.Pointer(&a.Words)), attr, uintptr(v), size, uintptr(unsafe.Pointer(&n)))
		return l.check(fmt.Sprintf("cublasLtMatmulAlgo...GetAttribute(%d)", attr), r)
	}
	for i, v := range []*int32{&a.ID, &a.Tile, &a.SplitK, &a.Reduction, &a.Swizzle, &a.Custom, &a.Stages} {
		if err := get(l.t.algoConfigGet, uintptr(i), unsafe.Pointer(v), 4); err != nil {
			return err
		}
	}
	return get(l.t.algoCapsGet, capNumericalFlags, unsafe.Pointer(&a.Flags), 8)
}

// admitted says why an algorithm breaks the package's rule, if it does.
func (a *Algorithm) admitted(p Problem) error {
	switch {
	case a.Compute != compute32F && a.Compute != compute32FPedantic:
		return fmt.Errorf("algorithm %d computes in type %d", a.ID, a.Compute)
	case a.Reduction != reductionNone && a.Reduction != reductionComputeType:
		return fmt.Errorf("algorithm %d reduces by scheme %d", a.ID, a.Reduction)
	case p.In == F32 && a.Flags&flagsTensorOps != 0:
		return fmt.Errorf("algorithm %d computes FP32 on tensor cores", a.ID)
	case a.Flags != 0 && a.Flags&flagAccumulator32 == 0:
		return fmt.Errorf("algorithm %d does not accumulate in FP32", a.ID)
	}
	return nil
}

// Execution is a product on fixed pointers. It belongs to one thread; the
// caller closes it.
type Execution struct {
	d    *descriptors
	algo [8]uint64
	args [16]uintptr
}

// Operands are the device addresses of a product. Bias is 0 without one.
type Operands struct{ A, B, Bias, D uintptr }

// Execution lays out a product by an algorithm that [Library.Algorithms]
// returned under this version. workspace has at least a.Workspace bytes,
// aligned to 256. An algorithm outside the rule or not fit for the problem is
// refused. Not inside a capture. Source: cublasLtMatmulAlgoCheck.
func (l *Library) Execution(h Handle, p Problem, a Algorithm, o Operands, workspace uintptr) (*Execution, error) {
	if err := l.read(&a); err != nil {
		return nil, err
	}
	if err := a.admitted(p); err != nil {
		return nil, err
	}
	d, err := l.describe(p, a.Compute, o.Bias)
	if err != nil {
		return nil, err
	}
	e := &Execution{d: d, algo: a.Words}
	var res heuristicResult
	r, _, _ := purego.SyscallN(l.t.algoCheck, uintptr(h), d.op, d.a, d.b, d.d, d.d, uintptr(unsafe.Pointer(&e.algo)), uintptr(unsafe.Pointer(&res)))
	err = l.check("cublasLtMatmulAlgoCheck", r)
	if err == nil && int64(res.workspace) > a.Workspace {
		err = fmt.Errorf("matrix product %v: algorithm %d needs a workspace of %d bytes, %d were foreseen", p, a.ID, res.workspace, a.Workspace)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	// The pointers to alpha, beta and algorithm are into d and e, which are on
	// the heap, do not move, and live while e does.
	e.args = [16]uintptr{
		uintptr(h), d.op, uintptr(unsafe.Pointer(&d.alpha)), o.B, d.a, o.A, d.b,
		uintptr(unsafe.Pointer(&d.bet)), o.D, d.d, o.D, d.d,
		uintptr(unsafe.Pointer(&e.algo)), workspace, uintptr(a.Workspace), 0,
	}
	return e, nil
}

// Submit queues the product on a stream (a CUstream), or records it if the
// stream is being captured. It does not wait and does not allocate unless it
// fails. Source: cublasLtMatmul.
func (e *Execution) Submit(stream uintptr) error {
	e.args[15] = stream
	r, _, _ := purego.SyscallN(e.d.l.t.matmul, e.args[:]...)
	runtime.KeepAlive(e)
	if int32(r) == 0 {
		return nil
	}
	return e.d.l.check("cublasLtMatmul", r)
}

// Close releases the descriptors. More calls do nothing.
func (e *Execution) Close() error { return e.d.close() }
