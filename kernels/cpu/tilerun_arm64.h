// One kernel over the 32 rows of a panel, 8 at a time, by as many tokens as EACH
// expands for; tile_arm64.h says what has to be defined. R0 a, R1 panel, R2 c, R3
// bytes between tokens of c, R4 add, R5 eights of rows left; R6 the activations, R7
// d, R8 d times sums of q; R9 lines of codes, R10 of S, R11 of M; R12 groups of 32
// left; R13 c again.

	MOVD  a_base+8(FP), R0
	MOVD  panel_base+32(FP), R1
	MOVD  c_base+56(FP), R2
	MOVD  ldc+80(FP), R3
	LSL   $2, R3
	MOVBU add+88(FP), R4
	MOVD  $4, R5

rows:
	MOVD R0, R6
	ADD  $256, R0, R7
	ADD  $SUMS, R0, R8
	MOVD R1, R9
	ADD  $(64*128), R1, R10
	ADD  $MINIMUMS, R1, R11
	MOVD $8, R12
	EACH(ZEROSUMS)

group:
	GROUP
	ADD  $32, R6
	SUBS $1, R12
	BNE  group

	CBZ  R4, store
	MOVD R2, R13
	EACH(ADDC)

store:
	MOVD R2, R13
	EACH(STOREC)
	ADD  $32, R1
	ADD  $32, R2
	SUBS $1, R5
	BNE  rows
	RET
