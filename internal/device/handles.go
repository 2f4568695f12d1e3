package device

import "github.com/tech-renaissance/trbench/workloads"

// Handles is a [Rank] on a GPU, whose device and streams tools know by the
// driver's handles. They may be asked on any thread, while the group is open.
type Handles interface {
	CuDevice() int32
	CuStream(s workloads.Stream) uintptr
}
