//go:build !noasm

#include "textflag.h"

// Four rows of four words become four columns, 16 times for each column of 64
// bytes. R0 dst, R1 the four rows' words, R2 bytes between rows, R3 columns left, R4
// fours of rows left, R5 where they go, R6 fours of words left, R7 to R9 the rows.
//
// func interleaveNEON(dst, src []byte, ld, columns int)
TEXT ·interleaveNEON(SB), NOSPLIT, $0-64
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R10
	MOVD ld+48(FP), R2
	MOVD columns+56(FP), R3

column:
	CBZ  R3, done
	MOVD R10, R11
	MOVD R0, R12
	MOVD $4, R4

rows:
	MOVD R11, R1
	ADD  R2, R1, R7
	ADD  R2, R7, R8
	ADD  R2, R8, R9
	ADD  R2, R9, R11
	MOVD R12, R5
	MOVD $4, R6

words:
	FMOVQ.P 16(R1), F0
	FMOVQ.P 16(R7), F1
	FMOVQ.P 16(R8), F2
	FMOVQ.P 16(R9), F3
	VZIP1   V2.S4, V0.S4, V16.S4
	VZIP2   V2.S4, V0.S4, V17.S4
	VZIP1   V3.S4, V1.S4, V18.S4
	VZIP2   V3.S4, V1.S4, V19.S4
	VZIP1   V18.S4, V16.S4, V24.S4
	VZIP2   V18.S4, V16.S4, V25.S4
	VZIP1   V19.S4, V17.S4, V26.S4
	VZIP2   V19.S4, V17.S4, V27.S4
	FMOVQ   F24, (R5)
	FMOVQ   F25, 128(R5)
	FMOVQ   F26, 256(R5)
	FMOVQ   F27, 384(R5)
	ADD     $512, R5
	SUBS    $1, R6
	BNE     words
	ADD     $16, R12
	SUBS    $1, R4
	BNE     rows
	ADD     $64, R10
	ADD     $2048, R0
	SUB     $1, R3
	B       column

done:
	RET
