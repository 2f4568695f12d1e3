package cupti

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Options say where the library is, and beside which driver it is used.
type Options struct {
	// Path is libcupti's file or folder; empty searches.
	Path string
	// Driver is the CUDA version of the driver, 1000 x major + 10 x minor; 0 is
	// unknown. It tells CUDA 12.0's layouts from 11.8's.
	Driver int
}

// API is an opened CUPTI. Opening starts nothing. Its methods may be called on
// any thread.
type API struct {
	path    string
	version int
	layout  Layout
	f       functions

	names sync.Map // cbid and domain -> string
}

// functions are the calls' addresses; 0 where the library lacks one.
type functions struct {
	getVersion, getResultString, getTimestamp, getCallbackName     uintptr
	enable, disable, register, flushAll, getNextRecord, getDropped uintptr
	getStreamID, setThreadIDType                                   uintptr
}

// Minimum is the oldest cuptiGetVersion whose records are known: CUDA 11.8's.
const Minimum = 18

// Open opens libcupti. What CUDA's toolkit installs lies in
// extras/CUPTI/lib64, what Python's packages do in nvidia/cuda_cupti/lib; both
// are searched after the loader's path. The library stays loaded for the life
// of the process. The error is a [*dl.NotFoundError], or a sentence.
func Open(o Options) (*API, error) {
	lib, err := dl.Open(dl.Query{
		Name: "CUPTI", Files: []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"}, Path: o.Path,
		Advice: "it comes with the CUDA toolkit (extras/CUPTI/lib64), Debian's libcupti11.8 or Python's nvidia-cuda-cupti",
	})
	if err != nil {
		return nil, err
	}
	a, err := New(lib, o.Driver)
	if err != nil {
		lib.Close()
		return nil, fmt.Errorf("%s: %w", lib.Path(), err)
	}
	a.path = lib.Path()
	return a, nil
}

// New is Open on the functions that r knows, which stay valid for the life of
// the API.
func New(r dl.Resolver, driver int) (*API, error) {
	a := &API{}
	var lacking error
	for _, e := range []struct {
		at   *uintptr
		name string
		need bool
	}{
		{&a.f.getVersion, "cuptiGetVersion", true},
		{&a.f.getResultString, "cuptiGetResultString", false},
		{&a.f.getTimestamp, "cuptiGetTimestamp", true},
		{&a.f.getCallbackName, "cuptiGetCallbackName", false},
		{&a.f.enable, "cuptiActivityEnable", true},
		{&a.f.disable, "cuptiActivityDisable", true},
		{&a.f.register, "cuptiActivityRegisterCallbacks", true},
		{&a.f.flushAll, "cuptiActivityFlushAll", true},
		{&a.f.getNextRecord, "cuptiActivityGetNextRecord", true},
		{&a.f.getDropped, "cuptiActivityGetNumDroppedRecords", true},
		{&a.f.getStreamID, "cuptiGetStreamIdEx", false},
		{&a.f.setThreadIDType, "cuptiSetThreadIdType", false},
	} {
		f, err := r.Lookup(e.name)
		if err != nil && e.need && lacking == nil {
			lacking = err
		}
		*e.at = f
	}
	if lacking != nil {
		return nil, fmt.Errorf("CUPTI lacks a call: %w", lacking)
	}
	var v uint32
	if err := a.call("cuptiGetVersion", "", a.f.getVersion, uintptr(unsafe.Pointer(&v))); err != nil {
		return nil, err
	}
	a.version = int(v)
	if a.version < Minimum {
		return nil, fmt.Errorf("CUPTI's version is %d, and records are known from %d (CUDA 11.8) on; install a newer one", v, Minimum)
	}
	a.layout = LayoutFor(a.version, driver)
	return a, nil
}

// Path is the file of the library, empty if the API was made by [New].
func (a *API) Path() string { return a.path }

// Version is what cuptiGetVersion says: 18 for CUDA 11.8, 28 for 12.9, 130001
// for 13.0.
func (a *API) Version() int { return a.version }

// Layout is what the version's records look like.
func (a *API) Layout() Layout { return a.layout }

// call makes a call.
//
//go:uintptrescapes
func (a *API) call(name, what string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	if code := Result(uint32(r)); code != Success {
		return a.err(name, what, code)
	}
	return nil
}

func (a *API) err(name, what string, code Result) error {
	e := &Error{Call: name, Code: code, What: what}
	if a.f.getResultString != 0 {
		var p *byte
		r, _, _ := purego.SyscallN(a.f.getResultString, uintptr(code), uintptr(unsafe.Pointer(&p)))
		if Result(uint32(r)) == Success && p != nil {
			e.Name = cText(unsafe.Pointer(p))
		}
	}
	return e
}

// TimestampNs is now on the axis of records, in nanoseconds of the host.
// Source: cuptiGetTimestamp.
func (a *API) TimestampNs() (int64, error) {
	var t uint64
	err := a.call("cuptiGetTimestamp", "", a.f.getTimestamp, uintptr(unsafe.Pointer(&t)))
	return int64(t), err
}

// Domains of callbacks. Source: CUpti_CallbackDomain.
const (
	domainDriver  = 1
	domainRuntime = 2
)

// CallName is the name of the function of a call's record, "cuLaunchKernel".
// Source: cuptiGetCallbackName.
func (a *API) CallName(c Call) string {
	domain := uintptr(domainDriver)
	if c.Runtime {
		domain = domainRuntime
	}
	key := uint64(domain)<<32 | uint64(c.CBID)
	if n, ok := a.names.Load(key); ok {
		return n.(string)
	}
	name := ""
	if a.f.getCallbackName != 0 {
		var p *byte
		if a.call("cuptiGetCallbackName", "", a.f.getCallbackName, domain, uintptr(c.CBID), uintptr(unsafe.Pointer(&p))) == nil && p != nil {
			name = cText(unsafe.Pointer(p))
		}
	}
	if name == "" {
		name = fmt.Sprintf("%s call %d", []string{"", "driver", "runtime"}[domain], c.CBID)
	}
	a.names.Store(key, name)
	return name
}

// StreamID is the number by which records call a stream of a context. Source:
// cuptiGetStreamIdEx.
func (a *API) StreamID(context, stream uintptr) (uint32, error) {
	if a.f.getStreamID == 0 {
		return 0, &Error{Call: "cuptiGetStreamIdEx", Code: NotSupported}
	}
	var id uint32
	err := a.call("cuptiGetStreamIdEx", "", a.f.getStreamID, context, stream, 0, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// longestText is where a text ends that has no end.
const longestText = 64 << 10

func cText(p unsafe.Pointer) string {
	n := 0
	for n < longestText && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
