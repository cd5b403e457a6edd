// iq2_s (docs/schemes/iq2s.md): w = ±((d*(0.5+s))*0.25) * grid, s for 16 weights, d
// for 256.
// Planes: four indices of 8 bits, 4 bytes per 32 weights; signs, 4 bytes; high bits of
// indices, 1 byte; two s, 1 byte; d, 2 bytes per 256.
#include "iq2s_tables.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 0, table = 1024 * 8;
	static const bool mins = false;
	struct Raw {
		u32 q, signs;
		u8 high, s;
		u16 d;
	};
	const u32 *q, *signs;
	const u8 *high, *s;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const u32 *)m.data + row * units;
		signs = (const u32 *)m.data + all + row * units;
		high = m.data + all * 8 + row * units;
		s = m.data + all * 9 + row * units;
		d = (const u16 *)(m.data + all * 10) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(signs + i), high[i], s[i], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 4);
		fetch_ahead(signs + row * units, n * 4);
	}
	static __device__ void fill(u8 *table) {
		fill_grid8(table, iq2s_points, sizeof(iq2s_points) / 2, 43u << 16 | 25u << 8 | 8u);
	}
	static __device__ void codes(const Raw &r, const u8 *table, u32 (&v)[8]) {
#pragma unroll
		for (int l = 0; l < 4; l++) {
			const uint2 point = ((const uint2 *)table)[(r.q >> (8 * l) & 255) | (r.high >> (2 * l) & 3) << 8];
			const u32 signs = r.signs >> (8 * l);
			v[2 * l] = with_signs(point.x, signs), v[2 * l + 1] = with_signs(point.y, signs >> 4);
		}
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[2], f32 (&)[2]) {
		const f32 d = half_value(r.d);
		s[0] = d * (0.5f + (f32)(r.s & 15)) * 0.25f, s[1] = d * (0.5f + (f32)(r.s >> 4)) * 0.25f;
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
