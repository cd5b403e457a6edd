//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// A tile is m rows by 8 columns of sums, 4 <= m <= 8: row i's are V(16+2i) and
// V(17+2i), the rows of a wait in V0 to V7, four features of each, and the rows of
// w pass through V8 to V15. Per four features and eight rows: 8 loads of a, 4 of
// w, 64 FMLA, so that the multipliers of a core with two of them are busy 32 of 34
// cycles at least. Counted, not measured.

// LANEm multiplies lane i of m rows by the columns in w0 and w1.
#define ROW(r, i, w0, w1) FMLAE4S(r, i, w0, 16+2*(r)); FMLAE4S(r, i, w1, 17+2*(r))
#define LANE4(i, w0, w1) ROW(0, i, w0, w1); ROW(1, i, w0, w1); ROW(2, i, w0, w1); ROW(3, i, w0, w1)
#define LANE5(i, w0, w1) LANE4(i, w0, w1); ROW(4, i, w0, w1)
#define LANE6(i, w0, w1) LANE5(i, w0, w1); ROW(5, i, w0, w1)
#define LANE7(i, w0, w1) LANE6(i, w0, w1); ROW(6, i, w0, w1)
#define LANE8(i, w0, w1) LANE7(i, w0, w1); ROW(7, i, w0, w1)

// FOURm loads four features of m rows of a, ONEm a single one.
#define FOUR4 FMOVQ.P 16(R6), F0; FMOVQ.P 16(R7), F1; FMOVQ.P 16(R8), F2; FMOVQ.P 16(R9), F3
#define FOUR5 FOUR4; FMOVQ.P 16(R10), F4
#define FOUR6 FOUR5; FMOVQ.P 16(R11), F5
#define FOUR7 FOUR6; FMOVQ.P 16(R12), F6
#define FOUR8 FOUR7; FMOVQ.P 16(R13), F7
#define ONE4 FMOVS.P 4(R6), F0; FMOVS.P 4(R7), F1; FMOVS.P 4(R8), F2; FMOVS.P 4(R9), F3
#define ONE5 ONE4; FMOVS.P 4(R10), F4
#define ONE6 ONE5; FMOVS.P 4(R11), F5
#define ONE7 ONE6; FMOVS.P 4(R12), F6
#define ONE8 ONE7; FMOVS.P 4(R13), F7

// STOREm stores the sums, ADDm adds what is there first. STORE goes the rows up
// from R4, which is where it finds it.
#define LOADC(n) \
	FMOVQ (R14), F0 \
	FMOVQ 16(R14), F1 \
	FADD4S(0, 16+2*(n), 16+2*(n)) \
	FADD4S(1, 17+2*(n), 17+2*(n)) \
	ADD R5, R14
#define ADD4 LOADC(0); LOADC(1); LOADC(2); LOADC(3)
#define ADD5 ADD4; LOADC(4)
#define ADD6 ADD5; LOADC(5)
#define ADD7 ADD6; LOADC(6)
#define ADD8 ADD7; LOADC(7)
#define PUT(A, B) FSTPQ (A, B), (R4); ADD R5, R4
#define STORE4 PUT(F16, F17); PUT(F18, F19); PUT(F20, F21); PUT(F22, F23)
#define STORE5 STORE4; PUT(F24, F25)
#define STORE6 STORE5; PUT(F26, F27)
#define STORE7 STORE6; PUT(F28, F29)
#define STORE8 STORE7; PUT(F30, F31)

// func gemmTile4NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
TEXT ·gemmTile4NEON(SB), NOSPLIT, $0-97
	MOVD  a_base+0(FP), R6
	MOVD  lda+24(FP), R0
	MOVD  w_base+32(FP), R2
	MOVD  kc+56(FP), R3
	MOVD  c_base+64(FP), R4
	MOVD  ldc+88(FP), R5
	MOVBU add+96(FP), R15
#define FOUR FOUR4
#define ONE ONE4
#define LANE LANE4
#define SUMS ADD4
#define STORE STORE4
#include "gemmtile_arm64.h"

// func gemmTile5NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
TEXT ·gemmTile5NEON(SB), NOSPLIT, $0-97
	MOVD  a_base+0(FP), R6
	MOVD  lda+24(FP), R0
	MOVD  w_base+32(FP), R2
	MOVD  kc+56(FP), R3
	MOVD  c_base+64(FP), R4
	MOVD  ldc+88(FP), R5
	MOVBU add+96(FP), R15
#define FOUR FOUR5
#define ONE ONE5
#define LANE LANE5
#define SUMS ADD5
#define STORE STORE5
#include "gemmtile_arm64.h"

// func gemmTile6NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
TEXT ·gemmTile6NEON(SB), NOSPLIT, $0-97
	MOVD  a_base+0(FP), R6
	MOVD  lda+24(FP), R0
	MOVD  w_base+32(FP), R2
	MOVD  kc+56(FP), R3
	MOVD  c_base+64(FP), R4
	MOVD  ldc+88(FP), R5
	MOVBU add+96(FP), R15
#define FOUR FOUR6
#define ONE ONE6
#define LANE LANE6
#define SUMS ADD6
#define STORE STORE6
#include "gemmtile_arm64.h"

// func gemmTile7NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
TEXT ·gemmTile7NEON(SB), NOSPLIT, $0-97
	MOVD  a_base+0(FP), R6
	MOVD  lda+24(FP), R0
	MOVD  w_base+32(FP), R2
	MOVD  kc+56(FP), R3
	MOVD  c_base+64(FP), R4
	MOVD  ldc+88(FP), R5
	MOVBU add+96(FP), R15
#define FOUR FOUR7
#define ONE ONE7
#define LANE LANE7
#define SUMS ADD7
#define STORE STORE7
#include "gemmtile_arm64.h"

// func gemmTile8NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
TEXT ·gemmTile8NEON(SB), NOSPLIT, $0-97
	MOVD  a_base+0(FP), R6
	MOVD  lda+24(FP), R0
	MOVD  w_base+32(FP), R2
	MOVD  kc+56(FP), R3
	MOVD  c_base+64(FP), R4
	MOVD  ldc+88(FP), R5
	MOVBU add+96(FP), R15
#define FOUR FOUR8
#define ONE ONE8
#define LANE LANE8
#define SUMS ADD8
#define STORE STORE8
#include "gemmtile_arm64.h"

// Transposes blocks of 4 rows by 4 features, two beneath each other. R0 dst, R1
// bytes between its rows, R3 to R6 and R7 to R10 the rows of src, R2 features left.
//
// func pack4NEON(dst []float32, nr int, src []float32, k0 int)
TEXT ·pack4NEON(SB), NOSPLIT, $0-64
	MOVD dst_base+0(FP), R0
	MOVD nr+24(FP), R1
	LSL  $2, R1
	MOVD src_base+32(FP), R3
	MOVD k0+56(FP), R2
	LSL  $2, R2, R11
	ADD  R11, R3, R4
	ADD  R11, R4, R5
	ADD  R11, R5, R6
	ADD  R11, R6, R7
	ADD  R11, R7, R8
	ADD  R11, R8, R9
	ADD  R11, R9, R10

by4:
	SUBS    $4, R2
	BLT     done
	FMOVQ.P 16(R3), F0
	FMOVQ.P 16(R4), F1
	FMOVQ.P 16(R5), F2
	FMOVQ.P 16(R6), F3
	FMOVQ.P 16(R7), F4
	FMOVQ.P 16(R8), F5
	FMOVQ.P 16(R9), F6
	FMOVQ.P 16(R10), F7
	VZIP1   V2.S4, V0.S4, V16.S4
	VZIP2   V2.S4, V0.S4, V17.S4
	VZIP1   V3.S4, V1.S4, V18.S4
	VZIP2   V3.S4, V1.S4, V19.S4
	VZIP1   V6.S4, V4.S4, V20.S4
	VZIP2   V6.S4, V4.S4, V21.S4
	VZIP1   V7.S4, V5.S4, V22.S4
	VZIP2   V7.S4, V5.S4, V23.S4
	VZIP1   V18.S4, V16.S4, V24.S4
	VZIP2   V18.S4, V16.S4, V26.S4
	VZIP1   V19.S4, V17.S4, V28.S4
	VZIP2   V19.S4, V17.S4, V30.S4
	VZIP1   V22.S4, V20.S4, V25.S4
	VZIP2   V22.S4, V20.S4, V27.S4
	VZIP1   V23.S4, V21.S4, V29.S4
	VZIP2   V23.S4, V21.S4, V31.S4
	FSTPQ   (F24, F25), (R0)
	ADD     R1, R0
	FSTPQ   (F26, F27), (R0)
	ADD     R1, R0
	FSTPQ   (F28, F29), (R0)
	ADD     R1, R0
	FSTPQ   (F30, F31), (R0)
	ADD     R1, R0
	B       by4

done:
	RET
