// nf4 (docs/schemes/nf4.md): w = level[q] * absmax, a magnitude for NF4_BLOCK
// weights of the flattened tensor; where NF4_NESTED is not 0, absmax =
// nested_level[code] * nested_absmax + offset, NF4_NESTED blocks sharing the
// second magnitude. Parts as stored: codes, levels, absmax, nested_absmax,
// nested_levels, offset. NF4_UNIT is 32 where rows and blocks are whole units of
// 32, else 1.
#include "weights.hip"

struct Weights {
	static const int unit = NF4_UNIT, group = 0, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q; // the codes; where they are single, the code in x
		f32 absmax;
		const f32 *levels;
	};
	const u8 *codes, *absmax;
	const f32 *levels, *second, *nested, *offset;
	i64 first; // weight
	int k;

	static __device__ i64 whole(i64 bytes) { return (bytes + 15) & ~15ll; }
	__device__ Weights(const Matrix &m, i64 row) {
		const i64 weights = m.rows * m.k, blocks = (weights + NF4_BLOCK - 1) / NF4_BLOCK;
		const int nest = NF4_NESTED ? NF4_NESTED : 1;
		k = m.k, first = row * k, codes = m.data;
		levels = (const f32 *)(codes + whole((weights + 1) / 2));
		absmax = (const u8 *)(levels + 16);
		second = (const f32 *)(absmax + whole(blocks));
		nested = (const f32 *)((const u8 *)second + whole((blocks + nest - 1) / nest * 4));
		offset = nested + 256;
	}
	__device__ f32 magnitude(i64 block) const {
#if NF4_NESTED
		return rounded_product(nested[absmax[block]], second[block / NF4_NESTED]) + offset[0];
#else
		return ((const f32 *)absmax)[block];
#endif
	}
	__device__ Raw load(int row, int u) const {
		const i64 i = first + (i64)row * k + u * unit;
		const f32 most = magnitude(i / NF4_BLOCK);
		if (unit > 1) return {load_once((const uint4 *)(codes + i / 2)), most, levels};
		return {make_uint4(codes[i / 2] >> (i & 1 ? 0 : 4) & 15, 0, 0, 0), most, levels};
	}
	__device__ void ahead(int row, int n) const {
		if (unit > 1) fetch_ahead(codes + (first + row * k) / 2, n * 16);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void floats(const Raw &r, int, const u8 *, f32 (&w)[unit]) {
		const u32 v[4] = {r.q.x, r.q.y, r.q.z, r.q.w};
#pragma unroll
		for (int i = 0; i < unit; i++) // the first of two in the high nibble
			w[i] = r.levels[unit > 1 ? v[i / 8] >> (8 * (i / 2 % 4) + (i & 1 ? 0 : 4)) & 15 : v[0]] * r.absmax;
	}
};
