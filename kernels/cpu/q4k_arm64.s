//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// q4_k: blocks of 144 bytes for 256 weights; V9 masks nibbles.

#define SETUP BYTES(15, V9)
#define SCALES SCALESK4
#define START START32; MINUS32
#define CODES(p) \
	FLDPQ (16+32*(p))(R6), (F0, F1) \
	VUSHR $4, V0.B16, V2.B16 \
	VUSHR $4, V1.B16, V3.B16 \
	VAND  V9.B16, V0.B16, V0.B16 \
	VAND  V9.B16, V1.B16, V1.B16 \
	GROUP32(0, 1, 2*(p)) \
	GROUP32(2, 3, 2*(p)+1)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3)
#define RUN 144

#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecQ4Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ4Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ4Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecQ4Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecQ4Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecQ4Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecQ4Kx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#define OFFSET 0
#define STORES STORE32
// func unpackQ4KNEON(dst, w []byte, runs int)
TEXT ·unpackQ4KNEON(SB), NOSPLIT, $0-56
#include "unpack_arm64.h"
