package cublas

import (
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Status is a cublasStatus_t. It is an error value to be matched.
type Status int32

const (
	Success        Status = 0
	NotInitialized Status = 1
	AllocFailed    Status = 3
	InvalidValue   Status = 7
	ArchMismatch   Status = 8
	ExecFailed     Status = 13
	Internal       Status = 14
	NotSupported   Status = 15
)

func (s Status) Error() string { return "cuBLAS status " + strconv.Itoa(int(s)) }

// Error is a cuBLASLt call that failed.
type Error struct {
	Call   string
	Code   Status
	Name   string
	Detail string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, int(e.Code))
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the code.
func (e *Error) Unwrap() error { return e.Code }

// Unavailable says why cuBLASLt cannot be used and what would help.
type Unavailable struct {
	Reason  string
	Library string
	Cause   error
}

func (u *Unavailable) Error() string {
	if u.Cause != nil {
		return u.Reason + ": " + u.Cause.Error()
	}
	return u.Reason
}

func (u *Unavailable) Unwrap() error { return u.Cause }

// Options say where cuBLASLt is.
type Options struct {
	// Path is libcublasLt's file or folder; empty searches.
	Path string
	// Major, if not 0, is the CUDA version whose cuBLASLt is wanted (12, 13).
	// The one that cuDNN was built for saves loading two.
	Major int
}

// Open opens libcublasLt and resolves its calls. The library stays loaded for
// the life of the process. The error is an [*Unavailable]. It needs no context.
func Open(opt Options) (*Library, error) {
	files := []string{"libcublasLt.so.13", "libcublasLt.so.12"}
	if opt.Major != 0 {
		files = []string{fmt.Sprintf("libcublasLt.so.%d", opt.Major)}
	}
	lib, err := dl.Open(dl.Query{
		Name: "cuBLASLt", Files: files, Path: opt.Path,
		Advice: "install CUDA's cuBLAS (Debian's libcublaslt, NVIDIA's packages, or \"pip install nvidia-cublas\")",
	})
	if err != nil {
		return nil, &Unavailable{Reason: "cuBLASLt was not found", Cause: err}
	}
	l, err := New(lib)
	if err != nil {
		if u, ok := errors.AsType[*Unavailable](err); ok {
			u.Library = lib.Path()
		}
		return nil, err
	}
	l.path = lib.Path()
	return l, nil
}

// Library is an open cuBLASLt. Its methods may be called on any thread with a
// current context; Version and Path need none.
type Library struct {
	t       table
	path    string
	version int
}

type table struct {
	getVersion, getStatusName                           uintptr
	create, destroy                                     uintptr
	descCreate, descDestroy, descSet                    uintptr
	layoutCreate, layoutDestroy                         uintptr
	prefCreate, prefDestroy, prefSet                    uintptr
	getHeuristic, algoCheck, algoConfigGet, algoCapsGet uintptr
	matmul                                              uintptr
}

// New resolves cuBLASLt's calls in r. The error is an [*Unavailable].
func New(r dl.Resolver) (*Library, error) {
	l := &Library{}
	for _, s := range []struct {
		name string
		addr *uintptr
	}{
		{"cublasLtGetVersion", &l.t.getVersion},
		{"cublasLtGetStatusName", &l.t.getStatusName},
		{"cublasLtCreate", &l.t.create},
		{"cublasLtDestroy", &l.t.destroy},
		{"cublasLtMatmulDescCreate", &l.t.descCreate},
		{"cublasLtMatmulDescDestroy", &l.t.descDestroy},
		{"cublasLtMatmulDescSetAttribute", &l.t.descSet},
		{"cublasLtMatrixLayoutCreate", &l.t.layoutCreate},
		{"cublasLtMatrixLayoutDestroy", &l.t.layoutDestroy},
		{"cublasLtMatmulPreferenceCreate", &l.t.prefCreate},
		{"cublasLtMatmulPreferenceDestroy", &l.t.prefDestroy},
		{"cublasLtMatmulPreferenceSetAttribute", &l.t.prefSet},
		{"cublasLtMatmulAlgoGetHeuristic", &l.t.getHeuristic},
		{"cublasLtMatmulAlgoCheck", &l.t.algoCheck},
		{"cublasLtMatmulAlgoConfigGetAttribute", &l.t.algoConfigGet},
		{"cublasLtMatmulAlgoCapGetAttribute", &l.t.algoCapsGet},
		{"cublasLtMatmul", &l.t.matmul},
	} {
		addr, err := r.Lookup(s.name)
		if err != nil || addr == 0 {
			return nil, &Unavailable{Reason: "the library that was opened is not a cuBLASLt of CUDA 12 or newer, it lacks " + s.name, Cause: err}
		}
		*s.addr = addr
	}
	v, _, _ := purego.SyscallN(l.t.getVersion)
	l.version = int(v)
	return l, nil
}

// Version is cuBLASLt's version as cublasLtGetVersion counts: 130000 is
// 13.0.0.
func (l *Library) Version() int { return l.version }

// Path is the file that was opened; empty for a library made by [New].
func (l *Library) Path() string { return l.path }

func (l *Library) check(call string, r uintptr) error {
	code := Status(int32(r))
	if code == Success {
		return nil
	}
	e := &Error{Call: call, Code: code, Name: strconv.Itoa(int(code))}
	if p, _, _ := purego.SyscallN(l.t.getStatusName, uintptr(uint32(code))); p != 0 {
		e.Name = cString(p)
	}
	return e
}

// cString reads a string that the library owns.
func cString(p uintptr) string {
	b := *(**byte)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(b), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(b, n))
}

// Handle is a cublasLtHandle_t. It may be shared between streams and threads.
type Handle uintptr

// Create makes a handle in the current context; the caller destroys it. Not
// inside a capture. Source: cublasLtCreate.
func (l *Library) Create() (Handle, error) {
	var h Handle
	r, _, _ := purego.SyscallN(l.t.create, uintptr(unsafe.Pointer(&h)))
	return h, l.check("cublasLtCreate", r)
}

// Destroy releases a handle. Source: cublasLtDestroy.
func (l *Library) Destroy(h Handle) error {
	r, _, _ := purego.SyscallN(l.t.destroy, uintptr(h))
	return l.check("cublasLtDestroy", r)
}
