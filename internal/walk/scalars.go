package walk

import (
	"encoding/binary"
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// ScalarBytes is the size of the encoded scalars tensor.
const ScalarBytes = workloads.ScalarWords * 4

// EncodeScalars writes s as the scalars tensor's bytes (little endian). dst
// has at least [ScalarBytes] bytes.
func EncodeScalars(dst []byte, s *workloads.Scalars) {
	put := func(word int, bits uint32) { binary.LittleEndian.PutUint32(dst[word*4:], bits) }
	put(workloads.ScalarLR, math.Float32bits(s.LR))
	put(workloads.ScalarScale, math.Float32bits(s.Scale))
	put(workloads.ScalarNonFinite, uint32(s.NonFinite))
	put(workloads.ScalarSkip, uint32(s.Skip))
	put(workloads.ScalarStep, uint32(s.Step))
	put(workloads.ScalarGrowth, uint32(s.Growth))
	put(workloads.ScalarSkipped, uint32(s.Skipped))
	put(workloads.ScalarConsecutive, uint32(s.Consecutive))
	put(workloads.ScalarStop, uint32(s.Stop))
	put(workloads.ScalarFault, math.Float32bits(s.Fault))
}

// DecodeScalars reads the scalars tensor's bytes. src has at least
// [ScalarBytes] bytes.
func DecodeScalars(src []byte, s *workloads.Scalars) {
	get := func(word int) uint32 { return binary.LittleEndian.Uint32(src[word*4:]) }
	*s = workloads.Scalars{
		LR:          math.Float32frombits(get(workloads.ScalarLR)),
		Scale:       math.Float32frombits(get(workloads.ScalarScale)),
		NonFinite:   int32(get(workloads.ScalarNonFinite)),
		Skip:        int32(get(workloads.ScalarSkip)),
		Step:        int32(get(workloads.ScalarStep)),
		Growth:      int32(get(workloads.ScalarGrowth)),
		Skipped:     int32(get(workloads.ScalarSkipped)),
		Consecutive: int32(get(workloads.ScalarConsecutive)),
		Stop:        int32(get(workloads.ScalarStop)),
		Fault:       math.Float32frombits(get(workloads.ScalarFault)),
	}
}
