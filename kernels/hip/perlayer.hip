// Per-layer inputs, and what a block's gate makes of its own.
//
//	nstf_per_layer: for t, r: x[t][r] = (norm(x[t][r] * scale) + looked[t][r] * table_scale) * factor
//	nstf_inject:    for t, i: gate[t][i] = act(gate[t][i]) * inputs[t*stride + i]
//
// x, looked f32[T][runs][width]; weight, bias f32[width], a null bias for none;
// PER_LAYER_KIND: 0 rms, 1 layer norm, as in norm.hip. gate f32[T][width]; ACTIVATION
// numbers act as kernels/cpu does.
//
// Grid: nstf_per_layer: x: runs, a wave each, 4 to a block; y: rows. nstf_inject: x: 256
// numbers of a row; y: rows. Waves of any size, no LDS, no barriers. Deterministic.
// Bound: 12 bytes for each number.
// Tolerance: means and sums are float64, so that norms differ from the processor's by
// the order of those; act as in activate.hip.
#include "activation.hip"

#define PER_LAYER_WAVES 4

NSTF_KERNEL void __launch_bounds__(PER_LAYER_WAVES* NSTF_WAVE)
nstf_per_layer(f32* x, const f32* looked, int runs, int width, const f32* weight, const f32* bias, f32 eps, f32 scale, f32 table_scale, f32 factor) {
	begin_early();
	const int lane = threadIdx.x % NSTF_WAVE, run = blockIdx.x * PER_LAYER_WAVES + threadIdx.x / NSTF_WAVE;
	if (run >= runs) return;
	const i64 at = ((i64)blockIdx.y * runs + run) * width;
	x += at;
	looked += at;
	f64 mean = 0, square = 0;
	if (PER_LAYER_KIND == 1) {
		for (int i = lane; i < width; i += NSTF_WAVE) mean += (f64)(x[i] * scale);
		mean = wave_sum<NSTF_WAVE>(mean) / width;
	}
	for (int i = lane; i < width; i += NSTF_WAVE) {
		const f64 v = (f64)(x[i] * scale) - mean;
		square += v * v;
	}
	const f64 root = 1 / sqrt(wave_sum<NSTF_WAVE>(square) / width + (f64)eps);
	for (int i = lane; i < width; i += NSTF_WAVE) {
		f32 y = x[i] * scale * (f32)root * weight[i];
		if (PER_LAYER_KIND == 1) y = (f32)(((f64)(x[i] * scale) - mean) * root * (f64)weight[i] + (bias ? (f64)bias[i] : 0.0));
		x[i] = fmaf(looked[i], table_scale, y) * factor;
	}
}

NSTF_KERNEL void __launch_bounds__(256) nstf_inject(f32* gate, const f32* inputs, int width, int stride) {
	begin_early();
	const int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= width) return;
	f32* at = gate + (i64)blockIdx.y * width + i;
	*at = activated(*at) * inputs[(i64)blockIdx.y * stride + i];
}
