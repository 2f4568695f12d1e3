package cupti

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// pool is the buffers lent to CUPTI: one mapping, cut into equal parts, whose
// states are atomic words. CUPTI calls request and complete on threads of its
// own and in the middle of driver calls; both take no lock and make nothing.
// (The trampoline that leads from C into Go makes a few small Go objects by
// itself. That is why the collector may run meanwhile; it never waits for a
// thread that is in C.)
type pool struct {
	mem   []byte
	size  int
	parts []part
	// order numbers completions, so that buffers are read in their order.
	order   atomic.Uint64
	refused atomic.Int64
	strays  atomic.Int64 // buffers handed back that are none of these, or twice
}

type part struct {
	state atomic.Uint32
	valid atomic.Uint64
	order atomic.Uint64
}

const (
	free uint32 = iota
	lent
	full
)

const bufferAlign = 4096

// newPool maps memory for n buffers. Pages cost nothing until they are written.
func newPool(n, size int) (*pool, error) {
	size = (size + bufferAlign - 1) &^ (bufferAlign - 1)
	mem, err := syscall.Mmap(-1, 0, n*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("CUPTI's buffers: mmap of %d x %d bytes: %w", n, size, err)
	}
	return &pool{mem: mem, size: size, parts: make([]part, n)}, nil
}

// request lends a free buffer; nil if there is none.
func (p *pool) request() (unsafe.Pointer, int) {
	for i := range p.parts {
		if p.parts[i].state.CompareAndSwap(free, lent) {
			return unsafe.Pointer(&p.mem[i*p.size]), p.size
		}
	}
	p.refused.Add(1)
	return nil, 0
}

// complete takes a buffer back with its first valid bytes filled.
func (p *pool) complete(at unsafe.Pointer, valid uint64) {
	off := uintptr(at) - uintptr(unsafe.Pointer(&p.mem[0]))
	i := int(off / uintptr(p.size))
	if off >= uintptr(len(p.mem)) || off%uintptr(p.size) != 0 || p.parts[i].state.Load() != lent {
		p.strays.Add(1)
		return
	}
	p.parts[i].valid.Store(min(valid, uint64(p.size)))
	p.parts[i].order.Store(p.order.Add(1))
	p.parts[i].state.Store(full)
}

// take calls f with each full buffer, in order of completion, and frees it.
func (p *pool) take(f func(b []byte)) {
	var ready []int
	for i := range p.parts {
		if p.parts[i].state.Load() == full {
			ready = append(ready, i)
		}
	}
	slices.SortFunc(ready, func(a, b int) int { return cmp.Compare(p.parts[a].order.Load(), p.parts[b].order.Load()) })
	for _, i := range ready {
		f(p.mem[i*p.size : i*p.size+int(p.parts[i].valid.Load())])
		p.parts[i].state.Store(free)
	}
}

// lent counts buffers that CUPTI holds.
func (p *pool) lent() int {
	n := 0
	for i := range p.parts {
		if p.parts[i].state.Load() == lent {
			n++
		}
	}
	return n
}

// close unmaps, unless CUPTI holds a buffer that it may still write to.
func (p *pool) close() error {
	if n := p.lent(); n > 0 {
		return fmt.Errorf("CUPTI did not hand back %d buffers; their memory is kept", n)
	}
	if err := syscall.Munmap(p.mem); err != nil {
		return fmt.Errorf("CUPTI's buffers: munmap: %w", err)
	}
	return nil
}

// lending is the pool that serves. CUPTI's callbacks carry no word of the
// caller's, so there is one for the process.
var lending atomic.Pointer[pool]

// errBusy says that this process records already.
var errBusy = errors.New("CUPTI: this process records already")

// callbacks are the two C functions; a process has few of them and keeps them,
// so they are made once.
var callbacks = sync.OnceValue(func() (f struct{ request, complete uintptr }) {
	f.request = purego.NewCallback(func(buffer *unsafe.Pointer, size, most *uint64) {
		*buffer, *size, *most = nil, 0, 0
		if p := lending.Load(); p != nil {
			b, n := p.request()
			*buffer, *size = b, uint64(n)
		}
	})
	f.complete = purego.NewCallback(func(_ uintptr, _ uint32, buffer unsafe.Pointer, _, valid uint64) {
		if p := lending.Load(); p != nil && buffer != nil {
			p.complete(buffer, valid)
		}
	})
	return f
})
