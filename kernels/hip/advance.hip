// The end of a decoding step: what was picked becomes the next step's input.
//
//	for t: if position[t] >= 0: next[t] = token[t]; history[owner[t]][++position[t]] = token[t]
//	       output[*steps % ring][owner[t]] = token[t]
//	++*steps
//
// token, next, position, owner i32[T]; history i32[sequences][stride] or null;
// output i32[ring][outputs] or null; steps i32[1]. A position of the history at or
// beyond stride is not written.
//
// Grid: one block of 64 threads. No LDS. Bound: latency.
#include "common.hip"

NSTF_KERNEL void __launch_bounds__(64) nstf_advance(int rows, i32* position, const i32* owner, const i32* token, i32* next, i32* history, int stride, i32* output, int outputs, i32* steps, int ring) {
	wait_for_inputs(); // and no launch begins before this one ends: some read positions as soon as they begin
	const int step = *steps;
	for (int t = threadIdx.x; t < rows; t += 64) {
		const int p = position[t], id = token[t];
		if (p < 0) continue;
		if (output) output[(i64)(step % ring) * outputs + owner[t]] = id;
		next[t] = id;
		position[t] = p + 1;
		if (history && p + 1 < stride) history[(i64)owner[t] * stride + p + 1] = id;
	}
	__syncthreads();
	if (threadIdx.x == 0) *steps = step + 1;
}

// The beginning of a pass in which some rows go on with what was picked for them in
// a pass of other rows:
//
//	for t: if token[t] < 0: token[t] = history[owner[t]][position[t]]
NSTF_KERNEL void __launch_bounds__(64) nstf_resume(int rows, const i32* position, const i32* owner, i32* token, const i32* history, int stride) {
	wait_for_inputs();
	for (int t = threadIdx.x; t < rows; t += 64)
		if (token[t] < 0) token[t] = history[(i64)owner[t] * stride + position[t]];
}
