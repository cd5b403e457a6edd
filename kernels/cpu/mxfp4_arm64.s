//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// mxfp4: blocks of 17 bytes for 32 weights, S = 2^(e-128); V9 masks nibbles, V10 is what
// they stand for.

DATA levelsMX<>+0(SB)/8, $0x0c08060403020100
DATA levelsMX<>+8(SB)/8, $0xf4f8fafcfdfeff00
GLOBL levelsMX<>(SB), RODATA|NOPTR, $16

#define SETUP \
	MOVD  $17, R12 \
	BYTES(15, V9) \
	MOVD  $levelsMX<>(SB), R11 \
	FMOVQ (R11), F10

// EXPONENT places a block's e in a lane. POWERS makes 2^(e-128) of four: half of what has
// e as its exponent, and for 0, which has none, a subnormal number. V0 is one half, V1
// zeros, V2 the subnormal number.
#define EXPONENT(g, lane) MOVBU (17*(g))(R6), R11; VMOV R11, lane
#define POWERS(n, V) \
	VCMEQ V1.S4, V.S4, V3.S4 \
	VSHL  $23, V.S4, V.S4 \
	VAND  V2.B16, V3.B16, V3.B16 \
	FMUL4S(0, n, n) \
	VORR  V3.B16, V.B16, V.B16
#define SCALES \
	EXPONENT(0, V14.S[0]) \
	EXPONENT(1, V14.S[1]) \
	EXPONENT(2, V14.S[2]) \
	EXPONENT(3, V14.S[3]) \
	EXPONENT(4, V15.S[0]) \
	EXPONENT(5, V15.S[1]) \
	EXPONENT(6, V15.S[2]) \
	EXPONENT(7, V15.S[3]) \
	FLOATS(0x3f000000, V0) \
	ZERO(1) \
	FLOATS(0x200000, V2) \
	POWERS(14, V14) \
	POWERS(15, V15) \
	ADD $1, R6, R11
#define START START32
#define CODES(g) \
	VLD1.P (R11)(R12), [V0.B16] \
	VUSHR  $4, V0.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	VTBL   V0.B16, [V10.B16], V0.B16 \
	VTBL   V1.B16, [V10.B16], V1.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 136

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecMXFP4x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecMXFP4x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecMXFP4x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecMXFP4x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecMXFP4x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecMXFP4x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecMXFP4x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackMXFP4NEON(dst, w []byte, runs int)
TEXT ·unpackMXFP4NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
