// Codes of 5, 4 and 3 bits of keys and values: see kv.hip, which includes this.
//
// Codes and scales are the processor's, bit for bit (kernels/cpu/kvcodes.go): what is
// turned goes through the same sums in the same order, a group's sums are added by
// halves, 16 and 16 first, and products are rounded by themselves.

// The length of the transforms: the largest power of two that divides keys and values.
__host__ __device__ constexpr int kv_turn_length(int n) { return n < 512 && (KV_D | KV_VALUE) % (2 * n) == 0 ? kv_turn_length(2 * n) : n; }
constexpr int KV_TURN = kv_turn_length(1);

// The float32 nearest to 1 / sqrt(n), n a power of two.
__host__ __device__ constexpr f32 kv_turn_factor(int n) { return n == 1 ? 1.0f : n == 2 ? 0x1.6a09e6p-1f : 0.5f * kv_turn_factor(n / 4); }
constexpr f32 KV_TURN_FACTOR = kv_turn_factor(KV_TURN);

// A wave turns N numbers in LDS, a multiple of KV_TURN, that its lanes may have written. A
// lane holds numbers a wave apart: of pairs within a wave it gets the other, others it has.
template <int N> NSTF_DEVICE void kv_turn(f32* v) {
	if (KV_TURN == 1) return;
	constexpr int each = (N + NSTF_WAVE - 1) / NSTF_WAVE;
	const int lane = threadIdx.x % NSTF_WAVE;
	f32 x[each];
	wave_sync();
#pragma unroll
	for (int r = 0; r < each; r++) x[r] = r * NSTF_WAVE + lane < N ? v[r * NSTF_WAVE + lane] : 0.0f;
#pragma unroll
	for (int s = 1; s < NSTF_WAVE; s *= 2) {
		if (s >= KV_TURN) continue;
		const u32 sign = lane & s ? 0x80000000u : 0; // the upper of a pair is the lower less itself
#pragma unroll
		for (int r = 0; r < each; r++) x[r] = wave_xor(x[r], s) + of_bits(bits_of(x[r]) ^ sign);
	}
#pragma unroll
	for (int s = 1; s < 512 / NSTF_WAVE; s *= 2) {
		if (s * NSTF_WAVE >= KV_TURN) continue;
#pragma unroll
		for (int r = 0; r + s < each; r++) {
			if (r & s) continue;
			const f32 a = x[r], b = x[r + s];
			x[r] = a + b, x[r + s] = a - b;
		}
	}
#pragma unroll
	for (int r = 0; r < each; r++)
		if (r * NSTF_WAVE + lane < N) v[r * NSTF_WAVE + lane] = rounded_product(x[r], KV_TURN_FACTOR);
	wave_sync();
}

// The outermost level, whose number is the first.
#define KV_OUTERMOST (KV_BITS == 5 ? -128.0f : -127.0f)
// Levels are steps of 1/16 of the scale with 5 bits, of 1/128 else, as they are read.
#define KV_STEP (KV_BITS == 5 ? 0.0625f : 0.0078125f)

// The levels of codes 0 to 7 and 8 to 15, a byte each.
constexpr u64 KV_LEVELS[2] = {KV_BITS == 3 ? 0x5f371a01eacfaf81ull : 0xf6eaddcfbfae9981ull, 0x6e56443426190d01ull};

__host__ __device__ constexpr int kv_level(int code) { return (i8)(KV_LEVELS[code / 8] >> (8 * (code % 8))); }

// Levels 128 higher, and how far from 0 up a code is nearest, so too; bytes of them.
__host__ __device__ constexpr u32 kv_raised(int code) { return (u32)(kv_level(code) + 128); }
__host__ __device__ constexpr u32 kv_bound(int code) { return code + 1 < 1 << KV_BITS ? (kv_raised(code) + kv_raised(code + 1)) / 2 : 255; }
__host__ __device__ constexpr u32 kv_bounds(int first, int step) {
	return kv_bound(first) | kv_bound(first + step) << 8 | kv_bound(first + 2 * step) << 16 | kv_bound(first + 3 * step) << 24;
}

// Byte i of b:a.
NSTF_DEVICE u32 one_byte(u32 a, u32 b, u32 i) {
#if defined(NSTF_CUDA)
	return choose_bytes(a, b, i) & 255;
#else
	return __builtin_amdgcn_perm(b, a, i | 0x0c0c0c00u); // 12 gives 0
#endif
}

// The code whose level is nearest to x - 128, the lower of two, and that level: bounds are
// halved, as 15 comparisons take twice the instructions.
NSTF_DEVICE void kv_nearest(u32 x, u32& code, f32& level) {
#if KV_BITS == 5
	const u32 c = (x + 3) >> 3;
	code = c > 31 ? 31 : c;
	level = (f32)(8 * (int)code - 128);
#else
	constexpr u64 flip = 0x8080808080808080ull;
	const bool top = x > kv_bound((1 << (KV_BITS - 1)) - 1);
	u32 low = (u32)(KV_LEVELS[0] ^ flip), high = (u32)((KV_LEVELS[0] ^ flip) >> 32);
	code = top ? 1 << (KV_BITS - 1) : 0;
#if KV_BITS == 4
	code += x > (top ? kv_bound(11) : kv_bound(3)) ? 4 : 0;
	code += x > one_byte(kv_bounds(1, 4), 0, code / 4) ? 2 : 0;
	code += x > one_byte(kv_bounds(0, 2), kv_bounds(8, 2), code / 2) ? 1 : 0;
	low = top ? (u32)(KV_LEVELS[1] ^ flip) : low, high = top ? (u32)((KV_LEVELS[1] ^ flip) >> 32) : high;
#else
	code += x > (top ? kv_bound(5) : kv_bound(1)) ? 2 : 0;
	code += x > one_byte(kv_bounds(0, 2), 0, code / 2) ? 1 : 0;
#endif
	level = of_bits(0x4b000000u | one_byte(low, high, code & 7)) - 8388736.0f; // 2^23 + 128
#endif
}

// All lanes' bits, over groups of Width lanes.
template <int Width> NSTF_DEVICE u32 lanes_or(u32 v) {
#pragma unroll
	for (int m = Width / 2; m > 0; m /= 2) v |= (u32)wave_xor((i32)v, m);
	return v;
}

// One step of a sum over lanes m apart that leaves each half of them another sum.
NSTF_DEVICE f32 halved_sum(f32 lower, f32 upper, int m) {
	const bool up = threadIdx.x & m;
	return (up ? upper : lower) + wave_xor(up ? lower : upper, m);
}

// Each 32 lanes choose codes and a scale for a group, a number a lane: of five places of the
// largest number, the one whose best scale leaves the least squared error. Lanes that have
// none (v = 0, has false) do not count. What is the same in all lanes is worked out once: a lane
// divides for one of the places. Of sixteen lanes 0 and 1 have the first, 2 and 3 the second, 4 to
// 7 the third, 8 and 9, 10 and 11 the others, 12 to 15 the third again.
NSTF_DEVICE u16 kv_encode(f32 v, bool has, u32& code) {
	constexpr f32 tries[5] = {1.2f, 1.1f, 1.0f, 0.92f, 0.85f};
	const int lane = threadIdx.x % NSTF_WAVE, first = lane & 32;
	const f32 place = rounded_product(lane & 4 ? tries[2] : lane & 8 ? (lane & 2 ? tries[4] : tries[3]) : lane & 2 ? tries[1] : tries[0], KV_OUTERMOST);
	const u32 m = largest_bits(v);
	const u32 where = (u32)(wave_ballot((bits_of(v) & 0x7fffffffu) == m) >> first), negative = (u32)(wave_ballot(bits_of(v) >> 31 != 0) >> first);
	const f32 inverse = place / of_bits(m | (negative & where & (0u - where) ? 0x80000000u : 0));
	f32 xq[5], qq[5];
	u32 codes[5];
#pragma unroll
	for (int i = 0; i < 5; i++) {
		const f32 at = rounded_product(v, wave_get(inverse, first + (i < 3 ? 2 * i : 2 * i + 2))) + 128.5f;
		f32 level;
		kv_nearest((u32)fminf(fmaxf(at, 0.0f), 255.0f), codes[i], level);
		xq[i] = rounded_product(v, level);
		qq[i] = has ? level * level : 0.0f;
	}
	f32 sum[5];
#pragma unroll
	for (int i = 0; i < 5; i++) sum[i] = halved_sum(xq[i], qq[i], 16);
	const f32 a = halved_sum(sum[0], sum[3], 8), b = halved_sum(sum[1], sum[4], 8), c = sum[2] + wave_xor(sum[2], 8);
	const f32 d = halved_sum(a, c, 4), e = halved_sum(b, c, 4);
	f32 mine = halved_sum(d, e, 2);
	mine += wave_xor(mine, 1);
	const f32 other = wave_xor(mine, 16), factor = lane & 16 ? other / mine : mine / other;
	const f32 better = rounded_product(factor, lane & 16 ? other : mine);
	u32 gain = better > 0 ? bits_of(better) : 0, top = gain;
#pragma unroll
	for (int n = 8; n > 1; n /= 2) {
		const u32 rival = (u32)wave_xor((i32)top, n);
		top = rival > top ? rival : top;
	}
	const u32 best = (u32)(wave_ballot(gain == top) >> first), from = __ffs((int)best) - 1; // the first of equal ones
	const f32 chosen = wave_get(factor, first + (int)from);
	code = one_byte(codes[0] | codes[1] << 8 | codes[2] << 16, codes[3] | codes[4] << 8, from / 2);
	if (top == 0) code = 0;
	if (m >= 0x7f800000u) return 0x7e00;
	if (of_bits(m) < 0x1p-24f) {
		f32 level;
		kv_nearest(128, code, level);
		return 0;
	}
	return top == 0 ? (u16)0 : half_nearest(chosen * 128.0f);
}

// Waves that a vector's codes are work for: a wave has 32 lanes for each group at once.
constexpr int KV_PARTS = (KV_PADDED + NSTF_WAVE - 1) / NSTF_WAVE;

// A wave stores every parts-th of the parts, from one on, of a vector v[KV_D], turned already,
// which lies in LDS, as key or value at of a cache: 32 lanes a group.
NSTF_DEVICE void kv_store(const kv_cache& cache, bool key, i64 at, const f32* v, int part, int parts) {
	kv_element* words = key ? cache.vector<true>(at) : cache.vector<false>(at);
	kv_scale* scales = key ? cache.scales<true>(at) : cache.scales<false>(at);
	const int lane = threadIdx.x % NSTF_WAVE, r = lane % 32 / 8, k = lane % 8;
#pragma unroll 1
	for (; part < KV_PARTS; part += parts) {
		const int i = part * NSTF_WAVE + lane;
		u32 code;
		const u16 scale = kv_encode(i < KV_D ? v[i] : 0.0f, i < KV_D, code);
		const int g = i / 32;
		const bool inside = i < KV_PADDED;
		if (inside && lane % 32 == 0) scales[g] = scale;
		if (KV_BITS == 3) {
			const u32 low = lanes_or<16>((code & 3) << (4 * k + 2 * (r % 2)));
			if (inside && lane % 16 == 0) words[g * KV_WORDS + r / 2] = low;
		} else {
			const u32 low = lanes_or<8>((code & 15) << (4 * k));
			if (inside && k == 0) words[g * KV_WORDS + r] = low;
		}
#if KV_HIGHS
		const u32 high = lanes_or<32>((u32)(KV_BITS == 3 ? code >= 4 : code < 16) << (4 * k + r));
		if (inside && lane % 32 == 0) words[KV_GROUPS * KV_WORDS + g] = high;
#endif
	}
}

// A wave stores the same vector in half precision.
NSTF_DEVICE void kv_store_near(u16* to, const f32* v) {
	for (int i = threadIdx.x % NSTF_WAVE; i < KV_D; i += NSTF_WAVE) to[i] = half_nearest(v[i]);
}

// The factor of a group's levels.
NSTF_DEVICE f32 kv_factor(u16 scale) { return half_value(scale) * KV_STEP; }

// The levels of run r of a group, eight numbers, from its word and the group's high bits: bytes,
// with KV_APART of even and of odd numbers, else of the lower and of the higher four. For matrix
// instructions each is 128 more.
#if ATTEND_MATRIX
#define KV_RAISED 0x80808080u
#else
#define KV_RAISED 0u
#endif
#if (defined(NSTF_CUDA) || ATTEND_MATRIX) && KV_BITS != 5
#define KV_APART 0
#else
#define KV_APART 1
#endif
NSTF_DEVICE void kv_level_bytes(u32& even, u32& odd, u32 word, u32 high, int r) {
#if KV_BITS == 5
	high >>= r;
#if ATTEND_MATRIX
	even = ((word & 0x0f0f0f0fu) | KV_RAISED) - (high & 0x01010101u) * 16;
	odd = ((word >> 4 & 0x0f0f0f0fu) | KV_RAISED) - (high >> 4 & 0x01010101u) * 16;
#else
	even = (word & 0x0f0f0f0fu) + (high & 0x01010101u) * 0xf0u;
	odd = (word >> 4 & 0x0f0f0f0fu) + (high >> 4 & 0x01010101u) * 0xf0u;
#endif
#else
	if (KV_BITS == 3) word = (word >> (2 * (r % 2)) & 0x33333333u) | (high >> r & 0x11111111u) << 2;
	constexpr u32 t[4] = {(u32)KV_LEVELS[0] ^ KV_RAISED, (u32)(KV_LEVELS[0] >> 32) ^ KV_RAISED, (u32)KV_LEVELS[1] ^ KV_RAISED, (u32)(KV_LEVELS[1] >> 32) ^ KV_RAISED};
#if defined(NSTF_CUDA) || ATTEND_MATRIX
	// As nibble_levels of weights.hip: a selector is four nibbles.
	const u32 in = word & 0x77777777u, half = (word >> 1 & 0x44444444u) | 0x32103210u;
	even = choose_bytes(t[0], t[1], in);
	odd = choose_bytes(t[0], t[1], in >> 16);
	if (KV_BITS == 4) {
		even = choose_bytes(even, choose_bytes(t[2], t[3], in), half);
		odd = choose_bytes(odd, choose_bytes(t[2], t[3], in >> 16), half >> 16);
	}
#else
	u32 two[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const u32 in = word >> (4 * i);
		two[i] = __builtin_amdgcn_perm(t[1], t[0], in & 0x07070707u);
		if (KV_BITS == 4) {
			const u32 top = __builtin_amdgcn_perm(t[3], t[2], in & 0x07070707u);
			const u32 mask = __builtin_amdgcn_perm(0, 0, (in >> 3 & 0x01010101u) | 0x0c0c0c0cu); // 12 gives 0, 13 gives 255
			two[i] = (top & mask) | (two[i] & ~mask);
		}
	}
	even = two[0], odd = two[1];
#endif
#endif
}

// The same in float32.
NSTF_DEVICE void kv_levels(f32 (&x)[8], u32 word, u32 high, int r) {
	u32 even, odd;
	kv_level_bytes(even, odd, word, high, r);
#pragma unroll
	for (int i = 0; i < 8; i++) x[i] = KV_APART ? (f32)(i8)((i % 2 ? odd : even) >> (8 * (i / 2))) : (f32)(i8)((i < 4 ? even : odd) >> (8 * (i % 4)));
}
