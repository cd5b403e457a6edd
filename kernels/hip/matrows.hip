// Products of coded weights with up to 32 rows of activations in one reading of the
// weights, with the bits that matvec.hip gives one row (docs/decisions/0014-width-independence.md).
//
//	for t < T, n: y[t][n] = sum over k of W[n][k] * x[t][k]  (+ bias[n] + residual[t][n])
//	MATROWS_GATED: y[t][n] = act(W0[n] x[t]) * (W1[n] x[t])
//
// What matvec.hip's lane l of MATROWS_LANES adds up, units l, l + LANES and so on of a
// row, is a part here: a wave has MATROWS_PARTS neighbours of them, each with sums of its own
// for all tokens and the wave's features, and the waves of a block that have the same
// features are a team.
// Matrix units give the dot product of each group of weights that share a scale
// (matrixbytes.hip), floats are then added as one lane does:
//
//	part = fma(-min, d * sum, fma(d, scale * dot, part))
//
// and parts as the lanes' are: neighbours first.
//
// Weights as weights.hip says, of a scheme with an integer form; K = MATROWS_K. x Acts
// (acts.hip), rows from `from` on. y f32[T][N], which may be the residual. Up to three
// matrices share x (MATROWS_MATRICES).
//
// Grid: blocks of MATROWS_TEAMS teams, which take tiles of 16 * MATROWS_FEATURES rows of
// W for each team in turn (half of them of each matrix where gated), and MATROWS_TOKENS
// tiles of tokens; any wave size. LDS: with MATROWS_LDS x, rearranged; for each wave its
// weights of a step as bytes, then its sums. Phases: a step's weights are asked for; x is
// brought; then a wave turns its weights of MATROWS_TOGETHER parts to bytes, asks for the
// next ones, and multiplies. Waves meet at the end of a tile alone, to add up its outputs.
// Deterministic: every sum in one fixed order, which MATROWS_LANES and K decide.
// Bound: up to 16 rows the bytes of W; with 32, 3 operations for each group, feature
// and token (4 where MATROWS_NARROW is 0).
// MATROWS_NARROW: scales have at most 22 bits, so that one fused operation takes
// BYTES_MAGIC off a dot product and scales it, with the bits of both.
// Infinite scales give NaN, where one row may have infinities.
#include "SCHEME.hip"
#include "acts.hip"
#include "matrixbytes.hip"
#if MATROWS_GATED
#include "activation.hip"
#endif

#define ROWS_TEAM (MATROWS_LANES / MATROWS_PARTS)                         // waves of a team
#define ROWS_THREADS (MATROWS_TEAMS * ROWS_TEAM * NSTF_WAVE)
#define ROWS_FEATURES (16 * MATROWS_FEATURES)                             // rows of W of a team's tile
#define ROWS_OUT (ROWS_FEATURES / (1 + MATROWS_GATED))                    // outputs of it
#define ROWS_TILE (MATROWS_TEAMS * ROWS_OUT)                              // of a block's
#define ROWS_TOKENS (MATROWS_TOKENS * BYTES_TOKENS)                       // rows of x, those behind T included
#define ROWS_UNITS (MATROWS_K / Weights::unit)                            // of a row
#define ROWS_STEPS ((ROWS_UNITS + MATROWS_LANES - 1) / MATROWS_LANES)     // of a tile
#define ROWS_HERE (ROWS_STEPS * MATROWS_LANES)                            // units of a row, those behind it included
#define ROWS_EVEN (ROWS_UNITS % MATROWS_LANES == 0)                       // the last one is whole
#define ROWS_ABREAST (NSTF_WAVE / MATROWS_TOGETHER)                       // features whose units a wave takes at once
#define ROWS_HELD ((ROWS_FEATURES + ROWS_ABREAST - 1) / ROWS_ABREAST)     // units of a lane
#define ROWS_ACTS (MATROWS_GROUP == 16 ? acts_fine_bytes(MATROWS_K) : acts_row_bytes(MATROWS_K)) // bytes of a row of x in memory

// Groups of weights that share a scale: of a unit, numbers of each, pieces of 16 of them.
#define ROWS_GROUPS NSTF_GROUPS
#define ROWS_DEPTH (Weights::unit / ROWS_GROUPS)
#define ROWS_PIECES (ROWS_DEPTH / 16)
static_assert(ROWS_DEPTH == 16 || ROWS_DEPTH == 32, "a group is one or two pieces of 16");
static_assert(MATROWS_GROUP == 32 || ROWS_DEPTH == 16, "a scale of weights has one of activations");

// A scale, and a minimum or what it is multiplied with where there are minimums.
struct Scale {
	f32 scale;
#define ROWS_SCALE (Weights::mins ? 8 : 4) // bytes in LDS
	f32 min;
};

NSTF_DEVICE Scale scale_at(const u8 *p) {
	if (Weights::mins) {
		const float2 v = *(const float2 *)p;
		return {v.x, v.y};
	}
	return {*(const f32 *)p, 0};
}

NSTF_DEVICE void put_scale(u8 *p, Scale s) {
	if (Weights::mins) *(float2 *)p = make_float2(s.scale, s.min);
	else *(f32 *)p = s.scale;
}

// A wave's weights in LDS, of MATROWS_TOGETHER units of each row: for each unit pieces of
// 16 bytes, [piece][feature], scales, [group][feature], and what has eight lanes next to
// each other, who put pieces of some features of all units, hit other banks.
#define ROWS_PIECES_BYTES (Weights::unit * ROWS_FEATURES)
#define ROWS_UNIT_BYTES (ROWS_PIECES_BYTES + ROWS_GROUPS * ROWS_FEATURES * ROWS_SCALE)
#define ROWS_UNIT (ROWS_UNIT_BYTES + (128 / MATROWS_TOGETHER + 128 - ROWS_UNIT_BYTES % 128) % 128)
#define ROWS_STAGE (MATROWS_TOGETHER * ROWS_UNIT)
static_assert(ROWS_UNIT % 16 == 0, "pieces are loaded by 16 bytes");
NSTF_DEVICE int stage_piece(int unit, int piece, int feature) { return unit * ROWS_UNIT + (piece * ROWS_FEATURES + feature) * 16; }
NSTF_DEVICE int stage_scale(int unit, int group, int feature) {
	return unit * ROWS_UNIT + ROWS_PIECES_BYTES + (group * ROWS_FEATURES + feature) * ROWS_SCALE;
}

// Then the same room holds its sums of a tile: f32 [token][feature], turned so that the
// lanes of MMA hit other banks.
NSTF_DEVICE int sum_at(int token, int feature) { return token * ROWS_FEATURES + (feature + (token >> 1) * 8) % ROWS_FEATURES; }
#define ROWS_SUMS (ROWS_TOKENS * ROWS_FEATURES * 4)
#define ROWS_ROOM (ROWS_STAGE > ROWS_SUMS ? ROWS_STAGE : ROWS_SUMS)

// x in LDS: for each token its bytes, rows an odd number of pieces
// apart, then scales, [group of ROWS_DEPTH][token], with their groups' sums where there
// are minimums.
#define ROWS_ROW ((ROWS_HERE * Weights::unit / 16 | 1) * 16)
#define ROWS_SCALES (ROWS_HERE * ROWS_GROUPS)
#define ROWS_X (MATROWS_LDS ? ROWS_TOKENS * ROWS_ROW + ROWS_SCALES * ROWS_TOKENS * ROWS_SCALE : 0)

// The scale of group i of a row of Acts, and that times the group's sum.
NSTF_DEVICE Scale acts_scale(const u8 *row, int i) {
	const int quad = i * ROWS_DEPTH / 4;
	const uint2 pair = *(const uint2 *)(row + acts_pair(MATROWS_K, quad));
	const bool last = ROWS_DEPTH == 16 && i % 2 == 1;
	const f32 d = of_bits(MATROWS_GROUP == 16 && last ? pair.y : pair.x);
	if (!Weights::mins) return {d, 0};
	const u32 both = MATROWS_GROUP == 16 ? *(const u32 *)(row + acts_sums(MATROWS_K, quad)) : pair.y;
	const i32 low = (i32)(i16)both, high = (i32)both >> 16;
	return {d, d * (f32)(ROWS_DEPTH == 32 ? low + high : last ? high : low)};
}

// What the waves multiply with: rows of x in LDS or in memory.
struct Input {
	const u8 *rows;
	int t; // there are
};

// Brings x to LDS, or says where it is, once it has been written.
NSTF_DEVICE Input bring(u8 *lds, const u8 *x, int from, int t) {
	wait_for_inputs();
	x += (i64)from * ROWS_ACTS;
	if (!MATROWS_LDS) return {x, t};
	const int of_unit = Weights::unit / 16, pieces = ROWS_HERE * of_unit, ahead = 8;
	for (int start = threadIdx.x; start < t * pieces; start += ahead * ROWS_THREADS) {
		Words4 v[ahead];
#pragma unroll
		for (int i = 0; i < ahead; i++) {
			const int at = start + i * ROWS_THREADS;
			if (at >= t * pieces) continue;
			const int piece = at % pieces;
			if (ROWS_EVEN || piece < ROWS_UNITS * of_unit) v[i] = *(const Words4 *)(x + at / pieces * (u32)ROWS_ACTS + acts_piece(piece) * 16);
		}
#pragma unroll
		for (int i = 0; i < ahead; i++) {
			const int at = start + i * ROWS_THREADS;
			if (at < t * pieces) *(Words4 *)(lds + at / pieces * ROWS_ROW + at % pieces * 16) = v[i];
		}
	}
#pragma unroll 4
	for (int at = threadIdx.x; at < t * ROWS_SCALES; at += ROWS_THREADS) {
		const int token = at / ROWS_SCALES, i = at % ROWS_SCALES;
		if (!ROWS_EVEN && i >= ROWS_UNITS * ROWS_GROUPS) continue;
		put_scale(lds + ROWS_TOKENS * ROWS_ROW + (i * ROWS_TOKENS + token) * ROWS_SCALE, acts_scale(x + token * (u32)ROWS_ACTS, i));
	}
	return {lds, t};
}

// Tokens behind the last one are any other's, since nobody reads what they give.
NSTF_DEVICE int token_in(const Input &in, int token) { return MATROWS_LDS || token < in.t ? token : in.t - 1; }

// A lane's words of a tile of tokens, from piece i on.
NSTF_DEVICE ByteActs<ROWS_PIECES> acts_of(const Input &in, int tile, int i) {
	ByteActs<ROWS_PIECES> x;
	if (MATROWS_LDS) {
		bytes_fetch(x, in.rows + (tile * BYTES_TOKENS * ROWS_ROW + i * 16), ROWS_ROW);
		return x;
	}
	const u8 *row = in.rows + (i64)token_in(in, tile * BYTES_TOKENS + bytes_column()) * ROWS_ACTS + bytes_at();
#pragma unroll
	for (int p = 0; p < ROWS_PIECES; p++) bytes_load(x.v + p * BYTES_WORDS, row + acts_piece(i + p) * 16);
	return x;
}

// The scales of group i of a lane's tokens of a tile.
struct TokenScales { Scale v[BYTES_TOKENS_OF]; };
NSTF_DEVICE TokenScales token_scales(const Input &in, int tile, int i) {
	TokenScales s;
#pragma unroll
	for (int t = 0; t < BYTES_TOKENS_OF; t++) {
		const int token = tile * BYTES_TOKENS + bytes_token(t);
		if (MATROWS_LDS) s.v[t] = scale_at(in.rows + ROWS_TOKENS * ROWS_ROW + (i * ROWS_TOKENS + token) * ROWS_SCALE);
		else s.v[t] = acts_scale(in.rows + (i64)token_in(in, token) * ROWS_ACTS, i);
	}
	return s;
}

typedef f32 Sums[MATROWS_FEATURES][MATROWS_TOKENS][BYTES_SUMS];

// Adds the products of a unit, the wave's number `unit` in LDS and unit u of the rows.
NSTF_DEVICE void multiply(Sums &sums, const u8 *stage, int unit, int u, const Input &in) {
#pragma unroll
	for (int g = 0; g < ROWS_GROUPS; g++) {
		ByteWeights<ROWS_PIECES> w[MATROWS_FEATURES];
		Scale s[MATROWS_FEATURES][BYTES_FEATURES_OF];
#pragma unroll
		for (int f = 0; f < MATROWS_FEATURES; f++) {
			bytes_fetch(w[f], stage + stage_piece(unit, g * ROWS_PIECES, f * 16), ROWS_FEATURES * 16);
#pragma unroll
			for (int i = 0; i < BYTES_FEATURES_OF; i++) s[f][i] = scale_at(stage + stage_scale(unit, g, f * 16 + bytes_feature(i)));
		}
#pragma unroll
		for (int n = 0; n < MATROWS_TOKENS; n++) {
			const ByteActs<ROWS_PIECES> x = acts_of(in, n, (u * ROWS_GROUPS + g) * ROWS_PIECES);
			const TokenScales d = token_scales(in, n, u * ROWS_GROUPS + g);
#pragma unroll
			for (int f = 0; f < MATROWS_FEATURES; f++) {
				const ByteSums dots = bytes_product(w[f], x);
#pragma unroll
				for (int i = 0; i < BYTES_FEATURES_OF; i++)
#pragma unroll
					for (int t = 0; t < BYTES_TOKENS_OF; t++) {
						const f32 raised = of_bits((u32)dots.v[i * BYTES_TOKENS_OF + t]), scale = s[f][i].scale;
						f32 &sum = sums[f][n][i * BYTES_TOKENS_OF + t];
						const f32 dot = MATROWS_NARROW ? fmaf(raised, scale, scale * -BYTES_MAGIC_VALUE) : scale * (raised - BYTES_MAGIC_VALUE);
						sum = fmaf(d.v[t].scale, dot, sum);
						if (Weights::mins) sum = fmaf(-s[f][i].min, d.v[t].min, sum);
					}
			}
		}
	}
}

// Where a tile lies: rows of one of the matrices that share x.
struct Place {
	const u8 *w;
	f32 *y;
	const f32 *bias, *residual;
	int n, first; // rows, and the tile's first
};

#define ROWS_PRODUCT(i) const u8 *w##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i

NSTF_KERNEL void __launch_bounds__(ROWS_THREADS, MATROWS_RESIDENT) NSTF_PASTED(NSTF_NAMED(nstf_matrows), i8)(
    const u8 *x, int t, int from, ROWS_PRODUCT(0)
#if MATROWS_MATRICES > 1
    , ROWS_PRODUCT(1)
#endif
#if MATROWS_MATRICES > 2
    , ROWS_PRODUCT(2)
#endif
) {
	extern __shared__ __align__(16) u8 lds[];
	__shared__ __align__(16) u8 table[Weights::table + 16];
	let_next_begin();
	auto tiles_of = [](int n) { return (n + ROWS_TILE - 1) / ROWS_TILE; };
	const int tiles0 = tiles_of(n0);
	int tiles = tiles0;
#if MATROWS_MATRICES > 1 && !MATROWS_GATED
	const int tiles1 = tiles += tiles_of(n1);
#endif
#if MATROWS_MATRICES > 2
	tiles += tiles_of(n2);
#endif
	const int wave = threadIdx.x / NSTF_WAVE, lane = bytes_lane(), team = wave / ROWS_TEAM;
	// Member by member: a choice between whole structs would go through memory.
	auto place = [=](int tile) {
		Place p = {w0, y0, bias0, residual0, n0, tile * ROWS_TILE};
#if MATROWS_MATRICES > 1 && !MATROWS_GATED
		const bool second = tile >= tiles0;
		p.w = second ? w1 : p.w, p.y = second ? y1 : p.y, p.bias = second ? bias1 : p.bias, p.residual = second ? residual1 : p.residual;
		p.n = second ? n1 : p.n, p.first = second ? (tile - tiles0) * ROWS_TILE : p.first;
#endif
#if MATROWS_MATRICES > 2
		const bool third = tile >= tiles1;
		p.w = third ? w2 : p.w, p.y = third ? y2 : p.y, p.bias = third ? bias2 : p.bias, p.residual = third ? residual2 : p.residual;
		p.n = third ? n2 : p.n, p.first = third ? (tile - tiles1) * ROWS_TILE : p.first;
#endif
		return p;
	};
	u8 *stage = lds + ROWS_X + wave * ROWS_ROOM;

	// A lane's units of those that are taken at once, number i of them: of which feature,
	// and which of the wave's. Lanes next to each other have units next to each other.
	// NVRTC 13 takes (lane / n) * 16 for a multiple of 8 if it sees through it.
	int lane_feature = lane / MATROWS_TOGETHER;
#if defined(NSTF_CUDA)
	asm volatile("" : "+r"(lane_feature));
#endif
	auto feature_of = [=](int i) {
		const int feature = i * ROWS_ABREAST + lane_feature;
		return ROWS_FEATURES % ROWS_ABREAST == 0 || feature < ROWS_FEATURES ? feature : feature % ROWS_FEATURES;
	};
	const int part = lane % MATROWS_TOGETHER;
	auto unit_of = [=](int step, int part) { return step * MATROWS_LANES + wave % ROWS_TEAM * MATROWS_PARTS + part; };
	Weights::Raw raw[ROWS_HELD];
	// What is loaded next: rows of a tile, the last one again rather than those behind it.
	auto first_of = [=](const Place &p) { return p.first + team * ROWS_OUT < p.n ? p.first + team * ROWS_OUT : p.n - 1; };
	const Place start = place(blockIdx.x);
	int last = start.n - 1 - first_of(start);
	Weights view(Matrix{start.w, start.n, MATROWS_K}, first_of(start));
#if MATROWS_GATED
	Weights other(Matrix{w1, start.n, MATROWS_K}, first_of(start));
#endif
	auto aim = [&](int tile) {
		const Place p = place(tile);
		last = p.n - 1 - first_of(p);
		view = Weights(Matrix{p.w, p.n, MATROWS_K}, first_of(p));
#if MATROWS_GATED
		other = Weights(Matrix{w1, p.n, MATROWS_K}, first_of(p));
#endif
	};
	auto load = [&](int tile, int step, int first) {
#if !defined(NSTF_CUDA)
		aim(tile); // again each time: registers for what it says would be spilled
#endif
#pragma unroll
		for (int i = 0; i < ROWS_HELD; i++) {
			const int feature = feature_of(i);
			int u = unit_of(step, first + part);
			if (!ROWS_EVEN) u = u < ROWS_UNITS ? u : ROWS_UNITS - 1;
			const int row = feature % ROWS_OUT < last ? feature % ROWS_OUT : last;
#if MATROWS_GATED
			// Of whole runs of lanes it is known here which matrix they have.
			const bool second = ROWS_OUT % ROWS_ABREAST == 0 ? i >= ROWS_HELD / 2 : feature >= ROWS_OUT;
			raw[i] = second ? other.load(row, u) : view.load(row, u);
#else
			raw[i] = view.load(row, u);
#endif
		}
	};
	// Turns what was loaded to bytes, less the scheme's zero, and scales.
	auto turn = [&](int step, int first) {
#pragma unroll
		for (int i = 0; i < ROWS_HELD; i++) {
			const int feature = feature_of(i), u = unit_of(step, first + part);
			u32 q[Weights::unit / 4];
			f32 s[ROWS_GROUPS], m[ROWS_GROUPS];
			Weights::codes(raw[i], table, q);
			Weights::scales(raw[i], u, s, m);
#pragma unroll
			for (int p = 0; p < Weights::unit / 16; p++) {
				u32 v[4];
#pragma unroll
				for (int j = 0; j < 4; j++) v[j] = Weights::zero == 0 ? q[4 * p + j] : ((q[4 * p + j] | 0x80808080u) - Weights::zero * 0x01010101u) ^ 0x80808080u;
				*(Words4 *)(stage + stage_piece(part, p, feature)) = Words4{v[0], v[1], v[2], v[3]};
			}
#pragma unroll
			for (int g = 0; g < ROWS_GROUPS; g++) put_scale(stage + stage_scale(part, g, feature), {s[g], Weights::mins ? m[g] : 0});
		}
	};

	load(blockIdx.x, 0, 0);
	Weights::fill(table);
	const Input in = bring(lds, x, from, t);
	if (MATROWS_LDS || Weights::table > 0) __syncthreads();
	Sums sums[MATROWS_PARTS] = {};
	for (int tile = blockIdx.x, step = 0; tile < tiles;) {
#pragma unroll
		for (int first = 0; first < MATROWS_PARTS; first += MATROWS_TOGETHER) {
			turn(step, first);
			if (first + MATROWS_TOGETHER < MATROWS_PARTS) {
				load(tile, step, first + MATROWS_TOGETHER);
			} else {
				const int next = step + 1 < ROWS_STEPS ? tile : tile + gridDim.x;
#if defined(NSTF_CUDA)
				if (next != tile && next < tiles) aim(next);
#endif
				if (next < tiles) load(next, step + 1 < ROWS_STEPS ? step + 1 : 0, 0);
			}
			wave_sync();
#pragma unroll
			for (int i = 0; i < MATROWS_TOGETHER; i++) {
				const int u = unit_of(step, first + i);
				if (ROWS_EVEN || u < ROWS_UNITS) multiply(sums[first + i], stage, i, u, in);
			}
			wave_sync();
		}
		if (++step < ROWS_STEPS) continue;
		step = 0;
		// Parts next to each other are added, then the waves' first ones.
		f32 *mine = (f32 *)stage;
#pragma unroll
		for (int f = 0; f < MATROWS_FEATURES; f++)
#pragma unroll
			for (int n = 0; n < MATROWS_TOKENS; n++)
#pragma unroll
				for (int i = 0; i < BYTES_SUMS; i++) {
#pragma unroll
					for (int width = 1; width < MATROWS_PARTS; width *= 2)
#pragma unroll
						for (int p = 0; p < MATROWS_PARTS; p += 2 * width) sums[p][f][n][i] += sums[p + width][f][n][i];
					mine[sum_at(n * BYTES_TOKENS + bytes_token(i % BYTES_TOKENS_OF), f * 16 + bytes_feature(i / BYTES_TOKENS_OF))] = sums[0][f][n][i];
#pragma unroll
					for (int p = 0; p < MATROWS_PARTS; p++) sums[p][f][n][i] = 0;
				}
		__syncthreads();
		const Place p = place(tile);
		auto whole = [&](int team, int token, int feature) {
			f32 v[ROWS_TEAM];
#pragma unroll
			for (int w = 0; w < ROWS_TEAM; w++) v[w] = ((const f32 *)(lds + ROWS_X + (team * ROWS_TEAM + w) * ROWS_ROOM))[sum_at(token, feature)];
#pragma unroll
			for (int width = 1; width < ROWS_TEAM; width *= 2)
#pragma unroll
				for (int w = 0; w < ROWS_TEAM; w += 2 * width) v[w] += v[w + width];
			return v[0];
		};
		for (int i = threadIdx.x; i < t * ROWS_TILE; i += ROWS_THREADS) {
			const int token = i / ROWS_TILE, of = i % ROWS_TILE / ROWS_OUT, feature = i % ROWS_OUT, n = p.first + i % ROWS_TILE;
			if (n >= p.n) continue;
			const i64 at = (i64)token * p.n + n;
#if MATROWS_GATED
			p.y[at] = gated(whole(of, token, feature), whole(of, token, ROWS_OUT + feature));
#else
			const f32 bias = p.bias ? p.bias[n] : 0, residual = p.residual ? p.residual[at] : 0;
			p.y[at] = whole(of, token, feature) + bias + residual;
#endif
		}
		__syncthreads();
		tile += gridDim.x;
	}
}
