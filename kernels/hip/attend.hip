// Attention of single rows over their sequences' cached keys and values, the
// positions spread over waves and blocks ("decoding").
//
//	for t, h: z[p] = cap(scale * dot(q[t][h], key[p])) for lo <= p <= position[t]
//	          out[t][h] = sum of exp(z[p]) * value[p], over sum of exp(z[p]) (+ exp(sinks[h]))
//	cap(z) = softcap * tanh(z/softcap) with ATTEND_CAP 1; lo = position+1-window, or 0, or with ATTEND_CHUNKED 1 the window's largest multiple up to position;
//	sinks with ATTEND_SINKS 1
//
// With ATTEND_TURN 1 the work of rope.hip is done on the way: q, k, v are what the
// products gave, rows q_stride and k_stride apart, and the row's own key and
// value go into the cache here, unless ROPE_SHARED says that they are there. Rows are then of different sequences. ATTEND_SETTLED
// says that all else that is read of the cache, and positions, owners and pages, was
// there before the launch before this one began: it is read while that one ends.
//
// q f32[T][heads][KV_D], out f32[T][heads][KV_VALUE]; the cache as in kv.hip, of which
// latents (KV_LATENT) are read once, as keys and as values. ATTEND_GROUP query heads
// share a key-value head; a wave takes ATTEND_QUERIES of them at once, so that a
// key or value is read from memory once for all (ATTEND_PARTS times in groups
// over 8). Positions outside the reach are not read. A row that sees nothing, or
// scores of -Inf only, gives zeros; a NaN or +Inf among the scores gives NaN; a
// row whose position is negative is left alone.
//
// Grid: x: blocks that share the positions of y: a key-value head's part, of z:
// a row. ATTEND_WAVES waves of any size. A block takes ATTEND_LEAST positions at
// least, and of a long sequence as many as make ATTEND_SPREAD blocks; blocks beyond the
// length end at once, so that the grid may be that of a longer sequence. LDS: what attend.go computes, and 768 bytes for each query.
//
// Phases of a wave, for each of its tiles of 16 positions or fewer: (1) scores:
// teams of LANES lanes hold a key between them, and add up their products so
// that each lane ends with another score; (2) weights, a lane a position; (3)
// values, as keys. Values are loaded before the scores, the next tile's keys
// before the weights: what decides at few positions is the latency of loads, at
// many how much is in flight. Then (4) the block's waves are put
// together in LDS, and (5) blocks through memory, by the one that counts last.
// Deterministic: everything is added in a fixed order; the counter only chooses
// who adds.
//
// Bound: the bytes of keys and values; a multiplication for each stored number
// and query, and for each key one in LANES of a butterfly exchange.
// Tolerance: that of float32 attention over the numbers as stored.
//
// Keys and values in codes (KV_CODED) are turned: queries are turned in LDS first, and
// what was summed is turned back at last. A lane takes runs of 16 codes, or 8. Tiles of
// pages in half precision (kv_is_near) are read when they are used, not a tile ahead: they
// are few, and their registers would be taken from queries.
#include "functions.hip"
#include "kv.hip"
#if ATTEND_TURN
#include "heads.hip"
#endif

#define ATTEND_RECORD (ATTEND_QUERIES * (KV_VALUE + 2)) // top and sum of each query, then sums of values
#define ATTEND_SPLITS 64
#if ATTEND_TURN && !ROPE_SHARED
#define ATTEND_OWN 1 // the newest position is not in the cache yet
#else
#define ATTEND_OWN 0
#endif
#define ATTEND_FEW 8 // blocks whose records one thread reads at once
#define ATTEND_NONE -3.4028234663852886e38f // a maximum over nothing

__host__ __device__ constexpr int power_above(int n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }
__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int common_power(int n, int limit) { return limit == 1 || n % limit == 0 ? limit : common_power(n, limit / 2); }

// A team of LANES lanes holds a vector in CHUNKS loads a lane, of RUN numbers.
// Runs of codes are longer where registers are many.
#if defined(NSTF_CUDA)
#define CODES 16
#else
#define CODES 8
#endif
constexpr int RUN = KV_CODED ? CODES : common_power(KV_D, KV_FORMAT == 0 ? 4 : 8);
constexpr int LANES = most(2, least(32, power_above((KV_PADDED + RUN - 1) / RUN)));
constexpr int CHUNKS = (KV_PADDED + RUN * LANES - 1) / (RUN * LANES);
constexpr int TEAMS = NSTF_WAVE / LANES;
constexpr int PADDED = power_above(ATTEND_QUERIES);
// A tile is STEPS vectors a team, which take 8 loads of a lane where possible.
constexpr int TILE = most(TEAMS, least(16, 8 * TEAMS / power_above(CHUNKS)));
constexpr int STEPS = TILE / TEAMS;
// Scores of DEPTH vectors a team are added up at once.
constexpr int DEPTH = least(STEPS, most(1, 32 / PADDED));
// Weights of a tile are spread over lanes, ROUNDS each.
constexpr int ROUNDS = (TILE * ATTEND_QUERIES + NSTF_WAVE - 1) / NSTF_WAVE;
constexpr int LDS_WAVE = PADDED * (TILE + 1);
constexpr int THREADS = ATTEND_WAVES * NSTF_WAVE;

// A run is kept in words where there are whole ones.
#if KV_CODED
struct run {
	pack<u32, (RUN * KV_WORDS + 31) / 32> low;
	u32 high;
};
#elif KV_FORMAT == 0
typedef pack<f32, RUN> run;
NSTF_DEVICE f32 element(const run& r, int i) { return r.v[i]; }
#else
template <int Words> struct words {
	pack<u32, Words> v;
};
template <> struct words<0> {
	pack<kv_element, RUN> v;
};
typedef words<RUN * (int)sizeof(kv_element) / 4> run;
template <int Words> NSTF_DEVICE f32 element(const words<Words>& r, int i) {
#if KV_FORMAT == 1
	return i % 2 ? half_high(r.v.v[i / 2]) : half_low(r.v.v[i / 2]);
#else
	return (f32)(i8)(r.v.v[i / 4] >> (8 * (i % 4)));
#endif
}
NSTF_DEVICE f32 element(const words<0>& r, int i) {
#if KV_FORMAT == 1
	return half_value(r.v.v[i]);
#else
	return (f32)r.v.v[i];
#endif
}
#endif

// The numbers of a run that begins with number at of its vector, but for their scale.
NSTF_DEVICE void numbers(f32 (&x)[RUN], const run& r, int at) {
#if KV_CODED
#pragma unroll
	for (int i = 0; i < RUN; i += 8) {
		f32 some[8];
		kv_levels(some, r.low.v[i / (KV_BITS == 3 ? 16 : 8)], r.high, (at + i) / 8 % 4);
#pragma unroll
		for (int j = 0; j < 8; j++) x[i + j] = some[j];
	}
#else
#pragma unroll
	for (int i = 0; i < RUN; i++) x[i] = element(r, i);
#endif
}

// A lane's part of a tile's keys or values.
struct vectors {
	run x[STEPS][CHUNKS];
	f32 scale[KV_SCALED ? STEPS : 1][CHUNKS];
};

// What a wave knows of the tile it works on: the vector of its first position,
// which of its positions are within reach, and which one is in LDS, if any.
struct tile {
	i64 vector;
	int lo, hi, newest;
	bool near; // vector is one in half precision
};

// The row's own key and value as they are stored, those of codes in half precision.
#if KV_CODED
struct stored_pair {
	alignas(16) u16 key[KV_D];
	alignas(16) u16 value[KV_D];
};
#else
struct stored_pair {
	alignas(16) kv_element key[KV_STRIDE];
	alignas(16) kv_element value[KV_STRIDE];
	kv_scale key_scales[KV_GROUPS], value_scales[KV_GROUPS];
	NSTF_MEMBER kv_cache cache() { return {key, value, key_scales, value_scales}; }
};
#endif

// The first number of a chunk of this lane.
NSTF_DEVICE int chunk_at(int lane, int chunk) { return (lane % LANES + chunk * LANES) * RUN; }
// The position in its tile that this lane's team has in a step.
NSTF_DEVICE int step_position(int lane, int step) { return step * TEAMS + lane / LANES; }

// Loads of memory that may be read early.
template <bool Settled, typename V> NSTF_DEVICE V get(const V* p) { return Settled ? load_settled(p) : *p; }
template <typename V> NSTF_DEVICE V load_from(const V* p) { return get<ATTEND_SETTLED != 0>(p); }

// What a lane holds of a vector of a cache.
template <bool Key, bool Settled> NSTF_DEVICE void load_run(run& x, f32& scale, const kv_cache& cache, i64 vector, int at) {
#if KV_CODED
	const u32* words = cache.vector<Key>(vector);
	constexpr int lows = sizeof(x.low) / 4;
	if (KV_STRIDE % lows == 0) x.low = get<Settled>((const decltype(x.low)*)(words + at / (KV_BITS == 3 ? 16 : 8)));
	else
#pragma unroll
		for (int i = 0; i < lows; i++) x.low.v[i] = get<Settled>(words + at / (KV_BITS == 3 ? 16 : 8) + i);
	x.high = KV_HIGHS ? get<Settled>(words + KV_GROUPS * KV_WORDS + at / 32) : 0;
	scale = kv_factor(get<Settled>((const u16*)cache.scales<Key>(vector) + at / 32));
#else
	x = get<Settled>((const run*)(cache.vector<Key>(vector) + at));
	if (KV_FORMAT == 2 && Key) scale = get<Settled>((const f32*)cache.scales<Key>(vector) + at / 32);
#endif
}

// Loads what the cache has of a tile: where rows are turned, all but the newest.
template <bool Key> NSTF_DEVICE void load_cached(vectors& to, const kv_cache& cache, const tile& t, int lane) {
	if (KV_CODED && t.near) return;
#pragma unroll
	for (int d = 0; d < STEPS; d++) {
		const int p = step_position(lane, d);
#pragma unroll
		for (int c = 0; c < CHUNKS; c++) {
			const int at = chunk_at(lane, c);
			to.x[d][c] = run{};
			if (KV_SCALED) to.scale[d][c] = 0;
			if (p < t.lo || p >= t.hi || at >= KV_PADDED || ATTEND_OWN && !KV_CODED && p == t.newest) continue;
			load_run<Key, ATTEND_SETTLED != 0>(to.x[d][c], to.scale[KV_SCALED ? d : 0][c], cache, t.vector + p, at);
		}
	}
}

// Loads the newest position of a tile, if it is there.
template <bool Key> NSTF_DEVICE void load_newest(vectors& to, const stored_pair& own, const tile& t, int lane) {
#if !KV_CODED
	if (!ATTEND_OWN || t.newest < 0 || t.newest >= TILE) return;
	const kv_cache cache = ((stored_pair&)own).cache();
#pragma unroll
	for (int d = 0; d < STEPS; d++)
#pragma unroll
		for (int c = 0; c < CHUNKS; c++) {
			const int at = chunk_at(lane, c);
			if (step_position(lane, d) != t.newest || at >= KV_PADDED) continue;
			load_run<Key, false>(to.x[d][c], to.scale[KV_SCALED ? d : 0][c], cache, 0, at);
		}
#endif
}

template <bool Key> NSTF_DEVICE void load(vectors& to, const kv_cache& cache, const stored_pair& own, const tile& t, int lane) {
	load_cached<Key>(to, cache, t, lane);
	load_newest<Key>(to, own, t, lane);
}

// Adds Count numbers over the lanes of a team, M and fewer apart: each step
// halves what a lane keeps, until one is left. Lane l ends with number
// l*Count/LANES and those behind it.
template <int M, int Count> struct adding {
	static __device__ __forceinline__ void run(f32* v, int lane) {
		constexpr int half = Count > 1 ? Count / 2 : 1;
		const bool upper = lane & M;
#pragma unroll
		for (int i = 0; i < half; i++) {
			const f32 low = v[i], high = v[Count > 1 ? i + half : i]; // read first: a choice of addresses is slow
			v[i] = (upper ? high : low) + wave_xor(upper ? low : high, M);
		}
		adding<M / 2, half>::run(v, lane);
	}
};
template <int Count> struct adding<0, Count> {
	static __device__ __forceinline__ void run(f32*, int) {}
};

struct queries {
	f32 v[ATTEND_QUERIES][CHUNKS * RUN];
};

// What a lane has of a tile: the numbers of a step and a chunk, and their factor.
struct read_loaded {
	const vectors& v;
	NSTF_MEMBER f32 operator()(f32 (&x)[RUN], int step, int chunk, int lane) const {
		numbers(x, v.x[step][chunk], chunk_at(lane, chunk));
		return v.scale[KV_SCALED ? step : 0][chunk];
	}
};

#if KV_CODED
// Numbers at to at+RUN of a vector in half precision.
NSTF_DEVICE void near_numbers(f32 (&x)[RUN], const u16* from, int at) {
#pragma unroll
	for (int i = 0; i < RUN; i += 8) {
#if KV_D % 8 == 0
		const pack<u32, 4> w = at + i < KV_D ? *(const pack<u32, 4>*)(from + at + i) : pack<u32, 4>{};
#pragma unroll
		for (int j = 0; j < 8; j++) x[i + j] = j % 2 ? half_high(w.v[j / 2]) : half_low(w.v[j / 2]);
#else
#pragma unroll
		for (int j = 0; j < 8; j++) x[i + j] = at + i + j < KV_D ? half_value(from[at + i + j]) : 0.0f;
#endif
	}
}

// The same of a tile in half precision, which is read here.
template <bool Key> struct read_near {
	const kv_cache& cache;
	const stored_pair& own;
	const tile& t;
	NSTF_MEMBER f32 operator()(f32 (&x)[RUN], int step, int chunk, int lane) const {
		const int p = step_position(lane, step), at = chunk_at(lane, chunk);
#pragma unroll
		for (int i = 0; i < RUN; i++) x[i] = 0;
		if (p < t.lo || p >= t.hi || at >= KV_D) return 1.0f;
		if (ATTEND_OWN && p == t.newest) near_numbers(x, Key || KV_LATENT ? own.key : own.value, at);
		else near_numbers(x, cache.near<Key>(t.vector + p), at);
		return 1.0f;
	}
};
#endif

// Scores of Depth steps from one on into lds[query][position].
template <int Depth, typename Read> NSTF_DEVICE void score(f32* lds, const Read& k, const queries& q, int lane, int from) {
	constexpr int SCORES = Depth * PADDED, KEPT = most(1, SCORES / LANES);
	f32 s[SCORES] = {};
#pragma unroll
	for (int d = 0; d < Depth; d++) {
#pragma unroll
		for (int c = 0; c < CHUNKS; c++) {
			f32 part[ATTEND_QUERIES] = {}, x[RUN];
			const f32 factor = k(x, from + d, c, lane);
#pragma unroll
			for (int i = 0; i < RUN; i++) {
#pragma unroll
				for (int g = 0; g < ATTEND_QUERIES; g++) part[g] = fmaf(q.v[g][c * RUN + i], x[i], part[g]);
			}
#pragma unroll
			for (int g = 0; g < ATTEND_QUERIES; g++) {
				f32& to = s[d * PADDED + g];
				if (KV_SCALED) part[g] *= factor;
				to = c == 0 ? part[g] : to + part[g];
			}
		}
	}
	adding<LANES / 2, SCORES>::run(s, lane);
#pragma unroll
	for (int i = 0; i < KEPT; i++) {
		const int index = SCORES >= LANES ? lane % LANES * KEPT + i : lane % LANES / (LANES / least(SCORES, LANES));
		if (SCORES < LANES && lane % (LANES / least(SCORES, LANES)) != 0) continue;
		const int g = index % PADDED;
		if (g < ATTEND_QUERIES) lds[g * TILE + step_position(lane, from + index / PADDED)] = s[i];
	}
}

// The running maximum and sum of the queries that this lane weighs for.
struct totals {
	f32 top[ROUNDS], sum[ROUNDS];
};

// Turns scores lds[query][position] into weights lds[position][PADDED], and
// leaves behind them what earlier sums are to be multiplied with.
NSTF_DEVICE void weigh(f32* lds, totals& all, const kv_cache& cache, const stored_pair& own, const tile& t, int lane, f32 scale, f32 softcap) {
	f32 w[ROUNDS], c[ROUNDS];
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int p = (r * NSTF_WAVE + lane) % TILE, g = (r * NSTF_WAVE + lane) / TILE;
		f32 z = -NSTF_INFINITY;
		if (g < ATTEND_QUERIES && p >= t.lo && p < t.hi) {
			z = lds[g * TILE + p] * scale;
			if (ATTEND_CAP) z = softcap * tanh_f32(z / softcap);
		}
		const f32 top = wave_max_of(wave_max<TILE>(z), all.top[r]);
		w[r] = exp_f32(z - top);
		c[r] = exp_f32(all.top[r] - top);
		all.sum[r] = all.sum[r] * c[r] + w[r];
		all.top[r] = top;
#if KV_FORMAT == 2 && !KV_LATENT
		if (ATTEND_OWN && p == t.newest) w[r] *= own.value_scales[0];
		else if (p >= t.lo && p < t.hi) w[r] *= cache.value_scales[t.vector + p];
#endif
	}
	wave_sync();
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int p = (r * NSTF_WAVE + lane) % TILE, g = (r * NSTF_WAVE + lane) / TILE;
		if (g >= ATTEND_QUERIES) continue;
		lds[p * PADDED + g] = w[r];
		if (p == 0) lds[TILE * PADDED + g] = c[r];
	}
	wave_sync();
}

// Adds values times weights lds[position][PADDED].
template <int Unroll, typename Read> NSTF_DEVICE void accumulate(queries& sum, const Read& v, const f32* lds, int lane) {
#pragma unroll Unroll
	for (int d = 0; d < STEPS; d++) {
		f32 w[PADDED];
#pragma unroll
		for (int g = 0; g < PADDED; g += 4) {
			const pack<f32, least(PADDED, 4)> x = *(const pack<f32, least(PADDED, 4)>*)(lds + step_position(lane, d) * PADDED + g);
#pragma unroll
			for (int i = 0; i < least(PADDED, 4); i++) w[g + i] = x.v[i];
		}
#pragma unroll
		for (int c = 0; c < CHUNKS; c++) {
			const bool scaled = KV_CODED || KV_LATENT && KV_SCALED;
			f32 u[ATTEND_QUERIES], x[RUN];
			const f32 factor = v(x, d, c, lane);
#pragma unroll
			for (int g = 0; g < ATTEND_QUERIES; g++) u[g] = scaled ? w[g] * factor : w[g];
#pragma unroll
			for (int i = 0; i < RUN; i++) {
#pragma unroll
				for (int g = 0; g < ATTEND_QUERIES; g++) sum.v[g][c * RUN + i] = fmaf(u[g], x[i], sum.v[g][c * RUN + i]);
			}
		}
	}
}

// Room to put records together: of each its queries' maxima, what they have to be
// multiplied with, and the sums after that.
struct merging {
	f32 top[ATTEND_SPLITS * ATTEND_QUERIES], factor[ATTEND_SPLITS * ATTEND_QUERIES], sum[ATTEND_SPLITS * ATTEND_QUERIES];
};

// Puts n records together. Every thread gets its share of the sums through
// put(query, d, sum of values, maximum, sum). Barriers come first and last.
template <typename Put> NSTF_DEVICE void together(const f32* records, int n, merging& m, Put put) {
	__syncthreads();
	for (int i = threadIdx.x; i < n * ATTEND_QUERIES; i += THREADS) m.top[i] = records[i / ATTEND_QUERIES * ATTEND_RECORD + i % ATTEND_QUERIES];
	__syncthreads();
	for (int i = threadIdx.x; i < n * ATTEND_QUERIES; i += THREADS) {
		const int g = i % ATTEND_QUERIES;
		f32 top = ATTEND_NONE;
		for (int j = 0; j < n; j++) top = wave_max_of(m.top[j * ATTEND_QUERIES + g], top);
		const f32 c = exp_f32(m.top[i] - top);
		m.factor[i] = c;
		m.sum[i] = c * records[i / ATTEND_QUERIES * ATTEND_RECORD + ATTEND_QUERIES + g];
	}
	__syncthreads();
	for (int i = threadIdx.x; i < ATTEND_QUERIES * KV_VALUE; i += THREADS) {
		const int g = i / KV_VALUE;
		f32 top = ATTEND_NONE, sum = 0, acc = 0;
#pragma unroll 8
		for (int j = 0; j < n; j++) {
			acc = fmaf(m.factor[j * ATTEND_QUERIES + g], records[j * ATTEND_RECORD + 2 * ATTEND_QUERIES + i], acc);
			top = wave_max_of(m.top[j * ATTEND_QUERIES + g], top);
			sum += m.sum[j * ATTEND_QUERIES + g];
		}
		put(g, i % KV_VALUE, acc, top, sum);
	}
	__syncthreads();
}

// The same for few records, without barriers: every thread works out for itself
// what they are to be multiplied with, and all that it reads is under way at once.
template <int Most, typename Put> NSTF_DEVICE void few_together(const f32* records, int n, Put put) {
	for (int i = threadIdx.x; i < ATTEND_QUERIES * KV_VALUE; i += THREADS) {
		const int g = i / KV_VALUE;
		f32 tops[Most], sums[Most], values[Most], top = ATTEND_NONE, sum = 0, acc = 0;
#pragma unroll
		for (int j = 0; j < Most; j++) {
			const f32* r = records + least(j, n - 1) * ATTEND_RECORD;
			tops[j] = r[g], sums[j] = r[ATTEND_QUERIES + g], values[j] = r[2 * ATTEND_QUERIES + i];
		}
#pragma unroll
		for (int j = 0; j < Most; j++) top = wave_max_of(tops[j], top);
#pragma unroll
		for (int j = 0; j < Most; j++) {
			if (j >= n) continue;
			const f32 c = exp_f32(tops[j] - top);
			sum = fmaf(c, sums[j], sum);
			acc = fmaf(c, values[j], acc);
		}
		put(g, i % KV_VALUE, acc, top, sum);
	}
}

#if ATTEND_TURN
// What rope.hip is told.
struct turning {
	const f32 *k, *v;
	int q_stride, k_stride;
	const f32 *cosine, *sine, *q_weight, *q_bias;
	f32 q_eps;
	const f32 *k_weight, *k_bias;
	f32 k_eps;
#if ROPE_VNORM
	const f32 *v_weight, *v_bias;
	f32 v_eps;
#endif
};
#if ROPE_VNORM
#define TURNING_VNORM , v_weight, v_bias, v_eps
#else
#define TURNING_VNORM
#endif
#define TURN_PARAMETERS const f32 *k, const f32 *v, int q_stride, int k_stride, const f32 *cosine, const f32 *sine, \
	const f32 *q_weight, const f32 *q_bias, f32 q_eps, const f32 *k_weight, const f32 *k_bias, f32 k_eps VNORM_PARAMETERS,
#define TURNING {k, v, q_stride, k_stride, cosine + (i64)row * ROPE_PAIRS, sine + (i64)row * ROPE_PAIRS, q_weight, q_bias, q_eps, k_weight, k_bias, k_eps TURNING_VNORM}

// Finishes the block's queries, into lds[query][KV_D], and for the block that
// reaches the row's own position its key and value, into own and the cache.
NSTF_DEVICE void turn_heads(f32* lds, stored_pair& own, const turning& t, const f32* q, int row, int head, int queries, bool newest, bool writes, const kv_cache& cache, i64 at, i64 near) {
	const int wave = threadIdx.x / NSTF_WAVE;
	head_pairs x;
	for (int h = wave; h < queries + (newest ? 2 : 0); h += ATTEND_WAVES) {
		f32* to = lds + h * KV_D;
		if (h < queries) {
			load_head(x, q + h * KV_D);
			head_norm<ROPE_QNORM>(x, t.q_weight, t.q_bias, t.q_eps);
			turn(x, t.cosine, t.sine);
			store_head(to, x);
			kv_turn(to, KV_D);
			continue;
		}
		const bool key = h == queries;
		load_head(x, (key ? t.k : t.v) + (i64)row * t.k_stride + head * KV_D);
		if (key) {
			head_norm<ROPE_KNORM>(x, t.k_weight, t.k_bias, t.k_eps);
			turn(x, t.cosine, t.sine);
		}
#if ROPE_VNORM
		if (!key) head_norm<ROPE_VNORM>(x, t.v_weight, t.v_bias, t.v_eps);
#endif
		store_head(to, x);
		wave_sync();
		kv_turn(to, KV_D);
#if KV_CODED
		kv_store_near(key ? own.key : own.value, to);
		if (writes) kv_store_near(key ? cache.near<true>(near) : cache.near<false>(near), to);
#else
		kv_store(own.cache(), key, 0, to);
#endif
		if (writes) kv_store(cache, key, at, to);
	}
	__syncthreads();
}
#else
#define TURN_PARAMETERS
#endif

NSTF_KERNEL void __launch_bounds__(THREADS)
nstf_attend(const f32* q, f32* out, TURN_PARAMETERS SINK_PARAMETER int heads, int kv_heads, int window, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, u32* counters, f32* records) {
	alignas(16) __shared__ f32 lds[most(ATTEND_WAVES * LDS_WAVE, most(ATTEND_WAVES * ATTEND_RECORD, (ATTEND_TURN || KV_CODED) * (ATTEND_QUERIES + 2) * KV_D))];
	__shared__ stored_pair newest;
	__shared__ merging merge;
	__shared__ bool last;
	let_next_begin();
	if (!ATTEND_SETTLED) wait_for_inputs();
	const kv_cache cache = KV_CACHE;
	const int row = blockIdx.z, position = load_from(positions + row), head = blockIdx.y / ATTEND_PARTS, part = blockIdx.y % ATTEND_PARTS;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (position < 0) return;
	const int lo = first_seen(position + 1, window);
	const int first_tile = lo / TILE, tiles = position / TILE + 1 - first_tile;
	const int each = most(ATTEND_LEAST / TILE, (tiles + ATTEND_SPREAD - 1) / ATTEND_SPREAD), blocks = (tiles + each - 1) / each;
	if (blockIdx.x >= blocks) return;
	const int end = first_tile + least(tiles, (blockIdx.x + 1) * each);
	int at = first_tile + blockIdx.x * each + wave;
	pages += load_from(owners + row) * (i64)max_pages;
	const i64 first_head = (i64)row * heads + head * ATTEND_GROUP + part * ATTEND_QUERIES, first_query = first_head * KV_D;
	const int here = least(ATTEND_QUERIES, ATTEND_GROUP - part * ATTEND_QUERIES); // queries of this part

	f32* own = lds + wave * LDS_WAVE;
	vectors key, value;
	tile now, next;
	// The page of a tile is looked up a tile ahead of its use.
#if KV_CODED
	auto near_of = [&](int i) { return kv_is_near(position, i * TILE); };
#else
	auto near_of = [&](int) { return false; };
#endif
	auto page_of = [&](int i) { return i < end ? load_from(pages + kv_place(i * TILE, max_pages, near_of(i))) : 0; };
	auto tile_of = [&](int i, int page) {
		tile t = {0, 0, 0, -1, false};
		if (i < end) t = {kv_vector(page, kv_heads, head, i * TILE), most(lo - i * TILE, 0), least(position + 1 - i * TILE, TILE), ATTEND_OWN ? position - i * TILE : -1, near_of(i)};
		return t;
	};
	now = tile_of(at, page_of(at));
	int page = page_of(at + ATTEND_WAVES);
#if ATTEND_SETTLED
	load_cached<true>(key, cache, now, lane);
	load_cached<false>(value, cache, now, lane);
	wait_for_inputs();
#endif
#if ATTEND_TURN
	const turning how = TURNING;
	turn_heads(lds, newest, how, q + (i64)row * q_stride + (head * ATTEND_GROUP + part * ATTEND_QUERIES) * KV_D, row, head, here,
		!ROPE_SHARED && blockIdx.x + 1 == blocks, part == 0, cache, kv_vector(pages[kv_place(position, max_pages, false)], kv_heads, head, position), kv_vector(pages[kv_place(position, max_pages, KV_CODED)], kv_heads, head, position));
	const f32* from = lds;
#elif KV_CODED
	for (int h = wave; h < here; h += ATTEND_WAVES) {
		for (int i = lane; i < KV_D; i += NSTF_WAVE) lds[h * KV_D + i] = q[first_query + h * KV_D + i];
		kv_turn(lds + h * KV_D, KV_D);
	}
	__syncthreads();
	const f32* from = lds;
#else
	const f32* from = q + first_query;
#endif
	if (ATTEND_SETTLED) {
		load_newest<true>(key, newest, now, lane);
		load_newest<false>(value, newest, now, lane);
	} else {
		load<true>(key, cache, newest, now, lane);
	}
	queries query, sum;
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int i = 0; i < RUN; i++) {
				const int d = chunk_at(lane, c) + i;
				query.v[g][c * RUN + i] = g < here && d < KV_D ? from[g * KV_D + d] : 0.0f;
				sum.v[g][c * RUN + i] = 0;
			}
	if (ATTEND_TURN || KV_CODED) __syncthreads(); // the queries' room is used again
	totals all;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) all.top[r] = ATTEND_NONE, all.sum[r] = 0;

	for (bool loaded = ATTEND_SETTLED; at < end; at += ATTEND_WAVES, loaded = false) {
		if (KV_LATENT) value = key;
		else if (!loaded) load<false>(value, cache, newest, now, lane);
#if KV_CODED
		if (now.near) { // a step at a time: registers
#pragma unroll 1
			for (int step = 0; step < STEPS; step++) score<1>(own, read_near<true>{cache, newest, now}, query, lane, step);
		} else
#endif
#pragma unroll
			for (int step = 0; step < STEPS; step += DEPTH) score<DEPTH>(own, read_loaded{key}, query, lane, step);
		next = tile_of(at + ATTEND_WAVES, page);
		page = page_of(at + 2 * ATTEND_WAVES);
		load<true>(key, cache, newest, next, lane);
		wave_sync();
		weigh(own, all, cache, newest, now, lane, scale, softcap);
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++) {
			const f32 c = own[TILE * PADDED + g];
#pragma unroll
			for (int i = 0; i < CHUNKS * RUN; i++) sum.v[g][i] *= c;
		}
#if KV_CODED
		if (now.near) accumulate<1>(sum, read_near<false>{cache, newest, now}, own, lane);
		else
#endif
			accumulate<STEPS>(sum, read_loaded{value}, own, lane);
		wave_sync();
		now = next;
	}

	// The wave's teams, then its record.
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
		for (int i = 0; i < CHUNKS * RUN; i++)
#pragma unroll
			for (int m = LANES; m < NSTF_WAVE; m *= 2) sum.v[g][i] += wave_xor(sum.v[g][i], m);
	__syncthreads();
	f32* record = lds + wave * ATTEND_RECORD;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int g = (r * NSTF_WAVE + lane) / TILE;
		const f32 s = wave_sum<TILE>(all.sum[r]);
		if (lane % TILE != 0 || g >= ATTEND_QUERIES) continue;
		record[g] = all.top[r];
		record[ATTEND_QUERIES + g] = s;
	}
	if (lane < LANES) {
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
			for (int c = 0; c < CHUNKS; c++)
#pragma unroll
				for (int i = 0; i < RUN; i++)
					if (chunk_at(lane, c) + (KV_LATENT || KV_CODED ? i : 0) < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + chunk_at(lane, c) + i] = sum.v[g][c * RUN + i];
	}
	auto answer = [&](int g, int d, f32 acc, f32 top, f32 s) {
#if ATTEND_SINKS
		const f32 sink = sinks[head * ATTEND_GROUP + part * ATTEND_QUERIES + least(g, here - 1)], most = wave_max_of(top, sink), c = exp_f32(top - most);
		acc *= c;
		s = fmaf(c, s, exp_f32(sink - most));
#endif
		if (g < here) out[first_head * KV_VALUE + g * KV_VALUE + d] = s == 0 ? 0.0f : acc / s;
	};
	// What was summed of turned values is turned back.
	auto turn_back = [&] {
#if KV_CODED
		__threadfence();
		__syncthreads();
		for (int h = wave; h < here; h += ATTEND_WAVES) {
			f32 *room = lds + h * KV_VALUE, *to = out + (first_head + h) * KV_VALUE;
			for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) room[i] = to[i];
			kv_turn(room, KV_VALUE);
			for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) to[i] = room[i];
		}
#endif
	};
	__syncthreads();
	if (blocks == 1) {
		few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, answer);
		turn_back();
		return;
	}
	const i64 share = (i64)row * gridDim.y + blockIdx.y;
	records += share * gridDim.x * ATTEND_RECORD;
	f32* mine = records + (i64)blockIdx.x * ATTEND_RECORD;
	few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, [&](int g, int d, f32 acc, f32 top, f32 s) {
		mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
	});
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		last = atomicAdd(counters + share, 1u) == (u32)blocks - 1;
		if (last) counters[share] = 0;
	}
	__syncthreads();
	if (!last) return;
	__threadfence();
	if (blocks <= ATTEND_FEW) few_together<ATTEND_FEW>(records, blocks, answer);
	else together(records, blocks, merge, answer);
	turn_back();
}
