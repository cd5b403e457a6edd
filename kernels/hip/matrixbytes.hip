// Dot products of signed bytes with the machine's matrix instructions, whole numbers
// that are exact in any order. matrix.hip is the same for floats.
//
// Reference, for a tile of 16 features and one of tokens, in Pieces of 16 k, 1 or 2:
//   sum[f][t] = BYTES_MAGIC + sum over k < 16 * Pieces of w[f][k] * x[t][k]
//
// BYTES_MAGIC is the bits of the float 1.5 * 2^23: a sum of magnitude below 2^22 read as
// a float is that and the sum, so one subtraction makes it a float.
//
// Both operands come in pieces of 16 bytes of k, and which bytes of a piece an
// instruction takes for which k is the same in both. A piece of weights lies 16 bytes
// behind that of the feature before.
//
// Units (NSTF_MATRIX):
//   MMA     mma.sync m16n8k32 and m16n8k16
//   MFMA    16x16x16 until CDNA2, 16x16x32 from CDNA3 on, waves of 64
//   WMMA11  16x16x16, both operands copied to lanes 16..31
//   WMMA12  16x16x16 without copies
// All lanes of the wave must be active. Sources: those of matrix.hip.
#include "common.hip"

#define BYTES_MAGIC 0x4b400000
#define BYTES_MAGIC_VALUE 0x1.8p23f

// Tokens of a tile, a lane's sums of a tile and the features and tokens that they
// belong to, words that it takes of a piece, and rows of weights that it takes them of.
#if NSTF_MATRIX == NSTF_MATRIX_MMA
#define BYTES_TOKENS 8
#define BYTES_FEATURES_OF 2
#define BYTES_TOKENS_OF 2
#define BYTES_WORDS 1
#define BYTES_ROWS 2
#elif NSTF_MATRIX == NSTF_MATRIX_MFMA
#define BYTES_TOKENS 16
#define BYTES_FEATURES_OF 4
#define BYTES_TOKENS_OF 1
#define BYTES_WORDS 1
#define BYTES_ROWS 1
#else
#define BYTES_TOKENS 16
#define BYTES_FEATURES_OF 8
#define BYTES_TOKENS_OF 1
#if NSTF_MATRIX == NSTF_MATRIX_WMMA11
#define BYTES_WORDS 4
#else
#define BYTES_WORDS 2
#endif
#define BYTES_ROWS 1
#endif
#define BYTES_SUMS (BYTES_FEATURES_OF * BYTES_TOKENS_OF)

NSTF_DEVICE int bytes_lane() { return threadIdx.x % NSTF_WAVE; }

// Where a lane's values belong: the row of its weights, the token of its activations,
// where its words lie in a piece, in bytes; and feature f and token t of its sums,
// which are sum[f * BYTES_TOKENS_OF + t].
#if NSTF_MATRIX == NSTF_MATRIX_MMA
NSTF_DEVICE int bytes_row(int r) { return bytes_lane() / 4 + 8 * r; }
NSTF_DEVICE int bytes_column() { return bytes_lane() / 4; }
NSTF_DEVICE int bytes_at() { return bytes_lane() % 4 * 4; }
NSTF_DEVICE int bytes_feature(int f) { return bytes_lane() / 4 + 8 * f; }
NSTF_DEVICE int bytes_token(int t) { return bytes_lane() % 4 * 2 + t; }
#else
NSTF_DEVICE int bytes_row(int) { return bytes_lane() % 16; }
NSTF_DEVICE int bytes_column() { return bytes_lane() % 16; }
NSTF_DEVICE int bytes_at() { return NSTF_MATRIX == NSTF_MATRIX_WMMA11 ? 0 : bytes_lane() / 16 * BYTES_WORDS * 4; }
NSTF_DEVICE int bytes_feature(int f) { return NSTF_MATRIX == NSTF_MATRIX_WMMA11 ? 2 * f + bytes_lane() / 16 : bytes_lane() / 16 * BYTES_FEATURES_OF + f; }
NSTF_DEVICE int bytes_token(int) { return bytes_lane() % 16; }
#endif

// A lane's words of a tile of weights, and of one of activations; its sums.
template <int Pieces> struct ByteWeights { u32 v[BYTES_ROWS][Pieces * BYTES_WORDS]; };
template <int Pieces> struct ByteActs { u32 v[Pieces * BYTES_WORDS]; };
struct ByteSums { i32 v[BYTES_SUMS]; };

// A lane's words of a piece, from its own on.
NSTF_DEVICE void bytes_load(u32 *to, const u8 *from) {
	const pack<u32, BYTES_WORDS> w = *(const pack<u32, BYTES_WORDS> *)from;
#pragma unroll
	for (int i = 0; i < BYTES_WORDS; i++) to[i] = w.v[i];
}

// A lane's words of tiles in LDS: of 16 rows of weights, whose pieces of the same k lie
// side by side and those of the next k `apart` bytes behind; of tokens, whose pieces lie
// side by side and those of the next token `apart` bytes behind.
template <int Pieces> NSTF_DEVICE void bytes_fetch(ByteWeights<Pieces> &w, const u8 *tile, int apart) {
#pragma unroll
	for (int r = 0; r < BYTES_ROWS; r++)
#pragma unroll
		for (int p = 0; p < Pieces; p++) bytes_load(w.v[r] + p * BYTES_WORDS, tile + p * apart + bytes_row(r) * 16 + bytes_at());
}
template <int Pieces> NSTF_DEVICE void bytes_fetch(ByteActs<Pieces> &x, const u8 *tile, int apart) {
#pragma unroll
	for (int p = 0; p < Pieces; p++) bytes_load(x.v + p * BYTES_WORDS, tile + bytes_column() * apart + p * 16 + bytes_at());
}

// BYTES_MAGIC and the dot products of a tile.
#if NSTF_MATRIX == NSTF_MATRIX_MMA
NSTF_DEVICE ByteSums bytes_product(const ByteWeights<2> &w, const ByteActs<2> &x) {
	ByteSums d;
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
	    : "=r"(d.v[0]), "=r"(d.v[1]), "=r"(d.v[2]), "=r"(d.v[3])
	    : "r"(w.v[0][0]), "r"(w.v[1][0]), "r"(w.v[0][1]), "r"(w.v[1][1]), "r"(x.v[0]), "r"(x.v[1]), "r"(BYTES_MAGIC));
	return d;
}
NSTF_DEVICE ByteSums bytes_product(const ByteWeights<1> &w, const ByteActs<1> &x) {
	ByteSums d;
	asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
	    : "=r"(d.v[0]), "=r"(d.v[1]), "=r"(d.v[2]), "=r"(d.v[3])
	    : "r"(w.v[0][0]), "r"(w.v[1][0]), "r"(x.v[0]), "r"(BYTES_MAGIC));
	return d;
}
#else
typedef i32 bytes_sums __attribute__((ext_vector_type(BYTES_SUMS)));
typedef i32 bytes_words __attribute__((ext_vector_type(BYTES_WORDS)));

template <int Pieces> NSTF_DEVICE ByteSums bytes_product(const ByteWeights<Pieces> &w, const ByteActs<Pieces> &x) {
	bytes_sums d;
#pragma unroll
	for (int i = 0; i < BYTES_SUMS; i++) d[i] = BYTES_MAGIC;
#if NSTF_MATRIX == NSTF_MATRIX_MFMA && (defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__))
	const u64 last = Pieces == 2 ? 1ull << 32 : 0; // of one piece, half of the instruction's k are zeros
	d = __builtin_amdgcn_mfma_i32_16x16x32_i8((i64)(w.v[0][0] + w.v[0][Pieces - 1] * last), (i64)(x.v[0] + x.v[Pieces - 1] * last), d, 0, 0, 0);
#elif NSTF_MATRIX == NSTF_MATRIX_MFMA
#pragma unroll
	for (int p = 0; p < Pieces; p++) d = __builtin_amdgcn_mfma_i32_16x16x16i8((i32)w.v[0][p], (i32)x.v[p], d, 0, 0, 0);
#else
#pragma unroll
	for (int p = 0; p < Pieces; p++) {
		bytes_words a, b;
#pragma unroll
		for (int i = 0; i < BYTES_WORDS; i++) a[i] = (i32)w.v[0][p * BYTES_WORDS + i], b[i] = (i32)x.v[p * BYTES_WORDS + i];
#if NSTF_MATRIX == NSTF_MATRIX_WMMA11
		d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, d, false);
#else
		d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, d, false);
#endif
	}
#endif
	ByteSums sums;
#pragma unroll
	for (int i = 0; i < BYTES_SUMS; i++) sums.v[i] = d[i];
	return sums;
}
#endif
