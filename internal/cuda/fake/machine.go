package fake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// GPU describes a device of a machine.
type GPU struct {
	Name       string
	Memory     uint64 // bytes
	Major      int    // compute capability
	Minor      int
	SMs        int
	ClockKHz   int
	MemKHz     int
	BusWidth   int
	L2         int
	SharedMax  int // bytes a block may opt in to
	SharedSM   int
	Attributes map[uint32]int // by CUdevice_attribute; wins over the fields above
}

// Machine is a computer with GPUs and a driver. Its methods may be called on
// any thread.
type Machine struct {
	Name    string
	Version int // CUDA's, 1000*major + 10*minor
	GPUs    []GPU
	// InitCode is what cuInit returns, 0 for success; without GPUs it is 100.
	InitCode uint32
	// Absent lists symbols that this driver lacks beyond those newer than its
	// version.
	Absent []string

	mu               sync.Mutex
	started, stopped bool
	inited           bool
	ctxs             []*context
	threads          map[int]*thread
	objects          map[uintptr]any
	next             uintptr
	numbers          map[string]int // objects made, by kind
	mem              *memMap
	kernels          map[string]*kernel
	// captures are those begun and not ended.
	captures  []*capture
	captureID uint64

	faults  []*Fault
	calls   map[string]int
	logging bool
	log     []string
	desc    string // of the call under way

	lazyInCapture []string
	unregistered  []string
	allocsInCap   int

	// correlation is the number of the call under way, where a profiler
	// records; it is read before the call lets others in.
	correlation uint32

	failMu  sync.Mutex // failing kernels only
	reports []string
}

// thread is what the driver keeps for an OS thread.
type thread struct {
	id   int
	ctx  *context
	mode int
	// waits is the profiler's number of the stream that the call under way
	// waits for.
	waits uint32
}

func h200() GPU {
	return GPU{Name: "NVIDIA H200", Memory: 150_754_820_096, Major: 9, SMs: 132, ClockKHz: 1_980_000,
		MemKHz: 3_201_000, BusWidth: 6144, L2: 60 << 20, SharedMax: 232_448, SharedSM: 233_472}
}

// H200 is a server with n H200 and a driver for CUDA 13.0.
func H200(n int) *Machine { return machine("H200", 13000, h200(), n) }

// RTX4090 is a desktop with n RTX 4090 and a driver for CUDA 12.4.
func RTX4090(n int) *Machine {
	return machine("RTX4090", 12040, GPU{Name: "NVIDIA GeForce RTX 4090", Memory: 25_250_627_584, Major: 8, Minor: 9, SMs: 128,
		ClockKHz: 2_520_000, MemKHz: 10_501_000, BusWidth: 384, L2: 72 << 20, SharedMax: 101_376, SharedSM: 102_400}, n)
}

// A100 is a server with n A100 and a driver for CUDA 12.2, which knows neither
// edge data nor cuFuncLoad.
func A100(n int) *Machine {
	return machine("A100", 12020, GPU{Name: "NVIDIA A100-SXM4-80GB", Memory: 85_097_971_712, Major: 8, SMs: 108,
		ClockKHz: 1_410_000, MemKHz: 1_593_000, BusWidth: 5120, L2: 40 << 20, SharedMax: 166_912, SharedSM: 167_936}, n)
}

// V100 is a server with n V100 and a driver for CUDA 11.8.
func V100(n int) *Machine {
	return machine("V100", 11080, GPU{Name: "Tesla V100-SXM2-16GB", Memory: 16_928_342_016, Major: 7, SMs: 80,
		ClockKHz: 1_530_000, MemKHz: 877_000, BusWidth: 4096, L2: 6 << 20, SharedMax: 98_304, SharedSM: 98_304}, n)
}

// Laptop has a driver for CUDA 12.4 and no GPU.
func Laptop() *Machine { return machine("Laptop", 12040, GPU{}, 0) }

func machine(name string, version int, g GPU, n int) *Machine {
	m := &Machine{Name: name, Version: version}
	for range n {
		m.GPUs = append(m.GPUs, g)
	}
	if n == 0 {
		m.InitCode = noDevice
	}
	return m
}

// running is the machine that the table of functions serves.
var running atomic.Pointer[Machine]

// Start makes m the machine that runs and returns its driver. It fails while
// another runs. The caller stops it. A machine starts once.
func (m *Machine) Start() (dl.Resolver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started {
		return nil, fmt.Errorf("fake driver: machine %s was started before", m.Name)
	}
	if !running.CompareAndSwap(nil, m) {
		return nil, errors.New("fake driver: another machine runs")
	}
	m.started = true
	m.threads = map[int]*thread{}
	m.objects = map[uintptr]any{}
	m.numbers = map[string]int{}
	m.calls = map[string]int{}
	m.mem = &memMap{}
	m.next = 0x5550_0000_1000
	for i := range m.GPUs {
		m.ctxs = append(m.ctxs, &context{m: m, dev: i})
	}
	return resolver{m}, nil
}

// Stop lets the streams finish, ends them, and makes room for another machine.
// It returns what was not given back, as [Machine.Leaks], and the failures of
// kernels that no call reported. More calls do nothing.
func (m *Machine) Stop() error {
	m.mu.Lock()
	if !m.started || m.stopped {
		m.mu.Unlock()
		return nil
	}
	m.stopped = true
	leaks := m.leaks()
	var streams []*stream
	for _, o := range m.objects {
		if s, ok := o.(*stream); ok {
			streams = append(streams, s)
		}
	}
	for _, c := range m.ctxs {
		if c.legacy != nil {
			streams = append(streams, c.legacy)
		}
	}
	last := make([]*item, 0, len(streams))
	for _, s := range streams {
		s.release()
		last = append(last, s.last)
		s.stop()
	}
	m.mu.Unlock()
	for _, it := range last {
		it.wait()
	}
	running.CompareAndSwap(m, nil)
	var err error
	if len(leaks) > 0 {
		err = fmt.Errorf("fake driver: not given back: %s", strings.Join(leaks, ", "))
	}
	for _, c := range m.ctxs {
		if code := c.failed.Load(); code != 0 && !c.poisoned {
			err = errors.Join(err, fmt.Errorf("fake driver: device %d: kernel failed with %d and no call reported it: %s", c.dev, code, strings.Join(m.Reports(), "; ")))
		}
	}
	return err
}

type resolver struct{ m *Machine }

// Lookup finds a function of the table, if this driver's version has it.
func (r resolver) Lookup(name string) (uintptr, error) {
	f, ok := functions()[name]
	if !ok || f.since > r.m.Version || slices.Contains(r.m.Absent, name) {
		return 0, fmt.Errorf("fake driver %s: %s: %w", r.m.Name, name, dl.ErrNoSymbol)
	}
	return f.addr, nil
}

// Fault makes calls fail.
type Fault struct {
	// Call is the symbol, "cuLaunchKernel".
	Call string
	// Nth counts calls of that symbol from now on, from 1; 0 means each.
	Nth int
	// Code is returned; the call has no other effect.
	Code uint32
	// Invalidate also invalidates the captures of the calling thread, as
	// failures inside a capture mostly do. Codes from 900 to 908 always do.
	Invalidate bool
	// Kernel, if set, restricts the fault to launches of that kernel and makes
	// it asynchronous: the launch succeeds, the kernel then fails with Code at
	// its execution (replays count too), which the next synchronising call
	// reports; from then on the context is unusable.
	Kernel string

	seen int
}

// Fail adds a fault.
func (m *Machine) Fail(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// ClearFaults takes all faults away.
func (m *Machine) ClearFaults() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// fault returns the code that a call must fail with.
func (m *Machine) fault(call string) (code, bool) {
	for _, f := range m.faults {
		if f.Kernel != "" || f.Call != call {
			continue
		}
		f.seen++
		if f.Nth == 0 || f.Nth == f.seen {
			return f.Code, f.Invalidate || f.Code >= captureUnsupported && f.Code <= captureWrongThread
		}
	}
	return 0, false
}

// kernelFault returns the code that an execution of a kernel must fail with.
func (m *Machine) kernelFault(name string) code {
	for _, f := range m.faults {
		if f.Kernel != name {
			continue
		}
		f.seen++
		if f.Nth == 0 || f.Nth == f.seen {
			return f.Code
		}
	}
	return 0
}

// Record switches the log of calls on or off and empties it.
func (m *Machine) Record(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logging, m.log = on, nil
}

// Log returns the calls since Record, one a line: the symbol, the objects by
// kind and number in order of creation ("stream1"), and the code if it is not
// 0.
func (m *Machine) Log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// Calls counts the calls of a symbol since the start.
func (m *Machine) Calls(symbol string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[symbol]
}

// Live counts the objects that were not given back, by kind: "context",
// "stream", "event", "module", "graph", "exec", "memory", "pinned".
func (m *Machine) Live() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live()
}

func (m *Machine) live() map[string]int {
	n := map[string]int{}
	for _, o := range m.objects {
		switch o := o.(type) {
		case *stream:
			n["stream"]++
		case *event:
			n["event"]++
		case *module:
			n["module"]++
		case *graph:
			if !o.capturing {
				n["graph"]++
			}
		case *exec:
			n["exec"]++
		}
	}
	for _, a := range m.mem.allocs {
		if a.host {
			n["pinned"]++
		} else {
			n["memory"]++
		}
	}
	for _, c := range m.ctxs {
		if c.refs > 0 {
			n["context"] += c.refs
		}
	}
	return n
}

func (m *Machine) leaks() []string {
	var out []string
	live := m.live()
	for _, k := range slices.Sorted(maps.Keys(live)) {
		out = append(out, fmt.Sprintf("%d %s", live[k], k))
	}
	return out
}

// LazyInCapture lists kernels that were first used inside a capture, neither
// loaded (cuFuncLoad) nor launched before.
func (m *Machine) LazyInCapture() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lazyInCapture)
}

// Unregistered lists kernels that a module has and a caller asked for, but
// nobody registered.
func (m *Machine) Unregistered() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.unregistered)
}

// AllocsInCapture counts allocations, of any kind, made while a capture was
// under way on any thread.
func (m *Machine) AllocsInCapture() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocsInCap
}

// Reports lists what failed kernels said.
func (m *Machine) Reports() []string {
	m.failMu.Lock()
	defer m.failMu.Unlock()
	return slices.Clone(m.reports)
}

// thread returns the record of the calling OS thread.
func (m *Machine) thread() *thread {
	id := syscall.Gettid()
	t := m.threads[id]
	if t == nil {
		t = &thread{id: id}
		m.threads[id] = t
	}
	return t
}

// do is the frame of every call: it finds the machine, counts, injects faults,
// logs. body runs with the machine locked; it may unlock it to wait.
func do(name string, body func(m *Machine, t *thread) code) uintptr {
	m := running.Load()
	if m == nil {
		return uintptr(notInitialized)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[name]++
	t := m.thread()
	if m.logging {
		m.desc = ""
	}
	r, invalidate := m.fault(name)
	if end := m.calling(name, t, &r); end != nil {
		defer end()
	}
	if r != 0 {
		if invalidate {
			for _, c := range m.captures {
				if c.thread == t.id {
					c.invalid = true
				}
			}
		}
		if m.logging {
			m.log = append(m.log, fmt.Sprintf("%s = %d", name, r))
		}
		return uintptr(r)
	}
	if !m.inited && name != "cuInit" && name != "cuDriverGetVersion" && name != "cuGetErrorName" {
		return uintptr(notInitialized)
	}
	// A blocking call lets others in; its line keeps the place where it began.
	at := -1
	if m.logging {
		at = len(m.log)
		m.log = append(m.log, name)
		defer func() {
			if at < len(m.log) && strings.HasPrefix(m.log[at], name) && r != 0 {
				m.log[at] += fmt.Sprintf(" = %d", r)
			}
		}()
	}
	r = body(m, t)
	return uintptr(r)
}

// say adds the call's arguments to its line in the log. It comes before
// anything that unlocks the machine.
func (m *Machine) say(format string, args ...any) {
	if m.logging && len(m.log) > 0 {
		m.log[len(m.log)-1] += " " + fmt.Sprintf(format, args...)
	}
}

// put gives an object a handle and a name.
func (m *Machine) put(kind string, o any) (uintptr, string) {
	m.next += 0x40
	m.objects[m.next] = o
	m.numbers[kind]++
	return m.next, fmt.Sprintf("%s%d", kind, m.numbers[kind])
}

// get finds an object by handle.
func get[T any](m *Machine, h uintptr) (T, code) {
	o, ok := m.objects[h].(T)
	if !ok {
		return o, invalidHandle
	}
	return o, success
}
