// How matvec.hip brings activations to LDS.

#if MATVEC_INT
// Rounds quads of numbers that value gives to bytes: row t of the block's LDS.
template <typename Value> NSTF_DEVICE void round_row(u8 *row, int k, Value value) {
	const int padded = acts_padded(k), quads = padded / 4;
	for (int from = 0; from < quads; from += MATVEC_THREADS) {
		const int i = from + threadIdx.x; // whole groups of 8 lanes are in or out
		uint2 pair;
		const u32 q = round_to_bytes(i * 4 < k ? value(i) : make_float4(0, 0, 0, 0), pair);
		if (i >= quads) continue;
		*(u32 *)(row + acts_piece(i / 4) * 16 + i % 4 * 4) = q;
		if (i % 8 == 0) *(uint2 *)(row + padded + i) = pair;
	}
}

NSTF_DEVICE void copy_row(u8 *row, const uint4 *q, const uint2 *pairs, int k) {
	const int padded = acts_padded(k);
	for (int i = threadIdx.x; i < padded / 16; i += MATVEC_THREADS) *(uint4 *)(row + acts_piece(i) * 16) = q[i];
	for (int i = threadIdx.x; i < padded / 32; i += MATVEC_THREADS) *(uint2 *)(row + padded + i * 8) = pairs[i];
}
#endif

#if MATVEC_SOURCE == MATVEC_NORM
// 1 / sqrt(mean(x^2) + eps) of a row.
NSTF_DEVICE f32 rms_factor(const f32 *x, int k, f32 eps) {
	__shared__ f64 sums[MATVEC_WAVES];
	f64 sum = 0;
	for (int i = threadIdx.x; i < k / 4; i += MATVEC_THREADS) {
		const float4 v = ((const float4 *)x)[i];
#if MATVEC_INT
		sum += (f64)(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
#else
		sum += (f64)v.x * v.x + (f64)v.y * v.y + (f64)v.z * v.z + (f64)v.w * v.w;
#endif
	}
	return (f32)(1 / sqrt(block_sum<MATVEC_THREADS>(sum, sums) / k + (f64)eps));
}
#endif

// Brings the T rows of x from `first` on to LDS, or says where they are. Acts have
// `given` rows in all.
NSTF_DEVICE void bring(Input &in, const u8 *x, const f32 *weight, f32 eps, int first, int given) {
	const int k = in.k;
#if !MATVEC_LDS
	in.rows = x + (i64)first * k * 4;
#elif MATVEC_SOURCE == MATVEC_ACTS
	const int padded = acts_padded(k);
	for (int t = 0; t < MATVEC_T; t++) {
		const u8 *q = x + (i64)(first + t) * padded;
		const u8 *pairs = x + (i64)given * padded + (i64)(first + t) * (padded / 4);
		copy_row((u8 *)in.rows + t * acts_row_bytes(k), (const uint4 *)q, (const uint2 *)pairs, k);
	}
#else
	for (int t = 0; t < MATVEC_T; t++) {
		const float4 *row = (const float4 *)x + (i64)(first + t) * (k / 4);
#if MATVEC_SOURCE == MATVEC_NORM
		const f32 r = rms_factor((const f32 *)row, k, eps);
		auto value = [=](int i) {
			const float4 v = row[i], w = ((const float4 *)weight)[i];
			return make_float4(v.x * r * w.x, v.y * r * w.y, v.z * r * w.z, v.w * r * w.w);
		};
#else
		auto value = [=](int i) { return row[i]; };
#endif
#if MATVEC_INT
		round_row((u8 *)in.rows + t * acts_row_bytes(k), k, value);
#else
		for (int i = threadIdx.x; i < k / 4; i += MATVEC_THREADS) ((float4 *)in.rows)[t * (k / 4) + i] = value(i);
#endif
	}
#endif
}
