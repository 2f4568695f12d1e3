//go:build !race

package cpu

const (
	raceEnabled = false
	eventClocks = 1
)

func raceOff()            {}
func raceOn()             {}
func raceRelease(*uint64) {}
func raceAcquire(*uint64) {}
func raceRead([]byte)     {}
func raceWrite([]byte)    {}
