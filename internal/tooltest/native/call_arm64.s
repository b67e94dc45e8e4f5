#include "textflag.h"

// func call(fn uintptr, args *[7]uint64, val uint64, sleep *[2]uint64, inner uintptr) uint64
TEXT ·call(SB), NOSPLIT, $16-48
	MOVD args+8(FP), R9
	MOVD 0(R9), R0
	MOVD 8(R9), R1
	MOVD 16(R9), R2
	MOVD 24(R9), R3
	MOVD 32(R9), R4
	MOVD 40(R9), R5
	MOVD 48(R9), R6
	MOVD val+16(FP), R12
	MOVD sleep+24(FP), R13
	MOVD inner+32(FP), R14
	MOVD fn+0(FP), R9
	CALL (R9)
	MOVD R0, ret+40(FP)
	RET
