// Package ops says what operations are told beside their numbers, alike for the
// processor and for GPUs: which activation, how a gate is bounded, what a search for
// trellis codes is given. It computes nothing.
//
// Compatibility: experimental.
package ops

import "fmt"

// An Activation is the nonlinearity of a feed-forward layer.
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
	// ReLU2 is max(x, 0) squared.
	ReLU2
	activationEnd
)

// String names the activation.
func (a Activation) String() string {
	if a < activationEnd {
		return [...]string{"silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2"}[a]
	}
	return fmt.Sprintf("Activation(%d)", a)
}

// A Gating changes what a gate of SiLU is multiplied with: with g the gate and u what it
// is multiplied with,
//
//	g = min(g, Limit), u = min(max(u, -Limit), Limit)      where Limit is not 0
//	g / (1 + exp(-Alpha*g)) * (u + Offset)                  with 1 for an Alpha of 0
//
// The zero value changes nothing.
type Gating struct{ Alpha, Limit, Offset float32 }

// A XIELU is an activation with numbers that were trained:
//
//	Positive*x*x + Beta*x                               for x > 0
//	Negative*(exp(min(x, Eps)) - 1 - x) + Beta*x        elsewhere
type XIELU struct{ Positive, Negative, Beta, Eps float32 }
