// Choice of experts.
//
//	p = softmax(logits[t]); chosen[t] = the ROUTE_TOPK largest, the lower index first
//	share[t][j] = p[chosen[t][j]], divided by their sum with ROUTE_NORMALIZE 1
//	slots: for e: for s ascending: if chosen[s] == e: append s; first[e]: where e begins
//
// logits f32[T][ROUTE_EXPERTS], chosen i32[T][ROUTE_TOPK], share
// f32[T][ROUTE_TOPK] with ROUTE_TOPK <= 32, slots i32[n], first i32[ROUTE_EXPERTS+1] with n = T*TOPK. A
// row with a NaN has shares of NaN.
//
// nstf_route: a wave for each row; nothing in LDS. nstf_route_slots: an expert
// for each wave of a block of 256; LDS for counts; integers alone.
// Deterministic. Bound: latency: TOPK rounds of a wave's maximum.
// Tolerance: exponentials and their sum are float64 rounded to float32, as in
// kernels/cpu.
#include "functions.hip"

#define ROUTE_EACH ((ROUTE_EXPERTS + NSTF_WAVE - 1) / NSTF_WAVE) // experts of a lane
#define SLOT_THREADS 256

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
#pragma unroll
		for (int m = NSTF_WAVE / 2; m > 0; m /= 2) {
			const f32 v = wave_xor(best, m);
			const int o = wave_xor(id, m);
			if (v > best || (v == best && o < id)) best = v, id = o;
		}
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
