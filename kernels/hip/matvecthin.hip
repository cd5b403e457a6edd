// Corrections that matvec.hip adds to its sums (docs/forms/corrected.md): A z for each
// matrix, A[N][R] in q8_0, R of its own, z f32[T][R] what B made of the same input. Each
// lane has four columns of A's row at a time, and adds to what it has of the row's sum.

struct Thin {
	const u8 *a; // null: none
	const f32 *z;
	int rank;
	i64 rows; // of A, those of all experts
};

// Four columns of some rows of A.
struct ThinRaw {
	u32 q[MATVEC_ROWS];
	u16 d[MATVEC_ROWS];
};

NSTF_DEVICE void load_thin(ThinRaw &raw, const Thin &p, i64 row, int column) {
	const bool inside = p.a && column < p.rank;
#pragma unroll
	for (int r = 0; r < MATVEC_ROWS; r++) {
		const i64 at = (row + r) * p.rank + column;
		raw.q[r] = inside ? *(const u32 *)(p.a + at) : 0;
		raw.d[r] = inside ? ((const u16 *)(p.a + p.rows * p.rank))[at / 32] : (u16)0;
	}
}

NSTF_DEVICE void add_thin(Sums &sums, const ThinRaw &raw, const Thin &p, int column) {
	if (!p.a || column >= p.rank) return;
#pragma unroll
	for (int t = 0; t < MATVEC_T; t++) {
		const float4 z = *(const float4 *)(p.z + (i64)(MATVEC_EXPERTS ? blockIdx.y : t) * p.rank + column);
#pragma unroll
		for (int r = 0; r < MATVEC_ROWS; r++) {
			const f32 dot = fmaf(signed_byte(raw.q[r], 3), z.w, fmaf(signed_byte(raw.q[r], 2), z.z, fmaf(signed_byte(raw.q[r], 1), z.y, signed_byte(raw.q[r], 0) * z.x)));
			sums[t][r] = fmaf(half_value(raw.d[r]), dot, sums[t][r]);
		}
	}
}

// Adds the columns behind those that were loaded beforehand.
NSTF_DEVICE void add_thin_rest(Sums &sums, const Thin &p, i64 row, int column) {
	for (; p.a && column < p.rank; column += 4 * MATVEC_LANES) {
		ThinRaw raw;
		load_thin(raw, p, row, column);
		add_thin(sums, raw, p, column);
	}
}
