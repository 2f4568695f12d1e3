package fake

import (
	"regexp"
	"slices"
	"unsafe"
)

// defineModules defines modules and their functions.
func defineModules(def define) {
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
}

// defineLaunches defines launches of kernels.
func defineLaunches(def define) {
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
}

// The layouts that launches pass, as cuda.h has them.

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
