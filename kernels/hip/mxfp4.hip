// mxfp4 (docs/schemes/mxfp4.md): w = 2^(e-128) * level[q], e for 32 weights; levels are
// E2M1 values doubled.
// Planes: codes of 4 bits, 16 bytes per 32 weights; e, 1 byte.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 32, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		u8 e;
	};
	const uint4 *q;
	const u8 *e;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		q = (const uint4 *)m.data + row * units;
		e = m.data + m.rows * units * 16 + row * units;
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), e[i]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(e + row * units, n);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		const u32 levels[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}; // 0 1 2 3 4 6 8 12 0 -1 ... -12
		nibble_levels(r.q, levels, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[1], f32 (&)[1]) {
		s[0] = of_bits(r.e < 2 ? 0x200000u << r.e : (u32)(r.e - 1) << 23);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
