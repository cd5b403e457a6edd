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
// Grid: x over key-value heads, y over rows; settle: z over a head's queries, of which a block each puts
// numbers together, and one more learns. CHOOSE_WAVES waves, SETTLE_WAVES. Deterministic: what is
// counted by atomics are whole numbers. Bound: latency, of one pass over logs and four over keys in LDS.
#include "follow.hip"

#define CHOOSE_THREADS (CHOOSE_WAVES * NSTF_WAVE)
#define CHOOSE_ROUNDS (ATTEND_GROUP <= 4 ? 4 : ATTEND_GROUP <= 8 ? 2 : 1) // pages that a thread keeps

#define CHOOSE_ODD 0xffffffffu // the key of a page that is read whatever it weighs

// Weights as keys of their order, odd ones in the highest bin; parts of all in 2^30ths.
NSTF_DEVICE u32 key_of(f32 weight) { return weight != weight ? CHOOSE_ODD : bits_of(weight); }
NSTF_DEVICE f32 weight_of(u32 key) { return key == CHOOSE_ODD ? 0.0f : of_bits(key); }

// Counts of keys by one of their bytes, the highest first, and with CHOOSE_MASS what they weigh.
#if CHOOSE_MASS
typedef u64 tally; // count and mass, which is under 2^31
#else
typedef u32 tally;
#endif
struct choose_bins {
	alignas(16) u32 counts[4][256];
#if CHOOSE_MASS
	alignas(16) u32 masses[4][256];
#endif
	NSTF_MEMBER void clear() {
		for (int i = threadIdx.x; i < (int)sizeof(*this) / 4; i += CHOOSE_THREADS) counts[0][i] = 0;
	}
	NSTF_MEMBER void add(int pass, u32 key) {
		const int bin = key >> (24 - 8 * pass) & 255;
		atomicAdd(counts[pass] + bin, 1u);
#if CHOOSE_MASS
		atomicAdd(masses[pass] + bin, (u32)(weight_of(key) * 0x1p30f));
#endif
	}
};

// The keys of the pages from page 1 on: a thread has every CHOOSE_THREADS-th, the first few in registers.
struct choose_keys {
	const u32 (&near)[CHOOSE_ROUNDS];
	const f32* weights; // of the others
	int n;
	template <typename Take> NSTF_MEMBER void each(Take take) const {
#pragma unroll
		for (int r = 0; r < CHOOSE_ROUNDS; r++)
			if (r * CHOOSE_THREADS + (int)threadIdx.x < n) take(near[r]);
		for (int i = CHOOSE_ROUNDS * CHOOSE_THREADS + (int)threadIdx.x; i < n; i += CHOOSE_THREADS) take(key_of(weights[i]));
	}
};

// Where the choice ends: pages whose keys are above `key`, and `some` of those that have it.
struct choice_end {
	u32 key;
	int some;
};

// A block finds where n keys reach `room` pages, fewer than n or with CHOOSE_MASS the mass `want`: byte by
// byte, from the highest on, whose bins are there, until those that are left are all taken or just one.
// Each wave finds it for itself.
NSTF_DEVICE choice_end choice_of(choose_bins& bins, const choose_keys& keys, int n, int room, u32 want) {
	constexpr int each = 256 / NSTF_WAVE; // bins of a lane
	const int lane = threadIdx.x % NSTF_WAVE;
	u32 key = 0, mass = 0;
	int taken = 0;
	auto open = [&](tally x) {
#if CHOOSE_MASS
		return (int)(x >> 32) < room && (u32)x < want;
#else
		return (int)x < room;
#endif
	};
#pragma unroll 1
	for (int pass = 0; pass < 4; pass++) {
		const int shift = 24 - 8 * pass;
		if (pass > 0) {
			keys.each([&](u32 k) {
				if (k >> (shift + 8) == key >> (shift + 8)) bins.add(pass, k);
			});
			__syncthreads();
		}
		tally own[each], mine = 0;
#pragma unroll
		for (int b = 0; b < each; b += 4) { // the last bins first: a lane has those below the lane before
			const int at = 256 - (lane + 1) * each + b;
			const pack<u32, 4> c = *(const pack<u32, 4>*)(bins.counts[pass] + at);
#if CHOOSE_MASS
			const pack<u32, 4> m = *(const pack<u32, 4>*)(bins.masses[pass] + at);
#endif
#pragma unroll
			for (int i = 0; i < 4; i++) {
#if CHOOSE_MASS
				own[b + i] = (u64)c.v[i] << 32 | m.v[i];
#else
				own[b + i] = c.v[i];
#endif
				mine += own[b + i];
			}
		}
		tally through = mine;
#pragma unroll
		for (int m = 1; m < NSTF_WAVE; m *= 2) {
			const tally lower = wave_below(through, m);
			if (lane >= m) through += lower;
		}
#if CHOOSE_MASS
		tally before = through - mine + ((u64)(u32)taken << 32 | mass);
#else
		tally before = through - mine + (u32)taken;
#endif
		const u64 where = wave_ballot(open(before) && !open(before + mine));
		if (where == 0) return {0, n}; // all of them are too few
		u32 bin = 0;
		tally above = 0, inside = 0;
#pragma unroll
		for (int b = each - 1; b >= 0; b--) {
			if (open(before) && !open(before + own[b])) bin = (u32)(256 - (lane + 1) * each + b), above = before, inside = own[b];
			before += own[b];
		}
		const int from = __popcll((where & (~where + 1)) - 1);
		key |= wave_get(bin, from) << shift;
#if CHOOSE_MASS
		taken = (int)wave_get((u32)(above >> 32), from), mass = wave_get((u32)above, from);
		const int held = (int)wave_get((u32)(inside >> 32), from);
#else
		taken = (int)wave_get(above, from);
		const int held = (int)wave_get(inside, from);
#endif
		if (key > 0 && (held == 1 || !CHOOSE_MASS && taken + held == room)) return {key - 1, 0};
	}
	int some = room - taken;
	if (CHOOSE_MASS) {
		const u32 one = (u32)(weight_of(key) * 0x1p30f);
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

NSTF_KERNEL void __launch_bounds__(CHOOSE_THREADS, 1)
nstf_choose_pages(SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, int least_pages, int refresh, f32 mass) {
	constexpr int entries = CHOOSE_ROUNDS * CHOOSE_WAVES, chunk = CHOOSE_ROUNDS * CHOOSE_THREADS;
	__shared__ f32 tops[ATTEND_GROUP], sums[ATTEND_GROUP], floats[CHOOSE_WAVES];
	__shared__ u32 places[entries];
	__shared__ choose_bins bins;
	let_next_begin();
	const int row = blockIdx.y, head = blockIdx.x;
	const bool meant = follows(positions, owners, row, least_positions, rank);
	const int position = load_settled(positions + row), owner = load_settled(owners + row);
	bins.clear();
	wait_for_inputs(); // though no row of the launch may follow: what comes behind waits for this one alone
	if (!meant) return;
	const int all_pages = pages_of(position), known = known_of(position), n = known - 1, always = 1 + all_pages - known;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	const i32* table = pages + (i64)owner * max_pages;
	logs += FOLLOW_PARTS * first * max_pages, parts += first * follow_parts(max_pages);
	weights += at * max_pages, lists += at * max_pages;
	const f32* history = histories + ((i64)owner * history_heads + head) * (FOLLOW_HEADER + max_pages);
	const f64 share = shares[head];
	const pack<f32, 4> past = {{history[0], history[1], history[2], history[3]}};

	f32 x[CHOOSE_ROUNDS][ATTEND_GROUP], w[CHOOSE_ROUNDS];
	i32 physical[CHOOSE_ROUNDS];
#pragma unroll
	for (int r = 0; r < CHOOSE_ROUNDS; r++) {
		const int i = r * CHOOSE_THREADS + (int)threadIdx.x, page = i < n ? 1 + i : 0;
		w[r] = i < n ? weights[page] : 0.0f;
		physical[r] = table[page];
#pragma unroll
		for (int g = 0; g < ATTEND_GROUP; g++) x[r][g] = logs[(i64)FOLLOW_PARTS * g * max_pages + page];
	}
	for (int g = wave; g < ATTEND_GROUP; g += CHOOSE_WAVES) {
		const int count = always + (n + PAGES_FORETOLD - 1) / PAGES_FORETOLD;
		f32 top = FOLLOW_NONE, sum = 0;
		for (int base = 0; base < count; base += NSTF_WAVE) {
			const int i = base + lane;
			follow_sum one = {FOLLOW_NONE, 0};
			if (i < always) one = {logs[(i64)FOLLOW_PARTS * g * max_pages + always_page(i, known)], 1};
			else if (i < count) one = parts[(i64)g * follow_parts(max_pages) + i - always];
			const f32 most = wave_max_of(top, one.top);
			sum = fmaf(sum, exp_f32(top - most), one.sum * exp_f32(one.top - most));
			top = most;
		}
		f32 most = wave_max<NSTF_WAVE>(top);
#if ATTEND_SINKS
		most = wave_max_of(most, sinks[head * ATTEND_GROUP + g]);
#endif
		sum = wave_sum<NSTF_WAVE>(sum * exp_f32(top - most));
#if ATTEND_SINKS
		sum += exp_f32(sinks[head * ATTEND_GROUP + g] - most);
#endif
		if (lane == 0) tops[g] = most, sums[g] = sum;
	}
	__syncthreads();

	auto mean_of = [&](const f32 (&log)[ATTEND_GROUP]) {
		f64 sum = 0;
#pragma unroll
		for (int g = 0; g < ATTEND_GROUP; g++) sum += (f64)(exp_f32(log[g] - tops[g]) / sums[g]);
		return (f32)(sum / ATTEND_GROUP);
	};
	auto mean_at = [&](int page) {
		f32 log[ATTEND_GROUP];
#pragma unroll
		for (int g = 0; g < ATTEND_GROUP; g++) log[g] = logs[(i64)FOLLOW_PARTS * g * max_pages + page];
		return mean_of(log);
	};
	u32 near[CHOOSE_ROUNDS];
#pragma unroll
	for (int r = 0; r < CHOOSE_ROUNDS; r++) {
		near[r] = w[r] == w[r] ? key_of(mean_of(x[r])) : CHOOSE_ODD;
		if (r * CHOOSE_THREADS + (int)threadIdx.x < n) bins.add(0, near[r]);
	}
	for (int i = chunk + (int)threadIdx.x; i < n; i += CHOOSE_THREADS) {
		f32 weight = weights[1 + i];
		if (weight == weight) weights[1 + i] = weight = mean_at(1 + i);
		bins.add(0, key_of(weight));
	}
	const choose_keys keys = {near, weights + 1, n};
	__syncthreads();
	const int odds = (int)bins.counts[0][255];
	int room = all_pages;
	if (share < 1) {
		room = (int)ceil(share * all_pages);
		room = room > least_pages ? room : least_pages;
	}
	room -= always;
	room = room > odds ? room : odds;
	room = room > n ? n : room;
	u32 want = 0;
#if CHOOSE_MASS
	f32 held = 0;
	for (int base = 0; base < always; base += NSTF_WAVE) held += base + lane < always ? mean_at(always_page(base + lane, known)) : 0.0f;
	held = wave_sum<NSTF_WAVE>(held);
	const f32 rest = (mass - held) * 0x1p30f;
	want = rest > 0 ? (u32)rest : 0;
#endif
	choice_end end = {CHOOSE_ODD, odds};
	if (share >= 1 || !CHOOSE_MASS && room >= n) end = {0, n};
	else if (room > 0 && (!CHOOSE_MASS || want > 0)) end = choice_of(bins, keys, n, room, want);
	if (end.key == CHOOSE_ODD) end.some = odds;

	// Equal keys by their order. The chosen fill the list from its beginning, the others from
	// its end. Counts of keys above in the upper half of a word, of equal ones in the lower, by
	// rounds and waves.
	f32 left = 0;
	int above = 0, equal = 0;
	auto put = [&](int base, const u32 (&key)[CHOOSE_ROUNDS], const i32 (&place)[CHOOSE_ROUNDS]) {
		constexpr int each = (entries + NSTF_WAVE - 1) / NSTF_WAVE; // entries of a lane
		u32 ranks[CHOOSE_ROUNDS];
		const u64 lower = (1ull << lane) - 1;
		__syncthreads();
#pragma unroll
		for (int r = 0; r < CHOOSE_ROUNDS; r++) {
			const int i = base + r * CHOOSE_THREADS + (int)threadIdx.x;
			const bool higher = i < n && key[r] > end.key, same = i < n && key[r] == end.key;
			const u64 highers = wave_ballot(higher), sames = wave_ballot(same);
			ranks[r] = (u32)(__popcll(highers & lower) << 16 | __popcll(sames & lower));
			if (lane == 0) places[r * CHOOSE_WAVES + wave] = (u32)(__popcll(highers) << 16 | __popcll(sames));
		}
		__syncthreads();
		u32 mine = 0;
#pragma unroll
		for (int e = 0; e < each; e++) mine += lane * each + e < entries ? places[lane * each + e] : 0;
		u32 through = mine;
#pragma unroll
		for (int m = 1; m < NSTF_WAVE; m *= 2) {
			const u32 less = wave_below(through, m);
			if (lane >= m) through += less;
		}
		const u32 all = wave_get(through, NSTF_WAVE - 1);
#pragma unroll
		for (int r = 0; r < CHOOSE_ROUNDS; r++) {
			const int i = base + r * CHOOSE_THREADS + (int)threadIdx.x, entry = r * CHOOSE_WAVES + wave;
			u32 before = ranks[r] + wave_get(through - mine, entry / each);
			for (int e = entry / each * each; e < entry; e++) before += places[e];
			const int same = equal + (int)(before & 0xffff), rank = above + (int)(before >> 16) + (same < end.some ? same : end.some);
			const bool take = key[r] > end.key || key[r] == end.key && same < end.some;
			if (i < n && !take) left += weight_of(key[r]);
			if (i < n) lists[take ? rank : n - 1 - (i - rank)] = {1 + i, place[r]};
		}
		above += (int)(all >> 16), equal += (int)(all & 0xffff);
	};
	put(0, near, physical);
#pragma unroll 1
	for (int base = chunk; base < n; base += chunk) {
		u32 key[CHOOSE_ROUNDS];
		i32 place[CHOOSE_ROUNDS];
#pragma unroll
		for (int r = 0; r < CHOOSE_ROUNDS; r++) {
			const int i = base + r * CHOOSE_THREADS + (int)threadIdx.x, page = i < n ? 1 + i : 0;
			key[r] = key_of(weights[page]), place[r] = table[page];
		}
		put(base, key, place);
	}
	const int chosen = above + (equal < end.some ? equal : end.some);
	left = wave_sum<NSTF_WAVE>(left);
	if (lane == 0) floats[wave] = left;
	__syncthreads();
	if (threadIdx.x != 0) return;
	left = 0;
#pragma unroll
	for (int i = 0; i < CHOOSE_WAVES; i++) left += floats[i];
	const int steps = (int)past.v[0];
	const bool whole = share < 1 && (steps == 0 || steps >= refresh || steps >= 16 && left > past.v[3] + 0.4f);
	plans[at] = {chosen, whole, whole || share < 1 && past.v[2] < past.v[1], left};
}

#define SETTLE_THREADS (SETTLE_WAVES * NSTF_WAVE)
#define SETTLE_RECORD (ATTEND_QUERIES * (KV_VALUE + 2))
#define SETTLE_SHARES (SETTLE_THREADS >= 4 * KV_VALUE ? 4 : SETTLE_THREADS > KV_VALUE ? SETTLE_THREADS / KV_VALUE : 1) // threads of a number

// Of each query the highest logarithm and the sum of what is above it in e^: some waves a query.
NSTF_DEVICE void query_totals(f32* tops, f32* sums, const f32* logs, int max_pages, int pages, const f32* sinks) {
	constexpr int each = ATTEND_GROUP >= SETTLE_WAVES ? 1 : SETTLE_WAVES / ATTEND_GROUP; // waves of a query
	__shared__ f32 part_tops[ATTEND_GROUP][each], part_sums[ATTEND_GROUP][each];
	const int lane = threadIdx.x % NSTF_WAVE;
	for (int i = threadIdx.x / NSTF_WAVE; i < ATTEND_GROUP * each; i += SETTLE_WAVES) {
		const f32* row = logs + (i64)FOLLOW_PARTS * (i / each) * max_pages;
		f32 top = FOLLOW_NONE, sum = 0;
		for (int base = i % each * NSTF_WAVE + lane; base < pages; base += 4 * each * NSTF_WAVE) {
			f32 x[4][FOLLOW_PARTS], most = top;
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int k = 0; k < FOLLOW_PARTS; k++) {
					const int p = base + j * each * NSTF_WAVE;
					x[j][k] = p < pages ? row[(i64)k * max_pages + p] : FOLLOW_NONE;
					most = wave_max_of(x[j][k], most);
				}
			sum *= exp_f32(top - most);
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int k = 0; k < FOLLOW_PARTS; k++) sum += x[j][k] > FOLLOW_NONE ? exp_f32(x[j][k] - most) : 0.0f;
			top = most;
		}
		const f32 most = wave_max<NSTF_WAVE>(top);
		sum = wave_sum<NSTF_WAVE>(sum * exp_f32(top - most));
		if (lane == 0) part_tops[i / each][i % each] = most, part_sums[i / each][i % each] = sum;
	}
	__syncthreads();
	for (int g = threadIdx.x; g < ATTEND_GROUP; g += SETTLE_THREADS) {
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
NSTF_DEVICE f32 block_sum(f32 v, f32* room) {
	v = wave_sum<NSTF_WAVE>(v);
	__syncthreads();
	if (threadIdx.x % NSTF_WAVE == 0) room[threadIdx.x / NSTF_WAVE] = v;
	__syncthreads();
	f32 sum = 0;
	for (int w = 0; w < SETTLE_WAVES; w++) sum += room[w];
	return sum;
}

// Records of one kind: the highest score, the sum of weights and a sum of values.
struct settled {
	f32 top, sum, value;
};

// Two of them, or one and none.
NSTF_DEVICE settled settle_two(settled a, settled b) {
	const f32 top = wave_max_of(a.top, b.top), c = exp_f32(a.top - top), d = exp_f32(b.top - top);
	return {top, fmaf(a.sum, c, b.sum * d), fmaf(a.value, c, b.value * d)};
}

typedef settled settle_room[3][SETTLE_SHARES * KV_VALUE];

// What a query gives: without pages that are not chosen, with means for them, and of all that the step
// reads. put has each number of them in one thread.
template <typename Put> NSTF_DEVICE void settle_query(const f32* records, int g, const int (&blocks)[3], const follow_plan& plan, const f32* sinks, settle_room& room, Put put) {
	constexpr int some = 4; // records that are under way at once
	const f32* from = records + (i64)(g / ATTEND_QUERIES) * (3 * PAGES_SPLITS) * SETTLE_RECORD + g % ATTEND_QUERIES;
	int most_blocks = blocks[0] > blocks[1] ? blocks[0] : blocks[1];
	most_blocks = most_blocks > blocks[2] ? most_blocks : blocks[2];
	__syncthreads();
	for (int i = threadIdx.x; i < SETTLE_SHARES * KV_VALUE; i += SETTLE_THREADS) {
		const int d = i % KV_VALUE, share = i / KV_VALUE;
		settled sum[3] = {{FOLLOW_NONE, 0, 0}, {FOLLOW_NONE, 0, 0}, {FOLLOW_NONE, 0, 0}};
#pragma unroll 1
		for (int base = share; base < most_blocks; base += some * SETTLE_SHARES) {
			settled one[3][some];
#pragma unroll
			for (int kind = 0; kind < 3; kind++)
#pragma unroll
				for (int k = 0; k < some; k++) {
					const int j = base + k * SETTLE_SHARES;
					const f32* record = from + (i64)(kind * PAGES_SPLITS + j) * SETTLE_RECORD;
					one[kind][k] = {FOLLOW_NONE, 0, 0};
					if (j < blocks[kind]) one[kind][k] = {record[0], record[ATTEND_QUERIES], record[2 * ATTEND_QUERIES + (g % ATTEND_QUERIES) * (KV_VALUE - 1) + d]};
				}
#pragma unroll
			for (int kind = 0; kind < 3; kind++) {
				f32 top = sum[kind].top;
#pragma unroll
				for (int k = 0; k < some; k++) top = wave_max_of(one[kind][k].top, top);
				const f32 c = exp_f32(sum[kind].top - top);
				sum[kind] = {top, sum[kind].sum * c, sum[kind].value * c};
#pragma unroll
				for (int k = 0; k < some; k++) {
					const f32 f = exp_f32(one[kind][k].top - top);
					sum[kind].sum = fmaf(one[kind][k].sum, f, sum[kind].sum), sum[kind].value = fmaf(one[kind][k].value, f, sum[kind].value);
				}
			}
		}
#pragma unroll
		for (int kind = 0; kind < 3; kind++) room[kind][i] = sum[kind];
	}
	__syncthreads();
	for (int d = threadIdx.x; d < KV_VALUE; d += SETTLE_THREADS) {
		settled kinds[3];
#pragma unroll
		for (int kind = 0; kind < 3; kind++) {
			kinds[kind] = room[kind][d];
#pragma unroll
			for (int i = 1; i < SETTLE_SHARES; i++) kinds[kind] = settle_two(kinds[kind], room[kind][i * KV_VALUE + d]);
		}
#if ATTEND_SINKS
		kinds[0] = settle_two(kinds[0], {sinks[g], 1, 0});
#endif
		auto value_of = [](settled s) { return s.sum == 0 ? 0.0f : s.value / s.sum; };
		const f32 without = value_of(kinds[0]), with = plan.stand ? value_of(settle_two(kinds[0], kinds[2])) : without;
		put(d, without, with, plan.whole ? value_of(settle_two(kinds[0], kinds[1])) : with);
	}
}

NSTF_KERNEL void __launch_bounds__(SETTLE_THREADS, 1)
nstf_settle_pages(f32* out, SINK_PARAMETER int heads, int kv_heads, ROWS_PARAMETERS, FOLLOW_PARAMETERS, const f64* shares, const f32* records, u64* counts) {
	__shared__ settle_room room;
	__shared__ f32 errors[SETTLE_WAVES], query_tops[ATTEND_GROUP], query_sums[ATTEND_GROUP];
	__shared__ f32 turned[KV_CODED ? KV_VALUE : 1];
	let_next_begin();
	const int row = blockIdx.y, head = blockIdx.x;
	const bool meant = follows(positions, owners, row, least_positions, rank);
	const int position = load_settled(positions + row), owner = load_settled(owners + row);
	wait_for_inputs();
	if (!meant) return;
	const int all_pages = pages_of(position), known = known_of(position), n = known - 1, always = 1 + all_pages - known;
	const i64 at = (i64)row * kv_heads + head, first = (i64)row * heads + head * ATTEND_GROUP;
	const follow_plan plan = plans[at];
	records += at * ATTEND_PARTS * (3 * PAGES_SPLITS) * SETTLE_RECORD;
	int blocks[3]; // that have a record of each kind
#pragma unroll
	for (int kind = 0; kind < 3; kind++) blocks[kind] = follow_blocks(kind, follow_count(plan, kind, n, always));
	if (blockIdx.z < ATTEND_GROUP) {
		const int g = blockIdx.z;
		f32* to = out + (first + g) * KV_VALUE;
		settle_query(records, g, blocks, plan, CHOOSE_SINKS, room, [&](int d, f32, f32, f32 full) { (KV_CODED ? turned : to)[d] = full; });
#if KV_CODED // what was summed of turned values is turned back
		__syncthreads();
		if (threadIdx.x >= NSTF_WAVE) return;
		kv_turn<KV_VALUE>(turned);
		for (int i = threadIdx.x; i < KV_VALUE; i += NSTF_WAVE) to[i] = turned[i];
#endif
		return;
	}
	const bool all = plan.whole;
	if (threadIdx.x == 0) atomicAdd(counts, (u64)(all ? all_pages : plan.chosen + always)), atomicAdd(counts + 1, (u64)all_pages);
	if (!(shares[head] < 1)) return;
	f32* history = histories + ((i64)owner * history_heads + head) * (FOLLOW_HEADER + max_pages);
	logs += FOLLOW_PARTS * first * max_pages, foretold += first * max_pages, lists += at * max_pages;
	const int seen_pages = all ? n : plan.chosen;
	query_totals(query_tops, query_sums, logs, max_pages, all_pages, CHOOSE_SINKS);
	for (int i = threadIdx.x; i < seen_pages; i += SETTLE_THREADS) {
		const int page = lists[i].page;
		f32 sum = 0, weight = 0;
#pragma unroll 4
		for (int g = 0; g < ATTEND_GROUP; g++) {
			const f32* parts_of = logs + (i64)FOLLOW_PARTS * g * max_pages + page;
			f32 top = FOLLOW_NONE, all_parts = 0;
#pragma unroll
			for (int k = 0; k < FOLLOW_PARTS; k++) top = wave_max_of(parts_of[(i64)k * max_pages], top);
#pragma unroll
			for (int k = 0; k < FOLLOW_PARTS; k++) all_parts += exp_f32(parts_of[(i64)k * max_pages] - top);
			const f32 log = top + log_f32(all_parts), x = exp_f32(log - query_tops[g]) / query_sums[g];
			weight += x;
			if (x > 0) sum = fmaf(x, log - foretold[(i64)g * max_pages + page], sum);
		}
		f32& ratio = history[FOLLOW_HEADER + page];
		const f32 seen = sum / weight, keep = all ? 0.0f : 0.7f;
		if (weight > 0 && seen == seen) ratio = keep * ratio + (1.0f - keep) * fminf(fmaxf(seen, -4.0f), 4.0f);
	}
	f32 without_error = 0, with_error = 0;
	if (all) {
#pragma unroll 1
		for (int g = 0; g < ATTEND_GROUP; g++)
			settle_query(records, g, blocks, plan, CHOOSE_SINKS, room, [&](int, f32 without, f32 with, f32 full) {
				without_error = fmaf(without - full, without - full, without_error);
				with_error = fmaf(with - full, with - full, with_error);
			});
		without_error = block_sum(without_error, errors);
		with_error = block_sum(with_error, errors);
	}
	if (threadIdx.x != 0) return;
	const bool fresh = history[0] == 0;
	history[3] = all && fresh ? plan.left : 0.9f * history[3] + 0.1f * plan.left;
	if (all) {
		const f32 keep = fresh ? 0.0f : 0.5f;
		history[1] = keep * history[1] + (1 - keep) * without_error;
		history[2] = keep * history[2] + (1 - keep) * with_error;
	}
	history[0] = all ? 1 : history[0] + 1;
}
