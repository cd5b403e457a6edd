//go:build !noasm

#include "textflag.h"

// func pause(n int64)
// Executes PAUSE n times, which leaves the core's resources to its sibling.
TEXT ·pause(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), AX

loop:
	PAUSE
	DECQ AX
	JGT  loop
	RET
