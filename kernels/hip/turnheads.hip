// Turns heads by the transforms of keys and values in codes (kvcodes.hip), in place:
// queries before attention over prompts, and what it gives.
//
//	for v: x[v] = H(x[v])
//
// x f32[vectors][TURN_WIDTH], TURN_WIDTH a multiple of KV_TURN.
//
// Grid: x over vectors, TURN_WAVES to a block, one to a wave, of any size. LDS: a vector for
// each wave. Deterministic. Bound: 4 bytes read and written for each number. Exact: the
// processor's bits.
#include "kv.hip"

NSTF_KERNEL void __launch_bounds__(TURN_WAVES* NSTF_WAVE) nstf_turn_heads(f32* x, int vectors) {
	__shared__ f32 lds[TURN_WAVES][TURN_WIDTH];
	begin_early();
	const int wave = threadIdx.x / NSTF_WAVE, lane = threadIdx.x % NSTF_WAVE, v = blockIdx.x * TURN_WAVES + wave;
	if (v >= vectors) return;
	x += (i64)v * TURN_WIDTH;
	for (int i = lane; i < TURN_WIDTH; i += NSTF_WAVE) lds[wave][i] = x[i];
	kv_turn<TURN_WIDTH>(lds[wave]);
	for (int i = lane; i < TURN_WIDTH; i += NSTF_WAVE) x[i] = lds[wave][i];
}
