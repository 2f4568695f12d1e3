package fake

import (
	"slices"
	"unsafe"
)

// defineGraphs defines graphs, their nodes and what is instantiated of them.
func defineGraphs(def define) {
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
		return onDevice("cuDeviceGetGraphMemAttribute", d, func(m *Machine, t *thread, g GPU) code {
			if attr > 3 {
				return invalidValue
			}
			*v = 0 // there are no allocation nodes here
			return success
		})
	})
	def("cuDeviceGraphMemTrim", 11040, func(d int32) uintptr {
		return onDevice("cuDeviceGraphMemTrim", d, func(m *Machine, t *thread, g GPU) code {
			m.ctxs[d].execPool = 0
			return success
		})
	})
}

// The layouts that calls of graphs pass, as cuda.h has them.

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
