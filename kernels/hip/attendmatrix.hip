// The tiles of attendcore.hip by matrix instructions: m16n8k16 of halves, added up in float32. For
// waves of 32 lanes, up to four queries, heads of whole groups of 32 numbers, and formats whose
// numbers are halves, times a scale or not.
//
// A number in float32 is two halves, its nearest and what that leaves, times a power of two that
// keeps both within range; so the columns of a product are the queries' nearest halves and rests by
// turns, and a product and its rest are added at last. What is stored is exact: halves, or whole
// numbers under 128 whose scales come behind the product of a group, of values before it.
//
// Of a fragment, r is lane/4 and c is lane%4. Scores: rows are positions, r and r+8; k runs
// through the numbers of a group, of which lane c has those from 8c on. Values: rows are numbers
// of a head, of which lane r has runs of VALUE_RUN; k runs through positions, of which lane c has
// 2c, 2c+1, 2c+8 and 2c+9. Results: lane c has those of query c.
//
// Deterministic. Tolerance: that of sums in float32 whose numbers have 22 bits.
constexpr int TILE = 16, PADDED = 4, ROUNDS = 1, LDS_WAVE = 1;
constexpr int THREADS = (ATTEND_WAVES + ATTEND_BESIDE) * NSTF_WAVE;
constexpr int KEY_GROUPS = KV_D / 32;
constexpr int KEY_WORDS = KV_FORMAT == 1 ? 4 : KV_FORMAT == 2 ? 2 : 1; // of 8 numbers
constexpr int VALUE_RUN = KV_CODED || KV_D % 64 != 0 ? 4 : 8, VALUE_RUNS = KV_D / (8 * VALUE_RUN);
// Words of a run of values, of codes a half of one.
constexpr int VALUE_WORDS = KV_FORMAT == 1 ? VALUE_RUN / 2 : KV_FORMAT == 2 ? VALUE_RUN / 4 : 1;
// Scales of a value: of each group, or one.
constexpr int VALUE_SCALES = KV_CODED ? KEY_GROUPS : 1;

#if KV_CODED
typedef u16 value_half;
typedef u16 matrix_scale;
NSTF_DEVICE f32 scale_value(u16 s) { return half_value(s); }
#else
typedef u32 value_half;
typedef f32 matrix_scale;
NSTF_DEVICE f32 scale_value(f32 s) { return s; }
#endif

#if NSTF_MATRIX == NSTF_MATRIX_MMA
NSTF_DEVICE void multiply(f32 (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
NSTF_DEVICE u32 halves_minus(u32 x, u32 y) {
	u32 z;
	asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
	return z;
}
NSTF_DEVICE u32 halves_of(f32 low, f32 high) {
	u32 v;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
	return v;
}
#else
// What the instruction does, by shuffles, for tests without it.
NSTF_DEVICE void multiply(f32 (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
	const int lane = threadIdx.x % NSTF_WAVE, r = lane / 4, c = lane % 4;
	for (int k = 0; k < 4; k++) {
		const u32 a[4] = {wave_get(a0, r * 4 + k), wave_get(a1, r * 4 + k), wave_get(a2, r * 4 + k), wave_get(a3, r * 4 + k)};
		for (int n = 0; n < 2; n++) {
			const u32 b[2] = {wave_get(b0, (2 * c + n) * 4 + k), wave_get(b1, (2 * c + n) * 4 + k)};
			for (int row = 0; row < 2; row++)
				for (int part = 0; part < 2; part++) {
					d[2 * row + n] = fmaf(half_low(a[2 * part + row]), half_low(b[part]), d[2 * row + n]);
					d[2 * row + n] = fmaf(half_high(a[2 * part + row]), half_high(b[part]), d[2 * row + n]);
				}
		}
	}
}
NSTF_DEVICE u32 halves_of(f32 low, f32 high) { return half_nearest(low) | (u32)half_nearest(high) << 16; }
NSTF_DEVICE u32 halves_minus(u32 x, u32 y) { return halves_of(half_low(x) - half_low(y), half_high(x) - half_high(y)); }
#endif

// Four bytes, 128 more than whole numbers, as two pairs of halves.
NSTF_DEVICE void bytes_to_halves(u32 bytes, u32& low, u32& high) {
	low = halves_minus(choose_bytes(bytes, 0x64646464u, 0x4140), 0x64806480u); // 1024 + byte - 1152
	high = halves_minus(choose_bytes(bytes, 0x64646464u, 0x4342), 0x64806480u);
}

struct keys_loaded {
	pack<u32, KEY_WORDS> x[2][KEY_GROUPS];
	u32 high[2][KV_HIGHS ? KEY_GROUPS : 1];
	matrix_scale scale[2][KV_SCALED ? KEY_GROUPS : 1];
};
struct values_loaded {
	pack<value_half, VALUE_WORDS> x[4][VALUE_RUNS];
	u16 high[4][KV_HIGHS ? KEY_GROUPS : 1];
	matrix_scale scale[4][VALUE_SCALES];
};

NSTF_DEVICE int key_position(int lane, int i) { return lane / 4 + 8 * i; }
NSTF_DEVICE int value_position(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }

// Some scales that lie together.
template <bool Settled, int N> NSTF_DEVICE void load_scales(matrix_scale (&to)[N], const matrix_scale* from) {
	constexpr int each = common_power(N, 16 / (int)sizeof(matrix_scale));
#pragma unroll
	for (int i = 0; i < N; i += each) {
		const pack<matrix_scale, each> some = get<Settled>((const pack<matrix_scale, each>*)(from + i));
#pragma unroll
		for (int j = 0; j < each; j++) to[i + j] = some.v[j];
	}
}

template <bool Settled> NSTF_DEVICE void load_key(keys_loaded& to, int i, const kv_cache& cache, i64 vector, int lane) {
	const int c = lane % 4;
	const kv_element* v = cache.vector<true>(vector);
#pragma unroll
	for (int g = 0; g < KEY_GROUPS; g++) {
#if KV_CODED
		to.x[i][g].v[0] = get<Settled>(v + g * KV_WORDS + (KV_BITS == 3 ? c / 2 : c));
		if (KV_HIGHS) to.high[i][KV_HIGHS ? g : 0] = get<Settled>(v + KV_GROUPS * KV_WORDS + g);
#else
		to.x[i][g] = get<Settled>((const pack<u32, KEY_WORDS>*)(v + g * 32 + c * 8));
#endif
	}
#if KV_SCALED
	load_scales<Settled>(to.scale[i], (const matrix_scale*)cache.scales<true>(vector));
#endif
}

template <bool Settled> NSTF_DEVICE void load_value(values_loaded& to, int i, const kv_cache& cache, i64 vector, int lane) {
	const int r = lane / 4;
	const kv_element* v = cache.vector<false>(vector);
#pragma unroll
	for (int j = 0; j < VALUE_RUNS; j++) {
#if KV_CODED
		to.x[i][j].v[0] = get<Settled>((const u16*)v + j * 2 * KV_WORDS + (KV_BITS == 3 ? r / 4 * 2 + r % 2 : r));
		if (KV_HIGHS) to.high[i][KV_HIGHS ? j : 0] = get<Settled>((const u16*)(v + KV_GROUPS * KV_WORDS + j) + r % 2);
#else
		to.x[i][j] = get<Settled>((const pack<u32, VALUE_WORDS>*)(v + (j * 8 + r) * VALUE_RUN));
#endif
	}
#if KV_SCALED
	load_scales<Settled>(to.scale[i], (const matrix_scale*)cache.scales<false>(vector));
#endif
}

template <bool Key> struct loaded_of;
template <> struct loaded_of<true> {
	typedef keys_loaded type;
};
template <> struct loaded_of<false> {
	typedef values_loaded type;
};

// Loads what the cache has of a tile: where rows are turned, all but the newest.
template <bool Key> NSTF_DEVICE void load_cached(typename loaded_of<Key>::type& to, const kv_cache& cache, const tile& t, int lane) {
	if (KV_CODED && t.near) return;
	constexpr bool whole = ATTEND_PAGED && KV_CODED; // pages that are not near are
	if (whole && t.hi == 0) return;
#pragma unroll
	for (int i = 0; i < (Key ? 2 : 4); i++) {
		const int p = Key ? key_position(lane, i) : value_position(lane, i);
		if constexpr (whole) {
			if constexpr (Key) load_key<ATTEND_SETTLED != 0>(to, i, cache, t.vector + p, lane);
			else load_value<ATTEND_SETTLED != 0>(to, i, cache, t.vector + p, lane);
			continue;
		}
#pragma unroll
		for (int j = 0; j < (int)(sizeof(to.x[i]) / sizeof(to.x[i][0])); j++) to.x[i][j] = {};
#pragma unroll
		for (int j = 0; j < (int)(sizeof(to.scale[i]) / sizeof(to.scale[i][0])); j++) to.scale[i][j] = 0;
#pragma unroll
		for (int j = 0; j < (int)(sizeof(to.high[i]) / sizeof(to.high[i][0])); j++) to.high[i][j] = 0;
		if (p < t.lo || p >= t.hi || ATTEND_OWN && !KV_CODED && p == t.newest) continue;
		if constexpr (Key) load_key<ATTEND_SETTLED != 0>(to, i, cache, t.vector + p, lane);
		else load_value<ATTEND_SETTLED != 0>(to, i, cache, t.vector + p, lane);
	}
}

// Loads the newest position of a tile, if it is there.
template <bool Key> NSTF_DEVICE void load_newest(typename loaded_of<Key>::type& to, const stored_pair& own, const tile& t, int lane) {
#if !KV_CODED
	if (!ATTEND_OWN || t.newest < 0 || t.newest >= TILE) return;
	const kv_cache cache = ((stored_pair&)own).cache();
#pragma unroll
	for (int i = 0; i < (Key ? 2 : 4); i++) {
		if ((Key ? key_position(lane, i) : value_position(lane, i)) != t.newest) continue;
		if constexpr (Key) load_key<false>(to, i, cache, 0, lane);
		else load_value<false>(to, i, cache, 0, lane);
	}
#endif
}

template <bool Key> NSTF_DEVICE void load(typename loaded_of<Key>::type& to, const kv_cache& cache, const stored_pair& own, const tile& t, int lane) {
	load_cached<Key>(to, cache, t, lane);
	load_newest<Key>(to, own, t, lane);
}

// Queries as fragments, and what results in queries of this lane's column are to be multiplied with.
struct queries {
	u32 v[KEY_GROUPS][2][2];
	f32 factor;
};
struct value_sums {
	f32 v[VALUE_RUNS][VALUE_RUN];
};

// One of the halves of each of two numbers.
NSTF_DEVICE u32 limbs(f32 low, f32 high, f32 rest) {
	const u32 nearest = halves_of(low, high);
	return halves_of(fmaf(-rest, half_low(nearest), low), fmaf(-rest, half_high(nearest), high));
}

// Takes queries from[query][KV_D], of which so many are here, and clears sums.
NSTF_DEVICE void load_queries(queries& query, value_sums& sum, const f32* from, int here, int lane) {
	const int g = lane / 8, c = lane % 4;
	const f32 rest = lane / 4 % 2 ? 1.0f : 0.0f;
	u32 most = 0;
	if (g < here)
#pragma unroll
		for (int i = 0; i < KEY_GROUPS; i++)
#pragma unroll
			for (int j = 0; j < 8; j++) {
				const u32 m = bits_of(from[g * KV_D + i * 32 + c * 8 + j]) & 0x7fffffffu;
				most = m > most ? m : most;
			}
#pragma unroll
	for (int m = 1; m < 4; m *= 2) {
		const u32 other = (u32)wave_xor((i32)most, m);
		most = other > most ? other : most;
	}
	const int up = least(14 - ((int)(most >> 23) - 127), 126); // below 2^15 then
	const f32 factor = power_of_two(up);
	query.factor = wave_get(power_of_two(-up), c * 8);
#pragma unroll
	for (int i = 0; i < KEY_GROUPS; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const f32* at = from + g * KV_D + i * 32 + c * 8 + 2 * j;
			query.v[i][j / 2][j % 2] = g < here ? limbs(at[0] * factor, at[1] * factor, rest) : 0;
		}
#pragma unroll
	for (int i = 0; i < VALUE_RUNS; i++)
#pragma unroll
		for (int j = 0; j < VALUE_RUN; j++) sum.v[i][j] = 0;
}

// The halves of 8 numbers of a key.
NSTF_DEVICE void key_halves(u32 (&h)[4], const keys_loaded& k, int i, int g, int lane) {
#if KV_CODED
	u32 even, odd;
	kv_level_bytes(even, odd, k.x[i][g].v[0], KV_HIGHS ? k.high[i][g] : 0, lane % 4);
	const u32 low = KV_APART ? choose_bytes(even, odd, 0x5140) : even, high = KV_APART ? choose_bytes(even, odd, 0x7362) : odd;
	bytes_to_halves(low, h[0], h[1]);
	bytes_to_halves(high, h[2], h[3]);
#elif KV_FORMAT == 2
	bytes_to_halves(k.x[i][g].v[0] ^ 0x80808080u, h[0], h[1]);
	bytes_to_halves(k.x[i][g].v[1] ^ 0x80808080u, h[2], h[3]);
#else
#pragma unroll
	for (int j = 0; j < 4; j++) h[j] = k.x[i][g].v[j];
#endif
}

// Scores of a tile, then weights: of positions r and r+8 for query c.
struct scored {
	f32 v[2];
	f32 factor; // of earlier sums
};

// Scores of a tile: those of keys that were loaded, or of keys in half precision.
NSTF_DEVICE void score_tile(scored& s, f32*, const keys_loaded& key, const kv_cache& cache, const stored_pair& own, const tile& t, const queries& q, int lane) {
	s.v[0] = s.v[1] = 0;
#if KV_CODED
	if (t.near) {
		f32 d[4] = {};
#pragma unroll
		for (int g = 0; g < KEY_GROUPS; g++) {
			pack<u32, 4> h[2];
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const int p = key_position(lane, i), at = g * 32 + lane % 4 * 8;
				h[i] = {};
				if (p < t.lo || p >= t.hi) continue;
				h[i] = *(const pack<u32, 4>*)((ATTEND_OWN && p == t.newest ? own.key : cache.near<true>(t.vector + p)) + at);
			}
			multiply(d, h[0].v[0], h[1].v[0], h[0].v[1], h[1].v[1], q.v[g][0][0], q.v[g][0][1]);
			multiply(d, h[0].v[2], h[1].v[2], h[0].v[3], h[1].v[3], q.v[g][1][0], q.v[g][1][1]);
		}
		s.v[0] = (d[0] + d[1]) * q.factor, s.v[1] = (d[2] + d[3]) * q.factor;
		return;
	}
#endif
	f32 d[4] = {};
#pragma unroll
	for (int g = 0; g < KEY_GROUPS; g++) {
		u32 a[4], b[4];
		key_halves(a, key, 0, g, lane);
		key_halves(b, key, 1, g, lane);
		multiply(d, a[0], b[0], a[1], b[1], q.v[g][0][0], q.v[g][0][1]);
		multiply(d, a[2], b[2], a[3], b[3], q.v[g][1][0], q.v[g][1][1]);
		if (!KV_SCALED) continue;
		s.v[0] = fmaf(d[0] + d[1], scale_value(key.scale[0][KV_SCALED ? g : 0]), s.v[0]);
		s.v[1] = fmaf(d[2] + d[3], scale_value(key.scale[1][KV_SCALED ? g : 0]), s.v[1]);
		d[0] = d[1] = d[2] = d[3] = 0;
	}
	if (!KV_SCALED) s.v[0] = d[0] + d[1], s.v[1] = d[2] + d[3];
#if KV_CODED
	const f32 factor = q.factor * KV_STEP;
#else
	const f32 factor = q.factor;
#endif
	s.v[0] *= factor, s.v[1] *= factor;
}

// The running maximum of this lane's query, and the sum over its positions.
struct totals {
	f32 top, sum;
#if ATTEND_PAGED
	f32 page_sum; // of the page in progress, below the same maximum
#endif
};

NSTF_DEVICE void clear_totals(totals& all) {
	all.top = ATTEND_NONE, all.sum = 0;
#if ATTEND_PAGED
	all.page_sum = 0;
#endif
}

// The sum over the lanes that have a query.
NSTF_DEVICE f32 column_sum(f32 v) {
#pragma unroll
	for (int m = 16; m > 2; m /= 2) v += wave_xor(v, m);
	return v;
}

// Turns scores into weights.
NSTF_DEVICE void weigh(scored& s, f32*, totals& all, const kv_cache&, const stored_pair&, const tile& t, int lane, f32 scale, f32 softcap) {
	f32 highest = -NSTF_INFINITY;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int p = key_position(lane, i);
		f32 z = s.v[i] * scale;
		if (ATTEND_CAP) z = softcap * tanh_f32(z / softcap);
		s.v[i] = z = p >= t.lo && p < t.hi ? z : -NSTF_INFINITY;
		highest = wave_max_of(z, highest);
	}
#pragma unroll
	for (int m = 16; m > 2; m /= 2) highest = wave_max_of(highest, wave_xor(highest, m));
	const f32 top = wave_max_of(highest, all.top);
	s.factor = exp_f32(all.top - top);
	s.v[0] = exp_f32(s.v[0] - top), s.v[1] = exp_f32(s.v[1] - top);
	all.sum = all.sum * s.factor + (s.v[0] + s.v[1]);
#if ATTEND_PAGED
	all.page_sum = all.page_sum * s.factor + (s.v[0] + s.v[1]);
#endif
	all.top = top;
}

#if ATTEND_PAGED
// Says of each query the logarithm of a page's sum, and begins the next page. A page whose sum is 0 beside those
// before has no weight: minus infinity.
template <typename Put> NSTF_DEVICE void end_page(totals& all, int lane, Put put) {
	const f32 s = column_sum(all.page_sum);
	if (lane < 4) put(lane, all.top + log_f32(s));
	all.page_sum = 0;
}
#endif

#define WEIGHTS_UP 0x1p14f // of weights whose values have no scales

// The values of a run of two positions as fragments: of each number, a pair of halves.
NSTF_DEVICE void value_halves(u32 (&h)[VALUE_RUN], const values_loaded& v, int i, int j, int lane) {
#if KV_CODED
	const int shift = KV_BITS == 3 ? lane / 8 % 2 * 2 : 0, up = lane / 8;
	const u32 word = (u32)v.x[i][j].v[0] >> shift | (u32)v.x[i + 1][j].v[0] >> shift << 16;
	const u32 bits = KV_HIGHS ? (u32)v.high[i][KV_HIGHS ? j : 0] >> up | (u32)v.high[i + 1][KV_HIGHS ? j : 0] >> up << 16 : 0;
	u32 even, odd;
	kv_level_bytes(even, odd, word, bits, 0);
	const u32 low = choose_bytes(even, odd, KV_APART ? 0x6420 : 0x5140), high = choose_bytes(even, odd, KV_APART ? 0x7531 : 0x7362);
	bytes_to_halves(low, h[0], h[1]);
	bytes_to_halves(high, h[2], h[3]);
#elif KV_FORMAT == 2
#pragma unroll
	for (int k = 0; k < VALUE_WORDS; k++) {
		const u32 a = v.x[i][j].v[k] ^ 0x80808080u, b = v.x[i + 1][j].v[k] ^ 0x80808080u;
		bytes_to_halves(choose_bytes(a, b, 0x5140), h[4 * k], h[4 * k + 1]);
		bytes_to_halves(choose_bytes(a, b, 0x7362), h[4 * k + 2], h[4 * k + 3]);
	}
#else
#pragma unroll
	for (int k = 0; k < VALUE_WORDS; k++) {
		h[2 * k] = choose_bytes(v.x[i][j].v[k], v.x[i + 1][j].v[k], 0x5410);
		h[2 * k + 1] = choose_bytes(v.x[i][j].v[k], v.x[i + 1][j].v[k], 0x7632);
	}
#endif
}

// Adds the products of a run's fragments: a of positions 2c and 2c+1, b of the other two.
NSTF_DEVICE void add_run(f32 (&sum)[VALUE_RUN], const u32 (&a)[VALUE_RUN], const u32 (&b)[VALUE_RUN], u32 low, u32 high, f32 factor, f32 down) {
#pragma unroll
	for (int k = 0; k < VALUE_RUN; k += 2) {
		f32 d[4] = {};
		multiply(d, a[k], a[k + 1], b[k], b[k + 1], low, high);
		sum[k] = fmaf(d[0] + d[1], down, sum[k] * factor);
		sum[k + 1] = fmaf(d[2] + d[3], down, sum[k + 1] * factor);
	}
}

// Multiplies earlier sums by what weigh has left, and adds a tile's values.
NSTF_DEVICE void accumulate_tile(scored& s, value_sums& sum, const values_loaded& value, const kv_cache& cache, const stored_pair& own, const tile& t, const f32*, int lane) {
	const int c = lane % 4, query = lane / 8;
	const f32 rest = lane / 4 % 2 ? 1.0f : 0.0f;
	f32 w[4]; // of positions 2c, 2c+1, 2c+8 and 2c+9, for the fragment's query
#pragma unroll
	for (int i = 0; i < 4; i++) w[i] = wave_get(s.v[i / 2], (2 * c + i % 2) * 4 + query);
#if KV_CODED
	if (t.near) {
		const u32 low = limbs(w[0] * WEIGHTS_UP, w[1] * WEIGHTS_UP, rest), high = limbs(w[2] * WEIGHTS_UP, w[3] * WEIGHTS_UP, rest);
#pragma unroll
		for (int j = 0; j < VALUE_RUNS; j++) {
			u32 a[2][VALUE_RUN];
#pragma unroll
			for (int i = 0; i < 4; i += 2) {
				pack<u32, 2> x[2];
#pragma unroll
				for (int k = 0; k < 2; k++) {
					const int p = value_position(lane, i + k);
					x[k] = {};
					if (p < t.lo || p >= t.hi) continue;
					x[k] = *(const pack<u32, 2>*)((ATTEND_OWN && p == t.newest ? own.value : cache.near<false>(t.vector + p)) + (j * 8 + lane / 4) * VALUE_RUN);
				}
#pragma unroll
				for (int k = 0; k < 2; k++) {
					a[i / 2][2 * k] = choose_bytes(x[0].v[k], x[1].v[k], 0x5410);
					a[i / 2][2 * k + 1] = choose_bytes(x[0].v[k], x[1].v[k], 0x7632);
				}
			}
			add_run(sum.v[j], a[0], a[1], low, high, s.factor, 1 / WEIGHTS_UP);
		}
		return;
	}
#endif
	f32 up = WEIGHTS_UP, down = 1 / WEIGHTS_UP;
#if KV_SCALED // by the tile's largest scale
	u32 most = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < VALUE_SCALES; j++) {
			const u32 m = KV_CODED ? (u32)value.scale[i][j] & 0x7fffu : bits_of(value.scale[i][j]) & 0x7fffffffu;
			most = m > most ? m : most;
		}
#pragma unroll
	for (int m = 1; m < 4; m *= 2) {
		const u32 other = (u32)wave_xor((i32)most, m);
		most = other > most ? other : most;
	}
#if KV_CODED
	const int by = 29 - (int)(most >> 10); // halves; below 2^15 then
	up = power_of_two(by), down = power_of_two(-by) * KV_STEP;
#else
	const int by = least(14 - ((int)(most >> 23) - 127), 126);
	up = power_of_two(by), down = power_of_two(-by);
#endif
#endif
	u32 low = 0, high = 0;
	auto take_weights = [&](int g) {
		f32 f[4];
#pragma unroll
		for (int i = 0; i < 4; i++) f[i] = w[i] * up * (KV_SCALED ? scale_value(value.scale[i][g]) : 1.0f);
		low = limbs(f[0], f[1], rest), high = limbs(f[2], f[3], rest);
	};
	if (!KV_CODED) take_weights(0);
#pragma unroll
	for (int j = 0; j < VALUE_RUNS; j++) {
		u32 a[VALUE_RUN], b[VALUE_RUN];
		if (KV_CODED) take_weights(KV_CODED ? j : 0);
		value_halves(a, value, 0, j, lane);
		value_halves(b, value, 2, j, lane);
		add_run(sum.v[j], a, b, low, high, s.factor, down);
	}
}

// Makes what a wave has its record in lds[wave].
NSTF_DEVICE void put_record(f32* lds, value_sums& sum, const totals& all, int wave, int lane) {
	f32* record = lds + wave * ATTEND_RECORD;
	const int g = lane % 4;
	const f32 s = column_sum(all.sum);
	if (g >= ATTEND_QUERIES) return;
	if (lane < 4) record[g] = all.top, record[ATTEND_QUERIES + g] = s;
#pragma unroll
	for (int j = 0; j < VALUE_RUNS; j++)
#pragma unroll
		for (int k = 0; k < VALUE_RUN; k++) record[2 * ATTEND_QUERIES + g * KV_VALUE + (j * 8 + lane / 4) * VALUE_RUN + k] = sum.v[j][k];
}
