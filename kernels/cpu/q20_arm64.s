//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q2_0: blocks of 18 bytes for 64 weights, S = d, M = d; V9 masks pairs, V10 spreads four
// bytes over 16 weights, V11 is the shift of each to the left.

DATA spread20<>+0(SB)/8, $0x0101010100000000
DATA spread20<>+8(SB)/8, $0x0303030302020202
GLOBL spread20<>(SB), RODATA|NOPTR, $16

#define SETUP \
	BYTES(3, V9) \
	MOVD  $spread20<>(SB), R11 \
	FMOVQ (R11), F10 \
	MOVD  $0xfafcfe00, R11 \
	VDUP  R11, V11.S4
#define WORD2(i, a, b) MOVHU (18*(i))(R6), R11; VMOV R11, V4.H[a]; VMOV R11, V4.H[b]
#define SCALES \
	WORD2(0, 0, 1) \
	WORD2(1, 2, 3) \
	WORD2(2, 4, 5) \
	WORD2(3, 6, 7) \
	FCVTL(4, 14) \
	FCVTL2(4, 15) \
	VORR V14.B16, V14.B16, V12.B16 \
	VORR V15.B16, V15.B16, V13.B16
#define START START32; MINUS32
#define CODES(g) \
	FMOVS (18*((g)>>1)+2+8*((g)&1))(R6), F0 \
	FMOVS (18*((g)>>1)+6+8*((g)&1))(R6), F1 \
	VTBL  V10.B16, [V0.B16], V0.B16 \
	VTBL  V10.B16, [V1.B16], V1.B16 \
	USHL16B(11, 0, 0) \
	USHL16B(11, 1, 1) \
	VAND  V9.B16, V0.B16, V0.B16 \
	VAND  V9.B16, V1.B16, V1.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 72

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ20x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ20x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ20x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ20x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ20x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ20x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ20x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 1
#define STORES STORE32
// func unpackQ20NEON(dst, w []byte, runs int)
TEXT ·unpackQ20NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
