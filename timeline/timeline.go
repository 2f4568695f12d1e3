package timeline

// Timeline is one recording. Whoever fills it owns it; analysis reads it only,
// so several goroutines may analyse one at a time that nobody fills.
//
// Times are nanoseconds on the recording's own axis, in which host and GPU
// clocks were already brought together by the profiler. They may be negative.
type Timeline struct {
	// Source names where it comes from: a file, or "cupti". Format is how it
	// was written: one of the Format words.
	Source, Format string
	// OriginNs is the Unix time of axis time 0, in nanoseconds; 0 is unknown.
	OriginNs int64

	Processes []Process
	Threads   []Thread
	Devices   []Device
	Streams   []Stream

	Ops      []Op
	Calls    []Call
	Ranges   []Range
	Counters []Counter

	// Names holds every text once; a [Name] is an index into it. Names[0] is
	// the empty text.
	Names []string

	Read ReadReport
}

// Formats of recordings.
const (
	FormatOwn     = "trbench"
	FormatKineto  = "kineto"
	FormatNsys    = "nsys-sqlite"
	FormatCUPTI   = "cupti"
	FormatCPU     = "cpu" // the CPU device's own recording of executed nodes
	FormatUnknown = ""
)

// Name is an index into Timeline.Names.
type Name int32

// None stands for no thread, stream, device, launch or name in an index field.
const None = -1

// Process is an operating system's process.
type Process struct {
	// ID is the number or text that the recording uses; Rank is its place in a
	// distributed job, or None.
	ID   string
	Name string
	Rank int
}

// Thread is a host thread.
type Thread struct {
	Process int32 // index into Processes, or None
	ID      string
	Name    string
}

// Device is a GPU, or what stands in for one.
type Device struct {
	ID   string // as the recording names it; "0" for the first GPU
	Name string
	// Host says that the work ran on host threads (the CPU device), where
	// "GPU time" would be a wrong word.
	Host bool
}

// Stream is an ordered queue of a device.
type Stream struct {
	Device  int32 // index into Devices
	Process int32 // index into Processes, or None
	ID      string
	Name    string
}

// Kind says what a device did.
type Kind uint8

// Only these are device work; what else a profiler draws in a stream's lane
// (annotations, synchronisation records) is not.
const (
	Kernel Kind = iota
	Copy
	Fill
	// Envelope is one replay of a graph, recorded instead of what ran inside:
	// busy time is then at most what it spans.
	Envelope
)

// Op is a piece of device work.
type Op struct {
	StartNs, EndNs int64 // device clock, brought to the axis
	Device, Stream int32 // indices
	Name           Name
	Kind           Kind
	// Timed is false where the recording has no or impossible times: the op
	// is counted, and stands in no other figure.
	Timed bool
	// Correlation joins an op with its launch: equal, non-zero numbers belong
	// together. Numbers are the reader's own (ids of a file are per process and
	// may be of any size).
	Correlation int64
	// Graph and Node are the recording's ids of the graph and node; 0 unknown.
	Graph, Node uint64
	// Bytes moved or filled; 0 unknown.
	Bytes int64
}

// Call is a call into the driver's or the runtime's API, on a host thread.
type Call struct {
	StartNs, EndNs int64 // host clock
	Thread         int32 // index, or None
	Name           Name
	Correlation    int64 // as in Op
	Class          CallClass
}

// CallClass says what a call is for.
type CallClass uint8

const (
	CallOther       CallClass = iota
	CallLaunch                // a kernel
	CallGraphLaunch           // a graph
	CallCopy                  // a copy or a fill
	CallSync                  // blocks until the device has done something
)

// Range is something of the host's that has a name: an NVTX range, an
// operator, a step of a loop. End equals start for a mark.
type Range struct {
	StartNs, EndNs int64 // host clock
	Thread         int32 // index, or None
	Name           Name
	Domain         Name // NVTX domain or category; 0 none
	Class          RangeClass
}

// RangeClass says who named a range.
type RangeClass uint8

const (
	RangeUser     RangeClass = iota // the program's user: NVTX, record_function
	RangeStep                       // one step of the training loop
	RangeOperator                   // a framework's operator
	RangeFeed                       // fetching or preparing input
	RangeOverhead                   // the profiler at work on itself
	RangePython                     // an interpreter's frame
)

// Counter is a value at a time.
type Counter struct {
	AtNs    int64
	Name    Name
	Process int32 // index, or None
	Value   float64
}

// ReadReport says how much of a recording got here.
type ReadReport struct {
	// Bytes were read; LostBytes of them could not be understood, first at
	// offset LostAt (-1: none).
	Bytes, LostBytes, LostAt int64
	// LostEvents could not be understood, as far as that can be counted; the
	// profiler itself says that it dropped Dropped (-1: it does not say).
	LostEvents, Dropped int64
	// BadTimes counts device work with no, negative or impossible times;
	// Duplicates what was there twice and was kept once.
	BadTimes, Duplicates int64
	// Truncated says that the recording stops in the middle.
	Truncated bool
	// Repaired counts what was invalid and understood all the same, first at
	// offset RepairedAt (meaningless if none): nothing is lost, but somebody
	// guessed.
	Repaired, RepairedAt int64
	// NotRecorded lists what this kind of recording can hold and this one does
	// not ("launch calls"). It is not the same as none having happened.
	NotRecorded []string
	// Notes are sentences for whoever reads the figures.
	Notes []string
	// OverheadNs is the time that the profiler says it took for itself.
	OverheadNs int64
}
