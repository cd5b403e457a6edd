// What kernels of attention over cached keys and values have in common: how a wave goes
// through tiles of positions, and how what waves have summed up is put together. See attend.hip,
// whose defines these are; with ATTEND_PAGED 1 a wave also keeps the sum of each page by itself.
#include "functions.hip"
#include "kv.hip"

#ifndef ATTEND_PAGED
#define ATTEND_PAGED 0
#endif
#ifndef ATTEND_BESIDE // waves of a block beside those that attend
#define ATTEND_BESIDE 0
#endif
#ifndef ATTEND_SCORES // 1: of tiles no more than scores are asked for
#define ATTEND_SCORES 0
#endif
#ifndef ATTEND_MATRIX // 1: by matrix instructions, attendmatrix.hip
#define ATTEND_MATRIX 0
#endif
#define ATTEND_RECORD (ATTEND_QUERIES * (KV_VALUE + 2)) // top and sum of each query, then sums of values
#if ATTEND_TURN && !ROPE_SHARED
#define ATTEND_OWN 1 // the newest position is not in the cache yet
#else
#define ATTEND_OWN 0
#endif
#define ATTEND_NONE -3.4028234663852886e38f // a maximum over nothing

__host__ __device__ constexpr int power_above(int n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }
__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int common_power(int n, int limit) { return limit == 1 || n % limit == 0 ? limit : common_power(n, limit / 2); }

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
#if KV_HOST
	NSTF_MEMBER kv_cache cache() { return {key, value, key_scales, value_scales, 1, nullptr, nullptr, nullptr, nullptr}; }
#else
	NSTF_MEMBER kv_cache cache() { return {key, value, key_scales, value_scales}; }
#endif
};
#endif

// Loads of memory that may be read early.
template <bool Settled, typename V> NSTF_DEVICE V get(const V* p) { return Settled ? load_settled(p) : *p; }
template <typename V> NSTF_DEVICE V load_from(const V* p) { return get<ATTEND_SETTLED != 0>(p); }

#if ATTEND_MATRIX
#include "attendmatrix.hip"
#else
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
constexpr int THREADS = (ATTEND_WAVES + ATTEND_BESIDE) * NSTF_WAVE;

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

// The first number of a chunk of this lane.
NSTF_DEVICE int chunk_at(int lane, int chunk) { return (lane % LANES + chunk * LANES) * RUN; }
// The position in its tile that this lane's team has in a step.
NSTF_DEVICE int step_position(int lane, int step) { return step * TEAMS + lane / LANES; }

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
typedef queries value_sums;
typedef vectors keys_loaded, values_loaded;
struct scored {}; // scores and weights are in LDS

// Takes queries from[query][KV_D], of which so many are here, and clears sums.
NSTF_DEVICE void load_queries(queries& query, queries& sum, const f32* from, int here, int lane) {
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
}

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

// Scores of Depth steps from one on, added up: a lane of a team has those from its number times
// Depth*PADDED/LANES on, [step][query], or shares one with lanes beside it.
template <int Depth, typename Read> NSTF_DEVICE void dots(f32 (&s)[Depth * PADDED], const Read& k, const queries& q, int lane, int from) {
#pragma unroll
	for (int i = 0; i < Depth * PADDED; i++) s[i] = 0;
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
	adding<LANES / 2, Depth * PADDED>::run(s, lane);
}

// The same into lds[query][position].
template <int Depth, typename Read> NSTF_DEVICE void score(f32* lds, const Read& k, const queries& q, int lane, int from) {
	constexpr int SCORES = Depth * PADDED, KEPT = most(1, SCORES / LANES);
	f32 s[SCORES];
	dots<Depth>(s, k, q, lane, from);
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
#if ATTEND_PAGED
	f32 page_top[ROUNDS], page_sum[ROUNDS]; // of the page in progress
#endif
};

NSTF_DEVICE void clear_totals(totals& all) {
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		all.top[r] = ATTEND_NONE, all.sum[r] = 0;
#if ATTEND_PAGED
		all.page_top[r] = ATTEND_NONE, all.page_sum[r] = 0;
#endif
	}
}

// Turns scores lds[query][position] into weights lds[position][PADDED], and
// leaves behind them what earlier sums are to be multiplied with.
NSTF_DEVICE void weigh(scored&, f32* lds, totals& all, const kv_cache& cache, const stored_pair& own, const tile& t, int lane, f32 scale, f32 softcap) {
	f32 w[ROUNDS], c[ROUNDS];
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int p = (r * NSTF_WAVE + lane) % TILE, g = (r * NSTF_WAVE + lane) / TILE;
		f32 z = -NSTF_INFINITY;
		if (g < ATTEND_QUERIES && p >= t.lo && p < t.hi) {
			z = lds[g * TILE + p] * scale;
			if (ATTEND_CAP) z = softcap * tanh_f32(z / softcap);
		}
		const f32 highest = wave_max<TILE>(z), top = wave_max_of(highest, all.top[r]);
#if ATTEND_PAGED
		const f32 page_top = wave_max_of(highest, all.page_top[r]);
		all.page_sum[r] = all.page_sum[r] * exp_f32(all.page_top[r] - page_top) + exp_f32(z - page_top);
		all.page_top[r] = page_top;
#endif
		w[r] = exp_f32(z - top);
		c[r] = exp_f32(all.top[r] - top);
		all.sum[r] = all.sum[r] * c[r] + w[r];
		all.top[r] = top;
#if KV_FORMAT == 2 && !KV_LATENT
		if (ATTEND_OWN && p == t.newest) w[r] *= own.value_scales[0];
		else if (p >= t.lo && p < t.hi) w[r] *= *cache.scales<false>(t.vector + p);
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

#if ATTEND_PAGED
// Says of each query the logarithm of a page's sum, and begins the next page.
template <typename Put> NSTF_DEVICE void end_page(totals& all, int lane, Put put) {
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int g = (r * NSTF_WAVE + lane) / TILE;
		const f32 s = wave_sum<TILE>(all.page_sum[r]);
		if (lane % TILE == 0) put(g, all.page_top[r] + log_f32(s));
		all.page_top[r] = ATTEND_NONE, all.page_sum[r] = 0;
	}
}
#endif

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

// Scores of a tile: those of keys that were loaded, or of keys in half precision.
NSTF_DEVICE void score_tile(scored&, f32* lds, const vectors& key, const kv_cache& cache, const stored_pair& own, const tile& t, const queries& q, int lane) {
#if KV_CODED
	if (t.near) { // a step at a time where other tiles take registers
		constexpr int depth = ATTEND_SCORES ? DEPTH : 1;
#pragma unroll 1
		for (int step = 0; step < STEPS; step += depth) score<depth>(lds, read_near<true>{cache, own, t}, q, lane, step);
		return;
	}
#endif
#pragma unroll
	for (int step = 0; step < STEPS; step += DEPTH) score<DEPTH>(lds, read_loaded{key}, q, lane, step);
}

// Multiplies earlier sums by what weigh has left, and adds a tile's values.
NSTF_DEVICE void accumulate_tile(scored&, queries& sum, const vectors& value, const kv_cache& cache, const stored_pair& own, const tile& t, const f32* lds, int lane) {
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		const f32 c = lds[TILE * PADDED + g];
#pragma unroll
		for (int i = 0; i < CHUNKS * RUN; i++) sum.v[g][i] *= c;
	}
#if KV_CODED
	if (t.near) {
		accumulate<1>(sum, read_near<false>{cache, own, t}, lds, lane);
		return;
	}
#endif
	accumulate<STEPS>(sum, read_loaded{value}, lds, lane);
}

// Adds up what the wave's teams have, and makes it the wave's record in lds[wave].
NSTF_DEVICE void put_record(f32* lds, queries& sum, const totals& all, int wave, int lane) {
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
		for (int i = 0; i < CHUNKS * RUN; i++)
#pragma unroll
			for (int m = LANES; m < NSTF_WAVE; m *= 2) sum.v[g][i] += wave_xor(sum.v[g][i], m);
	f32* record = lds + wave * ATTEND_RECORD;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const int g = (r * NSTF_WAVE + lane) / TILE;
		const f32 s = wave_sum<TILE>(all.sum[r]);
		if (lane % TILE != 0 || g >= ATTEND_QUERIES) continue;
		record[g] = all.top[r];
		record[ATTEND_QUERIES + g] = s;
	}
	if (lane >= LANES) return;
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int i = 0; i < RUN; i++)
				if (chunk_at(lane, c) + (KV_LATENT || KV_CODED ? i : 0) < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + chunk_at(lane, c) + i] = sum.v[g][c * RUN + i];
}
#endif

// Puts few records together without barriers: every thread works out for itself
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

#define ATTEND_SPLITS 64
#define ATTEND_FEW 8 // blocks whose records one thread reads at once

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
