//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "integer_arm64.h"

// Rows that something else has unpacked: runs of 384 bytes, 256 signed codes, then
// S and M.

#define SETUP
#define RUN 384

#define SCALES FLDPQ 256(R6), (F14, F15)
#define START START32
#define CODES(g) FLDPQ (32*(g))(R6), (F0, F1); GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecStrip32x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip32x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip32x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecStrip32x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip32x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip32x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#undef SCALES
#undef START
#undef CODES
#undef GROUPS

#define SCALES FLDPQ 256(R6), (F14, F15); FLDPQ 288(R6), (F12, F13)
#define START START32; MINUS32
#define CODES(g) FLDPQ (32*(g))(R6), (F0, F1); GROUP32(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecStrip32Minx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip32Minx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip32Minx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecStrip32Minx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip32Minx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip32Minx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip32Minx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#undef SCALES
#undef START
#undef CODES
#undef GROUPS

#define SCALES FLDPQ 256(R6), (F12, F13); FLDPQ 288(R6), (F14, F15)
#define START
#define CODES(g) FLDPQ (32*(g))(R6), (F0, F1); GROUP16(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecStrip16x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip16x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip16x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecStrip16x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip16x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip16x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16x4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#undef SCALES
#undef START
#undef CODES
#undef GROUPS

#define SCALES FLDPQ 256(R6), (F12, F13); FLDPQ 288(R6), (F14, F15); FLDPQ 320(R6), (F4, F5); FLDPQ 352(R6), (F6, F7)
#define START MINUS16
#define CODES(g) FLDPQ (32*(g))(R6), (F0, F1); GROUP16(0, 1, g)
#define GROUPS CODES(0); CODES(1); CODES(2); CODES(3); CODES(4); CODES(5); CODES(6); CODES(7)
#define DOT32 DOT32NEON
#define DOT16 DOT16NEON

// func matVecStrip16Minx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx1NEON(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip16Minx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx2NEON(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip16Minx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx4NEON(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#define DOT32 DOT32DotProd
#define DOT16 DOT16DotProd

// func matVecStrip16Minx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx1DotProd(SB), NOSPLIT, $0-112
#include "matvec1_arm64.h"

// func matVecStrip16Minx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx2DotProd(SB), NOSPLIT, $0-112
#include "matvec2_arm64.h"

// func matVecStrip16Minx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)
TEXT ·matVecStrip16Minx4DotProd(SB), NOSPLIT, $0-112
#include "matvec4_arm64.h"

#undef DOT32
#undef DOT16
#undef SCALES
#undef START
#undef CODES
#undef GROUPS
