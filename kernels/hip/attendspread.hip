// Spreads pages of keys and values that have scales, before attention of prompts (attendtiles.hip) reads them once
// for each block of rows and each head:
//
//	for page of pieces, p < 64, h, d: far[page + base][h][p][d] = nearest(scale * level)
//
// and brings pages of halves and of float32 as they are, so that those in the host's memory cross the link once.
//
// Pieces and where they go: spread.hip. keys and values f16[room][kv_heads][64][SPREAD_STRIDE], of latents keys alone.
// With NSTF_EXACT f32, the product itself; else the half nearest to that.
//
// Grid: x: pages of the room that have a place; y: heads; z: keys, values. 256 threads, each of which spreads runs of
// 8 numbers. No LDS. Deterministic. Bound: bytes, 4.5 bits read and 16 written for each number of q4.
#include "spread.hip"
#include "matrix.hip"

// Eight numbers of a vector from number at on, zeros behind KV_D.
template <bool Key> NSTF_DEVICE void spread_run(f32 (&x)[8], const kv_cache& cache, i64 vector, int at) {
	const kv_element* from = cache.vector<Key>(vector);
#if KV_CODED
	const int r = at / 8 % 4;
	const f32 scale = kv_factor(cache.scales<Key>(vector)[at / 32]);
	kv_levels(x, from[at / 32 * KV_WORDS + (KV_BITS == 3 ? r / 2 : r)], KV_HIGHS ? from[KV_GROUPS * KV_WORDS + at / 32] : 0, r);
#elif !KV_SCALED
	const f32 scale = 1;
#if KV_D % 8 == 0
	const pack<u32, 2 * sizeof(kv_element)> w = *(const pack<u32, 2 * sizeof(kv_element)>*)(from + at);
#pragma unroll
	for (int i = 0; i < 8; i++) {
#if KV_FORMAT == 0
		x[i] = of_bits(w.v[i]);
#else
		x[i] = i % 2 ? half_high(w.v[i / 2]) : half_low(w.v[i / 2]);
#endif
	}
#else
#pragma unroll
	for (int i = 0; i < 8; i++) {
		const kv_element e = from[at + i < KV_D ? at + i : 0];
#if KV_FORMAT == 0
		x[i] = e;
#else
		x[i] = half_value(e);
#endif
	}
#endif
#else
	const f32 scale = cache.scales<Key>(vector)[Key || KV_LATENT ? at / 32 : 0];
#if KV_D % 8 == 0
	const pack<u32, 2> w = *(const pack<u32, 2>*)(from + at);
#pragma unroll
	for (int i = 0; i < 8; i++) x[i] = (f32)(i8)(w.v[i / 4] >> (8 * (i % 4)));
#else
#pragma unroll
	for (int i = 0; i < 8; i++) x[i] = (f32)from[at + i < KV_D ? at + i : 0];
#endif
#endif
#pragma unroll
	for (int i = 0; i < 8; i++) x[i] = at + i < KV_D ? rounded_product(x[i], scale) : 0.0f;
}

template <bool Key> NSTF_DEVICE void spread_page(spread_element* to, const kv_cache& cache, i64 vector) {
	constexpr int runs = SPREAD_STRIDE / 8;
#pragma unroll 4
	for (int i = threadIdx.x; i < 64 * runs; i += 256) {
		f32 x[8];
		spread_run<Key>(x, cache, vector + i / runs, i % runs * 8);
#if NSTF_EXACT
		*(pack<f32, 4>*)(to + i * 8) = {x[0], x[1], x[2], x[3]};
		*(pack<f32, 4>*)(to + i * 8 + 4) = {x[4], x[5], x[6], x[7]};
#else
		*(pack<u32, 4>*)(to + i * 8) = {halves_of(x[0], x[1]), halves_of(x[2], x[3]), halves_of(x[4], x[5]), halves_of(x[6], x[7])};
#endif
	}
}

NSTF_KERNEL void __launch_bounds__(256)
nstf_attend_spread(spread_element* keys, spread_element* values, int kv_heads, KV_PARAMETERS, const i32* pages, int max_pages, SPREAD_PARAMETERS) {
	begin_early();
	const kv_cache cache = KV_CACHE;
	const spread_piece pieces[SPREAD_PIECES] = SPREAD_GIVEN;
	const int place = blockIdx.x, head = blockIdx.y;
	spread_piece piece = pieces[0];
#pragma unroll
	for (int i = 1; i < SPREAD_PIECES; i++)
		if (pieces[i].owner >= 0 && pieces[i].first() + pieces[i].base <= place) piece = pieces[i]; // they lie in their order
	const i64 vector = kv_vector(pages[piece.owner * (i64)max_pages + place - piece.base], kv_heads, head, 0);
	const i64 to = ((i64)place * kv_heads + head) * 64 * SPREAD_STRIDE;
	if (blockIdx.z == 0) spread_page<true>(keys + to, cache, vector);
	else spread_page<false>(values + to, cache, vector);
}
