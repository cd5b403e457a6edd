// What the matrix-vector kernels of all integer schemes share. The kernel for T = 1,
// 2 or 4 tokens is matvec1_arm64.h, matvec2_arm64.h or matvec4_arm64.h, included with
// these defined:
//
//	SETUP   constants to V9 to V11 and R12, once
//	SCALES  S and M of a run, from R6; may use V0 to V7 and R11 to R17
//	START   START32, START32 and MINUS32, nothing, or MINUS16
//	GROUPS  the run's products: GROUP32(c0, c1, g) or GROUP16(c0, c1, g) for each 32
//	        weights; may use V0 to V3 and R11 to R17
//	RUN     bytes of a run
//	DOT32, DOT16
//	        the level's products of bytes
//
// Registers, for t < 4:
//
//	R6 the run, R19+t token t's record
//	V4 V5 activations, V6 V7 sums of products, V8 is DOT's
//	V16+2t V17+2t sums in float32, of even and odd groups
//	groups of 32: S in V14 V15, M in V12 V13 until STARTs; S*d in V24+2t V25+2t
//	groups of 16: S in V12 to V15, M in V4 to V7 until MINUS16
//
// All sums of a token are made in one order, whatever T.
//
// Bytes and instructions per weight and token, scales included, by T and level:
//
//	        bytes   DotProd 1     2     4   NEON 1     2     4
//	q8_0     1.06        0.45  0.40  0.37     0.52  0.46  0.44
//	q4_0     0.56        0.38  0.30  0.26     0.47  0.39  0.35
//	q4_1     0.63        0.42  0.32  0.27     0.51  0.41  0.36
//	q5_0     0.69        0.73  0.47  0.34     0.82  0.56  0.44
//	q5_1     0.75        0.76  0.49  0.35     0.86  0.58  0.45
//	q2_k     0.33        0.64  0.51  0.44     0.71  0.57  0.50
//	q3_k     0.43        0.82  0.60  0.48     0.88  0.66  0.55
//	q4_k     0.56        0.48  0.35  0.28     0.58  0.44  0.38
//	q5_k     0.69        0.67  0.44  0.33     0.77  0.54  0.42
//	q6_k     0.82        0.73  0.55  0.46     0.80  0.62  0.52
//	iq4_nl   0.56        0.42  0.31  0.26     0.51  0.40  0.35
//	iq4_xs   0.53        0.47  0.34  0.27     0.57  0.43  0.36
//
// Counted in the listing, not measured: no such machine was at hand. A core of 3 GHz
// that keeps up three instructions a cycle would read q4_k at 10 GB/s with DotProd.

// DOT32 sums 32 products of signed bytes in four lanes: a0 by c0 and a1 by c1;
// DOT16 sums 16. A pair of products fits 16 bits, activations being above -128.
#define DOT32NEON(c0, c1, a0, a1, d) \
	SMULL8H(c0, a0, 8) \
	SMLAL28H(c0, a0, 8) \
	SADDLP4S(8, d) \
	SMULL8H(c1, a1, 8) \
	SMLAL28H(c1, a1, 8) \
	SADALP4S(8, d)
#define DOT16NEON(c, a, d) \
	SMULL8H(c, a, 8) \
	SMLAL28H(c, a, 8) \
	SADDLP4S(8, d)
#define DOT32DotProd(c0, c1, a0, a1, d) \
	ZERO(d) \
	SDOT4S(c0, a0, d) \
	SDOT4S(c1, a1, d)
#define DOT16DotProd(c, a, d) \
	ZERO(d) \
	SDOT4S(c, a, d)

// TOKEN32 adds group g of 32 weights, whose codes are c0 and c1, for token t.
#define TOKEN32(P, t, c0, c1, g) \
	FLDPQ (32*(g))(P), (F4, F5) \
	DOT32(c0, c1, 4, 5, 6+((g)&1)) \
	SCVTF4S(6+((g)&1), 6+((g)&1)) \
	FMLAE4S(24+2*(t)+((g)>>2), (g)&3, 6+((g)&1), 16+2*(t)+((g)&1))

// TOKEN16 adds two groups of 16, 2g and 2g+1.
#define TOKEN16(P, t, c0, c1, g) \
	FLDPQ (32*(g))(P), (F4, F5) \
	DOT16(c0, 4, 6) \
	FMOVQ (256+16*((g)>>1))(P), F4 \
	DOT16(c1, 5, 7) \
	FMUL4S(12+((g)>>1), 4, 4) \
	SCVTF4S(6, 6) \
	SCVTF4S(7, 7) \
	FMLAE4S(4, 2*((g)&1), 6, 16+2*(t)) \
	FMLAE4S(4, 2*((g)&1)+1, 7, 17+2*(t))

// FIRST32 takes in what a token has for the run, LESS32 its minimums and LESS16 those
// of groups of 16.
#define FIRST32(P, t) \
	FLDPQ 256(P), (F4, F5) \
	FMUL4S(14, 4, 24+2*(t)) \
	FMUL4S(15, 5, 25+2*(t))
#define LESS32(P, t) \
	FLDPQ 288(P), (F4, F5) \
	FMLS4S(12, 4, 16+2*(t)) \
	FMLS4S(13, 5, 17+2*(t))
#define LESS16(P, t) \
	FLDPQ 320(P), (F0, F1) \
	FLDPQ 352(P), (F2, F3) \
	FMLS4S(4, 0, 16+2*(t)) \
	FMLS4S(5, 1, 17+2*(t)) \
	FMLS4S(6, 2, 16+2*(t)) \
	FMLS4S(7, 3, 17+2*(t))

// TOTAL stores token t's sum at R11 and goes to the next token's.
#define TOTAL(t, F) \
	FADD4S(17+2*(t), 16+2*(t), 16+2*(t)) \
	FADDP4S(16+2*(t), 16+2*(t), 16+2*(t)) \
	FADDP4S(16+2*(t), 16+2*(t), 16+2*(t)) \
	FMOVS F, (R11) \
	ADD   R1, R11
// HALVES gathers 16 bits at an offset into each of 8 blocks of R12 bytes at R6, as
// float32; V4 and R11 are used.
#define HALVES(at, lo, hi) \
	ADD $(at), R6, R11 \
	LD1H(0, 11, 12, 4) \
	LD1H(1, 11, 12, 4) \
	LD1H(2, 11, 12, 4) \
	LD1H(3, 11, 12, 4) \
	LD1H(4, 11, 12, 4) \
	LD1H(5, 11, 12, 4) \
	LD1H(6, 11, 12, 4) \
	LD1H(7, 11, 12, 4) \
	FCVTL(4, lo) \
	FCVTL2(4, hi)

// BYTES fills V with a byte, FLOATS with the bits of a float32; R11 is used.
#define BYTES(b, V) MOVD $(b), R11; VDUP R11, V.B16
#define FLOATS(bits, V) MOVD $(bits), R11; VDUP R11, V.S4

// SCALESK4 unpacks the head of q4_k and q5_k at R6: d, dmin, and 6-bit scales and
// minimums in 12 bytes, eight of each in R14 and R15 on the way.
#define SCALESK4 \
	MOVWU 4(R6), R11 \
	MOVWU 8(R6), R13 \
	MOVWU 12(R6), R14 \
	LSR   $4, R14, R15 \
	AND   $0x0f0f0f0f, R14, R14 \
	AND   $0x0f0f0f0f, R15, R15 \
	LSR   $2, R11, R16 \
	AND   $0x30303030, R16, R16 \
	ORR   R16, R14, R14 \
	LSR   $2, R13, R16 \
	AND   $0x30303030, R16, R16 \
	ORR   R16, R15, R15 \
	AND   $0x3f3f3f3f, R11, R11 \
	AND   $0x3f3f3f3f, R13, R13 \
	ORR   R14<<32, R11, R14 \
	ORR   R15<<32, R13, R15 \
	FMOVS (R6), F0 \
	FCVTL(0, 0) \
	FMOVD R14, F1 \
	FMOVD R15, F2 \
	UXTL8H(1, 1) \
	UXTL8H(2, 2) \
	SCALES4(1, 0, 14, 15) \
	SCALES4(2, 1, 12, 13)

// SCALES4 is 8 numbers of 16 bits times lane i of V0, as float32.
#define SCALES4(n, i, lo, hi) \
	UXTL4S(n, lo) \
	UXTL24S(n, hi) \
	UCVTF4S(lo, lo) \
	UCVTF4S(hi, hi) \
	FMULE4S(0, i, lo, lo) \
	FMULE4S(0, i, hi, hi)
