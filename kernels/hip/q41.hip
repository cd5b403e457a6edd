// q4_1 (docs/schemes/q41.md): w = d*q + m, d and m for 32 weights.
// Planes: codes of 4 bits, 16 bytes per 32 weights; d and m, 4 bytes.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 0;
	static const bool mins = true;
	struct Raw {
		uint4 q;
		u32 dm;
	};
	const uint4 *q;
	const u32 *dm;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint4 *)m.data + row * units;
		dm = (const u32 *)(m.data + m.rows * units * 16) + row * units;
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(dm + i)};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(dm + row * units, n * 4);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		nibble_codes(r.q, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[1], f32 (&m)[1]) {
		s[0] = half_value((u16)r.dm), m[0] = -half_value((u16)(r.dm >> 16));
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
