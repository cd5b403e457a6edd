// Which of the experts that rows chose lie on this device.
//
//	for s < n: p = place[chosen[s]]; local[s] = max(p, 0); order[s] = p < 0 ? 2^31 - 1 : chosen[s]
//
// chosen i32[n], an expert of each slot; place i32[experts], where it lies among those that are here, below 0: it
// does not. A slot whose expert is elsewhere multiplies with the first one here, which combine.hip with COMBINE_SOME
// leaves out by its order. Grid: a slot a thread, 256 to a block. No LDS. Deterministic: integers. Bound: latency.
#include "functions.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_here(const i32* chosen, const i32* place, i32* local, i32* order, int n) {
	begin_early();
	const int s = blockIdx.x * 256 + threadIdx.x;
	if (s >= n) return;
	const i32 expert = chosen[s], p = place[expert];
	local[s] = p < 0 ? 0 : p;
	order[s] = p < 0 ? 0x7fffffff : expert;
}
