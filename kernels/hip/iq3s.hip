// iq3_s (docs/schemes/iq3s.md): w = ±(d*(1+2s)) * grid, s for 32 weights, d for 256.
// Planes: eight indices of 8 bits, 8 bytes per 32 weights; signs, 4 bytes; high bits of
// indices, 1 byte; s, a nibble; d, 2 bytes per 256.
#include "iq3s_tables.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 512 * 4;
	static const bool mins = false;
	struct Raw {
		uint2 q;
		u32 signs;
		u8 high, s;
		u16 d;
	};
	const uint2 *q;
	const u32 *signs;
	const u8 *high, *s;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const uint2 *)m.data + row * units;
		signs = (const u32 *)(m.data + all * 8) + row * units;
		high = m.data + all * 12 + row * units;
		s = m.data + all * 13 + row * (units / 2);
		d = (const u16 *)(m.data + all * 13 + all / 2) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(signs + i), high[i], s[row * (units / 2) + (u >> 1)], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
		fetch_ahead(signs + row * units, n * 4);
	}
	static __device__ void fill(u8 *table) {
		fill_grid4(table, iq3s_points, sizeof(iq3s_points) / 2, 0x0f0d0b0907050301ull);
	}
	static __device__ void codes(const Raw &r, const u8 *table, u32 (&v)[8]) {
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const u32 index = ((i < 4 ? r.q.x : r.q.y) >> (8 * (i & 3)) & 255) | (r.high >> i & 1) << 8;
			v[i] = with_signs(((const u32 *)table)[index], r.signs >> (4 * i));
		}
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[1], f32 (&)[1]) {
		s[0] = half_value(r.d) * (f32)(1 + 2 * (r.s >> (4 * (u & 1)) & 15));
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
