package cpu

import (
	"math"

	"github.com/nstf/nstf/kernels/ops"
)

// tanh(u) = 2 sigmoid(2u) - 1 turns ops.GELUTanh into x * sigmoid(a1 x + a3 x^3).
const (
	geluTanh1 = 1.5957691216057308 // 2 sqrt(2/pi)
	geluTanh3 = geluTanh1 * 0.044715
)

// Activate computes dst[i] = act(x[i]); dst may be x. The relative error is at most
// 2^-21, times 1 + |z| for ops.GELUTanh and ops.QuickGELU, whose exponent z is rounded
// itself; results under 1e-30 may be off by as much. A NaN gives NaN; infinities
// give the limits, except that a smooth activation of -Inf is NaN, being -Inf
// times 0.
func (s *Set) Activate(act ops.Activation, dst, x []float32) {
	want(len(dst) == len(x), "Activate", len(dst), len(x))
	switch act {
	case ops.SiLU:
		s.gated(dst, x, 1, 0)
	case ops.QuickGELU:
		s.gated(dst, x, 1.702, 0)
	case ops.GELUTanh:
		s.gated(dst, x, geluTanh1, geluTanh3)
	case ops.GELU:
		s.gelu(dst, x)
	case ops.ReLU:
		for i, v := range x {
			dst[i] = max(v, 0)
		}
	case ops.ReLU2:
		for i, v := range x {
			v = max(v, 0)
			dst[i] = v * v
		}
	default:
		panic("cpu: unknown " + act.String())
	}
}

// ActivateMul computes dst[i] = act(gate[i]) * up[i], the gated feed-forward
// (SwiGLU, GeGLU). dst may be gate, and must not be up.
func (s *Set) ActivateMul(act ops.Activation, dst, gate, up []float32) {
	want(len(up) == len(dst), "ActivateMul", len(dst), len(up))
	s.Activate(act, dst, gate)
	s.mul(dst, up)
}

// SigmoidMul computes dst[i] *= 1 / (1 + exp(-gate[i])), and leaves anything in gate.
// The relative error is at most 2^-21; results under 1e-30 may be off by as much.
func (s *Set) SigmoidMul(dst, gate []float32) {
	want(len(gate) == len(dst), "SigmoidMul", len(dst), len(gate))
	s.scale(gate, -1)
	s.expSum(gate, 0)
	for i, e := range gate {
		dst[i] /= 1 + e
	}
}

// SwiGLU computes, with g = gate[i] and u = up[i],
//
//	g = min(g, Limit), u = min(max(u, -Limit), Limit)      where Limit is not 0
//	dst[i] = g / (1 + exp(-Alpha*g)) * (u + Offset)         with 1 for an Alpha of 0
//
// dst may be gate or up. Errors, NaN and infinities are those of Activate, with the
// rounding of Alpha*g besides where Alpha is not 0.
func (s *Set) SwiGLU(o ops.Gating, dst, gate, up []float32) {
	want(len(gate) == len(dst) && len(up) == len(dst), "SwiGLU", len(dst), len(gate), len(up))
	if o.Alpha == 0 {
		o.Alpha = 1
	}
	if o.Limit == 0 {
		o.Limit = float32(math.Inf(1))
	}
	s.swiGLU(dst, gate, up, o.Alpha, o.Limit, o.Offset)
}

// XIELU computes
//
//	dst[i] = Positive*x[i]*x[i] + Beta*x[i]                                      for x[i] > 0
//	dst[i] = Negative*(exp(min(x[i], Eps)) - 1 - x[i]) + Beta*x[i]               elsewhere
//
// in float64, rounded once; dst may be x. A NaN gives NaN.
func (s *Set) XIELU(o ops.XIELU, dst, x []float32) {
	want(len(dst) == len(x), "XIELU", len(dst), len(x))
	p, n, beta, eps := float64(o.Positive), float64(o.Negative), float64(o.Beta), float64(o.Eps)
	for i, v := range x {
		u := float64(v)
		y := float64(beta * u)
		if u > 0 {
			y += float64(float64(p*u) * u)
		} else {
			y += float64(n * (math.Expm1(min(u, eps)) - u))
		}
		dst[i] = float32(y)
	}
}

// SiLUMul is ActivateMul(ops.SiLU, dst, gate, up).
func (s *Set) SiLUMul(dst, gate, up []float32) { s.ActivateMul(ops.SiLU, dst, gate, up) }

func gatedGeneric(dst, x []float32, a1, a3 float32) {
	for i, v := range x {
		u := float64(v)
		l := min(max(u, -1000), 1000) // keeps a3 = 0 times u cubed from being Inf times 0
		z := float64(float64(a1)*l) + float64(float64(a3)*l*l*l)
		dst[i] = float32(u / (1 + exp64(-z)))
	}
}

func swiGLUGeneric(dst, gate, up []float32, alpha, limit, offset float32) {
	for i, g := range gate {
		g, u := min(g, limit), min(max(up[i], -limit), limit)
		z := float64(alpha) * float64(g)
		dst[i] = float32(float64(g)/(1+exp64(-z))) * (u + offset)
	}
}

func geluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(float64(v) * 0.5 * math.Erfc(-float64(v)/math.Sqrt2))
	}
}
