//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q6_k: blocks of 210 bytes for 256 weights, M = 32*S; V9 masks nibbles, V10 is 32.

#define SETUP BYTES(15, V9); FLOATS(0x42000000, V10)
#define SCALES \
	MOVHU 208(R6), R11 \
	FMOVS R11, F0 \
	FCVTL(0, 0) \
	FMOVQ 192(R6), F1 \
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
#define SCALE(s, m) SCVTF4S(s, s); FMULE4S(0, 0, s, s); FMUL4S(10, s, m)
#define START MINUS16

// Piece s of half h: the low nibbles of V2 and V3 with bits 2s and 2s+1 of the
// half's high bits above them.
#define HIGH(h, s) \
	FLDPQ (128+32*(h))(R6), (F0, F1) \
	VSHL  $(6-2*(s)), V0.B16, V0.B16 \
	VSHL  $(6-2*(s)), V1.B16, V1.B16 \
	VUSHR $2, V0.B16, V0.B16 \
	VUSHR $2, V1.B16, V1.B16
#define PIECE(h, s) \
	HIGH(h, s) \
	VBIT V9.B16, V2.B16, V0.B16 \
	VBIT V9.B16, V3.B16, V1.B16 \
	GROUP16(0, 1, 4*(h)+(s))
#define PAIR(h, s) \
	FLDPQ (64*(h)+32*(s))(R6), (F2, F3) \
	PIECE(h, s) \
	VUSHR $4, V2.B16, V2.B16 \
	VUSHR $4, V3.B16, V3.B16 \
	PIECE(h, s+2)
#define GROUPS PAIR(0, 0); PAIR(0, 1); PAIR(1, 0); PAIR(1, 1)
#define RUN 210

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ6Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ6Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ6Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ6Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ6Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ6Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ6Kx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 32
#define STORES STORE16
// func unpackQ6KNEON(dst, w []byte, runs int)
TEXT ·unpackQ6KNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
