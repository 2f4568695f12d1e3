package cupti

import "fmt"

// Result is a CUptiResult.
type Result uint32

// Results that callers tell apart. Source: cupti_result.h.
const (
	Success                           Result = 0
	InvalidParameter                  Result = 1
	InvalidKind                       Result = 21
	MaxLimitReached                   Result = 12
	NotCompatible                     Result = 14
	NotInitialized                    Result = 15
	HardwareBusy                      Result = 26
	NotSupported                      Result = 27
	VirtualizedDevice                 Result = 33
	InsufficientPrivileges            Result = 35
	OldProfilerInitialized            Result = 36
	MultipleSubscribers               Result = 39
	VirtualizedInsufficientPrivileges Result = 40
	ConfidentialComputing             Result = 41
	CMPDevice                         Result = 42
	MIGDevice                         Result = 43
	SLIDevice                         Result = 44
	WSLDevice                         Result = 45
	Unknown                           Result = 999
)

// sentences say what a user can do.
var sentences = map[Result]string{
	NotCompatible:                     "CUPTI cannot trace beside something this process already uses; run without other profilers",
	NotInitialized:                    "CUPTI could not initialise; check that the driver is loaded and new enough for this libcupti",
	HardwareBusy:                      "another tool holds the GPU's profiling hardware; end nsys, ncu or DCGM's profiling and try again",
	NotSupported:                      "this GPU or driver does not support it",
	VirtualizedDevice:                 "CUPTI does not trace this virtual GPU",
	InsufficientPrivileges:            "this user may not profile; load the kernel module with NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN",
	OldProfilerInitialized:            "another profiler was started in this process; run without it",
	MultipleSubscribers:               "another profiler holds CUPTI in this process (it takes one before CUDA 13.3); run without it, or trace with it",
	VirtualizedInsufficientPrivileges: "the hypervisor does not let this virtual GPU be profiled",
	ConfidentialComputing:             "CUPTI does not trace in confidential computing mode",
	CMPDevice:                         "CUPTI does not trace this GPU",
	MIGDevice:                         "CUPTI does not trace on this GPU instance (MIG)",
	SLIDevice:                         "CUPTI does not trace with SLI",
	WSLDevice:                         "CUPTI does not trace under this WSL",
}

// Error is a call that failed.
type Error struct {
	Call string
	Code Result
	// Name is CUPTI's word for the code, "CUPTI_ERROR_HARDWARE_BUSY".
	Name string
	// What was asked for, such as a kind; may be empty.
	What string
}

// Error is one sentence, with what helps where that is known.
func (e *Error) Error() string {
	s := e.Call
	if e.What != "" {
		s += " " + e.What
	}
	name := e.Name
	if name == "" {
		name = "CUPTI error"
	}
	s += fmt.Sprintf(": %s (%d)", name, uint32(e.Code))
	if t := sentences[e.Code]; t != "" {
		s += ": " + t
	}
	return s
}

// Is matches a [Result] by code.
func (e *Error) Is(target error) bool { r, ok := target.(Result); return ok && r == e.Code }

// Error makes a Result a target for errors.Is.
func (r Result) Error() string {
	if t := sentences[r]; t != "" {
		return t
	}
	return fmt.Sprintf("CUPTI error %d", uint32(r))
}
