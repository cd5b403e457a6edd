// What experts read where the router's shares are of their input.
//
//	for t, j, i: out[t][j][i] = share[t][j] * x[t][i]
//
// x f32[T][d], share f32[T][top_k], out f32[T][top_k][d], not x. Grid: x over d, a number a
// thread, 256 to a block; y over rows and their shares. No LDS. Deterministic: the processor's
// bits. Bound: the bytes of x and out.
#include "functions.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_weigh(const f32* x, const f32* share, f32* out, int d, int top_k) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= d) return;
	const i64 slot = blockIdx.y;
	out[slot * d + i] = share[slot] * x[slot / top_k * d + i];
}
