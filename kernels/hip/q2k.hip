// q2_k (docs/schemes/q2k.md): w = (d*sc)*q - dmin*m, sc and m of 4 bits for 16
// weights, d and dmin for 256.
// Planes: codes of 2 bits, 8 bytes per 32 weights; two bytes of sc and m for 32
// weights; d and dmin, 4 bytes per 256.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 0, table = 0;
	static const bool mins = true;
	struct Raw {
		uint2 q;
		u16 sm;
		u32 dm;
	};
	const uint2 *q;
	const u16 *sm;
	const u32 *dm;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 all = m.rows * units;
		q = (const uint2 *)m.data + row * units;
		sm = (const u16 *)(m.data + all * 8) + row * units;
		dm = (const u32 *)(m.data + all * 10) + row * (units / 8);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return {load_once(q + i), sm[i], dm[row * (units / 8) + (u >> 3)]};
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 8);
		fetch_ahead(sm + row * units, n * 2);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		pair_codes(r.q, v);
	}
	static __device__ void scales(const Raw &r, int u, f32 (&s)[2], f32 (&m)[2]) {
		const f32 d = half_value((u16)r.dm), dmin = half_value((u16)(r.dm >> 16));
#pragma unroll
		for (int g = 0; g < 2; g++) {
			s[g] = d * (f32)(r.sm >> (8 * g) & 15);
			m[g] = dmin * (f32)(r.sm >> (8 * g + 4) & 15);
		}
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
