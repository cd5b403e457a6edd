// The norm of rows of which every rank has a part: squares, which ranks add up in between,
// and what they come to.
//
//	nstf_rank_squares: for t: sums[t*stride + first + i] = first + i == column ? sum over j < d of x[t][j]^2 : 0   for i < columns
//	nstf_rank_norm:    for t, j < d: x[t][j] = x[t][j] * float32(1 / sqrt(sums[t*stride + column] / width + eps)) * weight[j]
//
// x f32[T][d], sums f32[T][stride], weight f32[d]; width is how many numbers a row has on all
// ranks together. A column below first is none: the rank's numbers are counted elsewhere.
//
// Grid: a row a block of RANK_THREADS threads, columns at most as many; any wave size; LDS for
// a sum of each wave. Deterministic. Bound: 4 bytes read for each number, and 12 more.
// Tolerance: squares are added in float64 and rounded once a rank.
#include "reduce.hip"

#define RANK_THREADS 256

NSTF_KERNEL void __launch_bounds__(RANK_THREADS)
nstf_rank_squares(const f32* x, int d, f32* sums, int stride, int first, int columns, int column) {
	__shared__ f64 lds[RANK_THREADS / NSTF_WAVE];
	begin_early();
	x += (i64)blockIdx.x * d;
	f64 sum = 0;
	for (int i = threadIdx.x; i < d; i += RANK_THREADS) sum += (f64)x[i] * (f64)x[i];
	sum = block_sum<RANK_THREADS>(sum, lds);
	const int own = first + (int)threadIdx.x;
	if ((int)threadIdx.x < columns) sums[(i64)blockIdx.x * stride + own] = own == column ? (f32)sum : 0.0f;
}

NSTF_KERNEL void __launch_bounds__(RANK_THREADS)
nstf_rank_norm(f32* x, int d, int width, const f32* weight, f32 eps, const f32* sums, int stride, int column) {
	begin_early();
	x += (i64)blockIdx.x * d;
	const f32 r = (f32)(1 / sqrt((f64)sums[(i64)blockIdx.x * stride + column] / width + (f64)eps));
	for (int i = threadIdx.x; i < d; i += RANK_THREADS) x[i] = x[i] * r * weight[i];
}
