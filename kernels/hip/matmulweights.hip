// How the matrix product takes weights: 16 of a row per lane, of any scheme, from
// memory into the registers that matrix.hip multiplies.
//
// Reference, for the lane's row and its block b of a pair of tiles:
//   for i < 16: out[i] = W[row][k + i], k = 32 (b/2 groups + group) + 16 (b%2)
//
// A scheme whose unit is 32 weights is loaded once for two blocks. Beyond the
// row's end it is the row's last unit, times activations that are 0.
//
// Exact: the reference decode's float32. Else halves: float16 as stored, bfloat16
// and float32 rounded, and of coded weights 16 times the weight, so that scales
// down to 4e-6 stay normal numbers and weights up to 4000 fit. Codes become halves
// through their bytes, 1024 + code, and are scaled as halves, so that a weight is
// rounded up to three times (scale, minimum, result), by 2^-12 of that number each.
#define NSTF_REUSED 1
#include "SCHEME.hip"
#include "matrix.hip"

#if PLAIN_TYPE == 2 && PLAIN_UNIT == 8
#define MATMUL_STORED true // float16: taken as they are
#define MATMUL_SCALE 1.0f
#else
#define MATMUL_STORED false
#ifdef PLAIN_TYPE
#define MATMUL_SCALE 1.0f
#else
#define MATMUL_SCALE 16.0f
#endif
#endif
#define MATMUL_PAIR (2 * MATRIX_TILE_K)                             // k of two tiles
#define MATMUL_WIDE (Weights::unit > 16)                            // a unit is two blocks' weights
#define MATMUL_UNITS (Weights::unit >= 16 ? 1 : 16 / Weights::unit) // units loaded at once
static_assert(Weights::unit <= 32, "a lane decodes 32 weights at most");

struct MatmulRaw {
	typename Weights::Raw v[MATMUL_FEATURES][MATRIX_ROWS][MATMUL_UNITS];
};

// What a wave reads its weights from.
struct MatmulWeights {
	Weights view; // from the block's first row on
	const u8 *table;
	int row[MATMUL_FEATURES][MATRIX_ROWS]; // of the view
	int units;                    // of a row
};

// The lane's first unit of block b in a pair of tiles.
NSTF_DEVICE int matmul_unit(int pair, int b) {
	const int k = pair * MATMUL_PAIR + (b / 2 * MATRIX_GROUPS + matrix_group()) * 32;
	return MATMUL_WIDE ? k / 32 : (k + b % 2 * 16) / Weights::unit;
}

NSTF_DEVICE void matmul_fetch(MatmulRaw &raw, const MatmulWeights &w, int pair, int b) {
#pragma unroll
	for (int i = 0; i < MATMUL_UNITS; i++) {
		int u = matmul_unit(pair, b) + i;
		u = u < w.units ? u : w.units - 1;
#pragma unroll
		for (int f = 0; f < MATMUL_FEATURES; f++)
#pragma unroll
			for (int r = 0; r < MATRIX_ROWS; r++) raw.v[f][r][i] = w.view.load(w.row[f][r], u);
	}
}

// 16 weights as float32, half `half` of a wide unit.
template <typename W> NSTF_DEVICE void matmul_floats(const typename W::Raw (&raw)[MATMUL_UNITS], const u8 *table, int u, int half, f32 (&out)[16]) {
#pragma unroll
	for (int i = 0; i < MATMUL_UNITS; i++) {
		f32 v[W::unit];
		W::floats(raw[i], u + i, table, v);
#pragma unroll
		for (int j = 0; j < 16 / MATMUL_UNITS; j++) out[16 / MATMUL_UNITS * i + j] = v[half * 16 + j];
	}
}

#if NSTF_EXACT
template <typename W> NSTF_DEVICE void matmul_decode16(const typename W::Raw (&raw)[MATMUL_UNITS], const u8 *table, int u, int half, u32 (&out)[16]) {
	f32 v[16];
	matmul_floats<W>(raw, table, u, half, v);
#pragma unroll
	for (int i = 0; i < 16; i++) out[i] = bits_of(v[i]);
}
#else
// Codes: signed bytes, made unsigned by 128.
template <typename W> NSTF_DEVICE void matmul_decode_codes(const typename W::Raw &raw, const u8 *table, int u, int half, u32 (&out)[8]) {
	const int groups = NSTF_GROUPS;
	u32 q[W::unit / 4];
	f32 s[groups], m[groups];
	W::codes(raw, table, q);
	W::scales(raw, u, s, m);
	const int g = groups > 1 ? half * 16 / W::group : 0;
	const f32 least = W::mins ? m[g] * -MATMUL_SCALE : 0;
	const u32 scale = halves_of(s[g] * MATMUL_SCALE, s[g] * MATMUL_SCALE), min = halves_of(least, least);
	const u32 zero = (0xe480 + W::zero) * 0x10001u; // -(1024 + 128 + zero)
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const u32 bytes = q[half * 4 + i] ^ 0x80808080u;
		out[2 * i] = halves_fma(halves_add(halves_lower(bytes), zero), scale, min);
		out[2 * i + 1] = halves_fma(halves_add(halves_upper(bytes), zero), scale, min);
	}
}

template <typename W> NSTF_DEVICE void matmul_decode16(const typename W::Raw (&raw)[MATMUL_UNITS], const u8 *table, int u, int half, u32 (&out)[8]) {
	if constexpr (W::group > 0) {
		static_assert(W::unit >= 16, "codes come in units of 16 or 32");
		matmul_decode_codes<W>(raw[0], table, u, half, out);
	} else if constexpr (MATMUL_STORED) {
		const uint4 a = raw[0].q, b = raw[MATMUL_UNITS - 1].q;
		out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
		out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
	} else {
		f32 v[16];
		matmul_floats<W>(raw, table, u, half, v);
#pragma unroll
		for (int i = 0; i < 8; i++) out[i] = halves_of(v[2 * i] * MATMUL_SCALE, v[2 * i + 1] * MATMUL_SCALE);
	}
}
#endif

// The lane's weights of block b from what was loaded for it.
NSTF_DEVICE void matmul_decode(MatrixRuns (&out)[MATMUL_FEATURES], const MatmulRaw &raw, const MatmulWeights &w, int pair, int b) {
	const int unit = matmul_unit(pair, b), half = MATMUL_WIDE ? b % 2 : 0;
#pragma unroll
	for (int f = 0; f < MATMUL_FEATURES; f++)
#pragma unroll
		for (int r = 0; r < MATRIX_ROWS; r++) matmul_decode16<Weights>(raw.v[f][r], w.table, unit, half, out[f].v[r]);
}
