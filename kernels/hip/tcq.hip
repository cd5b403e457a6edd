// tcq (docs/schemes/tcq.md), before its rotations: w = unit * codeword, unit for
// 16 rows. For the products of matmul.hip, whose lanes take 16 weights of a row: a
// lane loads a whole tile, as the 15 others with rows of it do, and cuts out its row.
#include "tcqcode.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 16, group = 0, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		TcqTile tile;
		int row; // of the tile
		u16 unit;
	};
	const u8 *codes, *units;
	i64 first, tiles; // row of the matrix; tiles of it
	int across;       // tiles along a row

	NSTF_MEMBER Weights(const Matrix &m, i64 row) {
		first = row, across = m.k / 16, tiles = m.rows / 16 * across;
		codes = m.data, units = m.data + tiles * (32 * TCQ_BITS);
	}
	NSTF_MEMBER u32 word(i64 tile, int i) const { return *(const u32 *)(codes + ((i >> 2) * tiles + tile) * 16 + (i & 3) * 4); }
	// The state of one weight.
	NSTF_MEMBER u32 state(int row, int column) const {
		const i64 at = first + row, tile = at / 16 * across + column / 16;
		const int bit = (column % 16 * 16 + (int)(at % 16)) * TCQ_BITS, i = bit >> 5, next = i + 1 == TCQ_WORDS ? 0 : i + 1;
		return tcq_window(word(tile, i), word(tile, next), bit & 31) & 0xffff;
	}
	NSTF_MEMBER Raw load(int row, int u) const {
		const i64 at = first + row;
		Raw raw;
		tcq_load(raw.tile, (const uint4 *)codes, tiles, at / 16 * across + u);
		raw.row = (int)(at % 16);
		raw.unit = ((const u16 *)units)[at / 16];
		return raw;
	}
	// The state in column c, which the compiler knows: its window begins in one of
	// up to three words.
	static NSTF_MEMBER u32 state_of(const Raw &raw, int c) {
		const int word = 16 * c * TCQ_BITS / 32, at = 16 * c * TCQ_BITS % 32, most = (at + 15 * TCQ_BITS) / 32;
		const int bit = at + raw.row * TCQ_BITS, skip = bit >> 5;
		u32 lo = raw.tile.w[word % TCQ_WORDS], hi = raw.tile.w[(word + 1) % TCQ_WORDS];
#pragma unroll
		for (int i = 1; i <= most; i++) {
			lo = skip == i ? raw.tile.w[(word + i) % TCQ_WORDS] : lo;
			hi = skip == i ? raw.tile.w[(word + i + 1) % TCQ_WORDS] : hi;
		}
		return tcq_window(lo, hi, bit & 31) & 0xffff;
	}
	NSTF_MEMBER void ahead(int, int) const {}
	static NSTF_MEMBER void fill(u8 *) {}
	static NSTF_MEMBER void floats(const Raw &raw, int, const u8 *, f32 (&w)[unit]) {
		const f32 scale = tcq_unit(raw.unit);
#pragma unroll
		for (int c = 0; c < 16; c++) w[c] = scale * tcq_codeword(state_of(raw, c));
	}
};
