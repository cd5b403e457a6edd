// What the matrix kernels of integer schemes share: tiles of up to 6 tokens by the
// 32 rows of a panel, with SDOT, the activations by lanes. A kernel is
// tilerun_arm64.h, included with these defined:
//
//	EACH      its argument for each token, 0 and up
//	GROUP     the products of 32 weights: GROUP32, GROUP32MIN, GROUP16, GROUP16MIN
//	SUMS      where a record has d times sums of q, for the minimums
//	MINIMUMS  where a panel has the minimums
//
// Registers, for token t: sums of products V(2t) and V(2t+1), of rows 0 to 3 and 4
// to 7; float32 sums V(12+2t) and V(13+2t); activations V(24+t). V30 and V31 hold a
// line: codes, S or M of 8 rows. Instructions for 6 tokens and 32 weights of 8 rows:
// 96 SDOT and 82 more, 42 of which scale; with minimums 21 more, in groups of 16 56
// more. So 8.6 products an instruction, or 7.7 or 6.6, against 4 of FMLA at best.
// Counted in the listing, not measured: no such machine was at hand.

#define ZEROSUMS(t) ZERO(12+2*(t)); ZERO(13+2*(t))
#define ZEROINTS(t) ZERO(2*(t)); ZERO(1+2*(t))
#define LANE0(t) SDOTE4S(24+(t), 0, 30, 2*(t)); SDOTE4S(24+(t), 0, 31, 1+2*(t))
#define LANE1(t) SDOTE4S(24+(t), 1, 30, 2*(t)); SDOTE4S(24+(t), 1, 31, 1+2*(t))
#define LANE2(t) SDOTE4S(24+(t), 2, 30, 2*(t)); SDOTE4S(24+(t), 2, 31, 1+2*(t))
#define LANE3(t) SDOTE4S(24+(t), 3, 30, 2*(t)); SDOTE4S(24+(t), 3, 31, 1+2*(t))
#define LOWER(t) LDRQ(32*(t), 6, 24+(t))
#define UPPER(t) LDRQ(32*(t)+1, 6, 24+(t))

// PRODUCTS takes 16 weights of each row; the activations are loaded.
#define PRODUCTS \
	FLDPQ (R9), (F30, F31) \
	EACH(LANE0) \
	FLDPQ 128(R9), (F30, F31) \
	EACH(LANE1) \
	FLDPQ 256(R9), (F30, F31) \
	EACH(LANE2) \
	FLDPQ 384(R9), (F30, F31) \
	EACH(LANE3) \
	ADD   $512, R9

// SCALES multiplies by S*d and adds up; LESS takes M*(d*sum of q) away.
#define SCALED(t) \
	FMOVS (512*(t))(R7), F24 \
	SCVTF4S(2*(t), 2*(t)) \
	SCVTF4S(1+2*(t), 1+2*(t)) \
	FMULE4S(24, 0, 30, 25) \
	FMULE4S(24, 0, 31, 26) \
	FMLA4S(25, 2*(t), 12+2*(t)) \
	FMLA4S(26, 1+2*(t), 13+2*(t))
#define SCALES \
	FLDPQ (R10), (F30, F31) \
	EACH(SCALED) \
	ADD   $128, R10 \
	ADD   $4, R7
#define LESSER(t) \
	FMOVS (512*(t))(R8), F24 \
	FMLSE4S(24, 0, 30, 12+2*(t)) \
	FMLSE4S(24, 0, 31, 13+2*(t))
#define LESS \
	FLDPQ (R11), (F30, F31) \
	EACH(LESSER) \
	ADD   $128, R11 \
	ADD   $4, R8

#define GROUP32 EACH(ZEROINTS); EACH(LOWER); PRODUCTS; EACH(UPPER); PRODUCTS; SCALES
#define GROUP32MIN GROUP32; LESS
#define GROUP16 EACH(ZEROINTS); EACH(LOWER); PRODUCTS; SCALES; EACH(ZEROINTS); EACH(UPPER); PRODUCTS; SCALES
#define GROUP16MIN EACH(ZEROINTS); EACH(LOWER); PRODUCTS; SCALES; LESS; EACH(ZEROINTS); EACH(UPPER); PRODUCTS; SCALES; LESS

#define ADDC(t) \
	FLDPQ (R13), (F24, F25) \
	FADD4S(24, 12+2*(t), 12+2*(t)) \
	FADD4S(25, 13+2*(t), 13+2*(t)) \
	ADD   R3, R13
#define STOREC(t) STPQ(0, 13+2*(t), 13, 12+2*(t)); ADD R3, R13

#define EACH1(op) op(0)
#define EACH2(op) EACH1(op); op(1)
#define EACH3(op) EACH2(op); op(2)
#define EACH4(op) EACH3(op); op(3)
#define EACH5(op) EACH4(op); op(4)
#define EACH6(op) EACH5(op); op(5)
