// The second step of products of thin matrices (docs/forms/lowrank.md): few
// columns, up to 8 rows of activations (more are several launches), and for each matrix activations of its own.
//
//	for p, t, n: y_p[t][n] = sum over k of W_p[n][k] * x_p[t][k]  (+ bias_p[n] + residual_p[t][n])
//	THIN_GATED:  y[t][n] = act(y_0[t][n]) * y_1[t][n], both with what is added, into y_0
//
// Weights as weights.hip says; K of each matrix a multiple of Weights::unit; x
// f32[T][K] at a multiple of 16 bytes; y f32[T][N], which may be the residual; bias
// and residual may be null. Up to three matrices of one scheme.
//
// Grid: tiles of 256 / THIN_LANES rows, of the matrices one after the other; a
// block of 256 threads, THIN_LANES of which share a row; any wave size. LDS: the
// scheme's table. Phases: weights are asked for before the activations are there;
// a lane takes every THIN_LANES-th unit; sums over lanes.
// Deterministic: every sum in one fixed order.
// Bound: the bytes of W and y; a launch of it is short. Tolerance: that of a
// float32 sum, in the default mode too.
#include "SCHEME.hip"
#if THIN_GATED
#include "activation.hip"
#endif

#define THIN_ROWS (256 / THIN_LANES)
#define THIN_SIDES (THIN_GATED + 1)

struct Thin {
	const u8 *w;
	const f32 *x;
	f32 *y;
	const f32 *bias, *residual;
	int n, k;
};

// Sums of row n of one matrix, from the lane's first unit, which is loaded already.
NSTF_DEVICE void multiply(f32 (&sums)[THIN_T], const Thin &p, const Weights &view, const Weights::Raw &first, const u8 *table, int lane) {
	const int units = p.k / Weights::unit, run = Weights::unit % 4 == 0 ? 4 : 1;
	for (int u = lane; u < units; u += THIN_LANES) {
		f32 w[Weights::unit];
		Weights::floats(u == lane ? first : view.load(0, u), u, table, w);
#pragma unroll
		for (int t = 0; t < THIN_T; t++) {
			const f32 *x = p.x + (i64)t * p.k + u * Weights::unit;
#pragma unroll
			for (int i = 0; i < Weights::unit; i += run) {
				const pack<f32, run> v = *(const pack<f32, run> *)(x + i);
#pragma unroll
				for (int j = 0; j < run; j++) sums[t] = fmaf(w[i + j], v.v[j], sums[t]);
			}
		}
	}
}

#define THIN_PRODUCT(i) const u8 *w##i, const f32 *x##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i, int k##i

NSTF_KERNEL void __launch_bounds__(256) NSTF_NAMED(nstf_thin)(
    THIN_PRODUCT(0)
#if THIN_MATRICES > 1
    , THIN_PRODUCT(1)
#endif
#if THIN_MATRICES > 2
    , THIN_PRODUCT(2)
#endif
) {
	__shared__ __align__(16) u8 table[Weights::table + 16];
	let_next_begin();
	const int lane = threadIdx.x % THIN_LANES;
	int tile = blockIdx.x;
	Thin side[THIN_SIDES];
	side[0] = {w0, x0, y0, bias0, residual0, n0, k0};
#if THIN_GATED
	side[1] = {w1, x1, y1, bias1, residual1, n1, k1};
#elif THIN_MATRICES > 1
	// Member by member: a choice between whole structs would go through memory.
	Thin &p = side[0];
	const int tiles0 = (n0 + THIN_ROWS - 1) / THIN_ROWS;
	const bool second = tile >= tiles0;
	p.w = second ? w1 : p.w, p.x = second ? x1 : p.x, p.y = second ? y1 : p.y, p.n = second ? n1 : p.n, p.k = second ? k1 : p.k;
	p.bias = second ? bias1 : p.bias, p.residual = second ? residual1 : p.residual;
	int before = second ? tiles0 : 0;
#if THIN_MATRICES > 2
	const int tiles1 = tiles0 + (n1 + THIN_ROWS - 1) / THIN_ROWS;
	const bool third = tile >= tiles1;
	p.w = third ? w2 : p.w, p.x = third ? x2 : p.x, p.y = third ? y2 : p.y, p.n = third ? n2 : p.n, p.k = third ? k2 : p.k;
	p.bias = third ? bias2 : p.bias, p.residual = third ? residual2 : p.residual;
	before = third ? tiles1 : before;
#endif
	tile -= before;
#endif
	const int row = tile * THIN_ROWS + threadIdx.x / THIN_LANES, n = side[0].n;
	const int safe = row < n ? row : n - 1;
	f32 sums[THIN_SIDES][THIN_T] = {};
	Weights::Raw first[THIN_SIDES];
#pragma unroll
	for (int i = 0; i < THIN_SIDES; i++) {
		const Weights view(Matrix{side[i].w, side[i].n, side[i].k}, safe);
		const int units = side[i].k / Weights::unit;
		first[i] = view.load(0, lane < units ? lane : 0);
	}
	Weights::fill(table);
	wait_for_inputs();
	if (Weights::table > 0) __syncthreads();
#pragma unroll
	for (int i = 0; i < THIN_SIDES; i++) {
		const Weights view(Matrix{side[i].w, side[i].n, side[i].k}, safe);
		multiply(sums[i], side[i], view, first[i], table, lane);
#pragma unroll
		for (int t = 0; t < THIN_T; t++) sums[i][t] = wave_sum<THIN_LANES>(sums[i][t]);
	}
	if (row >= n) return;
#pragma unroll
	for (int t = 0; t < THIN_T; t++) {
		if (t % THIN_LANES != lane) continue;
		const i64 at = (i64)t * n + row;
#pragma unroll
		for (int i = 0; i < THIN_SIDES; i++) {
			if (side[i].bias) sums[i][t] += side[i].bias[row];
			if (side[i].residual) sums[i][t] += side[i].residual[at];
		}
#if THIN_GATED
		side[0].y[at] = gated(sums[0][t], sums[1][t]);
#else
		side[0].y[at] = sums[0][t];
#endif
	}
}
