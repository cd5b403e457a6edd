// float16 arithmetic of the vector unit, one value or two per lane, and the
// mixed-precision fused multiply-add. Each result is rounded once.
#include "optable.h"

static inline u16 clamp_f16(u16 h, bool clamp) { return clamp ? f32_to_f16(clamp01(f16_to_f32(h))) : h; }

// The sources' halves at bit 0; C's at c_shift.
static void fma_half(Wave& w, const Instruction& I, int sources, const u32* A, const u32* B, const u32* C, int c_shift) {
	const int W = w.width;
	alignas(64) float x[64], y[64], z[64], o[64];
	alignas(64) u32 r[64];
	f16_lanes_to_f32(A, 0, x, W);
	f16_lanes_to_f32(B, 0, y, W);
	f16_lanes_to_f32(C, c_shift, z, W);
	fma_f16_lanes(x, y, z, o, W);
	f32_lanes_to_f16(o, r, W);
	const u32* R = r;
	write_f16(w, I, sources, LANE((u16)R[l]), true);
}

static void fmac_half(Wave& w, const Instruction& I) {
	bool upper = (I.n_op_sel == 3 && I.op_sel[2]) || I.op[0].hi16;
	fma_half(w, I, 2, source_16(w, I, 0), source_16(w, I, 1), vgpr(w, I.op[0].idx), upper ? 16 : 0);
}

static void write_pair(Wave& w, const Instruction& I, const u32* lo, const u32* hi) {
	if (!I.clamp)
		write(w, I, LANE(lo[l] | hi[l] << 16));
	else
		write(w, I, LANE((u32)clamp_f16(lo[l], true) | (u32)clamp_f16(hi[l], true) << 16));
}

static void fma_packed(Wave& w, const Instruction& I, const u32* A, const u32* B, const u32* C) {
	const int W = w.width;
	alignas(64) float x[64], y[64], z[64], o[64];
	alignas(64) u32 r[2][64];
	for (int h = 0; h < 2; h++) {
		f16_lanes_to_f32(A, 16 * h, x, W);
		f16_lanes_to_f32(B, 16 * h, y, W);
		f16_lanes_to_f32(C, 16 * h, z, W);
		fma_f16_lanes(x, y, z, o, W);
		f32_lanes_to_f16(o, r[h], W);
	}
	write_pair(w, I, r[0], r[1]);
}

// A pair of float16 from two sources; f works on floats.
template <class F> static inline void packed(Wave& w, const Instruction& I, F f) {
	auto *A = source_packed(w, I, 0, true), *B = source_packed(w, I, 1, true);
	const int W = w.width;
	alignas(64) float x[64], y[64];
	alignas(64) u32 r[2][64];
	for (int h = 0; h < 2; h++) {
		f16_lanes_to_f32(A, 16 * h, x, W);
		f16_lanes_to_f32(B, 16 * h, y, W);
		for (int l = 0; l < W; l++) x[l] = f(x[l], y[l]);
		f32_lanes_to_f16(x, r[h], W);
	}
	write_pair(w, I, r[0], r[1]);
}
#define PK_F16_2(name, ...) OP(name, packed(w, I, [](float a, float b) { return (float)(__VA_ARGS__); }))

// A source of v_fma_mix: float32, or the float16 that op_sel names.
static const float* mixed_source(Wave& w, const Instruction& I, int p, float* out) {
	const Operand& o = I.op[I.first + p];
	const int W = w.width;
	const u32* s = source(w, I, p);
	u32 keep = o.abs ? 0x7fffffff : ~0u, flip = o.neg || I.neg_lo[p] ? 0x80000000u : 0;
	u32* bits = (u32*)out;
	if (!I.op_sel_hi[p]) {
		for (int l = 0; l < W; l++) bits[l] = (s[l] & keep) ^ flip;
		return out;
	}
	if (o.kind == K_LIT && o.isf) {
		u32 c = as_u32(f16_to_f32(o.l16));
		for (int l = 0; l < W; l++) bits[l] = (c & keep) ^ flip;
		return out;
	}
	int shift = I.n_op_sel && I.op_sel[p] ? 16 : 0;
	for (int l = 0; l < W; l++) out[l] = f16_to_f32((u16)(s[l] >> shift));
	if (o.abs || flip)
		for (int l = 0; l < W; l++) bits[l] = (bits[l] & keep) ^ flip;
	return out;
}

static void fma_mix(Wave& w, const Instruction& I) {
	alignas(64) float x[64], y[64], z[64];
	const float *A = mixed_source(w, I, 0, x), *B = mixed_source(w, I, 1, y), *C = mixed_source(w, I, 2, z);
	write_f32(w, I, LANE(__builtin_fmaf(A[l], B[l], C[l])));
}

// The result as float16 in the lower or upper half.
template <bool UPPER> static void fma_mix_half(Wave& w, const Instruction& I) {
	alignas(64) float x[64], y[64], z[64];
	const float *A = mixed_source(w, I, 0, x), *B = mixed_source(w, I, 1, y), *C = mixed_source(w, I, 2, z);
	u32* d = vgpr(w, I.op[0].idx);
	bool clamp = I.clamp;
	write(w, I, [=, &w, &I](int l) {
		u32 h = clamp_f16(f32_to_f16(__builtin_fmaf(A[l], B[l], C[l])), clamp);
		return UPPER ? (d[l] & 0xffff) | h << 16 : (d[l] & 0xffff0000) | h;
	});
}

void add_halves(OpTable& m) {
	F16_2("v_add_f16", a + b);
	F16_2("v_sub_f16", a - b);
	F16_2("v_subrev_f16", b - a);
	F16_2("v_mul_f16", a * b);
	F16_2("v_max_f16", max_f32(a, b));
	F16_2("v_min_f16", min_f32(a, b));
	F16_3("v_min3_f16", min_f32(min_f32(a, b), c));
	F16_3("v_max3_f16", max_f32(max_f32(a, b), c));
	F16_3("v_med3_f16", median_f32(a, b, c));
	F16_3("v_minmax_f16", max_f32(min_f32(a, b), c));
	F16_3("v_maxmin_f16", min_f32(max_f32(a, b), c));
	for (const char* n : {"min", "max", "min3", "max3", "med3", "minmax", "maxmin"})
		alias(m, (std::string("v_") + n + "_num_f16").c_str(), (std::string("v_") + n + "_f16").c_str());
	OP("v_fma_f16", fma_half(w, I, 3, source_16(w, I, 0), source_16(w, I, 1), source_16(w, I, 2), 0));
	alias(m, "v_fmaak_f16", "v_fma_f16");
	alias(m, "v_fmamk_f16", "v_fma_f16");
	m["v_fmac_f16"] = fmac_half;
	F16_3("v_mad_f16", f16_to_f32(f32_to_f16(a * b)) + c);
	alias(m, "v_madmk_f16", "v_mad_f16");
	alias(m, "v_madak_f16", "v_mad_f16");
	OP("v_mac_f16", READ2(source_16); auto* C = vgpr(w, I.op[0].idx);
	   write_f16(w, I, 2, LANE(f32_to_f16(f16_to_f32(f32_to_f16(f16_to_f32(A[l]) * f16_to_f32(B[l]))) + f16_to_f32(C[l])))));
	F16_1("v_floor_f16", std::floor(a));
	F16_1("v_ceil_f16", std::ceil(a));
	F16_1("v_trunc_f16", std::trunc(a));
	F16_1("v_rndne_f16", __builtin_roundevenf(a));
	F16_1("v_fract_f16", a - std::floor(a));
	PK_F16_2("v_pk_add_f16", a + b);
	PK_F16_2("v_pk_mul_f16", a * b);
	PK_F16_2("v_pk_min_f16", min_f32(a, b));
	PK_F16_2("v_pk_max_f16", max_f32(a, b));
	alias(m, "v_pk_min_num_f16", "v_pk_min_f16");
	alias(m, "v_pk_max_num_f16", "v_pk_max_f16");
	OP("v_pk_fma_f16", fma_packed(w, I, source_packed(w, I, 0, true), source_packed(w, I, 1, true), source_packed(w, I, 2, true)));
	OP("v_pk_fmac_f16", fma_packed(w, I, source(w, I, 0), source(w, I, 1), vgpr(w, I.op[0].idx)));
	m["v_fma_mix_f32"] = fma_mix;
	m["v_fma_mixlo_f16"] = fma_mix_half<false>;
	m["v_fma_mixhi_f16"] = fma_mix_half<true>;
	for (const char* n : {"_mix_f32", "_mixlo_f16", "_mixhi_f16"})
		alias(m, (std::string("v_mad") + n).c_str(), (std::string("v_fma") + n).c_str());
}
