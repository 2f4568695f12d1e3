package cupti

import "fmt"

// Kind is what a record is of. Source: CUpti_ActivityKind.
type Kind uint32

// The kinds that are read here. KERNEL (3) is not among them: it makes kernels
// run one after another.
const (
	KindMemcpy          Kind = 1
	KindMemset          Kind = 2
	KindDriver          Kind = 4
	KindRuntime         Kind = 5
	KindKernel          Kind = 10 // CONCURRENT_KERNEL
	KindMarker          Kind = 12
	KindMarkerData      Kind = 13
	KindOverhead        Kind = 17
	KindSynchronization Kind = 38
	KindGraphTrace      Kind = 51
)

var kindNames = map[Kind]string{
	KindMemcpy: "MEMCPY", KindMemset: "MEMSET", KindDriver: "DRIVER", KindRuntime: "RUNTIME", KindKernel: "CONCURRENT_KERNEL",
	KindMarker: "MARKER", KindMarkerData: "MARKER_DATA", KindOverhead: "OVERHEAD", KindSynchronization: "SYNCHRONIZATION",
	KindGraphTrace: "GRAPH_TRACE",
}

// String is CUPTI's word without its prefix.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Offsets of the fields that are read, in bytes from a record's begin. They are
// the same in all versions from CUDA 11.8 on; what grew did so behind them.
// Source: cupti_activity.h of 11.8 and of 13.0, by offsetof.
const (
	offKind = 0

	kernelStart, kernelEnd                    = 16, 24
	kernelDevice, kernelContext, kernelStream = 40, 44, 48
	kernelGrid, kernelBlock                   = 52, 64
	kernelStatic, kernelDynamic               = 76, 80
	kernelCorrelation, kernelName             = 92, 104
	kernelQueued, kernelSubmitted             = 120, 128
	kernelNode, kernelGraph                   = 144, 156
	kernelLeast                               = 160
	callCBID, callStart, callEnd              = 4, 8, 16
	callProcess, callThread                   = 24, 28
	callCorrelation, callReturn               = 32, 36
	callLeast                                 = 40
	graphCorrelation, graphStart, graphEnd    = 4, 8, 16
	graphDevice, graphGraph                   = 24, 28
	graphContext, graphStream                 = 32, 36
	graphLeast                                = 40
	copyKind, copyBytes, copyStart, copyEnd   = 4, 8, 16, 24
	copyDevice, copyContext, copyStream       = 32, 36, 40
	copyCorrelation, copyNode, copyGraph      = 44, 64, 72
	copyLeast                                 = 76
	fillValue, fillBytes, fillStart, fillEnd  = 4, 8, 16, 24
	fillDevice, fillContext, fillStream       = 32, 36, 40
	fillCorrelation, fillNode, fillGraph      = 44, 64, 72
	fillLeast                                 = 76
	overheadKind, overheadStart, overheadEnd  = 4, 24, 32
	overheadLeast                             = 40
	syncType, syncStart, syncEnd              = 4, 8, 16
	syncCorrelation, syncContext, syncStream  = 24, 28, 32
	syncLeast                                 = 40
	markerFlags, markerTime, markerID         = 4, 8, 16
	markerObjectKind, markerObject            = 20, 24
	markerName, markerDomain                  = 40, 48
	markerLeast                               = 56
	dataFlags, dataID, dataPayloadKind        = 4, 8, 12
	dataPayload, dataColour, dataCategory     = 16, 24, 28
	dataLeast                                 = 32
)

// least is how much of a record is read.
var least = map[Kind]int{
	KindMemcpy: copyLeast, KindMemset: fillLeast, KindDriver: callLeast, KindRuntime: callLeast, KindKernel: kernelLeast,
	KindMarker: markerLeast, KindMarkerData: dataLeast, KindOverhead: overheadLeast, KindSynchronization: syncLeast,
	KindGraphTrace: graphLeast,
}

// Layout is the sizes of records in a version of CUPTI.
type Layout struct {
	// CUDA is the toolkit that the layout is of, 1000 x major + 10 x minor.
	CUDA int
	// Size is a record's bytes by kind.
	Size map[Kind]int
}

// LayoutFor is the layout that libcupti writes, by what cuptiGetVersion says
// and, where that is 18 for CUDA 11.8 and 12.0 alike, by the driver's version
// (1000 x major + 10 x minor). Versions between those whose headers were read
// may differ in kinds other than kernels and calls; a live buffer is walked by
// the library itself, and where it disagrees [Report.Sizes] says so.
func LayoutFor(cupti, driver int) Layout {
	l := Layout{CUDA: cudaOf(cupti, driver), Size: map[Kind]int{
		KindMemcpy: 88, KindMemset: 88, KindDriver: 40, KindRuntime: 40, KindKernel: 200, KindMarker: 56, KindMarkerData: 32,
		KindOverhead: 40, KindSynchronization: 40, KindGraphTrace: 48,
	}}
	if l.CUDA >= 12000 {
		l.Size[KindKernel] = 208
	}
	if l.CUDA >= 12030 {
		l.Size[KindGraphTrace] = 56
	}
	if l.CUDA >= 12040 {
		l.Size[KindOverhead] = 56
	}
	if l.CUDA >= 12080 {
		l.Size[KindMemcpy], l.Size[KindSynchronization] = 96, 56
	}
	if l.CUDA >= 13000 {
		l.Size[KindKernel], l.Size[KindMarkerData] = 216, 40
	}
	if l.CUDA >= 13010 {
		l.Size[KindKernel] = 224
	}
	return l
}

// cudaOf is the toolkit of an API version. Source: cupti_version.h; from CUDA
// 13.0 on the number is 10000 x major + 100 x minor, and one more for 13.0.
func cudaOf(cupti, driver int) int {
	if cupti >= 130000 {
		return cupti/10000*1000 + cupti/100%100*10
	}
	for _, v := range []struct{ api, cuda int }{{27, 12090}, {26, 12080}, {24, 12060}, {23, 12050}, {22, 12040}, {21, 12030}, {20, 12020}, {19, 12000}} {
		if cupti >= v.api {
			return v.cuda
		}
	}
	if cupti == 18 && driver >= 12000 {
		return 12000
	}
	return 11080
}
