// Comparisons: v_cmp writes a mask of lanes, v_cmpx writes EXEC (and on gfx9 the mask too).
#include "optable.h"

template <int COND, class T> static inline bool compare_integers(T a, T b) {
	switch (COND) {
	case 0: return false;
	case 1: return a < b;
	case 2: return a == b;
	case 3: return a <= b;
	case 4: return a > b;
	case 5: return a != b;
	case 6: return a >= b;
	default: return true;
	}
}

// The conditions in the order of their encoding; from o (ordered) on they differ in what NaN does.
static const char* const float_conditions[16] = {
    "f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t"};

template <int COND, class T> static inline bool compare_floats(T a, T b) {
	switch (COND) {
	case 0: return false;
	case 1: return a < b;
	case 2: return a == b;
	case 3: return a <= b;
	case 4: return a > b;
	case 5: return a < b || a > b;
	case 6: return a >= b;
	case 7: return a == a && b == b;
	case 8: return a != a || b != b;
	case 9: return !(a >= b);
	case 10: return !(a < b || a > b);
	case 11: return !(a > b);
	case 12: return !(a <= b);
	case 13: return !(a == b);
	case 14: return !(a < b);
	default: return true;
	}
}

// Writes the mask of the active lanes where p holds.
template <class P> INLINE void compare(Wave& w, const Instruction& I, bool to_exec, P p) {
	const int W = w.width;
	__builtin_assume(W == 32 || W == 64);
	alignas(64) u32 c[64];
	for (int l = 0; l < W; l++) c[l] = p(l) ? 1 : 0;
	u64 mask = mask_of(c, W) & w.active;
	if (to_exec) {
		w.sgpr[SG_EXEC] = (u32)mask;
		if (W == 64) w.sgpr[SG_EXEC + 1] = (u32)(mask >> 32);
		if (!I.first) return; // the mask has no register of its own
	}
	set_lane_mask(w, I.op[0], mask);
}

#define COMPARE(type, T, reader, convert, function) \
	template <int COND, bool X> static void compare_##type(Wave& w, const Instruction& I) { \
		READ2(reader); \
		compare(w, I, X, LANE(function<COND, T>(convert(A[l]), convert(B[l])))); \
	}
#define COMPARE64(type, T, is_float, convert, function) \
	template <int COND, bool X> static void compare_##type(Wave& w, const Instruction& I) { \
		auto *A = source_64(w, I, 0, is_float), *B = source_64(w, I, 1, is_float); \
		compare(w, I, X, LANE(function<COND, T>(convert(A[l]), convert(B[l])))); \
	}
COMPARE(f32, float, source_f32, as_f32, compare_floats)
COMPARE(f16, float, source_16, f16_to_f32, compare_floats)
COMPARE64(f64, double, true, as_f64, compare_floats)
COMPARE(i32, i32, source, (i32), compare_integers)
COMPARE(u32, u32, source, (u32), compare_integers)
COMPARE(i16, i16, source_16, (i16), compare_integers)
COMPARE(u16, u16, source_16, (u16), compare_integers)
COMPARE64(i64, i64, false, (i64), compare_integers)
COMPARE64(u64, u64, false, (u64), compare_integers)

// Whether a float belongs to one of the classes of set: signalling NaN, quiet NaN,
// -infinity, -normal, -denormal, -0, +0, +denormal, +normal, +infinity.
static inline bool is_class(u64 sign, u64 exponent, u64 max_exponent, u64 mantissa, u64 quiet_bit, u32 set) {
	u32 c;
	if (exponent == max_exponent)
		c = mantissa == 0 ? (sign ? 2 : 9) : (mantissa & quiet_bit) ? 1 : 0;
	else if (exponent == 0)
		c = mantissa == 0 ? (sign ? 5 : 6) : (sign ? 4 : 7);
	else
		c = sign ? 3 : 8;
	return (set >> c) & 1;
}
static inline bool is_class32(u32 u, u32 set) {
	return is_class(u >> 31, (u >> 23) & 255, 255, u & 0x7fffff, 0x400000, set);
}
static inline bool is_class16(u32 u, u32 set) {
	return is_class((u >> 15) & 1, (u >> 10) & 31, 31, u & 0x3ff, 0x200, set);
}
static inline bool is_class64(u64 u, u32 set) {
	return is_class(u >> 63, (u >> 52) & 2047, 2047, u & ((1ull << 52) - 1), 1ull << 51, set);
}
template <bool X> static void class_f32(Wave& w, const Instruction& I) {
	auto *A = source_f32(w, I, 0), *B = source(w, I, 1);
	compare(w, I, X, LANE(is_class32(A[l], B[l])));
}
template <bool X> static void class_f16(Wave& w, const Instruction& I) {
	auto *A = source_16(w, I, 0), *B = source(w, I, 1);
	compare(w, I, X, LANE(is_class16(A[l], B[l])));
}
template <bool X> static void class_f64(Wave& w, const Instruction& I) {
	auto* A = source_64(w, I, 0, true);
	auto* B = source(w, I, 1);
	compare(w, I, X, LANE(is_class64(A[l], B[l])));
}

#define BOTH(type) \
	m["v_cmp_" + c + "_" #type] = compare_##type<COND, false>; \
	m["v_cmpx_" + c + "_" #type] = compare_##type<COND, true>;
template <int COND> static void add_float_condition(OpTable& m, const std::string& c) { BOTH(f32) BOTH(f16) BOTH(f64) }
template <int COND> static void add_integer_condition(OpTable& m, const std::string& c) {
	BOTH(i32) BOTH(u32) BOTH(i16) BOTH(u16) BOTH(i64) BOTH(u64)
}

template <int... COND> static void add_float_conditions(OpTable& m, std::integer_sequence<int, COND...>) {
	(add_float_condition<COND>(m, float_conditions[COND]), ...);
}

void add_compares(OpTable& m) {
	add_float_conditions(m, std::make_integer_sequence<int, 16>());
	add_float_condition<15>(m, "tru");
	add_integer_condition<0>(m, "f");
	add_integer_condition<1>(m, "lt");
	add_integer_condition<2>(m, "eq");
	add_integer_condition<3>(m, "le");
	add_integer_condition<4>(m, "gt");
	add_integer_condition<5>(m, "ne");
	add_integer_condition<6>(m, "ge");
	add_integer_condition<7>(m, "t");
	m["v_cmp_class_f32"] = class_f32<false>;
	m["v_cmpx_class_f32"] = class_f32<true>;
	m["v_cmp_class_f16"] = class_f16<false>;
	m["v_cmpx_class_f16"] = class_f16<true>;
	m["v_cmp_class_f64"] = class_f64<false>;
	m["v_cmpx_class_f64"] = class_f64<true>;
}
