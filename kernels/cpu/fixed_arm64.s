//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Sums of row i are V(16+2i) and V(17+2i), the rows of a wait in V0 to V7, eight
// features of each; a word of w holds two features of a column, which VLD2 takes
// apart. Per eight features: 8 loads of a, 4 of w, 128 SMLAL.

#define ROW(r, i, w) SMLALE4S(r, i, w, 16+2*(r)); SMLALE24S(r, i, w, 17+2*(r))
#define FEATURE(i, w) ROW(0, i, w); ROW(1, i, w); ROW(2, i, w); ROW(3, i, w); ROW(4, i, w); ROW(5, i, w); ROW(6, i, w); ROW(7, i, w)
#define PAIR(i) VLD2.P 32(R2), [V8.H8, V9.H8]; FEATURE(2*(i), 8); FEATURE(2*(i)+1, 9)

// func fixedSumsNEON(sums []int32, a, w []uint32, pairs int)
TEXT ·fixedSumsNEON(SB), NOSPLIT, $0-80
	MOVD sums_base+0(FP), R4
	MOVD a_base+24(FP), R6
	MOVD w_base+48(FP), R2
	MOVD pairs+72(FP), R3
	ADD  $512, R6, R7
	ADD  $512, R7, R8
	ADD  $512, R8, R9
	ADD  $512, R9, R10
	ADD  $512, R10, R11
	ADD  $512, R11, R12
	ADD  $512, R12, R13
	ZERO(16); ZERO(17); ZERO(18); ZERO(19); ZERO(20); ZERO(21); ZERO(22); ZERO(23)
	ZERO(24); ZERO(25); ZERO(26); ZERO(27); ZERO(28); ZERO(29); ZERO(30); ZERO(31)

by4:
	SUBS $4, R3
	BLT  done
	FMOVQ.P 16(R6), F0
	FMOVQ.P 16(R7), F1
	FMOVQ.P 16(R8), F2
	FMOVQ.P 16(R9), F3
	FMOVQ.P 16(R10), F4
	FMOVQ.P 16(R11), F5
	FMOVQ.P 16(R12), F6
	FMOVQ.P 16(R13), F7
	PAIR(0)
	PAIR(1)
	PAIR(2)
	PAIR(3)
	B    by4

done:
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R4)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R4)
	VST1.P [V24.S4, V25.S4, V26.S4, V27.S4], 64(R4)
	VST1.P [V28.S4, V29.S4, V30.S4, V31.S4], 64(R4)
	RET
