package driver

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Launch is a driver call of the launch path with its arguments laid out: a
// kernel, a graph, an event's record or wait, a copy, a fill, a stream's
// synchronisation. It is made once ([API.PrepareKernel] and the others) and
// submitted any number of times.
//
// The caller holds it, and keeps alive what it names: handles, pinned memory,
// and the [Memory] that a kernel's arguments lie in. It is immutable, so
// threads may submit it at once as far as the driver allows.
//
// trbenchSubmit reads its first three fields.
type Launch struct {
	addr uintptr
	n    int
	args [11]uintptr
	call *sym
	// what names the object for messages: the kernel's name, or empty.
	what string
}

// Submit makes the call. It does not allocate and, synchronisation apart, does
// not wait; it runs on the calling thread, whose context must be current. The
// code is the driver's; [API.LaunchError] makes an error of it.
func (a *API) Submit(l *Launch) Result {
	return submit(l)
}

// LaunchError is the typed error of a submission, nil for [Success].
func (a *API) LaunchError(l *Launch, r Result) error {
	if r == Success {
		return nil
	}
	return a.err(l.call.name, r, l.what)
}

// Call is the symbol that Submit calls.
func (l *Launch) Call() string { return l.call.name }

func (a *API) prepare(s *sym, what string, args ...uintptr) (*Launch, error) {
	if s.addr == 0 {
		return nil, &MissingError{Call: s.name, Since: s.since}
	}
	l := &Launch{addr: s.addr, n: len(args), call: s, what: what}
	copy(l.args[:], args)
	return l, nil
}

// Args is a kernel's argument list in order, each value in its C size and
// alignment. Values are copied when the launch is prepared; to change them,
// prepare another.
type Args struct {
	values []byte
	at     []int // offsets into values
	sizes  []int
}

func (g *Args) put(size int) []byte {
	off := (len(g.values) + size - 1) &^ (size - 1)
	g.values = append(g.values, make([]byte, off+size-len(g.values))...)
	g.at, g.sizes = append(g.at, off), append(g.sizes, size)
	return g.values[off:]
}

// Ptr adds a device pointer.
func (g *Args) Ptr(p DevicePtr) *Args { return g.U64(uint64(p)) }

// U32 adds a 32-bit word.
func (g *Args) U32(v uint32) *Args { put32(g.put(4), v); return g }

// I32 adds a signed 32-bit word.
func (g *Args) I32(v int32) *Args { return g.U32(uint32(v)) }

// F32 adds a float.
func (g *Args) F32(v float32) *Args { return g.U32(math.Float32bits(v)) }

// U64 adds a 64-bit word.
func (g *Args) U64(v uint64) *Args { put64(g.put(8), v); return g }

// I64 adds a signed 64-bit word.
func (g *Args) I64(v int64) *Args { return g.U64(uint64(v)) }

// Struct adds a value of any size, aligned to 16, as a kernel takes a struct by
// value.
func (g *Args) Struct(b []byte) *Args {
	off := (len(g.values) + 15) &^ 15
	g.values = append(g.values, make([]byte, off-len(g.values))...)
	g.values = append(g.values, b...)
	g.at, g.sizes = append(g.at, off), append(g.sizes, len(b))
	return g
}

// Bytes is a copy of argument i in its C layout.
func (g *Args) Bytes(i int) []byte {
	return append([]byte(nil), g.values[g.at[i]:g.at[i]+g.sizes[i]]...)
}

// Len is the number of arguments.
func (g *Args) Len() int {
	if g == nil {
		return 0
	}
	return len(g.at)
}

// lay copies the values into mem, with the array of their addresses, and
// returns the array's address; 0 for no arguments.
func (g *Args) lay(mem *Memory) (uintptr, error) {
	if g.Len() == 0 {
		return 0, nil
	}
	b, err := mem.Alloc(len(g.at)*8 + 16 + len(g.values))
	if err != nil {
		return 0, err
	}
	values := b[(len(g.at)*8+15)&^15:]
	copy(values, g.values)
	for i, off := range g.at {
		put64(b[8*i:], uint64(addr(values))+uint64(off))
	}
	return addr(b), nil
}

// LaunchAttr is an attribute of a launch.
type LaunchAttr struct {
	ID    uint32
	Value [64]byte
}

// ProgrammaticSerialization lets the kernel start while the one before it on
// the stream still runs; the kernel waits itself (griddepcontrol.wait). Source:
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
func ProgrammaticSerialization() LaunchAttr { return intAttr(6, 1) }

// Cooperative launches all blocks at once or fails. Source:
// CU_LAUNCH_ATTRIBUTE_COOPERATIVE.
func Cooperative() LaunchAttr { return intAttr(2, 1) }

// Priority gives the node of a captured launch a priority of its own. Source:
// CU_LAUNCH_ATTRIBUTE_PRIORITY.
func Priority(p int) LaunchAttr { return intAttr(8, uint32(int32(p))) }

// Cluster groups blocks. Source: CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
func Cluster(x, y, z uint32) LaunchAttr {
	a := intAttr(4, x)
	put32(a.Value[4:], y)
	put32(a.Value[8:], z)
	return a
}

func intAttr(id, v uint32) LaunchAttr {
	a := LaunchAttr{ID: id}
	put32(a.Value[:], v)
	return a
}

// KernelSpec is a kernel launch.
type KernelSpec struct {
	Func        Function
	Name        string // for messages
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory in bytes
	Stream      Stream
	Args        *Args
	Attrs       []LaunchAttr
}

func (s KernelSpec) check() error {
	if s.Func == 0 {
		return fmt.Errorf("launch of kernel %q: no function", s.Name)
	}
	for i := range 3 {
		if s.Grid[i] == 0 || s.Block[i] == 0 {
			return fmt.Errorf("launch of kernel %q: grid %v, block %v: a dimension is 0", s.Name, s.Grid, s.Block)
		}
	}
	return nil
}

// launchConfigSize and launchAttrSize are the sizes of CUlaunchConfig and
// CUlaunchAttribute.
const (
	launchConfigSize = 56
	launchAttrSize   = 72
)

// PrepareKernel lays out a kernel launch in mem. Source: cuLaunchKernel;
// cuLaunchKernelEx if there are attributes.
func (a *API) PrepareKernel(mem *Memory, spec KernelSpec) (*Launch, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	args, err := spec.Args.lay(mem)
	if err != nil {
		return nil, err
	}
	g, b := spec.Grid, spec.Block
	if len(spec.Attrs) == 0 {
		return a.prepare(&a.t.launchKernel, spec.Name, uintptr(spec.Func),
			uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(b[0]), uintptr(b[1]), uintptr(b[2]),
			uintptr(spec.Shared), uintptr(spec.Stream), args, 0)
	}
	block, err := mem.Alloc(64 + launchAttrSize*len(spec.Attrs))
	if err != nil {
		return nil, err
	}
	config, attrs := block[:launchConfigSize], block[64:]
	for i := range 3 {
		put32(config[4*i:], g[i])
		put32(config[12+4*i:], b[i])
	}
	put32(config[24:], spec.Shared)
	put64(config[32:], uint64(spec.Stream))
	put64(config[40:], uint64(addr(attrs)))
	put32(config[48:], uint32(len(spec.Attrs)))
	for i, at := range spec.Attrs {
		put32(attrs[launchAttrSize*i:], at.ID)
		copy(attrs[launchAttrSize*i+8:], at.Value[:])
	}
	return a.prepare(&a.t.launchKernelEx, spec.Name, addr(config), uintptr(spec.Func), args, 0)
}

// PrepareGraphLaunch lays out a graph's launch. Source: cuGraphLaunch.
func (a *API) PrepareGraphLaunch(e GraphExec, s Stream) (*Launch, error) {
	return a.prepare(&a.t.graphLaunch, "", uintptr(e), uintptr(s))
}

// PrepareEventRecord lays out an event's record. Source: cuEventRecord.
func (a *API) PrepareEventRecord(e Event, s Stream) (*Launch, error) {
	return a.prepare(&a.t.eventRecord, "", uintptr(e), uintptr(s))
}

// PrepareStreamWaitEvent lays out a stream's wait. Source: cuStreamWaitEvent.
func (a *API) PrepareStreamWaitEvent(s Stream, e Event) (*Launch, error) {
	return a.prepare(&a.t.streamWaitEvent, "", uintptr(s), uintptr(e), 0)
}

// PrepareStreamSynchronize lays out a blocking wait. Source:
// cuStreamSynchronize.
func (a *API) PrepareStreamSynchronize(s Stream) (*Launch, error) {
	return a.prepare(&a.t.streamSynchronize, "", uintptr(s))
}

// PrepareMemcpyHtoD lays out a copy from pinned memory. Source:
// cuMemcpyHtoDAsync_v2.
func (a *API) PrepareMemcpyHtoD(dst DevicePtr, src uintptr, n int, s Stream) (*Launch, error) {
	return a.prepare(&a.t.memcpyHtoDAsync, "", uintptr(dst), src, uintptr(n), uintptr(s))
}

// PrepareMemcpyDtoH lays out a copy to pinned memory. Source:
// cuMemcpyDtoHAsync_v2.
func (a *API) PrepareMemcpyDtoH(dst uintptr, src DevicePtr, n int, s Stream) (*Launch, error) {
	return a.prepare(&a.t.memcpyDtoHAsync, "", dst, uintptr(src), uintptr(n), uintptr(s))
}

// PrepareMemcpyDtoD lays out a copy within the device. Source:
// cuMemcpyDtoDAsync_v2.
func (a *API) PrepareMemcpyDtoD(dst, src DevicePtr, n int, s Stream) (*Launch, error) {
	return a.prepare(&a.t.memcpyDtoDAsync, "", uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// PrepareMemsetD8 lays out a fill of n bytes. Source: cuMemsetD8Async.
func (a *API) PrepareMemsetD8(dst DevicePtr, v byte, n int, s Stream) (*Launch, error) {
	return a.prepare(&a.t.memsetD8Async, "", uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

// PrepareMemsetD32 lays out a fill of n words. Source: cuMemsetD32Async.
func (a *API) PrepareMemsetD32(dst DevicePtr, v uint32, n int, s Stream) (*Launch, error) {
	return a.prepare(&a.t.memsetD32Async, "", uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

// PrepareNop lays out the cheapest call there is, for calibration. The
// version goes to mem. Source: cuDriverGetVersion.
func (a *API) PrepareNop(mem *Memory) (*Launch, error) {
	out, err := mem.Alloc(4)
	if err != nil {
		return nil, err
	}
	return a.prepare(&a.t.driverGetVersion, "", addr(out))
}

func put32(b []byte, v uint32) { binary.NativeEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
