package model

import (
	"math"

	"github.com/nstf/nstf/formats"
)

// rope reads the rotary embedding in either style: rope_parameters, or flat
// rope_theta and rope_scaling. kind selects a layer type's entry of a nested
// rope_parameters, "" none. theta is the default base.
func (s *settings) rope(d *decoder, theta, partial float64, kind string) Rope {
	if kind != "sliding_attention" { // whose flat key is rope_local_base_freq
		theta = s.floatOr("rope_theta", theta)
	}
	partial = s.floatOr("partial_rotary_factor", partial)
	r := Rope{Style: RopeHalf, Theta: theta, Scaling: RopeScaling{Kind: ScaleNone}}
	p := s.ropeObject(kind)
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

// ropeObject returns the object that describes a rotary embedding, nil where
// there is none. Where both styles are in one file, the older holds: so does
// transformers read it, for people add rope_scaling by hand.
func (s *settings) ropeObject(kind string) *settings {
	var found *settings
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if !s.has(key) {
			continue
		}
		sub, ok := s.c.Sub(key)
		if !ok {
			s.note(formats.Errorf(s.c.File(), key, "value is not an object"))
			continue
		}
		if kind != "" && found != nil {
			s.refuse("rope_scaling", "beside rope_parameters")
		}
		if inner, ok := sub.Sub(kind); ok {
			sub = inner
		}
		for _, name := range sub.Keys() {
			if _, nested := sub.Sub(name); nested {
				s.refuse(key, "per layer type")
			}
		}
		if len(sub.Keys()) > 0 {
			found = &settings{c: sub}
		}
	}
	return found
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
		def := d.context
		if d.arch == "phi3" {
			def = 4096 // its class has the key, with this default
		}
		return s.intOr("original_max_position_embeddings", p.intOr("original_max_position_embeddings", def))
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
		c.BetaFast, c.BetaSlow = p.unlessZero("beta_fast", 32), p.unlessZero("beta_slow", 1)
		c.Truncate = p.boolOr("truncate", true)
		c.Attention = yarnAttention(p, c.Factor)
	case "longrope", "su":
		s.longRope(c, p, d, original())
	default:
		s.refuse("rope_type", kind)
	}
}

// unlessZero reads an optional number that zero leaves out as well.
func (s *settings) unlessZero(key string, def float64) float64 {
	if v := s.floatOr(key, def); v != 0 {
		return v
	}
	return def
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
	for _, key := range []string{"short_mscale", "long_mscale"} { // Phi-3.5-MoE's, two factors instead of one
		if p.has(key) {
			s.refuse(key, p.float(key))
		}
	}
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
