// Package fake is a CUDA driver for machines without a GPU: C function pointers
// that the bindings call as they call libcuda.
//
// A test makes a machine named after a real one ([H200]), registers the kernels
// it needs as Go functions ([Machine.Register]), and hands the machine to the
// binding, which takes it for a library (it is a dl.Resolver). Memory, streams,
// events, capture and graphs then behave as the driver's do: work runs on a
// goroutine a stream and in no other order than streams and events give; a
// capture obeys the driver's rules and fails with its codes.
//
// Device memory and pinned memory lie in the Go heap, whose objects do not move
// and which the race detector watches: a join that is missing between streams,
// or between a stream and the host, is a data race that -race reports.
// For the same reason nothing that finished work touches is shared with
// the host: no mutex, no atomic, no bounded channel orders the host after a
// stream, except where the driver would.
//
// A C callback is never freed, and a process has few. The table of functions is
// made once and serves the machine that runs, one at a time: [Machine.Start],
// [Machine.Stop].
//
// The capture rules' answers are those of driver 580 (CUDA 13.0) on an H200,
// where the tests of package driver that state them ran too. Three of them
// surprise: a capture takes a wait for an event that was never recorded; a query
// of an event after the capture it was recorded in gives 1, not 907; and the end
// of a capture on another thread (908) loses it, so that the right thread's end
// gives 401. Where the real driver's answer was not seen, the fake takes the
// documentation's; where that is silent, the stricter one. It refuses what the driver takes in
// three places: a captured copy from memory that is not pinned, a graph
// launched into a capture (the driver makes a child graph), and arguments
// packed into one buffer (extra).
//
// [Machine.CUPTI] and [Machine.NVML] are the libraries beside a driver.
//
// The package keeps one rule: it knows no binding. Codes and layouts are its
// own, so that an error in a binding's is seen.
package fake
