// How kernels read the weights of a matrix W[N][K].
//
// A unit of the compiler is made for one scheme; the scheme's file (named
// SCHEME.hip by those that include it) defines the struct Weights, a view of a
// matrix from one of its rows on. A lane takes `unit` consecutive weights of a
// row at once; K is a multiple of unit.
//
//	struct Weights {
//		static const int unit;   // weights taken at once, a multiple of 4
//		static const int group;  // of them that share a scale, 16 or 32; a smaller unit lies in
//		                         // one group. 0: the scheme has no integer form
//		static const bool mins;  // w = scale*code - min; else w = scale*(code - zero)
//		static const int zero;
//		static const int table;  // bytes of LDS for fill, 0: none
//		struct Raw;              // what lies in memory of a unit
//
//		Weights(const Matrix &m, i64 row);
//		Raw load(int row, int u) const;  // unit u of a row counted from the view's first
//		void ahead(int row, int n) const; // has the first n units of a row fetched to the L2 cache
//
//		static void fill(u8 *table);     // called by all threads, before a barrier
//		// The codes, a signed byte each, first in the low byte.
//		static void codes(const Raw &, const u8 *table, u32 (&q)[unit / 4]);
//		// Scales, and minimums where mins, of the unit's groups, at least one.
//		static void scales(const Raw &, int u, f32 (&s)[groups], f32 (&m)[groups]);
//		// The weights themselves, with the bits of the reference decode.
//		static void floats(const Raw &, int u, const u8 *table, f32 (&w)[unit]);
//	};
//
// Matrices lie in one buffer, their parts one after the other, each from a
// multiple of 16 bytes on (Format.Size). Schemes of blocks are arranged for
// 16-byte loads: a plane for each field of the block, all blocks' fields of one
// kind together, codes split into planes of 4, 2 and 1 bits (arrange.go). For
// 32 weights, 4 bits take 16 bytes: byte j holds weight j below and j+16 above;
// 2 bits take 8 bytes: bits 2i of byte b of word h belong to weight 16h+4i+b;
// 1 bit takes 4 bytes: bit i of byte b belongs to weight 4i+b. So a word's worth
// of consecutive codes comes out by a shift and a mask.
#include "common.hip"

// The name of a kernel of the unit's scheme: nstf_embed_q4k.
#define NSTF_PASTE(a, b) a##_##b
#define NSTF_PASTED(a, b) NSTF_PASTE(a, b)
#define NSTF_NAMED(op) NSTF_PASTED(op, NSTF_SCHEME)

// A Matrix is where weights lie: rows of k weights.
struct Matrix {
	const u8 *data;
	i64 rows;
	int k;
};

// The number of scales of a unit.
#define NSTF_GROUPS (Weights::group > 0 && Weights::group < Weights::unit ? Weights::unit / Weights::group : 1)

// Codes of 32 weights from their planes.
NSTF_DEVICE void nibble_codes(uint4 v, u32 (&q)[8]) {
	const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		q[i] = w[i] & 0x0f0f0f0f;
		q[i + 4] = w[i] >> 4 & 0x0f0f0f0f;
	}
}

NSTF_DEVICE void pair_codes(uint2 v, u32 (&q)[8]) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		q[i] = v.x >> (2 * i) & 0x03030303;
		q[i + 4] = v.y >> (2 * i) & 0x03030303;
	}
}

// Adds planes above those that q has: bits 4 and 5, or one bit.
NSTF_DEVICE void add_pairs(uint2 v, u32 (&q)[8]) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		q[i] |= (i < 2 ? v.x << (4 - 2 * i) : v.x >> (2 * i - 4)) & 0x30303030;
		q[i + 4] |= (i < 2 ? v.y << (4 - 2 * i) : v.y >> (2 * i - 4)) & 0x30303030;
	}
}

template <int Bit> NSTF_DEVICE void add_bits(u32 v, u32 (&q)[8]) {
#pragma unroll
	for (int i = 0; i < 8; i++) q[i] |= (i < Bit ? v << (Bit - i) : v >> (i - Bit)) & (0x01010101u << Bit);
}

// The levels of 32 weights with 4-bit codes, from a table of 16 signed bytes, t,
// lowest first.
NSTF_DEVICE void nibble_levels(uint4 v, const u32 (&t)[4], u32 (&q)[8]) {
	const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
#if defined(NSTF_CUDA)
		// A selector is four nibbles, of which bit 3 would ask for a sign: two
		// halves of the table, then for each level the half that bit 3 says.
		const u32 in = w[i] & 0x77777777, half = (w[i] >> 1 & 0x44444444) | 0x32103210;
		const u32 a = choose_bytes(choose_bytes(t[0], t[1], in), choose_bytes(t[2], t[3], in), half);
		const u32 b = choose_bytes(choose_bytes(t[0], t[1], in >> 16), choose_bytes(t[2], t[3], in >> 16), half >> 16);
		q[i] = choose_bytes(a, b, 0x6420);
		q[i + 4] = choose_bytes(a, b, 0x7531);
#else
#pragma unroll
		for (int high = 0; high < 2; high++) {
			const u32 in = w[i] >> (4 * high);
			const u32 low = __builtin_amdgcn_perm(t[1], t[0], in & 0x07070707), top = __builtin_amdgcn_perm(t[3], t[2], in & 0x07070707);
			const u32 mask = __builtin_amdgcn_perm(0, 0, (in >> 3 & 0x01010101) | 0x0c0c0c0c); // 12 gives 0, 13 gives 255
			q[i + 4 * high] = (top & mask) | (low & ~mask);
		}
#endif
	}
}

// Signed bytes from magnitudes 1 to 127 and four sign bits.
NSTF_DEVICE u32 with_signs(u32 magnitudes, u32 bits) {
	const u32 ones = ((bits & 15) * 0x00204081u) & 0x01010101u;
	return (magnitudes ^ ones * 255u) + ones;
}

// Completes 7 sign bits by one that makes their number even.
NSTF_DEVICE u32 even_signs(u32 bits) { return (bits & 127) | (__popc(bits & 127) & 1) << 7; }

// Points of a grid, 8 values from 2 bits each or 4 from 3 bits of a nibble each,
// expanded to bytes of LDS by all threads of a block.
NSTF_DEVICE void fill_grid8(u8 *table, const u16 *codes, int points, u32 values) {
	for (int i = threadIdx.x; i < points * 8; i += blockDim.x)
		table[i] = (u8)(values >> (codes[i >> 3] >> (2 * (i & 7)) & 3) * 8);
}

NSTF_DEVICE void fill_grid4(u8 *table, const u16 *codes, int points, u64 values) {
	for (int i = threadIdx.x; i < points * 4; i += blockDim.x)
		table[i] = (u8)(values >> (codes[i >> 2] >> (4 * (i & 3)) & 7) * 8);
}

// Byte b of q as a number.
NSTF_DEVICE f32 signed_byte(u32 q, int b) { return (f32)(i32)(i8)(q >> (8 * b)); }
NSTF_DEVICE f32 unsigned_byte(u32 q, int b) { return (f32)(q >> (8 * b) & 0xff); }

// floats of a scheme with an integer form. Scale times code is exact in float32
// for ggml's schemes, so that fusing it with the difference changes no bit.
template <typename W> NSTF_DEVICE void decode_codes(const typename W::Raw &raw, int u, const u8 *table, f32 (&w)[W::unit]) {
	const int groups = W::group < W::unit ? W::unit / W::group : 1;
	u32 q[W::unit / 4];
	f32 s[groups], m[groups];
	W::codes(raw, table, q);
	W::scales(raw, u, s, m);
#pragma unroll
	for (int i = 0; i < W::unit; i++) {
		const int g = groups > 1 ? i / W::group : 0;
		if (W::mins)
			w[i] = fmaf(s[g], signed_byte(q[i / 4], i % 4), -m[g]);
		else
			w[i] = s[g] * (signed_byte(q[i / 4], i % 4) - (f32)W::zero);
	}
}
