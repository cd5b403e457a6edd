package model

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hf"
)

// settings reads config.json and remembers the first error, so that an
// architecture's file lists keys and nothing else. A key without a default is
// required.
type settings struct {
	c   *hf.Config
	err error
}

func (s *settings) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *settings) has(key string) bool { return s.c.Has(key) }

func (s *settings) int(key string) int64 {
	v, err := s.c.Int(key)
	s.note(err)
	return v
}

func (s *settings) intOr(key string, def int64) int64 {
	v, err := s.c.IntOr(key, def)
	s.note(err)
	return v
}

func (s *settings) float(key string) float64 {
	v, err := s.c.Float(key)
	s.note(err)
	return v
}

func (s *settings) floatOr(key string, def float64) float64 {
	v, err := s.c.FloatOr(key, def)
	s.note(err)
	return v
}

func (s *settings) boolOr(key string, def bool) bool {
	v, err := s.c.BoolOr(key, def)
	s.note(err)
	return v
}

func (s *settings) stringOr(key, def string) string {
	v, err := s.c.StringOr(key, def)
	s.note(err)
	return v
}

// refuse notes that a key has a value that is valid and not implemented.
func (s *settings) refuse(key string, value any) {
	s.note(formats.Unsupportedf(s.c.File(), key, "value %v", value))
}

// bad notes that a key has an impossible value.
func (s *settings) bad(key string, value any) {
	s.note(formats.Errorf(s.c.File(), key, "value %v makes no sense", value))
}

// activation reads an activation function by the names that transformers
// gives them (its table ACT2FN).
func (s *settings) activation(key, def string) Activation {
	name := s.stringOr(key, def)
	switch name {
	case "silu", "swish":
		return SiLU
	case "gelu":
		return GELU
	case "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh":
		return GELUTanh
	case "quick_gelu":
		return GELUQuick
	case "relu":
		return ReLU
	}
	s.refuse(key, name)
	return SiLU
}

// common reads the keys that the llama family spells alike. A size that has
// no entry in defaults is required.
func (s *settings) common(arch string, defaults map[string]int64) *decoder {
	size := func(key string) int64 {
		if def, ok := defaults[key]; ok {
			return s.intOr(key, def)
		}
		return s.int(key)
	}
	d := newDecoder(arch)
	d.vocab = size("vocab_size")
	d.width = size("hidden_size")
	d.layers = s.layers(size("num_hidden_layers"))
	d.heads = size("num_attention_heads")
	d.kvHeads = s.intOr("num_key_value_heads", d.heads)
	if def, ok := defaults["num_key_value_heads"]; ok {
		d.kvHeads = s.intOr("num_key_value_heads", def)
	}
	d.inner = size("intermediate_size")
	d.context = size("max_position_embeddings")
	d.eps = float32(s.floatOr("rms_norm_eps", 1e-6))
	d.act = s.activation("hidden_act", "silu")
	d.tied = s.boolOr("tie_word_embeddings", false)
	d.headDim = s.intOr("head_dim", 0)
	if d.headDim == 0 && d.heads > 0 {
		d.headDim = d.width / d.heads
	}
	return d
}

// layers checks a layer count, which sizes what follows.
func (s *settings) layers(n int64) int {
	if n < 1 || n > maxLayers {
		if s.err == nil {
			s.bad("num_hidden_layers", n)
		}
		return 1
	}
	return int(n)
}

// slidingLayers returns the window of each layer: by layer_types where the
// configuration has them, else by the rule given.
func (s *settings) slidingLayers(window int64, layers int, sliding func(layer int) bool) func(int) int64 {
	if !s.has("layer_types") {
		return func(layer int) int64 {
			if window > 0 && sliding(layer) {
				return window
			}
			return 0
		}
	}
	types, err := s.c.Strings("layer_types")
	s.note(err)
	if s.err == nil && len(types) < layers {
		s.bad("layer_types", types)
	}
	if s.err != nil {
		return nil
	}
	for _, t := range types[:layers] {
		switch {
		case t != "sliding_attention" && t != "full_attention":
			s.refuse("layer_types", t)
		case t == "sliding_attention" && window <= 0:
			s.bad("sliding_window", window)
		}
	}
	return func(layer int) int64 {
		if types[layer] == "sliding_attention" {
			return window
		}
		return 0
	}
}

// everyLayer gives all layers one window; 0 is none.
func everyLayer(window int64) func(int) int64 {
	return func(int) int64 { return window }
}

// rope reads the rotary embedding in either style: rope_parameters, or flat
// rope_theta and rope_scaling. kind selects a layer type's entry of a nested
// rope_parameters, "" none. theta is the default base.
func (s *settings) rope(d *decoder, theta, partial float64, kind string) Rope {
	var p *settings
	if params, ok := s.c.Sub("rope_parameters"); ok {
		p = &settings{c: params}
		if kind != "" && params.Has(kind) {
			if sub, ok := params.Sub(kind); ok {
				p = &settings{c: sub}
			}
		}
	} else if sub, ok := s.c.Sub("rope_scaling"); ok {
		p = &settings{c: sub}
	}
	theta = s.floatOr("rope_theta", theta)
	partial = s.floatOr("partial_rotary_factor", partial)
	r := Rope{Style: RopeHalf, Theta: theta, Scaling: RopeScaling{Kind: ScaleNone}}
	if p != nil {
		r.Theta = p.floatOr("rope_theta", theta)
		partial = p.floatOr("partial_rotary_factor", partial)
	}
	r.Dim = int64(float64(d.headDim) * partial)
	if p != nil {
		s.scaling(&r, p, d)
		s.note(p.err)
	}
	return r
}

// scaling reads a rope_scaling or rope_parameters object. The keys and
// defaults are those of transformers' modeling_rope_utils.py.
func (s *settings) scaling(r *Rope, p *settings, d *decoder) {
	c := &r.Scaling
	kind := p.stringOr("rope_type", p.stringOr("type", "default"))
	if kind == "yarn" && p.has("short_factor") {
		kind = "longrope" // what early Phi-3 configurations called it
	}
	original := func() int64 {
		return s.intOr("original_max_position_embeddings", p.intOr("original_max_position_embeddings", d.context))
	}
	switch kind {
	case "default":
		return
	case "linear":
		c.Kind, c.Factor = ScaleLinear, p.float("factor")
	case "dynamic":
		c.Kind, c.Factor, c.Original = ScaleDynamic, p.float("factor"), d.context
	case "llama3":
		c.Kind, c.Factor, c.Original = ScaleLlama3, p.float("factor"), original()
		c.LowFreq, c.HighFreq = p.float("low_freq_factor"), p.float("high_freq_factor")
	case "yarn":
		c.Kind, c.Original = ScaleYarn, original()
		c.Factor = p.floatOr("factor", float64(d.context)/float64(max(c.Original, 1)))
		c.BetaFast, c.BetaSlow = p.floatOr("beta_fast", 32), p.floatOr("beta_slow", 1)
		c.Truncate = p.boolOr("truncate", true)
		c.Attention = yarnAttention(p, c.Factor)
	case "longrope", "su":
		s.longRope(c, p, d, original())
	default:
		s.refuse("rope_type", kind)
	}
}

// yarnAttention returns the factor on cos and sin. Source: equation 22 of the
// YaRN paper (arXiv 2309.00071), and the mscale keys of DeepSeek's configs.
func yarnAttention(p *settings, factor float64) float64 {
	if p.has("attention_factor") {
		return p.float("attention_factor")
	}
	m, all := p.floatOr("mscale", 0), p.floatOr("mscale_all_dim", 0)
	if m != 0 && all != 0 {
		return yarnScale(factor, m) / yarnScale(factor, all)
	}
	return yarnScale(factor, 1)
}

func yarnScale(factor, m float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*m*math.Log(factor) + 1
}

// longRope reads Phi-3's two lists of factors. Source: the LongRoPE paper
// (arXiv 2402.13753) and transformers' modeling_rope_utils.py.
func (s *settings) longRope(c *RopeScaling, p *settings, d *decoder, original int64) {
	c.Kind, c.Original = ScaleLongRope, original
	factor := p.floatOr("factor", 0)
	if factor == 0 {
		factor = float64(d.context) / float64(max(original, 1))
	}
	switch {
	case p.has("attention_factor"):
		c.Attention = p.float("attention_factor")
	case factor > 1 && original > 1:
		c.Attention = math.Sqrt(1 + math.Log(factor)/math.Log(float64(original)))
	}
	c.Short, c.Long = p.float32s("short_factor"), p.float32s("long_factor")
}

func (s *settings) float32s(key string) []float32 {
	v, err := s.c.Floats(key)
	s.note(err)
	out := make([]float32, len(v))
	for i, f := range v {
		out[i] = float32(f)
	}
	return out
}
