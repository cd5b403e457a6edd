//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q1_0: blocks of 18 bytes for 128 weights, S = d, M = d and codes 2 and 0: V9 is 2, V10
// spreads two bytes over 16 weights, V11 is the bit of each.

#define SETUP \
	BYTES(2, V9) \
	MOVD $0x0101010101010101, R11 \
	VEOR V10.B16, V10.B16, V10.B16 \
	VMOV R11, V10.D[1] \
	MOVD $0x8040201008040201, R11 \
	VDUP R11, V11.D2
#define SCALES \
	MOVHU (R6), R11 \
	VDUP  R11, V4.H8 \
	FCVTL(4, 14) \
	MOVHU 18(R6), R11 \
	VDUP  R11, V4.H8 \
	FCVTL(4, 15) \
	VORR  V14.B16, V14.B16, V12.B16 \
	VORR  V15.B16, V15.B16, V13.B16
#define START START32; MINUS32
#define CODES(g) \
	FMOVS  (18*((g)>>2)+2+4*((g)&3))(R6), F0 \
	VUSHR  $16, V0.S4, V1.S4 \
	VTBL   V10.B16, [V0.B16], V0.B16 \
	VTBL   V10.B16, [V1.B16], V1.B16 \
	VCMTST V11.B16, V0.B16, V0.B16 \
	VCMTST V11.B16, V1.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	VAND   V9.B16, V1.B16, V1.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 36

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ10x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ10x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ10x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ10x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ10x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ10x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ10x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 1
#define STORES STORE32
// func unpackQ10NEON(dst, w []byte, runs int)
TEXT ·unpackQ10NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
