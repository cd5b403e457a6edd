// The second step of products of thin factors of the scheme tcq, and all that stands
// between them and outputs (docs/schemes/tcq.md), few rows at a time:
//
//	z = H(in signs * in * H(x) * x signs * x out)       x, as it left B's codewords
//	y = H(A's codewords * z) * out signs * out  + H(codes) * code signs * codes out
//	    + bias + residual
//	THIN_GATED:  y = act(y_0) * y_1, into y_0
//	THIN_TO:     to = H(y * to_in * to signs), the input side of what reads y, of blocks of
//	             THIN_TO columns, in place of y; THIN_ROUND rounds it to bytes (acts.hip)
//
// THIN_IN and THIN_OUT are A's blocks of columns and rows; THIN_X is B's blocks of
// rows, 0 where x is rotated back already; THIN_CODES is those of the codes that a
// product corrects, which lie before all rotations too, 0 where there are none.
// x f32[T][K]; codes, y f32[T][N]; bias f32[N], residual f32[T][N] or null; in f16[K],
// x_out f16[K], out and codes_out f16[N] or null. N, K multiples of 16. y may be codes
// or residual.
//
// Grid: tiles of 128 rows of up to three matrices, one after the other; a block of
// 128 * THIN_LANES threads, THIN_LANES of which share a row; any wave size. LDS: 512
// bytes for a row of x and matrix, and x. Phases: codes of a lane's first unit are asked
// for; x is turned; barrier; multiplied; barrier; turned back.
// Deterministic: every sum in one fixed order.
// Decoding that unit before x is there was slower on an H200: 2.7 instead of 2.5 us.
// Bound: a launch; a lane takes 10 instructions for a weight. Tolerance: that of
// a float32 sum, in the default mode too.
#include "hadamard.hip"
#include "tcq.hip"
#include "acts.hip"
#if THIN_GATED
#include "activation.hip"
#endif

#define THIN_TILE 128
#define THIN_THREADS (THIN_TILE * THIN_LANES)
#define THIN_SIDES (THIN_GATED + 1)

struct Thin {
	const u8 *w;
	const f32 *x, *codes, *bias, *residual;
	f32 *y;
	const u16 *x_out, *in, *out, *codes_out;
	Signs x_signs, in_signs, out_signs, codes_signs;
	int n, k;
};

// Four numbers from p on, zeros outside.
NSTF_DEVICE void take(f32 (&v)[4], const f32 *p, bool inside) {
	const float4 q = inside ? *(const float4 *)p : make_float4(0, 0, 0, 0);
	v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}

// The output side of a product, of numbers i to i+3 of a row.
template <int Size> NSTF_DEVICE void output_side(f32 (&v)[4], const Signs &signs, const u16 *scales, int i, bool inside) {
	hadamard<Size>(v);
	apply_signs<Size>(v, signs, i);
#pragma unroll
	for (int j = 0; j < 4; j++)
		if (scales && inside) v[j] = rounded_product(v[j], half_value(scales[i + j]));
}

// Brings the rows of x to A's input side, a group of 32 lanes 128 numbers at a time.
NSTF_DEVICE void turn(f32 *to, const Thin &p) {
	const int chunks = (p.k + 127) / 128;
	for (int g = threadIdx.x / 32; g < THIN_T * chunks; g += THIN_THREADS / 32) {
		const int t = g / chunks, from = g % chunks * 128 + threadIdx.x % 32 * 4;
		const bool inside = from < p.k;
		f32 v[4];
		take(v, p.x + (i64)t * p.k + from, inside);
#if THIN_X
		output_side<THIN_X>(v, p.x_signs, p.x_out, from, inside);
#endif
#pragma unroll
		for (int j = 0; j < 4; j++)
			if (p.in && inside) v[j] = rounded_product(v[j], half_value(p.in[from + j]));
		apply_signs<THIN_IN>(v, p.in_signs, from);
		hadamard<THIN_IN>(v);
		if (inside) *(float4 *)(to + t * p.k + from) = make_float4(v[0], v[1], v[2], v[3]);
	}
}

// What is added up for four rows of one matrix.
NSTF_DEVICE void finish(f32 (&v)[4], const Thin &p, const f32 *sums, int t, int row, bool inside) {
	const int safe = inside ? row : 0;
	const i64 at = (i64)t * p.n + safe;
	take(v, sums, true);
	output_side<THIN_OUT>(v, p.out_signs, p.out, safe, inside);
	f32 more[4];
#if THIN_CODES
	take(more, p.codes + at, inside);
	output_side<THIN_CODES>(more, p.codes_signs, p.codes_out, safe, inside);
#pragma unroll
	for (int j = 0; j < 4; j++) v[j] += more[j];
#endif
	if (p.bias) {
		take(more, p.bias + safe, inside);
#pragma unroll
		for (int j = 0; j < 4; j++) v[j] += more[j];
	}
	if (p.residual) {
		take(more, p.residual + at, inside);
#pragma unroll
		for (int j = 0; j < 4; j++) v[j] += more[j];
	}
}

#define THIN_PRODUCT(i) const u8 *w##i, const f32 *x##i, const f32 *codes##i, const f32 *bias##i, const f32 *residual##i, f32 *y##i, \
	const u16 *x_out##i, const u16 *in##i, const u16 *out##i, const u16 *codes_out##i, \
	u64 x_low##i, u64 x_high##i, u64 in_low##i, u64 in_high##i, u64 out_low##i, u64 out_high##i, u64 codes_low##i, u64 codes_high##i, int n##i, int k##i
#define THIN_TAKE(i) {w##i, x##i, codes##i, bias##i, residual##i, y##i, x_out##i, in##i, out##i, codes_out##i, \
	{x_low##i, x_high##i}, {in_low##i, in_high##i}, {out_low##i, out_high##i}, {codes_low##i, codes_high##i}, n##i, k##i}

NSTF_KERNEL void __launch_bounds__(THIN_THREADS) nstf_thin_tcq(
    THIN_PRODUCT(0)
#if THIN_MATRICES > 1
    , THIN_PRODUCT(1)
#endif
#if THIN_MATRICES > 2
    , THIN_PRODUCT(2)
#endif
#if THIN_TO
    , const u16 *to_in, u64 to_low, u64 to_high, u8 *to
#endif
) {
	extern __shared__ __align__(16) f32 turned[];
	__shared__ __align__(16) f32 products[THIN_SIDES][THIN_T][THIN_TILE];
	let_next_begin();
	int tile = blockIdx.x;
	Thin side[THIN_SIDES] = {
		THIN_TAKE(0),
#if THIN_GATED
		THIN_TAKE(1),
#endif
	};
#if THIN_MATRICES > 1 && !THIN_GATED
	const int tiles0 = (n0 + THIN_TILE - 1) / THIN_TILE, tiles1 = tiles0 + (n1 + THIN_TILE - 1) / THIN_TILE;
	if (tile >= tiles1) {
#if THIN_MATRICES > 2
		side[0] = THIN_TAKE(2);
		tile -= tiles1;
#endif
	} else if (tile >= tiles0) {
		side[0] = THIN_TAKE(1);
		tile -= tiles0;
	}
#endif
	const int n = side[0].n, local = threadIdx.x / THIN_LANES, lane = threadIdx.x % THIN_LANES;
	const int row = tile * THIN_TILE + local, safe = row < n ? row : n - 1;
	Weights::Raw first[THIN_SIDES];
#pragma unroll
	for (int i = 0; i < THIN_SIDES; i++) {
		const Weights view(Matrix{side[i].w, n, side[i].k}, safe);
		first[i] = view.load(0, lane < side[i].k / 16 ? lane : 0);
	}
	wait_for_inputs();
	turn(turned, side[0]);
	if (THIN_GATED) turn(turned + THIN_T * side[0].k, side[THIN_SIDES - 1]);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < THIN_SIDES; i++) {
		const Thin &p = side[i];
		const Weights view(Matrix{p.w, n, p.k}, safe);
		const f32 *z = turned + i * THIN_T * side[0].k;
		f32 sums[THIN_T] = {};
		for (int u = lane; u < p.k / 16; u += THIN_LANES) {
			f32 w[16];
			Weights::floats(u == lane ? first[i] : view.load(0, u), u, nullptr, w);
#pragma unroll
			for (int t = 0; t < THIN_T; t++)
#pragma unroll
				for (int c = 0; c < 16; c++) sums[t] = fmaf(w[c], z[t * p.k + u * 16 + c], sums[t]);
		}
#pragma unroll
		for (int t = 0; t < THIN_T; t++) {
			sums[t] = wave_sum<THIN_LANES>(sums[t]);
			if (lane == t % THIN_LANES) products[i][t][local] = sums[t];
		}
	}
	__syncthreads();
	const int four = threadIdx.x % 32 * 4, from = tile * THIN_TILE + four;
	const bool inside = from < n;
	for (int t = threadIdx.x / 32; t < THIN_T; t += THIN_THREADS / 32) {
		f32 v[4];
		finish(v, side[0], products[0][t] + four, t, from, inside);
#if THIN_GATED
		f32 up[4];
		finish(up, side[1], products[1][t] + four, t, from, inside);
#pragma unroll
		for (int j = 0; j < 4; j++) v[j] = gated(v[j], up[j]);
#endif
#if THIN_TO
#pragma unroll
		for (int j = 0; j < 4; j++) {
			if (to_in && inside) v[j] = rounded_product(v[j], half_value(to_in[from + j]));
			if (!inside) v[j] = 0;
		}
		apply_signs<THIN_TO>(v, {to_low, to_high}, from);
		hadamard<THIN_TO>(v);
#endif
#if THIN_ROUND
		uint2 pair;
		const u32 q = round_to_bytes(make_float4(v[0], v[1], v[2], v[3]), pair);
		if (from >= acts_padded(n)) continue;
		u8 *row = to + (i64)t * acts_row_bytes(n);
		*(u32 *)(row + acts_quad(from / 4)) = q;
		if (from % 32 == 0) *(uint2 *)(row + acts_pair(n, from / 4)) = pair;
#else
#if THIN_TO
		f32 *out = (f32 *)to;
#else
		f32 *out = side[0].y;
#endif
		if (inside) *(float4 *)(out + (i64)t * n + from) = make_float4(v[0], v[1], v[2], v[3]);
#endif
	}
}
