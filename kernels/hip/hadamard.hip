// Signs and Hadamard transforms of blocks of up to 128 numbers that an aligned
// group of 32 lanes holds, 4 each.
//
//	for s = 1, 2 ... Size/2: pairs x[i], x[i+s] with bit s of i clear become
//	    x[i] + x[i+s], x[i] - x[i+s];  then all times float32(1 / sqrt(Size))
//
// Order and rounding are docs/schemes/tcq.md's, so that bits equal the processor's.
#include "common.hip"

// 128 signs, lowest bit first; a set bit negates.
struct Signs {
	u64 low, high;
};

// Applies those of numbers i to i+3 of a row, i a multiple of 4; every block of
// Size has the same.
template <int Size> NSTF_DEVICE void apply_signs(f32 (&v)[4], const Signs &s, int i) {
	if (Size == 1) return;
	const int at = i & (Size - 1);
	u32 set = (u32)((at & 64 ? s.high : s.low) >> (at & 63));
	if (Size == 2) set = (set & 3) * 5;
#pragma unroll
	for (int j = 0; j < 4; j++) v[j] = of_bits(bits_of(v[j]) ^ (set >> j & 1) << 31);
}

// The float32 nearest to 1 / sqrt(size).
NSTF_DEVICE constexpr f32 hadamard_factor(int size) {
	return size == 1 ? 1 : size == 2 ? 0x1.6a09e6p-1f : size == 4 ? 0.5f : size == 8 ? 0x1.6a09e6p-2f :
		size == 16 ? 0.25f : size == 32 ? 0x1.6a09e6p-3f : size == 64 ? 0.125f : 0x1.6a09e6p-4f;
}

template <int Size> NSTF_DEVICE void hadamard(f32 (&v)[4]) {
	if (Size >= 2) {
		const f32 a = v[0], b = v[2];
		v[0] = a + v[1], v[1] = a - v[1], v[2] = b + v[3], v[3] = b - v[3];
	}
	if (Size >= 4) {
		const f32 a = v[0], b = v[1];
		v[0] = a + v[2], v[2] = a - v[2], v[1] = b + v[3], v[3] = b - v[3];
	}
#pragma unroll
	for (int s = 4; s < Size; s *= 2) {
		const bool upper = threadIdx.x & (s / 4);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const f32 other = wave_xor(v[i], s / 4);
			v[i] = upper ? other - v[i] : v[i] + other;
		}
	}
	const f32 factor = hadamard_factor(Size);
	if (Size > 1)
#pragma unroll
		for (int i = 0; i < 4; i++) v[i] = rounded_product(v[i], factor);
}
