// Rows of an embedding table for the rows of a pass.
//
//	for t, k: y[t][k] = W[token[t]][k] * scale  (+ P[position[t]][k])
//
// W as weights.hip says; P a second table, f32[positions][K], or null; token and
// position i32[T]; y f32[T][K]. K a multiple of Weights::unit.
//
// Grid: x is 256 units of a row, y is t; any wave size; LDS: the scheme's table.
// Deterministic. Bound: the bytes of a row read, 4 written for each number.
// Exact: a product and a sum of float32, as on the processor.
#include "SCHEME.hip"

NSTF_KERNEL void __launch_bounds__(256) NSTF_NAMED(nstf_embed)(
    f32 *__restrict__ y, const u8 *__restrict__ w, i64 rows, int k, const i32 *__restrict__ token, f32 scale,
    const f32 *__restrict__ positions, const i32 *__restrict__ position) {
	__shared__ __align__(16) u8 table[Weights::table + 16];
	let_next_begin();
	Weights::fill(table);
	wait_for_inputs();
	__syncthreads();
	const int t = blockIdx.y, u = blockIdx.x * 256 + threadIdx.x;
	if (u >= k / Weights::unit) return;
	const Weights view(Matrix{w, rows, k}, token[t]);
	f32 v[Weights::unit];
	Weights::floats(view.load(0, u), u, table, v);
	const int run = Weights::unit % 4 == 0 ? 4 : 1;
	const i64 at = (i64)u * Weights::unit;
#pragma unroll
	for (int i = 0; i < Weights::unit; i += run) {
		pack<f32, run> sum;
#pragma unroll
		for (int j = 0; j < run; j++) {
			sum.v[j] = rounded_product(v[i + j], scale);
			if (positions) sum.v[j] += positions[(i64)position[t] * k + at + i + j];
		}
		*(pack<f32, run> *)(y + (i64)t * k + at + i) = sum;
	}
}
