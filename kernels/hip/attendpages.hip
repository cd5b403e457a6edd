// Attention of single rows over some pages of their sequences (follow.hip), in two launches.
// With PAGES_PHASE 0: what is known before pages are chosen,
//
//	foretold[page] = ln 64 + scale * dot(q, mean) + 0.35 * scale^2 * dot(q^2, spread)
//	logs[page]     = foretold[page] + 0.5 * history[page], 1 <= page < known
//
// and the record of the pages that are read in any case. With PAGES_PHASE 1 the records of those
// that are chosen, of the means that stand for the rest, and of the rest where all is read. What
// is read has its logarithm in logs then. settlepages in choosepages.hip puts records together.
//
// Arguments as attend.hip's, of finished queries q f32[T][heads][KV_D]. records
// f32[T][kv_heads * ATTEND_PARTS][1 + 3 * PAGES_SPLITS][ATTEND_RECORD]: the first of pages that are
// read in any case, then PAGES_SPLITS each of the chosen, the rest and the means.
//
// Grid: x: phase 0: 1, and a block for each PAGES_FORETOLD pages; phase 1: 3 * PAGES_SPLITS; y, z
// as attend.hip. Blocks that have nothing to do end at once. ATTEND_WAVES waves, each of which goes through
// whole pages, or foretells one at a time. LDS: as attend.hip. Deterministic.
//
// Bound: the bytes of pages that are read, and of summaries: 3 halves for each number of a key.
// Tolerance: that of float32 attention over the pages that are read.
#define ATTEND_PAGED 1
#define ATTEND_TURN 0
#define ATTEND_SETTLED 0
#include "attendcore.hip"
#include "follow.hip"

constexpr int PAGE_TILES = 64 / TILE;
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
	queries query, sum;
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
	vectors key, value;
	int i = first + wave, sub = 0, logical = logical_of(i), physical = physical_of(logical);
	int ahead = logical_of(i + ATTEND_WAVES), ahead_physical = physical_of(ahead);
	tile now = tile_of(logical, physical, 0);
	load<true>(key, cache, none, now, lane);
	while (logical >= 0) {
		load<false>(value, cache, none, now, lane);
		score_tile(own, key, cache, none, now, query, lane);
		const bool last = sub + 1 == PAGE_TILES;
		const tile next = last ? tile_of(ahead, ahead_physical, 0) : tile_of(logical, physical, sub + 1);
		load<true>(key, cache, none, next, lane);
		wave_sync();
		weigh(own, all, cache, none, now, lane, scale, softcap);
		accumulate_tile(sum, value, cache, none, now, own, lane);
		wave_sync();
		now = next;
		sub = last ? 0 : sub + 1;
		if (!last) continue;
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) {
			const int g = (r * NSTF_WAVE + lane) / TILE;
			const f32 s = wave_sum<TILE>(all.page_sum[r]);
			if (lane % TILE == 0 && g < t.here) t.logs[(i64)g * max_pages + logical] = all.page_top[r] + log_f32(s);
			all.page_top[r] = ATTEND_NONE, all.page_sum[r] = 0;
		}
		i += ATTEND_WAVES;
		logical = ahead, physical = ahead_physical;
		ahead = logical_of(i + ATTEND_WAVES), ahead_physical = physical_of(ahead);
	}
	put_record(lds, sum, all, wave, lane);
}

NSTF_DEVICE const u16* summary_of(const u16* summaries, const pages_part& t, int kv_heads, int page) {
	return summaries + ((i64)t.table[page] * kv_heads + t.head) * FOLLOW_SUMMARY;
}

// The pair of halves that a lane has of a round, 0 behind the last.
NSTF_DEVICE u32 summary_pair(const u16* v, int lane, int round) {
	const int at = lane + round * NSTF_WAVE;
	return at < FOLLOW_D / 2 ? ((const u32*)v)[at] : 0;
}

#if PAGES_PHASE == 0
// A wave foretells every ATTEND_WAVES-th of the pages first to end-1.
NSTF_DEVICE void foretell(const pages_part& t, const u16* summaries, const f32* ratios, f32* weights, int kv_heads, int max_pages, f32 scale, f32 softcap, const f32* lds, int first, int end) {
	const int lane = threadIdx.x % NSTF_WAVE;
	f32 low[ATTEND_QUERIES][SUMMARY_PAIRS], high[ATTEND_QUERIES][SUMMARY_PAIRS];
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++)
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) {
			const int d = 2 * (lane + r * NSTF_WAVE);
			low[g][r] = g < t.here && d < KV_D ? lds[g * KV_D + d] : 0.0f;
			high[g][r] = g < t.here && d + 1 < KV_D ? lds[g * KV_D + d + 1] : 0.0f;
		}
	const f32 trust = 0.35f * scale * scale;
	for (int page = first + threadIdx.x / NSTF_WAVE; page < end; page += ATTEND_WAVES) {
		const u16* s = summary_of(summaries, t, kv_heads, page);
		u32 mean[SUMMARY_PAIRS], spread[SUMMARY_PAIRS];
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) mean[r] = summary_pair(s, lane, r), spread[r] = summary_pair(s + FOLLOW_D, lane, r);
		const bool odd = s[3 * FOLLOW_D] != 0;
		const f32 ratio = 0.5f * ratios[page];
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++) {
			f32 z = 0, more = 0;
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) {
				z = fmaf(low[g][r], half_low(mean[r]), fmaf(high[g][r], half_high(mean[r]), z));
				more = fmaf(low[g][r] * low[g][r], half_low(spread[r]), fmaf(high[g][r] * high[g][r], half_high(spread[r]), more));
			}
			z = wave_sum<NSTF_WAVE>(z) * scale;
			more = wave_sum<NSTF_WAVE>(more);
			if (ATTEND_CAP) z = softcap * tanh_f32(z / softcap);
			const f32 told = fmaf(trust, more, z) + 4.158883083f;
			if (lane != g % NSTF_WAVE || g >= t.here) continue;
			t.foretold[(i64)g * max_pages + page] = told;
			t.logs[(i64)g * max_pages + page] = told + ratio;
		}
		if (t.part == 0 && lane == 0) weights[page] = odd ? NSTF_NAN : 0.0f;
	}
}
#else
// A wave adds up the means of every ATTEND_WAVES-th of the pages first to end-1 of the list, as
// if each were a value whose score is the page's logarithm: as it was estimated, since others may read
// the page now.
NSTF_DEVICE void stand_in(const pages_part& t, const u16* summaries, const f32* ratios, int kv_heads, int max_pages, f32* lds, int first, int end) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32 top[ATTEND_QUERIES], sum[ATTEND_QUERIES], low[ATTEND_QUERIES][SUMMARY_PAIRS], high[ATTEND_QUERIES][SUMMARY_PAIRS];
#pragma unroll
	for (int g = 0; g < ATTEND_QUERIES; g++) {
		top[g] = ATTEND_NONE, sum[g] = 0;
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) low[g][r] = high[g][r] = 0;
	}
	for (int i = first + wave; i < end; i += ATTEND_WAVES) {
		const int page = t.list[i];
		const u16* s = summary_of(summaries, t, kv_heads, page) + 2 * FOLLOW_D;
		u32 mean[SUMMARY_PAIRS];
#pragma unroll
		for (int r = 0; r < SUMMARY_PAIRS; r++) mean[r] = summary_pair(s, lane, r);
#pragma unroll
		for (int g = 0; g < ATTEND_QUERIES; g++) {
			const f32 z = g < t.here ? t.foretold[(i64)g * max_pages + page] + 0.5f * ratios[page] : ATTEND_NONE;
			const f32 most = wave_max_of(z, top[g]), c = exp_f32(top[g] - most), w = exp_f32(z - most);
			top[g] = most;
			sum[g] = fmaf(sum[g], c, w);
#pragma unroll
			for (int r = 0; r < SUMMARY_PAIRS; r++) {
				low[g][r] = fmaf(w, half_low(mean[r]), low[g][r] * c);
				high[g][r] = fmaf(w, half_high(mean[r]), high[g][r] * c);
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

NSTF_KERNEL void __launch_bounds__(THREADS)
nstf_attend_pages(const f32* q, int heads, int kv_heads, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const u16* summaries, f32* records) {
	alignas(16) __shared__ f32 lds[most(most(ATTEND_WAVES * LDS_WAVE, ATTEND_WAVES * ATTEND_RECORD), ATTEND_QUERIES * KV_D)];
	begin_early();
	const int row = blockIdx.z;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const kv_cache cache = KV_CACHE;
	pages_part t = {row, (int)blockIdx.y / ATTEND_PARTS, (int)blockIdx.y % ATTEND_PARTS, positions[row]};
	t.here = least(ATTEND_QUERIES, ATTEND_GROUP - t.part * ATTEND_QUERIES);
	t.table = pages + owners[row] * (i64)max_pages;
	const i64 first_query = (i64)row * heads + t.head * ATTEND_GROUP + t.part * ATTEND_QUERIES, kv_head = (i64)row * kv_heads + t.head;
	t.logs = logs + first_query * max_pages, t.foretold = foretold + first_query * max_pages, t.list = lists + kv_head * max_pages;
	const int known = known_of(t.position), lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	int first, end, slot = 0, kind = 0;
#if PAGES_PHASE == 0
	if (blockIdx.x > 0) {
		first = most(1, (blockIdx.x - 1) * PAGES_FORETOLD), end = least(known, blockIdx.x * PAGES_FORETOLD);
	} else {
		first = 0, end = 1 + pages_of(t.position) - known;
	}
#else
	const follow_plan plan = plans[kv_head];
	kind = blockIdx.x / PAGES_SPLITS;
	const int block = blockIdx.x % PAGES_SPLITS, listed = known - 1, from = kind == 0 ? 0 : plan.chosen;
	const int count = kind == 0 ? plan.chosen : (kind == 1 ? plan.whole : plan.stand) ? listed - plan.chosen : 0;
	const int each = share_of(count, PAGES_SPLITS, kind == 2 ? 4 * ATTEND_WAVES : ATTEND_WAVES);
	first = from + block * each, end = from + least(count, (block + 1) * each);
	slot = 1 + blockIdx.x;
#endif
	if (first >= end) return;
	for (int h = wave; h < t.here; h += ATTEND_WAVES) {
		for (int i = lane; i < KV_D; i += NSTF_WAVE) lds[h * KV_D + i] = q[(first_query + h) * KV_D + i];
		kv_turn(lds + h * KV_D, KV_D);
	}
	__syncthreads();
	const f32* ratios = histories + ((i64)owners[row] * history_heads + t.head) * (FOLLOW_HEADER + max_pages) + FOLLOW_HEADER;
#if PAGES_PHASE == 0
	if (blockIdx.x > 0) {
		foretell(t, summaries, ratios, weights + kv_head * max_pages, kv_heads, max_pages, scale, softcap, lds, first, end);
		return;
	}
	attend_some(t, cache, kv_heads, max_pages, scale, softcap, lds, first, end, [&](int i) { return i == 0 ? 0 : known + i - 1; });
#else
	if (kind == 2) stand_in(t, summaries, ratios, kv_heads, max_pages, lds, first, end);
	else attend_some(t, cache, kv_heads, max_pages, scale, softcap, lds, first, end, [&](int i) { return t.list[i]; });
#endif
	__syncthreads();
	f32* mine = records + (((i64)row * gridDim.y + blockIdx.y) * (1 + 3 * PAGES_SPLITS) + slot) * ATTEND_RECORD;
	few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, [&](int g, int d, f32 acc, f32 top, f32 s) {
		mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
	});
}
