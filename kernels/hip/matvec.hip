// Products of weights with up to 8 rows of activations, weights decoded in
// registers; more rows are several launches, or matrows.hip's, whose sums are these.
//
//	for t, n: y[t][n] = sum over k of W[n][k] * x[t][k]  (+ bias[n] + residual[t][n])
//	MATVEC_GATED:  y[t][n] = act(W0[n] x[t]) * (W1[n] x[t]), with MATVEC_BIASED act(... + bias0[n]) * (... + bias1[n])
//	MATVEC_EXPERTS: one row x for each slot, the matrix being W[expert of slot]
//
//	MATVEC_THIN: + A[n] z[t], a correction of each matrix, before activations (matvecthin.hip)
//	MATVEC_SEND: y, of one matrix, goes to the other ranks too (inbox.hip)
//
// Weights as weights.hip says; K = MATVEC_K, a multiple of Weights::unit. x f32[T][K] at a
// multiple of 16 bytes where K is one of 4, or Acts (acts.hip). y f32[T][N]; it
// may be the residual. Up to four matrices share x (MATVEC_MATRICES).
//
// MATVEC_INT: x in signed bytes, MATVEC_GROUP of which share a scale, and byte dot
// products; else float32 throughout. MATVEC_SOURCE: ACTS, rounded already; X, f32, rounded here where
// MATVEC_INT; NORM, f32 normalised here by rms first:
//
//	x * float32(1 / sqrt(mean(x^2) + eps)) * weight
//
// With MATVEC_FROM x is first what all ranks have of it, in their order, which goes to `settled`.
//
// Grid: blocks of MATVEC_WAVES waves, which take tiles of rows of W in turn;
// y is the slot of an expert. MATVEC_LANES lanes share MATVEC_ROWS rows,
// MATVEC_SPLIT waves share K; any wave size. LDS: x, 1.25 bytes a number (4 for
// NORM without MATVEC_INT), unless MATVEC_DIRECT has Acts read where they are.
// Phases: the first rows are asked for; x is brought to LDS; barrier; every lane
// loads MATVEC_STEPS * MATVEC_ROWS units at once and multiplies them; sums over
// lanes, then over waves.
// Deterministic: every sum in one fixed order, which MATVEC_LANES, MATVEC_SPLIT and K
// decide, and not MATVEC_T.
// Bound: the bytes of W. Per weight of q4_k, T = 1: 1.3 instructions.
// Tolerance: integer sums are exact; otherwise that of a float32 sum.
#include "SCHEME.hip"
#include "acts.hip"
#include "reduce.hip"
#if MATVEC_GATED
#include "activation.hip"
#endif
#if MATVEC_SEND || MATVEC_FROM
#include "inbox.hip"
#endif
#ifndef MATVEC_BIASED
#define MATVEC_BIASED 0
#endif

#define MATVEC_ACTS 1
#define MATVEC_X 2
#define MATVEC_NORM 3

#define MATVEC_THREADS (MATVEC_WAVES * NSTF_WAVE)
#define MATVEC_SUBS (NSTF_WAVE / MATVEC_LANES)                                  // groups of rows of a wave
#define MATVEC_TILE (MATVEC_WAVES / MATVEC_SPLIT * MATVEC_SUBS * MATVEC_ROWS)   // rows of a block
#define MATVEC_STRIDE (MATVEC_SPLIT * MATVEC_LANES)                             // units of a step
#define MATVEC_VIEWS (1 + MATVEC_GATED)
#define MATVEC_UNITS (MATVEC_K / Weights::unit)                                 // of a row
#define MATVEC_BATCH (MATVEC_STEPS * MATVEC_STRIDE)                             // units loaded at once
#define MATVEC_BATCHES ((MATVEC_UNITS + MATVEC_BATCH - 1) / MATVEC_BATCH)       // of a row
#define MATVEC_EVEN (MATVEC_UNITS % MATVEC_BATCH == 0)                          // they are whole
#define MATVEC_ROW (MATVEC_GROUP == 16 ? acts_fine_bytes(MATVEC_K) : acts_row_bytes(MATVEC_K)) // bytes of rounded x
#define MATVEC_LDS (MATVEC_INT ? !MATVEC_DIRECT : MATVEC_SOURCE == MATVEC_NORM) // x lies in LDS

#if MATVEC_INT
#define MATVEC_NAME NSTF_PASTED(NSTF_NAMED(nstf_matvec), i8)
#else
#define MATVEC_NAME NSTF_PASTED(NSTF_NAMED(nstf_matvec), f32)
#endif

typedef Weights::Raw Raws[MATVEC_ROWS];
typedef f32 Sums[MATVEC_T][MATVEC_ROWS];

// What the lanes multiply with: rows of activations in LDS, or of x.
struct Input {
	const u8 *rows, *table;
};

#if MATVEC_INT
static_assert(MATVEC_GROUP == 32 || Weights::unit / NSTF_GROUPS == 16, "a scale of weights has one of activations");
NSTF_DEVICE void multiply(Sums &sums, const Raws &raw, int u, const Input &in) {
	const int words = Weights::unit / 4, groups = NSTF_GROUPS, half = Weights::unit == 16 ? u & 1 : 0;
	const int padded = acts_padded(MATVEC_K), bytes = MATVEC_ROW;
	u32 q[MATVEC_ROWS][words];
	f32 s[MATVEC_ROWS][groups], m[MATVEC_ROWS][groups];
#pragma unroll
	for (int r = 0; r < MATVEC_ROWS; r++) {
		Weights::codes(raw[r], in.table, q[r]);
		Weights::scales(raw[r], u, s[r], m[r]);
	}
#pragma unroll
	for (int t = 0; t < MATVEC_T; t++) {
		const u8 *row = in.rows + t * bytes;
		u32 a[words];
#pragma unroll
		for (int i = 0; i < words / 4; i++) {
			const uint4 v = *(const uint4 *)(row + acts_piece(u * (words / 4) + i) * 16);
			a[4 * i] = v.x, a[4 * i + 1] = v.y, a[4 * i + 2] = v.z, a[4 * i + 3] = v.w;
		}
		f32 d[2];
		i32 sum[2] = {0, 0};
#if MATVEC_GROUP == 16
		if (groups == 2) {
			const uint2 pair = *(const uint2 *)(row + padded + u * 8);
			d[0] = of_bits(pair.x), d[1] = of_bits(pair.y);
		} else {
			d[0] = ((const f32 *)(row + padded))[u];
		}
		const u32 both = *(const u32 *)(row + acts_sums(MATVEC_K, u * Weights::unit / 4));
		sum[0] = half ? (i32)both >> 16 : (i32)(i16)both, sum[1] = (i32)both >> 16;
#else
		const uint2 pair = *(const uint2 *)(row + padded + u * Weights::unit / 32 * 8);
		d[0] = d[1] = of_bits(pair.x);
		sum[0] = half ? pair_last(pair) : pair_first(pair), sum[1] = pair_last(pair);
		if (groups == 1 && Weights::unit == 32) sum[0] += sum[1];
#endif
#pragma unroll
		for (int r = 0; r < MATVEC_ROWS; r++)
#pragma unroll
			for (int g = 0; g < groups; g++) {
				i32 dot = 0;
#pragma unroll
				for (int i = g * words / groups; i < (g + 1) * words / groups; i++) dot = dot4(q[r][i], a[i], dot);
				if (Weights::zero != 0) dot -= Weights::zero * sum[g];
				sums[t][r] = fmaf(d[g], s[r][g] * (f32)dot, sums[t][r]);
				if (Weights::mins) sums[t][r] = fmaf(-m[r][g], d[g] * (f32)sum[g], sums[t][r]);
			}
	}
}
#else
NSTF_DEVICE void multiply(Sums &sums, const Raws &raw, int u, const Input &in) {
	const int run = Weights::unit % 4 == 0 ? 4 : 1;
	f32 w[MATVEC_ROWS][Weights::unit];
#pragma unroll
	for (int r = 0; r < MATVEC_ROWS; r++) Weights::floats(raw[r], u, in.table, w[r]);
#pragma unroll
	for (int t = 0; t < MATVEC_T; t++) {
		const f32 *x = (const f32 *)in.rows + (i64)t * MATVEC_K + u * Weights::unit;
#pragma unroll
		for (int i = 0; i < Weights::unit; i += run) {
			const pack<f32, run> v = *(const pack<f32, run> *)(x + i);
#pragma unroll
			for (int r = 0; r < MATVEC_ROWS; r++)
#pragma unroll
				for (int j = 0; j < run; j++) sums[t][r] = fmaf(w[r][i + j], v.v[j], sums[t][r]);
		}
	}
}
#endif

// Units of some rows on their way from memory.
struct Stage {
	Raws raw[MATVEC_STEPS][MATVEC_VIEWS];
};

// Loads a batch, whose first unit is this lane's.
NSTF_DEVICE void load(Stage &stage, const Weights (&w)[MATVEC_VIEWS], int first) {
#pragma unroll
	for (int i = 0; i < MATVEC_STEPS; i++) {
		const int u = first + i * MATVEC_STRIDE;
		if (!MATVEC_EVEN && u >= MATVEC_UNITS) break;
#pragma unroll
		for (int v = 0; v < MATVEC_VIEWS; v++)
#pragma unroll
			for (int r = 0; r < MATVEC_ROWS; r++) stage.raw[i][v][r] = w[v].load(r, u);
	}
}

NSTF_DEVICE void multiply(Sums (&sums)[MATVEC_VIEWS], const Stage &stage, int first, const Input &in) {
#pragma unroll
	for (int i = 0; i < MATVEC_STEPS; i++) {
		const int u = first + i * MATVEC_STRIDE;
		if (!MATVEC_EVEN && u >= MATVEC_UNITS) break;
#pragma unroll
		for (int v = 0; v < MATVEC_VIEWS; v++) multiply(sums[v], stage.raw[i][v], u, in);
	}
}

// Adds up what the lanes that share rows have; each of them gets it.
NSTF_DEVICE void gather(Sums (&sums)[MATVEC_VIEWS]) {
#pragma unroll
	for (int v = 0; v < MATVEC_VIEWS; v++)
#pragma unroll
		for (int t = 0; t < MATVEC_T; t++)
#pragma unroll
			for (int r = 0; r < MATVEC_ROWS; r++) sums[v][t][r] = wave_sum_near<MATVEC_LANES>(sums[v][t][r]);
}

#if MATVEC_SPLIT > 1
// Adds up what the waves that share rows have; the first of them gets it.
NSTF_DEVICE void join(Sums (&sums)[MATVEC_VIEWS]) {
	const int count = MATVEC_VIEWS * MATVEC_T * MATVEC_ROWS;
	__shared__ f32 parts[MATVEC_WAVES][MATVEC_SUBS][count];
	const int wave = threadIdx.x / NSTF_WAVE, sub = threadIdx.x % NSTF_WAVE / MATVEC_LANES;
	f32 *mine = &sums[0][0][0];
	__syncthreads(); // the parts of the tile before have been read
	if (threadIdx.x % MATVEC_LANES == 0 && wave % MATVEC_SPLIT != 0)
#pragma unroll
		for (int i = 0; i < count; i++) parts[wave][sub][i] = mine[i];
	__syncthreads();
	if (wave % MATVEC_SPLIT != 0) return;
#pragma unroll
	for (int i = 0; i < count; i++)
#pragma unroll
		for (int p = 1; p < MATVEC_SPLIT; p++) mine[i] += parts[wave + p][sub][i];
}
#endif

#include "matvecinput.hip"
#include "matvecoutput.hip"
#if MATVEC_THIN
#include "matvecthin.hip"
#endif

// Where a tile lies: rows of one of the matrices that share x.
struct Place {
	const u8 *w;
	Output out;
	int tile; // of that matrix
#if MATVEC_THIN
	Thin thin;
#endif
};

#if MATVEC_THIN
#define MATVEC_PRODUCT(i) const u8 *w##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i, const u8 *a##i, const f32 *z##i, int rank##i
#else
#define MATVEC_PRODUCT(i) const u8 *w##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i
#endif

NSTF_KERNEL void __launch_bounds__(MATVEC_THREADS, MATVEC_RESIDENT) MATVEC_NAME(
    const u8 *x, const f32 *weight, f32 eps, const i32 *expert, int share, i64 stack, u8 *rounded, int from,
#if MATVEC_FROM
    f32 *settled, u64 slot, int rank, u32 number, u32 patience, u32 *state, u32 *lost, const u64 *inbox,
#endif
#if MATVEC_SEND
    u64 slot, int rank, u32 number, const u32 *state, INBOXES,
#endif
    MATVEC_PRODUCT(0)
#if MATVEC_MATRICES > 1
    , MATVEC_PRODUCT(1)
#endif
#if MATVEC_MATRICES > 2
    , MATVEC_PRODUCT(2)
#endif
#if MATVEC_MATRICES > 3
    , MATVEC_PRODUCT(3)
#endif
) {
	extern __shared__ __align__(16) u8 lds[];
	__shared__ __align__(16) u8 table[Weights::table + 16];
	let_next_begin();
	auto tiles_of = [](int n) { return (n + MATVEC_TILE - 1) / MATVEC_TILE; };
	const int tiles0 = tiles_of(n0);
	int tiles = tiles0;
#if MATVEC_MATRICES > 1 && !MATVEC_GATED
	const int tiles1 = tiles += tiles_of(n1);
#endif
#if MATVEC_MATRICES > 2
	const int tiles2 = tiles += tiles_of(n2);
#endif
#if MATVEC_MATRICES > 3
	tiles += tiles_of(n3);
#endif
	i64 first = 0; // row of the stack of experts
#if MATVEC_EXPERTS
	wait_for_inputs();
	first = (i64)expert[blockIdx.y] * n0;
	if (bias0) bias0 += first;
#if MATVEC_MATRICES > 1
	if (bias1) bias1 += first;
#endif
#endif
	// Member by member: a choice between whole structs would go through memory.
	auto place = [=](int tile) {
#if MATVEC_BIASED
		Place p = {w0, {y0, bias0, bias1, n0}, tile}; // both biases of a gate
#else
		Place p = {w0, {y0, bias0, residual0, n0}, tile};
#endif
#if MATVEC_THIN
		p.thin = {a0, z0, rank0, MATVEC_EXPERTS ? stack : n0};
#endif
#if MATVEC_MATRICES > 1 && !MATVEC_GATED
		const bool second = tile >= tiles0;
		p.w = second ? w1 : p.w, p.tile = second ? tile - tiles0 : p.tile;
		p.out.y = second ? y1 : p.out.y, p.out.n = second ? n1 : p.out.n;
		p.out.bias = second ? bias1 : p.out.bias, p.out.residual = second ? residual1 : p.out.residual;
#if MATVEC_THIN
		p.thin.a = second ? a1 : p.thin.a, p.thin.z = second ? z1 : p.thin.z, p.thin.rank = second ? rank1 : p.thin.rank;
		p.thin.rows = MATVEC_EXPERTS ? stack : p.out.n;
#endif
#endif
#if MATVEC_MATRICES > 2
		const bool third = tile >= tiles1;
		p.w = third ? w2 : p.w, p.tile = third ? tile - tiles1 : p.tile;
		p.out.y = third ? y2 : p.out.y, p.out.n = third ? n2 : p.out.n;
		p.out.bias = third ? bias2 : p.out.bias, p.out.residual = third ? residual2 : p.out.residual;
#if MATVEC_THIN
		p.thin.a = third ? a2 : p.thin.a, p.thin.z = third ? z2 : p.thin.z, p.thin.rank = third ? rank2 : p.thin.rank;
		p.thin.rows = MATVEC_EXPERTS ? stack : p.out.n;
#endif
#endif
#if MATVEC_MATRICES > 3
		const bool fourth = tile >= tiles2;
		p.w = fourth ? w3 : p.w, p.tile = fourth ? tile - tiles2 : p.tile;
		p.out.y = fourth ? y3 : p.out.y, p.out.n = fourth ? n3 : p.out.n;
		p.out.bias = fourth ? bias3 : p.out.bias, p.out.residual = fourth ? residual3 : p.out.residual;
#if MATVEC_THIN
		p.thin.a = fourth ? a3 : p.thin.a, p.thin.z = fourth ? z3 : p.thin.z, p.thin.rank = fourth ? rank3 : p.thin.rank;
		p.thin.rows = MATVEC_EXPERTS ? stack : p.out.n;
#endif
#endif
		return p;
	};
	const int wave = threadIdx.x / NSTF_WAVE, sub = threadIdx.x % NSTF_WAVE / MATVEC_LANES;
	const int group = (wave / MATVEC_SPLIT * MATVEC_SUBS + sub) * MATVEC_ROWS;
	// The first row of the wave in a tile. The last rows of a matrix are done again
	// rather than fewer: N is at least MATVEC_ROWS.
	auto row_of = [&](const Place &p) { return p.tile * MATVEC_TILE + group; };
	auto base_of = [&](const Place &p) { return row_of(p) < p.out.n - MATVEC_ROWS ? row_of(p) : p.out.n - MATVEC_ROWS; };
	auto view = [&](const u8 *w, const Place &p) {
		return Weights(Matrix{w, MATVEC_EXPERTS ? stack : p.out.n, MATVEC_K}, first + base_of(p));
	};
	// Batches of the block's tiles are loaded one after the other, the next one
	// while one is multiplied (MATVEC_PIPE).
	const int lane = wave % MATVEC_SPLIT * MATVEC_LANES + threadIdx.x % MATVEC_LANES;
	Stage stage[MATVEC_PIPE + 1];
	Place next = place(blockIdx.x);
	Weights views[MATVEC_VIEWS] = {
		view(next.w, next),
#if MATVEC_GATED
		view(w1, next),
#endif
	};
	int load_tile = blockIdx.x, load_batch = 0;
#if MATVEC_THIN
	// A's rows are asked for with the first batch of a tile, which with MATVEC_PIPE is
	// while the tile before is still multiplied.
	const int column = threadIdx.x % MATVEC_LANES * 4;
	ThinRaw thin[MATVEC_VIEWS], thin_next[MATVEC_VIEWS];
	auto load_thins = [&](ThinRaw (&to)[MATVEC_VIEWS]) {
		if (wave % MATVEC_SPLIT != 0) return;
		load_thin(to[0], next.thin, first + base_of(next), column);
#if MATVEC_GATED
		load_thin(to[1], Thin{a1, z1, rank1, next.thin.rows}, first + base_of(next), column);
#endif
	};
#endif
	auto load_next = [&](Stage &to) {
		if (load_tile >= tiles) return;
#if MATVEC_THIN
		if (load_batch == 0) {
			if (MATVEC_PIPE && load_tile != (int)blockIdx.x) load_thins(thin_next);
			else load_thins(thin);
		}
#endif
		load(to, views, lane + load_batch * MATVEC_BATCH);
		if (++load_batch < MATVEC_BATCHES) return;
		load_batch = 0, load_tile += gridDim.x;
		if (load_tile >= tiles) return;
		next = place(load_tile);
		views[0] = view(next.w, next);
#if MATVEC_GATED
		views[1] = view(w1, next);
#endif
	};
	Input in = {lds, table};
	Sums sums[MATVEC_VIEWS] = {};
#if MATVEC_SEND
	Sending sending = {ALL_INBOXES, slot, rank, 0};
#endif
	int tile = blockIdx.x, batch = 0;
	Added early = {0, 0};
	auto use = [&](const Stage &from_memory) {
		if (MATVEC_ADDS_EARLY && batch == 0) {
			const Place p = place(tile);
			early = added_early(p.out, row_of(p), base_of(p));
		}
		multiply(sums, from_memory, lane + batch * MATVEC_BATCH, in);
		if (++batch < MATVEC_BATCHES) return;
		const Place p = place(tile);
#if MATVEC_THIN
		if (wave % MATVEC_SPLIT == 0) {
			add_thin(sums[0], thin[0], p.thin, column);
			add_thin_rest(sums[0], p.thin, first + base_of(p), column + 4 * MATVEC_LANES);
#if MATVEC_GATED
			const Thin up = {a1, z1, rank1, p.thin.rows};
			add_thin(sums[1], thin[1], up, column);
			add_thin_rest(sums[1], up, first + base_of(p), column + 4 * MATVEC_LANES);
#endif
		}
#if MATVEC_PIPE
#pragma unroll
		for (int v = 0; v < MATVEC_VIEWS; v++) thin[v] = thin_next[v];
#endif
#endif
		gather(sums);
#if MATVEC_SPLIT > 1
		join(sums);
#endif
		write(p.out, sums, row_of(p), base_of(p), p.tile * MATVEC_TILE, early, rounded, MATVEC_EXPERTS ? blockIdx.y : from MATVEC_SENDING);
		batch = 0, tile += gridDim.x;
#pragma unroll
		for (int v = 0; v < MATVEC_VIEWS; v++)
#pragma unroll
			for (int t = 0; t < MATVEC_T; t++)
#pragma unroll
				for (int r = 0; r < MATVEC_ROWS; r++) sums[v][t][r] = 0;
	};
	if (MATVEC_PIPE) load_next(stage[0]);
#if MATVEC_AHEAD
	// What comes behind the first batch is asked for while the input is awaited.
	if (threadIdx.x % MATVEC_LANES < MATVEC_ROWS && wave % MATVEC_SPLIT == 0)
		for (int i = MATVEC_BATCHES > 1 ? 0 : 1; i < MATVEC_AHEAD; i++) {
			const int t = (int)blockIdx.x + i * (int)gridDim.x;
			if (t >= tiles) break;
			const Place p = place(t);
			view(p.w, p).ahead(threadIdx.x % MATVEC_LANES, MATVEC_UNITS);
#if MATVEC_GATED
			view(w1, p).ahead(threadIdx.x % MATVEC_LANES, MATVEC_UNITS);
#endif
		}
#endif
	Weights::fill(table);
#if MATVEC_FROM
	bring(in, x, weight, eps, 0, {settled, slot, rank, number, {patience, state, lost}, inbox});
#else
	bring(in, x, weight, eps, MATVEC_EXPERTS ? blockIdx.y / share : MATVEC_SOURCE == MATVEC_ACTS ? from : 0);
#endif
#if MATVEC_SEND
	sending.mark = mark_of(state, number);
#endif
	if (MATVEC_LDS || Weights::table > 0) __syncthreads();
	while (true) {
		load_next(stage[MATVEC_PIPE]);
		use(stage[0]);
		if (tile >= tiles) break;
#if MATVEC_PIPE
		load_next(stage[0]);
		use(stage[1]);
		if (tile >= tiles) break;
#endif
	}
}
