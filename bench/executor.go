package bench

import (
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Session is one cell opened on a device: one memory that all its
// configurations share. It is used from one goroutine.
type Session interface {
	// Executor prepares a configuration, once; asking again returns the same.
	// The session stays at its snapshot.
	Executor(k results.ConfigurationKey) (Executor, error)
	// Snapshot keeps everything a step can see or change; Restore brings it
	// back. Both need every executor to be waited for.
	Snapshot() error
	Restore() error
}

// Executor runs one configuration of a session.
type Executor interface {
	// Begin brings a restored session to where steps can be submitted (the
	// begin of an epoch), and waits for it.
	Begin() error
	// Submit queues steps, back to back. It returns when they are submitted,
	// which may be before they are done.
	Submit(steps int) error
	// Wait blocks until all that was submitted is done and returns its first
	// failure.
	Wait() error
	// Rehearse runs the check's script from a restored session: every segment
	// the configuration can be timed on, with at least the given steps, and
	// waits for it.
	Rehearse(steps int) error
	// State copies what lives across steps.
	State() (State, error)
	// Clocks returns the host's clocks since the last call, one element a
	// rank, and resets them.
	Clocks() []Clocks
	// Counts are per step and rank; Costs the one-off costs, by phase;
	// Captures what was made so far.
	Counts() results.Counts
	Costs() []results.Phase
	Captures() results.Captures
}

// EventTimer is an [Executor] that can also time what is submitted with events
// of the device, as step_time_events_ns.
type EventTimer interface {
	// MarkBegin and MarkEnd record an event on every rank before and after
	// what is submitted between them. They do not wait.
	MarkBegin() error
	MarkEnd() error
	// EventTime is the time between the two on the slowest rank. It is asked
	// after Wait.
	EventTime() (time.Duration, error)
}

// OverheadMeter is an [Executor] that can measure launch overhead: the steps
// free-running behind one that keeps the device at work, less the same steps
// queued behind a gate until all are submitted, both between events.
type OverheadMeter interface {
	// LaunchOverhead returns the difference per step, from a restored session
	// that has begun. Where it cannot be had, such as when the queue cannot
	// hold the steps or joins are on the host, why says so.
	LaunchOverhead(steps int) (perStep time.Duration, why string, err error)
}

// SkipCounter is an [Executor] whose steps may leave the weights as they are,
// because gradients were not finite. Such a step does less work, unseen.
type SkipCounter interface {
	// Skipped is how many steps since the session was restored did so. The
	// session is drained.
	Skipped() (int64, error)
}

// Clocks is where a rank's host thread spent its time while submitting.
type Clocks struct {
	Submit, SyncWait, Host time.Duration
	// Outer is the time of the whole submission on the rank's thread, by a
	// clock of its own: the other three should add up to it. 0 is unknown.
	Outer time.Duration
	// Reads is what of it goes on reading the clocks, between the outer one
	// and the others.
	Reads time.Duration
}

// State is a copy of what lives across steps, on all ranks.
type State interface {
	// Tensors and Bytes are what a comparison covers.
	Tensors() int
	Bytes() int64
	// Diff returns the first difference from a reference of the same session,
	// in rank and offset order, or nil.
	Diff(reference State) *Difference
}

// Difference places the first bits that differ.
type Difference struct {
	Rank   int
	Tensor string
	Index  int64  // element
	Detail string // both values and their distance
}
