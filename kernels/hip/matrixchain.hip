// Products of products: what matrix.hip's units leave as sums, taken as the next
// product's weights without leaving the registers, and what it takes to put
// rows of k into order for that.
//
// A first product has rows of weights (queries) and tokens (positions): a lane
// holds sums of MATRIX_ROWS rows. In a second product positions are k. Each lane
// gives the unit what it has, in the order in which it has it, and the other
// operand's rows in LDS follow: number p of MATRIX_TILE_K lies at place
// chain_place(p). Only WMMA11, which wants rows twice, exchanges anything.
//
// The other operand's rows are columns of what is cached, which has a row for
// each position. With CHAIN_TURNS 1 the unit turns it while loading, and LDS has
// tiles of rows as for a first product, MATRIX_TILE_K columns each; with 0 the
// caller has turned it: a row of a tile for each column.
#include "matrix.hip"

#if !MATRIX_PLAIN && NSTF_MATRIX == NSTF_MATRIX_MMA
#define CHAIN_TURNS 1
#else
#define CHAIN_TURNS 0
#endif

// The place in a tile's row of number i of the 16 that a lane's group has in a
// block.
NSTF_DEVICE int chain_run(int block, int i) {
#if MATRIX_PLAIN || NSTF_MATRIX == NSTF_MATRIX_WMMA11
	return 16 * block + i;
#elif NSTF_MATRIX == NSTF_MATRIX_MMA
	return i / 2 * 8 + matrix_group() * 2 + i % 2;
#elif NSTF_MATRIX == NSTF_MATRIX_MFMA
	return 16 * matrix_group() + i;
#else
	return 32 * matrix_group() + 16 * block + i;
#endif
}

// Where position p of a tile has to lie for chain_weights. Positions 2i and 2i+1
// are neighbours.
NSTF_DEVICE int chain_place(int p) {
#if !MATRIX_PLAIN && NSTF_MATRIX == NSTF_MATRIX_MFMA
	return p / 4 % 4 * 16 + p / 16 * 4 + p % 4;
#elif !MATRIX_PLAIN && NSTF_MATRIX == NSTF_MATRIX_WMMA12
	return p / 8 % 2 * 32 + p / 16 * 8 + p % 8;
#else
	return p;
#endif
}

// Which of a lane's rows sum i belongs to.
NSTF_DEVICE int chain_row(int i) {
#if !MATRIX_PLAIN && NSTF_MATRIX == NSTF_MATRIX_MMA
	return i / 2;
#else
	return 0;
#endif
}

// The sum over the lanes of a wave that have the same tokens.
NSTF_DEVICE f32 chain_rows_sum(f32 v) {
#if MATRIX_PLAIN
	return wave_sum<NSTF_WAVE>(v);
#else
	constexpr bool quads = NSTF_MATRIX == NSTF_MATRIX_MMA; // of lanes share a row
#pragma unroll
	for (int m = quads ? 4 : 1; m <= (quads ? 16 : 8); m *= 2) v += wave_xor(v, m);
	return v;
#endif
}

// The sum or the maximum over the lanes that share a row.
#if MATRIX_PLAIN
NSTF_DEVICE f32 chain_sum(f32 v) { return v; }
NSTF_DEVICE f32 chain_max(f32 v) { return v; }
#else
#if NSTF_MATRIX == NSTF_MATRIX_MMA
#define CHAIN_FIRST 1
#define CHAIN_LAST 2
#else
#define CHAIN_FIRST 16
#define CHAIN_LAST (NSTF_WAVE / 2)
#endif
NSTF_DEVICE f32 chain_sum(f32 v) {
#pragma unroll
	for (int m = CHAIN_FIRST; m <= CHAIN_LAST; m *= 2) v += wave_xor(v, m);
	return v;
}
NSTF_DEVICE f32 chain_max(f32 v) {
#pragma unroll
	for (int m = CHAIN_FIRST; m <= CHAIN_LAST; m *= 2) v = wave_max_of(v, wave_xor(v, m));
	return v;
}
#endif

// The sums s of a tile of MATRIX_TILE_K positions as weights of a block.
template <int N> NSTF_DEVICE MatrixRuns chain_weights(const MatrixSums (&s)[N], int block) {
	MatrixRuns r;
#if NSTF_EXACT
#pragma unroll
	for (int i = 0; i < 16; i++) r.v[0][i] = bits_of(s[2 * block + i / 8].v[i % 8]);
#elif MATRIX_PLAIN
#pragma unroll
	for (int w = 0; w < 8; w++) r.v[0][w] = halves_of(s[2 * block + w / 4].v[w % 4 * 2], s[2 * block + w / 4].v[w % 4 * 2 + 1]);
#elif NSTF_MATRIX == NSTF_MATRIX_MMA
#pragma unroll
	for (int w = 0; w < 8; w++) {
		r.v[0][w] = halves_of(s[w].v[0], s[w].v[1]);
		r.v[1][w] = halves_of(s[w].v[2], s[w].v[3]);
	}
#elif NSTF_MATRIX == NSTF_MATRIX_MFMA
#pragma unroll
	for (int w = 0; w < 8; w++) r.v[0][w] = halves_of(s[w / 2].v[w % 2 * 2], s[w / 2].v[w % 2 * 2 + 1]);
#elif NSTF_MATRIX == NSTF_MATRIX_WMMA11
	const bool odd = matrix_lane() / 16; // this lane has the odd positions
#pragma unroll
	for (int w = 0; w < 8; w++) {
		const f32 own = s[block].v[w], other = wave_xor(own, 16);
		r.v[0][w] = halves_of(odd ? other : own, odd ? own : other);
	}
#else
#pragma unroll
	for (int w = 0; w < 8; w++) r.v[0][w] = halves_of(s[2 * block + w / 4].v[w % 4 * 2], s[2 * block + w / 4].v[w % 4 * 2 + 1]);
#endif
	return r;
}

// Adds the products of a block of weights with N tiles of columns.
#if CHAIN_TURNS
// Four matrices of 8 positions by 8 columns, turned: positions 16*step on, two
// tiles of columns from tile n on.
NSTF_DEVICE void chain_load(u32 (&x)[4], const u8 *tiles, int step, int n) {
	const int lane = matrix_lane(), column = n + lane / 16;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
	             : "r"(matrix_address(tiles) + column / 8 * (MATRIX_TILE_K * 128) + matrix_chunk(16 * step + lane % 16, column % 8)));
}
template <int N> NSTF_DEVICE void chain_products(MatrixSums (&sums)[1][N], const MatrixRuns (&w)[1], const u8 *tiles, int) {
#pragma unroll
	for (int step = 0; step < 4; step++) {
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			u32 x[4];
			chain_load(x, tiles, step, n);
			matrix_mma(sums[0][n], w[0], step, x[0], x[1]);
			matrix_mma(sums[0][n + 1], w[0], step, x[2], x[3]);
		}
	}
}
#endif
