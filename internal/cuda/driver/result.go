package driver

import "fmt"

// Result is a CUresult. It is an error value to be matched:
//
//	errors.Is(err, driver.StreamCaptureInvalidated)
//
// Source: CUresult in cuda.h.
type Result uint32

// Result codes. Names are the driver's, without CUDA_ERROR_.
const (
	Success                    Result = 0
	InvalidValue               Result = 1
	OutOfMemory                Result = 2
	NotInitialized             Result = 3
	Deinitialized              Result = 4
	StubLibrary                Result = 34
	DeviceUnavailable          Result = 46
	NoDevice                   Result = 100
	InvalidDevice              Result = 101
	DeviceNotLicensed          Result = 102
	InvalidImage               Result = 200
	InvalidContext             Result = 201
	MapFailed                  Result = 205
	NoBinaryForGPU             Result = 209
	ECCUncorrectable           Result = 214
	InvalidPTX                 Result = 218
	NVLinkUncorrectable        Result = 220
	JITCompilerNotFound        Result = 221
	UnsupportedPTXVersion      Result = 222
	JITCompilationDisabled     Result = 223
	UnsupportedExecAffinity    Result = 224
	InvalidSource              Result = 300
	FileNotFound               Result = 301
	SharedObjectSymbolNotFound Result = 302
	SharedObjectInitFailed     Result = 303
	OperatingSystem            Result = 304
	InvalidHandle              Result = 400
	IllegalState               Result = 401
	LossyQuery                 Result = 402
	NotFound                   Result = 500
	NotReady                   Result = 600
	IllegalAddress             Result = 700
	LaunchOutOfResources       Result = 701
	LaunchTimeout              Result = 702
	PeerAccessAlreadyEnabled   Result = 704
	PeerAccessNotEnabled       Result = 705
	PrimaryContextActive       Result = 708
	ContextIsDestroyed         Result = 709
	Assert                     Result = 710
	HardwareStackError         Result = 714
	IllegalInstruction         Result = 715
	MisalignedAddress          Result = 716
	InvalidAddressSpace        Result = 717
	InvalidPC                  Result = 718
	LaunchFailed               Result = 719
	CooperativeLaunchTooLarge  Result = 720
	NotPermitted               Result = 800
	NotSupported               Result = 801
	SystemNotReady             Result = 802
	SystemDriverMismatch       Result = 803
	CompatNotSupported         Result = 804
	MPSConnectionFailed        Result = 805
	StreamCaptureUnsupported   Result = 900
	StreamCaptureInvalidated   Result = 901
	StreamCaptureMerge         Result = 902
	StreamCaptureUnmatched     Result = 903
	StreamCaptureUnjoined      Result = 904
	StreamCaptureIsolation     Result = 905
	StreamCaptureImplicit      Result = 906
	CapturedEvent              Result = 907
	StreamCaptureWrongThread   Result = 908
	Timeout                    Result = 909
	GraphExecUpdateFailure     Result = 910
	ExternalDevice             Result = 911
	InvalidClusterSize         Result = 912
	FunctionNotLoaded          Result = 913
	KeyRotation                Result = 916
	Unknown                    Result = 999
)

var resultNames = map[Result]string{
	Success:                    "CUDA_SUCCESS",
	InvalidValue:               "CUDA_ERROR_INVALID_VALUE",
	OutOfMemory:                "CUDA_ERROR_OUT_OF_MEMORY",
	NotInitialized:             "CUDA_ERROR_NOT_INITIALIZED",
	Deinitialized:              "CUDA_ERROR_DEINITIALIZED",
	StubLibrary:                "CUDA_ERROR_STUB_LIBRARY",
	DeviceUnavailable:          "CUDA_ERROR_DEVICE_UNAVAILABLE",
	NoDevice:                   "CUDA_ERROR_NO_DEVICE",
	InvalidDevice:              "CUDA_ERROR_INVALID_DEVICE",
	DeviceNotLicensed:          "CUDA_ERROR_DEVICE_NOT_LICENSED",
	InvalidImage:               "CUDA_ERROR_INVALID_IMAGE",
	InvalidContext:             "CUDA_ERROR_INVALID_CONTEXT",
	MapFailed:                  "CUDA_ERROR_MAP_FAILED",
	NoBinaryForGPU:             "CUDA_ERROR_NO_BINARY_FOR_GPU",
	ECCUncorrectable:           "CUDA_ERROR_ECC_UNCORRECTABLE",
	InvalidPTX:                 "CUDA_ERROR_INVALID_PTX",
	NVLinkUncorrectable:        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	JITCompilerNotFound:        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
	UnsupportedPTXVersion:      "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
	JITCompilationDisabled:     "CUDA_ERROR_JIT_COMPILATION_DISABLED",
	UnsupportedExecAffinity:    "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
	InvalidSource:              "CUDA_ERROR_INVALID_SOURCE",
	FileNotFound:               "CUDA_ERROR_FILE_NOT_FOUND",
	SharedObjectSymbolNotFound: "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
	SharedObjectInitFailed:     "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
	OperatingSystem:            "CUDA_ERROR_OPERATING_SYSTEM",
	InvalidHandle:              "CUDA_ERROR_INVALID_HANDLE",
	IllegalState:               "CUDA_ERROR_ILLEGAL_STATE",
	LossyQuery:                 "CUDA_ERROR_LOSSY_QUERY",
	NotFound:                   "CUDA_ERROR_NOT_FOUND",
	NotReady:                   "CUDA_ERROR_NOT_READY",
	IllegalAddress:             "CUDA_ERROR_ILLEGAL_ADDRESS",
	LaunchOutOfResources:       "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
	LaunchTimeout:              "CUDA_ERROR_LAUNCH_TIMEOUT",
	PeerAccessAlreadyEnabled:   "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
	PeerAccessNotEnabled:       "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
	PrimaryContextActive:       "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
	ContextIsDestroyed:         "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	Assert:                     "CUDA_ERROR_ASSERT",
	HardwareStackError:         "CUDA_ERROR_HARDWARE_STACK_ERROR",
	IllegalInstruction:         "CUDA_ERROR_ILLEGAL_INSTRUCTION",
	MisalignedAddress:          "CUDA_ERROR_MISALIGNED_ADDRESS",
	InvalidAddressSpace:        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
	InvalidPC:                  "CUDA_ERROR_INVALID_PC",
	LaunchFailed:               "CUDA_ERROR_LAUNCH_FAILED",
	CooperativeLaunchTooLarge:  "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
	NotPermitted:               "CUDA_ERROR_NOT_PERMITTED",
	NotSupported:               "CUDA_ERROR_NOT_SUPPORTED",
	SystemNotReady:             "CUDA_ERROR_SYSTEM_NOT_READY",
	SystemDriverMismatch:       "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	CompatNotSupported:         "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
	MPSConnectionFailed:        "CUDA_ERROR_MPS_CONNECTION_FAILED",
	StreamCaptureUnsupported:   "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	StreamCaptureInvalidated:   "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	StreamCaptureMerge:         "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	StreamCaptureUnmatched:     "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	StreamCaptureUnjoined:      "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
	StreamCaptureIsolation:     "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	StreamCaptureImplicit:      "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	CapturedEvent:              "CUDA_ERROR_CAPTURED_EVENT",
	StreamCaptureWrongThread:   "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	Timeout:                    "CUDA_ERROR_TIMEOUT",
	GraphExecUpdateFailure:     "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
	ExternalDevice:             "CUDA_ERROR_EXTERNAL_DEVICE",
	InvalidClusterSize:         "CUDA_ERROR_INVALID_CLUSTER_SIZE",
	FunctionNotLoaded:          "CUDA_ERROR_FUNCTION_NOT_LOADED",
	KeyRotation:                "CUDA_ERROR_KEY_ROTATION",
	Unknown:                    "CUDA_ERROR_UNKNOWN",
}

// String is the driver's name of the code, without asking the driver.
func (r Result) String() string {
	if n, ok := resultNames[r]; ok {
		return n
	}
	return fmt.Sprintf("CUresult(%d)", uint32(r))
}

// Error makes a Result a target for errors.Is.
func (r Result) Error() string { return fmt.Sprintf("%s (%d)", r.String(), uint32(r)) }

// Sticky says that the code leaves the context unusable: every later call on it
// returns the same code until the process ends.
func (r Result) Sticky() bool {
	switch r {
	case ECCUncorrectable, IllegalAddress, LaunchTimeout, Assert, HardwareStackError, IllegalInstruction,
		MisalignedAddress, InvalidAddressSpace, InvalidPC, LaunchFailed:
		return true
	}
	return false
}

// Capture says that the code is one of the capture rules', 900 to 908.
func (r Result) Capture() bool { return r >= StreamCaptureUnsupported && r <= StreamCaptureWrongThread }

// Error is a driver call that failed.
type Error struct {
	// Call is the symbol that was called: "cuStreamBeginCapture_v2".
	Call string
	Code Result
	// Name is the code's name, from the driver for codes unknown here.
	Name string
	// Detail is what else is known: the log of a failed JIT, the reason an
	// update was refused. Often empty.
	Detail string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, uint32(e.Code))
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is matches a [Result] by code.
func (e *Error) Is(target error) bool {
	r, ok := target.(Result)
	return ok && r == e.Code
}

// MissingError says that the driver lacks a call.
type MissingError struct {
	Call string
	// Since is the CUDA version that brought it.
	Since Version
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: this driver does not have it; it came with CUDA %s", e.Call, e.Since)
}

// Is matches [NotSupported].
func (e *MissingError) Is(target error) bool { return target == NotSupported }

// Version is a CUDA version as the driver gives it: 1000*major + 10*minor.
type Version int32

func (v Version) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
