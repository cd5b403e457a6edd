//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// R0 the bytes, R1 x, R2 groups left; R4, R5 and R7 where the group's scale, sum and
// shift go.
//
// func quantizeNEON(dst *[512]byte, x *[256]float32)
TEXT ·quantizeNEON(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD $8, R2
	ADD  $256, R0, R4
	ADD  $288, R0, R5
	ADD  $384, R0, R7
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	ADD  $320, R0, R6
	VST1.P [V0.B16, V1.B16], 32(R6)
	VST1 [V0.B16, V1.B16], (R6)
	ADD  $416, R0, R6
	VST1.P [V0.B16, V1.B16], 32(R6)
	VST1.P [V0.B16, V1.B16], 32(R6)
	VST1 [V0.B16, V1.B16], (R6)
	MOVD $0x7fffffff, R11
	VDUP R11, V31.S4
	MOVD $0x7f800000, R9
	MOVD $0x0d800000, R10 // 2^-100
	MOVD $0x3c010204, R11 // 1/127
	FMOVS R11, F28
	MOVD $0x42fe0000, R11 // 127
	FMOVS R11, F29

group:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]

	// the largest magnitude: magnitudes compare like their bits, NaN above all
	VAND  V31.B16, V0.B16, V16.B16
	VAND  V31.B16, V1.B16, V17.B16
	VAND  V31.B16, V2.B16, V18.B16
	VAND  V31.B16, V3.B16, V19.B16
	VAND  V31.B16, V4.B16, V20.B16
	VAND  V31.B16, V5.B16, V21.B16
	VAND  V31.B16, V6.B16, V22.B16
	VAND  V31.B16, V7.B16, V23.B16
	VUMAX V17.S4, V16.S4, V16.S4
	VUMAX V19.S4, V18.S4, V18.S4
	VUMAX V21.S4, V20.S4, V20.S4
	VUMAX V23.S4, V22.S4, V22.S4
	VUMAX V18.S4, V16.S4, V16.S4
	VUMAX V22.S4, V20.S4, V20.S4
	VUMAX V20.S4, V16.S4, V16.S4
	UMAXV4S(16, 16)
	FMOVS F16, R11
	CMP   R9, R11
	BHS   unknown
	CMP   R10, R11
	BLO   nothing
	FMULS F28, F16, F30
	FDIVS F16, F29, F27

values:
	FMULE4S(27, 0, 0, 0)
	FMULE4S(27, 0, 1, 1)
	FMULE4S(27, 0, 2, 2)
	FMULE4S(27, 0, 3, 3)
	FMULE4S(27, 0, 4, 4)
	FMULE4S(27, 0, 5, 5)
	FMULE4S(27, 0, 6, 6)
	FMULE4S(27, 0, 7, 7)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	FCVTNS4S(2, 2)
	FCVTNS4S(3, 3)
	FCVTNS4S(4, 4)
	FCVTNS4S(5, 5)
	FCVTNS4S(6, 6)
	FCVTNS4S(7, 7)
	XTN4H(0, 16)
	XTN28H(1, 16)
	XTN4H(2, 17)
	XTN28H(3, 17)
	XTN4H(4, 18)
	XTN28H(5, 18)
	XTN4H(6, 19)
	XTN28H(7, 19)
	XTN8B(16, 20)
	XTN216B(17, 20)
	XTN8B(18, 21)
	XTN216B(19, 21)
	VST1.P [V20.B16, V21.B16], 32(R0)

	SADDLP8H(20, 22)
	SADDLP8H(21, 23)
	VADD    V23.H8, V22.H8, V22.H8
	SADDLP4S(22, 22)
	VADDV   V22.S4, V22
	FMOVS   F22, R11
	SCVTFWS R11, F0
	FMULS   F30, F0, F0
	LSLW    $7, R11, R11
	NEGW    R11, R11
	FMOVS.P F30, 4(R4)
	FMOVS.P F0, 4(R5)
	MOVW.P  R11, 4(R7)
	SUBS    $1, R2
	BNE     group
	RET

unknown:
	MOVD  $0x7fc00000, R11
	FMOVS R11, F30
	VEOR  V27.B16, V27.B16, V27.B16
	B     values

nothing:
	VEOR V30.B16, V30.B16, V30.B16
	VEOR V27.B16, V27.B16, V27.B16
	B    values

DATA divisors<>+0(SB)/4, $0x42fe0000 // 127
DATA divisors<>+4(SB)/4, $0x42fc0000 // 126
DATA divisors<>+8(SB)/4, $0x42fa0000 // 125
DATA divisors<>+12(SB)/4, $0x42f80000 // 124
DATA divisors<>+16(SB)/4, $0x42f60000 // 123
DATA divisors<>+20(SB)/4, $0x42f40000 // 122
DATA divisors<>+24(SB)/4, $0x42f20000 // 121
DATA divisors<>+28(SB)/4, $0x42f00000 // 120
DATA divisors<>+32(SB)/4, $0x38820610 // 1/127^2
DATA divisors<>+36(SB)/4, $0x38841883 // 1/126^2
DATA divisors<>+40(SB)/4, $0x388637bd // 1/125^2
DATA divisors<>+44(SB)/4, $0x3888642a // 1/124^2
DATA divisors<>+48(SB)/4, $0x388a9e36 // 1/123^2
DATA divisors<>+52(SB)/4, $0x388ce657 // 1/122^2
DATA divisors<>+56(SB)/4, $0x388f3d01 // 1/121^2
DATA divisors<>+60(SB)/4, $0x3891a2b4 // 1/120^2
GLOBL divisors<>(SB), RODATA|NOPTR, $64

// CANDIDATE leaves in p and r what divisor c, whose inverse is lane c of V20 and V21,
// makes of values j and j+8: the squares of what is rounded off, added.
#define CANDIDATE(c, p, r) \
	FMULE4S(20+((c)>>2), (c)&3, 0, 4) \
	FMULE4S(20+((c)>>2), (c)&3, 1, 5) \
	FMULE4S(20+((c)>>2), (c)&3, 2, 6) \
	FMULE4S(20+((c)>>2), (c)&3, 3, 7) \
	FRINTN4S(4, 22) \
	FRINTN4S(5, 23) \
	FRINTN4S(6, 24) \
	FRINTN4S(7, 25) \
	FSUB4S(22, 4, 4) \
	FSUB4S(23, 5, 5) \
	FSUB4S(24, 6, 6) \
	FSUB4S(25, 7, 7) \
	FMUL4S(4, 4, 4) \
	FMUL4S(5, 5, 5) \
	FMUL4S(6, 6, 6) \
	FMUL4S(7, 7, 7) \
	FADD4S(6, 4, p) \
	FADD4S(7, 5, r)

// FOUR leaves the sums of candidates c to c+3 in e.
#define FOUR(c, e) \
	CANDIDATE(c, 8, 9) \
	CANDIDATE((c)+1, 10, 11) \
	CANDIDATE((c)+2, 12, 13) \
	CANDIDATE((c)+3, 14, 15) \
	FADDP4S(10, 8, 8) \
	FADDP4S(14, 12, 12) \
	FADDP4S(12, 8, 8) \
	FADDP4S(11, 9, 9) \
	FADDP4S(15, 13, 13) \
	FADDP4S(13, 9, 9) \
	FADD4S(9, 8, e)

// Registers as above; V26 to V29 the divisors and what their errors count.
//
// func quantizeFineNEON(dst *[512]byte, x *[256]float32)
TEXT ·quantizeFineNEON(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD $16, R2
	ADD  $256, R0, R4
	ADD  $320, R0, R5
	ADD  $384, R0, R7
	MOVD $0x7fffffff, R11
	VDUP R11, V31.S4
	MOVD $0x7f800000, R9
	MOVD $0x0d800000, R10 // 2^-100
	MOVD $divisors<>(SB), R11
	VLD1 (R11), [V26.S4, V27.S4, V28.S4, V29.S4]
	MOVD $0x3f800000, R12

group:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VAND  V31.B16, V0.B16, V16.B16
	VAND  V31.B16, V1.B16, V17.B16
	VAND  V31.B16, V2.B16, V18.B16
	VAND  V31.B16, V3.B16, V19.B16
	VUMAX V17.S4, V16.S4, V16.S4
	VUMAX V19.S4, V18.S4, V18.S4
	VUMAX V18.S4, V16.S4, V16.S4
	UMAXV4S(16, 19)
	FMOVS F19, R11
	CMP   R9, R11
	BHS   unknown
	CMP   R10, R11
	BLO   nothing
	VDUP  R11, V18.S4
	FDIV4S(18, 26, 20)
	FDIV4S(18, 27, 21)
	FOUR(0, 16)
	FOUR(4, 17)
	FMUL4S(28, 16, 16)
	FMUL4S(29, 17, 17)

	// the largest divisor among those that leave least: errors are not negative,
	// so they compare like their bits
	VUMIN V17.S4, V16.S4, V22.S4
	UMINV4S(22, 22)
	VDUP  V22.S[0], V22.S4
	VCMEQ V22.S4, V16.S4, V16.S4
	VCMEQ V22.S4, V17.S4, V17.S4
	VAND  V26.B16, V16.B16, V16.B16
	VAND  V27.B16, V17.B16, V17.B16
	VUMAX V17.S4, V16.S4, V16.S4
	UMAXV4S(16, 16)
	FDIVS F19, F16, F18
	FMOVS R12, F30
	FDIVS F16, F30, F30
	FMULS F19, F30, F30

values:
	FMULE4S(18, 0, 0, 0)
	FMULE4S(18, 0, 1, 1)
	FMULE4S(18, 0, 2, 2)
	FMULE4S(18, 0, 3, 3)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	FCVTNS4S(2, 2)
	FCVTNS4S(3, 3)
	XTN4H(0, 4)
	XTN28H(1, 4)
	XTN4H(2, 5)
	XTN28H(3, 5)
	XTN8B(4, 6)
	XTN216B(5, 6)
	VST1.P  [V6.B16], 16(R0)
	SADDLP8H(6, 7)
	SADDLP4S(7, 7)
	VADDV   V7.S4, V7
	FMOVS   F7, R11
	SCVTFWS R11, F0
	FMULS   F30, F0, F0
	LSLW    $7, R11, R11
	NEGW    R11, R11
	FMOVS.P F30, 4(R4)
	FMOVS.P F0, 4(R5)
	MOVW.P  R11, 4(R7)
	SUBS    $1, R2
	BNE     group
	STP.P   (ZR, ZR), 16(R7)
	STP.P   (ZR, ZR), 16(R7)
	STP.P   (ZR, ZR), 16(R7)
	STP.P   (ZR, ZR), 16(R7)
	RET

unknown:
	MOVD  $0x7fc00000, R11
	FMOVS R11, F30
	VEOR  V18.B16, V18.B16, V18.B16
	B     values

nothing:
	VEOR V30.B16, V30.B16, V30.B16
	VEOR V18.B16, V18.B16, V18.B16
	B    values
