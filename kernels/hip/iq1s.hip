// iq1_s (docs/schemes/iq1s.md): w = (d*(2s+1)) * (grid ± 0.125), s and the sign of
// the shift for 32 weights, d for 256. Codes are eight times the level.
// Planes: four indices of 8 bits, 4 bytes per 32 weights; high bits, s and sign, 2 bytes;
// d, 2 bytes per 256.
#include "iq1s_tables.hip"
#include "weights.hip"

// Points are 8 times the value plus 8. Eight times a weight's level is that less
// 7, or less 9 where the shift is down: bytewise, without a carry.
NSTF_DEVICE u32 shifted(u32 point, u32 down) { return (point + (down ? 0x77777777 : 0x79797979)) ^ 0x80808080; }

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 2048 * 8;
	static const bool mins = false;
	struct Raw {
		u32 q;
		u16 high, d;
	};
	const u32 *q;
	const u16 *high, *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const u32 *)m.data + row * units;
		high = (const u16 *)(m.data + all * 4) + row * units;
		d = (const u16 *)(m.data + all * 6) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), high[i], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 4);
	}
	static __device__ void fill(u8 *table) {
		fill_grid8(table, iq1s_points, sizeof(iq1s_points) / 2, 16u << 16 | 8u << 8);
	}
	static __device__ void codes(const Raw &r, const u8 *table, u32 (&v)[8]) {
#pragma unroll
		for (int l = 0; l < 4; l++) {
			const uint2 point = ((const uint2 *)table)[(r.q >> (8 * l) & 255) | (r.high >> (3 * l) & 7) << 8];
			v[2 * l] = shifted(point.x, r.high >> 15), v[2 * l + 1] = shifted(point.y, r.high >> 15);
		}
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) {
		s[0] = half_value(r.d) * (f32)((r.high >> 12 & 7) * 2 + 1) * 0.125f;
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
