#include "textflag.h"

// func call(fn uintptr, args *[7]uint64, val uint64, sleep *[2]uint64, inner uintptr) uint64
TEXT ·call(SB), NOSPLIT, $8-48
	MOVQ args+8(FP), AX
	MOVQ 48(AX), R11
	MOVQ R11, 0(SP) // the seventh argument
	MOVQ 0(AX), DI
	MOVQ 8(AX), SI
	MOVQ 16(AX), DX
	MOVQ 24(AX), CX
	MOVQ 32(AX), R8
	MOVQ 40(AX), R9
	MOVQ val+16(FP), R12
	MOVQ sleep+24(FP), R13
	MOVQ inner+32(FP), BX
	MOVQ fn+0(FP), AX
	CALL AX
	MOVQ AX, ret+40(FP)
	RET
