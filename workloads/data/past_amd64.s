//go:build !race

#include "textflag.h"

// func pastCaches(dst, src *byte, n int)
//
// n is a multiple of 64 and dst of 16. Lines of src are asked for as
// non-temporal, so that they push nothing out of the second-level cache, and
// dst is written around the caches.
TEXT ·pastCaches(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SHRQ $6, CX
	JZ   done

line:
	PREFETCHNTA 512(SI)
	MOVOU 0(SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVNTO X0, 0(DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  line

	SFENCE

done:
	RET
