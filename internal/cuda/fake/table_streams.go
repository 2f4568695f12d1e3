package fake

import (
	"slices"
	"unsafe"
)

// defineStreams defines streams.
func defineStreams(def define) {
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
			s, r := m.asked(t, h)
			if r != 0 {
				return r
			}
			t.waits = s.number()
			m.block(s.last)
			return s.ctx.report()
		})
	})
	def("cuStreamQuery", 2000, func(h uintptr) uintptr {
		return do("cuStreamQuery", func(m *Machine, t *thread) code {
			s, r := m.asked(t, h)
			if r != 0 {
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
}

// asked is the stream that the host waits for or asks about, which it may not
// while the stream is captured.
func (m *Machine) asked(t *thread, h uintptr) (*stream, code) {
	s, r := m.stream(t, h)
	if r != 0 {
		return nil, r
	}
	m.say("%s", s.name)
	if k := s.cap; k != nil {
		return nil, m.conflict(func(c *capture) bool { return c == k })
	}
	if r := m.prohibit(t); r != 0 {
		return nil, r
	}
	return s, success
}

// defineEvents defines events.
func defineEvents(def define) {
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
}

// defineCapture defines what records a stream into a graph.
func defineCapture(def define) {
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
}
