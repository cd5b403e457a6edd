// Integer arithmetic of the vector unit: 32, 64 and 16 bits, bit fields, carries.
#include "optable.h"
#include <algorithm>

enum CarryKind { ADD, SUB, SUBREV };

// Operands: destination, carry out, a, b and perhaps carry in.
static void with_carry(Wave& w, const Instruction& I, CarryKind kind, bool carry_in) {
	const int W = w.width;
	u64 in = carry_in ? lane_mask(w, I.op[4]) : 0;
	READ2(source);
	u32 r[64], carry[64];
	for (int l = 0; l < W; l++) {
		u32 a = A[l], b = B[l], k = (in >> l) & 1;
		if (kind == SUBREV) std::swap(a, b);
		if (kind == ADD) {
			u64 s = (u64)a + b + k;
			r[l] = I.clamp ? saturate_u32(s) : (u32)s;
			carry[l] = (u32)(s >> 32);
		} else {
			r[l] = a - b - k;
			carry[l] = (u64)b + k > a;
			if (I.clamp && carry[l]) r[l] = 0;
		}
	}
	u64 out = mask_of(carry, W) & w.active;
	write(w, I, LANE(r[l]));
	set_lane_mask(w, I.op[1], out);
}

static void mad_u64(Wave& w, const Instruction& I) {
	READ2(source);
	auto* C = source_64(w, I, 2, false);
	u32 carry[64];
	u64 r[64];
	for (int l = 0; l < w.width; l++) {
		unsigned __int128 x = (unsigned __int128)((u64)A[l] * B[l]) + C[l];
		r[l] = (u64)x;
		carry[l] = (u32)(x >> 64) != 0;
	}
	u64 out = mask_of(carry, w.width) & w.active;
	write_64(w, I, LANE(r[l]));
	set_lane_mask(w, I.op[1], out);
}

static void mad_i64(Wave& w, const Instruction& I) {
	READ2(source);
	auto* C = source_64(w, I, 2, false);
	u64 r[64];
	for (int l = 0; l < w.width; l++) r[l] = (u64)((i64)(i32)A[l] * (i32)B[l]) + C[l];
	write_64(w, I, LANE(r[l]));
	set_lane_mask(w, I.op[1], 0);
}

// Four bytes out of eight; selectors from 8 on replicate a sign, 0 or 255.
static inline u32 permute_bytes(u32 a, u32 b, u32 selectors) {
	u64 bytes = (u64)a << 32 | b;
	u32 r = 0;
	for (int i = 0; i < 4; i++) {
		u32 s = (selectors >> (i * 8)) & 255, v;
		if (s >= 13)
			v = 255;
		else if (s == 12)
			v = 0;
		else if (s >= 8)
			v = (bytes >> ((s - 8) * 16 + 15)) & 1 ? 255 : 0;
		else
			v = (bytes >> (s * 8)) & 255;
		r |= v << (i * 8);
	}
	return r;
}

static inline u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }
static inline u32 byte_of(u32 x, int i) { return (x >> (8 * i)) & 255; }
static inline u32 sum_of_differences(u32 a, u32 b) {
	u32 s = 0;
	for (int i = 0; i < 4; i++) s += difference(byte_of(a, i), byte_of(b, i));
	return s;
}
static inline u32 lerp_bytes(u32 a, u32 b, u32 c) {
	u32 r = 0;
	for (int i = 0; i < 4; i++) r |= ((byte_of(a, i) + byte_of(b, i) + (byte_of(c, i) & 1)) >> 1 & 255) << (8 * i);
	return r;
}

static inline u32 field_u32(u32 a, u32 shift, u32 bits) { return (a >> shift) & ((1u << bits) - 1); }
static inline i32 low24(u32 x) { return sign_extend(x, 24); }
template <class T> static inline T median(T a, T b, T c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

// Any function of three bits, by its truth table.
static inline u32 truth_table(u32 t, u32 a, u32 b, u32 c) {
	u32 r = 0;
	for (int k = 0; k < 8; k++)
		if ((t >> k) & 1) r |= ((k & 4) ? a : ~a) & ((k & 2) ? b : ~b) & ((k & 1) ? c : ~c);
	return r;
}

static void add_arithmetic(OpTable& m) {
	OP("v_add_nc_u32", READ2(source); if (I.clamp) write(w, I, LANE(saturate_u32((u64)A[l] + B[l]))); else write(w, I, LANE(A[l] + B[l])));
	OP("v_sub_nc_u32", READ2(source); bool c = I.clamp; write(w, I, LANE(c && B[l] > A[l] ? 0u : A[l] - B[l])));
	OP("v_subrev_nc_u32", READ2(source); bool c = I.clamp; write(w, I, LANE(c && A[l] > B[l] ? 0u : B[l] - A[l])));
	U32_2("v_add_nc_i32", I.clamp ? saturate_i32((i64)(i32)a + (i32)b) : a + b);
	U32_2("v_sub_nc_i32", I.clamp ? saturate_i32((i64)(i32)a - (i32)b) : a - b);
	OP("v_add_co_u32", with_carry(w, I, ADD, false));
	OP("v_sub_co_u32", with_carry(w, I, SUB, false));
	OP("v_subrev_co_u32", with_carry(w, I, SUBREV, false));
	OP("v_add_co_ci_u32", with_carry(w, I, ADD, true));
	OP("v_sub_co_ci_u32", with_carry(w, I, SUB, true));
	OP("v_subrev_co_ci_u32", with_carry(w, I, SUBREV, true));
	U32_2("v_mul_lo_u32", a * b);
	U32_2("v_mul_hi_u32", ((u64)a * b) >> 32);
	U32_2("v_mul_hi_i32", ((i64)(i32)a * (i32)b) >> 32);
	U32_2("v_mul_i32_i24", (u32)((i64)sign_extend(a,24) * sign_extend(b,24)));
	U32_2("v_mul_u32_u24", (a & 0xffffff) * (b & 0xffffff));
	U32_2("v_mul_hi_i32_i24", ((i64)sign_extend(a,24) * sign_extend(b,24)) >> 32);
	U32_2("v_mul_hi_u32_u24", ((u64)(a & 0xffffff) * (b & 0xffffff)) >> 32);
	U32_3("v_mad_u32_u24", I.clamp ? saturate_u32((u64)(a & 0xffffff) * (b & 0xffffff) + c) : (a & 0xffffff) * (b & 0xffffff) + c);
	U32_3("v_mad_i32_i24", I.clamp ? saturate_i32((i64)low24(a) * low24(b) + (i32)c) : (u32)((i64)low24(a) * low24(b)) + c);
	U32_2("v_min_i32", (i32)a < (i32)b ? a : b);
	U32_2("v_max_i32", (i32)a > (i32)b ? a : b);
	U32_2("v_min_u32", a < b ? a : b);
	U32_2("v_max_u32", a > b ? a : b);
	U32_3("v_min3_i32", std::min(std::min((i32)a,(i32)b),(i32)c));
	U32_3("v_max3_i32", std::max(std::max((i32)a,(i32)b),(i32)c));
	U32_3("v_min3_u32", std::min(std::min(a,b),c));
	U32_3("v_max3_u32", std::max(std::max(a,b),c));
	U32_3("v_minmax_i32", std::max(std::min((i32)a,(i32)b),(i32)c));
	U32_3("v_maxmin_i32", std::min(std::max((i32)a,(i32)b),(i32)c));
	U32_3("v_minmax_u32", std::max(std::min(a,b),c));
	U32_3("v_maxmin_u32", std::min(std::max(a,b),c));
	U32_3("v_med3_i32", median((i32)a, (i32)b, (i32)c));
	U32_3("v_med3_u32", median(a, b, c));
	U32_3("v_add3_u32", a + b + c);
	U32_3("v_lshl_add_u32", (a << (b & 31)) + c);
	U32_3("v_add_lshl_u32", (a + b) << (c & 31));
	U32_3("v_xad_u32", (a ^ b) + c);
	OP("v_mad_u64_u32", mad_u64(w, I));
	OP("v_mad_i64_i32", mad_i64(w, I));
	OP("v_lshl_add_u64", auto* A = source_64(w, I, 0, false); auto* B = source(w, I, 1); auto* C = source_64(w, I, 2, false);
	   write_64(w, I, LANE((A[l] << (B[l] & 7)) + C[l])));
	OP("v_add_nc_u64", auto *A = source_64(w, I, 0, false), *B = source_64(w, I, 1, false); write_64(w, I, LANE(A[l] + B[l])));
}

static void add_bits(OpTable& m) {
	U32_1("v_not_b32", ~a);
	U32_1("v_bfrev_b32", __builtin_bitreverse32(a));
	U32_1("v_clz_i32_u32", a ? __builtin_clz(a) : ~0u);
	U32_1("v_ctz_i32_b32", a ? __builtin_ctz(a) : ~0u);
	U32_1("v_cls_i32", (a == 0 || a == ~0u) ? ~0u : (u32)__builtin_clz((i32)a < 0 ? ~a : a));
	U32_2("v_lshlrev_b32", b << (a & 31));
	U32_2("v_lshrrev_b32", b >> (a & 31));
	U32_2("v_ashrrev_i32", (i32)b >> (a & 31));
	U32_2("v_lshl_b32", a << (b & 31));
	U32_2("v_and_b32", a & b);
	U32_2("v_or_b32", a | b);
	U32_2("v_xor_b32", a ^ b);
	U32_2("v_xnor_b32", ~(a ^ b));
	U32_3("v_lshl_or_b32", (a << (b & 31)) | c);
	U32_3("v_and_or_b32", (a & b) | c);
	U32_3("v_or3_b32", a | b | c);
	U32_3("v_xor3_b32", a ^ b ^ c);
	U32_3("v_bfe_u32", (c & 31) ? field_u32(a, b & 31, c & 31) : 0);
	U32_3("v_bfe_i32", (c & 31) ? (u32)sign_extend(field_u32((u32)((i32)a >> (b & 31)), 0, c & 31), c & 31) : 0);
	U32_3("v_bfi_b32", (a & b) | (~a & c));
	U32_2("v_bfm_b32", ((1u << (a & 31)) - 1) << (b & 31));
	U32_3("v_alignbit_b32", (u32)(((u64)a << 32 | b) >> (c & 31)));
	U32_3("v_alignbyte_b32", (u32)(((u64)a << 32 | b) >> ((c & 3) * 8)));
	U32_2("v_bcnt_u32_b32", __builtin_popcount(a) + b);
	OP("v_bitop3_b32", READ3(source); u32 t = I.x; write(w, I, LANE(truth_table(t, A[l], B[l], C[l]))));
	OP("v_mbcnt_lo_u32_b32", READ2(source); write(w, I, LANE(B[l] + __builtin_popcount(A[l] & (l >= 32 ? ~0u : (1u << l) - 1)))));
	OP("v_mbcnt_hi_u32_b32", READ2(source); write(w, I, LANE(B[l] + __builtin_popcount(A[l] & (l < 32 ? 0u : (1u << (l - 32)) - 1)))));
	OP("v_lshlrev_b64", READ1(source); auto* B = source_64(w, I, 1, false); write_64(w, I, LANE(B[l] << (A[l] & 63))));
	OP("v_lshrrev_b64", READ1(source); auto* B = source_64(w, I, 1, false); write_64(w, I, LANE(B[l] >> (A[l] & 63))));
	OP("v_ashrrev_i64", READ1(source); auto* B = source_64(w, I, 1, false); write_64(w, I, LANE((u64)((i64)B[l] >> (A[l] & 63)))));
	U32_3("v_perm_b32", permute_bytes(a, b, c));
	U32_3("v_lerp_u8", lerp_bytes(a, b, c));
	U32_3("v_sad_u8", sum_of_differences(a, b) + c);
	U32_3("v_sad_hi_u8", (sum_of_differences(a, b) << 16) + c);
	U32_3("v_sad_u16", difference(a & 0xffff, b & 0xffff) + difference(a >> 16, b >> 16) + c);
	U32_3("v_sad_u32", difference(a, b) + c);
}

static void add_16_bit(OpTable& m) {
	U16_2("v_add_nc_u16", I.clamp ? saturate_u16((i32)a + b) : a + b);
	U16_2("v_sub_nc_u16", I.clamp ? saturate_u16((i32)a - b) : a - b);
	U16_2("v_subrev_nc_u16", I.clamp ? saturate_u16((i32)b - a) : b - a);
	U16_2("v_add_nc_i16", I.clamp ? saturate_i16((i32)(i16)a + (i16)b) : a + b);
	U16_2("v_sub_nc_i16", I.clamp ? saturate_i16((i32)(i16)a - (i16)b) : a - b);
	U16_2("v_mul_lo_u16", (u32)a * b);
	U16_2("v_max_u16", a > b ? a : b);
	U16_2("v_min_u16", a < b ? a : b);
	U16_2("v_max_i16", (i16)a > (i16)b ? a : b);
	U16_2("v_min_i16", (i16)a < (i16)b ? a : b);
	U16_2("v_lshlrev_b16", b << (a & 15));
	U16_2("v_lshrrev_b16", b >> (a & 15));
	U16_2("v_ashrrev_i16", (i16)b >> (a & 15));
	U16_2("v_and_b16", a & b);
	U16_2("v_or_b16", a | b);
	U16_2("v_xor_b16", a ^ b);
	U16_3("v_mad_u16", I.clamp ? (u16)std::min<u64>((u64)a * b + c, 65535) : (u32)a * b + c);
	U16_3("v_mad_i16", I.clamp ? saturate_i16((i32)(i16)a * (i16)b + (i16)c) : (i32)(i16)a * (i16)b + (i16)c);
	U16_3("v_min3_i16", std::min(std::min((i16)a,(i16)b),(i16)c));
	U16_3("v_max3_i16", std::max(std::max((i16)a,(i16)b),(i16)c));
	U16_3("v_min3_u16", std::min(std::min(a,b),c));
	U16_3("v_max3_u16", std::max(std::max(a,b),c));
	U16_3("v_med3_u16", median(a, b, c));
	U16_3("v_med3_i16", median((i16)a, (i16)b, (i16)c));
	OP("v_mad_u32_u16", READ2(source_16); auto* C = source(w, I, 2); write(w, I, LANE((A[l] & 0xffff) * (B[l] & 0xffff) + C[l])));
	OP("v_mad_i32_i16", READ2(source_16); auto* C = source(w, I, 2); write(w, I, LANE((u32)((i32)(i16)A[l] * (i16)B[l]) + C[l])));
	OP("v_cvt_i32_i16", READ1(source_16); write(w, I, LANE((u32)(i32)(i16)A[l])));
	OP("v_cvt_u32_u16", READ1(source_16); write(w, I, LANE(A[l] & 0xffff)));
	OP("v_sat_pk_u8_i16", READ1(source); auto f = [](i16 x) -> u32 { return x <= 0 ? 0 : x >= 255 ? 255 : x; };
	   write(w, I, LANE(f((i16)A[l]) | f((i16)(A[l] >> 16)) << 8)));
}

// Names that gfx9 and gfx10 use for the same things.
static void add_older_names(OpTable& m) {
	for (const char* n : {"add", "sub", "subrev"}) {
		std::string s = n;
		alias(m, ("v_" + s + "_u32").c_str(), ("v_" + s + "_nc_u32").c_str());
		alias(m, ("v_" + s + "_u16").c_str(), ("v_" + s + "_nc_u16").c_str());
	}
	for (const char* n : {"add", "sub"}) {
		std::string s = n;
		alias(m, ("v_" + s + "_i32").c_str(), ("v_" + s + "_nc_i32").c_str());
		alias(m, ("v_" + s + "_i16").c_str(), ("v_" + s + "_nc_i16").c_str());
	}
	alias(m, "v_addc_co_u32", "v_add_co_ci_u32");
	alias(m, "v_subb_co_u32", "v_sub_co_ci_u32");
	alias(m, "v_subbrev_co_u32", "v_subrev_co_ci_u32");
	alias(m, "v_ffbh_u32", "v_clz_i32_u32");
	alias(m, "v_ffbl_b32", "v_ctz_i32_b32");
	alias(m, "v_ffbh_i32", "v_cls_i32");
	alias(m, "v_mad_legacy_u16", "v_mad_u16");
	alias(m, "v_mad_co_u64_u32", "v_mad_u64_u32"); // and a newer one
	alias(m, "v_mad_co_i64_i32", "v_mad_i64_i32");
}

void add_integers(OpTable& m) {
	add_arithmetic(m);
	add_bits(m);
	add_16_bit(m);
	add_older_names(m);
}
