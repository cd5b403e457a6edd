// The power of two that a row's halves have: see halve.hip.
#include "common.hip"

// The exponent that brings m to 2^13 or a little more; 0 for 0 and Inf.
NSTF_DEVICE int halve_exponent(f32 m) {
	if (m == 0 || !(m < NSTF_INFINITY)) return 0;
	const int e = 140 - (int)(bits_of(m) >> 23);
	return e > 120 ? 120 : e;
}
