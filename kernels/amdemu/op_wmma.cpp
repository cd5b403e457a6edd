// WMMA of RDNA3 and RDNA4 in wave32: D = A B + C for 16x16 tiles, K deep.
//
// Layout on gfx11: lane i of 0..15 holds row i of A (column i of B), lanes 16..31
// a copy of it, which is checked; row r of C and D lies in register r/2, lanes
// 16*(r%2) on. On gfx12 nothing is replicated: lanes 16..31 hold the second half
// of K, and row r lies in register r%8, lanes 16*(r/8) on. Sums are plain float
// sums in the order of k; hardware's last bits may differ.
// Source: the matrix chapters of AMD's RDNA3 and RDNA4 ISA guides.
#include "matrix.h"

struct Wmma {
	Element a, b;
	int out_bits; // 32, or 16 for a float of A's type
	int K;
};

struct Place {
	int reg, lane;
};
static inline Place place_of(bool gfx12, int row, int column) {
	if (gfx12) return {row & 7, column + (row >> 3) * 16};
	return {row >> 1, column + (row & 1) * 16};
}

[[noreturn]] static void not_replicated(Wave& w, const Instruction& I, int operand) {
	fault(w, 1, "%s: operand %c is not replicated in lanes 16..31", I.name.c_str(), operand ? 'B' : 'A');
}

static inline float modify_c(const Instruction& I, float f) {
	if (I.neg_hi[2]) f = std::fabs(f);
	return I.neg_lo[2] ? -f : f;
}

// The common case on gfx11, float16 or bfloat16 with float32 sums, by whole registers.
static void wmma_f32_gfx11(Wave& w, const Instruction& I, Element type) {
	alignas(64) float a[16][16], b[16][16], c[16][16], t[32]; // a[k][row], b[k][column]
	for (int m = 0; m < 2; m++)
		for (int j = 0; j < 8; j++) {
			const u32* s = vgpr(w, I.op[1 + m].idx + j);
			if (memcmp(s, s + 16, 64)) not_replicated(w, I, m);
			for (int h = 0; h < 2; h++) {
				if (type == E_F16)
					f16_lanes_to_f32(s, h * 16, t, 32);
				else
					for (int l = 0; l < 16; l++) t[l] = as_f32(h ? s[l] & 0xffff0000 : s[l] << 16);
				if (h ? I.neg_hi[m] : I.neg_lo[m])
					for (int l = 0; l < 16; l++) t[l] = -t[l];
				memcpy(m ? b[2 * j + h] : a[2 * j + h], t, 64);
			}
		}
	const Operand& oc = I.op[3];
	for (int row = 0; row < 16; row++) {
		Place p = place_of(false, row, 0);
		if (oc.kind == K_V)
			memcpy(c[row], vgpr(w, oc.idx + p.reg) + p.lane, 64);
		else
			for (float& f : c[row]) f = as_f32(scalar(w, oc));
		for (float& f : c[row]) f = modify_c(I, f);
	}
	multiply_add<16>(a, b, c, 16);
	for (int row = 0; row < 16; row++) {
		Place p = place_of(false, row, 0);
		memcpy(vgpr(w, I.op[0].idx + p.reg) + p.lane, c[row], 64);
	}
}

// Reads A or B into t[k][row or column], as T, float or i32.
template <class T> static void read_operand(Wave& w, const Instruction& I, int operand, Element type, int K, T (*t)[16]) {
	const bool gfx12 = w.program->gfx >= 0x1200;
	const int bits = bits_of(type), half = K / 2;
	const u32 r = I.op[1 + operand].idx;
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < K; k++) {
			u32 x = gfx12 ? element(w, r, i + (k / half) * 16, k % half, bits) : element(w, r, i, k, bits);
			if (!gfx12 && x != element(w, r, i + 16, k, bits)) not_replicated(w, I, operand);
			T v;
			if (is_integer(type)) {
				v = (T)(I.neg_lo[operand] ? sign_extend(x, bits) : (i32)x); // here neg_lo means signed
			} else {
				float f = element_to_f32(w, type, x);
				v = (T)((k & 1 ? I.neg_hi[operand] : I.neg_lo[operand]) ? -f : f);
			}
			t[k][i] = v;
		}
}

static void wmma_integer(Wave& w, const Instruction& I, const Wmma& d) {
	const bool gfx12 = w.program->gfx >= 0x1200;
	i32 a[32][16], b[32][16];
	read_operand(w, I, 0, d.a, d.K, a);
	read_operand(w, I, 1, d.b, d.K, b);
	const Operand& oc = I.op[3];
	u32 out[16][16];
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			Place p = place_of(gfx12, i, j);
			i64 s = (i32)(oc.kind == K_V ? vgpr(w, oc.idx + p.reg)[p.lane] : scalar(w, oc));
			for (int k = 0; k < d.K; k++) s += (i64)a[k][i] * b[k][j];
			out[i][j] = I.clamp ? saturate_i32(s) : (u32)s;
		}
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			Place p = place_of(gfx12, i, j);
			vgpr(w, I.op[0].idx + p.reg)[p.lane] = out[i][j];
		}
}

// Where a 16-bit result lies: gfx12 packs two rows per register, gfx11 uses one half of each.
struct HalfPlace {
	u32* d;
	bool upper;
};
static inline HalfPlace half_place(Wave& w, const Instruction& I, u32 r, Place p) {
	if (w.program->gfx >= 0x1200) return {&vgpr(w, r + p.reg / 2)[p.lane], (p.reg & 1) != 0};
	return {&vgpr(w, r + p.reg)[p.lane], I.n_op_sel > 2 && I.op_sel[2]};
}

static float read_c(Wave& w, const Instruction& I, const Wmma& d, Place p) {
	const Operand& oc = I.op[3];
	if (d.out_bits == 32) return as_f32(oc.kind == K_V ? vgpr(w, oc.idx + p.reg)[p.lane] : scalar(w, oc));
	u16 h = oc.l16;
	if (oc.kind == K_V) {
		HalfPlace at = half_place(w, I, oc.idx, p);
		h = (u16)(*at.d >> (at.upper ? 16 : 0));
	}
	return d.a == E_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

static void write_d(Wave& w, const Instruction& I, const Wmma& d, Place p, float f) {
	if (d.out_bits == 32) {
		vgpr(w, I.op[0].idx + p.reg)[p.lane] = as_u32(f);
		return;
	}
	u32 h = d.a == E_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
	HalfPlace at = half_place(w, I, I.op[0].idx, p);
	*at.d = at.upper ? (*at.d & 0xffff) | h << 16 : (*at.d & 0xffff0000) | h;
}

static void wmma_float(Wave& w, const Instruction& I, const Wmma& d) {
	const bool gfx12 = w.program->gfx >= 0x1200;
	alignas(64) float a[32][16], b[32][16], c[16][16];
	read_operand(w, I, 0, d.a, d.K, a);
	read_operand(w, I, 1, d.b, d.K, b);
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) c[i][j] = modify_c(I, read_c(w, I, d, place_of(gfx12, i, j)));
	multiply_add<16>(a, b, c, d.K);
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) write_d(w, I, d, place_of(gfx12, i, j), c[i][j]);
}

static void wmma(Wave& w, const Instruction& I, const Wmma& d) {
	need_all_lanes(w, I);
	if (w.width != 32) fault(w, 1, "wave64 WMMA not supported");
	if (I.op[1].kind != K_V || I.op[2].kind != K_V) fault(w, 1, "WMMA with non-VGPR A/B");
	if (is_integer(d.a))
		wmma_integer(w, I, d);
	else if (bits_of(d.a) == 16 && d.out_bits == 32 && w.program->gfx < 0x1200)
		wmma_f32_gfx11(w, I, d.a);
	else
		wmma_float(w, I, d);
}

#define WMMA(name, a, b, out_bits, K) OP("v_wmma_" name, wmma(w, I, Wmma{a, b, out_bits, K}))
void add_wmma(OpTable& m) {
	WMMA("f32_16x16x16_f16", E_F16, E_F16, 32, 16);
	WMMA("f32_16x16x16_bf16", E_BF16, E_BF16, 32, 16);
	WMMA("f16_16x16x16_f16", E_F16, E_F16, 16, 16);
	WMMA("bf16_16x16x16_bf16", E_BF16, E_BF16, 16, 16);
	WMMA("i32_16x16x16_iu8", E_I8, E_I8, 32, 16);
	WMMA("i32_16x16x16_iu4", E_I4, E_I4, 32, 16);
	WMMA("i32_16x16x32_iu4", E_I4, E_I4, 32, 32);
	WMMA("f32_16x16x16_fp8_fp8", E_FP8, E_FP8, 32, 16);
	WMMA("f32_16x16x16_fp8_bf8", E_FP8, E_BF8, 32, 16);
	WMMA("f32_16x16x16_bf8_fp8", E_BF8, E_FP8, 32, 16);
	WMMA("f32_16x16x16_bf8_bf8", E_BF8, E_BF8, 32, 16);
}
