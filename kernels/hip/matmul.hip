// Products of many rows of activations with weights of any scheme, which are
// decoded in registers and multiplied by matrix instructions there (matrix.hip).
//
// Reference:
//   for t < T: for n < N: y[t][n] = bias[n] + residual[t][n] + sum over k of W[n][k] * x[t][k]
//   MATMUL_GATED:   y[t][n] = act(W0[n] x[t] + bias0[n]) * (W1[n] x[t] + bias1[n])
//   MATMUL_EXPERTS: t counts slots; for s in slots[first[e]:first[e+1]]:
//                   y[s][n] = bias[e][n] + sum over k of W[e][n][k] * x[s / share][k]
//   MATMUL_SEND:    of one matrix and without residual: y goes to the inboxes of all ranks
//                   instead, many numbers (inbox.hip), whose mark another launch sends
//
// x: rows of `stride` bytes in the order of tiles, with rescale f32 for each
// (halve.hip); W as weights.hip says; y f32[T][N], may be the residual. Up to three
// matrices of one format share x.
//
// Grid: x counts blocks of MATMUL_BLOCK_T tokens, fastest, so that blocks that run
// together share weights; y counts blocks of MATMUL_BLOCK_N features, of the
// products one after the other. A block is MATMUL_PARTS groups of MATMUL_WAVES
// waves: a wave has MATMUL_FEATURES tiles of weights and all the block's
// MATMUL_TOKENS tiles of tokens; the parts divide k. Any wave size. LDS:
// MATMUL_STAGES steps of 128 bytes per token and part; the grids' table. Registers:
// FEATURES * TOKENS * MATRIX_SUMS sums and what the next 32 weights take.
// Phases: weights and the first steps of activations are asked for; per step:
// activations arrive (barrier), the next are asked for, weights are decoded while
// the matrix unit multiplies; parts are added up in order through LDS; write.
// Deterministic: every sum in one fixed order.
// Bound: operations of the matrix unit. Per step of 64 k a wave of gfx1100 issues 64
// WMMA of 32 cycles and 470 other vector instructions (q4_k, 2 by 8 tiles).
// Tolerance: activations are rounded by 2^-12 of themselves, or 2^-38 of the row's
// largest, weights as matmulweights.hip says; sums as float32. NSTF_EXACT: float32.
#include "matmulweights.hip"
#if MATMUL_GATED
#include "activation.hip"
#endif
#if MATMUL_SEND
#include "inbox.hip"
#endif

#if NSTF_EXACT
#define MATMUL_NAME NSTF_PASTED(NSTF_NAMED(nstf_matmul), f32)
#else
#define MATMUL_NAME NSTF_PASTED(NSTF_NAMED(nstf_matmul), f16)
#endif
#define MATMUL_THREADS (MATMUL_WAVES * MATMUL_PARTS * NSTF_WAVE)
#define MATMUL_SIDES (MATMUL_GATED + 1)                                           // matrices that a block multiplies
#define MATMUL_BLOCK_T (MATMUL_TOKENS * MATRIX_TOKENS)                            // tokens of a block
#define MATMUL_BLOCK_N (MATMUL_WAVES * MATMUL_FEATURES * MATRIX_FEATURES / MATMUL_SIDES) // features of a block
#define MATMUL_TILE (MATMUL_BLOCK_T * 128)                                        // bytes of a tile of activations
#define MATMUL_STAGE (MATMUL_PARTS * MATMUL_TILE)                                 // bytes of a step's tiles
#define MATMUL_CHUNKS ((MATMUL_STAGE / 16 + MATMUL_THREADS - 1) / MATMUL_THREADS) // chunks that a thread copies per step
// Teams with few tokens leave out rows past the end, whose sums nobody reads: all
// blocks would else ask for the last row's lines, which one part of the L2 cache has.
#define MATMUL_SPARSE (MATRIX_WGMMA && MATMUL_TOKENS < 16)

// A product's output.
struct MatmulTarget {
	const u8 *w;
	f32 *y;
	const f32 *bias, *residual;
	int n;
};

// The rows of a block: some of those of one expert, or of all rows.
struct MatmulRows {
	int first, end; // rows of the block
	int expert;
	const i32 *slots; // row -> slot, where the rows are experts'
	int share;        // slots that share a row of x
};

NSTF_DEVICE MatmulRows matmul_rows(int t, const i32 *first, const i32 *slots, int experts, int share) {
#if MATMUL_EXPERTS
	// Expert e has blocks from first[e]/MATMUL_BLOCK_T + e on, which are enough for
	// its rows and fewer than the next expert's first. The grid begins with expert 0's,
	// in front of which a piece of a stack has rows of others.
	int e = -1;
	const int lane = threadIdx.x % NSTF_WAVE, block = (int)blockIdx.x + first[0] / MATMUL_BLOCK_T;
	for (int i = lane; i < experts; i += NSTF_WAVE) e += first[i] / MATMUL_BLOCK_T + i <= block;
	e = wave_sum<NSTF_WAVE>(e + 1) - 1;
	const int from = first[e] + (block - first[e] / MATMUL_BLOCK_T - e) * MATMUL_BLOCK_T;
	const int end = first[e + 1];
	return {from, from + MATMUL_BLOCK_T < end ? from + MATMUL_BLOCK_T : end, e, slots, share};
#else
	const int from = blockIdx.x * MATMUL_BLOCK_T;
	return {from, from + MATMUL_BLOCK_T < t ? from + MATMUL_BLOCK_T : t, 0, nullptr, 1};
#endif
}

// The row of x and of y that row i of the block is; past the end, the last one's.
NSTF_DEVICE int matmul_slot(const MatmulRows &rows, int i) {
	const int row = rows.first + i < rows.end ? rows.first + i : rows.end - 1;
	return MATMUL_EXPERTS ? rows.slots[row] : row;
}

// Where a wave works: its part of k, the side it multiplies, 1 being the up matrix
// of MATMUL_GATED, and its place beside the other waves of both.
struct MatmulWave {
	int part, side, place;
};

NSTF_DEVICE MatmulWave matmul_wave() {
	const int wave = matrix_uniform(threadIdx.x / NSTF_WAVE), each = MATMUL_WAVES / MATMUL_SIDES;
	return {wave / MATMUL_WAVES, wave % MATMUL_WAVES / each, wave % each};
}

// The first row within the block of the wave's tile f.
NSTF_DEVICE int matmul_row(const MatmulWave &at, int f) {
	return ((at.place / MATRIX_TEAM * MATMUL_FEATURES + f) * MATRIX_TEAM + at.place % MATRIX_TEAM) * MATRIX_FEATURES;
}

// Where a lane's chunk of activations begins. AMD's loads add 32 bits of a lane to 64
// of the wave: offsets take half of the registers that pointers do, without which
// LLVM 21 spills (the host sees to it that 32 bits suffice).
#if defined(NSTF_CUDA)
typedef const u8 *MatmulSource;
NSTF_DEVICE MatmulSource matmul_source(const u8 *x, i64 offset) { return x + offset; }
NSTF_DEVICE const u8 *matmul_at(const u8 *, MatmulSource source, int step) { return source + step; }
#else
typedef u32 MatmulSource;
NSTF_DEVICE MatmulSource matmul_source(const u8 *, i64 offset) { return (u32)offset; }
NSTF_DEVICE const u8 *matmul_at(const u8 *x, MatmulSource source, int step) {
	return MATMUL_PARTS == 1 ? x + step + source : x + (source + step); // a step of several parts is the lane's
}
#endif

// The stages of activations in LDS. Step s is tile s%2 of the pairs of tiles that
// the parts of the block multiply.
struct MatmulStages {
	u8 *lds;
	const u8 *x;
	MatmulSource source[MATMUL_CHUNKS];
	int place[MATMUL_CHUNKS];
	int pairs;
#if !MATRIX_COPIES
	Words4 held[MATMUL_CHUNKS];
#endif
	__device__ __forceinline__ MatmulStages(u8 *stages, const u8 *x, int stride, int pairs, const MatmulRows &rows) : lds(stages), x(x), pairs(pairs) {
#pragma unroll
		for (int i = 0; i < MATMUL_CHUNKS; i++) {
			const int row = chunk(i) / 8 % MATMUL_BLOCK_T, part = chunk(i) / 8 / MATMUL_BLOCK_T, at = chunk(i) % 8;
			source[i] = matmul_source(x, (i64)(matmul_slot(rows, row) / rows.share) * stride + part * 256 + at * 16);
			if (MATMUL_SPARSE && rows.first + row >= rows.end) source[i] = 0;
			place[i] = part * MATMUL_TILE + matrix_chunk(row, at);
		}
	}
	// The thread's chunk i; several threads may have the same.
	static __device__ __forceinline__ int chunk(int i) { return (threadIdx.x + i * MATMUL_THREADS) % (MATMUL_STAGE / 16); }
	// Where step s of chunk i lies. Parts past the last pair get its activations
	// and do not use them.
	__device__ __forceinline__ const u8 *at(int i, int s) const {
		int pair = s / 2 * MATMUL_PARTS;
		if (MATMUL_PARTS > 1) {
			const int part = chunk(i) / 8 / MATMUL_BLOCK_T, past = pair + part - (pairs - 1);
			pair -= past > 0 ? past : 0;
		}
		return matmul_at(x, source[i], pair * 256 + s % 2 * 128);
	}
	__device__ __forceinline__ const u8 *stage(int s) const { return lds + s % MATMUL_STAGES * MATMUL_STAGE; }
#if MATRIX_COPIES
	// Starts copying step s, and always counts as a group.
	__device__ __forceinline__ void begin(int s, int steps) {
		if (s < steps) {
#pragma unroll
			for (int i = 0; i < MATMUL_CHUNKS; i++)
				if (!MATMUL_SPARSE || source[i]) matrix_copy((u8 *)stage(s) + place[i], at(i, s));
		}
		matrix_copy_end();
	}
#else
	__device__ __forceinline__ void begin(int s, int steps) {
		if (s >= steps) return;
#pragma unroll
		for (int i = 0; i < MATMUL_CHUNKS; i++) held[i] = *(const Words4 *)at(i, s);
	}
	__device__ __forceinline__ void end(int s, int steps) {
		if (s >= steps) return;
#pragma unroll
		for (int i = 0; i < MATMUL_CHUNKS; i++) *(Words4 *)(stage(s) + place[i]) = held[i];
	}
#endif
};

// The products of all k: sums[f][n] = tile f of weights * tile n of tokens.
#if MATRIX_WGMMA
NSTF_DEVICE void matmul_sum(MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], MatmulStages &x, const MatmulWeights &w, int) {
	static_assert(MATMUL_PARTS == 1 && MATMUL_STAGES >= 3, "two steps of products are open at a time");
	MatrixRuns even[MATMUL_FEATURES], odd[MATMUL_FEATURES];
	MatmulRaw raw;
	const int steps = 2 * x.pairs;
	matmul_fetch(raw, w, 0, 0);
	wait_for_inputs();
#pragma unroll
	for (int s = 0; s < MATMUL_STAGES - 2; s++) x.begin(s, steps);
	matmul_decode(even, raw, w, 0, 0);
	if (!MATMUL_WIDE) matmul_fetch(raw, w, 0, 1);
	// Each step's products run while the next step's weights are decoded; the
	// stage that is refilled is the one of the step before the last.
	for (int pair = 0; pair < x.pairs; pair++) {
		matrix_copy_wait<MATMUL_STAGES - 3>();
		matrix_copies_seen();
		x.begin(2 * pair + MATMUL_STAGES - 2, steps);
		matrix_products(sums, even, x.stage(2 * pair), 0);
		matrix_wait<1>();
		matmul_decode(odd, raw, w, pair, 1);
		matmul_fetch(raw, w, pair + 1, 0);

		matrix_copy_wait<MATMUL_STAGES - 3>();
		matrix_copies_seen();
		x.begin(2 * pair + MATMUL_STAGES - 1, steps);
		matrix_products(sums, odd, x.stage(2 * pair + 1), 0);
		matrix_wait<1>();
		matmul_decode(even, raw, w, pair + 1, 0);
		if (!MATMUL_WIDE) matmul_fetch(raw, w, pair + 1, 1);
	}
	matrix_wait<0>();
}
#else
// Loads of a pair of tiles, and after how many pairs the same buffer is next.
#define MATMUL_LOADS (MATMUL_WIDE ? MATRIX_BLOCKS : 2 * MATRIX_BLOCKS)
#define MATMUL_TURN (MATMUL_LOADS % MATMUL_AHEAD == 0 ? 1 : MATMUL_AHEAD)

NSTF_DEVICE void matmul_sum(MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], MatmulStages &x, const MatmulWeights &w, int part) {
	MatrixRuns now[MATMUL_FEATURES];
	MatmulRaw raw[MATMUL_AHEAD];
	const int steps = (x.pairs + MATMUL_PARTS - 1) / MATMUL_PARTS * 2;
#pragma unroll
	for (int l = 0; l < MATMUL_AHEAD; l++) matmul_fetch(raw[l], w, part + l / MATMUL_LOADS * MATMUL_PARTS, l % MATMUL_LOADS * (1 + MATMUL_WIDE));
	wait_for_inputs();
#if MATRIX_COPIES
#pragma unroll
	for (int s = 0; s < MATMUL_STAGES - 1; s++) x.begin(s, steps);
#else
	x.begin(0, steps);
	x.end(0, steps);
#endif
	for (int s = 0; s < steps;) {
#pragma unroll
		for (int turn = 0; turn < MATMUL_TURN; turn++) {
			const int pair = s / 2 * MATMUL_PARTS + part;
			if (turn > 0 && s >= steps) break;
#pragma unroll
			for (int tile = 0; tile < 2; tile++, s++) {
#if MATRIX_COPIES
				matrix_copy_wait<MATMUL_STAGES - 2>();
				matrix_copies_seen();
#else
				__syncthreads();
#endif
				x.begin(s + MATMUL_STAGES - 1, steps);
#pragma unroll
				for (int i = 0; i < MATRIX_BLOCKS; i++) {
					const int b = tile * MATRIX_BLOCKS + i, load = MATMUL_WIDE ? b / 2 : b, next = load + MATMUL_AHEAD;
					MatmulRaw &from = raw[(turn * MATMUL_LOADS + load) % MATMUL_AHEAD];
					matmul_decode(now, from, w, pair, b);
					if (!MATMUL_WIDE || b % 2 == 1)
						matmul_fetch(from, w, pair + next / MATMUL_LOADS * MATMUL_PARTS, next % MATMUL_LOADS * (1 + MATMUL_WIDE));
					if ((MATMUL_PARTS == 1 && !MATRIX_APART) || pair < x.pairs)
						matrix_products(sums, now, x.stage(s) + part * MATMUL_TILE, i);
				}
#if !MATRIX_COPIES
				x.end(s + 1, steps);
#endif
			}
		}
	}
}
#endif

// Adds the sums of the block's parts to those of the first, in order.
NSTF_DEVICE void matmul_join(MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], u8 *lds, int part) {
	if (MATMUL_PARTS == 1) return;
	const int each = MATMUL_FEATURES * MATMUL_TOKENS * MATRIX_SUMS, threads = MATMUL_WAVES * NSTF_WAVE;
	f32 *mine = (f32 *)lds + threadIdx.x % threads;
	__syncthreads();
#pragma unroll
	for (int f = 0; f < MATMUL_FEATURES; f++)
#pragma unroll
		for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++)
				if (part > 0) mine[((part - 1) * each + (f * MATMUL_TOKENS + n) * MATRIX_SUMS + i) * threads] = sums[f][n].v[i];
	__syncthreads();
	if (part > 0) return;
	for (int p = 0; p < MATMUL_PARTS - 1; p++)
#pragma unroll
		for (int f = 0; f < MATMUL_FEATURES; f++)
#pragma unroll
			for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
				for (int i = 0; i < MATRIX_SUMS; i++) sums[f][n].v[i] += mine[(p * each + (f * MATMUL_TOKENS + n) * MATRIX_SUMS + i) * threads];
}

// Makes values of sums: the rows' powers of two undone, the bias added.
NSTF_DEVICE void matmul_finish(MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], const MatmulTarget &to, const MatmulRows &rows,
    const f32 *rescale, int from, const MatmulWave &at) {
#pragma unroll
	for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) {
			const int slot = matmul_slot(rows, n * MATRIX_TOKENS + matrix_token(i));
			const f32 scale = NSTF_EXACT ? 1.0f : rescale[slot / rows.share] * (1 / MATMUL_SCALE);
#pragma unroll
			for (int f = 0; f < MATMUL_FEATURES; f++) {
				const int feature = from + matmul_row(at, f) + matrix_feature(i);
				sums[f][n].v[i] *= scale;
				if (to.bias && feature < to.n) sums[f][n].v[i] += to.bias[(i64)rows.expert * to.n + feature];
			}
		}
}

#if MATMUL_GATED
// Multiplies the activated gates with what the waves of the other side have,
// which they hand over through LDS, a tile of weights at a time.
NSTF_DEVICE void matmul_gate(MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], u8 *lds, const MatmulWave &at) {
	const int threads = MATMUL_WAVES / MATMUL_SIDES * NSTF_WAVE;
	f32 *mine = (f32 *)lds + at.place * NSTF_WAVE + matrix_lane();
#pragma unroll
	for (int f = 0; f < MATMUL_FEATURES; f++) {
		__syncthreads();
#pragma unroll
		for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++)
				if (at.part == 0 && at.side == 1) mine[(n * MATRIX_SUMS + i) * threads] = sums[f][n].v[i];
		__syncthreads();
#pragma unroll
		for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++)
				if (at.part == 0 && at.side == 0) sums[f][n].v[i] = gated(sums[f][n].v[i], mine[(n * MATRIX_SUMS + i) * threads]);
	}
}
#endif

NSTF_DEVICE void matmul_write(const MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], const MatmulTarget &to, const MatmulRows &rows, int from,
    const MatmulWave &at) {
#pragma unroll
	for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) {
			const int token = n * MATRIX_TOKENS + matrix_token(i);
			if (rows.first + token >= rows.end) continue;
			const i64 row = (i64)matmul_slot(rows, token) * to.n;
#pragma unroll
			for (int f = 0; f < MATMUL_FEATURES; f++) {
				const int feature = from + matmul_row(at, f) + matrix_feature(i);
				if (feature >= to.n) continue;
				f32 v = sums[f][n].v[i];
				if (to.residual) v += to.residual[row + feature];
				to.y[row + feature] = v;
			}
		}
}

#if MATMUL_SEND
#define MATMUL_TURN_T (MATMUL_STAGES * MATMUL_STAGE / (MATRIX_TOKENS * MATMUL_BLOCK_N * 4)) // tiles of tokens that LDS holds the sums of
static_assert(MATMUL_TURN_T > 0 && MATMUL_BLOCK_N % 32 == 0, "numbers that share a power of two are one block's");
static_assert((MATMUL_BLOCK_N & (MATMUL_BLOCK_N - 1)) == 0, "places are turned within a row");

// Where a number of a row lies in LDS: lanes that have neighbouring rows write other banks.
NSTF_DEVICE int matmul_turned(int row, int feature) { return row * MATMUL_BLOCK_N + (feature ^ row / 2 % (MATMUL_BLOCK_N / 8) * 8); }

// Turns the sums into rows, some tiles of tokens at a time, and sends those.
NSTF_DEVICE void matmul_send(const MatrixSums (&sums)[MATMUL_FEATURES][MATMUL_TOKENS], f32 *lds, int n, const MatmulRows &rows, int from, const MatmulWave &at,
    u64 *const (&inboxes)[8], u64 slot, u64 parity, int rank) {
	const int runs = MATMUL_BLOCK_N / 8;
#pragma unroll
	for (int first = 0; first < MATMUL_TOKENS; first += MATMUL_TURN_T) {
		const int tiles = MATMUL_TOKENS - first < MATMUL_TURN_T ? MATMUL_TOKENS - first : MATMUL_TURN_T;
		__syncthreads();
#pragma unroll
		for (int t = 0; t < tiles; t++)
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++)
#pragma unroll
				for (int f = 0; f < MATMUL_FEATURES; f++)
					if (at.part == 0) lds[matmul_turned(t * MATRIX_TOKENS + matrix_token(i), matmul_row(at, f) + matrix_feature(i))] = sums[f][first + t].v[i];
		__syncthreads();
		for (int i = threadIdx.x; i < tiles * MATRIX_TOKENS * runs; i += MATMUL_THREADS) {
			const int row = i / runs, feature = i % runs * 8, token = rows.first + first * MATRIX_TOKENS + row;
			const bool there = token < rows.end && from + feature < n;
			pack<f32, 8> v;
			const pack<f32, 4> *part = (const pack<f32, 4> *)(lds + matmul_turned(row, feature));
#pragma unroll
			for (int k = 0; k < 8; k++) v.v[k] = there ? part[k / 4].v[k % 4] : 0.0f;
			send_many<8>(inboxes, slot, parity, rank, (i64)token * n + from + feature, v, there);
		}
	}
}
#endif

NSTF_KERNEL void __launch_bounds__(MATMUL_THREADS, MATMUL_RESIDENT) MATMUL_NAME(
    const u8 *__restrict__ x, const f32 *__restrict__ rescale, int t, int k, int stride,             // activations
    const i32 *__restrict__ first, const i32 *__restrict__ slots, int experts, int share,            // rows of experts
#if MATMUL_SEND
    u64 slot, int rank, u32 number, const u32 *state, INBOXES,
#endif
    const u8 *__restrict__ w0, f32 *y0, const f32 *__restrict__ bias0, const f32 *residual0, int n0, // up to three products
    const u8 *__restrict__ w1, f32 *y1, const f32 *__restrict__ bias1, const f32 *residual1, int n1,
    const u8 *__restrict__ w2, f32 *y2, const f32 *__restrict__ bias2, const f32 *residual2, int n2) {
	extern __shared__ __align__(1024) u8 lds[];
	__shared__ __align__(16) u8 table[Weights::table > 0 ? Weights::table : 16];
	let_next_begin();
	if (MATMUL_EXPERTS) wait_for_inputs();
	const MatmulRows rows = matmul_rows(t, first, slots, experts, share);
	if (rows.first >= rows.end) return;

	const MatmulWave at = matmul_wave();
	MatmulTarget to = {w0, y0, bias0, residual0, n0};
	int from = blockIdx.y * MATMUL_BLOCK_N;
	if (MATMUL_GATED) {
		if (at.side == 1) to.w = w1, to.bias = bias1;
	} else {
		const int blocks0 = (n0 + MATMUL_BLOCK_N - 1) / MATMUL_BLOCK_N, blocks1 = (n1 + MATMUL_BLOCK_N - 1) / MATMUL_BLOCK_N;
		if ((int)blockIdx.y >= blocks0 + blocks1)
			to = {w2, y2, bias2, residual2, n2}, from -= (blocks0 + blocks1) * MATMUL_BLOCK_N;
		else if ((int)blockIdx.y >= blocks0)
			to = {w1, y1, bias1, residual1, n1}, from -= blocks0 * MATMUL_BLOCK_N;
	}

	const Matrix matrix = {to.w, (i64)experts * to.n, k};
	MatmulWeights w = {Weights(matrix, (i64)rows.expert * to.n + from), table, {}, k / Weights::unit};
	MatrixSums sums[MATMUL_FEATURES][MATMUL_TOKENS];
#pragma unroll
	for (int f = 0; f < MATMUL_FEATURES; f++) {
#pragma unroll
		for (int r = 0; r < MATRIX_ROWS; r++) {
			const int row = matmul_row(at, f) + matrix_row(r);
			w.row[f][r] = from + row < to.n ? row : to.n - 1 - from;
		}
#pragma unroll
		for (int n = 0; n < MATMUL_TOKENS; n++)
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++) sums[f][n].v[i] = 0;
	}
	if (Weights::table > 0) {
		Weights::fill(table);
		__syncthreads();
	}
	MatmulStages stages(lds, x, stride, (k + MATMUL_PAIR - 1) / MATMUL_PAIR, rows);
	matmul_sum(sums, stages, w, at.part);
	matmul_join(sums, lds, at.part);
	matmul_finish(sums, to, rows, rescale, from, at);
#if MATMUL_GATED
	matmul_gate(sums, lds, at);
#endif
#if MATMUL_SEND
	u64 *const inboxes[8] = ALL_INBOXES;
	matmul_send(sums, (f32 *)lds, to.n, rows, from, at, inboxes, slot, mark_of(state, number) & 1, rank);
#else
	if (at.part == 0 && at.side == 0) matmul_write(sums, to, rows, from, at);
#endif
}
