// What matvec.hip does with the sums of a tile.

struct Output {
	f32 *y;
	const f32 *bias, *residual;
	int n;
};

// What is added to an output; with MATVEC_BIASED, which has no residual, the biases of both matrices.
struct Added {
	f32 bias, residual;
};

// It can be read before the sum is known, if a lane has but one output.
#define MATVEC_ADDS_EARLY (!MATVEC_QUANTIZE && (!MATVEC_GATED || MATVEC_BIASED) && MATVEC_T * MATVEC_ROWS <= MATVEC_LANES)

// Where output n of row t lies.
NSTF_DEVICE i64 output_at(const Output &out, int t, int n) { return (i64)(MATVEC_EXPERTS ? blockIdx.y : t) * out.n + n; }

NSTF_DEVICE Added added(const Output &out, int t, int n) {
	return {out.bias ? out.bias[n] : 0, out.residual ? out.residual[MATVEC_BIASED ? n : output_at(out, t, n)] : 0};
}

// The same for the output that this lane will write.
NSTF_DEVICE Added added_early(const Output &out, int row, int base) {
	const int i = threadIdx.x % MATVEC_LANES, n = base + i % MATVEC_ROWS;
	if (i >= MATVEC_T * MATVEC_ROWS || n < row) return {0, 0};
	return added(out, i / MATVEC_ROWS, n);
}

#if MATVEC_SEND
// Where outputs go beside y: inboxes of few numbers.
struct Sending {
	u64 *inboxes[8];
	u64 slot;
	int rank;
	u32 mark;
	__device__ __forceinline__ void send(i64 i, f32 v) const {
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++)
			if (r != rank) send_number(inboxes[r] + ((mark & 1) * EX_RANKS + rank) * slot + i, v, mark);
	}
};
#define MATVEC_SENT , const Sending &sending
#define MATVEC_SENDING , sending
#else
#define MATVEC_SENT
#define MATVEC_SENDING
#endif

// Writes the rows of a lane, whose sums are of rows base on, those before row
// being another's. tile is the first row of the block's tile; rounded outputs are
// rows `from` on.
NSTF_DEVICE void write(const Output &out, const Sums (&sums)[MATVEC_VIEWS], int row, int base, int tile, const Added &early, u8 *rounded, int from MATVEC_SENT) {
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
#if MATVEC_BIASED
				const Added both = MATVEC_ADDS_EARLY ? early : added(out, t, base + r);
				f32 v = gated(sums[0][t][r] + both.bias, sums[1][t][r] + both.residual);
#else
				f32 v = gated(sums[0][t][r], sums[1][t][r]);
#endif
#else
				f32 v = sums[0][t][r];
#endif
#if MATVEC_QUANTIZE
				if (base + r >= row) values[t][base + r - tile] = v;
				if (row + r >= out.n) values[t][row + r - tile] = 0;
#else
				if (base + r < row) continue;
#if MATVEC_GATED
				out.y[output_at(out, t, base + r)] = v;
#else
				const Added add = MATVEC_ADDS_EARLY ? early : added(out, t, base + r);
				v = v + add.bias + add.residual;
				out.y[output_at(out, t, base + r)] = v;
#if MATVEC_SEND
				sending.send((i64)(from + t) * out.n + base + r, v);
#endif
#endif
#endif
			}
	}
#if MATVEC_QUANTIZE
	__syncthreads();
	const int padded = acts_padded(out.n);
	for (int start = 0; start < MATVEC_T * MATVEC_TILE / 4; start += MATVEC_THREADS) {
		const int i = start + threadIdx.x;
		const bool in = i < MATVEC_T * MATVEC_TILE / 4;
		const int t = in ? i / (MATVEC_TILE / 4) : 0, at = i % (MATVEC_TILE / 4) * 4;
		uint2 pair;
		const u32 q = round_to_bytes(*(const float4 *)&values[t][at], pair);
		if (!in || tile + at >= padded) continue;
		u8 *to = rounded + (i64)(from + t) * acts_row_bytes(out.n);
		*(u32 *)(to + acts_quad((tile + at) / 4)) = q;
		if (at % 32 == 0) *(uint2 *)(to + acts_pair(out.n, (tile + at) / 4)) = pair;
	}
#endif
}
