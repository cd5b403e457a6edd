// iq4_nl (docs/schemes/iq4nl.md): w = d * level[q], d for 32 weights.
// Planes: codes of 4 bits, 16 bytes per 32 weights; d, 2 bytes.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		u16 d;
	};
	const uint4 *q;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint4 *)m.data + row * units;
		d = (const u16 *)(m.data + m.rows * units * 16) + row * units;
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), d[i]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(d + row * units, n * 2);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		const u32 levels[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}; // -127 -104 -83 -65 ... 113
		nibble_levels(r.q, levels, v);
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) {
		s[0] = half_value(r.d);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
