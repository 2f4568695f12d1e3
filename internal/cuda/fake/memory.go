package fake

import (
	"fmt"
	"slices"
	"sort"
	"unsafe"
)

// alloc is a piece of device memory or of pinned host memory.
type alloc struct {
	base uintptr
	buf  []byte // starts at base
	dev  int
	host bool
	name string
}

// memMap is an immutable list of allocations by address. Work carries the map
// it was submitted under, so that running it takes no lock.
type memMap struct{ allocs []*alloc }

func (mm *memMap) with(a *alloc) *memMap {
	i := sort.Search(len(mm.allocs), func(i int) bool { return mm.allocs[i].base > a.base })
	return &memMap{slices.Insert(slices.Clone(mm.allocs), i, a)}
}

func (mm *memMap) without(a *alloc) *memMap {
	return &memMap{slices.DeleteFunc(slices.Clone(mm.allocs), func(b *alloc) bool { return a == b })}
}

// find returns the allocation that holds an address.
func (mm *memMap) find(addr uintptr) *alloc {
	i := sort.Search(len(mm.allocs), func(i int) bool { return mm.allocs[i].base > addr }) - 1
	if i < 0 || addr-mm.allocs[i].base >= uintptr(len(mm.allocs[i].buf)) {
		return nil
	}
	return mm.allocs[i]
}

// device returns n bytes at a device address as seen from device dev: its own
// memory or pinned memory; nil if they are not all inside one allocation.
func (mm *memMap) device(dev int, addr uint64, n int) []byte {
	a := mm.find(uintptr(addr))
	if a == nil || !a.host && a.dev != dev {
		return nil
	}
	off := int(uintptr(addr) - a.base)
	if n < 0 || off+n > len(a.buf) {
		return nil
	}
	return a.buf[off : off+n : off+n]
}

// pinned is device for host addresses: nil if the memory is not pinned.
func (mm *memMap) pinned(addr uintptr, n int) []byte {
	a := mm.find(addr)
	if a == nil || !a.host {
		return nil
	}
	return mm.device(a.dev, uint64(addr), n)
}

const (
	memAlign  = 256
	memQuant  = 512
	ctxMemory = 512 << 20 // what a context takes of the device
	execFixed = 64 << 10  // what an exec takes, beside a share a node
	execNode  = 1 << 10
)

// garbage fills new memory, so that reading it cannot pass for zeros.
const garbage = 0xCD

func (m *Machine) alloc(dev, n int, host bool) *alloc {
	raw := make([]byte, n+memAlign)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) & (memAlign - 1))
	a := &alloc{buf: raw[skip : skip+n : skip+n], dev: dev, host: host}
	a.base = uintptr(unsafe.Pointer(&a.buf[0]))
	if n > 0 {
		a.buf[0] = garbage
		for i := 1; i < n; i *= 2 {
			copy(a.buf[i:], a.buf[:i])
		}
	}
	kind := "memory"
	if host {
		kind = "pinned"
	}
	m.numbers[kind]++
	a.name = fmt.Sprintf("%s%d", kind, m.numbers[kind])
	m.mem = m.mem.with(a)
	if len(m.captures) > 0 {
		m.allocsInCap++
	}
	return a
}

// used is the number of bytes taken of a device.
func (m *Machine) used(dev int) uint64 {
	c := m.ctxs[dev]
	n := c.execBytes + c.execPool
	if c.refs > 0 {
		n += ctxMemory
	}
	for _, a := range m.mem.allocs {
		if !a.host && a.dev == dev {
			n += uint64(len(a.buf)+memQuant-1) &^ (memQuant - 1)
		}
	}
	return n
}

// at names an address for the log.
func (m *Machine) at(addr uint64) string {
	a := m.mem.find(uintptr(addr))
	if a == nil {
		return fmt.Sprintf("%#x", addr)
	}
	if off := uintptr(addr) - a.base; off != 0 {
		return fmt.Sprintf("%s+%d", a.name, off)
	}
	return a.name
}

// fill writes a pattern of size 1, 2 or 4 bytes.
func fill(dst []byte, v uint32, size int) {
	if len(dst) < size {
		return
	}
	for j := range size {
		dst[j] = byte(v >> (8 * j))
	}
	for i := size; i < len(dst); i *= 2 {
		copy(dst[i:], dst[:i])
	}
}
