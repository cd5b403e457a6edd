package graph

import "math"

// An FFN is a feed-forward layer: down(act(gate(x)) * up(x)), which Gating may
// change, or down(act(up(x))) without a gate.
type FFN struct {
	Act Activation `json:"act"`
	Gating
	XIELU *XIELU  `json:"xielu,omitempty"` // of that activation, which has no gate
	Gate  *Linear `json:"gate,omitempty"`  // [F][D]
	Up    Linear  `json:"up"`              // [F][D]
	Down  Linear  `json:"down"`            // [D][F]
}

// A Gating changes what a gate of silu is multiplied with. With g = gate(x) and
// u = up(x),
//
//	g = min(g, Limit), u = min(max(u, -Limit), Limit)     where Limit is not 0
//	y = down(g / (1 + exp(-Alpha*g)) * (u + UpOffset))
//
// Source: transformers 5.23, _apply_gate of GptOssExperts (1.702, 7, 1); llama.cpp's
// ggml_swiglu_oai.
type Gating struct {
	Alpha    float32 `json:"alpha,omitempty"` // 0 = 1
	Limit    float32 `json:"limit,omitempty"` // 0 = none
	UpOffset float32 `json:"up_offset,omitempty"`
}

// A XIELU is an activation with numbers that were trained:
//
//	softplus(AlphaP)*x*x + Beta*x                                        for x > 0
//	(Beta + softplus(AlphaN))*(exp(min(x, Eps)) - 1 - x) + Beta*x        elsewhere
//
// Source: transformers 5.23, XIELUActivation; arXiv 2411.13010; llama.cpp's ggml_xielu.
type XIELU struct {
	AlphaP float32 `json:"alpha_p"`
	AlphaN float32 `json:"alpha_n"`
	Beta   float32 `json:"beta"`
	Eps    float32 `json:"eps"`
}

// Factors returns softplus(AlphaP) and Beta + softplus(AlphaN).
func (x *XIELU) Factors() (positive, negative float64) {
	softplus := func(v float32) float64 { return math.Log1p(math.Exp(float64(v))) }
	return softplus(x.AlphaP), float64(x.Beta) + softplus(x.AlphaN)
}

// An Activation names an elementwise function.
type Activation string

// The activations.
const (
	SiLU      Activation = "silu"
	GELU      Activation = "gelu"       // exact, by erf
	GELUTanh  Activation = "gelu_tanh"  // 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3)))
	GELUQuick Activation = "gelu_quick" // x*sigmoid(1.702x)
	ReLU      Activation = "relu"
	ReLU2     Activation = "relu2" // max(x, 0)^2
	ActXIELU  Activation = "xielu" // with the numbers of a [XIELU], which it names
)

func (f *FFN) parts(l *lister) {
	f.inner(l, "ffn")
	f.outer(l, "ffn")
}

// inner lists what reads the layer's input, outer what reads what lies between.
func (f *FFN) inner(l *lister, at string) {
	l.linear(at+".gate", f.Gate, l.width, f.Up.Out)
	l.linear(at+".up", &f.Up, l.width, f.Up.Out)
}

func (f *FFN) outer(l *lister, at string) { l.linear(at+".down", &f.Down, f.Up.Out, l.width) }

func (f *FFN) check(c *checker) { f.checkAt(c, "ffn") }

func (f *FFN) checkAt(c *checker, at string) {
	if x := f.XIELU; (x != nil) != (f.Act == ActXIELU) || x != nil && f.Gate != nil {
		c.fail(at+".xielu", "belongs to the activation of that name, without a gate")
	} else if x != nil {
		for _, n := range []struct {
			name string
			v    float32
		}{{"alpha_p", x.AlphaP}, {"alpha_n", x.AlphaN}, {"beta", x.Beta}, {"eps", x.Eps}} {
			if c.finite(at+".xielu."+n.name, n.v); !(n.v >= -80 && n.v <= 80) {
				c.fail(at+".xielu."+n.name, "%v is not between -80 and 80", n.v)
			}
		}
	} else {
		c.activation(at+".act", f.Act)
	}
	c.gating(at, f.Gating, f.Act, f.Gate)
	c.within(at+".up", f.Up.Out, 1<<28)
}

func (c *checker) gating(at string, g Gating, act Activation, gate *Linear) {
	c.finite(at+".alpha", g.Alpha)
	c.finite(at+".limit", g.Limit)
	c.finite(at+".up_offset", g.UpOffset)
	switch {
	case g == Gating{}:
	case !(g.Alpha >= 0) || !(g.Limit >= 0):
		c.fail(at, "alpha %v and limit %v must not be negative", g.Alpha, g.Limit)
	case gate == nil || act != SiLU:
		c.fail(at, "alpha, limit and up_offset belong to a gate of silu")
	}
}

func (c *checker) activation(key string, a Activation) {
	switch a {
	case SiLU, GELU, GELUTanh, GELUQuick, ReLU, ReLU2:
	default:
		c.unsupported(key, "activation", string(a))
	}
}
