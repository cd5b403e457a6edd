//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// iq4_xs: blocks of 136 bytes for 256 weights, S = d*(sc-32); V9 masks nibbles, V10
// is what they stand for, V11 bit 2g of 16 for group g.

DATA levelsXS<>+0(SB)/8, $0xf6eaddcfbfad9881
DATA levelsXS<>+8(SB)/8, $0x7159453526190d01
GLOBL levelsXS<>(SB), RODATA|NOPTR, $16

#define SETUP \
	BYTES(15, V9) \
	MOVD  $levelsXS<>(SB), R11 \
	FMOVQ (R11), F10 \
	MOVD  $0x0040001000040001, R11 \
	VMOV  R11, V11.D[0] \
	LSL   $8, R11 \
	VMOV  R11, V11.D[1]

// the low nibbles of the scales in turn, their bits 4 and 5 from V2
#define SCALES \
	FMOVS  4(R6), F0 \
	VUSHR  $4, V0.B16, V1.B16 \
	VAND   V9.B16, V0.B16, V0.B16 \
	VZIP1  V1.B16, V0.B16, V0.B16 \
	UXTL8H(0, 0) \
	MOVHU  2(R6), R11 \
	VDUP   R11, V2.H8 \
	VCMTST V11.H8, V2.H8, V3.H8 \
	VUSHR  $1, V2.H8, V2.H8 \
	VCMTST V11.H8, V2.H8, V2.H8 \
	VUSHR  $15, V3.H8, V3.H8 \
	VUSHR  $15, V2.H8, V2.H8 \
	VSLI   $1, V2.H8, V3.H8 \
	VSLI   $4, V3.H8, V0.H8 \
	MOVD   $32, R11 \
	VDUP   R11, V1.H8 \
	VSUB   V1.H8, V0.H8, V0.H8 \
	SXTL4S(0, 14) \
	SXTL24S(0, 15) \
	SCVTF4S(14, 14) \
	SCVTF4S(15, 15) \
	MOVHU  (R6), R11 \
	FMOVS  R11, F0 \
	FCVTL(0, 0) \
	FMULE4S(0, 0, 14, 14) \
	FMULE4S(0, 0, 15, 15)
#define START START32
#define CODES(g) \
	FMOVQ (8+16*(g))(R6), F0 \
	VUSHR $4, V0.B16, V1.B16 \
	VAND  V9.B16, V0.B16, V0.B16 \
	VTBL  V0.B16, [V10.B16], V0.B16 \
	VTBL  V1.B16, [V10.B16], V1.B16 \
	GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define RUN 136

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecIQ4XSx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecIQ4XSx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecIQ4XSx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecIQ4XSx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecIQ4XSx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecIQ4XSx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecIQ4XSx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackIQ4XSNEON(dst, w []byte, runs int)
TEXT ·unpackIQ4XSNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
