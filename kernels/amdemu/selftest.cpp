// Self-test: small kernels, compiled through libhiprtc, run through libamdhip64,
// compared with the host. One run covers one architecture (AMDEMU_ARCH); make
// check runs it on all of them.
#include "selftest_kit.h"
#include <cstdlib>
#include <unistd.h>

int main() {
	setenv("AMDEMU_MAX_INST", "3000000", 0); // an endless loop ends soon
	open_libraries();
	if (getenv("AMDEMU_TEST_NO_BARRIER")) run_without_barrier();
	test_lanes();
	test_arithmetic();
	test_matrix();
	test_runtime();
	test_faults();
	printf("%s: %d tests, %d failed\n", arch().c_str(), tests_done(), tests_failed());
	fflush(stdout);
	_exit(tests_failed() != 0);
}
