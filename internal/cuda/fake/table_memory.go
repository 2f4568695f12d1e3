package fake

import (
	"slices"
	"unsafe"
)

// allocates is the context in which so many bytes may be allocated.
func (m *Machine) allocates(t *thread, n uint64) (*context, code) {
	c, r := m.current(t)
	if r != 0 {
		return nil, r
	}
	m.say("%d", n)
	if r := m.prohibit(t); r != 0 {
		return nil, r
	}
	if n == 0 {
		return nil, invalidValue
	}
	return c, success
}

// defineMemory defines memory of the device, and pinned memory.
func defineMemory(def define) {
	def("cuMemAlloc_v2", 3020, func(out *uint64, n uint64) uintptr {
		return do("cuMemAlloc_v2", func(m *Machine, t *thread) code {
			c, r := m.allocates(t, n)
			if r != 0 {
				return r
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
			c, r := m.allocates(t, n)
			if r != 0 {
				return r
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
}

// defineCopies defines copies and fills. The synchronous ones use the legacy stream.
func defineCopies(def define) {
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
}
