// Choice of experts.
//
//	p = score(logits[t]); chosen[t] = the ROUTE_TOPK largest, the lower index first
//	share[t][j] = p[chosen[t][j]], divided by their sum with ROUTE_NORMALIZE 1
//	slots: for e: for s ascending: if chosen[s] == e: append s; first[e]: where e begins
//
// logits f32[T][ROUTE_EXPERTS], chosen i32[T][ROUTE_TOPK], share
// f32[T][ROUTE_TOPK] with ROUTE_TOPK <= 32, slots i32[n], first i32[ROUTE_EXPERTS+1] with n = T*TOPK. A
// row with a NaN has shares of NaN.
//
// score is a softmax over all with ROUTE_GENERAL 0. With ROUTE_GENERAL 1 it is what
// ROUTE_SCORE says, ROUTE_BIAS moves it by bias[e] for the choice, and of ROUTE_GROUPS
// runs of neighbours (0: none) the ROUTE_TOP_GROUPS whose ROUTE_BEST largest have the
// largest sum take part, the others with 0 or (ROUTE_ZERO 0) not at all; the sum of
// shares is max(sum + ROUTE_EPSILON, ROUTE_FLOOR), and ROUTE_SCALE multiplies them, with
// ROUTE_EACH_SCALE 1 factor[e] too: see graph.MoE. Two
// kernels, so that the usual one keeps all in registers.
//
// nstf_route: a wave for each row; nothing in LDS, but scores and groups with
// ROUTE_GENERAL 1. nstf_route_slots: an expert
// for each wave of a block of 256; LDS for counts; integers alone.
// Deterministic. Bound: latency: TOPK rounds of a wave's maximum.
// Tolerance: exponentials and their sum are float64 rounded to float32, as in
// kernels/cpu.
#include "functions.hip"

#define ROUTE_EACH ((ROUTE_EXPERTS + NSTF_WAVE - 1) / NSTF_WAVE) // experts of a lane
#define SLOT_THREADS 256
#define ROUTE_LARGEST 3.4028234663852886e38f
#define ROUTE_SOFTMAX 0
#define ROUTE_SIGMOID 1
#define ROUTE_SELECTED 2
#define ROUTE_ROOT 3

// The largest of a wave's values, none of which is a NaN, and the lowest id that has it, in every lane.
NSTF_DEVICE void best_of_wave(f32 &best, int &id) {
#if defined(NSTF_CUDA) && __CUDA_ARCH__ >= 800
	i32 order = (i32)bits_of(best + 0.0f); // whole numbers in the order of the values; -0 is 0
	order ^= order >> 31 & 0x7fffffff;
	const i32 top = __reduce_max_sync(0xffffffffu, order);
	id = __reduce_min_sync(0xffffffffu, order == top ? id : 0x7fffffff);
	best = of_bits((u32)(top ^ (top >> 31 & 0x7fffffff)));
#else
#pragma unroll
	for (int m = NSTF_WAVE / 2; m > 0; m /= 2) {
		const f32 v = wave_xor(best, m);
		const int o = wave_xor(id, m);
		if (v > best || (v == best && o < id)) best = v, id = o;
	}
#endif
}

#if !ROUTE_GENERAL
NSTF_KERNEL void __launch_bounds__(NSTF_WAVE) nstf_route(const f32* logits, i32* chosen, f32* share) {
	begin_early();
	const int lane = threadIdx.x;
	logits += (i64)blockIdx.x * ROUTE_EXPERTS;
	chosen += (i64)blockIdx.x * ROUTE_TOPK;
	share += (i64)blockIdx.x * ROUTE_TOPK;
	f32 p[ROUTE_EACH], top = -NSTF_INFINITY;
	bool odd = false; // a NaN: the whole row is
#pragma unroll
	for (int i = 0; i < ROUTE_EACH; i++) {
		const int e = i * NSTF_WAVE + lane;
		p[i] = e < ROUTE_EXPERTS ? logits[e] : -NSTF_INFINITY;
		odd = odd || (bits_of(p[i]) & 0x7fffffff) > 0x7f800000; // p[i] != p[i] in a ballot stops hiprtc of ROCm 5.2
		top = wave_max_of(p[i], top);
	}
	odd = wave_ballot(odd) != 0;
	top = wave_max<NSTF_WAVE>(top);
	odd = odd || top == NSTF_INFINITY;
	f64 sum = 0;
#pragma unroll
	for (int i = 0; i < ROUTE_EACH; i++) {
		p[i] = p[i] == -NSTF_INFINITY ? 0.0f : (f32)exp_f64((f64)(p[i] - top));
		sum += (f64)p[i];
	}
	const f32 inverse = 1.0f / (f32)wave_sum<NSTF_WAVE>(sum);
	const bool none = top == -NSTF_INFINITY; // masked throughout: zeros
#pragma unroll
	for (int i = 0; i < ROUTE_EACH; i++) {
		p[i] = none ? 0.0f : p[i] * inverse;
		if (i * NSTF_WAVE + lane >= ROUTE_EXPERTS) p[i] = -1.0f;
	}
	f32 all = 0, mine = 0;
	int which = 0; // lane j keeps choice j
	for (int j = 0; j < ROUTE_TOPK; j++) {
		f32 best = -1.0f;
		int id = 0x7fffffff;
#pragma unroll
		for (int i = 0; i < ROUTE_EACH; i++)
			if (p[i] > best) best = p[i], id = i * NSTF_WAVE + lane;
		best_of_wave(best, id);
#pragma unroll
		for (int i = 0; i < ROUTE_EACH; i++)
			if (i * NSTF_WAVE + lane == id) p[i] = -1.0f;
		if (odd) best = of_bits(0x7fc00000), id = j;
		all += best;
		if (lane == j) mine = best, which = id;
	}
	if (lane >= ROUTE_TOPK) return;
	chosen[lane] = which;
	share[lane] = ROUTE_NORMALIZE ? mine / all : mine;
}
#else
// Turns logits in LDS, of which every lane has its own, into scores; they stay
// logits where a softmax over the chosen will be made. Returns whether the row has
// none: a NaN, or an infinity that is no score. Loops are not unrolled, for the
// registers of their float64.
NSTF_DEVICE bool score_all(f32* s) {
	f32 top = -NSTF_INFINITY;
	bool odd = false;
	for (int e = threadIdx.x; e < ROUTE_EXPERTS; e += NSTF_WAVE) {
		odd = odd || (bits_of(s[e]) & 0x7fffffff) > 0x7f800000;
		top = wave_max_of(s[e], top);
	}
	odd = wave_ballot(odd) != 0;
	top = wave_max<NSTF_WAVE>(top);
	odd = odd || ROUTE_SCORE != ROUTE_SIGMOID && top == NSTF_INFINITY;
	if (ROUTE_SCORE == ROUTE_SELECTED) return odd;
	f64 sum = 0;
#pragma unroll 1
	for (int e = threadIdx.x; e < ROUTE_EXPERTS; e += NSTF_WAVE) {
		const f32 x = s[e];
		if (ROUTE_SCORE == ROUTE_SIGMOID) s[e] = (f32)sigmoid_f64((f64)x);
		if (ROUTE_SCORE == ROUTE_ROOT) s[e] = (f32)sqrt(softplus_f64((f64)x));
		if (ROUTE_SCORE == ROUTE_SOFTMAX) s[e] = x == -NSTF_INFINITY ? 0.0f : (f32)exp_f64((f64)(x - top)), sum += (f64)s[e];
	}
	if (ROUTE_SCORE != ROUTE_SOFTMAX) return odd;
	const f32 inverse = top == -NSTF_INFINITY ? 0.0f : 1.0f / (f32)wave_sum<NSTF_WAVE>(sum); // masked throughout: zeros
	for (int e = threadIdx.x; e < ROUTE_EXPERTS; e += NSTF_WAVE) s[e] *= inverse;
	return odd;
}

#if ROUTE_GROUPS
// Takes experts of other groups than the best out of the choice v, which lies in
// LDS: a lane rates a group, then counts those that are better.
NSTF_DEVICE void mask_groups(f32* v, f32* worth) {
	constexpr int size = ROUTE_EXPERTS / ROUTE_GROUPS;
	for (int g = threadIdx.x; g < ROUTE_GROUPS; g += NSTF_WAVE) {
		f32 first = -NSTF_INFINITY, second = -NSTF_INFINITY;
#pragma unroll 4
		for (int e = 0; e < size; e++) {
			const f32 x = v[g * size + e], low = x > first ? first : x;
			first = x > first ? x : first;
			second = low > second ? low : second;
		}
		worth[g] = ROUTE_BEST == 2 ? first + second : first;
	}
	wave_sync();
	for (int g = threadIdx.x; g < ROUTE_GROUPS; g += NSTF_WAVE) {
		const f32 own = worth[g];
		int better = 0;
#pragma unroll 4
		for (int o = 0; o < ROUTE_GROUPS; o++) better += worth[o] > own || (worth[o] == own && o < g) ? 1 : 0;
		for (int e = 0; better >= ROUTE_TOP_GROUPS && e < size; e++) v[g * size + e] = ROUTE_ZERO ? 0.0f : -NSTF_INFINITY;
	}
	wave_sync();
}
#endif

NSTF_KERNEL void __launch_bounds__(NSTF_WAVE)
nstf_route(const f32* logits, i32* chosen, f32* share, const f32* bias, const f32* factor) {
	__shared__ f32 score[ROUTE_EXPERTS];
#if ROUTE_GROUPS
	__shared__ f32 moved[ROUTE_EXPERTS], worth[ROUTE_GROUPS];
#endif
	begin_early();
	const int lane = threadIdx.x;
	logits += (i64)blockIdx.x * ROUTE_EXPERTS;
	chosen += (i64)blockIdx.x * ROUTE_TOPK;
	share += (i64)blockIdx.x * ROUTE_TOPK;
	for (int e = lane; e < ROUTE_EXPERTS; e += NSTF_WAVE) score[e] = logits[e];
	const bool odd = score_all(score);
	f32 p[ROUTE_EACH];
#pragma unroll
	for (int i = 0; i < ROUTE_EACH; i++) {
		const int e = i * NSTF_WAVE + lane;
		p[i] = -NSTF_INFINITY;
		if (e >= ROUTE_EXPERTS) continue;
		p[i] = score[e];
		if (ROUTE_BIAS) p[i] += bias[e];
		p[i] = p[i] >= -ROUTE_LARGEST ? p[i] : -ROUTE_LARGEST; // a NaN of the bias too: what is masked or taken lies below
#if ROUTE_GROUPS
		moved[e] = p[i];
#endif
	}
	wave_sync();
#if ROUTE_GROUPS
	mask_groups(moved, worth);
#pragma unroll
	for (int i = 0; i < ROUTE_EACH; i++)
		if (i * NSTF_WAVE + lane < ROUTE_EXPERTS) p[i] = moved[i * NSTF_WAVE + lane];
#endif
	f32 all = 0, mine = -NSTF_INFINITY;
	int which = 0; // lane j keeps choice j
	for (int j = 0; j < ROUTE_TOPK; j++) {
		f32 best = -NSTF_INFINITY;
		int id = 0x7fffffff;
#pragma unroll
		for (int i = 0; i < ROUTE_EACH; i++)
			if (p[i] > best) best = p[i], id = i * NSTF_WAVE + lane;
		best_of_wave(best, id);
#pragma unroll
		for (int i = 0; i < ROUTE_EACH; i++)
			if (i * NSTF_WAVE + lane == id) p[i] = -NSTF_INFINITY;
		if (odd) id = j;
		const f32 value = score[id];
		all += value;
		if (lane == j) mine = value, which = id;
	}
	if (ROUTE_SCORE == ROUTE_SELECTED) {
		const f32 top = wave_max<NSTF_WAVE>(mine);
		mine = mine == -NSTF_INFINITY ? 0.0f : (f32)exp_f64((f64)(mine - top));
		const f32 sum = (f32)wave_sum<NSTF_WAVE>((f64)mine);
		mine *= top == -NSTF_INFINITY ? 0.0f : 1.0f / sum;
		wave_sync();
		if (lane < ROUTE_TOPK) score[lane] = mine;
		wave_sync();
		all = 0;
		for (int j = 0; j < ROUTE_TOPK; j++) all += score[j];
	}
	if (lane >= ROUTE_TOPK) return;
	all += ROUTE_EPSILON;
	all = all > ROUTE_FLOOR ? all : ROUTE_FLOOR;
	chosen[lane] = which;
	share[lane] = odd ? of_bits(0x7fc00000) : (ROUTE_NORMALIZE ? mine / all : mine) * ROUTE_SCALE * (ROUTE_EACH_SCALE ? factor[which] : 1.0f);
}
#endif

NSTF_KERNEL void __launch_bounds__(SLOT_THREADS) nstf_route_slots(const i32* chosen, i32* slots, i32* first, int n) {
	__shared__ i32 begin[ROUTE_EXPERTS + 1];
	begin_early();
	for (int e = threadIdx.x; e <= ROUTE_EXPERTS; e += SLOT_THREADS) begin[e] = 0;
	__syncthreads();
	for (int s = threadIdx.x; s < n; s += SLOT_THREADS) atomicAdd(&begin[chosen[s] + 1], 1);
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int e = 0; e < ROUTE_EXPERTS; e++) begin[e + 1] += begin[e];
	}
	__syncthreads();
	if (blockIdx.x == 0) {
		for (int e = threadIdx.x; e <= ROUTE_EXPERTS; e += SLOT_THREADS) first[e] = begin[e];
	}
	const int lane = threadIdx.x % NSTF_WAVE, e = (blockIdx.x * SLOT_THREADS + threadIdx.x) / NSTF_WAVE;
	if (e >= ROUTE_EXPERTS) return;
	int at = begin[e];
	for (int s = 0; s < n; s += NSTF_WAVE) {
		const bool mine = s + lane < n && chosen[s + lane] == e;
		const u64 all = wave_ballot(mine);
		if (mine) slots[at + __popcll(all & (((u64)1 << lane) - 1))] = s + lane;
		at += __popcll(all);
	}
}
