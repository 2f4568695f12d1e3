package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tech-renaissance/trbench/workloads"
)

// activation stands for the activation type in an operand's description.
const activation = workloads.DType(255)

// spec describes an operand of a test. Values are what is stored, before
// rounding to the type; nil for outputs.
type spec struct {
	name   string
	dtype  workloads.DType
	shape  workloads.Shape
	values []float64
}

// job of a test: one operator with operands.
type opCase struct {
	name string
	op   workloads.Op
	attr workloads.Attr
	in   []spec
	out  []spec
	// same[i] is the input that output i lies on, plus 1; 0 for none.
	same []int
	// want computes the outputs in float64 from the inputs as stored; nil
	// entries are not compared.
	want func(in [][]float64) [][]float64
	tol  float64
}

// rig is a bound node with its memory: operands one after another, guard bytes
// between them, everything poisoned that is not an input.
type rig struct {
	bound  *workloads.Bound
	arena  []byte
	before []byte
}

func (r *rig) Bytes(g workloads.Region) []byte { return r.arena[g.Off:g.End():g.End()] }

const guard = 256

// poison is NaN in both float types and an unlikely index.
const poison = 0xff

func newRig(c opCase, act workloads.DType) *rig {
	r := &rig{bound: &workloads.Bound{Node: &workloads.Node{Name: "test." + c.name, Op: c.op, Attr: c.attr}}}
	off := int64(guard)
	place := func(n int64) workloads.Region {
		g := workloads.Region{Space: workloads.Arena, Off: off, Bytes: n}
		off += (n+255)&^255 + guard
		return g
	}
	operand := func(s spec) workloads.Operand {
		d := s.dtype
		if d == activation {
			d = act
		}
		return workloads.Operand{Name: s.name, DType: d, Shape: s.shape}
	}
	for _, s := range c.in {
		o := operand(s)
		o.Region = place(int64(o.Shape.Elems()) * o.DType.Bytes())
		r.bound.In = append(r.bound.In, o)
	}
	for i, s := range c.out {
		o := operand(s)
		if i < len(c.same) && c.same[i] > 0 {
			o.Region = r.bound.In[c.same[i]-1].Region
		} else {
			o.Region = place(int64(o.Shape.Elems()) * o.DType.Bytes())
		}
		r.bound.Out = append(r.bound.Out, o)
	}
	r.bound.Scratch = place(ScratchBytes(r.bound))
	raw := make([]byte, off+256)
	shift := -int(uintptr(unsafe.Pointer(&raw[0]))) & 255
	r.arena = raw[shift : shift+int(off)]
	for i := range r.arena {
		r.arena[i] = poison
	}
	for i, s := range c.in {
		r.set(&r.bound.In[i], s.values)
	}
	r.before = bytes.Clone(r.arena)
	return r
}

// reset restores the memory to what it was before the first run.
func (r *rig) reset() { copy(r.arena, r.before) }

func (r *rig) set(o *workloads.Operand, values []float64) {
	b := r.Bytes(o.Region)
	for i, v := range values {
		switch o.DType {
		case workloads.F32:
			view[float32](b)[i] = float32(v)
		case workloads.F16:
			view[uint16](b)[i] = workloads.ToHalf(float32(v))
		case workloads.I32:
			view[int32](b)[i] = int32(v)
		case workloads.U8:
			b[i] = byte(v)
		}
	}
}

func (r *rig) get(o *workloads.Operand) []float64 {
	b := r.Bytes(o.Region)
	v := make([]float64, o.Shape.Elems())
	for i := range v {
		switch o.DType {
		case workloads.F32:
			v[i] = float64(view[float32](b)[i])
		case workloads.F16:
			v[i] = float64(fromF16(view[uint16](b)[i]))
		case workloads.I32:
			v[i] = float64(view[int32](b)[i])
		case workloads.U8:
			v[i] = float64(b[i])
		}
	}
	return v
}

func (r *rig) compile(t testing.TB, p *Pool) func() {
	t.Helper()
	f, err := Compile(r.bound, r, p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newPool(t testing.TB, workers int) *Pool {
	p := NewPool(workers)
	t.Cleanup(p.Close)
	return p
}

// checkRegions finds writes outside outputs and scratch.
func (r *rig) checkRegions(t *testing.T) {
	t.Helper()
	after := bytes.Clone(r.arena)
	restore := func(g workloads.Region) { copy(after[g.Off:g.End()], r.before[g.Off:g.End()]) }
	for _, o := range r.bound.Out {
		restore(o.Region)
	}
	restore(r.bound.Scratch)
	for i := range after {
		if after[i] != r.before[i] {
			t.Fatalf("byte %d was written; it belongs to no output", i)
		}
	}
}

// checkWritten finds output elements that still hold the poison.
func (r *rig) checkWritten(t *testing.T) {
	t.Helper()
	for i := range r.bound.Out {
		o := &r.bound.Out[i]
		b, size := r.Bytes(o.Region), int(o.DType.Bytes())
		for at := 0; at < len(b); at += size {
			if bytes.Count(b[at:at+size], []byte{poison}) == size {
				t.Fatalf("%s: element %d was not written", o.Name, at/size)
			}
		}
	}
}

func near(got, want, tol float64) bool {
	if math.IsNaN(want) || math.IsNaN(got) {
		return math.IsNaN(want) == math.IsNaN(got)
	}
	return got == want || math.Abs(got-want) <= tol*max(1, math.Abs(want))
}

func compare(t *testing.T, name string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", name, len(got), len(want))
	}
	for i := range got {
		if !near(got[i], want[i], tol) {
			t.Fatalf("%s[%d] = %v, want %v", name, i, got[i], want[i])
		}
	}
}

func random(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(float32(rng.NormFloat64()))
	}
	return v
}

// halves are random values that F16 holds exactly.
func halves(rng *rand.Rand, n int) []float64 {
	v := random(rng, n)
	for i := range v {
		v[i] = float64(fromF16(workloads.ToHalf(float32(v[i]))))
	}
	return v
}

func fill(n int, v float64) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func act(name string, rng *rand.Rand, shape ...int) spec {
	return spec{name, activation, shape, halves(rng, workloads.Shape(shape).Elems())}
}

func f32(name string, rng *rand.Rand, shape ...int) spec {
	return spec{name, workloads.F32, shape, random(rng, workloads.Shape(shape).Elems())}
}

func outAct(name string, shape ...int) spec { return spec{name, activation, shape, nil} }
func outF32(name string, shape ...int) spec { return spec{name, workloads.F32, shape, nil} }

// scalarSpec stores a scalars tensor as F32 words.
func scalarSpec(s workloads.Scalars) spec {
	b := make([]byte, 4*workloads.ScalarWords)
	s.Put(b)
	v := spec{"scalars", workloads.I32, workloads.Shape{workloads.ScalarWords}, nil}
	for _, w := range view[int32](b) {
		v.values = append(v.values, float64(w))
	}
	return v
}

// TestOperators runs every case and checks results, regions and coverage.
func TestOperators(t *testing.T) {
	pool := newPool(t, 2)
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(c, workloads.F32)
			r.compile(t, pool)()
			r.checkRegions(t)
			if !partial(c.op) {
				r.checkWritten(t)
			}
			if c.want == nil {
				t.Fatal("no reference")
			}
			var in [][]float64
			before := &rig{arena: r.before}
			for i := range r.bound.In {
				in = append(in, before.get(&r.bound.In[i]))
			}
			for i, want := range c.want(in) {
				if want != nil {
					o := &r.bound.Out[i]
					compare(t, o.Name, r.get(o), want, c.tol)
				}
			}
		})
	}
}

// partial names the operators that write some words of their output only.
func partial(op workloads.Op) bool {
	return op == workloads.OpLossEval || op == workloads.OpFiniteCheck || op == workloads.OpInject || op == workloads.OpAccum
}

// TestSameBits: the bits depend neither on the number of workers nor on what
// ran before.
func TestSameBits(t *testing.T) {
	pools := []*Pool{newPool(t, 1), newPool(t, 2), newPool(t, 3)}
	for _, c := range allCases() {
		for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
			t.Run(fmt.Sprintf("%s/%s", c.name, d), func(t *testing.T) {
				r := newRig(c, d)
				if c.op == workloads.OpCast && d == workloads.F32 {
					t.Skip("a cast needs two types")
				}
				var want []byte
				for _, p := range pools {
					f := r.compile(t, p)
					for range 3 {
						r.reset()
						f()
						got := r.outputs()
						if want == nil {
							want = got
						}
						if !bytes.Equal(got, want) {
							t.Fatal("other bits")
						}
					}
				}
			})
		}
	}
}

func (r *rig) outputs() []byte {
	var b []byte
	for _, o := range r.bound.Out {
		b = append(b, r.Bytes(o.Region)...)
	}
	return b
}

// TestHalf: with F16 operands every result is the rounding of the result on
// F32 operands of the same values, bit for bit: the order of sums does not
// depend on the type.
func TestHalf(t *testing.T) {
	pool := newPool(t, 2)
	for _, c := range allCases() {
		if c.op == workloads.OpCast {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			wide, half := newRig(c, workloads.F32), newRig(c, workloads.F16)
			wide.compile(t, pool)()
			half.compile(t, pool)()
			half.checkRegions(t)
			if !partial(c.op) {
				half.checkWritten(t)
			}
			for i := range c.out {
				h, w := half.get(&half.bound.Out[i]), wide.get(&wide.bound.Out[i])
				for k := range h {
					want := w[k]
					if half.bound.Out[i].DType == workloads.F16 {
						want = float64(fromF16(workloads.ToHalf(float32(want))))
					}
					if !near(h[k], want, 0) {
						t.Fatalf("%s[%d] = %v, want %v rounded", c.out[i].name, k, h[k], w[k])
					}
				}
			}
		})
	}
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, workers := range []int{1, 2} {
		pool := newPool(t, workers)
		for _, c := range allCases() {
			t.Run(fmt.Sprintf("%s/%d", c.name, workers), func(t *testing.T) {
				for _, d := range []workloads.DType{workloads.F32, workloads.F16} {
					if c.op == workloads.OpCast && d == workloads.F32 {
						continue
					}
					f := newRig(c, d).compile(t, pool)
					if n := testing.AllocsPerRun(20, f); n > 0 {
						t.Errorf("%s: %v allocations", d, n)
					}
				}
			})
		}
	}
}

func TestCompileErrors(t *testing.T) {
	pool := newPool(t, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			// One operand at a time loses its last element, or changes type.
			r := newRig(c, workloads.F16)
			for _, list := range [][]workloads.Operand{r.bound.In, r.bound.Out} {
				for i := range list {
					o := list[i]
					bad := o
					bad.Region.Bytes -= o.DType.Bytes()
					list[i] = bad
					if _, err := Compile(r.bound, r, pool); err == nil {
						t.Errorf("operand %s: a short region was accepted", o.Name)
					}
					list[i] = o
				}
			}
			r.bound.In = append(r.bound.In, workloads.Operand{Name: "extra", Shape: workloads.Shape{1}})
			if _, err := Compile(r.bound, r, pool); err == nil {
				t.Error("an extra operand was accepted")
			}
			ScratchBytes(r.bound)
		})
	}
	c := convCases(rng)[0]
	c.in[1].shape = workloads.Shape{1, 1, 1, 1}
	c.in[1].values = []float64{0}
	r := newRig(c, workloads.F32)
	want := "conv test." + c.name + ": operand w: shape [1 1 1 1], want "
	if _, err := Compile(r.bound, r, pool); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Errorf("error %v, want %q...", err, want)
	}
	if _, err := Compile(&workloads.Bound{Node: &workloads.Node{Op: workloads.OpAllReduce}}, r, pool); err == nil {
		t.Error("a collective operator was compiled")
	}
}
