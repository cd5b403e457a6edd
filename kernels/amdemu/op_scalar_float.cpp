// Floating-point instructions of the scalar unit (gfx11.5 and gfx12).
#include "optable.h"

static inline float scalar_f32(Wave& w, const Operand& o) { return as_f32(scalar(w, o)); }
static inline float scalar_f16(Wave& w, const Operand& o) { return f16_to_f32((u16)scalar(w, o)); }

#define SF32_1(name, ...) OP(name, float a = scalar_f32(w, I.op[1]); set_scalar(w, I.op[0], (u32)(__VA_ARGS__)))
#define SF32_2(name, ...) OP(name, float a = scalar_f32(w, I.op[1]); float b = scalar_f32(w, I.op[2]); set_scalar(w, I.op[0], as_u32(__VA_ARGS__)))
#define SF16_2(name, ...) OP(name, float a = scalar_f16(w, I.op[1]); float b = scalar_f16(w, I.op[2]); set_scalar(w, I.op[0], f32_to_f16(__VA_ARGS__)))
#define COMPARE(name, ...) \
	OP("s_cmp_" name "_f32", float a = scalar_f32(w, I.op[0]); float b = scalar_f32(w, I.op[1]); w.scc = (__VA_ARGS__)); \
	OP("s_cmp_" name "_f16", float a = scalar_f16(w, I.op[0]); float b = scalar_f16(w, I.op[1]); w.scc = (__VA_ARGS__))

static void add_compares_of_scalar_floats(OpTable& m) {
	COMPARE("lt", a < b);
	COMPARE("eq", a == b);
	COMPARE("le", a <= b);
	COMPARE("gt", a > b);
	COMPARE("lg", a < b || a > b);
	COMPARE("ge", a >= b);
	COMPARE("o", a == a && b == b);
	COMPARE("u", a != a || b != b);
	COMPARE("nge", !(a >= b));
	COMPARE("nlg", !(a < b || a > b));
	COMPARE("ngt", !(a > b));
	COMPARE("nle", !(a <= b));
	COMPARE("neq", !(a == b));
	COMPARE("nlt", !(a < b));
}

void add_scalar_floats(OpTable& m) {
	add_compares_of_scalar_floats(m);
	SF32_2("s_add_f32", a + b);
	SF32_2("s_sub_f32", a - b);
	SF32_2("s_mul_f32", a * b);
	SF32_2("s_min_f32", min_f32(a, b));
	SF32_2("s_max_f32", max_f32(a, b));
	SF32_2("s_minimum_f32", minimum_f32(a, b));
	SF32_2("s_maximum_f32", maximum_f32(a, b));
	SF16_2("s_add_f16", a + b);
	SF16_2("s_sub_f16", a - b);
	SF16_2("s_mul_f16", a * b);
	SF16_2("s_min_f16", min_f32(a, b));
	SF16_2("s_max_f16", max_f32(a, b));
	for (const char* n : {"s_min_num_f32", "s_max_num_f32", "s_min_num_f16", "s_max_num_f16"})
		alias(m, n, std::string(n).erase(5, 4).c_str()); // gfx12's names
	OP("s_fmac_f32", set_scalar(w, I.op[0], as_u32(__builtin_fmaf(scalar_f32(w, I.op[1]), scalar_f32(w, I.op[2]), scalar_f32(w, I.op[0])))));
	OP("s_fmaak_f32", set_scalar(w, I.op[0], as_u32(__builtin_fmaf(scalar_f32(w, I.op[1]), scalar_f32(w, I.op[2]), scalar_f32(w, I.op[3])))));
	alias(m, "s_fmamk_f32", "s_fmaak_f32");
	OP("s_fmac_f16", set_scalar(w, I.op[0], fma_f16(scalar(w, I.op[1]), scalar(w, I.op[2]), scalar(w, I.op[0]))));
	SF32_1("s_ceil_f32", as_u32(std::ceil(a)));
	SF32_1("s_floor_f32", as_u32(std::floor(a)));
	SF32_1("s_trunc_f32", as_u32(std::trunc(a)));
	SF32_1("s_rndne_f32", as_u32(__builtin_roundevenf(a)));
	SF32_1("s_cvt_i32_f32", f32_to_i32(a));
	SF32_1("s_cvt_u32_f32", f32_to_u32(a));
	SF32_1("s_cvt_f16_f32", f32_to_f16(a));
	OP("s_cvt_f32_i32", set_scalar(w, I.op[0], as_u32((float)(i32)scalar(w, I.op[1]))));
	OP("s_cvt_f32_u32", set_scalar(w, I.op[0], as_u32((float)scalar(w, I.op[1]))));
	OP("s_cvt_f32_f16", set_scalar(w, I.op[0], as_u32(scalar_f16(w, I.op[1]))));
	OP("s_cvt_hi_f32_f16", set_scalar(w, I.op[0], as_u32(f16_to_f32(scalar(w, I.op[1]) >> 16))));
	OP("s_cvt_pk_rtz_f16_f32", set_scalar(w, I.op[0], f32_to_f16_toward_zero(scalar_f32(w, I.op[1])) | (u32)f32_to_f16_toward_zero(scalar_f32(w, I.op[2])) << 16));
}
