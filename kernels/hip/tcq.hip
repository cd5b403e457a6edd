// tcq (docs/schemes/tcq.md), before its rotations: w = unit * codeword, unit for
// 16 rows. For the products of matmul.hip, whose lanes take 16 weights of a row:
// a tile's states lie in 16 places for a row, which load cuts out.
#include "tcqcode.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 16, group = 0, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		u32 states[8]; // two to a word
		u16 unit;
	};
	const u8 *codes, *units;
	i64 first, tiles; // row of the matrix; tiles of it
	int across;       // tiles along a row

	__device__ Weights(const Matrix &m, i64 row) {
		first = row, across = m.k / 16, tiles = m.rows / 16 * across;
		codes = m.data, units = m.data + tiles * (32 * TCQ_BITS);
	}
	__device__ u32 word(i64 tile, int i) const { return *(const u32 *)(codes + ((i >> 2) * tiles + tile) * 16 + (i & 3) * 4); }
	__device__ u32 state(i64 tile, int r, int c) const {
		const int bit = (16 * c + r) * TCQ_BITS, i = bit >> 5, next = i + 1 == TCQ_WORDS ? 0 : i + 1;
		return tcq_window(word(tile, i), word(tile, next), bit & 31) & 0xffff;
	}
	// The state of one weight.
	__device__ u32 state(int row, int column) const {
		const i64 at = first + row;
		return state(at / 16 * across + column / 16, (int)(at % 16), column % 16);
	}
	__device__ Raw load(int row, int u) const {
		const i64 at = first + row, tile = at / 16 * across + u;
		Raw raw;
#pragma unroll
		for (int c = 0; c < 16; c++) {
			const u32 s = state(tile, (int)(at % 16), c);
			raw.states[c / 2] = c % 2 ? raw.states[c / 2] | s << 16 : s;
		}
		raw.unit = ((const u16 *)units)[at / 16];
		return raw;
	}
	__device__ void ahead(int, int) const {}
	static __device__ void fill(u8 *) {}
	static __device__ void floats(const Raw &raw, int, const u8 *, f32 (&w)[unit]) {
		const f32 scale = tcq_unit(raw.unit);
#pragma unroll
		for (int c = 0; c < 16; c++) w[c] = scale * tcq_codeword(raw.states[c / 2] >> (16 * (c % 2)) & 0xffff);
	}
};
