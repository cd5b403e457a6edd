// What the self-test is written with: the two libraries opened as any program
// opens them, modules, device memory, launches and checks.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

typedef void* Handle;
typedef _Float16 half;

// The functions of the libraries that the tests call, bound by name.
#define HIP_FUNCTIONS(F) \
	F(hipInit, unsigned) \
	F(hipMalloc, void**, size_t) \
	F(hipFree, void*) \
	F(hipMemcpy, void*, const void*, size_t, int) \
	F(hipModuleLoadData, Handle*, const void*) \
	F(hipModuleGetFunction, Handle*, Handle, const char*) \
	F(hipModuleGetGlobal, Handle*, size_t*, Handle, const char*) \
	F(hipModuleLaunchKernel, Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**) \
	F(hipModuleLaunchCooperativeKernel, Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**) \
	F(hipDeviceSynchronize, void) \
	F(hipDeviceReset, void) \
	F(hipStreamCreate, Handle*) \
	F(hipStreamSynchronize, Handle) \
	F(hipStreamBeginCapture, Handle, int) \
	F(hipStreamEndCapture, Handle, Handle*) \
	F(hipGraphInstantiate, Handle*, Handle, Handle*, char*, size_t) \
	F(hipGraphLaunch, Handle, Handle) \
	F(hipEventCreate, Handle*) \
	F(hipEventRecord, Handle, Handle) \
	F(hipEventElapsedTime, float*, Handle, Handle)
#define HIPRTC_FUNCTIONS(F) \
	F(hiprtcCreateProgram, Handle*, const char*, const char*, int, const char**, const char**) \
	F(hiprtcCompileProgram, Handle, int, const char**) \
	F(hiprtcGetProgramLogSize, Handle, size_t*) \
	F(hiprtcGetProgramLog, Handle, char*) \
	F(hiprtcGetCodeSize, Handle, size_t*) \
	F(hiprtcGetCode, Handle, char*) \
	F(hiprtcDestroyProgram, Handle*) \
	F(hiprtcAddNameExpression, Handle, const char*) \
	F(hiprtcGetLoweredName, Handle, const char*, const char**)
#define DECLARE(name, ...) extern int (*name)(__VA_ARGS__);
HIP_FUNCTIONS(DECLARE)
HIPRTC_FUNCTIONS(DECLARE)
#undef DECLARE

// Opens the libraries, or ends the program.
void open_libraries();

// Ends the program where a call fails.
#define MUST(call) must(call, __FILE__, __LINE__, #call)
void must(int result, const char* file, int line, const char* call);

const std::string& arch();
bool arch_is(const char* prefix);
int wave_size();

enum { TO_DEVICE = 1, TO_HOST = 2 };
enum { INVALID_IMAGE = 200, ILLEGAL_ACCESS = 700, TIMEOUT = 702, NOT_SUPPORTED = 801 };

// The code object of a source, or with expect the log of the failure.
std::string compile(const std::string& source, int expect = 0);

struct Module {
	Handle m;
	explicit Module(const std::string& source) { MUST(hipModuleLoadData(&m, compile(source).data())); }
	Handle kernel(const char* name) const {
		Handle f;
		MUST(hipModuleGetFunction(&f, m, name));
		return f;
	}
};

// n elements on the device.
template <class T> struct Device {
	T* p = nullptr;
	size_t n;
	explicit Device(size_t n_) : n(n_) { MUST(hipMalloc((void**)&p, n * sizeof(T))); }
	explicit Device(const std::vector<T>& v) : Device(v.size()) { set(v); }
	Device(const Device&) = delete;
	~Device() { hipFree(p); }
	void set(const std::vector<T>& v) { MUST(hipMemcpy(p, v.data(), n * sizeof(T), TO_DEVICE)); }
	std::vector<T> get() const {
		std::vector<T> v(n);
		MUST(hipMemcpy(v.data(), p, n * sizeof(T), TO_HOST));
		return v;
	}
};

struct Shape {
	unsigned x = 1, y = 1, z = 1;
};

// Launches and waits; the result of waiting.
template <class... A> int try_launch(Handle f, Shape grid, Shape block, unsigned lds, A... a) {
	void* values[] = {(void*)&a..., nullptr};
	MUST(hipModuleLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, lds, nullptr, values, nullptr));
	return hipDeviceSynchronize();
}
// One block of threads, which must not fail.
template <class... A> void run(Handle f, unsigned threads, A... a) { MUST(try_launch(f, {1}, {threads}, 0, a...)); }

// Counts a test and prints it with its figure.
void check(const char* name, bool ok, double figure = 0);
int tests_done();
int tests_failed();

// Repeatable random numbers.
uint32_t random_bits();
float random_float(); // -1 to 1
template <class T> std::vector<T> random_values(size_t n);
std::vector<float> random_floats(size_t n, float scale = 1);

static inline float bf16_to_float(uint16_t h) {
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static inline uint16_t float_to_bf16_bits(float f) { // truncated
	uint32_t u;
	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16);
}

// The groups of tests.
void test_lanes();
void test_arithmetic();
void test_matrix();
void test_runtime();
void test_faults();

// The whole work of a process that test_faults starts; exits with 0 where the result is right.
void run_without_barrier();
