// Trellis codes (docs/schemes/tcq.md) as numbers, both rotations done, for programs that
// multiply by themselves (docs/python.md).
//
// codes: u16[rows/16][K/16][16*TCQ_BITS] as stored, at a multiple of 4 bytes; units f32[rows/16];
// in f32[K] and out f32[rows], or null; y f32, f16 (DECODE_TYPE 1) or bf16 (2) [rows][K] at a
// multiple of 16 bytes. TCQ_IN columns and TCQ_OUT rows are a rotated block, 1: none. Rows
// and K are multiples of 16 and of the blocks.
//
// Grid: x is 128 columns, y is 128 rows; a block of 256 threads. Each 32 lanes have 16 rows:
// a lane decodes 4 columns of them from the quarter of a tile, transforms its columns with
// its neighbours and its rows alone; rows that are further apart than 16 meet in LDS, which
// takes one half of the rows after the other. Any wave size. Deterministic. Bound:
// 4 (2) bytes written for each number; some 15 instructions. Exact: the bits of the reference
// decode where the scales are what is stored, rounded to nearest even in f16 and bf16.
#include "hadamard.hip"
#include "number.hip"
#include "tcqcode.hip"

// What is left to do with four numbers of a row.
NSTF_DEVICE void give(Number *y, f32 (&v)[4], i64 row, u64 low, u64 high, const f32 *out) {
	const int among = (int)(row & (TCQ_OUT - 1));
	f32 f = TCQ_OUT > 1 && ((among & 64 ? high : low) >> (among & 63) & 1) ? -1.0f : 1.0f;
	if (out) f *= out[row];
	pack<Number, 4> to;
#pragma unroll
	for (int c = 0; c < 4; c++) {
		const f32 w = TCQ_OUT > 1 ? rounded_product(v[c], hadamard_factor(TCQ_OUT)) : v[c];
		to.v[c] = number(rounded_product(w, f));
	}
	*(pack<Number, 4> *)y = to;
}

NSTF_KERNEL void __launch_bounds__(256) nstf_decode_tcq(
    Number *__restrict__ y, const u32 *__restrict__ codes, const f32 *__restrict__ units, const f32 *__restrict__ in,
    const f32 *__restrict__ out, i64 rows, int k, u64 in_low, u64 in_high, u64 out_low, u64 out_high) {
	const int lane = threadIdx.x % 32, strip = threadIdx.x / 32, column = blockIdx.x * 128 + lane * 4;
	const i64 first = (i64)blockIdx.y * 128, row = first + strip * 16;
	const bool inside = column < k && row < rows;
	const i64 tile = inside ? row / 16 * (k / 16) + column / 16 : 0;
	// A quarter of the ring, and the word behind it.
	u32 ring[2 * TCQ_BITS + 1];
	const int quarter = lane % 4;
	const u32 *words = codes + tile * TCQ_WORDS;
#pragma unroll
	for (int i = 0; i < 2 * TCQ_BITS; i++) ring[i] = words[quarter * 2 * TCQ_BITS + i];
	ring[2 * TCQ_BITS] = words[quarter == 3 ? 0 : (quarter + 1) * 2 * TCQ_BITS];
	const f32 unit = inside ? units[row / 16] * (1.0f / 128) : 0;
	f32 side[4] = {1, 1, 1, 1};
	if (in && inside)
#pragma unroll
		for (int c = 0; c < 4; c++) side[c] = in[column + c];
	f32 v[16][4];
#pragma unroll
	for (int r = 0; r < 16; r++) {
#pragma unroll
		for (int c = 0; c < 4; c++) v[r][c] = rounded_product(unit, tcq_codeword(tcq_state(ring, c, r)));
		hadamard<TCQ_IN>(v[r]);
		apply_signs<TCQ_IN>(v[r], {in_low, in_high}, lane * 4);
#pragma unroll
		for (int c = 0; c < 4; c++) v[r][c] = rounded_product(v[r][c], side[c]);
	}
#pragma unroll
	for (int s = 1; s < 16 && s < TCQ_OUT; s *= 2)
#pragma unroll
		for (int r = 0; r < 16; r++)
			if (!(r & s))
#pragma unroll
				for (int c = 0; c < 4; c++) {
					const f32 a = v[r][c], b = v[r + s][c];
					v[r][c] = a + b, v[r + s][c] = a - b;
				}
#if TCQ_OUT <= 16
	if (!inside) return;
#pragma unroll
	for (int r = 0; r < 16; r++) give(y + (row + r) * k + column, v[r], row + r, out_low, out_high, out);
#else
	__shared__ float4 half[8][8][32];
#pragma unroll
	for (int part = 0; part < 2; part++) {
		if (part > 0) __syncthreads();
#pragma unroll
		for (int r = 0; r < 8; r++) {
			const f32 *from = v[8 * part + r];
			half[strip][r][lane] = make_float4(from[0], from[1], from[2], from[3]);
		}
		__syncthreads();
		// The same row of all strips; this thread's is number `strip` of each.
		f32 w[8][4];
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const float4 q = half[i][strip][lane];
			w[i][0] = q.x, w[i][1] = q.y, w[i][2] = q.z, w[i][3] = q.w;
		}
#pragma unroll
		for (int s = 1; s < TCQ_OUT / 16; s *= 2)
#pragma unroll
			for (int i = 0; i < 8; i++)
				if (!(i & s))
#pragma unroll
					for (int c = 0; c < 4; c++) {
						const f32 a = w[i][c], b = w[i + s][c];
						w[i][c] = a + b, w[i + s][c] = a - b;
					}
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const i64 at = first + 16 * i + 8 * part + strip;
			if (column < k && at < rows) give(y + at * k + column, w[i], at, out_low, out_high, out);
		}
	}
#endif
}
