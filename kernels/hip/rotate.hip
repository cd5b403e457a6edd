// What stands between activations and the codewords of the scheme tcq
// (docs/schemes/tcq.md): the output side of the products before, and the input
// side of the products after.
//
//	ROTATE_OUT: y = H(x) * signs * out  + bias + residual, H of blocks of ROTATE_OUT rows
//	ROTATE_GATED: the same for x and up, then y = act(y) * y of up
//	ROTATE_IN: z = H(signs * in * y), H of blocks of ROTATE_IN columns
//
// x, up, y, z f32[T][N]; out, in f16[N] or null; bias f32[N] or null; residual
// f32[T][N] or null. N a multiple of 16 and of the blocks, which are powers of two
// from 1 to 128, 0 for no such side. y and z may be x; y may be null. ROTATE_ROUND:
// z is rounded to bytes (acts.hip). ROTATE_EXPERTS: row t is of expert[t], whose out
// and bias lie N numbers apart.
//
// Grid: x is 1024 numbers of a row, y is t; a block of 256 threads with 4 numbers
// each; any wave size; no LDS. Deterministic. Bound: 4 bytes read and written for
// each number. Exact: y and z have the processor's bits, but for act.
#include "hadamard.hip"
#include "acts.hip"
#if ROTATE_GATED
#include "activation.hip"
#endif

#if ROTATE_OUT
NSTF_DEVICE void output_side(f32 (&v)[4], int n, i64 row, const Signs &signs, const u16 *out, const f32 *bias) {
	hadamard<ROTATE_OUT>(v);
	apply_signs<ROTATE_OUT>(v, signs, n);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (out) v[i] = rounded_product(v[i], half_value(out[row + n + i]));
		if (bias) v[i] += bias[row + n + i];
	}
}
#endif

NSTF_KERNEL void __launch_bounds__(256) nstf_rotate(
    int n, const f32 *x, const f32 *up, const i32 *expert, u64 out_low, u64 out_high, const u16 *out, const u16 *up_out,
    const f32 *bias, const f32 *up_bias, const f32 *residual, f32 *y, u64 in_low, u64 in_high, const u16 *in, u8 *z) {
	let_next_begin();
	wait_for_inputs();
	const int from = (blockIdx.x * 256 + threadIdx.x) * 4;
	const i64 at = (i64)blockIdx.y * n + from;
	const bool inside = from < n; // N is a multiple of 4
	f32 v[4] = {0, 0, 0, 0};
	auto take = [&](const f32 *p) {
		const float4 q = inside ? *(const float4 *)(p + at) : make_float4(0, 0, 0, 0);
		v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
	};
	auto give = [&](f32 *p) {
		if (inside) *(float4 *)(p + at) = make_float4(v[0], v[1], v[2], v[3]);
	};
	take(x);
#if ROTATE_OUT
	const i64 row = ROTATE_EXPERTS ? (i64)expert[blockIdx.y] * n : 0;
	const int safe = inside ? from : 0; // of scales and biases
	const Signs signs = {out_low, out_high};
	output_side(v, safe, row, signs, out, bias);
#if ROTATE_GATED
	f32 gate[4] = {v[0], v[1], v[2], v[3]};
	take(up);
	output_side(v, safe, row, signs, up_out, up_bias);
#pragma unroll
	for (int i = 0; i < 4; i++) v[i] = gated(gate[i], v[i]);
#endif
	if (residual && inside) {
		const float4 q = *(const float4 *)(residual + at);
		v[0] += q.x, v[1] += q.y, v[2] += q.z, v[3] += q.w;
	}
	if (y) give(y);
#endif
#if ROTATE_IN
	const Signs columns = {in_low, in_high};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (in && inside) v[i] = rounded_product(v[i], half_value(in[from + i]));
		if (!inside) v[i] = 0;
	}
	apply_signs<ROTATE_IN>(v, columns, from);
	hadamard<ROTATE_IN>(v);
#if ROTATE_ROUND
	uint2 pair; // whole groups of 8 lanes are in or out
	const u32 q = round_to_bytes(make_float4(v[0], v[1], v[2], v[3]), pair);
	if (from >= acts_padded(n)) return;
	u8 *to = z + (i64)blockIdx.y * acts_row_bytes(n);
	*(u32 *)(to + acts_quad(from / 4)) = q;
	if (from % 32 == 0) *(uint2 *)(to + acts_pair(n, from / 4)) = pair;
#else
	give((f32 *)z);
#endif
#endif
}
