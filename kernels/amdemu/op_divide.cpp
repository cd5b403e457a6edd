// The steps of a division: v_div_scale brings operands into range and tells VCC
// which lanes it scaled, v_div_fmas undoes the scale, v_div_fixup puts in the
// special cases. Source: the instruction descriptions of AMD's RDNA3 ISA guide.
#include "optable.h"

static inline int exponent_bits(float f) { return (as_u32(f) >> 23) & 255; }
static inline int exponent_bits(double f) { return (int)(as_u64(f) >> 52) & 2047; }
static inline bool denormal(float f) { return !exponent_bits(f) && (as_u32(f) & 0x7fffff); }
static inline bool denormal(double f) { return !exponent_bits(f) && (as_u64(f) & 0xfffffffffffffull); }
// Whether a quotient of floats, held in a double, is a denormal float.
static inline bool denormal_as_f32(double q) { return q != 0 && std::fabs(q) < 0x1p-126; }

struct Scaled32 {
	float value;
	bool vcc;
};
static Scaled32 div_scale(float value, float den, float num) {
	double inverse = 1.0 / (double)den, quotient = (double)num / (double)den;
	if (num == 0 || den == 0) return {NAN, false};
	if (exponent_bits(num) - exponent_bits(den) >= 96) return {value == den ? std::ldexp(value, 64) : value, true};
	if (denormal(den)) return {std::ldexp(value, 64), false};
	if (denormal_as_f32(inverse) && denormal_as_f32(quotient)) return {value == den ? std::ldexp(value, -64) : value, true};
	if (denormal_as_f32(inverse)) return {std::ldexp(value, -64), false};
	if (denormal_as_f32(quotient)) return {value == num ? std::ldexp(value, 64) : value, true};
	if (exponent_bits(num) <= 23) return {std::ldexp(value, 64), false};
	return {value, false};
}

struct Scaled64 {
	double value;
	bool vcc;
};
static Scaled64 div_scale(double value, double den, double num) {
	if (num == 0 || den == 0) return {NAN, false};
	if (exponent_bits(num) - exponent_bits(den) >= 768) return {value == den ? std::ldexp(value, 128) : value, true};
	if (denormal(den)) return {std::ldexp(value, 128), false};
	if (denormal(1.0 / den) && denormal(num / den)) return {value == den ? std::ldexp(value, -128) : value, true};
	if (denormal(1.0 / den)) return {std::ldexp(value, -128), false};
	if (denormal(num / den)) return {value == num ? std::ldexp(value, 128) : value, true};
	if (exponent_bits(num) <= 53) return {std::ldexp(value, 128), false};
	return {value, false};
}

static void div_scale_f32(Wave& w, const Instruction& I) {
	READ3(source_f32);
	u32 scaled[64], r[64];
	for (int l = 0; l < w.width; l++) {
		Scaled32 s = div_scale(as_f32(A[l]), as_f32(B[l]), as_f32(C[l]));
		scaled[l] = s.vcc;
		r[l] = as_u32(s.value);
	}
	u64 mask = mask_of(scaled, w.width) & w.active;
	write(w, I, LANE(r[l]));
	set_lane_mask(w, I.op[1], mask);
}

static void div_scale_f64(Wave& w, const Instruction& I) {
	auto *A = source_64(w, I, 0, true), *B = source_64(w, I, 1, true), *C = source_64(w, I, 2, true);
	u32 scaled[64];
	u64 r[64];
	for (int l = 0; l < w.width; l++) {
		Scaled64 s = div_scale(as_f64(A[l]), as_f64(B[l]), as_f64(C[l]));
		scaled[l] = s.vcc;
		r[l] = as_u64(s.value);
	}
	u64 mask = mask_of(scaled, w.width) & w.active;
	write_64(w, I, LANE(r[l]));
	set_lane_mask(w, I.op[1], mask);
}

static void div_fmas_f32(Wave& w, const Instruction& I) {
	READ3(source_f32);
	u64 scaled = vcc_mask(w);
	write_f32(w, I, [=, &w, &I](int l) {
		float c = as_f32(C[l]), f = __builtin_fmaf(as_f32(A[l]), as_f32(B[l]), c);
		return (scaled >> l) & 1 ? std::ldexp(f, exponent_bits(c) > 127 ? 64 : -64) : f;
	});
}

static void div_fmas_f64(Wave& w, const Instruction& I) {
	auto *A = source_64(w, I, 0, true), *B = source_64(w, I, 1, true), *C = source_64(w, I, 2, true);
	u64 scaled = vcc_mask(w);
	write_f64(w, I, [=, &w, &I](int l) {
		double c = as_f64(C[l]), f = __builtin_fma(as_f64(A[l]), as_f64(B[l]), c);
		return (scaled >> l) & 1 ? std::ldexp(f, exponent_bits(c) > 1023 ? 128 : -128) : f;
	});
}

// The quotient q of num / den with the special cases put right. Small is the
// difference of exponents below which the result is zero.
template <class T> static inline T div_fixup(T q, T den, T num, T nan, int small, int max_exponent) {
	bool negative = std::signbit(den) != std::signbit(num);
	if (num != num) return num;
	if (den != den) return den;
	if ((den == 0 && num == 0) || (std::isinf(den) && std::isinf(num))) return nan;
	if (den == 0 || std::isinf(num)) return negative ? -INFINITY : INFINITY;
	if (std::isinf(den) || num == 0) return negative ? -(T)0 : (T)0;
	if (exponent_bits(num) - exponent_bits(den) < small) return negative ? -(T)0 : (T)0;
	if (exponent_bits(den) == max_exponent) return negative ? -INFINITY : INFINITY;
	return negative ? -std::fabs(q) : std::fabs(q);
}
static inline float div_fixup32(float q, float den, float num) {
	return div_fixup<float>(q, den, num, as_f32(0xffc00000), -150, 255);
}
static inline double div_fixup64(double q, double den, double num) {
	return div_fixup<double>(q, den, num, as_f64(0xfff8000000000000ull), -1075, 2047);
}
static inline u16 div_fixup16(float q, float den, float num) {
	bool negative = std::signbit(den) != std::signbit(num);
	if (num != num) return f32_to_f16(num);
	if (den != den) return f32_to_f16(den);
	if ((den == 0 && num == 0) || (std::isinf(den) && std::isinf(num))) return 0xfe00;
	if (den == 0 || std::isinf(num)) return negative ? 0xfc00 : 0x7c00;
	if (std::isinf(den) || num == 0) return negative ? 0x8000 : 0;
	return f32_to_f16(negative ? -std::fabs(q) : std::fabs(q));
}

void add_divisions(OpTable& m) {
	m["v_div_scale_f32"] = div_scale_f32;
	m["v_div_scale_f64"] = div_scale_f64;
	m["v_div_fmas_f32"] = div_fmas_f32;
	m["v_div_fmas_f64"] = div_fmas_f64;
	F32_3("v_div_fixup_f32", div_fixup32(a, b, c));
	F64_3("v_div_fixup_f64", div_fixup64(a, b, c));
	OP("v_div_fixup_f16", READ3(source_16); write_f16(w, I, 3, LANE(div_fixup16(f16_to_f32(A[l]), f16_to_f32(B[l]), f16_to_f32(C[l]))), true));
}
