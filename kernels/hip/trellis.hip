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
// z f32[tiles][256] in units of a codeword; the codes of a tile, u16[16*TCQ_BITS], lie
// stride bytes apart; failed i32[tiles] becomes 1 where costs leave their range, or
// the path has a distance that they cut off: such a tile is the processor's.
// history: work space for each block, SEARCH_HISTORY levels of costs. unit: what a
// codeword is multiplied with before it is rounded; seam from 1 to 128.
//
// Grid: blocks of 512 threads and one wave more take tiles in turn; any wave size; LDS:
// the costs of a step (64 KiB >> (TCQ_BITS - 1)) and 5 KiB. A worker has the codewords of its
// 128 states in registers. Phases: the workers go through the seam of one tile, then
// around the ring of the one before, and so on; costs stay in LDS from step to step and
// go to memory too, where the last wave meanwhile follows the path of the phase before.
// Two barriers a step. Deterministic.
//
// Distances are not cut off at the processor's -32768 but at -32767, which makes costs
// no larger; a path without such a distance has the same cost both ways, so that it is
// the processor's too, ties included.
//
// Bound: 4 instructions a candidate on NVIDIA, 5 to 7 on AMD, of which a weight has
// 65536 * (1 + seam/128).
#include "reduce.hip"
#include "tcqcode.hip"

#define SEARCH_THREADS 512
#define SEARCH_OVERLAPS (1 << (16 - TCQ_BITS))
#define SEARCH_OWN (SEARCH_OVERLAPS / SEARCH_THREADS)       // overlaps of a thread
#define SEARCH_CHUNK (SEARCH_OWN < 8 ? SEARCH_OWN : 8)      // of them that follow one another
#define SEARCH_GROUPS (TCQ_BITS == 2 ? 2 : 1)               // of a chunk, that the same states lead to
#define SEARCH_FINER (TCQ_BITS < 4 ? 0 : TCQ_BITS == 4 ? 1 : 2) // doublings of a distance
#define SEARCH_FAR 32767
#define SEARCH_FARTHEST (TCQ_BITS == 2 ? 16383 : 32766)     // cost of that distance
#define SEARCH_RING 255                                     // levels of costs that a path needs: before weights 1 to 255,
#define SEARCH_HISTORY (SEARCH_RING + 128)                  // and 1 to seam

NSTF_DEVICE i32 within(i32 v, i32 most) { return v > most ? most : v < -most ? -most : v; }
NSTF_DEVICE u32 lower_of(u32 a, u32 b) { return a < b ? a : b; }
NSTF_DEVICE i32 search_code(u32 state, f32 unit) { return (i32)rintf(rounded_product(tcq_codeword(state), unit)); }

// The cost of a distance on top of the rest.
NSTF_DEVICE u32 search_cost(u32 rest, i32 distance) {
	const i32 d = within(distance * (1 << SEARCH_FINER), SEARCH_FAR);
	const u32 square = TCQ_BITS == 2 ? (u32)(d * d) >> 16 : ((u32)(d * d) + (1 << 14)) >> 15;
	return lower_of(rest + square, 65535);
}

// The same for many candidates, with what is common to them done once. On NVIDIA a
// cost is the mantissa of a float whose last bit is worth what costs are counted in:
// a product added to it, rounded to zero, is shifted by that. At more than 2 bits it
// counts halves and has one of them, so that whole ones are rounded to nearest.
#if defined(NSTF_CUDA)
typedef f32 SearchTarget; // of a word with a codeword in the last 16 bits of a mantissa
#define SEARCH_RESTS (TCQ_BITS == 2 ? 0x53000000u : 0x52000000u - SEARCH_FINER * 0x01000000u)
NSTF_DEVICE SearchTarget search_target(i32 z) { return (f32)(8388608 + 32768 + z); }
NSTF_DEVICE u32 search_stored(i32 code) { return (u32)(code + 32768); }
NSTF_DEVICE u32 search_rest(u32 rest) { return SEARCH_RESTS + (TCQ_BITS == 2 ? rest : 2 * rest + 1); }
NSTF_DEVICE u32 search_candidate(u32 rest, SearchTarget z, u32 pair, int high) {
	const f32 d = z - of_bits(choose_bytes(pair, 0x4b000000u, high ? 0x7632 : 0x7610));
	return bits_of(__fmaf_rz(d, d, of_bits(rest)));
}
NSTF_DEVICE u32 search_farthest(u32 rest) { return rest + (TCQ_BITS == 2 ? SEARCH_FARTHEST : 2 * SEARCH_FARTHEST); }
NSTF_DEVICE u32 search_value(u32 best) { return lower_of((best - SEARCH_RESTS) >> (TCQ_BITS == 2 ? 0 : 1), 65535); }
#else
typedef i32 SearchTarget;
NSTF_DEVICE SearchTarget search_target(i32 z) { return z; }
NSTF_DEVICE u32 search_stored(i32 code) { return (u32)code & 0xffff; }
NSTF_DEVICE u32 search_rest(u32 rest) { return rest; }
NSTF_DEVICE u32 search_candidate(u32 rest, SearchTarget z, u32 pair, int high) {
	const i32 d = z - (high ? (i32)pair >> 16 : (i32)(i16)pair); // 17 bits
	const u32 square = (u32)__mul24(d, d);
	return rest + (TCQ_BITS == 2 ? square >> 16 : (square + (1u << (14 - 2 * SEARCH_FINER))) >> (15 - 2 * SEARCH_FINER));
}
NSTF_DEVICE u32 search_farthest(u32 rest) { return rest + SEARCH_FARTHEST; }
NSTF_DEVICE u32 search_value(u32 best) { return lower_of(best, 65535); }
#endif

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

// A worker: the overlaps of its chunks c are (c*SEARCH_THREADS + thread)*SEARCH_CHUNK and on.
struct Worker {
	u32 code[64];             // two states each, by chunk, by the bits on top, by overlap
	u32 best[SEARCH_OWN / 2]; // two costs each
};

typedef pack<u32, SEARCH_CHUNK / 2> SearchChunk;

NSTF_DEVICE int chunk_at(int c) { return (c * SEARCH_THREADS + (int)threadIdx.x) * SEARCH_CHUNK; }

// The codewords, as long as the block lives.
NSTF_DEVICE void search_codes(Worker &w, f32 unit) {
#pragma unroll
	for (int k = 0; k < 128; k++) {
		const int c = k / (SEARCH_CHUNK << TCQ_BITS), i = k / SEARCH_CHUNK % (1 << TCQ_BITS);
		const u32 v = search_stored(search_code((u32)i << (16 - TCQ_BITS) | (chunk_at(c) + k % SEARCH_CHUNK), unit));
		w.code[k / 2] = k % 2 ? w.code[k / 2] | v << 16 : v;
	}
}

// A worker's costs in a chunk.
NSTF_DEVICE void search_put(const Worker &w, int c, u16 *costs) {
	SearchChunk v;
#pragma unroll
	for (int j = 0; j < SEARCH_CHUNK / 2; j++) v.v[j] = w.best[c * SEARCH_CHUNK / 2 + j];
	*(SearchChunk *)(costs + chunk_at(c)) = v;
}

// One weight further to the front: from the costs in LDS to best. What best was goes to
// keep, where that is not null: chunk by chunk, for stores at once hold up the rest.
NSTF_DEVICE void search_step(Worker &w, const u16 *costs, i32 z, u16 *keep) {
#pragma unroll
	for (int k = 0; k < 64; k++) stay_packed(w.code[k]);
	const SearchTarget target = search_target(z);
#pragma unroll
	for (int c = 0; c < SEARCH_OWN / SEARCH_CHUNK; c++) {
		if (keep) search_put(w, c, keep);
		u32 best[SEARCH_CHUNK], nearest[SEARCH_GROUPS];
#pragma unroll
		for (int i = 0; i < 1 << TCQ_BITS; i++) {
			const u16 *from = costs + (i << (16 - 2 * TCQ_BITS)) + (chunk_at(c) >> TCQ_BITS);
			const u32 both = SEARCH_GROUPS == 2 ? *(const u32 *)from : *from;
			u32 rest[SEARCH_GROUPS];
#pragma unroll
			for (int g = 0; g < SEARCH_GROUPS; g++) {
				rest[g] = search_rest(g ? both >> 16 : both & 0xffff);
				nearest[g] = i ? lower_of(nearest[g], rest[g]) : rest[g];
			}
#pragma unroll
			for (int j = 0; j < SEARCH_CHUNK; j++) {
				const int k = (c << TCQ_BITS | i) * SEARCH_CHUNK + j;
				const u32 v = search_candidate(rest[j * SEARCH_GROUPS / SEARCH_CHUNK], target, w.code[k / 2], k % 2);
				best[j] = i ? lower_of(best[j], v) : v;
			}
			if (i % 2) search_in_turn(best); // two at once: a minimum of three
		}
#pragma unroll
		for (int j = 0; j < SEARCH_CHUNK; j++) best[j] = search_value(lower_of(best[j], search_farthest(nearest[j * SEARCH_GROUPS / SEARCH_CHUNK])));
#pragma unroll
		for (int j = 0; j < SEARCH_CHUNK; j += 2) w.best[(c * SEARCH_CHUNK + j) / 2] = best[j] | best[j + 1] << 16;
	}
}

NSTF_DEVICE u32 wave_lowest(u32 v) {
#pragma unroll
	for (int m = NSTF_WAVE / 2; m > 0; m /= 2) v = lower_of(v, (u32)wave_xor((i32)v, m));
	return v;
}

// A path that the last wave follows, through levels of costs in memory.
struct Path {
	const u16 *history; // costs before weight 1
	const i32 *z;       // in turn, of weights first, first+1, ... of the ring
	int first, weights;
	int end;     // of a ring, whose codes are kept: the overlap behind its last weight; -1
	u32 p;       // overlap now
	int at;      // weight now
	u32 strange; // not 0: a distance was cut off
};

// Follows the path by one weight.
NSTF_DEVICE void path_step(Path &path, u32 *words, f32 unit) {
	const int lane = threadIdx.x % NSTF_WAVE, t = path.at++;
	const i32 z = path.z[path.first + t & 255];
	u32 best = 0xffffffff;
	bool far = false;
#pragma unroll
	for (int i = 0; i < 1 << TCQ_BITS; i += NSTF_WAVE) {
		if (i + lane >= 1 << TCQ_BITS) continue;
		const u32 state = (u32)(i + lane) << (16 - TCQ_BITS) | path.p, q = state >> TCQ_BITS;
		const u32 rest = t + 1 < path.weights || path.end < 0 ? path.history[(i64)t * SEARCH_OVERLAPS + q] : q == (u32)path.end ? 0 : 65535;
		const i32 d = z - search_code(state, unit);
		const u32 v = search_cost(rest, d) << 16 | state;
		if (v < best) best = v, far = within(d * (1 << SEARCH_FINER), SEARCH_FAR) != d * (1 << SEARCH_FINER);
	}
	const u32 state = wave_lowest(best) & 0xffff;
	path.strange |= wave_ballot((best & 0xffff) == state && far && best != 0xffffffff) ? 1 : 0;
	if (path.end >= 0 && lane == 0) {
		const int at = t * TCQ_BITS;
		const u32 bits = state & ((1 << TCQ_BITS) - 1);
		words[at / 32] |= bits << (at % 32);
		if (at % 32 + TCQ_BITS > 32) words[at / 32 + 1] |= bits >> (32 - at % 32);
	}
	path.p = state >> TCQ_BITS;
}

// Whether a wave is one of the workers.
NSTF_DEVICE bool search_worker() {
#if defined(NSTF_HIP)
	return __builtin_amdgcn_readfirstlane(threadIdx.x) < SEARCH_THREADS; // a branch of whole waves
#else
	return threadIdx.x < SEARCH_THREADS;
#endif
}

// What the threads of a block share.
struct Shared {
	alignas(16) u16 costs[SEARCH_OVERLAPS];
	i32 z[3][256];        // of the tile whose ring is followed, searched, and the one before which is the seam's
	u32 start[3];         // overlap before the weights around the seam
	u32 crossing[3];      // overlap that crosses the seam
	i32 strange[3];       // so far
	u32 lowest[SEARCH_THREADS / NSTF_WAVE];
	u32 words[8 * TCQ_BITS];
};

// One phase: workers go through steps weights of z from the last, first being the
// ring's weight at the front; the last wave follows a path meanwhile. end is as in a
// Path. Costs before weights 1 to kept go to history.
NSTF_DEVICE void search_phase(Shared &s, Worker &w, int steps, const i32 *z, int first, int end, u16 *history, int kept, Path &path, f32 unit) {
	const bool worker = search_worker();
	const int turns = steps > 0 ? steps : 1, each = (path.weights + turns - 1) / turns;
	if (steps > 0) {
		for (int p = threadIdx.x; p < SEARCH_OVERLAPS && worker; p += SEARCH_THREADS) s.costs[p] = end < 0 || p == end ? 0 : 65535;
		__syncthreads();
	}
	for (int t = turns - 1; t >= 0; t--) {
		if (!worker) {
			for (int i = 0; i < each && path.at < path.weights; i++) path_step(path, s.words, unit);
		} else if (steps > 0) {
			search_step(w, s.costs, z[first + t & 255], t + 1 < steps && t + 1 <= kept ? history + (i64)t * SEARCH_OVERLAPS : nullptr);
		}
		__syncthreads(); // the costs were read
		if (worker && steps > 0) {
#pragma unroll
			for (int c = 0; c < SEARCH_OWN / SEARCH_CHUNK; c++) search_put(w, c, s.costs);
		}
		__syncthreads();
	}
}

// The lowest overlap with the least cost, to where.
NSTF_DEVICE void search_start(Shared &s, u32 *where) {
	if (threadIdx.x < SEARCH_THREADS) {
		u32 best = 0xffffffff;
		for (int p = threadIdx.x; p < SEARCH_OVERLAPS; p += SEARCH_THREADS) best = lower_of(best, (u32)s.costs[p] << 16 | p);
		best = wave_lowest(best);
		if (threadIdx.x % NSTF_WAVE == 0) s.lowest[threadIdx.x / NSTF_WAVE] = best;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		u32 best = s.lowest[0];
		for (int i = 1; i < SEARCH_THREADS / NSTF_WAVE; i++) best = lower_of(best, s.lowest[i]);
		*where = best & 0xffff;
	}
	__syncthreads();
}

NSTF_KERNEL void __launch_bounds__(SEARCH_THREADS + NSTF_WAVE) nstf_trellis(
    const f32 *__restrict__ z, u8 *codes, i64 stride, i32 *failed, u16 *history, int tiles, int seam, f32 unit) {
	__shared__ Shared s;
	Worker w;
	const bool worker = search_worker();
	const int lane = threadIdx.x % NSTF_WAVE;
	u16 *ring = history + (i64)blockIdx.x * SEARCH_HISTORY * SEARCH_OVERLAPS, *around = ring + SEARCH_RING * SEARCH_OVERLAPS;
	if (worker) search_codes(w, unit);
	const int count = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
	for (int n = -1; n <= count; n++) { // the ring of tile n follows the seam of tile n+1
		const int a = (n + 2) % 3, b = (n + 3) % 3, c = (n + 4) % 3; // places of tiles n-1, n, n+1
		const int last = (int)blockIdx.x + (n - 1) * (int)gridDim.x;
		const bool begins = n + 1 < count, goes = n >= 0 && n < count, ends = n >= 1;
		if (begins && threadIdx.x < 256) {
			const f32 x = rounded_product(z[(i64)(last + 2 * (int)gridDim.x) * 256 + threadIdx.x], unit);
			s.z[c][threadIdx.x] = (i32)rintf(x > 27000.0f ? 27000.0f : x < -27000.0f ? -27000.0f : x);
			s.strange[c] = 0;
		}
		if (threadIdx.x < 8 * TCQ_BITS) s.words[threadIdx.x] = 0;
		__syncthreads();

		Path path = {ring, s.z[a], 0, ends ? 256 : 0, (int)s.crossing[a], s.crossing[a], 0, 0};
		search_phase(s, w, begins ? 2 * seam : 0, s.z[c], 256 - seam, -1, around, seam, path, unit);
		if (begins) search_start(s, &s.start[c]);
		if (!worker && ends) {
			wave_sync();
			for (int i = lane; i < 8 * TCQ_BITS; i += NSTF_WAVE) ((u32 *)(codes + last * stride))[i] = s.words[i];
			if (path.strange || s.strange[a]) failed[last] = 1;
		}

		path = Path{around, s.z[c], 256 - seam, begins ? seam : 0, -1, s.start[c], 0, 0};
		search_phase(s, w, goes ? 256 : 0, s.z[b], 0, s.crossing[b], ring, SEARCH_RING, path, unit);
		if (goes && s.costs[s.crossing[b]] == 65535) s.strange[b] = 1;
		if (!worker && begins) {
			s.crossing[c] = path.p;
			if (path.strange) s.strange[c] = 1;
		}
		__syncthreads();
	}
}
