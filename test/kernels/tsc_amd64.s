#include "textflag.h"

// func timeStamp() uint64
TEXT ·timeStamp(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
