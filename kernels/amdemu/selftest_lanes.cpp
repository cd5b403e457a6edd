// Exchange between lanes: shuffles, ballots, DPP, swizzles, and what surrounds a wave.
#include "selftest_kit.h"

static const char source[] = R"(
extern "C" __global__ void sizes(int* o) { o[0] = warpSize; o[1] = __AMDGCN_WAVEFRONT_SIZE; }

// Five results of n threads, one after another.
extern "C" __global__ void shuffles(const float* a, float* o, int n) {
	int t = threadIdx.x;
	float x = a[t], sum = x, down = x;
	for (int k = warpSize / 2; k > 0; k >>= 1) sum += __shfl_xor(sum, k);
	for (int k = warpSize / 2; k > 0; k >>= 1) down += __shfl_down(down, k);
	o[t] = sum;
	o[n + t] = down;
	o[2 * n + t] = __shfl(x, 5);
	o[3 * n + t] = __shfl_up(x, 3);
	o[4 * n + t] = __popcll(__ballot(x > 0));
}

extern "C" __global__ void builtins(const int* a, const int* b, int* o) {
	int t = threadIdx.x, x = a[t], y = b[t];
	o[t] = __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, false); // row_shr:1
	o[64 + t] = __builtin_amdgcn_mov_dpp(x, 0xb1, 0xf, 0xf, true);    // quad_perm:[1,0,3,2]
	o[128 + t] = __builtin_amdgcn_readlane(x, 3) + __builtin_amdgcn_readfirstlane(y);
	o[192 + t] = __builtin_amdgcn_ds_swizzle(x, 0x401f);              // xor 16
	o[256 + t] = __builtin_amdgcn_mbcnt_lo(~0u, 0);
	o[320 + t] = __builtin_amdgcn_ds_bpermute(4 * ((t + 9) & (warpSize - 1)), x);
	o[384 + t] = __builtin_amdgcn_ds_permute(4 * ((t + 9) & (warpSize - 1)), x);
	o[448 + t] = t % 3 == 0 ? __builtin_amdgcn_mov_dpp(x, 0xb1, 0xf, 0xf, true) : 0; // inactive lanes read as 0
}

extern "C" __global__ void block_sum(const float* a, float* o, int n) {
	__shared__ float s[256];
	float v = 0;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += a[i];
	s[threadIdx.x] = v;
	__syncthreads();
	for (int k = 128; k > 0; k >>= 1) {
		if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x == 0) o[blockIdx.x] = s[0];
}

extern __shared__ float dynamic[];
extern "C" __global__ void reverse(const float* a, float* o) {
	__shared__ int one[3];
	one[0] = 1;
	dynamic[threadIdx.x] = a[threadIdx.x];
	__syncthreads();
	o[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x] + one[0] - 1;
}
)";

static void test_shuffles(const Module& m) {
	const int n = 128, W = wave_size();
	std::vector<float> x = random_floats(n);
	Device<float> dx(x), o(5 * n);
	run(m.kernel("shuffles"), n, dx.p, o.p, n);
	std::vector<float> r = o.get();
	int bad[4] = {0};
	for (int i = 0; i < n; i++) {
		const int first = i / W * W, lane = i % W;
		double sum = 0;
		int positive = 0;
		for (int l = 0; l < W; l++) {
			sum += x[first + l];
			positive += x[first + l] > 0;
		}
		bad[0] += std::fabs(r[i] - sum) > 1e-4;
		if (lane == 0) bad[1] += std::fabs(r[n + i] - sum) > 1e-4;
		bad[2] += r[2 * n + i] != x[first + 5] || r[3 * n + i] != (lane >= 3 ? x[i - 3] : x[i]);
		bad[3] += r[4 * n + i] != positive;
	}
	check("shfl_xor", !bad[0], bad[0]);
	check("shfl_down", !bad[1], bad[1]);
	check("shfl, shfl_up", !bad[2], bad[2]);
	check("ballot", !bad[3], bad[3]);
}

static void test_builtins(const Module& m) {
	const int W = wave_size();
	std::vector<int> a = random_values<int>(64), b = random_values<int>(64);
	Device<int> da(a), db(b), o(512);
	run(m.kernel("builtins"), 64, da.p, db.p, o.p);
	std::vector<int> r = o.get();
	int bad[8] = {0};
	for (int i = 0; i < 64; i++) {
		const int first = i / W * W, lane = i % W;
		bad[0] += r[i] != (i & 15 ? a[i - 1] : 0);
		bad[1] += r[64 + i] != a[i ^ 1];
		bad[2] += r[128 + i] != a[first + 3] + b[first];
		bad[3] += r[192 + i] != a[i ^ 16];
		bad[4] += r[256 + i] != (lane < 32 ? lane : 32);
		bad[5] += r[320 + i] != a[first + (lane + 9) % W];
		bad[6] += r[384 + i] != a[first + (lane + W - 9) % W];
		bad[7] += r[448 + i] != (i % 3 ? 0 : (i ^ 1) % 3 ? 0 : a[i ^ 1]);
	}
	const char* names[] = {"dpp row_shr", "dpp quad_perm", "readlane, readfirstlane", "ds_swizzle", "mbcnt", "ds_bpermute", "ds_permute", "dpp from inactive lanes"};
	for (int k = 0; k < 8; k++) check(names[k], !bad[k], bad[k]);
}

static void test_blocks(const Module& m) {
	std::vector<float> x = random_floats(10000);
	double expect = 0, got = 0;
	for (float v : x) expect += v;
	Device<float> dx(x), sums(4);
	MUST(try_launch(m.kernel("block_sum"), {4}, {256}, 0, dx.p, sums.p, 10000));
	for (float v : sums.get()) got += v;
	check("sum of a block through LDS", std::fabs(got - expect) < 1e-2, got - expect);

	const int n = 300; // not a whole number of waves
	Device<float> o(n);
	MUST(try_launch(m.kernel("reverse"), {1}, {n}, n * 4, dx.p, o.p));
	std::vector<float> r = o.get();
	int bad = 0;
	for (int i = 0; i < n; i++) bad += r[i] != x[n - 1 - i];
	check("dynamic LDS", !bad, bad);
}

void test_lanes() {
	Module m(source);
	Device<int> sizes(2);
	run(m.kernel("sizes"), 1, sizes.p);
	std::vector<int> s = sizes.get();
	check("wave size", s[0] == wave_size() && s[1] == wave_size(), s[0]);
	test_shuffles(m);
	test_builtins(m);
	test_blocks(m);
}
