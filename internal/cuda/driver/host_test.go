package driver_test

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

// ptx holds the kernels of these tests, as a GPU compiles them and as the fake
// driver runs them ([register]).
const ptx = `
.version 7.0
.target sm_60
.address_size 64
.visible .entry add_u32(.param .u64 p, .param .u32 v)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [v];
	cvta.to.global.u64 %rd2, %rd1;
	ld.global.u32 %r2, [%rd2];
	add.u32 %r3, %r2, %r1;
	st.global.u32 [%rd2], %r3;
	ret;
}
.visible .entry mad_u32(.param .u64 p, .param .u32 a, .param .u32 b)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [a];
	ld.param.u32 %r2, [b];
	cvta.to.global.u64 %rd2, %rd1;
	ld.global.u32 %r3, [%rd2];
	mad.lo.u32 %r4, %r3, %r1, %r2;
	st.global.u32 [%rd2], %r4;
	ret;
}
`

func register(m *fake.Machine) {
	m.Register("add_u32", fake.Params(fake.Ptr, fake.U32), func(a fake.Args, _, _ [3]uint32) {
		fake.View[uint32](a, a.Ptr(0), 1)[0] += a.U32(1)
	})
	m.Register("mad_u32", fake.Params(fake.Ptr, fake.U32, fake.U32), func(a fake.Args, _, _ [3]uint32) {
		p := fake.View[uint32](a, a.Ptr(0), 1)
		p[0] = p[0]*a.U32(1) + a.U32(2)
	})
}

// host is a driver with a context on the calling thread, a module and a word of
// device memory.
type host struct {
	*driver.API
	t        *testing.T
	m        *fake.Machine // nil on a GPU
	ctx      driver.Context
	mod      driver.Module
	add, mad driver.Function
	mem      *driver.Memory
	word     driver.DevicePtr
}

// onGPU says that the tests run on the machine's GPU instead of the fake
// driver's.
func onGPU() bool { return os.Getenv("TRBENCH_TEST_GPU") != "" }

// newHost starts the machine, or the GPU if asked to, and locks the test's
// thread. Cleanup checks that everything was given back.
func newHost(t *testing.T, m *fake.Machine) *host {
	t.Helper()
	h := &host{t: t, mem: driver.NewMemory()}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var err error
	if onGPU() {
		h.API, err = driver.Open(driver.Options{})
	} else {
		register(m)
		r, serr := m.Start()
		if serr != nil {
			t.Fatal(serr)
		}
		h.m = m
		t.Cleanup(func() {
			if err := m.Stop(); err != nil && !t.Failed() {
				t.Error(err)
			}
		})
		h.API, err = driver.New(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := must(h.DeviceGet(0))(t)
	h.ctx = must(h.DevicePrimaryCtxRetain(d))(t)
	h.ok(h.CtxSetCurrent(h.ctx))
	h.mod = must(h.ModuleLoadData([]byte(ptx)))(t)
	h.add = must(h.ModuleGetFunction(h.mod, "add_u32"))(t)
	h.mad = must(h.ModuleGetFunction(h.mod, "mad_u32"))(t)
	for _, f := range []driver.Function{h.add, h.mad} {
		var missing *driver.MissingError
		if err := h.FuncLoad(f); err != nil && !errors.As(err, &missing) {
			t.Fatal(err)
		}
	}
	h.word = must(h.MemAlloc(256))(t)
	h.ok(h.MemsetD8(h.word, 0, 256))
	t.Cleanup(func() {
		h.CtxSetCurrent(h.ctx)
		h.MemFree(h.word)
		h.ModuleUnload(h.mod)
		h.DevicePrimaryCtxRelease(d)
		h.CtxSetCurrent(0)
		h.mem.Close()
	})
	return h
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (h *host) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) stream(flags driver.StreamFlags) driver.Stream {
	h.t.Helper()
	s := must(h.StreamCreate(flags))(h.t)
	h.t.Cleanup(func() { h.CtxSetCurrent(h.ctx); h.StreamDestroy(s) })
	return s
}

func (h *host) event() driver.Event {
	h.t.Helper()
	e := must(h.EventCreate(driver.EventDefault))(h.t)
	h.t.Cleanup(func() { h.EventDestroy(e) })
	return e
}

// kernel prepares word = word*a + b, or word += b if a is 0.
func (h *host) kernel(s driver.Stream, a, b uint32, attrs ...driver.LaunchAttr) *driver.Launch {
	h.t.Helper()
	spec := driver.KernelSpec{Func: h.add, Name: "add_u32", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Stream: s,
		Args: new(driver.Args).Ptr(h.word).U32(b), Attrs: attrs}
	if a != 0 {
		spec.Func, spec.Name = h.mad, "mad_u32"
		spec.Args = new(driver.Args).Ptr(h.word).U32(a).U32(b)
	}
	return must(h.PrepareKernel(h.mem, spec))(h.t)
}

func (h *host) submit(l *driver.Launch) {
	h.t.Helper()
	h.ok(h.LaunchError(l, h.Submit(l)))
}

func (h *host) value() uint32 {
	h.t.Helper()
	b := make([]byte, 4)
	h.ok(h.MemcpyDtoH(b, h.word))
	return binary.NativeEndian.Uint32(b)
}

func (h *host) set(v uint32) {
	h.t.Helper()
	h.ok(h.MemcpyHtoD(h.word, binary.NativeEndian.AppendUint32(nil, v)))
}

// elsewhere runs f on another OS thread with the context current.
func (h *host) elsewhere(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := h.CtxSetCurrent(h.ctx); err != nil {
			done <- err
			return
		}
		err := f()
		h.CtxSetCurrent(0)
		done <- err
		runtime.UnlockOSThread()
	}()
	return <-done
}

// code is the driver's code of an error, 0 for none, 1<<31 for another error.
func code(err error) driver.Result {
	var e *driver.Error
	switch {
	case err == nil:
		return driver.Success
	case errors.As(err, &e):
		return e.Code
	}
	return 1 << 31
}
