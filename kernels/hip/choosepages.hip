// Which pages a step reads, and what comes of it: see follow.hip and docs/attention.md.
//
// choose: weights[page] = mean over a head's queries of softmax(logs)[page]; of the pages 1 to
// known-1 those without a finite summary are chosen, then those of the most weight, of equal ones
// the first, until there are as many as share * pages, pages that are read in any case counted, or
// with CHOOSE_MASS 1 until they have so much of the weight. A step reads all where no other has
// since the last prompt, where `refresh` steps have passed, or where 16 have and it would leave out
// 0.4 more than usual. Shares f64[kv_heads] of 1 and more: all is chosen, nothing is learned.
//
// settle: puts records together into out f32[T][heads][KV_VALUE] (attendpages.hip), and the history takes
// over what was seen.
//
// Weights are sums in float64 of float32 shares, rounded to float32: the processor's order, but
// where two weights are within 2^-24 of each other or arithmetic before differs by as much.
//
// Grid: x over key-value heads, y over rows; CHOOSE_WAVES waves, SETTLE_WAVES. Deterministic: what is
// counted by atomics are whole numbers. Bound: latency, of a few passes over logs.
#include "follow.hip"

#define CHOOSE_THREADS (CHOOSE_WAVES * NSTF_WAVE)

// Of each query the highest logarithm and the sum of what is above it in e^.
template <int Waves> NSTF_DEVICE void query_totals(f32* tops, f32* sums, const f32* logs, int max_pages, int pages, const f32* sinks) {
	const int lane = threadIdx.x % NSTF_WAVE;
	for (int g = threadIdx.x / NSTF_WAVE; g < ATTEND_GROUP; g += Waves) {
		const f32* row = logs + (i64)g * max_pages;
		f32 top = FOLLOW_NONE, sum = 0;
		for (int p = lane; p < pages; p += NSTF_WAVE) top = wave_max_of(row[p], top);
		top = wave_max<NSTF_WAVE>(top);
#if ATTEND_SINKS
		top = wave_max_of(sinks[g], top);
#endif
		for (int p = lane; p < pages; p += NSTF_WAVE) sum += exp_f32(row[p] - top);
		sum = wave_sum<NSTF_WAVE>(sum);
#if ATTEND_SINKS
		sum += exp_f32(sinks[g] - top);
#endif
		if (lane == 0) tops[g] = top, sums[g] = sum;
	}
	__syncthreads();
}

// The sum over a block, in every thread.
template <int Waves> NSTF_DEVICE f32 block_sum(f32 v, f32* room) {
	v = wave_sum<NSTF_WAVE>(v);
	__syncthreads();
	if (threadIdx.x % NSTF_WAVE == 0) room[threadIdx.x / NSTF_WAVE] = v;
	__syncthreads();
	f32 sum = 0;
	for (int w = 0; w < Waves; w++) sum += room[w];
	return sum;
}

// How many threads before this one have v, and how many of all.
NSTF_DEVICE int block_rank(bool v, int* room, int& all) {
	const u64 lanes = wave_ballot(v);
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	__syncthreads();
	if (lane == 0) room[wave] = __popcll(lanes);
	__syncthreads();
	int before = __popcll(lanes & ((1ull << lane) - 1));
	all = 0;
	for (int w = 0; w < CHOOSE_WAVES; w++) {
		if (w < wave) before += room[w];
		all += room[w];
	}
	return before;
}

#define CHOOSE_ODD 0xffffffffu // the key of a page that is read whatever it weighs

// Weights as keys of their order; parts of all in 2^30ths.
NSTF_DEVICE u32 key_of(f32 weight) { return weight != weight ? CHOOSE_ODD : bits_of(weight); }
NSTF_DEVICE u32 mass_of(u32 key) { return key == CHOOSE_ODD ? 0u : (u32)(of_bits(key) * 0x1p30f); }

// Where the choice ends: pages whose keys are above `key`, and `some` of those that have it.
struct choice_end {
	u32 key;
	int some;
};

// A block finds where the n keys from weights on reach `room` pages or, with CHOOSE_MASS,
// the mass `want`.
NSTF_DEVICE choice_end choice_of(const f32* weights, int n, int room, u32 want) {
	__shared__ u32 counts[256], masses[256];
	__shared__ int found, above;
	__shared__ u32 mass_above;
	const int lane = threadIdx.x % NSTF_WAVE;
	u32 key = 0, mass = 0;
	int taken = 0;
	if (!CHOOSE_MASS && room >= n) return {0, n};
	for (int shift = 24; shift >= 0; shift -= 8) {
		__syncthreads();
		for (int i = threadIdx.x; i < 256; i += CHOOSE_THREADS) counts[i] = masses[i] = 0;
		if (threadIdx.x == 0) found = -1;
		__syncthreads();
		for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
			const u32 k = key_of(weights[i]);
			if (shift < 24 && k >> (shift + 8 & 31) != key >> (shift + 8 & 31)) continue;
			atomicAdd(counts + (k >> shift & 255), 1u);
			if (CHOOSE_MASS) atomicAdd(masses + (k >> shift & 255), mass_of(k));
		}
		__syncthreads();
		if (threadIdx.x < NSTF_WAVE) { // from the highest bin on, some to a lane
			constexpr int bins = 256 / NSTF_WAVE;
			u64 mine = 0; // count and mass, which is under 2^31
			for (int b = 0; b < bins; b++) {
				const int bin = 255 - lane * bins - b;
				mine += (u64)counts[bin] << 32 | masses[bin];
			}
			u64 through = mine;
			for (int m = 1; m < NSTF_WAVE; m *= 2) {
				const u64 lower = wave_below(through, m);
				if (lane >= m) through += lower;
			}
			u64 before = through - mine + ((u64)(u32)taken << 32 | mass);
			auto open = [&](u64 x) { return (int)(x >> 32) < room && (!CHOOSE_MASS || (u32)x < want); };
			for (int b = 0; b < bins; b++) {
				const int bin = 255 - lane * bins - b;
				const u64 behind = before + ((u64)counts[bin] << 32 | masses[bin]);
				if (open(before) && !open(behind)) found = bin, above = (int)(before >> 32), mass_above = (u32)before;
				before = behind;
			}
		}
		__syncthreads();
		if (found < 0) return {0, n}; // all of them are too few
		key |= (u32)found << shift, taken = above, mass = mass_above;
	}
	int some = room - taken;
	if (CHOOSE_MASS) {
		const u32 one = mass_of(key);
		const u32 wanted = one == 0 ? (u32)some : (want - mass + one - 1) / one;
		some = wanted < (u32)some ? (int)wanted : some;
	}
	return {key, some};
}

#if ATTEND_SINKS
#define CHOOSE_SINKS sinks + head * ATTEND_GROUP
#else
#define CHOOSE_SINKS nullptr
#endif

NSTF_KERNEL void __launch_bounds__(CHOOSE_THREADS)
nstf_choose_pages(SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, int least_pages, int refresh, f32 mass) {
	__shared__ f32 tops[ATTEND_GROUP], sums[ATTEND_GROUP], floats[CHOOSE_WAVES];
	__shared__ int ints[CHOOSE_WAVES];
	begin_early();
	const int row = blockIdx.y, head = blockIdx.x;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const int all_pages = pages_of(positions[row]), known = known_of(positions[row]), n = known - 1;
	const i64 at = (i64)row * kv_heads + head;
	logs += ((i64)row * heads + head * ATTEND_GROUP) * max_pages;
	weights += at * max_pages, lists += at * max_pages;
	const f32* history = histories + ((i64)owners[row] * history_heads + head) * (FOLLOW_HEADER + max_pages);
	query_totals<CHOOSE_WAVES>(tops, sums, logs, max_pages, all_pages, CHOOSE_SINKS);

	f32 always = 0;
	int odd = 0;
	for (int p = threadIdx.x; p < all_pages; p += CHOOSE_THREADS) {
		const bool open = p > 0 && p < known;
		if (open && weights[p] != weights[p]) {
			odd++;
			continue;
		}
		f64 sum = 0;
		for (int g = 0; g < ATTEND_GROUP; g++) sum += (f64)(exp_f32(logs[(i64)g * max_pages + p] - tops[g]) / sums[g]);
		const f32 w = (f32)(sum / ATTEND_GROUP);
		weights[p] = w;
		if (!open) always += w;
	}
	always = block_sum<CHOOSE_WAVES>(always, floats);
	const int odds = (int)block_sum<CHOOSE_WAVES>((f32)odd, floats);
	const f64 share = shares[head];
	int room = all_pages;
	if (share < 1) {
		room = (int)ceil(share * all_pages);
		room = room > least_pages ? room : least_pages;
	}
	room -= 1 + all_pages - known;
	room = room > odds ? room : odds;
	room = room > n ? n : room;
	const f32 rest = (mass - always) * 0x1p30f;
	const u32 want = rest > 0 ? (u32)rest : 0;
	choice_end end = {CHOOSE_ODD, odds};
	if (share >= 1) end = {0, n};
	else if (room > 0 && (!CHOOSE_MASS || want > 0)) end = choice_of(weights + 1, n, room, want);
	if (end.key == CHOOSE_ODD) end.some = odds;

	// Equal keys by their order. The chosen fill the list from its beginning, the others from
	// its end.
	f32 left = 0;
	int equal = 0, chosen = 0;
	for (int base = 1; base < known; base += CHOOSE_THREADS) {
		const int p = base + (int)threadIdx.x;
		const bool there = p < known;
		const f32 w = there ? weights[p] : 0.0f;
		const u32 key = key_of(w);
		const bool same = there && key == end.key;
		int total;
		const int before = equal + block_rank(same, ints, total);
		equal += total;
		const bool take = there && (key > end.key || same && before < end.some);
		const int place = chosen + block_rank(take, ints, total);
		chosen += total;
		if (!there) continue;
		if (!take) left += w;
		lists[take ? place : n - 1 - (p - 1 - place)] = p;
	}
	left = block_sum<CHOOSE_WAVES>(left, floats);
	if (threadIdx.x != 0) return;
	const int steps = (int)history[0];
	const bool whole = share < 1 && (steps == 0 || steps >= refresh || steps >= 16 && left > history[3] + 0.4f);
	plans[at] = {chosen, whole, whole || share < 1 && history[2] < history[1], left};
}

#define SETTLE_THREADS (SETTLE_WAVES * NSTF_WAVE)
#define SETTLE_RECORD (ATTEND_QUERIES * (KV_VALUE + 2))

// Records of one kind: the highest score, the sum of weights and a sum of values.
struct settled {
	f32 top, sum, value;
};

// Two of them, or one and none.
NSTF_DEVICE settled settle_two(settled a, settled b) {
	const f32 top = wave_max_of(a.top, b.top), c = exp_f32(a.top - top), d = exp_f32(b.top - top);
	return {top, fmaf(a.sum, c, b.sum * d), fmaf(a.value, c, b.value * d)};
}

NSTF_KERNEL void __launch_bounds__(SETTLE_THREADS)
nstf_settle_pages(f32* out, SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, const f32* records, u64* counts) {
	__shared__ f32 tops[1 + 3 * PAGES_SPLITS], factors[1 + 3 * PAGES_SPLITS], room[SETTLE_WAVES], query_tops[ATTEND_GROUP], query_sums[ATTEND_GROUP];
	__shared__ f32 turned[KV_CODED ? SETTLE_WAVES : 1][KV_VALUE];
	begin_early();
	const int row = blockIdx.y, head = blockIdx.x, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const int all_pages = pages_of(positions[row]), known = known_of(positions[row]), n = known - 1;
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	const follow_plan plan = plans[at];
	f32* history = histories + ((i64)owners[row] * history_heads + head) * (FOLLOW_HEADER + max_pages);
	const bool learns = shares[head] < 1, fresh = history[0] == 0, all = plan.whole;
	// Of each kind: from which record on, and how many.
	int counts_of[3];
	for (int kind = 0; kind < 3; kind++) {
		const int count = kind == 0 ? plan.chosen : (kind == 1 ? plan.whole : plan.stand) ? n - plan.chosen : 0;
		const int each = share_of(count, PAGES_SPLITS, (kind == 2 ? 4 : 1) * ATTEND_WAVES);
		counts_of[kind] = (count + each - 1) / each;
	}
	f32 without_error = 0, with_error = 0;
	for (int g = 0; g < ATTEND_GROUP; g++) {
		const f32* base = records + (at * ATTEND_PARTS + g / ATTEND_QUERIES) * (1 + 3 * PAGES_SPLITS) * SETTLE_RECORD;
		const int query = g % ATTEND_QUERIES;
		// The kinds' records lie 1, 1 + splits and 1 + 2 * splits on; record 0 is with the chosen.
		auto used = [&](int j) { return j == 0 || (j - 1) % PAGES_SPLITS < counts_of[(j - 1) / PAGES_SPLITS]; };
		__syncthreads();
		for (int j = threadIdx.x; j < 1 + 3 * PAGES_SPLITS; j += SETTLE_THREADS) tops[j] = used(j) ? base[(i64)j * SETTLE_RECORD + query] : FOLLOW_NONE;
		__syncthreads();
		f32 top[3];
		for (int kind = 0; kind < 3; kind++) {
			top[kind] = kind == 0 ? tops[0] : FOLLOW_NONE;
			for (int j = 0; j < counts_of[kind]; j++) top[kind] = wave_max_of(tops[1 + kind * PAGES_SPLITS + j], top[kind]);
		}
		for (int j = threadIdx.x; j < 1 + 3 * PAGES_SPLITS; j += SETTLE_THREADS) factors[j] = used(j) ? exp_f32(tops[j] - top[j == 0 ? 0 : (j - 1) / PAGES_SPLITS]) : 0.0f;
		__syncthreads();
		for (int d = threadIdx.x; d < KV_VALUE; d += SETTLE_THREADS) {
			settled kinds[3];
			for (int kind = 0; kind < 3; kind++) {
				f32 sum = 0, value = 0;
				auto add = [&](int j) {
					const f32* r = base + (i64)j * SETTLE_RECORD;
					sum = fmaf(factors[j], r[ATTEND_QUERIES + query], sum);
					value = fmaf(factors[j], r[2 * ATTEND_QUERIES + query * KV_VALUE + d], value);
				};
				if (kind == 0) add(0);
#pragma unroll 4
				for (int j = 0; j < counts_of[kind]; j++) add(1 + kind * PAGES_SPLITS + j);
				kinds[kind] = {top[kind], sum, value};
			}
#if ATTEND_SINKS
			kinds[0] = settle_two(kinds[0], {sinks[head * ATTEND_GROUP + g], 1, 0});
#endif
			auto value_of = [](settled s) { return s.sum == 0 ? 0.0f : s.value / s.sum; };
			const f32 without = value_of(kinds[0]), with = plan.stand ? value_of(settle_two(kinds[0], kinds[2])) : without;
			const f32 full = all ? value_of(settle_two(kinds[0], kinds[1])) : with;
			without_error = fmaf(without - full, without - full, without_error);
			with_error = fmaf(with - full, with - full, with_error);
			out[(first + g) * KV_VALUE + d] = full;
		}
	}
#if KV_CODED // what was summed of turned values is turned back
	__threadfence();
	__syncthreads();
	for (int g = wave; g < ATTEND_GROUP; g += SETTLE_WAVES) {
		f32* to = out + (first + g) * KV_VALUE;
		for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) turned[wave][i] = to[i];
		kv_turn(turned[wave], KV_VALUE);
		for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) to[i] = turned[wave][i];
	}
#endif
	const int read = all ? all_pages : plan.chosen + 1 + all_pages - known;
	if (threadIdx.x == 0) atomicAdd(counts, (u64)read), atomicAdd(counts + 1, (u64)all_pages);
	if (!learns) return;
	logs += first * max_pages, foretold += first * max_pages, lists += at * max_pages;
	query_totals<SETTLE_WAVES>(query_tops, query_sums, logs, max_pages, all_pages, CHOOSE_SINKS);
	for (int i = threadIdx.x; i < (all ? n : plan.chosen); i += SETTLE_THREADS) {
		const int page = lists[i];
		f32 sum = 0, weight = 0;
		for (int g = 0; g < ATTEND_GROUP; g++) {
			const i64 j = (i64)g * max_pages + page;
			const f32 x = exp_f32(logs[j] - query_tops[g]) / query_sums[g];
			weight += x;
			if (x > 0) sum = fmaf(x, logs[j] - foretold[j], sum);
		}
		f32& ratio = history[FOLLOW_HEADER + page];
		const f32 seen = sum / weight, keep = all ? 0.0f : 0.7f;
		if (weight > 0 && seen == seen) ratio = keep * ratio + (1.0f - keep) * fminf(fmaxf(seen, -4.0f), 4.0f);
	}
	without_error = block_sum<SETTLE_WAVES>(without_error, room);
	with_error = block_sum<SETTLE_WAVES>(with_error, room);
	if (threadIdx.x != 0) return;
	history[3] = all && fresh ? plan.left : 0.9f * history[3] + 0.1f * plan.left;
	if (all) {
		const f32 keep = fresh ? 0.0f : 0.5f;
		history[1] = keep * history[1] + (1 - keep) * without_error;
		history[2] = keep * history[2] + (1 - keep) * with_error;
	}
	history[0] = all ? 1 : history[0] + 1;
}
