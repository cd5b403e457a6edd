// iq2_xs (docs/schemes/iq2xs.md): w = ±((d*(0.5+s))*0.25) * grid, s for 16 weights,
// d for 256.
// Planes: 8 bytes per 32 weights, four words of an index and signs; two s, 1 byte; d, 2
// bytes per 256.
#include "iq2xs_tables.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 0, table = 512 * 8;
	static const bool mins = false;
	struct Raw {
		uint2 q;
		u8 s;
		u16 d;
	};
	const uint2 *q;
	const u8 *s;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint2 *)m.data + row * units;
		s = m.data + m.rows * units * 8 + row * units;
		d = (const u16 *)(m.data + m.rows * units * 9) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), s[i], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
	}
	static __device__ void fill(u8 *table) {
		fill_grid8(table, iq2xs_points, sizeof(iq2xs_points) / 2, 43u << 16 | 25u << 8 | 8u);
	}
	static __device__ void codes(const Raw &r, const u8 *table, u32 (&v)[8]) {
#pragma unroll
		for (int l = 0; l < 4; l++) {
			const u32 word = (l < 2 ? r.q.x : r.q.y) >> (16 * (l & 1));
			const uint2 point = ((const uint2 *)table)[word & 511];
			const u32 signs = even_signs(word >> 9);
			v[2 * l] = with_signs(point.x, signs), v[2 * l + 1] = with_signs(point.y, signs >> 4);
		}
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[2], f32 (&)[2]) {
		const f32 d = half_value(r.d);
		s[0] = d * (0.5f + (f32)(r.s & 15)) * 0.25f, s[1] = d * (0.5f + (f32)(r.s >> 4)) * 0.25f;
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
