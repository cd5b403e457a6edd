// The next token of each row, from its logits: runtime/sample's chain.
//
//	penalty:  for each token of the history once: logit /= p, or *= p if negative
//	weights:  w = exp((logit - max) / temperature), in units of 2^-45
//	top-k, top-p, min-p: keep the most probable, as Options in runtime/sample say
//	draw:     the first id at which the sum of kept weights exceeds random * total
//
// logits f32[T][vocab]; token i32[T]. A NaN counts as -Inf. Temperature 0, and
// greedy, take the greatest logit, the lowest id among equals. Weights and their
// sums are integers: sums are exact and do not depend on their order, so that
// lists may be gathered in any. Among equal logits the lower id is the more
// probable; key orders both: the logit's bits made to rise with it, then ~id.
//
// mask, where there is one, before all of that: a logit whose bit is not set becomes a
// NaN, which no choice takes.
//
// Launches, each over slices of SLICE logits (x) and rows (y), the block that
// counts last finishing what concerns the whole row:
//	penalize  a block a row; LDS: a bit for each token
//	top       the greatest logit
//	weigh     weights, and a histogram of them by logit; then in which bin the
//	          filters' thresholds lie
//	gather    lists that bin's tokens (with top-k and top-p both, all down to it);
//	          then the exact thresholds, by dividing the range of keys again and
//	          again, each wave with the list's sum from one point on
//	pick      sums of the kept weights of each slice; then the random number, the
//	          slice and the token that it falls on
//
// Deterministic. Bound: latency, and reading the logits twice from the cache.
// Source of the random numbers: Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011), the key being the sequence's seed and the
// counter the position of the token that is picked.
#include "functions.hip"
#include "reduce.hip"

#define SLICE 2048
#define BINS 512
#define BINS_PER_UNIT 16 // of (max - logit) / temperature; beyond 32 units weights are 0
#define WEIGHT_ONE 35184372088832.0 // 2^45
#define SLICE_THREADS 256
#define PENALTY_THREADS 1024
#define SLICE_WAVES (SLICE_THREADS / NSTF_WAVE)
#define SLICE_EACH (SLICE / SLICE_THREADS)
#define HELD 2048 // entries of the list that LDS holds

struct sample_options {
	f64 temperature, top_p, min_p, penalty;
	i32 top_k, window;
};

// A row's work space. Go: Sample.sampleRecord.
struct sample_head {
	f32 top;
	i32 best;
	u32 listed; // entries of the list
	i32 active; // 0: the token is chosen
	i32 from, cut; // first and last bin that is listed; from > cut: none
	u64 total;     // of all weights
	u64 above;     // what bins before from hold: tokens with top-k, else weights
	u64 bottom;    // the least key that is kept
	u64 least;     // the least weight
};

struct sample_slice {
	u64 weight;
	f32 top;
	i32 best;
};

// Filters that a row has, given how many tokens have a weight.
struct sample_filters {
	bool by_count, by_share;
};
NSTF_DEVICE sample_filters filters_of(const sample_options& o, u64 weighed) {
	return sample_filters{o.top_k > 0 && (u64)o.top_k < weighed, o.top_p > 0 && o.top_p < 1};
}

struct sample_space {
	sample_head* head;
	sample_slice* slices;
	u64* bin_weights; // [BINS]
	u32* bin_counts;  // [BINS], in the room of u64
	u64* weights;     // [vocab]
	u64* keys;        // [vocab], of the list
	u64* list;        // [vocab], weights of the list
};

NSTF_DEVICE sample_space space_of(u8* scratch, int row, int vocab) {
	const int slices = (vocab + SLICE - 1) / SLICE;
	u8* at = scratch + (i64)row * (64 + 16 * slices + 16 * BINS + 24 * (i64)vocab);
	sample_space s;
	s.head = (sample_head*)at;
	s.slices = (sample_slice*)(at + 64);
	s.bin_weights = (u64*)(at + 64 + 16 * slices);
	s.bin_counts = (u32*)(s.bin_weights + BINS);
	s.weights = s.bin_weights + 2 * BINS;
	s.keys = s.weights + vocab;
	s.list = s.keys + vocab;
	return s;
}

// Counts the blocks of a row; the last one knows that the others have written.
NSTF_DEVICE bool counted_last(u32* counter) {
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		last = atomicAdd(counter, 1u) == gridDim.x - 1;
		if (last) *counter = 0;
	}
	__syncthreads();
	if (last) __threadfence();
	return last;
}

NSTF_KERNEL void __launch_bounds__(PENALTY_THREADS)
nstf_sample_penalize(f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, const i32* history, int stride) {
	extern __shared__ __align__(16) u8 lds[];
	begin_early();
	u32* seen = (u32*)lds;
	const int row = blockIdx.x;
	if (position[row] < 0) return;
	const sample_options o = options[owner[row]];
	if (o.penalty == 0 || o.penalty == 1) return;
	for (int i = threadIdx.x; i < (vocab + 31) / 32; i += PENALTY_THREADS) seen[i] = 0;
	__syncthreads();
	const int end = position[row] + 1, from = o.window > 0 && end > o.window ? end - o.window : 0;
	history += (i64)owner[row] * stride;
	logits += (i64)row * vocab;
	const f32 p = (f32)o.penalty;
	for (int i = from + (int)threadIdx.x; i < end; i += PENALTY_THREADS) {
		const int id = history[i];
		if (id < 0 || id >= vocab) continue;
		const u32 bit = 1u << (id % 32);
		if (atomicOr(&seen[id / 32], bit) & bit) continue;
		const f32 v = logits[id];
		logits[id] = v < 0 ? v * p : v / p;
	}
}

// masks u32[sequences][1 + (vocab+31)/32]: whether the sequence has one, then a bit for
// each token, token i being bit i%32 of word i/32.
NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_mask(f32* logits, int vocab, const i32* position, const i32* owner, const u32* masks) {
	begin_early();
	const int row = blockIdx.y;
	if (position[row] < 0) return;
	masks += (i64)owner[row] * (1 + (vocab + 31) / 32);
	if (masks[0] == 0) return;
	logits += (i64)row * vocab;
#pragma unroll
	for (int j = 0; j < SLICE_EACH; j++) {
		const int i = blockIdx.x * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i < vocab && !(masks[1 + i / 32] >> (i % 32) & 1)) logits[i] = NSTF_NAN;
	}
}

// Whether (v, i) is more probable than (w, j).
NSTF_DEVICE bool before(f32 v, int i, f32 w, int j) { return v > w || (v == w && i < j); }

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_top(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, i32* token, u32* counters, u8* scratch) {
	__shared__ f32 tops[SLICE_WAVES];
	__shared__ i32 bests[SLICE_WAVES];
	begin_early();
	const int row = blockIdx.y, slice = blockIdx.x, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (position[row] < 0) return;
	const sample_space s = space_of(scratch, row, vocab);
	logits += (i64)row * vocab;
	f32 top = -NSTF_INFINITY;
	int best = 0x7fffffff;
	auto wins = [&](f32 v, int i) {
		if (before(v, i, top, best)) top = v, best = i;
	};
#pragma unroll
	for (int j = 0; j < SLICE_EACH; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i < vocab) wins(logits[i], i);
	}
	// The block's best, in every thread of its first wave.
	auto over_block = [&]() {
#pragma unroll
		for (int m = NSTF_WAVE / 2; m > 0; m /= 2) {
			const f32 v = wave_xor(top, m);
			wins(v, wave_xor(best, m));
		}
		__syncthreads();
		if (lane == 0) tops[wave] = top, bests[wave] = best;
		__syncthreads();
		for (int w = 0; w < SLICE_WAVES; w++) wins(tops[w], bests[w]);
	};
	over_block();
	if (threadIdx.x == 0) s.slices[slice] = sample_slice{0, top, best};
	if (options) {
		for (int i = slice * SLICE_THREADS + threadIdx.x; i < BINS; i += gridDim.x * SLICE_THREADS) s.bin_weights[i] = 0, s.bin_counts[i] = 0;
	}
	if (!counted_last(counters + 2 * row)) return;
	top = -NSTF_INFINITY, best = 0x7fffffff;
	for (int i = threadIdx.x; i < (int)gridDim.x; i += SLICE_THREADS) wins(s.slices[i].top, s.slices[i].best);
	over_block();
	if (threadIdx.x != 0) return;
	if (best == 0x7fffffff) best = 0; // nothing but NaN
	const bool greedy = !options || options[owner[row]].temperature == 0;
	token[row] = best;
	s.head->top = top;
	s.head->best = best;
	s.head->listed = 0;
	s.head->active = !greedy;
	s.head->bottom = 0;
	s.head->least = 0;
}

// The weight of a logit, 0 for none, and its bin.
NSTF_DEVICE u64 weight_of(f32 v, f32 top, f64 inverse, int& bin) {
	const f64 x = ((f64)v - (f64)top) * inverse; // of the temperature
	bin = BINS;
	if (!(x > -(f64)BINS / BINS_PER_UNIT)) return 0;
	bin = (int)(-x * BINS_PER_UNIT);
	return (u64)rint(exp_f64(x) * WEIGHT_ONE);
}

// runtime/sample's Random: the first two words of Philox4x32-10, of which 53 bits
// count.
NSTF_DEVICE u64 random_of(u64 key, u64 counter) {
	u32 x0 = (u32)counter, x1 = (u32)(counter >> 32), x2 = 0, x3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
	for (int i = 0; i < 10; i++) {
		const u64 a = (u64)0xd2511f53u * x0, b = (u64)0xcd9e8d57u * x2;
		x0 = (u32)(b >> 32) ^ x1 ^ k0;
		x1 = (u32)b;
		x2 = (u32)(a >> 32) ^ x3 ^ k1;
		x3 = (u32)a;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return ((u64)x0 << 32 | x1) & ~2047ull;
}

// The sum over the block's threads up to and with this one.
NSTF_DEVICE u64 block_scan(u64 v, u64* lds) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
#pragma unroll
	for (int m = 1; m < NSTF_WAVE; m *= 2) {
		const u64 below = wave_below(v, m);
		if (lane >= m) v += below;
	}
	__syncthreads();
	if (lane == NSTF_WAVE - 1) lds[wave] = v;
	__syncthreads();
	for (int w = 0; w < wave; w++) v += lds[w];
	return v;
}

// Sums up to and with each of 2*SLICE_THREADS numbers, in their place.
NSTF_DEVICE void accumulate(u64* x, u64* lds) {
	const u64 a = x[2 * threadIdx.x], b = x[2 * threadIdx.x + 1];
	const u64 sum = block_scan(a + b, lds);
	x[2 * threadIdx.x] = sum - b;
	x[2 * threadIdx.x + 1] = sum;
	__syncthreads();
}

// The first of so many rising sums that reaches target, or the last.
NSTF_DEVICE int reaches(const u64* sums, int n, u64 target, i32* found) {
	if (threadIdx.x == 0) *found = n - 1;
	__syncthreads();
	for (int b = threadIdx.x; b < n; b += SLICE_THREADS)
		if (sums[b] >= target && (b == 0 || sums[b - 1] < target)) *found = b;
	__syncthreads();
	const int b = *found;
	__syncthreads();
	return b;
}

// The least sum that is a share p of a whole, at least 1.
NSTF_DEVICE u64 share_of(f64 p, u64 whole) {
	const u64 s = (u64)ceil(p * (f64)whole);
	return s > 0 ? s : 1;
}

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_weigh(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, u32* counters, u8* scratch) {
	// A weight is counted in three parts of 16 bits, since LDS adds words fastest.
	__shared__ u32 parts[4][BINS];
	__shared__ u64 weights[BINS], counts[BINS], sums[SLICE_WAVES];
	__shared__ i32 found;
	begin_early();
	const int row = blockIdx.y, slice = blockIdx.x;
	const sample_space s = space_of(scratch, row, vocab);
	if (position[row] < 0 || !s.head->active) return;
	const sample_options o = options[owner[row]];
	const f32 top = s.head->top;
	const f64 inverse = 1 / o.temperature;
	const bool certain = top == NSTF_INFINITY || top == -NSTF_INFINITY;
	logits += (i64)row * vocab;
	for (int i = threadIdx.x; i < 4 * BINS; i += SLICE_THREADS) parts[i / BINS][i % BINS] = 0;
	__syncthreads();
#pragma unroll 4
	for (int j = 0; j < SLICE_EACH; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i >= vocab) continue;
		int bin;
		u64 w = weight_of(logits[i], top, inverse, bin);
		if (certain) w = i == s.head->best ? (u64)WEIGHT_ONE : 0, bin = 0;
		s.weights[i] = w;
		if (w == 0) continue;
		atomicAdd(&parts[0][bin], (u32)w & 0xffff);
		atomicAdd(&parts[1][bin], (u32)(w >> 16) & 0xffff);
		atomicAdd(&parts[2][bin], (u32)(w >> 32));
		atomicAdd(&parts[3][bin], 1u);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < BINS; i += SLICE_THREADS) {
		if (parts[3][i] == 0) continue;
		atomicAdd(&s.bin_weights[i], (u64)parts[0][i] + ((u64)parts[1][i] << 16) + ((u64)parts[2][i] << 32));
		atomicAdd(&s.bin_counts[i], parts[3][i]);
	}
	if (!counted_last(counters + 2 * row + 1)) return;
	for (int i = threadIdx.x; i < BINS; i += SLICE_THREADS) weights[i] = s.bin_weights[i], counts[i] = s.bin_counts[i];
	__syncthreads();
	accumulate(weights, sums);
	accumulate(counts, sums);
	const sample_filters f = filters_of(o, counts[BINS - 1]);
	int from = 1, cut = 0;
	if (f.by_count) from = cut = reaches(counts, BINS, (u64)o.top_k, &found);
	else if (f.by_share) from = cut = reaches(weights, BINS, share_of(o.top_p, weights[BINS - 1]), &found);
	if (f.by_count && f.by_share) from = 0; // the share is one of all that top-k leaves
	if (threadIdx.x != 0) return;
	sample_head* h = s.head;
	h->total = weights[BINS - 1];
	h->from = from;
	h->cut = cut;
	h->above = from > cut || from == 0 ? 0 : f.by_count ? counts[from - 1] : weights[from - 1];
	h->least = (u64)rint(o.min_p * WEIGHT_ONE);
	s.bin_counts[0] = (u32)counts[BINS - 1]; // of all, for gather
}

#define ID_BITS 20
#define ID_LIMIT (1 << ID_BITS) // vocabularies are smaller

// Rises with the logit; among equals the lower id is greater.
NSTF_DEVICE u64 key_of(f32 v, int id) {
	const u32 b = bits_of(v == 0 ? 0.0f : v);
	return (u64)(b & 0x80000000u ? ~b : b | 0x80000000u) << ID_BITS | (ID_LIMIT - 1 - id);
}

// A row's list.
struct sample_list {
	const u64 *keys, *weights;
	int n;
};

// The greatest x so that the list's entries with keys of at least x reach target,
// by number or by weight. All entries together do; low is at most their least
// key, high above all.
template <bool Weight> NSTF_DEVICE u64 threshold(const sample_list& l, u64 target, u64 low, u64 high, u64* lds) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	while (high - low > 1) { // low reaches the target, high does not
		const u64 step = (high - low + SLICE_WAVES) / (SLICE_WAVES + 1), point = low + step * (wave + 1);
		u64 sum = 0;
#pragma unroll 4
		for (int i = lane; i < l.n; i += NSTF_WAVE)
			if (l.keys[i] >= point) sum += Weight ? l.weights[i] : 1;
		sum = wave_sum<NSTF_WAVE>(sum);
		__syncthreads();
		if (lane == 0) lds[wave] = sum;
		__syncthreads();
		int reached = 0;
		while (reached < SLICE_WAVES && lds[reached] >= target) reached++; // sums fall with the point
		const u64 from = low;
		low = from + step * reached;
		high = from + step * (reached + 1) < high ? from + step * (reached + 1) : high;
	}
	__syncthreads();
	return low;
}

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_gather(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, u32* counters, u8* scratch) {
	__shared__ u32 count, base;
	__shared__ u64 lds[SLICE_WAVES], keys[HELD], weights[HELD];
	begin_early();
	const int row = blockIdx.y, slice = blockIdx.x;
	const sample_space s = space_of(scratch, row, vocab);
	if (position[row] < 0 || !s.head->active) return;
	const sample_head h = *s.head;
	if (h.from > h.cut) return;
	const sample_options o = options[owner[row]];
	const f64 inverse = 1 / o.temperature;
	logits += (i64)row * vocab;
	u32 mine = 0; // a bit for each logit of this thread that is listed
	for (int j = 0; j < SLICE_EACH; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i >= vocab || s.weights[i] == 0) continue;
		int bin;
		weight_of(logits[i], h.top, inverse, bin);
		if (bin >= h.from && bin <= h.cut) mine |= 1u << j;
	}
	if (threadIdx.x == 0) count = 0;
	__syncthreads();
	u32 at = mine ? atomicAdd(&count, (u32)__popc(mine)) : 0;
	__syncthreads();
	if (threadIdx.x == 0 && count > 0) base = atomicAdd(&s.head->listed, count);
	__syncthreads();
	for (int j = 0; j < SLICE_EACH; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (!(mine >> j & 1)) continue;
		s.keys[base + at] = key_of(logits[i], i);
		s.list[base + at] = s.weights[i];
		at++;
	}
	if (!counted_last(counters + 2 * row)) return;
	sample_list l = {s.keys, s.list, (int)s.head->listed};
	if (l.n <= HELD) {
		for (int i = threadIdx.x; i < l.n; i += SLICE_THREADS) keys[i] = s.keys[i], weights[i] = s.list[i];
		__syncthreads();
		l.keys = keys, l.weights = weights;
	}
	const sample_filters f = filters_of(o, s.bin_counts[0]);
	// Keys of the bins, with room for the rounding of their bounds.
	const f64 least = (f64)h.top - o.temperature * (h.cut + 2) / BINS_PER_UNIT;
	const u64 low = least > -1e38 ? key_of((f32)least, ID_LIMIT - 1) : 0, high = key_of(h.top, h.best) + 1;
	u64 bottom = low;
	if (f.by_count) bottom = threshold<false>(l, (u64)o.top_k - h.above, low, high, lds);
	if (f.by_share) {
		u64 target = share_of(o.top_p, h.total) - h.above;
		if (f.by_count) {
			u64 sum = 0;
			for (int i = threadIdx.x; i < l.n; i += SLICE_THREADS)
				if (l.keys[i] >= bottom) sum += l.weights[i];
			target = share_of(o.top_p, block_sum<SLICE_THREADS>(sum, lds));
		}
		bottom = threshold<true>(l, target, bottom, high, lds);
	}
	if (threadIdx.x == 0) s.head->bottom = bottom;
}

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_pick(const f32* logits, int vocab, const i32* position, const i32* owner, const u64* seeds, i32* token, u32* counters, u8* scratch) {
	__shared__ u64 lds[SLICE_WAVES], sums[2 * SLICE_THREADS];
	__shared__ i32 found;
	begin_early();
	const int row = blockIdx.y;
	const sample_space s = space_of(scratch, row, vocab);
	if (position[row] < 0 || !s.head->active) return;
	const u64 bottom = s.head->bottom, least = s.head->least;
	logits += (i64)row * vocab;
	// The weight of a logit, 0 where it is not kept.
	auto kept = [&](int i) {
		const u64 w = i < vocab ? s.weights[i] : 0;
		return w > 0 && w >= least && (bottom == 0 || key_of(logits[i], i) >= bottom) ? w : (u64)0;
	};
	u64 sum = 0;
	for (int j = 0; j < SLICE_EACH; j++) sum += kept(blockIdx.x * SLICE + j * SLICE_THREADS + threadIdx.x);
	sum = block_sum<SLICE_THREADS>(sum, lds);
	if (threadIdx.x == 0) s.slices[blockIdx.x].weight = sum;
	if (!counted_last(counters + 2 * row + 1)) return;
	const int slices = gridDim.x;
	for (int i = threadIdx.x; i < 2 * SLICE_THREADS; i += SLICE_THREADS) sums[i] = i < slices ? s.slices[i].weight : 0;
	__syncthreads();
	accumulate(sums, lds);
	if (threadIdx.x == 0) lds[0] = __umul64hi(random_of(seeds[owner[row]], (u64)position[row] + 1), sums[slices - 1]);
	__syncthreads();
	u64 share = lds[0];
	const int slice = reaches(sums, slices, share + 1, &found);
	share -= slice > 0 ? sums[slice - 1] : 0;
	const int first = slice * SLICE + (int)threadIdx.x * SLICE_EACH;
	sum = 0;
	for (int j = 0; j < SLICE_EACH; j++) sum += kept(first + j);
	const u64 end = block_scan(sum, lds), begin = end - sum;
	if (!(begin <= share && share < end)) return;
	share -= begin;
	int i = first;
	for (; kept(i) <= share; i++) share -= kept(i);
	token[row] = i;
}
