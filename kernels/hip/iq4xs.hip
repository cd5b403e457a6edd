// iq4_xs (docs/schemes/iq4xs.md): w = (d*(sc-32)) * level[q], sc of 6 bits for 32
// weights, d for 256.
// Planes: codes of 4 bits, 16 bytes per 32 weights; heads, 8 bytes per 256: d, the high
// pairs of 8 scales, their low nibbles.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		uint2 head;
	};
	const uint4 *q;
	const uint2 *heads;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint4 *)m.data + row * units;
		heads = (const uint2 *)(m.data + m.rows * units * 16) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), heads[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(heads + row * (units / 8), n);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		const u32 levels[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}; // -127 -104 -83 -65 ... 113
		nibble_levels(r.q, levels, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[1], f32 (&)[1]) {
		const int g = u & 7;
		const i32 sc = (r.head.y >> (4 * g) & 15) | (r.head.x >> (16 + 2 * g) & 3) << 4;
		s[0] = half_value((u16)r.head.x) * (f32)(sc - 32);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
