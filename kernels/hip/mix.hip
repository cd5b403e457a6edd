// Combinations of what shared matrices made of an input, for experts that are
// mixtures of them (docs/forms/shared.md).
//
//	for s, n: y[s][n] = (y[s][n] +) bias[expert[s]][n] + sum over b of c[expert[s]][b] * z[s / share][b][n]
//
// z f32[T / share][B][N]; c f32[experts][B]; expert i32[T]; y f32[T][N], read where
// `add` is not 0; bias f32[experts][N] or null. Grid: x over n, a number a thread,
// 256 to a block; y over slots. No LDS. Deterministic: b ascending. Bound: the bytes
// of z. Tolerance: that of B fused additions.
#include "common.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_mix(
    const f32 *z, const f32 *c, const i32 *expert, int share, int shared, int n, int add, const f32 *bias, f32 *y) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= n) return;
	const i64 slot = blockIdx.y;
	const i64 e = expert[slot];
	z += slot / share * shared * n + i;
	c += e * shared;
	f32 sum = add ? y[slot * n + i] : 0;
	if (bias) sum += bias[e * n + i];
	for (int b = 0; b < shared; b++) sum = fmaf(c[b], z[(i64)b * n], sum);
	y[slot * n + i] = sum;
}
