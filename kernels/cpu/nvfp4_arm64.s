//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// nvfp4: blocks of 36 bytes for 64 weights, S = half(s) for 16; V9 masks nibbles, V10 is
// what they stand for.

DATA levelsNV<>+0(SB)/8, $0x0c08060403020100
DATA levelsNV<>+8(SB)/8, $0xf4f8fafcfdfeff00
GLOBL levelsNV<>(SB), RODATA|NOPTR, $16

#define SETUP \
	BYTES(15, V9) \
	MOVD  $levelsNV<>(SB), R11 \
	FMOVQ (R11), F10

// HALFS makes S of eight scales: seven bits as the upper ones of an f16 that is 128 times
// too small, and 127 as 0. V3 is 127, V4 the seven bits, V5 zeros, V6 128.
#define HALFS(n, V, lo, hi) \
	VCMEQ V3.H8, V.H8, V7.H8 \
	VSHL  $7, V.H8, V.H8 \
	VAND  V4.B16, V.B16, V.B16 \
	VBIT  V7.B16, V5.B16, V.B16 \
	FCVTL(n, lo) \
	FCVTL2(n, hi) \
	FMUL4S(6, lo, lo) \
	FMUL4S(6, hi, hi)
#define FOUR(i) MOVWU (36*(i))(R6), R11; VMOV R11, V0.S[i]
#define SCALES \
	FOUR(0) \
	FOUR(1) \
	FOUR(2) \
	FOUR(3) \
	UXTL8H(0, 1) \
	UXTL28H(0, 2) \
	MOVD $127, R11 \
	VDUP R11, V3.H8 \
	MOVD $0x3f80, R11 \
	VDUP R11, V4.H8 \
	ZERO(5) \
	FLOATS(0x43000000, V6) \
	HALFS(1, V1, 12, 13) \
	HALFS(2, V2, 14, 15)
#define START
#define CODES(g) \
	FMOVQ (36*((g)>>1)+4+16*((g)&1))(R6), F0 \
	VUSHR $4, V0.B16, V1.B16 \
	VAND  V9.B16, V0.B16, V0.B16 \
	VTBL  V0.B16, [V10.B16], V2.B16 \
	VTBL  V1.B16, [V10.B16], V3.B16 \
	VZIP1 V3.D2, V2.D2, V0.D2 \
	VZIP2 V3.D2, V2.D2, V1.D2 \
	GROUP16(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 144

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecNVFP4x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecNVFP4x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecNVFP4x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecNVFP4x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecNVFP4x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecNVFP4x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecNVFP4x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE16
// func unpackNVFP4NEON(dst, w []byte, runs int)
TEXT ·unpackNVFP4NEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
