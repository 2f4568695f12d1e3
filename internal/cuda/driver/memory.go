package driver

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// Memory is host memory outside the Go heap, for what the driver follows
// pointers into: kernel parameters and their pointer arrays, launch
// configurations, JIT options. It is handed out in pieces and released as a
// whole. It never holds a Go pointer.
//
// Two other ways were weighed: pinning a Go object (runtime.Pinner) for each
// launch needs an unpin on every path or the collector ends the process, and
// C's malloc needs a call for each.
//
// Its methods may be called on any thread.
type Memory struct {
	mu     sync.Mutex
	chunks [][]byte
	used   int // of the last chunk
	total  int
	closed bool
}

const memoryChunk = 64 << 10

// NewMemory returns an empty Memory. The caller closes it after the last
// [Launch] made in it.
func NewMemory() *Memory { return &Memory{} }

// Alloc returns n zero bytes, aligned to 16. They live until Close. Source:
// mmap(2).
func (m *Memory) Alloc(n int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("host memory for launches: already closed")
	}
	n16 := (n + 15) &^ 15
	if len(m.chunks) == 0 || m.used+n16 > len(m.chunks[len(m.chunks)-1]) {
		size := max(memoryChunk, (n16+4095)&^4095)
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("host memory for launches: mmap of %d bytes: %w", size, err)
		}
		m.chunks = append(m.chunks, b)
		m.used = 0
		m.total += size
	}
	last := m.chunks[len(m.chunks)-1]
	b := last[m.used : m.used+n : m.used+n]
	m.used += n16
	return b, nil
}

// Size is the number of bytes taken from the system.
func (m *Memory) Size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}

// Close gives everything back. Launches made in m must not be submitted any
// more. Source: munmap(2).
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var first error
	for _, c := range m.chunks {
		if err := syscall.Munmap(c); err != nil && first == nil {
			first = fmt.Errorf("host memory for launches: munmap: %w", err)
		}
	}
	m.chunks, m.total = nil, 0
	return first
}

// addr is the address of the first byte of b.
func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
