// The end of a decoding step: what was picked becomes the next step's input.
//
//	for t: if position[t] >= 0: next[t] = token[t]; history[owner[t]][++position[t]] = token[t]
//	       output[*steps % ring][t] = token[t], or -1
//	++*steps
//
// token, next, position, owner i32[T]; history i32[sequences][stride] or null;
// output i32[ring][T] or null; steps i32[1]. A position of the history at or
// beyond stride is not written.
//
// Grid: one block of 64 threads. No LDS. Bound: latency.
#include "common.hip"

NSTF_KERNEL void __launch_bounds__(64) nstf_advance(int rows, i32* position, const i32* owner, const i32* token, i32* next, i32* history, int stride, i32* output, i32* steps, int ring) {
	wait_for_inputs(); // and no launch begins before this one ends: some read positions as soon as they begin
	const int step = *steps;
	for (int t = threadIdx.x; t < rows; t += 64) {
		const int p = position[t], id = token[t];
		if (output) output[(i64)(step % ring) * rows + t] = p >= 0 ? id : -1;
		if (p < 0) continue;
		next[t] = id;
		position[t] = p + 1;
		if (history && p + 1 < stride) history[(i64)owner[t] * stride + p + 1] = id;
	}
	__syncthreads();
	if (threadIdx.x == 0) *steps = step + 1;
}
