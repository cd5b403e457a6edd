// q1_0 (docs/schemes/q10.md): w = d or -d, d for 128 weights: codes 2 and 0 for a bit.
// Planes: 1 bit, 4 bytes per 32 weights; d, 2 bytes per 128.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 1, table = 0;
	static const bool mins = false;
	struct Raw {
		u32 q;
		u16 d;
	};
	const u32 *q;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const u32 *)m.data + row * units;
		d = (const u16 *)(m.data + m.rows * units * 4) + row * (units / 4);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), d[i >> 2]};
	}
	__device__ void ahead(int row, int n) const { fetch_ahead(q + row * units, n * 4); }
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
#pragma unroll
		for (int i = 0; i < 8; i++) v[i] = 0;
		add_bits<1>(r.q, v);
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) { s[0] = half_value(r.d); }
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
