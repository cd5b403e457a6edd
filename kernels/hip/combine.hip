// The experts' outputs of each row, added up by their shares.
//
//	for t, d: out[t][d] = sum over j, in ascending order of chosen[t][j], of
//	          share[t][j] * parts[t][j][d]
//
// with COMBINE_SOME 1 without those whose chosen[t][j] is 2^31 - 1 (here.hip),
// with COMBINE_ONES 1 shares of 1; with COMBINE_SHARED 1 after shared[t][d], with 2 after sigmoid(gate[t]) times that.
//
// parts f32[T][COMBINE_TOPK][d], chosen i32, share f32[T][COMBINE_TOPK], out
// f32[T][d] (it may be shared), shared f32[T][d], gate f32[T]. Grid: x over d, a number a thread, 256 to a block; y over rows. No
// LDS. Deterministic: the order is that of the experts, as on the processor.
// Bound: the bytes of parts. Tolerance: that of COMBINE_TOPK fused additions.
#include "functions.hip"

#if COMBINE_SHARED
#define SHARED_PARAMETERS , const f32 *shared, const f32 *gate
#else
#define SHARED_PARAMETERS
#endif

NSTF_KERNEL void __launch_bounds__(256) nstf_combine(const f32* parts, const i32* chosen, const f32* share, f32* out, int d SHARED_PARAMETERS) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= d) return;
	const i64 row = blockIdx.y;
	chosen += row * COMBINE_TOPK;
	if (!COMBINE_ONES) share += row * COMBINE_TOPK;
	parts += row * COMBINE_TOPK * d + i;
#if COMBINE_SHARED == 2
	f32 sum = (f32)sigmoid_f64((f64)gate[row]) * shared[row * d + i];
#elif COMBINE_SHARED
	f32 sum = shared[row * d + i];
#else
	f32 sum = 0;
#endif
	for (int n = 0, last = -1; n < COMBINE_TOPK; n++) {
		int next = 0x7fffffff, at = 0;
		for (int j = 0; j < COMBINE_TOPK; j++)
			if (chosen[j] > last && chosen[j] < next) next = chosen[j], at = j;
#if COMBINE_SOME
		if (next == 0x7fffffff) break;
#endif
		last = next;
		sum = fmaf(COMBINE_ONES ? 1.0f : share[at], parts[(i64)at * d], sum);
	}
	out[row * d + i] = sum;
}
