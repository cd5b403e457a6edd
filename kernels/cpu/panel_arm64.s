//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Instructions per 16 columns and one k, for r rows: 5r and what b takes: 1 for
// float32, 5 for half precision, 11 for bytes, and 4 for the loop. Counted, not
// measured.

#define EACH1(op) op(0, R9, F28)
#define EACH2(op) EACH1(op); op(1, R10, F29)
#define EACH4(op) EACH2(op); op(2, R11, F30); op(3, R12, F31)
#define EACH6(op) EACH4(op); op(4, R13, F28); op(5, R14, F29)

#define CLEAR(i, ROW, F) ZERO(4*(i)); ZERO(4*(i)+1); ZERO(4*(i)+2); ZERO(4*(i)+3)
#define FETCH(i, ROW, F) \
	LDRQ(0, 17, 4*(i)) \
	LDRQ(1, 17, 4*(i)+1) \
	LDRQ(2, 17, 4*(i)+2) \
	LDRQ(3, 17, 4*(i)+3) \
	ADD R1, R17
#define STORE(i, ROW, F) \
	STPQ(0, 4*(i)+1, 17, 4*(i)) \
	STPQ(1, 4*(i)+3, 17, 4*(i)+2) \
	ADD R1, R17
#define MULTIPLY(i, ROW, F) \
	FMOVS.P 4(ROW), F \
	FMLAE4S(28+((i)&3), 0, 24, 4*(i)) \
	FMLAE4S(28+((i)&3), 0, 25, 4*(i)+1) \
	FMLAE4S(28+((i)&3), 0, 26, 4*(i)+2) \
	FMLAE4S(28+((i)&3), 0, 27, 4*(i)+3)

#define SHIFT 2
#define LOADB VLD1 (R15), [V24.S4, V25.S4, V26.S4, V27.S4]

// func panelF32x6NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)
TEXT ·panelF32x6NEON(SB), NOSPLIT, $0-113
#define EACH EACH6
#include "panelrows_arm64.h"
#undef EACH

// func panelF32x4NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)
TEXT ·panelF32x4NEON(SB), NOSPLIT, $0-113
#define EACH EACH4
#include "panelrows_arm64.h"
#undef EACH

// func panelF32x2NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)
TEXT ·panelF32x2NEON(SB), NOSPLIT, $0-113
#define EACH EACH2
#include "panelrows_arm64.h"
#undef EACH

// func panelF32x1NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)
TEXT ·panelF32x1NEON(SB), NOSPLIT, $0-113
#define EACH EACH1
#include "panelrows_arm64.h"
#undef EACH

#undef SHIFT
#undef LOADB

#define SHIFT 1
#define LOADB FLDPQ (R15), (F28, F29); FCVTL(28, 24); FCVTL2(28, 25); FCVTL(29, 26); FCVTL2(29, 27)

// func panelF16x6NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelF16x6NEON(SB), NOSPLIT, $0-113
#define EACH EACH6
#include "panelrows_arm64.h"
#undef EACH

// func panelF16x4NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelF16x4NEON(SB), NOSPLIT, $0-113
#define EACH EACH4
#include "panelrows_arm64.h"
#undef EACH

// func panelF16x2NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelF16x2NEON(SB), NOSPLIT, $0-113
#define EACH EACH2
#include "panelrows_arm64.h"
#undef EACH

// func panelF16x1NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelF16x1NEON(SB), NOSPLIT, $0-113
#define EACH EACH1
#include "panelrows_arm64.h"
#undef EACH

#undef SHIFT
#undef LOADB

#define SHIFT 0
#define LOADB \
	FMOVQ (R15), F28 \
	SXTL8H(28, 29) \
	SXTL28H(28, 30) \
	SXTL4S(29, 24) \
	SXTL24S(29, 25) \
	SXTL4S(30, 26) \
	SXTL24S(30, 27) \
	SCVTF4S(24, 24) \
	SCVTF4S(25, 25) \
	SCVTF4S(26, 26) \
	SCVTF4S(27, 27)

// func panelQ8x6NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelQ8x6NEON(SB), NOSPLIT, $0-113
#define EACH EACH6
#include "panelrows_arm64.h"
#undef EACH

// func panelQ8x4NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelQ8x4NEON(SB), NOSPLIT, $0-113
#define EACH EACH4
#include "panelrows_arm64.h"
#undef EACH

// func panelQ8x2NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelQ8x2NEON(SB), NOSPLIT, $0-113
#define EACH EACH2
#include "panelrows_arm64.h"
#undef EACH

// func panelQ8x1NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
TEXT ·panelQ8x1NEON(SB), NOSPLIT, $0-113
#define EACH EACH1
#include "panelrows_arm64.h"
#undef EACH

#undef SHIFT
#undef LOADB

// func scatterF16NEON(dst []byte, ld int, src []float32)
TEXT ·scatterF16NEON(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD ld+24(FP), R1
	LSL  $1, R1
	MOVD src_base+32(FP), R2
	MOVD src_len+40(FP), R3

next:
	CBZ     R3, done
	FMOVS.P 4(R2), F0
	FCVTSH  F0, F0
	FMOVS   F0, R4
	MOVH    R4, (R0)
	ADD     R1, R0
	SUB     $1, R3
	B       next

done:
	RET

// func scatterQ8NEON(dst []byte, ld int, src []float32, inverse float32)
TEXT ·scatterQ8NEON(SB), NOSPLIT, $0-60
	MOVD  dst_base+0(FP), R0
	MOVD  ld+24(FP), R1
	MOVD  src_base+32(FP), R2
	MOVD  src_len+40(FP), R3
	FMOVS inverse+56(FP), F1

next:
	CBZ     R3, done
	FMOVS.P 4(R2), F0
	FMULS   F1, F0, F0
	FCVTNS4S(0, 0)
	FMOVS   F0, R4
	MOVB    R4, (R0)
	ADD     R1, R0
	SUB     $1, R3
	B       next

done:
	RET

// func maxBitsNEON(x []float32) uint32
TEXT ·maxBitsNEON(SB), NOSPLIT, $0-28
	MOVD x_base+0(FP), R0
	MOVD x_len+8(FP), R1
	MOVD $0x7fffffff, R2
	VDUP R2, V31.S4
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16

by8:
	SUBS   $8, R1
	BLT    by8done
	VLD1.P 32(R0), [V2.S4, V3.S4]
	VAND   V31.B16, V2.B16, V2.B16
	VAND   V31.B16, V3.B16, V3.B16
	VUMAX  V2.S4, V0.S4, V0.S4
	VUMAX  V3.S4, V1.S4, V1.S4
	B      by8

by8done:
	ADD $8, R1

by1:
	CBZ     R1, done
	FMOVS.P 4(R0), F2
	VAND    V31.B16, V2.B16, V2.B16
	VUMAX   V2.S4, V0.S4, V0.S4
	SUB     $1, R1
	B       by1

done:
	VUMAX V1.S4, V0.S4, V0.S4
	UMAXV4S(0, 0)
	FMOVS F0, ret+24(FP)
	RET
