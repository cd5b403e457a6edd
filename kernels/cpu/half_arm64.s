//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// func decodeF16NEON(dst []float32, src []byte)
TEXT ·decodeF16NEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD src_base+24(FP), R2

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1.P 32(R2), [V0.H8, V1.H8]
	FCVTL(0, 4)
	FCVTL2(0, 5)
	FCVTL(1, 6)
	FCVTL2(1, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	MOVHU.P 2(R2), R3
	FMOVS   R3, F0
	FCVTHS  F0, F0
	FMOVS.P F0, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// func decodeBF16NEON(dst []float32, src []byte)
TEXT ·decodeBF16NEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD src_base+24(FP), R2

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1.P 32(R2), [V0.H8, V1.H8]
	SHLL16(0, 4)
	SHLL2X16(0, 5)
	SHLL16(1, 6)
	SHLL2X16(1, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	MOVHU.P 2(R2), R3
	LSL     $16, R3
	MOVW.P  R3, 4(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// func encodeF16NEON(dst []byte, src []float32)
TEXT ·encodeF16NEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R2
	MOVD src_len+32(FP), R1

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	FCVTN(4, 0)
	FCVTN2(5, 0)
	FCVTN(6, 1)
	FCVTN2(7, 1)
	VST1.P [V0.H8, V1.H8], 32(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	FMOVS.P 4(R2), F0
	FCVTSH  F0, F0
	FMOVS   F0, R3
	MOVH.P  R3, 2(R0)
	SUB     $1, R1
	B       by1

done:
	RET

// Adds 0x7fff and the last kept bit, except that a NaN has its quiet bit set
// instead: V16 is 0x7fff, V17 1, V18 the quiet bit. Uses V20 to V22.
#define ROUND(f, F) \
	VUSHR $16, F.S4, V20.S4 \
	VAND V17.B16, V20.B16, V20.B16 \
	VADD V16.S4, V20.S4, V20.S4 \
	VADD F.S4, V20.S4, V20.S4 \
	VORR V18.B16, F.B16, V21.B16 \
	FCMEQ4S(f, f, 22) \
	VBIF V22.B16, V21.B16, V20.B16 \
	VORR V20.B16, V20.B16, F.B16

// func encodeBF16NEON(dst []byte, src []float32)
TEXT ·encodeBF16NEON(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R2
	MOVD src_len+32(FP), R1
	MOVD $0x7fff, R3
	VDUP R3, V16.S4
	MOVD $1, R3
	VDUP R3, V17.S4
	MOVD $0x400000, R3
	VDUP R3, V18.S4

by16:
	SUBS   $16, R1
	BLT    by16done
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	ROUND(4, V4)
	ROUND(5, V5)
	ROUND(6, V6)
	ROUND(7, V7)
	SHRN16(4, 0)
	SHRN2X16(5, 0)
	SHRN16(6, 1)
	SHRN2X16(7, 1)
	VST1.P [V0.H8, V1.H8], 32(R0)
	B      by16

by16done:
	ADD $16, R1

by1:
	CBZ     R1, done
	FMOVS.P 4(R2), F4
	ROUND(4, V4)
	FMOVS   F4, R3
	LSR     $16, R3
	MOVH.P  R3, 2(R0)
	SUB     $1, R1
	B       by1

done:
	RET
