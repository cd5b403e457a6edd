// The self-test's tools.
#include "selftest_kit.h"
#include <cstdlib>
#include <dlfcn.h>

#define DEFINE(name, ...) int (*name)(__VA_ARGS__);
HIP_FUNCTIONS(DEFINE)
HIPRTC_FUNCTIONS(DEFINE)

static void* open_library(const char* name) {
	void* h = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (!h) {
		puts(dlerror());
		exit(1);
	}
	return h;
}
static void bind(void* library, const char* name, void** to) {
	*to = dlsym(library, name);
	if (!*to) {
		printf("missing %s\n", name);
		exit(1);
	}
}
void open_libraries() {
	void *hip = open_library("libamdhip64.so"), *rtc = open_library("libhiprtc.so");
#define BIND_HIP(name, ...) bind(hip, #name, (void**)&name);
#define BIND_RTC(name, ...) bind(rtc, #name, (void**)&name);
	HIP_FUNCTIONS(BIND_HIP)
	HIPRTC_FUNCTIONS(BIND_RTC)
	MUST(hipInit(0));
}

void must(int result, const char* file, int line, const char* call) {
	if (!result) return;
	printf("%s:%d %s -> %d\n", file, line, call, result);
	exit(1);
}

const std::string& arch() {
	static const std::string a = getenv("AMDEMU_ARCH") ? getenv("AMDEMU_ARCH") : "gfx1100";
	return a;
}
bool arch_is(const char* prefix) { return arch().compare(0, strlen(prefix), prefix) == 0; }
int wave_size() { return arch_is("gfx9") ? 64 : 32; }

std::string compile(const std::string& source, int expect) {
	Handle p;
	MUST(hiprtcCreateProgram(&p, source.c_str(), "selftest.hip", 0, nullptr, nullptr));
	std::string target = "--offload-arch=" + arch();
	const char* options[] = {target.c_str()};
	int result = hiprtcCompileProgram(p, 1, options);
	size_t n;
	MUST(hiprtcGetProgramLogSize(p, &n));
	std::string log(n, 0);
	MUST(hiprtcGetProgramLog(p, &log[0]));
	if (result != expect) {
		printf("compile: %d\n%s\n", result, log.c_str());
		exit(1);
	}
	std::string code;
	if (!result) {
		MUST(hiprtcGetCodeSize(p, &n));
		code.resize(n);
		MUST(hiprtcGetCode(p, &code[0]));
	}
	MUST(hiprtcDestroyProgram(&p));
	return result ? log : code;
}

static int done, failed;
int tests_done() { return done; }
int tests_failed() { return failed; }
void check(const char* name, bool ok, double figure) {
	done++;
	if (!ok) failed++;
	printf("%-8s %-44s %s %g\n", arch().c_str(), name, ok ? "ok" : "FAIL", figure);
	fflush(stdout);
}

uint32_t random_bits() {
	static uint32_t state = 12345;
	state = state * 1664525u + 1013904223u;
	return state >> 8 ^ state << 13;
}
float random_float() { return (random_bits() & 0xffff) / 32768.0f - 1.0f; }
std::vector<float> random_floats(size_t n, float scale) {
	std::vector<float> v(n);
	for (float& x : v) x = random_float() * scale;
	return v;
}
template <class T> std::vector<T> random_values(size_t n) {
	std::vector<T> v(n);
	for (T& x : v) x = (T)random_bits();
	return v;
}
template <> std::vector<half> random_values<half>(size_t n) {
	std::vector<half> v(n);
	for (half& x : v) x = (half)random_float();
	return v;
}
template std::vector<int> random_values<int>(size_t);
template std::vector<unsigned> random_values<unsigned>(size_t);
template std::vector<signed char> random_values<signed char>(size_t);
