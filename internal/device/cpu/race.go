//go:build race

package cpu

import (
	"runtime"
	"unsafe"
)

const (
	raceEnabled = true
	// eventClocks is how many records of an event on one stream keep a clock of
	// their own. A waiter that comes later than that learns too much, which
	// can hide a missing join but never invents one.
	eventClocks = 64
)

// raceOff makes the synchronisation that follows invisible to the detector
// until raceOn: the device's own locks must not order two streams.
func raceOff() { runtime.RaceDisable() }
func raceOn()  { runtime.RaceEnable() }

// raceRelease and raceAcquire form the one edge an event is meant to be: from
// the recorder to those who wait, never back.
func raceRelease(c *uint64) { runtime.RaceRelease(unsafe.Pointer(c)) }
func raceAcquire(c *uint64) { runtime.RaceAcquire(unsafe.Pointer(c)) }

func raceRead(b []byte) {
	if len(b) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b))
	}
}

func raceWrite(b []byte) {
	if len(b) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b))
	}
}
