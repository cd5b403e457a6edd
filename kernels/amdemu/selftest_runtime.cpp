// The runtime around kernels: globals, scratch, calls, atomics, grids, graphs,
// cooperative launches, compile errors, name expressions.
#include "selftest_kit.h"

static const char source[] = R"(
__device__ int variable[4] = {1, 2, 3, 4};
__constant__ float constants[8];
extern "C" __global__ void memory(float* o, const int* at) {
	float local[16]; // indexed by data: scratch
	for (int i = 0; i < 16; i++) local[i] = i * 2.0f;
	local[at[threadIdx.x] & 15] = 100.f;
	float s = 0;
	for (int i = 0; i < 16; i++) s += local[(i * at[threadIdx.x]) & 15];
	o[threadIdx.x] = s + constants[threadIdx.x & 7] + variable[threadIdx.x & 3];
	__syncthreads();
	if (threadIdx.x == 0) variable[2] = 55;
}
__device__ __noinline__ float repeat(float x, int depth) { return depth == 0 ? x : repeat(x * 1.5f + 1, depth - 1); }
extern "C" __global__ void calls(float* o, const int* depth) { o[threadIdx.x] = repeat((float)threadIdx.x, depth[threadIdx.x] & 7); }

extern "C" __global__ void atomics(int* i, unsigned* u, float* f, unsigned long long* q) {
	__shared__ int s;
	if (threadIdx.x == 0) s = 0;
	__syncthreads();
	atomicAdd(&s, (int)threadIdx.x);
	__syncthreads();
	if (threadIdx.x == 0) atomicAdd(&i[1], s);
	atomicAdd(&i[0], 1);
	if (atomicCAS(&i[2], 0, 77) == 0) atomicAdd(&i[3], 1);
	atomicExch(&i[4], 9);
	atomicSub(&i[5], 2);
	atomicMax(&i[6], (int)(threadIdx.x * 7 % 101));
	atomicOr(&u[0], 1u << (threadIdx.x & 31));
	atomicInc(&u[1], 9u);
	atomicAdd(&f[0], 0.5f);
	atomicAdd(q, 3ull);
}

extern "C" __global__ void grid(float* o, int w, int h) {
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
	if (x < w && y < h) o[(z * h + y) * w + x] = x + 100 * y + 10000 * z + gridDim.x * 0.5f;
}

extern "C" __global__ void increase(int* a, int k) { a[threadIdx.x] += k; }

extern "C" __global__ void meet(unsigned* arrived, int* a, int n) {
	int g = blockIdx.x, s = 0;
	a[g] = g + 1;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		atomicAdd(arrived, 1u);
		while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < gridDim.x) __builtin_amdgcn_s_sleep(1);
	}
	__syncthreads();
	for (unsigned i = 0; i < gridDim.x; i++) s += __hip_atomic_load(&a[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
	if (threadIdx.x == 0) a[n + g] = s;
}
)";

static void test_memory(const Module& m) {
	const int n = 64;
	std::vector<int> at = random_values<int>(n);
	Device<int> d_at(at);
	Device<float> o(n);
	Handle constants, variable;
	size_t size, variable_size;
	MUST(hipModuleGetGlobal(&constants, &size, m.m, "constants"));
	MUST(hipModuleGetGlobal(&variable, &variable_size, m.m, "variable"));
	std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
	MUST(hipMemcpy(constants, values.data(), 32, TO_DEVICE));
	run(m.kernel("memory"), n, o.p, d_at.p);
	std::vector<float> r = o.get();
	int bad = 0;
	for (int t = 0; t < n; t++) {
		float local[16], s = 0;
		for (int i = 0; i < 16; i++) local[i] = i * 2;
		local[at[t] & 15] = 100;
		for (int i = 0; i < 16; i++) s += local[(i * at[t]) & 15];
		bad += r[t] != s + values[t & 7] + (t & 3) + 1;
	}
	check("scratch, constants, variables", !bad && size == 32, bad);
	int now[4];
	MUST(hipMemcpy(now, variable, 16, TO_HOST));
	check("variable written by a kernel", now[2] == 55 && variable_size == 16, now[2]);

	run(m.kernel("calls"), n, o.p, d_at.p);
	r = o.get();
	bad = 0;
	for (int t = 0; t < n; t++) {
		float x = t;
		for (int d = at[t] & 7; d > 0; d--) x = fmaf(x, 1.5f, 1);
		bad += std::fabs(r[t] - x) > 1e-3;
	}
	check("recursive calls", !bad, bad);
}

static void test_atomics(const Module& m) {
	Device<int> i(std::vector<int>{0, 0, 0, 0, 0, 0, -5});
	Device<unsigned> u(std::vector<unsigned>(2, 0));
	Device<float> f(std::vector<float>(1, 0));
	Device<unsigned long long> q(std::vector<unsigned long long>(1, 0));
	MUST(try_launch(m.kernel("atomics"), {3}, {100}, 0, i.p, u.p, f.p, q.p));
	check("atomics on integers", i.get() == std::vector<int>{300, 3 * 4950, 77, 1, 9, -600, 100});
	check("atomics on unsigned integers", u.get() == std::vector<unsigned>{~0u, 0});
	check("atomics on floats and 64 bits", f.get()[0] == 150 && q.get()[0] == 900, f.get()[0]);
}

static void test_grid(const Module& m) {
	const int w = 37, h = 19, d = 4;
	Device<float> o(w * h * d);
	MUST(try_launch(m.kernel("grid"), {5, 5, 2}, {8, 4, 2}, 0, o.p, w, h));
	std::vector<float> r = o.get();
	int bad = 0;
	for (int z = 0; z < d; z++)
		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x++) bad += r[(z * h + y) * w + x] != x + 100 * y + 10000 * z + 2.5f;
	check("grid of three dimensions", !bad, bad);
}

// Arguments are taken when the launch is captured.
static void test_graph(const Module& m) {
	Device<int> a(std::vector<int>(64, 0));
	Handle stream, graph, executable, before, after, f = m.kernel("increase");
	int k = 3;
	void* arguments[] = {&a.p, &k};
	MUST(hipStreamCreate(&stream));
	MUST(hipStreamBeginCapture(stream, 0));
	MUST(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
	k = 4;
	MUST(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
	MUST(hipStreamEndCapture(stream, &graph));
	check("a capture runs nothing", a.get()[5] == 0);
	MUST(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
	for (int i = 0; i < 5; i++) MUST(hipGraphLaunch(executable, stream));
	MUST(hipEventCreate(&before));
	MUST(hipEventCreate(&after));
	MUST(hipEventRecord(before, stream));
	MUST(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
	MUST(hipEventRecord(after, stream));
	MUST(hipStreamSynchronize(stream));
	float ms = -1;
	MUST(hipEventElapsedTime(&ms, before, after));
	check("graph, stream, events", a.get()[5] == 39 && ms >= 0, a.get()[5]);
}

static void test_cooperative(const Module& m) {
	Device<unsigned> arrived(std::vector<unsigned>(1, 0));
	Device<int> a(32);
	int n = 16, bad = 0;
	void* arguments[] = {&arrived.p, &a.p, &n};
	MUST(hipModuleLaunchCooperativeKernel(m.kernel("meet"), 16, 1, 1, 64, 1, 1, 0, nullptr, arguments));
	MUST(hipDeviceSynchronize());
	for (int i = 0; i < 16; i++) bad += a.get()[16 + i] != 136;
	check("cooperative blocks wait for one another", !bad, bad);
}

static void test_names() {
	const char* text = "template<class T, int N> __global__ void tk(T* o) { o[threadIdx.x] = N * threadIdx.x; }";
	Handle p, m, f;
	MUST(hiprtcCreateProgram(&p, text, "t.cu", 0, nullptr, nullptr));
	MUST(hiprtcAddNameExpression(p, "tk<float, 3>"));
	std::string target = "--offload-arch=" + arch();
	const char *options[] = {target.c_str()}, *symbol;
	MUST(hiprtcCompileProgram(p, 1, options));
	MUST(hiprtcGetLoweredName(p, "tk<float, 3>", &symbol));
	size_t n;
	MUST(hiprtcGetCodeSize(p, &n));
	std::string code(n, 0);
	MUST(hiprtcGetCode(p, &code[0]));
	MUST(hipModuleLoadData(&m, code.data()));
	MUST(hipModuleGetFunction(&f, m, symbol));
	Device<float> d(32);
	run(f, 32, d.p);
	check("name expression", d.get()[7] == 21, d.get()[7]);
}

void test_runtime() {
	Module m(source);
	test_memory(m);
	test_atomics(m);
	test_grid(m);
	test_graph(m);
	test_cooperative(m);
	std::string log = compile("extern \"C\" __global__ void x(int* a) { a[0] = undefined_thing; }", 6);
	check("compile error", log.find("undefined_thing") != std::string::npos);
	test_names();
}
