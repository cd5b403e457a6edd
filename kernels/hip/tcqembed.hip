// Rows of an embedding table of the scheme tcq, as embed.hip does it for the other
// schemes.
//
//	for t, k: y[t][k] = W[token[t]][k] * scale  (+ P[position[t]][k])
//
// TCQ_IN and TCQ_OUT are the rotated blocks' columns and rows; in f16[K] and out
// f16[rows] or null; the rest as embed.hip says. Where rows are rotated, all
// TCQ_OUT rows of a block are decoded for one of them.
//
// Grid: x is 1024 columns, y is t; a block of 256 threads with 4 columns each; any
// wave size; no LDS. Deterministic. Bound: instructions, about 20 * TCQ_OUT a
// number. Exact: the reference decode's bits, a product and a sum.
#include "hadamard.hip"
#include "tcq.hip"

NSTF_KERNEL void __launch_bounds__(256) nstf_embed_tcq(
    f32 *__restrict__ y, const u8 *__restrict__ w, i64 rows, int k, const i32 *__restrict__ token, f32 scale,
    const f32 *__restrict__ positions, const i32 *__restrict__ position,
    u64 in_low, u64 in_high, u64 out_low, u64 out_high, const u16 *__restrict__ in, const u16 *__restrict__ out) {
	let_next_begin();
	wait_for_inputs();
	const int t = blockIdx.y, from = (blockIdx.x * 256 + threadIdx.x) * 4, safe = from < k ? from : 0;
	const int row = token[t], among = row % TCQ_OUT;
	const Weights view(Matrix{w, rows, k}, row - among);
	// Butterflies of the one row that is wanted, as pairs of rows become complete:
	// half[s] is what waits for its partner 2^s rows further on.
	f32 half[8][4], v[4];
#pragma unroll 1
	for (int r = 0; r < TCQ_OUT; r++) {
		const f32 unit = tcq_unit(((const u16 *)view.units)[(view.first + r) / 16]);
#pragma unroll
		for (int i = 0; i < 4; i++) v[i] = rounded_product(unit, tcq_codeword(view.state(r, safe + i)));
		hadamard<TCQ_IN>(v);
		apply_signs<TCQ_IN>(v, {in_low, in_high}, safe);
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (in) v[i] = rounded_product(v[i], half_value(in[safe + i]));
#pragma unroll
		for (int s = 0; (1 << s) <= TCQ_OUT; s++) {
			const bool waits = (r >> s & 1) == 0; // all the lower bits are set
#pragma unroll
			for (int i = 0; i < 4; i++) {
				if (waits) half[s][i] = v[i];
				else v[i] = among >> s & 1 ? half[s][i] - v[i] : half[s][i] + v[i];
			}
			if (waits) break;
		}
	}
	const f32 factor = hadamard_factor(TCQ_OUT);
	const u64 set = among & 64 ? out_high : out_low;
	f32 sign = TCQ_OUT > 1 && (set >> (among & 63) & 1) ? -1.0f : 1.0f;
	if (out) sign *= half_value(out[row]);
	if (from >= k) return;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		f32 sum = TCQ_OUT > 1 ? rounded_product(v[i], factor) : v[i];
		sum = rounded_product(rounded_product(sum, sign), scale);
		if (positions) sum += positions[(i64)position[t] * k + from + i];
		y[(i64)t * k + from + i] = sum;
	}
}
