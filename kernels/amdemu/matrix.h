// What WMMA and MFMA have in common: element types, and products of small tiles.
#pragma once
#include "optable.h"

enum Element { E_F16, E_BF16, E_F32, E_I8, E_I4, E_FP8, E_BF8 };

static inline int bits_of(Element e) {
	switch (e) {
	case E_F32: return 32;
	case E_F16:
	case E_BF16: return 16;
	case E_I4: return 4;
	default: return 8;
	}
}
static inline bool is_integer(Element e) { return e == E_I8 || e == E_I4; }

// Element i, of the given bits, of the registers from r on, in a lane.
static inline u32 element(Wave& w, u32 r, int lane, int i, int bits) {
	u32 x = vgpr(w, r + i * bits / 32)[lane];
	return bits == 32 ? x : (x >> (i * bits % 32)) & ((1u << bits) - 1);
}

static inline float element_to_f32(Wave& w, Element e, u32 x) {
	switch (e) {
	case E_F16: return f16_to_f32((u16)x);
	case E_BF16: return bf16_to_f32((u16)x);
	case E_F32: return as_f32(x);
	case E_FP8: return fp8_to_f32(w, (u8)x, false);
	case E_BF8: return fp8_to_f32(w, (u8)x, true);
	case E_I8: return (float)(i8)x;
	case E_I4: return (float)sign_extend(x, 4);
	}
	return 0;
}

// c[i][j] += sum over k of a[k][i] * b[k][j], in the order of k, for i and j below M.
template <int M, class T, int STRIDE> static inline void multiply_add(const T (*a)[STRIDE], const T (*b)[STRIDE], T (*c)[STRIDE], int K) {
	for (int i = 0; i < M; i++) {
		T sums[M];
		for (int j = 0; j < M; j++) sums[j] = c[i][j];
		for (int k = 0; k < K; k++) {
			T x = a[k][i];
			for (int j = 0; j < M; j++) sums[j] += x * b[k][j];
		}
		for (int j = 0; j < M; j++) c[i][j] = sums[j];
	}
}

static inline void need_all_lanes(Wave& w, const Instruction& I) {
	if (exec_mask(w) != w.full) fault(w, 1, "%s executed with EXEC != all ones", I.name.c_str());
}
