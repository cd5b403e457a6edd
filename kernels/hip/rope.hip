// Head norms, rotation, and keys and values into the cache.
//
//	for t, h: q[t][h] = turn(norm_q(q[t][h]))
//	for t, h: keys[position[t]][h] = turn(norm_k(k[t][h])); values[...] = norm_v(v[t][h])
//	turn(x)[a], turn(x)[b] = x[a]*cos - x[b]*sin, x[b]*cos + x[a]*sin
//
// for pairs (a, b) = (i, i + ROPE_PAIRS), or (2i, 2i+1) with ROPE_STYLE 1; what
// lies behind 2*ROPE_PAIRS stays. q f32[T][heads][KV_D] in place, rows q_stride
// apart; k, v f32[T][kv_heads][KV_D], rows k_stride apart; cosine, sine
// f32[T][ROPE_PAIRS]; v may be k. ROPE_QNORM, ROPE_KNORM, ROPE_VNORM: 0 none, 1 RMS,
// 2 Layer. With heads = 0 queries are left alone, with ROPE_SHARED 1 keys and values. A row whose position is negative is left out.
// ROPE_LATE 1 rotates before the norms, ROPE_HEADS 1 has norms of q and k with weights and biases
// for each head, f32[heads][KV_D]. With ROPE_TEMPER 1 queries are
// multiplied by 1 + temper*ln(1 + floor((position + temper_offset) / temper_every)) at last.
//
// Grid: x over heads of q, ROPE_WAVES to a block, one to a wave; then over those of k and of v,
// of which ROPE_PARTS waves have one: its first finishes and turns it, all make its codes. y over
// rows. LDS: a head for each wave. A barrier where there are parts.
// Deterministic. Bound: bytes of q, k, v, read and written once.
// Tolerance: rotation and storing have the processor's bits; norms as norm.hip.
#include "heads.hip"

#if ROPE_TEMPER
#define TEMPER_PARAMETERS , f32 temper, int temper_every, int temper_offset

// The natural logarithm of a whole number from 1 on, within 1e-12: with v = m * 2^e and
// z = (m - 1) / (m + 1), which is at most 1/3, log(m) = 2 (z + z^3/3 + z^5/5 ...).
NSTF_DEVICE f64 log_whole(int v) {
	int e = 0;
	while (v >> (e + 1)) e++;
	const f64 m = (f64)v / (f64)(1u << e), z = (m - 1.0) / (m + 1.0), square = z * z;
	f64 series = 0;
#pragma unroll
	for (int i = 12; i >= 0; i--) series = fma(series, square, 1.0 / (2 * i + 1));
	return (f64)e * 0.6931471805599453 + 2.0 * z * series;
}

NSTF_DEVICE void scale_head(head_pairs& x, f32 factor) {
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		x.a[r] *= factor;
		x.b[r] *= factor;
	}
}
#else
#define TEMPER_PARAMETERS
#endif

// Normalises and rotates head h, or the other way round.
template <int Kind> NSTF_DEVICE void finish(head_pairs& x, int h, const f32* weight, const f32* bias, f32 eps, const f32* cosine, const f32* sine) {
#if ROPE_HEADS
	weight += h * KV_D;
	if (bias) bias += h * KV_D;
#endif
	if (!ROPE_LATE) head_norm<Kind>(x, weight, bias, eps);
	turn(x, cosine, sine);
	if (ROPE_LATE) head_norm<Kind>(x, weight, bias, eps);
}

NSTF_KERNEL void __launch_bounds__(ROPE_WAVES* NSTF_WAVE)
nstf_rope(f32* q, const f32* k, const f32* v, int heads, int kv_heads, int q_stride, int k_stride, const f32* cosine, const f32* sine,
	const f32* q_weight, const f32* q_bias, f32 q_eps, const f32* k_weight, const f32* k_bias, f32 k_eps VNORM_PARAMETERS TEMPER_PARAMETERS, KV_PARAMETERS, ROWS_PARAMETERS) {
	__shared__ f32 lds[ROPE_WAVES][KV_D];
	begin_early();
	const int row = blockIdx.y, wave = threadIdx.x / NSTF_WAVE, position = positions[row], query_blocks = (heads + ROPE_WAVES - 1) / ROPE_WAVES;
	if (position < 0) return;
	cosine += (i64)row * ROPE_PAIRS;
	sine += (i64)row * ROPE_PAIRS;
	head_pairs x;
	if (blockIdx.x < query_blocks) {
		int h = blockIdx.x * ROPE_WAVES + wave;
		if (h >= heads) return;
		q += (i64)row * q_stride + h * KV_D;
		load_head(x, q);
		finish<ROPE_QNORM>(x, h, q_weight, q_bias, q_eps, cosine, sine);
#if ROPE_TEMPER
		scale_head(x, (f32)(1.0 + (f64)temper * log_whole(1 + (position + temper_offset) / temper_every)));
#endif
		store_head(q, x);
		return;
	}
#if !ROPE_SHARED
	int h = (blockIdx.x - query_blocks) * (ROPE_WAVES / ROPE_PARTS) + wave / ROPE_PARTS;
	const int part = wave % ROPE_PARTS;
	const bool key = h < kv_heads, here = h < 2 * kv_heads && wave < ROPE_WAVES / ROPE_PARTS * ROPE_PARTS;
	h = key ? h : h - kv_heads;
	f32* own = lds[wave - part];
	const i32* table = pages + owners[row] * (i64)max_pages; // looked up beside the head's numbers
	const i64 at = kv_vector(table[position / 64], kv_heads, h, position);
#if KV_CODED
	const i64 near = kv_vector(table[kv_place(position, max_pages, true)], kv_heads, h, position);
#endif
	if (here && part == 0) {
		load_head(x, (key ? k : v) + (i64)row * k_stride + h * KV_D);
		if (key) {
			finish<ROPE_KNORM>(x, h, k_weight, k_bias, k_eps, cosine, sine);
		}
#if ROPE_VNORM
		if (!key) head_norm<ROPE_VNORM>(x, v_weight, v_bias, v_eps);
#endif
		store_head(own, x);
		wave_sync();
		kv_turn<KV_D>(own);
	}
	if (ROPE_PARTS > 1) __syncthreads();
	if (!here) return;
	const kv_cache cache = KV_CACHE;
#if KV_CODED
	if (part == ROPE_PARTS - 1) kv_store_near(key ? cache.near<true>(near) : cache.near<false>(near), own);
	kv_store(cache, key, at, own, part, ROPE_PARTS);
#else
	kv_store(cache, key, at, own);
#endif
#endif
}
