// Attention over latents, around the products with a matrix for each head.
//
// nstf_latent, where q f32[T][heads][LATENT_NOPE + LATENT_ROPE] and kv f32[T][KV_D] are
// what products gave, and KV_D = KV_VALUE + LATENT_ROPE:
//
//	for t, h: nope[t][h] = the first LATENT_NOPE numbers of q[t][h]
//	          out[t][h][KV_VALUE...] = turn(the others)
//	for t:    keys[position[t]] = rms(the first KV_VALUE numbers of kv[t]) * weight, turn(the others)
//
// with turn as in rope.hip: pairs (i, i + ROPE_PAIRS), or (2i, 2i+1) with ROPE_STYLE 1;
// without pairs, nothing is turned. With heads = 0 queries are left alone. A row whose
// position is negative is left out.
//
// nstf_latent_join: out[t][h][d] = absorbed[t][h][d] for d < KV_VALUE; out f32[T*heads][KV_D],
// absorbed f32[T*heads][KV_VALUE], n = T*heads*KV_VALUE.
//
// nstf_latent_heads lists what Matmul and Matvec want of slots t*heads + h, of which
// there are n, that read the matrix of their head: chosen i32[n], slots i32[n] by head,
// first i32[heads+1].
//
// Grid: latent: x over heads, LATENT_WAVES to a block, one to a wave, and a block for the key, whose
// first wave finishes and turns it and whose LATENT_PARTS make its codes; y over rows. LDS: a key. The
// others: a thread a number.
// Deterministic. Bound: bytes of q, kv, nope and out, once each.
// Tolerance: rotation and storing have the processor's bits; the norm is float64 but for
// its product.
#include "kv.hip"

#define LATENT_QUERY (LATENT_NOPE + LATENT_ROPE)

// Turns the LATENT_ROPE numbers of a head, by a wave.
NSTF_DEVICE void turn_numbers(f32* to, const f32* from, const f32* cosine, const f32* sine) {
	const int lane = threadIdx.x % NSTF_WAVE;
#if ROPE_PAIRS
	for (int i = lane; i < ROPE_PAIRS; i += NSTF_WAVE) {
		const int first = ROPE_STYLE ? 2 * i : i, second = ROPE_STYLE ? 2 * i + 1 : i + ROPE_PAIRS;
		const f32 c = cosine[i], s = sine[i], a = from[first], b = from[second];
		to[first] = rounded_product(a, c) - rounded_product(b, s);
		to[second] = rounded_product(b, c) + rounded_product(a, s);
	}
#else
	for (int i = lane; i < LATENT_ROPE; i += NSTF_WAVE) to[i] = from[i];
#endif
}

NSTF_KERNEL void __launch_bounds__(LATENT_WAVES* NSTF_WAVE)
nstf_latent(const f32* q, f32* nope, f32* out, const f32* kv, const f32* weight, f32 eps, int heads, const f32* cosine, const f32* sine, KV_PARAMETERS, ROWS_PARAMETERS) {
	__shared__ f32 key[KV_D];
	begin_early();
	const int row = blockIdx.y, wave = threadIdx.x / NSTF_WAVE, lane = threadIdx.x % NSTF_WAVE, position = positions[row];
	if (position < 0) return;
	cosine += (i64)row * ROPE_PAIRS;
	sine += (i64)row * ROPE_PAIRS;
	if (blockIdx.x + 1 < gridDim.x) {
		const int h = blockIdx.x * LATENT_WAVES + wave;
		if (h >= heads) return;
		const i64 head = (i64)row * heads + h;
		q += head * LATENT_QUERY;
		nope += head * LATENT_NOPE;
		for (int i = lane; i < LATENT_NOPE; i += NSTF_WAVE) nope[i] = q[i];
		turn_numbers(out + head * KV_D + KV_VALUE, q + LATENT_NOPE, cosine, sine);
		return;
	}
	if (wave == 0) {
		kv += (i64)row * KV_D;
		f64 sum = 0;
		for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) sum += (f64)kv[i] * (f64)kv[i];
		const f32 root = (f32)(1 / sqrt(wave_sum<NSTF_WAVE>(sum) / KV_VALUE + (f64)eps));
		for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) key[i] = kv[i] * root * weight[i];
		turn_numbers(key + KV_VALUE, kv + KV_VALUE, cosine, sine);
		wave_sync();
		kv_turn<KV_D>(key);
	}
	if (LATENT_PARTS > 1) __syncthreads();
	if (wave >= LATENT_PARTS) return;
	const kv_cache cache = KV_CACHE;
	const i64 at = kv_vector(pages[owners[row] * (i64)max_pages + position / 64], 1, 0, position);
#if KV_CODED
	if (wave == LATENT_PARTS - 1) kv_store_near(cache.near<true>(kv_vector(pages[owners[row] * (i64)max_pages + kv_place(position, max_pages, true)], 1, 0, position)), key);
	kv_store(cache, true, at, key, wave, LATENT_PARTS);
#else
	kv_store(cache, true, at, key);
#endif
}

NSTF_KERNEL void __launch_bounds__(256) nstf_latent_join(const f32* absorbed, f32* out, i64 n) {
	begin_early();
	for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) out[i / KV_VALUE * KV_D + i % KV_VALUE] = absorbed[i];
}

NSTF_KERNEL void __launch_bounds__(256) nstf_latent_heads(i32* chosen, i32* slots, i32* first, int heads, int n) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x, rows = n / heads;
	if (i <= heads) first[i] = i * rows;
	if (i >= n) return;
	chosen[i] = i % heads;
	slots[i % heads * rows + i / heads] = i;
}
