//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Instructions per weight in the loop over four rows, 64 weights a turn: float32
// (4 loads of x and w + 16 FMLA) and what the loop costs, 0.4; bfloat16 and
// float16 0.6, a widening for four weights being added. Bytes per weight: 4 and 2.
// Counted, not measured.

#define LOAD16(ROW) VLD1.P 64(ROW), [V4.S4, V5.S4, V6.S4, V7.S4]
#define LOAD4(ROW) FMOVQ.P 16(ROW), F4
#define LOAD1(ROW) FMOVS.P 4(ROW), F4

// func dotRowsF32NEON(y []float32, w []float32, ld int, x []float32)
TEXT ·dotRowsF32NEON(SB), NOSPLIT, $0-80
	MOVD y_base+0(FP), R0
	MOVD y_len+8(FP), R1
	MOVD w_base+24(FP), R2
	MOVD ld+48(FP), R3
	LSL  $2, R3
	MOVD x_base+56(FP), R4
	MOVD x_len+64(FP), R5

#include "dotrows_arm64.h"

#undef LOAD16
#undef LOAD4
#undef LOAD1
#define LOAD16(ROW) VLD1.P 32(ROW), [V8.H8, V9.H8]; SHLL16(8, 4); SHLL2X16(8, 5); SHLL16(9, 6); SHLL2X16(9, 7)
#define LOAD4(ROW) FMOVD.P 8(ROW), F4; SHLL16(4, 4)
#define LOAD1(ROW) MOVHU.P 2(ROW), R12; LSL $16, R12; FMOVS R12, F4

// func dotRowsBF16NEON(y []float32, w []byte, ld int, x []float32)
TEXT ·dotRowsBF16NEON(SB), NOSPLIT, $0-80
	MOVD y_base+0(FP), R0
	MOVD y_len+8(FP), R1
	MOVD w_base+24(FP), R2
	MOVD ld+48(FP), R3
	LSL  $1, R3
	MOVD x_base+56(FP), R4
	MOVD x_len+64(FP), R5

#include "dotrows_arm64.h"

#undef LOAD16
#undef LOAD4
#undef LOAD1
#define LOAD16(ROW) VLD1.P 32(ROW), [V8.H8, V9.H8]; FCVTL(8, 4); FCVTL2(8, 5); FCVTL(9, 6); FCVTL2(9, 7)
#define LOAD4(ROW) FMOVD.P 8(ROW), F4; FCVTL(4, 4)
#define LOAD1(ROW) MOVHU.P 2(ROW), R12; FMOVS R12, F4; FCVTHS F4, F4

// func dotRowsF16NEON(y []float32, w []byte, ld int, x []float32)
TEXT ·dotRowsF16NEON(SB), NOSPLIT, $0-80
	MOVD y_base+0(FP), R0
	MOVD y_len+8(FP), R1
	MOVD w_base+24(FP), R2
	MOVD ld+48(FP), R3
	LSL  $1, R3
	MOVD x_base+56(FP), R4
	MOVD x_len+64(FP), R5

#include "dotrows_arm64.h"
