package kernels

// transpose turns rows of src, which begin pitch elements apart at from, into
// columns of dst: dst[c*dstPitch+r] = src[from+r*pitch+c].
func transpose(dst []float32, dstPitch int, src vec, from, pitch, rows, cols int) {
	if src.f32 != nil {
		transposeWide(dst, dstPitch, src.f32[from:], pitch, rows, cols)
		return
	}
	// F16 is decoded in blocks of 8 rows.
	var buf block
	const width = blockLen / 8
	for r := 0; r < rows; r += 8 {
		n := min(8, rows-r)
		for c := 0; c < cols; c += width {
			m := min(width, cols-c)
			for i := range n {
				at := from + (r+i)*pitch + c
				decode(buf[i*width:], src.f16[at:at+m])
			}
			transposeWide(dst[c*dstPitch+r:], dstPitch, buf[:], width, n, m)
		}
	}
}

// transposeWide takes eight rows at a time, so that what it writes side by side
// is half a cache line.
func transposeWide(dst []float32, dstPitch int, src []float32, pitch, rows, cols int) {
	r := 0
	for ; r+8 <= rows; r += 8 {
		s := src[r*pitch:]
		s0, s1, s2, s3 := s[:cols], s[pitch:][:cols], s[2*pitch:][:cols], s[3*pitch:][:cols]
		s4, s5, s6, s7 := s[4*pitch:][:cols], s[5*pitch:][:cols], s[6*pitch:][:cols], s[7*pitch:][:cols]
		at := r
		for c, v := range s0 {
			d := (*[8]float32)(dst[at:])
			d[0], d[1], d[2], d[3] = v, s1[c], s2[c], s3[c]
			d[4], d[5], d[6], d[7] = s4[c], s5[c], s6[c], s7[c]
			at += dstPitch
		}
	}
	for ; r < rows; r++ {
		for c, v := range src[r*pitch : r*pitch+cols] {
			dst[c*dstPitch+r] = v
		}
	}
}
