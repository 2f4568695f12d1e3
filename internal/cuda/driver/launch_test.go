package driver_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/dl"
)

func TestDevice(t *testing.T) {
	h := newHost(t, fake.H200(2))
	n, err := h.DeviceGetCount()
	h.ok(err)
	name, err := h.DeviceGetName(0)
	h.ok(err)
	major, err := h.DeviceGetAttribute(0, driver.DeviceComputeCapabilityMajor)
	h.ok(err)
	bus, err := h.DeviceGetPCIBusID(0)
	h.ok(err)
	total, err := h.DeviceTotalMem(0)
	h.ok(err)
	if n < 1 || name == "" || major < 6 || !strings.HasPrefix(bus, "0000") || total < 1<<30 {
		t.Errorf("%d, %q, %d, %q, %d", n, name, major, bus, total)
	}
	if _, err := h.DeviceGet(n); !errors.Is(err, driver.InvalidDevice) {
		t.Errorf("a device too many: %v", err)
	}
	if c, err := h.CtxGetCurrent(); err != nil || c != h.ctx {
		t.Errorf("current context %#x, want %#x (%v)", c, h.ctx, err)
	}
	h.ok(h.elsewhere(func() error {
		d, err := h.CtxGetDevice()
		if d != 0 {
			t.Errorf("device %d on another thread", d)
		}
		return err
	}))
	least, greatest, err := h.CtxGetStreamPriorityRange()
	if err != nil || greatest > least {
		t.Errorf("priorities %d to %d, %v", least, greatest, err)
	}
	s, err := h.StreamCreateWithPriority(driver.StreamNonBlocking, greatest)
	h.ok(err)
	h.ok(h.StreamDestroy(s))
	if active, err := h.DevicePrimaryCtxActive(0); err != nil || !active {
		t.Errorf("primary context active: %v, %v", active, err)
	}
}

func TestMemory(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	const n = 1 << 16
	free0, total, err := h.MemGetInfo()
	h.ok(err)
	d := must(h.MemAlloc(n))(t)
	free1, _, _ := h.MemGetInfo()
	if free1 > free0 || free0 > total {
		t.Errorf("free %d, then %d of %d", free0, free1, total)
	}
	base, size, err := h.MemGetAddressRange(d + 100)
	if err != nil || base != d || size != n {
		t.Errorf("range %#x+%d, %v", base, size, err)
	}
	pin := must(h.MemHostAlloc(n, driver.HostPortable|driver.HostDeviceMap))(t)
	if p, err := h.MemHostGetDevicePointer(pin); err != nil || p == 0 {
		t.Errorf("device pointer of pinned memory %#x, %v", p, err)
	}
	b := pin.Bytes(n)
	for i := range b {
		b[i] = byte(i)
	}
	want := bytes.Clone(b)
	h.ok(h.MemcpyHtoDAsync(d, pin.Addr(), n, s))
	h.ok(h.MemsetD8Async(d, 7, 16, s))
	h.ok(h.MemsetD32Async(d+16, 0x01020304, 2, s))
	h.ok(h.MemcpyDtoDAsync(d+32, d, 16, s))
	h.ok(h.StreamSynchronize(s))
	copy(want, bytes.Repeat([]byte{7}, 16))
	copy(want[16:], []byte{4, 3, 2, 1, 4, 3, 2, 1})
	copy(want[32:], want[:16])
	got := make([]byte, n)
	h.ok(h.MemcpyDtoH(got, d))
	if !bytes.Equal(got, want) {
		t.Error("memory differs")
	}
	h.ok(h.MemcpyDtoHAsync(pin.Addr(), d, n, s))
	h.ok(h.StreamSynchronize(s))
	if !bytes.Equal(b, want) {
		t.Error("pinned memory differs")
	}
	h.ok(h.MemcpyDtoD(d, d+64, 8))
	h.ok(h.MemFreeHost(pin))
	h.ok(h.MemFree(d))
	if _, err := h.MemAlloc(1 << 50); !errors.Is(err, driver.OutOfMemory) {
		t.Errorf("a petabyte: %v", err)
	}
}

func TestModule(t *testing.T) {
	h := newHost(t, fake.H200(1))
	_, err := h.ModuleLoadData([]byte("no PTX"))
	var e *driver.Error
	if !errors.As(err, &e) || e.Detail == "" {
		t.Errorf("a module of nonsense: %v", err)
	}
	_, err = h.ModuleGetFunction(h.mod, "absent")
	if !errors.Is(err, driver.NotFound) || !strings.Contains(err.Error(), "absent") {
		t.Errorf("an absent function: %v", err)
	}
	name, err := h.FuncGetName(h.add)
	if err != nil || name != "add_u32" {
		t.Errorf("name %q, %v", name, err)
	}
	ps, err := h.FuncGetParams(h.mad)
	if want := []driver.ParamInfo{{Offset: 0, Size: 8}, {Offset: 8, Size: 4}, {Offset: 12, Size: 4}}; err != nil || !reflect.DeepEqual(ps, want) {
		t.Errorf("parameters %v, %v", ps, err)
	}
	if n, err := h.FuncGetAttribute(h.add, driver.FuncMaxThreadsPerBlock); err != nil || n < 32 {
		t.Errorf("threads a block: %d, %v", n, err)
	}
	h.ok(h.FuncSetAttribute(h.add, driver.FuncMaxDynamicShared, 64<<10))
	if n, err := h.OccupancyMaxActiveBlocks(h.add, 128, 0); err != nil || n < 1 {
		t.Errorf("blocks a multiprocessor: %d, %v", n, err)
	}
}

func TestLaunch(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	for _, c := range []struct {
		name  string
		attrs []driver.LaunchAttr
		call  string
	}{
		{"plain", nil, "cuLaunchKernel"},
		{"with attributes", []driver.LaunchAttr{driver.ProgrammaticSerialization()}, "cuLaunchKernelEx"},
	} {
		h.set(1)
		l := h.kernel(s, 3, 4, c.attrs...)
		if l.Call() != c.call {
			t.Errorf("%s: prepared %s", c.name, l.Call())
		}
		for range 3 {
			h.submit(l)
		}
		h.ok(h.StreamSynchronize(s))
		if v := h.value(); v != ((1*3+4)*3+4)*3+4 {
			t.Errorf("%s: %d", c.name, v)
		}
	}
	bad := must(h.PrepareKernel(h.mem, driver.KernelSpec{Func: h.add, Name: "add_u32", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{2048, 1, 1},
		Stream: s, Args: new(driver.Args).Ptr(h.word).U32(1)}))(t)
	if err := h.LaunchError(bad, h.Submit(bad)); !errors.Is(err, driver.InvalidValue) || !strings.Contains(err.Error(), "add_u32") {
		t.Errorf("2048 threads a block: %v", err)
	}
	if _, err := h.PrepareKernel(h.mem, driver.KernelSpec{Name: "none"}); err == nil {
		t.Error("a launch without a function was prepared")
	}
}

func TestEvents(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s, o := h.stream(driver.StreamNonBlocking), h.stream(driver.StreamNonBlocking)
	a, b := h.event(), h.event()
	h.set(1)
	h.ok(h.EventRecord(a, s))
	h.submit(h.kernel(s, 0, 1))
	h.ok(h.EventRecord(b, s))
	h.ok(h.StreamWaitEvent(o, b, 0))
	h.submit(h.kernel(o, 10, 0))
	h.ok(h.EventSynchronize(b))
	if ok, err := h.EventQuery(b); !ok || err != nil {
		t.Errorf("query after the wait: %v, %v", ok, err)
	}
	ms, err := h.EventElapsedMs(a, b)
	if err != nil || ms < 0 || ms > 10e3 {
		t.Errorf("elapsed %v ms, %v", ms, err)
	}
	h.ok(h.StreamSynchronize(o))
	if v := h.value(); v != 20 {
		t.Errorf("the other stream did not wait: %d", v)
	}
	if ok, err := h.StreamQuery(o); !ok || err != nil {
		t.Errorf("stream query: %v, %v", ok, err)
	}
	plain := must(h.EventCreate(driver.EventDisableTiming))(t)
	h.ok(h.EventRecord(plain, s))
	h.ok(h.EventSynchronize(plain))
	if _, err := h.EventElapsedMs(a, plain); !errors.Is(err, driver.InvalidHandle) {
		t.Errorf("timing of an event that has none: %v", err)
	}
	h.ok(h.EventDestroy(plain))
}

// instead answers some names with another address.
type instead struct {
	dl.Resolver
	names []string
	addr  uintptr
}

func (r instead) Lookup(name string) (uintptr, error) {
	if slices.Contains(r.names, name) {
		return r.addr, nil
	}
	return r.Resolver.Lookup(name)
}

// hotPath prepares every kind of launch, with a C function that does nothing in
// the driver's place, so that the binding's own cost is seen.
func hotPath(t testing.TB) (*driver.API, map[string]*driver.Launch) {
	libc, err := dl.Open(dl.Query{Files: []string{"libc.so.6"}, Dirs: []string{}})
	if err != nil {
		t.Skip(err)
	}
	nop, err := libc.Lookup("labs")
	if err != nil {
		t.Skip(err)
	}
	m := fake.H200(1)
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop() })
	a, err := driver.New(instead{r, []string{"cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuEventRecord", "cuStreamWaitEvent",
		"cuStreamSynchronize", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async"}, nop})
	if err != nil {
		t.Fatal(err)
	}
	mem := driver.NewMemory()
	t.Cleanup(func() { mem.Close() })
	spec := driver.KernelSpec{Func: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: new(driver.Args).U64(1).F32(2)}
	ls := map[string]*driver.Launch{}
	add := func(name string, l *driver.Launch, err error) {
		if err != nil {
			t.Fatal(err)
		}
		ls[name] = l
	}
	l, err := a.PrepareKernel(mem, spec)
	add("kernel", l, err)
	spec.Attrs = []driver.LaunchAttr{driver.ProgrammaticSerialization()}
	l, err = a.PrepareKernel(mem, spec)
	add("kernelEx", l, err)
	l, err = a.PrepareGraphLaunch(1, 1)
	add("graph", l, err)
	l, err = a.PrepareEventRecord(1, 1)
	add("record", l, err)
	l, err = a.PrepareStreamWaitEvent(1, 1)
	add("wait", l, err)
	l, err = a.PrepareStreamSynchronize(1)
	add("sync", l, err)
	l, err = a.PrepareMemcpyHtoD(1, 1, 1, 1)
	add("copy", l, err)
	l, err = a.PrepareMemsetD8(1, 1, 1, 1)
	add("fill", l, err)
	return a, ls
}

func TestSubmitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools forget")
	}
	a, ls := hotPath(t)
	for name, l := range ls {
		if n := testing.AllocsPerRun(1000, func() { a.Submit(l) }); n != 0 {
			t.Errorf("%s: %v allocations a submission", name, n)
		}
	}
}

// BenchmarkSubmit is the binding's cost of a call: into a C function that does
// nothing, and into the fake driver, which is Go behind a callback.
func BenchmarkSubmit(b *testing.B) {
	a, ls := hotPath(b)
	for _, name := range []string{"kernel", "graph"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Submit(ls[name])
			}
		})
	}
	b.Run("fake", func(b *testing.B) {
		mem := driver.NewMemory()
		defer mem.Close()
		l, err := a.PrepareNop(mem)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			a.Submit(l)
		}
	})
}

func TestMemoryBlocks(t *testing.T) {
	m := driver.NewMemory()
	var all [][]byte
	for i := 1; i < 3000; i += 7 {
		b, err := m.Alloc(i)
		if err != nil {
			t.Fatal(err)
		}
		if uintptr(unsafe.Pointer(&b[0]))%16 != 0 || len(b) != i {
			t.Fatalf("block of %d: %p, %d bytes", i, &b[0], len(b))
		}
		for _, v := range b {
			if v != 0 {
				t.Fatal("not zero")
			}
		}
		for j := range b {
			b[j] = byte(i)
		}
		all = append(all, b)
	}
	for k, b := range all {
		for _, v := range b {
			if v != byte(1+7*k) {
				t.Fatal("blocks overlap")
			}
		}
	}
	if b, err := m.Alloc(1 << 20); err != nil || len(b) != 1<<20 {
		t.Errorf("a large block: %v", err)
	}
	if m.Size() < 1<<20 {
		t.Errorf("size %d", m.Size())
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Alloc(1); err == nil {
		t.Error("a closed memory gave a block")
	}
}

// TestDeviceOrdinal keeps work on the device that a thread's context names.
func TestDeviceOrdinal(t *testing.T) {
	if onGPU() {
		t.Skip("wants two GPUs")
	}
	h := newHost(t, fake.H200(2))
	d1 := must(h.DeviceGet(1))(t)
	c1 := must(h.DevicePrimaryCtxRetain(d1))(t)
	h.ok(h.CtxSetCurrent(c1))
	p := must(h.MemAlloc(256))(t)
	s1 := must(h.StreamCreate(driver.StreamNonBlocking))(t)
	// The module belongs to device 0: its kernel does not run on device 1.
	l := h.kernel(s1, 0, 1)
	if err := h.LaunchError(l, h.Submit(l)); !errors.Is(err, driver.InvalidHandle) {
		t.Errorf("a kernel of device 0 on a stream of device 1: %v", err)
	}
	// Nor may device 1 touch memory of device 0.
	if err := h.MemsetD8Async(h.word, 0, 4, s1); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("memory of device 0 on a stream of device 1: %v", err)
	}
	h.ok(h.StreamDestroy(s1))
	h.ok(h.MemFree(p))
	h.ok(h.DevicePrimaryCtxRelease(d1))
	h.ok(h.CtxSetCurrent(h.ctx))
}

func TestFaults(t *testing.T) {
	if onGPU() {
		t.Skip("faults are the fake driver's")
	}
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	h.m.Fail(fake.Fault{Call: "cuLaunchKernel", Nth: 3, Code: uint32(driver.LaunchOutOfResources)})
	l := h.kernel(s, 0, 1)
	var codes []driver.Result
	for range 4 {
		codes = append(codes, h.Submit(l))
	}
	if want := []driver.Result{0, 0, driver.LaunchOutOfResources, 0}; !reflect.DeepEqual(codes, want) {
		t.Errorf("codes %v", codes)
	}
	h.ok(h.StreamSynchronize(s))
	if v := h.value(); v != 3 {
		t.Errorf("the failed launch ran: %d", v)
	}
	// A kernel's failure turns up at the next wait and stays.
	h.m.ClearFaults()
	h.m.Fail(fake.Fault{Kernel: "add_u32", Nth: 2, Code: uint32(driver.IllegalAddress)})
	for range 3 {
		h.submit(l)
	}
	if err := h.StreamSynchronize(s); !errors.Is(err, driver.IllegalAddress) || !code(err).Sticky() {
		t.Errorf("the wait after a failed kernel: %v", err)
	}
	if r := h.Submit(l); r != driver.IllegalAddress {
		t.Errorf("a launch after it: %v", r)
	}
	if _, err := h.MemAlloc(1); !errors.Is(err, driver.IllegalAddress) {
		t.Errorf("an allocation after it: %v", err)
	}
	if r := h.m.Reports(); len(r) != 1 || !strings.Contains(r[0], "add_u32") {
		t.Errorf("reports %q", r)
	}
}

// TestSlowStream shows that work is asynchronous: a stream held still holds
// nothing else.
func TestSlowStream(t *testing.T) {
	if onGPU() {
		t.Skip("holding a stream is the fake driver's")
	}
	h := newHost(t, fake.H200(1))
	s, o := h.stream(driver.StreamNonBlocking), h.stream(driver.StreamNonBlocking)
	release := h.m.Hold(uintptr(s))
	e := h.event()
	h.submit(h.kernel(s, 0, 1))
	h.ok(h.EventRecord(e, s))
	if ok, err := h.StreamQuery(s); ok || err != nil {
		t.Errorf("a held stream is idle: %v", err)
	}
	if ok, err := h.EventQuery(e); ok || err != nil {
		t.Errorf("an event behind it is reached: %v", err)
	}
	h.submit(h.kernel(o, 0, 7))
	h.ok(h.StreamSynchronize(o))
	if v := h.value(); v != 7 {
		t.Errorf("the other stream left %d", v)
	}
	release()
	h.ok(h.EventSynchronize(e))
	if v := h.value(); v != 8 {
		t.Errorf("after the release: %d", v)
	}
	began := time.Now()
	h.m.Delay(uintptr(s), 20*time.Millisecond)
	h.submit(h.kernel(s, 0, 1))
	h.ok(h.StreamSynchronize(s))
	if d := time.Since(began); d < 20*time.Millisecond {
		t.Errorf("the delayed stream took %v", d)
	}
}

func TestLog(t *testing.T) {
	if onGPU() {
		t.Skip("the log is the fake driver's")
	}
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	e := h.event()
	l := h.kernel(s, 0, 1)
	h.m.Record(true)
	h.submit(l)
	h.ok(h.EventRecord(e, s))
	h.ok(h.MemsetD8Async(h.word+4, 1, 8, s))
	h.ok(h.StreamSynchronize(s))
	h.StreamEndCapture(s)
	want := []string{
		"cuLaunchKernel add_u32 grid=[1 1 1] block=[1 1 1] stream1",
		"cuEventRecord event1 stream1",
		"cuMemsetD8Async memory1+4 1 8 stream1",
		"cuStreamSynchronize stream1",
		"cuStreamEndCapture stream1 = 401",
	}
	if got := h.m.Log(); !reflect.DeepEqual(got, want) {
		t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := h.m.Calls("cuLaunchKernel"); n != 1 {
		t.Errorf("%d launches counted", n)
	}
}
