// Activations rounded to signed bytes, for products of integers.
//
//	d = max|x| / 127 over 32 neighbours; q = round(x * (127 / max|x|)), ties to even
//
// as on the processor (kernels/cpu, Activations): a block whose largest
// magnitude is below 2^-100 counts as zeros; one with a NaN or an infinity gets
// d = NaN. Rows of K numbers are padded with zeros to Kp, a multiple of 32.
//
// A row, in memory (Go: ActsSize) as in LDS, is Kp signed bytes, its 16-byte
// pieces swizzled so that lanes 32 bytes apart hit different banks, then pairs
// {f32 d; i16 sum of the first 16 q; i16 of the last 16}[Kp/32], to a multiple of
// 16 bytes. Rows lie one after the other, the first at a multiple of 16 bytes.
#include "common.hip"

// The padded length of a row, and its bytes.
NSTF_DEVICE constexpr int acts_padded(int k) { return (k + 31) & ~31; }
NSTF_DEVICE constexpr int acts_row_bytes(int k) { return (acts_padded(k) / 4 * 5 + 15) & ~15; }

// Where piece i of 16 bytes of a row lies, in pieces.
NSTF_DEVICE int acts_piece(int i) { return i ^ (i >> 3 & 1); }

// Where numbers 4i to 4i+3 lie in a row, and the pair of 4i's block.
NSTF_DEVICE int acts_quad(int i) { return acts_piece(i / 4) * 16 + i % 4 * 4; }
NSTF_DEVICE int acts_pair(int k, int i) { return acts_padded(k) + i / 8 * 8; }

NSTF_DEVICE u32 top_of(u32 a, u32 b) { return a > b ? a : b; }

// Rounds 32 numbers that an aligned group of 8 lanes holds, 4 each. Every lane
// gets its 4 bytes and the pair of the whole.
NSTF_DEVICE u32 round_to_bytes(float4 v, uint2 &pair) {
	// Magnitudes compare like their bits, NaN above all.
	u32 top = top_of(top_of(bits_of(v.x) & 0x7fffffff, bits_of(v.y) & 0x7fffffff),
	    top_of(bits_of(v.z) & 0x7fffffff, bits_of(v.w) & 0x7fffffff));
#pragma unroll
	for (int m = 1; m < 8; m *= 2) top = top_of(top, (u32)wave_xor((i32)top, m));
	const f32 most = of_bits(top);
	f32 d = most * (f32)(1. / 127), inverse = 127.0f / most;
	if (top >= 0x7f800000) d = of_bits(0x7fc00000), inverse = 0;
	if (most < 0x1p-100f) d = 0, inverse = 0;
	const i32 q0 = __float2int_rn(v.x * inverse), q1 = __float2int_rn(v.y * inverse);
	const i32 q2 = __float2int_rn(v.z * inverse), q3 = __float2int_rn(v.w * inverse);
	const u32 q = (q0 & 0xff) | (q1 & 0xff) << 8 | (q2 & 0xff) << 16 | (u32)q3 << 24;
	i32 sum = q0 + q1 + q2 + q3;
	sum += wave_xor(sum, 1);
	sum += wave_xor(sum, 2);
	const i32 other = wave_xor(sum, 4);
	const bool first = (threadIdx.x & 4) == 0;
	pair = make_uint2(bits_of(d), ((first ? sum : other) & 0xffff) | (u32)(first ? other : sum) << 16);
	return q;
}

// The sums of a pair.
NSTF_DEVICE i32 pair_first(uint2 p) { return (i32)(i16)p.y; }
NSTF_DEVICE i32 pair_last(uint2 p) { return (i32)p.y >> 16; }
