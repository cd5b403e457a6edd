// The cosines and sines by which a rotary embedding turns the rows of a pass.
//
//	for t, i: a = float32(position[t] * frequency[owner[t]*Stride + i])
//	    cosine[t][i] = cos(a) * factor[owner[t]*(Stride>0)]
//	    sine[t][i]   = sin(a) * factor[owner[t]*(Stride>0)]
//
// position, owner i32[T]; frequency f32[S][Pairs] with Stride = Pairs where
// sequences differ in length and the embedding depends on it, or f32[Pairs] with
// Stride 0; cosine, sine f32[T][Pairs].
//
// Grid: 128 threads, one number each. No LDS. Deterministic.
// Bound: 8 bytes written for each pair: next to nothing. The product is rounded
// to float32 first, as formats/model's Rope.Frequencies says; cos and sin are the
// accurate ones, whose argument may be a hundred thousand radians.
// Tolerance: 2 units in the last place of 1.
#include "common.hip"

NSTF_KERNEL void nstf_angles(f32* cosine, f32* sine, const i32* position, const i32* owner, const f32* frequency, const f32* factor, int rows, int pairs, int stride) {
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at >= rows * pairs) return;
	int t = at / pairs, i = at - t * pairs;
	int s = stride > 0 ? owner[t] : 0;
	f32 a = (f32)position[t] * frequency[(i64)s * stride + i];
	cosine[at] = cosf(a) * factor[s];
	sine[at] = sinf(a) * factor[s];
}
