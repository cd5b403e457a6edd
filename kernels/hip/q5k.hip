// q5_k (docs/schemes/q5k.md): w = (d*sc)*q - dmin*m, sc and m of 6 bits for 32
// weights, d and dmin for 256.
// Planes: codes of 4 bits, 16 bytes per 32 weights, and of 1 bit, 4 bytes; heads, 16
// bytes per 256.
#include "headk4.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 0;
	static const bool mins = true;
	struct Raw {
		uint4 q;
		u32 high;
		uint4 head;
	};
	const uint4 *q;
	const u32 *high;
	const uint4 *heads;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const u8 *end = m.data + m.rows * units * 16;
		q = (const uint4 *)m.data + row * units;
		high = (const u32 *)end + row * units;
		heads = (const uint4 *)(end + m.rows * units * 4) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(high + i), heads[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(high + row * units, n * 4);
		fetch_ahead(heads + row * (units / 8), n * 2);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		nibble_codes(r.q, v);
		add_bits<4>(r.high, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[1], f32 (&m)[1]) {
		head_scales(r.head, u, s[0], m[0]);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
