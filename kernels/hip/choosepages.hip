// Which pages a step reads, and what comes of it: see follow.hip and docs/attention.md.
//
// choose: weights[page] = mean over a head's queries of softmax(logs)[page]; of the pages 1 to
// known-1 those without a finite summary are chosen, then those of the most weight, of equal ones
// the first, until there are as many as share * pages, pages that are read in any case counted, or
// with CHOOSE_MASS 1 until they have so much of the weight. A step reads all where no other has
// since the last prompt, where `refresh` steps have passed, or where 16 have and it would leave out
// 0.4 more than usual. Shares f64[kv_heads] of 1 and more: all is chosen, nothing is learned.
//
// With CHOOSE_USES 1 uses u32[sequence][max_pages] count how often each page is chosen.
//
// learn: the history takes over what an earlier step saw, whose arguments begin with then_: beside
// the choice of a later one, in blocks of their own, or alone. What a step of another block of the
// model does meanwhile waits for none of it.
//
// Weights are sums in float64 of float32 shares, rounded to float32: the processor's order, but
// where two weights are within 2^-24 of each other or arithmetic before differs by as much.
//
// Grid: x over key-value heads, y over rows, z of choose: 1, or 2 to learn too; CHOOSE_WAVES waves.
// Deterministic: what is counted by atomics are whole numbers. Bound: latency; the code is kept
// short, since a launch finds none of it in the caches that are near.
#include "follow.hip"
#include "pagekeys.hip"

__host__ __device__ constexpr int power_within(int n) { return n < 2 ? 1 : 2 * power_within(n / 2); }

// Of each query the highest logarithm and 1 over the sum of what is above it in e^: some waves a query.
NSTF_DEVICE void query_totals(f32* tops, f32* parts, const f32* logs, int max_pages, int pages, const f32* sinks) {
	constexpr int each = ATTEND_GROUP >= CHOOSE_WAVES ? 1 : power_within(CHOOSE_WAVES / ATTEND_GROUP), all = ATTEND_GROUP * each; // waves of a query
	__shared__ f32 part_tops[all], part_sums[all];
	const int lane = threadIdx.x % NSTF_WAVE;
	for (int i = threadIdx.x / NSTF_WAVE; i < all; i += CHOOSE_WAVES) {
		const f32* row = logs + (i64)(i / each) * max_pages;
		f32 top = FOLLOW_NONE, sum = 0;
		for (int p = i % each * NSTF_WAVE + lane; p < pages; p += 4 * each * NSTF_WAVE) {
			f32 x[4], most = top;
#pragma unroll
			for (int j = 0; j < 4; j++) x[j] = p + j * each * NSTF_WAVE < pages ? row[p + j * each * NSTF_WAVE] : -NSTF_INFINITY;
#pragma unroll
			for (int j = 0; j < 4; j++) most = wave_max_of(x[j], most);
			sum *= exp_f32(top - most);
#pragma unroll
			for (int j = 0; j < 4; j++) sum += exp_f32(x[j] - most);
			top = most;
		}
		const f32 most = wave_max<NSTF_WAVE>(top);
		sum = wave_sum<NSTF_WAVE>(sum * exp_f32(top - most));
		if (lane == 0) part_tops[i] = most, part_sums[i] = sum;
	}
	__syncthreads();
	if (threadIdx.x < NSTF_WAVE)
		for (int base = 0; base < all; base += NSTF_WAVE) {
			const int i = base + lane, g = i / each;
			const bool there = i < all;
			const f32 own = there ? part_tops[there ? i : 0] : FOLLOW_NONE;
			f32 top = wave_max<each>(own);
#if ATTEND_SINKS
			const f32 sink = sinks[there ? g : 0];
			top = wave_max_of(sink, top);
#endif
			f32 sum = wave_sum<each>(there ? part_sums[there ? i : 0] * exp_f32(own - top) : 0.0f);
#if ATTEND_SINKS
			sum += exp_f32(sink - top);
#endif
			if (there && i % each == 0) tops[g] = top, parts[g] = 1.0f / sum;
		}
	__syncthreads();
}

// The same before pages are read, of what was put together for some pages at once.
NSTF_DEVICE void foretold_totals(f32* tops, f32* parts, const f32* logs, const f32* partials, int max_pages, int pages, int known, const f32* sinks) {
	const int lane = threadIdx.x % NSTF_WAVE, some = (known - 1 + PAGES_FORETOLD - 1) / PAGES_FORETOLD, all = some + 1 + pages - known;
	for (int g = threadIdx.x / NSTF_WAVE; g < ATTEND_GROUP; g += CHOOSE_WAVES) {
		f32 top = FOLLOW_NONE, sum = 0;
		for (int i = lane; i < all; i += NSTF_WAVE) {
			const f32* part = partials + ((i64)g * partial_places(max_pages) + i) * 2;
			const bool told = i < some;
			const f32 x = told ? part[0] : logs[(i64)g * max_pages + always_page(i - some, known)], n = told ? part[1] : 1.0f, most = wave_max_of(x, top);
			sum = sum * exp_f32(top - most) + n * exp_f32(x - most);
			top = most;
		}
		f32 most = wave_max<NSTF_WAVE>(top);
#if ATTEND_SINKS
		most = wave_max_of(sinks[g], most);
#endif
		sum = wave_sum<NSTF_WAVE>(sum * exp_f32(top - most));
#if ATTEND_SINKS
		sum += exp_f32(sinks[g] - most);
#endif
		if (lane == 0) tops[g] = most, parts[g] = 1.0f / sum;
	}
	__syncthreads();
}

#if ATTEND_SINKS
#define CHOOSE_SINKS sinks + head * ATTEND_GROUP
#define THEN_SINKS then_sinks + head * ATTEND_GROUP
#define THEN_SINK_PARAMETER , const f32* then_sinks
#else
#define CHOOSE_SINKS nullptr
#define THEN_SINKS nullptr
#define THEN_SINK_PARAMETER
#endif
#ifndef CHOOSE_USES
#define CHOOSE_USES 0
#endif
#if CHOOSE_USES
#define USES_PARAMETER u32 *uses,
#else
#define USES_PARAMETER
#endif
#define LEARN_PARAMETERS f32 *then_histories, const f64 *then_shares, const f32 *then_logs, const f32 *then_foretold, const follow_page *then_lists, const follow_plan *then_plans, const f32 *then_errors THEN_SINK_PARAMETER

// What a step that is over left of a head.
struct learnt {
	f32* history;
	f64 share;
	const f32 *logs, *foretold;
	const follow_page* list;
	const follow_plan* plan;
	const f32 *errors, *sinks;
};
#define LEARNT {then_histories + ((i64)owner * history_heads + head) * (FOLLOW_HEADER + max_pages), then_shares[head], \
	then_logs + first * max_pages, then_foretold + first * max_pages, then_lists + at * max_pages, then_plans + at, then_errors + 2 * ATTEND_PARTS * at, THEN_SINKS}

NSTF_DEVICE void learn_pages(const learnt& l, int position, int max_pages) {
	__shared__ f32 tops[ATTEND_GROUP], parts[ATTEND_GROUP];
	const int all_pages = pages_of(position), n = known_of(position) - 1;
	const follow_plan plan = *l.plan;
	if (!(l.share < 1)) return;
	const bool all = plan.whole, fresh = l.history[0] == 0;
	query_totals(tops, parts, l.logs, max_pages, all_pages, l.sinks);
	for (int i = threadIdx.x; i < (all ? n : plan.chosen); i += CHOOSE_THREADS) {
		const int page = l.list[i].page;
		f32 sum = 0, weight = 0;
#pragma unroll 4
		for (int g = 0; g < ATTEND_GROUP; g++) {
			const i64 j = (i64)g * max_pages + page;
			const f32 x = exp_f32(l.logs[j] - tops[g]) * parts[g];
			weight += x;
			if (x > 0) sum = fmaf(x, l.logs[j] - l.foretold[j], sum);
		}
		f32& ratio = l.history[FOLLOW_HEADER + page];
		const f32 seen = sum / weight, keep = all ? 0.0f : 0.7f;
		if (weight > 0 && seen == seen) ratio = keep * ratio + (1.0f - keep) * fminf(fmaxf(seen, -4.0f), 4.0f);
	}
	if (threadIdx.x != 0) return;
	l.history[3] = all && fresh ? plan.left : 0.9f * l.history[3] + 0.1f * plan.left;
	if (all) {
		f32 without = 0, with = 0;
		for (int i = 0; i < ATTEND_PARTS; i++) without += l.errors[2 * i], with += l.errors[2 * i + 1];
		const f32 keep = fresh ? 0.0f : 0.5f;
		l.history[1] = keep * l.history[1] + (1 - keep) * without;
		l.history[2] = keep * l.history[2] + (1 - keep) * with;
	}
	l.history[0] = all ? 1 : l.history[0] + 1;
}

NSTF_KERNEL void __launch_bounds__(CHOOSE_THREADS, 1)
nstf_choose_pages(SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, int least_pages, int refresh, f32 mass, USES_PARAMETER LEARN_PARAMETERS) {
	__shared__ f32 tops[ATTEND_GROUP], parts[ATTEND_GROUP], floats[CHOOSE_WAVES];
	__shared__ int ints[CHOOSE_WAVES];
	__shared__ u32 near[CHOOSE_KEPT];
	__shared__ choose_bins bins;
	const int row = blockIdx.y, head = blockIdx.x;
	const bool meant = follows(positions, owners, row, least_positions, rank);
	const int position = load_settled(positions + row), owner = load_settled(owners + row);
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	bins.clear();
	wait_for_inputs();
	let_next_begin(); // whose queries are finished now
	if (!meant) return;
	if (blockIdx.z == 1) {
		const learnt then = LEARNT;
		learn_pages(then, position, max_pages);
		return;
	}
	const int all_pages = pages_of(position), known = known_of(position), n = known - 1;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const i32* table = pages + (i64)owner * max_pages;
	logs += first * max_pages;
	weights += at * max_pages, lists += at * max_pages;
	const f32* history = histories + ((i64)owner * history_heads + head) * (FOLLOW_HEADER + max_pages);
	const f64 share = shares[head];
	const int steps = (int)history[0];
	const f32 without = history[1], with = history[2], usual = history[3];
	const bool one = (int)threadIdx.x < n;
	f32 weight = one ? weights[1 + (one ? threadIdx.x : 0)] : 0.0f;
	const i32 physical = table[one ? 1 + threadIdx.x : 0];
	if (threadIdx.x < ATTEND_PARTS) done[at * ATTEND_PARTS + threadIdx.x] = 0;
	constexpr int ahead = ATTEND_GROUP > 8 ? 0 : ATTEND_GROUP; // logs of the first page that are asked for before the totals
	f32 own[ATTEND_GROUP > 8 ? 1 : ATTEND_GROUP];
#pragma unroll
	for (int g = 0; g < ahead; g++) own[g] = logs[(i64)g * max_pages + (one ? 1 + threadIdx.x : 0)];
	foretold_totals(tops, parts, logs, partials + first * partial_places(max_pages) * 2, max_pages, all_pages, known, CHOOSE_SINKS);

	auto part_of = [&](int g, f32 log) { return (f64)(exp_f32(log - tops[g]) * parts[g]); };
	auto weight_of = [&](int p) {
		f64 sum = 0;
#pragma unroll 4
		for (int g = 0; g < ATTEND_GROUP; g++) sum += part_of(g, logs[(i64)g * max_pages + p]);
		return (f32)(sum * (1.0 / ATTEND_GROUP));
	};
	for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
		if (i >= CHOOSE_THREADS) weight = weights[1 + i];
		if (weight == weight) {
			if (ahead > 0 && i < CHOOSE_THREADS) {
				f64 sum = 0;
#pragma unroll
				for (int g = 0; g < ahead; g++) sum += part_of(g, own[g]);
				weight = (f32)(sum * (1.0 / ATTEND_GROUP));
			} else {
				weight = weight_of(1 + i);
			}
		}
		const u32 key = key_of(weight);
		if (i < CHOOSE_KEPT) near[i] = key;
		else weights[1 + i] = weight;
		if (key == CHOOSE_ODD) atomicAdd(&bins.odds, 1);
		else bins.add(0, key >> CHOOSE_FIRST & 255, key);
	}
	const kept_keys keys = {near, weights + 1};
	__syncthreads();
	const int odds = bins.odds;
	int room = all_pages;
	if (share < 1) {
		room = (int)ceil(share * all_pages);
		room = room > least_pages ? room : least_pages;
	}
	room -= 1 + all_pages - known;
	room = room > odds ? room : odds;
	room = room > n ? n : room;
	u32 want = 0;
#if CHOOSE_MASS
	f32 always = 0;
	for (int p = threadIdx.x; p <= all_pages - known; p += CHOOSE_THREADS) always += weight_of(always_page(p, known));
	always = block_sum(always, floats);
	const f32 rest = (mass - always) * 0x1p30f;
	want = rest > 0 ? (u32)rest : 0;
#endif
	choice_end end = {CHOOSE_ODD, odds};
	if (share >= 1 || !CHOOSE_MASS && room >= n) end = {0, n};
	else if (room > odds && (!CHOOSE_MASS || want > 0)) end = choice_of(bins, keys, n, room, want);

	// Equal keys by their order. The chosen fill the list from its beginning, the others from
	// its end. Counts of keys above in the upper half of a word, of equal ones in the lower:
	// before this thread, and of all.
	f32 left = 0;
	int above = 0, equal = 0;
	for (int base = 0; base < n; base += CHOOSE_THREADS) {
		const int i = base + (int)threadIdx.x;
		const u32 key = i < n ? keys[i] : 0;
		const bool higher = i < n && key > end.key, same = i < n && key == end.key;
		const u64 lower = (1ull << lane) - 1, highers = wave_ballot(higher), sames = wave_ballot(same);
		if (base > 0) __syncthreads();
		if (lane == 0) ints[wave] = __popcll(highers) << 16 | __popcll(sames);
		__syncthreads();
		const int of = lane < CHOOSE_WAVES ? ints[lane < CHOOSE_WAVES ? lane : 0] : 0;
		const int before = wave_sum<NSTF_WAVE>(lane < wave ? of : 0) + (__popcll(highers & lower) << 16 | __popcll(sames & lower)), all = wave_sum<NSTF_WAVE>(of);
		const int rank_same = equal + (before & 0xffff), rank = above + (before >> 16) + (rank_same < end.some ? rank_same : end.some);
		above += all >> 16, equal += all & 0xffff;
		if (i >= n) continue;
		const bool take = higher || same && rank_same < end.some;
		if (!take) left += of_bits(key);
#if CHOOSE_USES
		if (take) atomicAdd(uses + (i64)owner * max_pages + 1 + i, 1u);
#endif
		lists[take ? rank : n - 1 - (i - rank)] = {1 + i, base == 0 ? physical : table[1 + i]};
	}
	const int chosen = above + (equal < end.some ? equal : end.some);
	left = block_sum(left, floats);
	if (threadIdx.x != 0) return;
	const bool whole = share < 1 && (steps == 0 || steps >= refresh || steps >= 16 && left > usual + 0.4f);
	plans[at] = {chosen, whole, whole || share < 1 && with < without, left};
}

NSTF_KERNEL void __launch_bounds__(CHOOSE_THREADS, 1)
nstf_learn_pages(int heads, int kv_heads, ROWS_PARAMETERS, int least_positions, int rank, int history_heads, LEARN_PARAMETERS) {
	begin_early();
	const int row = blockIdx.y, head = blockIdx.x;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const int owner = owners[row];
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	const learnt then = LEARNT;
	learn_pages(then, positions[row], max_pages);
}
