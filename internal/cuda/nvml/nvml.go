// Package nvml reads a GPU's clocks, power, temperature and settings from
// NVIDIA's management library.
//
// It feeds the environment block of a record and the watch for throttling. The
// library is optional: without it, and for every figure that a GPU, a
// container or a driver does not give, there is a sentence instead of a value
// ([Field]).
//
// The package keeps one rule: a figure is either read or absent with its
// reason; it is never guessed and never zero for want of an answer.
package nvml

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Result is an nvmlReturn_t. Source: nvml.h.
type Result uint32

const (
	Success              Result = 0
	Uninitialized        Result = 1
	InvalidArgument      Result = 2
	NotSupported         Result = 3
	NoPermission         Result = 4
	NotFound             Result = 6
	DriverNotLoaded      Result = 9
	Timeout              Result = 10
	LibraryNotFound      Result = 12
	FunctionNotFound     Result = 13
	GPUIsLost            Result = 15
	LibRMVersionMismatch Result = 18
	Unknown              Result = 999
)

var resultText = map[Result]string{
	Success:              "success",
	Uninitialized:        "NVML is not initialised",
	InvalidArgument:      "invalid argument",
	NotSupported:         "this GPU does not give it",
	NoPermission:         "this user may not read it",
	NotFound:             "not found",
	DriverNotLoaded:      "the NVIDIA kernel module is not loaded",
	Timeout:              "timeout",
	LibraryNotFound:      "NVML's library was not found",
	FunctionNotFound:     "this driver's NVML does not have the call",
	GPUIsLost:            "the GPU has fallen off the bus",
	LibRMVersionMismatch: "NVML and the kernel module are of different versions; restart after an update",
	Unknown:              "unknown error",
}

// Error makes a Result a target for errors.Is.
func (r Result) Error() string {
	if s, ok := resultText[r]; ok {
		return s
	}
	return fmt.Sprintf("NVML error %d", uint32(r))
}

// Error is a call that failed.
type Error struct {
	Call string
	Code Result
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v (%d)", e.Call, e.Code, uint32(e.Code)) }

// Is matches a [Result] by code.
func (e *Error) Is(target error) bool { r, ok := target.(Result); return ok && r == e.Code }

// Field is a figure or the reason why there is none.
type Field[T any] struct {
	Value T
	// Absent is empty if Value was read.
	Absent string
}

// OK says that the value was read.
func (f Field[T]) OK() bool { return f.Absent == "" }

func (f Field[T]) String() string {
	if f.OK() {
		return fmt.Sprint(f.Value)
	}
	return "absent: " + f.Absent
}

// API is an initialised NVML. Its methods may be called on any thread; they take
// tens of microseconds to milliseconds and none belongs into a timed section.
type API struct {
	r    dl.Resolver
	path string
}

// Open opens libnvidia-ml (path: its file or folder; empty searches) and
// initialises it. The caller closes the API. The error is a
// [*dl.NotFoundError] or an [*Error]. Source: nvmlInit_v2.
func Open(path string) (*API, error) {
	lib, err := dl.Open(dl.Query{Name: "NVML", Files: []string{"libnvidia-ml.so.1", "libnvidia-ml.so"}, Path: path,
		Advice: "it comes with NVIDIA's driver (Debian: libnvidia-ml1 from non-free)"})
	if err != nil {
		return nil, err
	}
	a, err := New(lib)
	if err != nil {
		lib.Close()
		return nil, err
	}
	a.path = lib.Path()
	return a, nil
}

// New is Open on the functions that r knows.
func New(r dl.Resolver) (*API, error) {
	a := &API{r: r}
	if err := a.call([]string{"nvmlInit_v2"}); err != nil {
		return nil, err
	}
	return a, nil
}

// Path is the file of the library, empty if the API was made by [New].
func (a *API) Path() string { return a.path }

// Close ends NVML. The library stays loaded. Source: nvmlShutdown.
func (a *API) Close() error { return a.call([]string{"nvmlShutdown"}) }

// call makes a call by the first of names that the library has.
//
//go:uintptrescapes
func (a *API) call(names []string, args ...uintptr) error {
	f, name, err := dl.First(a.r, names...)
	if err != nil {
		return &Error{names[0], FunctionNotFound}
	}
	r, _, _ := purego.SyscallN(f, args...)
	if Result(r) != Success {
		return &Error{name, Result(uint32(r))}
	}
	return nil
}

func (a *API) text(name string, dev uintptr, n int) (string, error) {
	b := make([]byte, n)
	var err error
	if dev == 0 {
		err = a.call([]string{name}, uintptr(unsafe.Pointer(&b[0])), uintptr(n))
	} else {
		err = a.call([]string{name}, dev, uintptr(unsafe.Pointer(&b[0])), uintptr(n))
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSpace(string(b)), err
}

// DriverVersion is the driver's own version, "580.65.06". Source:
// nvmlSystemGetDriverVersion.
func (a *API) DriverVersion() Field[string] {
	s, err := a.text("nvmlSystemGetDriverVersion", 0, 96)
	return field(s, err)
}

// Device is a GPU.
type Device struct {
	a *API
	h uintptr
}

// Count is the number of GPUs, those hidden from CUDA included. Source:
// nvmlDeviceGetCount_v2.
func (a *API) Count() (int, error) {
	var n uint32
	err := a.call([]string{"nvmlDeviceGetCount_v2"}, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// DeviceByIndex returns a GPU by NVML's own order, which need not be CUDA's.
// Source: nvmlDeviceGetHandleByIndex_v2.
func (a *API) DeviceByIndex(i int) (Device, error) {
	d := Device{a: a}
	err := a.call([]string{"nvmlDeviceGetHandleByIndex_v2"}, uintptr(i), uintptr(unsafe.Pointer(&d.h)))
	return d, err
}

// DeviceByPCI returns the GPU that CUDA knows by the same bus id. Source:
// nvmlDeviceGetHandleByPciBusId_v2.
func (a *API) DeviceByPCI(busID string) (Device, error) {
	d := Device{a: a}
	id := append([]byte(busID), 0)
	err := a.call([]string{"nvmlDeviceGetHandleByPciBusId_v2"}, uintptr(unsafe.Pointer(&id[0])), uintptr(unsafe.Pointer(&d.h)))
	return d, err
}

func field[T any](v T, err error) Field[T] {
	if err != nil {
		var zero T
		return Field[T]{zero, err.Error()}
	}
	return Field[T]{Value: v}
}

// u32 reads a call of the shape (device, unsigned*).
func (d Device) u32(names ...string) Field[int] {
	var v uint32
	err := d.a.call(names, d.h, uintptr(unsafe.Pointer(&v)))
	return field(int(v), err)
}

// Name is the product. Source: nvmlDeviceGetName.
func (d Device) Name() Field[string] {
	s, err := d.a.text("nvmlDeviceGetName", d.h, 96)
	return field(s, err)
}

// UUID is the GPU's identity. Source: nvmlDeviceGetUUID.
func (d Device) UUID() Field[string] {
	s, err := d.a.text("nvmlDeviceGetUUID", d.h, 96)
	return field(s, err)
}

// Clock domains, nvmlClockType_t.
const (
	clockSM  = 1
	clockMem = 2
)

func (d Device) clock(call string, domain uintptr) Field[int] {
	var v uint32
	err := d.a.call([]string{call}, d.h, domain, uintptr(unsafe.Pointer(&v)))
	return field(int(v), err)
}

// SMClockMHz and MemClockMHz are the clocks now, the Max ones the highest
// possible. Source: nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo.
func (d Device) SMClockMHz() Field[int]     { return d.clock("nvmlDeviceGetClockInfo", clockSM) }
func (d Device) MemClockMHz() Field[int]    { return d.clock("nvmlDeviceGetClockInfo", clockMem) }
func (d Device) MaxSMClockMHz() Field[int]  { return d.clock("nvmlDeviceGetMaxClockInfo", clockSM) }
func (d Device) MaxMemClockMHz() Field[int] { return d.clock("nvmlDeviceGetMaxClockInfo", clockMem) }

// PowerMilliwatts is the draw now (an average over a second on newer GPUs),
// PowerLimitMilliwatts what is enforced. Source: nvmlDeviceGetPowerUsage,
// nvmlDeviceGetEnforcedPowerLimit.
func (d Device) PowerMilliwatts() Field[int]      { return d.u32("nvmlDeviceGetPowerUsage") }
func (d Device) PowerLimitMilliwatts() Field[int] { return d.u32("nvmlDeviceGetEnforcedPowerLimit") }

// TemperatureC is the die's. Source: nvmlDeviceGetTemperature.
func (d Device) TemperatureC() Field[int] {
	var v uint32
	err := d.a.call([]string{"nvmlDeviceGetTemperature"}, d.h, 0, uintptr(unsafe.Pointer(&v)))
	return field(int(v), err)
}

// mode reads a call of the shape (device, current*, pending*).
func (d Device) mode(call string) Field[bool] {
	var now, pending uint32
	err := d.a.call([]string{call}, d.h, uintptr(unsafe.Pointer(&now)), uintptr(unsafe.Pointer(&pending)))
	return field(now != 0, err)
}

// ECC and MIG say whether they are on now. Source: nvmlDeviceGetEccMode,
// nvmlDeviceGetMigMode.
func (d Device) ECC() Field[bool] { return d.mode("nvmlDeviceGetEccMode") }
func (d Device) MIG() Field[bool] { return d.mode("nvmlDeviceGetMigMode") }

// Persistence says whether the driver stays loaded without clients. Source:
// nvmlDeviceGetPersistenceMode.
func (d Device) Persistence() Field[bool] {
	f := d.u32("nvmlDeviceGetPersistenceMode")
	return Field[bool]{f.Value != 0, f.Absent}
}

// Utilisation is in percent over the last sample period, which is up to a
// second.
type Utilisation struct{ GPU, Memory int }

// Utilisation is the share of time with a kernel running, and with memory being
// accessed. Source: nvmlDeviceGetUtilizationRates.
func (d Device) Utilisation() Field[Utilisation] {
	var u struct{ gpu, mem uint32 }
	err := d.a.call([]string{"nvmlDeviceGetUtilizationRates"}, d.h, uintptr(unsafe.Pointer(&u)))
	return field(Utilisation{int(u.gpu), int(u.mem)}, err)
}

// Memory is in bytes; Used includes what the driver reserves.
type Memory struct{ Total, Free, Used uint64 }

// Memory is the GPU's, over all processes. Source: nvmlDeviceGetMemoryInfo.
func (d Device) Memory() Field[Memory] {
	var m Memory
	err := d.a.call([]string{"nvmlDeviceGetMemoryInfo"}, d.h, uintptr(unsafe.Pointer(&m)))
	return field(m, err)
}

// Reasons are the causes that hold the clocks down, one bit each.
type Reasons uint64

// The bits. Source: nvmlClocksEventReason* in nvml.h.
const (
	GPUIdle            Reasons = 1 << 0
	ApplicationsClocks Reasons = 1 << 1
	SWPowerCap         Reasons = 1 << 2
	HWSlowdown         Reasons = 1 << 3
	SyncBoost          Reasons = 1 << 4
	SWThermalSlowdown  Reasons = 1 << 5
	HWThermalSlowdown  Reasons = 1 << 6
	HWPowerBrake       Reasons = 1 << 7
	DisplayClock       Reasons = 1 << 8
)

var reasonNames = []string{"gpu_idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost",
	"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake", "display_clock"}

// Names lists the causes; a bit that is not known here by its number.
func (r Reasons) Names() []string {
	var names []string
	for i := range 64 {
		if r&(1<<i) == 0 {
			continue
		}
		if i < len(reasonNames) {
			names = append(names, reasonNames[i])
		} else {
			names = append(names, fmt.Sprintf("bit_%d", i))
		}
	}
	return names
}

// Throttled says that a cause other than idleness or a chosen clock is at
// work: the GPU is slower than it was asked to be.
func (r Reasons) Throttled() bool {
	return r&(SWPowerCap|HWSlowdown|SWThermalSlowdown|HWThermalSlowdown|HWPowerBrake) != 0
}

func (r Reasons) String() string {
	if r == 0 {
		return "none"
	}
	return strings.Join(r.Names(), ", ")
}

// Reasons are the causes at work now. Source:
// nvmlDeviceGetCurrentClocksEventReasons, in older drivers
// nvmlDeviceGetCurrentClocksThrottleReasons.
func (d Device) Reasons() Field[Reasons] {
	var v uint64
	err := d.a.call([]string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
		d.h, uintptr(unsafe.Pointer(&v)))
	return field(Reasons(v), err)
}

// Snapshot is everything at one moment. Clocks fall within milliseconds when a
// GPU falls idle, so a snapshot says most while work runs.
type Snapshot struct {
	Name, UUID, DriverVersion             Field[string]
	SMClockMHz, MemClockMHz               Field[int]
	MaxSMClockMHz, MaxMemClockMHz         Field[int]
	PowerMilliwatts, PowerLimitMilliwatts Field[int]
	TemperatureC                          Field[int]
	ECC, MIG, Persistence                 Field[bool]
	Reasons                               Field[Reasons]
	Utilisation                           Field[Utilisation]
	Memory                                Field[Memory]
}

// Snapshot reads all fields, one after another.
func (d Device) Snapshot() Snapshot {
	return Snapshot{
		Name: d.Name(), UUID: d.UUID(), DriverVersion: d.a.DriverVersion(),
		SMClockMHz: d.SMClockMHz(), MemClockMHz: d.MemClockMHz(),
		MaxSMClockMHz: d.MaxSMClockMHz(), MaxMemClockMHz: d.MaxMemClockMHz(),
		PowerMilliwatts: d.PowerMilliwatts(), PowerLimitMilliwatts: d.PowerLimitMilliwatts(),
		TemperatureC: d.TemperatureC(),
		ECC:          d.ECC(), MIG: d.MIG(), Persistence: d.Persistence(),
		Reasons: d.Reasons(), Utilisation: d.Utilisation(), Memory: d.Memory(),
	}
}
