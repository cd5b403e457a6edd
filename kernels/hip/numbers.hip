// Stored numbers of any element type as float32, exactly or rounded to nearest.
// Types are numbered as the plain schemes' ids (docs/schemes/plain.md).
#include "common.hip"

#define NSTF_F32 1
#define NSTF_F16 2
#define NSTF_BF16 3
#define NSTF_F64 4
#define NSTF_I8 5
#define NSTF_I16 6
#define NSTF_I32 7
#define NSTF_I64 8
#define NSTF_U8 9
#define NSTF_U16 10
#define NSTF_U32 11
#define NSTF_U64 12
#define NSTF_BOOL 13
#define NSTF_E4M3 14
#define NSTF_E5M2 15
#define NSTF_E4M3Z 16
#define NSTF_E5M2Z 17
#define NSTF_E8M0 18
#define NSTF_E2M3 19
#define NSTF_E3M2 20
#define NSTF_E2M1 21

NSTF_DEVICE f32 bf16_value(u16 v) { return of_bits((u32)v << 16); }

// E4M3: its bits in a half, whose exponent has a bias 8 larger.
NSTF_DEVICE f32 e4m3_value(u32 c) {
	const f32 v = half_value((u16)((c & 0x80) << 8 | (c & 0x7f) << 7)) * 256.0f;
	return (c & 0x7f) == 0x7f ? of_bits(0x7fc00000) : v;
}

// A number of a sign, Exp bits of exponent and Man of mantissa, with gradual
// underflow; NaN and infinities aside.
template <int Exp, int Man, int Bias> NSTF_DEVICE f32 small_value(u32 c) {
	const int e = c >> Man & ((1 << Exp) - 1), m = c & ((1 << Man) - 1);
	const f32 v = e == 0 ? (f32)m * power_of_two(1 - Bias - Man) : (f32)(m + (1 << Man)) * power_of_two(e - Bias - Man);
	return c >> (Exp + Man) & 1 ? -v : v;
}

// Element i of an array of numbers from p on; p is aligned to them.
template <int Type> NSTF_DEVICE f32 number_at(const u8 *p, i64 i) {
	const f32 nan = of_bits(0x7fc00000);
	switch (Type) {
	case NSTF_F32: return ((const f32 *)p)[i];
	case NSTF_F16: return half_value(((const u16 *)p)[i]);
	case NSTF_BF16: return bf16_value(((const u16 *)p)[i]);
	case NSTF_F64: return (f32)((const double *)p)[i];
	case NSTF_I8: return (f32)((const i8 *)p)[i];
	case NSTF_I16: return (f32)((const i16 *)p)[i];
	case NSTF_I32: return (f32)((const i32 *)p)[i];
	case NSTF_I64: return (f32)((const i64 *)p)[i];
	case NSTF_U8: return (f32)p[i];
	case NSTF_U16: return (f32)((const u16 *)p)[i];
	case NSTF_U32: return (f32)((const u32 *)p)[i];
	case NSTF_U64: return (f32)((const u64 *)p)[i];
	case NSTF_BOOL: return p[i] != 0 ? 1.0f : 0.0f;
	case NSTF_E4M3: return e4m3_value(p[i]);
	case NSTF_E5M2: return half_value((u16)(p[i] << 8));
	case NSTF_E4M3Z: return p[i] == 0x80 ? nan : small_value<4, 3, 8>(p[i]);
	case NSTF_E5M2Z: return p[i] == 0x80 ? nan : small_value<5, 2, 16>(p[i]);
	case NSTF_E8M0: return p[i] == 255 ? nan : p[i] == 0 ? of_bits(0x00400000) : of_bits((u32)p[i] << 23);
	case NSTF_E2M1: return small_value<2, 1, 1>(p[i >> 1] >> (4 * (i & 1)) & 15);
	}
	// Six bits, four to three bytes.
	const u8 *q = p + i / 4 * 3;
	const u32 c = (q[0] | q[1] << 8 | q[2] << 16) >> (6 * (i & 3)) & 63;
	return Type == NSTF_E2M3 ? small_value<2, 3, 1>(c) : small_value<3, 2, 3>(c);
}
