// Stored blocks as numbers, for programs that multiply by themselves (docs/python.md).
//
//	for t, k: y[t][k] = W[row[t]][k], with d and m in the place of the blocks' own scales
//
// from: blocks as the scheme's page stores them, at a multiple of 4 bytes, DECODE_BYTES
// for DECODE_WEIGHTS weights, `across` of them a row, `rows` rows; row i64[...], null: all rows.
// Of a row that is not there NaN is written, and nothing is read. d and m
// f32, one a block; null where the scheme has none. y f32, f16 (DECODE_TYPE 1) or bf16 (2),
// at a multiple of 16 bytes; blocks is how many y takes. Of the table and the places of an
// arranged block's bytes: Format.DecodeTable.
//
// DECODE_BLOCKS blocks are arranged in LDS as arrange.hip does it, with 1 for their
// scales, and then read as all kernels do (weights.hip).
//
// Grid: x any number of blocks of 256 threads, which take turns; any wave size. LDS: the
// blocks twice, the scheme's table. Deterministic. Bound: the bytes of a block read,
// 4 (2) written for each number. Exact: the bits of the reference decode where d and m are
// what the blocks have, rounded to nearest even in f16 and bf16.
#define NSTF_REUSED 1 // what is loaded lies in LDS
#include "SCHEME.hip"
#include "number.hip"

NSTF_KERNEL void __launch_bounds__(256) NSTF_NAMED(nstf_decode)(
    Number *__restrict__ y, const u8 *__restrict__ from, const uint4 *__restrict__ table, const uint2 *__restrict__ place,
    const i64 *__restrict__ row, i64 rows, i64 blocks, int across, const f32 *__restrict__ d, const f32 *__restrict__ m) {
	__shared__ __align__(16) u8 stored[DECODE_BLOCKS * DECODE_BYTES], arranged[DECODE_BLOCKS * DECODE_BYTES];
	__shared__ __align__(16) u8 grid[Weights::table + 16];
	__shared__ i64 source[DECODE_BLOCKS];
	Weights::fill(grid);
	for (i64 start = (i64)blockIdx.x * DECODE_BLOCKS; start < blocks; start += (i64)gridDim.x * DECODE_BLOCKS) {
		const int count = blocks - start < DECODE_BLOCKS ? (int)(blocks - start) : DECODE_BLOCKS;
		__syncthreads(); // nobody reads the blocks before
		for (int b = threadIdx.x; b < count; b += 256) {
			const i64 at = start + b;
			const i64 which = row ? row[at / across] : at / across;
			source[b] = which < 0 || which >= rows ? -1 : which * across + at % across;
		}
		const int words = row ? 0 : count * DECODE_BYTES / 4;
		for (int i = threadIdx.x; i < words; i += 256) ((u32 *)stored)[i] = ((const u32 *)(from + start * DECODE_BYTES))[i];
		__syncthreads();
		for (int i = 4 * words + threadIdx.x; i < count * DECODE_BYTES; i += 256)
			if (source[i / DECODE_BYTES] >= 0) stored[i] = from[source[i / DECODE_BYTES] * DECODE_BYTES + i % DECODE_BYTES];
		__syncthreads();
		for (int i = threadIdx.x; i < count * DECODE_BYTES; i += 256) {
			const int block = i / DECODE_BYTES, j = i % DECODE_BYTES;
			// x: where in the planes of all blocks, and bytes between blocks; y: the bits that lie
			// together, those that stay, those that are set.
			const uint2 to = place[j];
			const uint4 all = table[j];
			const u32 bits[4] = {all.x, all.y, all.z, all.w};
			const int width = to.y & 15;
			u32 v = 0;
#pragma unroll
			for (int b = 0; b < 8; b++) {
				if (b & (width - 1)) continue;
				const u32 bit = bits[b / 2] >> (16 * (b & 1)) & 0xffff;
				v |= (stored[block * DECODE_BYTES + (bit >> 3)] >> (bit & 7) & ((1u << width) - 1)) << b;
			}
			arranged[(to.x & 0xffff) + block * (to.x >> 16)] = (u8)((v & to.y >> 8) | to.y >> 16);
		}
		__syncthreads();
		const int u = threadIdx.x, b = u * Weights::unit / DECODE_WEIGHTS;
		if (b >= count) continue;
		const Weights view(Matrix{arranged, 1, DECODE_BLOCKS * DECODE_WEIGHTS}, 0);
		const typename Weights::Raw raw = view.load(0, u);
		u32 q[Weights::unit / 4];
		f32 s[NSTF_GROUPS], low[NSTF_GROUPS];
		Weights::codes(raw, grid, q);
		Weights::scales(raw, u, s, low);
		const bool there = source[b] >= 0;
		const f32 scale = d && there ? d[source[b]] : 1, min = m && there ? m[source[b]] : 1;
		Number *to = y + start * DECODE_WEIGHTS + (i64)u * Weights::unit;
		const int run = 16 / sizeof(Number);
#pragma unroll
		for (int i = 0; i < Weights::unit; i += run) {
			pack<Number, run> out;
#pragma unroll
			for (int j = 0; j < run; j++) {
				const int at = i + j, g = NSTF_GROUPS > 1 ? at / Weights::group : 0;
				const f32 code = signed_byte(q[at / 4], at % 4);
				if (!there) out.v[j] = number(NSTF_NAN);
				else if (Weights::mins) out.v[j] = number(fmaf(rounded_product(scale, s[g]), code, -rounded_product(min, low[g])));
				else out.v[j] = number(rounded_product(rounded_product(scale, s[g]), code - (f32)Weights::zero));
			}
			*(pack<Number, run> *)(to + i) = out;
		}
	}
}
