// Rounds activations to bytes for the products of integers (acts.hip).
//
//	for t, group of QUANTIZE_GROUP, 32 or 16: d of max|x|; q = round(x * (1 / d))
//
// X f32[T][K], rows without gaps, at any address of a float; Acts as acts.hip
// lays them out. Grid: 4 numbers a thread, blocks of 256 threads, any wave size;
// no LDS. Deterministic. Bound: 4 bytes read and 1.25 written for each number.
// Exact: bits equal the processor's.
#include "acts.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_quantize(const f32 *__restrict__ x, u8 *__restrict__ acts, int t, int k) {
	let_next_begin();
	wait_for_inputs();
	const int padded = acts_padded(k), quads = padded / 4;
	const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
	// Whole groups of 8 lanes are in or out, since a row is a multiple of 32.
	const i64 last = (i64)t * quads - 1, at = i < last ? i : last;
	const int row = (int)(at / quads), from = (int)(at % quads) * 4;
	const f32 *p = x + (i64)row * k + from;
	float4 v;
	v.x = from < k ? p[0] : 0;
	v.y = from + 1 < k ? p[1] : 0;
	v.z = from + 2 < k ? p[2] : 0;
	v.w = from + 3 < k ? p[3] : 0;
	const int bytes = QUANTIZE_GROUP == 16 ? acts_fine_bytes(k) : acts_row_bytes(k);
	put_acts<QUANTIZE_GROUP>(acts + (i64)row * bytes, k, from / 4, v, i <= last);
}
