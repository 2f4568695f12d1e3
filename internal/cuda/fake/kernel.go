package fake

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// Kind is a parameter's type.
type Kind uint8

const (
	Ptr Kind = iota // device pointer
	U32
	I32
	F32
	U64
	I64
	F64
	Struct // Size bytes by value, aligned to Align
)

// Param is a parameter of a kernel.
type Param struct {
	Name string
	Kind Kind
	Size int // Struct alone
	// Align of a Struct, 8 if 0.
	Align int
}

func (p Param) size() int {
	switch p.Kind {
	case U32, I32, F32:
		return 4
	case Struct:
		return p.Size
	}
	return 8
}

func (p Param) align() int {
	if p.Kind == Struct {
		if p.Align == 0 {
			return 8
		}
		return p.Align
	}
	return p.size()
}

// Params makes a parameter list of kinds.
func Params(kinds ...Kind) []Param {
	ps := make([]Param, len(kinds))
	for i, k := range kinds {
		ps[i].Kind = k
	}
	return ps
}

// ParseParams makes a parameter list of words with blanks between them: u64 and
// u32 as they are, f32 as its bits, and bN, a structure of N bytes with an
// alignment of 4.
func ParseParams(words string) ([]Param, error) {
	var ps []Param
	for _, w := range strings.Fields(words) {
		p := Param{Kind: U64}
		switch n, isBytes := strings.CutPrefix(w, "b"); {
		case w == "u64":
		case w == "u32" || w == "f32":
			p.Kind = U32
		case isBytes:
			size, err := strconv.Atoi(n)
			if err != nil || size < 1 {
				return nil, fmt.Errorf("a kernel has a parameter of type %s", w)
			}
			p = Param{Kind: Struct, Size: size, Align: 4}
		default:
			return nil, fmt.Errorf("a kernel has a parameter of type %s", w)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// Func is a kernel: the whole grid in one call, on the goroutine of the stream
// or of the graph's branch that runs it. It touches device memory through args
// alone; to fail as a kernel does, it calls [Args.Fail].
type Func func(args Args, grid, block [3]uint32)

type kernel struct {
	name   string
	params []Param
	f      Func
}

// Register adds a kernel under the name that PTX has for its entry. It must come
// before the module is asked for the function.
func (m *Machine) Register(name string, params []Param, f Func) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kernels == nil {
		m.kernels = map[string]*kernel{}
	}
	m.kernels[name] = &kernel{name, params, f}
}

// module is loaded PTX.
type module struct {
	h       uintptr
	name    string
	ctx     *context
	entries []string
	funcs   map[string]*function
}

type function struct {
	h       uintptr
	ctx     *context
	mod     *module
	k       *kernel
	loaded  bool
	dynamic int    // cuFuncSetAttribute
	cname   []byte // for cuFuncGetName
}

var entryName = regexp.MustCompile(`(?m)\.entry\s+([A-Za-z_$%][A-Za-z0-9_$]*)`)

var entriesOf sync.Map // PTX text -> []string

// entries lists the kernels of PTX text. Reading a text takes longer than all
// else a module's load does, so each is read once.
func entries(ptx string) []string {
	if known, ok := entriesOf.Load(ptx); ok {
		return known.([]string)
	}
	var names []string
	for _, f := range entryName.FindAllStringSubmatch(ptx, -1) {
		names = append(names, f[1])
	}
	entriesOf.Store(ptx, names)
	return names
}

// launch is a kernel's launch with its argument values.
type launch struct {
	fn          *function
	grid, block [3]uint32
	shared      uint32
	values      [][]byte
	pdl         bool // programmatic: an edge's type
}

// kernelFailure is what a kernel panics with.
type kernelFailure struct {
	code code
	what string
}

// Args are the arguments of one execution of a kernel.
type Args struct {
	l   *launch
	mem *memMap
	dev int
}

// Fail ends the kernel with a code: 700 illegal address, 719 launch failed.
func (a Args) Fail(code uint32, format string, v ...any) {
	panic(kernelFailure{code, fmt.Sprintf(format, v...)})
}

// Kernel is the kernel's name, Shared its dynamic shared memory in bytes.
func (a Args) Kernel() string { return a.l.fn.k.name }
func (a Args) Shared() int    { return int(a.l.shared) }

// Device is the ordinal of the GPU that runs it.
func (a Args) Device() int { return a.dev }

// Len is the number of arguments.
func (a Args) Len() int { return len(a.l.values) }

// Bytes is argument i as it was passed. It must not be written to.
func (a Args) Bytes(i int) []byte { return a.l.values[i] }

// U32, I32, F32, U64, I64, F64 and Ptr are argument i by value.
func (a Args) U32(i int) uint32  { return binary.NativeEndian.Uint32(a.l.values[i]) }
func (a Args) I32(i int) int32   { return int32(a.U32(i)) }
func (a Args) F32(i int) float32 { return math.Float32frombits(a.U32(i)) }
func (a Args) U64(i int) uint64  { return binary.NativeEndian.Uint64(a.l.values[i]) }
func (a Args) I64(i int) int64   { return int64(a.U64(i)) }
func (a Args) F64(i int) float64 { return math.Float64frombits(a.U64(i)) }
func (a Args) Ptr(i int) uint64  { return a.U64(i) }

// Mem is n bytes at a device address; memory that is not inside one allocation
// of this device ends the kernel with 700.
func (a Args) Mem(addr uint64, n int) []byte {
	if n == 0 {
		return nil
	}
	b := a.mem.device(a.dev, addr, n)
	if b == nil {
		a.Fail(illegalAddress, "%s: %d bytes at %#x are not inside one allocation of device %d", a.Kernel(), n, addr, a.dev)
	}
	return b
}

// Buf is Mem at the address that argument i holds.
func (a Args) Buf(i, n int) []byte { return a.Mem(a.Ptr(i), n) }

// View is n elements of device memory at an address; an address that is no
// multiple of the element's size ends the kernel with 716.
func View[T uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64](a Args, addr uint64, n int) []T {
	var z T
	size := int(unsafe.Sizeof(z))
	if addr%uint64(size) != 0 {
		a.Fail(misalignedAddress, "%s: %#x is not aligned to %d", a.Kernel(), addr, size)
	}
	b := a.Mem(addr, n*size)
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// F32s and U16s are n elements at the address that argument i holds.
func (a Args) F32s(i, n int) []float32 { return View[float32](a, a.Ptr(i), n) }
func (a Args) U16s(i, n int) []uint16  { return View[uint16](a, a.Ptr(i), n) }
func (a Args) I32s(i, n int) []int32   { return View[int32](a, a.Ptr(i), n) }

// read copies the arguments out of the caller's array of addresses.
func (k *kernel) read(params unsafe.Pointer) ([][]byte, code) {
	if len(k.params) == 0 {
		return nil, success
	}
	if params == nil {
		return nil, invalidValue
	}
	at := unsafe.Slice((*unsafe.Pointer)(params), len(k.params))
	values := make([][]byte, len(k.params))
	for i, p := range k.params {
		if at[i] == nil {
			return nil, invalidValue
		}
		values[i] = slices.Clone(unsafe.Slice((*byte)(at[i]), p.size()))
	}
	return values, success
}

// check refuses launches that a GPU refuses.
func (l *launch) check(g GPU) code {
	threads := uint64(1)
	for i := range 3 {
		if l.grid[i] == 0 || l.block[i] == 0 {
			return invalidValue
		}
		threads *= uint64(l.block[i])
	}
	if threads > 1024 || l.block[2] > 64 || l.grid[0] > 1<<31-1 || l.grid[1] > 65535 || l.grid[2] > 65535 {
		return invalidValue
	}
	if l.shared > staticSharedLimit && int(l.shared) > l.fn.dynamic {
		return invalidValue
	}
	return success
}

// run executes the kernel. Its failure is the context's.
func (l *launch) run(c *context, mem *memMap, fail code) {
	if c.failed.Load() != 0 {
		return
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f, ok := r.(kernelFailure)
		if !ok {
			f = kernelFailure{launchFailed, fmt.Sprintf("%s: panic: %v", l.fn.k.name, r)}
		}
		c.fail(f.code, f.what)
	}()
	if fail != 0 {
		c.fail(fail, l.fn.k.name+": injected")
		return
	}
	l.fn.k.f(Args{l, mem, c.dev}, l.grid, l.block)
}
