package walk

import "time"

// Sync says how streams are joined.
type Sync uint8

const (
	// SyncEvent records an event on the waited stream and makes the waiter
	// wait for it; the host goes on.
	SyncEvent Sync = iota
	// SyncHost blocks the host until the waited stream is idle.
	SyncHost
	// SyncInside is mode step's: joins are edges of the one graph.
	SyncInside
)

func (s Sync) String() string { return [...]string{"event", "host", "inside"}[s] }

// Counts are what a stretch of the walk submitted, on one rank.
type Counts struct {
	Host  int64 // submitting calls
	Graph int64 // of which graph launches
	Copy  int64 // transfers submitted, inside graphs or alone
	Sync  int64 // joins that blocked the host: host joins and host control
}

// Stats are one rank's clocks and counts since the last reset. The three
// times are of the host's monotonic clock and add up to the whole time spent
// in Run, by construction.
type Stats struct {
	Segments int64
	// Submit is spent inside launching calls. SyncWait is spent blocked by the
	// device: in host joins, in host control's join and, with every kind of
	// join, in the wait until the transfer that last read a pinned half is
	// done. Host is all the rest: schedule, event record, wait and query calls,
	// feeding, learning rate.
	Submit, SyncWait, Host time.Duration
	Counts                 Counts
}

// Total is the time spent in Run.
func (s Stats) Total() time.Duration { return s.Submit + s.SyncWait + s.Host }

// epoch begins the clock. The time since it is of the monotonic clock alone,
// where time.Now reads two clocks.
var epoch = time.Now()

// Now reads the clock that steps are timed with, from any beginning.
func Now() time.Duration { return time.Since(epoch) }

// Stopwatch splits a segment's time into submitting, blocked and the rest. It
// belongs to one rank's thread and allocates nothing.
type Stopwatch struct {
	stats         Stats
	begun, marked time.Duration
	inner         time.Duration // submit and wait since Begin
}

// Begin starts a segment.
func (s *Stopwatch) Begin() { s.begun, s.inner = Now(), 0 }

// End closes the segment: what was neither submitting nor blocked is the
// host's own.
func (s *Stopwatch) End() {
	s.stats.Host += Now() - s.begun - s.inner
	s.stats.Segments++
}

// Mark starts a submitting or blocking call.
func (s *Stopwatch) Mark() { s.marked = Now() }

// Submitted ends a submitting call begun by Mark.
func (s *Stopwatch) Submitted() {
	d := Now() - s.marked
	s.stats.Submit += d
	s.inner += d
}

// Waited ends a blocking call begun by Mark.
func (s *Stopwatch) Waited() {
	d := Now() - s.marked
	s.stats.SyncWait += d
	s.inner += d
}

// Count adds submissions.
func (s *Stopwatch) Count(c Counts) {
	s.stats.Counts.Host += c.Host
	s.stats.Counts.Graph += c.Graph
	s.stats.Counts.Copy += c.Copy
	s.stats.Counts.Sync += c.Sync
}

// Stats returns the clocks and counts since the last reset.
func (s *Stopwatch) Stats() Stats { return s.stats }

// Reset sets clocks and counts to zero.
func (s *Stopwatch) Reset() { s.stats = Stats{} }
