// The head of 256 weights of q4_k and q5_k as arranged: d and dmin, then, from
// the low end on, the low nibbles of 8 scales, the low nibbles of 8 minimums,
// and for each of the 8 two high bits of the scale and two of the minimum.
#include "weights.hip"

NSTF_DEVICE void head_scales(uint4 head, int u, f32 &scale, f32 &min) {
	const int at = (u & 7) * 4;
	const u32 high = head.w >> at;
	scale = half_value((u16)head.x) * (f32)((head.y >> at & 15) | (high & 3) << 4);
	min = half_value((u16)(head.x >> 16)) * (f32)((head.z >> at & 15) | (high & 12) << 2);
}
