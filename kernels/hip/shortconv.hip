// A gated short convolution: docs/graph.md, section 14.
//
//	nstf_shortconv_step, for each channel, all rows of a sequence, then its columns: few rows
//	nstf_shortconv_rows, for each channel of a row; nstf_shortconv_keep, the columns: a prompt
//	    out = c * (bias + convolution of b*x)
//
// in f32[T][3][C], b, c and x of C = CONV_CHANNELS; conv f32[C][CONV_KERNEL], bias f32[C]
// where there is one; out f32[T][C]. A sequence's memory at memory + places[owner]*apart
// holds products b*x, f32[CONV_KERNEL-1][C], the oldest position first. Where a sequence
// begins (position 0) it is not read. Rows of a sequence are neighbours at positions in
// order, and those at negative positions are left out.
//
// Grids: x over channels, CONV_THREADS to a block; y over sequences, of rows over rows.
// Waves of 32 or 64, no LDS. Deterministic; a row's bits do not depend on its company.
// Bound: bytes of in.
// Tolerance: that of float32 sums over CONV_KERNEL numbers.
#define NET_CHANNELS CONV_CHANNELS
#define NET_KERNEL CONV_KERNEL
#include "recurrent.hip"

#define CONV_THREADS 128

NSTF_DEVICE f32 product(const f32 *in, i64 row, int channel) {
	const f32 *z = in + row * 3 * CONV_CHANNELS + channel;
	return z[0] * z[2 * CONV_CHANNELS];
}

// One channel of a row.
NSTF_DEVICE void weigh(int row, int channel, int back, int position, const f32 *in, f32 *out, const f32 *conv, const f32 *bias, const f32 *columns) {
#if CONV_BIAS
	f32 sum = bias[channel];
#else
	f32 sum = 0;
#endif
#pragma unroll
	for (int j = 0; j < CONV_KERNEL; j++) {
		const int d = CONV_KERNEL - 1 - j; // positions before
		f32 m = 0;
		if (d <= back)
			m = product(in, row - d, channel);
		else if (d <= position)
			m = columns[(i64)(CONV_KERNEL - 1 - d + back) * CONV_CHANNELS + channel];
		sum = fmaf(conv[channel * CONV_KERNEL + j], m, sum);
	}
	out[(i64)row * CONV_CHANNELS + channel] = in[((i64)row * 3 + 1) * CONV_CHANNELS + channel] * sum;
}

// Keeps the products of a channel that the next rows need, behind so many rows.
NSTF_DEVICE void keep_products(int channel, f32 *columns, const f32 *in, int first, int count) {
#pragma unroll
	for (int j = 0; j < CONV_KERNEL - 1; j++) {
		const int from = count - (CONV_KERNEL - 1) + j; // in these rows
		columns[(i64)j * CONV_CHANNELS + channel] = from >= 0 ? product(in, first + from, channel) : columns[(i64)(count + j) * CONV_CHANNELS + channel];
	}
}

NSTF_KERNEL void __launch_bounds__(CONV_THREADS) nstf_shortconv_step(
    const f32 *in, f32 *out, const f32 *conv, const f32 *bias,
    f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners, int rows) {
	begin_early();
	const int channel = blockIdx.x * CONV_THREADS + threadIdx.x, first = first_row(blockIdx.y, rows, positions, owners);
	if (first < 0 || channel >= CONV_CHANNELS) return;
	f32 *columns = memory + (i64)places[owners[first]] * apart;
	int row = first;
	do {
		const int before = row - first;
		weigh(row, channel, before < CONV_KERNEL - 1 ? before : CONV_KERNEL - 1, positions[row], in, out, conv, bias, columns);
		row++;
	} while (row < rows && follows(row, positions, owners));
	keep_products(channel, columns, in, first, row - first);
}

NSTF_KERNEL void __launch_bounds__(CONV_THREADS) nstf_shortconv_rows(
    const f32 *in, f32 *out, const f32 *conv, const f32 *bias,
    const f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners) {
	begin_early();
	const int row = blockIdx.y, channel = blockIdx.x * CONV_THREADS + threadIdx.x, position = positions[row];
	if (position < 0 || channel >= CONV_CHANNELS) return;
	weigh(row, channel, rows_before(row, positions, owners), position, in, out, conv, bias, memory + (i64)places[owners[row]] * apart);
}

NSTF_KERNEL void __launch_bounds__(CONV_THREADS) nstf_shortconv_keep(
    const f32 *in, f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners, int rows) {
	begin_early();
	const int channel = blockIdx.x * CONV_THREADS + threadIdx.x, first = first_row(blockIdx.y, rows, positions, owners);
	if (first < 0 || channel >= CONV_CHANNELS) return;
	int row = first + 1;
	while (row < rows && follows(row, positions, owners)) row++;
	keep_products(channel, memory + (i64)places[owners[first]] * apart, in, first, row - first);
}
