package device

import (
	"fmt"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// Tracer is a [Group] that can record what its ranks did. Recording costs time,
// some of which may stay after it has ended: it comes after all that is timed.
// Where nothing is recorded, the price is one predictable branch a submission.
//
// Its methods are called off the ranks' threads and, but for TraceNow, between
// drained steps: nothing is being submitted, and all that was is done and waited
// for.
type Tracer interface {
	// Trace begins a recording on all ranks, or ends it. What was prepared,
	// captured and instantiated before is recorded as well. The error says in
	// one sentence what is in the way, such as another profiler.
	Trace(on bool) error
	// TraceNow is now on the recording's axis, in nanoseconds of the host's
	// clock. It may be called on any thread, while something is recorded.
	TraceNow() int64
	// Recorded hands over what was recorded since Trace(true). In it the device
	// of rank i has the ID i, and the thread of rank i the name that
	// [TraceThread] gives it, if it made a call.
	Recorded() (*timeline.Timeline, error)
}

// TraceThread is a rank's thread in recordings.
func TraceThread(rank int) string { return fmt.Sprintf("rank %d", rank) }

// TraceCalibrator is a [Tracer] whose recording makes what it records longer.
type TraceCalibrator interface {
	// CalibrateTrace runs known kernels with and without recording. It records
	// by itself, so nothing else is recorded meanwhile.
	CalibrateTrace() (*results.TraceCalibration, error)
}
