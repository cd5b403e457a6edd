// Attention as attend.hip's, of steps of several rows, to the same bits: the shares of a row's
// positions, a block each there, are taken one after the other, and what is read next is on its
// way to LDS meanwhile.
//
// Arguments, defines and layouts as attend.hip's without ATTEND_TURN: the rows' own keys and values
// are in the cache. Keys and values in half precision, heads of whole pieces of 8 numbers up to 256.
// ATTEND_QUERIES may be more than one row alone has in a wave: no bits depend on it. With
// ATTEND_BELOW a row whose position is at so many or more is left alone. most_shares is how many shares
// have room in records.
//
// Grid: x: blocks that take the shares of y and z by turns; y: a key-value head's part; z: a row.
// ATTEND_WAVES waves. LDS (dynamic): STEPS_LDS bytes.
//
// Phases as attend.hip's, for each share: a wave's tiles, then (4) the waves' records put together.
// A wave has room for the keys and the values of one tile, and a lane reads there what it has copied
// itself: when a tile's scores are there, the next tile's keys are sent for, also of the next share,
// and behind its sums the next values. Records of several shares go through memory, and where one
// block takes all of them nobody waits for another.
//
// Bound: the bytes of keys and values. Counted for each tile of 16 positions, 128 numbers and four
// queries: 512 fused multiplications, 128 conversions and some 400 others of a wave.
// Tolerance: that of float32 attention over the numbers as stored.
#define ATTEND_TURN 0
#define ATTEND_SETTLED 0
#include "copies.hip"
#include "attendcore.hip"

#ifndef ATTEND_BELOW
#define ATTEND_BELOW 0
#endif

// What lanes have of a tile's keys, or values: a run of each step and chunk.
constexpr int STAGE = STEPS * CHUNKS * NSTF_WAVE;
constexpr int WEIGHT_ROOM = (LDS_WAVE + 3) / 4 * 4;
constexpr int STEPS_LDS = ATTEND_WAVES * (2 * STAGE * 16 + 4 * (WEIGHT_ROOM + ATTEND_RECORD));
// Steps whose scores are added up at once: one for a lane, or for SAME lanes beside each other.
constexpr int SCORE_STEPS = least(STEPS, LANES / PADDED), SCORE_ROUNDS = STEPS / SCORE_STEPS, SAME = LANES / (SCORE_STEPS * PADDED);
static_assert(LANES >= PADDED && sizeof(run) == 16, "a lane has a score, and copies pieces of 16 bytes");
static_assert(ATTEND_QUERIES * ATTEND_WAVES <= NSTF_WAVE, "a lane has one maximum of a record");

// The query and the position of a tile that a lane has the score of.
NSTF_DEVICE int score_query(int lane) { return lane % LANES / SAME % PADDED; }
NSTF_DEVICE int score_position(int lane, int round) { return step_position(lane, round * SCORE_STEPS + lane % LANES / (SAME * PADDED)); }

// A step's place in a stage, for the first lane.
NSTF_DEVICE int staged_at(int step, int chunk) { return (step * CHUNKS + chunk) * NSTF_WAVE; }

struct read_staged {
	const run* stage;
	NSTF_MEMBER f32 operator()(f32 (&x)[RUN], int step, int chunk, int lane) const {
		numbers(x, stage[staged_at(step, chunk) + lane], chunk_at(lane, chunk));
		return 1.0f;
	}
};

// Sends for what a lane has of a tile's keys or values; zeros beyond its reach. One group of copies.
template <bool Key> NSTF_DEVICE void send_for(run* stage, const kv_cache& cache, const tile& t, int lane) {
	constexpr bool all_lanes = LANES * RUN * CHUNKS == KV_PADDED;
	const kv_element* from = cache.vector<Key>(t.vector + step_position(lane, 0)) + chunk_at(lane, 0);
	run* to = stage + lane;
	auto send = [&](int d, int c, bool exists) {
		const void* piece = from + d * TEAMS * KV_STRIDE + c * LANES * RUN;
#if MATRIX_COPIES
		matrix_copy(to + staged_at(d, c), piece, exists);
#else
		if (exists) to[staged_at(d, c)] = *(const run*)piece;
		else to[staged_at(d, c)] = run{};
#endif
	};
	if (t.lo == 0 && t.hi == TILE) {
#pragma unroll
		for (int d = 0; d < STEPS; d++)
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) send(d, c, all_lanes || chunk_at(lane, c) < KV_PADDED);
	} else if (t.hi != 0) {
#pragma unroll 1
		for (int d = 0; d < STEPS; d++)
			for (int c = 0; c < CHUNKS; c++) send(d, c, step_position(lane, d) >= t.lo && step_position(lane, d) < t.hi && chunk_at(lane, c) < KV_PADDED);
	}
#if MATRIX_COPIES
	matrix_copy_end();
#endif
}

// Waits until all but the last group of this lane's copies are there.
NSTF_DEVICE void wait_for_copies() {
#if MATRIX_COPIES
	matrix_copy_wait<1>();
#endif
}

// A query's running maximum, and the sums of the positions that this lane has.
struct step_totals {
	f32 top, sum[SCORE_ROUNDS];
};

// The maximum, and the sum, over the lanes that have a query: as attendcore.hip's over a tile's positions.
template <typename Both> NSTF_DEVICE f32 over_positions(f32 v, Both both) {
#pragma unroll
	for (int m = LANES / 2; m >= SAME * PADDED; m /= 2) v = both(v, wave_xor(v, m));
#pragma unroll
	for (int m = NSTF_WAVE / 2; m >= LANES; m /= 2) v = both(v, wave_xor(v, m));
	return v;
}

// Turns scores into weights lds[position][PADDED], as attendcore.hip's weigh, and returns what earlier sums
// of this lane's query are to be multiplied with.
NSTF_DEVICE f32 weigh_scores(const f32 (&scores)[SCORE_ROUNDS], f32* lds, step_totals& all, const tile& t, int lane, f32 scale, f32 softcap) {
	f32 z[SCORE_ROUNDS], highest = -NSTF_INFINITY;
#pragma unroll
	for (int r = 0; r < SCORE_ROUNDS; r++) {
		const int p = score_position(lane, r);
		z[r] = scores[r] * scale;
		if (ATTEND_CAP) z[r] = softcap * tanh_f32(z[r] / softcap);
		z[r] = p >= t.lo && p < t.hi ? z[r] : -NSTF_INFINITY;
		highest = wave_max_of(z[r], highest);
	}
	const f32 top = wave_max_of(over_positions(highest, wave_max_of), all.top), factor = exp_f32(all.top - top);
#pragma unroll
	for (int r = 0; r < SCORE_ROUNDS; r++) {
		const f32 w = exp_f32(z[r] - top);
		all.sum[r] = all.sum[r] * factor + w;
		lds[score_position(lane, r) * PADDED + score_query(lane)] = w;
	}
	all.top = top;
	return factor;
}

// Half of what so many lanes hold is added up by each of two, M apart: Teams times.
template <int M, int Teams, int Count> struct team_sums {
	static __device__ __forceinline__ void run(f32* v, int lane) {
		const bool upper = lane & M;
#pragma unroll
		for (int i = 0; i < Count / 2; i++) {
			const f32 low = v[i], high = v[i + Count / 2];
			v[i] = (upper ? high : low) + wave_xor(upper ? low : high, M);
		}
		team_sums<M * 2, Teams / 2, Count / 2>::run(v, lane);
	}
	// The first that a lane is left with.
	static __device__ __forceinline__ int first(int lane) { return (lane & M ? Count / 2 : 0) + team_sums<M * 2, Teams / 2, Count / 2>::first(lane); }
};
template <int M, int Count> struct team_sums<M, 1, Count> {
	static __device__ __forceinline__ void run(f32*, int) {}
	static __device__ __forceinline__ int first(int) { return 0; }
};

// Makes what the wave has its record in lds[wave], as attendcore.hip's put_record. A barrier comes first, none last.
NSTF_DEVICE void put_step(f32* lds, value_sums& sum, const step_totals& all, int wave, int lane) {
	constexpr int numbers = ATTEND_QUERIES * CHUNKS * RUN;
	static_assert(CHUNKS == 1 && numbers % TEAMS == 0, "a team is left with as many as the others");
	constexpr int some = least(common_power(numbers / TEAMS, 4), least(common_power(ATTEND_RECORD, 4), common_power(2 * ATTEND_QUERIES, 4)));
	typedef team_sums<LANES, TEAMS, numbers> adding_up;
	f32 v[numbers], s = all.sum[0];
#pragma unroll
	for (int i = 0; i < numbers; i++) v[i] = sum.v[i / RUN][i % RUN];
	adding_up::run(v, lane);
	static_assert(SCORE_ROUNDS <= 2, "the highest bit of a position is the round's");
	if (SCORE_ROUNDS == 2) s += all.sum[SCORE_ROUNDS - 1];
	s = over_positions(s, [](f32 a, f32 b) { return a + b; });
	__syncthreads();
	f32* record = lds + wave * ATTEND_RECORD;
	const int g = score_query(lane), first = adding_up::first(lane);
	if (lane < SAME * PADDED && lane % SAME == 0 && g < ATTEND_QUERIES) record[g] = all.top, record[ATTEND_QUERIES + g] = s;
	if (chunk_at(lane, 0) >= KV_VALUE) return;
#pragma unroll
	for (int i = 0; i < numbers / TEAMS; i += some) {
		const int n = first + i;
		pack<f32, some> x;
#pragma unroll
		for (int j = 0; j < some; j++) x.v[j] = v[i + j];
		*(pack<f32, some>*)(record + 2 * ATTEND_QUERIES + n / RUN * KV_VALUE + chunk_at(lane, 0) + n % RUN) = x;
	}
}

// Puts the waves' records together, as few_together; factors are worked out once, a lane for each.
template <typename Put> NSTF_DEVICE void waves_together(const f32* records, Put put) {
	const int lane = threadIdx.x % NSTF_WAVE, query = least(lane / ATTEND_WAVES, ATTEND_QUERIES - 1), first = query * ATTEND_WAVES;
	const f32* mine = records + lane % ATTEND_WAVES * ATTEND_RECORD + query;
	const f32 own_top = mine[0], own_sum = mine[ATTEND_QUERIES];
	const f32 top = wave_max<ATTEND_WAVES>(wave_max_of(own_top, ATTEND_NONE)), factor = exp_f32(own_top - top);
	f32 sum = 0;
#pragma unroll
	for (int j = 0; j < ATTEND_WAVES; j++) sum = fmaf(wave_get(factor, first + j), wave_get(own_sum, first + j), sum);
#pragma unroll
	for (int from = 0; from < ATTEND_QUERIES * KV_VALUE; from += THREADS) {
		const int i = from + threadIdx.x, number = least(i, ATTEND_QUERIES * KV_VALUE - 1), g = number / KV_VALUE;
		f32 acc = 0;
#pragma unroll
		for (int j = 0; j < ATTEND_WAVES; j++) acc = fmaf(wave_get(factor, g * ATTEND_WAVES + j), records[j * ATTEND_RECORD + 2 * ATTEND_QUERIES + number], acc);
		const f32 all_top = wave_get(top, g * ATTEND_WAVES), all_sum = wave_get(sum, g * ATTEND_WAVES);
		if (i == number) put(g, number % KV_VALUE, acc, all_top, all_sum);
	}
}

NSTF_KERNEL void __launch_bounds__(THREADS, 2)
nstf_attend_steps(const f32* q, f32* out, SINK_PARAMETER int heads, int kv_heads, int window, f32 scale, f32 softcap, int most_shares, KV_PARAMETERS, ROWS_PARAMETERS, u32* counters, f32* records) {
	extern __shared__ __align__(16) u8 room[];
	__shared__ merging merge;
	__shared__ bool last;
	begin_early();
	const kv_cache cache = KV_CACHE;
	const int row = blockIdx.z, position = positions[row], head = blockIdx.y / ATTEND_PARTS, part = blockIdx.y % ATTEND_PARTS;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (position < 0 || ATTEND_BELOW && position >= ATTEND_BELOW) return;
	const int lo = first_seen(position + 1, window);
	const int first_tile = lo / TILE, tiles = position / TILE + 1 - first_tile;
	const int each = most(ATTEND_LEAST / TILE, (tiles + ATTEND_SPREAD - 1) / ATTEND_SPREAD), shares = (tiles + each - 1) / each;
	if (blockIdx.x >= shares) return;
	pages += owners[row] * (i64)max_pages;
	const i64 first_head = (i64)row * heads + head * ATTEND_GROUP + part * ATTEND_QUERIES;
	const int here = least(ATTEND_QUERIES, ATTEND_GROUP - part * ATTEND_QUERIES); // queries of this part

	run *key_stage = (run*)room + wave * (2 * STAGE), *value_stage = key_stage + STAGE;
	f32 *wave_records = (f32*)((run*)room + ATTEND_WAVES * (2 * STAGE)), *own = wave_records + ATTEND_WAVES * ATTEND_RECORD + wave * WEIGHT_ROOM;

	// A wave's tiles: every ATTEND_WAVES-th of a share, share by share.
	struct place {
		int share, at;
	};
	auto settle = [&](place p) {
		while (p.share < shares && p.at >= least(tiles, (p.share + 1) * each)) p.share += gridDim.x, p.at = p.share * each + wave;
		return p;
	};
	auto behind = [&](place p) { return settle({p.share, p.at + ATTEND_WAVES}); };
	auto page_of = [&](place p) { return p.share < shares ? pages[kv_place((first_tile + p.at) * TILE, max_pages, false)] : 0; };
	auto tile_of = [&](place p, int page) {
		tile t = {0, 0, 0, -1, false};
		const int from = (first_tile + p.at) * TILE;
		if (p.share < shares) t = {kv_vector(page, kv_heads, head, from), most(lo - from, 0), least(position + 1 - from, TILE), -1, false};
		return t;
	};
	place at = settle({(int)blockIdx.x, (int)blockIdx.x * each + wave}), next = behind(at);
	tile now = tile_of(at, page_of(at));
	int page = page_of(next);
	send_for<true>(key_stage, cache, now, lane);
	send_for<false>(value_stage, cache, now, lane);
	queries query;
	value_sums sum;
	load_queries(query, sum, q + first_head * KV_D, here, lane);

	auto answer = [&](int g, int d, f32 acc, f32 top, f32 s) {
#if ATTEND_SINKS
		const f32 sink = sinks[head * ATTEND_GROUP + part * ATTEND_QUERIES + least(g, here - 1)], most = wave_max_of(top, sink), c = exp_f32(top - most);
		acc *= c;
		s = fmaf(c, s, exp_f32(sink - most));
#endif
		if (g < here) out[first_head * KV_VALUE + g * KV_VALUE + d] = s == 0 ? 0.0f : acc / s;
	};
	const i64 place_of = (i64)row * gridDim.y + blockIdx.y;
	records += place_of * most_shares * ATTEND_RECORD;

	for (int share = blockIdx.x; share < shares; share += gridDim.x) {
		step_totals all;
		all.top = ATTEND_NONE;
#pragma unroll
		for (int r = 0; r < SCORE_ROUNDS; r++) all.sum[r] = 0;
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
			for (int i = 0; i < CHUNKS * RUN; i++) sum.v[g][i] = 0;
		for (bool begun = false; at.share == share; begun = true) {
			f32 scores[SCORE_ROUNDS];
			wait_for_copies();
#pragma unroll
			for (int r = 0; r < SCORE_ROUNDS; r++) {
				f32 s[SCORE_STEPS * PADDED];
				dots<SCORE_STEPS>(s, read_staged{key_stage}, query, lane, r * SCORE_STEPS);
				scores[r] = s[0];
			}
			const tile then = tile_of(next, page);
			const place later = behind(next);
			page = page_of(later);
			wave_sync();
			send_for<true>(key_stage, cache, then, lane);
			const f32 factor = weigh_scores(scores, own, all, now, lane, scale, softcap);
			wave_sync();
			wait_for_copies();
			if (begun)
#pragma unroll
				for (int g = 0; g < ATTEND_QUERIES; g++) {
					const f32 c = wave_get(factor, g * SAME);
#pragma unroll
					for (int i = 0; i < CHUNKS * RUN; i++) sum.v[g][i] *= c;
				}
			accumulate<STEPS>(sum, read_staged{value_stage}, own, lane);
			wave_sync();
			send_for<false>(value_stage, cache, then, lane);
			now = then, at = next, next = later;
		}
		put_step(wave_records, sum, all, wave, lane);
		__syncthreads();
		if (shares == 1) {
			waves_together(wave_records, answer);
			return;
		}
		f32* mine = records + (i64)share * ATTEND_RECORD;
		waves_together(wave_records, [&](int g, int d, f32 acc, f32 top, f32 s) {
			mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
			if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
		});
	}
	const int blocks = least(shares, gridDim.x);
	if (blocks > 1) {
		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0) {
			last = atomicAdd(counters + place_of, 1u) == (u32)blocks - 1;
			if (last) counters[place_of] = 0;
		}
		__syncthreads();
		if (!last) return;
		__threadfence();
	} else {
		__syncthreads();
	}
	if (shares <= ATTEND_FEW) few_together<ATTEND_FEW>(records, shares, answer);
	else together(records, shares, merge, answer);
}
