// What HIP and CUDA spell differently, and the few types that every kernel
// uses. hiprtc has no <stdint.h>, INFINITY or __shfl_*_sync; NVRTC no __half
// without its headers. So this file names everything itself.
//
// Defines from the host: NSTF_HIP or NSTF_CUDA; NSTF_WAVE, the threads of a
// wave; NSTF_MATRIX, one of the NSTF_MATRIX_ values below.
#define NSTF_MATRIX_NONE 0
#define NSTF_MATRIX_MFMA 1
#define NSTF_MATRIX_WMMA11 2
#define NSTF_MATRIX_WMMA12 3
#define NSTF_MATRIX_MMA 4

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

// N numbers that lie together, loaded and stored at once.
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
	T v[N];
};

// Sixteen bytes: x, y, z, w. Arrays of HIP's uint4, a class, go through scratch where
// elements are set by conditions (hiprtc of ROCm 6.4); those of a vector do not.
#if defined(NSTF_CUDA)
typedef uint4 Words4;
#else
typedef u32 Words4 __attribute__((ext_vector_type(4)));
#endif

#define NSTF_KERNEL extern "C" __global__
#define NSTF_DEVICE static __device__ __forceinline__
#define NSTF_MEMBER __device__ __forceinline__
#define NSTF_INFINITY __int_as_float(0x7f800000)
#define NSTF_NAN __int_as_float(0x7fc00000)

// A value of a lane of the wave, by its number. All lanes come to this, and to what else they
// exchange: NVIDIA's wait for those that a condition, or `a &&` before it, keeps away.
#if defined(NSTF_CUDA)
NSTF_DEVICE f32 wave_get(f32 v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
NSTF_DEVICE u32 wave_get(u32 v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
#else
NSTF_DEVICE f32 wave_get(f32 v, int lane) { return __shfl(v, lane); }
NSTF_DEVICE u32 wave_get(u32 v, int lane) { return __shfl(v, lane); }
#endif

// A value of another lane of the wave, by xor of the lane's number.
#if defined(NSTF_CUDA)
NSTF_DEVICE f32 wave_xor(f32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
NSTF_DEVICE i32 wave_xor(i32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
NSTF_DEVICE f64 wave_xor(f64 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
NSTF_DEVICE u64 wave_xor(u64 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
#else
NSTF_DEVICE f32 wave_xor(f32 v, int mask) { return __shfl_xor(v, mask); }
NSTF_DEVICE i32 wave_xor(i32 v, int mask) { return __shfl_xor(v, mask); }
NSTF_DEVICE f64 wave_xor(f64 v, int mask) { return __shfl_xor(v, mask); }
NSTF_DEVICE u64 wave_xor(u64 v, int mask) { return __shfl_xor(v, mask); }
#endif

// The sum over groups of Width lanes, in every lane, added in one fixed order.
template <int Width, typename T> NSTF_DEVICE T wave_sum(T v) {
#pragma unroll
	for (int m = Width / 2; m > 0; m /= 2) v += wave_xor(v, m);
	return v;
}

// The same with neighbours added first.
template <int Width, typename T> NSTF_DEVICE T wave_sum_near(T v) {
#pragma unroll
	for (int m = 1; m < Width; m *= 2) v += wave_xor(v, m);
	return v;
}

NSTF_DEVICE f32 wave_max_of(f32 a, f32 b) { return a > b ? a : b; }

// The maximum over groups of Width lanes; a NaN may win or lose.
template <int Width> NSTF_DEVICE f32 wave_max(f32 v) {
#pragma unroll
	for (int m = Width / 2; m > 0; m /= 2) v = wave_max_of(v, wave_xor(v, m));
	return v;
}

// The value of the lane that is n lower; lanes under n get anything.
#if defined(NSTF_CUDA)
NSTF_DEVICE u64 wave_below(u64 v, int n) { return __shfl_up_sync(0xffffffffu, v, n); }
NSTF_DEVICE u32 wave_below(u32 v, int n) { return __shfl_up_sync(0xffffffffu, v, n); }
#else
NSTF_DEVICE u64 wave_below(u64 v, int n) { return __shfl_up(v, n); }
NSTF_DEVICE u32 wave_below(u32 v, int n) { return __shfl_up(v, n); }
#endif

// The lanes for which a condition holds, a bit each.
NSTF_DEVICE u64 wave_ballot(bool v) {
#if defined(NSTF_CUDA)
	return __ballot_sync(0xffffffffu, v);
#else
	return __ballot(v);
#endif
}

// What the wave's lanes wrote to LDS is seen by its other lanes from here on.
NSTF_DEVICE void wave_sync() {
#if defined(NSTF_CUDA)
	__syncwarp();
#else
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
	__builtin_amdgcn_wave_barrier();
#endif
}

// IEEE half precision as it is stored, or two in a word; half_nearest rounds to
// nearest even.
#if defined(NSTF_CUDA)
NSTF_DEVICE f32 half_value(u16 h) {
	f32 v;
	asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
	return v;
}
NSTF_DEVICE u16 half_nearest(f32 v) {
	u16 h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
	return h;
}
NSTF_DEVICE f32 half_low(u32 pair) {
	f32 v;
	asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(v) : "r"(pair));
	return v;
}
NSTF_DEVICE f32 half_high(u32 pair) {
	f32 v;
	asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(v) : "r"(pair));
	return v;
}
#else
NSTF_DEVICE f32 half_value(u16 h) { return (f32)__builtin_bit_cast(_Float16, h); }
NSTF_DEVICE u16 half_nearest(f32 v) { return __builtin_bit_cast(u16, (_Float16)v); }
NSTF_DEVICE f32 half_low(u32 pair) { return half_value((u16)pair); }
NSTF_DEVICE f32 half_high(u32 pair) { return half_value((u16)(pair >> 16)); }
#endif

NSTF_DEVICE u32 bits_of(f32 v) { return __float_as_uint(v); }
NSTF_DEVICE f32 of_bits(u32 v) { return __uint_as_float(v); }

// 2 to the power n, for n from -126 to 127.
NSTF_DEVICE f32 power_of_two(int n) { return of_bits((u32)(n + 127) << 23); }

// Rounded by themselves, where a sum of products must not be fused to have the
// same bits on every machine.
#if defined(NSTF_CUDA)
NSTF_DEVICE f32 rounded_product(f32 a, f32 b) { return __fmul_rn(a, b); }
#else
NSTF_DEVICE f32 rounded_product(f32 a, f32 b) {
#pragma clang fp contract(off)
	return a * b;
}
#endif

// The single next to v, rounded by itself: where sums may be fused, LLVM 22 makes one rounding
// of two, of f64 by f32 to half precision.
NSTF_DEVICE f32 rounded_single(f64 v) {
#if !defined(NSTF_CUDA)
#pragma clang fp contract(off)
#endif
	return (f32)v;
}

// 1 / v within a last digit or two, for v whose reciprocal is no subnormal.
NSTF_DEVICE f32 reciprocal(f32 v) {
#if defined(NSTF_CUDA)
	f32 r;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
#else
	const f32 r = __builtin_amdgcn_rcpf(v);
#endif
	return fmaf(fmaf(-v, r, 1.0f), r, r);
}

// The whole number next to v, of magnitude below 2^22; ties to even.
#if defined(NSTF_CUDA) // the rounding instruction has a quarter of an addition's rate
NSTF_DEVICE f32 nearest_whole(f32 v) { return __fadd_rn(__fadd_rn(v, 0x1.8p23f), -0x1.8p23f); }
#else
NSTF_DEVICE f32 nearest_whole(f32 v) { return __builtin_rintf(v); }
#endif

// c + the sum of the products of the four signed bytes of a and of b.
NSTF_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
#if defined(NSTF_CUDA)
	return __dp4a((i32)a, (i32)b, c);
#elif defined(__GFX11__) || defined(__GFX12__)
	return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || \
    defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1011__) || defined(__gfx1012__) || \
    (defined(__GFX10__) && !defined(__gfx1010__) && !defined(__gfx1013__))
	return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#else
#pragma unroll
	for (int i = 0; i < 4; i++) c += (i32)(i8)(a >> (8 * i)) * (i32)(i8)(b >> (8 * i));
	return c;
#endif
}

// The four bytes of b:a that the low nibbles of s name, 0 to 7; __byte_perm would
// clear the nibbles' highest bits first.
NSTF_DEVICE u32 choose_bytes(u32 a, u32 b, u32 s) {
#if defined(NSTF_CUDA)
	u32 v;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(s));
	return v;
#else
	return __builtin_amdgcn_perm(b, a, (s & 7) | (s & 0x70) << 4 | (s & 0x700) << 8 | (s & 0x7000) << 12);
#endif
}

// Loads of what is read once, past the small caches; p is aligned to the type.
// With NSTF_REUSED other blocks read the same soon.
#if NSTF_REUSED
NSTF_DEVICE uint4 load_once(const uint4 *p) { return *p; }
NSTF_DEVICE uint2 load_once(const uint2 *p) { return *p; }
NSTF_DEVICE u32 load_once(const u32 *p) { return *p; }
#elif defined(NSTF_CUDA)
NSTF_DEVICE uint4 load_once(const uint4 *p) { return __ldcs(p); }
NSTF_DEVICE uint2 load_once(const uint2 *p) { return __ldcs(p); }
NSTF_DEVICE u32 load_once(const u32 *p) { return __ldcs(p); }
#else
NSTF_DEVICE uint4 load_once(const uint4 *p) {
	typedef u32 words __attribute__((ext_vector_type(4)));
	const words w = __builtin_nontemporal_load((const words *)p);
	return make_uint4(w.x, w.y, w.z, w.w);
}
NSTF_DEVICE uint2 load_once(const uint2 *p) {
	typedef u32 words __attribute__((ext_vector_type(2)));
	const words w = __builtin_nontemporal_load((const words *)p);
	return make_uint2(w.x, w.y);
}
NSTF_DEVICE u32 load_once(const u32 *p) { return __builtin_nontemporal_load(p); }
#endif

// A load past the caches that blocks do not share, for what is read before
// wait_for_inputs: the driver may not have emptied them yet. p is aligned to V.
template <typename V> NSTF_DEVICE V load_settled(const V *p) {
#if defined(NSTF_CUDA)
	union {
		V v;
		u32 words[(sizeof(V) + 3) / 4];
		u16 halves[(sizeof(V) + 1) / 2];
		u8 bytes[sizeof(V)];
	} to;
	if (sizeof(V) % 16 == 0) {
#pragma unroll
		for (int i = 0; i < (int)sizeof(V) / 4; i += 4)
			asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to.words[i]), "=r"(to.words[i + 1]), "=r"(to.words[i + 2]), "=r"(to.words[i + 3]) : "l"((const u32 *)p + i));
	} else if (sizeof(V) % 8 == 0) {
#pragma unroll
		for (int i = 0; i < (int)sizeof(V) / 4; i += 2) asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(to.words[i]), "=r"(to.words[i + 1]) : "l"((const u32 *)p + i));
	} else if (sizeof(V) % 4 == 0) {
#pragma unroll
		for (int i = 0; i < (int)sizeof(V) / 4; i++) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to.words[i]) : "l"((const u32 *)p + i));
	} else if (sizeof(V) % 2 == 0) {
#pragma unroll
		for (int i = 0; i < (int)sizeof(V) / 2; i++) asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(to.halves[i]) : "l"((const u16 *)p + i));
	} else {
#pragma unroll
		for (int i = 0; i < (int)sizeof(V); i++) {
			u16 byte;
			asm volatile("ld.global.cg.u8 %0, [%1];" : "=h"(byte) : "l"((const u8 *)p + i));
			to.bytes[i] = (u8)byte;
		}
	}
	return to.v;
#else
	return *p;
#endif
}

// Asks for memory that will be read soon to come to the cache that all blocks
// share: the whole 16-byte pieces of n bytes from p on. It may do nothing.
NSTF_DEVICE void fetch_ahead(const void *p, u32 n) {
#if defined(NSTF_CUDA) && __CUDA_ARCH__ >= 900
	const u64 from = ((u64)p + 15) & ~15ull, size = ((u64)p + n - from) & ~15ull;
	if ((i64)size > 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"((u32)size) : "memory");
#endif
}

// Waits until the launches before this one have ended and what they wrote is
// seen, where the driver lets a launch begin earlier (Call.Early); elsewhere
// that is so from the start.
NSTF_DEVICE void wait_for_inputs() {
#if defined(NSTF_CUDA) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next launch begin once all blocks have come here or ended.
NSTF_DEVICE void let_next_begin() {
#if defined(NSTF_CUDA) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Both: for kernels that have nothing to do before their inputs are there.
NSTF_DEVICE void begin_early() {
	let_next_begin();
	wait_for_inputs();
}
