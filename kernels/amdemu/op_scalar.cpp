// Integer instructions of the scalar unit. In a line of the table a and b are the
// sources, r is the result; SCC is set where the instruction sets it.
#include "optable.h"

#define S32_1(name, ...) OP(name, u32 a = scalar(w, I.op[1]); u32 r; __VA_ARGS__; set_scalar(w, I.op[0], r))
#define S32_2(name, ...) OP(name, u32 a = scalar(w, I.op[1]); u32 b = scalar(w, I.op[2]); u32 r; __VA_ARGS__; set_scalar(w, I.op[0], r))
#define S64_1(name, ...) OP(name, u64 a = scalar64(w, I.op[1]); u64 r; __VA_ARGS__; set_scalar64(w, I.op[0], r))
#define S64_2(name, ...) OP(name, u64 a = scalar64(w, I.op[1]); u64 b = scalar64(w, I.op[2]); u64 r; __VA_ARGS__; set_scalar64(w, I.op[0], r))
#define S64_SHIFT(name, ...) OP(name, u64 a = scalar64(w, I.op[1]); u32 b = scalar(w, I.op[2]); u64 r; __VA_ARGS__; set_scalar64(w, I.op[0], r))
#define S64_TO_S32(name, ...) OP(name, u64 a = scalar64(w, I.op[1]); u32 r; __VA_ARGS__; set_scalar(w, I.op[0], r))
#define SCC_32(name, ...) OP(name, u32 a = scalar(w, I.op[0]); u32 b = scalar(w, I.op[1]); w.scc = (__VA_ARGS__))
#define SCC_64(name, ...) OP(name, u64 a = scalar64(w, I.op[0]); u64 b = scalar64(w, I.op[1]); w.scc = (__VA_ARGS__))
#define SCC_BIT64(name, ...) OP(name, u64 a = scalar64(w, I.op[0]); u32 b = scalar(w, I.op[1]); w.scc = (__VA_ARGS__))
#define SCC_K(name, ...) OP(name, u32 a = scalar(w, I.op[0]); i32 k = I.simm; w.scc = (__VA_ARGS__))

// Every group of four bits: all ones where any was one, or one bit for the four.
static u64 whole_quads(u64 a) {
	u64 r = 0;
	for (int i = 0; i < 64; i += 4)
		if ((a >> i) & 15) r |= 15ull << i;
	return r;
}
static u64 any_of_quads(u64 a) {
	u64 r = 0;
	for (int i = 0; i < 64; i += 4)
		if ((a >> i) & 15) r |= 1ull << (i / 4);
	return r;
}
static u64 twice_each_bit(u32 a) {
	u64 r = 0;
	for (int i = 0; i < 32; i++)
		if ((a >> i) & 1) r |= 3ull << (2 * i);
	return r;
}

// Field of a: b holds its offset and in bits 16 to 22 its width.
static u32 field_u32(u32 a, u32 b) {
	u32 n = (b >> 16) & 0x7f, x = a >> (b & 31);
	return n == 0 ? 0 : n >= 32 ? x : x & ((1u << n) - 1);
}
static u32 field_i32(u32 a, u32 b) {
	u32 n = (b >> 16) & 0x7f;
	i32 x = (i32)a >> (b & 31);
	return n == 0 ? 0 : n >= 32 ? (u32)x : (u32)sign_extend((u32)x & ((1u << n) - 1), (int)n);
}
static u64 field_u64(u64 a, u32 b) {
	u32 n = (b >> 16) & 0x7f;
	u64 x = a >> (b & 63);
	return n == 0 ? 0 : n >= 64 ? x : x & ((1ull << n) - 1);
}
static u64 field_i64(u64 a, u32 b) {
	u32 n = (b >> 16) & 0x7f;
	i64 x = (i64)a >> (b & 63);
	return n == 0 ? 0 : n >= 64 ? (u64)x : (u64)((i64)((u64)x << (64 - n)) >> (64 - n));
}

static void add_moves_of_scalars(OpTable& m) {
	S32_1("s_mov_b32", r = a);
	S64_1("s_mov_b64", r = a);
	OP("s_movk_i32", set_scalar(w, I.op[0], I.simm));
	OP("s_cmovk_i32", if (w.scc) set_scalar(w, I.op[0], I.simm));
	OP("s_cmov_b32", if (w.scc) set_scalar(w, I.op[0], scalar(w, I.op[1])));
	OP("s_cmov_b64", if (w.scc) set_scalar64(w, I.op[0], scalar64(w, I.op[1])));
	S32_2("s_cselect_b32", r = w.scc ? a : b);
	S64_2("s_cselect_b64", r = w.scc ? a : b);
	OP("s_movrels_b32", set_scalar(w, I.op[0], w.sgpr[I.op[1].idx + w.sgpr[SG_M0]]));
	OP("s_movreld_b32", w.sgpr[I.op[0].idx + w.sgpr[SG_M0]] = scalar(w, I.op[1]));
	OP("s_movrels_b64", set_scalar64(w, I.op[0], pair(&w.sgpr[I.op[1].idx + w.sgpr[SG_M0]])));
	OP("s_movreld_b64", set_pair(&w.sgpr[I.op[0].idx + w.sgpr[SG_M0]], scalar64(w, I.op[1])));
	OP("s_movrelsd_2_b32", u32 m0 = w.sgpr[SG_M0]; w.sgpr[I.op[0].idx + ((m0 >> 16) & 0x3ff)] = w.sgpr[I.op[1].idx + (m0 & 0x3ff)]);
}

static void add_arithmetic(OpTable& m) {
	S32_2("s_add_u32", u64 t = (u64)a + b; r = (u32)t; w.scc = t >> 32);
	S32_2("s_sub_u32", r = a - b; w.scc = b > a);
	S32_2("s_addc_u32", u64 t = (u64)a + b + w.scc; r = (u32)t; w.scc = t >> 32);
	S32_2("s_subb_u32", u64 t = (u64)b + w.scc; r = a - b - w.scc; w.scc = t > a);
	S32_2("s_add_i32", i64 t = (i64)(i32)a + (i32)b; r = (u32)t; w.scc = t != (i32)t);
	S32_2("s_sub_i32", i64 t = (i64)(i32)a - (i32)b; r = (u32)t; w.scc = t != (i32)t);
	for (const char* n : {"add", "sub"}) {
		std::string s = std::string("s_") + n;
		alias(m, (s + "_co_u32").c_str(), (s + "_u32").c_str());
		alias(m, (s + "_co_i32").c_str(), (s + "_i32").c_str());
	}
	alias(m, "s_add_co_ci_u32", "s_addc_u32");
	alias(m, "s_sub_co_ci_u32", "s_subb_u32");
	S32_2("s_absdiff_i32", i32 t = (i32)(a - b); r = t < 0 ? 0u - (u32)t : (u32)t; w.scc = r != 0);
	S32_2("s_min_i32", w.scc = (i32)a < (i32)b; r = w.scc ? a : b);
	S32_2("s_min_u32", w.scc = a < b; r = w.scc ? a : b);
	S32_2("s_max_i32", w.scc = (i32)a >= (i32)b; r = w.scc ? a : b);
	S32_2("s_max_u32", w.scc = a >= b; r = w.scc ? a : b);
	S32_2("s_mul_i32", r = a * b);
	S32_2("s_mul_hi_u32", r = ((u64)a * b) >> 32);
	S32_2("s_mul_hi_i32", r = ((i64)(i32)a * (i32)b) >> 32);
	S64_2("s_add_nc_u64", r = a + b);
	S64_2("s_sub_nc_u64", r = a - b);
	alias(m, "s_add_u64", "s_add_nc_u64");
	alias(m, "s_sub_u64", "s_sub_nc_u64");
	S64_2("s_mul_u64", r = a * b);
	OP("s_addk_i32", i64 t = (i64)(i32)scalar(w, I.op[0]) + I.simm; set_scalar(w, I.op[0], (u32)t); w.scc = t != (i32)t);
	alias(m, "s_addk_co_i32", "s_addk_i32");
	OP("s_mulk_i32", set_scalar(w, I.op[0], scalar(w, I.op[0]) * (u32)I.simm));
	S32_2("s_lshl1_add_u32", u64 t = ((u64)a << 1) + b; r = (u32)t; w.scc = (t >> 32) != 0);
	S32_2("s_lshl2_add_u32", u64 t = ((u64)a << 2) + b; r = (u32)t; w.scc = (t >> 32) != 0);
	S32_2("s_lshl3_add_u32", u64 t = ((u64)a << 3) + b; r = (u32)t; w.scc = (t >> 32) != 0);
	S32_2("s_lshl4_add_u32", u64 t = ((u64)a << 4) + b; r = (u32)t; w.scc = (t >> 32) != 0);
	S32_1("s_abs_i32", r = (i32)a < 0 ? 0u - a : a; w.scc = r != 0);
	S32_1("s_sext_i32_i8", r = (u32)(i32)(i8)a);
	S32_1("s_sext_i32_i16", r = (u32)(i32)(i16)a);
}

// Each in 32 and in 64 bits.
#define LOGIC(name, ...) \
	S32_2("s_" name "_b32", r = (__VA_ARGS__); w.scc = r != 0); \
	S64_2("s_" name "_b64", r = (__VA_ARGS__); w.scc = r != 0)
static void add_logic(OpTable& m) {
	LOGIC("and", a & b);
	LOGIC("or", a | b);
	LOGIC("xor", a ^ b);
	LOGIC("nand", ~(a & b));
	LOGIC("nor", ~(a | b));
	LOGIC("xnor", ~(a ^ b));
	LOGIC("and_not1", a & ~b);
	LOGIC("or_not1", a | ~b);
	LOGIC("andn2", a & ~b);
	LOGIC("orn2", a | ~b);
	S32_1("s_not_b32", r = ~a; w.scc = r != 0);
	S64_1("s_not_b64", r = ~a; w.scc = r != 0);
	S32_2("s_lshl_b32", r = a << (b & 31); w.scc = r != 0);
	S32_2("s_lshr_b32", r = a >> (b & 31); w.scc = r != 0);
	S32_2("s_ashr_i32", r = (u32)((i32)a >> (b & 31)); w.scc = r != 0);
	S64_SHIFT("s_lshl_b64", r = a << (b & 63); w.scc = r != 0);
	S64_SHIFT("s_lshr_b64", r = a >> (b & 63); w.scc = r != 0);
	S64_SHIFT("s_ashr_i64", r = (u64)((i64)a >> (b & 63)); w.scc = r != 0);
	S32_2("s_pack_ll_b32_b16", r = (a & 0xffff) | b << 16);
	S32_2("s_pack_lh_b32_b16", r = (a & 0xffff) | (b & 0xffff0000));
	S32_2("s_pack_hh_b32_b16", r = a >> 16 | (b & 0xffff0000));
	S32_2("s_pack_hl_b32_b16", r = a >> 16 | b << 16);
}

static void add_bits(OpTable& m) {
	S32_2("s_bfe_u32", r = field_u32(a, b); w.scc = r != 0);
	S32_2("s_bfe_i32", r = field_i32(a, b); w.scc = r != 0);
	S64_SHIFT("s_bfe_u64", r = field_u64(a, b); w.scc = r != 0);
	S64_SHIFT("s_bfe_i64", r = field_i64(a, b); w.scc = r != 0);
	S32_2("s_bfm_b32", r = ((1u << (a & 31)) - 1) << (b & 31));
	OP("s_bfm_b64", u32 a = scalar(w, I.op[1]); u32 b = scalar(w, I.op[2]); set_scalar64(w, I.op[0], ((1ull << (a & 63)) - 1) << (b & 63)));
	S32_1("s_brev_b32", r = __builtin_bitreverse32(a));
	S64_1("s_brev_b64", r = __builtin_bitreverse64(a));
	S32_1("s_bcnt0_i32_b32", r = 32 - __builtin_popcount(a); w.scc = r != 0);
	S32_1("s_bcnt1_i32_b32", r = __builtin_popcount(a); w.scc = r != 0);
	S64_TO_S32("s_bcnt0_i32_b64", r = 64 - __builtin_popcountll(a); w.scc = r != 0);
	S64_TO_S32("s_bcnt1_i32_b64", r = __builtin_popcountll(a); w.scc = r != 0);
	S32_1("s_ctz_i32_b32", r = a ? __builtin_ctz(a) : ~0u);
	S64_TO_S32("s_ctz_i32_b64", r = a ? __builtin_ctzll(a) : ~0u);
	S32_1("s_clz_i32_u32", r = a ? __builtin_clz(a) : ~0u);
	S64_TO_S32("s_clz_i32_u64", r = a ? __builtin_clzll(a) : ~0u);
	S32_1("s_cls_i32", r = (a == 0 || a == ~0u) ? ~0u : __builtin_clz((i32)a < 0 ? ~a : a));
	S64_TO_S32("s_cls_i32_i64", r = (a == 0 || a == ~0ull) ? ~0u : __builtin_clzll((i64)a < 0 ? ~a : a));
	for (auto [older, newer] : {std::pair{"s_ff1_i32_b32", "s_ctz_i32_b32"}, {"s_ff1_i32_b64", "s_ctz_i32_b64"}, {"s_flbit_i32_b32", "s_clz_i32_u32"},
	         {"s_flbit_i32_b64", "s_clz_i32_u64"}, {"s_flbit_i32", "s_cls_i32"}, {"s_flbit_i32_i64", "s_cls_i32_i64"}})
		alias(m, older, newer);
	OP("s_bitset0_b32", set_scalar(w, I.op[0], scalar(w, I.op[0]) & ~(1u << (scalar(w, I.op[1]) & 31))));
	OP("s_bitset1_b32", set_scalar(w, I.op[0], scalar(w, I.op[0]) | (1u << (scalar(w, I.op[1]) & 31))));
	OP("s_bitset0_b64", set_scalar64(w, I.op[0], scalar64(w, I.op[0]) & ~(1ull << (scalar(w, I.op[1]) & 63))));
	OP("s_bitset1_b64", set_scalar64(w, I.op[0], scalar64(w, I.op[0]) | (1ull << (scalar(w, I.op[1]) & 63))));
	OP("s_bitreplicate_b64_b32", set_scalar64(w, I.op[0], twice_each_bit(scalar(w, I.op[1]))));
	S32_1("s_wqm_b32", r = (u32)whole_quads(a); w.scc = r != 0);
	S64_1("s_wqm_b64", r = whole_quads(a); w.scc = r != 0);
	S32_1("s_quadmask_b32", r = (u32)any_of_quads(a); w.scc = r != 0);
	S64_1("s_quadmask_b64", r = any_of_quads(a); w.scc = r != 0);
}

static void add_compares_of_scalars(OpTable& m) {
	SCC_32("s_cmp_eq_i32", (i32)a == (i32)b);
	SCC_32("s_cmp_eq_u32", a == b);
	SCC_K("s_cmpk_eq_i32", (i32)a == k);
	SCC_K("s_cmpk_eq_u32", a == (u32)(k & 0xffff));
	SCC_32("s_cmp_lg_i32", (i32)a != (i32)b);
	SCC_32("s_cmp_lg_u32", a != b);
	SCC_K("s_cmpk_lg_i32", (i32)a != k);
	SCC_K("s_cmpk_lg_u32", a != (u32)(k & 0xffff));
	SCC_32("s_cmp_gt_i32", (i32)a > (i32)b);
	SCC_32("s_cmp_gt_u32", a > b);
	SCC_K("s_cmpk_gt_i32", (i32)a > k);
	SCC_K("s_cmpk_gt_u32", a > (u32)(k & 0xffff));
	SCC_32("s_cmp_ge_i32", (i32)a >= (i32)b);
	SCC_32("s_cmp_ge_u32", a >= b);
	SCC_K("s_cmpk_ge_i32", (i32)a >= k);
	SCC_K("s_cmpk_ge_u32", a >= (u32)(k & 0xffff));
	SCC_32("s_cmp_lt_i32", (i32)a < (i32)b);
	SCC_32("s_cmp_lt_u32", a < b);
	SCC_K("s_cmpk_lt_i32", (i32)a < k);
	SCC_K("s_cmpk_lt_u32", a < (u32)(k & 0xffff));
	SCC_32("s_cmp_le_i32", (i32)a <= (i32)b);
	SCC_32("s_cmp_le_u32", a <= b);
	SCC_K("s_cmpk_le_i32", (i32)a <= k);
	SCC_K("s_cmpk_le_u32", a <= (u32)(k & 0xffff));
	SCC_64("s_cmp_eq_u64", a == b);
	SCC_64("s_cmp_lg_u64", a != b);
	SCC_32("s_bitcmp0_b32", !((a >> (b & 31)) & 1));
	SCC_32("s_bitcmp1_b32", (a >> (b & 31)) & 1);
	SCC_BIT64("s_bitcmp0_b64", !((a >> (b & 63)) & 1));
	SCC_BIT64("s_bitcmp1_b64", (a >> (b & 63)) & 1);
}

void add_scalars(OpTable& m) {
	add_moves_of_scalars(m);
	add_arithmetic(m);
	add_logic(m);
	add_bits(m);
	add_compares_of_scalars(m);
}
