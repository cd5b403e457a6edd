//go:build !noasm

#include "textflag.h"

// func pause(n int64)
// Executes YIELD n times.
TEXT ·pause(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R0

loop:
	YIELD
	SUBS $1, R0
	BGT  loop
	RET
