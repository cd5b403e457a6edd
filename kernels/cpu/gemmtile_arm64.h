// The body of one height of tile; gemm_arm64.s includes it with FOUR, ONE, LANE,
// SUMS and STORE defined for that height, and
//
//	R6 a, R0 lda, R2 w, R3 kc, R4 c, R5 ldc, R15 add
//
// loaded, strides in elements. The rows of a are R6 to R13; those beyond the
// height are computed and never read.

	LSL  $2, R0
	LSL  $2, R5
	ADD  R0, R6, R7
	ADD  R0, R7, R8
	ADD  R0, R8, R9
	ADD  R0, R9, R10
	ADD  R0, R10, R11
	ADD  R0, R11, R12
	ADD  R0, R12, R13
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	VEOR V19.B16, V19.B16, V19.B16
	VEOR V20.B16, V20.B16, V20.B16
	VEOR V21.B16, V21.B16, V21.B16
	VEOR V22.B16, V22.B16, V22.B16
	VEOR V23.B16, V23.B16, V23.B16
	VEOR V24.B16, V24.B16, V24.B16
	VEOR V25.B16, V25.B16, V25.B16
	VEOR V26.B16, V26.B16, V26.B16
	VEOR V27.B16, V27.B16, V27.B16
	VEOR V28.B16, V28.B16, V28.B16
	VEOR V29.B16, V29.B16, V29.B16
	VEOR V30.B16, V30.B16, V30.B16
	VEOR V31.B16, V31.B16, V31.B16

by4:
	SUBS   $4, R3
	BLT    by4done
	FOUR
	VLD1.P 64(R2), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1.P 64(R2), [V12.S4, V13.S4, V14.S4, V15.S4]
	LANE(0, 8, 9)
	LANE(1, 10, 11)
	LANE(2, 12, 13)
	LANE(3, 14, 15)
	B      by4

by4done:
	ADD $4, R3

by1:
	CBZ    R3, finish
	ONE
	VLD1.P 32(R2), [V8.S4, V9.S4]
	LANE(0, 8, 9)
	SUB    $1, R3
	B      by1

finish:
	CBZ  R15, store
	MOVD R4, R14
	SUMS

store:
	STORE
	RET

#undef FOUR
#undef ONE
#undef LANE
#undef SUMS
#undef STORE
