// affine (docs/schemes/affine.md): w = scale * (q - zero), a scale and perhaps a
// zero point for AFFINE_GROUP weights. Parts: codes of AFFINE_BITS, scales, zeros,
// index, of the types AFFINE_SCALE and AFFINE_ZERO (0: none, the middle code);
// AFFINE_INDEX is the rows that share a row of the index, 0 for none.
//
// AFFINE_WHOLE says that rows and groups are whole units and there is no index:
// then codes of 4 bits are arranged as weights.hip says and those of 8 bits lie in
// order, and products of integers are possible. Otherwise codes are as stored.
#include "numbers.hip"
#include "weights.hip"

#define AFFINE_MIDDLE (1 << (AFFINE_BITS - 1))

struct Weights {
	static const int unit = !AFFINE_WHOLE ? 1 : AFFINE_BITS == 4 ? 32 : 16;
	static const int group = !AFFINE_WHOLE ? 0 : 32;
	static const int zero = AFFINE_ZERO || AFFINE_BITS == 8 ? 0 : AFFINE_MIDDLE, table = 0;
	static const bool mins = AFFINE_ZERO != 0;
	struct Raw {
		uint4 q; // the codes; where they are single, the code in x
		f32 scale, zero;
	};
	const u8 *data, *steps, *zeros; // codes, scales, zeros
	const i32 *index;
	i64 first; // row
	int k, groups;

	__device__ Weights(const Matrix &m, i64 row) {
		k = m.k, groups = (m.k + AFFINE_GROUP - 1) / AFFINE_GROUP, first = row;
		data = m.data;
		steps = m.data + ((m.rows * bytes() + 15) & ~15ll);
		zeros = steps + ((m.rows * groups * size(AFFINE_SCALE) + 15) & ~15ll);
		index = (const i32 *)(zeros + ((m.rows * groups * size(AFFINE_ZERO) + 15) & ~15ll));
	}
	static __device__ int size(int type) { return type == NSTF_F32 ? 4 : type == NSTF_U8 ? 1 : type == 0 ? 0 : 2; }
	__device__ int bytes() const { return k / 8 * AFFINE_BITS + (k % 8 * AFFINE_BITS + 7) / 8; }

	__device__ Raw load(int row, int u) const {
		Raw r;
		const i64 at = first + row;
		i64 g = at * groups + u * unit / AFFINE_GROUP;
		if (AFFINE_WHOLE) {
			r.q = load_once((const uint4 *)data + (at * k / unit + u));
		} else {
			const u8 *p = data + at * bytes() + (i64)u * AFFINE_BITS / 8;
			const int bit = u * AFFINE_BITS % 8;
			const u32 high = bit + AFFINE_BITS > 8 ? p[1] << 8 : 0;
			r.q = make_uint4((p[0] | high) >> bit & ((1 << AFFINE_BITS) - 1), 0, 0, 0);
#if AFFINE_INDEX
			g = at * groups + index[at / AFFINE_INDEX * k + u];
#endif
		}
		r.scale = number_at<AFFINE_SCALE>(steps, g);
		r.zero = AFFINE_ZERO ? number_at<AFFINE_ZERO ? AFFINE_ZERO : NSTF_U8>(zeros, g) : (f32)AFFINE_MIDDLE;
		return r;
	}
	__device__ void ahead(int row, int n) const {
		if (AFFINE_WHOLE) fetch_ahead(data + (first + row) * k * AFFINE_BITS / 8, n * 16);
	}
	static __device__ void fill(u8 *) {}
#if AFFINE_WHOLE
	static __device__ void codes_of(uint4 q, u32 (&v)[8]) { nibble_codes(q, v); }
	static __device__ void codes_of(uint4 q, u32 (&v)[4]) {
		// Unsigned bytes less 128.
		v[0] = q.x ^ 0x80808080, v[1] = q.y ^ 0x80808080, v[2] = q.z ^ 0x80808080, v[3] = q.w ^ 0x80808080;
	}
	static __device__ void codes(const Raw &r, const u8 *, u32 (&v)[unit / 4]) { codes_of(r.q, v); }
	static __device__ void scales(const Raw &r, int, f32 (&s)[1], f32 (&m)[1]) {
		s[0] = r.scale, m[0] = r.scale * (AFFINE_BITS == 8 ? r.zero - 128 : r.zero);
	}
#endif
	static __device__ void floats(const Raw &r, int, const u8 *, f32 (&w)[unit]) {
#if AFFINE_WHOLE
		u32 q[unit / 4];
		codes_of(r.q, q);
#pragma unroll
		for (int i = 0; i < unit; i++) w[i] = r.scale * (unsigned_byte(q[i / 4] ^ (AFFINE_BITS == 8 ? 0x80808080 : 0), i % 4) - r.zero);
#else
		w[0] = r.scale * ((f32)r.q.x - r.zero);
#endif
	}
};
