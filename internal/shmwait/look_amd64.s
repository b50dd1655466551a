//go:build !race

#include "textflag.h"

// func looks(f *Flag, n uint64, count int) bool
TEXT ·looks(SB), NOSPLIT, $0-25
	MOVQ f+0(FP), AX
	MOVQ n+8(FP), BX
	MOVQ count+16(FP), CX
	TESTQ CX, CX
	JLE  never

again:
	CMPQ (AX), BX
	JCC  there
	PAUSE
	DECQ CX
	JNZ  again

never:
	MOVB $0, ret+24(FP)
	RET

there:
	MOVB $1, ret+24(FP)
	RET
