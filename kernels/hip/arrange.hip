// Moves the bits of stored blocks into the planes that kernels read (weights.hip).
//
//	for block b, plane p, byte j of it, bit i:
//	    to[plane p][first + b][j] bit i = from[b] bit table[p][j][i]
//
// From: count blocks of `bytes` bytes as stored, any address. To: the matrix's
// buffer, planes of `all` blocks one after the other. Table: the source bit of each
// bit of an arranged block, u16[8*bytes] at a multiple of 16 bytes. Planes of `even`
// bytes a block where that is not 0; else up to four of size[p], the others 0, and
// one with the rest.
//
// Grid: ARRANGE_BLOCKS blocks a block of 256 threads, a byte a thread at a time;
// any wave size; LDS: the stored blocks. Deterministic, exact. Bound: each byte
// read and written once; here instructions decide, about 60 a byte.
#include "common.hip"

#define ARRANGE_BLOCKS 16

NSTF_KERNEL void __launch_bounds__(256) nstf_arrange(
    u8 *__restrict__ to, const u8 *__restrict__ from, const uint4 *__restrict__ table,
    i64 all, i64 first, i64 count, int bytes, int even, int size0, int size1, int size2, int size3) {
	extern __shared__ __align__(16) u8 stored[];
	const i64 start = (i64)blockIdx.x * ARRANGE_BLOCKS;
	const int blocks = count - start < ARRANGE_BLOCKS ? (int)(count - start) : ARRANGE_BLOCKS;
	for (int i = threadIdx.x; i < blocks * bytes; i += 256) stored[i] = from[start * bytes + i];
	__syncthreads();
	for (int i = threadIdx.x; i < blocks * bytes; i += 256) {
		// Plane after plane, in each of them block after block.
		int at = i, before = 0, size = even > 0 ? even : size0;
		if (even > 0) before = at / (blocks * size) * size, at %= blocks * size;
		else if (at >= blocks * size) at -= blocks * size, before += size, size = size1;
		if (even == 0 && before == size0 && at >= blocks * size) at -= blocks * size, before += size, size = size2;
		if (even == 0 && before == size0 + size1 && at >= blocks * size) at -= blocks * size, before += size, size = size3;
		if (even == 0 && before == size0 + size1 + size2 && at >= blocks * size) at -= blocks * size, before += size, size = bytes - before;
		const int block = at / size, j = at % size;
		const uint4 bits = table[before + j];
		const u32 source[4] = {bits.x, bits.y, bits.z, bits.w};
		u32 v = 0;
#pragma unroll
		for (int b = 0; b < 8; b++) {
			const u32 bit = source[b / 2] >> (16 * (b & 1)) & 0xffff;
			v |= (u32)(stored[block * bytes + (bit >> 3)] >> (bit & 7) & 1) << b;
		}
		to[all * before + (first + start) * size + at] = (u8)v;
	}
}
