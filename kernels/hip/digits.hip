// The digits of tokens, by which the cores of a tensor train are looked up
// (docs/forms/train.md).
//
//	token = ((d_0 * rows1 + d_1) * rows2 + d_2) * rows3 + d_3;  digit[i][t] = d_i
//
// token i32[T], digit i32[4][T]; a core that is missing has one row. Grid: a token a
// thread, 256 to a block. No LDS. Deterministic, exact.
#include "common.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_digits(const i32 *token, i32 *digit, int t, int rows1, int rows2, int rows3) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= t) return;
	int rest = token[i];
	digit[3 * t + i] = rest % rows3, rest /= rows3;
	digit[2 * t + i] = rest % rows2, rest /= rows2;
	digit[t + i] = rest % rows1, rest /= rows1;
	digit[i] = rest;
}
