//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q2_k: blocks of 84 bytes for 256 weights; V9 masks nibbles, V10 pairs of bits.

#define SETUP BYTES(15, V9); BYTES(3, V10)
#define SCALES \
	FMOVS 80(R6), F0 \
	FCVTL(0, 0) \
	FMOVQ (R6), F1 \
	VUSHR $4, V1.B16, V2.B16 \
	VAND  V9.B16, V1.B16, V1.B16 \
	UXTL28H(1, 3) \
	UXTL8H(1, 1) \
	SCALES4(1, 0, 12, 13) \
	SCALES4(3, 0, 14, 15) \
	UXTL28H(2, 3) \
	UXTL8H(2, 2) \
	SCALES4(2, 1, 4, 5) \
	SCALES4(3, 1, 6, 7)
#define START MINUS16
#define PIECE(h, s) \
	VAND V10.B16, V2.B16, V0.B16 \
	VAND V10.B16, V3.B16, V1.B16 \
	GROUP16(0, 1, 4*(h)+(s)) \
	VUSHR $2, V2.B16, V2.B16 \
	VUSHR $2, V3.B16, V3.B16
#define HALF(h) \
	FLDPQ (16+32*(h))(R6), (F2, F3) \
	PIECE(h, 0) \
	PIECE(h, 1) \
	PIECE(h, 2) \
	PIECE(h, 3)
#define GROUPS HALF(0); HALF(1)
#define RUN 84

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ2Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ2Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ2Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ2Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ2Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ2Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ2Kx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE16
// func unpackQ2KNEON(dst, w []byte, runs int)
TEXT ·unpackQ2KNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
