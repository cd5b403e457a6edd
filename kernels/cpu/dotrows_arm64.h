// The body of one dot-product kernel; dot_arm64.s includes it once for each kind
// of weights, having defined
//
//	LOAD16  V4 to V7 = the next 16 weights of a row, as float32
//	LOAD4   V4 = the next 4
//	LOAD1   F4 = the next one
//
// which step the row's pointer, and loaded
//
//	R0 y, R1 rows left, R2 the first row, R3 bytes between rows, R4 x, R5 K
//
// Four rows go together and the rest one by one. Each row has the same four sums,
// of vectors 0 to 3 modulo 4, so that its bits do not depend on its company:
// V16 to V19 for the first, then V20, V24 and V28 and following.

#define MUL16(ROW, S0, S1, S2, S3) \
	LOAD16(ROW) \
	VFMLA V0.S4, V4.S4, S0.S4 \
	VFMLA V1.S4, V5.S4, S1.S4 \
	VFMLA V2.S4, V6.S4, S2.S4 \
	VFMLA V3.S4, V7.S4, S3.S4
#define MUL4(ROW, S0) LOAD4(ROW); VFMLA V0.S4, V4.S4, S0.S4
#define MUL1(ROW, S0) LOAD1(ROW); FMADDS F0, S0, F4, S0
#define ZERO4(S0, S1, S2, S3) \
	VEOR S0.B16, S0.B16, S0.B16 \
	VEOR S1.B16, S1.B16, S1.B16 \
	VEOR S2.B16, S2.B16, S2.B16 \
	VEOR S3.B16, S3.B16, S3.B16
// the sum of four vectors goes to the lowest lane of the first
#define SUM(s) \
	FADD4S((s)+1, s, s) \
	FADD4S((s)+3, (s)+2, (s)+2) \
	FADD4S((s)+2, s, s) \
	FADDP4S(s, s, s) \
	FADDP4S(s, s, s)

rows4:
	CMP  $4, R1
	BLT  rows1
	MOVD R2, R6
	ADD  R3, R6, R7
	ADD  R3, R7, R8
	ADD  R3, R8, R9
	ADD  R3, R9, R2
	MOVD R4, R10
	MOVD R5, R11
	ZERO4(V16, V17, V18, V19)
	ZERO4(V20, V21, V22, V23)
	ZERO4(V24, V25, V26, V27)
	ZERO4(V28, V29, V30, V31)

rows4by16:
	SUBS   $16, R11
	BLT    rows4by16done
	VLD1.P 64(R10), [V0.S4, V1.S4, V2.S4, V3.S4]
	MUL16(R6, V16, V17, V18, V19)
	MUL16(R7, V20, V21, V22, V23)
	MUL16(R8, V24, V25, V26, V27)
	MUL16(R9, V28, V29, V30, V31)
	B      rows4by16

rows4by16done:
	ADD $16, R11

rows4by4:
	SUBS    $4, R11
	BLT     rows4by4done
	FMOVQ.P 16(R10), F0
	MUL4(R6, V16)
	MUL4(R7, V20)
	MUL4(R8, V24)
	MUL4(R9, V28)
	B       rows4by4

rows4by4done:
	ADD $4, R11
	SUM(16)
	SUM(20)
	SUM(24)
	SUM(28)

rows4by1:
	CBZ     R11, rows4store
	FMOVS.P 4(R10), F0
	MUL1(R6, F16)
	MUL1(R7, F20)
	MUL1(R8, F24)
	MUL1(R9, F28)
	SUB     $1, R11
	B       rows4by1

rows4store:
	FMOVS F16, (R0)
	FMOVS F20, 4(R0)
	FMOVS F24, 8(R0)
	FMOVS F28, 12(R0)
	ADD   $16, R0
	SUB   $4, R1
	B     rows4

rows1:
	CBZ  R1, done
	MOVD R2, R6
	ADD  R3, R2
	MOVD R4, R10
	MOVD R5, R11
	ZERO4(V16, V17, V18, V19)

rows1by16:
	SUBS   $16, R11
	BLT    rows1by16done
	VLD1.P 64(R10), [V0.S4, V1.S4, V2.S4, V3.S4]
	MUL16(R6, V16, V17, V18, V19)
	B      rows1by16

rows1by16done:
	ADD $16, R11

rows1by4:
	SUBS    $4, R11
	BLT     rows1by4done
	FMOVQ.P 16(R10), F0
	MUL4(R6, V16)
	B       rows1by4

rows1by4done:
	ADD $4, R11
	SUM(16)

rows1by1:
	CBZ     R11, rows1store
	FMOVS.P 4(R10), F0
	MUL1(R6, F16)
	SUB     $1, R11
	B       rows1by1

rows1store:
	FMOVS.P F16, 4(R0)
	SUB     $1, R1
	B       rows1

done:
	RET

#undef MUL16
#undef MUL4
#undef MUL1
#undef ZERO4
#undef SUM
