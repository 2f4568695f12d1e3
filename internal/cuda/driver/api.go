package driver

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// API is an initialised driver. It is immutable; its methods may be called on
// any thread, each with the context current there.
type API struct {
	t       table
	path    string
	version Version
}

// Handles. Zero is no handle; a zero Stream is the legacy default stream.
type (
	Device    int32
	Context   uintptr
	Stream    uintptr
	Event     uintptr
	Module    uintptr
	Function  uintptr
	Graph     uintptr
	GraphNode uintptr
	GraphExec uintptr
	// DevicePtr is an address in device memory.
	DevicePtr uint64
)

// call makes a driver call. Out-parameters are passed as
// uintptr(unsafe.Pointer(&v)) in the argument list, which keeps v alive and in
// place until the call returns.
//
//go:uintptrescapes
func (a *API) call(s *sym, args ...uintptr) error {
	if s.addr == 0 {
		return &MissingError{Call: s.name, Since: s.since}
	}
	r, _, _ := purego.SyscallN(s.addr, args...)
	if res := Result(r); res != Success {
		return a.err(s.name, res, "")
	}
	return nil
}

// err makes the typed error of a failed call.
func (a *API) err(call string, res Result, detail string) error {
	e := &Error{Call: call, Code: res, Detail: detail}
	if n, ok := resultNames[res]; ok {
		e.Name = n
		return e
	}
	e.Name = res.String()
	if a.t.getErrorName.addr != 0 {
		var p *byte
		r, _, _ := purego.SyscallN(a.t.getErrorName.addr, uintptr(res), uintptr(unsafe.Pointer(&p)))
		if Result(r) == Success && p != nil {
			e.Name = goString(p)
		}
	}
	return e
}

func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

func cString(s string) []byte { return append([]byte(s), 0) }

func fromNul(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSpace(string(b))
}

// Devices.

// DeviceGetCount is the number of GPUs visible. Source: cuDeviceGetCount.
func (a *API) DeviceGetCount() (int, error) {
	var n int32
	err := a.call(&a.t.deviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// DeviceGet returns the handle of the GPU with an ordinal. Source: cuDeviceGet.
func (a *API) DeviceGet(ordinal int) (Device, error) {
	var d Device
	err := a.call(&a.t.deviceGet, uintptr(unsafe.Pointer(&d)), uintptr(ordinal))
	return d, err
}

// DeviceGetName is the product's name. Source: cuDeviceGetName.
func (a *API) DeviceGetName(d Device) (string, error) {
	b := make([]byte, 256)
	err := a.call(&a.t.deviceGetName, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(d))
	return fromNul(b), err
}

// DeviceGetAttribute reads one property of a GPU. Source: cuDeviceGetAttribute.
func (a *API) DeviceGetAttribute(d Device, attr DeviceAttribute) (int, error) {
	var v int32
	err := a.call(&a.t.deviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attr), uintptr(d))
	return int(v), err
}

// DeviceGetPCIBusID is the GPU's place on the bus, "0000:17:00.0", by which NVML
// knows it too. Source: cuDeviceGetPCIBusId.
func (a *API) DeviceGetPCIBusID(d Device) (string, error) {
	b := make([]byte, 32)
	err := a.call(&a.t.deviceGetPCIBusID, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(d))
	return fromNul(b), err
}

// DeviceGetUUID is the GPU's identity; that of its instance, if it is cut into
// some. Source: cuDeviceGetUuid_v2.
func (a *API) DeviceGetUUID(d Device) ([16]byte, error) {
	var u [16]byte
	err := a.call(&a.t.deviceGetUUID, uintptr(unsafe.Pointer(&u)), uintptr(d))
	return u, err
}

// DeviceTotalMem is the GPU's memory in bytes. Source: cuDeviceTotalMem_v2.
func (a *API) DeviceTotalMem(d Device) (uint64, error) {
	var n uint64
	err := a.call(&a.t.deviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(d))
	return n, err
}

// Contexts.

// DevicePrimaryCtxRetain returns the context that the GPU's libraries share and
// adds a reference; the caller releases it. Source: cuDevicePrimaryCtxRetain.
func (a *API) DevicePrimaryCtxRetain(d Device) (Context, error) {
	var c Context
	err := a.call(&a.t.devicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(d))
	return c, err
}

// DevicePrimaryCtxRelease drops a reference; the last one destroys the context
// with all it holds. Source: cuDevicePrimaryCtxRelease_v2.
func (a *API) DevicePrimaryCtxRelease(d Device) error {
	return a.call(&a.t.devicePrimaryCtxRelease, uintptr(d))
}

// DevicePrimaryCtxActive says whether anybody in the process holds the primary
// context. Source: cuDevicePrimaryCtxGetState.
func (a *API) DevicePrimaryCtxActive(d Device) (bool, error) {
	var flags uint32
	var active int32
	err := a.call(&a.t.devicePrimaryCtxGetState, uintptr(d), uintptr(unsafe.Pointer(&flags)), uintptr(unsafe.Pointer(&active)))
	return active != 0, err
}

// CtxSetCurrent makes c the context of the calling OS thread; zero takes it
// away. Source: cuCtxSetCurrent.
func (a *API) CtxSetCurrent(c Context) error { return a.call(&a.t.ctxSetCurrent, uintptr(c)) }

// CtxGetCurrent is the calling OS thread's context, zero if it has none.
// Source: cuCtxGetCurrent.
func (a *API) CtxGetCurrent() (Context, error) {
	var c Context
	err := a.call(&a.t.ctxGetCurrent, uintptr(unsafe.Pointer(&c)))
	return c, err
}

// CtxGetDevice is the GPU of the calling thread's context. Source:
// cuCtxGetDevice.
func (a *API) CtxGetDevice() (Device, error) {
	var d Device
	err := a.call(&a.t.ctxGetDevice, uintptr(unsafe.Pointer(&d)))
	return d, err
}

// CtxSynchronize blocks until the context's work is done and returns its first
// failure. Source: cuCtxSynchronize.
func (a *API) CtxSynchronize() error { return a.call(&a.t.ctxSynchronize) }

// ProfilerStart and ProfilerStop tell a profiler that waits for it where its
// capture begins and ends in the current context; without one they do nothing.
// Source: cuProfilerStart.
func (a *API) ProfilerStart() error { return a.call(&a.t.profilerStart) }

// ProfilerStop is the end of [API.ProfilerStart]. Source: cuProfilerStop.
func (a *API) ProfilerStop() error { return a.call(&a.t.profilerStop) }

// CtxGetStreamPriorityRange returns the numbers of the least and the greatest
// priority; greater is a smaller number. Source: cuCtxGetStreamPriorityRange.
func (a *API) CtxGetStreamPriorityRange() (least, greatest int, err error) {
	var l, g int32
	err = a.call(&a.t.ctxGetStreamPriorityRange, uintptr(unsafe.Pointer(&l)), uintptr(unsafe.Pointer(&g)))
	return int(l), int(g), err
}

// Memory.

// MemAlloc returns n bytes of device memory, aligned to at least 256, their
// content undefined; the caller frees them. Source: cuMemAlloc_v2.
func (a *API) MemAlloc(n int) (DevicePtr, error) {
	var p DevicePtr
	err := a.call(&a.t.memAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, err
}

// MemFree waits for the device and frees. Source: cuMemFree_v2.
func (a *API) MemFree(p DevicePtr) error { return a.call(&a.t.memFree, uintptr(p)) }

// MemGetInfo is the device's free and total bytes. Source: cuMemGetInfo_v2.
func (a *API) MemGetInfo() (free, total uint64, err error) {
	err = a.call(&a.t.memGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}

// MemGetAddressRange returns the allocation that holds p; [NotFound] if none of
// this context does. Source: cuMemGetAddressRange_v2.
func (a *API) MemGetAddressRange(p DevicePtr) (base DevicePtr, size uint64, err error) {
	err = a.call(&a.t.memGetAddressRange, uintptr(unsafe.Pointer(&base)), uintptr(unsafe.Pointer(&size)), uintptr(p))
	return base, size, err
}

// Host is pinned host memory. It belongs to the driver, not to the Go heap, so
// it may be read and written by the GPU for as long as it is not freed.
type Host struct{ p unsafe.Pointer }

// Ptr is the first byte; nil after a failed allocation.
func (h Host) Ptr() unsafe.Pointer { return h.p }

// Addr is the address of the first byte.
func (h Host) Addr() uintptr { return uintptr(h.p) }

// Bytes views n bytes. The view ends with MemFreeHost.
func (h Host) Bytes(n int) []byte { return unsafe.Slice((*byte)(h.p), n) }

// MemHostAlloc returns n bytes of pinned host memory; the caller frees them.
// Source: cuMemHostAlloc.
func (a *API) MemHostAlloc(n int, flags HostFlags) (Host, error) {
	var h Host
	err := a.call(&a.t.memHostAlloc, uintptr(unsafe.Pointer(&h.p)), uintptr(n), uintptr(flags))
	return h, err
}

// MemFreeHost frees pinned memory; the caller has waited for what reads it.
// Source: cuMemFreeHost.
func (a *API) MemFreeHost(h Host) error { return a.call(&a.t.memFreeHost, uintptr(h.p)) }

// MemHostGetDevicePointer is the address under which the GPU sees pinned
// memory that was allocated with [HostDeviceMap]. Source:
// cuMemHostGetDevicePointer_v2.
func (a *API) MemHostGetDevicePointer(h Host) (DevicePtr, error) {
	var p DevicePtr
	err := a.call(&a.t.memHostGetDevicePointer, uintptr(unsafe.Pointer(&p)), uintptr(h.p), 0)
	return p, err
}

// MemcpyHtoD copies and returns when src may be reused. src may be Go memory.
// It uses the legacy default stream. Source: cuMemcpyHtoD_v2.
func (a *API) MemcpyHtoD(dst DevicePtr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return a.call(&a.t.memcpyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)))
}

// MemcpyDtoH copies and returns when dst is filled. dst may be Go memory. It
// uses the legacy default stream. Source: cuMemcpyDtoH_v2.
func (a *API) MemcpyDtoH(dst []byte, src DevicePtr) error {
	if len(dst) == 0 {
		return nil
	}
	return a.call(&a.t.memcpyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)))
}

// MemcpyDtoD copies within the device, on the legacy default stream. Source:
// cuMemcpyDtoD_v2.
func (a *API) MemcpyDtoD(dst, src DevicePtr, n int) error {
	return a.call(&a.t.memcpyDtoD, uintptr(dst), uintptr(src), uintptr(n))
}

// MemcpyHtoDAsync queues a copy of n bytes from src, an address in pinned
// memory that stays unchanged until the copy is done. Source:
// cuMemcpyHtoDAsync_v2.
func (a *API) MemcpyHtoDAsync(dst DevicePtr, src uintptr, n int, s Stream) error {
	return a.call(&a.t.memcpyHtoDAsync, uintptr(dst), src, uintptr(n), uintptr(s))
}

// MemcpyDtoHAsync queues a copy of n bytes to dst, an address in pinned memory.
// Source: cuMemcpyDtoHAsync_v2.
func (a *API) MemcpyDtoHAsync(dst uintptr, src DevicePtr, n int, s Stream) error {
	return a.call(&a.t.memcpyDtoHAsync, dst, uintptr(src), uintptr(n), uintptr(s))
}

// MemcpyDtoDAsync queues a copy within the device. Source:
// cuMemcpyDtoDAsync_v2.
func (a *API) MemcpyDtoDAsync(dst, src DevicePtr, n int, s Stream) error {
	return a.call(&a.t.memcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// MemsetD8 fills n bytes, on the legacy default stream. Source: cuMemsetD8_v2.
func (a *API) MemsetD8(dst DevicePtr, v byte, n int) error {
	return a.call(&a.t.memsetD8, uintptr(dst), uintptr(v), uintptr(n))
}

// MemsetD8Async queues a fill of n bytes. Source: cuMemsetD8Async.
func (a *API) MemsetD8Async(dst DevicePtr, v byte, n int, s Stream) error {
	return a.call(&a.t.memsetD8Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

// MemsetD32Async queues a fill of n 32-bit words; dst is aligned to 4. Source:
// cuMemsetD32Async.
func (a *API) MemsetD32Async(dst DevicePtr, v uint32, n int, s Stream) error {
	return a.call(&a.t.memsetD32Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

// Streams and events.

// StreamCreate makes a stream; the caller destroys it. Source: cuStreamCreate.
func (a *API) StreamCreate(flags StreamFlags) (Stream, error) {
	var s Stream
	err := a.call(&a.t.streamCreate, uintptr(unsafe.Pointer(&s)), uintptr(flags))
	return s, err
}

// StreamCreateWithPriority makes a stream of a priority within
// [API.CtxGetStreamPriorityRange]. Source: cuStreamCreateWithPriority.
func (a *API) StreamCreateWithPriority(flags StreamFlags, priority int) (Stream, error) {
	var s Stream
	err := a.call(&a.t.streamCreateWithPriority, uintptr(unsafe.Pointer(&s)), uintptr(flags), uintptr(priority))
	return s, err
}

// StreamDestroy gives a stream back; work on it still completes. Source:
// cuStreamDestroy_v2.
func (a *API) StreamDestroy(s Stream) error { return a.call(&a.t.streamDestroy, uintptr(s)) }

// StreamSynchronize blocks until the stream is idle. It also returns failures
// of earlier work of the context. Source: cuStreamSynchronize.
func (a *API) StreamSynchronize(s Stream) error { return a.call(&a.t.streamSynchronize, uintptr(s)) }

// StreamQuery says whether the stream is idle, without blocking. Source:
// cuStreamQuery.
func (a *API) StreamQuery(s Stream) (bool, error) {
	return ready(a.call(&a.t.streamQuery, uintptr(s)))
}

// StreamWaitEvent makes later work on s wait for the last record of e; at once
// if there was none. While e belongs to a capture, s joins that capture.
// Source: cuStreamWaitEvent.
func (a *API) StreamWaitEvent(s Stream, e Event, flags EventWaitFlags) error {
	return a.call(&a.t.streamWaitEvent, uintptr(s), uintptr(e), uintptr(flags))
}

// ready turns NOT_READY into false.
func ready(err error) (bool, error) {
	if err == nil {
		return true, nil
	}
	if e, ok := err.(*Error); ok && e.Code == NotReady {
		return false, nil
	}
	return false, err
}

// EventCreate makes an event; the caller destroys it. Source: cuEventCreate.
func (a *API) EventCreate(flags EventFlags) (Event, error) {
	var e Event
	err := a.call(&a.t.eventCreate, uintptr(unsafe.Pointer(&e)), uintptr(flags))
	return e, err
}

// EventDestroy gives an event back. Source: cuEventDestroy_v2.
func (a *API) EventDestroy(e Event) error { return a.call(&a.t.eventDestroy, uintptr(e)) }

// EventRecord marks the work now on s. Source: cuEventRecord.
func (a *API) EventRecord(e Event, s Stream) error {
	return a.call(&a.t.eventRecord, uintptr(e), uintptr(s))
}

// EventRecordWithFlags records; with [EventRecordExternal] in a capture it
// becomes a node, so that the event can be waited for and timed outside.
// Source: cuEventRecordWithFlags.
func (a *API) EventRecordWithFlags(e Event, s Stream, flags EventRecordFlags) error {
	return a.call(&a.t.eventRecordWithFlags, uintptr(e), uintptr(s), uintptr(flags))
}

// EventSynchronize blocks until the last record is reached. Source:
// cuEventSynchronize.
func (a *API) EventSynchronize(e Event) error { return a.call(&a.t.eventSynchronize, uintptr(e)) }

// EventQuery says whether the last record is reached, without blocking.
// Source: cuEventQuery.
func (a *API) EventQuery(e Event) (bool, error) { return ready(a.call(&a.t.eventQuery, uintptr(e))) }

// EventElapsedMs is the GPU's time between two records in milliseconds, with a
// resolution of about half a microsecond. Both events allow timing and are
// reached. Source: cuEventElapsedTime_v2, else cuEventElapsedTime.
func (a *API) EventElapsedMs(start, end Event) (float32, error) {
	var ms float32
	err := a.call(&a.t.eventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(start), uintptr(end))
	return ms, err
}

// Modules and functions.

// JIT options, CUjit_option.
const (
	jitInfoLogBuffer      = 3
	jitInfoLogBufferSize  = 4
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
)

// ModuleLoadData compiles PTX text (or takes a cubin) for the current context's
// GPU; the caller unloads the module. A failure carries the compiler's log as
// Detail. Source: cuModuleLoadDataEx.
func (a *API) ModuleLoadData(image []byte) (Module, error) {
	if a.t.moduleLoadDataEx.addr == 0 {
		return 0, &MissingError{Call: a.t.moduleLoadDataEx.name, Since: a.t.moduleLoadDataEx.since}
	}
	const logSize = 8 << 10
	mem := NewMemory()
	defer mem.Close()
	b, err := mem.Alloc(2*logSize + 64)
	if err != nil {
		return 0, err
	}
	opts, values := b[:16], b[16:48]
	errLog, infoLog := b[64:64+logSize], b[64+logSize:]
	for i, o := range []uint32{jitErrorLogBuffer, jitErrorLogBufferSize, jitInfoLogBuffer, jitInfoLogBufferSize} {
		put32(opts[4*i:], o)
	}
	put64(values[0:], uint64(addr(errLog)))
	put64(values[8:], logSize)
	put64(values[16:], uint64(addr(infoLog)))
	put64(values[24:], logSize)

	// The driver reads PTX up to a zero byte.
	text := image
	if len(text) == 0 || text[len(text)-1] != 0 {
		text = append(bytes.Clone(image), 0)
	}
	var m Module
	err = a.call(&a.t.moduleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&text[0])), 4, addr(opts), addr(values))
	if e, ok := err.(*Error); ok {
		e.Detail = fromNul(errLog)
	}
	return m, err
}

// ModuleUnload unloads a module; its functions end with it. Source:
// cuModuleUnload.
func (a *API) ModuleUnload(m Module) error { return a.call(&a.t.moduleUnload, uintptr(m)) }

// ModuleGetFunction finds a kernel by name; [NotFound] if the module lacks it.
// Source: cuModuleGetFunction.
func (a *API) ModuleGetFunction(m Module, name string) (Function, error) {
	var f Function
	n := cString(name)
	err := a.call(&a.t.moduleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&n[0])))
	if e, ok := err.(*Error); ok {
		e.Detail = name
	}
	return f, err
}

// ModuleGetLoadingMode says whether kernels are loaded at first use (lazy) or
// with their module. Source: cuModuleGetLoadingMode.
func (a *API) ModuleGetLoadingMode() (lazy bool, err error) {
	var m int32
	err = a.call(&a.t.moduleGetLoadingMode, uintptr(unsafe.Pointer(&m)))
	return m == 2, err
}

// FuncLoad loads a kernel now, so that no launch in a capture has to. Drivers
// before CUDA 12.4 give a [*MissingError]: launch the kernel once instead.
// Source: cuFuncLoad.
func (a *API) FuncLoad(f Function) error { return a.call(&a.t.funcLoad, uintptr(f)) }

// FuncGetName is a kernel's name as the compiler wrote it. Source:
// cuFuncGetName (12.3).
func (a *API) FuncGetName(f Function) (string, error) {
	var p *byte
	if err := a.call(&a.t.funcGetName, uintptr(unsafe.Pointer(&p)), uintptr(f)); err != nil {
		return "", err
	}
	if p == nil {
		return "", nil
	}
	return goString(p), nil
}

// ParamInfo places one parameter of a kernel.
type ParamInfo struct{ Offset, Size int }

// FuncGetParams lists a kernel's parameters. Source: cuFuncGetParamInfo (12.4),
// called until it gives [InvalidValue].
func (a *API) FuncGetParams(f Function) ([]ParamInfo, error) {
	var ps []ParamInfo
	for i := 0; ; i++ {
		var off, size uint64
		err := a.call(&a.t.funcGetParamInfo, uintptr(f), uintptr(i), uintptr(unsafe.Pointer(&off)), uintptr(unsafe.Pointer(&size)))
		if e, ok := err.(*Error); ok && e.Code == InvalidValue {
			return ps, nil
		}
		if err != nil {
			return nil, err
		}
		ps = append(ps, ParamInfo{int(off), int(size)})
	}
}

// FuncGetAttribute reads a property of a kernel. Source: cuFuncGetAttribute.
func (a *API) FuncGetAttribute(f Function, attr FuncAttribute) (int, error) {
	var v int32
	err := a.call(&a.t.funcGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attr), uintptr(f))
	return int(v), err
}

// FuncSetAttribute sets one, such as [FuncMaxDynamicShared]. Source:
// cuFuncSetAttribute.
func (a *API) FuncSetAttribute(f Function, attr FuncAttribute, v int) error {
	return a.call(&a.t.funcSetAttribute, uintptr(f), uintptr(attr), uintptr(v))
}

// OccupancyMaxActiveBlocks is the number of blocks of a kernel that one
// multiprocessor can hold. Source: cuOccupancyMaxActiveBlocksPerMultiprocessor.
func (a *API) OccupancyMaxActiveBlocks(f Function, blockSize, dynamicShared int) (int, error) {
	var n int32
	err := a.call(&a.t.occupancyMaxActiveBlocks, uintptr(unsafe.Pointer(&n)), uintptr(f), uintptr(blockSize), uintptr(dynamicShared))
	return int(n), err
}

// LibraryString is one line about the driver for a record.
func (a *API) LibraryString() string {
	return fmt.Sprintf("CUDA %s, %s", a.version, a.path)
}
