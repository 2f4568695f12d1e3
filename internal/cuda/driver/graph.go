package driver

import (
	"fmt"
	"slices"
	"unsafe"
)

// Capture.

// StreamBeginCapture turns later work on s, and on streams that then wait for
// events recorded in the capture, into nodes of a graph. End it on the same OS
// thread, relaxed mode apart. Source: cuStreamBeginCapture_v2.
func (a *API) StreamBeginCapture(s Stream, mode CaptureMode) error {
	return a.call(&a.t.streamBeginCapture, uintptr(s), uintptr(mode))
}

// StreamBeginCaptureToGraph captures into g, after the nodes deps. Source:
// cuStreamBeginCaptureToGraph (12.3).
func (a *API) StreamBeginCaptureToGraph(s Stream, g Graph, deps []GraphNode, mode CaptureMode) error {
	return a.call(&a.t.streamBeginCaptureToGraph, uintptr(s), uintptr(g),
		uintptr(unsafe.Pointer(unsafe.SliceData(deps))), 0, uintptr(len(deps)), uintptr(mode))
}

// StreamEndCapture ends the capture and returns the graph, which the caller
// destroys. After a failure inside the capture it fails too, and no graph
// exists. Source: cuStreamEndCapture.
func (a *API) StreamEndCapture(s Stream) (Graph, error) {
	var g Graph
	err := a.call(&a.t.streamEndCapture, uintptr(s), uintptr(unsafe.Pointer(&g)))
	return g, err
}

// StreamIsCapturing is the stream's capture status. Source:
// cuStreamIsCapturing.
func (a *API) StreamIsCapturing(s Stream) (CaptureStatus, error) {
	var st CaptureStatus
	err := a.call(&a.t.streamIsCapturing, uintptr(s), uintptr(unsafe.Pointer(&st)))
	return st, err
}

// CaptureInfo describes a stream's capture.
type CaptureInfo struct {
	Status CaptureStatus
	ID     uint64
	// Graph is being built; it must not be destroyed or instantiated.
	Graph Graph
	// Dependencies is the number of nodes that the next one will follow, and
	// Last the first of them, 0 if there is none. Follows lists them all.
	Dependencies int
	Last         GraphNode
	Follows      []GraphNode
}

// StreamGetCaptureInfo describes the capture that s is in. Source:
// cuStreamGetCaptureInfo_v3, else cuStreamGetCaptureInfo_v2, which knows no
// programmatic edges and refuses them ([LossyQuery]).
func (a *API) StreamGetCaptureInfo(s Stream) (CaptureInfo, error) {
	var info CaptureInfo
	var deps *GraphNode
	var data *EdgeData
	var n uint64
	var err error
	if a.t.streamGetCaptureInfoV3.addr != 0 {
		err = a.call(&a.t.streamGetCaptureInfoV3, uintptr(s), uintptr(unsafe.Pointer(&info.Status)),
			uintptr(unsafe.Pointer(&info.ID)), uintptr(unsafe.Pointer(&info.Graph)),
			uintptr(unsafe.Pointer(&deps)), uintptr(unsafe.Pointer(&data)), uintptr(unsafe.Pointer(&n)))
	} else {
		err = a.call(&a.t.streamGetCaptureInfo, uintptr(s), uintptr(unsafe.Pointer(&info.Status)),
			uintptr(unsafe.Pointer(&info.ID)), uintptr(unsafe.Pointer(&info.Graph)),
			uintptr(unsafe.Pointer(&deps)), uintptr(unsafe.Pointer(&n)))
	}
	if err == nil && info.Status == CaptureActive {
		info.Dependencies = int(n)
		if n > 0 && deps != nil {
			info.Last = *deps
			info.Follows = slices.Clone(unsafe.Slice(deps, n)) // the driver's until its next call
		}
	}
	return info, err
}

// StreamSetCaptureDependencies makes the next node captured on s follow the
// nodes given, instead of what the stream holds, in full. Source:
// cuStreamUpdateCaptureDependencies_v2, else cuStreamUpdateCaptureDependencies,
// with CU_STREAM_SET_CAPTURE_DEPENDENCIES.
func (a *API) StreamSetCaptureDependencies(s Stream, follows []GraphNode) error {
	const set = 1
	at := uintptr(unsafe.Pointer(unsafe.SliceData(follows)))
	if a.t.streamUpdateCaptureDepsV2.addr != 0 {
		return a.call(&a.t.streamUpdateCaptureDepsV2, uintptr(s), at, 0, uintptr(len(follows)), set)
	}
	return a.call(&a.t.streamUpdateCaptureDeps, uintptr(s), at, uintptr(len(follows)), set)
}

// ThreadExchangeStreamCaptureMode sets the calling OS thread's mode and returns
// the one before; callers restore it. Source:
// cuThreadExchangeStreamCaptureMode.
func (a *API) ThreadExchangeStreamCaptureMode(mode CaptureMode) (CaptureMode, error) {
	err := a.call(&a.t.threadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(&mode)))
	return mode, err
}

// Graphs.

// GraphCreate makes an empty graph; the caller destroys it. Source:
// cuGraphCreate.
func (a *API) GraphCreate() (Graph, error) {
	var g Graph
	err := a.call(&a.t.graphCreate, uintptr(unsafe.Pointer(&g)), 0)
	return g, err
}

// GraphDestroy destroys a graph with its nodes; execs made of it live on.
// Source: cuGraphDestroy.
func (a *API) GraphDestroy(g Graph) error { return a.call(&a.t.graphDestroy, uintptr(g)) }

// GraphInstantiate makes an exec; the caller destroys it. Source:
// cuGraphInstantiateWithFlags.
func (a *API) GraphInstantiate(g Graph, flags InstantiateFlags) (GraphExec, error) {
	var e GraphExec
	err := a.call(&a.t.graphInstantiateWithFlags, uintptr(unsafe.Pointer(&e)), uintptr(g), uintptr(flags))
	return e, err
}

// instantiateParams is CUDA_GRAPH_INSTANTIATE_PARAMS.
type instantiateParams struct {
	flags   uint64
	upload  Stream
	errNode GraphNode
	result  InstantiateResult
	_       uint32
}

// InstantiateFailure is where an instantiation failed.
type InstantiateFailure struct {
	Node   GraphNode
	Result InstantiateResult
}

// GraphInstantiateWithParams makes an exec and, with [InstantiateUpload],
// uploads it on upload. On failure the error's Detail names the reason, and
// the failure the node. Source: cuGraphInstantiateWithParams.
func (a *API) GraphInstantiateWithParams(g Graph, flags InstantiateFlags, upload Stream) (GraphExec, InstantiateFailure, error) {
	var e GraphExec
	p := instantiateParams{flags: uint64(flags), upload: upload}
	err := a.call(&a.t.graphInstantiateWithParams, uintptr(unsafe.Pointer(&e)), uintptr(g), uintptr(unsafe.Pointer(&p)))
	if de, ok := err.(*Error); ok {
		de.Detail = p.result.String()
	}
	return e, InstantiateFailure{p.errNode, p.result}, err
}

// GraphUpload readies the first launch. Source: cuGraphUpload.
func (a *API) GraphUpload(e GraphExec, s Stream) error {
	return a.call(&a.t.graphUpload, uintptr(e), uintptr(s))
}

// GraphLaunch queues a replay; replays of one exec follow each other. Source:
// cuGraphLaunch.
func (a *API) GraphLaunch(e GraphExec, s Stream) error {
	return a.call(&a.t.graphLaunch, uintptr(e), uintptr(s))
}

// GraphExecDestroy destroys an exec; a replay in flight still completes.
// Source: cuGraphExecDestroy.
func (a *API) GraphExecDestroy(e GraphExec) error { return a.call(&a.t.graphExecDestroy, uintptr(e)) }

// updateInfo is CUgraphExecUpdateResultInfo.
type updateInfo struct {
	result    UpdateResult
	_         uint32
	node      GraphNode
	errorFrom GraphNode
}

// UpdateFailure is why an update was refused, and the node of the new graph.
type UpdateFailure struct {
	Result UpdateResult
	Node   GraphNode
}

// GraphExecUpdate gives an exec the parameters of a graph of the same topology.
// A refusal is [GraphExecUpdateFailure], with the reason as Detail; the exec
// stays what it was. Source: cuGraphExecUpdate_v2.
func (a *API) GraphExecUpdate(e GraphExec, g Graph) (UpdateFailure, error) {
	var info updateInfo
	err := a.call(&a.t.graphExecUpdate, uintptr(e), uintptr(g), uintptr(unsafe.Pointer(&info)))
	if de, ok := err.(*Error); ok {
		de.Detail = info.result.String()
	}
	return UpdateFailure{info.result, info.node}, err
}

// GraphNodeSetEnabled switches a kernel, copy or fill node of an exec on or
// off. Source: cuGraphNodeSetEnabled.
func (a *API) GraphNodeSetEnabled(e GraphExec, n GraphNode, enabled bool) error {
	var on uintptr
	if enabled {
		on = 1
	}
	return a.call(&a.t.graphNodeSetEnabled, uintptr(e), uintptr(n), on)
}

// GraphGetNodes lists a graph's nodes. Source: cuGraphGetNodes.
func (a *API) GraphGetNodes(g Graph) ([]GraphNode, error) {
	var n uint64
	if err := a.call(&a.t.graphGetNodes, uintptr(g), 0, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return nil, err
	}
	nodes := make([]GraphNode, n)
	err := a.call(&a.t.graphGetNodes, uintptr(g), uintptr(unsafe.Pointer(&nodes[0])), uintptr(unsafe.Pointer(&n)))
	return nodes[:min(int(n), len(nodes))], err
}

// GraphNodeGetType is a node's kind. Source: cuGraphNodeGetType.
func (a *API) GraphNodeGetType(n GraphNode) (NodeType, error) {
	var t NodeType
	err := a.call(&a.t.graphNodeGetType, uintptr(n), uintptr(unsafe.Pointer(&t)))
	return t, err
}

// EdgeData is CUgraphEdgeData: all zero is a full dependency; Type 1 is a
// programmatic one.
type EdgeData struct {
	FromPort, ToPort, Type uint8
	_                      [5]uint8
}

// Programmatic says that the edge comes of programmatic dependent launch.
func (d EdgeData) Programmatic() bool { return d.Type == 1 }

// Edge is a dependency: To follows From.
type Edge struct {
	From, To GraphNode
	Data     EdgeData
}

// GraphGetEdges lists a graph's dependencies. Drivers before CUDA 12.3 know no
// edge data; there it is zero. Source: cuGraphGetEdges_v2, else
// cuGraphGetEdges.
func (a *API) GraphGetEdges(g Graph) ([]Edge, error) {
	var n uint64
	v2 := a.t.graphGetEdgesV2.addr != 0
	get := func(from, to []GraphNode, data []EdgeData) error {
		if v2 {
			return a.call(&a.t.graphGetEdgesV2, uintptr(g), uintptr(unsafe.Pointer(unsafe.SliceData(from))),
				uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(unsafe.Pointer(&n)))
		}
		return a.call(&a.t.graphGetEdges, uintptr(g), uintptr(unsafe.Pointer(unsafe.SliceData(from))),
			uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(unsafe.Pointer(&n)))
	}
	if err := get(nil, nil, nil); err != nil || n == 0 {
		return nil, err
	}
	from, to, data := make([]GraphNode, n), make([]GraphNode, n), make([]EdgeData, n)
	if err := get(from, to, data); err != nil {
		return nil, err
	}
	edges := make([]Edge, min(int(n), len(from)))
	for i := range edges {
		edges[i] = Edge{from[i], to[i], data[i]}
	}
	return edges, nil
}

// KernelNodeParams are what a kernel node will launch with.
type KernelNodeParams struct {
	Func        Function // 0 if the node holds a kernel of a library (CUkernel) alone
	Grid, Block [3]uint32
	Shared      uint32
	Kernel      uintptr // CUkernel, 0 if none
	Ctx         Context

	kernelParams *unsafe.Pointer
}

// kernelNodeParams is CUDA_KERNEL_NODE_PARAMS_v2.
type kernelNodeParams struct {
	fn           Function
	grid, block  [3]uint32
	shared       uint32
	_            uint32
	kernelParams *unsafe.Pointer
	extra        *unsafe.Pointer
	kern         uintptr
	ctx          Context
}

// GraphKernelNodeGetParams reads a kernel node. Its argument values are the
// graph's; see [KernelNodeParams.Arg]. Source: cuGraphKernelNodeGetParams_v2.
func (a *API) GraphKernelNodeGetParams(n GraphNode) (KernelNodeParams, error) {
	var p kernelNodeParams
	err := a.call(&a.t.graphKernelNodeGetParams, uintptr(n), uintptr(unsafe.Pointer(&p)))
	return KernelNodeParams{Func: p.fn, Grid: p.grid, Block: p.block, Shared: p.shared, Kernel: p.kern, Ctx: p.ctx,
		kernelParams: p.kernelParams}, err
}

// HasArgs says that the node gives its arguments one by one; a launch that
// passed one packed buffer does not.
func (p KernelNodeParams) HasArgs() bool { return p.kernelParams != nil }

// Arg copies the value of argument i, of size bytes. How many there are and
// their sizes comes from [API.FuncGetParams] or from the kernel's source: a
// wrong number reads memory that is not the node's. The graph must still
// exist.
func (p KernelNodeParams) Arg(i, size int) []byte {
	v := *(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(p.kernelParams), i*int(unsafe.Sizeof(uintptr(0)))))
	b := make([]byte, size)
	copy(b, unsafe.Slice((*byte)(v), size))
	return b
}

// MemsetNodeParams is CUDA_MEMSET_NODE_PARAMS.
type MemsetNodeParams struct {
	Dst           DevicePtr
	Pitch         uint64 // unused if Height is 1
	Value         uint32
	ElementSize   uint32
	Width, Height uint64 // elements a row, rows
}

// GraphMemsetNodeGetParams reads a fill node. Source:
// cuGraphMemsetNodeGetParams.
func (a *API) GraphMemsetNodeGetParams(n GraphNode) (MemsetNodeParams, error) {
	var p MemsetNodeParams
	err := a.call(&a.t.graphMemsetNodeGetParams, uintptr(n), uintptr(unsafe.Pointer(&p)))
	return p, err
}

// MemoryType of one end of a copy. Source: CUmemorytype.
type MemoryType uint32

const (
	MemoryHost    MemoryType = 1
	MemoryDevice  MemoryType = 2
	MemoryArray   MemoryType = 3
	MemoryUnified MemoryType = 4
)

// CopyEnd is one end of a copy: Host holds the address if Type is MemoryHost,
// Device otherwise. The driver may report a linear copy as unified.
type CopyEnd struct {
	XInBytes, Y, Z, LOD uint64
	Type                MemoryType
	_                   uint32
	Host                uintptr
	Device              DevicePtr
	Array               uintptr
	_                   uintptr
	Pitch, Height       uint64
}

// Addr is the address of the first byte.
func (e CopyEnd) Addr() uint64 {
	base := uint64(e.Device)
	if e.Type == MemoryHost {
		base = uint64(e.Host)
	}
	return base + e.XInBytes + e.Y*e.Pitch + e.Z*e.Pitch*e.Height
}

// MemcpyNodeParams is CUDA_MEMCPY3D.
type MemcpyNodeParams struct {
	Src, Dst                    CopyEnd
	WidthInBytes, Height, Depth uint64
}

// Bytes is the number of bytes copied.
func (p MemcpyNodeParams) Bytes() uint64 { return p.WidthInBytes * max(p.Height, 1) * max(p.Depth, 1) }

// GraphMemcpyNodeGetParams reads a copy node. Source:
// cuGraphMemcpyNodeGetParams.
func (a *API) GraphMemcpyNodeGetParams(n GraphNode) (MemcpyNodeParams, error) {
	var p MemcpyNodeParams
	err := a.call(&a.t.graphMemcpyNodeGetParams, uintptr(n), uintptr(unsafe.Pointer(&p)))
	return p, err
}

// GraphChildGraphNodeGetGraph is the graph inside a child node; it belongs to
// the node. Source: cuGraphChildGraphNodeGetGraph.
func (a *API) GraphChildGraphNodeGetGraph(n GraphNode) (Graph, error) {
	var g Graph
	err := a.call(&a.t.graphChildGraphNodeGetGraph, uintptr(n), uintptr(unsafe.Pointer(&g)))
	return g, err
}

// GraphAddKernelNode adds a launch to a graph after deps. spec's stream and
// attributes play no part; its arguments are copied into the node. Source:
// cuGraphAddKernelNode_v2.
func (a *API) GraphAddKernelNode(g Graph, deps []GraphNode, spec KernelSpec) (GraphNode, error) {
	mem := NewMemory()
	defer mem.Close()
	p, err := layKernelNode(mem, spec)
	if err != nil {
		return 0, err
	}
	var n GraphNode
	err = a.call(&a.t.graphAddKernelNode, uintptr(unsafe.Pointer(&n)), uintptr(g),
		uintptr(unsafe.Pointer(unsafe.SliceData(deps))), uintptr(len(deps)), addr(p))
	return n, err
}

// GraphExecKernelNodeSetParams gives a kernel node of an exec another launch
// of the same context. Source: cuGraphExecKernelNodeSetParams_v2.
func (a *API) GraphExecKernelNodeSetParams(e GraphExec, n GraphNode, spec KernelSpec) error {
	mem := NewMemory()
	defer mem.Close()
	p, err := layKernelNode(mem, spec)
	if err != nil {
		return err
	}
	return a.call(&a.t.graphExecKernelNodeSetParams, uintptr(e), uintptr(n), addr(p))
}

// layKernelNode writes a CUDA_KERNEL_NODE_PARAMS_v2.
func layKernelNode(mem *Memory, spec KernelSpec) ([]byte, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	args, err := spec.Args.lay(mem)
	if err != nil {
		return nil, err
	}
	b, err := mem.Alloc(int(unsafe.Sizeof(kernelNodeParams{})))
	if err != nil {
		return nil, err
	}
	put64(b[0:], uint64(spec.Func))
	for i := range 3 {
		put32(b[8+4*i:], spec.Grid[i])
		put32(b[20+4*i:], spec.Block[i])
	}
	put32(b[32:], spec.Shared)
	put64(b[40:], uint64(args))
	return b, nil
}

// GraphAddDependencies adds full edges from[i] to to[i]. Source:
// cuGraphAddDependencies.
func (a *API) GraphAddDependencies(g Graph, from, to []GraphNode) error {
	if len(from) != len(to) {
		return fmt.Errorf("cuGraphAddDependencies: %d nodes to depend on for %d", len(from), len(to))
	}
	if len(from) == 0 {
		return nil
	}
	return a.call(&a.t.graphAddDependencies, uintptr(g), uintptr(unsafe.Pointer(&from[0])), uintptr(unsafe.Pointer(&to[0])), uintptr(len(from)))
}

// GraphDestroyNode takes a node with its edges out of a graph. Source:
// cuGraphDestroyNode.
func (a *API) GraphDestroyNode(n GraphNode) error { return a.call(&a.t.graphDestroyNode, uintptr(n)) }

// GraphDebugDotPrint writes a picture of the graph to a file. Source:
// cuGraphDebugDotPrint.
func (a *API) GraphDebugDotPrint(g Graph, path string, flags DotFlags) error {
	p := cString(path)
	return a.call(&a.t.graphDebugDotPrint, uintptr(g), uintptr(unsafe.Pointer(&p[0])), uintptr(flags))
}

// DeviceGetGraphMemAttribute is the bytes that graphs' allocation nodes hold;
// zero where there are none. Source: cuDeviceGetGraphMemAttribute.
func (a *API) DeviceGetGraphMemAttribute(d Device, attr GraphMemAttribute) (uint64, error) {
	var v uint64
	err := a.call(&a.t.deviceGetGraphMemAttribute, uintptr(d), uintptr(attr), uintptr(unsafe.Pointer(&v)))
	return v, err
}

// DeviceGraphMemTrim gives memory that graphs no longer use back to the
// device. Source: cuDeviceGraphMemTrim.
func (a *API) DeviceGraphMemTrim(d Device) error { return a.call(&a.t.deviceGraphMemTrim, uintptr(d)) }
