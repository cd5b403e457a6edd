//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q5_1: blocks of 24 bytes for 32 weights, S = d, M = -m; V9 masks nibbles.

#define SETUP MOVD $24, R12; BYTES(15, V9); SPREAD
#define SCALES \
	HALVES(0, 14, 15) \
	HALVES(2, 12, 13) \
	FNEG4S(12, 12) \
	FNEG4S(13, 13) \
	ADD $4, R6, R11
#define START START32; MINUS32

// The fifth bits are 4 bytes in front of the nibbles: V10 spreads two of them over
// 16 weights, V11 is the bit of each weight. Reading 4 bytes for the second two
// takes in nibbles, which are not looked at.
#define FIFTH(at, V) \
	FMOVS  (at)(R11), F4 \
	VTBL   V10.B16, [V4.B16], V4.B16 \
	VCMTST V11.B16, V4.B16, V4.B16 \
	VUSHR  $7, V4.B16, V4.B16 \
	VSLI   $4, V4.B16, V.B16
#define SPREAD \
	MOVD $0x0101010101010101, R11 \
	VEOR V10.B16, V10.B16, V10.B16 \
	VMOV R11, V10.D[1] \
	MOVD $0x8040201008040201, R11 \
	VDUP R11, V11.D2
#define CODES(g) \
	FMOVQ 4(R11), F0 \
	VUSHR $4, V0.B16, V1.B16 \
	VAND  V9.B16, V0.B16, V0.B16 \
	FIFTH(0, V0) \
	FIFTH(2, V1) \
	ADD   $24, R11 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 192

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ51x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ51x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ51x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ51x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ51x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ51x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ51x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackQ51NEON(dst, w []byte, runs int)
TEXT ·unpackQ51NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
