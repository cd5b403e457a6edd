// What kernels that take many rows of prompts have in common: their queries as weights of products with a tile
// of MATRIX_TILE_K tokens, positions or pages, and what scores weigh.
#include "matrixchain.hip"

#define TILE MATRIX_TILE_K
#define KEY_TILES ((KV_D + TILE - 1) / TILE) // of a key's numbers
#define SCORES (TILE / MATRIX_TOKENS)

// matrix_products, for plain loops one tile of tokens at a time: see MATRIX_APART
// in matrix.hip. All n are under width, which the compiler does not know.
template <int N> NSTF_DEVICE void products(MatrixSums (&sums)[1][N], const MatrixRuns (&w)[1], const u8* tile, int block, int width) {
#if MATRIX_PLAIN
#pragma unroll
	for (int n = 0; n < N; n++) {
		if (n >= width) continue;
		MatrixSums one[1][1] = {{sums[0][n]}};
		matrix_products(one, w, tile + n * MATRIX_TOKENS * 128, block);
		sums[0][n] = one[0][0];
	}
#else
	if (!MATRIX_APART || block < width) matrix_products(sums, w, tile, block);
#endif
}

// One block of a lane's queries, or of their squares, as weights: times factor.
template <bool Squares = false> NSTF_DEVICE MatrixRuns query_runs(const f32* const (&q)[MATRIX_ROWS], int tile, int block, f32 factor) {
	MatrixRuns runs;
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
#pragma unroll
		for (int i = 0; i < 16; i += 2) {
			const int d = tile * TILE + chain_run(block, i);
			const f32 x = q[r] && d < KV_D ? q[r][d] : 0.0f, y = q[r] && d + 1 < KV_D ? q[r][d + 1] : 0.0f;
			const f32 a = (Squares ? x * x : x) * factor, b = (Squares ? y * y : y) * factor;
#if NSTF_EXACT
			runs.v[r][i] = bits_of(a), runs.v[r][i + 1] = bits_of(b);
#else
			runs.v[r][i / 2] = halves_of(a, b);
#endif
		}
	}
	return runs;
}

// The weight of a score that is less than the maximum by x, and the factor that
// queries or scores need for it.
#if NSTF_EXACT
NSTF_DEVICE f32 weight_of(f32 x) { return exp_f32(x); }
#define TILE_BASE 1.0f
#else
NSTF_DEVICE f32 weight_of(f32 x) { return exp2_near(x); }
#define TILE_BASE 1.44269504f
#endif
