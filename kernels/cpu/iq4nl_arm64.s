//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// iq4_nl: blocks of 18 bytes for 32 weights, S = d; V9 masks nibbles, V10 is what
// they stand for.

DATA levelsNL<>+0(SB)/8, $0xf6eaddcfbfad9881
DATA levelsNL<>+8(SB)/8, $0x7159453526190d01
GLOBL levelsNL<>(SB), RODATA|NOPTR, $16

#define SETUP \
	MOVD  $18, R12 \
	BYTES(15, V9) \
	MOVD  $levelsNL<>(SB), R11 \
	FMOVQ (R11), F10
#define SCALES HALVES(0, 14, 15); ADD $2, R6, R11
#define START START32
#define CODES(g) \
	VLD1.P (R11)(R12), [V0.B16] \
	VUSHR  $4, V0.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	VTBL   V0.B16, [V10.B16], V0.B16 \
	VTBL   V1.B16, [V10.B16], V1.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 144

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecIQ4NLx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecIQ4NLx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecIQ4NLx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecIQ4NLx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecIQ4NLx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecIQ4NLx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4NLx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackIQ4NLNEON(dst, w []byte, runs int)
TEXT ·unpackIQ4NLNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
