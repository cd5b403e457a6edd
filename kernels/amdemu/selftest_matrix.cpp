// Matrix instructions against plain sums, each type that the architecture has.
#include "selftest_kit.h"
#include <algorithm>

// WMMA of gfx11: lanes 16 to 31 hold copies. Every kernel: C[16][16] = A[16][K] B[K][16].
static const char gfx11[] = R"(
typedef _Float16 h16 __attribute__((ext_vector_type(16)));
typedef short s16 __attribute__((ext_vector_type(16)));
typedef float f8 __attribute__((ext_vector_type(8)));
typedef int i2 __attribute__((ext_vector_type(2)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef int i8 __attribute__((ext_vector_type(8)));
#define PUT(c) for (int r = 0; r < 8; r++) C[(2 * r + (threadIdx.x >> 4)) * 16 + i] = c[r]
extern "C" __global__ void f16(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 15;
	h16 a, b;
	for (int k = 0; k < 16; k++) { a[k] = A[i * 16 + k]; b[k] = B[k * 16 + i]; }
	f8 c = {};
	c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
	PUT(c);
}
extern "C" __global__ void f16_accumulated(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 15;
	h16 a, b, c = {};
	for (int k = 0; k < 16; k++) { a[k] = A[i * 16 + k]; b[k] = B[k * 16 + i]; }
	c = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(a, b, c, false);
	for (int r = 0; r < 8; r++) C[(2 * r + (threadIdx.x >> 4)) * 16 + i] = (float)c[2 * r];
}
extern "C" __global__ void bf16(const short* A, const short* B, float* C) {
	int i = threadIdx.x & 15;
	s16 a, b;
	for (int k = 0; k < 16; k++) { a[k] = A[i * 16 + k]; b[k] = B[k * 16 + i]; }
	f8 c = {};
	c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
	PUT(c);
}
extern "C" __global__ void i8_(const signed char* A, const signed char* B, int* C) {
	int i = threadIdx.x & 15;
	i4 a, b;
	for (int k = 0; k < 4; k++) {
		a[k] = ((const int*)A)[i * 4 + k];
		b[k] = 0;
		for (int j = 0; j < 4; j++) b[k] |= (B[(k * 4 + j) * 16 + i] & 255) << (8 * j);
	}
	i8 c = {};
	c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false);
	PUT(c);
}
extern "C" __global__ void i4_(const unsigned* A, const unsigned* B, int* C) { // A[16][16] unsigned, B by columns, signed
	int i = threadIdx.x & 15;
	i2 a, b;
	a[0] = A[i * 2]; a[1] = A[i * 2 + 1]; b[0] = B[i * 2]; b[1] = B[i * 2 + 1];
	i8 c = {};
	c = __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(false, a, true, b, c, false);
	PUT(c);
}
)";

// WMMA of gfx12: lanes 16 to 31 hold the second half of K.
static const char gfx12[] = R"(
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
typedef short s8 __attribute__((ext_vector_type(8)));
typedef float f8 __attribute__((ext_vector_type(8)));
typedef int i2 __attribute__((ext_vector_type(2)));
typedef int i8 __attribute__((ext_vector_type(8)));
#define PUT(c) for (int r = 0; r < 8; r++) C[(g * 8 + r) * 16 + i] = c[r]
extern "C" __global__ void f16(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	h8 a, b;
	for (int k = 0; k < 8; k++) { a[k] = A[i * 16 + g * 8 + k]; b[k] = B[(g * 8 + k) * 16 + i]; }
	f8 c = {};
	c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
	PUT(c);
}
extern "C" __global__ void f16_accumulated(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	h8 a, b, c = {};
	for (int k = 0; k < 8; k++) { a[k] = A[i * 16 + g * 8 + k]; b[k] = B[(g * 8 + k) * 16 + i]; }
	c = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(a, b, c);
	PUT((float)c);
}
extern "C" __global__ void bf16(const short* A, const short* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	s8 a, b;
	for (int k = 0; k < 8; k++) { a[k] = A[i * 16 + g * 8 + k]; b[k] = B[(g * 8 + k) * 16 + i]; }
	f8 c = {};
	c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
	PUT(c);
}
extern "C" __global__ void i8_(const signed char* A, const signed char* B, int* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	i2 a, b;
	for (int k = 0; k < 2; k++) {
		a[k] = ((const int*)A)[i * 4 + g * 2 + k];
		b[k] = 0;
		for (int j = 0; j < 4; j++) b[k] |= (B[(g * 8 + k * 4 + j) * 16 + i] & 255) << (8 * j);
	}
	i8 c = {};
	c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, c, false);
	PUT(c);
}
)";

// MFMA: 16x16x16 as above, and C[32][32] = A[32][8] B[8][32].
static const char cdna[] = R"(
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef int i4 __attribute__((ext_vector_type(4)));
#define PUT(c) for (int r = 0; r < 4; r++) C[(g * 4 + r) * 16 + i] = c[r]
extern "C" __global__ void f16(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	h4 a, b;
	for (int k = 0; k < 4; k++) { a[k] = A[i * 16 + g * 4 + k]; b[k] = B[(g * 4 + k) * 16 + i]; }
	f4 c = {};
	c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
	PUT(c);
}
extern "C" __global__ void f16_32(const _Float16* A, const _Float16* B, float* C) {
	int i = threadIdx.x & 31, g = threadIdx.x >> 5;
	h4 a, b;
	for (int k = 0; k < 4; k++) { a[k] = A[i * 8 + g * 4 + k]; b[k] = B[(g * 4 + k) * 32 + i]; }
	f16v c = {};
	c = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);
	for (int r = 0; r < 16; r++) C[(8 * (r / 4) + 4 * g + r % 4) * 32 + i] = c[r];
}
extern "C" __global__ void f32(const float* A, const float* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	f4 c = {};
	for (int k = 0; k < 4; k++) c = __builtin_amdgcn_mfma_f32_16x16x4f32(A[i * 16 + k * 4 + g], B[(k * 4 + g) * 16 + i], c, 0, 0, 0);
	PUT(c);
}
#if BF16_1K
extern "C" __global__ void bf16(const short* A, const short* B, float* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4;
	s4 a, b;
	for (int k = 0; k < 4; k++) { a[k] = A[i * 16 + g * 4 + k]; b[k] = B[(g * 4 + k) * 16 + i]; }
	f4 c = {};
	c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
	PUT(c);
}
#endif
#if I8_K16
extern "C" __global__ void i8_(const signed char* A, const signed char* B, int* C) {
	int i = threadIdx.x & 15, g = threadIdx.x >> 4, b = 0;
	for (int j = 0; j < 4; j++) b |= (B[(g * 4 + j) * 16 + i] & 255) << (8 * j);
	i4 c = {};
	c = __builtin_amdgcn_mfma_i32_16x16x16i8(((const int*)A)[i * 4 + g], b, c, 0, 0, 0);
	PUT(c);
}
#endif
)";

// The worst error of C[M][M] = A[M][K] B[K][M]; value gives an element as a double.
template <class T, class C, class F> static double product_error(const std::vector<T>& a, const std::vector<T>& b, const std::vector<C>& c, int M, int K, F value) {
	double worst = 0;
	for (int i = 0; i < M; i++)
		for (int j = 0; j < M; j++) {
			double s = 0;
			for (int k = 0; k < K; k++) s += value(a[i * K + k]) * value(b[k * M + j]);
			worst = std::max(worst, std::fabs(s - (double)c[i * M + j]));
		}
	return worst;
}
template <class T, class C, class F> static void test(const Module& m, const char* kernel, const char* name, const std::vector<T>& a, const std::vector<T>& b, C, int M, int K, double limit, F value) {
	Device<T> da(a), db(b);
	Device<C> c(M * M);
	run(m.kernel(kernel), (unsigned)wave_size(), da.p, db.p, c.p);
	double error = product_error(a, b, c.get(), M, K, value);
	check(name, error <= limit, error);
}

static void test_i4(const Module& m) {
	std::vector<unsigned> a = random_values<unsigned>(32), b = random_values<unsigned>(32);
	Device<unsigned> da(a), db(b);
	Device<int> dc(256);
	run(m.kernel("i4_"), 32, da.p, db.p, dc.p);
	std::vector<int> c = dc.get();
	int bad = 0;
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			int s = 0;
			for (int k = 0; k < 16; k++) s += (int)(a[i * 2 + k / 8] >> (4 * (k & 7)) & 15) * ((int)(b[j * 2 + k / 8] << (28 - 4 * (k & 7))) >> 28);
			bad += s != c[i * 16 + j];
		}
	check("matrix product, 4-bit integers", !bad, bad);
}

void test_matrix() {
	const bool wmma11 = arch_is("gfx11"), wmma12 = arch_is("gfx12"), mfma = arch_is("gfx9");
	if (!wmma11 && !wmma12 && !mfma) return;
	const bool bf16 = arch() != "gfx908", i8 = !mfma || arch() == "gfx908" || arch() == "gfx90a";
	Module m(wmma11 ? gfx11 : wmma12 ? gfx12 : std::string("#define BF16_1K ") + (bf16 ? "1\n" : "0\n") + "#define I8_K16 " + (i8 ? "1\n" : "0\n") + cdna);
	auto plain = [](auto x) { return (double)x; };
	std::vector<half> a = random_values<half>(256), b = random_values<half>(256);
	test(m, "f16", "matrix product, float16", a, b, float(), 16, 16, 1e-4, plain);
	if (!mfma) test(m, "f16_accumulated", "matrix product, float16 accumulated", a, b, float(), 16, 16, 2e-2, plain);
	if (mfma) test(m, "f16_32", "matrix product, float16, 32x32", a, b, float(), 32, 8, 1e-4, plain);
	if (mfma) test(m, "f32", "matrix product, float32", random_floats(256), random_floats(256), float(), 16, 16, 1e-4, plain);
	if (bf16) {
		std::vector<uint16_t> x(256), y(256);
		for (uint16_t& v : x) v = float_to_bf16_bits(random_float());
		for (uint16_t& v : y) v = float_to_bf16_bits(random_float());
		test(m, "bf16", "matrix product, bfloat16", x, y, float(), 16, 16, 1e-4, [](uint16_t v) { return (double)bf16_to_float(v); });
	}
	if (i8) test(m, "i8_", "matrix product, 8-bit integers", random_values<signed char>(256), random_values<signed char>(256), int(), 16, 16, 0, plain);
	if (wmma11) test_i4(m);
}
