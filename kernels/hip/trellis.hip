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
// Where costs leave their range, the tile is searched again with weights and codewords
// halved, as often as it takes (kernels/cpu/trellis.go).
//
// z f32[tiles][256] in units of a codeword; the codes of a tile, u16[16*TCQ_BITS], lie
// stride bytes apart. history: work space for each block, SEARCH_HISTORY levels of
// costs. unit: what a codeword is multiplied with before it is rounded, so that none is
// beyond 28400; seam from 1 to 128.
//
// Grid: blocks of 512 threads and one wave more take tiles in turn; any wave size; LDS:
// the costs of a step (64 KiB >> (TCQ_BITS - 1)) and 5 KiB. A worker has the codewords of its
// 128 states in registers. Phases: the workers go through the seam of one tile, then
// around the ring of the one before, and so on; costs stay in LDS from step to step and
// go to memory too, where the last wave meanwhile follows the path of the phase before.
// Two barriers a step. What is searched again is so at once, by workers alone.
// Deterministic.
//
// The processor cuts distances off at -32768 and 32767, which cost not quite the same.
// Where codewords are small beside that, the sign of a weight tells which of the two its
// distances can reach: the cost of that is one number for all candidates. Where they
// are not (from 4 bits on, before as many halvings as SEARCH_FINER), the lower cost is
// taken for both: the processor's costs are no less. If the least cost is less than
// that of a distance cut off, its path has none, and it is the processor's, ties
// included; if it is not, the search is done again with each candidate cut off by itself.
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
#define SEARCH_FARTHEST (TCQ_BITS == 2 ? 16383 : 32766)     // cost of the distance 32767
#define SEARCH_FURTHER (TCQ_BITS == 2 ? 1 : 2)              // by which that of -32768 is more
#define SEARCH_RING 255                                     // levels of costs that a path needs: before weights 1 to 255,
#define SEARCH_HISTORY (SEARCH_RING + 128)                  // and 1 to seam

NSTF_DEVICE i32 within(i32 v, i32 least, i32 most) { return v > most ? most : v < least ? least : v; }
NSTF_DEVICE u32 lower_of(u32 a, u32 b) { return a < b ? a : b; }
NSTF_DEVICE i32 search_code(u32 state, f32 unit) { return (i32)rintf(rounded_product(tcq_codeword(state), unit)); }
NSTF_DEVICE f32 search_unit(f32 unit, int halvings) { return rounded_product(unit, power_of_two(-halvings)); }

// The cost of a distance on top of the rest.
NSTF_DEVICE u32 search_cost(u32 rest, i32 distance) {
	const i32 d = within(distance * (1 << SEARCH_FINER), -32768, 32767);
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
template <bool Exact> NSTF_DEVICE u32 search_candidate(u32 rest, SearchTarget z, u32 pair, int high) {
	f32 d = z - of_bits(choose_bytes(pair, 0x4b000000u, high ? 0x7632 : 0x7610));
	if (Exact) d = fminf(fmaxf(d, -32768.0f / (1 << SEARCH_FINER)), 32767.0f / (1 << SEARCH_FINER));
	return bits_of(__fmaf_rz(d, d, of_bits(rest)));
}
NSTF_DEVICE u32 search_sum(u32 rest, u32 cost) { return rest + (TCQ_BITS == 2 ? cost : 2 * cost); }
NSTF_DEVICE u32 search_value(u32 best) { return lower_of((best - SEARCH_RESTS) >> (TCQ_BITS == 2 ? 0 : 1), 65535); }
#else
typedef i32 SearchTarget;
NSTF_DEVICE SearchTarget search_target(i32 z) { return z; }
NSTF_DEVICE u32 search_stored(i32 code) { return (u32)code & 0xffff; }
NSTF_DEVICE u32 search_rest(u32 rest) { return rest; }
template <bool Exact> NSTF_DEVICE u32 search_candidate(u32 rest, SearchTarget z, u32 pair, int high) {
	const i32 d = z - (high ? (i32)pair >> 16 : (i32)(i16)pair); // 17 bits
	if (Exact) return search_cost(rest, d);
	const u32 square = (u32)__mul24(d, d);
	return rest + (TCQ_BITS == 2 ? square >> 16 : (square + (1u << (14 - 2 * SEARCH_FINER))) >> (15 - 2 * SEARCH_FINER));
}
NSTF_DEVICE u32 search_sum(u32 rest, u32 cost) { return rest + cost; }
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
	int halvings;             // of the codewords; -1: there are none
};

typedef pack<u32, SEARCH_CHUNK / 2> SearchChunk;

NSTF_DEVICE int chunk_at(int c, u32 thread = threadIdx.x) { return (c * SEARCH_THREADS + (int)thread) * SEARCH_CHUNK; }

// The codewords, halved so many times.
NSTF_DEVICE void search_codes(Worker &w, f32 unit, int halvings) {
	if (w.halvings == halvings) return;
	w.halvings = halvings;
	unit = search_unit(unit, halvings);
	u32 thread = threadIdx.x;
	stay_packed(thread); // codewords of the next time are not made, and kept, beforehand
#pragma unroll
	for (int k = 0; k < 128; k++) {
		const int c = k / (SEARCH_CHUNK << TCQ_BITS), i = k / SEARCH_CHUNK % (1 << TCQ_BITS);
		const u32 v = search_stored(search_code((u32)i << (16 - TCQ_BITS) | (chunk_at(c, thread) + k % SEARCH_CHUNK), unit));
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
template <bool Exact> NSTF_DEVICE void search_step(Worker &w, const u16 *costs, i32 z, u16 *keep) {
#pragma unroll
	for (int k = 0; k < 64; k++) stay_packed(w.code[k]);
	const SearchTarget target = search_target(z);
	const u32 farthest = SEARCH_FARTHEST + (z < 0 && w.halvings >= SEARCH_FINER ? SEARCH_FURTHER : 0);
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
				const u32 v = search_candidate<Exact>(rest[j * SEARCH_GROUPS / SEARCH_CHUNK], target, w.code[k / 2], k % 2);
				best[j] = i ? lower_of(best[j], v) : v;
			}
			if (i % 2) search_in_turn(best); // two at once: a minimum of three
		}
#pragma unroll
		for (int j = 0; j < SEARCH_CHUNK; j++) {
			const u32 v = Exact ? best[j] : lower_of(best[j], search_sum(nearest[j * SEARCH_GROUPS / SEARCH_CHUNK], farthest));
			best[j] = search_value(v);
		}
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
	f32 unit;    // what codewords are multiplied with
};

// Follows the path by one weight.
NSTF_DEVICE void path_step(Path &path, u32 *words) {
	const int lane = threadIdx.x % NSTF_WAVE, t = path.at++;
	const i32 z = path.z[path.first + t & 255];
	u32 best = 0xffffffff;
#pragma unroll
	for (int i = 0; i < 1 << TCQ_BITS; i += NSTF_WAVE) {
		if (i + lane >= 1 << TCQ_BITS) continue;
		const u32 state = (u32)(i + lane) << (16 - TCQ_BITS) | path.p, q = state >> TCQ_BITS;
		const u32 rest = t + 1 < path.weights || path.end < 0 ? path.history[(i64)t * SEARCH_OVERLAPS + q] : q == (u32)path.end ? 0 : 65535;
		best = lower_of(best, search_cost(rest, z - search_code(state, path.unit)) << 16 | state);
	}
	const u32 state = wave_lowest(best) & 0xffff;
	if (path.end >= 0 && lane == 0) {
		const int at = t * TCQ_BITS;
		const u32 bits = state & ((1 << TCQ_BITS) - 1);
		words[at / 32] |= bits << (at % 32);
		if (at % 32 + TCQ_BITS > 32) words[at / 32 + 1] |= bits >> (32 - at % 32);
	}
	path.p = state >> TCQ_BITS;
}

// A number that is the same in all lanes of a wave, told to AMD's compilers: branches by it
// are of whole waves, which keep no registers of lanes that do not take them.
NSTF_DEVICE u32 search_uniform(u32 v) {
#if defined(NSTF_HIP)
	return __builtin_amdgcn_readfirstlane(v);
#else
	return v;
#endif
}

// A condition that compilers do not join with its opposite to an if and else: AMD's keep
// the codewords for the one beside those of the other then.
NSTF_DEVICE bool search_chosen(u32 v) {
	stay_packed(v);
	return search_uniform(v) != 0;
}

// Whether a wave is one of the workers.
NSTF_DEVICE bool search_worker() { return search_uniform(threadIdx.x) < SEARCH_THREADS; }

// What the threads of a block share.
struct Shared {
	alignas(16) u16 costs[SEARCH_OVERLAPS];
	i32 z[3][256];        // of the tile whose ring is followed, searched, and the one before which is the seam's
	u32 start[3];         // overlap before the weights around the seam
	u32 crossing[3];      // overlap that crosses the seam
	i32 halvings[3];      // of z
	i32 exact[3];         // whether each candidate is cut off by itself
	u32 lowest[SEARCH_THREADS / NSTF_WAVE];
	u32 least;            // cost of what starts
	u32 words[8 * TCQ_BITS];
};

// The values of a tile at a place, halved so many times; weights lie no farther out than
// codewords, but where they were halved more than 4 times.
NSTF_DEVICE void search_values(Shared &s, int place, const f32 *z, int tile, f32 unit, int halvings, int exact) {
	if (threadIdx.x < 256) {
		const f32 clip = rounded_product(27000.0f, power_of_two(halvings > 4 ? 4 - halvings : 0));
		const f32 x = rounded_product(z[(i64)tile * 256 + threadIdx.x], search_unit(unit, halvings));
		s.z[place][threadIdx.x] = (i32)rintf(x > clip ? clip : x < -clip ? -clip : x);
	}
	if (threadIdx.x == 0) s.halvings[place] = halvings, s.exact[place] = exact;
}

// Whether the tile at a place has to be searched again, with the values that this makes:
// the cost of the best path says it.
NSTF_DEVICE bool search_again(Shared &s, int place, const f32 *z, int tile, f32 unit, u32 cost) {
	const int halvings = s.halvings[place];
	const bool over = cost == 65535, unsure = halvings < SEARCH_FINER && cost >= SEARCH_FARTHEST && !s.exact[place];
	if (!over && !unsure) return false;
	__syncthreads(); // what says so was read
	search_values(s, place, z, tile, unit, halvings + over, !over);
	return true;
}

// One phase: workers go through steps weights of a place's tile from the last, first being
// the ring's weight at the front; the last wave follows a path meanwhile. end is as in a
// Path. Costs before weights 1 to kept go to history.
NSTF_DEVICE void search_phase(Shared &s, Worker &w, int place, int steps, int first, int end, u16 *history, int kept, Path &path, f32 unit) {
	const bool worker = search_worker();
	const int turns = steps > 0 ? steps : 1, each = (path.weights + turns - 1) / turns;
	if (steps > 0) {
		for (int p = threadIdx.x; p < SEARCH_OVERLAPS && worker; p += SEARCH_THREADS) s.costs[p] = end < 0 || p == end ? 0 : 65535;
		__syncthreads();
		if (worker) search_codes(w, unit, search_uniform(s.halvings[place]));
	}
	for (int t = turns - 1; t >= 0; t--) {
		if (!worker) {
			for (int i = 0; i < each && path.at < path.weights; i++) path_step(path, s.words);
		} else if (steps > 0) {
			u16 *keep = t + 1 < steps && t + 1 <= kept ? history + (i64)t * SEARCH_OVERLAPS : nullptr;
			if (SEARCH_FINER > 0 && search_chosen(s.exact[place])) search_step<true>(w, s.costs, s.z[place][first + t & 255], keep);
			if (SEARCH_FINER == 0 || !search_chosen(s.exact[place])) search_step<false>(w, s.costs, s.z[place][first + t & 255], keep);
		}
		__syncthreads(); // the costs were read
		if (worker && steps > 0) {
#pragma unroll
			for (int c = 0; c < SEARCH_OWN / SEARCH_CHUNK; c++) search_put(w, c, s.costs);
		}
		__syncthreads();
	}
}

// The lowest overlap with the least cost, to where; returns that cost.
NSTF_DEVICE u32 search_start(Shared &s, u32 *where) {
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
		s.least = best >> 16;
	}
	__syncthreads();
	return s.least;
}

NSTF_KERNEL void __launch_bounds__(SEARCH_THREADS + NSTF_WAVE) nstf_trellis(
    const f32 *__restrict__ z, u8 *codes, i64 stride, u16 *history, int tiles, int seam, f32 unit) {
	__shared__ Shared s;
	Worker w;
	w.halvings = -1;
	const bool worker = search_worker();
	const int lane = threadIdx.x % NSTF_WAVE;
	u16 *ring = history + (i64)blockIdx.x * SEARCH_HISTORY * SEARCH_OVERLAPS, *around = ring + SEARCH_RING * SEARCH_OVERLAPS;
	const int count = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
	for (int n = -1; n <= count; n++) { // the ring of tile n follows the seam of tile n+1
		const int a = (n + 2) % 3, b = (n + 3) % 3, c = (n + 4) % 3; // places of tiles n-1, n, n+1
		const int last = (int)blockIdx.x + (n - 1) * (int)gridDim.x;
		const bool begins = n + 1 < count, goes = n >= 0 && n < count, ends = n >= 1;
		const int mine = last + (int)gridDim.x, next = mine + (int)gridDim.x;
		if (begins) search_values(s, c, z, next, unit, 0, 0);
		if (threadIdx.x < 8 * TCQ_BITS) s.words[threadIdx.x] = 0;
		__syncthreads();

		Path path = {ring, s.z[a], 0, ends ? 256 : 0, (int)s.crossing[a], s.crossing[a], 0, search_unit(unit, s.halvings[a])};
		do search_phase(s, w, c, begins ? 2 * seam : 0, 256 - seam, -1, around, seam, path, unit);
		while (begins && search_again(s, c, z, next, unit, search_start(s, &s.start[c])));
		if (!worker && ends) {
			wave_sync();
			for (int i = lane; i < 8 * TCQ_BITS; i += NSTF_WAVE) ((u32 *)(codes + last * stride))[i] = s.words[i];
		}

		path = Path{around, s.z[c], 256 - seam, begins ? seam : 0, -1, s.start[c], 0, search_unit(unit, s.halvings[c])};
		do search_phase(s, w, b, goes ? 256 : 0, 0, s.crossing[b], ring, SEARCH_RING, path, unit);
		while (goes && search_again(s, b, z, mine, unit, s.costs[s.crossing[b]]));
		if (!worker && begins) s.crossing[c] = path.p;
		__syncthreads();
	}
}
