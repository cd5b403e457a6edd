//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Sums in V16 to V19, of squares in V20 to V23; V15 the mean.
#define MOMENT(d, s, q) FSUB2D(15, d, d); FADD2D(d, s, s); FMLA2D(d, d, q)

// func momentsNEON(x []float32, mean float64) (sum, squares float64)
TEXT ·momentsNEON(SB), NOSPLIT, $0-48
	MOVD  x_base+0(FP), R0
	MOVD  x_len+8(FP), R1
	FMOVD mean+24(FP), F15
	VDUP  V15.D[0], V15.D2
	ZERO(16)
	ZERO(17)
	ZERO(18)
	ZERO(19)
	ZERO(20)
	ZERO(21)
	ZERO(22)
	ZERO(23)

by8:
	SUBS   $8, R1
	BLT    by8done
	VLD1.P 32(R0), [V0.S4, V1.S4]
	FCVTL2D(0, 4)
	FCVTL22D(0, 5)
	FCVTL2D(1, 6)
	FCVTL22D(1, 7)
	MOMENT(4, 16, 20)
	MOMENT(5, 17, 21)
	MOMENT(6, 18, 22)
	MOMENT(7, 19, 23)
	B      by8

by8done:
	ADD $8, R1
	FADD2D(17, 16, 16)
	FADD2D(19, 18, 18)
	FADD2D(18, 16, 16)
	FADDP2D(16, 16, 16)
	FADD2D(21, 20, 20)
	FADD2D(23, 22, 22)
	FADD2D(22, 20, 20)
	FADDP2D(20, 20, 20)

by1:
	CBZ     R1, done
	FMOVS.P 4(R0), F0
	FCVTSD  F0, F0
	FSUBD   F15, F0, F0
	FADDD   F0, F16, F16
	FMADDD  F0, F20, F0, F20
	SUB     $1, R1
	B       by1

done:
	FMOVD F16, sum+32(FP)
	FMOVD F20, squares+40(FP)
	RET

// func rmsApplyNEON(dst, x, w []float32, r, offset float32)
TEXT ·rmsApplyNEON(SB), NOSPLIT, $0-80
	MOVD  dst_base+0(FP), R0
	MOVD  x_base+24(FP), R2
	MOVD  x_len+32(FP), R1
	MOVD  w_base+48(FP), R3
	FMOVS r+72(FP), F14
	VDUP  V14.S[0], V14.S4
	FMOVS offset+76(FP), F15
	VDUP  V15.S[0], V15.S4

by8:
	SUBS   $8, R1
	BLT    by8done
	VLD1.P 32(R2), [V0.S4, V1.S4]
	VLD1.P 32(R3), [V2.S4, V3.S4]
	FMUL4S(14, 0, 0)
	FMUL4S(14, 1, 1)
	FADD4S(15, 2, 2)
	FADD4S(15, 3, 3)
	FMUL4S(2, 0, 0)
	FMUL4S(3, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	B      by8

by8done:
	ADD $8, R1

by1:
	CBZ     R1, done
	FMOVS.P 4(R2), F0
	FMOVS.P 4(R3), F2
	FMULS   F14, F0, F0
	FADDS   F15, F2, F2
	FMULS   F2, F0, F0
	FMOVS.P F0, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// ROTATE turns V0 and V1 by the angles whose cosines are V2 and sines V3; each
// product and sum is rounded, as in plain Go.
#define ROTATE \
	FMUL4S(2, 0, 4) \
	FMUL4S(3, 1, 5) \
	FMUL4S(2, 1, 6) \
	FMUL4S(3, 0, 7) \
	FSUB4S(5, 4, 0) \
	FADD4S(7, 6, 1)

// func ropeHalfNEON(x, cos, sin []float32)
TEXT ·ropeHalfNEON(SB), NOSPLIT, $0-72
	MOVD x_base+0(FP), R0
	MOVD cos_base+24(FP), R2
	MOVD cos_len+32(FP), R1
	MOVD sin_base+48(FP), R3
	ADD  R1<<2, R0, R4

by4:
	SUBS    $4, R1
	BLT     by4done
	FMOVQ   (R0), F0
	FMOVQ   (R4), F1
	FMOVQ.P 16(R2), F2
	FMOVQ.P 16(R3), F3
	ROTATE
	FMOVQ.P F0, 16(R0)
	FMOVQ.P F1, 16(R4)
	B       by4

by4done:
	ADD $4, R1

by1:
	CBZ     R1, done
	FMOVS   (R0), F0
	FMOVS   (R4), F1
	FMOVS.P 4(R2), F2
	FMOVS.P 4(R3), F3
	ROTATE
	FMOVS.P F0, 4(R0)
	FMOVS.P F1, 4(R4)
	SUB     $1, R1
	B       by1

done:
	RET

// func ropeInterleavedNEON(x, cos, sin []float32)
TEXT ·ropeInterleavedNEON(SB), NOSPLIT, $0-72
	MOVD x_base+0(FP), R0
	MOVD cos_base+24(FP), R2
	MOVD cos_len+32(FP), R1
	MOVD sin_base+48(FP), R3

by4:
	SUBS    $4, R1
	BLT     by4done
	VLD2    (R0), [V0.S4, V1.S4]
	FMOVQ.P 16(R2), F2
	FMOVQ.P 16(R3), F3
	ROTATE
	VST2.P  [V0.S4, V1.S4], 32(R0)
	B       by4

by4done:
	ADD $4, R1

by1:
	CBZ     R1, done
	FMOVS   (R0), F0
	FMOVS   4(R0), F1
	FMOVS.P 4(R2), F2
	FMOVS.P 4(R3), F3
	ROTATE
	FMOVS.P F0, 4(R0)
	FMOVS.P F1, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET
