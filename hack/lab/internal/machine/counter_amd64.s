#include "textflag.h"

// func readTimeStampCounter() uint64
TEXT ·readTimeStampCounter(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
