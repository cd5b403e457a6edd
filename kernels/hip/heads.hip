// One head of a row, held by a wave: normalised, rotated, stored in the cache.
//
// Defines beside kv.hip's: ROPE_PAIRS and ROPE_STYLE, which pairs of numbers are
// turned (see rope.hip). A head's norm is 0 none, 1 RMS, 2 Layer.
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
