package fake

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// tableEntry is a C function's address and the version of CUDA that brought the
// symbol.
type tableEntry struct {
	addr  uintptr
	since int
}

var cErrorNames sync.Map // code -> *byte, never freed, as the driver's

// functions makes the table, once in a process.
var functions = sync.OnceValue(func() map[string]tableEntry {
	t := map[string]tableEntry{}
	def := func(name string, since int, fn any) {
		t[name] = tableEntry{purego.NewCallback(fn), since}
	}

	// Start and devices.

	def("cuInit", 2000, func(flags uint32) uintptr {
		return do("cuInit", func(m *Machine, t *thread) code {
			if m.InitCode == 0 {
				m.inited = true
			}
			return m.InitCode
		})
	})
	def("cuDriverGetVersion", 2020, func(v *int32) uintptr {
		return do("cuDriverGetVersion", func(m *Machine, t *thread) code { *v = int32(m.Version); return success })
	})
	def("cuGetErrorName", 6000, func(r uint32, out *unsafe.Pointer) uintptr {
		name, _ := cErrorNames.LoadOrStore(r, append(fmt.Appendf(nil, "CUDA_ERROR_FAKE_%d", r), 0))
		*out = unsafe.Pointer(&name.([]byte)[0])
		return 0
	})
	def("cuDeviceGetCount", 2000, func(n *int32) uintptr {
		return do("cuDeviceGetCount", func(m *Machine, t *thread) code { *n = int32(len(m.GPUs)); return success })
	})
	def("cuDeviceGet", 2000, func(d *int32, ordinal int32) uintptr {
		return do("cuDeviceGet", func(m *Machine, t *thread) code {
			if ordinal < 0 || int(ordinal) >= len(m.GPUs) {
				return invalidDevice
			}
			*d = ordinal
			return success
		})
	})
	device := func(name string, d int32, body func(m *Machine, t *thread, g GPU) code) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			if d < 0 || int(d) >= len(m.GPUs) {
				return invalidDevice
			}
			m.say("device%d", d)
			return body(m, t, m.GPUs[d])
		})
	}
	text := func(b *byte, n int32, s string) code {
		if n <= 0 {
			return invalidValue
		}
		out := unsafe.Slice(b, n)
		out[copy(out[:n-1], s)] = 0
		return success
	}
	def("cuDeviceGetName", 2000, func(b *byte, n, d int32) uintptr {
		return device("cuDeviceGetName", d, func(m *Machine, t *thread, g GPU) code { return text(b, n, g.Name) })
	})
	def("cuDeviceGetPCIBusId", 4010, func(b *byte, n, d int32) uintptr {
		return device("cuDeviceGetPCIBusId", d, func(m *Machine, t *thread, g GPU) code {
			return text(b, n, fmt.Sprintf("0000:%02x:00.0", 0x17+d))
		})
	})
	def("cuDeviceGetUuid_v2", 11040, func(u *[16]byte, d int32) uintptr {
		return device("cuDeviceGetUuid_v2", d, func(m *Machine, t *thread, g GPU) code {
			*u = [16]byte{0xfa, 0xce, 15: byte(d)}
			return success
		})
	})
	def("cuDeviceTotalMem_v2", 3020, func(n *uint64, d int32) uintptr {
		return device("cuDeviceTotalMem_v2", d, func(m *Machine, t *thread, g GPU) code { *n = g.Memory; return success })
	})
	def("cuDeviceGetAttribute", 2000, func(v *int32, attr uint32, d int32) uintptr {
		return device("cuDeviceGetAttribute", d, func(m *Machine, t *thread, g GPU) code {
			a, ok := g.attribute(attr)
			if !ok {
				return invalidValue
			}
			*v = int32(a)
			return success
		})
	})

	// Contexts.

	def("cuDevicePrimaryCtxRetain", 7000, func(out *uintptr, d int32) uintptr {
		return device("cuDevicePrimaryCtxRetain", d, func(m *Machine, t *thread, g GPU) code {
			c := m.ctxs[d]
			if c.refs == 0 {
				c.h, _ = m.put("context", c)
			}
			c.refs++
			*out = c.h
			return success
		})
	})
	def("cuDevicePrimaryCtxRelease_v2", 11000, func(d int32) uintptr {
		return device("cuDevicePrimaryCtxRelease_v2", d, func(m *Machine, t *thread, g GPU) code {
			c := m.ctxs[d]
			if c.refs == 0 {
				return invalidContext
			}
			c.refs--
			return success
		})
	})
	def("cuDevicePrimaryCtxGetState", 7000, func(d int32, flags *uint32, active *int32) uintptr {
		return device("cuDevicePrimaryCtxGetState", d, func(m *Machine, t *thread, g GPU) code {
			*flags, *active = 0, 0
			if m.ctxs[d].refs > 0 {
				*active = 1
			}
			return success
		})
	})
	def("cuCtxSetCurrent", 4000, func(h uintptr) uintptr {
		return do("cuCtxSetCurrent", func(m *Machine, t *thread) code {
			if h == 0 {
				t.ctx = nil
				return success
			}
			c, r := get[*context](m, h)
			if r != 0 || c.refs == 0 {
				return invalidContext
			}
			m.say("device%d", c.dev)
			t.ctx = c
			return success
		})
	})
	def("cuCtxGetCurrent", 4000, func(out *uintptr) uintptr {
		return do("cuCtxGetCurrent", func(m *Machine, t *thread) code {
			*out = 0
			if t.ctx != nil {
				*out = t.ctx.h
			}
			return success
		})
	})
	def("cuCtxGetDevice", 2000, func(d *int32) uintptr {
		return do("cuCtxGetDevice", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r == 0 {
				*d = int32(c.dev)
			}
			return r
		})
	})
	def("cuCtxSynchronize", 2000, func() uintptr {
		return do("cuCtxSynchronize", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			if r := m.conflict(func(k *capture) bool { return k.ctx == c }); r != 0 {
				return r
			}
			m.block(m.all(c)...)
			return c.report()
		})
	})
	def("cuCtxGetStreamPriorityRange", 5050, func(least, greatest *int32) uintptr {
		return do("cuCtxGetStreamPriorityRange", func(m *Machine, t *thread) code {
			if _, r := m.current(t); r != 0 {
				return r
			}
			*least, *greatest = 0, -5
			return success
		})
	})

	for _, name := range []string{"cuProfilerStart", "cuProfilerStop"} {
		def(name, 4000, func() uintptr {
			return do(name, func(m *Machine, t *thread) code {
				_, r := m.current(t)
				return r
			})
		})
	}

	// Memory.

	def("cuMemAlloc_v2", 3020, func(out *uint64, n uint64) uintptr {
		return do("cuMemAlloc_v2", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			m.say("%d", n)
			if r := m.prohibit(t); r != 0 {
				return r
			}
			if n == 0 {
				return invalidValue
			}
			if m.used(c.dev)+n > m.GPUs[c.dev].Memory {
				return outOfMemory
			}
			*out = uint64(m.alloc(c.dev, int(n), false).base)
			return success
		})
	})
	free := func(name string, p uint64, host bool) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if c == nil {
				return r
			}
			m.say("%s", m.at(p))
			if p == 0 {
				return r
			}
			a := m.mem.find(uintptr(p))
			if a == nil || a.host != host || uint64(a.base) != p {
				return invalidValue
			}
			if r == 0 {
				if r := m.prohibit(t); r != 0 {
					return r
				}
				m.block(m.all(m.ctxs[a.dev])...)
				r = c.report()
			}
			m.mem = m.mem.without(a)
			return r
		})
	}
	def("cuMemFree_v2", 3020, func(p uint64) uintptr { return free("cuMemFree_v2", p, false) })
	def("cuMemFreeHost", 2000, func(p unsafe.Pointer) uintptr {
		return free("cuMemFreeHost", uint64(uintptr(p)), true)
	})
	def("cuMemGetInfo_v2", 3020, func(free, total *uint64) uintptr {
		return do("cuMemGetInfo_v2", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			*total = m.GPUs[c.dev].Memory
			*free = *total - m.used(c.dev)
			return success
		})
	})
	def("cuMemGetAddressRange_v2", 3020, func(base, size *uint64, p uint64) uintptr {
		return do("cuMemGetAddressRange_v2", func(m *Machine, t *thread) code {
			if _, r := m.current(t); r != 0 {
				return r
			}
			a := m.mem.find(uintptr(p))
			if a == nil {
				return notFound
			}
			if base != nil {
				*base = uint64(a.base)
			}
			if size != nil {
				*size = uint64(len(a.buf))
			}
			return success
		})
	})
	def("cuMemHostAlloc", 2020, func(out *unsafe.Pointer, n uint64, flags uint32) uintptr {
		return do("cuMemHostAlloc", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			m.say("%d", n)
			if r := m.prohibit(t); r != 0 {
				return r
			}
			if n == 0 {
				return invalidValue
			}
			*out = unsafe.Pointer(&m.alloc(c.dev, int(n), true).buf[0])
			return success
		})
	})
	def("cuMemHostGetDevicePointer_v2", 3020, func(out *uint64, p unsafe.Pointer, flags uint32) uintptr {
		return do("cuMemHostGetDevicePointer_v2", func(m *Machine, t *thread) code {
			if m.mem.pinned(uintptr(p), 1) == nil {
				return invalidValue
			}
			*out = uint64(uintptr(p))
			return success
		})
	})

	// Copies and fills. The synchronous ones use the legacy stream.

	sync := func(name string, a activity, op func(m *Machine, c *context) (func(), code)) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			s, r := m.stream(t, 0)
			if r != 0 {
				return r
			}
			run, r := op(m, s.ctx)
			if r != 0 {
				return r
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			m.block(m.traced(s, a, run))
			return s.ctx.report()
		})
	}
	def("cuMemcpyHtoD_v2", 3020, func(dst uint64, src unsafe.Pointer, n uint64) uintptr {
		return sync("cuMemcpyHtoD_v2", activity{kind: actMemcpy, copyKind: 1, bytes: n}, func(m *Machine, c *context) (func(), code) {
			m.say("%s %d", m.at(dst), n)
			d := m.mem.device(c.dev, dst, int(n))
			if d == nil {
				return nil, invalidValue
			}
			return func() { copy(d, unsafe.Slice((*byte)(src), n)) }, success
		})
	})
	def("cuMemcpyDtoH_v2", 3020, func(dst unsafe.Pointer, src uint64, n uint64) uintptr {
		return sync("cuMemcpyDtoH_v2", activity{kind: actMemcpy, copyKind: 2, bytes: n}, func(m *Machine, c *context) (func(), code) {
			m.say("%s %d", m.at(src), n)
			s := m.mem.device(c.dev, src, int(n))
			if s == nil {
				return nil, invalidValue
			}
			return func() { copy(unsafe.Slice((*byte)(dst), n), s) }, success
		})
	})
	def("cuMemcpyDtoD_v2", 3020, func(dst, src uint64, n uint64) uintptr {
		return sync("cuMemcpyDtoD_v2", activity{kind: actMemcpy, copyKind: 8, bytes: n}, func(m *Machine, c *context) (func(), code) {
			m.say("%s %s %d", m.at(dst), m.at(src), n)
			d, s := m.mem.device(c.dev, dst, int(n)), m.mem.device(c.dev, src, int(n))
			if d == nil || s == nil {
				return nil, invalidValue
			}
			return func() { copy(d, s) }, success
		})
	})
	def("cuMemsetD8_v2", 3020, func(dst uint64, v uint8, n uint64) uintptr {
		return sync("cuMemsetD8_v2", activity{kind: actMemset, value: uint32(v), bytes: n}, func(m *Machine, c *context) (func(), code) {
			m.say("%s %d %d", m.at(dst), v, n)
			d := m.mem.device(c.dev, dst, int(n))
			if d == nil {
				return nil, invalidValue
			}
			return func() { fill(d, uint32(v), 1) }, success
		})
	})
	copyAsync := func(name string, o *copyOp, pageable unsafe.Pointer, sh uintptr) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			s, r := m.stream(t, sh)
			if r != 0 {
				return r
			}
			m.say("%s %s %d %s", m.at(o.dst), m.at(o.src), o.n, s.name)
			k, r := s.capturing()
			if r != 0 {
				return r
			}
			if o.n == 0 {
				return success
			}
			dst, src := o.ends(s.ctx, m.mem)
			staged := false
			if pageable != nil && (o.srcHost && src == nil || o.dstHost && dst == nil) {
				if k != nil {
					return invalidValue
				}
				staged = true
				if o.srcHost {
					src = slices.Clone(unsafe.Slice((*byte)(pageable), o.n))
				} else {
					dst = unsafe.Slice((*byte)(pageable), o.n)
				}
			}
			if dst == nil || src == nil {
				return invalidValue
			}
			if k != nil {
				k.add(m, s, &node{typ: typeMemcpy, cp: o})
				return success
			}
			a := activity{kind: actMemcpy, copyKind: o.kind(), bytes: uint64(o.n)}
			if staged {
				it := m.traced(s, a, func() { copy(dst, src) })
				if o.dstHost {
					// A copy to pageable memory returns when it is done.
					m.block(it)
				}
				return success
			}
			c, mem := s.ctx, m.mem
			m.traced(s, a, func() { o.run(c, mem) })
			return success
		})
	}
	def("cuMemcpyHtoDAsync_v2", 3020, func(dst uint64, src unsafe.Pointer, n uint64, s uintptr) uintptr {
		return copyAsync("cuMemcpyHtoDAsync_v2", &copyOp{dst: dst, src: uint64(uintptr(src)), n: int(n), srcHost: true}, src, s)
	})
	def("cuMemcpyDtoHAsync_v2", 3020, func(dst unsafe.Pointer, src uint64, n uint64, s uintptr) uintptr {
		return copyAsync("cuMemcpyDtoHAsync_v2", &copyOp{dst: uint64(uintptr(dst)), src: src, n: int(n), dstHost: true}, dst, s)
	})
	def("cuMemcpyDtoDAsync_v2", 3020, func(dst, src uint64, n uint64, s uintptr) uintptr {
		return copyAsync("cuMemcpyDtoDAsync_v2", &copyOp{dst: dst, src: src, n: int(n)}, nil, s)
	})
	setAsync := func(name string, o *setOp, sh uintptr) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			s, r := m.stream(t, sh)
			if r != 0 {
				return r
			}
			m.say("%s %d %d %s", m.at(o.dst), o.v, o.n, s.name)
			k, r := s.capturing()
			if r != 0 {
				return r
			}
			if o.n == 0 {
				return success
			}
			if o.dst%uint64(o.size) != 0 || m.mem.device(s.ctx.dev, o.dst, o.n*o.size) == nil {
				return invalidValue
			}
			if k != nil {
				k.add(m, s, &node{typ: typeMemset, set: o})
				return success
			}
			c, mem := s.ctx, m.mem
			m.traced(s, activity{kind: actMemset, value: o.v, bytes: uint64(o.n * o.size)}, func() { o.run(c, mem) })
			return success
		})
	}
	def("cuMemsetD8Async", 3020, func(dst uint64, v uint8, n uint64, s uintptr) uintptr {
		return setAsync("cuMemsetD8Async", &setOp{dst, uint32(v), 1, int(n)}, s)
	})
	def("cuMemsetD32Async", 3020, func(dst uint64, v uint32, n uint64, s uintptr) uintptr {
		return setAsync("cuMemsetD32Async", &setOp{dst, v, 4, int(n)}, s)
	})

	// Streams.

	create := func(name string, out *uintptr, flags uint32, priority int32) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			if flags > streamNonBlocking {
				return invalidValue
			}
			s := m.newStream(c, flags&streamNonBlocking == 0)
			s.priority = int(priority)
			s.h, s.name = m.put("stream", s)
			m.say("%s flags=%d", s.name, flags)
			*out = s.h
			return success
		})
	}
	def("cuStreamCreate", 2000, func(out *uintptr, flags uint32) uintptr {
		return create("cuStreamCreate", out, flags, 0)
	})
	def("cuStreamCreateWithPriority", 5050, func(out *uintptr, flags uint32, priority int32) uintptr {
		return create("cuStreamCreateWithPriority", out, flags, priority)
	})
	def("cuStreamDestroy_v2", 4000, func(h uintptr) uintptr {
		return do("cuStreamDestroy_v2", func(m *Machine, t *thread) code {
			s, r := get[*stream](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", s.name)
			if s.cap != nil {
				s.cap.invalid = true
				if s.cap.origin == s {
					k := s.cap
					m.endOf(k)
					m.dropGraph(k.g)
				}
			}
			delete(m.objects, h)
			s.stop()
			return success
		})
	})
	def("cuStreamSynchronize", 2000, func(h uintptr) uintptr {
		return do("cuStreamSynchronize", func(m *Machine, t *thread) code {
			s, r := m.stream(t, h)
			if r != 0 {
				return r
			}
			m.say("%s", s.name)
			if s.cap != nil {
				k := s.cap
				return m.conflict(func(c *capture) bool { return c == k })
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			t.waits = s.number()
			m.block(s.last)
			return s.ctx.report()
		})
	})
	def("cuStreamQuery", 2000, func(h uintptr) uintptr {
		return do("cuStreamQuery", func(m *Machine, t *thread) code {
			s, r := m.stream(t, h)
			if r != 0 {
				return r
			}
			m.say("%s", s.name)
			if s.cap != nil {
				k := s.cap
				return m.conflict(func(c *capture) bool { return c == k })
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			if !s.last.finished() {
				return notReady
			}
			return s.ctx.report()
		})
	})
	def("cuStreamWaitEvent", 3020, func(s, e uintptr, flags uint32) uintptr {
		return do("cuStreamWaitEvent", func(m *Machine, t *thread) code { return m.waitEvent(t, s, e, flags) })
	})

	// Events.

	def("cuEventCreate", 2000, func(out *uintptr, flags uint32) uintptr {
		return do("cuEventCreate", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			e := &event{ctx: c, timing: flags&eventDisableTiming == 0}
			e.h, e.name = m.put("event", e)
			m.say("%s flags=%d", e.name, flags)
			*out = e.h
			return success
		})
	})
	def("cuEventDestroy_v2", 4000, func(h uintptr) uintptr {
		return do("cuEventDestroy_v2", func(m *Machine, t *thread) code {
			e, r := get[*event](m, h)
			if r == 0 {
				m.say("%s", e.name)
				delete(m.objects, h)
			}
			return r
		})
	})
	def("cuEventRecord", 2000, func(e, s uintptr) uintptr {
		return do("cuEventRecord", func(m *Machine, t *thread) code { return m.record(t, e, s, 0) })
	})
	def("cuEventRecordWithFlags", 11010, func(e, s uintptr, flags uint32) uintptr {
		return do("cuEventRecordWithFlags", func(m *Machine, t *thread) code { return m.record(t, e, s, flags) })
	})
	def("cuEventSynchronize", 2000, func(h uintptr) uintptr {
		return do("cuEventSynchronize", func(m *Machine, t *thread) code {
			e, r := get[*event](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", e.name)
			if r := m.captured(e); r != 0 {
				return r
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			if e.item != nil {
				m.block(e.item)
			}
			return e.ctx.report()
		})
	})
	def("cuEventQuery", 2000, func(h uintptr) uintptr {
		return do("cuEventQuery", func(m *Machine, t *thread) code {
			e, r := get[*event](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", e.name)
			if r := m.captured(e); r != 0 {
				return r
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			if !e.item.finished() {
				return notReady
			}
			return e.ctx.report()
		})
	})
	elapsed := func(name string, ms *float32, start, end uintptr) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			a, r := get[*event](m, start)
			if r != 0 {
				return r
			}
			b, r := get[*event](m, end)
			if r != 0 {
				return r
			}
			m.say("%s %s", a.name, b.name)
			for _, e := range []*event{a, b} {
				if r := m.captured(e); r != 0 {
					return r
				}
				if !e.timing || e.item == nil {
					return invalidHandle
				}
			}
			if !a.item.finished() || !b.item.finished() {
				return notReady
			}
			*ms = float32(*b.whenNs-*a.whenNs) / 1e6
			return success
		})
	}
	def("cuEventElapsedTime", 2000, func(ms *float32, a, b uintptr) uintptr {
		return elapsed("cuEventElapsedTime", ms, a, b)
	})
	def("cuEventElapsedTime_v2", 12080, func(ms *float32, a, b uintptr) uintptr {
		return elapsed("cuEventElapsedTime_v2", ms, a, b)
	})

	// Capture.

	def("cuStreamBeginCapture_v2", 10010, func(s uintptr, mode uint32) uintptr {
		return do("cuStreamBeginCapture_v2", func(m *Machine, t *thread) code { return m.beginCapture(t, s, int(mode)) })
	})
	def("cuStreamEndCapture", 10000, func(s uintptr, out *uintptr) uintptr {
		return do("cuStreamEndCapture", func(m *Machine, t *thread) code { return m.endCapture(t, s, out) })
	})
	status := func(m *Machine, t *thread, h uintptr) (*stream, uint32, code) {
		s, r := m.stream(t, h)
		switch {
		case r != 0:
			return nil, 0, r
		case s.cap == nil:
			return s, 0, success
		case s.cap.invalid:
			return s, 2, success
		}
		return s, 1, success
	}
	def("cuStreamIsCapturing", 10000, func(h uintptr, out *uint32) uintptr {
		return do("cuStreamIsCapturing", func(m *Machine, t *thread) code {
			_, st, r := status(m, t, h)
			*out = st
			return r
		})
	})
	captureInfo := func(name string, h uintptr, out *uint32, id *uint64, g *uintptr, deps, data *unsafe.Pointer, n *uint64) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			s, st, r := status(m, t, h)
			if r != 0 {
				return r
			}
			*out = st
			if st != 1 {
				return success
			}
			k := s.cap
			k.depBuf = make([]uintptr, len(s.deps)+1)
			for i, d := range s.deps {
				k.depBuf[i] = d.h
			}
			if id != nil {
				*id = k.id
			}
			if g != nil {
				*g = k.g.h
			}
			if deps != nil {
				*deps = unsafe.Pointer(&k.depBuf[0])
			}
			if data != nil {
				*data = nil // what a stream holds here ends in full
			}
			if n != nil {
				*n = uint64(len(s.deps))
			}
			return success
		})
	}
	def("cuStreamGetCaptureInfo_v2", 11030, func(h uintptr, out *uint32, id *uint64, g *uintptr, deps *unsafe.Pointer, n *uint64) uintptr {
		return captureInfo("cuStreamGetCaptureInfo_v2", h, out, id, g, deps, nil, n)
	})
	def("cuStreamGetCaptureInfo_v3", 12030, func(h uintptr, out *uint32, id *uint64, g *uintptr, deps, data *unsafe.Pointer, n *uint64) uintptr {
		return captureInfo("cuStreamGetCaptureInfo_v3", h, out, id, g, deps, data, n)
	})
	// setDeps is for CU_STREAM_SET_CAPTURE_DEPENDENCIES (1); adding (0) is not
	// modelled.
	setDeps := func(name string, h uintptr, deps *uintptr, n uint64, flags uint32) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			s, st, r := status(m, t, h)
			switch {
			case r != 0:
				return r
			case st == 2:
				return captureInvalidated
			case st == 0:
				return illegalState
			case flags != 1:
				return invalidValue
			}
			var to []*node
			if n > 0 {
				for _, d := range unsafe.Slice(deps, n) {
					x, r := get[*node](m, d)
					if r != 0 || x.g != s.cap.g || slices.Contains(to, x) {
						return invalidValue
					}
					to = append(to, x)
				}
			}
			m.say("%s %d nodes", s.name, n)
			s.deps = to
			return success
		})
	}
	def("cuStreamUpdateCaptureDependencies", 11030, func(h uintptr, deps *uintptr, n uint64, flags uint32) uintptr {
		return setDeps("cuStreamUpdateCaptureDependencies", h, deps, n, flags)
	})
	def("cuStreamUpdateCaptureDependencies_v2", 12030, func(h uintptr, deps *uintptr, data unsafe.Pointer, n uint64, flags uint32) uintptr {
		if data != nil {
			flags = 0 // edge data is not modelled either
		}
		return setDeps("cuStreamUpdateCaptureDependencies_v2", h, deps, n, flags)
	})
	def("cuThreadExchangeStreamCaptureMode", 10010, func(mode *uint32) uintptr {
		return do("cuThreadExchangeStreamCaptureMode", func(m *Machine, t *thread) code {
			if *mode > modeRelaxed {
				return invalidValue
			}
			old := t.mode
			t.mode = int(*mode)
			*mode = uint32(old)
			return success
		})
	})

	// Modules and functions.

	def("cuModuleLoadDataEx", 2010, func(out *uintptr, image *byte, n uint32, opts, values unsafe.Pointer) uintptr {
		return do("cuModuleLoadDataEx", func(m *Machine, t *thread) code {
			c, r := m.current(t)
			if r != 0 {
				return r
			}
			if r := m.prohibit(t); r != 0 {
				return r
			}
			ptx := cText(image)
			mod := &module{ctx: c, entries: entries(ptx), funcs: map[string]*function{}}
			if fault := ptxFault(ptx); fault != "" {
				jitLog(n, opts, values, fault)
				return invalidPTX
			}
			mod.h, mod.name = m.put("module", mod)
			m.say("%s", mod.name)
			*out = mod.h
			return success
		})
	})
	def("cuModuleUnload", 2000, func(h uintptr) uintptr {
		return do("cuModuleUnload", func(m *Machine, t *thread) code {
			mod, r := get[*module](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", mod.name)
			for _, f := range mod.funcs {
				delete(m.objects, f.h)
			}
			delete(m.objects, h)
			return success
		})
	})
	def("cuModuleGetFunction", 2000, func(out *uintptr, h uintptr, name *byte) uintptr {
		return do("cuModuleGetFunction", func(m *Machine, t *thread) code {
			mod, r := get[*module](m, h)
			if r != 0 {
				return r
			}
			s := cText(name)
			m.say("%s %s", mod.name, s)
			if !slices.Contains(mod.entries, s) {
				return notFound
			}
			if f := mod.funcs[s]; f != nil {
				*out = f.h
				return success
			}
			k := m.kernels[s]
			if k == nil {
				if !slices.Contains(m.unregistered, s) {
					m.unregistered = append(m.unregistered, s)
				}
				return notFound
			}
			f := &function{ctx: mod.ctx, mod: mod, k: k, cname: append([]byte(s), 0)}
			f.h, _ = m.put("function", f)
			mod.funcs[s] = f
			*out = f.h
			return success
		})
	})
	def("cuModuleGetLoadingMode", 11070, func(out *uint32) uintptr { *out = 2; return 0 })
	fn := func(name string, h uintptr, body func(m *Machine, f *function) code) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			f, r := get[*function](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", f.k.name)
			return body(m, f)
		})
	}
	def("cuFuncLoad", 12040, func(h uintptr) uintptr {
		return fn("cuFuncLoad", h, func(m *Machine, f *function) code { f.loaded = true; return success })
	})
	def("cuFuncGetName", 12030, func(out *unsafe.Pointer, h uintptr) uintptr {
		return fn("cuFuncGetName", h, func(m *Machine, f *function) code {
			*out = unsafe.Pointer(&f.cname[0])
			return success
		})
	})
	def("cuFuncGetParamInfo", 12040, func(h uintptr, i uint64, off, size *uint64) uintptr {
		return fn("cuFuncGetParamInfo", h, func(m *Machine, f *function) code {
			if i >= uint64(len(f.k.params)) {
				return invalidValue
			}
			at := 0
			for j, p := range f.k.params {
				at = (at + p.align() - 1) / p.align() * p.align()
				if j == int(i) {
					*off = uint64(at)
					if size != nil {
						*size = uint64(p.size())
					}
				}
				at += p.size()
			}
			return success
		})
	})
	def("cuFuncGetAttribute", 2020, func(v *int32, attr uint32, h uintptr) uintptr {
		return fn("cuFuncGetAttribute", h, func(m *Machine, f *function) code {
			switch attr {
			case 0:
				*v = 1024
			case 4:
				*v = 32
			case attrMaxDynamic:
				*v = int32(max(f.dynamic, int(staticSharedLimit)))
			default:
				*v = 0
			}
			return success
		})
	})
	def("cuFuncSetAttribute", 9000, func(h uintptr, attr uint32, v int32) uintptr {
		return fn("cuFuncSetAttribute", h, func(m *Machine, f *function) code {
			if attr == attrMaxDynamic {
				if int(v) > m.GPUs[f.ctx.dev].SharedMax {
					return invalidValue
				}
				f.dynamic = int(v)
			}
			return success
		})
	})
	def("cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, func(n *int32, h uintptr, block int32, shared uint64) uintptr {
		return fn("cuOccupancyMaxActiveBlocksPerMultiprocessor", h, func(m *Machine, f *function) code {
			if block <= 0 {
				return invalidValue
			}
			b := 2048 / block
			if shared > 0 {
				b = min(b, int32(uint64(m.GPUs[f.ctx.dev].SharedSM)/shared))
			}
			*n = min(b, 32)
			return success
		})
	})

	// Launches.

	def("cuLaunchKernel", 4000, func(f uintptr, gx, gy, gz, bx, by, bz, shared uint32, s uintptr, params, extra unsafe.Pointer) uintptr {
		return do("cuLaunchKernel", func(m *Machine, t *thread) code {
			return m.launch(t, f, [3]uint32{gx, gy, gz}, [3]uint32{bx, by, bz}, shared, s, params, extra, false)
		})
	})
	def("cuLaunchKernelEx", 11060, func(c *launchConfig, f uintptr, params, extra unsafe.Pointer) uintptr {
		return do("cuLaunchKernelEx", func(m *Machine, t *thread) code {
			pdl := false
			for _, a := range unsafe.Slice(c.attrs, c.numAttrs) {
				if a.id == attrProgrammatic && a.value[0] != 0 {
					pdl = true
				}
			}
			return m.launch(t, f, c.grid, c.block, c.shared, c.stream, params, extra, pdl)
		})
	})

	// Graphs.

	def("cuGraphCreate", 10000, func(out *uintptr, flags uint32) uintptr {
		return do("cuGraphCreate", func(m *Machine, t *thread) code {
			g := m.newGraph()
			m.say("%s", g.name)
			*out = g.h
			return success
		})
	})
	onGraph := func(name string, h uintptr, body func(m *Machine, t *thread, g *graph) code) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			g, r := get[*graph](m, h)
			if r != 0 {
				return r
			}
			m.say("%s", g.name)
			return body(m, t, g)
		})
	}
	def("cuGraphDestroy", 10000, func(h uintptr) uintptr {
		return onGraph("cuGraphDestroy", h, func(m *Machine, t *thread, g *graph) code {
			if g.capturing {
				return illegalState
			}
			m.dropGraph(g)
			return success
		})
	})
	def("cuGraphInstantiateWithFlags", 11040, func(out *uintptr, g uintptr, flags uint64) uintptr {
		return do("cuGraphInstantiateWithFlags", func(m *Machine, t *thread) code { return m.instantiate(t, g, out) })
	})
	def("cuGraphInstantiateWithParams", 12000, func(out *uintptr, g uintptr, p *instantiateParams) uintptr {
		return do("cuGraphInstantiateWithParams", func(m *Machine, t *thread) code {
			r := m.instantiate(t, g, out)
			p.errNode, p.result = 0, 0
			if r != 0 {
				p.result = 1
			}
			return r
		})
	})
	def("cuGraphUpload", 11010, func(e, s uintptr) uintptr {
		return do("cuGraphUpload", func(m *Machine, t *thread) code {
			x, r := get[*exec](m, e)
			if r != 0 {
				return r
			}
			st, r := m.stream(t, s)
			if r != 0 {
				return r
			}
			m.say("%s %s", x.name, st.name)
			if st.cap != nil {
				st.cap.invalid = true
				return captureUnsupported
			}
			return success
		})
	})
	def("cuGraphLaunch", 10000, func(e, s uintptr) uintptr {
		return do("cuGraphLaunch", func(m *Machine, t *thread) code { return m.launchGraph(t, e, s) })
	})
	def("cuGraphExecDestroy", 10000, func(e uintptr) uintptr {
		return do("cuGraphExecDestroy", func(m *Machine, t *thread) code { return m.destroyExec(e) })
	})
	def("cuGraphExecUpdate_v2", 12000, func(e, g uintptr, info *updateInfo) uintptr {
		return do("cuGraphExecUpdate_v2", func(m *Machine, t *thread) code {
			bad, why, r := m.update(e, g)
			*info = updateInfo{result: why, node: bad}
			return r
		})
	})
	def("cuGraphExecKernelNodeSetParams_v2", 12000, func(e, n uintptr, p *kernelNodeParams) uintptr {
		return do("cuGraphExecKernelNodeSetParams_v2", func(m *Machine, t *thread) code {
			x, r := m.xnode(e, n)
			if r != 0 {
				return r
			}
			if x.typ != typeKernel {
				return invalidValue
			}
			l, r := m.newLaunch(p.fn, p.grid, p.block, p.shared, p.params, p.extra, x.l.pdl)
			if r == 0 {
				x.l = l
			}
			return r
		})
	})
	def("cuGraphNodeSetEnabled", 11060, func(e, n uintptr, on uint32) uintptr {
		return do("cuGraphNodeSetEnabled", func(m *Machine, t *thread) code {
			x, r := m.xnode(e, n)
			if r == 0 {
				x.disabled = on == 0
			}
			return r
		})
	})
	def("cuGraphGetNodes", 10000, func(h uintptr, out *uintptr, n *uint64) uintptr {
		return onGraph("cuGraphGetNodes", h, func(m *Machine, t *thread, g *graph) code {
			if out != nil {
				for i := range min(int(*n), len(g.nodes)) {
					unsafe.Slice(out, *n)[i] = g.nodes[i].h
				}
			}
			*n = uint64(len(g.nodes))
			return success
		})
	})
	edges := func(name string, h uintptr, from, to *uintptr, data *[8]byte, n *uint64) uintptr {
		return onGraph(name, h, func(m *Machine, t *thread, g *graph) code {
			i := uint64(0)
			for _, x := range g.nodes {
				for _, d := range x.deps {
					if from != nil && to != nil && i < *n {
						unsafe.Slice(from, *n)[i] = d.h
						unsafe.Slice(to, *n)[i] = x.h
						if x.programmatic(d) {
							if data == nil {
								// The call without edge data cannot describe it.
								return lossyQuery
							}
							unsafe.Slice(data, *n)[i] = [8]byte{2: 1}
						}
					}
					i++
				}
			}
			*n = i
			return success
		})
	}
	def("cuGraphGetEdges", 10000, func(h uintptr, from, to *uintptr, n *uint64) uintptr {
		return edges("cuGraphGetEdges", h, from, to, nil, n)
	})
	def("cuGraphGetEdges_v2", 12030, func(h uintptr, from, to *uintptr, data *[8]byte, n *uint64) uintptr {
		return edges("cuGraphGetEdges_v2", h, from, to, data, n)
	})
	onNode := func(name string, h uintptr, body func(m *Machine, n *node) code) uintptr {
		return do(name, func(m *Machine, t *thread) code {
			n, r := get[*node](m, h)
			if r != 0 {
				return r
			}
			return body(m, n)
		})
	}
	def("cuGraphNodeGetType", 10000, func(h uintptr, out *uint32) uintptr {
		return onNode("cuGraphNodeGetType", h, func(m *Machine, n *node) code { *out = n.typ; return success })
	})
	def("cuGraphKernelNodeGetParams_v2", 12000, func(h uintptr, p *kernelNodeParams) uintptr {
		return onNode("cuGraphKernelNodeGetParams_v2", h, func(m *Machine, n *node) code {
			if n.typ != typeKernel {
				return invalidValue
			}
			if n.argAt == nil {
				for _, v := range n.l.values {
					n.argAt = append(n.argAt, unsafe.Pointer(&v[0]))
				}
			}
			*p = kernelNodeParams{fn: n.l.fn.h, grid: n.l.grid, block: n.l.block, shared: n.l.shared, ctx: n.l.fn.ctx.h}
			if len(n.argAt) > 0 {
				p.params = unsafe.Pointer(&n.argAt[0])
			}
			return success
		})
	})
	def("cuGraphMemcpyNodeGetParams", 10000, func(h uintptr, p *memcpyParams) uintptr {
		return onNode("cuGraphMemcpyNodeGetParams", h, func(m *Machine, n *node) code {
			if n.typ != typeMemcpy {
				return invalidValue
			}
			end := func(addr uint64, host bool) copyEnd {
				if host {
					return copyEnd{memType: memoryHost, host: uintptr(addr), pitch: uint64(n.cp.n), height: 1}
				}
				return copyEnd{memType: memoryDevice, device: addr, pitch: uint64(n.cp.n), height: 1}
			}
			*p = memcpyParams{src: end(n.cp.src, n.cp.srcHost), dst: end(n.cp.dst, n.cp.dstHost), width: uint64(n.cp.n), height: 1, depth: 1}
			return success
		})
	})
	def("cuGraphMemsetNodeGetParams", 10000, func(h uintptr, p *memsetParams) uintptr {
		return onNode("cuGraphMemsetNodeGetParams", h, func(m *Machine, n *node) code {
			if n.typ != typeMemset {
				return invalidValue
			}
			*p = memsetParams{dst: n.set.dst, value: n.set.v, elementSize: uint32(n.set.size), width: uint64(n.set.n), height: 1}
			return success
		})
	})
	def("cuGraphChildGraphNodeGetGraph", 10000, func(h uintptr, out *uintptr) uintptr {
		// No node here is a graph.
		return onNode("cuGraphChildGraphNodeGetGraph", h, func(m *Machine, n *node) code { return invalidValue })
	})
	def("cuGraphAddKernelNode_v2", 12000, func(out *uintptr, h uintptr, deps *uintptr, n uint64, p *kernelNodeParams) uintptr {
		return onGraph("cuGraphAddKernelNode_v2", h, func(m *Machine, t *thread, g *graph) code {
			x := &node{typ: typeKernel}
			for _, d := range unsafe.Slice(deps, n) {
				dn, r := get[*node](m, d)
				if r != 0 || dn.g != g {
					return invalidValue
				}
				x.deps = append(x.deps, dn)
			}
			l, r := m.newLaunch(p.fn, p.grid, p.block, p.shared, p.params, p.extra, false)
			if r != 0 {
				return r
			}
			x.l = l
			g.add(m, x)
			*out = x.h
			return success
		})
	})
	def("cuGraphAddDependencies", 10000, func(h uintptr, from, to *uintptr, n uint64) uintptr {
		return onGraph("cuGraphAddDependencies", h, func(m *Machine, t *thread, g *graph) code {
			f, o := unsafe.Slice(from, n), unsafe.Slice(to, n)
			for i := range f {
				a, r := get[*node](m, f[i])
				b, r2 := get[*node](m, o[i])
				if r != 0 || r2 != 0 || a.g != g || b.g != g || slices.Contains(b.deps, a) {
					return invalidValue
				}
				b.deps = append(b.deps, a)
			}
			return success
		})
	})
	def("cuGraphDestroyNode", 10000, func(h uintptr) uintptr {
		return do("cuGraphDestroyNode", func(m *Machine, t *thread) code {
			n, r := get[*node](m, h)
			if r != 0 {
				return r
			}
			if n.g.capturing {
				return illegalState
			}
			n.g.remove(m, n)
			return success
		})
	})
	def("cuGraphDebugDotPrint", 11030, func(h uintptr, path *byte, flags uint32) uintptr {
		return onGraph("cuGraphDebugDotPrint", h, func(m *Machine, t *thread, g *graph) code { return g.dot(cText(path)) })
	})
	def("cuDeviceGetGraphMemAttribute", 11040, func(d int32, attr uint32, v *uint64) uintptr {
		return device("cuDeviceGetGraphMemAttribute", d, func(m *Machine, t *thread, g GPU) code {
			if attr > 3 {
				return invalidValue
			}
			*v = 0 // there are no allocation nodes here
			return success
		})
	})
	def("cuDeviceGraphMemTrim", 11040, func(d int32) uintptr {
		return device("cuDeviceGraphMemTrim", d, func(m *Machine, t *thread, g GPU) code {
			m.ctxs[d].execPool = 0
			return success
		})
	})
	return t
})

// The layouts that calls pass, as cuda.h has them.

type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	_           uint32
	stream      uintptr
	attrs       *launchAttr
	numAttrs    uint32
	_           uint32
}

type launchAttr struct {
	id    uint32
	_     uint32
	value [64]byte
}

type instantiateParams struct {
	_       uint64  // flags
	_       uintptr // upload stream
	errNode uintptr
	result  uint32
	_       uint32
}

type updateInfo struct {
	result uint32
	_      uint32
	node   uintptr
	_      uintptr // from
}

type kernelNodeParams struct {
	fn          uintptr
	grid, block [3]uint32
	shared      uint32
	_           uint32
	params      unsafe.Pointer
	extra       unsafe.Pointer
	_           uintptr // CUkernel
	ctx         uintptr
}

type copyEnd struct {
	_             [4]uint64 // x, y, z, lod
	memType       uint32
	_             uint32
	host          uintptr
	device        uint64
	_             uintptr // array
	_             uintptr
	pitch, height uint64
}

type memcpyParams struct {
	src, dst             copyEnd
	width, height, depth uint64
}

type memsetParams struct {
	dst                uint64
	_                  uint64 // pitch
	value, elementSize uint32
	width, height      uint64
}

// newLaunch reads a launch's arguments.
func (m *Machine) newLaunch(fh uintptr, grid, block [3]uint32, shared uint32, params, extra unsafe.Pointer, pdl bool) (*launch, code) {
	f, r := get[*function](m, fh)
	if r != 0 {
		return nil, r
	}
	if extra != nil {
		return nil, invalidValue
	}
	l := &launch{fn: f, grid: grid, block: block, shared: shared, pdl: pdl}
	if r := l.check(m.GPUs[f.ctx.dev]); r != 0 {
		return nil, r
	}
	l.values, r = f.k.read(params)
	return l, r
}

func (m *Machine) launch(t *thread, fh uintptr, grid, block [3]uint32, shared uint32, sh uintptr, params, extra unsafe.Pointer, pdl bool) code {
	s, r := m.stream(t, sh)
	if r != 0 {
		return r
	}
	k, r := s.capturing()
	if r != 0 {
		return r
	}
	l, r := m.newLaunch(fh, grid, block, shared, params, extra, pdl)
	if r != 0 {
		return r
	}
	m.say("%s grid=%v block=%v %s", l.fn.k.name, grid, block, s.name)
	if l.fn.ctx != s.ctx {
		return invalidHandle
	}
	if k != nil {
		if !l.fn.loaded {
			m.lazyInCapture = append(m.lazyInCapture, l.fn.k.name)
		}
		k.add(m, s, &node{typ: typeKernel, l: l})
		return success
	}
	l.fn.loaded = true
	c, mem, fail := s.ctx, m.mem, m.kernelFault(l.fn.k.name)
	m.traced(s, activity{kind: actKernel, l: l}, func() { l.run(c, mem, fail) })
	return success
}

// attribute answers cuDeviceGetAttribute.
func (g GPU) attribute(a uint32) (int, bool) {
	if v, ok := g.Attributes[a]; ok {
		return v, true
	}
	switch a {
	case 1:
		return 1024, true
	case 8:
		return int(staticSharedLimit), true
	case 10:
		return 32, true
	case 13:
		return g.ClockKHz, true
	case 16:
		return g.SMs, true
	case 18, 20:
		return 0, true
	case 31, 32, 41, 78, 95, 115:
		return 1, true
	case 36:
		return g.MemKHz, true
	case 37:
		return g.BusWidth, true
	case 38:
		return g.L2, true
	case 39:
		return 2048, true
	case 40:
		return 3, true
	case 75:
		return g.Major, true
	case 76:
		return g.Minor, true
	case 81:
		return g.SharedSM, true
	case 82:
		return 65536, true
	case 97:
		return g.SharedMax, true
	case 106:
		return 32, true
	case 111:
		return 1024, true
	case 120:
		if g.Major >= 9 {
			return 1, true
		}
		return 0, true
	}
	return 0, a < 140
}

func cText(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

var ptxHead = regexp.MustCompile(`(?m)^\s*\.version\s+\d`)

// ptxFault says what is wrong with PTX text that no compiler would take.
func ptxFault(ptx string) string {
	if !ptxHead.MatchString(ptx) {
		return "ptxas fatal   : Missing .version directive at start of file"
	}
	return ""
}

// jitLog writes the compiler's words to the error buffer, if one was given.
func jitLog(n uint32, opts, values unsafe.Pointer, s string) {
	if n == 0 {
		return
	}
	ids := unsafe.Slice((*uint32)(opts), n)
	var buf unsafe.Pointer
	size := 0
	for i, id := range ids {
		switch id {
		case 5:
			buf = unsafe.Slice((*unsafe.Pointer)(values), n)[i]
		case 6:
			// The value itself, not an address.
			size = int(unsafe.Slice((*uintptr)(values), n)[i])
		}
	}
	if buf != nil && size > 0 {
		b := unsafe.Slice((*byte)(buf), size)
		b[copy(b[:size-1], s)] = 0
	}
}
