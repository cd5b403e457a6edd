// Activations rounded to signed bytes, for products of integers, in groups of 32
// or 16 neighbours that share d:
//
//	of 32:  d = max|x| / 127
//	of 16:  d = max|x| / n, n of 127 ... 120 with the least squares of x - d*q
//	q = round(x * (1 / d)), ties to even
//
// as on the processor (kernels/cpu, Activations): a group whose largest
// magnitude is below 2^-100 counts as zeros; one with a NaN or an infinity gets
// d = NaN. Rows of K numbers are padded with zeros to Kp, a multiple of 32.
//
// A row, in memory (Go: ActsSize, FineActsSize) as in LDS, is Kp signed bytes, its 16-byte
// pieces swizzled so that lanes 32 bytes apart hit different banks, then pairs
// for 32 numbers each, to a multiple of 16 bytes: {f32 d; i16 sum of the first 16
// q; i16 of the last 16}, or {f32 d of the first 16; f32 d of the last} and, behind
// all of those, {i16 sum of the first 16; i16 of the last}. Rows lie one after the
// other, the first at a multiple of 16 bytes.
#include "common.hip"

// The padded length of a row, and its bytes.
NSTF_DEVICE constexpr int acts_padded(int k) { return (k + 31) & ~31; }
NSTF_DEVICE constexpr int acts_row_bytes(int k) { return (acts_padded(k) / 4 * 5 + 15) & ~15; }
NSTF_DEVICE constexpr int acts_fine_bytes(int k) { return (acts_padded(k) / 8 * 11 + 15) & ~15; } // of groups of 16

// Where piece i of 16 bytes of a row lies, in pieces.
NSTF_DEVICE int acts_piece(int i) { return i ^ (i >> 3 & 1); }

// Where numbers 4i to 4i+3 lie in a row, the pair of 4i's block, and its sums where
// that is a pair of scales.
NSTF_DEVICE int acts_quad(int i) { return acts_piece(i / 4) * 16 + i % 4 * 4; }
NSTF_DEVICE int acts_pair(int k, int i) { return acts_padded(k) + i / 8 * 8; }
NSTF_DEVICE int acts_sums(int k, int i) { return acts_padded(k) / 4 * 5 + i / 8 * 4; }

NSTF_DEVICE u32 top_of(u32 a, u32 b) { return a > b ? a : b; }

// The largest magnitude of an aligned group of lanes: magnitudes compare like
// their bits, NaN above all.
template <int Lanes> NSTF_DEVICE f32 largest_of(float4 v) {
	u32 top = top_of(top_of(bits_of(v.x) & 0x7fffffff, bits_of(v.y) & 0x7fffffff),
	    top_of(bits_of(v.z) & 0x7fffffff, bits_of(v.w) & 0x7fffffff));
#pragma unroll
	for (int m = 1; m < Lanes; m *= 2) top = top_of(top, (u32)wave_xor((i32)top, m));
	return of_bits(top);
}

// A group's scale d, and what its numbers are multiplied by, of n and its largest
// magnitude.
NSTF_DEVICE f32 scale_of(f32 n, f32 most, f32 &inverse) {
	inverse = n / most;
	f32 d = most * (1.0f / n);
	if (bits_of(most) >= 0x7f800000) d = of_bits(0x7fc00000), inverse = 0;
	if (most < 0x1p-100f) d = 0, inverse = 0;
	return d;
}

// The square of how far x * inverse is from the whole number that it is rounded to.
NSTF_DEVICE f32 square_apart(f32 x, f32 inverse) {
	const f32 v = rounded_product(x, inverse), a = v - nearest_whole(v);
	return rounded_product(a, a);
}

// The same of two numbers, and of two fours, in the processor's order of sums.
NSTF_DEVICE f32 square_apart(f32 x, f32 y, f32 inverse) { return square_apart(x, inverse) + square_apart(y, inverse); }
NSTF_DEVICE f32 square_apart(float4 x, float4 y, f32 inverse) {
	return (square_apart(x.x, y.x, inverse) + square_apart(x.y, y.y, inverse)) + (square_apart(x.z, y.z, inverse) + square_apart(x.w, y.w, inverse));
}

NSTF_DEVICE float4 wave_xor(float4 v, int mask) {
	return make_float4(wave_xor(v.x, mask), wave_xor(v.y, mask), wave_xor(v.z, mask), wave_xor(v.w, mask));
}

NSTF_DEVICE constexpr f32 square_part(int n) { return 1.0f / (f32)(n * n); }

// Of the 16 numbers of an aligned group of 4 lanes, the n of 127 ... 120 that
// leaves the least squares, the first of equals. Each lane tries two.
NSTF_DEVICE f32 best_divisor(float4 v, f32 most) {
	const float4 v1 = wave_xor(v, 1), v2 = wave_xor(v, 2), v3 = wave_xor(v, 3);
	const int lane = threadIdx.x % 4, from = lane * 2; // below 127
	const f32 r = reciprocal(most);
	u64 best = ~0ull;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const f32 n = (f32)(127 - from - i), q = n * r, inverse = fmaf(fmaf(-q, most, n), r, q); // n / most
		const f32 part = lane < 2 ? (lane == 0 ? square_part(127 - i) : square_part(125 - i)) : (lane == 2 ? square_part(123 - i) : square_part(121 - i));
		const f32 e = (square_apart(v, v2, inverse) + square_apart(v1, v3, inverse)) * part;
		const u64 key = (u64)bits_of(e) << 32 | (u32)(from + i);
		best = key < best ? key : best;
	}
#pragma unroll
	for (int m = 1; m < 4; m *= 2) {
		const u64 other = wave_xor(best, m);
		best = other < best ? other : best;
	}
	return (f32)(127 - (int)((u32)best & 7));
}

// Four numbers as bytes, and the sum of those of an aligned group of 4 lanes.
NSTF_DEVICE u32 bytes_of(float4 v, f32 inverse, i32 &sum) {
	const i32 q0 = __float2int_rn(v.x * inverse), q1 = __float2int_rn(v.y * inverse);
	const i32 q2 = __float2int_rn(v.z * inverse), q3 = __float2int_rn(v.w * inverse);
	sum = q0 + q1 + q2 + q3;
	sum += wave_xor(sum, 1);
	sum += wave_xor(sum, 2);
	return (q0 & 0xff) | (q1 & 0xff) << 8 | (q2 & 0xff) << 16 | (u32)q3 << 24;
}

// A lane's sum below and that of the lane 4 from it above, in the order of lanes.
NSTF_DEVICE u32 sums_of(i32 sum) {
	const bool first = (threadIdx.x & 4) == 0;
	const i32 other = wave_xor(sum, 4);
	return ((first ? sum : other) & 0xffff) | (u32)(first ? other : sum) << 16;
}

// Rounds 32 numbers that an aligned group of 8 lanes holds, 4 each. Every lane
// gets its 4 bytes and the pair of the whole.
NSTF_DEVICE u32 round_to_bytes(float4 v, uint2 &pair) {
	f32 inverse;
	const f32 d = scale_of(127.0f, largest_of<8>(v), inverse);
	i32 sum;
	const u32 q = bytes_of(v, inverse, sum);
	pair = make_uint2(bits_of(d), sums_of(sum));
	return q;
}

// The same in two groups of 16: every lane gets the pair of scales and the two sums.
NSTF_DEVICE u32 round_finely(float4 v, uint2 &scales, u32 &sums) {
	const f32 most = largest_of<4>(v);
	f32 inverse;
	const f32 d = scale_of(best_divisor(v, most), most, inverse), other = wave_xor(d, 4);
	const bool first = (threadIdx.x & 4) == 0;
	scales = make_uint2(bits_of(first ? d : other), bits_of(first ? other : d));
	i32 sum;
	const u32 q = bytes_of(v, inverse, sum);
	sums = sums_of(sum);
	return q;
}

// Rounds numbers 4i to 4i+3 of a row of k and puts them there; all lanes of an aligned
// group of 8 call it, and all or none are in the row.
template <int Group> NSTF_DEVICE void put_acts(u8 *row, int k, int i, float4 v, bool in) {
	uint2 pair;
	u32 sums = 0;
	const u32 q = Group == 16 ? round_finely(v, pair, sums) : round_to_bytes(v, pair);
	if (!in) return;
	*(u32 *)(row + acts_quad(i)) = q;
	if (i % 8 != 0) return;
	*(uint2 *)(row + acts_pair(k, i)) = pair;
	if (Group == 16) *(u32 *)(row + acts_sums(k, i)) = sums;
}

// The sums of a pair of a group of 32.
NSTF_DEVICE i32 pair_first(uint2 p) { return (i32)(i16)p.y; }
NSTF_DEVICE i32 pair_last(uint2 p) { return (i32)p.y >> 16; }
