package bench

import (
	"syscall"
	"time"
)

// Clock is what blocks are timed with.
type Clock interface {
	// Now is the host's monotonic clock, from any beginning.
	Now() time.Duration
	// CPU is the processor time of the whole process so far, over all threads.
	CPU() time.Duration
}

// System is the clock of this machine.
func System() Clock { return system{time.Now()} }

type system struct{ begin time.Time }

func (s system) Now() time.Duration { return time.Since(s.begin) }

func (s system) CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // documented to fail on wrong arguments only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
