package device

import "github.com/tech-renaissance/trbench/workloads"

// Profiler is a [Rank] that can tell a profiler where its capture begins and
// ends. Its methods are called on the rank's thread; they do nothing where no
// profiler waits for them.
type Profiler interface {
	ProfilerStart() error
	ProfilerStop() error
}

// Handles is a [Rank] on a GPU, whose device and streams tools know by the
// driver's handles. They may be asked on any thread, while the group is open.
type Handles interface {
	CuDevice() int32
	CuStream(s workloads.Stream) uintptr
}
