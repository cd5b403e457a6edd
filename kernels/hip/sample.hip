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
// Launches, each over slices of SLICE logits (x) and rows (y):
//	penalize  a block a row; LDS: a bit for each token
//	top       the greatest logit; the block that counts last finishes the row
//	weigh     weights, and a histogram of them by logit; the last block finds how
//	          far down the filters can reach (a superset), and draws the random
//	          number. Without filters it finds the slice that the number falls in.
//	gather    lists the weights that are left
//	draw      a block a row: exact thresholds by dividing the range of keys, again
//	          and again, each wave with the list's sum from one point on
//
// Deterministic. Bound: latency, and reading the logits twice from the cache.
// Source of the random numbers: PCG-DXSM as in math/rand/v2 (O'Neill, "PCG: A
// Family of Simple Fast Space-Efficient Statistically Good Algorithms", 2014).
#include "functions.hip"
#include "reduce.hip"

#define SLICE 4096
#define BINS 1024
#define BINS_PER_UNIT 32 // of (max - logit) / temperature; beyond 32 units weights are 0
#define WEIGHT_ONE 35184372088832.0 // 2^45
#define SLICE_THREADS 256
#define PENALTY_THREADS 1024
#define DRAW_THREADS 512
#define DRAW_WAVES (DRAW_THREADS / NSTF_WAVE)
#define DRAW_HELD 2048 // entries of the list that LDS holds

struct sample_options {
	f64 temperature, top_p, min_p, penalty;
	i32 top_k, window;
};

// A row's work space. Go: Sample.sampleRecord.
struct sample_head {
	f32 top;
	i32 best;
	u32 listed, weighed; // entries of the list; tokens of any weight
	u64 total;           // of all weights
	u64 random;          // 53 bits, as the upper ones
	u64 share;           // of the slice's weights, without filters
	i32 cut;             // last bin that is listed
	i32 slice;           // the only slice that is listed, or -1
	i32 active;          // 0: the token is chosen
	i32 unused[3];
};

struct sample_slice {
	u64 weight;
	f32 top;
	i32 best;
};

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

// Whether (v, i) is more probable than (w, j).
NSTF_DEVICE bool before(f32 v, int i, f32 w, int j) { return v > w || (v == w && i < j); }

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_top(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, i32* token, u32* counters, u8* scratch) {
	__shared__ f32 tops[SLICE_THREADS / NSTF_WAVE];
	__shared__ i32 bests[SLICE_THREADS / NSTF_WAVE];
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
	for (int j = 0; j < SLICE / SLICE_THREADS; j++) {
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
		for (int w = 0; w < SLICE_THREADS / NSTF_WAVE; w++) wins(tops[w], bests[w]);
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
}

// The weight of a logit, 0 for none, and its bin.
NSTF_DEVICE u64 weight_of(f32 v, f32 top, f64 inverse, int& bin) {
	const f64 x = ((f64)v - (f64)top) * inverse; // of the temperature
	bin = BINS;
	if (!(x > -(f64)BINS / BINS_PER_UNIT)) return 0;
	bin = (int)(-x * BINS_PER_UNIT);
	return (u64)rint(exp_f64(x) * WEIGHT_ONE);
}

// The next number of a sequence's generator, of which the 53 upper bits count.
NSTF_DEVICE u64 next_random(u64* state) {
	const u64 multiply_high = 2549297995355413924ull, multiply_low = 4865540595714422341ull;
	const u64 add_high = 6364136223846793005ull, add_low = 1442695040888963407ull;
	const u64 high = state[0], low = state[1];
	u64 h = __umul64hi(low, multiply_low) + high * multiply_low + low * multiply_high;
	u64 l = low * multiply_low;
	h += add_high + (l + add_low < l);
	l += add_low;
	state[0] = h, state[1] = l;
	h ^= h >> 32;
	h *= 0xda942042e4dd58b5ull;
	h ^= h >> 48;
	h *= l | 1;
	return h & ~2047ull;
}

#define BINS_EACH (BINS / SLICE_THREADS)

// Sums up to and with each bin, by all threads of a block.
NSTF_DEVICE void accumulate(u64* bins, u64* lds) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	u64 own[BINS_EACH];
#pragma unroll
	for (int j = 0; j < BINS_EACH; j++) own[j] = bins[threadIdx.x * BINS_EACH + j] + (j > 0 ? own[j - 1] : 0);
	u64 sum = own[BINS_EACH - 1]; // up to and with this lane
#pragma unroll
	for (int m = 1; m < NSTF_WAVE; m *= 2) {
		const u64 below = wave_below(sum, m);
		if (lane >= m) sum += below;
	}
	__syncthreads();
	if (lane == NSTF_WAVE - 1) lds[wave] = sum;
	__syncthreads();
	sum -= own[BINS_EACH - 1];
	for (int w = 0; w < wave; w++) sum += lds[w];
#pragma unroll
	for (int j = 0; j < BINS_EACH; j++) bins[threadIdx.x * BINS_EACH + j] = sum + own[j];
	__syncthreads();
}

// The first bin at which the sums reach target, or the last; target is positive.
NSTF_DEVICE int reaches(const u64* sums, f64 target, i32* found) {
	if (threadIdx.x == 0) *found = BINS - 1;
	__syncthreads();
	for (int b = threadIdx.x; b < BINS; b += SLICE_THREADS)
		if ((f64)sums[b] >= target && (b == 0 || (f64)sums[b - 1] < target)) *found = b;
	__syncthreads();
	const int b = *found;
	__syncthreads();
	return b;
}

// What filters leave lies in bins up to the one returned.
NSTF_DEVICE int last_bin(const sample_options& o, const u64* counts, const u64* weights, bool by_count, bool by_share, i32* found) {
	if (by_count) return reaches(counts, (f64)o.top_k, found); // top-p is a share of all these
	if (by_share) return reaches(weights, o.top_p * (f64)weights[BINS - 1], found);
	if (o.min_p <= 0) return BINS - 1;
	if (threadIdx.x == 0) *found = 0;
	__syncthreads();
	for (int b = threadIdx.x; b < BINS; b += SLICE_THREADS) {
		const u64 weight = weights[b] - (b > 0 ? weights[b - 1] : 0);
		if ((f64)weight >= o.min_p * WEIGHT_ONE * 0.999) atomicMax(found, b);
	}
	__syncthreads();
	return *found;
}

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_weigh(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, u64* random, u32* counters, u8* scratch) {
	__shared__ u64 weights[BINS], counts[BINS], sums[SLICE_THREADS / NSTF_WAVE];
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
	for (int i = threadIdx.x; i < BINS; i += SLICE_THREADS) weights[i] = 0, counts[i] = 0;
	__syncthreads();
	u64 sum = 0;
#pragma unroll 4
	for (int j = 0; j < SLICE / SLICE_THREADS; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i >= vocab) continue;
		int bin;
		u64 w = weight_of(logits[i], top, inverse, bin);
		if (certain) w = i == s.head->best ? (u64)WEIGHT_ONE : 0, bin = 0;
		s.weights[i] = w;
		if (w == 0) continue;
		sum += w;
		atomicAdd(&weights[bin], w);
		atomicAdd(&counts[bin], (u64)1);
	}
	sum = block_sum<SLICE_THREADS>(sum, sums); // with a barrier behind the bins
	if (threadIdx.x == 0) s.slices[slice].weight = sum;
	__syncthreads();
	for (int i = threadIdx.x; i < BINS; i += SLICE_THREADS) {
		if (counts[i] == 0) continue;
		atomicAdd(&s.bin_weights[i], weights[i]);
		atomicAdd(&s.bin_counts[i], (u32)counts[i]);
	}
	if (!counted_last(counters + 2 * row + 1)) return;
	for (int i = threadIdx.x; i < BINS; i += SLICE_THREADS) weights[i] = s.bin_weights[i], counts[i] = s.bin_counts[i];
	__syncthreads();
	accumulate(weights, sums);
	accumulate(counts, sums);
	const bool by_count = o.top_k > 0 && (u64)o.top_k < counts[BINS - 1], by_share = o.top_p > 0 && o.top_p < 1;
	const int cut = last_bin(o, counts, weights, by_count, by_share, &found);
	if (threadIdx.x != 0) return;
	sample_head* h = s.head;
	h->weighed = (u32)counts[BINS - 1];
	h->total = weights[BINS - 1];
	h->random = next_random(random + 2 * owner[row]);
	h->cut = cut;
	h->slice = -1;
	if (by_count || by_share || o.min_p > 0) return;
	u64 share = __umul64hi(h->random, h->total);
	int i = 0;
	for (; i < (int)gridDim.x - 1 && s.slices[i].weight <= share; i++) share -= s.slices[i].weight;
	h->slice = i;
	h->share = share;
}

#define ID_BITS 20
#define ID_LIMIT (1 << ID_BITS) // vocabularies are smaller

// Rises with the logit; among equals the lower id is greater.
NSTF_DEVICE u64 key_of(f32 v, int id) {
	const u32 b = bits_of(v == 0 ? 0.0f : v);
	return (u64)(b & 0x80000000u ? ~b : b | 0x80000000u) << ID_BITS | (ID_LIMIT - 1 - id);
}

NSTF_KERNEL void __launch_bounds__(SLICE_THREADS)
nstf_sample_gather(const f32* logits, int vocab, const i32* position, const i32* owner, const sample_options* options, u8* scratch) {
	__shared__ u32 count, base;
	begin_early();
	const int row = blockIdx.y, slice = blockIdx.x;
	const sample_space s = space_of(scratch, row, vocab);
	if (position[row] < 0 || !s.head->active) return;
	const sample_head h = *s.head;
	if (h.slice >= 0 && h.slice != slice) return;
	const f64 inverse = 1 / options[owner[row]].temperature;
	logits += (i64)row * vocab;
	u32 mine = 0; // a bit for each logit of this thread that is listed
	for (int j = 0; j < SLICE / SLICE_THREADS; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (i >= vocab || s.weights[i] == 0) continue;
		const f64 x = ((f64)logits[i] - (f64)h.top) * inverse;
		if (!(x == x) || (int)(-x * BINS_PER_UNIT) <= h.cut) mine |= 1u << j;
	}
	if (threadIdx.x == 0) count = 0;
	__syncthreads();
	u32 at = mine ? atomicAdd(&count, (u32)__popc(mine)) : 0;
	__syncthreads();
	if (threadIdx.x == 0 && count > 0) base = atomicAdd(&s.head->listed, count);
	__syncthreads();
	for (int j = 0; j < SLICE / SLICE_THREADS; j++) {
		const int i = slice * SLICE + j * SLICE_THREADS + (int)threadIdx.x;
		if (!(mine >> j & 1)) continue;
		s.keys[base + at] = key_of(logits[i], i);
		s.list[base + at] = s.weights[i];
		at++;
	}
}

// A row's list, in LDS where it fits, and what filters keep of it.
struct sample_list {
	const u64 *keys, *weights;
	int n;
	u64 bottom, least; // keys and weights under these are dropped
	NSTF_MEMBER u64 kept(int i) const { return keys[i] >= bottom && weights[i] >= least ? weights[i] : 0; }
};

// The sum of kept weights.
NSTF_DEVICE u64 sum_kept(const sample_list& l, u64* lds) {
	u64 sum = 0;
	for (int i = threadIdx.x; i < l.n; i += DRAW_THREADS) sum += l.kept(i);
	return block_sum<DRAW_THREADS>(sum, lds);
}

// The greatest x so that the list's entries with keys of at least x reach target:
// by number, by weight, or by kept weight with ids for keys, the lowest first.
// All entries together do; low is at most their least key, high above all.
enum sample_measure { by_number, by_weight, by_id };
template <sample_measure Measure> NSTF_DEVICE u64 threshold(const sample_list& l, u64 target, u64 low, u64 high, u64* lds) {
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	while (high - low > 1) { // low reaches the target, high does not
		const u64 step = (high - low + DRAW_WAVES) / (DRAW_WAVES + 1), point = low + step * (wave + 1);
		u64 sum = 0;
#pragma unroll 4
		for (int i = lane; i < l.n; i += NSTF_WAVE) {
			const u64 key = Measure == by_id ? l.keys[i] % ID_LIMIT : l.keys[i];
			const u64 w = Measure == by_number ? 1 : Measure == by_weight ? l.weights[i] : l.kept(i);
			if (key >= point) sum += w;
		}
		sum = wave_sum<NSTF_WAVE>(sum);
		__syncthreads();
		if (lane == 0) lds[wave] = sum;
		__syncthreads();
		int reached = 0;
		while (reached < DRAW_WAVES && lds[reached] >= target) reached++; // sums fall with the point
		const u64 from = low;
		low = from + step * reached;
		high = from + step * (reached + 1) < high ? from + step * (reached + 1) : high;
	}
	__syncthreads();
	return low;
}

NSTF_KERNEL void __launch_bounds__(DRAW_THREADS)
nstf_sample_draw(int vocab, const i32* position, const i32* owner, const sample_options* options, i32* token, u8* scratch) {
	__shared__ u64 lds[DRAW_WAVES], keys[DRAW_HELD], weights[DRAW_HELD];
	begin_early();
	const int row = blockIdx.x;
	const sample_space s = space_of(scratch, row, vocab);
	if (position[row] < 0 || !s.head->active) return;
	const sample_head h = *s.head;
	const sample_options o = options[owner[row]];
	sample_list l = {s.keys, s.list, (int)h.listed, 0, 0};
	if (l.n <= DRAW_HELD) {
		for (int i = threadIdx.x; i < l.n; i += DRAW_THREADS) keys[i] = s.keys[i], weights[i] = s.list[i];
		__syncthreads();
		l.keys = keys, l.weights = weights;
	}
	u64 share = h.share;
	if (h.slice < 0) {
		const u64 high = key_of(h.top, h.best) + 1;
		// The least logit of the last bin, and some room for its rounding.
		const f64 least = (f64)h.top - o.temperature * (h.cut + 2) / BINS_PER_UNIT;
		const u64 low = h.cut < BINS - 1 && least > -1e38 ? key_of((f32)least, ID_LIMIT - 1) : 0;
		u64 total = h.total;
		if (o.top_k > 0 && (u32)o.top_k < h.weighed) {
			l.bottom = threshold<by_number>(l, (u64)o.top_k, low, high, lds);
			total = sum_kept(l, lds);
		}
		if (o.top_p > 0 && o.top_p < 1) {
			const u64 target = (u64)ceil(o.top_p * (f64)total);
			l.bottom = threshold<by_weight>(l, target > 0 ? target : 1, l.bottom > low ? l.bottom : low, high, lds);
		}
		l.least = (u64)rint(o.min_p * WEIGHT_ONE);
		share = __umul64hi(h.random, sum_kept(l, lds));
	}
	const u64 id = threshold<by_id>(l, share + 1, 0, ID_LIMIT, lds);
	if (threadIdx.x == 0) token[row] = ID_LIMIT - 1 - (i32)id;
}
