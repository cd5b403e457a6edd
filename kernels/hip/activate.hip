// Nonlinearities of feed-forward layers.
//
//	for i: out[i] = act(gate[i]), times up[i] where up is given (gated, in activation.hip)
//
// ACTIVATION numbers them as kernels/cpu does: 0 SiLU, 1 GELU with the error
// function, 2 GELU with tanh, 3 x / (1 + exp(-1.702 x)), 4 ReLU, 5 its
// square. gate, up, out f32[n], at multiples of 16 bytes; out may be gate or up. A NaN gives NaN, and so
// does a smooth activation of -Inf, being -Inf times 0.
//
// Grid: 256 threads, four numbers each, together in memory. No LDS.
// Deterministic. Bound: 12 bytes for each number (8 without up).
// Tolerance: 6 units of 2^-24 of the result (exponent z rounded itself: times
// 1 + |z|), results under 1e-30 may be off by as much.
#include "activation.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_activate(f32* out, const f32* gate, const f32* up, int n) {
	begin_early();
	const int at = (blockIdx.x * 256 + threadIdx.x) * 4;
	if (at + 4 > n) {
		for (int i = at; i < n; i++) out[i] = up ? gated(gate[i], up[i]) : activated(gate[i]);
		return;
	}
	pack<f32, 4> x = *(const pack<f32, 4>*)(gate + at);
	if (up) {
		const pack<f32, 4> y = *(const pack<f32, 4>*)(up + at);
#pragma unroll
		for (int i = 0; i < 4; i++) x.v[i] = gated(x.v[i], y.v[i]);
	} else {
#pragma unroll
		for (int i = 0; i < 4; i++) x.v[i] = activated(x.v[i]);
	}
	*(pack<f32, 4>*)(out + at) = x;
}
