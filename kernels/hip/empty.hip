// A launch of nothing: what every launch costs.
#include "common.hip"

NSTF_KERNEL void nstf_empty() {}
