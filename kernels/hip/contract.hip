// Contractions with rows of a core of a tensor train (docs/forms/train.md), and
// lookups in products of thin matrices.
//
//	for t, i, v, s, l: c[t][i][first + v][s][l] = sum over q of a[t][i][q][l] * b[t][v][q][s]
//
// a f32[T][I][Q][L]; b f32[T][V][Q][S], or where b_step is 0 one [V][Q][S] for all t;
// c f32[T][limit][S][L], of which i * of + v is the first of the last three indices:
// those from limit on are left out. Sums begin at start, which lies as c does and may
// be c, or at 0 where it is null. bias f32[limit] or null is added to the last.
// CONTRACT_ROUNDED: every product and sum is rounded by itself, q ascending, as
// the reference decode does it, and with `scale` and a table of learned positions or
// null:
//
//	c = sum * scale (+ positions[position[t]][...])
//
// CONTRACT_L1 and CONTRACT_S1 say that L and S are 1: q is then what lies together.
//
// Grid: x over tiles of 64 of the I * L rows, y over tiles of 64 of the V * S columns,
// z is t; a block of 256 threads with 4 by 4 numbers each; any wave size. LDS: 8.5 KiB.
// Phases: 16 of q are brought to LDS; barrier; multiplied; barrier.
// Deterministic: every sum in one fixed order. Bound: operations.
// Tolerance: that of a float32 sum; CONTRACT_ROUNDED has the processor's bits.
#include "common.hip"

#define CONTRACT_TILE 64
#define CONTRACT_STEP 16
#define CONTRACT_LOADS (CONTRACT_TILE * CONTRACT_STEP / 256)

typedef f32 ContractTile[CONTRACT_STEP][CONTRACT_TILE + 4];

// Brings 16 of q of 64 rows to LDS. Row r begins at place(r), one of its numbers
// lies `apart` behind the one before.
template <typename Place> NSTF_DEVICE void bring(ContractTile &to, const f32 *from, int rows, int q, int count, int apart, bool q_first, Place place) {
#pragma unroll
	for (int j = 0; j < CONTRACT_LOADS; j++) {
		const int at = threadIdx.x + j * 256;
		const int r = q_first ? at / CONTRACT_STEP : at % CONTRACT_TILE, k = q_first ? at % CONTRACT_STEP : at / CONTRACT_TILE;
		to[k][r] = r < rows && q + k < count ? from[place(r) + (i64)(q + k) * apart] : 0;
	}
}

NSTF_KERNEL void __launch_bounds__(256) nstf_contract(
    const f32 *a, const f32 *b, i64 b_step, f32 *c, const f32 *start, const f32 *bias, int i_count, int l_count, int q_count, int v_count, int s_count,
    int first, int of, i64 limit, f32 scale, const f32 *positions, const i32 *position) {
	__shared__ ContractTile left, right;
	begin_early();
	const i64 rows = (i64)i_count * l_count, columns = (i64)v_count * s_count, each = limit * s_count * l_count;
	const i64 row0 = (i64)blockIdx.x * CONTRACT_TILE, column0 = (i64)blockIdx.y * CONTRACT_TILE, t = blockIdx.z;
	const int row_count = rows - row0 < CONTRACT_TILE ? rows - row0 : CONTRACT_TILE;
	const int column_count = columns - column0 < CONTRACT_TILE ? columns - column0 : CONTRACT_TILE;
	a += t * rows * q_count, b += t * b_step, c += t * each;
	if (start) start += t * each;
	auto row_at = [=](int r) { return (row0 + r) / l_count * q_count * l_count + (row0 + r) % l_count; };
	auto column_at = [=](int r) { return (column0 + r) / s_count * q_count * s_count + (column0 + r) % s_count; };
	auto output_at = [=](int row, int column, i64 &leading) {
		leading = (row0 + row) / l_count * of + first + (column0 + column) / s_count;
		return (leading * s_count + (column0 + column) % s_count) * l_count + (row0 + row) % l_count;
	};
	const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
	f32 sums[4][4] = {};
	if (start) {
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++) {
				i64 leading;
				const i64 at = output_at(y + i, x + j, leading);
				if (y + i < row_count && x + j < column_count && leading < limit) sums[i][j] = start[at];
			}
	}
	for (int q = 0; q < q_count; q += CONTRACT_STEP) {
		bring(left, a, row_count, q, q_count, l_count, CONTRACT_L1, row_at);
		bring(right, b, column_count, q, q_count, s_count, CONTRACT_S1, column_at);
		__syncthreads();
		const int steps = q_count - q < CONTRACT_STEP ? q_count - q : CONTRACT_STEP;
		for (int k = 0; k < steps; k++) {
			f32 u[4], v[4];
#pragma unroll
			for (int i = 0; i < 4; i++) u[i] = left[k][y + i], v[i] = right[k][x + i];
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++) sums[i][j] = CONTRACT_ROUNDED ? sums[i][j] + rounded_product(u[i], v[j]) : fmaf(u[i], v[j], sums[i][j]);
		}
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			i64 leading;
			const i64 at = output_at(y + i, x + j, leading);
			if (y + i >= row_count || x + j >= column_count || leading >= limit) continue;
			f32 v = sums[i][j];
			if (bias) v += bias[leading];
#if CONTRACT_ROUNDED
			v = rounded_product(v, scale);
			if (positions) v += positions[position[t] * each + at];
#endif
			c[at] = v;
		}
}
