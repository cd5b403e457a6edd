// q2_0 (docs/schemes/q20.md): w = d * (q - 1), d for 64 weights.
// Planes: codes of 2 bits, 8 bytes per 32 weights; d, 2 bytes per 64.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 1, table = 0;
	static const bool mins = false;
	struct Raw {
		uint2 q;
		u16 d;
	};
	const uint2 *q;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint2 *)m.data + row * units;
		d = (const u16 *)(m.data + m.rows * units * 8) + row * (units / 2);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), d[i >> 1]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
		fetch_ahead(d + row * (units / 2), n);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) { pair_codes(r.q, v); }
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) { s[0] = half_value(r.d); }
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
