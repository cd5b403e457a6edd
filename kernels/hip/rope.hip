// Head norms, rotation, and keys and values into the cache.
//
//	for t, h: q[t][h] = turn(norm_q(q[t][h]))
//	for t, h: keys[position[t]][h] = turn(norm_k(k[t][h])); values[...] = v[t][h]
//	turn(x)[a], turn(x)[b] = x[a]*cos - x[b]*sin, x[b]*cos + x[a]*sin
//
// for pairs (a, b) = (i, i + ROPE_PAIRS), or (2i, 2i+1) with ROPE_STYLE 1; what
// lies behind 2*ROPE_PAIRS stays. q f32[T][heads][KV_D] in place, rows q_stride
// apart; k, v f32[T][kv_heads][KV_D], rows k_stride apart; cosine, sine
// f32[T][ROPE_PAIRS]. ROPE_QNORM, ROPE_KNORM: 0 none, 1 RMS, 2 Layer. With heads
// = 0 queries are left alone. A row whose position is negative is left out.
//
// Grid: x over heads of q, then of k, then of v, ROPE_WAVES to a block, one to a
// wave; y over rows. LDS: a head for each wave. No barriers between waves.
// Deterministic. Bound: bytes of q, k, v, read and written once.
// Tolerance: rotation and storing have the processor's bits; norms as norm.hip.
#include "kv.hip"

#define PAIR_ROUNDS (((KV_D + 1) / 2 + NSTF_WAVE - 1) / NSTF_WAVE)

// A head in registers, by pairs; the numbers that are not turned are paired with
// their neighbours.
struct head_pairs {
	f32 a[PAIR_ROUNDS], b[PAIR_ROUNDS];
};

NSTF_DEVICE int pair_of(int round) { return round * NSTF_WAVE + (int)(threadIdx.x % NSTF_WAVE); }
NSTF_DEVICE int first_of(int pair) { return pair < ROPE_PAIRS && ROPE_STYLE == 0 ? pair : 2 * pair; }
NSTF_DEVICE int second_of(int pair) { return pair < ROPE_PAIRS && ROPE_STYLE == 0 ? pair + ROPE_PAIRS : 2 * pair + 1; }

NSTF_DEVICE void load_head(head_pairs& x, const f32* from) {
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		const int a = first_of(pair_of(r)), b = second_of(pair_of(r));
		x.a[r] = a < KV_D ? from[a] : 0.0f;
		x.b[r] = b < KV_D ? from[b] : 0.0f;
	}
}

NSTF_DEVICE void store_head(f32* to, const head_pairs& x) {
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		const int a = first_of(pair_of(r)), b = second_of(pair_of(r));
		if (a < KV_D) to[a] = x.a[r];
		if (b < KV_D) to[b] = x.b[r];
	}
}

// The sum over a head of (x - mean), or of its square, in every lane.
template <int Square> NSTF_DEVICE f64 head_moment(const head_pairs& x, f64 mean) {
	f64 sum = 0;
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		const f64 a = (f64)x.a[r] - mean, b = (f64)x.b[r] - mean;
		if (first_of(pair_of(r)) < KV_D) sum += Square ? a * a : a;
		if (second_of(pair_of(r)) < KV_D) sum += Square ? b * b : b;
	}
	return wave_sum<NSTF_WAVE>(sum);
}

// One number normalised. Kind 2 is a layer norm, in float64.
template <int Kind> NSTF_DEVICE f32 normal(f32 x, int i, f64 mean, f64 r, const f32* weight, const f32* bias) {
	if (i >= KV_D) return x;
	if (Kind == 1) return x * (f32)r * weight[i];
	f64 y = ((f64)x - mean) * r * (f64)weight[i];
	if (bias) y += (f64)bias[i];
	return (f32)y;
}

template <int Kind> NSTF_DEVICE void head_norm(head_pairs& x, const f32* weight, const f32* bias, f32 eps) {
	if (Kind == 0) return;
	const f64 mean = Kind == 2 ? head_moment<0>(x, 0) / KV_D : 0;
	const f64 root = 1 / sqrt(head_moment<1>(x, mean) / KV_D + (f64)eps);
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		x.a[r] = normal<Kind>(x.a[r], first_of(pair_of(r)), mean, root, weight, bias);
		x.b[r] = normal<Kind>(x.b[r], second_of(pair_of(r)), mean, root, weight, bias);
	}
}

NSTF_DEVICE void turn(head_pairs& x, const f32* cosine, const f32* sine) {
#pragma unroll
	for (int r = 0; r < PAIR_ROUNDS; r++) {
		if (pair_of(r) >= ROPE_PAIRS) continue;
		const f32 c = cosine[pair_of(r)], s = sine[pair_of(r)], a = x.a[r], b = x.b[r];
		x.a[r] = rounded_product(a, c) - rounded_product(b, s);
		x.b[r] = rounded_product(b, c) + rounded_product(a, s);
	}
}

NSTF_KERNEL void __launch_bounds__(ROPE_WAVES* NSTF_WAVE)
nstf_rope(f32* q, const f32* k, const f32* v, int heads, int kv_heads, int q_stride, int k_stride, const f32* cosine, const f32* sine,
	const f32* q_weight, const f32* q_bias, f32 q_eps, const f32* k_weight, const f32* k_bias, f32 k_eps, KV_PARAMETERS, ROWS_PARAMETERS) {
	__shared__ f32 lds[ROPE_WAVES][KV_D];
	begin_early();
	const int row = blockIdx.y, wave = threadIdx.x / NSTF_WAVE, position = positions[row];
	int h = blockIdx.x * ROPE_WAVES + wave;
	if (position < 0 || h >= heads + 2 * kv_heads) return;
	cosine += (i64)row * ROPE_PAIRS;
	sine += (i64)row * ROPE_PAIRS;
	head_pairs x;
	if (h < heads) {
		q += (i64)row * q_stride + h * KV_D;
		load_head(x, q);
		head_norm<ROPE_QNORM>(x, q_weight, q_bias, q_eps);
		turn(x, cosine, sine);
		store_head(q, x);
		return;
	}
	h -= heads;
	const bool key = h < kv_heads;
	h = key ? h : h - kv_heads;
	load_head(x, (key ? k : v) + (i64)row * k_stride + h * KV_D);
	if (key) {
		head_norm<ROPE_KNORM>(x, k_weight, k_bias, k_eps);
		turn(x, cosine, sine);
	}
	store_head(lds[wave], x);
	wave_sync();
	const kv_cache cache = KV_CACHE;
	const i64 at = kv_vector(pages[owners[row] * (i64)max_pages + position / 64], kv_heads, h, position);
	if (key)
		kv_store<true>(cache.keys + at * KV_D, cache.key_scales + at * KV_GROUPS, lds[wave]);
	else
		kv_store<false>(cache.values + at * KV_D, cache.value_scales + at, lds[wave]);
}
