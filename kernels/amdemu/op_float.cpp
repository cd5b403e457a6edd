// float32 and float64 arithmetic of the vector unit. Transcendental functions are
// rounded correctly or nearly so, where hardware is within one unit in the last
// place; they flush denormals as hardware does.
#include "optable.h"
#include <cstdlib>

// Sine and cosine of a number of turns.
static float sine(float turns) {
	if (turns != turns || std::isinf(turns)) return NAN;
	double x = turns;
	return (float)std::sin((x - std::floor(x)) * 6.283185307179586476925);
}
static float cosine(float turns) {
	if (turns != turns || std::isinf(turns)) return NAN;
	double x = turns;
	return (float)std::cos((x - std::floor(x)) * 6.283185307179586476925);
}

static inline float mantissa(float a) {
	if (a != a || std::isinf(a)) return a;
	int e;
	return std::frexp(a, &e);
}
static inline u32 exponent(float a) {
	if (a != a || std::isinf(a) || a == 0) return 0;
	int e;
	std::frexp(a, &e);
	return e;
}
static inline double mantissa(double a) {
	if (a != a || std::isinf(a)) return a;
	int e;
	return std::frexp(a, &e);
}
static inline u32 exponent(double a) {
	if (a != a || std::isinf(a) || a == 0) return 0;
	int e;
	std::frexp(a, &e);
	return e;
}

static inline float fraction(float a) {
	float r = a - std::floor(a);
	return r >= 1.f ? 0x1.fffffep-1f : r;
}
static inline float exp2_flushed(float a) { return flush_denormal(::exp2f(flush_denormal(a))); }
static inline float log2_flushed(float a) {
	float x = flush_denormal(a);
	return x < 0 ? NAN : ::log2f(x);
}
static inline float reciprocal(float a) { return flush_denormal(1.0f / flush_denormal(a)); }
static inline float reciprocal_root(float a) {
	float x = flush_denormal(a);
	return x < 0 ? NAN : (float)(1.0 / std::sqrt((double)x));
}
static inline float root(float a) {
	float x = flush_denormal(a);
	return x < 0 ? NAN : std::sqrt(x);
}
// ldexp with a power that cannot overflow an int.
static inline float scale(float a, i32 power) { return std::ldexp(a, power < -400 ? -400 : power > 400 ? 400 : power); }
static inline double scale(double a, i32 power) { return std::ldexp(a, power < -3000 ? -3000 : power > 3000 ? 3000 : power); }

static inline float cube_face(float x, float y, float z) {
	float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
	if (az >= ax && az >= ay) return z < 0 ? 5.f : 4.f;
	if (ay >= ax) return y < 0 ? 3.f : 2.f;
	return x < 0 ? 1.f : 0.f;
}

static void add_f32(OpTable& m) {
	F32_2("v_add_f32", a + b);
	F32_2("v_sub_f32", a - b);
	F32_2("v_subrev_f32", b - a);
	F32_2("v_mul_f32", a * b);
	F32_2("v_mul_dx9_zero_f32", (a == 0 || b == 0) ? 0.f : a * b);
	alias(m, "v_mul_legacy_f32", "v_mul_dx9_zero_f32");
	F32_3("v_fma_f32", __builtin_fmaf(a, b, c));
	F32_ACC("v_fmac_f32", __builtin_fmaf(a, b, c));
	F32_3("v_fmaak_f32", __builtin_fmaf(a, b, c));
	F32_3("v_fmamk_f32", __builtin_fmaf(a, b, c));
	F32_3("v_mad_f32", a * b + c);
	F32_ACC("v_mac_f32", a * b + c);
	alias(m, "v_madmk_f32", "v_mad_f32"); // the operands come in the order a, constant, c
	alias(m, "v_madak_f32", "v_mad_f32");
	F32_ACC("v_fmac_dx9_zero_f32", (a == 0 || b == 0) ? c : __builtin_fmaf(a, b, c));
	F32_3("v_fma_dx9_zero_f32", (a == 0 || b == 0) ? c : __builtin_fmaf(a, b, c));
	F32_2("v_min_f32", min_f32(a, b));
	F32_2("v_max_f32", max_f32(a, b));
	F32_3("v_min3_f32", min_f32(min_f32(a, b), c));
	F32_3("v_max3_f32", max_f32(max_f32(a, b), c));
	F32_3("v_med3_f32", median_f32(a, b, c));
	F32_3("v_minmax_f32", max_f32(min_f32(a, b), c));
	F32_3("v_maxmin_f32", min_f32(max_f32(a, b), c));
	for (const char* n : {"min", "max", "min3", "max3", "med3", "minmax", "maxmin"})
		alias(m, (std::string("v_") + n + "_num_f32").c_str(), (std::string("v_") + n + "_f32").c_str());
	F32_2("v_minimum_f32", minimum_f32(a, b));
	F32_2("v_maximum_f32", maximum_f32(a, b));
	F32_3("v_minimum3_f32", minimum_f32(minimum_f32(a, b), c));
	F32_3("v_maximum3_f32", maximum_f32(maximum_f32(a, b), c));
	F32_3("v_maximumminimum_f32", min_f32(max_f32(a, b), c));
	F32_3("v_minimummaximum_f32", max_f32(min_f32(a, b), c));
	F32_1("v_trunc_f32", std::trunc(a));
	F32_1("v_ceil_f32", std::ceil(a));
	F32_1("v_rndne_f32", __builtin_roundevenf(a));
	F32_1("v_floor_f32", std::floor(a));
	F32_1("v_fract_f32", fraction(a));
	F32_1("v_exp_f32", exp2_flushed(a));
	F32_1("v_log_f32", log2_flushed(a));
	F32_1("v_rcp_f32", reciprocal(a));
	alias(m, "v_rcp_iflag_f32", "v_rcp_f32");
	F32_1("v_rsq_f32", reciprocal_root(a));
	F32_1("v_sqrt_f32", root(a));
	F32_1("v_sin_f32", sine(a));
	F32_1("v_cos_f32", cosine(a));
	F32_1("v_frexp_mant_f32", mantissa(a));
	F32_TO_U32("v_frexp_exp_i32_f32", exponent(a));
	OP("v_ldexp_f32", READ1(source_f32); auto* B = source(w, I, 1); write_f32(w, I, LANE(scale(as_f32(A[l]), (i32)B[l]))));
	F32_3("v_cubeid_f32", cube_face(a, b, c));
}

static void add_f64(OpTable& m) {
	F64_2("v_add_f64", a + b);
	F64_2("v_mul_f64", a * b);
	F64_2("v_min_f64", min_f64(a, b));
	F64_2("v_max_f64", max_f64(a, b));
	F64_3("v_fma_f64", __builtin_fma(a, b, c));
	F64_1("v_trunc_f64", std::trunc(a));
	F64_1("v_ceil_f64", std::ceil(a));
	F64_1("v_rndne_f64", __builtin_roundeven(a));
	F64_1("v_floor_f64", std::floor(a));
	F64_1("v_fract_f64", a - std::floor(a));
	F64_1("v_rcp_f64", 1.0 / a);
	F64_1("v_rsq_f64", 1.0 / std::sqrt(a));
	F64_1("v_sqrt_f64", std::sqrt(a));
	for (const char* n : {"min", "max"})
		alias(m, (std::string("v_") + n + "_num_f64").c_str(), (std::string("v_") + n + "_f64").c_str());
	F64_1("v_frexp_mant_f64", mantissa(a));
	OP("v_frexp_exp_i32_f64", auto* A = source_64(w, I, 0, true); write(w, I, LANE(exponent(as_f64(A[l])))));
	OP("v_ldexp_f64", auto* A = source_64(w, I, 0, true); auto* B = source(w, I, 1); write_f64(w, I, LANE(scale(as_f64(A[l]), (i32)B[l]))));
	OP("v_fmac_f64", auto *A = source_64(w, I, 0, true), *B = source_64(w, I, 1, true); u32* lo = vgpr(w, I.op[0].idx); u32* hi = vgpr(w, I.op[0].idx + 1);
	   write_f64(w, I, LANE(__builtin_fma(as_f64(A[l]), as_f64(B[l]), as_f64(lo[l] | (u64)hi[l] << 32)))));
}

static void add_f16_functions(OpTable& m) {
	F16_1("v_rcp_f16", 1.0f / a);
	F16_1("v_sqrt_f16", std::sqrt(a));
	F16_1("v_rsq_f16", (float)(1.0 / std::sqrt((double)a)));
	F16_1("v_log_f16", ::log2f(a));
	F16_1("v_exp_f16", ::exp2f(a));
	F16_1("v_sin_f16", sine(a));
	F16_1("v_cos_f16", cosine(a));
	F16_1("v_frexp_mant_f16", mantissa(a));
	OP("v_frexp_exp_i16_f16", READ1(source_16); write_16(w, I, 1, LANE((u16)exponent(f16_to_f32(A[l])))));
	OP("v_ldexp_f16", READ1(source_16); auto* B = source(w, I, 1); write_f16(w, I, 2, LANE(f32_to_f16(std::ldexp(f16_to_f32(A[l]), (int)(i16)B[l])))));
}

// gfx12: transcendental functions of scalars, carried out by the vector unit.
static float scalar_source(Wave& w, const Operand& o, bool half) {
	float a = half ? f16_to_f32((u16)scalar(w, o)) : as_f32(scalar(w, o));
	if (o.abs) a = std::fabs(a);
	return o.neg ? -a : a;
}
#define OF_SCALAR(name, ...) \
	OP("v_s_" name "_f32", float a = scalar_source(w, I.op[1], false); set_scalar(w, I.op[0], as_u32((float)(__VA_ARGS__)))); \
	OP("v_s_" name "_f16", float a = scalar_source(w, I.op[1], true); set_scalar(w, I.op[0], f32_to_f16((float)(__VA_ARGS__))))
static void add_functions_of_scalars(OpTable& m) {
	OF_SCALAR("exp", exp2_flushed(a));
	OF_SCALAR("log", ::log2f(flush_denormal(a)));
	OF_SCALAR("rcp", reciprocal(a));
	OF_SCALAR("rsq", (float)(1.0 / std::sqrt((double)flush_denormal(a))));
	OF_SCALAR("sqrt", std::sqrt(flush_denormal(a)));
}

void add_floats(OpTable& m) {
	add_f32(m);
	add_f64(m);
	add_f16_functions(m);
	add_functions_of_scalars(m);
}

void alias(OpTable& m, const char* name, const char* of) {
	auto it = m.find(of);
	if (it == m.end()) abort();
	m[name] = it->second;
}
