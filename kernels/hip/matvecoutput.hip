// What matvec.hip does with the sums of a tile.

struct Output {
	f32 *y;
	const f32 *bias, *residual;
	int n;
};

// Writes the rows of a lane: `have` of them from row on. tile is the first row
// of the block's tile; rounded outputs are rows `from` on of `all`.
NSTF_DEVICE void write(const Output &out, const Sums (&sums)[MATVEC_VIEWS], int row, int have, int tile, u8 *rounded, int from, int all) {
	const int lane = threadIdx.x % MATVEC_LANES, part = threadIdx.x / NSTF_WAVE % MATVEC_SPLIT;
#if MATVEC_QUANTIZE
	__shared__ __align__(16) f32 values[MATVEC_T][MATVEC_TILE];
	__syncthreads(); // those of the tile before have been read
#endif
	if (part == 0) {
#pragma unroll
		for (int t = 0; t < MATVEC_T; t++)
#pragma unroll
			for (int r = 0; r < MATVEC_ROWS; r++) {
				if (lane != (t * MATVEC_ROWS + r) % MATVEC_LANES) continue;
#if MATVEC_GATED
				f32 v = activated(sums[0][t][r]) * sums[1][t][r];
#else
				f32 v = sums[0][t][r];
#endif
#if MATVEC_QUANTIZE
				values[t][row - tile + r] = r < have ? v : 0;
#else
				if (r >= have) continue;
				const i64 i = (i64)(MATVEC_EXPERTS ? blockIdx.y : t) * out.n + row + r;
				if (out.bias) v += out.bias[row + r];
				if (out.residual) v += out.residual[i];
				out.y[i] = v;
#endif
			}
	}
#if MATVEC_QUANTIZE
	__syncthreads();
	const int padded = acts_padded(out.n);
	for (int from = 0; from < MATVEC_T * MATVEC_TILE / 4; from += MATVEC_THREADS) {
		const int i = from + threadIdx.x;
		const bool in = i < MATVEC_T * MATVEC_TILE / 4;
		const int t = in ? i / (MATVEC_TILE / 4) : 0, at = i % (MATVEC_TILE / 4) * 4;
		uint2 pair;
		const u32 q = round_to_bytes(*(const float4 *)&values[t][at], pair);
		if (!in || tile + at >= padded) continue;
		const i64 token = from + t;
		*(u32 *)(rounded + token * padded + tile + at) = q;
		if (at % 32 == 0) *(uint2 *)(rounded + all * (i64)padded + token * (padded / 4) + (tile + at) / 4) = pair;
	}
#endif
}
