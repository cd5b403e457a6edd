// The cosines and sines by which a rotary embedding turns the rows of a pass.
//
//	for t, i: a = float32(position[t] * frequency[owner[t]*Stride + i])
//	    cosine[t][i] = float32(cos(a)) * factor[owner[t]*(Stride>0)]
//	    sine[t][i]   = float32(sin(a)) * factor[owner[t]*(Stride>0)]
//
// position, owner i32[T]; frequency f32[S][Pairs] with Stride = Pairs where
// sequences differ in length and the embedding depends on it, or f32[Pairs] with
// Stride 0; cosine, sine f32[T][Pairs].
//
// Grid: 128 threads, one number each. No LDS. Deterministic.
// Bound: 8 bytes written for each pair: next to nothing. The product is rounded
// to float32 first, as formats/model's Rope.Frequencies says. It may be millions
// of radians: the multiple of pi/2 is taken off in float64 with pi/2 in two
// parts, which leaves an error of 1e-16, and the series' is 4e-13. The
// libraries' sinf does as well but keeps a table for large arguments in memory.
// Tolerance: that of rounding to float32.
#include "common.hip"

struct turned {
	f64 sine, cosine;
};

NSTF_DEVICE turned turn_by(f64 a) {
	const f64 n = rint(a * 0.63661977236758134);
	f64 r = fma(-n, 1.5707963267948966, a);
	r = fma(-n, 6.123233995736766e-17, r);
	const f64 u = r * r;
	f64 s = fma(u, 1.0 / 6227020800, -1.0 / 39916800);
	s = fma(u, s, 1.0 / 362880);
	s = fma(u, s, -1.0 / 5040);
	s = fma(u, s, 1.0 / 120);
	s = fma(u, s, -1.0 / 6);
	s = fma(u * r, s, r);
	f64 c = fma(u, 1.0 / 479001600, -1.0 / 3628800);
	c = fma(u, c, 1.0 / 40320);
	c = fma(u, c, -1.0 / 720);
	c = fma(u, c, 1.0 / 24);
	c = fma(u, c, -0.5);
	c = fma(u, c, 1.0);
	const int quarter = (int)(i64)n & 3;
	const turned t = {quarter & 1 ? c : s, quarter & 1 ? s : c};
	return turned{quarter & 2 ? -t.sine : t.sine, (quarter + 1) & 2 ? -t.cosine : t.cosine};
}

NSTF_KERNEL void nstf_angles(f32* cosine, f32* sine, const i32* position, const i32* owner, const f32* frequency, const f32* factor, int rows, int pairs, int stride) {
	begin_early();
	const int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at >= rows * pairs) return;
	const int t = at / pairs, i = at - t * pairs;
	const int s = stride > 0 ? owner[t] : 0;
	const turned x = turn_by((f64)((f32)position[t] * frequency[(i64)s * stride + i]));
	cosine[at] = (f32)x.cosine * factor[s];
	sine[at] = (f32)x.sine * factor[s];
}
