package cuda

import (
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

var _ device.Handles = (*rank)(nil)

// CuDevice is the driver's handle of the rank's GPU.
func (r *rank) CuDevice() int32 { return int32(r.dev) }

// CuStream is the driver's handle of a stream.
func (r *rank) CuStream(s workloads.Stream) uintptr { return uintptr(r.streams[s]) }
