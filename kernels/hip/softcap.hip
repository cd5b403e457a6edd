// Soft limits of logits.
//
//	for i: x[i] = limit * tanh(x[i] / limit)
//
// x f32[n], at a multiple of 16 bytes; limit is positive.
//
// Grid: 256 threads, four numbers each. No LDS. Deterministic. Bound: 8 bytes
// for each number. Tolerance: 6 units of 2^-24 of the result.
#include "functions.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_softcap(f32* x, int n, f32 limit) {
	begin_early();
	const int at = (blockIdx.x * 256 + threadIdx.x) * 4;
	if (at + 4 > n) {
		for (int i = at; i < n; i++) x[i] = limit * tanh_f32(x[i] / limit);
		return;
	}
	pack<f32, 4> v = *(const pack<f32, 4>*)(x + at);
#pragma unroll
	for (int i = 0; i < 4; i++) v.v[i] = limit * tanh_f32(v.v[i] / limit);
	*(pack<f32, 4>*)(x + at) = v;
}
