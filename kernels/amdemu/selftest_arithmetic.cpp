// Arithmetic: floats, halves, bfloat16, the math library, integers, dot products.
#include "selftest_kit.h"
#include <algorithm>

static const char source[] = R"(
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void math(const float* a, float* o, int n) {
	int i = threadIdx.x, k = 0;
	float x = a[i], ax = fabsf(x);
#define PUT(e) o[k++ * n + i] = e
	PUT(expf(x)); PUT(tanhf(x)); PUT(logf(ax)); PUT(rsqrtf(ax)); PUT(powf(ax, 1.7f)); PUT(sinf(x * 50)); PUT(cosf(x * 50)); PUT(erff(x)); PUT(__expf(x)); PUT(1.0f / x);
	PUT(sqrtf(ax)); PUT(x / (1.0f + ax)); PUT(log1pf(ax)); PUT(exp2f(x)); PUT(fmodf(x * 100, 0.7f)); PUT(atan2f(x, 0.3f)); PUT((float)((double)x / 3.0 + sqrt((double)ax)));
	PUT(expm1f(x)); PUT(sinf(x * 1e6f));
}

extern "C" __global__ void integers(const int* a, const int* b, const long long* c, long long* o, int n) {
	int i = threadIdx.x, k = 0, x = a[i], y = b[i];
	long long z = c[i];
	PUT(x / y); PUT(x % y); PUT((unsigned)x / (unsigned)y); PUT(__mulhi(x, y)); PUT((unsigned)__umulhi(x, y)); PUT(__clz(x)); PUT(__ffs(y)); PUT(__popc(x)); PUT((unsigned)__brev(y));
	PUT(z / (y | 1)); PUT(z % (y | 1)); PUT(z * x); PUT((unsigned long long)z >> (x & 63)); PUT((long long)((double)z * 0.5)); PUT((unsigned long long)z / (unsigned)(x | 1));
	PUT((unsigned)__funnelshift_l(x, y, 7)); PUT((unsigned)__byte_perm(x, y, 0x5140)); PUT((unsigned)__builtin_amdgcn_perm(x, y, 0x07020c01));
	PUT((unsigned)__builtin_amdgcn_ubfe(x, 5, 9)); PUT((int)__builtin_amdgcn_sbfe(y, 3, 12)); PUT((unsigned)__builtin_amdgcn_alignbit(x, y, 13)); PUT((unsigned)__builtin_amdgcn_sad_u8(x, y, 5));
#if SUDOT
	PUT(__builtin_amdgcn_sudot4(true, x, true, y, 7, false));
#else
	PUT(__builtin_amdgcn_sdot4(x, y, 7, false));
#endif
}

extern "C" __global__ void halves(const __half* a, const float* f, float* o, int n) {
	int i = threadIdx.x, k = 0;
	typedef _Float16 h2 __attribute__((ext_vector_type(2)));
	h2 x = *(const h2*)(a + 2 * i), y = *(const h2*)(a + 2 * ((i + 1) & 63));
	PUT(__builtin_amdgcn_fdot2(x, y, 1.5f, false));
	PUT((float)__half_as_ushort(__float2half(f[i])));
	PUT((float)__builtin_bit_cast(unsigned short, (_Float16)__builtin_amdgcn_cvt_pkrtz(f[i], 0.0f)[0]));
	__half2 q = h2exp(__hadd2(__float2half2_rn(f[i]), __float2half2_rn(1.f)));
	PUT(__low2float(q));
	PUT(__hgt(__float2half(f[i]), __float2half(0.f)) ? 1 : 0);
	hip_bfloat16 b(f[i]);
	PUT((float)b.data);
	PUT((float)b * 2.0f);
}

// A row of blocks of 32 four-bit weights with a float16 scale, times a vector: weights in pairs of halves.
struct block { __half d; unsigned char q[16]; };
extern "C" __global__ void q4(const block* __restrict__ w, const __half* __restrict__ x, float* __restrict__ y, int blocks) {
	float s = 0;
	for (int b = threadIdx.x; b < blocks; b += blockDim.x) {
		const block* p = w + (size_t)blockIdx.x * blocks + b;
		__half2 d2 = __half2half2(p->d), acc = __float2half2_rn(0.f);
		for (int j = 0; j < 16; j++) {
			unsigned q = p->q[j];
			__half2 v = __halves2half2(__int2half_rn((int)(q & 15) - 8), __int2half_rn((int)(q >> 4) - 8));
			acc = __hfma2(__hmul2(v, d2), __halves2half2(x[b * 32 + j], x[b * 32 + j + 16]), acc);
		}
		s += __low2float(acc) + __high2float(acc);
	}
	for (int k = 16; k > 0; k >>= 1) s += __shfl_xor(s, k, 32);
	if (threadIdx.x == 0) y[blockIdx.x] = s;
}
)";

static void test_add(const Module& m) {
	const int n = 1000;
	std::vector<float> x = random_floats(n), y = random_floats(n);
	Device<float> dx(x), dy(y), dz(n);
	MUST(try_launch(m.kernel("add"), {4}, {256}, 0, dx.p, dy.p, dz.p, n));
	std::vector<float> z = dz.get();
	int bad = 0;
	for (int i = 0; i < n; i++) bad += z[i] != x[i] + y[i];
	check("sum of vectors", !bad, bad);
}

static void test_math(const Module& m) {
	const int n = 256, functions = 19;
	std::vector<float> x = random_floats(n, 4);
	Device<float> dx(x), o(functions * n);
	run(m.kernel("math"), n, dx.p, o.p, n);
	std::vector<float> r = o.get();
	double worst = 0;
	for (int i = 0; i < n; i++) {
		double v = x[i], a = std::fabs(v);
		double expect[functions] = {exp(v), tanh(v), log(a), 1 / sqrt(a), pow(a, 1.7f), sin((double)(x[i] * 50)), cos((double)(x[i] * 50)), erf(v), exp(v), 1 / v, sqrt(a), v / (1 + a),
		    log1p(a), exp2(v), fmod((double)(x[i] * 100), (double)0.7f), atan2(v, (double)0.3f), v / 3 + sqrt(a), expm1(v), sin((double)(x[i] * 1e6f))};
		for (int k = 0; k < functions; k++) {
			double error = std::fabs(r[k * n + i] - expect[k]) / (std::fabs(expect[k]) + 1e-2);
			if (!(error <= worst)) worst = error;
		}
	}
	check("math library, worst relative error", worst < 3e-6, worst);
}

static int byte_of(int x, int i) { return (int8_t)(x >> (8 * i)); }
static int difference_of_bytes(int x, int y) {
	int s = 0;
	for (int k = 0; k < 4; k++) s += std::abs((byte_of(x, k) & 255) - (byte_of(y, k) & 255));
	return s;
}
static void expect_integers(int x, int y, long long z, std::vector<long long>& e) {
	typedef unsigned long long ull;
	const ull both = (ull)(unsigned)x << 32 | (unsigned)y, swapped = (ull)(unsigned)y << 32 | (unsigned)x;
	unsigned reversed = 0;
	for (int k = 0; k < 32; k++) reversed |= ((unsigned)y >> k & 1) << (31 - k);
	int dot = 7;
	for (int k = 0; k < 4; k++) dot += byte_of(x, k) * byte_of(y, k);
	auto byte = [](ull v, int i) { return (unsigned)(v >> (8 * i)) & 255; };
	e = {x / y, x % y, (unsigned)x / (unsigned)y, (int)(((long long)x * y) >> 32), (unsigned)(((ull)(unsigned)x * (unsigned)y) >> 32), x ? __builtin_clz(x) : 32, __builtin_ffs(y),
	    __builtin_popcount(x), reversed, z / (y | 1), z % (y | 1), (long long)((ull)z * (ull)(long long)x), (long long)((ull)z >> (x & 63)), (long long)((double)z * 0.5),
	    (long long)((ull)z / (unsigned)(x | 1)), (unsigned)(both >> 25) & 0, 0, 0, ((unsigned)x >> 5) & 511, (int)((unsigned)y << 17) >> 20, (unsigned)(both >> 13), difference_of_bytes(x, y) + 5, dot};
	e[15] = (unsigned)(((ull)(unsigned)y << 32 | (unsigned)x) << 7 >> 32); // funnel shift: y above x
	e[16] = (unsigned)(byte(swapped, 0) | byte(swapped, 4) << 8 | byte(swapped, 1) << 16 | byte(swapped, 5) << 24);
	e[17] = (unsigned)(byte(both, 1) | byte(both, 2) << 16 | byte(both, 7) << 24); // selector 12 is zero
}
static void test_integers(const Module& m) {
	const int n = 256, functions = 23;
	std::vector<int> a = random_values<int>(n), b = random_values<int>(n);
	std::vector<long long> c(n), e;
	for (int i = 0; i < n; i++) {
		if (i % 2) b[i] = b[i] % 1000;
		if (!b[i]) b[i] = 3;
		c[i] = (long long)((unsigned long long)random_bits() << 32 | random_bits()) >> (i % 40);
	}
	Device<int> da(a), db(b);
	Device<long long> dc(c), o(functions * n);
	run(m.kernel("integers"), n, da.p, db.p, dc.p, o.p, n);
	std::vector<long long> r = o.get();
	int bad[functions] = {0}, all = 0, last = -1;
	for (int i = 0; i < n; i++) {
		expect_integers(a[i], b[i], c[i], e);
		for (int k = 0; k < functions; k++) bad[k] += r[k * n + i] != e[k];
	}
	for (int k = 0; k < functions; k++) {
		all += bad[k];
		if (bad[k]) last = k;
	}
	check("integers (or the last function that is wrong)", !all, last);
}

static uint16_t bits(half h) {
	uint16_t u;
	memcpy(&u, &h, 2);
	return u;
}
static void test_halves(const Module& m) {
	const int n = 64;
	std::vector<half> h = random_values<half>(2 * n);
	std::vector<float> f = random_floats(n, 3);
	Device<half> dh(h);
	Device<float> df(f), o(7 * n);
	run(m.kernel("halves"), n, dh.p, df.p, o.p, n);
	std::vector<float> r = o.get();
	int bad[7] = {0};
	for (int i = 0; i < n; i++) {
		const half q = (half)f[i];
		double dot = 1.5;
		for (int k = 0; k < 2; k++) dot += (double)h[2 * i + k] * (double)h[2 * ((i + 1) & 63) + k];
		uint32_t u;
		memcpy(&u, &f[i], 4);
		const uint16_t rounded = (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
		const uint16_t chopped = std::fabs((float)q) > std::fabs(f[i]) ? bits(q) - 1 : bits(q);
		const double exponential = exp((double)(half)((float)q + 1.f));
		bad[0] += std::fabs(r[i] - dot) > 1e-5;
		bad[1] += r[n + i] != bits(q);
		bad[2] += r[2 * n + i] != chopped;
		bad[3] += std::fabs(r[3 * n + i] - exponential) > 0.02 * exponential;
		bad[4] += r[4 * n + i] != (q > 0);
		bad[5] += r[5 * n + i] != rounded;
		bad[6] += r[6 * n + i] != bf16_to_float(rounded) * 2;
	}
	const char* names[] = {"dot product of halves", "float to half", "float to half toward zero", "exponential of halves", "comparison of halves", "float to bfloat16", "bfloat16 to float"};
	for (int k = 0; k < 7; k++) check(names[k], !bad[k], bad[k]);
}

static void test_q4(const Module& m) {
	struct block {
		half d;
		unsigned char q[16];
	};
	const int rows = 16, blocks = 64;
	std::vector<block> w(rows * blocks);
	for (block& b : w) {
		b.d = (half)(random_float() * 0.1f);
		for (unsigned char& q : b.q) q = (unsigned char)random_bits();
	}
	std::vector<half> x = random_values<half>(blocks * 32);
	Device<block> dw(w);
	Device<half> dx(x);
	Device<float> y(rows);
	MUST(try_launch(m.kernel("q4"), {rows}, {32}, 0, dw.p, dx.p, y.p, blocks));
	std::vector<float> r = y.get();
	double worst = 0;
	for (int i = 0; i < rows; i++) {
		double s = 0;
		for (int k = 0; k < blocks; k++)
			for (int j = 0; j < 16; j++) {
				const block& b = w[i * blocks + k];
				s += (double)b.d * (((b.q[j] & 15) - 8) * (double)x[k * 32 + j] + ((b.q[j] >> 4) - 8) * (double)x[k * 32 + j + 16]);
			}
		worst = std::max(worst, std::fabs(s - r[i]));
	}
	check("four-bit weights times a vector, worst error", worst < 0.1, worst);
}

void test_arithmetic() {
	Module m(std::string(wave_size() == 32 && !arch_is("gfx10") ? "#define SUDOT 1\n" : "#define SUDOT 0\n") + source);
	test_add(m);
	test_math(m);
	test_integers(m);
	test_halves(m);
	test_q4(m);
}
