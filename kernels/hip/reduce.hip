// Sums and maxima over the threads of a block, in one fixed order: over the
// lanes of each wave, then over the waves from first to last.
#include "common.hip"

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
