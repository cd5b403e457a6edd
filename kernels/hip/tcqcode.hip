// Codewords of trellis states, docs/schemes/tcq.md: 16 bits of a ring of
// 256*TCQ_BITS make a state, the state a codeword.
//
// TCQ_BITS is the new bits of each weight. TCQ_FACTOR multiplies a state;
// TCQ_PAIRED says that the codeword is the sum of two signed bytes of 16 bits,
// TCQ_ADDEND being added, rather than of four of 32 bits.
//
// Memory: a tile of 16 rows and 16 columns is 2*TCQ_BITS pieces of 16 bytes, each
// piece in a plane of its own: piece p of tile i at p * tiles + i, tile by tile
// along the columns, then along the rows. Behind the planes lie the scales of 16
// rows each, f16.
#include "common.hip"

#define TCQ_WORDS (8 * TCQ_BITS)  // of a tile
#define TCQ_PIECES (2 * TCQ_BITS) // of 16 bytes

// A tile's ring, its first word once more at the end.
struct TcqTile {
	u32 w[TCQ_WORDS + 1];
};


// Loads piece p of the tile at codes.
NSTF_DEVICE void tcq_piece(TcqTile &tile, const uint4 *codes, i64 tiles, int p) {
	const uint4 v = load_once(codes + p * tiles);
	tile.w[4 * p] = v.x, tile.w[4 * p + 1] = v.y, tile.w[4 * p + 2] = v.z, tile.w[4 * p + 3] = v.w;
}

NSTF_DEVICE void tcq_load(TcqTile &tile, const uint4 *codes, i64 tiles, i64 i) {
#pragma unroll
	for (int p = 0; p < TCQ_PIECES; p++) tcq_piece(tile, codes + i, tiles, p);
	tile.w[TCQ_WORDS] = tile.w[0];
}

// 32 bits of two words, lo first, from bit n on, n from 0 to 31.
NSTF_DEVICE u32 tcq_window(u32 lo, u32 hi, int n) {
#if defined(NSTF_CUDA)
	return __funnelshift_r(lo, hi, n);
#else
	return __builtin_amdgcn_alignbit(hi, lo, n);
#endif
}

// The state of row r in column c of a ring, or of columns from one that begins with
// the ring's first word; both are known to the compiler. A word's 16
// windows that do not fit into it share a second word, 16 bits further on.
NSTF_DEVICE u32 tcq_state(const u32 *ring, int c, int r) {
	const int at = (16 * c + r) * TCQ_BITS, word = at / 32, bit = at % 32;
	const u32 lo = ring[word], hi = ring[word + 1];
#if defined(NSTF_CUDA)
	// Even numbers of bits: windows a byte apart share a shift, and a permutation
	// takes both bytes and clears the rest.
	if (TCQ_BITS % 2 == 0) {
		const int far = bit / 8 == 3, shift = bit % 8 + 8 * far, k = bit / 8 - far;
		return choose_bytes(shift ? tcq_window(lo, hi, shift) : lo, 0, 0x4400 | (k + 1) << 4 | k);
	}
#endif
	if (bit <= 16) return lo >> bit & 0xffff;
	return tcq_window(lo, hi, 16) >> (bit - 16) & 0xffff;
}

// The bytes whose sum is the codeword.
NSTF_DEVICE u32 tcq_bytes(u32 state) {
#if TCQ_PAIRED
	return (state * TCQ_FACTOR + TCQ_ADDEND) & 0xffff;
#else
	return state * TCQ_FACTOR;
#endif
}

// The codeword itself.
NSTF_DEVICE f32 tcq_codeword(u32 state) { return (f32)dot4(tcq_bytes(state), 0x01010101, 0); }

// The value of a codeword of 1 under a stored scale.
NSTF_DEVICE f32 tcq_unit(u16 scale) { return half_value(scale) * (1.0f / 128); }
