package fake

import (
	"fmt"
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

// define puts a function into the table, under its symbol and the version of
// CUDA that brought it.
type define func(name string, since int, fn any)

// functions makes the table, once in a process.
var functions = sync.OnceValue(func() map[string]tableEntry {
	t := map[string]tableEntry{}
	def := func(name string, since int, fn any) {
		t[name] = tableEntry{purego.NewCallback(fn), since}
	}
	defineDevices(def)
	defineContexts(def)
	defineMemory(def)
	defineCopies(def)
	defineStreams(def)
	defineEvents(def)
	defineCapture(def)
	defineModules(def)
	defineLaunches(def)
	defineGraphs(def)
	return t
})

var cErrorNames sync.Map // code -> *byte, never freed, as the driver's

// defineDevices defines the start, and devices.
func defineDevices(def define) {
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

	def("cuDeviceGetName", 2000, func(b *byte, n, d int32) uintptr {
		return onDevice("cuDeviceGetName", d, func(m *Machine, t *thread, g GPU) code { return writeText(b, n, g.Name) })
	})
	def("cuDeviceGetPCIBusId", 4010, func(b *byte, n, d int32) uintptr {
		return onDevice("cuDeviceGetPCIBusId", d, func(m *Machine, t *thread, g GPU) code {
			return writeText(b, n, fmt.Sprintf("0000:%02x:00.0", 0x17+d))
		})
	})
	def("cuDeviceGetUuid_v2", 11040, func(u *[16]byte, d int32) uintptr {
		return onDevice("cuDeviceGetUuid_v2", d, func(m *Machine, t *thread, g GPU) code {
			*u = [16]byte{0xfa, 0xce, 15: byte(d)}
			return success
		})
	})
	def("cuDeviceTotalMem_v2", 3020, func(n *uint64, d int32) uintptr {
		return onDevice("cuDeviceTotalMem_v2", d, func(m *Machine, t *thread, g GPU) code { *n = g.Memory; return success })
	})
	def("cuDeviceGetAttribute", 2000, func(v *int32, attr uint32, d int32) uintptr {
		return onDevice("cuDeviceGetAttribute", d, func(m *Machine, t *thread, g GPU) code {
			a, ok := g.attribute(attr)
			if !ok {
				return invalidValue
			}
			*v = int32(a)
			return success
		})
	})
}

// onDevice is do for a call on a device.
func onDevice(name string, d int32, body func(m *Machine, t *thread, g GPU) code) uintptr {
	return do(name, func(m *Machine, t *thread) code {
		if d < 0 || int(d) >= len(m.GPUs) {
			return invalidDevice
		}
		m.say("device%d", d)
		return body(m, t, m.GPUs[d])
	})
}

// writeText writes a C string, cut to n bytes with its end.
func writeText(b *byte, n int32, s string) code {
	if n <= 0 {
		return invalidValue
	}
	out := unsafe.Slice(b, n)
	out[copy(out[:n-1], s)] = 0
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

// defineContexts defines contexts.
func defineContexts(def define) {
	def("cuDevicePrimaryCtxRetain", 7000, func(out *uintptr, d int32) uintptr {
		return onDevice("cuDevicePrimaryCtxRetain", d, func(m *Machine, t *thread, g GPU) code {
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
		return onDevice("cuDevicePrimaryCtxRelease_v2", d, func(m *Machine, t *thread, g GPU) code {
			c := m.ctxs[d]
			if c.refs == 0 {
				return invalidContext
			}
			c.refs--
			return success
		})
	})
	def("cuDevicePrimaryCtxGetState", 7000, func(d int32, flags *uint32, active *int32) uintptr {
		return onDevice("cuDevicePrimaryCtxGetState", d, func(m *Machine, t *thread, g GPU) code {
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
}
