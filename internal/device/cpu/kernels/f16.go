package kernels

import "math"

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

// toF16 encodes to the nearest IEEE half, ties to even. NaN stays NaN.
func toF16(f float32) uint16 {
	const (
		tooLarge  = 0x47800000 // 65536: at and above only Inf and NaN
		smallest  = 0x38800000 // 2^-14: below lie the subnormals
		bias      = 112 << 23
		half      = 0x3f000000
		halfExact = float32(0.5) // its last bit is worth a half's smallest subnormal
	)
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	a := u & 0x7fffffff
	switch {
	case a-smallest < tooLarge-smallest:
		// A carry out of the mantissa raises the exponent, up to Inf.
		a += 0xfff + a>>13&1
		return sign | uint16((a-bias)>>13)
	case a < smallest:
		// The addition does the rounding, to the right place.
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+halfExact)-half)
	case a > 0x7f800000:
		return sign | 0x7e00 | uint16(a>>13&0x1ff)
	}
	return sign | 0x7c00
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
		dst[i] = toF16(f)
	}
}
