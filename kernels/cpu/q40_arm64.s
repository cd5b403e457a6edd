//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q4_0: blocks of 18 bytes for 32 weights, S = d, M = 8d; V9 masks nibbles, V10 is 8.

#define SETUP MOVD $18, R12; BYTES(15, V9); FLOATS(0x41000000, V10)
#define SCALES HALVES(0, 14, 15); FMUL4S(10, 14, 12); FMUL4S(10, 15, 13); ADD $2, R6, R11
#define START START32; MINUS32
#define CODES(g) \
	VLD1.P (R11)(R12), [V0.B16] \
	VUSHR  $4, V0.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 144

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ40x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ40x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ40x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ40x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ40x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ40x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ40x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 8
#define STORES STORE32
// func unpackQ40NEON(dst, w []byte, runs int)
TEXT ·unpackQ40NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
