// Pages in the order of what they weigh: how a block of CHOOSE_WAVES waves finds where a choice among them ends.
#define CHOOSE_THREADS (CHOOSE_WAVES * NSTF_WAVE)

// The sum over a block, in every thread.
template <typename T> NSTF_DEVICE T block_sum(T v, T* room) {
	v = wave_sum<NSTF_WAVE>(v);
	__syncthreads();
	const int lane = threadIdx.x % NSTF_WAVE;
	if (lane == 0) room[threadIdx.x / NSTF_WAVE] = v;
	__syncthreads();
	return wave_sum<NSTF_WAVE>(lane < CHOOSE_WAVES ? room[lane < CHOOSE_WAVES ? lane : 0] : (T)0);
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

// Keys in 256 bins by 8 of their bits, four times at most: how many there are, and their masses.
#define CHOOSE_ROUNDS 4
#define CHOOSE_FIRST 22 // the lowest of the first bits: weights are 1 at most, whose bits are 0x3f800000
struct choose_bins {
	alignas(16) u32 counts[CHOOSE_ROUNDS][256];
#if CHOOSE_MASS
	alignas(16) u32 masses[CHOOSE_ROUNDS][256];
#endif
	i32 found[CHOOSE_ROUNDS], above[CHOOSE_ROUNDS], inside[CHOOSE_ROUNDS]; // of the bin where the choice ends; -1: in none
	u32 mass_above[CHOOSE_ROUNDS];
	int odds; // pages that are read whatever they weigh

	NSTF_MEMBER void clear() {
		for (int i = threadIdx.x; i < CHOOSE_ROUNDS * 256; i += CHOOSE_THREADS) {
			counts[0][i] = 0;
#if CHOOSE_MASS
			masses[0][i] = 0;
#endif
		}
		if (threadIdx.x < CHOOSE_ROUNDS) found[threadIdx.x] = -1;
		if (threadIdx.x == 0) odds = 0;
	}
	NSTF_MEMBER void add(int round, u32 bin, u32 key) {
		atomicAdd(counts[round] + bin, 1u);
#if CHOOSE_MASS
		atomicAdd(masses[round] + bin, mass_of(key));
#endif
	}
};

// Count, and mass which is under 2^31.
#if CHOOSE_MASS
typedef u64 choose_tally;
#define CHOOSE_TALLY(count, mass) ((u64)(u32)(count) << 32 | (mass))
#define CHOOSE_COUNT(tally) (int)((tally) >> 32)
#else
typedef u32 choose_tally;
#define CHOOSE_TALLY(count, mass) (u32)(count)
#define CHOOSE_COUNT(tally) (int)(tally)
#endif

// Where the choice ends: pages whose keys are above `key`, and `some` of those that have it.
struct choice_end {
	u32 key;
	int some;
};

// A block finds where n keys reach `room` pages, those that are odd counted, or with CHOOSE_MASS the mass
// `want`: by bins from the highest on, until those that are left are all taken or just one. The first bins are there.
NSTF_DEVICE choice_end choice_of(choose_bins& bins, const kept_keys& keys, int n, int room, u32 want) {
	constexpr int each = 256 / NSTF_WAVE; // bins of a lane
	const int lane = threadIdx.x % NSTF_WAVE;
	u32 low = 0, mass = 0;
	int taken = bins.odds, shift = CHOOSE_FIRST;
#pragma unroll 1
	for (int round = 0; round < CHOOSE_ROUNDS; round++) {
		if (round > 0) {
			const int span = shift;
			shift = shift > 8 ? shift - 8 : 0;
			for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
				const u32 k = keys[i];
				if (k >= low && (k - low) >> span == 0) bins.add(round, (k - low) >> shift, k);
			}
			__syncthreads();
		}
		if (threadIdx.x < NSTF_WAVE) { // a lane has neighbouring bins, below those of the lane before
			auto open = [&](choose_tally x) {
#if CHOOSE_MASS
				return (int)(x >> 32) < room && (u32)x < want;
#else
				return (int)x < room;
#endif
			};
			choose_tally own[each], mine = 0;
			const int first = 256 - (lane + 1) * each;
#pragma unroll
			for (int b = 0; b < each; b += 4) {
				const pack<u32, 4> c = *(const pack<u32, 4>*)(bins.counts[round] + first + b);
#if CHOOSE_MASS
				const pack<u32, 4> m = *(const pack<u32, 4>*)(bins.masses[round] + first + b);
#endif
#pragma unroll
				for (int i = 0; i < 4; i++) own[b + i] = CHOOSE_TALLY(c.v[i], m.v[i]), mine += own[b + i];
			}
			choose_tally through = mine;
#pragma unroll
			for (int m = 1; m < NSTF_WAVE; m *= 2) {
				const choose_tally lower = wave_below(through, m);
				through += lane >= m ? lower : 0;
			}
			choose_tally before = through - mine + CHOOSE_TALLY(taken, mass);
			if (open(before) && !open(before + mine)) {
#pragma unroll
				for (int b = each - 1; b >= 0; b--) {
					const choose_tally behind = before + own[b];
					if (open(before) && !open(behind)) {
						bins.found[round] = first + b, bins.above[round] = CHOOSE_COUNT(before), bins.inside[round] = CHOOSE_COUNT(own[b]);
						bins.mass_above[round] = (u32)before;
					}
					before = behind;
				}
			}
		}
		__syncthreads();
		const int found = bins.found[round], inside = bins.inside[round];
		if (found < 0) return {0, n}; // all of them are too few
		low += (u32)found << shift, taken = bins.above[round], mass = bins.mass_above[round];
		if (shift == 0) break;
		if (inside == 1 || !CHOOSE_MASS && taken + inside == room) return low > 0 ? choice_end{low - 1, 0} : choice_end{0, n};
	}
	int some = room - taken;
	if (CHOOSE_MASS) {
		const u32 one = mass_of(low);
		const u32 wanted = one == 0 ? (u32)some : (want - mass + one - 1) / one;
		some = wanted < (u32)some ? (int)wanted : some;
	}
	return {low, some};
}
