package kernels

import "time"

// Names of the kernels that no step holds; their parameters are addresses and
// numbers that the caller packs itself.
const (
	// Empty has no parameters.
	Empty = "empty"
	// GateKernel has the address of a 4-byte flag in pinned memory, of a 4-byte
	// state, and a timeout in nanoseconds (8 bytes). One thread.
	GateKernel = "gate"
	// BurnKernel has a number of clock cycles (8 bytes). Any grid.
	BurnKernel = "burn"
)

// States that the gate leaves.
const (
	GateOpened   = 1
	GateTimedOut = 2
)

// GateTimeout is a timeout long enough for any submission and short enough for
// a watchdog.
const GateTimeout = 2 * time.Second
