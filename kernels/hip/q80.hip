// q8_0 (docs/schemes/q80.md): w = d * q, d for 32 weights.
// Planes: codes, 32 bytes per 32 weights in order; d, 2 bytes.
#include "weights.hip"

struct Weights {
	static const int unit = 16, group = 32, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		u16 d;
	};
	const uint4 *q;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 16;
		q = (const uint4 *)m.data + row * units;
		d = (const u16 *)(m.data + m.rows * m.k) + row * (units / 2);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), d[row * (units / 2) + (u >> 1)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(d + row * (units / 2), n);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[4]) { v[0] = r.q.x, v[1] = r.q.y, v[2] = r.q.z, v[3] = r.q.w; }
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) { s[0] = half_value(r.d); }
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
