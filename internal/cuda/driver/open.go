package driver

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Reasons why there is no driver to call. An [*Unavailable] wraps one.
var (
	ErrNoLibrary  = errors.New("the CUDA driver library was not found")
	ErrNoDevice   = errors.New("the CUDA driver sees no GPU")
	ErrTooOld     = errors.New("the CUDA driver is too old")
	ErrNotStarted = errors.New("the CUDA driver did not start")
	ErrNotDriver  = errors.New("the file is no CUDA driver")
)

// Unavailable says why the driver cannot be used and what would help.
type Unavailable struct {
	// Reason is one of the sentinels above.
	Reason error
	// Cause is the loader's or the driver's error.
	Cause error
	// Library is the file that was opened, if one was.
	Library string
	// Version is the driver's, where known.
	Version Version
	// Missing are the features that an old driver lacks.
	Missing []Feature
	// Advice is one sentence: what to install or change.
	Advice string
}

func (u *Unavailable) Error() string {
	s := u.Reason.Error()
	if u.Cause != nil {
		s += ": " + u.Cause.Error()
	}
	if u.Advice != "" {
		s += ". " + u.Advice
	}
	return s
}

// Unwrap gives the reason and the cause.
func (u *Unavailable) Unwrap() []error {
	if u.Cause == nil {
		return []error{u.Reason}
	}
	return []error{u.Reason, u.Cause}
}

// Options say where the driver is.
type Options struct {
	// Path is libcuda's file or folder; empty searches.
	Path string
}

// Minimum is the oldest version that can capture, instantiate, update and
// inspect graphs as this project does.
const Minimum Version = 12000

// Feature is something that newer drivers do.
type Feature struct {
	Name  string
	Since Version
	// For says what needs it.
	For string
}

// features lists what a driver of at least Minimum may lack.
var features = []struct {
	Feature
	has func(*table) bool
}{
	{Feature{"edge data", 12030, "edges of programmatic dependent launch in a captured graph"}, func(t *table) bool { return t.graphGetEdgesV2.addr != 0 }},
	{Feature{"capture to graph", 12030, "bodies of conditional nodes (mode loop)"}, func(t *table) bool { return t.streamBeginCaptureToGraph.addr != 0 }},
	{Feature{"function names", 12030, "naming the kernels of a graph"}, func(t *table) bool { return t.funcGetName.addr != 0 }},
	{Feature{"loading functions", 12040, "loading each kernel before capture"}, func(t *table) bool { return t.funcLoad.addr != 0 }},
	{Feature{"parameter layout", 12040, "the pointer audit of library kernels"}, func(t *table) bool { return t.funcGetParamInfo.addr != 0 }},
}

// Open opens libcuda (the loader's path, then the usual folders; or
// opt.Path alone), initialises it and checks its version. The library stays
// loaded for the life of the process. The error is an [*Unavailable]. Source:
// dlopen, cuInit, cuDriverGetVersion.
func Open(opt Options) (*API, error) {
	lib, err := dl.Open(dl.Query{
		Name: "the CUDA driver", Files: []string{"libcuda.so.1", "libcuda.so"}, Path: opt.Path,
	})
	if err != nil {
		return nil, &Unavailable{Reason: ErrNoLibrary, Cause: err,
			Advice: "Install NVIDIA's driver (Debian: libcuda1 from non-free), or give a container the GPU (--gpus all)"}
	}
	a, err := New(lib)
	var u *Unavailable
	if errors.As(err, &u) {
		u.Library = lib.Path()
	}
	if err != nil {
		return nil, err
	}
	a.path = lib.Path()
	return a, nil
}

// New makes an API of the functions that r knows, initialises the driver and
// checks its version. r must stay valid for the life of the API. The error is
// an [*Unavailable].
func New(r dl.Resolver) (*API, error) {
	a := &API{}
	var lacking []string
	for _, e := range a.t.entries() {
		*e.sym = sym{name: e.names[0], since: e.since}
		f, name, err := dl.First(r, e.names...)
		if err == nil {
			e.sym.addr, e.sym.name = f, name
		} else if e.since <= Minimum {
			lacking = append(lacking, e.names[0])
		}
	}
	if a.t.driverGetVersion.addr == 0 || a.t.init.addr == 0 {
		return nil, &Unavailable{Reason: ErrNotDriver, Cause: fmt.Errorf("it has no cuInit or no cuDriverGetVersion"),
			Advice: "Name NVIDIA's libcuda.so.1"}
	}
	// The version is asked first: the call needs no cuInit, and tells what an
	// old driver is even where there is no GPU.
	verr := a.call(&a.t.driverGetVersion, uintptr(unsafe.Pointer(&a.version)))
	r0, _, _ := purego.SyscallN(a.t.init.addr, 0)
	if res := Result(r0); res != Success {
		u := &Unavailable{Reason: ErrNotStarted, Cause: a.err("cuInit", res, ""), Version: a.version}
		switch res {
		case NoDevice:
			u.Reason = ErrNoDevice
			u.Advice = "Check that the machine has an NVIDIA GPU, that its kernel module is loaded (nvidia-smi), and that CUDA_VISIBLE_DEVICES does not hide it"
		case StubLibrary:
			u.Advice = "The file is a toolkit's stub; put the driver's libcuda.so.1 before it"
		case SystemDriverMismatch, CompatNotSupported:
			u.Advice = "The kernel module and libcuda are of different versions; restart after an update, or remove the compatibility package"
		case SystemNotReady:
			u.Advice = "Start nvidia-fabricmanager"
		case Unknown:
			u.Advice = "Load the module nvidia-uvm (nvidia-modprobe -u), or restart after a suspend"
		default:
			u.Advice = "Run nvidia-smi; it names the fault"
		}
		return nil, u
	}
	if verr != nil {
		return nil, &Unavailable{Reason: ErrNotStarted, Cause: verr, Advice: "Install the driver anew; it cannot say of which version it is"}
	}
	if a.version < Minimum || len(lacking) > 0 {
		u := &Unavailable{Reason: ErrTooOld, Version: a.version, Missing: a.Missing(),
			Advice: fmt.Sprintf("Install a driver for CUDA %s or newer (525 on Linux)", Minimum)}
		if a.version < Minimum {
			u.Cause = fmt.Errorf("it is for CUDA %s, and graphs are captured, updated and inspected with calls of %s", a.version, Minimum)
		} else {
			u.Cause = fmt.Errorf("it says CUDA %s and lacks %v", a.version, lacking)
		}
		return nil, u
	}
	return a, nil
}

// Path is the file of the library, empty if the API was made by [New].
func (a *API) Path() string { return a.path }

// Version is the newest CUDA the driver supports. Source: cuDriverGetVersion.
func (a *API) Version() Version { return a.version }

// Missing lists the features that this driver lacks.
func (a *API) Missing() []Feature {
	var m []Feature
	for _, f := range features {
		if !f.has(&a.t) {
			m = append(m, f.Feature)
		}
	}
	return m
}

// ErrLaunchBlocking refuses CUDA_LAUNCH_BLOCKING.
var ErrLaunchBlocking = errors.New("CUDA_LAUNCH_BLOCKING is set: every launch would wait for its kernel, so there is nothing to measure, and collectives inside a capture would hang; unset it")

// RefuseLaunchBlocking returns [ErrLaunchBlocking] if the environment makes
// launches synchronous. Callers check before [Open], since the driver reads
// the variable once. getenv is os.Getenv if nil.
func RefuseLaunchBlocking(getenv func(string) string) error {
	if getenv == nil {
		getenv = os.Getenv
	}
	if v := getenv("CUDA_LAUNCH_BLOCKING"); v != "" && v != "0" {
		return ErrLaunchBlocking
	}
	return nil
}
