// Elementary functions in float32, the same on every target.
//
// The libraries' own differ between vendors, and their fast forms lose digits
// with the size of the argument. Errors here are in units of 2^-24 of the
// result, measured against float64 by the tests of the kernels that use them.
// Coefficients: least maximum of the relative error, fitted in float64, then
// rounded.
#include "common.hip"

// e^x, within 2 units; under 2^-126 it is 0, and NaN stays NaN. x = n ln 2 + r
// with |r| <= ln(2)/2, ln 2 in two parts, and e^r = 1 + r + r^2 Q(r).
NSTF_DEVICE f32 exp_f32(f32 x) {
	f32 u = x > 88.8f ? 88.8f : x;
	u = u < -87.5f ? -87.5f : u;
	const f32 n = rintf(u * 1.44269504f);
	f32 r = fmaf(n, -0.693145752f, u);
	r = fmaf(n, -1.42860677e-6f, r);
	f32 q = fmaf(0.00138145965f, r, 0.00836871751f);
	q = fmaf(q, r, 0.041668389f);
	q = fmaf(q, r, 0.166665211f);
	q = fmaf(q, r, 0.49999994f);
	const f32 e = fmaf(q * r, r, r) + 1.0f;
	return x < -87.3f ? 0.0f : e * power_of_two((int)n);
}

NSTF_DEVICE f32 log_f32_normal(f32 x) {
	const u32 bits = bits_of(x) - 0x3f3504f3u;
	const int e = (int)bits >> 23;
	const f32 m = of_bits((bits & 0x7fffffu) + 0x3f3504f3u), z = (m - 1.0f) / (m + 1.0f), u = z * z;
	f32 q = fmaf(0.222221985f, u, 0.285714298f);
	q = fmaf(q, u, 0.4f);
	q = fmaf(q, u, 0.666666687f);
	return fmaf((f32)e, 0.693147182f, fmaf(z * u, q, 2.0f * z));
}

// The natural logarithm, within 3 units; of 0 it is -infinity, and infinity and NaN stay. With
// x = m 2^e, m from 1/sqrt(2) on, and z = (m - 1) / (m + 1), log(m) = 2 (z + z^3/3 + z^5/5 ...).
NSTF_DEVICE f32 log_f32(f32 x) {
	if (!(x >= 0x1p-126f && x < NSTF_INFINITY)) return x == 0 ? -NSTF_INFINITY : x < 0x1p-126f ? log_f32_normal(x * 0x1p24f) - 16.6355324f : x;
	return log_f32_normal(x);
}

// tanh(x), within 4 units: x + x^3 Q(x^2) near 0, else from the exponential.
NSTF_DEVICE f32 tanh_f32(f32 x) {
	const f32 a = fabsf(x), u = x * x;
	f32 q = fmaf(0.00214295881f, u, -0.00817739498f);
	q = fmaf(q, u, 0.0217007007f);
	q = fmaf(q, u, -0.0539467633f);
	q = fmaf(q, u, 0.133332059f);
	q = fmaf(q, u, -0.333333313f);
	const f32 far = copysignf(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);
	return a < 0.625f ? fmaf(x * u, q, x) : far;
}

// The normal distribution's integral from minus infinity to x, within 5 units
// on both sides of 0. With t = |x|/sqrt(2), erfc(t) = exp(-t^2) P / (1 + 2t),
// where P is a polynomial in (t-2)/(t+2); t^2 = x^2/2 is taken in two parts,
// since its rounding would be multiplied by its size.
NSTF_DEVICE f32 normal_cdf(f32 x) {
	f32 a = fabsf(x);
	a = a > 14.0f ? 14.0f : a;
	const f32 t = a * 0.707106781f, p = (t - 2.0f) / (t + 2.0f);
	f32 q = fmaf(7.98753172e-05f, p, 0.000170487183f);
	q = fmaf(q, p, -0.000400351186f);
	q = fmaf(q, p, -0.00142165425f);
	q = fmaf(q, p, 0.00125207624f);
	q = fmaf(q, p, 0.00870928355f);
	q = fmaf(q, p, -0.00803065114f);
	q = fmaf(q, p, -0.054217834f);
	q = fmaf(q, p, 0.164051011f);
	q = fmaf(q, p, -0.166030526f);
	q = fmaf(q, p, -0.0927638188f);
	q = fmaf(q, p, 1.27697837f);
	const f32 square = a * a, rest = fmaf(a, a, -square);
	f32 e = exp_f32(-0.5f * square);
	e = fmaf(e, -0.5f * rest, e);
	const f32 tail = 0.5f * e * q / fmaf(2.0f, t, 1.0f);
	return x > 0.0f ? 1.0f - tail : tail;
}

// e^x in float64 for x <= 0, within 1e-15; under -700 it is 0. As exp_f32, with
// the series to the thirteenth power.
NSTF_DEVICE f64 exp_f64(f64 x) {
	if (x < -700) return 0;
	const f64 n = rint(x * 1.4426950408889634);
	f64 r = fma(n, -0.69314718036912382, x);
	r = fma(n, -1.9082149292705877e-10, r);
	f64 e = 1.0 / 6227020800;
	const f64 c[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
#pragma unroll
	for (int i = 0; i < 13; i++) e = fma(e, r, c[i]);
	return e * __longlong_as_double((i64)((u64)(i64)((int)n + 1023) << 52));
}

// 1 / (1 + e^-x) in float64, within 1e-15.
NSTF_DEVICE f64 sigmoid_f64(f64 x) {
	const f64 e = exp_f64(x < 0 ? x : -x);
	return (x < 0 ? e : 1.0) / (1.0 + e);
}

// log(1 + e^x) in float64, within 1e-12: with u = e^-|x| and z = u / (2 + u), which
// is at most 1/3, log(1 + u) = 2 (z + z^3/3 + z^5/5 ...).
NSTF_DEVICE f64 softplus_f64(f64 x) {
	const f64 u = exp_f64(x < 0 ? x : -x), z = u / (2.0 + u), square = z * z;
	f64 series = 0;
#pragma unroll
	for (int i = 12; i >= 0; i--) series = fma(series, square, 1.0 / (2 * i + 1));
	return (x > 0 ? x : 0.0) + 2.0 * z * series;
}

// 2^x by the machine's own instruction, within 4 units; under 2^-126 it is 0.
#if defined(NSTF_CUDA)
NSTF_DEVICE f32 exp2_near(f32 x) {
	f32 e;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
	return e;
}
#elif __has_builtin(__builtin_amdgcn_exp2f)
NSTF_DEVICE f32 exp2_near(f32 x) { return __builtin_amdgcn_exp2f(x); }
#else // the compiler of ROCm 5 has no name for it
NSTF_DEVICE f32 exp2_near(f32 x) { return exp2f(x); }
#endif
