// Package device is the seam between what runs (package workloads) and what
// it runs on. It declares one set of interfaces; package cpu (the reference)
// and later package cuda stand behind it.
//
// A [Device] opens a [Group]: the ranks of one workload, each with its own
// arena, pinned buffers, streams and one locked OS thread. Operators are
// prepared once ([Rank.Prepare]; all that is lazy happens there) and then
// submitted without allocation, either to a stream or into a capture.
//
// The package keeps one rule: everything a step does to a rank goes through
// these interfaces, so eager, graph and step run the same code on every
// device.
package device

import (
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// Device is a kind of machine that can run workloads.
type Device interface {
	// Name is the word after --device: "cpu", "cuda".
	Name() string
	// Target is what the device tells package workloads of itself.
	Target() workloads.Target
	// MaxRanks is the number of ranks it can hold.
	MaxRanks() int
	// Open allocates one arena a rank and starts the ranks' threads and
	// streams. The arena is filled with a pattern that decodes to NaN, so that
	// reading memory nobody wrote cannot pass for zeros. The caller closes the
	// group.
	Open(w *workloads.Workload) (Group, error)
}

// Group is the ranks of one workload.
type Group interface {
	Ranks() int
	Rank(i int) Rank
	// Each runs f for all ranks at once, each on its rank's locked thread,
	// and waits for all. Errors are joined in rank order, each naming its rank.
	Each(f func(Rank) error) error
	// Seal declares preparation finished: an operator that then asks for memory
	// the arena does not have is refused with ErrSealed, because a graph
	// captured before would not know it.
	Seal()
	// Close waits for the streams, releases everything and returns the first
	// failure that nobody collected.
	Close() error
}

// Rank is one data-parallel worker. Except for Do and LastOp, its methods must
// be called on its locked thread, that is inside Do or Group.Each.
//
// While the rank captures, Prepare, NewEvent, Sync, SyncAll, Read, Write, Fill
// and an event's Sync and Query are refused and invalidate the capture: what a
// step needs is made before it is captured.
type Rank interface {
	ID() int
	// Do runs f on the rank's locked thread and waits for it.
	Do(f func() error) error
	// Prepare resolves a bound node to addresses on the stream of its
	// sub-graph. It may allocate and may be slow; the Op must not.
	Prepare(b *workloads.Bound) (Op, error)
	NewEvent(name string) (Event, error)
	// Record marks the work now on the stream; Wait makes later work on the
	// stream wait for the last Record. Neither blocks the host. While the
	// stream is captured both become edges of the graph; after the capture the
	// event is again what its last Record outside made it.
	Record(s workloads.Stream, e Event) error
	Wait(s workloads.Stream, e Event) error
	// Sync blocks until the stream is idle and returns the first failure of
	// its work since the last one returned, naming the node.
	Sync(s workloads.Stream) error
	// SyncAll is Sync on every stream; the first failure in time wins.
	SyncAll() error

	// BeginCapture makes work submitted to origin, and to streams that then
	// wait for events recorded in the capture, become nodes of a graph.
	BeginCapture(origin workloads.Stream, mode CaptureMode) error
	// EndCapture ends it and returns the graph, or the first failure inside
	// the capture. Streams brought in must have been joined back. After an
	// error no stream is capturing.
	EndCapture(origin workloads.Stream) (Graph, error)

	// Read and Write copy between host memory and a region, synchronously and
	// without ordering against streams: the caller has synchronised what it
	// touches. They are refused inside a capture.
	Read(r workloads.Region, dst []byte) error
	Write(r workloads.Region, src []byte) error
	// Fill writes one byte all over a region, under the same conditions.
	Fill(r workloads.Region, b byte) error
	// Pinned is the rank's pinned host memory. It belongs to the rank; the
	// caller fills a half only after the transfer that read it was consumed.
	Pinned() []byte
	// Executed returns how many operators the device has executed, by the
	// variant passed at submission and the sub-graph. The caller has
	// synchronised.
	Executed() Executed
	// ResetExecuted sets the counts to zero.
	ResetExecuted()
	// LastOp names the operator that each stream ran last, for diagnoses.
	LastOp() map[workloads.Stream]string
}

// Executed counts operators by (variant, sub-graph).
type Executed [workloads.NumVariants][workloads.NumSubGraphs]int64

// Op is a prepared operator of one rank.
type Op interface {
	Bound() *workloads.Bound
	// Calls is the number of submitting calls that Submit makes outside a
	// capture: of the driver for each launch, and one of a library for what it
	// launches by itself.
	Calls() int
	// Submit queues the operator on its stream, or records it if the stream
	// is being captured. v is the variant of the step it is submitted for.
	// It does not allocate and does not wait.
	Submit(v workloads.Variant) error
}

// Event is a point in a stream. It may be recorded again and again; a Wait made
// before goes on meaning the Record before it. Its methods may be called on any
// thread, though not on any one while something is captured (see CaptureMode).
type Event interface {
	// Sync blocks until the last Record's point is reached; at once if there
	// was none. It returns no failure of the work before it.
	Sync() error
	// Query says whether that point is reached, without blocking.
	Query() (bool, error)
}

// CaptureMode says what invalidates a capture.
type CaptureMode uint8

const (
	// CaptureThreadLocal: only calls of the capturing thread.
	CaptureThreadLocal CaptureMode = iota
	// CaptureGlobal: unsafe calls of any thread.
	CaptureGlobal
)

// GraphInfo describes a captured graph.
type GraphInfo struct {
	// Nodes counts by kind: "kernel", "memcpy", "memset", "collective".
	Nodes map[string]int
	// Ops counts operators by sub-graph.
	Ops [workloads.NumSubGraphs]int
	// Edges is the number of dependencies; see [Shape] for the others.
	Edges, WidestSection, CriticalPath int
}

// Total is the number of nodes of all kinds.
func (g GraphInfo) Total() int {
	n := 0
	for _, k := range g.Nodes {
		n += k
	}
	return n
}

// Graph is a finished capture. Instantiate resolves it; the graph and its
// execs are closed by the caller, execs first.
type Graph interface {
	Info() GraphInfo
	// Bounds lists the recorded nodes in submission order.
	Bounds() []*workloads.Bound
	Instantiate() (Exec, error)
	Close() error
}

// Exec is an instantiated graph.
type Exec interface {
	Info() GraphInfo
	// Upload readies the first launch on the stream.
	Upload(s workloads.Stream) error
	// Launch queues one replay on the stream, without waiting.
	Launch(s workloads.Stream, v workloads.Variant) error
	Close() error
}

// Capture failures. Errors wrap one of these; the first failing call and node
// are in the message.
var (
	ErrCaptureUnsupported = errors.New("operation not permitted while the stream is being captured")
	ErrCaptureInvalidated = errors.New("the capture was invalidated by an earlier failure")
	ErrCaptureUnmatched   = errors.New("the stream is not being captured")
	ErrCaptureUnjoined    = errors.New("the capture ended with a forked stream not joined back")
	ErrCaptureIsolation   = errors.New("a captured stream waits for work outside the capture")
	ErrCaptureActive      = errors.New("the stream is already being captured")
	ErrCaptureEvent       = errors.New("an event recorded in a capture cannot be waited for by the host")
	ErrWrongThread        = errors.New("the call must be made on the rank's thread")
	ErrSealed             = errors.New("the arena is sealed")
)

// OpError is a failure of one operator or call on a rank.
type OpError struct {
	Rank   int
	Stream workloads.Stream
	Call   string // what was being done: "submit", "execute", "prepare", "capture"
	Node   string // "DEEP_FWD_BWD/layer1.0.conv1.fwd"
	Err    error
}

func (e *OpError) Error() string {
	return fmt.Sprintf("rank %d, stream %s: %s %s: %v", e.Rank, e.Stream, e.Call, e.Node, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }
