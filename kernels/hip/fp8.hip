// fp8 (docs/schemes/fp8.md): w = e4m3 * scale, a scale for FP8_ROWS x FP8_COLS
// weights, of type FP8_SCALE. Parts as stored: codes, scales.
// FP8_UNIT is 16 where rows and rectangles are whole pieces of 16, else 1.
#include "numbers.hip"
#include "weights.hip"

struct Weights {
	static const int unit = FP8_UNIT, group = 0, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q; // the codes; where they are single, the code in x
		f32 scale;
	};
	const u8 *codes, *scales;
	u32 first;
	int k, wide;

	__device__ Weights(const Matrix &m, i64 row) {
		k = m.k, wide = (m.k + FP8_COLS - 1) / FP8_COLS, first = (u32)row;
		codes = m.data + row * k;
		scales = m.data + ((m.rows * k + 15) & ~15ll);
	}
	__device__ Raw load(int row, int u) const {
		const i64 i = (i64)((first + row) / FP8_ROWS) * wide + u * unit / FP8_COLS;
		const u8 *p = codes + (row * k + u * unit);
		return {unit == 1 ? make_uint4(*p, 0, 0, 0) : load_once((const uint4 *)p), number_at<FP8_SCALE>(scales, i)};
	}
	__device__ void ahead(int row, int n) const { fetch_ahead(codes + row * k, n * unit); }
	static __device__ void fill(u8 *) {}
	static __device__ void floats(const Raw &r, int, const u8 *, f32 (&w)[unit]) {
		const u32 v[4] = {r.q.x, r.q.y, r.q.z, r.q.w};
#pragma unroll
		for (int i = 0; i < unit; i++) w[i] = e4m3_value(v[i / 4] >> (8 * (i & 3)) & 0xff) * r.scale;
	}
};
