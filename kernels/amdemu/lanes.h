// Reading the sources of vector instructions lane by lane and writing their
// results, with all that modifiers do: DPP and SDWA selection, negation and
// absolute value, op_sel, output scaling and clamping, and the EXEC mask.
//
// A source comes back as an array of W lanes: the register itself where nothing
// is to be done, else a copy in the wave. p counts sources from 0.
#pragma once
#include "number.h"

// Applies I's lane permutation to src, and takes lanes that it leaves out off w.active.
void apply_dpp(Wave& w, const Instruction& I, const u32* src, u32* dst);

// The byte or half that an SDWA selector names.
INLINE u32 select_part(u32 x, int sel, bool sext) {
	if (sel < SEL_WORD0) {
		x = (x >> (sel * 8)) & 0xff;
		return sext ? (u32)(i32)(i8)x : x;
	}
	if (sel < SEL_DWORD) {
		x = (x >> ((sel - SEL_WORD0) * 16)) & 0xffff;
		return sext ? (u32)(i32)(i16)x : x;
	}
	return x;
}

// 32 bits.
static inline const u32* source(Wave& w, const Instruction& I, int p) {
	const Operand& o = I.op[I.first + p];
	if (likely(o.kind == K_V && !I.modified_source)) return vgpr(w, o.idx);
	u32* b = w.tmp[p];
	const int W = w.width;
	const int sel = !I.sdwa || p > 1 ? (int)SEL_DWORD : p ? I.src1_sel : I.src0_sel;
	if (o.kind != K_V) {
		u32 x = select_part(scalar(w, o), sel, o.sext);
		for (int l = 0; l < W; l++) b[l] = x;
		return b;
	}
	const u32* s = vgpr(w, o.idx);
	if (I.dpp && p == 0)
		apply_dpp(w, I, s, b);
	else
		memcpy(b, s, W * 4);
	if (sel != SEL_DWORD)
		for (int l = 0; l < W; l++) b[l] = select_part(b[l], sel, o.sext);
	return b;
}

// A float32, negated or absolute.
static inline const u32* source_f32(Wave& w, const Instruction& I, int p) {
	const u32* s = source(w, I, p);
	const Operand& o = I.op[I.first + p];
	if (likely(!o.neg && !o.abs)) return s;
	u32 keep = o.abs ? 0x7fffffff : ~0u, flip = o.neg ? 0x80000000 : 0;
	u32* b = w.tmp[p];
	const int W = w.width;
	for (int l = 0; l < W; l++) b[l] = (s[l] & keep) ^ flip;
	return b;
}

// 16 bits, in the low half; the upper half is undefined.
static inline const u32* source_16(Wave& w, const Instruction& I, int p) {
	const Operand& o = I.op[I.first + p];
	const int W = w.width;
	u32* b = w.tmp[p];
	u32 keep = o.abs ? 0x7fff : 0xffff, flip = o.neg ? 0x8000 : 0;
	if (o.kind == K_LIT) {
		u32 x = I.n_op_sel && I.op_sel[p] ? o.l32 >> 16 : o.l16;
		x = (x & keep) ^ flip;
		for (int l = 0; l < W; l++) b[l] = x;
		return b;
	}
	const u32* s = source(w, I, p);
	bool upper = (I.n_op_sel && I.op_sel[p]) || o.hi16;
	if (likely(!upper && !o.neg && !o.abs)) return s;
	int shift = upper ? 16 : 0;
	for (int l = 0; l < W; l++) b[l] = ((s[l] >> shift) & keep) ^ flip;
	return b;
}

// 64 bits; a hexadecimal constant is the upper half of a float64.
static inline const u64* source_64(Wave& w, const Instruction& I, int p, bool is_float) {
	const Operand& o = I.op[I.first + p];
	u64* b = w.t64[p];
	const int W = w.width;
	if (o.kind == K_V) {
		const u32 *lo = vgpr(w, o.idx), *hi = vgpr(w, o.idx + 1);
		if (I.dpp && p == 0) {
			apply_dpp(w, I, lo, w.tmp[8]);
			u64 active = w.active;
			apply_dpp(w, I, hi, w.tmp[9]);
			w.active &= active;
			lo = w.tmp[8];
			hi = w.tmp[9];
		}
		for (int l = 0; l < W; l++) b[l] = lo[l] | (u64)hi[l] << 32;
	} else {
		u64 x = scalar64(w, o);
		if (o.kind == K_LIT && is_float && o.hexlit) x = (u64)o.l32 << 32;
		for (int l = 0; l < W; l++) b[l] = x;
	}
	if (is_float && (o.neg || o.abs)) {
		u64 keep = o.abs ? ~(1ull << 63) : ~0ull, flip = o.neg ? 1ull << 63 : 0;
		for (int l = 0; l < W; l++) b[l] = (b[l] & keep) ^ flip;
	}
	return b;
}

// Two 16-bit values, chosen by op_sel and op_sel_hi, negated each for itself.
static inline const u32* source_packed(Wave& w, const Instruction& I, int p, bool is_float) {
	const Operand& o = I.op[I.first + p];
	const int W = w.width;
	u32* b = w.tmp[p];
	const u32* s = b;
	if (o.kind == K_LIT) {
		u32 x = is_float ? o.lpk : o.l32;
		for (int l = 0; l < W; l++) b[l] = x;
	} else {
		s = source(w, I, p);
	}
	bool lo_from_hi = I.n_op_sel ? I.op_sel[p] : false, hi_from_hi = I.op_sel_hi[p];
	u32 flip = is_float ? (I.neg_lo[p] ? 0x8000u : 0) | (I.neg_hi[p] ? 0x80000000u : 0) : 0;
	if (likely(!lo_from_hi && hi_from_hi && !flip)) return s;
	for (int l = 0; l < W; l++) {
		u32 x = s[l];
		u32 lo = lo_from_hi ? x >> 16 : x & 0xffff, hi = hi_from_hi ? x >> 16 : x & 0xffff;
		b[l] = (lo | hi << 16) ^ flip;
	}
	return b;
}

// Writes g(l) to the part of each active lane that SDWA names.
template <class G> static inline void write_part(Wave& w, const Instruction& I, u32* d, G g) {
	const int W = w.width;
	bool byte = I.dst_sel < SEL_WORD0;
	int shift = byte ? I.dst_sel * 8 : (I.dst_sel - SEL_WORD0) * 16, bits = byte ? 8 : 16;
	u32 field = byte ? 0xff : 0xffff;
	for (int l = 0; l < W; l++) {
		if (!((w.active >> l) & 1)) continue;
		u32 x = g(l) & field;
		if (I.dst_unused == 2) // UNUSED_PRESERVE
			d[l] = (d[l] & ~(field << shift)) | (x << shift);
		else if (I.dst_unused == 1) // UNUSED_SEXT
			d[l] = (u32)sign_extend(x, bits) << shift;
		else
			d[l] = x << shift;
	}
}

// Writes g(l), 32 bits, to each active lane. g reads lane l only, so that the
// loop may run in vectors though source and destination are one register.
template <class G> INLINE void write(Wave& w, const Instruction& I, G g) {
	const int W = w.width;
	__builtin_assume(W == 32 || W == 64);
	if (unlikely(w.redirect != nullptr)) {
		u32* d = w.redirect;
		for (int l = 0; l < W; l++) d[l] = g(l);
		return;
	}
	u32* d = vgpr(w, I.op[0].idx);
	if (likely(w.active == w.full && !I.sdwa)) {
#pragma clang loop vectorize(assume_safety)
		for (int l = 0; l < W; l++) d[l] = g(l);
		return;
	}
	u64 active = w.active;
	if (likely(!I.sdwa || I.dst_sel == SEL_DWORD)) {
#pragma clang loop vectorize(assume_safety)
		for (int l = 0; l < W; l++) {
			u32 x = g(l);
			d[l] = ((active >> l) & 1) ? x : d[l];
		}
		return;
	}
	write_part(w, I, d, g);
}

static inline float output_scale(const Instruction& I) {
	return I.omod == 1 ? 2.f : I.omod == 2 ? 4.f : I.omod == 3 ? 0.5f : 1.f;
}

// g gives a float32.
template <class G> INLINE void write_f32(Wave& w, const Instruction& I, G g) {
	if (likely(!I.omod && !I.clamp)) {
		write(w, I, [=, &w, &I](int l) { return as_u32(g(l)); });
		return;
	}
	float m = output_scale(I);
	bool clamp = I.clamp;
	write(w, I, [=, &w, &I](int l) {
		float x = g(l) * m;
		if (clamp) {
			x = clamp01(x);
			if (x == 0) x = 0.f; // no negative zero
		}
		return as_u32(x);
	});
}

// g gives 16 bits. The other half of the register is cleared on gfx9, unless
// keep is set, and kept on later architectures. sources is their number:
// the bit of op_sel behind theirs is the destination's.
template <class G> INLINE void write_16(Wave& w, const Instruction& I, int sources, G g, bool keep = false) {
	if (unlikely(I.sdwa)) {
		write(w, I, [=, &w, &I](int l) { return (u32)(u16)g(l); });
		return;
	}
	bool upper = (I.n_op_sel == sources + 1 && I.op_sel[sources]) || I.op[0].hi16;
	const u32* d = vgpr(w, I.op[0].idx);
	if (upper)
		write(w, I, [=, &w, &I](int l) { return (d[l] & 0xffff) | (u32)(u16)g(l) << 16; });
	else if (w.program->zero16 && !keep)
		write(w, I, [=, &w, &I](int l) { return (u32)(u16)g(l); });
	else
		write(w, I, [=, &w, &I](int l) { return (d[l] & 0xffff0000) | (u16)g(l); });
}

// g gives the bits of a float16.
template <class G> INLINE void write_f16(Wave& w, const Instruction& I, int sources, G g, bool keep = false) {
	if (likely(!I.omod && !I.clamp)) {
		write_16(w, I, sources, g, keep);
		return;
	}
	float m = output_scale(I);
	bool clamp = I.clamp;
	write_16(
	    w, I, sources,
	    [=, &w, &I](int l) {
		    float x = f16_to_f32(g(l)) * m;
		    return f32_to_f16(clamp ? clamp01(x) : x);
	    },
	    keep);
}

// g gives 64 bits, for a pair of registers.
template <class G> static inline void write_64(Wave& w, const Instruction& I, G g) {
	const int W = w.width;
	u32 *lo = vgpr(w, I.op[0].idx), *hi = vgpr(w, I.op[0].idx + 1);
	u64 active = w.active, r[64];
	for (int l = 0; l < W; l++) r[l] = g(l);
	for (int l = 0; l < W; l++)
		if ((active >> l) & 1) {
			lo[l] = (u32)r[l];
			hi[l] = (u32)(r[l] >> 32);
		}
}

// g gives a float64.
template <class G> static inline void write_f64(Wave& w, const Instruction& I, G g) {
	double m = output_scale(I);
	bool clamp = I.clamp;
	write_64(w, I, [=, &w, &I](int l) {
		double x = g(l) * m;
		if (clamp) x = x != x ? 0. : x < 0 ? 0. : x > 1 ? 1. : x;
		return as_u64(x);
	});
}
