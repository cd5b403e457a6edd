package cpu

import (
	"fmt"
	"math"
)

// An Activation is the nonlinearity of a feed-forward block.
type Activation uint8

const (
	// SiLU is x / (1 + exp(-x)), also called swish.
	SiLU Activation = iota
	// GELU is x * (1 + erf(x/sqrt(2))) / 2, with the error function, not tanh.
	GELU
	// GELUTanh is x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2, which
	// Hugging Face calls gelu_new and gelu_pytorch_tanh.
	GELUTanh
	// QuickGELU is x / (1 + exp(-1.702 x)).
	QuickGELU
	// ReLU is max(x, 0).
	ReLU
	activationEnd
)

// String names the activation.
func (a Activation) String() string {
	if a < activationEnd {
		return [...]string{"silu", "gelu", "gelu_tanh", "quick_gelu", "relu"}[a]
	}
	return fmt.Sprintf("Activation(%d)", a)
}

// tanh(u) = 2 sigmoid(2u) - 1 turns GELUTanh into x * sigmoid(a1 x + a3 x^3).
const (
	geluTanh1 = 1.5957691216057308 // 2 sqrt(2/pi)
	geluTanh3 = geluTanh1 * 0.044715
)

// Activate computes dst[i] = act(x[i]); dst may be x. The relative error is at most
// 2^-21, times 1 + |z| for GELUTanh and QuickGELU, whose exponent z is rounded
// itself; results under 1e-30 may be off by as much. A NaN gives NaN; infinities
// give the limits, except that a smooth activation of -Inf is NaN, being -Inf
// times 0.
func (s *Set) Activate(act Activation, dst, x []float32) {
	want(len(dst) == len(x), "Activate", len(dst), len(x))
	switch act {
	case SiLU:
		s.gated(dst, x, 1, 0)
	case QuickGELU:
		s.gated(dst, x, 1.702, 0)
	case GELUTanh:
		s.gated(dst, x, geluTanh1, geluTanh3)
	case GELU:
		s.gelu(dst, x)
	case ReLU:
		for i, v := range x {
			dst[i] = max(v, 0)
		}
	default:
		panic("cpu: unknown " + act.String())
	}
}

// ActivateMul computes dst[i] = act(gate[i]) * up[i], the gated feed-forward
// (SwiGLU, GeGLU). dst may be gate, and must not be up.
func (s *Set) ActivateMul(act Activation, dst, gate, up []float32) {
	want(len(up) == len(dst), "ActivateMul", len(dst), len(up))
	s.Activate(act, dst, gate)
	s.mul(dst, up)
}

// SiLUMul is ActivateMul(SiLU, dst, gate, up).
func (s *Set) SiLUMul(dst, gate, up []float32) { s.ActivateMul(SiLU, dst, gate, up) }

func gatedGeneric(dst, x []float32, a1, a3 float32) {
	for i, v := range x {
		u := float64(v)
		l := min(max(u, -1000), 1000) // keeps a3 = 0 times u cubed from being Inf times 0
		z := float64(float64(a1)*l) + float64(float64(a3)*l*l*l)
		dst[i] = float32(u / (1 + exp64(-z)))
	}
}

func geluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(float64(v) * 0.5 * math.Erfc(-float64(v)/math.Sqrt2))
	}
}
