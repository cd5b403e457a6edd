// nvfp4 (docs/schemes/nvfp4.md): w = half(s) * level[q], s for 16 weights; levels are E2M1
// values doubled. NVFP4_ROWS rows share a further factor, a float32; 0: there is none.
// Planes: codes of 4 bits, 16 bytes per 32 weights; s, 2 bytes per 32. The factors are the
// second part.
#include "weights.hip"

struct Weights {
	static const int unit = 32, group = 16, zero = 0, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 q;
		u16 s;
		f32 factor;
	};
	const uint4 *q;
	const u16 *s;
	const f32 *factors;
	i64 first;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		first = row;
		q = (const uint4 *)m.data + row * units;
		s = (const u16 *)(m.data + m.rows * units * 16) + row * units;
		factors = (const f32 *)(m.data + (m.rows * units * 18 + 15) / 16 * 16);
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
#if NVFP4_ROWS
		return {load_once(q + i), s[i], factors[(first + row) / NVFP4_ROWS]};
#else
		return {load_once(q + i), s[i], 1};
#endif
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(q + row * units, n * 16);
		fetch_ahead(s + row * units, n * 2);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		const u32 levels[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}; // 0 1 2 3 4 6 8 12 0 -1 ... -12
		nibble_levels(r.q, levels, v);
	}
	// Seven bits are the upper ones of an f16 that is 128 times too small; 127 is 0.
	static __device__ f32 half_of(u32 s) { return s == 127 ? 0 : half_value((u16)((s & 127) << 7)) * 128; }
	static __device__ void scales(const Raw &r, int, f32 (&s)[2], f32 (&)[2]) {
		s[0] = half_of(r.s & 255) * r.factor;
		s[1] = half_of(r.s >> 8) * r.factor;
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) {
		decode_codes<Weights>(Raw{r.q, r.s, 1}, u, t, w);
#if NVFP4_ROWS
#pragma unroll
		for (int i = 0; i < unit; i++) w[i] *= r.factor;
#endif
	}
};
