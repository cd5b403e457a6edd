// q6_k (docs/schemes/q6k.md): w = (d*sc) * (q - 32), sc for 16 weights, d for 256.
// Planes: codes of 4 bits, 16 bytes per 32 weights, and of 2 bits, 8 bytes; sc, 16
// bytes per 256; d, 2 bytes.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 32, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		uint2 high;
		u16 sc, d;
	};
	const uint4 *q;
	const uint2 *high;
	const u16 *sc, *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const u8 *end = m.data + m.rows * units * 16;
		q = (const uint4 *)m.data + row * units;
		high = (const uint2 *)end + row * units;
		sc = (const u16 *)(end + m.rows * units * 8) + row * units;
		d = (const u16 *)(end + m.rows * units * 10) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(high + i), sc[i], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(high + row * units, n * 8);
		fetch_ahead(sc + row * units, n * 2);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		nibble_codes(r.q, v);
		add_pairs(r.high, v);
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[2], f32 (&)[2]) {
		const f32 d = half_value(r.d);
		s[0] = d * signed_byte(r.sc, 0), s[1] = d * signed_byte(r.sc, 1);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
