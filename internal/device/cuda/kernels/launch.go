package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/workloads"
)

// Kind is what a launch submits.
type Kind uint8

const (
	// KindKernel launches a kernel.
	KindKernel Kind = iota
	// KindCopyIn copies Src, pinned host memory, to Dst in the arena.
	KindCopyIn
)

// Launch is one submission of an operator: a kernel with its grid and
// parameters, or a copy. It is immutable once planned; several goroutines may
// read it.
type Launch struct {
	Kind   Kind
	Kernel string
	Grid   [3]uint32 // blocks
	Block  [3]uint32 // threads
	Shared uint32    // dynamic shared memory, in bytes
	Params []Param
	Dst    workloads.Region // copies
	Src    workloads.Region // copies
}

// ParamKind is how a parameter gets its value.
type ParamKind uint8

const (
	// Pointer is the address of Region, known once the arena exists.
	Pointer ParamKind = iota
	// Counter is the address of word Value of the counters of the operator's
	// stream; see [CounterWords].
	Counter
	// Null is an address of 0: an operand that is absent.
	Null
	// Int32, Int64 and Float32 are values; the bits are in Value.
	Int32
	Int64
	Float32
	// Block is a structure passed by value, in Bytes.
	Block
)

// Param is one kernel parameter.
type Param struct {
	Kind   ParamKind
	Region workloads.Region
	// Writes says that the kernel may write the region.
	Writes bool
	Value  uint64
	Bytes  []byte
}

// CounterWords is the number of 4-byte counters that each stream of a rank
// needs. The device allocates them beside the arena, zeroed, before anything is
// captured; every kernel that uses them leaves zeros. Operators of one stream
// follow each other and share them; streams must not.
const CounterWords = 256

// Layout is where each parameter of a kernel begins in its parameter block, and
// the block's size, all in bytes. Parameters are in order, each aligned to its
// size, structures to 4.
func (l *Launch) Layout() (offsets []int, size int) {
	for _, p := range l.Params {
		n, align := p.size()
		size = (size + align - 1) &^ (align - 1)
		offsets = append(offsets, size)
		size += n
	}
	return offsets, size
}

// Pack appends the parameter block to dst. Address resolves the parameters
// of kinds [Pointer] and [Counter].
func (l *Launch) Pack(dst []byte, address func(Param) uint64) []byte {
	base := len(dst)
	for _, p := range l.Params {
		n, align := p.size()
		for (len(dst)-base)&(align-1) != 0 {
			dst = append(dst, 0)
		}
		switch {
		case p.Kind == Block:
			dst = append(dst, p.Bytes...)
		case n == 4:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Value))
		case p.Kind == Pointer || p.Kind == Counter:
			dst = binary.LittleEndian.AppendUint64(dst, address(p))
		default:
			dst = binary.LittleEndian.AppendUint64(dst, p.Value)
		}
	}
	return dst
}

func (p *Param) size() (bytes, align int) {
	switch p.Kind {
	case Int32, Float32:
		return 4, 4
	case Block:
		return len(p.Bytes), 4
	}
	return 8, 8
}

// fits says whether the parameter can be passed as a parameter of PTX type t.
func (p *Param) fits(t string) bool {
	switch p.Kind {
	case Int32:
		return t == "u32"
	case Float32:
		return t == "f32"
	case Block:
		return t == "b"+strconv.Itoa(len(p.Bytes))
	}
	return t == "u64"
}

// check compares a launch with the kernel's declaration and the chip's limits.
func (l *Launch) check() error {
	if l.Kind != KindKernel {
		return nil
	}
	k, ok := Lookup(l.Kernel)
	if !ok {
		return fmt.Errorf("there is no kernel %q", l.Kernel)
	}
	types := strings.Fields(k.Params)
	if len(types) != len(l.Params) {
		return fmt.Errorf("kernel %s: %d parameters, want %d", l.Kernel, len(l.Params), len(types))
	}
	for i := range l.Params {
		if !l.Params[i].fits(types[i]) {
			return fmt.Errorf("kernel %s: parameter %d of kind %d is declared %s", l.Kernel, i, l.Params[i].Kind, types[i])
		}
	}
	limit := [3]uint32{1<<31 - 1, 65535, 65535}
	threads := uint64(1)
	for i := range l.Grid {
		if l.Grid[i] < 1 || l.Grid[i] > limit[i] {
			return fmt.Errorf("kernel %s: grid %v exceeds the limits", l.Kernel, l.Grid)
		}
		threads *= uint64(l.Block[i])
	}
	if threads < 1 || threads > 1024 {
		return fmt.Errorf("kernel %s: block %v", l.Kernel, l.Block)
	}
	if _, size := l.Layout(); size > 4096 {
		return fmt.Errorf("kernel %s: %d bytes of parameters, at most 4096", l.Kernel, size)
	}
	return nil
}

func read(r workloads.Region) Param  { return Param{Kind: Pointer, Region: r} }
func write(r workloads.Region) Param { return Param{Kind: Pointer, Region: r, Writes: true} }
func counter(word int) Param         { return Param{Kind: Counter, Value: uint64(word), Writes: true} }
func null() Param                    { return Param{Kind: Null} }
func i32(v int) Param                { return Param{Kind: Int32, Value: uint64(uint32(int32(v)))} }
func i64(v int64) Param              { return Param{Kind: Int64, Value: uint64(v)} }
func f32(v float32) Param            { return Param{Kind: Float32, Value: uint64(math.Float32bits(v))} }

func truth(b bool) Param {
	if b {
		return i32(1)
	}
	return i32(0)
}

// words is a structure of 32-bit integers passed by value.
func words(v ...[]int32) Param {
	p := Param{Kind: Block}
	for _, part := range v {
		for _, x := range part {
			p.Bytes = binary.LittleEndian.AppendUint32(p.Bytes, uint32(x))
		}
	}
	return p
}

// grid is a kernel launch over blocks of a number of threads.
func grid(kernel string, threads int, blocks [3]int, params ...Param) Launch {
	l := Launch{Kernel: kernel, Block: [3]uint32{uint32(threads), 1, 1}, Params: params}
	for i, n := range blocks {
		// A count that does not fit stays out of range for check to refuse.
		l.Grid[i] = uint32(min(max(n, 0), math.MaxUint32))
	}
	return l
}
