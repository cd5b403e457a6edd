// What is known of whole pages without reading them: the layout is follow.hip's.
//
//	mean[d], spread[d] = mean and variance of key[p][d] over the 64 positions of a page,
//	in float64, rounded to halves; mean of value[p][d] likewise
//
// of keys and values as they are stored, and turned where the format turns them. Where a
// number is beyond 65504 or not finite, all are 0, and the flag behind them is not.
//
// Grid: x over the pages first to first + count - 1 of sequence `owner`, y over key-value heads; a wave of any
// size times SUMMARIZE_WAVES: a wave takes runs of numbers, a lane positions. LDS: a flag.
// Deterministic. Bound: the bytes of the pages, once for each 64 steps, and behind a prompt.
// Exact but for sums whose rounding in float64 decides that to halves.
#define ATTEND_TURN 0
#define ATTEND_SETTLED 0
#define ATTEND_QUERIES 1
#define ATTEND_WAVES SUMMARIZE_WAVES
#define ATTEND_CAP 0
#include "attendcore.hip"
#include "follow.hip"

#define SUMMARIZE_EACH (64 / NSTF_WAVE) // positions of a lane

// The numbers of a run of this lane's positions, scaled.
template <bool Key> NSTF_DEVICE void load_numbers(f32 (&x)[SUMMARIZE_EACH][RUN], const kv_cache& cache, i64 first, int at) {
#pragma unroll
	for (int i = 0; i < SUMMARIZE_EACH; i++) {
		const i64 vector = first + i * NSTF_WAVE + threadIdx.x % NSTF_WAVE;
		run r;
		f32 scale = 1;
		load_run<Key, false>(r, scale, cache, vector, at);
		if (KV_FORMAT == 2 && !Key) scale = *cache.scales<false>(vector);
		numbers(x[i], r, at);
#pragma unroll
		for (int j = 0; j < RUN; j++) x[i][j] = rounded_product(x[i][j], scale);
	}
}

NSTF_DEVICE bool fits_half(f64 v) { return fabs(v) <= 65504.0; }

NSTF_KERNEL void __launch_bounds__(THREADS)
nstf_summarize(const i32* table, int first, int kv_heads, KV_PARAMETERS, u16* summaries) {
	__shared__ int odd;
	wait_for_inputs(); // the next launch comes behind this one's end: others read summaries early
	const kv_cache cache = KV_CACHE;
	const int page = table[first + blockIdx.x], head = blockIdx.y, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const i64 from = kv_vector(page, kv_heads, head, 0);
	u16* to = summaries + ((i64)page * kv_heads + head) * FOLLOW_SUMMARY;
	if (threadIdx.x == 0) odd = 0;
	__syncthreads();
	for (int at = wave * RUN; at < FOLLOW_D; at += ATTEND_WAVES * RUN) {
		f32 key[SUMMARIZE_EACH][RUN] = {}, value[SUMMARIZE_EACH][RUN] = {};
		if (at < KV_PADDED) load_numbers<true>(key, cache, from, at), load_numbers<false>(value, cache, from, at);
#pragma unroll
		for (int j = 0; j < RUN; j++) {
			f64 sum = 0, squares = 0, values = 0;
#pragma unroll
			for (int i = 0; i < SUMMARIZE_EACH; i++) sum += (f64)key[i][j], values += (f64)value[i][j];
			sum = wave_sum<NSTF_WAVE>(sum) / 64, values = wave_sum<NSTF_WAVE>(values) / 64;
#pragma unroll
			for (int i = 0; i < SUMMARIZE_EACH; i++) squares += ((f64)key[i][j] - sum) * ((f64)key[i][j] - sum);
			squares = wave_sum<NSTF_WAVE>(squares) / 64;
			const bool has = at + j < KV_D;
			if (has && !(fits_half(sum) && fits_half(squares) && fits_half(values))) odd = 1;
			if (lane == 0 && at + j < FOLLOW_D) {
				to[at + j] = has ? half_nearest(rounded_single(sum)) : 0;
				to[FOLLOW_D + at + j] = has ? half_nearest(rounded_single(squares)) : 0;
				to[2 * FOLLOW_D + at + j] = has ? half_nearest(rounded_single(values)) : 0;
			}
		}
	}
	__syncthreads();
	if (odd)
		for (int i = threadIdx.x; i < 3 * FOLLOW_D; i += THREADS) to[i] = 0;
	if (threadIdx.x < 8) to[3 * FOLLOW_D + threadIdx.x] = threadIdx.x == 0 ? (u16)(odd != 0) : (u16)0;
}
