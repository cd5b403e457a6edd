// The nonlinearity of a feed-forward layer that ACTIVATION numbers, as
// kernels/cpu does: 0 SiLU, 1 GELU with the error function, 2 GELU with tanh,
// 3 x / (1 + exp(-1.702 x)), 4 ReLU. Errors: see activate.hip.
#include "functions.hip"

NSTF_DEVICE f32 activated(f32 x) {
#if ACTIVATION == 0
	return x / (1.0f + exp_f32(-x));
#elif ACTIVATION == 1
	return x * normal_cdf(x);
#elif ACTIVATION == 2
	return x / (1.0f + exp_f32(-x * fmaf(0.0713548163f * x, x, 1.59576912f)));
#elif ACTIVATION == 3
	return x / (1.0f + exp_f32(-1.702f * x));
#else
	return x > 0.0f ? x : (x != x ? x : 0.0f);
#endif
}
