// Moves, selection, and everything that carries a value from lane to lane within
// a wave: DPP, permlane, readlane, swaps.
#include "optable.h"

// The lane that lane l reads under I's DPP control; -1 is none.
static int dpp_source(const Instruction& I, int l, int W) {
	const int row = l & ~15, r = l & 15, k = I.dpp_arg[0];
	switch (I.dpp) {
	case DPP_QUAD: return (l & ~3) | I.dpp_arg[l & 3];
	case DPP_SHL: return r + k < 16 ? l + k : -1;
	case DPP_SHR: return r >= k ? l - k : -1;
	case DPP_ROR: return row | ((r - k) & 15);
	case DPP_WSHL: return l + 1 < W ? l + 1 : -1;
	case DPP_WROL: return (l + 1) % W;
	case DPP_WSHR: return l - 1;
	case DPP_WROR: return (l + W - 1) % W;
	case DPP_MIRROR: return row | (15 - r);
	case DPP_HMIRROR: return (l & ~7) | (7 - (l & 7));
	case DPP_BCAST15: return row >= 16 ? row - 1 : -1;
	case DPP_BCAST31: return l >= 32 ? 31 : -1;
	case DPP_SHARE:
	case DPP_NEWBCAST: return row | k;
	case DPP_XMASK: return row | (r ^ k);
	case DPP_8: return (l & ~7) | I.dpp_arg[l & 7];
	}
	return -1;
}

void apply_dpp(Wave& w, const Instruction& I, const u32* src, u32* dst) {
	const int W = w.width;
	u64 exec = exec_mask(w), written = w.active;
	u32 t[64];
	memcpy(t, src, W * 4);
	for (int l = 0; l < W; l++) {
		dst[l] = 0;
		bool row_on = (I.row_mask >> (l >> 4)) & 1, bank_on = (I.bank_mask >> ((l >> 2) & 3)) & 1;
		if (I.dpp != DPP_8 && !(row_on && bank_on)) {
			written &= ~(1ull << l);
			continue;
		}
		int s = dpp_source(I, l, W);
		if (s >= 0 && (((exec >> s) & 1) || I.fetch_inactive))
			dst[l] = t[s];
		else if (!I.bound_ctrl && I.dpp != DPP_8)
			written &= ~(1ull << l); // without bound_ctrl the destination keeps its value
	}
	w.active = written;
}

// gfx9's relative addressing shifts the registers of a move by M0.
static void indexed_move(Wave& w, const Instruction& I) {
	u32 k = w.sgpr[SG_M0] & 0xff;
	const Operand& o = I.op[1];
	const u32* A = (w.index_mode & 1) && o.kind == K_V ? vgpr(w, o.idx + k) : source_f32(w, I, 0);
	u32* d = vgpr(w, I.op[0].idx + (w.index_mode & 8 ? k : 0));
	for (int l = 0; l < w.width; l++)
		if ((w.active >> l) & 1) d[l] = A[l];
}

// Copies register s to register d in the active lanes.
static void copy_register(Wave& w, u32 d, u32 s) {
	u32 *to = vgpr(w, d), *from = vgpr(w, s);
	for (int l = 0; l < w.width; l++)
		if ((w.active >> l) & 1) to[l] = from[l];
}

static void select(Wave& w, const Instruction& I, bool half) {
	u64 mask = I.n > (u32)I.first + 2 ? lane_mask(w, I.op[I.first + 2]) : vcc_mask(w);
	if (half) {
		READ2(source_16);
		write_16(w, I, 2, LANE((mask >> l) & 1 ? B[l] : A[l]));
		return;
	}
	READ2(source_f32);
	if (w.width == 32) {
		u32 mask32 = (u32)mask;
		write(w, I, LANE((mask32 >> l) & 1 ? B[l] : A[l]));
	} else {
		write(w, I, LANE((mask >> l) & 1 ? B[l] : A[l]));
	}
}

// v_permlane16 and v_permlanex16: any lane of the row, or of the other row of the
// pair. The choice is 16 fields of 4 bits in scalars, or a field in a lane's register.
static void permlane(Wave& w, const Instruction& I, bool other_row, bool variable) {
	const int W = w.width;
	u32 t[64], r[64];
	memcpy(t, vgpr(w, I.op[1].idx), W * 4);
	const u32* old = vgpr(w, I.op[0].idx);
	u64 exec = exec_mask(w);
	bool fetch_inactive = I.n_op_sel && I.op_sel[0], bound_ctrl = I.n_op_sel && I.op_sel[1];
	const u32* each = variable ? source(w, I, 1) : nullptr;
	u64 all = variable ? 0 : scalar(w, I.op[2]) | (u64)scalar(w, I.op[3]) << 32;
	for (int l = 0; l < W; l++) {
		int row = (l & ~15) ^ (other_row ? 16 : 0);
		int s = row | (variable ? (int)(each[l] & 15) : (int)(all >> ((l & 15) * 4)) & 15);
		r[l] = ((exec >> s) & 1) || fetch_inactive ? t[s] : bound_ctrl ? 0 : old[l];
	}
	write(w, I, LANE(r[l]));
}

static u32 read_lane(Wave& w, const Instruction& I, u32 lane) {
	return I.op[1].kind == K_V ? vgpr(w, I.op[1].idx)[lane] : scalar(w, I.op[1]);
}

void add_moves(OpTable& m) {
	OP("v_nop", (void)w; (void)I);
	OP("v_mov_b32", if (unlikely(w.index_on)) { indexed_move(w, I); return; } READ1(source_f32); write(w, I, LANE(A[l])));
	for (const char* n : {"v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32", "v_accvgpr_read", "v_accvgpr_write"})
		alias(m, n, "v_mov_b32");
	OP("v_mov_b64", auto* A = source_64(w, I, 0, false); write_64(w, I, LANE(A[l])));
	U16_1("v_mov_b16", a);
	U16_1("v_not_b16", ~a);
	OP("v_cndmask_b32", select(w, I, false));
	OP("v_cndmask_b16", select(w, I, true));
	OP("v_swap_b32", u32* a = vgpr(w, I.op[0].idx); u32* b = vgpr(w, I.op[1].idx);
	   for (int l = 0; l < w.width; l++) if ((w.active >> l) & 1) std::swap(a[l], b[l]));
	OP("v_movrels_b32", copy_register(w, I.op[0].idx, I.op[1].idx + w.sgpr[SG_M0]));
	OP("v_movreld_b32", READ1(source); u32* d = vgpr(w, I.op[0].idx + w.sgpr[SG_M0]);
	   for (int l = 0; l < w.width; l++) if ((w.active >> l) & 1) d[l] = A[l]);
	OP("v_movrelsd_2_b32", u32 m0 = w.sgpr[SG_M0]; copy_register(w, I.op[0].idx + ((m0 >> 16) & 0xff), I.op[1].idx + (m0 & 0xff)));
	OP("v_readfirstlane_b32", u64 e = exec_mask(w); set_scalar(w, I.op[0], read_lane(w, I, e ? __builtin_ctzll(e) : 0)));
	OP("v_readlane_b32", set_scalar(w, I.op[0], read_lane(w, I, scalar(w, I.op[2]) & (w.width - 1))));
	OP("v_writelane_b32", vgpr(w, I.op[0].idx)[scalar(w, I.op[2]) & (w.width - 1)] = scalar(w, I.op[1]));
	OP("v_permlane16_b32", permlane(w, I, false, false));
	OP("v_permlanex16_b32", permlane(w, I, true, false));
	OP("v_permlane16_var_b32", permlane(w, I, false, true));
	OP("v_permlanex16_var_b32", permlane(w, I, true, true));
	OP("v_permlane64_b32", u32 t[64]; memcpy(t, vgpr(w, I.op[1].idx), w.width * 4); int x = w.width == 64 ? 32 : 0; write(w, I, LANE(t[l ^ x])));
	OP("v_permlane32_swap_b32", u32* a = vgpr(w, I.op[0].idx); u32* b = vgpr(w, I.op[1].idx);
	   for (int l = 0; l < 32 && w.width == 64; l++) std::swap(a[l + 32], b[l]));
	OP("v_permlane16_swap_b32", u32* a = vgpr(w, I.op[0].idx); u32* b = vgpr(w, I.op[1].idx);
	   for (int r = 0; r < w.width; r += 32) for (int l = 0; l < 16; l++) std::swap(a[r + l + 16], b[r + l]));
}
