// The search for trellis codes (docs/schemes/tcq.md), as kernels/cpu.Trellis does it:
// of all rings of states, nearly the one whose codewords are nearest to 256 weights.
//
//	cost before weight t of overlap p = min over states s that end in p of
//	    cost before weight t+1 of s>>TCQ_BITS  +  (z[t] - codeword[s])^2
//
// First through 2*seam weights around the ring's seam, which decides the bits that
// cross it, then around the ring with these fixed. Costs are integers of 16 bits, and
// every tie goes to the lowest, so that codes are the processor's.
//
// z f32[tiles][256] in units of a codeword; codes u16[tiles][16*TCQ_BITS]; failed
// i32[tiles] becomes 1 where costs leave their range: such a tile is the processor's.
// history: u16[gridDim.x][257 << (16-TCQ_BITS)] of work space. unit: what a codeword
// is multiplied with before it is rounded; seam from 1 to 128.
//
// Grid: blocks of 512 threads take tiles in turn; any wave size; LDS: 2 KiB. A thread
// has the codewords of its 128 states in registers. Phases: a barrier a step; costs go
// to memory and are read again by the next step and by the first wave, which follows
// the path. Deterministic. Bound: about 9 instructions a candidate, of which a weight
// has 65536 * (1 + seam/128).
#include "reduce.hip"
#include "tcqcode.hip"

#define SEARCH_THREADS 512
#define SEARCH_LAST ((1 << (16 - TCQ_BITS)) - 1)
#define SEARCH_OVERLAPS (SEARCH_LAST + 1)
#define SEARCH_OWN (SEARCH_OVERLAPS / SEARCH_THREADS) // overlaps of a thread
#define SEARCH_SAME (SEARCH_OWN < 1 << TCQ_BITS ? SEARCH_OWN : 1 << TCQ_BITS) // of them that the same states lead to
#define SEARCH_FINER (TCQ_BITS < 4 ? 0 : TCQ_BITS == 4 ? 1 : 2) // doublings of a distance

NSTF_DEVICE i32 within(i32 v, i32 most) { return v > most ? most : v < -most - 1 ? -most - 1 : v; }

NSTF_DEVICE u32 search_cost(u32 rest, i32 z, i32 code) {
	const i32 d = within((z - code) * (1 << SEARCH_FINER), 32767);
	const u32 square = TCQ_BITS == 2 ? (u32)(d * d) >> 16 : ((u32)(d * d) + (1 << 14)) >> 15;
	return rest + square < 65535 ? rest + square : 65535;
}

NSTF_DEVICE i32 search_code(u32 state, f32 unit) { return (i32)rintf(rounded_product(tcq_codeword(state), unit)); }

NSTF_DEVICE u32 lower_of(u32 a, u32 b) { return a < b ? a : b; }

struct Search {
	u32 code[64]; // two of the thread's states each
	u16 *history;
	f32 unit;
};

NSTF_DEVICE u16 *costs_at(const Search &s, int t) { return s.history + (i64)t * SEARCH_OVERLAPS; }

// Makes the compiler think that a word changed, so that it is not unpacked into two
// registers once and for all.
NSTF_DEVICE void stay_packed(u32 &v) {
#if defined(NSTF_CUDA)
	asm volatile("" : "+r"(v));
#else
	asm volatile("" : "+v"(v));
#endif
}

// Has the candidates so far done before later ones are begun, which would take a
// register each; loads may still go ahead. Compilers before LLVM 15 do without.
template <int N> NSTF_DEVICE void search_in_turn(u32 (&best)[N]) {
#if defined(NSTF_HIP) && defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_sched_barrier)
#pragma unroll
	for (int j = 0; j < N; j++) stay_packed(best[j]);
	__builtin_amdgcn_sched_barrier(0x24); // all but scalar instructions and loads stay on their side
#endif
#endif
}

// One weight further to the front.
NSTF_DEVICE void search_step(Search &s, int t, i32 z) {
#pragma unroll
	for (int k = 0; k < 64; k++) stay_packed(s.code[k]);
	const u16 *prev = costs_at(s, t + 1);
	const int own = threadIdx.x * SEARCH_OWN;
	u32 best[SEARCH_OWN];
#pragma unroll
	for (int j = 0; j < SEARCH_OWN; j++) best[j] = 65535;
#pragma unroll
	for (int i = 0; i < 1 << TCQ_BITS; i++)
#pragma unroll
		for (int g = 0; g < SEARCH_OWN / SEARCH_SAME; g++) {
			const u32 rest = prev[(i << (16 - 2 * TCQ_BITS)) + (own >> TCQ_BITS) + g];
#pragma unroll
			for (int j = g * SEARCH_SAME; j < (g + 1) * SEARCH_SAME; j++) {
				const int k = i * SEARCH_OWN + j;
				best[j] = lower_of(best[j], search_cost(rest, z, (i32)(i16)(s.code[k / 2] >> (k % 2 * 16))));
			}
			if (i % 2 && g == SEARCH_OWN / SEARCH_SAME - 1) search_in_turn(best); // two at once: a minimum of three
		}
#pragma unroll
	for (int j = 0; j < SEARCH_OWN; j++) costs_at(s, t)[own + j] = (u16)best[j];
	__syncthreads();
}

NSTF_DEVICE u32 wave_lowest(u32 v) {
#pragma unroll
	for (int m = NSTF_WAVE / 2; m > 0; m /= 2) v = lower_of(v, (u32)wave_xor((i32)v, m));
	return v;
}

// The best state that ends in overlap p before weight t; all lanes of a wave.
NSTF_DEVICE u32 search_next(const Search &s, int t, u32 p, i32 z) {
	u32 best = 0xffffffff;
	for (int i = threadIdx.x % NSTF_WAVE; i < 1 << TCQ_BITS; i += NSTF_WAVE) {
		const u32 state = (u32)i << (16 - TCQ_BITS) | p;
		best = lower_of(best, search_cost(costs_at(s, t + 1)[state >> TCQ_BITS], z, search_code(state, s.unit)) << 16 | state);
	}
	return wave_lowest(best) & 0xffff;
}

// Fills the costs behind the last weight.
NSTF_DEVICE void search_begin(const Search &s, int t, u32 others, int zero) {
	for (int p = threadIdx.x; p < SEARCH_OVERLAPS; p += SEARCH_THREADS) costs_at(s, t)[p] = p == zero ? 0 : (u16)others;
	__syncthreads();
}

NSTF_KERNEL void __launch_bounds__(SEARCH_THREADS) nstf_trellis(
    const f32 *__restrict__ z, u16 *codes, i32 *failed, u16 *history, i64 tiles, int seam, f32 unit) {
	__shared__ i32 v[256];
	__shared__ u32 lowest[SEARCH_THREADS / NSTF_WAVE];
	__shared__ u32 crossing;
	__shared__ u32 words[8 * TCQ_BITS];
	Search s;
	s.history = history + (i64)blockIdx.x * 257 * SEARCH_OVERLAPS, s.unit = unit;
#pragma unroll
	for (int k = 0; k < 128; k++) {
		const u32 c = (u32)search_code(k / SEARCH_OWN << (16 - TCQ_BITS) | (threadIdx.x * SEARCH_OWN + k % SEARCH_OWN), unit) & 0xffff;
		s.code[k / 2] = k % 2 ? s.code[k / 2] | c << 16 : c;
	}
	for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
		__syncthreads();
		if (threadIdx.x < 256) {
			const f32 x = rounded_product(z[tile * 256 + threadIdx.x], unit);
			v[threadIdx.x] = (i32)rintf(x > 27000.0f ? 27000.0f : x < -27000.0f ? -27000.0f : x);
		}
		search_begin(s, 2 * seam, 0, -1);
		for (int t = 2 * seam - 1; t >= 0; t--) search_step(s, t, v[(256 - seam + t) & 255]);
		u32 best = 0xffffffff;
		for (int p = threadIdx.x; p < SEARCH_OVERLAPS; p += SEARCH_THREADS) best = lower_of(best, (u32)costs_at(s, 0)[p] << 16 | p);
		best = wave_lowest(best);
		if (threadIdx.x % NSTF_WAVE == 0) lowest[threadIdx.x / NSTF_WAVE] = best;
		__syncthreads();
		if (threadIdx.x < NSTF_WAVE) {
			for (int w = 0; w < SEARCH_THREADS / NSTF_WAVE; w++) best = lower_of(best, lowest[w]);
			u32 p = best & 0xffff;
			for (int t = 0; t < seam; t++) p = search_next(s, t, p, v[256 - seam + t]) >> TCQ_BITS;
			if (threadIdx.x == 0) crossing = p;
		}
		__syncthreads();
		const u32 fixed = crossing;
		search_begin(s, 256, 65535, fixed);
		for (int t = 255; t >= 0; t--) search_step(s, t, v[t]);
		if (threadIdx.x < 8 * TCQ_BITS) words[threadIdx.x] = 0;
		__syncthreads();
		if (threadIdx.x < NSTF_WAVE) {
			if (threadIdx.x == 0) failed[tile] = costs_at(s, 0)[fixed] == 65535;
			u32 p = fixed;
			for (int t = 0; t < 256; t++) {
				const u32 state = search_next(s, t, p, v[t]), bits = state & ((1 << TCQ_BITS) - 1);
				const int at = t * TCQ_BITS;
				if (threadIdx.x == 0) {
					words[at / 32] |= bits << (at % 32);
					if (at % 32 + TCQ_BITS > 32) words[at / 32 + 1] |= bits >> (32 - at % 32);
				}
				p = state >> TCQ_BITS;
			}
		}
		__syncthreads();
		if (threadIdx.x < 8 * TCQ_BITS) ((u32 *)codes)[tile * 8 * TCQ_BITS + threadIdx.x] = words[threadIdx.x];
	}
}
