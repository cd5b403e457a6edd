// One kernel over rows of an integer scheme: integer_arm64.h says what has to be
// defined. R0 y, R1 bytes between tokens of y, R2 rows left, R3 the row, R4 bytes
// between rows, R5 a, R8 bytes between records, R9 runs, R10 runs left.

	MOVD y_base+0(FP), R0
	MOVD ldy+24(FP), R1
	LSL  $2, R1
	MOVD rows+32(FP), R2
	MOVD w_base+40(FP), R3
	MOVD ldw+64(FP), R4
	MOVD a_base+72(FP), R5
	MOVD step+96(FP), R8
	MOVD runs+104(FP), R9
	SETUP

row:
	CBZ  R2, done
	MOVD R3, R6
	MOVD R5, R19
	ADD  $512, R5, R20
	ADD  $1024, R5, R21
	ADD  $1536, R5, R22
	MOVD R9, R10
	ZEROS

run:
	SCALES
	START
	GROUPS
	ADD  $RUN, R6
	STEP
	SUBS $1, R10
	BNE  run
	MOVD R0, R11
	TOTALS
	ADD  $4, R0
	ADD  R4, R3
	SUB  $1, R2
	B    row

done:
	RET
