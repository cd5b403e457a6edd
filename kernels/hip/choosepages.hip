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

// Of each query the highest logarithm and the sum of what is above it in e^: some waves a query.
template <int Waves> NSTF_DEVICE void query_totals(f32* tops, f32* sums, const f32* logs, int max_pages, int pages, const f32* sinks) {
	constexpr int each = ATTEND_GROUP >= Waves ? 1 : Waves / ATTEND_GROUP; // waves of a query
	__shared__ f32 part_tops[ATTEND_GROUP][each], part_sums[ATTEND_GROUP][each];
	const int lane = threadIdx.x % NSTF_WAVE;
	for (int i = threadIdx.x / NSTF_WAVE; i < ATTEND_GROUP * each; i += Waves) {
		const f32* row = logs + (i64)(i / each) * max_pages;
		f32 top = FOLLOW_NONE, sum = 0;
		for (int p = i % each * NSTF_WAVE + lane; p < pages; p += 4 * each * NSTF_WAVE) {
			f32 x[4], most = top;
#pragma unroll
			for (int j = 0; j < 4; j++) x[j] = p + j * each * NSTF_WAVE < pages ? row[p + j * each * NSTF_WAVE] : FOLLOW_NONE;
#pragma unroll
			for (int j = 0; j < 4; j++) most = wave_max_of(x[j], most);
			sum *= exp_f32(top - most);
#pragma unroll
			for (int j = 0; j < 4; j++) sum += p + j * each * NSTF_WAVE < pages ? exp_f32(x[j] - most) : 0.0f;
			top = most;
		}
		const f32 most = wave_max<NSTF_WAVE>(top);
		sum = wave_sum<NSTF_WAVE>(sum * exp_f32(top - most));
		if (lane == 0) part_tops[i / each][i % each] = most, part_sums[i / each][i % each] = sum;
	}
	__syncthreads();
	for (int g = threadIdx.x; g < ATTEND_GROUP; g += Waves * NSTF_WAVE) {
		f32 top = FOLLOW_NONE, sum = 0;
#if ATTEND_SINKS
		top = sinks[g];
#endif
		for (int i = 0; i < each; i++) top = wave_max_of(part_tops[g][i], top);
		for (int i = 0; i < each; i++) sum = fmaf(exp_f32(part_tops[g][i] - top), part_sums[g][i], sum);
#if ATTEND_SINKS
		sum += exp_f32(sinks[g] - top);
#endif
		tops[g] = top, sums[g] = sum;
	}
	__syncthreads();
}

// The sum over a block, in every thread.
template <int Waves, typename T> NSTF_DEVICE T block_sum(T v, T* room) {
	v = wave_sum<NSTF_WAVE>(v);
	__syncthreads();
	if (threadIdx.x % NSTF_WAVE == 0) room[threadIdx.x / NSTF_WAVE] = v;
	__syncthreads();
	T sum = 0;
	for (int w = 0; w < Waves; w++) sum += room[w];
	return sum;
}

#define CHOOSE_ODD 0xffffffffu // the key of a page that is read whatever it weighs

// Weights as keys of their order; parts of all in 2^30ths.
NSTF_DEVICE u32 key_of(f32 weight) { return weight != weight ? CHOOSE_ODD : bits_of(weight); }
NSTF_DEVICE u32 mass_of(u32 key) { return key == CHOOSE_ODD ? 0u : (u32)(of_bits(key) * 0x1p30f); }

// A thread has the keys of every CHOOSE_THREADS-th page, from page 1 on; the first of them in LDS.
#define CHOOSE_KEPT 4096
struct kept_keys {
	const u32* near;
	const f32* weights; // from page 1 on
	NSTF_MEMBER u32 operator[](int i) const { return i < CHOOSE_KEPT ? near[i] : key_of(weights[i]); }
};

// Where the choice ends: pages whose keys are above `key`, and `some` of those that have it.
struct choice_end {
	u32 key;
	int some;
};

// A block finds where n keys reach `room` pages or, with CHOOSE_MASS, the mass `want`: byte by
// byte, from the highest on, until those that are left are all taken or just one.
NSTF_DEVICE choice_end choice_of(const kept_keys& keys, int n, int room, u32 want) {
	__shared__ u32 counts[256], masses[256];
	__shared__ int found, above, inside;
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
			const u32 k = keys[i];
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
				if (open(before) && !open(behind)) found = bin, above = (int)(before >> 32), mass_above = (u32)before, inside = (int)counts[bin];
				before = behind;
			}
		}
		__syncthreads();
		if (found < 0) return {0, n}; // all of them are too few
		key |= (u32)found << shift, taken = above, mass = mass_above;
		if (key > 0 && (inside == 1 || !CHOOSE_MASS && taken + inside == room)) return {key - 1, 0};
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
	__shared__ u32 near[CHOOSE_KEPT];
	begin_early();
	const int row = blockIdx.y, head = blockIdx.x;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const int all_pages = pages_of(positions[row]), known = known_of(positions[row]), n = known - 1;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const i64 at = (i64)row * kv_heads + head;
	logs += ((i64)row * heads + head * ATTEND_GROUP) * max_pages;
	weights += at * max_pages, lists += at * max_pages;
	const f32* history = histories + ((i64)owners[row] * history_heads + head) * (FOLLOW_HEADER + max_pages);
	const f64 share = shares[head];
	const int steps = (int)history[0];
	query_totals<CHOOSE_WAVES>(tops, sums, logs, max_pages, all_pages, CHOOSE_SINKS);

	auto weight_of = [&](int p) {
		f64 sum = 0;
#pragma unroll 4
		for (int g = 0; g < ATTEND_GROUP; g++) sum += (f64)(exp_f32(logs[(i64)g * max_pages + p] - tops[g]) / sums[g]);
		return (f32)(sum / ATTEND_GROUP);
	};
	int odd = 0;
	for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
		f32 w = weights[1 + i];
		if (w == w) weights[1 + i] = w = weight_of(1 + i);
		else odd++;
		if (i < CHOOSE_KEPT) near[i] = key_of(w);
	}
	const kept_keys keys = {near, weights + 1};
	const int odds = block_sum<CHOOSE_WAVES>(odd, ints);
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
	for (int p = threadIdx.x; p <= all_pages - known; p += CHOOSE_THREADS) always += weight_of(p == 0 ? 0 : known + p - 1);
	always = block_sum<CHOOSE_WAVES>(always, floats);
	const f32 rest = (mass - always) * 0x1p30f;
	want = rest > 0 ? (u32)rest : 0;
#endif
	choice_end end = {CHOOSE_ODD, odds};
	if (share >= 1) end = {0, n};
	else if (room > 0 && (!CHOOSE_MASS || want > 0)) end = choice_of(keys, n, room, want);
	if (end.key == CHOOSE_ODD) end.some = odds;

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
		__syncthreads();
		if (lane == 0) ints[wave] = __popcll(highers) << 16 | __popcll(sames);
		__syncthreads();
		int before = __popcll(highers & lower) << 16 | __popcll(sames & lower), all = 0;
#pragma unroll
		for (int w = 0; w < CHOOSE_WAVES; w++) {
			const int of = ints[w];
			before += w < wave ? of : 0;
			all += of;
		}
		const int rank_same = equal + (before & 0xffff), rank = above + (before >> 16) + (rank_same < end.some ? rank_same : end.some);
		above += all >> 16, equal += all & 0xffff;
		if (i >= n) continue;
		const bool take = higher || same && rank_same < end.some;
		if (!take) left += of_bits(key);
		lists[take ? rank : n - 1 - (i - rank)] = 1 + i;
	}
	const int chosen = above + (equal < end.some ? equal : end.some);
	left = block_sum<CHOOSE_WAVES>(left, floats);
	if (threadIdx.x != 0) return;
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

#define SETTLE_QUERIES (ATTEND_GROUP < 4 ? ATTEND_GROUP : 4) // that are put together at once

NSTF_KERNEL void __launch_bounds__(SETTLE_THREADS)
nstf_settle_pages(f32* out, SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, const f32* records, u64* counts) {
	__shared__ f32 factors[SETTLE_QUERIES][3][PAGES_SPLITS], room[SETTLE_WAVES], query_tops[ATTEND_GROUP], query_sums[ATTEND_GROUP];
	__shared__ settled totals[SETTLE_QUERIES][3];
	__shared__ f32 turned[KV_CODED ? SETTLE_QUERIES : 1][KV_VALUE];
	begin_early();
	const int row = blockIdx.y, head = blockIdx.x, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (!follows(positions, owners, row, least_positions, rank)) return;
	const int all_pages = pages_of(positions[row]), known = known_of(positions[row]), n = known - 1, always = 1 + all_pages - known;
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	const follow_plan plan = plans[at];
	f32* history = histories + ((i64)owners[row] * history_heads + head) * (FOLLOW_HEADER + max_pages);
	const bool learns = shares[head] < 1, fresh = history[0] == 0, all = plan.whole;
	int blocks[3]; // that have a record of each kind
#pragma unroll
	for (int kind = 0; kind < 3; kind++) {
		const int count = follow_count(plan, kind, n, always), each = follow_each(kind, count);
		blocks[kind] = (count + each - 1) / each;
	}
	f32 without_error = 0, with_error = 0;
#pragma unroll 1
	for (int base_query = 0; base_query < ATTEND_GROUP; base_query += SETTLE_QUERIES) {
		const int here = ATTEND_GROUP - base_query < SETTLE_QUERIES ? ATTEND_GROUP - base_query : SETTLE_QUERIES;
		auto records_of = [&](int g) {
			return records + (at * ATTEND_PARTS + (base_query + g) / ATTEND_QUERIES) * (3 * PAGES_SPLITS) * SETTLE_RECORD;
		};
		__syncthreads();
		for (int i = wave; i < 3 * here; i += SETTLE_WAVES) {
			const int g = i / 3, kind = i % 3, count = kind == 0 ? blocks[0] : kind == 1 ? blocks[1] : blocks[2];
			const f32* from = records_of(g) + (i64)kind * PAGES_SPLITS * SETTLE_RECORD + (base_query + g) % ATTEND_QUERIES;
			constexpr int rounds = (PAGES_SPLITS + NSTF_WAVE - 1) / NSTF_WAVE;
			f32 tops[rounds], sums[rounds], top = FOLLOW_NONE, sum = 0;
#pragma unroll
			for (int r = 0; r < rounds; r++) {
				const int j = r * NSTF_WAVE + lane;
				const bool there = j < count;
				tops[r] = there ? from[(i64)j * SETTLE_RECORD] : FOLLOW_NONE;
				sums[r] = there ? from[(i64)j * SETTLE_RECORD + ATTEND_QUERIES] : 0.0f;
				top = wave_max_of(tops[r], top);
			}
			top = wave_max<NSTF_WAVE>(top);
#pragma unroll
			for (int r = 0; r < rounds; r++) {
				const int j = r * NSTF_WAVE + lane;
				const f32 c = exp_f32(tops[r] - top);
				if (j < PAGES_SPLITS) factors[g][kind][j] = c;
				sum = fmaf(c, sums[r], sum);
			}
			sum = wave_sum<NSTF_WAVE>(sum);
			if (lane == 0) totals[g][kind] = {top, sum, 0};
		}
		__syncthreads();
		for (int i = threadIdx.x; i < here * KV_VALUE; i += SETTLE_THREADS) {
			const int g = i / KV_VALUE, d = i % KV_VALUE;
			const f32* from = records_of(g) + 2 * ATTEND_QUERIES + (base_query + g) % ATTEND_QUERIES * KV_VALUE + d;
			settled kinds[3];
#pragma unroll
			for (int kind = 0; kind < 3; kind++) {
				f32 value = 0;
#pragma unroll 8
				for (int j = 0; j < blocks[kind]; j++) value = fmaf(factors[g][kind][j], from[((i64)kind * PAGES_SPLITS + j) * SETTLE_RECORD], value);
				kinds[kind] = {totals[g][kind].top, totals[g][kind].sum, value};
			}
#if ATTEND_SINKS
			kinds[0] = settle_two(kinds[0], {sinks[head * ATTEND_GROUP + base_query + g], 1, 0});
#endif
			auto value_of = [](settled s) { return s.sum == 0 ? 0.0f : s.value / s.sum; };
			const f32 without = value_of(kinds[0]), with = plan.stand ? value_of(settle_two(kinds[0], kinds[2])) : without;
			const f32 full = all ? value_of(settle_two(kinds[0], kinds[1])) : with;
			without_error = fmaf(without - full, without - full, without_error);
			with_error = fmaf(with - full, with - full, with_error);
			if (KV_CODED) turned[g][d] = full;
			else out[(first + base_query) * KV_VALUE + i] = full;
		}
#if KV_CODED // what was summed of turned values is turned back
		__syncthreads();
		for (int g = wave; g < here; g += SETTLE_WAVES) {
			kv_turn<KV_VALUE>(turned[g]);
			for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) out[(first + base_query + g) * KV_VALUE + i] = turned[g][i];
		}
#endif
	}
	const int read = all ? all_pages : plan.chosen + always;
	if (threadIdx.x == 0) atomicAdd(counts, (u64)read), atomicAdd(counts + 1, (u64)all_pages);
	if (!learns) return;
	logs += first * max_pages, foretold += first * max_pages, lists += at * max_pages;
	query_totals<SETTLE_WAVES>(query_tops, query_sums, logs, max_pages, all_pages, CHOOSE_SINKS);
	for (int i = threadIdx.x; i < (all ? n : plan.chosen); i += SETTLE_THREADS) {
		const int page = lists[i];
		f32 sum = 0, weight = 0;
#pragma unroll 4
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
	if (all) {
		without_error = block_sum<SETTLE_WAVES>(without_error, room);
		with_error = block_sum<SETTLE_WAVES>(with_error, room);
	}
	if (threadIdx.x != 0) return;
	history[3] = all && fresh ? plan.left : 0.9f * history[3] + 0.1f * plan.left;
	if (all) {
		const f32 keep = fresh ? 0.0f : 0.5f;
		history[1] = keep * history[1] + (1 - keep) * without_error;
		history[2] = keep * history[2] + (1 - keep) * with_error;
	}
	history[0] = all ? 1 : history[0] + 1;
}
