// Attention of single rows over some pages of their sequences (follow.hip), in two launches, or three without PAGES_LAST.
// With PAGES_PHASE 0: what is known before pages are chosen,
//
//	foretold[page] = ln 64 + scale * dot(q, mean) + 0.35 * scale^2 * dot(q^2, spread)
//	logs[page]     = foretold[page] + 0.5 * history[page], 1 <= page < known
//	logs[page]     = log of the sum of e^score over the page's positions, of the other pages
//
// With PAGES_PHASE 1 the records of the pages that are read in any case and of those that are
// chosen, of the rest where all is read, and of the means that stand for it. What is read has its
// logarithm in logs then. With PAGES_LAST 1 blocks do what there is of each kind, and of a part's blocks
// the one that comes last settles: it puts their records together into out f32[T][heads][KV_VALUE], adds to
// counts u64[2] the pages that were read and those there are, and where all was read says the squared errors
// without and with means. Otherwise, where that takes too many registers, a block has one kind, and
// PAGES_PHASE 2 settles.
//
// Arguments as attend.hip's, of finished queries q f32[T][heads][KV_D]. With ATTEND_TURN 1, of phase 0, the work of
// rope.hip is done on the way, as in attend.hip: finished queries go into turned, like q but turned as the format
// turns, from where phase 1 with PAGES_TURNED 1 takes them. Rows are of different sequences then. records
// f32[T][kv_heads * ATTEND_PARTS][3][PAGES_SPLITS][ATTEND_RECORD]: of what is read in any step, of the rest,
// of means. Summaries, and the table of pages, were there before the launch before this one began.
//
// Grid: x: phase 0: PAGES_ALWAYS for the pages that are read in any case, one that stores the row's own key and value
// where it is turned here, and a block for each PAGES_FORETOLD pages; phase 1: PAGES_SPLITS; phase 2: 1; y as
// attend.hip, in phase 1 without PAGES_LAST three times: for pages that any step reads, for the rest, for means; z as
// attend.hip. Blocks that have nothing to do end at once. ATTEND_WAVES waves, each of which goes through whole pages,
// and with PAGES_LAST ATTEND_BESIDE that add up means. LDS: as attend.hip, or a record of each wave. Deterministic.
//
// A wave foretells pages by teams of FORETELL_LANES lanes, each of which holds 8 numbers of
// FORETELL_STEPS pages, whose sums are added up together.
//
// Bound: the bytes of pages that are read, and of summaries: 3 halves for each number of a key. On an H200 a
// page that was asked for as a whole, to come near while its first tile is computed, took 0.2 to 1.9 microseconds more.
// Tolerance: that of float32 attention over the pages that are read.
#define ATTEND_PAGED 1
#ifndef PAGES_LAST
#define PAGES_LAST 0
#endif
#ifndef ATTEND_TURN
#define ATTEND_TURN 0
#endif
#ifndef PAGES_TURNED
#define PAGES_TURNED 0
#endif
#define ATTEND_SETTLED 0
#define ATTEND_SCORES (PAGES_PHASE == 0)
#include "attendcore.hip"
#include "attendturn.hip"
#include "follow.hip"

constexpr int PAGE_TILES = 64 / TILE;
#define PAGES_AHEAD (ATTEND_MATRIX && (KV_FORMAT == 2 || KV_FORMAT == 4)) // values are read a tile ahead: q8 and q4 take few registers, others were not measured
#define PAGES_ALWAYS (1 + FOLLOW_RECENT)
// Blocks of a unit that registers are limited for: of phase 0 there are more than an H200 has units.
#if defined(NSTF_CUDA) && PAGES_PHASE == 0
#define PAGES_RESIDENT 2
#else
#define PAGES_RESIDENT 1
#endif
#define PAGES_STORE ATTEND_OWN // blocks that store the row's own key and value
// A lane's pairs of a summary's numbers.
constexpr int SUMMARY_PAIRS = (FOLLOW_D / 2 + NSTF_WAVE - 1) / NSTF_WAVE;

// A part of a key-value head's queries.
struct pages_part {
	int row, head, part, position, here;
	const i32* table; // the sequence's pages
	f32 *logs, *foretold; // of the part's first query
	const follow_page* list;
};

// A wave goes through every ATTEND_WAVES-th of the block's pages, which are every PAGES_SPLITS-th of
// pages page_of(0) to page_of(end-1); its first is here.
template <typename Page> NSTF_DEVICE void attend_some(const pages_part& t, const kv_cache& cache, int kv_heads, int max_pages, f32 scale, f32 softcap, f32* lds, const queries& query, value_sums& sum, totals& all, int end, follow_page x, Page page_of) {
	constexpr int step = ATTEND_WAVES * PAGES_SPLITS;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32* own = lds + wave * LDS_WAVE;
	const stored_pair& none = *(const stored_pair*)lds; // nothing is newer than the cache
	scored s;
	clear_totals(all);
#if KV_CODED
	auto near_of = [&](int page) { return kv_is_near(t.position, page * 64); };
#else
	auto near_of = [&](int) { return false; };
#endif
	// Which page of the cache it is: of those in half precision, the table's other half says.
	auto find = [&](follow_page& of) {
		if (KV_CODED && of.page >= 0 && near_of(of.page)) of.physical = t.table[kv_place(of.page * 64, max_pages, true)];
	};
	auto tile_of = [&](const follow_page& of, int sub) {
		tile now = {0, 0, 0, -1, false};
		const int from = of.page * 64 + sub * TILE;
		if (of.page >= 0) now = {kv_vector(of.physical, kv_heads, t.head, from), 0, least(t.position + 1 - from, TILE), -1, near_of(of.page)};
		return now;
	};
	keys_loaded key;
	values_loaded value;
	int i = blockIdx.x + wave * PAGES_SPLITS, sub = 0;
	find(x);
	tile now = tile_of(x, 0);
	load<true>(key, cache, none, now, lane);
	if (PAGES_AHEAD) load<false>(value, cache, none, now, lane);
	follow_page ahead = {-1, 0};
	if (i + step < end) ahead = page_of(i + step);
	find(ahead);
	while (x.page >= 0) {
		if (!PAGES_AHEAD) load<false>(value, cache, none, now, lane);
		score_tile(s, own, key, cache, none, now, query, lane);
		const bool last = sub + 1 == PAGE_TILES;
		const tile next = last ? tile_of(ahead, 0) : tile_of(x, sub + 1);
		load<true>(key, cache, none, next, lane);
		values_loaded behind;
		if (PAGES_AHEAD) load<false>(behind, cache, none, next, lane);
		wave_sync();
		weigh(s, own, all, cache, none, now, lane, scale, softcap);
		accumulate_tile(s, sum, value, cache, none, now, own, lane);
		wave_sync();
		if (PAGES_AHEAD) value = behind;
		now = next;
		sub = last ? 0 : sub + 1;
		if (!last) continue;
		end_page(all, lane, [&](int g, f32 log) {
			if (g < t.here) t.logs[(i64)g * max_pages + x.page] = log;
		});
		i += step;
		x = ahead, ahead.page = -1;
		if (i + step < end) ahead = page_of(i + step);
		find(ahead);
	}
}

// A block makes one record of those of some waves, in LDS.
template <int Waves> NSTF_DEVICE void put_together(f32* record, const f32* from) {
	few_together<Waves>(from, Waves, [&](int g, int d, f32 acc, f32 top, f32 s) {
		record[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) record[g] = top, record[ATTEND_QUERIES + g] = s;
	});
}

// The pair of halves that a lane has of a round, 0 behind the last.
NSTF_DEVICE u32 summary_pair(const u16* v, int lane, int round) {
	const int at = lane + round * NSTF_WAVE;
	return at < FOLLOW_D / 2 ? ((const u32*)v)[at] : 0;
}

#if PAGES_PHASE == 0
constexpr int FORETELL_LANES = least(32, power_above(FOLLOW_D / 8)), FORETELL_TEAMS = NSTF_WAVE / FORETELL_LANES;
constexpr int FORETELL_CHUNKS = (FOLLOW_D / 8 + FORETELL_LANES - 1) / FORETELL_LANES;
constexpr int FORETELL_STEPS = FORETELL_CHUNKS > 1 ? 1 : most(1, least(4, 32 / PADDED));
constexpr int FORETELL_SUMS = FORETELL_STEPS * PADDED, FORETELL_KEPT = most(1, FORETELL_SUMS / FORETELL_LANES);

constexpr int FORETELL_SAME = FORETELL_LANES / least(FORETELL_SUMS, FORETELL_LANES); // lanes that end with one sum

// What a lane has of the summaries of some pages, and of those whose sums it ends with whether they are not finite.
struct summaries_part {
	pack<u32, 4> mean[FORETELL_STEPS][FORETELL_CHUNKS], spread[FORETELL_STEPS][FORETELL_CHUNKS];
	u16 odd[FORETELL_KEPT];
};

// The page of a step that this lane's team has, of those from first on.
NSTF_DEVICE int foretold_page(int first, int step) {
	return first + (int)threadIdx.x / NSTF_WAVE * (FORETELL_STEPS * FORETELL_TEAMS) + step * FORETELL_TEAMS + (int)threadIdx.x % NSTF_WAVE / FORETELL_LANES;
}

// The number of a sum that this lane ends with, among its team's.
NSTF_DEVICE int foretold_index(int i) {
	const int in = threadIdx.x % FORETELL_LANES;
	return FORETELL_SUMS >= FORETELL_LANES ? in * FORETELL_KEPT + i : in / FORETELL_SAME;
}
NSTF_DEVICE int foretold_sum_page(int first, int i) { return foretold_page(first, foretold_index(i) / PADDED); }

NSTF_DEVICE void load_summaries(summaries_part& to, const u16* summaries, const i32* table, int kv_heads, int head, int first, int end) {
	const int lane = threadIdx.x % FORETELL_LANES;
	int physical[FORETELL_STEPS];
#pragma unroll
	for (int s = 0; s < FORETELL_STEPS; s++) physical[s] = foretold_page(first, s) < end ? load_settled(table + foretold_page(first, s)) : -1;
#pragma unroll
	for (int s = 0; s < FORETELL_STEPS; s++)
#pragma unroll
		for (int c = 0; c < FORETELL_CHUNKS; c++) {
			const int at = (lane + c * FORETELL_LANES) * 8;
			to.mean[s][c] = to.spread[s][c] = {};
			if (physical[s] < 0 || at >= FOLLOW_D) continue;
			const u16* from = summaries + ((i64)physical[s] * kv_heads + head) * FOLLOW_SUMMARY + at;
			to.mean[s][c] = load_settled((const pack<u32, 4>*)from);
			to.spread[s][c] = load_settled((const pack<u32, 4>*)(from + FOLLOW_D));
		}
#pragma unroll
	for (int i = 0; i < FORETELL_KEPT; i++) {
		const int page = foretold_sum_page(first, i);
		to.odd[i] = page < end ? load_settled(summaries + ((i64)load_settled(table + page) * kv_heads + head) * FOLLOW_SUMMARY + 3 * FOLLOW_D) : 0;
	}
}

// What history adds to the pages whose sums this lane ends with.
struct ratios_part {
	f32 v[FORETELL_KEPT];
};
NSTF_DEVICE void load_ratios(ratios_part& to, const f32* ratios, int first, int end) {
#pragma unroll
	for (int i = 0; i < FORETELL_KEPT; i++) to.v[i] = foretold_sum_page(first, i) < end ? 0.5f * ratios[foretold_sum_page(first, i)] : 0.0f;
}

// The waves foretell pages from first on, whose summaries are here.
NSTF_DEVICE void foretell(const pages_part& t, const summaries_part& x, const ratios_part& ratios, f32* weights, f32* told_logs, int max_pages, f32 scale, f32 softcap, const f32* lds, int first, int end) {
	const int lane = threadIdx.x % NSTF_WAVE;
	const f32 trust = 0.35f * scale;
	f32 z[FORETELL_SUMS] = {}, more[ATTEND_CAP ? FORETELL_SUMS : 1] = {};
#pragma unroll
	for (int c = 0; c < FORETELL_CHUNKS; c++) {
		const int at = (lane % FORETELL_LANES + c * FORETELL_LANES) * 8;
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
			for (int i = 0; i < 8; i++) {
				const f32 q = g < t.here && at + i < KV_D ? lds[g * KV_D + at + i] : 0.0f, tq = trust * q;
#pragma unroll
				for (int s = 0; s < FORETELL_STEPS; s++) {
					const u32 m = x.mean[s][c].v[i / 2], v = x.spread[s][c].v[i / 2];
					const f32 mean = i % 2 ? half_high(m) : half_low(m), spread = i % 2 ? half_high(v) : half_low(v);
					f32& to = z[s * PADDED + g];
					if (ATTEND_CAP) {
						to = fmaf(q, mean, to);
						f32& other = more[ATTEND_CAP ? s * PADDED + g : 0];
						other = fmaf(q * tq, spread, other);
					} else {
						to = fmaf(q, fmaf(tq, spread, mean), to);
					}
				}
			}
	}
	adding<FORETELL_LANES / 2, FORETELL_SUMS>::run(z, lane);
#if ATTEND_CAP
	adding<FORETELL_LANES / 2, FORETELL_SUMS>::run(more, lane);
#endif
#pragma unroll
	for (int i = 0; i < FORETELL_KEPT; i++) {
		const int g = foretold_index(i) % PADDED, page = foretold_sum_page(first, i);
		if (lane % FORETELL_LANES % FORETELL_SAME != 0 || g >= t.here || page >= end) continue;
		f32 told = z[i] * scale;
		if (ATTEND_CAP) told = fmaf(more[ATTEND_CAP ? i : 0], scale, softcap * tanh_f32(told / softcap));
		told += 4.158883083f;
		t.foretold[(i64)g * max_pages + page] = told;
		t.logs[(i64)g * max_pages + page] = told + ratios.v[i];
		told_logs[g * PAGES_FORETOLD + (page - 1) % PAGES_FORETOLD] = told + ratios.v[i];
		if (t.part == 0 && g == 0) weights[page] = x.odd[i] != 0 ? NSTF_NAN : 0.0f;
	}
}

// The waves go through the tiles of a page, whose newest position may be here.
NSTF_DEVICE void weigh_page(const pages_part& t, const kv_cache& cache, const stored_pair& newest, int kv_heads, int max_pages, f32 scale, f32 softcap, f32* lds, int page) {
	__shared__ f32 tops[PAGE_TILES][ATTEND_QUERIES], sums[PAGE_TILES][ATTEND_QUERIES];
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32* own = lds + wave * LDS_WAVE;
	queries query;
	value_sums sum;
	scored s;
	load_queries(query, sum, lds, t.here, lane);
	__syncthreads(); // the queries' room is used again
#if KV_CODED
	static_assert(KV_FIRST >= 1 && KV_NEWEST >= FOLLOW_RECENT - 1, "pages that are read in any case are in half precision");
#endif
	constexpr bool near = KV_CODED;
	const int physical = t.table[kv_place(page * 64, max_pages, near)];
	for (int sub = wave; sub < PAGE_TILES; sub += ATTEND_WAVES) {
		const int from = page * 64 + sub * TILE;
		const tile now = {kv_vector(physical, kv_heads, t.head, from), 0, least(t.position + 1 - from, TILE), ATTEND_OWN ? t.position - from : -1, near};
		keys_loaded key;
		load<true>(key, cache, newest, now, lane);
		score_tile(s, own, key, cache, newest, now, query, lane);
		wave_sync();
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) {
			const int p = (r * NSTF_WAVE + lane) % TILE, g = (r * NSTF_WAVE + lane) / TILE;
			f32 z = -NSTF_INFINITY;
			if (g < ATTEND_QUERIES && p < now.hi) {
				z = own[g * TILE + p] * scale;
				if (ATTEND_CAP) z = softcap * tanh_f32(z / softcap);
			}
			const f32 top = wave_max_of(wave_max<TILE>(z), ATTEND_NONE), all = wave_sum<TILE>(exp_f32(z - top));
			if (p == 0 && g < ATTEND_QUERIES) tops[sub][g] = top, sums[sub][g] = all;
		}
		wave_sync();
	}
	__syncthreads();
	for (int g = threadIdx.x; g < t.here; g += THREADS) {
		f32 top = ATTEND_NONE, all = 0;
		for (int i = 0; i < PAGE_TILES; i++) top = wave_max_of(tops[i][g], top);
		for (int i = 0; i < PAGE_TILES; i++) all = fmaf(exp_f32(tops[i][g] - top), sums[i][g], all);
		t.logs[(i64)g * max_pages + page] = top + log_f32(all);
	}
}
#elif PAGES_PHASE == 1
constexpr int MEANS_AHEAD = ATTEND_BESIDE ? 8 : 4; // means that a lane asks for at once: registers

// What a wave has of means that stand for pages.
struct means_sums {
	f32 top[ATTEND_QUERIES], sum[ATTEND_QUERIES], low[ATTEND_QUERIES][SUMMARY_PAIRS], high[ATTEND_QUERIES][SUMMARY_PAIRS];
};

// A wave adds up the means of every MEANS_WAVES-th of the pages first to end-1 of the list, as
// if each were a value whose score is the page's logarithm: as it was estimated, since others may read
// the page now. A lane weighs a page, then all lanes add up the pages' means.
NSTF_DEVICE void stand_in(const pages_part& t, means_sums& m, const u16* summaries, const f32* ratios, int kv_heads, int max_pages, int wave, int first, int end) {
	const int lane = threadIdx.x % NSTF_WAVE;
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		m.top[g] = ATTEND_NONE, m.sum[g] = 0;
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) m.low[g][r] = m.high[g][r] = 0;
	}
	for (int from = first + wave; from < end; from += MEANS_WAVES * NSTF_WAVE) {
		const int mine = from + MEANS_WAVES * lane, here = least(NSTF_WAVE, (end - from + MEANS_WAVES - 1) / MEANS_WAVES);
		const follow_page entry = mine < end ? t.list[mine] : follow_page{0, 0};
		const int page = entry.page, physical = entry.physical;
		const f32 ratio = 0.5f * ratios[page];
		f32 w[ATTEND_QUERIES];
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++) {
			const f32 z = mine < end && g < t.here ? t.foretold[(i64)g * max_pages + page] + ratio : ATTEND_NONE;
			const f32 most = wave_max_of(wave_max<NSTF_WAVE>(z), m.top[g]), c = exp_f32(m.top[g] - most);
			w[g] = mine < end ? exp_f32(z - most) : 0.0f;
			m.top[g] = most;
			m.sum[g] = fmaf(m.sum[g], c, wave_sum<NSTF_WAVE>(w[g]));
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) m.low[g][r] *= c, m.high[g][r] *= c;
		}
#pragma unroll MEANS_AHEAD
		for (int i = 0; i < here; i++) {
			const u16* s = summaries + ((i64)wave_get((u32)physical, i) * kv_heads + t.head) * FOLLOW_SUMMARY + 2 * FOLLOW_D;
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) {
				const u32 mean = summary_pair(s, lane, r);
#pragma unroll
				for (int g = 0; g < ATTEND_QUERIES; g++) {
					const f32 weight = wave_get(w[g], i);
					m.low[g][r] = fmaf(weight, half_low(mean), m.low[g][r]);
					m.high[g][r] = fmaf(weight, half_high(mean), m.high[g][r]);
				}
			}
		}
	}
}

// Makes that a record.
NSTF_DEVICE void put_means(f32* record, const means_sums& m) {
	const int lane = threadIdx.x % NSTF_WAVE;
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		if (lane == 0) record[g] = m.top[g], record[ATTEND_QUERIES + g] = m.sum[g];
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) {
			const int d = 2 * (lane + r * NSTF_WAVE);
			if (d < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + d] = m.low[g][r];
			if (d + 1 < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + d + 1] = m.high[g][r];
		}
	}
}
#endif

#include "settlepages.hip"

#if PAGES_LAST || PAGES_PHASE == 2
#define OUT_PARAMETERS f32 *out, u64 *counts, SINK_PARAMETER
constexpr int PAGES_LDS = SETTLE_LDS;
#else
#define OUT_PARAMETERS
constexpr int PAGES_LDS = 0;
#endif
#if ATTEND_TURN
#define TURNED_PARAMETER f32 *turned,
#else
#define TURNED_PARAMETER
#endif

NSTF_KERNEL void __launch_bounds__(THREADS, PAGES_RESIDENT)
nstf_attend_pages(OUT_PARAMETERS TURNED_PARAMETER TURN_PARAMETERS const f32* q, int heads, int kv_heads, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const u16* summaries, f32* records) {
	alignas(16) __shared__ f32 lds[most(most(most(ATTEND_WAVES * LDS_WAVE, (ATTEND_WAVES + ATTEND_BESIDE) * ATTEND_RECORD), (ATTEND_QUERIES + 2 * ATTEND_TURN) * KV_D), PAGES_LDS)];
#if ATTEND_TURN
	__shared__ stored_pair newest;
#elif PAGES_PHASE == 0
	const stored_pair& newest = *(const stored_pair*)lds;
#endif
	let_next_begin();
	const int row = blockIdx.z, each_kind = gridDim.y / (PAGES_PHASE == 1 && !PAGES_LAST ? 3 : 1), y = blockIdx.y % each_kind;
	if (!follows(positions, owners, row, least_positions, rank)) {
		wait_for_inputs(); // though no row of the launch may follow: what comes behind waits for this one alone
		return;
	}
	const kv_cache cache = KV_CACHE;
	const int owner = load_settled(owners + row);
	pages_part t = {row, y / ATTEND_PARTS, y % ATTEND_PARTS, load_settled(positions + row)};
	t.here = least(ATTEND_QUERIES, ATTEND_GROUP - t.part * ATTEND_QUERIES);
	t.table = pages + owner * (i64)max_pages;
	const i64 first_query = (i64)row * heads + t.head * ATTEND_GROUP + t.part * ATTEND_QUERIES, kv_head = (i64)row * kv_heads + t.head;
	t.logs = logs + first_query * max_pages, t.foretold = foretold + first_query * max_pages, t.list = lists + kv_head * max_pages;
	const int known = known_of(t.position), always = 1 + pages_of(t.position) - known, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const f32* ratios = histories + ((i64)owner * history_heads + t.head) * (FOLLOW_HEADER + max_pages) + FOLLOW_HEADER;
#if ATTEND_TURN // of queries, and where they are asked for the row's own key and value
	const turning how = TURNING;
	auto turn_some = [&](int here, bool own, bool writes) {
		turn_heads(lds, newest, how, q + (i64)row * q_stride + (t.head * ATTEND_GROUP + t.part * ATTEND_QUERIES) * KV_D, row, t.head, here, own, writes, cache,
			kv_vector(t.table[kv_place(t.position, max_pages, false)], kv_heads, t.head, t.position), kv_vector(t.table[kv_place(t.position, max_pages, KV_CODED)], kv_heads, t.head, t.position));
	};
	auto take_queries = [&] { turn_some(t.here, ATTEND_OWN && blockIdx.x == always - 1, false); };
#else
	auto take_queries = [&] {
		for (int h = wave; h < t.here; h += THREADS / NSTF_WAVE) {
			for (int i = lane; i < KV_D; i += NSTF_WAVE) lds[h * KV_D + i] = load_settled(q + (first_query + h) * KV_D + i);
			if (!PAGES_TURNED) kv_turn<KV_D>(lds + h * KV_D);
		}
		__syncthreads();
	};
#endif
#if PAGES_PHASE == 0
	if (blockIdx.x < PAGES_ALWAYS) {
		if (blockIdx.x >= always) return;
		wait_for_inputs();
		take_queries();
#if ATTEND_TURN
		if (blockIdx.x == 0)
			for (int i = threadIdx.x; i < t.here * KV_D; i += THREADS) turned[first_query * KV_D + i] = lds[i];
#endif
		weigh_page(t, cache, newest, kv_heads, max_pages, scale, softcap, lds, always_page(blockIdx.x, known));
		return;
	}
#if PAGES_STORE
	if (blockIdx.x == PAGES_ALWAYS) {
		wait_for_inputs();
		if (t.part == 0) turn_some(0, true, true);
		return;
	}
#endif
	const int first = 1 + (blockIdx.x - PAGES_ALWAYS - PAGES_STORE) * PAGES_FORETOLD, end = least(known, first + PAGES_FORETOLD);
	if (first >= end) return;
	constexpr int step = ATTEND_WAVES * FORETELL_STEPS * FORETELL_TEAMS;
	summaries_part x;
	load_summaries(x, summaries, t.table, kv_heads, t.head, first, end);
	wait_for_inputs();
	ratios_part past;
	load_ratios(past, ratios, first, end);
	take_queries();
	__shared__ f32 told_logs[ATTEND_QUERIES * PAGES_FORETOLD];
	for (int from = first;;) {
		foretell(t, x, past, weights + kv_head * max_pages, told_logs, max_pages, scale, softcap, lds, from, end);
		from += step;
		if (from >= end) break;
		load_summaries(x, summaries, t.table, kv_heads, t.head, from, end);
		load_ratios(past, ratios, from, end);
	}
	__syncthreads();
	for (int g = wave; g < t.here; g += ATTEND_WAVES) {
		constexpr int rounds = (PAGES_FORETOLD + NSTF_WAVE - 1) / NSTF_WAVE;
		f32 z[rounds], top = FOLLOW_NONE, sum = 0;
#pragma unroll
		for (int r = 0; r < rounds; r++) {
			const int i = r * NSTF_WAVE + lane;
			z[r] = i < end - first ? told_logs[g * PAGES_FORETOLD + i] : -NSTF_INFINITY;
			top = wave_max_of(z[r], top);
		}
		top = wave_max<NSTF_WAVE>(top);
#pragma unroll
		for (int r = 0; r < rounds; r++) sum += exp_f32(z[r] - top);
		sum = wave_sum<NSTF_WAVE>(sum);
		f32* to = partials + ((first_query + g) * partial_places(max_pages) + first / PAGES_FORETOLD) * 2;
		if (lane == 0) to[0] = top, to[1] = sum;
	}
#else
	const int n = known - 1;
	const i64 share = (i64)row * each_kind + y;
	records += share * (3 * PAGES_SPLITS) * ATTEND_RECORD;
#if PAGES_PHASE == 1
	const int mine = (int)blockIdx.x + wave * PAGES_SPLITS;
	const bool attends = wave < ATTEND_WAVES, means = wave >= ATTEND_WAVES || !ATTEND_BESIDE;
	queries query;
	value_sums sum;
	totals all;
	means_sums middle;
#if PAGES_LAST // queries were there before the launch before this one let it begin
	take_queries();
	load_queries(query, sum, lds, t.here, lane);
	const int first_kind = 0, end_kind = 2; // means with what any step reads
#else
	const int first_kind = blockIdx.y / each_kind, end_kind = first_kind + 1;
#endif
	wait_for_inputs();
	const follow_plan plan = plans[kv_head];
	int place = first_kind == 0 ? -always : plan.chosen; // of the list, below 0 of pages that are read in any case
	auto page_of = [&](int i) {
		const int j = i + place;
		if (j >= 0) return t.list[j];
		const int page = always_page(j + always, known);
		return follow_page{page, t.table[page]};
	};
	follow_page x = {-1, 0};
	if (PAGES_LAST && attends && mine < always + n) x = page_of(mine); // while the plan is read
	auto record = [&](int kind) { return records + (kind * PAGES_SPLITS + blockIdx.x) * ATTEND_RECORD; };
#pragma unroll 1
	for (int kind = first_kind; kind < end_kind; kind++) {
		const int count = follow_count(plan, kind, n, always), means_kind = PAGES_LAST ? kind + 2 : kind; // of kinds 0 to 2
		const int stand = means_kind == 2 ? follow_count(plan, 2, n, always) : 0;
		const bool reads = kind < 2 && (int)blockIdx.x < follow_blocks(kind, count), stands = (int)blockIdx.x < follow_blocks(2, stand);
		if (!reads && !stands) continue;
		if (kind > 0) __syncthreads(); // queries' and records' room is used again
		if (kind == 1) place = plan.chosen;
		if ((!PAGES_LAST || kind == 1) && attends && mine < count) x = page_of(mine);
		if (mine >= count) x.page = -1;
		if (reads && (!PAGES_LAST || kind == 1)) {
			take_queries();
			load_queries(query, sum, lds, t.here, lane);
			if (!ATTEND_MATRIX) __syncthreads(); // scores come there
		}
		auto add_means = [&] {
			const int each = follow_means(stand), first = blockIdx.x * each;
			stand_in(t, middle, summaries, ratios, kv_heads, max_pages, wave % MEANS_WAVES, plan.chosen + first, plan.chosen + least(stand, first + each));
		};
		auto attend = [&] { attend_some(t, cache, kv_heads, max_pages, scale, softcap, lds, query, sum, all, count, x, page_of); };
#if PAGES_LAST
		if (stands && means) add_means();
		if (reads && attends) attend();
		__syncthreads();
		if (reads && attends) put_record(lds, sum, all, wave, lane);
		if (stands && means) put_means(lds + wave * ATTEND_RECORD, middle);
#else // apart, for registers
		if (reads) {
			attend();
			__syncthreads();
			put_record(lds, sum, all, wave, lane);
		} else {
			add_means();
			__syncthreads();
			put_means(lds + wave * ATTEND_RECORD, middle);
		}
#endif
		__syncthreads();
		if (reads) put_together<ATTEND_WAVES>(record(kind), lds);
		if (stands) put_together<MEANS_WAVES>(record(2), lds + (ATTEND_BESIDE ? ATTEND_WAVES : 0) * ATTEND_RECORD);
	}
#else
	wait_for_inputs();
	const follow_plan plan = plans[kv_head];
#endif
#if PAGES_LAST
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) last = atomicAdd(done + share, 1u) == PAGES_SPLITS - 1;
	__syncthreads();
	if (!last) return;
	__threadfence();
#endif
#if PAGES_LAST || PAGES_PHASE == 2
	int blocks[3]; // that have records of each kind
#pragma unroll
	for (int kind = 0; kind < 3; kind++) blocks[kind] = follow_blocks(kind, follow_count(plan, kind, n, always));
#if ATTEND_SINKS
	sinks += t.head * ATTEND_GROUP + t.part * ATTEND_QUERIES;
#else
	const f32* sinks = nullptr;
#endif
	settle(out + first_query * KV_VALUE, t, records, plan, blocks, sinks, errors + 2 * share, lds);
	if (threadIdx.x != 0 || t.part != 0) return;
	atomicAdd(counts, (u64)(plan.whole ? n + always : plan.chosen + always));
	atomicAdd(counts + 1, (u64)(n + always));
#endif
#endif
}
