package nvtx

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Export tables that a tool asks for, and the modules of functions in the
// first.
const (
	exportCallbacks = 1
	exportVersion   = 3

	moduleCore   = 1
	moduleCUDA   = 2
	moduleOpenCL = 3
	moduleCUDART = 4
	moduleCore2  = 5
	moduleSync   = 6
)

// version is what the client tells the tool it speaks.
const version = 3

// moduleSizes are the slots of each module, with the unused one in front. The
// modules that this client never calls are offered as NVTX's own client offers
// them: a tool may take a missing one for a failure.
var moduleSizes = [...]int{moduleCore: 16, moduleCUDA: 9, moduleOpenCL: 15, moduleCUDART: 7, moduleCore2: 16, moduleSync: 7}

// Slots of the modules in use.
const (
	coreMarkEx        = 1
	coreRangeStartEx  = 4
	coreRangeEnd      = 7
	coreRangePushEx   = 8
	coreRangePop      = 11
	coreNameCategoryA = 12
	coreNameOsThreadA = 14

	core2DomainMarkEx       = 1
	core2DomainRangeStartEx = 2
	core2DomainRangeEnd     = 3
	core2DomainRangePushEx  = 4
	core2DomainRangePop     = 5
	core2DomainNameCategory = 8
	core2RegisterStringA    = 10
	core2DomainCreateA      = 12
	core2DomainDestroy      = 14

	cudaNameCuDeviceA = 1
	cudaNameCuStreamA = 5
)

// slot is where a tool puts a function's address; empty if it has none. Tools
// may change it while the process runs, so it is read at every call.
type slot uintptr

func (s *slot) addr() uintptr {
	if s == nil {
		return 0
	}
	return atomic.LoadUintptr((*uintptr)(s))
}

// callbacksTable and versionTable are the export tables, as C has them.
type callbacksTable struct {
	size     uintptr
	getTable uintptr // int (*)(int module, void ***table, unsigned *size)
}

type versionTable struct {
	size     uintptr
	version  uint32
	_        uint32
	setOther uintptr // void (*)(uint32_t version)
}

// tables is all that a tool sees: it lives outside the Go heap, as long as the
// process, because a tool keeps the addresses.
type tables struct {
	mem       memory
	slots     [len(moduleSizes)][]slot
	pointers  [len(moduleSizes)][]uintptr // to the slots, as a tool gets them
	callbacks *callbacksTable
	version   *versionTable
	// tool is the version that the tool says it speaks, if it does.
	tool atomic.Uint32
	// export is the address of the function that a tool is initialised with.
	export uintptr
}

func newTables() (*tables, error) {
	t := &tables{}
	for m, n := range moduleSizes {
		if n == 0 {
			continue
		}
		slots, err := t.mem.alloc(n * wordBytes)
		if err != nil {
			return nil, err
		}
		pointers, err := t.mem.alloc((n + 1) * wordBytes) // a NULL at either end
		if err != nil {
			return nil, err
		}
		t.slots[m] = unsafe.Slice((*slot)(slots), n)
		t.pointers[m] = unsafe.Slice((*uintptr)(pointers), n+1)
		for i := 1; i < n; i++ {
			t.pointers[m][i] = uintptr(unsafe.Pointer(&t.slots[m][i]))
		}
	}
	callbacks, err := t.mem.alloc(int(unsafe.Sizeof(callbacksTable{})))
	if err != nil {
		return nil, err
	}
	said, err := t.mem.alloc(int(unsafe.Sizeof(versionTable{})))
	if err != nil {
		return nil, err
	}
	t.callbacks, t.version = (*callbacksTable)(callbacks), (*versionTable)(said)
	*t.callbacks = callbacksTable{size: unsafe.Sizeof(callbacksTable{}), getTable: purego.NewCallback(t.module)}
	*t.version = versionTable{size: unsafe.Sizeof(versionTable{}), version: version,
		setOther: purego.NewCallback(func(v uint32) uintptr { t.tool.Store(v); return 0 })}
	t.export = purego.NewCallback(t.table)
	return t, nil
}

// table is the function that a tool is initialised with: an export table by
// its number, or NULL.
func (t *tables) table(id uint32) uintptr {
	switch id {
	case exportCallbacks:
		return uintptr(unsafe.Pointer(t.callbacks))
	case exportVersion:
		return uintptr(unsafe.Pointer(t.version))
	}
	return 0
}

// module hands out a module's table and its number of slots; it returns 1, or
// 0 for a module that does not exist.
func (t *tables) module(m uint32, out *uintptr, size *uint32) uintptr {
	if int64(m) >= int64(len(moduleSizes)) || moduleSizes[m] == 0 {
		return 0
	}
	if out != nil {
		*out = uintptr(unsafe.Pointer(&t.pointers[m][0]))
	}
	if size != nil {
		*size = uint32(moduleSizes[m])
	}
	return 1
}

// memory is memory outside the Go heap that is never given back.
type memory struct {
	mu   sync.Mutex
	free []byte
}

const (
	memoryChunk = 64 << 10
	wordBytes   = int(unsafe.Sizeof(uintptr(0)))
)

// alloc returns n zero bytes, aligned to 16. Source: mmap(2).
func (m *memory) alloc(n int) (unsafe.Pointer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = (max(n, 1) + 15) &^ 15
	if n > len(m.free) {
		size := max(memoryChunk, (n+4095)&^4095)
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("memory for names: mmap of %d bytes: %w", size, err)
		}
		m.free = b
	}
	p := unsafe.Pointer(&m.free[0])
	m.free = m.free[n:]
	return p, nil
}

// text is a C string of s; what follows a NUL in s is lost.
func (m *memory) text(s string) (uintptr, error) {
	p, err := m.alloc(len(s) + 1)
	if err != nil {
		return 0, err
	}
	copy(unsafe.Slice((*byte)(p), len(s)), s)
	return uintptr(p), nil
}
