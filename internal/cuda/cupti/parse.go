package cupti

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Kernel is a kernel that ran, alone or as a node of a graph.
type Kernel struct {
	StartNs, EndNs int64 // on CUPTI's axis; both 0: no timestamp
	// QueuedNs and SubmittedNs are 0 unless latency timestamps are on.
	QueuedNs, SubmittedNs   int64
	Device, Context, Stream uint32
	Grid, Block             [3]uint32
	Static, Dynamic         uint32 // shared memory in bytes
	// Correlation is the launching call's; all work of a graph's launch shares
	// it.
	Correlation uint32
	Graph       uint32 // 0 outside graphs
	Node        uint64 // 0 outside graphs
	Name        string
}

// Call is a call of the driver's or the runtime's API.
type Call struct {
	StartNs, EndNs  int64 // host, on CUPTI's axis
	Runtime         bool
	CBID            uint32
	Process, Thread uint32
	Correlation     uint32
	Return          uint32 // the API's code
}

// Copy is a copy that ran.
type Copy struct {
	StartNs, EndNs          int64
	Kind                    uint8 // CUpti_ActivityMemcpyKind: 1 host to device, 2 device to host, 8 within the device
	Bytes                   uint64
	Device, Context, Stream uint32
	Correlation             uint32
	Graph                   uint32
	Node                    uint64
}

// Fill is a fill that ran.
type Fill struct {
	StartNs, EndNs          int64
	Value                   uint32
	Bytes                   uint64
	Device, Context, Stream uint32
	Correlation             uint32
	Graph                   uint32
	Node                    uint64
}

// Sync is a wait for the device.
type Sync struct {
	StartNs, EndNs int64
	Type           SyncType
	Context        uint32
	Stream         uint32 // 0xffffffff for none
	Correlation    uint32
}

// SyncType is how it waited. Source: CUpti_ActivitySynchronizationType.
type SyncType uint32

const (
	SyncEvent       SyncType = 1 // the host for an event
	SyncStreamEvent SyncType = 2 // a stream for an event
	SyncStream      SyncType = 3 // the host for a stream
	SyncContext     SyncType = 4 // the host for all
)

// Overhead is time that CUPTI or the driver's compiler took for itself.
type Overhead struct {
	StartNs, EndNs int64
	Kind           uint32
}

// OverheadName is CUPTI's word for a kind of overhead. Source:
// CUpti_ActivityOverheadKind.
func OverheadName(kind uint32) string {
	switch kind {
	case 1:
		return "driver compiler"
	case 1 << 16:
		return "buffer flush"
	case 2 << 16:
		return "instrumentation"
	case 3 << 16:
		return "resource"
	case 4 << 16:
		return "runtime triggered module loading"
	case 5 << 16:
		return "lazy function loading"
	case 6 << 16:
		return "command buffer full"
	case 7 << 16:
		return "activity buffer request"
	case 8 << 16:
		return "UVM activity initialisation"
	}
	return fmt.Sprintf("kind %#x", kind)
}

// GraphTrace is a graph's replay as a whole, recorded instead of its nodes.
type GraphTrace struct {
	StartNs, EndNs          int64
	Device, Context, Stream uint32
	Correlation             uint32
	Graph                   uint32
}

// Marker is one end of a range, or a mark. Source: CUpti_ActivityMarker2.
type Marker struct {
	AtNs  int64
	ID    uint32
	Flags MarkerFlags
	// Process and Thread are given if the object is a thread.
	Process, Thread uint32
	Name, Domain    string // an end has no name
}

// MarkerFlags say which end it is. Source: CUpti_ActivityFlag.
type MarkerFlags uint32

const (
	MarkerInstant MarkerFlags = 1 << 0
	MarkerStart   MarkerFlags = 1 << 1
	MarkerEnd     MarkerFlags = 1 << 2
)

// MarkerData is what else an NVTX event said.
type MarkerData struct {
	ID, Category, Colour uint32
	PayloadKind          uint32
	Payload              uint64
}

// Records are what was recorded, in the order in which it was read: that of
// buffers, not of time.
type Records struct {
	Kernels     []Kernel
	Calls       []Call
	Copies      []Copy
	Fills       []Fill
	Syncs       []Sync
	Overheads   []Overhead
	GraphTraces []GraphTrace
	Markers     []Marker
	MarkerData  []MarkerData
	Report      Report
}

// Report says how much of the buffers was understood.
type Report struct {
	Buffers, Bytes, Records int64
	// LostBytes could not be understood: records of kinds that are not read
	// here, whose end nobody tells, and what follows them in their buffer.
	LostBytes, LostRecords int64
	// Unread counts records of other kinds, by kind.
	Unread map[Kind]int64
	// Sizes are those of records as the library told them where the layout has
	// another, by kind.
	Sizes map[Kind]int
	// Dropped is CUPTI's own count of records it had no room for. Refused is
	// how often it asked for a buffer and none was free.
	Dropped, Refused int64
	// Untimed counts device work without timestamps.
	Untimed int64
	// Unreturned are buffers that were not handed back, at the end.
	Unreturned int
}

// Parse reads the records of one buffer into r. It is a function of the bytes
// and of names, which turns the address of a C text in a record into the text
// (nil: texts stay empty); the addresses are what the buffer says, so names
// decides which it believes. Whatever the bytes are, nothing beyond them is
// read. next, if it is set, gives the place where the record at an offset ends,
// as the library sees it, and is not believed where it points backwards or
// outside; without it ends are the layout's.
func (r *Records) Parse(b []byte, l Layout, next func(at int) (end int, ok bool), names func(addr uint64) string) {
	if names == nil {
		names = func(uint64) string { return "" }
	}
	r.Report.Buffers++
	r.Report.Bytes += int64(len(b))
	for at := 0; at < len(b); {
		rest := b[at:]
		if len(rest) < 8 {
			r.lose(len(rest))
			return
		}
		k := Kind(binary.LittleEndian.Uint32(rest[offKind:]))
		size, known := l.Size[k]
		if next != nil {
			end, ok := next(at)
			if !ok || end <= at || end > len(b) {
				r.lose(len(rest))
				return
			}
			// The last record's end is that of the buffer's used part.
			if told := end - at; known && told != size && (end != len(b) || told < size) {
				if r.Report.Sizes == nil {
					r.Report.Sizes = map[Kind]int{}
				}
				r.Report.Sizes[k] = told
			}
			size = end - at
		} else if !known || size > len(rest) {
			r.lose(len(rest))
			return
		}
		if !known {
			if r.Report.Unread == nil {
				r.Report.Unread = map[Kind]int64{}
			}
			r.Report.Unread[k]++
		} else if size < least[k] {
			r.lose(size)
		} else {
			r.Report.Records++
			r.decode(k, rest[:size], names)
		}
		at += size
	}
}

func (r *Records) lose(n int) {
	r.Report.LostBytes += int64(n)
	r.Report.LostRecords++
}

type record []byte

func (b record) u32(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func (b record) u64(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
func (b record) ns(at int) int64   { return int64(b.u64(at)) }
func (b record) dims(at int) [3]uint32 {
	return [3]uint32{b.u32(at), b.u32(at + 4), b.u32(at + 8)}
}

// decode reads one record, which is as long as its kind needs.
func (r *Records) decode(k Kind, raw []byte, names func(uint64) string) {
	b := record(raw)
	timed := func(start, end int64) {
		if start == 0 && end == 0 {
			r.Report.Untimed++
		}
	}
	switch k {
	case KindKernel:
		x := Kernel{StartNs: b.ns(kernelStart), EndNs: b.ns(kernelEnd), QueuedNs: b.ns(kernelQueued), SubmittedNs: b.ns(kernelSubmitted),
			Device: b.u32(kernelDevice), Context: b.u32(kernelContext), Stream: b.u32(kernelStream),
			Grid: b.dims(kernelGrid), Block: b.dims(kernelBlock), Static: b.u32(kernelStatic), Dynamic: b.u32(kernelDynamic),
			Correlation: b.u32(kernelCorrelation), Graph: b.u32(kernelGraph), Node: b.u64(kernelNode), Name: names(b.u64(kernelName))}
		timed(x.StartNs, x.EndNs)
		r.Kernels = append(r.Kernels, x)
	case KindDriver, KindRuntime:
		r.Calls = append(r.Calls, Call{StartNs: b.ns(callStart), EndNs: b.ns(callEnd), Runtime: k == KindRuntime, CBID: b.u32(callCBID),
			Process: b.u32(callProcess), Thread: b.u32(callThread), Correlation: b.u32(callCorrelation), Return: b.u32(callReturn)})
	case KindMemcpy:
		x := Copy{StartNs: b.ns(copyStart), EndNs: b.ns(copyEnd), Kind: b[copyKind], Bytes: b.u64(copyBytes), Device: b.u32(copyDevice),
			Context: b.u32(copyContext), Stream: b.u32(copyStream), Correlation: b.u32(copyCorrelation), Graph: b.u32(copyGraph), Node: b.u64(copyNode)}
		timed(x.StartNs, x.EndNs)
		r.Copies = append(r.Copies, x)
	case KindMemset:
		x := Fill{StartNs: b.ns(fillStart), EndNs: b.ns(fillEnd), Value: b.u32(fillValue), Bytes: b.u64(fillBytes), Device: b.u32(fillDevice),
			Context: b.u32(fillContext), Stream: b.u32(fillStream), Correlation: b.u32(fillCorrelation), Graph: b.u32(fillGraph), Node: b.u64(fillNode)}
		timed(x.StartNs, x.EndNs)
		r.Fills = append(r.Fills, x)
	case KindGraphTrace:
		x := GraphTrace{StartNs: b.ns(graphStart), EndNs: b.ns(graphEnd), Device: b.u32(graphDevice), Context: b.u32(graphContext),
			Stream: b.u32(graphStream), Correlation: b.u32(graphCorrelation), Graph: b.u32(graphGraph)}
		timed(x.StartNs, x.EndNs)
		r.GraphTraces = append(r.GraphTraces, x)
	case KindSynchronization:
		r.Syncs = append(r.Syncs, Sync{StartNs: b.ns(syncStart), EndNs: b.ns(syncEnd), Type: SyncType(b.u32(syncType)),
			Context: b.u32(syncContext), Stream: b.u32(syncStream), Correlation: b.u32(syncCorrelation)})
	case KindOverhead:
		r.Overheads = append(r.Overheads, Overhead{StartNs: b.ns(overheadStart), EndNs: b.ns(overheadEnd), Kind: b.u32(overheadKind)})
	case KindMarker:
		m := Marker{AtNs: b.ns(markerTime), ID: b.u32(markerID), Flags: MarkerFlags(b.u32(markerFlags)),
			Name: names(b.u64(markerName)), Domain: names(b.u64(markerDomain))}
		if b.u32(markerObjectKind) == objectThread {
			m.Process, m.Thread = b.u32(markerObject), b.u32(markerObject+4)
		}
		r.Markers = append(r.Markers, m)
	case KindMarkerData:
		r.MarkerData = append(r.MarkerData, MarkerData{ID: b.u32(dataID), Category: b.u32(dataCategory), Colour: b.u32(dataColour),
			PayloadKind: b.u32(dataPayloadKind), Payload: b.u64(dataPayload)})
	}
}

// objectThread is CUPTI_ACTIVITY_OBJECT_THREAD.
const objectThread = 2

// Kinds lists the kinds that are read here.
func Kinds() []Kind {
	var out []Kind
	for k := range least {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
