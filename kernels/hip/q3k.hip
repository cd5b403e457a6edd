// q3_k (docs/schemes/q3k.md): w = (d*(sc-32)) * (q - 4), sc of 6 bits for 16
// weights, d for 256.
// Planes: codes of 2 bits, 8 bytes per 32 weights, and of 1 bit, 4 bytes; two low
// nibbles of scales, 1 byte; high pairs of 16 scales, 4 bytes per 256; d, 2 bytes.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 4, table = 0;
	static const bool mins = false;
	struct Raw {
		uint2 q;
		u32 bit, high;
		u8 low;
		u16 d;
	};
	const uint2 *q;
	const u32 *bit, *high;
	const u8 *low;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const uint2 *)m.data + row * units;
		bit = (const u32 *)(m.data + all * 8) + row * units;
		low = m.data + all * 12 + row * units;
		high = (const u32 *)(m.data + all * 13) + row * (units / 8);
		d = (const u16 *)(m.data + all * 13 + all / 2) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), load_once(bit + i), high[row * (units / 8) + (u >> 3)], low[i], d[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
		fetch_ahead(bit + row * units, n * 4);
		fetch_ahead(low + row * units, n);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		pair_codes(r.q, v);
		add_bits<2>(r.bit, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[2], f32 (&)[2]) {
		const f32 d = half_value(r.d);
		const u32 high = r.high >> ((u & 7) * 4);
		s[0] = d * (f32)((i32)((r.low & 15) | (high & 3) << 4) - 32);
		s[1] = d * (f32)((i32)(r.low >> 4 | (high & 12) << 2) - 32);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
