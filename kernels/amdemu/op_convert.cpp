// Conversions between number formats.
#include "optable.h"
#include <algorithm>

// Normalised integers: -1..1 and 0..1 as 16 bits.
static inline u16 signed_unit(float f) {
	if (f != f) return 0;
	return (u16)(i16)std::nearbyintf((f < -1 ? -1 : f > 1 ? 1 : f) * 32767.f);
}
static inline u16 unsigned_unit(float f) {
	if (f != f) return 0;
	return (u16)std::nearbyintf((f < 0 ? 0 : f > 1 ? 1 : f) * 65535.f);
}
static inline u32 f32_to_u8(float f) { return f != f || f <= 0 ? 0 : f >= 255 ? 255 : (u32)f; }

static bool without_negative_zero(Wave& w) { return w.program->gfx >= 0x940 && w.program->gfx < 0x950; }

// OCP's e4m3 and e5m2.
static inline float ocp_to_f32(u8 v, bool bf8) {
	if (bf8) return f16_to_f32((u16)(v << 8));
	u32 e = (v >> 3) & 15, f = v & 7;
	float r = e == 15 && f == 7 ? NAN : e == 0 ? std::ldexp((float)f, -9) : std::ldexp(1.f + f / 8.f, (int)e - 7);
	return v >> 7 ? -r : r;
}
// gfx94x's formats: the exponents' bias is one larger, 0x80 is NaN, no infinity.
static inline float fnuz_to_f32(u8 v, bool bf8) {
	if (v == 0x80) return NAN;
	int mantissa_bits = bf8 ? 2 : 3, bias = bf8 ? 16 : 8;
	u32 f = v & ((1 << mantissa_bits) - 1), e = (v & 0x7f) >> mantissa_bits;
	float r = e == 0 ? std::ldexp((float)f, 1 - bias - mantissa_bits)
	                 : std::ldexp(1.f + (float)f / (1 << mantissa_bits), (int)e - bias);
	return v >> 7 ? -r : r;
}

float fp8_to_f32(Wave& w, u8 v, bool bf8) { return without_negative_zero(w) ? fnuz_to_f32(v, bf8) : ocp_to_f32(v, bf8); }

// The nearest of all 128 magnitudes, to even where two are as near: slow and plain.
u8 f32_to_fp8(Wave& w, float f, bool bf8) {
	bool fnuz = without_negative_zero(w);
	if (f != f) return fnuz ? 0x80 : 0x7f;
	double magnitude = std::fabs((double)f), best_distance = 1e300;
	u8 best = 0;
	for (int v = 0; v <= 127; v++) {
		float x = fnuz ? fnuz_to_f32(v, bf8) : ocp_to_f32(v, bf8);
		if (x != x || std::isinf(x)) continue;
		double d = std::fabs(magnitude - x);
		if (d < best_distance || (d == best_distance && !(v & 1))) {
			best_distance = d;
			best = v;
		}
	}
	return std::signbit(f) && !(fnuz && best == 0) ? best | 0x80 : best;
}

template <bool BF8> static void fp8_to_float(Wave& w, const Instruction& I) {
	READ1(source);
	int shift = I.x * 8;
	write_f32(w, I, LANE(fp8_to_f32(w, A[l] >> shift, BF8)));
}
template <bool BF8> static void fp8_pair_to_floats(Wave& w, const Instruction& I) {
	READ1(source_16);
	write_64(w, I, LANE(as_u32(fp8_to_f32(w, A[l], BF8)) | (u64)as_u32(fp8_to_f32(w, A[l] >> 8, BF8)) << 32));
}
template <bool BF8> static void floats_to_fp8_pair(Wave& w, const Instruction& I) {
	READ2(source_f32);
	write_16(w, I, 2, LANE(f32_to_fp8(w, as_f32(A[l]), BF8) | (u16)(f32_to_fp8(w, as_f32(B[l]), BF8) << 8)), true);
}

// Two floats to a pair of 16-bit values.
#define PAIR(name, reader, value, convert) \
	OP(name, READ2(reader); write(w, I, LANE(convert(value(A[l])) | (u32)convert(value(B[l])) << 16)))

static void add_from_f32(OpTable& m) {
	F32_TO_U32("v_cvt_u32_f32", f32_to_u32(a));
	F32_TO_U32("v_cvt_i32_f32", f32_to_i32(a));
	F32_TO_U32("v_cvt_nearest_i32_f32", f32_to_i32(std::floor(a + 0.5f)));
	F32_TO_U32("v_cvt_floor_i32_f32", f32_to_i32(std::floor(a)));
	alias(m, "v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32");
	alias(m, "v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32");
	OP("v_cvt_f16_f32", READ1(source_f32); alignas(64) u32 r[64]; f32_lanes_to_f16((const float*)A, r, w.width); const u32* R = r; write_f16(w, I, 1, LANE((u16)R[l])));
	PAIR("v_cvt_pk_bf16_f32", source_f32, as_f32, f32_to_bf16);
	PAIR("v_cvt_pk_rtz_f16_f32", source_f32, as_f32, f32_to_f16_toward_zero);
	PAIR("v_cvt_pk_f16_f32", source_f32, as_f32, f32_to_f16);
	PAIR("v_cvt_pk_i16_f32", source_f32, as_f32, f32_to_i16);
	PAIR("v_cvt_pk_u16_f32", source_f32, as_f32, f32_to_u16);
	PAIR("v_cvt_pk_norm_i16_f32", source_f32, as_f32, signed_unit);
	PAIR("v_cvt_pk_norm_u16_f32", source_f32, as_f32, unsigned_unit);
	alias(m, "v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32");
	alias(m, "v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32");
	alias(m, "v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32");
	OP("v_cvt_pk_u8_f32", READ1(source_f32); auto *B = source(w, I, 1), *C = source(w, I, 2);
	   write(w, I, [=, &w, &I](int l) { u32 s = (B[l] & 3) * 8; return (C[l] & ~(255u << s)) | f32_to_u8(as_f32(A[l])) << s; }));
	OP("v_cvt_f64_f32", READ1(source_f32); write_f64(w, I, LANE((double)as_f32(A[l]))));
	m["v_cvt_pk_fp8_f32"] = floats_to_fp8_pair<false>;
	m["v_cvt_pk_bf8_f32"] = floats_to_fp8_pair<true>;
}

static void add_to_f32(OpTable& m) {
	U32_TO_F32("v_cvt_f32_i32", (i32)a);
	U32_TO_F32("v_cvt_f32_u32", a);
	U32_TO_F32("v_cvt_f32_ubyte0", a & 255);
	U32_TO_F32("v_cvt_f32_ubyte1", (a >> 8) & 255);
	U32_TO_F32("v_cvt_f32_ubyte2", (a >> 16) & 255);
	U32_TO_F32("v_cvt_f32_ubyte3", a >> 24);
	U32_TO_F32("v_cvt_off_f32_i4", sign_extend(a & 15, 4) / 16.0f);
	OP("v_cvt_f32_f16", READ1(source_16); alignas(64) float r[64]; f16_lanes_to_f32(A, 0, r, w.width); const float* R = r; write_f32(w, I, LANE(R[l])));
	OP("v_cvt_f32_bf16", READ1(source_16); write_f32(w, I, LANE(bf16_to_f32(A[l]))));
	OP("v_cvt_f32_f64", auto* A = source_64(w, I, 0, true); write_f32(w, I, LANE((float)as_f64(A[l]))));
	m["v_cvt_f32_fp8"] = fp8_to_float<false>;
	m["v_cvt_f32_bf8"] = fp8_to_float<true>;
	m["v_cvt_pk_f32_fp8"] = fp8_pair_to_floats<false>;
	m["v_cvt_pk_f32_bf8"] = fp8_pair_to_floats<true>;
}

static void add_half_and_double(OpTable& m) {
	OP("v_cvt_f16_u16", READ1(source_16); write_f16(w, I, 1, LANE(f32_to_f16((float)(A[l] & 0xffff)))));
	OP("v_cvt_f16_i16", READ1(source_16); write_f16(w, I, 1, LANE(f32_to_f16((float)(i16)A[l]))));
	OP("v_cvt_u16_f16", READ1(source_16); write_16(w, I, 1, LANE(f32_to_u16(f16_to_f32(A[l])))));
	OP("v_cvt_i16_f16", READ1(source_16); write_16(w, I, 1, LANE(f32_to_i16(f16_to_f32(A[l])))));
	OP("v_cvt_norm_i16_f16", READ1(source_16); write_16(w, I, 1, LANE(signed_unit(f16_to_f32(A[l])))));
	OP("v_cvt_norm_u16_f16", READ1(source_16); write_16(w, I, 1, LANE(unsigned_unit(f16_to_f32(A[l])))));
	PAIR("v_cvt_pk_norm_i16_f16", source_16, f16_to_f32, signed_unit);
	OP("v_pack_b32_f16", READ2(source_16); write(w, I, LANE((A[l] & 0xffff) | B[l] << 16)));
	OP("v_cvt_f64_i32", READ1(source); write_f64(w, I, LANE((double)(i32)A[l])));
	OP("v_cvt_f64_u32", READ1(source); write_f64(w, I, LANE((double)A[l])));
	OP("v_cvt_i32_f64", auto* A = source_64(w, I, 0, true); write(w, I, LANE(f64_to_i32(as_f64(A[l])))));
	OP("v_cvt_u32_f64", auto* A = source_64(w, I, 0, true); write(w, I, LANE(f64_to_u32(as_f64(A[l])))));
	U32_2("v_cvt_pk_u16_u32", std::min(a, 65535u) | std::min(b, 65535u) << 16);
	U32_2("v_cvt_pk_i16_i32", saturate_i16((i32)a) | (u32)saturate_i16((i32)b) << 16);
}

void add_conversions(OpTable& m) {
	add_from_f32(m);
	add_to_f32(m);
	add_half_and_double(m);
}
