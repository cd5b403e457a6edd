// Dot products of 2 halves, 4 bytes or 8 nibbles in a register, added to a third
// operand. Sums are taken in index order, each step fused: the last bits of a
// float result may differ from hardware.
#include "optable.h"

static inline float dot2_f16(u32 a, u32 b, float c) {
	c = fmaf(f16_to_f32(a), f16_to_f32(b), c);
	return fmaf(f16_to_f32(a >> 16), f16_to_f32(b >> 16), c);
}
static inline float dot2_bf16(u32 a, u32 b, float c) {
	c = fmaf(bf16_to_f32(a), bf16_to_f32(b), c);
	return fmaf(bf16_to_f32(a >> 16), bf16_to_f32(b >> 16), c);
}

static void dot2_f32_f16(Wave& w, const Instruction& I, const u32* A, const u32* B, const u32* C, bool negate) {
	const int W = w.width;
	alignas(64) float a0[64], b0[64], a1[64], b1[64];
	f16_lanes_to_f32(A, 0, a0, W);
	f16_lanes_to_f32(B, 0, b0, W);
	f16_lanes_to_f32(A, 16, a1, W);
	f16_lanes_to_f32(B, 16, b1, W);
	const float *x = a0, *y = b0, *u = a1, *v = b1;
	u32 flip = negate ? 0x80000000u : 0;
	write_f32(w, I, LANE(__builtin_fmaf(u[l], v[l], __builtin_fmaf(x[l], y[l], as_f32(C[l] ^ flip)))));
}

// Exact sums of N products of fields of BITS bits.
template <int BITS> static inline i64 dot_fields(u32 a, u32 b, bool a_signed, bool b_signed) {
	i64 r = 0;
	for (int i = 0; i < 32; i += BITS) {
		u32 x = (a >> i) & ((1u << BITS) - 1), y = (b >> i) & ((1u << BITS) - 1);
		r += (i64)(a_signed ? sign_extend(x, BITS) : (i32)x) * (b_signed ? sign_extend(y, BITS) : (i32)y);
	}
	return r;
}
static inline u32 saturate(i64 r, bool to_unsigned) { return to_unsigned ? saturate_u32(r < 0 ? 0 : (u64)r) : saturate_i32(r); }

// Four bytes, signed or not, written for the host's vector unit.
static inline u32 dot4_ss(u32 a, u32 b) {
	return (u32)((i32)(i8)a * (i8)b + (i32)(i8)(a >> 8) * (i8)(b >> 8) + (i32)(i8)(a >> 16) * (i8)(b >> 16) + ((i32)a >> 24) * ((i32)b >> 24));
}
static inline u32 dot4_us(u32 a, u32 b) {
	return (u32)((i32)(u8)a * (i8)b + (i32)(u8)(a >> 8) * (i8)(b >> 8) + (i32)(u8)(a >> 16) * (i8)(b >> 16) + (i32)(a >> 24) * ((i32)b >> 24));
}
static inline u32 dot4_uu(u32 a, u32 b) {
	return (u32)(u8)a * (u8)b + (u32)(u8)(a >> 8) * (u8)(b >> 8) + (u32)(u8)(a >> 16) * (u8)(b >> 16) + (a >> 24) * (b >> 24);
}

static void dot4(Wave& w, const Instruction& I, const u32* A, const u32* B, const u32* C, bool a_signed, bool b_signed, bool to_unsigned) {
	if (I.clamp)
		write(w, I, LANE(saturate(dot_fields<8>(A[l], B[l], a_signed, b_signed) + (to_unsigned ? (i64)C[l] : (i64)(i32)C[l]), to_unsigned)));
	else if (a_signed && b_signed)
		write(w, I, LANE(dot4_ss(A[l], B[l]) + C[l]));
	else if (!a_signed && !b_signed)
		write(w, I, LANE(dot4_uu(A[l], B[l]) + C[l]));
	else if (b_signed)
		write(w, I, LANE(dot4_us(A[l], B[l]) + C[l]));
	else
		write(w, I, LANE(dot4_us(B[l], A[l]) + C[l]));
}

static void dot8(Wave& w, const Instruction& I, const u32* A, const u32* B, const u32* C, bool a_signed, bool b_signed, bool to_unsigned) {
	if (I.clamp)
		write(w, I, LANE(saturate(dot_fields<4>(A[l], B[l], a_signed, b_signed) + (to_unsigned ? (i64)C[l] : (i64)(i32)C[l]), to_unsigned)));
	else
		write(w, I, LANE((u32)dot_fields<4>(A[l], B[l], a_signed, b_signed) + C[l]));
}

// The accumulating forms add to their destination.
#define ALL_THREE source(w, I, 0), source(w, I, 1), source(w, I, 2)
#define ACCUMULATE source(w, I, 0), source(w, I, 1), vgpr(w, I.op[0].idx)

static void add_float_dots(OpTable& m) {
	OP("v_dot2_f32_f16", dot2_f32_f16(w, I, source_packed(w, I, 0, true), source_packed(w, I, 1, true), source_f32(w, I, 2), I.neg_lo[2]));
	OP("v_dot2_f32_bf16", auto *A = source_packed(w, I, 0, true), *B = source_packed(w, I, 1, true), *C = source_f32(w, I, 2); u32 flip = I.neg_lo[2] ? 0x80000000u : 0;
	   write_f32(w, I, LANE(dot2_bf16(A[l], B[l], as_f32(C[l] ^ flip)))));
	OP("v_dot2acc_f32_f16", dot2_f32_f16(w, I, ACCUMULATE, false));
	OP("v_dot2acc_f32_bf16", READ2(source); auto* C = vgpr(w, I.op[0].idx); write_f32(w, I, LANE(dot2_bf16(A[l], B[l], as_f32(C[l])))));
	alias(m, "v_dot2c_f32_f16", "v_dot2acc_f32_f16");
	alias(m, "v_dot2c_f32_bf16", "v_dot2acc_f32_bf16");
	OP("v_dot2_f16_f16", READ2(source); auto* C = source_16(w, I, 2); write_16(w, I, 3, LANE(f32_to_f16(dot2_f16(A[l], B[l], f16_to_f32(C[l])))), true));
	OP("v_dot2_bf16_bf16", READ2(source); auto* C = source_16(w, I, 2); write_16(w, I, 3, LANE(f32_to_bf16(dot2_bf16(A[l], B[l], bf16_to_f32(C[l])))), true));
}

void add_dots(OpTable& m) {
	add_float_dots(m);
	OP("v_dot4_i32_iu8", dot4(w, I, ALL_THREE, I.neg_lo[0], I.neg_lo[1], false)); // neg_lo: the operand is signed
	OP("v_dot4_i32_i8", dot4(w, I, ALL_THREE, true, true, false));
	OP("v_dot4_u32_u8", dot4(w, I, ALL_THREE, false, false, true));
	OP("v_dot4c_i32_i8", dot4(w, I, ACCUMULATE, true, true, false));
	OP("v_dot8_i32_iu4", dot8(w, I, ALL_THREE, I.neg_lo[0], I.neg_lo[1], false));
	OP("v_dot8_i32_i4", dot8(w, I, ALL_THREE, true, true, false));
	OP("v_dot8_u32_u4", dot8(w, I, ALL_THREE, false, false, true));
	OP("v_dot8c_i32_i4", dot8(w, I, ACCUMULATE, true, true, false));
	OP("v_dot2_i32_i16", auto *A = source_packed(w, I, 0, false), *B = source_packed(w, I, 1, false), *C = source(w, I, 2);
	   write(w, I, LANE((u32)((i32)(i16)A[l] * (i16)B[l] + (i32)(i16)(A[l] >> 16) * (i16)(B[l] >> 16)) + C[l])));
	OP("v_dot2_u32_u16", auto *A = source_packed(w, I, 0, false), *B = source_packed(w, I, 1, false), *C = source(w, I, 2);
	   write(w, I, LANE((A[l] & 0xffff) * (B[l] & 0xffff) + (A[l] >> 16) * (B[l] >> 16) + C[l])));
}
