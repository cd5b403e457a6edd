package graph

// An FFN is a feed-forward layer: down(act(gate(x)) * up(x)), which Gating may
// change, or down(act(up(x))) without a gate.
type FFN struct {
	Act Activation `json:"act"`
	Gating
	Gate *Linear `json:"gate,omitempty"` // [F][D]
	Up   Linear  `json:"up"`             // [F][D]
	Down Linear  `json:"down"`           // [D][F]
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
	c.activation(at+".act", f.Act)
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
