//go:build linux

#include "textflag.h"

// trbenchSubmit makes the call that a Launch describes. It runs on the system stack
// by C's conventions, with the Launch in DI: address, count, eleven arguments.
// All eleven are passed, whatever the count: a C function does not look at
// those it does not take. AX is the driver's code.
//
// The frame is 40 bytes of arguments and 8 to keep the stack aligned to 16; the
// assembler adds 8 for BP. DI, SI, R8 to R11 are the caller's to save.
TEXT trbenchSubmit(SB), NOSPLIT, $48-0
	MOVQ DI, R11
	MOVQ 64(R11), R10
	MOVQ R10, 0(SP)
	MOVQ 72(R11), R10
	MOVQ R10, 8(SP)
	MOVQ 80(R11), R10
	MOVQ R10, 16(SP)
	MOVQ 88(R11), R10
	MOVQ R10, 24(SP)
	MOVQ 96(R11), R10
	MOVQ R10, 32(SP)
	MOVQ 16(R11), DI
	MOVQ 24(R11), SI
	MOVQ 32(R11), DX
	MOVQ 40(R11), CX
	MOVQ 48(R11), R8
	MOVQ 56(R11), R9
	MOVQ 0(R11), R10
	XORL AX, AX
	CALL R10
	RET

GLOBL ·submitAt(SB), NOPTR|RODATA, $8
DATA ·submitAt(SB)/8, $trbenchSubmit(SB)
