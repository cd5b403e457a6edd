// Attention of single rows over some pages of their sequences (follow.hip), in two launches.
// With PAGES_PHASE 0: what is known before pages are chosen,
//
//	foretold[page] = ln 64 + scale * dot(q, mean) + 0.35 * scale^2 * dot(q^2, spread)
//	logs[page]     = foretold[page] + 0.5 * history[page], 1 <= page < known
//	logs[page]     = log of the sum of e^score over the page's positions, of the other pages
//	parts[run]     = what logs of a run of PAGES_FORETOLD pages from page 1 on sum up to
//
// With PAGES_PHASE 1 the records of the pages that are read in any case and of those that are
// chosen, of the rest where all is read, and of the means that stand for it. What is read has its
// logarithms in logs then, those of its parts. nstf_settle_pages in choosepages.hip puts records together.
//
// Arguments as attend.hip's, of finished queries q f32[T][heads][KV_D]. records
// f32[T][kv_heads * ATTEND_PARTS][3][PAGES_SPLITS][ATTEND_RECORD]: of what is read in any step, of the rest,
// of means. Summaries, and the table of pages, were there before the launch before this one began.
//
// Grid: x: phase 0: PAGES_ALWAYS for the pages that are read in any case, and a block for each PAGES_FORETOLD
// pages, a multiple of what its waves foretell at once or not; phase 1: PAGES_SPLITS; y as attend.hip, three times
// in phase 1: for pages that any step reads, for the rest, for means; z as attend.hip. Blocks that have nothing to do end at once.
// ATTEND_WAVES waves, each of which goes through whole parts of pages; PAGES_RESIDENT blocks are to have room beside each other, 0: as many as have. LDS: as attend.hip. Deterministic.
//
// A wave foretells pages by teams of FORETELL_LANES lanes, each of which holds 8 numbers of
// FORETELL_STEPS pages, whose sums are added up together.
//
// Bound: the bytes of pages that are read, and of summaries: 3 halves for each number of a key.
// Tolerance: that of float32 attention over the pages that are read.
#define ATTEND_PAGED 1
#define ATTEND_TURN 0
#define ATTEND_SETTLED 0
#define ATTEND_SCORES (PAGES_PHASE == 0)
#include "attendcore.hip"
#include "follow.hip"

constexpr int PAGE_TILES = 64 / TILE, PART_TILES = PAGE_TILES / FOLLOW_PARTS;
#define PAGES_ALWAYS (1 + FOLLOW_RECENT)
#define PAGES_VALUES (ATTEND_MATRIX && KV_FORMAT >= 2) // a tile's values are asked for before its scores are needed: few registers
// A lane's pairs of a summary's numbers.
constexpr int SUMMARY_PAIRS = (FOLLOW_D / 2 + NSTF_WAVE - 1) / NSTF_WAVE;

// A part of a key-value head's queries.
struct pages_part {
	int row, head, part, position, here;
	const i32* table; // the sequence's pages
	f32 *logs, *foretold; // of the part's first query
	const follow_page* list;
};

// A wave goes through every ATTEND_WAVES-th of the block's parts of pages, which are every PAGES_SPLITS-th of parts
// 0 to end-1; its first is here. take brings queries to LDS, by all waves, and ends with a barrier.
template <typename Part, typename Take> NSTF_DEVICE void attend_some(const pages_part& t, const kv_cache& cache, int kv_heads, int max_pages, f32 scale, f32 softcap, f32* lds, int end, follow_page x, Part part_of, Take take) {
	constexpr int step = ATTEND_WAVES * PAGES_SPLITS;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	f32* own = lds + wave * LDS_WAVE;
	const stored_pair& none = *(const stored_pair*)lds; // nothing is newer than the cache
	queries query;
	value_sums sum;
	scored s;
	totals all;
	clear_totals(all);
#if KV_CODED
	auto near_of = [&](int page) { return kv_is_near(t.position, page * 64); };
#else
	auto near_of = [&](int) { return false; };
#endif
	// Which page of the cache it is: of those in half precision, the table's other half says.
	auto find = [&](follow_page& x) {
		if (KV_CODED && x.page >= 0 && near_of(x.page)) x.physical = t.table[kv_place(x.page * 64, max_pages, true)];
	};
	auto tile_of = [&](const follow_page& of, int i, int sub) {
		tile x = {0, 0, 0, -1, false};
		const int from = of.page * 64 + (i % FOLLOW_PARTS * PART_TILES + sub) * TILE;
		if (of.page >= 0) x = {kv_vector(of.physical, kv_heads, t.head, from), 0, least(t.position + 1 - from, TILE), -1, near_of(of.page)};
		return x;
	};
	keys_loaded key;
	values_loaded value;
	int i = blockIdx.x + wave * PAGES_SPLITS, sub = 0;
	find(x);
	tile now = tile_of(x, i, 0);
#if ATTEND_MATRIX // elsewhere they would take registers too many
	load<true>(key, cache, none, now, lane);
	if (PAGES_VALUES) load<false>(value, cache, none, now, lane);
#endif
	follow_page ahead = {-1, 0};
	if (i + step < end) ahead = part_of(i + step);
	take();
	load_queries(query, sum, lds, t.here, lane);
	__syncthreads(); // the queries' room is used again
#if !ATTEND_MATRIX
	load<true>(key, cache, none, now, lane);
#endif
	find(ahead);
	while (x.page >= 0) {
		if (!PAGES_VALUES) load<false>(value, cache, none, now, lane);
		score_tile(s, own, key, cache, none, now, query, lane);
		const bool last = sub + 1 == PART_TILES;
		const tile next = last ? tile_of(ahead, i + step, 0) : tile_of(x, i, sub + 1);
		load<true>(key, cache, none, next, lane);
		wave_sync();
		weigh(s, own, all, cache, none, now, lane, scale, softcap);
		accumulate_tile(s, sum, value, cache, none, now, own, lane);
		wave_sync();
		now = next;
		if (PAGES_VALUES) load<false>(value, cache, none, now, lane);
		sub = last ? 0 : sub + 1;
		if (!last) continue;
		end_page(all, lane, [&](int g, f32 log) {
			if (g < t.here) t.logs[(i64)(FOLLOW_PARTS * g + i % FOLLOW_PARTS) * max_pages + x.page] = log;
		});
		i += step;
		x = ahead, ahead.page = -1;
		if (i + step < end) ahead = part_of(i + step);
		find(ahead);
	}
	put_record(lds, sum, all, wave, lane);
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

// Says a page's logarithm, in one part.
NSTF_DEVICE void put_log(const pages_part& t, int max_pages, int g, int page, f32 log) {
	f32* to = t.logs + (i64)FOLLOW_PARTS * g * max_pages + page;
	*to = log;
#pragma unroll
	for (int i = 1; i < FOLLOW_PARTS; i++) to[(i64)i * max_pages] = FOLLOW_NONE;
}

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
NSTF_DEVICE void foretell(const pages_part& t, const summaries_part& x, const u16* summaries, const f32* ratios, f32* weights, int kv_heads, int max_pages, f32 scale, f32 softcap, const f32* lds, f32 (&told_logs)[ATTEND_QUERIES][PAGES_FORETOLD], int begin, int first, int end) {
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
		const f32 log = told + 0.5f * ratios[page];
		put_log(t, max_pages, g, page, log);
		told_logs[g][page - begin] = log;
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
		put_log(t, max_pages, g, page, top + log_f32(all));
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
		const follow_page entry = mine < end ? t.list[mine] : follow_page{0, 0};
		const int page = entry.page, physical = entry.physical;
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

#if PAGES_RESIDENT
#define PAGES_BOUNDS __launch_bounds__(THREADS, PAGES_RESIDENT)
#else
#define PAGES_BOUNDS __launch_bounds__(THREADS)
#endif

NSTF_KERNEL void PAGES_BOUNDS
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
	t.logs = logs + FOLLOW_PARTS * first_query * max_pages, t.foretold = foretold + first_query * max_pages, t.list = lists + kv_head * max_pages;
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
	__shared__ f32 told_logs[ATTEND_QUERIES][PAGES_FORETOLD];
	for (int from = first;;) {
		foretell(t, x, summaries, ratios, weights + kv_head * max_pages, kv_heads, max_pages, scale, softcap, lds, told_logs, first, from, end);
		from += step;
		if (from >= end) break;
		load_summaries(x, summaries, t.table, kv_heads, t.head, from, end);
	}
	__syncthreads();
	for (int g = wave; g < t.here; g += ATTEND_WAVES) {
		f32 top = FOLLOW_NONE, sum = 0;
		for (int i = lane; i < end - first; i += NSTF_WAVE) top = wave_max_of(told_logs[g][i], top);
		top = wave_max<NSTF_WAVE>(top);
		for (int i = lane; i < end - first; i += NSTF_WAVE) sum += exp_f32(told_logs[g][i] - top);
		sum = wave_sum<NSTF_WAVE>(sum);
		if (lane == 0) parts[(first_query + g) * follow_parts(max_pages) + (first - 1) / PAGES_FORETOLD] = {top, sum};
	}
#else
	const int kind = blockIdx.y / each_kind, n = known - 1;
	// Parts are of pages of the list, from a place on that is below 0 for those that are read in any
	// case. A wave's first one is read while the plan is.
	const int at = (int)blockIdx.x + wave * PAGES_SPLITS;
	int place = -always;
	auto part_of = [&](int i) {
		const int j = i / FOLLOW_PARTS + place;
		if (j >= 0) return t.list[j];
		const int page = always_page(j + always, known);
		return follow_page{page, t.table[page]};
	};
	follow_page x = {-1, 0};
	if (kind == 0 && at / FOLLOW_PARTS < always + n) x = part_of(at);
	const follow_plan plan = plans[kv_head];
	const int count = follow_count(plan, kind, n, always), end = count * FOLLOW_PARTS;
	if ((int)blockIdx.x >= follow_blocks(kind, count)) return;
	if (kind == 2) {
		const int each = follow_means(count), first = blockIdx.x * each;
		stand_in(t, summaries, ratios, kv_heads, max_pages, lds, plan.chosen + first, plan.chosen + least(count, first + each));
	} else {
		if (kind == 1) {
			place = plan.chosen;
			if (at < end) x = part_of(at);
		}
		if (at >= end) x.page = -1;
		attend_some(t, cache, kv_heads, max_pages, scale, softcap, lds, end, x, part_of, take_queries);
	}
	__syncthreads();
	f32* mine = records + (((i64)row * each_kind + y) * (3 * PAGES_SPLITS) + kind * PAGES_SPLITS + blockIdx.x) * ATTEND_RECORD;
	few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, [&](int g, int d, f32 acc, f32 top, f32 s) {
		mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
	});
#endif
}
