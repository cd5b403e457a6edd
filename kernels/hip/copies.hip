// Copies of 16 bytes from global memory to LDS that run by themselves, where the machine has them
// (MATRIX_COPIES): others keep the words in registers meanwhile, or copy at once (copy_piece).
#include "common.hip"

#if NSTF_MATRIX == NSTF_MATRIX_MMA
#define MATRIX_COPIES 1
NSTF_DEVICE u32 matrix_address(const void *lds) { return (u32)__cvta_generic_to_shared(lds); }
NSTF_DEVICE void matrix_copy(void *lds, const void *global) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(matrix_address(lds)), "l"(global) : "memory");
}
// The same, or zeros.
NSTF_DEVICE void matrix_copy(void *lds, const void *global, bool exists) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(matrix_address(lds)), "l"(global), "r"(exists ? 16 : 0) : "memory");
}
NSTF_DEVICE void matrix_copy_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last Open groups of this lane have arrived.
template <int Open> NSTF_DEVICE void matrix_copy_wait() {
	asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}
#else
#define MATRIX_COPIES 0
#endif
