// Queries, a key and a value that attention finishes on the way (ATTEND_TURN 1): what rope.hip does, by a
// block of ATTEND_WAVES waves.
#if ATTEND_TURN
#include "heads.hip"

// What rope.hip is told.
struct turning {
	const f32 *k, *v;
	int q_stride, k_stride;
	const f32 *cosine, *sine, *q_weight, *q_bias;
	f32 q_eps;
	const f32 *k_weight, *k_bias;
	f32 k_eps;
#if ROPE_VNORM
	const f32 *v_weight, *v_bias;
	f32 v_eps;
#endif
};
#if ROPE_VNORM
#define TURNING_VNORM , v_weight, v_bias, v_eps
#else
#define TURNING_VNORM
#endif
#define TURN_PARAMETERS const f32 *k, const f32 *v, int q_stride, int k_stride, const f32 *cosine, const f32 *sine, \
	const f32 *q_weight, const f32 *q_bias, f32 q_eps, const f32 *k_weight, const f32 *k_bias, f32 k_eps VNORM_PARAMETERS,
#define TURNING {k, v, q_stride, k_stride, cosine + (i64)row * ROPE_PAIRS, sine + (i64)row * ROPE_PAIRS, q_weight, q_bias, q_eps, k_weight, k_bias, k_eps TURNING_VNORM}

// Finishes the block's queries, into lds[query][KV_D], and for the block that
// reaches the row's own position its key and value, into own and the cache.
NSTF_DEVICE void turn_heads(f32* lds, stored_pair& own, const turning& t, const f32* q, int row, int head, int queries, bool newest, bool writes, const kv_cache& cache, i64 at, i64 near) {
	const int wave = threadIdx.x / NSTF_WAVE;
	head_pairs x;
	for (int h = wave; h < queries + (newest ? 2 : 0); h += ATTEND_WAVES) {
		f32* to = lds + h * KV_D;
		if (h < queries) {
			load_head(x, q + h * KV_D);
			head_norm<ROPE_QNORM>(x, t.q_weight, t.q_bias, t.q_eps);
			turn(x, t.cosine, t.sine);
			store_head(to, x);
			kv_turn<KV_D>(to);
			continue;
		}
		const bool key = h == queries;
		load_head(x, (key ? t.k : t.v) + (i64)row * t.k_stride + head * KV_D);
		if (key) {
			head_norm<ROPE_KNORM>(x, t.k_weight, t.k_bias, t.k_eps);
			turn(x, t.cosine, t.sine);
		}
#if ROPE_VNORM
		if (!key) head_norm<ROPE_VNORM>(x, t.v_weight, t.v_bias, t.v_eps);
#endif
		store_head(to, x);
		wave_sync();
		kv_turn<KV_D>(to);
#if KV_CODED
		kv_store_near(key ? own.key : own.value, to);
		if (writes) kv_store_near(key ? cache.near<true>(near) : cache.near<false>(near), to);
#else
		kv_store(own.cache(), key, 0, to);
		if (writes) kv_store(cache, key, at, to);
#endif
	}
	__syncthreads();
#if KV_CODED // by all waves: a group takes as long as a head's turning
	if (newest && writes)
		for (int part = wave; part < 2 * KV_PARTS; part += ATTEND_WAVES)
			kv_store(cache, part < KV_PARTS, at, lds + (queries + part / KV_PARTS) * KV_D, part % KV_PARTS, KV_PARTS);
#endif
}
#else
#define TURN_PARAMETERS
#endif
