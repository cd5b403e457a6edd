//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q8_0: blocks of 34 bytes for 32 weights, S = d for both halves; a code is the
// weight's.

#define SETUP MOVD $34, R12
#define SCALES \
	HALVES(0, 14, 15) \
	VZIP1 V14.S4, V14.S4, V12.S4 \
	VZIP2 V14.S4, V14.S4, V13.S4 \
	VZIP1 V15.S4, V15.S4, V14.S4 \
	VZIP2 V15.S4, V15.S4, V15.S4 \
	ADD   $2, R6, R11
#define START
#define CODES(g) VLD1.P (R11)(R12), [V0.B16, V1.B16]; GROUP16(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 272

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ80x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ80x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ80x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ80x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ80x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ80x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ80x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE16
// func unpackQ80NEON(dst, w []byte, runs int)
TEXT ·unpackQ80NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
