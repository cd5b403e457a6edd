//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Sums of rows, 32, 4 or 1 columns of them at a time: the columns stay in
// registers while the rows pass. R0 dst, R1 columns left, R2 p, R3 rows, R4 the
// columns of v, R5 bytes between rows; R6 to R8 step through p and the rows.
//
// func accumRowsNEON(dst []float32, p []float32, v []float32, ld int)
TEXT ·accumRowsNEON(SB), NOSPLIT, $0-80
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD p_base+24(FP), R2
	MOVD p_len+32(FP), R3
	MOVD v_base+48(FP), R4
	MOVD ld+72(FP), R5
	LSL  $2, R5

by32:
	SUBS $32, R1
	BLT  by32done
	MOVD R2, R6
	MOVD R3, R7
	MOVD R4, R8
	ADD  $64, R0, R9
	VLD1 (R0), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1 (R9), [V20.S4, V21.S4, V22.S4, V23.S4]

by32row:
	CBZ     R7, by32store
	VLD1R.P 4(R6), [V0.S4]
	ADD     $64, R8, R10
	VLD1    (R8), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1    (R10), [V24.S4, V25.S4, V26.S4, V27.S4]
	VFMLA   V0.S4, V4.S4, V16.S4
	VFMLA   V0.S4, V5.S4, V17.S4
	VFMLA   V0.S4, V6.S4, V18.S4
	VFMLA   V0.S4, V7.S4, V19.S4
	VFMLA   V0.S4, V24.S4, V20.S4
	VFMLA   V0.S4, V25.S4, V21.S4
	VFMLA   V0.S4, V26.S4, V22.S4
	VFMLA   V0.S4, V27.S4, V23.S4
	ADD     R5, R8
	SUB     $1, R7
	B       by32row

by32store:
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R0)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R0)
	ADD    $128, R4
	B      by32

by32done:
	ADD $32, R1

by4:
	SUBS  $4, R1
	BLT   by4done
	MOVD  R2, R6
	MOVD  R3, R7
	MOVD  R4, R8
	FMOVQ (R0), F16

by4row:
	CBZ     R7, by4store
	VLD1R.P 4(R6), [V0.S4]
	FMOVQ   (R8), F4
	VFMLA   V0.S4, V4.S4, V16.S4
	ADD     R5, R8
	SUB     $1, R7
	B       by4row

by4store:
	FMOVQ.P F16, 16(R0)
	ADD     $16, R4
	B       by4

by4done:
	ADD $4, R1

by1:
	CBZ   R1, done
	MOVD  R2, R6
	MOVD  R3, R7
	MOVD  R4, R8
	FMOVS (R0), F16

by1row:
	CBZ     R7, by1store
	FMOVS.P 4(R6), F0
	FMOVS   (R8), F4
	FMADDS  F0, F16, F4, F16
	ADD     R5, R8
	SUB     $1, R7
	B       by1row

by1store:
	FMOVS.P F16, 4(R0)
	ADD     $4, R4
	SUB     $1, R1
	B       by1

done:
	RET

// func scaleNEON(x []float32, a float32)
TEXT ·scaleNEON(SB), NOSPLIT, $0-28
	MOVD  x_base+0(FP), R0
	MOVD  x_len+8(FP), R1
	FMOVS a+24(FP), F0
	VDUP  V0.S[0], V0.S4

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1   (R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	FMUL4S(0, 4, 4)
	FMUL4S(0, 5, 5)
	FMUL4S(0, 6, 6)
	FMUL4S(0, 7, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	FMOVS   (R0), F4
	FMULS   F0, F4, F4
	FMOVS.P F4, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// func addNEON(dst []float32, x []float32)
TEXT ·addNEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD x_base+24(FP), R2

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1   (R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	FADD4S(0, 4, 4)
	FADD4S(1, 5, 5)
	FADD4S(2, 6, 6)
	FADD4S(3, 7, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	FMOVS   (R0), F4
	FMOVS.P 4(R2), F0
	FADDS   F0, F4, F4
	FMOVS.P F4, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// func mulNEON(dst []float32, x []float32)
TEXT ·mulNEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD x_base+24(FP), R2

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1   (R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	FMUL4S(0, 4, 4)
	FMUL4S(1, 5, 5)
	FMUL4S(2, 6, 6)
	FMUL4S(3, 7, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	FMOVS   (R0), F4
	FMOVS.P 4(R2), F0
	FMULS   F0, F4, F4
	FMOVS.P F4, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// func maximumNEON(x []float32) float32
TEXT ·maximumNEON(SB), NOSPLIT, $0-28
	MOVD  x_base+0(FP), R0
	MOVD  x_len+8(FP), R1
	VLD1R (R0), [V0.S4]
	VORR  V0.B16, V0.B16, V1.B16
	VORR  V0.B16, V0.B16, V2.B16
	VORR  V0.B16, V0.B16, V3.B16

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	FMAXNM4S(4, 0, 0)
	FMAXNM4S(5, 1, 1)
	FMAXNM4S(6, 2, 2)
	FMAXNM4S(7, 3, 3)
	B      by16

by16done:
	ADD $16, R1
	FMAXNM4S(1, 0, 0)
	FMAXNM4S(3, 2, 2)
	FMAXNM4S(2, 0, 0)
	FMAXNMV4S(0, 0)

by1:
	CBZ     R1, done
	FMOVS.P 4(R0), F4
	FMAXNMS F4, F0, F0
	SUB     $1, R1
	B       by1

done:
	FMOVS F0, ret+24(FP)
	RET
