package driver

import "fmt"

// StreamFlags of a new stream. Source: CUstream_flags.
type StreamFlags uint32

// A non-blocking stream does not synchronise with the legacy default stream;
// only such streams are captured here.
const (
	StreamDefault     StreamFlags = 0
	StreamNonBlocking StreamFlags = 1
)

// EventFlags of a new event. Source: CUevent_flags.
type EventFlags uint32

const (
	EventDefault       EventFlags = 0
	EventBlockingSync  EventFlags = 1 // the host sleeps instead of spinning
	EventDisableTiming EventFlags = 2
)

// EventRecordFlags and EventWaitFlags. Source: CUevent_record_flags,
// CUevent_wait_flags.
type (
	EventRecordFlags uint32
	EventWaitFlags   uint32
)

// External makes the record or wait a node of the captured graph.
const (
	EventRecordDefault  EventRecordFlags = 0
	EventRecordExternal EventRecordFlags = 1
	EventWaitDefault    EventWaitFlags   = 0
	EventWaitExternal   EventWaitFlags   = 1
)

// HostFlags of pinned memory. Source: CU_MEMHOSTALLOC_*.
type HostFlags uint32

const (
	HostDefault       HostFlags = 0
	HostPortable      HostFlags = 1 // pinned for every context of the process
	HostDeviceMap     HostFlags = 2
	HostWriteCombined HostFlags = 4
)

// CaptureMode says which calls a capture forbids. Source:
// CUstreamCaptureMode.
type CaptureMode uint32

const (
	CaptureGlobal      CaptureMode = 0 // unsafe calls of any thread
	CaptureThreadLocal CaptureMode = 1 // unsafe calls of the capturing thread
	CaptureRelaxed     CaptureMode = 2 // none
)

// CaptureStatus of a stream. Source: CUstreamCaptureStatus.
type CaptureStatus uint32

const (
	CaptureNone        CaptureStatus = 0
	CaptureActive      CaptureStatus = 1
	CaptureInvalidated CaptureStatus = 2
)

// InstantiateFlags. Source: CUgraphInstantiate_flags.
type InstantiateFlags uint64

const (
	InstantiateAutoFree        InstantiateFlags = 1
	InstantiateUpload          InstantiateFlags = 2
	InstantiateDeviceLaunch    InstantiateFlags = 4
	InstantiateUseNodePriority InstantiateFlags = 8
)

// InstantiateResult says why an instantiation failed. Source:
// CUgraphInstantiateResult.
type InstantiateResult uint32

func (r InstantiateResult) String() string {
	return enumName(int(r), "success", "error", "invalid structure", "node operation not supported",
		"multiple contexts not supported", "conditional handle unused")
}

// UpdateResult says why an update was refused. Source:
// CUgraphExecUpdateResult.
type UpdateResult uint32

const (
	UpdateSuccess                   UpdateResult = 0
	UpdateError                     UpdateResult = 1
	UpdateTopologyChanged           UpdateResult = 2
	UpdateNodeTypeChanged           UpdateResult = 3
	UpdateFunctionChanged           UpdateResult = 4
	UpdateParametersChanged         UpdateResult = 5
	UpdateNotSupported              UpdateResult = 6
	UpdateUnsupportedFunctionChange UpdateResult = 7
	UpdateAttributesChanged         UpdateResult = 8
)

func (r UpdateResult) String() string {
	return enumName(int(r), "success", "error", "topology changed", "node type changed", "function changed",
		"parameters changed", "not supported", "unsupported function change", "attributes changed")
}

// NodeType of a graph node. Source: CUgraphNodeType.
type NodeType uint32

const (
	NodeKernel      NodeType = 0
	NodeMemcpy      NodeType = 1
	NodeMemset      NodeType = 2
	NodeHost        NodeType = 3
	NodeGraph       NodeType = 4
	NodeEmpty       NodeType = 5
	NodeWaitEvent   NodeType = 6
	NodeEventRecord NodeType = 7
	NodeSemaSignal  NodeType = 8
	NodeSemaWait    NodeType = 9
	NodeMemAlloc    NodeType = 10
	NodeMemFree     NodeType = 11
	NodeBatchMemOp  NodeType = 12
	NodeConditional NodeType = 13
)

func (t NodeType) String() string {
	return enumName(int(t), "kernel", "memcpy", "memset", "host", "graph", "empty", "wait_event", "event_record",
		"semaphore_signal", "semaphore_wait", "mem_alloc", "mem_free", "batch_mem_op", "conditional")
}

// DotFlags of [API.GraphDebugDotPrint]. Source: CUgraphDebugDot_flags.
type DotFlags uint32

const (
	DotVerbose      DotFlags = 1 << 0
	DotKernelParams DotFlags = 1 << 2
	DotMemcpyParams DotFlags = 1 << 3
	DotMemsetParams DotFlags = 1 << 4
	DotHandles      DotFlags = 1 << 10
)

// GraphMemAttribute of a device. Source: CUgraphMem_attribute.
type GraphMemAttribute uint32

// Bytes now and at most, used by graphs' allocation nodes and reserved for
// them.
const (
	GraphMemUsed         GraphMemAttribute = 0
	GraphMemUsedHigh     GraphMemAttribute = 1
	GraphMemReserved     GraphMemAttribute = 2
	GraphMemReservedHigh GraphMemAttribute = 3
)

// FuncAttribute of a kernel. Source: CUfunction_attribute.
type FuncAttribute uint32

const (
	FuncMaxThreadsPerBlock FuncAttribute = 0
	FuncStaticShared       FuncAttribute = 1
	FuncConstBytes         FuncAttribute = 2
	FuncLocalBytes         FuncAttribute = 3
	FuncNumRegs            FuncAttribute = 4
	FuncPTXVersion         FuncAttribute = 5
	FuncBinaryVersion      FuncAttribute = 6
	FuncMaxDynamicShared   FuncAttribute = 8
	FuncPreferredShared    FuncAttribute = 9
)

// DeviceAttribute of a GPU. Source: CUdevice_attribute.
type DeviceAttribute uint32

const (
	DeviceMaxThreadsPerBlock     DeviceAttribute = 1
	DeviceMaxSharedPerBlock      DeviceAttribute = 8
	DeviceWarpSize               DeviceAttribute = 10
	DeviceClockRateKHz           DeviceAttribute = 13
	DeviceMultiprocessorCount    DeviceAttribute = 16
	DeviceIntegrated             DeviceAttribute = 18
	DeviceComputeMode            DeviceAttribute = 20
	DeviceConcurrentKernels      DeviceAttribute = 31
	DeviceECCEnabled             DeviceAttribute = 32
	DeviceMemoryClockRateKHz     DeviceAttribute = 36
	DeviceMemoryBusWidth         DeviceAttribute = 37
	DeviceL2CacheBytes           DeviceAttribute = 38
	DeviceMaxThreadsPerSM        DeviceAttribute = 39
	DeviceAsyncEngineCount       DeviceAttribute = 40
	DeviceUnifiedAddressing      DeviceAttribute = 41
	DeviceComputeCapabilityMajor DeviceAttribute = 75
	DeviceComputeCapabilityMinor DeviceAttribute = 76
	DeviceStreamPriorities       DeviceAttribute = 78
	DeviceMaxSharedPerSM         DeviceAttribute = 81
	DeviceMaxRegistersPerSM      DeviceAttribute = 82
	DeviceCooperativeLaunch      DeviceAttribute = 95
	DeviceMaxSharedPerBlockOptin DeviceAttribute = 97
	DeviceMaxBlocksPerSM         DeviceAttribute = 106
	DeviceReservedSharedPerBlock DeviceAttribute = 111
	DeviceMemoryPoolsSupported   DeviceAttribute = 115
	DeviceClusterLaunch          DeviceAttribute = 120
)

func enumName(i int, names ...string) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("type %d", i)
}
