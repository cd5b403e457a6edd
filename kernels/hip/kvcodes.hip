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

// A wave turns n numbers in LDS, a multiple of KV_TURN, that its lanes may have written.
NSTF_DEVICE void kv_turn(f32* v, int n) {
	if (KV_TURN == 1) return;
	const int lane = threadIdx.x % NSTF_WAVE;
#pragma unroll
	for (int s = 1; s < KV_TURN; s *= 2) {
		wave_sync();
		for (int i = lane; i < n / 2; i += NSTF_WAVE) {
			const int at = i / s * (2 * s) + i % s;
			const f32 a = v[at], b = v[at + s];
			v[at] = a + b;
			v[at + s] = a - b;
		}
	}
	wave_sync();
	for (int i = lane; i < n; i += NSTF_WAVE) v[i] = rounded_product(v[i], KV_TURN_FACTOR);
	wave_sync();
}

// The outermost level, whose number is the first.
#define KV_OUTERMOST (KV_BITS == 5 ? -128.0f : -127.0f)
// Levels are steps of 1/16 of the scale with 5 bits, of 1/128 else, as they are read.
#define KV_STEP (KV_BITS == 5 ? 0.0625f : 0.0078125f)

// The levels of codes 0 to 7 and 8 to 15, a byte each.
constexpr u64 KV_LEVELS[2] = {KV_BITS == 3 ? 0x5f371a01eacfaf81ull : 0xf6eaddcfbfae9981ull, 0x6e56443426190d01ull};

__host__ __device__ constexpr int kv_level(int code) { return (i8)(KV_LEVELS[code / 8] >> (8 * (code % 8))); }

// The code whose level is nearest to x, the lower of two, and that level.
NSTF_DEVICE void kv_nearest(int x, u32& code, f32& level) {
#if KV_BITS == 5
	const int c = (x + 131) >> 3;
	code = (u32)(c > 31 ? 31 : c);
	level = (f32)(8 * (int)code - 128);
#else
	code = 0;
#pragma unroll
	for (int c = 0; c + 1 < 1 << KV_BITS; c++) code += (u32)(kv_level(c) + kv_level(c + 1) - 2 * x) >> 31; // 1 below 0: no lane masks
	const u64 half = KV_BITS == 4 && code >= 8 ? KV_LEVELS[1] : KV_LEVELS[0];
	level = (f32)(i8)(half >> (8 * (code & 7)));
#endif
}

// All lanes' bits, over groups of Width lanes.
template <int Width> NSTF_DEVICE u32 lanes_or(u32 v) {
#pragma unroll
	for (int m = Width / 2; m > 0; m /= 2) v |= (u32)wave_xor((i32)v, m);
	return v;
}

// Each 32 lanes choose codes and a scale for a group, a number a lane: of five places of the
// largest number, the one whose best scale leaves the least squared error. Lanes that have
// none (v = 0, has false) do not count.
NSTF_DEVICE u16 kv_encode(f32 v, bool has, u32& code) {
	const u32 m = largest_bits(v), first = threadIdx.x % NSTF_WAVE & 32;
	const u32 where = (u32)(wave_ballot((bits_of(v) & 0x7fffffffu) == m) >> first), negative = (u32)(wave_ballot(bits_of(v) >> 31 != 0) >> first);
	const f32 most = of_bits(m | (negative & where & (0u - where) ? 0x80000000u : 0));
	f32 xq[5], qq[5];
	u32 codes[5];
	constexpr f32 tries[5] = {1.2f, 1.1f, 1.0f, 0.92f, 0.85f};
#pragma unroll
	for (int i = 0; i < 5; i++) {
		const f32 at = rounded_product(v, rounded_product(tries[i], KV_OUTERMOST) / most) + 128.5f;
		f32 level;
		kv_nearest((int)fminf(fmaxf(at, 0.0f), 255.0f) - 128, codes[i], level);
		xq[i] = rounded_product(v, level);
		qq[i] = has ? level * level : 0.0f;
	}
#pragma unroll
	for (int m = 16; m > 0; m /= 2) {
#pragma unroll
		for (int i = 0; i < 5; i++) {
			xq[i] += wave_xor(xq[i], m);
			qq[i] += wave_xor(qq[i], m);
		}
	}
	f32 gain = 0, factor = 0;
	code = 0;
#pragma unroll
	for (int i = 0; i < 5; i++) {
		const f32 f = xq[i] / qq[i], better = rounded_product(f, xq[i]);
		if (!(better > gain)) continue;
		gain = better;
		factor = f;
		code = codes[i];
	}
	if (m >= 0x7f800000u) return 0x7e00;
	if (of_bits(m) < 0x1p-24f) {
		f32 level;
		kv_nearest(0, code, level);
		return 0;
	}
	return half_nearest(factor * 128.0f);
}

// A wave stores one vector v[KV_D], turned already, which lies in LDS, as key or value at of
// a cache: 32 lanes a group.
NSTF_DEVICE void kv_store(const kv_cache& cache, bool key, i64 at, const f32* v) {
	kv_element* words = key ? cache.vector<true>(at) : cache.vector<false>(at);
	kv_scale* scales = key ? cache.scales<true>(at) : cache.scales<false>(at);
	const int lane = threadIdx.x % NSTF_WAVE, r = lane % 32 / 8, k = lane % 8;
#pragma unroll 1
	for (int i = lane; i - lane < KV_PADDED; i += NSTF_WAVE) {
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
// with KV_APART of even and of odd numbers, else of the lower and of the higher four.
#if (defined(NSTF_CUDA) || ATTEND_MATRIX) && KV_BITS != 5
#define KV_APART 0
#else
#define KV_APART 1
#endif
NSTF_DEVICE void kv_level_bytes(u32& even, u32& odd, u32 word, u32 high, int r) {
#if KV_BITS == 5
	high >>= r;
	even = (word & 0x0f0f0f0fu) + (high & 0x01010101u) * 0xf0u;
	odd = (word >> 4 & 0x0f0f0f0fu) + (high >> 4 & 0x01010101u) * 0xf0u;
#else
	if (KV_BITS == 3) word = (word >> (2 * (r % 2)) & 0x33333333u) | (high >> r & 0x11111111u) << 2;
	constexpr u32 t[4] = {(u32)KV_LEVELS[0], (u32)(KV_LEVELS[0] >> 32), (u32)KV_LEVELS[1], (u32)(KV_LEVELS[1] >> 32)};
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
