// The type that decode.hip and decodetcq.hip write: DECODE_TYPE 0: f32, 1: f16, 2: bf16.
#include "common.hip"

#if DECODE_TYPE == 0
typedef f32 Number;
NSTF_DEVICE Number number(f32 v) { return v; }
#elif DECODE_TYPE == 1
typedef u16 Number;
NSTF_DEVICE Number number(f32 v) {
#if !defined(NSTF_CUDA)
	asm("" : "+v"(v)); // LLVM would make one rounding of a product's and this one, and lose the sign of zero
#endif
	return half_nearest(v);
}
#else
typedef u16 Number;
NSTF_DEVICE Number number(f32 v) {
	const u32 b = bits_of(v);
	return v != v ? 0x7fc0 : (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
#endif
