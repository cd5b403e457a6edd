// iq3_xxs (docs/schemes/iq3xxs.md): w = ±((d*(0.5+s))*0.5) * grid, s for 32 weights,
// d for 256.
// Planes: eight indices, 8 bytes per 32 weights; a word of signs and s, 4 bytes; d, 2
// bytes per 256.
#include "iq3xxs_tables.hip"
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 256 * 4;
	static const bool mins = false;
	struct Raw {
		uint2 q;
		u32 word;
		u16 d;
	};
	const uint2 *q;
	const u32 *words;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const uint2 *)m.data + row * units;
		words = (const u32 *)(m.data + all * 8) + row * units;
		d = (const u16 *)(m.data + all * 12) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(words + i), d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
		fetch_ahead(words + row * units, n * 4);
	}
	static __device__ void fill(u8 *table) {
		fill_grid4(table, iq3xxs_points, sizeof(iq3xxs_points) / 2, 0x3e342c241c140c04ull);
	}
	static __device__ void codes(const Raw &r, const u8 *table, u32 (&v)[8]) {
#pragma unroll
		for (int l = 0; l < 4; l++) {
			const u32 pair = (l < 2 ? r.q.x : r.q.y) >> (16 * (l & 1)), signs = even_signs(r.word >> (7 * l));
			v[2 * l] = with_signs(((const u32 *)table)[pair & 255], signs);
			v[2 * l + 1] = with_signs(((const u32 *)table)[pair >> 8 & 255], signs >> 4);
		}
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) {
		s[0] = half_value(r.d) * (0.5f + (f32)(r.word >> 28)) * 0.5f;
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
