// Unpacks runs of a row, with the macros that a scheme defines for its
// matrix-vector kernels and
//
//	OFFSET  the code that is taken from each
//	STORES  STORE32 or STORE16, of S and M
//
// R6 the run, R7 where it goes, R10 runs left; V16 OFFSET.

#define STORE32 STPQ(8, 15, 7, 14); STPQ(9, 13, 7, 12)
#define STORE16 STPQ(8, 13, 7, 12); STPQ(9, 15, 7, 14); STPQ(10, 5, 7, 4); STPQ(11, 7, 7, 6)
#define GROUP32(c0, c1, g) SUB16B(16, c0, c0); SUB16B(16, c1, c1); STPQ(g, c1, 7, c0)
#define GROUP16(c0, c1, g) GROUP32(c0, c1, g)

	MOVD dst_base+0(FP), R7
	MOVD w_base+24(FP), R6
	MOVD runs+48(FP), R10
	SETUP
	BYTES(OFFSET, V16)

run:
	CBZ R10, done
	SCALES
	STORES
	GROUPS
	ADD $RUN, R6
	ADD $384, R7
	SUB $1, R10
	B   run

done:
	RET
