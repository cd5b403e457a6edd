// What the emulator has to notice: accesses out of bounds, memory never written,
// endless loops, and, under other orders of waves, a missing barrier.
#include "selftest_kit.h"
#include <cctype>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

static const char source[] = R"HIP(
extern "C" __global__ void write_at(int* a) { a[threadIdx.x] = 1; }
extern "C" __global__ void read_at(const int* a, int* o, int i) { o[threadIdx.x] = a[i]; }
extern "C" __global__ void lds_at(int* o, int i) {
	__shared__ int s[64];
	s[threadIdx.x] = threadIdx.x;
	__syncthreads();
	s[threadIdx.x + i] = 1;
	__syncthreads();
	o[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void unwritten(float* o) {
	__shared__ float s[64];
	o[threadIdx.x] = s[threadIdx.x];
	o[64 + threadIdx.x] = o[128 + threadIdx.x];
}
extern "C" __global__ void wait_for_wave(int* a) {
	__shared__ volatile int f;
	if (threadIdx.x == 0) f = 0;
	__syncthreads();
	if (threadIdx.x < 64) {
		while (!f) __builtin_amdgcn_s_sleep(1);
	} else {
		f = 1;
	}
	a[threadIdx.x] = 1;
}
extern "C" __global__ void forever(volatile int* a) {
	while (a[0] == 0) __builtin_amdgcn_s_sleep(1);
	a[1] = 1;
}
extern "C" __global__ void unknown_register(int* a) {
	int v;
	asm volatile("s_getreg_b32 %0, hwreg(HW_REG_STATUS)" : "=s"(v));
	a[threadIdx.x] = v;
}
// What graphics alone has: a number of waves, and loads that report missing pages.
extern "C" __global__ void unknown_operand(int* a) {
	int v = 0;
#if defined(__GFX9__) || defined(__GFX10__)
	asm volatile("s_mov_b32 %0, src_pops_exiting_wave_id" : "=s"(v));
#else
	asm volatile("buffer_load_b32 v[0:1], off, s[0:3], null tfe" ::: "v0", "v1");
#endif
	a[threadIdx.x] = v;
}
// Each wave reads what the wave before it writes, without a barrier.
extern "C" __global__ void no_barrier(int* o) {
	__shared__ volatile int s[256];
	s[threadIdx.x] = threadIdx.x;
	o[threadIdx.x] = threadIdx.x < 64 ? 0 : s[threadIdx.x - 64];
}
)HIP";

template <class... A> static int fault_of(Handle f, A... a) {
	int r = try_launch(f, {1}, {64}, 0, a...);
	hipDeviceReset();
	return r;
}

// Whether the kernel without a barrier gives what one with it would, under an order of waves.
static bool right_without_barrier(const char* order) {
	fflush(stdout);
	pid_t child = fork(); // a process of its own, since the order is read once
	if (child == 0) {
		setenv("AMDEMU_TEST_NO_BARRIER", "1", 1);
		setenv("AMDEMU_SCHED", order, 1);
		execl("/proc/self/exe", "selftest", (char*)nullptr);
		_exit(2);
	}
	int status;
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
void run_without_barrier() {
	Module m(source);
	Device<int> o(256);
	run(m.kernel("no_barrier"), 256, o.p);
	std::vector<int> r = o.get();
	int bad = 0;
	for (int i = 64; i < 256; i++) bad += r[i] != i - 64;
	fflush(stdout);
	_exit(bad != 0);
}

static void test_bounds(const Module& m) {
	Device<int> small(60), o(64);
	int r = fault_of(m.kernel("write_at"), small.p);
	check("write out of bounds", r == ILLEGAL_ACCESS, r);
	r = fault_of(m.kernel("read_at"), small.p, o.p, 60);
	check("read of the number behind a buffer", r == ILLEGAL_ACCESS, r);
	r = fault_of(m.kernel("read_at"), small.p, o.p, -1);
	check("read of the number before a buffer", r == ILLEGAL_ACCESS, r);
	r = fault_of(m.kernel("lds_at"), o.p, 64);
	check("write out of LDS", r == ILLEGAL_ACCESS, r);
	std::vector<int> v(61);
	r = hipMemcpy(small.p, v.data(), 61 * 4, TO_DEVICE);
	check("copy beyond an allocation", r == 1, r);
}

// The code object with other versions in what its compiler and linker wrote.
static std::string with_version(std::string code, const char* behind, const char* version) {
	for (size_t at = 0; (at = code.find(behind, at)) != std::string::npos; at += 1)
		if (isdigit((unsigned char)code[at + strlen(behind)])) code.replace(at + strlen(behind), 2, version);
	return code;
}
static int result_of_loading(const std::string& code) {
	Handle m;
	return hipModuleLoadData(&m, code.data());
}
// Code of an LLVM is read by the disassembler of the same one, or not at all.
static void test_producer() {
	const std::string code = compile(source), other = with_version(code, "LLD ", "77");
	check("code that says what made it", result_of_loading(code) == 0);
	int r = result_of_loading(other);
	check("compiler and linker of two LLVMs", r == INVALID_IMAGE, r);
	r = result_of_loading(with_version(other, "clang version ", "77"));
	check("an LLVM whose disassembler is not here", r == INVALID_IMAGE, r);
	r = result_of_loading(with_version(with_version(code, "LLD ", "xx"), "clang version ", "xx"));
	check("code that does not say what made it", r == INVALID_IMAGE, r);
}

static void test_unknown(const Module& m) {
	Device<int> o(64);
	int r = fault_of(m.kernel("unknown_register"), o.p);
	check("a hardware register that is not known", r == NOT_SUPPORTED, r);
	r = fault_of(m.kernel("unknown_operand"), o.p);
	check("an operand or modifier that is not known", r == NOT_SUPPORTED, r);
}

void test_faults() {
	Module m(source);
	test_producer();
	test_unknown(m);
	test_bounds(m);
	Device<float> f(192);
	run(m.kernel("unwritten"), 64, f.p);
	int numbers = 0;
	for (int i = 0; i < 128; i++) numbers += f.get()[i] == f.get()[i];
	check("what was never written is NaN", !numbers, numbers);

	Device<int> a(std::vector<int>(128, 0));
	run(m.kernel("wait_for_wave"), 128, a.p);
	check("a wave waits for another", a.get()[127] == 1);
	a.set(std::vector<int>(128, 0));
	int r = fault_of(m.kernel("forever"), a.p);
	check("endless loop", r == TIMEOUT, r);

	check("a missing barrier is not seen in order", right_without_barrier(""));
	check("a missing barrier is seen in reverse", !right_without_barrier("rev"));
	check("a missing barrier is seen at random", !right_without_barrier("rand:1") || !right_without_barrier("rand:2"));
}
