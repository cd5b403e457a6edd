// Number formats: bits and values, float16 and bfloat16 with correct rounding,
// minima and maxima as the hardware takes them.
#pragma once
#include "wave.h"

static inline float as_f32(u32 x) { return __builtin_bit_cast(float, x); }
static inline u32 as_u32(float f) { return __builtin_bit_cast(u32, f); }
static inline double as_f64(u64 x) { return __builtin_bit_cast(double, x); }
static inline u64 as_u64(double f) { return __builtin_bit_cast(u64, f); }

static inline float f16_to_f32(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
static inline u16 f32_to_f16(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
static inline float bf16_to_f32(u16 h) { return as_f32((u32)h << 16); }
static inline u16 f32_to_bf16(float f) {
	u32 u = as_u32(f);
	if ((u & 0x7fffffff) > 0x7f800000) return (u16)(u >> 16) | 0x40;
	return (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
static inline u16 f32_to_f16_toward_zero(float f) {
	u16 h = f32_to_f16(f);
	if ((h & 0x7fff) > 0x7c00) return h;
	if (std::fabs(f16_to_f32(h)) > std::fabs(f)) h--;
	return h;
}

static inline i32 sign_extend(u32 v, int bits) {
	return bits >= 32 ? (i32)v : (i32)(v << (32 - bits)) >> (32 - bits);
}

// A float whose rounding to float16 is the correctly rounded x*y + z of float16
// values: the product is exact in float32, the sum is rounded to odd, so that
// the second rounding cannot be misled. Written without branches, for vectors.
INLINE float fma_for_f16(float x, float y, float z) {
	float p = x * y, s = p + z, t = s - p;
	float lost = (p - (s - t)) + (z - t); // the sum's rounding error, exactly
	u32 u = as_u32(s);
	u32 up = u + 1, down = u - 1;
	u32 odd = ((lost > 0) == (s > 0)) ? up : down;
	u32 keep = (u & 1) | ((u & 0x7f800000) == 0x7f800000 ? 1u : 0u) | (lost == 0 ? 1u : 0u) | (lost != lost ? 1u : 0u);
	return as_f32(keep ? u : odd);
}
static inline u16 fma_f16(u16 a, u16 b, u16 c) {
	return f32_to_f16(fma_for_f16(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c)));
}
static inline void fma_f16_lanes(const float* x, const float* y, const float* z, float* o, int W) {
	for (int l = 0; l < W; l++) o[l] = fma_for_f16(x[l], y[l], z[l]);
}

// The float16 in bits shift to shift + 15 of each lane as floats, and floats to
// float16 in the low half of each lane, the upper half zero.
static inline void f16_lanes_to_f32(const u32* s, int shift, float* o, int W) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
	for (int l = 0; l < W; l += 16) {
		__m512i x = _mm512_loadu_si512(s + l);
		if (shift) x = _mm512_srli_epi32(x, 16);
		_mm512_storeu_ps(o + l, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)));
	}
#else
	for (int l = 0; l < W; l++) o[l] = f16_to_f32((u16)(s[l] >> shift));
#endif
}
static inline void f32_lanes_to_f16(const float* s, u32* o, int W) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
	for (int l = 0; l < W; l += 16) {
		__m256i h = _mm512_cvtps_ph(_mm512_loadu_ps(s + l), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		_mm512_storeu_si512(o + l, _mm512_cvtepu16_epi32(h));
	}
#else
	for (int l = 0; l < W; l++) o[l] = f32_to_f16(s[l]);
#endif
}

// What the transcendental instructions do to denormals.
static inline float flush_denormal(float x) {
	u32 u = as_u32(x);
	return (u & 0x7f800000) ? x : as_f32(u & 0x80000000);
}

// IEEE maxNum and minNum with -0 below +0; written without branches.
static inline float max_f32(float a, float b) {
	u32 x = as_u32(a), y = as_u32(b);
	u32 m = a > b ? x : y;
	m = a == b ? (x & y) : m;
	m = b != b ? x : m;
	m = a != a ? y : m;
	return as_f32(m);
}
static inline float min_f32(float a, float b) {
	u32 x = as_u32(a), y = as_u32(b);
	u32 m = a < b ? x : y;
	m = a == b ? (x | y) : m;
	m = b != b ? x : m;
	m = a != a ? y : m;
	return as_f32(m);
}
static inline double max_f64(double a, double b) {
	if (a != a) return b;
	if (b != b) return a;
	if (a == b) return as_f64(as_u64(a) & as_u64(b));
	return a > b ? a : b;
}
static inline double min_f64(double a, double b) {
	if (a != a) return b;
	if (b != b) return a;
	if (a == b) return as_f64(as_u64(a) | as_u64(b));
	return a < b ? a : b;
}
static inline float median_f32(float a, float b, float c) {
	if (a != a || b != b || c != c) return min_f32(min_f32(a, b), c);
	float m = max_f32(max_f32(a, b), c);
	return m == a ? max_f32(b, c) : m == b ? max_f32(a, c) : max_f32(a, b);
}
// IEEE 754-2019 minimum and maximum: NaN wins.
static inline float minimum_f32(float a, float b) { return (a != a || b != b) ? NAN : min_f32(a, b); }
static inline float maximum_f32(float a, float b) { return (a != a || b != b) ? NAN : max_f32(a, b); }

// Saturating conversions.
static inline u32 saturate_u32(u64 x) { return x > 0xffffffffull ? 0xffffffffu : (u32)x; }
static inline u32 saturate_i32(i64 x) {
	return x > 0x7fffffffll ? 0x7fffffffu : x < -0x80000000ll ? 0x80000000u : (u32)x;
}
static inline u16 saturate_u16(i32 x) { return x < 0 ? 0 : x > 65535 ? 65535 : (u16)x; }
static inline u16 saturate_i16(i32 x) { return x < -32768 ? 0x8000 : x > 32767 ? 32767 : (u16)x; }

// Floats to integers: truncated, saturated, NaN to 0.
static inline u32 f32_to_u32(float f) {
	if (f != f || f <= -1.f) return 0;
	if (f >= 4294967296.f) return 0xffffffff;
	return f < 0 ? 0 : (u32)f;
}
static inline u32 f32_to_i32(float f) {
	if (f != f) return 0;
	if (f <= -2147483648.f) return 0x80000000;
	if (f >= 2147483648.f) return 0x7fffffff;
	return (u32)(i32)f;
}
static inline u32 f64_to_u32(double f) {
	if (f != f || f <= -1) return 0;
	if (f >= 4294967296.) return 0xffffffff;
	return f < 0 ? 0 : (u32)f;
}
static inline u32 f64_to_i32(double f) {
	if (f != f) return 0;
	if (f <= -2147483648.) return 0x80000000;
	if (f >= 2147483647.) return 0x7fffffff;
	return (u32)(i32)f;
}
static inline u16 f32_to_u16(float f) {
	if (f != f || f <= 0) return 0;
	return f >= 65535.f ? 65535 : (u16)f;
}
static inline u16 f32_to_i16(float f) {
	if (f != f) return 0;
	if (f <= -32768.f) return 0x8000;
	return f >= 32767.f ? 32767 : (u16)(i16)f;
}

static inline float clamp01(float x) { return x != x ? 0.f : x < 0 ? 0.f : x > 1 ? 1.f : x; }

// An 8-bit float of the wave's architecture: OCP's e4m3 and e5m2 (bf8), or
// gfx94x's variant without negative zero. Saturating and rounded to even.
float fp8_to_f32(Wave& w, u8 v, bool bf8);
u8 f32_to_fp8(Wave& w, float f, bool bf8);
