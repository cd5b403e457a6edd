// Rows of float32 as the matrix product takes them: halves with one power of two
// per row, so that no outlier overflows and no small row is lost, or, with
// NSTF_EXACT, the same floats; both padded with zeros to whole tiles.
//
// Reference:
//   e = the exponent that brings max |x[t][k]| into [2^13, 2^14)
//   out[t][p] = half(x[t][source(p)] * 2^e), or 0 where source(p) >= K
//   rescale[t] = 2^-e
//
// x f32[T][K]; out T rows of `stride` bytes, a multiple of 256, at a multiple of
// 16; rescale f32[T]. source is matrix_source: the order in which tiles want k.
// Grid: a block of 256 threads per row; LDS: a number per wave.
// Phases: 1. the row's maximum; 2. scale, round, write chunks of 16 bytes.
// A row with NaN or Inf keeps its values (rescale 1). Deterministic: maxima only.
// Bound: 4 bytes read twice (the second time from cache), 2 written per number.
// Tolerance: each half is the nearest to the scaled number.
#include "matrix.hip"
#include "halverow.hip"

#define HALVE_THREADS 256

// The number k of a row, 0 behind its end.
NSTF_DEVICE f32 halve_read(const f32 *row, int k, int end) { return k < end ? row[k] : 0.0f; }

// The greatest magnitude of a row; NaN where it holds one.
NSTF_DEVICE f32 halve_max(const f32 *row, int k) {
	__shared__ f32 waves[HALVE_THREADS / NSTF_WAVE];
	f32 m = 0;
	bool odd = false;
	for (int i = threadIdx.x; i < k; i += HALVE_THREADS) {
		const f32 v = fabsf(row[i]);
		odd = odd || !(v < NSTF_INFINITY);
		m = wave_max_of(m, v);
	}
	m = wave_max<NSTF_WAVE>(odd ? NSTF_INFINITY : m);
	if (threadIdx.x % NSTF_WAVE == 0) waves[threadIdx.x / NSTF_WAVE] = m;
	__syncthreads();
	for (int i = 0; i < HALVE_THREADS / NSTF_WAVE; i++) m = wave_max_of(m, waves[i]);
	return m;
}

NSTF_KERNEL void __launch_bounds__(HALVE_THREADS) nstf_halve(const f32 *__restrict__ x, u8 *__restrict__ out, f32 *__restrict__ rescale, int k, int stride) {
	let_next_begin();
	wait_for_inputs();
	const f32 *row = x + (i64)blockIdx.x * k;
	Words4 *to = (Words4 *)(out + (i64)blockIdx.x * stride);
#if NSTF_EXACT
	for (int i = threadIdx.x; i < stride / 16; i += HALVE_THREADS) {
		Words4 v;
		v.x = bits_of(halve_read(row, 4 * i, k)), v.y = bits_of(halve_read(row, 4 * i + 1, k));
		v.z = bits_of(halve_read(row, 4 * i + 2, k)), v.w = bits_of(halve_read(row, 4 * i + 3, k));
		to[i] = v;
	}
	if (threadIdx.x == 0) rescale[blockIdx.x] = 1;
#else
	const int e = halve_exponent(halve_max(row, k));
	const f32 scale = power_of_two(e);
	if (threadIdx.x == 0) rescale[blockIdx.x] = power_of_two(-e);
	for (int i = threadIdx.x; i < stride / 16; i += HALVE_THREADS) {
		u32 v[4];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int at = matrix_source(8 * i + 2 * j);
			v[j] = halves_of(halve_read(row, at, k) * scale, halve_read(row, at + 1, k) * scale);
		}
		Words4 w;
		w.x = v[0], w.y = v[1], w.z = v[2], w.w = v[3];
		to[i] = w;
	}
#endif
}
