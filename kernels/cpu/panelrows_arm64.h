// One kernel over as many rows as EACH expands for, 16 columns at a time;
// panel_arm64.s includes it with LOADB defined: the next 16 elements of b at R15, as
// float32 in V24 to V27, by way of V28 to V31.
//
// R0 c, R1 bytes between its rows, R2 a, R3 bytes between its rows, R4 b, R5 bytes
// between its rows, R6 columns left, R7 k, R8 add. R9 to R14 rows of a, R15 b and R17
// c again, R16 k left. Row i's sums are V(4i) to V(4i+3).

	MOVD  c_base+0(FP), R0
	MOVD  ldc+24(FP), R1
	LSL   $2, R1
	MOVD  a_base+32(FP), R2
	MOVD  lda+56(FP), R3
	LSL   $2, R3
	MOVD  b_base+64(FP), R4
	MOVD  ldb+88(FP), R5
	LSL   $SHIFT, R5
	MOVD  n+96(FP), R6
	MOVD  k+104(FP), R7
	MOVBU add+112(FP), R8

columns:
	CBZ  R6, done
	MOVD R2, R9
	ADD  R3, R9, R10
	ADD  R3, R10, R11
	ADD  R3, R11, R12
	ADD  R3, R12, R13
	ADD  R3, R13, R14
	MOVD R4, R15
	MOVD R7, R16
	EACH(CLEAR)
	CBZ  R8, products
	MOVD R0, R17
	EACH(FETCH)

products:
	CBZ R16, store
	LOADB
	ADD R5, R15
	EACH(MULTIPLY)
	SUB $1, R16
	B   products

store:
	MOVD R0, R17
	EACH(STORE)
	ADD  $64, R0
	ADD  $(16<<SHIFT), R4
	SUB  $16, R6
	B    columns

done:
	RET
