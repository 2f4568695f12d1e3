package kernels

import (
	"fmt"
	"unsafe"

	"github.com/tech-renaissance/trbench/workloads"
)

// Memory resolves a region to its bytes: a slice of the rank's arena or of its
// pinned memory. Slices are 256-byte aligned at tensor starts.
type Memory interface {
	Bytes(r workloads.Region) []byte
}

// vec is an operand of type F32 or F16; one of the slices is nil.
type vec struct {
	f32 []float32
	f16 []uint16
}

func (v vec) len() int { return len(v.f32) + len(v.f16) }

// blockLen is the number of elements that elementwise code handles at a time:
// several blocks of float32 fit in the first-level cache and on the stack.
const blockLen = 1024

type block [blockLen]float32

// read returns elements lo..hi as float32, decoded into buf if need be.
func (v vec) read(lo, hi int, buf *block) []float32 {
	if v.f32 != nil {
		return v.f32[lo:hi]
	}
	b := buf[:hi-lo]
	decode(b, v.f16[lo:hi])
	return b
}

// place returns where to compute elements lo..hi; [vec.commit] then stores them.
func (v vec) place(lo, hi int, buf *block) []float32 {
	if v.f32 != nil {
		return v.f32[lo:hi]
	}
	return buf[:hi-lo]
}

func (v vec) commit(lo int, b []float32) {
	if v.f16 != nil {
		encode(v.f16[lo:lo+len(b)], b)
	}
}

// round rounds float32 values to what the operand can hold.
func (v vec) round(b []float32) {
	if v.f16 == nil {
		return
	}
	for i, f := range b {
		b[i] = fromF16(workloads.ToHalf(f))
	}
}

// store writes float32 values at lo.
func (v vec) store(lo int, b []float32) {
	if v.f32 != nil {
		copy(v.f32[lo:], b)
		return
	}
	encode(v.f16[lo:lo+len(b)], b)
}

// view reinterprets bytes. The caller has checked length and alignment.
func view[T float32 | float64 | uint16 | int32](b []byte) []T {
	var t T
	n := len(b) / int(unsafe.Sizeof(t))
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// layout hands out pieces of a scratch region. The same code lays it out for
// ScratchBytes and for Compile, so the two agree.
type layout struct{ size int64 }

// piece is a part of a scratch region, in bytes.
type piece struct{ off, bytes int64 }

func (l *layout) take(elems, size int) piece {
	p := piece{l.size, int64(elems) * int64(size)}
	l.size += (p.bytes + 63) &^ 63
	return p
}

func (l *layout) f32(n int) piece { return l.take(n, 4) }
func (l *layout) f64(n int) piece { return l.take(n, 8) }

// compiler resolves the operands of one bound node. The first error sticks;
// what is returned after it is not used.
type compiler struct {
	b    *workloads.Bound
	mem  Memory
	pool *Pool
	err  error
}

func (c *compiler) fail(o *workloads.Operand, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s %s: operand %s: %s", c.b.Op, c.b.Name, o.Name, fmt.Sprintf(format, args...))
	}
}

// reject fails with a message about the operator as a whole.
func (c *compiler) reject(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s %s: %s", c.b.Op, c.b.Name, fmt.Sprintf(format, args...))
	}
}

func (c *compiler) in(i int) *workloads.Operand  { return &c.b.In[i] }
func (c *compiler) out(i int) *workloads.Operand { return &c.b.Out[i] }

// bytes returns an operand's memory after checking its size and alignment.
func (c *compiler) bytes(o *workloads.Operand) []byte {
	size := o.DType.Bytes()
	want := int64(o.Shape.Elems()) * size
	if o.Region.Bytes != want {
		c.fail(o, "region has %d bytes, shape %v of %s needs %d", o.Region.Bytes, o.Shape, o.DType, want)
		return nil
	}
	b := c.mem.Bytes(o.Region)
	if int64(len(b)) != want {
		c.fail(o, "memory has %d bytes, want %d", len(b), want)
		return nil
	}
	if len(b) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(size) != 0 {
		c.fail(o, "memory is not aligned to %d bytes", size)
		return nil
	}
	return b
}

func (c *compiler) want(o *workloads.Operand, d workloads.DType) bool {
	if o.DType != d {
		c.fail(o, "is %s, want %s", o.DType, d)
	}
	return o.DType == d
}

// real returns an F32 or F16 operand.
func (c *compiler) real(o *workloads.Operand) vec {
	if o.DType == workloads.F16 {
		return vec{f16: view[uint16](c.bytes(o))}
	}
	return vec{f32: c.f32(o)}
}

func (c *compiler) f32(o *workloads.Operand) []float32 {
	if !c.want(o, workloads.F32) {
		return nil
	}
	return view[float32](c.bytes(o))
}

func (c *compiler) i32(o *workloads.Operand) []int32 {
	if !c.want(o, workloads.I32) {
		return nil
	}
	return view[int32](c.bytes(o))
}

func (c *compiler) u8(o *workloads.Operand) []byte {
	if !c.want(o, workloads.U8) {
		return nil
	}
	return c.bytes(o)
}

// scalars returns the bytes of the scalars tensor, whatever its element type:
// its words are F32 and I32.
func (c *compiler) scalars(o *workloads.Operand) []byte {
	b := c.bytes(o)
	if len(b) < 4*workloads.ScalarWords {
		c.fail(o, "has %d bytes, the scalars need %d", len(b), 4*workloads.ScalarWords)
		return make([]byte, 4*workloads.ScalarWords)
	}
	return b
}

// elems checks an operand's number of elements.
func (c *compiler) elems(o *workloads.Operand, n int) {
	if o.Shape.Elems() != n {
		c.fail(o, "shape %v has %d elements, want %d", o.Shape, o.Shape.Elems(), n)
	}
}

// shape checks an operand's shape.
func (c *compiler) shape(o *workloads.Operand, dims ...int) {
	ok := len(o.Shape) == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = o.Shape[i] == dims[i]
	}
	if !ok {
		c.fail(o, "shape %v, want %v", o.Shape, dims)
	}
}

// rank checks an operand's number of dimensions and that none is below 1.
func (c *compiler) rank(o *workloads.Operand, n int) bool {
	if len(o.Shape) != n {
		c.fail(o, "shape %v, want %d dimensions", o.Shape, n)
		return false
	}
	for _, d := range o.Shape {
		if d < 1 {
			c.fail(o, "shape %v has an empty dimension", o.Shape)
			return false
		}
	}
	return true
}

// inPlace checks that an operator updates memory where it lies.
func (c *compiler) inPlace(in, out *workloads.Operand) {
	if in.Region != out.Region || in.DType != out.DType {
		c.fail(out, "must be the same memory as input %s", in.Name)
	}
}

// scratch returns the node's scratch memory after checking its size.
func (c *compiler) scratch(l layout) []byte {
	if c.err != nil || l.size == 0 {
		return nil
	}
	if c.b.Scratch.Bytes < l.size {
		c.reject("scratch has %d bytes, need %d", c.b.Scratch.Bytes, l.size)
		return nil
	}
	b := c.mem.Bytes(c.b.Scratch)
	if int64(len(b)) < l.size || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 != 0 {
		c.reject("scratch memory has %d bytes (need %d) or is not aligned to 64", len(b), l.size)
		return nil
	}
	return b
}

func (p piece) f32(scratch []byte) []float32 { return view[float32](scratch[p.off : p.off+p.bytes]) }
func (p piece) f64(scratch []byte) []float64 { return view[float64](scratch[p.off : p.off+p.bytes]) }

// chunkLen is the number of elements of one chunk of elementwise work: large
// enough to be worth a hand-over, a multiple of blockLen.
const chunkLen = 16 * blockLen

// spread runs f over 0..n in chunks of chunkLen elements. f is called for
// blocks of at most blockLen elements. The closure is made once, here, so that
// the returned function does not allocate.
func (c *compiler) spread(n int, f func(lo, hi int)) func() {
	chunk := func(i int) {
		end := min(n, (i+1)*chunkLen)
		for lo := i * chunkLen; lo < end; lo += blockLen {
			f(lo, min(lo+blockLen, end))
		}
	}
	chunks := ceilDiv(n, chunkLen)
	pool := c.pool
	return func() { pool.Run(chunks, chunk) }
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceilDiv(a, b) * b }

// floorDiv and floorMod round down, for negative a, too.
func floorDiv(a, b int) int {
	if a < 0 {
		return -ceilDiv(-a, b)
	}
	return a / b
}

func floorMod(a, b int) int { return a - floorDiv(a, b)*b }
