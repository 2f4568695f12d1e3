// Package cpu is the reference device: it runs a workload's operators in Go,
// with the streams, events, captures and graphs of an accelerator behind the
// interfaces of package device.
//
// It stands behind package device and above cpu/kernels, which holds the
// arithmetic. A rank is one arena, one locked thread (the host side) and one
// goroutine a stream (the device side); a graph with forks adds one goroutine
// for each stream beyond the launching one.
//
// The package keeps one rule: the only happens-before edges between two
// streams are those the program asked for, by an event, a graph edge, a
// collective or a host synchronisation. Under the race detector every operator
// announces the memory it declares (see race.go), so a join that the schedule
// forgot is a race report and not a rare wrong number. Everything the device
// keeps for itself (failure, counts, last operator) is therefore either a plain
// field of one stream that the host reads after synchronising, or is kept
// behind [raceOff].
package cpu
