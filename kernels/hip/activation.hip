// The nonlinearity of a feed-forward layer that ACTIVATION numbers, as
// kernels/cpu does: 0 SiLU, 1 GELU with the error function, 2 GELU with tanh,
// 3 x / (1 + exp(-1.702 x)), 4 ReLU, 5 its square; and 6, 1 / (1 + exp(-x)). Errors: see activate.hip.
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
#elif ACTIVATION == 5
	return x > 0.0f ? x * x : (x != x ? x : 0.0f);
#elif ACTIVATION == 6
	return 1.0f / (1.0f + exp_f32(-x));
#else
	return x > 0.0f ? x : (x != x ? x : 0.0f);
#endif
}

// The product of a gate, activated, and what it opens. Where GATE_ALPHA is given,
// with it, GATE_LIMIT (0: none) and GATE_OFFSET as the bits of float32:
//
//	g = min(g, limit), u = min(max(u, -limit), limit)
//	g / (1 + exp(-alpha*g)) * (u + offset)
//
// A NaN is below and above nothing, and stays.
NSTF_DEVICE f32 gated(f32 g, f32 u) {
#ifdef GATE_ALPHA
	if (GATE_LIMIT != 0) {
		const f32 limit = of_bits(GATE_LIMIT);
		g = g > limit ? limit : g;
		u = u > limit ? limit : u < -limit ? -limit : u;
	}
	return g / (1.0f + exp_f32(-of_bits(GATE_ALPHA) * g)) * (u + of_bits(GATE_OFFSET));
#else
	return activated(g) * u;
#endif
}
