//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q4_1: blocks of 20 bytes for 32 weights, S = d, M = -m; V9 masks nibbles.

#define SETUP MOVD $20, R12; BYTES(15, V9)
#define SCALES \
	HALVES(0, 14, 15) \
	HALVES(2, 12, 13) \
	FNEG4S(12, 12) \
	FNEG4S(13, 13) \
	ADD $4, R6, R11
#define START START32; MINUS32
#define CODES(g) \
	VLD1.P (R11)(R12), [V0.B16] \
	VUSHR  $4, V0.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 160

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ41x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ41x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ41x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ41x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ41x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ41x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ41x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackQ41NEON(dst, w []byte, runs int)
TEXT ·unpackQ41NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
