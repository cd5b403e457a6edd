// The emulator's own speed on three kernels, by AMDEMU_LOG's lines and by multiply-adds.
#include "selftest_kit.h"
#include <cstdlib>
#include <ctime>

static const char source[] = R"(
extern "C" __global__ void __launch_bounds__(256) gemv(const __half2* __restrict__ w, const __half2* __restrict__ x, float* __restrict__ y, int pairs) {
	int row = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
	const __half2* p = w + (size_t)row * pairs;
	float s = 0;
	for (int i = l; i < pairs; i += 32) {
		float2 a = __half22float2(p[i]), b = __half22float2(x[i]);
		s += a.x * b.x + a.y * b.y;
	}
	for (int o = 16; o; o >>= 1) s += __shfl_xor(s, o, 32);
	if (l == 0) y[row] = s;
}

extern "C" __global__ void __launch_bounds__(256) gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int n) {
	__shared__ float a[64][17], b[16][65];
	int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, r0 = blockIdx.y * 64, c0 = blockIdx.x * 64;
	float acc[4][4] = {};
	for (int k0 = 0; k0 < n; k0 += 16) {
		for (int i = threadIdx.x; i < 1024; i += 256) {
			a[i >> 4][i & 15] = A[(r0 + (i >> 4)) * n + k0 + (i & 15)];
			b[i >> 6][i & 63] = B[(k0 + (i >> 6)) * n + c0 + (i & 63)];
		}
		__syncthreads();
		for (int k = 0; k < 16; k++)
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++) acc[i][j] += a[ty * 4 + i][k] * b[k][tx * 4 + j];
		__syncthreads();
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) C[(r0 + ty * 4 + i) * n + c0 + tx * 4 + j] = acc[i][j];
}
)";
static const char matrix[] = R"(
#if WMMA
typedef _Float16 h16 __attribute__((ext_vector_type(16)));
typedef float f8 __attribute__((ext_vector_type(8)));
extern "C" __global__ void tiles(const h16* A, float* C, int k) {
	f8 c = {};
	for (int i = 0; i < k; i++) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(A[threadIdx.x & 15], A[threadIdx.x & 15], c);
	for (int r = 0; r < 8; r++) C[blockIdx.x * 256 + r * 32 + threadIdx.x] = c[r];
}
#else
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef float f4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void tiles(const h4* A, float* C, int k) {
	f4 c = {};
	for (int i = 0; i < k; i++) c = __builtin_amdgcn_mfma_f32_16x16x16f16(A[threadIdx.x], A[threadIdx.x], c, 0, 0, 0);
	for (int r = 0; r < 4; r++) C[blockIdx.x * 256 + r * 64 + threadIdx.x] = c[r];
}
#endif
)";

static double now() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}
static void report(const char* name, double products, double began) { printf("%-28s %8.1f million multiply-adds a second\n", name, products / (now() - began) / 1e6); }

int main() {
	setenv("AMDEMU_LOG", "1", 1);
	open_libraries();
	Module m(source);
	{
		const int n = 4096, pairs = n / 2;
		Device<half> w(std::vector<half>((size_t)n * n, (half)0.01f)), x(std::vector<half>(n, (half)1.f));
		Device<float> y(n);
		double began = now();
		MUST(try_launch(m.kernel("gemv"), {n / 8}, {256}, 0, w.p, x.p, y.p, pairs));
		report("gemv 4096x4096, float16", (double)n * n, began);
	}
	{
		const int n = 512;
		Device<float> a(random_floats(n * n)), b(random_floats(n * n)), c(n * n);
		double began = now();
		MUST(try_launch(m.kernel("gemm"), {n / 64, n / 64}, {256}, 0, a.p, b.p, c.p, n));
		report("gemm 512, float32", (double)n * n * n, began);
	}
	if (!arch_is("gfx11") && !arch_is("gfx9")) return 0;
	Module t(std::string(arch_is("gfx11") ? "#define WMMA 1\n" : "#define WMMA 0\n") + matrix);
	const int k = 1000, blocks = 64;
	Device<half> a(std::vector<half>(256, (half)1.f));
	Device<float> c(256 * blocks);
	double began = now();
	MUST(try_launch(t.kernel("tiles"), {blocks}, {(unsigned)wave_size()}, 0, a.p, c.p, k));
	report("matrix tiles, float16", (double)blocks * k * 4096, began);
}
