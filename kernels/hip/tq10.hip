// tq1_0 (docs/schemes/tq10.md): w = d * (q - 1), d for 256 weights. A byte is a
// fraction whose base-3 digits are codes of five weights.
// Planes: 48 bytes and 4 bytes of digits per 256 weights; d, 2 bytes.
#include "weights.hip"

// Digit n of each byte of v: the low byte of c * 3^n leaves it on top.
NSTF_DEVICE u32 digits(u32 v, u32 n) {
	const u32 power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
	const u32 even = (v & 0x00ff00ff) * power & 0x00ff00ff, odd = (v >> 8 & 0x00ff00ff) * power & 0x00ff00ff;
	return (even * 3 >> 8 & 0x00030003) | (odd * 3 & 0x03000300);
}

struct Weights {
	static const int unit = 32, group = 32, zero = 1, table = 0;
	static const bool mins = false;
	struct Raw {
		uint4 a, b; // the bytes of the first 16 weights and of the last, by words
		u16 d;
		u8 u;
	};
	const uint4 *five;
	const u32 *four;
	const u16 *d;
	int units;

	__device__ Weights(const Matrix &m, i64 row) {
		units = m.k / 32;
		const i64 blocks = m.rows * (units / 8), at = row * (units / 8);
		five = (const uint4 *)m.data + at * 3;
		four = (const u32 *)(m.data + blocks * 48) + at;
		d = (const u16 *)(m.data + blocks * 52) + at;
	}
	__device__ Raw load(int row, int u) const {
		const int i = row * units + u;
		return with(i);
	}
	// Digits 0 to 4 of the first 32 bytes are units 0 to 4; those of the next 16
	// are half a unit each; the last half unit is digits 0 to 3 of the last 4.
	__device__ Raw with(int i) const {
		const u32 block = i / 8;
		const u8 u = i & 7;
		Raw r = {five[block * 3 + (u < 5 ? 0 : 2)], five[block * 3 + (u < 5 ? 1 : 2)], d[block], u};
		if (u == 7) r.b.x = r.b.y = r.b.z = r.b.w = four[block];
		return r;
	}
	__device__ void ahead(int row, int n) const {
		fetch_ahead(five + row * (units / 8) * 3, n * 6);
	}
	static __device__ void fill(u8 *) {}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[8]) {
		const u32 a[4] = {r.a.x, r.a.y, r.a.z, r.a.w}, b[4] = {r.b.x, r.b.y, r.b.z, r.b.w};
		const u32 first = r.u < 5 ? r.u : 2 * r.u - 10; // digit of the first 16 weights
#pragma unroll
		for (int i = 0; i < 4; i++) {
			v[i] = digits(a[i], first);
			v[i + 4] = digits(b[i], r.u < 5 ? first : r.u < 7 ? first + 1 : i);
		}
	}
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&)[1]) {
		s[0] = half_value(r.d);
	}
	static __device__ void floats(const Raw &r, int u, const u8 *t, f32 (&w)[unit]) { decode_codes<Weights>(r, u, t, w); }
};
