package kernels

import (
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// fromF16 decodes an IEEE half. The bits are moved into place and the exponent
// bias is corrected by one exact multiplication, which also normalises
// subnormals; only Inf and NaN need their exponent set by hand.
func fromF16(h uint16) float32 {
	const rebias = 0x1p112 // 2^(127-15)
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * rebias
	u := math.Float32bits(f) | uint32(h&0x8000)<<16
	if h&0x7c00 == 0x7c00 {
		u |= 0x7f800000
	}
	return math.Float32frombits(u)
}

func decode(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = fromF16(h)
	}
}

func encode(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = workloads.ToHalf(f)
	}
}
