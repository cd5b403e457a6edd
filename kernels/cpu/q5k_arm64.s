//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q5_k: blocks of 176 bytes for 256 weights; V9 masks nibbles.

#define SETUP BYTES(15, V9)
#define SCALES SCALESK4
#define START START32; MINUS32

// The low nibbles of V2 and V3 with bit g of the 32 bytes of high bits above them.
#define GROUPOF(g) \
	FLDPQ 16(R6), (F0, F1) \
	VSHL  $(7-(g)), V0.B16, V0.B16 \
	VSHL  $(7-(g)), V1.B16, V1.B16 \
	VUSHR $3, V0.B16, V0.B16 \
	VUSHR $3, V1.B16, V1.B16 \
	VBIT  V9.B16, V2.B16, V0.B16 \
	VBIT  V9.B16, V3.B16, V1.B16 \
	GROUP32(0, 1, g)
#define CODES(p) \
	FLDPQ (48+32*(p))(R6), (F2, F3) \
	GROUPOF(2*(p)) \
	VUSHR $4, V2.B16, V2.B16 \
	VUSHR $4, V3.B16, V3.B16 \
	GROUPOF(2*(p)+1)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3)
#define RUN 176

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ5Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ5Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ5Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ5Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ5Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ5Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ5Kx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackQ5KNEON(dst, w []byte, runs int)
TEXT ·unpackQ5KNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
