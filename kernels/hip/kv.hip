// The paged cache of keys and values: where a head of a position lies, and how
// it is stored.
//
// Defines: KV_D, numbers of a head; KV_FORMAT, how they are stored:
//   0 f32
//   1 f16, rounded to nearest
//   2 q8: x = scale * q, q = round(x * 127/m), scale = m/127 with m the largest
//     magnitude of 32 numbers of a key (but at least 2^-20 of the whole key's),
//     of all numbers of a value. Magnitudes under 2^-96 count as 0; a vector with
//     an infinity or a NaN is NaN throughout.
//   3, 4, 5 q5, q4, q3: vectors are turned (kv_turn), then 32 numbers share a scale in
//     half precision: x = scale * level / 128 with the codes, levels and rules of
//     kernels/cpu/kvcodes.go, bit for bit. In words, of each group of 32: number 8r + k
//     has the lower four bits of its code in nibble k of word r, of q3 the lower two in
//     bits 2(r%2) and one more of nibble k of word r/2. Behind the words of all groups,
//     q3 and q5 have one more of each: its bit 4k + r is set where the code of q3 is 4 or
//     more, where that of q5 is under 16.
// Beside codes the first KV_FIRST pages of a sequence, and of a row those of its position and
//     KV_NEWEST before it, are in half precision, turned too: near, [page][head][64][KV_D],
//     of pages that the second half of a row of the table of pages says.
// With KV_LATENT 1 there are no planes of values: a value is the first KV_VALUE numbers
// of its key. Else KV_VALUE is KV_D.
// Planes as in kv.go: keys, values [page][head][64][KV_STRIDE], scales [page][head][64]
// of KV_GROUPS for a key and for values of codes, of one for values of q8.
// With KV_HOST 1 vectors from kv_card on lie in the host's memory, which the device maps: planes
// of the same order, passed as they would begin if they had the vectors before those too. Latents
// have none.
#include "rows.hip"

#ifndef KV_LATENT
#define KV_LATENT 0
#define KV_VALUE KV_D
#endif
#ifndef KV_HOST
#define KV_HOST 0
#endif
#define KV_GROUPS ((KV_D + 31) / 32)
#define KV_TINY 1.2621774483536189e-29f // 2^-96
#define KV_CODED (KV_FORMAT >= 3)
#define KV_BITS (8 - KV_FORMAT) // of a code
#define KV_SCALED (KV_FORMAT >= 2)
#define KV_HIGHS (KV_CODED && KV_BITS != 4) // there are words of a bit of each code
#define KV_WORDS (KV_BITS == 3 ? 2 : 4) // of a group, of the other bits
#if KV_FORMAT == 0
typedef f32 kv_element;
#elif KV_FORMAT == 1
typedef u16 kv_element;
#elif KV_FORMAT == 2
typedef i8 kv_element;
#else
typedef u32 kv_element;
#endif
#if KV_CODED
typedef u16 kv_scale;
#define KV_STRIDE (KV_GROUPS * KV_BITS)
#else
typedef f32 kv_scale;
#define KV_STRIDE KV_D
#endif
#define KV_PADDED (KV_CODED ? 32 * KV_GROUPS : KV_D) // numbers that a vector has

struct kv_cache {
	kv_element *keys, *values;
	kv_scale *key_scales, *value_scales;

#if KV_CODED
	u16 *near_keys, *near_values;
	template <bool Key> NSTF_MEMBER u16* near(i64 i) const { return (Key ? near_keys : near_values) + i * KV_D; }
#endif

#if KV_HOST
	i64 card; // vectors that lie on the card
	kv_element *host_keys, *host_values;
	kv_scale *host_key_scales, *host_value_scales;
	// All that finds a vector asks where it lies.
	template <typename E> NSTF_MEMBER E* of(i64 i, E* here, E* host) const { return i < card ? here : host; }
	template <bool Key> NSTF_MEMBER kv_element* plane(i64 i) const { return of(i, Key ? keys : values, Key ? host_keys : host_values); }
	template <bool Key> NSTF_MEMBER kv_scale* scale_plane(i64 i) const { return of(i, Key ? key_scales : value_scales, Key ? host_key_scales : host_value_scales); }
#else
	template <bool Key> NSTF_MEMBER kv_element* plane(i64) const { return Key ? keys : values; }
	template <bool Key> NSTF_MEMBER kv_scale* scale_plane(i64) const { return Key ? key_scales : value_scales; }
#endif

	template <bool Key> NSTF_MEMBER kv_element* vector(i64 i) const { return plane<Key>(i) + i * KV_STRIDE; }
	template <bool Key> NSTF_MEMBER kv_scale* scales(i64 i) const { return scale_plane<Key>(i) + i * (Key || KV_CODED || KV_LATENT ? KV_GROUPS : 1); }
};

#if KV_HOST && KV_SCALED
#define KV_HOST_PARAMETERS , i64 kv_card, kv_element *kv_host_keys, kv_element *kv_host_values, kv_scale *kv_host_key_scales, kv_scale *kv_host_value_scales
#define KV_HOST_PLANES , kv_card, kv_host_keys, kv_host_values, kv_host_key_scales, kv_host_value_scales
#elif KV_HOST
#define KV_HOST_PARAMETERS , i64 kv_card, kv_element *kv_host_keys, kv_element *kv_host_values
#define KV_HOST_PLANES , kv_card, kv_host_keys, kv_host_values, nullptr, nullptr
#else
#define KV_HOST_PARAMETERS
#define KV_HOST_PLANES
#endif

#if KV_LATENT && KV_CODED
#define KV_PARAMETERS kv_element *kv_keys, kv_scale *kv_key_scales, u16 *kv_near
#define KV_CACHE {kv_keys, kv_keys, kv_key_scales, kv_key_scales, kv_near, kv_near}
#elif KV_CODED
#define KV_PARAMETERS kv_element *kv_keys, kv_element *kv_values, kv_scale *kv_key_scales, kv_scale *kv_value_scales, u16 *kv_near_keys, u16 *kv_near_values KV_HOST_PARAMETERS
#define KV_CACHE {kv_keys, kv_values, kv_key_scales, kv_value_scales, kv_near_keys, kv_near_values KV_HOST_PLANES}
#elif KV_LATENT && KV_SCALED
#define KV_PARAMETERS kv_element *kv_keys, kv_scale *kv_key_scales
#define KV_CACHE {kv_keys, kv_keys, kv_key_scales, kv_key_scales}
#elif KV_LATENT
#define KV_PARAMETERS kv_element *kv_keys
#define KV_CACHE {kv_keys, kv_keys, nullptr, nullptr}
#elif KV_SCALED
#define KV_PARAMETERS kv_element *kv_keys, kv_element *kv_values, kv_scale *kv_key_scales, kv_scale *kv_value_scales KV_HOST_PARAMETERS
#define KV_CACHE {kv_keys, kv_values, kv_key_scales, kv_value_scales KV_HOST_PLANES}
#else
#define KV_PARAMETERS kv_element *kv_keys, kv_element *kv_values KV_HOST_PARAMETERS
#define KV_CACHE {kv_keys, kv_values, nullptr, nullptr KV_HOST_PLANES}
#endif

// The first position that a row sees whose own is the last before end: the last window
// ones of those, where window is not 0, or with ATTEND_CHUNKED 1 those of its run of so many.
NSTF_DEVICE int first_seen(int end, int window) {
#if ATTEND_CHUNKED
	return end > 0 ? (end - 1) - (end - 1) % window : 0;
#else
	return window > 0 && end > window ? end - window : 0;
#endif
}

// A norm of values, where they have one.
#if ROPE_VNORM
#define VNORM_PARAMETERS , const f32 *v_weight, const f32 *v_bias, f32 v_eps
#else
#define VNORM_PARAMETERS
#endif

// The vector of head h of heads at a position of a page: times KV_STRIDE, where it
// begins.
NSTF_DEVICE i64 kv_vector(int page, int heads, int h, int position) {
	return ((i64)page * heads + h) * 64 + position % 64;
}

#if KV_CODED
// Whether the row of a position sees one before it in half precision.
NSTF_DEVICE bool kv_is_near(int row, int position) { return position < 64 * KV_FIRST || position / 64 >= row / 64 - KV_NEWEST; }

// Rows before this position, and no others, see those of a page as their newest.
NSTF_DEVICE int kv_near_end(int position) { return (position / 64 + KV_NEWEST + 1) * 64; }
#endif

// The place of a position in its sequence's row of the table of pages: near or not.
NSTF_DEVICE int kv_place(int position, int max_pages, bool near) { return position / 64 + (near ? max_pages / 2 : 0); }

// The largest magnitude over groups of 32 lanes, as its bits: NaN above all.
NSTF_DEVICE u32 largest_bits(f32 v) {
	u32 m = bits_of(v) & 0x7fffffffu;
#if defined(NSTF_CUDA) && __CUDA_ARCH__ >= 800
	m = __reduce_max_sync(0xffffffffu, m);
#else
#pragma unroll
	for (int i = 16; i > 0; i /= 2) {
		const u32 other = (u32)wave_xor((i32)m, i);
		m = other > m ? other : m;
	}
#endif
	return m;
}

#if KV_CODED
#include "kvcodes.hip"
#else
// Formats that are not codes have nothing turned.
template <int N> NSTF_DEVICE void kv_turn(f32*) {}

NSTF_DEVICE void kv_put(kv_element* at, f32 v, f32 inverse) {
#if KV_FORMAT == 0
	*at = v;
#elif KV_FORMAT == 1
	*at = half_nearest(v);
#else
	*at = (i8)(int)rintf(v * inverse);
#endif
}

// A wave stores one vector v[KV_D], which lies in LDS, as vector at of a cache. Keys have a
// scale for each 32 numbers, values one: a round of 32 lanes is one group.
template <bool Key> NSTF_DEVICE void kv_put_all(const kv_cache& cache, i64 at, const f32* v) {
	kv_element* to = cache.vector<Key>(at);
	const int lane = threadIdx.x % NSTF_WAVE;
	const int rounds = (KV_D + NSTF_WAVE - 1) / NSTF_WAVE;
#if KV_FORMAT == 2
	f32* scales = cache.scales<Key>(at);
	u32 all = 0;
	for (int r = 0; r < rounds; r++) {
		const int i = r * NSTF_WAVE + lane;
		u32 m = largest_bits(i < KV_D ? v[i] : 0.0f);
		all = m > all ? m : all;
	}
	if (NSTF_WAVE == 64) {
		const u32 other = (u32)wave_xor((i32)all, 32);
		all = other > all ? other : all;
	}
	const bool finite = all < 0x7f800000u;
	const f32 most = of_bits(all) < KV_TINY || !finite ? 0.0f : of_bits(all);
	for (int r = 0; r < rounds; r++) {
		const int i = r * NSTF_WAVE + lane;
		f32 m = most;
		if (Key) {
			m = of_bits(largest_bits(i < KV_D ? v[i] : 0.0f));
			if (m < KV_TINY) m = 0;
			if (m < most * power_of_two(-20) || most == 0) m = most * power_of_two(-20);
		}
		if (i >= KV_D) continue;
		kv_put(to + i, finite ? v[i] : 0.0f, m > 0 ? 127.0f / m : 0.0f);
		const f32 scale = finite ? m / 127.0f : of_bits(0x7fc00000u);
		if (Key && i % 32 == 0) scales[i / 32] = scale;
		if (!Key && i == 0) scales[0] = scale;
	}
#else
	for (int r = 0; r < rounds; r++) {
		const int i = r * NSTF_WAVE + lane;
		if (i < KV_D) kv_put(to + i, v[i], 0);
	}
#endif
}

NSTF_DEVICE void kv_store(const kv_cache& cache, bool key, i64 at, const f32* v) {
	if (key) kv_put_all<true>(cache, at, v);
	else kv_put_all<false>(cache, at, v);
}
#endif
