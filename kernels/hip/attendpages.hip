// Attention of single rows over some pages of their sequences (follow.hip), in two launches.
// With PAGES_PHASE 0: what is known before pages are chosen,
//
//	foretold[page] = ln 64 + scale * dot(q, mean) + 0.35 * scale^2 * dot(q^2, spread)
//	logs[page]     = foretold[page] + 0.5 * history[page], 1 <= page < known
//	logs[page]     = log of the sum of e^score over the page's positions, of the other pages
//
// With PAGES_PHASE 1 the records of the pages that are read in any case and of those that are
// chosen, of the rest where all is read, and of the means that stand for it. What is read has its
// logarithm in logs then. nstf_settle_pages in choosepages.hip puts records together.
//
// Arguments as attend.hip's, of finished queries q f32[T][heads][KV_D]. records
// f32[T][kv_heads * ATTEND_PARTS][3][PAGES_SPLITS][ATTEND_RECORD]: of what is read in any step, of the rest,
// of means. Summaries, and the table of pages, were there before the launch before this one began.
//
// Grid: x: phase 0: PAGES_ALWAYS for the pages that are read in any case, and a block for each PAGES_FORETOLD
// pages, a multiple of what its waves foretell at once or not; phase 1: PAGES_SPLITS; y as attend.hip, three times
// in phase 1: for pages that any step reads, for the rest, for means; z as attend.hip. Blocks that have nothing to do end at once.
// ATTEND_WAVES waves, each of which goes through whole pages. LDS: as attend.hip. Deterministic.
//
// A wave foretells pages by teams of FORETELL_LANES lanes, each of which holds 8 numbers of
// FORETELL_STEPS pages, whose sums are added up together.
//
// Bound: the bytes of pages that are read, and of summaries: 3 halves for each number of a key.
// Tolerance: that of float32 attention over the pages that are read.
#define ATTEND_PAGED 1
#define ATTEND_TURN 0
#define ATTEND_SETTLED 0
#include "attendcore.hip"
#include "follow.hip"

#ifndef PAGES_RESIDENT // blocks of a unit that registers are limited for (CUDA)
#define PAGES_RESIDENT 1
#endif
constexpr int PAGE_TILES = 64 / TILE;
#define PAGES_ALWAYS (1 + FOLLOW_RECENT)
// A lane's pairs of a summary's numbers.
constexpr int SUMMARY_PAIRS = (FOLLOW_D / 2 + NSTF_WAVE - 1) / NSTF_WAVE;

// A part of a key-value head's queries.
struct pages_part {
	int row, head, part, position, here;
	const i32* table; // the sequence's pages
	f32 *logs, *foretold; // of the part's first query
	i32* list;
};

// A wave goes through every ATTEND_WAVES-th of the pages page(first) to page(end-1).
template <typename Page> NSTF_DEVICE void attend_some(const pages_part& t, const kv_cache& cache, int kv_heads, int max_pages, f32 scale, f32 softcap, f32* lds, int first, int end, Page page) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32* own = lds + wave * LDS_WAVE;
	const stored_pair& none = *(const stored_pair*)lds; // nothing is newer than the cache
	queries query;
	value_sums sum;
	scored s;
	totals all;
	load_queries(query, sum, lds, t.here, lane);
	__syncthreads(); // the queries' room is used again
	clear_totals(all);
	auto logical_of = [&](int i) { return i < end ? page(i) : -1; };
#if KV_CODED
	auto near_of = [&](int logical) { return kv_is_near(t.position, logical * 64); };
#else
	auto near_of = [&](int) { return false; };
#endif
	auto physical_of = [&](int logical) { return logical < 0 ? 0 : t.table[kv_place(logical * 64, max_pages, near_of(logical))]; };
	auto tile_of = [&](int logical, int physical, int sub) {
		tile x = {0, 0, 0, -1, false};
		const int from = logical * 64 + sub * TILE;
		if (logical >= 0) x = {kv_vector(physical, kv_heads, t.head, from), 0, least(t.position + 1 - from, TILE), -1, near_of(logical)};
		return x;
	};
	keys_loaded key;
	values_loaded value;
	int i = first + wave, sub = 0, logical = logical_of(i), physical = physical_of(logical);
	int ahead = logical_of(i + ATTEND_WAVES), ahead_physical = physical_of(ahead);
	tile now = tile_of(logical, physical, 0);
	load<true>(key, cache, none, now, lane);
	while (logical >= 0) {
		load<false>(value, cache, none, now, lane);
		score_tile(s, own, key, cache, none, now, query, lane);
		const bool last = sub + 1 == PAGE_TILES;
		const tile next = last ? tile_of(ahead, ahead_physical, 0) : tile_of(logical, physical, sub + 1);
		load<true>(key, cache, none, next, lane);
		wave_sync();
		weigh(s, own, all, cache, none, now, lane, scale, softcap);
		accumulate_tile(s, sum, value, cache, none, now, own, lane);
		wave_sync();
		now = next;
		sub = last ? 0 : sub + 1;
		if (!last) continue;
		end_page(all, lane, [&](int g, f32 log) {
			if (g < t.here) t.logs[(i64)g * max_pages + logical] = log;
		});
		i += ATTEND_WAVES;
		logical = ahead, physical = ahead_physical;
		ahead = logical_of(i + ATTEND_WAVES), ahead_physical = physical_of(ahead);
	}
	put_record(lds, sum, all, wave, lane);
}

// The pair of halves that a lane has of a round, 0 behind the last.
NSTF_DEVICE u32 summary_pair(const u16* v, int lane, int round) {
	const int at = lane + round * NSTF_WAVE;
	return at < FOLLOW_D / 2 ? ((const u32*)v)[at] : 0;
}

// The pages that are read in any case: the first, and those from known on.
NSTF_DEVICE int always_page(int i, int known) { return i == 0 ? 0 : known + i - 1; }

#if PAGES_PHASE == 0
constexpr int FORETELL_LANES = least(32, power_above(FOLLOW_D / 8)), FORETELL_TEAMS = NSTF_WAVE / FORETELL_LANES;
constexpr int FORETELL_CHUNKS = (FOLLOW_D / 8 + FORETELL_LANES - 1) / FORETELL_LANES;
constexpr int FORETELL_STEPS = FORETELL_CHUNKS > 1 ? 1 : most(1, least(4, 32 / PADDED));
constexpr int FORETELL_SUMS = FORETELL_STEPS * PADDED, FORETELL_KEPT = most(1, FORETELL_SUMS / FORETELL_LANES);

// What a lane has of the summaries of some pages.
struct summaries_part {
	pack<u32, 4> mean[FORETELL_STEPS][FORETELL_CHUNKS], spread[FORETELL_STEPS][FORETELL_CHUNKS];
};

// The page of a step that this lane's team has, of those from first on.
NSTF_DEVICE int foretold_page(int first, int step) {
	return first + (int)threadIdx.x / NSTF_WAVE * (FORETELL_STEPS * FORETELL_TEAMS) + step * FORETELL_TEAMS + (int)threadIdx.x % NSTF_WAVE / FORETELL_LANES;
}

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
}

// The waves foretell pages from first on, whose summaries are here.
NSTF_DEVICE void foretell(const pages_part& t, const summaries_part& x, const u16* summaries, const f32* ratios, f32* weights, int kv_heads, int max_pages, f32 scale, f32 softcap, const f32* lds, int first, int end) {
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
		constexpr int same = FORETELL_LANES / least(FORETELL_SUMS, FORETELL_LANES); // lanes that end with one sum
		const int in = lane % FORETELL_LANES, index = FORETELL_SUMS >= FORETELL_LANES ? in * FORETELL_KEPT + i : in / same;
		const int g = index % PADDED, page = foretold_page(first, index / PADDED);
		if (in % same != 0 || g >= t.here || page >= end) continue;
		f32 told = z[i] * scale;
		if (ATTEND_CAP) told = fmaf(more[ATTEND_CAP ? i : 0], scale, softcap * tanh_f32(told / softcap));
		told += 4.158883083f;
		t.foretold[(i64)g * max_pages + page] = told;
		t.logs[(i64)g * max_pages + page] = told + 0.5f * ratios[page];
		if (t.part == 0 && g == 0) weights[page] = summaries[((i64)t.table[page] * kv_heads + t.head) * FOLLOW_SUMMARY + 3 * FOLLOW_D] != 0 ? NSTF_NAN : 0.0f;
	}
}

// The waves go through the tiles of a page.
NSTF_DEVICE void weigh_page(const pages_part& t, const kv_cache& cache, int kv_heads, int max_pages, f32 scale, f32 softcap, f32* lds, int page) {
	__shared__ f32 tops[PAGE_TILES][ATTEND_QUERIES], sums[PAGE_TILES][ATTEND_QUERIES];
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32* own = lds + wave * LDS_WAVE;
	const stored_pair& none = *(const stored_pair*)lds;
	queries query;
	value_sums sum;
	scored s;
	load_queries(query, sum, lds, t.here, lane);
	__syncthreads(); // the queries' room is used again
#if KV_CODED
	const bool near = kv_is_near(t.position, page * 64);
#else
	const bool near = false;
#endif
	const int physical = t.table[kv_place(page * 64, max_pages, near)];
	for (int sub = wave; sub < PAGE_TILES; sub += ATTEND_WAVES) {
		const int from = page * 64 + sub * TILE;
		const tile now = {kv_vector(physical, kv_heads, t.head, from), 0, least(t.position + 1 - from, TILE), -1, near};
		keys_loaded key;
		load<true>(key, cache, none, now, lane);
		score_tile(s, own, key, cache, none, now, query, lane);
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
#else
// A wave adds up the means of every ATTEND_WAVES-th of the pages first to end-1 of the list, as
// if each were a value whose score is the page's logarithm: as it was estimated, since others may read
// the page now. A lane weighs a page, then all lanes add up the pages' means.
NSTF_DEVICE void stand_in(const pages_part& t, const u16* summaries, const f32* ratios, int kv_heads, int max_pages, f32* lds, int first, int end) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32 top[ATTEND_QUERIES], sum[ATTEND_QUERIES], low[ATTEND_QUERIES][SUMMARY_PAIRS], high[ATTEND_QUERIES][SUMMARY_PAIRS];
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		top[g] = ATTEND_NONE, sum[g] = 0;
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) low[g][r] = high[g][r] = 0;
	}
	for (int from = first + wave; from < end; from += ATTEND_WAVES * NSTF_WAVE) {
		const int mine = from + ATTEND_WAVES * lane, here = least(NSTF_WAVE, (end - from + ATTEND_WAVES - 1) / ATTEND_WAVES);
		const int page = mine < end ? t.list[mine] : 0, physical = t.table[page];
		const f32 ratio = 0.5f * ratios[page];
		f32 w[ATTEND_QUERIES];
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++) {
			const f32 z = mine < end && g < t.here ? t.foretold[(i64)g * max_pages + page] + ratio : ATTEND_NONE;
			const f32 most = wave_max_of(wave_max<NSTF_WAVE>(z), top[g]), c = exp_f32(top[g] - most);
			w[g] = mine < end ? exp_f32(z - most) : 0.0f;
			top[g] = most;
			sum[g] = fmaf(sum[g], c, wave_sum<NSTF_WAVE>(w[g]));
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) low[g][r] *= c, high[g][r] *= c;
		}
#pragma unroll 4
		for (int i = 0; i < here; i++) {
			const u16* s = summaries + ((i64)wave_get((u32)physical, i) * kv_heads + t.head) * FOLLOW_SUMMARY + 2 * FOLLOW_D;
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) {
				const u32 mean = summary_pair(s, lane, r);
#pragma unroll
				for (int g = 0; g < ATTEND_QUERIES; g++) {
					const f32 weight = wave_get(w[g], i);
					low[g][r] = fmaf(weight, half_low(mean), low[g][r]);
					high[g][r] = fmaf(weight, half_high(mean), high[g][r]);
				}
			}
		}
	}
	__syncthreads();
	f32* record = lds + wave * ATTEND_RECORD;
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		if (lane == 0) record[g] = top[g], record[ATTEND_QUERIES + g] = sum[g];
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) {
			const int d = 2 * (lane + r * NSTF_WAVE);
			if (d < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + d] = low[g][r];
			if (d + 1 < KV_VALUE) record[2 * ATTEND_QUERIES + g * KV_VALUE + d + 1] = high[g][r];
		}
	}
}
#endif

NSTF_KERNEL void __launch_bounds__(THREADS, PAGES_RESIDENT)
nstf_attend_pages(const f32* q, int heads, int kv_heads, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const u16* summaries, f32* records) {
	alignas(16) __shared__ f32 lds[most(most(ATTEND_WAVES * LDS_WAVE, ATTEND_WAVES * ATTEND_RECORD), ATTEND_QUERIES * KV_D)];
	let_next_begin();
#if PAGES_PHASE == 1
	wait_for_inputs();
#endif
	const int row = blockIdx.z, each_kind = gridDim.y / (PAGES_PHASE == 1 ? 3 : 1), y = blockIdx.y % each_kind;
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
	auto take_queries = [&] {
		for (int h = wave; h < t.here; h += ATTEND_WAVES) {
			for (int i = lane; i < KV_D; i += NSTF_WAVE) lds[h * KV_D + i] = q[(first_query + h) * KV_D + i];
			kv_turn<KV_D>(lds + h * KV_D);
		}
		__syncthreads();
	};
#if PAGES_PHASE == 0
	if (blockIdx.x < PAGES_ALWAYS) {
		if (blockIdx.x >= always) return;
		wait_for_inputs();
		take_queries();
		weigh_page(t, cache, kv_heads, max_pages, scale, softcap, lds, always_page(blockIdx.x, known));
		return;
	}
	const int first = 1 + (blockIdx.x - PAGES_ALWAYS) * PAGES_FORETOLD, end = least(known, first + PAGES_FORETOLD);
	if (first >= end) return;
	constexpr int step = ATTEND_WAVES * FORETELL_STEPS * FORETELL_TEAMS;
	summaries_part x;
	load_summaries(x, summaries, t.table, kv_heads, t.head, first, end);
	wait_for_inputs();
	take_queries();
	for (int from = first;;) {
		foretell(t, x, summaries, ratios, weights + kv_head * max_pages, kv_heads, max_pages, scale, softcap, lds, from, end);
		from += step;
		if (from >= end) return;
		load_summaries(x, summaries, t.table, kv_heads, t.head, from, end);
	}
#else
	const follow_plan plan = plans[kv_head];
	const int kind = blockIdx.y / each_kind, count = follow_count(plan, kind, known - 1, always), each = follow_each(kind, count);
	const int first = blockIdx.x * each, end = least(count, first + each);
	if (first >= end) return;
	if (kind == 2) {
		stand_in(t, summaries, ratios, kv_heads, max_pages, lds, plan.chosen + first, plan.chosen + end);
	} else {
		take_queries();
		attend_some(t, cache, kv_heads, max_pages, scale, softcap, lds, first, end, [&](int i) {
			const int at = kind == 0 ? i - always : plan.chosen + i;
			return at < 0 ? always_page(i, known) : t.list[at];
		});
	}
	__syncthreads();
	f32* mine = records + (((i64)row * each_kind + y) * (3 * PAGES_SPLITS) + kind * PAGES_SPLITS + blockIdx.x) * ATTEND_RECORD;
	few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, [&](int g, int d, f32 acc, f32 top, f32 s) {
		mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
	});
#endif
}
