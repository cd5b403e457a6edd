// The header that hiprtc includes by itself: the HIP device headers in their
// run-time-compilation mode, plus a bfloat16 type, since the packaged header of
// that type needs the host's C++ library.
#pragma once

static const char builtin_header[] = R"(#pragma once
#pragma clang system_header
#define CHAR_BIT __CHAR_BIT__
#define INT_MAX __INT_MAX__
#define atomicInc amdemu_unused_inc
#define atomicDec amdemu_unused_dec
#include <__clang_hip_runtime_wrapper.h>
#include <hip/hip_runtime.h>
#include <hip/amd_detail/device_library_decls.h>
#include <hip/amd_detail/amd_warp_functions.h>
#include <hip/amd_detail/amd_hip_atomic.h>
#include <hip/amd_detail/amd_hip_unsafe_atomics.h>
#include <hip/hip_fp16.h>
#include <hip/hip_complex.h>
#define assert(x) ((void)0)
#include <hip/hip_cooperative_groups.h>
#undef assert
#undef CHAR_BIT
#undef INT_MAX
#undef atomicInc
#undef atomicDec
// these two name a compiler intrinsic that clang no longer has
inline __device__ unsigned atomicInc(unsigned* p, unsigned v) { return __builtin_amdgcn_atomic_inc32(p, v, __ATOMIC_RELAXED, "agent"); }
inline __device__ unsigned atomicDec(unsigned* p, unsigned v) { return __builtin_amdgcn_atomic_dec32(p, v, __ATOMIC_RELAXED, "agent"); }
struct hip_bfloat16 {
  unsigned short data;
  enum truncate_t { truncate };
  __device__ hip_bfloat16() = default;
  explicit __device__ hip_bfloat16(float f) : data(nearest(f)) {}
  explicit __device__ hip_bfloat16(float f, truncate_t) : data(chop(f)) {}
  __device__ operator float() const { return __builtin_bit_cast(float, (unsigned)data << 16); }
  static __device__ hip_bfloat16 round_to_bfloat16(float f) { return hip_bfloat16(f); }
  static __device__ hip_bfloat16 round_to_bfloat16(float f, truncate_t t) { return hip_bfloat16(f, t); }
private:
  static __device__ unsigned bits(float f) { return __builtin_bit_cast(unsigned, f); }
  static __device__ bool nan(unsigned u) { return (u & 0x7fffffffu) > 0x7f800000u; }
  // a NaN whose payload would be lost keeps its lowest stored bit set, so that it stays a NaN
  static __device__ unsigned short chop(float f) { unsigned u = bits(f); return (unsigned short)(u >> 16 | (nan(u) && (u & 0xffffu) ? 1u : 0u)); }
  static __device__ unsigned short nearest(float f) { unsigned u = bits(f); return nan(u) ? chop(f) : (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16); }
};
#define BF_OP(o) \
  inline __device__ hip_bfloat16 operator o(hip_bfloat16 a, hip_bfloat16 b) { return hip_bfloat16(float(a) o float(b)); } \
  inline __device__ hip_bfloat16& operator o##=(hip_bfloat16& a, hip_bfloat16 b) { return a = a o b; }
BF_OP(+) BF_OP(-) BF_OP(*) BF_OP(/)
#undef BF_OP
#define BF_CMP(o) inline __device__ bool operator o(hip_bfloat16 a, hip_bfloat16 b) { return float(a) o float(b); }
BF_CMP(<) BF_CMP(<=) BF_CMP(>) BF_CMP(>=) BF_CMP(==) BF_CMP(!=)
#undef BF_CMP
inline __device__ hip_bfloat16 operator+(hip_bfloat16 a) { return a; }
inline __device__ hip_bfloat16 operator-(hip_bfloat16 a) { a.data ^= 0x8000u; return a; }
)";
