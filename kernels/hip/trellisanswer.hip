// What surrounds the search for trellis codes (trellis.hip) on a matrix of rotated
// weights W[N][K] whose errors are answered: as quantize/fit does it, to the same bits.
// Columns go from last to first, a tile of 16 at a time; once a tile has codes, W holds
// its errors. What errors owe comes in panels of 128 columns (kernels/cpu's
// GemmFusedAdd and LaneAnswer have the same order of sums):
//
//	nstf_trellis_owed: owed[r][c] = sum over blocks of 256 columns i behind the panel of
//	    (sum over the block of W[r][i] * behind[c][i], fused)
//	nstf_trellis_target: z of tile j = (W + (owed + sum over chosen columns i of the
//	    panel of W[r][i] * within[c][i])) / unit, in the order of the ring
//	nstf_trellis_error: W of tile j -= unit * codeword
//
// Shapes: N a multiple of 16, K too; a strip is 16 rows, with its own unit f32. behind
// f32[width][K-to] and within f32[width][width] are of the panel from column to-width
// to column to; owed is f32[N][128]. codes: of strip s at s * stride. W, behind: at a
// multiple of 16 bytes. Blocks of 256 threads: owed takes 64 rows and 64 columns each,
// 18 KiB of LDS; the others a strip each. Deterministic. Bound: owed by arithmetic, 2 LDS
// loads of 16 bytes for 16 products; the others by their launch.
#include "reduce.hip"
#include "tcqcode.hip"

#define ANSWER_PANEL 128
#define ANSWER_BLOCK 256 // columns of a fused sum
#define OWED_SIDE 64
#define OWED_DEPTH 32
#define OWED_GAP (OWED_SIDE + 4)

typedef pack<f32, 4> Four;

// Columns k to k+OWED_DEPTH of OWED_SIDE rows, transposed; zeros beyond.
NSTF_DEVICE void owed_load(f32 *to, const f32 *from, i64 distance, int rows, int columns) {
#pragma unroll
	for (int i = 0; i < OWED_SIDE * OWED_DEPTH / 4 / 256; i++) {
		const int at = i * 256 + threadIdx.x, r = at / (OWED_DEPTH / 4), k = at % (OWED_DEPTH / 4) * 4;
		Four v = {0, 0, 0, 0};
		if (r < rows && k < columns) v = *(const Four *)(from + r * distance + k);
#pragma unroll
		for (int j = 0; j < 4; j++) to[(k + j) * OWED_GAP + r] = v.v[j];
	}
}

NSTF_KERNEL void __launch_bounds__(256) nstf_trellis_owed(
    f32 *__restrict__ owed, const f32 *__restrict__ w, const f32 *__restrict__ behind, int n, int k, int to, int width) {
	alignas(16) __shared__ f32 a[OWED_DEPTH * OWED_GAP], b[OWED_DEPTH * OWED_GAP];
	const int row = blockIdx.x * OWED_SIDE, column = blockIdx.y * OWED_SIDE, depth = k - to;
	const int r0 = threadIdx.x / 16 * 4, c0 = threadIdx.x % 16 * 4;
	f32 total[4][4] = {}, sum[4][4] = {};
	for (int at = 0; at < depth; at += OWED_DEPTH) {
		__syncthreads();
		owed_load(a, w + (i64)row * k + to + at, k, n - row, depth - at);
		owed_load(b, behind + (i64)column * depth + at, depth, width - column, depth - at);
		__syncthreads();
		const int some = depth - at < OWED_DEPTH ? depth - at : OWED_DEPTH;
#pragma unroll 8
		for (int i = 0; i < some; i++) {
			const Four x = *(const Four *)(a + i * OWED_GAP + r0), y = *(const Four *)(b + i * OWED_GAP + c0);
#pragma unroll
			for (int r = 0; r < 4; r++)
#pragma unroll
				for (int c = 0; c < 4; c++) sum[r][c] = fmaf(x.v[r], y.v[c], sum[r][c]);
		}
		if ((at + OWED_DEPTH) % ANSWER_BLOCK == 0 || at + OWED_DEPTH >= depth) {
#pragma unroll
			for (int r = 0; r < 4; r++)
#pragma unroll
				for (int c = 0; c < 4; c++) total[r][c] += sum[r][c], sum[r][c] = 0;
		}
	}
#pragma unroll
	for (int r = 0; r < 4; r++)
		if (row + r0 + r < n) *(Four *)(owed + (i64)(row + r0 + r) * ANSWER_PANEL + column + c0) = Four{total[r][0], total[r][1], total[r][2], total[r][3]};
}

// The place of a thread's weight in W: the ring goes down the columns of a tile.
NSTF_DEVICE i64 ring_weight(int k, int tile) { return (i64)(blockIdx.x * 16 + threadIdx.x % 16) * k + tile * 16 + threadIdx.x / 16; }

NSTF_DEVICE f32 quotient(f32 a, f32 b) {
#if defined(NSTF_CUDA)
	return __fdiv_rn(a, b);
#else
	return a / b;
#endif
}

// within: null, nothing is answered; to: the panel's end.
NSTF_KERNEL void __launch_bounds__(256) nstf_trellis_target(
    f32 *__restrict__ z, const f32 *__restrict__ w, const f32 *__restrict__ units, const f32 *__restrict__ owed, const f32 *__restrict__ within, int k, int tile, int to, int width) {
	const i64 at = ring_weight(k, tile);
	f32 v = w[at];
	if (within) {
		const int column = tile * 16 + threadIdx.x / 16 - (to - width), chosen = to - tile * 16 - 16;
		const i64 row = (i64)blockIdx.x * 16 + threadIdx.x % 16;
		const f32 *e = w + row * k + to - chosen, *m = within + column * width + width - chosen;
		f32 sum = owed[row * ANSWER_PANEL + column];
		for (int i = 0; i < chosen; i++) sum += rounded_product(m[i], e[i]);
		v += sum;
	}
	z[(i64)blockIdx.x * 256 + threadIdx.x] = quotient(v, units[blockIdx.x]);
}

NSTF_KERNEL void __launch_bounds__(256) nstf_trellis_error(
    f32 *__restrict__ w, const u8 *__restrict__ codes, i64 stride, const f32 *__restrict__ units, int k, int tile) {
	const u16 *code = (const u16 *)(codes + blockIdx.x * stride);
	const int bit = threadIdx.x * TCQ_BITS, half = bit / 16;
	const u32 state = ((u32)code[half] | (u32)code[(half + 1) % (16 * TCQ_BITS)] << 16) >> (bit % 16) & 0xffff;
	const i64 at = ring_weight(k, tile);
	w[at] = w[at] - rounded_product(units[blockIdx.x], tcq_codeword(state));
}
