// Plain element types (docs/schemes/plain.md), as stored: row after row.
// PLAIN_TYPE is the scheme's id; PLAIN_UNIT the elements in 16 bytes for f32,
// f16 and bf16 whose rows are whole pieces of 16 bytes, 1 otherwise.
#include "numbers.hip"
#include "weights.hip"

struct Weights {
	static const int unit = PLAIN_UNIT, group = 0, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q; // the elements; where they are single, the value in x
	};
	const u8 *data;
	i64 first; // element
	int k;

	__device__ Weights(const Matrix &m, i64 row) {
		data = m.data, first = row * m.k, k = m.k;
	}
	__device__ Raw load(int row, int u) const {
		const i64 i = first + (row * k + u * unit);
		if (unit == 1) return {make_uint4(bits_of(number_at<PLAIN_TYPE>(data, i)), 0, 0, 0)};
		return {load_once((const uint4 *)(data + i * (16 / unit)))};
	}
	__device__ void ahead(int row, int n) const {
		if (unit > 1) fetch_ahead(data + (first + row * k) * (16 / unit), n * 16);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void floats(const Raw &r, int, const u8 *, f32 (&w)[unit]) {
		const u32 v[4] = {r.q.x, r.q.y, r.q.z, r.q.w};
#pragma unroll
		for (int i = 0; i < unit; i++) {
			const u16 half = (u16)(v[i / 2 % 4] >> (16 * (i & 1)));
			w[i] = unit < 8 ? of_bits(v[i % 4]) : PLAIN_TYPE == NSTF_F16 ? half_value(half) : bf16_value(half);
		}
	}
};
