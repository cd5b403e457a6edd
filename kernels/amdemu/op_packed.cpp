// Two values per lane: pairs of 16-bit integers in a register, pairs of float32
// in two (gfx90a and later).
#include "optable.h"

// Half h of source p of a packed float32 instruction: register or register + 1, by op_sel.
struct PackedSource {
	const u32* lanes; // nullptr: the same value for all lanes
	u32 value, flip;
	u32 operator()(int l) const { return (lanes ? lanes[l] : value) ^ flip; }
};
static PackedSource packed_f32(Wave& w, const Instruction& I, int p, int h) {
	const Operand& o = I.op[I.first + p];
	bool second = h ? I.op_sel_hi[p] : (I.n_op_sel ? I.op_sel[p] : false);
	u32 flip = (h ? I.neg_hi[p] : I.neg_lo[p]) ? 0x80000000u : 0;
	switch (o.kind) {
	case K_V: return {vgpr(w, o.idx + second), 0, flip};
	case K_S: return {nullptr, w.sgpr[o.idx + second], flip};
	default: return {nullptr, o.l32, flip};
	}
}

// f takes the floats of N sources; both halves are read before either is written.
template <int N, class F> static inline void packed_floats(Wave& w, const Instruction& I, F f) {
	const int W = w.width;
	alignas(64) float s[3][64];
	alignas(64) u32 r[2][64];
	for (int h = 0; h < 2; h++) {
		for (int p = 0; p < N; p++) {
			PackedSource from = packed_f32(w, I, p, h);
			if (from.lanes)
				for (int l = 0; l < W; l++) s[p][l] = as_f32(from.lanes[l] ^ from.flip);
			else
				for (int l = 0; l < W; l++) s[p][l] = as_f32(from.value ^ from.flip);
		}
		for (int l = 0; l < W; l++) r[h][l] = as_u32(f(s[0][l], s[1][l], s[2][l]));
		if (I.clamp)
			for (int l = 0; l < W; l++) r[h][l] = as_u32(clamp01(as_f32(r[h][l])));
	}
	u32 *lo = vgpr(w, I.op[0].idx), *hi = vgpr(w, I.op[0].idx + 1);
	u64 active = w.active;
	for (int l = 0; l < W; l++) lo[l] = (active >> l) & 1 ? r[0][l] : lo[l];
	for (int l = 0; l < W; l++) hi[l] = (active >> l) & 1 ? r[1][l] : hi[l];
}
#define PK_F32(name, n, ...) OP(name, packed_floats<n>(w, I, [](float a, float b, float c) { (void)c; return (float)(__VA_ARGS__); }))

static void packed_move(Wave& w, const Instruction& I) {
	u64 r[64];
	for (int l = 0; l < w.width; l++) {
		u32 x[2];
		for (int h = 0; h < 2; h++) {
			const Operand& o = I.op[I.first + h];
			bool second = I.n_op_sel ? I.op_sel[h] : false;
			x[h] = o.kind == K_V ? vgpr(w, o.idx + second)[l] : o.kind == K_S ? w.sgpr[o.idx + second] : o.l32;
		}
		r[l] = x[0] | (u64)x[1] << 32;
	}
	write_64(w, I, LANE(r[l]));
}

void add_packed(OpTable& m) {
	PK_U16_2("v_pk_mul_lo_u16", (u32)a * b);
	PK_U16_2("v_pk_add_i16", clamp ? saturate_i16((i32)(i16)a + (i16)b) : (u16)(a + b));
	PK_U16_2("v_pk_sub_i16", clamp ? saturate_i16((i32)(i16)a - (i16)b) : (u16)(a - b));
	PK_U16_2("v_pk_lshlrev_b16", b << (a & 15));
	PK_U16_2("v_pk_lshrrev_b16", b >> (a & 15));
	PK_U16_2("v_pk_ashrrev_i16", (i16)b >> (a & 15));
	PK_U16_2("v_pk_max_i16", (i16)a > (i16)b ? a : b);
	PK_U16_2("v_pk_min_i16", (i16)a < (i16)b ? a : b);
	PK_U16_2("v_pk_add_u16", clamp ? saturate_u16((i32)a + b) : (u16)(a + b));
	PK_U16_2("v_pk_sub_u16", clamp ? saturate_u16((i32)a - b) : (u16)(a - b));
	PK_U16_2("v_pk_max_u16", a > b ? a : b);
	PK_U16_2("v_pk_min_u16", a < b ? a : b);
	PK_U16_3("v_pk_mad_i16", clamp ? saturate_i16((i32)(i16)a * (i16)b + (i16)c) : (u16)((i32)(i16)a * (i16)b + (i16)c));
	PK_U16_3("v_pk_mad_u16", (u32)a * b + c);
	PK_F32("v_pk_fma_f32", 3, __builtin_fmaf(a, b, c));
	PK_F32("v_pk_mul_f32", 2, a * b);
	PK_F32("v_pk_add_f32", 2, a + b);
	m["v_pk_mov_b32"] = packed_move;
}
