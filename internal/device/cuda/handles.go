package cuda

import (
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

var (
	_ device.Handles  = (*rank)(nil)
	_ device.Profiler = (*rank)(nil)
)

// ProfilerStart begins a profiler's capture on the rank's GPU.
func (r *rank) ProfilerStart() error { return r.api.ProfilerStart() }

// ProfilerStop ends it.
func (r *rank) ProfilerStop() error { return r.api.ProfilerStop() }

// CuDevice is the driver's handle of the rank's GPU.
func (r *rank) CuDevice() int32 { return int32(r.dev) }

// CuStream is the driver's handle of a stream.
func (r *rank) CuStream(s workloads.Stream) uintptr { return uintptr(r.streams[s]) }
