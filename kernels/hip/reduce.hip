// Sums and maxima over the threads of a block, in one fixed order: over the
// lanes of each wave, then over the waves from first to last.
#include "common.hip"

// Sums over a row whose numbers lie in runs of four, a run a lane: over the runs of a
// wave's lanes, then lane by lane over every wave's worth, then over the lanes. The
// order follows from the row's length and the wave alone, however many threads there
// are; beyond the row are zeros.

// The squares of a run.
NSTF_DEVICE f32 run_squares(float4 v) { return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, rounded_product(v.x, v.x)))); }
NSTF_DEVICE f64 run_squares(f64 x, f64 y, f64 z, f64 w) { return fma(w, w, fma(z, z, fma(y, y, x * x))); }

// Keeps the sum of this wave's runs of a step, of which a block of Waves makes one each;
// parts holds a number for each wave and step.
template <int Waves, typename T> NSTF_DEVICE void keep_runs(T v, int step, T *parts) {
	v = wave_sum<NSTF_WAVE>(v);
	if (threadIdx.x % NSTF_WAVE == 0) parts[step * Waves + threadIdx.x / NSTF_WAVE] = v;
}

// The sum over the row, in every thread, behind a barrier.
template <int Count, typename T> NSTF_DEVICE T sum_runs(const T *parts) {
	T sum = 0;
	for (int i = threadIdx.x % NSTF_WAVE; i < Count; i += NSTF_WAVE) sum += parts[i];
	return wave_sum<NSTF_WAVE>(sum);
}

// block_sum gives the sum over a block of Threads to every thread. lds holds
// Threads/NSTF_WAVE numbers and may be used again at once.
template <int Threads, typename T> NSTF_DEVICE T block_sum(T v, T* lds) {
	v = wave_sum<NSTF_WAVE>(v);
	if (Threads == NSTF_WAVE) return v;
	__syncthreads();
	if (threadIdx.x % NSTF_WAVE == 0) lds[threadIdx.x / NSTF_WAVE] = v;
	__syncthreads();
	v = lds[0];
	for (int i = 1; i < Threads / NSTF_WAVE; i++) v += lds[i];
	return v;
}
