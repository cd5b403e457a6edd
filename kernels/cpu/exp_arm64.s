//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

DATA exps<>+0(SB)/4, $0x42b20000 // 89
DATA exps<>+4(SB)/4, $0xc2d20000 // -105
DATA exps<>+8(SB)/4, $0x3fb8aa3b // log2 e
DATA exps<>+12(SB)/4, $0x3f317218 // ln 2, its upper part
DATA exps<>+16(SB)/4, $0xb102e308 // and its lower
DATA exps<>+20(SB)/4, $0x39500d01 // 1/7!
DATA exps<>+24(SB)/4, $0x3ab60b61 // 1/6!
DATA exps<>+28(SB)/4, $0x3c088889 // 1/5!
DATA exps<>+32(SB)/4, $0x3d2aaaab // 1/4!
DATA exps<>+36(SB)/4, $0x3e2aaaab // 1/3!
DATA exps<>+40(SB)/4, $0x3f000000 // 1/2!
DATA exps<>+44(SB)/4, $0x3f800000 // 1
DATA exps<>+48(SB)/4, $0x0000007f // the bias of exponents
GLOBL exps<>(SB), RODATA|NOPTR, $52

DATA gelus<>+0(SB)/4, $0x41a00000 // 20
DATA gelus<>+4(SB)/4, $0x3eb504f3 // 1/sqrt 8
DATA gelus<>+8(SB)/4, $0x3ab53f62 // Q9: 0.0013828094
DATA gelus<>+12(SB)/4, $0xbd169181 // Q8: -0.036759857
DATA gelus<>+16(SB)/4, $0x3e2259cb // Q7: 0.15854566
DATA gelus<>+20(SB)/4, $0xbe87477a // Q6: -0.2642172
DATA gelus<>+24(SB)/4, $0x3e1ef28e // Q5: 0.15522215
DATA gelus<>+28(SB)/4, $0xbcafb743 // Q4: -0.02144969
DATA gelus<>+32(SB)/4, $0x3dd4e5bb // Q3: 0.1039538
DATA gelus<>+36(SB)/4, $0x3df7e2a6 // Q2: 0.12103777
DATA gelus<>+40(SB)/4, $0x3e10a242 // Q1: 0.14124396
DATA gelus<>+44(SB)/4, $0x3e106cf2 // Q0: 0.1410406
DATA gelus<>+48(SB)/4, $0xbf000000 // -1/2
GLOBL gelus<>(SB), RODATA|NOPTR, $52

DATA softs<>+0(SB)/4, $0xc0000000 // -2
DATA softs<>+4(SB)/4, $0x3cb327a4 // 62/2835
DATA softs<>+8(SB)/4, $0xbd5d0dd1 // -17/315
DATA softs<>+12(SB)/4, $0x3e088889 // 2/15
DATA softs<>+16(SB)/4, $0xbeaaaaab // -1/3
DATA softs<>+20(SB)/4, $0x3e800000 // 1/4
GLOBL softs<>(SB), RODATA|NOPTR, $24

// The constants of EXP, to V16 to V28; R20 is used.
#define EXPCONSTANTS \
	MOVD $exps<>(SB), R20 \
	VLD1R.P 4(R20), [V16.S4] \
	VLD1R.P 4(R20), [V17.S4] \
	VLD1R.P 4(R20), [V18.S4] \
	VLD1R.P 4(R20), [V19.S4] \
	VLD1R.P 4(R20), [V20.S4] \
	VLD1R.P 4(R20), [V21.S4] \
	VLD1R.P 4(R20), [V22.S4] \
	VLD1R.P 4(R20), [V23.S4] \
	VLD1R.P 4(R20), [V24.S4] \
	VLD1R.P 4(R20), [V25.S4] \
	VLD1R.P 4(R20), [V26.S4] \
	VLD1R.P 4(R20), [V27.S4] \
	VLD1R (R20), [V28.S4]

// TERM is S = C + F*P: a step of Horner's scheme.
#define TERM(C, F, P, S) VORR C.B16, C.B16, S.B16; VFMLA F.S4, P.S4, S.S4

// EXP replaces r by its exponential: n = round(r / ln 2), f = r - n ln 2 with ln 2
// in two parts, e^f by its Taylor series to the seventh power (5e-9), times 2^n in
// two steps, each within the range of exponents. Arguments saturate where float32
// does; a NaN stays. Registers are given by number and by name.
#define EXP(r, R, n, N, p, P, q, Q) \
	FMIN4S(16, r, r) \
	FMAX4S(17, r, r) \
	FMUL4S(18, r, n) \
	FRINTN4S(n, n) \
	VFMLS V19.S4, N.S4, R.S4 \
	VFMLS V20.S4, N.S4, R.S4 \
	TERM(V22, R, V21, P) \
	TERM(V23, R, P, Q) \
	TERM(V24, R, Q, P) \
	TERM(V25, R, P, Q) \
	TERM(V26, R, Q, P) \
	TERM(V27, R, P, Q) \
	TERM(V27, R, Q, P) \
	FCVTNS4S(n, n) \
	SSHR4S(1, n, q) \
	VSUB Q.S4, N.S4, N.S4 \
	VADD V28.S4, Q.S4, Q.S4 \
	VADD V28.S4, N.S4, N.S4 \
	VSHL $23, Q.S4, Q.S4 \
	VSHL $23, N.S4, N.S4 \
	FMUL4S(q, p, r) \
	FMUL4S(n, r, r)

// APPLY writes OP of the values at R1 to R0, R2 of them: V0 to V0, four at a time
// and the rest one by one, the other lanes being zero.
#define APPLY(OP) \
by4: \
	SUBS    $4, R2 \
	BLT     by4done \
	FMOVQ.P 16(R1), F0 \
	OP \
	FMOVQ.P F0, 16(R0) \
	B       by4 \
by4done: \
	ADD     $4, R2 \
by1: \
	CBZ     R2, done \
	FMOVS.P 4(R1), F0 \
	OP \
	FMOVS.P F0, 4(R0) \
	SUB     $1, R2 \
	B       by1 \
done: \
	RET

// func expSumNEON(x []float32, shift float32) float32
TEXT ·expSumNEON(SB), NOSPLIT, $0-36
	MOVD  x_base+0(FP), R0
	MOVD  x_len+8(FP), R2
	FMOVS shift+24(FP), F15
	VDUP  V15.S[0], V15.S4
	EXPCONSTANTS
	VEOR  V10.B16, V10.B16, V10.B16
	VEOR  V11.B16, V11.B16, V11.B16

by8:
	SUBS   $8, R2
	BLT    by8done
	VLD1   (R0), [V0.S4, V1.S4]
	FSUB4S(15, 0, 0)
	FSUB4S(15, 1, 1)
	EXP(0, V0, 2, V2, 3, V3, 4, V4)
	EXP(1, V1, 5, V5, 6, V6, 7, V7)
	FADD4S(0, 10, 10)
	FADD4S(1, 11, 11)
	VST1.P [V0.S4, V1.S4], 32(R0)
	B      by8

by8done:
	ADD $8, R2

by1:
	CBZ     R2, done
	FMOVS   (R0), F0
	FSUB4S(15, 0, 0)
	EXP(0, V0, 2, V2, 3, V3, 4, V4)
	FMOVS.P F0, 4(R0)
	FMOVS   F0, F5             // clears the other lanes
	FADD4S(5, 10, 10)
	SUB     $1, R2
	B       by1

done:
	FADD4S(11, 10, 10)
	FADDP4S(10, 10, 10)
	FADDP4S(10, 10, 10)
	FMOVS F10, ret+32(FP)
	RET

// V14 a1, V15 a3, V29 and V30 the limits
#define GATED \
	FMIN4S(29, 0, 5) \
	FMAX4S(30, 5, 5) \
	FMUL4S(5, 5, 6) \
	TERM(V14, V15, V6, V7) \
	FMUL4S(5, 7, 6) \
	FNEG4S(6, 6) \
	EXP(6, V6, 1, V1, 2, V2, 3, V3) \
	FADD4S(27, 6, 6) \
	FDIV4S(6, 0, 0)

// func gatedNEON(dst []float32, x []float32, a1 float32, a3 float32)
TEXT ·gatedNEON(SB), NOSPLIT, $0-56
	MOVD  dst_base+0(FP), R0
	MOVD  x_base+24(FP), R1
	MOVD  x_len+32(FP), R2
	FMOVS a1+48(FP), F14
	VDUP  V14.S[0], V14.S4
	FMOVS a3+52(FP), F15
	VDUP  V15.S[0], V15.S4
	MOVD  $0x447a0000, R3      // 1000
	VDUP  R3, V29.S4
	FNEG4S(29, 30)
	EXPCONSTANTS
	APPLY(GATED)

// V13 -alpha, V14 limit, V15 -limit, V29 offset
#define SWIGLU \
	FMIN4S(14, 0, 0) \
	FMIN4S(14, 5, 5) \
	FMAX4S(15, 5, 5) \
	FADD4S(29, 5, 5) \
	FMUL4S(13, 0, 6) \
	EXP(6, V6, 1, V1, 2, V2, 3, V3) \
	FADD4S(27, 6, 6) \
	FDIV4S(6, 0, 0) \
	FMUL4S(5, 0, 0)

// func swiGLUNEON(dst []float32, gate []float32, up []float32, alpha float32, limit float32, offset float32)
TEXT ·swiGLUNEON(SB), NOSPLIT, $0-84
	MOVD  dst_base+0(FP), R0
	MOVD  gate_base+24(FP), R1
	MOVD  gate_len+32(FP), R2
	MOVD  up_base+48(FP), R3
	FMOVS alpha+72(FP), F13
	VDUP  V13.S[0], V13.S4
	FNEG4S(13, 13)
	FMOVS limit+76(FP), F14
	VDUP  V14.S[0], V14.S4
	FNEG4S(14, 15)
	FMOVS offset+80(FP), F29
	VDUP  V29.S[0], V29.S4
	EXPCONSTANTS

by4:
	SUBS    $4, R2
	BLT     by4done
	FMOVQ.P 16(R1), F0
	FMOVQ.P 16(R3), F5
	SWIGLU
	FMOVQ.P F0, 16(R0)
	B       by4

by4done:
	ADD $4, R2

by1:
	CBZ     R2, done
	FMOVS.P 4(R1), F0
	FMOVS.P 4(R3), F5
	SWIGLU
	FMOVS.P F0, 4(R0)
	SUB     $1, R2
	B       by1

done:
	RET

// The tail of the normal distribution is exp(-x^2/2) t Q(t) with t = 1 / (1 + |x| /
// sqrt(8)); the fit of Q is told in internal/gen/exp.go. V6 |x|, V7 t, V8 and V9 Q,
// V10 x^2, V11 what its rounding lost; V12 and V13 hold a constant at a time.
#define NEXT(V) VLD1R.P 4(R21), [V.S4]
#define QTERM(P, S) NEXT(S); VFMLA V7.S4, P.S4, S.S4
#define GELU \
	MOVD $gelus<>(SB), R21 \
	FABS4S(0, 6) \
	NEXT(V12) \
	FMIN4S(12, 6, 6) \
	NEXT(V13) \
	VORR V27.B16, V27.B16, V7.B16 \
	VFMLA V13.S4, V6.S4, V7.S4 \
	FDIV4S(7, 27, 7) \
	NEXT(V8) \
	QTERM(V8, V9) \
	QTERM(V9, V8) \
	QTERM(V8, V9) \
	QTERM(V9, V8) \
	QTERM(V8, V9) \
	QTERM(V9, V8) \
	QTERM(V8, V9) \
	QTERM(V9, V8) \
	QTERM(V8, V9) \
	FMUL4S(7, 9, 9) \
	FMUL4S(6, 6, 10) \
	FNEG4S(10, 11) \
	VFMLA V6.S4, V6.S4, V11.S4 \
	NEXT(V12) \
	FMUL4S(12, 10, 10) \
	FMUL4S(12, 11, 11) \
	EXP(10, V10, 1, V1, 2, V2, 3, V3) \
	VORR V10.B16, V10.B16, V1.B16 \
	VFMLA V11.S4, V1.S4, V10.S4 \
	FMUL4S(10, 9, 9) \
	FSUB4S(9, 27, 5) \
	SSHR4S(31, 0, 4) \
	VBIT V4.B16, V9.B16, V5.B16 \
	FMUL4S(5, 0, 0)

// func geluNEON(dst []float32, x []float32)
TEXT ·geluNEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD x_base+24(FP), R1
	MOVD x_len+32(FP), R2
	EXPCONSTANTS
	APPLY(GELU)

// limit * tanh(u) for u = x / limit: (1-e)/(1+e) with e = exp(-2|u|), and where that
// would cancel, under 1/4, the odd Taylor series to the ninth power. V15 limit, V31
// the sign bits; V5 u, V6 |u|, V7 e and then the far result, V8 |u|^2, V9 and V10 the
// series.
#define STERM(P, S) NEXT(S); VFMLA V8.S4, P.S4, S.S4
#define SOFTCAP \
	MOVD $softs<>(SB), R21 \
	FDIV4S(15, 0, 5) \
	FABS4S(5, 6) \
	NEXT(V12) \
	FMUL4S(12, 6, 7) \
	EXP(7, V7, 1, V1, 2, V2, 3, V3) \
	FSUB4S(7, 27, 11) \
	FADD4S(7, 27, 7) \
	FDIV4S(7, 11, 7) \
	FMUL4S(6, 6, 8) \
	NEXT(V9) \
	STERM(V9, V10) \
	STERM(V10, V9) \
	STERM(V9, V10) \
	FMUL4S(8, 10, 10) \
	VORR V6.B16, V6.B16, V9.B16 \
	VFMLA V6.S4, V10.S4, V9.S4 \
	NEXT(V12) \
	FSUB4S(12, 6, 8) \
	SSHR4S(31, 8, 8) \
	VBIT V8.B16, V9.B16, V7.B16 \
	VBIT V31.B16, V5.B16, V7.B16 \
	FMUL4S(15, 7, 0)

// func softCapNEON(x []float32, limit float32)
TEXT ·softCapNEON(SB), NOSPLIT, $0-28
	MOVD  x_base+0(FP), R0
	MOVD  x_base+0(FP), R1
	MOVD  x_len+8(FP), R2
	FMOVS limit+24(FP), F15
	VDUP  V15.S[0], V15.S4
	MOVD  $0x80000000, R3
	VDUP  R3, V31.S4
	EXPCONSTANTS
	APPLY(SOFTCAP)
