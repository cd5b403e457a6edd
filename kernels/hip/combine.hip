// The experts' outputs of each row, added up by their shares.
//
//	for t, d: out[t][d] = sum over j, in ascending order of chosen[t][j], of
//	          share[t][j] * parts[t][j][d]
//
// parts f32[T][COMBINE_TOPK][d], chosen i32, share f32[T][COMBINE_TOPK], out
// f32[T][d]. Grid: x over d, a number a thread, 256 to a block; y over rows. No
// LDS. Deterministic: the order is that of the experts, as on the processor.
// Bound: the bytes of parts. Tolerance: that of COMBINE_TOPK fused additions.
#include "common.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_combine(const f32* parts, const i32* chosen, const f32* share, f32* out, int d) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= d) return;
	const i64 row = blockIdx.y;
	chosen += row * COMBINE_TOPK;
	share += row * COMBINE_TOPK;
	parts += row * COMBINE_TOPK * d + i;
	f32 sum = 0;
	for (int n = 0, last = -1; n < COMBINE_TOPK; n++) {
		int next = 0x7fffffff, at = 0;
		for (int j = 0; j < COMBINE_TOPK; j++)
			if (chosen[j] > last && chosen[j] < next) next = chosen[j], at = j;
		last = next;
		sum = fmaf(share[at], parts[(i64)at * d], sum);
	}
	out[row * d + i] = sum;
}
