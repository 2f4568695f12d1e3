package cudnn

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Handle is a cudnnHandle_t: the library's state in one context, for one
// stream. Use it on one thread at a time.
type Handle uintptr

// Descriptor is a cudnnBackendDescriptor_t.
type Descriptor uintptr

// check turns a status into an error, asking the library for its words.
func (l *Library) check(call string, r uintptr) error {
	code := Status(int32(r))
	if code == Success {
		return nil
	}
	e := &Error{Call: call, Code: code, Name: fmt.Sprint(int(code))}
	if p, _, _ := purego.SyscallN(l.t.getErrorString, uintptr(uint32(code))); p != 0 {
		e.Name = cString(p)
	}
	buf := make([]byte, 1024)
	purego.SyscallN(l.t.getLastErrorString, uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	detail, _, _ := strings.Cut(string(buf), "\x00")
	e.Detail = strings.TrimSpace(detail)
	return e
}

// cString reads a string that the library owns.
func cString(p uintptr) string {
	// The address is C memory; going through a pointer to it keeps the
	// conversion visible as one that the collector has no part in.
	b := *(**byte)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(b), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(b, n))
}

// Create makes a handle in the current context; the caller destroys it. It may
// allocate device memory and is not allowed inside a capture. Source:
// cudnnCreate.
func (l *Library) Create() (Handle, error) {
	var h Handle
	r, _, _ := purego.SyscallN(l.t.create, uintptr(unsafe.Pointer(&h)))
	return h, l.check("cudnnCreate", r)
}

// Destroy releases a handle. It may wait for the device. Source: cudnnDestroy.
func (l *Library) Destroy(h Handle) error {
	r, _, _ := purego.SyscallN(l.t.destroy, uintptr(h))
	return l.check("cudnnDestroy", r)
}

// SetStream sets the stream (a CUstream) that the handle's executions go to.
// Source: cudnnSetStream.
func (l *Library) SetStream(h Handle, stream uintptr) error {
	r, _, _ := purego.SyscallN(l.t.setStream, uintptr(h), stream)
	return l.check("cudnnSetStream", r)
}

// BackendCreateDescriptor makes an empty descriptor; the caller destroys it.
// Source: cudnnBackendCreateDescriptor.
func (l *Library) BackendCreateDescriptor(t DescriptorType) (Descriptor, error) {
	var d Descriptor
	r, _, _ := purego.SyscallN(l.t.createDescriptor, uintptr(t), uintptr(unsafe.Pointer(&d)))
	if r32 := int32(r); r32 != 0 {
		return 0, l.check(fmt.Sprintf("cudnnBackendCreateDescriptor(%d)", t), r)
	}
	return d, nil
}

// BackendDestroyDescriptor releases a descriptor. Source:
// cudnnBackendDestroyDescriptor.
func (l *Library) BackendDestroyDescriptor(d Descriptor) error {
	r, _, _ := purego.SyscallN(l.t.destroyDescriptor, uintptr(d))
	return l.check("cudnnBackendDestroyDescriptor", r)
}

// BackendFinalize checks a descriptor and closes it to changes. For a plan it
// loads, and perhaps compiles, kernels: not inside a capture. A plan that
// the engine cannot make gives [NotSupported]. Source: cudnnBackendFinalize.
func (l *Library) BackendFinalize(d Descriptor) error {
	r, _, _ := purego.SyscallN(l.t.finalize, uintptr(d))
	return l.check("cudnnBackendFinalize", r)
}

// Element is what attributes are made of in Go: enumerations are int32,
// pointers and handles are uintptr, a boolean is one byte.
type Element interface {
	~int32 | ~int64 | ~float32 | ~float64 | ~uintptr | ~bool
}

// Set sets an attribute to the values, whose Go type must be the one that t
// stands for. The library copies them. Source: cudnnBackendSetAttribute.
func Set[T Element](l *Library, d Descriptor, a Attribute, t AttributeType, values ...T) error {
	r, _, _ := purego.SyscallN(l.t.setAttribute, uintptr(d), uintptr(a), uintptr(t), uintptr(len(values)),
		uintptr(unsafe.Pointer(unsafe.SliceData(values))))
	if int32(r) == 0 {
		return nil
	}
	return l.check(fmt.Sprintf("cudnnBackendSetAttribute(%d)", a), r)
}

// Get reads an attribute into values and returns how many elements it has,
// which may be more. For descriptors the values are descriptors that the caller
// made; the library fills them. Source: cudnnBackendGetAttribute.
func Get[T Element](l *Library, d Descriptor, a Attribute, t AttributeType, values []T) (int, error) {
	var n int64
	r, _, _ := purego.SyscallN(l.t.getAttribute, uintptr(d), uintptr(a), uintptr(t), uintptr(len(values)),
		uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(unsafe.SliceData(values))))
	if int32(r) == 0 {
		return int(n), nil
	}
	return 0, l.check(fmt.Sprintf("cudnnBackendGetAttribute(%d)", a), r)
}

// GetAll reads an attribute of any length, asking with room for n elements
// first.
func GetAll[T Element](l *Library, d Descriptor, a Attribute, t AttributeType, n int) ([]T, error) {
	for {
		values := make([]T, n)
		got, err := Get(l, d, a, t, values)
		if err != nil {
			return nil, err
		}
		if got <= n {
			return values[:got], nil
		}
		n = got
	}
}

// Execution is cudnnBackendExecute with its arguments laid out: a finalised
// plan and a finalised variant pack, which outlive it. It belongs to one
// thread.
type Execution struct {
	lib  *Library
	fn   uintptr
	args [3]uintptr
}

// Execution prepares executions of plan on the pointers in pack.
func (l *Library) Execution(plan, pack Descriptor) Execution {
	return Execution{lib: l, fn: l.t.execute, args: [3]uintptr{0, uintptr(plan), uintptr(pack)}}
}

// Submit queues the plan's kernels on the handle's stream, or records them if
// that stream is being captured. It does not wait and does not allocate unless
// it fails. Source: cudnnBackendExecute.
func (e *Execution) Submit(h Handle) error {
	e.args[0] = uintptr(h)
	r, _, _ := purego.SyscallN(e.fn, e.args[:]...)
	if int32(r) == 0 {
		return nil
	}
	return e.lib.check("cudnnBackendExecute", r)
}
