//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q3_k: blocks of 110 bytes for 256 weights, S = d*(sc-32), M = 4*S; V9 masks
// nibbles, V10 pairs of bits, V11 is 32.

#define SETUP BYTES(15, V9); BYTES(3, V10); BYTES(32, V11)

// low nibbles of the scales to V0, four pairs of bits of R11's bytes to V1
#define SCALES \
	FMOVD 96(R6), F0 \
	VUSHR $4, V0.B16, V1.B16 \
	VZIP1 V1.D2, V0.D2, V0.D2 \
	VAND  V9.B16, V0.B16, V0.B16 \
	MOVWU 104(R6), R11 \
	LSR   $2, R11, R13 \
	ORR   R13<<32, R11, R13 \
	LSR   $4, R11, R14 \
	LSR   $6, R11, R15 \
	ORR   R15<<32, R14, R14 \
	VMOV  R13, V1.D[0] \
	VMOV  R14, V1.D[1] \
	VAND  V10.B16, V1.B16, V1.B16 \
	VSLI  $4, V1.B16, V0.B16 \
	VSUB  V11.B16, V0.B16, V1.B16 \
	MOVHU 108(R6), R11 \
	FMOVS R11, F0 \
	FCVTL(0, 0) \
	MOVD  $0x40800000, R11 \
	VDUP  R11, V8.S4 \
	SXTL8H(1, 2) \
	SXTL28H(1, 3) \
	SXTL4S(2, 12) \
	SXTL24S(2, 13) \
	SXTL4S(3, 14) \
	SXTL24S(3, 15) \
	SCALE(12, 4) \
	SCALE(13, 5) \
	SCALE(14, 6) \
	SCALE(15, 7)
#define SCALE(s, m) SCVTF4S(s, s); FMULE4S(0, 0, s, s); FMUL4S(8, s, m)
#define START MINUS16

// The low pairs of V2 and V3 with bit 4h+s of the 32 bytes of high bits above them.
#define PIECE(h, s) \
	FLDPQ (R6), (F0, F1) \
	VSHL  $(7-4*(h)-(s)), V0.B16, V0.B16 \
	VSHL  $(7-4*(h)-(s)), V1.B16, V1.B16 \
	VUSHR $5, V0.B16, V0.B16 \
	VUSHR $5, V1.B16, V1.B16 \
	VBIT  V10.B16, V2.B16, V0.B16 \
	VBIT  V10.B16, V3.B16, V1.B16 \
	GROUP16(0, 1, 4*(h)+(s)) \
	VUSHR $2, V2.B16, V2.B16 \
	VUSHR $2, V3.B16, V3.B16
#define HALF(h) \
	FLDPQ (32+32*(h))(R6), (F2, F3) \
	PIECE(h, 0) \
	PIECE(h, 1) \
	PIECE(h, 2) \
	PIECE(h, 3)
#define GROUPS HALF(0); HALF(1)
#define RUN 110

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ3Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ3Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ3Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ3Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ3Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ3Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ3Kx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 4
#define STORES STORE16
// func unpackQ3KNEON(dst, w []byte, runs int)
TEXT ·unpackQ3KNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
