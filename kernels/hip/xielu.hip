// The activation with trained numbers of a feed-forward layer without a gate.
//
//	for i: x[i] = positive*x[i]*x[i] + beta*x[i]                                  where x[i] > 0
//	       x[i] = negative*(exp(min(x[i], eps)) - 1 - x[i]) + beta*x[i]           elsewhere
//
// x f32[n], in place. A NaN gives NaN, and so does -Inf.
//
// Grid: 256 threads, four numbers each, a block's together in memory. No LDS.
// Deterministic. Bound: 8 bytes for each number.
// Tolerance: 6 units of 2^-24 of the two terms' sizes.
#include "functions.hip"

// exp(v) - 1 - v for v <= 0: the series' next term is 4e-8 of the first at -1/2.
NSTF_DEVICE f32 exp_beyond_line(f32 v) {
	if (v < -0.5f) return exp_f32(v) - 1.0f - v;
	f32 s = fmaf(v, 1.0f / 40320, 1.0f / 5040);
	s = fmaf(v, s, 1.0f / 720);
	s = fmaf(v, s, 1.0f / 120);
	s = fmaf(v, s, 1.0f / 24);
	s = fmaf(v, s, 1.0f / 6);
	return v * v * fmaf(v, s, 0.5f);
}

NSTF_KERNEL void __launch_bounds__(256) nstf_xielu(f32* x, int n, f32 positive, f32 negative, f32 beta, f32 eps) {
	begin_early();
	const int first = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const int i = first + j * 256;
		if (i >= n) return;
		const f32 v = x[i];
		if (v > 0.0f) {
			x[i] = fmaf(positive * v, v, beta * v);
			continue;
		}
		const f32 cut = v > eps ? eps : v; // a NaN stays
		x[i] = fmaf(negative, exp_beyond_line(cut) + (cut - v), beta * v);
	}
}
